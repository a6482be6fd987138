"""REST: who reads a bot's arrivals. Named consumers, where theirs are pushed to, and forgetting them."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.desk import Desk
from peik.doors.access import Access
from peik.doors.bodies import decode, parse_id, read_body
from peik.doors.inbox_views import consumer_view, tally_view
from peik.doors.replies import Route, json_response
from peik.inbox.desk import InboxDesk
from peik.inbox_ports import Consumer

_SMALL_BODY = 64 * 1024


class ConsumerBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PUT /v1/consumers/{bot_id}/{name}`. `url` null: nothing is pushed, and it reads for itself."""

    url: str | None = None
    secret: str | None = None
    allowed_updates: list[str] | None = None
    max_connections: int | None = None


class ConsumerRoutes:
    def __init__(self, desk: Desk, inbox: InboxDesk, access: Access) -> None:
        self._desk = desk
        self._inbox = inbox
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/consumers", self.list_consumers, "listConsumers", "consumers"),
            ("PUT", "/v1/consumers/{bot_id}/{name}", self.set_consumer, "setConsumer", "consumers"),
            ("DELETE", "/v1/consumers/{bot_id}/{name}", self.remove_consumer, "removeConsumer", "consumers"),
        )

    async def list_consumers(self, request: Request) -> Response:
        """Who reads arrivals, how far each is, and what waits for it."""
        caller = self._access.admit(request, "admin")
        asked = request.query_params.get("bot_id")
        bot_id = None if asked is None else parse_id(asked, "bot_id")
        if bot_id is not None:
            caller.must_serve(bot_id)
        tallies = await self._inbox.tallies(bot_id)
        return json_response(
            {"consumers": [tally_view(tally) for tally in tallies if caller.sees(tally.consumer.bot_id)]}
        )

    async def set_consumer(self, request: Request) -> Response:
        """Push a consumer's arrivals to an address, or let it read for itself again. Made if there is none."""
        caller = self._access.admit(request, "admin")
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        caller.must_serve(bot_id)
        body = decode(ConsumerBody, await read_body(request, bytes_max=_SMALL_BODY))
        bot = self._desk.bot(bot_id)
        return json_response(
            consumer_view(await set_consumer(self._inbox, bot.bot_id, request.path_params["name"], body))
        )

    async def remove_consumer(self, request: Request) -> Response:
        """Forget a consumer; arrivals are not kept for it any more. The default one stays."""
        caller = self._access.admit(request, "admin")
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        caller.must_serve(bot_id)
        await self._inbox.remove_consumer(bot_id, request.path_params["name"])
        return Response(status_code=204)


async def set_consumer(inbox: InboxDesk, bot_id: int, name: str, body: ConsumerBody) -> Consumer:
    """The same for every door that takes this body."""
    return await inbox.set_consumer(
        bot_id,
        name,
        url=body.url,
        secret=body.secret,
        allowed=body.allowed_updates,
        connections_max=body.max_connections,
    )
