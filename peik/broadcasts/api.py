"""REST: broadcasts. Making, starting, halting, ending and recalling them; how they stand; and the ledger, also as a file.

Ids are strings, times are RFC 3339; commands and the dashboard show the same answers."""

import asyncio
import csv
import io
from collections.abc import AsyncGenerator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from peik.broadcasts.audience import Audience, ContactAudience, ListAudience, listed, read_csv
from peik.broadcasts.model import (
    ASKED,
    Broadcast,
    Canary,
    Estimate,
    Paid,
    Phase,
    Recipient,
    RecipientState,
    read_recipient_state,
    stars_most,
    steps_from,
    work_ms,
)
from peik.broadcasts.service import KEY_CHARS_MAX, BroadcastRequest
from peik.clock import Clock, zone_of
from peik.core.call import chat_key
from peik.core.documents import ContactFilter
from peik.core.letter import OnUncertain
from peik.core.quiet import Quiet, done_at
from peik.core.units import rfc3339
from peik.errors import BadInput, NotFound
from peik.web.access import Caller, header_in
from peik.web.openapi import ID, LIMIT_DEFAULT, FormRow
from peik.web.operations import Id, Moment, Object, Streamed, operation
from peik.web.parse import (
    BOT,
    CURSOR,
    LIMIT,
    Page,
    Param,
    Time,
    decode,
    id_of,
    instant_ms,
    key_up_to,
    parse_id,
    read_query,
)

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request

    from peik.broadcasts.service import BroadcastService
    from peik.settings.config import Config

TYPES = frozenset({"private", "group", "supergroup", "channel"})
STALL_S = 60.0  # a reader of an export who takes nothing for so long has gone
FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
COLUMNS = (
    "number", "chat_id", "state", "letter_id", "message_id", "error", "queued_at", "ended_at", "uncertain_tries",
)  # fmt: skip
_ETA = (Phase.SNAPSHOTTING, Phase.CANARY, Phase.RUNNING, Phase.QUIET)
_encode = msgspec.json.Encoder().encode

# ---- what is asked for ----


class ContactsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Known chats of the bot. What is left out does not matter."""

    types: list[str] | None = None
    languages: list[str] | None = None
    seen_since: Time = None
    seen_before: Time = None
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
    send_at: Time = None
    idempotency_key: str | None = None


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    """`recipients` is how many you believe will get it: if they are not so many, it does not start."""

    send_at: Time = None
    recipients: int | None = None


class PreviewBody(msgspec.Struct, forbid_unknown_fields=True):
    """`like` is a recipient, whose values fill the placeholders; left out, the first one."""

    chat_id: int | str
    like: int | str | None = None


class BroadcastHeaders(msgspec.Struct, frozen=True, kw_only=True):
    idempotency_key: Annotated[
        str | None,
        key_up_to(KEY_CHARS_MAX, "A repeat with the same key is the same broadcast, as long as that is kept."),
    ] = None


def _digits(text: str, name: str) -> str:
    parse_id(text, name)
    return text  # ids are compared as text


def _state(text: str, name: str) -> RecipientState:
    return read_recipient_state(text)


def _format(text: str, name: str) -> str:
    if text not in FORMATS:
        raise BadInput(code="bad_format", detail=f"format is one of {', '.join(FORMATS)}.")
    return text


_END = {"type": "string", "enum": [str(state) for state in RecipientState]}
_FORMAT = {"type": "string", "enum": list(FORMATS)}


class BroadcastsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bot_id: Annotated[int | None, BOT.saying("Of this bot.")] = None
    cursor: Annotated[str | None, Param(_digits, ID, CURSOR.text)] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class RecipientsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: Annotated[RecipientState | None, Param(_state, _END, "How they stand.")] = None
    cursor: Annotated[str | None, CURSOR.as_text()] = None
    limit: Annotated[str | None, LIMIT.as_text()] = None
    format: Annotated[str | None, Param(_format, _FORMAT, "All of them, as a file.")] = None

    def page(self) -> Page:
        """Read where it counts: a file has all of them, whatever is said of pages."""
        given = {"cursor": self.cursor, "limit": self.limit}
        return read_query(Page, {name: text for name, text in given.items() if text is not None})


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


def request_of(body: BroadcastBody, audience: Audience, caller: Caller, key: str | None) -> BroadcastRequest:
    """The service's request. A key in the body wins over the header."""
    return BroadcastRequest(
        method=body.method,
        params=body.params,
        audience=audience,
        bot_id=caller.bot_id_of(id_of(body.bot_id, "bot_id")),
        name=body.name,
        canary=None if body.canary is None else Canary(**msgspec.structs.asdict(body.canary)),
        quiet=None if body.quiet is None else Quiet(**msgspec.structs.asdict(body.quiet)),
        paid=None if body.paid is None else Paid(stars_max=body.paid.stars_max),
        on_uncertain=body.on_uncertain,
        start=body.start,
        start_at_ms=instant_ms(body.send_at, "send_at"),
        key=body.idempotency_key or key,
        created_by=caller.key.name if caller.has_key else None,
    )


