"""Rows of the inbox in the SQLite store as values: the one place that knows the order of columns."""

from collections.abc import Sequence

import msgspec

from peik.core.arrival import Arrival
from peik.core.letter import Chat, State
from peik.core.spans import Progress, Span
from peik.inbox_ports import Consumer, ConsumerKind, Delivery, InboxState, Outage
from peik.store.statements import Value

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

_decode_rows = msgspec.json.Decoder(list[_ArrivalRow]).decode
_decode_spans = msgspec.json.Decoder(tuple[Span, ...]).decode
_decode_allowed = msgspec.json.Decoder(frozenset[str]).decode


def arrivals_from_json(text: str) -> list[Arrival]:
    """The arrivals of a JSON array that SQLite made, in the order in which they came."""
    arrivals = [_arrival(row) for row in _decode_rows(text)]
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


def progress_of(watermark: int, spans: str) -> Progress:
    return Progress(watermark=watermark, spans=_decode_spans(spans))


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


def outage_from_row(row: tuple[Value, ...]) -> Outage:
    outage_id, bot_id, began_at, ended_at, last_number, settled_at = row
    return Outage(
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


def delivery_from_row(row: tuple[Value, ...], *, at_ms: int) -> Delivery:
    one = msgspec.convert(list(row), _DeliveryRow)
    return Delivery(
        consumer=one.consumer,
        state=_state(one, at_ms),
        tries=one.tries or 0,
        due_at_ms=one.due_at,
        failed_reason=one.failed_reason,
        settled_at_ms=one.settled_at,
        history=one.history,
    )


def _state(row: _DeliveryRow, at_ms: int) -> State:
    if row.phase == PHASE_DEAD:
        return State.FAILED
    if row.is_over:
        return State.COMPLETED
    return State.DELAYED if row.due_at is not None and row.due_at > at_ms else State.WAITING


def number(value: Value) -> int:
    assert isinstance(value, int)
    return value
