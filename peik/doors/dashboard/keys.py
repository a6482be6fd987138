"""Pages: keys of the API. Made (and shown once), listed, revoked."""

from typing import get_args

from starlette.requests import Request
from starlette.responses import Response

from peik.core.key import Scope
from peik.core.role import Role
from peik.doors.bodies import parse_id
from peik.doors.dashboard.board import Board, Page, Visitor
from peik.doors.dashboard.fields import Fields
from peik.doors.dashboard.reach import must_see_all
from peik.doors.rest_keys import KeyBody, make_key

SCOPES: tuple[Scope, ...] = get_args(Scope)
_URL_CHARS_MAX = 2000


class KeyPages:
    """All of this is for admins that see every bot: who makes keys can make one for anything."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._desk = board.peik.desk
        self._keyring = board.peik.keyring

    def table(self) -> tuple[Page, ...]:
        return (
            ("GET", "/admin/keys", self.show, Role.ADMIN, ""),
            ("POST", "/admin/keys", self.make, Role.ADMIN, "keys.make"),
            ("POST", "/admin/keys/{key_id}/revoke", self.revoke, Role.ADMIN, "keys.revoke"),
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        return self._page(request, visitor)

    async def make(self, request: Request, visitor: Visitor) -> Response:
        """The page with the new key: there is no other that shows it."""
        must_see_all(visitor)
        fields = await Fields.sent(request)
        bot_ids = fields.all("bot_id")
        body = KeyBody(
            name=fields.need("name"),
            scopes=[scope for scope in SCOPES if scope == fields.text("scope")],
            bot_ids=list(bot_ids) or None,
            expires_at=fields.instant("expires_at"),
            rate=fields.text("rate"),
            webhook_url=fields.text("webhook_url", chars_max=_URL_CHARS_MAX),
        )
        made = await make_key(self._keyring, self._desk, body)
        self._board.note(request, target=str(made["id"]))
        return self._page(request, visitor, made=made)

    async def revoke(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        key_id = parse_id(request.path_params["key_id"], "key_id")
        await self._keyring.revoke(key_id)
        return self._board.back(request, visitor, "/admin/keys", said="keys_revoked", id=key_id)

    def _page(self, request: Request, visitor: Visitor, made: dict[str, object] | None = None) -> Response:
        return self._board.page(
            request,
            visitor,
            "keys.html",
            keys=sorted(self._keyring.known(), key=lambda key: key.id, reverse=True),
            made=made,
            scopes=SCOPES,
            bots=self._desk.bots(),
            now_ms=self._board.peik.clock.wall_ms(),
        )