# ---- what is answered ----

_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class BroadcastAudienceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Chats that were given, with the columns of their values; or known chats, with what was asked of them."""

    kind: Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["list", "contacts"]})]
    columns: list[str] | msgspec.UnsetType = msgspec.UNSET
    types: list[str] | msgspec.UnsetType = msgspec.UNSET
    languages: list[str] | msgspec.UnsetType = msgspec.UNSET
    seen_since: Moment | msgspec.UnsetType = msgspec.UNSET
    seen_before: Moment | msgspec.UnsetType = msgspec.UNSET
    gone: bool | msgspec.UnsetType = msgspec.UNSET
    text: str | msgspec.UnsetType = msgspec.UNSET
    campaign: str | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of(cls, broadcast: Broadcast) -> "BroadcastAudienceAnswer":
        if broadcast.wanted is None:
            return cls(kind="list", columns=list(broadcast.columns))
        asked = contacts_body(broadcast.wanted)
        given = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
        return cls(kind="contacts", **given)


def contacts_body(wanted: ContactFilter) -> ContactsBody:
    """A filter of known chats as it is asked for."""
    return ContactsBody(
        types=None if wanted.types is None else sorted(wanted.types),
        languages=None if wanted.languages is None else sorted(wanted.languages),
        seen_since=rfc3339(wanted.seen_since_ms),
        seen_before=rfc3339(wanted.seen_before_ms),
        gone=wanted.is_gone,
        text=wanted.text,
        campaign=wanted.campaign,
    )


class BroadcastCountsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Recipients, by where they stand."""

    pending: int
    queued: int
    delivered: int
    failed: int
    blocked: int
    suppressed: int
    cancelled: int
    recalled: int


class PaidAnswer(msgspec.Struct, frozen=True, kw_only=True):
    stars_max: float
    stars_most: Annotated[float, msgspec.Meta(description="What it has cost so far at the very most.")]


class BroadcastAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    bot_id: Id
    name: str | None
    method: str
    params: Object
    state: Phase
    reason: Annotated[str | None, msgspec.Meta(description="Why it stopped or rests, if it did by itself.")]
    steps: list[Annotated[str, msgspec.Meta(extra_json_schema={"enum": [str(step) for step in ASKED]})]]
    audience: BroadcastAudienceAnswer
    total: Annotated[int, msgspec.Meta(description="Recipients that are written down. Known chats are when it starts.")]
    counts: BroadcastCountsAnswer
    unrecalled: Annotated[int, msgspec.Meta(description="Messages that could not be deleted in a recall.")]
    progress: Annotated[float, msgspec.Meta(ge=0, le=1)]
    eta_s: Annotated[
        _Seconds | None, msgspec.Meta(description="About so long until its end; null: nobody knows, or it is halted.")
    ]
    canary: Canary | None
    quiet: Quiet | None
    paid: PaidAnswer | None
    created_by: str | None
    created_at: Moment
    start_at: Moment | None
    started_at: Moment | None
    quiet_until: Moment | None
    ended_at: Moment | None

    @classmethod
    def of(cls, broadcast: Broadcast, *, per_s: float | None, now_ms: int) -> "BroadcastAnswer":
        """`per_s` is the pace of its bot."""
        counts, total = broadcast.counts, broadcast.total
        return cls(
            id=broadcast.id,
            bot_id=str(broadcast.bot_id),
            name=broadcast.name,
            method=broadcast.method,
            params=msgspec.Raw(broadcast.params.encode()),
            state=broadcast.phase,
            reason=broadcast.reason,
            steps=[str(step) for step in steps_from(broadcast.phase)],
            audience=BroadcastAudienceAnswer.of(broadcast),
            total=total,
            counts=BroadcastCountsAnswer(
                pending=broadcast.pending, queued=broadcast.queued, **msgspec.structs.asdict(counts)
            ),
            unrecalled=broadcast.unrecalled,
            progress=_progress(broadcast),
            eta_s=_eta_s(broadcast, per_s, now_ms),
            canary=broadcast.canary,
            quiet=broadcast.quiet,
            paid=_paid(broadcast),
            created_by=broadcast.created_by,
            created_at=rfc3339(broadcast.created_at_ms),
            start_at=rfc3339(broadcast.start_at_ms),
            started_at=rfc3339(broadcast.started_at_ms),
            quiet_until=rfc3339(broadcast.quiet_until_ms),
            ended_at=rfc3339(broadcast.ended_at_ms),
        )


def _progress(broadcast: Broadcast) -> float:
    done, steps = broadcast.steps_done
    return round(min(1.0, done / steps), 4) if steps else float(broadcast.phase.is_final)


def _paid(broadcast: Broadcast) -> PaidAnswer | None:
    if broadcast.paid is None:
        return None
    most = stars_most(broadcast.handed * broadcast.weight)
    return PaidAnswer(stars_max=broadcast.paid.stars_max, stars_most=most)


def _eta_s(broadcast: Broadcast, per_s: float | None, now_ms: int) -> float | None:
    """About so long until its end; None: nobody knows, or it is halted or over."""
    if broadcast.phase not in _ETA or per_s is None:
        return None
    left_ms = work_ms((broadcast.pending + broadcast.queued) * broadcast.weight, per_s)
    zone = zone_of("UTC" if broadcast.quiet is None else broadcast.quiet.tz)
    return round((done_at(now_ms, left_ms, broadcast.quiet, zone) - now_ms) / 1000, 1)


class CreatedBroadcastAnswer(BroadcastAnswer, frozen=True, kw_only=True):
    duplicates: Annotated[int, msgspec.Meta(description="Recipients that were named more than once.")]


class BroadcastsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    broadcasts: list[BroadcastAnswer]
    next_cursor: Id | None


class EstimateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    recipients: int
    suppressed: int
    is_least: Annotated[
        bool,
        msgspec.Meta(
            description="Of a long list not all were looked at: suppressed are at least so many, recipients at most."
        ),
    ]
    messages: int
    per_s: float | None
    duration_s: _Seconds
    done_at: Moment
    stars: Annotated[float, msgspec.Meta(description="Likely, at the bot's pace.")]
    stars_most: Annotated[float, msgspec.Meta(description="If none of the messages were free.")]
    stars_max: float | None

    @classmethod
    def of(cls, estimate: Estimate) -> "EstimateAnswer":
        return cls(
            recipients=estimate.recipients,
            suppressed=estimate.suppressed,
            is_least=estimate.is_least,
            messages=estimate.messages,
            per_s=estimate.per_s,
            duration_s=round(estimate.duration_ms / 1000, 1),
            done_at=rfc3339(estimate.done_at_ms),
            stars=estimate.stars,
            stars_most=estimate.stars_most,
            stars_max=estimate.stars_max,
        )


class PreviewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    letter_id: Id


class RecipientAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the ledger."""

    number: Id
    chat_id: str
    state: RecipientState
    letter_id: Id | None
    message_id: Id | None
    message_ids: list[Id]
    error: str | None
    values: dict[str, str] | None
    uncertain_tries: int
    recall_letter_id: Id | None
    queued_at: Moment | None
    ended_at: Moment | None

    @classmethod
    def of(cls, number: int, line: Recipient) -> "RecipientAnswer":
        return cls(
            number=str(number),
            chat_id=str(line.chat),
            state=line.state,
            letter_id=None if line.letter_id is None else str(line.letter_id),
            message_id=str(line.messages[0]) if line.messages else None,
            message_ids=[str(one) for one in line.messages],
            error=line.error,
            values=line.values,
            uncertain_tries=line.uncertain_tries,
            recall_letter_id=None if line.recall_letter_id is None else str(line.recall_letter_id),
            queued_at=rfc3339(line.queued_at_ms),
            ended_at=rfc3339(None if line.state is RecipientState.PENDING else line.ended_at_ms),
        )


class RecipientsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    recipients: list[RecipientAnswer]
    next_cursor: Id | None


# ---- the ledger as a file ----


def ledger_jsonl(lines: Iterable[tuple[int, Recipient]]) -> bytes:
    return b"".join(_encode(RecipientAnswer.of(number, line)) + b"\n" for number, line in lines)


def ledger_head() -> bytes:
    return (",".join(COLUMNS) + "\r\n").encode()


def ledger_csv(lines: Iterable[tuple[int, Recipient]]) -> bytes:
    return csv_of(msgspec.structs.asdict(RecipientAnswer.of(number, line)) for number, line in lines).encode()


def csv_of(lines: Iterable[Mapping[str, Any]]) -> str:
    """Of lines as they are answered, here or over REST. An album's ids are all in one cell."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for line in lines:
        shown = {**line, "message_id": " ".join(line["message_ids"])}
        writer.writerow([cell(shown[name]) for name in COLUMNS])
    return text.getvalue()


def cell(value: object) -> str:
    """A spreadsheet takes what begins so for a formula; Telegram's words and names of chats are others' text."""
    text = "" if value is None else str(value)
    is_number = text.removeprefix("-").isdigit()
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not is_number else text


# ---- the operations ----

_step = partial(operation, "POST", tag="broadcasts", scope="send", problems=(404, 409, 503))
_FORM = FormRow(field="broadcast", file="csv", text="The recipients: a CSV with a column chat_id. It must be there.")


