"""Rows of the SQL stores as values: the one place that knows the order of columns."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import apsw
import msgspec

from peik.core.arrival import Arrival, ConsumerProgress, Span
from peik.core.letter import Backoff, Chat, Draft, Enclosed, Letter, OnUncertain, State
from peik.core.pace import PaceLimits
from peik.core.token import Token
from peik.inbox.store import ArrivalDelivery, Consumer, ConsumerKind, InboxState, OutageRecord
from peik.outbox.store import BotRecord, ChatRecord, LetterView, LoggedMessage
from peik.secrets.seals import Seals, place_of_bot
from peik.storage.sqlite.statements import Value, load

PHASE_IN_LANE = 0
PHASE_APART = 1
PHASE_OF = {
    State.WAITING: PHASE_IN_LANE,
    State.DELAYED: PHASE_IN_LANE,  # backing off at the head of its lane
    State.COMPLETED: 2,
    State.FAILED: 3,
    State.CANCELLED: 4,
}
TALLY_COLUMNS = ("in_lane", "apart", "completed", "failed", "cancelled")
STATE_OF_PHASE = {2: State.COMPLETED, 3: State.FAILED, 4: State.CANCELLED}


class _LetterRow(msgspec.Struct, array_like=True, gc=False):
    id: int
    bot_id: int
    number: int
    method: str
    params: str
    chat: Chat
    thread: int
    weight: int
    rank: int
    attempts: int
    backoff_ms: int
    backoff: str | None
    timeout_ms: int | None
    hold: int | None
    due_at: int | None
    expires_at: int | None
    awaits: int | None
    moved: int | None
    attempts_made: int
    uncertain_tries: int
    enclosed: str | None
    trace: str | None


LETTER_COLUMNS: tuple[str, ...] = _LetterRow.__struct_fields__

_decode_rows = msgspec.json.Decoder(list[_LetterRow]).decode
_decode_enclosed = msgspec.json.Decoder(tuple[Enclosed, ...]).decode


def encode_enclosed(enclosed: tuple[Enclosed, ...]) -> str | None:
    return msgspec.json.encode(enclosed).decode() if enclosed else None


def letters_from_json(text: str) -> list[Letter]:
    """The letters of a JSON array that SQLite made, in the order of their lane."""
    letters = [_letter(row) for row in _decode_rows(text)]
    letters.sort(key=lambda letter: (letter.rank, letter.number))
    return letters


def letter_from_row(row: tuple[Value, ...]) -> Letter:
    return _letter(msgspec.convert(list(row), _LetterRow))


def _letter(row: _LetterRow) -> Letter:
    plain = Letter(
        id=row.id,
        bot_id=row.bot_id,
        number=row.number,
        method=row.method,
        params=row.params,
        chat=row.chat,
        thread=row.thread,
        weight=row.weight,
        rank=row.rank,
        attempts=row.attempts,
        backoff_ms=row.backoff_ms,
        attempts_made=row.attempts_made,
        uncertain_tries=row.uncertain_tries,
        trace=row.trace,
    )
    has_usual_terms = (
        row.backoff is None
        and row.timeout_ms is None
        and row.hold is None
        and row.due_at is None
        and row.expires_at is None
        and row.awaits is None
        and row.moved is None
        and row.enclosed is None
    )
    if has_usual_terms:  # nearly all, and a field that is named costs
        return plain
    return msgspec.structs.replace(
        plain,
        backoff=Backoff(row.backoff) if row.backoff else Backoff.EXPONENTIAL,
        timeout_ms=row.timeout_ms or 0,
        on_uncertain=on_uncertain_of(row.hold),
        counts_uncertain=row.hold == COUNTS_UNCERTAIN,
        due_at_ms=row.due_at or 0,
        expires_at_ms=row.expires_at or 0,
        awaits=row.awaits,
        is_moved=bool(row.moved),
        enclosed=_decode_enclosed(row.enclosed) if row.enclosed else (),
    )


# The column `hold`: what an uncertain try means to a letter. NULL: it is sent again.
_HELD, COUNTS_UNCERTAIN = 1, 2


def hold_of(draft: Draft) -> int | None:
    if draft.on_uncertain is OnUncertain.HOLD:
        return _HELD
    return COUNTS_UNCERTAIN if draft.counts_uncertain else None


def on_uncertain_of(hold: int | None) -> OnUncertain:
    return OnUncertain.HOLD if hold == _HELD else OnUncertain.RESEND


class _ViewRow(msgspec.Struct, array_like=True):
    id: int
    bot_id: int
    method: str
    params: str
    chat: Chat
    thread: int
    phase: int
    rank: int
    attempts: int
    attempts_made: int
    uncertain_tries: int
    failed_reason: str | None
    result: str | None
    history: str | None
    merged_into: int | None
    metadata: str | None
    user_id: str | None
    message_type: str | None
    hold: int | None
    created_at: int
    due_at: int | None
    expires_at: int | None
    marked_at: int | None
    settled_at: int | None
    trace: str | None


def view_from_row(row: tuple[Value, ...], *, at_ms: int) -> LetterView:
    one = msgspec.convert(list(row), _ViewRow)
    return LetterView(
        id=one.id,
        bot_id=one.bot_id,
        method=one.method,
        params=one.params,
        chat=one.chat,
        thread=one.thread,
        state=_state(one, at_ms),
        rank=one.rank,
        attempts=one.attempts,
        attempts_made=one.attempts_made,
        uncertain_tries=one.uncertain_tries,
        failed_reason=one.failed_reason,
        result=one.result,
        history=one.history,
        merged_into=one.merged_into,
        metadata=one.metadata,
        user_id=one.user_id,
        message_type=one.message_type,
        on_uncertain=on_uncertain_of(one.hold),
        created_at_ms=one.created_at,
        due_at_ms=one.due_at,
        expires_at_ms=one.expires_at,
        marked_at_ms=one.marked_at,
        settled_at_ms=one.settled_at,
        trace=one.trace,
    )


def _state(row: _ViewRow, at_ms: int) -> State:
    if row.phase in STATE_OF_PHASE:
        return STATE_OF_PHASE[row.phase]
    if row.marked_at is not None:
        return State.ACTIVE
    if row.phase == PHASE_APART or (row.due_at is not None and row.due_at > at_ms):
        return State.DELAYED
    return State.WAITING


# Rows of the inbox in the SQLite store as values: the one place that knows the order of columns.


PHASE_PUT_OFF = 0
PHASE_COMPLETED = 2
PHASE_DEAD = 3


class _ArrivalRow(msgspec.Struct, array_like=True):
    id: int
    bot_id: int
    number: int
    epoch: int
    update_id: int
    type: str
    lane: Chat
    user_id: int | None
    message_id: int | None
    sent_at: int | None
    received_at: int
    payload: str
    replay_of: int | None
    only_for: int


ARRIVAL_COLUMNS: tuple[str, ...] = _ArrivalRow.__struct_fields__
ARRIVAL = ", ".join(f"a.{column}" for column in ARRIVAL_COLUMNS)

_decode_arrivals = msgspec.json.Decoder(list[_ArrivalRow]).decode
_decode_spans = msgspec.json.Decoder(tuple[Span, ...]).decode
_decode_allowed = msgspec.json.Decoder(frozenset[str]).decode


def arrivals_from_json(text: str) -> list[Arrival]:
    """The arrivals of a JSON array that SQLite made, in the order in which they came."""
    arrivals = [_arrival(row) for row in _decode_arrivals(text)]
    arrivals.sort(key=lambda arrival: arrival.id)
    return arrivals


def _arrival(row: _ArrivalRow) -> Arrival:
    return Arrival(
        id=row.id,
        bot_id=row.bot_id,
        number=row.number,
        epoch=row.epoch,
        update_id=row.update_id,
        type=row.type,
        lane=row.lane,
        user_id=row.user_id,
        message_id=row.message_id,
        sent_at_ms=row.sent_at,
        received_at_ms=row.received_at,
        payload=row.payload,
        replay_of=row.replay_of,
        only_for=row.only_for or None,
    )


def progress_of(watermark: int, spans: str) -> ConsumerProgress:
    return ConsumerProgress(watermark=watermark, spans=_decode_spans(spans))


def consumer_from_row(row: tuple[Value, ...]) -> Consumer:
    consumer_id, bot_id, name, kind, url, secret, allowed, connections_max, watermark, spans, seen_at, created_at = row
    return msgspec.convert(
        {
            "id": consumer_id,
            "bot_id": bot_id,
            "name": name,
            "kind": ConsumerKind(str(kind)),
            "url": url,
            "secret": secret,
            "allowed": None if allowed is None else _decode_allowed(str(allowed)),
            "connections_max": connections_max,
            "progress": progress_of(number(watermark), str(spans)),
            "seen_at_ms": seen_at,
            "created_at_ms": created_at,
        },
        Consumer,
    )


def encode_allowed(allowed: frozenset[str] | None) -> str | None:
    return None if allowed is None else msgspec.json.encode(sorted(allowed)).decode()


def encode_numbers(numbers: Sequence[int] | Sequence[Span]) -> str:
    return msgspec.json.encode(numbers).decode()


class _StateRow(msgspec.Struct, array_like=True):
    bot_id: int
    epoch: int
    server: str
    last_update_id: int | None
    newest_update_id: int | None
    started_at: int | None
    seen_at: int | None
    received_at: int | None
    last_number: int
    expired: int


def state_from_row(row: tuple[Value, ...]) -> InboxState:
    one = msgspec.convert(list(row), _StateRow)
    return InboxState(
        bot_id=one.bot_id,
        epoch=one.epoch,
        server=one.server,
        last_update_id=one.last_update_id,
        newest_update_id=one.newest_update_id,
        started_at_ms=one.started_at,
        seen_at_ms=one.seen_at,
        received_at_ms=one.received_at,
        last_number=one.last_number,
        expired=one.expired,
    )


def outage_from_row(row: tuple[Value, ...]) -> OutageRecord:
    outage_id, bot_id, began_at, ended_at, last_number, settled_at = row
    return OutageRecord(
        id=number(outage_id),
        bot_id=number(bot_id),
        began_at_ms=number(began_at),
        ended_at_ms=number(ended_at),
        last_number=number(last_number),
        settled_at_ms=None if settled_at is None else number(settled_at),
    )


class _DeliveryRow(msgspec.Struct, array_like=True):
    consumer: str
    is_over: int
    phase: int | None  # None: it never failed
    tries: int | None
    due_at: int | None
    failed_reason: str | None
    settled_at: int | None
    history: str | None


def delivery_from_row(row: tuple[Value, ...], *, at_ms: int) -> ArrivalDelivery:
    one = msgspec.convert(list(row), _DeliveryRow)
    return ArrivalDelivery(
        consumer=one.consumer,
        state=_delivery_state(one, at_ms),
        tries=one.tries or 0,
        due_at_ms=one.due_at,
        failed_reason=one.failed_reason,
        settled_at_ms=one.settled_at,
        history=one.history,
    )


def _delivery_state(row: _DeliveryRow, at_ms: int) -> State:
    if row.phase == PHASE_DEAD:
        return State.FAILED
    if row.is_over:
        return State.COMPLETED
    return State.DELAYED if row.due_at is not None and row.due_at > at_ms else State.WAITING


def number(value: Value) -> int:
    assert isinstance(value, int)
    return value


# How the SQLite store looks through one lane's arrivals: stretch by stretch of its bot's numbers, as the index has
# them.
#
# Functions on a connection, no state. Numbers only rise, and a reader looks up first which stretch is the last: what
# comes while it goes on stands there or beyond, so that nothing can appear behind it.


_SQL = load("sqlite_inbox.sql")
THOSE = load("sqlite_arrivals.sql")["those"].replace("{arrival}", ARRIVAL)
STRETCH_BITS = 12  # as in the index


class LanePosition(msgspec.Struct, frozen=True, kw_only=True):
    """From where on a bot's lanes are looked through: an id, and the stretches that can hold it and those above."""

    id: int
    stretches: range


