"""Pages: the people of the dashboard. Adding one, a role, a new password, signing out everywhere, removing."""

from typing import get_args

from starlette.requests import Request
from starlette.responses import Response

from peik.admin.api import KeyBody, NewKeyAnswer, make_key
from peik.admin.model import Role, Scope
from peik.errors import BadInput
from peik.web.dashboard.board import Board, Page, Visitor, must_see_all
from peik.web.dashboard.fields import PAGE, Fields
from peik.web.parse import parse_id

OIDC_SHOWN_MAX = 200


class PeoplePages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._people = board.people

    def table(self) -> tuple[Page, ...]:
        one = "/admin/people/{name}"
        return (
            ("GET", "/admin/people", self.show, Role.ADMIN, ""),
            ("POST", "/admin/people", self.add, Role.ADMIN, "people.add"),
            ("POST", f"{one}/role", self.set_role, Role.ADMIN, "people.role"),
            ("POST", f"{one}/password", self.set_password, Role.ADMIN, "people.password"),
            ("POST", f"{one}/sign-out", self.sign_out, Role.ADMIN, "people.sign_out"),
            ("POST", "/admin/people/~oidc/sign-out", self.sign_out_oidc, Role.ADMIN, "people.sign_out"),
            ("POST", f"{one}/remove", self.remove, Role.ADMIN, "people.remove"),
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        sign_ins = self._board.sign_ins
        by_oidc = await sign_ins.by_oidc() if sign_ins.has_oidc else None
        return self._board.page(
            request,
            visitor,
            "people.html",
            people=await self._people.everybody(),
            roles=tuple(Role),
            by_oidc=None if by_oidc is None else by_oidc[:OIDC_SHOWN_MAX],
            oidc_count=len(by_oidc or ()),
        )

    async def add(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        fields = await Fields.sent(request)
        person = await self._people.add(fields.need("name"), _role(fields), fields.secret("password"))
        self._board.note(request, target=person.name)
        return self._back(request, visitor, "people_added", person.name)

    async def set_role(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        role = _role(await Fields.sent(request))
        person = await self._people.set_role(request.path_params["name"], role)
        return self._back(request, visitor, "people_changed", person.name)

    async def set_password(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        password = (await Fields.sent(request)).secret("password")
        person = await self._people.set_password(request.path_params["name"], password)
        return self._back(request, visitor, "people_changed", person.name)

    async def sign_out(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        person = await self._people.sign_out(request.path_params["name"])
        return self._back(request, visitor, "people_signed_out", person.name)

    async def sign_out_oidc(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        subject = (await Fields.sent(request)).need("subject")
        name = await self._board.sign_ins.sign_out_oidc(subject)
        self._board.note(request, target=name, detail=subject)
        return self._back(request, visitor, "people_signed_out", name)

    async def remove(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        name = request.path_params["name"]
        await self._people.remove(name)
        return self._back(request, visitor, "people_removed", name)

    def _back(self, request: Request, visitor: Visitor, said: str, name: str) -> Response:
        return self._board.back(request, visitor, "/admin/people", said=said, name=name)


def _role(fields: Fields) -> Role:
    try:
        return Role(fields.need("role"))
    except ValueError:
        raise BadInput(code="bad_role", detail=f"role is one of {', '.join(Role)}.") from None


# Pages: keys of the API. Made (and shown once), listed, revoked.


SCOPES: tuple[Scope, ...] = get_args(Scope)
_URL_CHARS_MAX = 2000


class KeyPages:
    """All of this is for admins that see every bot: who makes keys can make one for anything."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._service = board.peik.outbox.service
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
        made = await make_key(self._keyring, self._service, body)
        self._board.note(request, target=made.id)
        return self._page(request, visitor, made=made)

    async def revoke(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        key_id = parse_id(request.path_params["key_id"], "key_id")
        await self._keyring.revoke(key_id)
        return self._board.back(request, visitor, "/admin/keys", said="keys_revoked", id=key_id)

    def _page(self, request: Request, visitor: Visitor, made: NewKeyAnswer | None = None) -> Response:
        return self._board.page(
            request,
            visitor,
            "keys.html",
            keys=sorted(self._keyring.known(), key=lambda key: key.id, reverse=True),
            made=made,
            scopes=SCOPES,
            bots=self._service.bots(),
            now_ms=self._board.peik.clock.wall_ms(),
        )


# The page of the audit log: who did what to Peik, when, from where, and what came of it.


_FIELDS = ("who", "action", "since", "until")


class AuditPages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._audit = board.audit

    def table(self) -> tuple[Page, ...]:
        return (("GET", "/admin/audit", self.show, Role.ADMIN, ""),)

    async def show(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        fields = Fields.asked(request)
        found = await self._audit.find(
            who=fields.text("who"),
            action=fields.text("action"),
            since_ms=fields.instant_ms("since"),
            until_ms=fields.instant_ms("until"),
            cursor=fields.text("cursor"),
            limit=PAGE,
        )
        return self._board.page(
            request,
            visitor,
            "audit.html",
            lines=found.lines,
            cursor=found.cursor,
            asked={name: fields.text(name) or "" for name in _FIELDS},
            url=fields.address("/admin/audit", *_FIELDS),
        )