class BroadcastApi:
    def __init__(self, broadcasts: "BroadcastService", *, config: "Config", clock: Clock) -> None:
        self._broadcasts = broadcasts
        self._config = config
        self._clock = clock

    # ---- making ----

    async def _read(self, request: "Request") -> tuple[BroadcastBody, Audience | None]:
        """JSON; or a form with it and a CSV, which is who is written to then. Raises BadInput, TooLarge."""
        from starlette.datastructures import UploadFile

        from peik.web.bodies import read_body

        raw = await read_body(request, bytes_max=self._config.body_max)
        if not (header_in(request.scope, b"content-type") or "").startswith("multipart/form-data"):
            return decode(BroadcastBody, raw), None
        form = await _form(request, raw)
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

    @operation(
        "POST",
        "/v1/broadcasts",
        name="createBroadcast",
        tag="broadcasts",
        scope="send",
        status=201,
        problems=(404, 409, 413, 422, 503),
        example={"method": "sendMessage", "params": {"text": "Salam"}, "audience": {"chat_ids": [42]}, "start": True},
        read_files=_read,
        form=_FORM,
    )
    async def create(
        self, caller: Caller, body: BroadcastBody, headers: BroadcastHeaders, files: Audience | None = None
    ) -> CreatedBroadcastAnswer:
        """Make a broadcast, and start it with `start: true`, or at `send_at`. Recipients are a list, a CSV or known chats."""
        # A million lines take seconds.
        audience = await asyncio.to_thread(audience_of, body.audience) if files is None else files
        made = await self._broadcasts.create(request_of(body, audience, caller, headers.idempotency_key))
        duplicates = audience.duplicates if isinstance(audience, ListAudience) else 0
        return CreatedBroadcastAnswer(**msgspec.structs.asdict(self._shown(made)), duplicates=duplicates)

    # ---- looking ----

    @operation("GET", "/v1/broadcasts", name="listBroadcasts", tag="broadcasts", scope="read", problems=(422, 503))
    async def list_broadcasts(self, caller: Caller, query: BroadcastsQuery) -> BroadcastsAnswer:
        """Broadcasts, the newest first."""
        bot_ids = caller.key.bot_ids
        if query.bot_id is not None:
            caller.must_serve(query.bot_id)
            bot_ids = frozenset({query.bot_id})
        found = await self._broadcasts.find(bot_ids=bot_ids, before=query.cursor, limit=query.limit)
        next_cursor = found[-1].id if len(found) == query.limit else None
        return BroadcastsAnswer(broadcasts=[self._shown(one) for one in found], next_cursor=next_cursor)

    @operation(
        "GET", "/v1/broadcasts/{broadcast_id}", name="getBroadcast", tag="broadcasts", scope="read", problems=(404, 503)
    )
    async def get(self, caller: Caller, broadcast_id: str) -> BroadcastAnswer:
        """One broadcast: how far it is, and when it will be done."""
        return self._shown(await self._seen(caller, broadcast_id))

    @operation(
        "POST",
        "/v1/broadcasts/{broadcast_id}/estimate",
        name="estimateBroadcast",
        tag="broadcasts",
        scope="read",
        problems=(404, 503),
    )
    async def estimate(self, caller: Caller, broadcast_id: str) -> EstimateAnswer:
        """A dry run: how many would get it, who is suppressed, how long it takes and what it may cost. Nothing is sent."""
        await self._seen(caller, broadcast_id)
        return EstimateAnswer.of(await self._broadcasts.estimate(broadcast_id))

    @operation(
        "GET",
        "/v1/broadcasts/{broadcast_id}/recipients",
        name="listRecipients",
        tag="broadcasts",
        scope="read",
        answers={200: RecipientsAnswer},
        problems=(404, 422, 503),
        other_media_types=tuple(kind.partition(";")[0] for kind in FORMATS.values()),
    )
    async def recipients(
        self, caller: Caller, broadcast_id: str, query: RecipientsQuery
    ) -> RecipientsAnswer | Streamed:
        """The ledger, line by line; with `format=csv` or `format=jsonl` all of it, as a file."""
        await self._seen(caller, broadcast_id)
        if query.format is not None:
            return Streamed(
                chunks=self._written(broadcast_id, query.state, query.format),
                media_type=FORMATS[query.format],
                headers={"content-disposition": f'attachment; filename="broadcast-{broadcast_id}.{query.format}"'},
                stall_s=STALL_S,
            )
        page = query.page()
        lines, place = await self._broadcasts.recipients(
            broadcast_id, state=query.state, after=page.cursor, limit=page.limit
        )
        shown = [RecipientAnswer.of(number, line) for number, line in lines]
        return RecipientsAnswer(recipients=shown, next_cursor=None if place is None else str(place))

    async def _written(self, broadcast_id: str, state: RecipientState | None, kind: str) -> AsyncGenerator[bytes, None]:
        if kind == "csv":
            yield ledger_head()
        async for lines in self._broadcasts.ledger(broadcast_id, state=state):
            if lines:
                yield ledger_csv(lines) if kind == "csv" else ledger_jsonl(lines)

    # ---- changing ----

    @operation(
        "POST",
        "/v1/broadcasts/{broadcast_id}/start",
        name="startBroadcast",
        tag="broadcasts",
        scope="send",
        problems=(404, 409, 413, 422, 503),
        example={"send_at": "2026-12-01T09:00:00Z"},
    )
    async def start(self, caller: Caller, broadcast_id: str, body: StartBody | None = None) -> BroadcastAnswer:
        """Start a broadcast that was made, now or at `send_at`."""
        await self._seen(caller, broadcast_id)
        at_ms = None if body is None else instant_ms(body.send_at, "send_at")
        recipients = None if body is None else body.recipients
        return self._shown(await self._broadcasts.start(broadcast_id, at_ms=at_ms, recipients=recipients))

    @_step("/v1/broadcasts/{broadcast_id}/pause", name="pauseBroadcast")
    async def pause(self, caller: Caller, broadcast_id: str) -> BroadcastAnswer:
        """Halt a broadcast. What waits in the outbox is taken back; what is in flight ends."""
        await self._seen(caller, broadcast_id)
        return self._shown(await self._broadcasts.pause(broadcast_id))

    @_step("/v1/broadcasts/{broadcast_id}/resume", name="resumeBroadcast")
    async def resume(self, caller: Caller, broadcast_id: str) -> BroadcastAnswer:
        """Let a broadcast go on that was paused, or that stopped itself."""
        await self._seen(caller, broadcast_id)
        return self._shown(await self._broadcasts.resume(broadcast_id))

    @_step("/v1/broadcasts/{broadcast_id}/cancel", name="cancelBroadcast")
    async def cancel(self, caller: Caller, broadcast_id: str) -> BroadcastAnswer:
        """End a broadcast: nobody else gets it."""
        await self._seen(caller, broadcast_id)
        return self._shown(await self._broadcasts.cancel(broadcast_id))

    @_step("/v1/broadcasts/{broadcast_id}/recall", name="recallBroadcast")
    async def recall(self, caller: Caller, broadcast_id: str) -> BroadcastAnswer:
        """End a broadcast and delete what it has sent. Telegram deletes only what is younger than 48 hours."""
        await self._seen(caller, broadcast_id)
        return self._shown(await self._broadcasts.recall(broadcast_id))

    @operation(
        "POST",
        "/v1/broadcasts/{broadcast_id}/preview",
        name="previewBroadcast",
        tag="broadcasts",
        scope="send",
        status=202,
        problems=(404, 409, 413, 422, 503),
        example={"chat_id": 42},
    )
    async def preview(self, caller: Caller, broadcast_id: str, body: PreviewBody) -> PreviewAnswer:
        """Send a broadcast to one chat, ahead of other letters, to see what it looks like."""
        await self._seen(caller, broadcast_id)
        like = None if body.like is None else chat_key(body.like)
        letter_id = await self._broadcasts.preview(broadcast_id, chat_key(body.chat_id), like=like)
        return PreviewAnswer(letter_id=str(letter_id))

    @operation(
        "DELETE",
        "/v1/broadcasts/{broadcast_id}",
        name="deleteBroadcast",
        tag="broadcasts",
        scope="send",
        problems=(404, 409, 503),
    )
    async def delete(self, caller: Caller, broadcast_id: str) -> None:
        """Forget a broadcast that was never started, or that is over, with its ledger."""
        await self._seen(caller, broadcast_id)
        await self._broadcasts.delete(broadcast_id)

    # ---- ----

    async def _seen(self, caller: Caller, broadcast_id: str) -> Broadcast:
        """Raises NotFound for another bot's, in the words for one that is not there."""
        found = await self._broadcasts.get(broadcast_id)
        if not caller.key.serves(found.bot_id):
            raise NotFound(code="unknown_broadcast", detail=f"There is no broadcast {broadcast_id} here (any more).")
        return found

    def _shown(self, found: Broadcast) -> BroadcastAnswer:
        return BroadcastAnswer.of(
            found, per_s=self._broadcasts.letters.per_s(found.bot_id), now_ms=self._clock.wall_ms()
        )


async def _form(request: "Request", raw: bytes) -> "FormData":
    from starlette.formparsers import MultiPartException, MultiPartParser

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
