"""REST: broadcasts. Making, starting, halting, ending and recalling them; how they stand; and the ledger, also as a file."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Scope
from peik.broadcasts.answers import broadcast_view, estimate_view, ledger_csv, ledger_head, ledger_jsonl, recipient_view
from peik.broadcasts.audience import Audience, ContactAudience, ListAudience, listed, read_csv
from peik.broadcasts.model import ASKED, Broadcast, Canary, Paid, Phase, RecipientState, read_recipient_state
from peik.broadcasts.service import KEY_CHARS_MAX, BroadcastRequest
from peik.core.call import chat_key
from peik.core.documents import ContactFilter
from peik.core.letter import OnUncertain
from peik.core.quiet import Quiet
from peik.errors import BadInput, NotFound
from peik.web.access import Access, Caller
from peik.web.bodies import read_body, read_cursor, read_limit
from peik.web.openapi import CURSOR, ID, LIMIT, SECONDS, TIME, Json, OperationRow, in_path, in_query, nullable, shape
from peik.web.parse import decode, instant_ms, parse_id
from peik.web.responses import Flow, Route, json_response

# Bodies of the broadcasts' part of the REST door: JSON, or a form with a CSV.


_Time = int | float | str | None
TYPES = frozenset({"private", "group", "supergroup", "channel"})


class ContactsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Known chats of the bot. What is left out does not matter."""

    types: list[str] | None = None
    languages: list[str] | None = None
    seen_since: _Time = None
    seen_before: _Time = None
    gone: bool | None = None
    text: str | None = None
    campaign: str | None = None


class AudienceBody(msgspec.Struct, forbid_unknown_fields=True):
    """One of the three."""

    chat_ids: list[int | str] | None = None
    csv: str | None = None
    contacts: ContactsBody | None = None


class CanaryBody(msgspec.Struct, forbid_unknown_fields=True):
    count: int | None = None
    percent: float | None = None
    limit: float = 0.2


class QuietBody(msgspec.Struct, forbid_unknown_fields=True):
    start: str
    end: str
    tz: str = "UTC"


class PaidBody(msgspec.Struct, forbid_unknown_fields=True):
    stars_max: float


class BroadcastBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/broadcasts`. `params` are those of the method, without chat_id."""

    method: str
    params: dict[str, Any]
    audience: AudienceBody | None = None  # left out in a form with a CSV
    bot_id: int | str | None = None
    name: str | None = None
    canary: CanaryBody | None = None
    quiet: QuietBody | None = None
    paid: PaidBody | None = None
    on_uncertain: OnUncertain | None = None
    start: bool = False
    send_at: _Time = None
    idempotency_key: str | None = None


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    send_at: _Time = None


class PreviewBody(msgspec.Struct, forbid_unknown_fields=True):
    chat_id: int | str


async def read_broadcast_body(request: Request, *, bytes_max: int) -> tuple[BroadcastBody, Audience]:
    """The body, and who is to be written to. Raises BadInput, TooLarge."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        body = decode(BroadcastBody, await read_body(request, bytes_max=bytes_max))
        return body, await asyncio.to_thread(audience_of, body.audience)  # a million lines take seconds
    form = await _form(request, await read_body(request, bytes_max=bytes_max))
    try:
        whole, file = form.get("broadcast"), form.get("csv")
        if not isinstance(whole, str) or not isinstance(file, UploadFile):
            raise BadInput(
                code="bad_multipart",
                detail="A form has the field broadcast, as JSON, and the file csv with the recipients.",
            )
        body = decode(BroadcastBody, whole.encode())
        if body.audience is not None:
            raise BadInput(
                code="bad_audience", detail="The recipients come either in the CSV or in audience, not in both."
            )
        return body, await asyncio.to_thread(read_csv, await file.read())
    finally:
        await form.close()


async def _form(request: Request, raw: bytes) -> FormData:
    async def whole() -> AsyncGenerator[bytes, None]:
        yield raw

    try:
        if not raw.rstrip().endswith(b"--"):  # half of a list must not be taken for the whole
            raise MultiPartException("it breaks off before its last boundary")
        return await MultiPartParser(
            request.headers, whole(), max_files=1, max_fields=10, max_part_size=1024 * 1024
        ).parse()
    except MultiPartException as error:
        raise BadInput(code="bad_multipart", detail=f"The form cannot be read: {error.message}.") from None


def audience_of(body: AudienceBody | None) -> Audience:
    given = [] if body is None else [one for one in (body.chat_ids, body.csv, body.contacts) if one is not None]
    if body is None or len(given) != 1:
        raise BadInput(code="bad_audience", detail="audience has one of chat_ids, csv and contacts.")
    if body.chat_ids is not None:
        return listed(body.chat_ids)
    if body.csv is not None:
        return read_csv(body.csv.encode())
    assert body.contacts is not None
    return ContactAudience(wanted=_wanted(body.contacts))


def _wanted(body: ContactsBody) -> ContactFilter:
    if body.types is not None and not TYPES.issuperset(body.types):
        raise BadInput(code="bad_audience", detail=f"types are of {', '.join(sorted(TYPES))}.")
    return ContactFilter(
        types=None if body.types is None else frozenset(body.types),
        languages=None if body.languages is None else frozenset(one.lower() for one in body.languages),
        seen_since_ms=instant_ms(body.seen_since, "seen_since"),
        seen_before_ms=instant_ms(body.seen_before, "seen_before"),
        is_gone=body.gone,
        text=body.text,
        campaign=body.campaign,
    )


def request_of(
    body: BroadcastBody, audience: Audience, *, bot_id: int | None, key: str | None, created_by: str | None
) -> BroadcastRequest:
    """The service's request. A key in the body wins over the header."""
    return BroadcastRequest(
        method=body.method,
        params=body.params,
        audience=audience,
        bot_id=bot_id,
        name=body.name,
        canary=None if body.canary is None else Canary(**msgspec.structs.asdict(body.canary)),
        quiet=None if body.quiet is None else Quiet(**msgspec.structs.asdict(body.quiet)),
        paid=None if body.paid is None else Paid(stars_max=body.paid.stars_max),
        on_uncertain=body.on_uncertain,
        start=body.start,
        start_at_ms=instant_ms(body.send_at, "send_at"),
        key=body.idempotency_key or key,
        created_by=created_by,
    )


def bot_id_in(body: BroadcastBody) -> int | None:
    return parse_id(body.bot_id, "bot_id") if isinstance(body.bot_id, str) else body.bot_id


def duplicates_of(audience: Audience) -> int:
    return audience.duplicates if isinstance(audience, ListAudience) else 0


if TYPE_CHECKING:
    from peik.app.runtime import Runtime

_SMALL_BODY = 64 * 1024
STALL_S = 60.0  # a reader of an export who takes nothing for so long has gone
FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


class BroadcastRoutes:
    def __init__(self, peik: "Runtime", access: Access) -> None:
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


# The broadcasts' part of the OpenAPI document: one row per operation, and what the answers look like.


_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer"}
_NUMBER: Json = {"type": "number"}
_STATE: Json = {"type": "string", "enum": [str(phase) for phase in Phase]}
_END: Json = {"type": "string", "enum": [str(state) for state in RecipientState]}

_BROADCAST = shape(
    id=ID,
    bot_id=ID,
    name=nullable(_TEXT),
    method=_TEXT,
    params={"type": "object"},
    state=_STATE,
    reason=nullable(_TEXT) | {"description": "Why it stopped or rests, if it did by itself."},
    steps={"type": "array", "items": {"type": "string", "enum": [str(step) for step in ASKED]}},
    audience={"type": "object"},
    total=_WHOLE | {"description": "Recipients that are written down. Known chats are when it starts."},
    counts=shape(**{str(state): _WHOLE for state in RecipientState}),
    unrecalled=_WHOLE | {"description": "Messages that could not be deleted in a recall."},
    progress={"type": "number", "minimum": 0, "maximum": 1},
    eta_s=nullable(SECONDS) | {"description": "About so long until its end; null: nobody knows, or it is halted."},
    canary=nullable({"type": "object"}),
    quiet=nullable({"type": "object"}),
    paid=nullable(
        shape(stars_max=_NUMBER, stars_most=_NUMBER | {"description": "What it has cost so far at the very most."})
    ),
    created_by=nullable(_TEXT),
    created_at=TIME,
    start_at=nullable(TIME),
    started_at=nullable(TIME),
    quiet_until=nullable(TIME),
    ended_at=nullable(TIME),
)
_CREATED: Json = {
    "allOf": [
        {"$ref": "#/components/schemas/Broadcast"},
        shape(duplicates=_WHOLE | {"description": "Recipients that were named more than once."}),
    ]
}

BROADCAST_SCHEMAS: Json = {
    "Broadcast": _BROADCAST,
    "CreatedBroadcast": _CREATED,
    "Broadcasts": shape(
        broadcasts={"type": "array", "items": {"$ref": "#/components/schemas/Broadcast"}},
        next_cursor=nullable(ID),
    ),
    "Estimate": shape(
        recipients=_WHOLE,
        suppressed=_WHOLE,
        is_least={
            "type": "boolean",
            "description": "Of a long list not all were looked at: suppressed are at least so many, recipients at most.",
        },
        messages=_WHOLE,
        per_s=nullable(_NUMBER),
        duration_s=SECONDS,
        done_at=TIME,
        stars=_NUMBER | {"description": "Likely, at the bot's pace."},
        stars_most=_NUMBER | {"description": "If none of the messages were free."},
        stars_max=nullable(_NUMBER),
    ),
    "Preview": shape(letter_id=ID),
    "Recipients": shape(
        recipients={
            "type": "array",
            "items": shape(
                number=ID,
                chat_id=_TEXT,
                state=_END,
                letter_id=nullable(ID),
                message_id=nullable(ID),
                message_ids={"type": "array", "items": ID},
                error=nullable(_TEXT),
                values=nullable({"type": "object", "additionalProperties": _TEXT}),
                uncertain_tries=_WHOLE,
                recall_letter_id=nullable(ID),
                queued_at=nullable(TIME),
                ended_at=nullable(TIME),
            ),
        },
        next_cursor=nullable(ID),
    ),
}

_OF = (in_path("broadcast_id"),)
_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": "^[!-~]+$"},
    "description": "A repeat with the same key is the same broadcast, as long as that is kept.",
}
_STEP = OperationRow(answers={200: "Broadcast"}, parameters=_OF, problems=(404, 409, 503))

BROADCAST_OPERATIONS: dict[str, OperationRow] = {
    "createBroadcast": OperationRow(
        answers={201: "CreatedBroadcast"},
        parameters=(_KEY,),
        body=BroadcastBody,
        example={"method": "sendMessage", "params": {"text": "Salam"}, "audience": {"chat_ids": [42]}, "start": True},
        problems=(404, 409, 413, 422, 503),
    ),
    "listBroadcasts": OperationRow(
        answers={200: "Broadcasts"},
        parameters=(in_query("bot_id", ID, "Of this bot."), CURSOR, LIMIT),
        problems=(422, 503),
    ),
    "getBroadcast": OperationRow(answers={200: "Broadcast"}, parameters=_OF, problems=(404, 503)),
    "deleteBroadcast": OperationRow(answers={204: ""}, parameters=_OF, problems=(404, 409, 503)),
    "startBroadcast": OperationRow(
        answers={200: "Broadcast"},
        parameters=_OF,
        body=StartBody,
        example={"send_at": "2026-12-01T09:00:00Z"},
        is_body_optional=True,
        problems=(404, 409, 413, 422, 503),
    ),
    "pauseBroadcast": _STEP,
    "resumeBroadcast": _STEP,
    "cancelBroadcast": _STEP,
    "recallBroadcast": _STEP,
    "previewBroadcast": OperationRow(
        answers={202: "Preview"},
        parameters=_OF,
        body=PreviewBody,
        example={"chat_id": 42},
        problems=(404, 409, 413, 422, 503),
    ),
    "estimateBroadcast": OperationRow(answers={200: "Estimate"}, parameters=_OF, problems=(404, 503)),
    "listRecipients": OperationRow(
        answers={200: "Recipients"},
        parameters=(
            *_OF,
            in_query("state", _END, "How they stand."),
            in_query("format", {"type": "string", "enum": list(FORMATS)}, "All of them, as a file."),
            CURSOR,
            LIMIT,
        ),
        problems=(404, 422, 503),
        other_media_types=tuple(kind.partition(";")[0] for kind in FORMATS.values()),
    ),
}