def stretches(connection: apsw.Connection, bot_id: int, *, first: int | None = None, last: int | None = None) -> range:
    """Those that hold arrivals of a bot, from and up to these numbers if there are any."""
    ((lowest, highest),) = connection.execute(_SQL["stretches"], {"bot": bot_id})
    if lowest is None:
        return range(0)
    begin = lowest if first is None else max(lowest, first >> STRETCH_BITS)
    end = highest if last is None else min(highest, last >> STRETCH_BITS)
    return range(begin, end + 1)


def page(
    connection: apsw.Connection,
    bot_id: int,
    lane: Chat,
    after: int,
    *,
    consumer_id: int,
    limit: int,
    bytes_max: int,
) -> list[Arrival]:
    """What a reader may see of a lane above a number: as many as fit, and at least one if there is any."""
    bound: dict[str, Value] = {"bot": bot_id, "lane": lane, "consumer": consumer_id, "after": after}
    ids: list[int] = []
    total = 0
    for stretch in stretches(connection, bot_id, first=after):
        bound |= {"stretch": stretch, "limit": limit - len(ids)}
        for arrival_id, size_bytes in connection.execute(_SQL["lane_stretch"], bound):
            total += size_bytes
            if ids and total > bytes_max:
                return those(connection, ids)
            ids.append(arrival_id)
        if len(ids) == limit:
            break
    return those(connection, ids)


