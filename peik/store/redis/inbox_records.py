"""Arrivals, consumers and their stories as Redis keeps them, read as values."""

from collections.abc import Sequence
from typing import Any

import msgspec

from peik.core.arrival import Arrival, Update
from peik.core.letter import State
from peik.core.spans import Progress, Span
from peik.inbox_ports import Consumer, ConsumerKind, Deferral, Delivery, InboxState, Outage
from peik.store.redis.records import chat_key, chat_of, encode

DEAD = 3  # the phase of a story; 0 is put off, 2 completed after all

# Updates that are a message, and so may have been handled over MTProto. A press or a reaction names a message as well.
_MESSAGES = frozenset({"message", "channel_post", "business_message", "guest_message"})
_EDITS = frozenset({"edited_message", "edited_channel_post", "edited_business_message"})


# ---- arrivals ----


class _Update(msgspec.Struct, array_like=True, frozen=True):
    bot: str
    type: str
    lane: str
    user_id: int | None
    message_id: int | None
    sent_at: int | None
    digest: str
    payload: str


_decode_update = msgspec.msgpack.Decoder(_Update).decode


def update_row(bot_id: int, update: Update, among: list[bytes]) -> list[object]:
    """An update for intake.lua; its record goes among those of the commit."""
    lane, digest = chat_key(update.lane), update.digest.hex()
    record = _Update(
        bot=str(bot_id),
        type=update.type,
        lane=lane,
        user_id=update.user_id,
        message_id=update.message_id,
        sent_at=update.sent_at_ms,
        digest=digest,
        payload=update.payload,
    )
    among.append(encode(record))
    return [
        update.update_id,
        update.type,
        lane,
        update.user_id,
        update.message_id,
        update.sent_at_ms,
        digest,
        len(among) + 1,
        len(update.payload.encode()),
        _kind(update),
    ]


def _kind(update: Update) -> int:
    if update.message_id is None or not isinstance(update.lane, int):
        return 0
    return 1 if update.type in _MESSAGES else 2 if update.type in _EDITS else 0


def arrival_of(arrival_id: int, raw: bytes) -> Arrival:
    """See arrivals.lua for its two parts."""
    line, _, rest = raw.partition(b"\n")
    number, epoch, received_at, replay_of, only_for, update_id, _ = (int(word) for word in line.split(b" "))
    update = _decode_update(rest)
    return Arrival(
        id=arrival_id,
        bot_id=int(update.bot),
        number=number,
        epoch=epoch,
        update_id=update_id,
        type=update.type,
        lane=chat_of(update.lane),
        user_id=update.user_id,
        message_id=update.message_id,
        sent_at_ms=update.sent_at,
        received_at_ms=received_at,
        payload=update.payload,
        replay_of=replay_of or None,
        only_for=only_for or None,
    )


def arrivals_of(rows: Sequence[Any]) -> list[Arrival]:
    """From {id, arrival}, in the order in which they came."""
    return sorted((arrival_of(int(one), raw) for one, raw in rows), key=lambda arrival: arrival.id)


# ---- readers ----


class _ConsumerRecord(msgspec.Struct, frozen=True):
    bot: str
    name: str
    kind: str
    connections: int
    at: int
    url: str | None = None
    secret: str | None = None
    allowed: str | None = None


_decode_consumer = msgspec.msgpack.Decoder(_ConsumerRecord).decode
_decode_progress = msgspec.msgpack.Decoder(tuple[int, tuple[Span, ...]]).decode
_decode_allowed = msgspec.json.Decoder(frozenset[str]).decode


def consumer_of(row: Sequence[Any]) -> Consumer:
    consumer_id, record, seen_at, progress = row
    one = _decode_consumer(record)
    watermark, spans = (0, ()) if progress is None else _decode_progress(progress)
    return Consumer(
        id=int(consumer_id),
        bot_id=int(one.bot),
        name=one.name,
        kind=ConsumerKind(one.kind),
        url=one.url,
        secret=one.secret,
        allowed=None if one.allowed is None else _decode_allowed(one.allowed),
        connections_max=one.connections,
        progress=Progress(watermark=watermark, spans=spans),
        seen_at_ms=None if seen_at is None else int(seen_at),
        created_at_ms=one.at,
    )


def consumer_terms(consumer: Consumer) -> list[object]:
    allowed = None if consumer.allowed is None else msgspec.json.encode(sorted(consumer.allowed)).decode()
    return [str(consumer.kind), consumer.url, consumer.secret, allowed, consumer.connections_max]


class _Story(msgspec.Struct, frozen=True):
    p: int
    t: int
    d: int | None = None
    r: str | None = None
    s: int | None = None
    h: tuple[str, ...] = ()


_decode_story = msgspec.msgpack.Decoder(_Story).decode


def read_story(raw: bytes) -> tuple[str | None, list[str]]:
    """Its reason, and the lines of its history."""
    story = _decode_story(raw)
    return story.r, list(story.h)


def delivery_of(consumer: Consumer, number: int, raw: bytes | None, *, at_ms: int) -> Delivery:
    is_over = consumer.progress.is_over(number)
    if raw is None:
        return Delivery(consumer=consumer.name, state=State.COMPLETED if is_over else State.WAITING)
    story = _decode_story(raw)
    return Delivery(
        consumer=consumer.name,
        state=_state(story, at_ms, is_over=is_over),
        tries=story.t,
        due_at_ms=story.d,
        failed_reason=story.r,
        settled_at_ms=story.s,
        history=f"[{','.join(story.h)}]",
    )


def _state(story: _Story, at_ms: int, *, is_over: bool) -> State:
    if story.p == DEAD:
        return State.FAILED
    if is_over:
        return State.COMPLETED
    return State.DELAYED if story.d is not None and story.d > at_ms else State.WAITING


def deferral_of(row: Sequence[Any]) -> Deferral:
    number, raw, arrival = row
    story = _decode_story(raw)
    lane = None if arrival is None else arrival_of(0, arrival).lane
    return Deferral(number=int(number), tries=story.t, due_at_ms=story.d or 0, lane=lane)


# ---- sources ----


def inbox_state(bot_id: int, row: Sequence[bytes | None]) -> InboxState | None:
    epoch, server, last_update_id, newest, started_at, seen_at, received_at, next_number, expired = row
    if epoch is None or server is None:
        return None
    return InboxState(
        bot_id=bot_id,
        epoch=int(epoch),
        server=server.decode(),
        last_update_id=_number(last_update_id),
        newest_update_id=_number(newest),
        started_at_ms=_number(started_at),
        seen_at_ms=_number(seen_at),
        received_at_ms=_number(received_at),
        last_number=int(next_number or 1) - 1,
        expired=int(expired or 0),
    )


def _number(raw: bytes | None) -> int | None:
    return None if raw is None else int(raw)


class _OutageRecord(msgspec.Struct, frozen=True):
    bot: str
    began: int
    ended: int
    last: int
    settled: int | None = None


_decode_outage = msgspec.msgpack.Decoder(_OutageRecord).decode


def outage_of(row: Sequence[Any]) -> Outage:
    outage_id, raw = row
    one = _decode_outage(raw)
    return Outage(
        id=int(outage_id),
        bot_id=int(one.bot),
        began_at_ms=one.began,
        ended_at_ms=one.ended,
        last_number=one.last,
        settled_at_ms=one.settled,
    )
