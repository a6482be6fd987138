"""REST: users of a company, the codes that link them to their chats, and what is known of them."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.quiet import Quiet
from peik.core.units import parse_duration_s
from peik.doors.access import Access, Caller
from peik.doors.bodies import decode, parse_id, read_body
from peik.doors.queries import read_limit
from peik.doors.replies import Route, json_response
from peik.errors import BadInput
from peik.notifications.links import CODE_S, Links, not_linked, unknown
from peik.notifications.shown import user_view
from peik.notifications.values import User, checked_user
from peik.shown import rfc3339

_SMALL_BODY = 64 * 1024


class LinkBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/users/{user_id}/link`. `expires_in`: seconds, or a time such as 15m."""

    bot_id: int | str | None = None
    expires_in: int | float | str | None = None
    language: str | None = None


class UserQuietBody(msgspec.Struct, forbid_unknown_fields=True):
    start: str
    end: str
    tz: str = "UTC"


class UserBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/users/{user_id}`. Null: as Telegram says of the language, as the settings say of quiet hours."""

    language: str | msgspec.UnsetType | None = msgspec.UNSET
    quiet: UserQuietBody | msgspec.UnsetType | None = msgspec.UNSET


class UserRoutes:
    def __init__(self, links: Links, access: Access) -> None:
        self._links = links
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/users", self.list_users, "listUsers", "users"),
            ("PATCH", "/v1/users/{user_id}", self.change, "changeUser", "users"),
            ("POST", "/v1/users/{user_id}/link", self.link, "linkUser", "users"),
            ("GET", "/v1/users/{user_id}/link", self.show, "getLink", "users"),
            ("DELETE", "/v1/users/{user_id}/link", self.unlink, "unlinkUser", "users"),
        )

    async def list_users(self, request: Request) -> Response:
        """Users that were ever given a code, in the order of their ids."""
        caller = self._access.admit(request, "read")
        limit = read_limit(request)
        after = request.query_params.get("cursor")
        users = await self._links.users(after=None if after is None else checked_user(after), limit=limit)
        cursor = users[-1].user_id if len(users) == limit else None
        seen = await self._links.seen(users, caller.key.bot_ids)
        return json_response({"users": [user_view(one) for one in seen], "next_cursor": cursor})

    async def link(self, request: Request) -> Response:
        """Make a code that links one chat to this user, once, within a quarter of an hour.

        It is shown this once; an older one of the same user is over."""
        caller = self._access.admit(request, "send")
        user_id = checked_user(request.path_params["user_id"])
        text = await read_body(request, bytes_max=_SMALL_BODY)
        body = decode(LinkBody, text) if text.strip() else LinkBody()
        asked = parse_id(body.bot_id, "bot_id") if isinstance(body.bot_id, str) else body.bot_id
        made = await self._links.new_code(
            user_id,
            bot_id=caller.bot_id_of(asked),
            expires_s=seconds_of(body.expires_in, "expires_in", CODE_S),
            language=body.language,
            bot_ids=caller.key.bot_ids,
        )
        answer = {
            "user_id": user_id,
            "bot_id": str(made.bot_id),
            "code": made.code,
            "url": made.url,
            "expires_at": rfc3339(made.expires_at_ms),
        }
        return json_response(answer, 201)

    async def show(self, request: Request) -> Response:
        """Whether this user has linked a chat: which one, by which bot, since when."""
        caller = self._access.admit(request, "read")
        user_id = checked_user(request.path_params["user_id"])
        return json_response(user_view(await self._own(user_id, caller) or User(user_id=user_id)))

    async def unlink(self, request: Request) -> Response:
        """Undo the link; a code that was given out is over as well. What waits for this user fails as user_not_linked."""
        caller = self._access.admit(request, "send")
        user_id = checked_user(request.path_params["user_id"])
        if await self._own(user_id, caller) is None:
            raise not_linked(user_id)
        return json_response(user_view(await self._links.unlink(user_id)))

    async def change(self, request: Request) -> Response:
        """Set the language that this user is written to in, or hours in which only what is critical is sent."""
        caller = self._access.admit(request, "send")
        user_id = checked_user(request.path_params["user_id"])
        if await self._own(user_id, caller) is None:
            raise unknown(user_id)
        body = decode(UserBody, await read_body(request, bytes_max=_SMALL_BODY))
        quiet: Quiet | msgspec.UnsetType | None = msgspec.UNSET
        if body.quiet is None:
            quiet = None
        elif isinstance(body.quiet, UserQuietBody):
            quiet = Quiet(start=body.quiet.start, end=body.quiet.end, tz=body.quiet.tz)
        return json_response(user_view(await self._links.change(user_id, language=body.language, quiet=quiet)))

    async def _own(self, user_id: str, caller: Caller) -> User | None:
        """None: there is nobody of this name for the caller. Whether there is for others is not told."""
        user = await self._links.user(user_id)
        return user if user is not None and await self._links.seen([user], caller.key.bot_ids) else None


def seconds_of(value: str | float | None, name: str, default: float) -> float:
    """Seconds as a number, or a time as people write it."""
    if value is None:
        return default
    try:
        return parse_duration_s(value) if isinstance(value, str) else float(value)
    except ValueError as error:
        raise BadInput(code=f"bad_{name}", detail=f"{name}: {error}.") from None
