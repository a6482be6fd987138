"""Arrivals, consumers and inboxes as the world sees them. Ids are strings, times are RFC 3339, secrets never appear."""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from peik.core.arrival import DEFAULT_CONSUMER, Arrival, wire_id
from peik.core.letter import State
from peik.core.trace import Certainty, certainty, message_ids_in, trace_of
from peik.core.units import rfc3339
from peik.errors import Conflict, StoreUnavailable
from peik.inbox.store import ArrivalDelivery, ArrivalView, Consumer, ConsumerKind, HandingAgain, InboxTally
from peik.outbox.store import BotRecord, LetterView
from peik.web.operations import Count, Id, Moment, Object, Streamed

if TYPE_CHECKING:
    from peik.inbox.readers import Stream
    from peik.inbox.service import InboxView, Recovery
    from peik.outbox.answers import TraceAnswers

_TEXT_CHARS_MAX = 200
REPLACED_RETRY_MS = 30_000  # two programs that use one consumer must not take it from each other every two seconds


# ---- arrivals ----


class DeliveryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How an arrival stands with one consumer."""

    consumer: str
    state: State
    tries: int
    due_at: Moment | None
    failed_reason: str | None
    settled_at: Moment | None
    history: list[dict[str, Any]]

    @classmethod
    def of(cls, delivery: ArrivalDelivery) -> "DeliveryAnswer":
        return cls(
            consumer=delivery.consumer,
            state=delivery.state,
            tries=delivery.tries,
            due_at=rfc3339(delivery.due_at_ms),
            failed_reason=delivery.failed_reason,
            settled_at=rfc3339(delivery.settled_at_ms),
            history=[_line(line) for line in _decode_history(delivery.history or "[]")],
        )


_decode_history = msgspec.json.Decoder(list[dict[str, Any]]).decode


def _line(line: dict[str, Any]) -> dict[str, Any]:
    at = line.get("at")
    return {**line, "at": rfc3339(at)} if isinstance(at, int) else line


class ArrivalLineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An arrival in a list."""

    id: Id
    bot_id: Id
    number: Annotated[int, msgspec.Meta(description="Its place in the order of its bot.")]
    update_id: Annotated[int, msgspec.Meta(description="As bots get it: the number, under 2^31.")]
    telegram_update_id: int
    epoch: int
    type: str
    lane: str
    chat_id: str | None
    user_id: str | None
    message_id: str | None
    text: str | None
    trace: Annotated[str, msgspec.Meta(description="What its answers are found by.")]
    state: Annotated[
        State | None,
        msgspec.Meta(description="With the consumer that was asked for, or the default one. Null: it never sees it."),
    ]
    sent_at: Moment | None
    received_at: Moment
    replay_of: Id | None
    deliveries: list[DeliveryAnswer]

    @classmethod
    def of(cls, view: ArrivalView, *, consumer: str | None = None) -> "ArrivalLineAnswer":
        arrival = view.arrival
        return cls(
            id=str(arrival.id),
            bot_id=str(arrival.bot_id),
            number=arrival.number,
            update_id=wire_id(arrival.number),
            telegram_update_id=arrival.update_id,
            epoch=arrival.epoch,
            type=arrival.type,
            lane=str(arrival.lane),
            chat_id=str(arrival.lane) if isinstance(arrival.lane, int) else None,
            user_id=None if arrival.user_id is None else str(arrival.user_id),
            message_id=None if arrival.message_id is None else str(arrival.message_id),
            text=text_of(arrival),
            trace=trace_of(arrival.bot_id, arrival.number),
            state=_state(view, consumer),
            sent_at=rfc3339(arrival.sent_at_ms),
            received_at=rfc3339(arrival.received_at_ms),
            replay_of=None if arrival.replay_of is None else str(arrival.replay_of),
            deliveries=[DeliveryAnswer.of(delivery) for delivery in view.deliveries],
        )


def _state(view: ArrivalView, consumer: str | None) -> State | None:
    """None: this consumer never sees it, since it is a replay for another."""
    named = {delivery.consumer: delivery.state for delivery in view.deliveries}
    if consumer is None and len(named) == 1:
        return next(iter(named.values()))
    return named.get(consumer or DEFAULT_CONSUMER)


class ArrivalsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    arrivals: list[ArrivalLineAnswer]
    next_cursor: Id | None


class ReplyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A letter that answers an arrival."""

    letter_id: Id
    method: str
    chat_id: str
    state: State
    trace_certainty: Certainty | None
    message_ids: list[str]
    accepted_at: Moment
    finished_at: Moment | None
    accepted_after_ms: Annotated[int, msgspec.Meta(description="After the update had come.")]
    finished_after_ms: int | None

    @classmethod
    def of(cls, arrival: Arrival, letter: LetterView) -> "ReplyAnswer":
        return cls(
            letter_id=str(letter.id),
            method=letter.method,
            chat_id=str(letter.chat),
            state=letter.state,
            trace_certainty=None if letter.trace is None else certainty(letter.trace),
            message_ids=[str(one) for one in message_ids_in(letter.result or "null")],
            accepted_at=rfc3339(letter.created_at_ms),
            finished_at=rfc3339(letter.settled_at_ms) if letter.state.is_final else None,
            accepted_after_ms=after_ms(arrival, letter.created_at_ms),
            finished_after_ms=ended_after_ms(arrival, letter),
        )


def after_ms(arrival: Arrival, at_ms: int) -> int:
    """How long after the update had come; never less than nothing, whatever clocks say."""
    return max(at_ms - arrival.received_at_ms, 0)


def ended_after_ms(arrival: Arrival, letter: LetterView) -> int | None:
    """The same for the end of a letter; None: it has not ended."""
    is_over = letter.state.is_final and letter.settled_at_ms is not None
    return after_ms(arrival, letter.settled_at_ms or 0) if is_over else None


class ArrivalAnswer(ArrivalLineAnswer, frozen=True, kw_only=True):
    """One arrival with the update itself, and the letters that answer it."""

    update: Annotated[Object, msgspec.Meta(description="The update as a bot gets it.")]
    answers: list[ReplyAnswer]
    answers_are_cut: Annotated[bool, msgspec.Meta(description="There may be more of them: GET /v1/letters?arrival_id=")]

    @classmethod
    def whole(cls, view: ArrivalView, answers: "TraceAnswers") -> "ArrivalAnswer":
        return cls(
            **msgspec.structs.asdict(ArrivalLineAnswer.of(view)),
            update=msgspec.Raw(view.arrival.wire()),
            answers=[ReplyAnswer.of(view.arrival, letter) for letter in answers.letters],
            answers_are_cut=answers.is_cut,
        )


class _Body(msgspec.Struct):
    text: object = None
    caption: object = None
    data: object = None
    query: object = None


_decode_payload = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_body = msgspec.json.Decoder(_Body).decode


def text_of(arrival: Arrival) -> str | None:
    """What the user wrote or pressed, if anything; the beginning of it."""
    try:
        body = _decode_body(_decode_payload(arrival.payload)[arrival.type])
    except (msgspec.DecodeError, KeyError):
        return None
    for words in (body.text, body.caption, body.data, body.query):
        if isinstance(words, str) and words:
            return words[:_TEXT_CHARS_MAX]
    return None


class EventsAnswer(Streamed, frozen=True, kw_only=True):
    """One event per arrival: its number as id, the update as data."""


async def frames(stream: "Stream") -> AsyncGenerator[bytes, None]:
    """Arrivals as server-sent events until the reader leaves, is replaced, or Peik ends."""
    from peik.web.responses import HEARTBEAT, HEARTBEAT_S, RETRY_MS, frame, joined  # a server's: commands do without

    def update(arrival: Arrival) -> bytes:
        return frame(b"update", arrival.wire(), id=b"%d" % arrival.number)

    yield b"retry: %d\n\n" % RETRY_MS
    with stream.seated() as seat:
        try:
            while (page := await stream.next(seat, HEARTBEAT_S)) is not None:
                for chunk in joined(map(update, page)) if page else (HEARTBEAT + b"\n",):
                    yield chunk
        except Conflict as replaced:
            yield b"retry: %d\n" % REPLACED_RETRY_MS + frame(b"end", b'{"code":"%b"}' % replaced.code.encode())
        except StoreUnavailable:
            return  # the reader comes back, and resumes where it was


class ReplayedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    replayed: int
    next_cursor: str | None


class WouldReplayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    would_replay: Annotated[int, msgspec.Meta(description="Of a dry run.")]


class NotedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    noted: int
    matched: Annotated[int, msgspec.Meta(description="How many of them were here already.")]


class AcknowledgedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    consumer: str
    acknowledged_up_to: int


# ---- consumers and inboxes ----


class ConsumerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    name: str
    kind: ConsumerKind
    url: str | None
    has_secret: bool
    allowed_updates: list[str] | None
    max_connections: int
    acknowledged_up_to: int
    seen_at: Moment | None
    created_at: Moment

    @classmethod
    def of(cls, consumer: Consumer) -> "ConsumerAnswer":
        return cls(
            bot_id=str(consumer.bot_id),
            name=consumer.name,
            kind=consumer.kind,
            url=consumer.url,
            has_secret=consumer.secret is not None,
            allowed_updates=None if consumer.allowed is None else sorted(consumer.allowed),
            max_connections=consumer.connections_max,
            acknowledged_up_to=consumer.progress.watermark,
            seen_at=rfc3339(consumer.seen_at_ms),
            created_at=rfc3339(consumer.created_at_ms),
        )


class HandedAgainAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What pollers had confirmed when they ended, and nothing showed that they dealt with: it was for the next one. `count`:
    since this process started. `arrival_ids`: the first ten of the last time, and `reason` why."""

    count: int
    at: Moment | None
    arrival_ids: list[Id]
    reason: str

    @classmethod
    def of(cls, again: HandingAgain) -> "HandedAgainAnswer":
        often = f" {again.deaths} times in a row" if again.deaths > 1 else ""
        return cls(
            count=again.count,
            at=rfc3339(again.at_ms),
            arrival_ids=[str(one) for one in again.arrival_ids],
            reason=f"Their poller ended{often}, and nothing showed that they were dealt with.",
        )