def first_since(connection: apsw.Connection, bot_id: int, at_ms: int, *, before_epoch: int) -> LanePosition | None:
    """The first of a bot's arrivals that was received then or later, found in twenty steps; see `consumers.id_at`. Its
    stretches end with the last arrival of an earlier epoch than this: days after one began, nearly all are of that one."""
    first = _from_number(connection, bot_id, _search(connection, bot_id, lambda row: row.received_at < at_ms))
    if first is None:
        return None
    beyond = _search(connection, bot_id, lambda row: row.epoch < before_epoch)
    return LanePosition(id=first.id, stretches=stretches(connection, bot_id, first=first.number, last=beyond - 1))


def first_from(connection: apsw.Connection, bot_id: int, first: int) -> LanePosition | None:
    """The first of a bot's arrivals that has this number or a higher one: from there on a lane is looked through, and not
    from its beginning."""
    row = _from_number(connection, bot_id, first)
    return None if row is None else LanePosition(id=row.id, stretches=stretches(connection, bot_id, first=row.number))


class _Found(NamedTuple):
    id: int
    number: int
    epoch: int
    received_at: int


def _search(connection: apsw.Connection, bot_id: int, is_below: Callable[[_Found], bool]) -> int:
    """The least number above all arrivals that are below what is looked for."""
    every = stretches(connection, bot_id)
    low, high = every.start << STRETCH_BITS, every.stop << STRETCH_BITS
    while low < high:
        middle = (low + high) // 2
        row = _from_number(connection, bot_id, middle)
        if row is not None and is_below(row):
            low = row.number + 1
        else:
            high = middle
    return low


