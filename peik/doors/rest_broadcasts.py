"""REST: broadcasts. Making, starting, halting, ending and recalling them; how they stand; and the ledger, also as a file."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from peik.broadcasts.records import Broadcast
from peik.broadcasts.shown import (
    broadcast_view,
    estimate_view,
    ledger_csv,
    ledger_head,
    ledger_jsonl,
    recipient_view,
)
from peik.core.broadcast import RecipientState, read_recipient_state
from peik.core.call import chat_key
from peik.core.key import Scope
from peik.doors.access import Access, Caller
from peik.doors.bodies import decode, instant_ms, parse_id, read_body
from peik.doors.broadcast_bodies import (
    PreviewBody,
    StartBody,
    bot_id_in,
    duplicates_of,
    read_broadcast_body,
    request_of,
)
from peik.doors.flowing import Flow
from peik.doors.queries import read_cursor, read_limit
from peik.doors.replies import Route, json_response
from peik.errors import BadInput, NotFound

if TYPE_CHECKING:
    from peik.app import Office

_SMALL_BODY = 64 * 1024
STALL_S = 60.0  # a reader of an export who takes nothing for so long has gone
FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


class BroadcastRoutes:
    def __init__(self, peik: "Office", access: Access) -> None:
        self._broadcasts = peik.broadcasts
        self._config = peik.config
        self._clock = peik.clock
        self._access = access

    def table(self) -> tuple[Route, ...]:
        one = "/v1/broadcasts/{broadcast_id}"
        return (
            ("POST", "/v1/broadcasts", self.create, "createBroadcast", "broadcasts"),
            ("GET", "/v1/broadcasts", self.list_broadcasts, "listBroadcasts", "broadcasts"),
            ("GET", one, self.show, "getBroadcast", "broadcasts"),
            ("DELETE", one, self.delete, "deleteBroadcast", "broadcasts"),
            ("POST", f"{one}/start", self.start, "startBroadcast", "broadcasts"),
            ("POST", f"{one}/pause", self.pause, "pauseBroadcast", "broadcasts"),
            ("POST", f"{one}/resume", self.resume, "resumeBroadcast", "broadcasts"),
            ("POST", f"{one}/cancel", self.cancel, "cancelBroadcast", "broadcasts"),
            ("POST", f"{one}/recall", self.recall, "recallBroadcast", "broadcasts"),
            ("POST", f"{one}/preview", self.preview, "previewBroadcast", "broadcasts"),
            ("POST", f"{one}/estimate", self.estimate, "estimateBroadcast", "broadcasts"),
            ("GET", f"{one}/recipients", self.recipients, "listRecipients", "broadcasts"),
        )

    # ---- making ----

    async def create(self, request: Request) -> Response:
        """Make a broadcast, and start it with `start: true`, or at `send_at`. Recipients are a list, a CSV or known chats."""
        caller = self._access.admit(request, "send")
        body, audience = await read_broadcast_body(request, bytes_max=self._config.body_max)
        wanted = request_of(
            body,
            audience,
            bot_id=caller.bot_id_of(bot_id_in(body)),
            key=request.headers.get("idempotency-key"),
            created_by=caller.key.name,
        )
        made = await self._broadcasts.create(wanted)
        return json_response({**self._view(made), "duplicates": duplicates_of(audience)}, 201)

    # ---- looking ----

    async def list_broadcasts(self, request: Request) -> Response:
        """Broadcasts, the newest first."""
        caller = self._access.admit(request, "read")
        given = _given(request, ("bot_id", "cursor", "limit"))
        bot_ids = caller.key.bot_ids
        if "bot_id" in given:
            bot_id = parse_id(given["bot_id"], "bot_id")
            caller.must_serve(bot_id)
            bot_ids = frozenset({bot_id})
        limit, cursor = read_limit(request), read_cursor(request)
        before = None if cursor is None else given["cursor"]
        found = await self._broadcasts.find(bot_ids=bot_ids, before=before, limit=limit)
        next_cursor = found[-1].id if len(found) == limit else None
        return json_response({"broadcasts": [self._view(one) for one in found], "next_cursor": next_cursor})

    async def show(self, request: Request) -> Response:
        """One broadcast: how far it is, and when it will be done."""
        return json_response(self._view((await self._asked(request, "read"))[1]))

    async def estimate(self, request: Request) -> Response:
        """A dry run: how many would get it, who is suppressed, how long it takes and what it may cost. Nothing is sent."""
        _, found = await self._asked(request, "read")
        return json_response(estimate_view(await self._broadcasts.estimate(found.id)))

    async def recipients(self, request: Request) -> Response:
        """The ledger, line by line; with `format=csv` or `format=jsonl` all of it, as a file."""
        _, found = await self._asked(request, "read")
        given = _given(request, ("state", "cursor", "limit", "format"))
        state = _state(given.get("state"))
        if "format" in given:
            return self._export(found, state, given["format"])
        lines, place = await self._broadcasts.recipients(
            found.id, state=state, after=read_cursor(request), limit=read_limit(request)
        )
        return json_response(
            {
                "recipients": [recipient_view(number, line) for number, line in lines],
                "next_cursor": None if place is None else str(place),
            }
        )

    def _export(self, found: Broadcast, state: RecipientState | None, kind: str) -> Response:
        if kind not in FORMATS:
            raise BadInput(code="bad_format", detail=f"format is one of {', '.join(FORMATS)}.")
        headers = {"content-disposition": f'attachment; filename="broadcast-{found.id}.{kind}"'}
        return Flow(self._written(found, state, kind), media_type=FORMATS[kind], headers=headers, stall_s=STALL_S)

    async def _written(self, found: Broadcast, state: RecipientState | None, kind: str) -> AsyncGenerator[bytes, None]:
        if kind == "csv":
            yield ledger_head()
        async for lines in self._broadcasts.ledger(found.id, state=state):
            if lines:
                yield ledger_csv(lines) if kind == "csv" else ledger_jsonl(lines)

    # ---- changing ----

    async def start(self, request: Request) -> Response:
        """Start a broadcast that was made, now or at `send_at`."""
        _, found = await self._asked(request, "send")
        raw = await read_body(request, bytes_max=_SMALL_BODY)
        body = decode(StartBody, raw) if raw else StartBody()
        return json_response(
            self._view(await self._broadcasts.start(found.id, at_ms=instant_ms(body.send_at, "send_at")))
        )

    async def pause(self, request: Request) -> Response:
        """Halt a broadcast. What waits in the outbox is taken back; what is in flight ends."""
        _, found = await self._asked(request, "send")
        return json_response(self._view(await self._broadcasts.pause(found.id)))

    async def resume(self, request: Request) -> Response:
        """Let a broadcast go on that was paused, or that stopped itself."""
        _, found = await self._asked(request, "send")
        return json_response(self._view(await self._broadcasts.resume(found.id)))

    async def cancel(self, request: Request) -> Response:
        """End a broadcast: nobody else gets it."""
        _, found = await self._asked(request, "send")
        return json_response(self._view(await self._broadcasts.cancel(found.id)))

    async def recall(self, request: Request) -> Response:
        """End a broadcast and delete what it has sent. Telegram deletes only what is younger than 48 hours."""
        _, found = await self._asked(request, "send")
        return json_response(self._view(await self._broadcasts.recall(found.id)))

    async def preview(self, request: Request) -> Response:
        """Send a broadcast to one chat, ahead of other letters, to see what it looks like."""
        _, found = await self._asked(request, "send")
        body = decode(PreviewBody, await read_body(request, bytes_max=_SMALL_BODY))
        letter_id = await self._broadcasts.preview(found.id, chat_key(body.chat_id))
        return json_response({"letter_id": str(letter_id)}, 202)

    async def delete(self, request: Request) -> Response:
        """Forget a broadcast that was never started, or that is over, with its ledger."""
        _, found = await self._asked(request, "send")
        await self._broadcasts.delete(found.id)
        return Response(status_code=204)

    # ---- ----

    async def _asked(self, request: Request, scope: Scope) -> tuple[Caller, Broadcast]:
        """The broadcast of the path. Raises NotFound for another bot's, in the words for one that is not there."""
        caller = self._access.admit(request, scope)
        broadcast_id = request.path_params["broadcast_id"]
        found = await self._broadcasts.get(broadcast_id)
        if not caller.sees(found.bot_id):
            raise NotFound(code="unknown_broadcast", detail=f"There is no broadcast {broadcast_id} here (any more).")
        return caller, found

    def _view(self, found: Broadcast) -> dict[str, object]:
        return broadcast_view(found, per_s=self._broadcasts.per_s(found.bot_id), now_ms=self._clock.wall_ms())


def _given(request: Request, names: tuple[str, ...]) -> dict[str, str]:
    """An unknown name is refused: a mistyped filter must not mean "everything"."""
    unknown = set(request.query_params) - set(names)
    if unknown:
        raise BadInput(
            code="unknown_filter",
            detail=f"There is no filter {', '.join(sorted(unknown))}. There are: {', '.join(names)}.",
        )
    return dict(request.query_params)


def _state(text: str | None) -> RecipientState | None:
    return None if text is None else read_recipient_state(text)