class BacklogAnswer(ConsumerAnswer, frozen=True, kw_only=True):
    """A consumer, and what waits for it. `handed`: of the open ones, what its poller confirmed and may be at work on."""

    open: int
    handed: int
    delayed: int
    failed: int
    oldest_open_at: Moment | None
    handed_again: HandedAgainAnswer | None

    @classmethod
    def counted(cls, tally: InboxTally) -> "BacklogAnswer":
        return cls(
            **msgspec.structs.asdict(ConsumerAnswer.of(tally.consumer)),
            open=tally.open,
            handed=tally.handed,
            delayed=tally.delayed,
            failed=tally.failed,
            oldest_open_at=rfc3339(tally.oldest_open_at_ms),
            handed_again=None if tally.handed_again is None else HandedAgainAnswer.of(tally.handed_again),
        )


class ConsumersAnswer(msgspec.Struct, frozen=True, kw_only=True):
    consumers: list[BacklogAnswer]


class InboxAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a bot's inbox stands. Null: not known before its source was first open."""

    bot_id: Id
    source: Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["polling", "webhook", "off"]})]
    epoch: int | None
    last_update_id: int | None
    last_number: int | None
    started_at: Moment | None
    seen_at: Moment | None
    received_at: Moment | None
    expired: int
    expires_at: Moment | None
    consumers: list[BacklogAnswer]

    @classmethod
    def of(cls, bot: BotRecord, inbox: "InboxView") -> "InboxAnswer":
        state = inbox.state
        return cls(
            bot_id=str(bot.bot_id),
            source=bot.inbound,
            epoch=None if state is None else state.epoch,
            last_update_id=None if state is None else state.last_update_id,
            last_number=None if state is None else state.last_number,
            started_at=None if state is None else rfc3339(state.started_at_ms),
            seen_at=None if state is None else rfc3339(state.seen_at_ms),
            received_at=None if state is None else rfc3339(state.received_at_ms),
            expired=0 if state is None else state.expired,
            expires_at=rfc3339(inbox.expires_at_ms),
            consumers=[BacklogAnswer.counted(tally) for tally in inbox.tallies],
        )


class InboxesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bots: list[InboxAnswer]


class InboxCountsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    open: Count
    delayed: Count
    failed: Count


class InboxStatsAnswer(InboxCountsAnswer, frozen=True, kw_only=True):
    """Over all consumers, and per bot and consumer."""

    bots: dict[str, dict[str, InboxCountsAnswer]]

    @classmethod
    def of(cls, tallies: Sequence[InboxTally]) -> "InboxStatsAnswer":
        bots: dict[str, dict[str, InboxCountsAnswer]] = {}
        for one in tallies:
            counts = InboxCountsAnswer(open=one.open, delayed=one.delayed, failed=one.failed)
            bots.setdefault(str(one.consumer.bot_id), {})[one.consumer.name] = counts
        return cls(
            open=sum(one.open for one in tallies),
            delayed=sum(one.delayed for one in tallies),
            failed=sum(one.failed for one in tallies),
            bots=bots,
        )


class RecoveryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    found: int
    stored: int
    duplicates: int
    expired: int | None
    took_s: float

    @classmethod
    def of(cls, recovery: "Recovery") -> "RecoveryAnswer":
        return cls(
            bot_id=str(recovery.bot_id),
            found=recovery.found,
            stored=recovery.stored,
            duplicates=recovery.duplicates,
            expired=recovery.expired,
            took_s=round(recovery.took_s, 3),
        )