def _from_number(connection: apsw.Connection, bot_id: int, first: int) -> _Found | None:
    for row in connection.execute(_SQL["from_number"], (bot_id, first)):
        return _Found(*row)
    return None


def those(connection: apsw.Connection, ids: Sequence[int]) -> list[Arrival]:
    """In the order in which they came."""
    ((text,),) = connection.execute(THOSE, (encode_numbers(ids),))
    return arrivals_from_json(text)


# ---- bots and their chats ----


def row_of_bot(record: BotRecord, seals: Seals) -> tuple[Any, ...]:
    """As `save_bot` of both dialects takes it."""
    return (
        record.bot_id,
        seals.seal(record.token.reveal(), place=place_of_bot(record.bot_id)),
        record.username,
        record.inbound,
        record.paused,
        None if record.limits is None else msgspec.json.encode(record.limits).decode(),
        record.missed,
        record.me,
        record.created_at_ms,
    )


def bot_from_row(row: Sequence[Any], seals: Seals) -> BotRecord:
    bot_id, token, username, inbound, paused, limits, missed, me, created_at = row
    return BotRecord(
        bot_id=bot_id,
        token=Token.stored(seals.open(token, place=place_of_bot(bot_id))),
        username=username,
        inbound=inbound,
        paused=paused,
        limits=None if limits is None else msgspec.json.decode(limits, type=PaceLimits),
        missed=missed,
        me=me,
        created_at_ms=created_at,
    )


def logged_from_row(row: Sequence[Any]) -> LoggedMessage:
    (
        letter_id,
        bot_id,
        chat,
        user_id,
        kind,
        method,
        status,
        attempts,
        error,
        message_id,
        text,
        created_at,
        finished_at,
    ) = row
    return LoggedMessage(
        id=letter_id,
        bot_id=bot_id,
        chat=chat,
        user_id=user_id,
        message_type=kind,
        method=method,
        state=State(status),
        attempts_made=attempts,
        error=error,
        message_id=message_id,
        text=None if text is None else str(text),
        created_at_ms=created_at,
        finished_at_ms=finished_at,
    )


def chat_from_row(bot_id: int, row: Sequence[Any]) -> ChatRecord:
    chat, same_as, shut_reason, shut_at, held_until = row
    return ChatRecord(
        bot_id=bot_id,
        chat=chat,
        same_as=same_as,
        shut_reason=shut_reason,
        shut_at_ms=shut_at,
        held_until_ms=held_until,
    )
