"""REST: changing bots. Pause and resume, rotate the token, set limits."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.token import Token
from peik.desk import Desk
from peik.doors.access import Access
from peik.doors.bodies import decode, parse_id, read_body
from peik.doors.replies import Route, json_response
from peik.doors.views import bot_view
from peik.ports import BotRecord

_SMALL_BODY = 64 * 1024
PAUSED_BY_HAND = "paused by hand"


class BotBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/bots`."""

    token: str
    inbound: str = "off"


class LimitsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Telegram's figures as this bot shall start with them; what is left out stays."""

    is_on: bool | msgspec.UnsetType = msgspec.UNSET
    bulk_per_s: float | msgspec.UnsetType = msgspec.UNSET
    interactive_per_s: float | msgspec.UnsetType = msgspec.UNSET
    interactive_per_s_max: float | msgspec.UnsetType = msgspec.UNSET
    private_per_s: float | msgspec.UnsetType = msgspec.UNSET
    private_burst: int | msgspec.UnsetType = msgspec.UNSET
    group_per_min: int | msgspec.UnsetType = msgspec.UNSET


class BotChange(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/bots/{bot_id}`. What is not given stays; `limits` null goes back to the usual figures."""

    paused: bool | msgspec.UnsetType = msgspec.UNSET
    token: str | msgspec.UnsetType = msgspec.UNSET
    inbound: str | msgspec.UnsetType = msgspec.UNSET
    limits: LimitsBody | msgspec.UnsetType | None = msgspec.UNSET
    missed: str | msgspec.UnsetType | None = msgspec.UNSET


class BotRoutes:
    def __init__(self, desk: Desk, access: Access) -> None:
        self._desk = desk
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (("PATCH", "/v1/bots/{bot_id}", self.change_bot, "changeBot", "bots"),)

    async def change_bot(self, request: Request) -> Response:
        """Pause, resume, rotate the token, set limits and policies."""
        caller = self._access.admit(request, "admin")
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        caller.must_serve(bot_id)
        body = decode(BotChange, await read_body(request, bytes_max=_SMALL_BODY))
        return json_response(bot_view(await change_bot(self._desk, bot_id, body)))


async def change_bot(desk: Desk, bot_id: int, body: BotChange) -> BotRecord:
    """The same for every door that takes this body."""
    paused: str | msgspec.UnsetType | None = msgspec.UNSET
    if body.paused is not msgspec.UNSET:
        paused = PAUSED_BY_HAND if body.paused else None
    return await desk.change_bot(
        bot_id,
        token=None if body.token is msgspec.UNSET else Token(body.token),
        inbound=None if body.inbound is msgspec.UNSET else body.inbound,
        paused=paused,
        limits=_limits(body.limits),
        missed=body.missed,
    )


def _limits(body: LimitsBody | msgspec.UnsetType | None) -> dict[str, float] | msgspec.UnsetType | None:
    if body is None or body is msgspec.UNSET:
        return body
    return {name: figure for name, figure in msgspec.structs.asdict(body).items() if figure is not msgspec.UNSET}
