"""Arrivals, consumers and their stories as Redis keeps them, read as values."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from peik.core.arrival import DEFAULT_CONSUMER, Arrival, ConsumerProgress, Span, Update
from peik.core.letter import State
from peik.inbox.store import (
    ArrivalDelivery,
    ArrivalFilter,
    ArrivalView,
    Consumer,
    ConsumerKind,
    Deferral,
    InboxState,
    OutageRecord,
)
from peik.storage.redis.client import RedisClient
from peik.storage.redis.records import chat_key, chat_of, encode
from peik.storage.redis.search import newest
from peik.storage.rules import ways_of

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
        progress=ConsumerProgress(watermark=watermark, spans=spans),
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


def delivery_of(consumer: Consumer, number: int, raw: bytes | None, *, at_ms: int) -> ArrivalDelivery:
    is_over = consumer.progress.is_over(number)
    if raw is None:
        return ArrivalDelivery(consumer=consumer.name, state=State.COMPLETED if is_over else State.WAITING)
    story = _decode_story(raw)
    return ArrivalDelivery(
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


def outage_of(row: Sequence[Any]) -> OutageRecord:
    outage_id, raw = row
    one = _decode_outage(raw)
    return OutageRecord(
        id=int(outage_id),
        bot_id=int(one.bot),
        began_at_ms=one.began,
        ended_at_ms=one.ended,
        last_number=one.last,
        settled_at_ms=one.settled,
    )


# What people look for among arrivals: ids by the index that fits, page by page, judged here.


PAGE = 200
CLOCK_SLACK_MS = 3600 * 1000  # clocks are set back now and then: ids rise with time only so far

_STORY_OF = {State.DELAYED: "put_off", State.FAILED: "given_up"}
_STATES = frozenset({State.WAITING, State.DELAYED, State.COMPLETED, State.FAILED})


class Between(msgspec.Struct, frozen=True, kw_only=True):
    """Ids above one and below another, from the oldest on or from the newest back."""

    above: int = 0
    below: int | None = None
    is_rising: bool = False

    def holds(self, arrival_id: int) -> bool:
        return arrival_id > self.above and (self.below is None or arrival_id < self.below)


async def consumers(client: RedisClient, bot_id: int | None) -> list[Consumer]:
    (rows,) = await client.read(["consumers", None if bot_id is None else str(bot_id)])
    return sorted((consumer_of(row) for row in rows), key=lambda consumer: consumer.id)


async def find(
    client: RedisClient, wanted: ArrivalFilter, between: Between, *, limit: int | None, at_ms: int
) -> list[Arrival]:
    """What a filter wants, in the order of ids. A limit of None: all of it."""
    readers = await _readers(client, wanted)
    found: list[Arrival] = []
    async for page in _pages(_walk(client, wanted, between, readers)):
        arrivals = await those(client, page)
        for arrival, is_so in zip(arrivals, await _stand_so(client, arrivals, wanted, readers, at_ms), strict=True):
            if is_so and is_wanted(arrival, wanted):
                found.append(arrival)
                if len(found) == limit:
                    return found
        if arrivals and _is_past(arrivals[-1], wanted, between):
            break
    return found


async def those(client: RedisClient, ids: Sequence[int]) -> list[Arrival]:
    if not ids:
        return []
    (rows,) = await client.read(["arrivals", [str(one) for one in ids]])
    return [arrival_of(one, raw) for one, raw in zip(ids, rows, strict=True) if raw is not None]


async def views(
    client: RedisClient, arrivals: Sequence[Arrival], consumer: str | None, at_ms: int
) -> list[ArrivalView]:
    """Each with how it stands with the consumers that see it, or with one of them."""
    deliveries: dict[int, list[ArrivalDelivery]] = {arrival.id: [] for arrival in arrivals}
    for bot_id in sorted({arrival.bot_id for arrival in arrivals}):
        for reader in await consumers(client, bot_id):
            if consumer is None or reader.name == consumer:
                seen = [one for one in arrivals if one.bot_id == bot_id and one.only_for in (None, reader.id)]
                for one, delivery in zip(seen, await _deliveries(client, reader, seen, at_ms), strict=True):
                    deliveries[one.id].append(delivery)
    return [ArrivalView(arrival=one, deliveries=tuple(deliveries[one.id])) for one in arrivals]


async def _deliveries(
    client: RedisClient, reader: Consumer, seen: Sequence[Arrival], at_ms: int
) -> list[ArrivalDelivery]:
    if not seen:
        return []
    (stories,) = await client.read(["stories", str(reader.id), [str(one.number) for one in seen]])
    return [delivery_of(reader, one.number, raw, at_ms=at_ms) for one, raw in zip(seen, stories, strict=True)]


# ---- which ids ----


async def _readers(client: RedisClient, wanted: ArrivalFilter) -> dict[int, Consumer] | None:
    """By bot, the consumer whom a filter means; None if it means nobody in particular."""
    if wanted.state is None and wanted.consumer is None:
        return None
    name = wanted.consumer or DEFAULT_CONSUMER
    return {
        one.bot_id: one
        for one in await consumers(client, wanted.bot_id)
        if one.name == name and (wanted.bot_ids is None or one.bot_id in wanted.bot_ids)
    }


async def meant(client: RedisClient, wanted: ArrivalFilter) -> list[Consumer]:
    """The consumers whom a filter with a state means."""
    return list((await _readers(client, wanted) or {}).values())


async def _walk(
    client: RedisClient, wanted: ArrivalFilter, between: Between, readers: dict[int, Consumer] | None
) -> AsyncIterator[int]:
    if wanted.state is not None and wanted.state not in _STATES:
        return
    if readers is not None:
        walks = [walk for reader in readers.values() for walk in _walks_of(client, reader, wanted, between)]
    elif wanted.chat is not None:
        bots = await _bots(client, wanted)
        walks = [_along(client, f"arrivals:{bot}:{chat_key(wanted.chat)}", between) for bot in bots]
    elif between.is_rising and wanted.bot_id is not None:
        walks = [_along(client, f"order:{wanted.bot_id}:0", between)]
    else:
        walks = [_all(client, between)]
    async for arrival_id in _merged(walks, is_rising=between.is_rising):
        yield arrival_id


def _walks_of(
    client: RedisClient, reader: Consumer, wanted: ArrivalFilter, between: Between
) -> list[AsyncIterator[int]]:
    if wanted.state in _STORY_OF:
        return [_with_story(client, reader, _STORY_OF[wanted.state], between)]
    if wanted.chat is not None:
        return [_along(client, f"arrivals:{reader.bot_id}:{chat_key(wanted.chat)}", between)]
    return [_along(client, f"order:{reader.bot_id}:{whose}", between) for whose in (0, reader.id)]


async def _bots(client: RedisClient, wanted: ArrivalFilter) -> list[int]:
    members: set[bytes] = await client.ask(client.redis.smembers(client.prefix + "inboxes"))
    return [
        bot
        for bot in sorted(int(member) for member in members)
        if wanted.bot_id in (None, bot) and (wanted.bot_ids is None or bot in wanted.bot_ids)
    ]


async def _along(client: RedisClient, name: str, between: Between) -> AsyncIterator[int]:
    """The ids of a sorted set in the order of its scores, which is that of ids, whatever the scores are."""
    key, cursor = client.prefix + name, "-inf" if between.is_rising else "+inf"
    end = "+inf" if between.is_rising else "-inf"
    ask = client.redis.zrangebyscore if between.is_rising else client.redis.zrevrangebyscore
    while True:
        rows: list[tuple[bytes, float]] = await client.ask(ask(key, cursor, end, start=0, num=PAGE, withscores=True))
        for member, _ in rows:
            if between.holds(int(member)):
                yield int(member)
        if len(rows) < PAGE:
            return
        cursor = f"({int(rows[-1][1])}"


async def _with_story(client: RedisClient, reader: Consumer, index: str, between: Between) -> AsyncIterator[int]:
    (ids,) = await client.read(["with_story", str(reader.id), index])
    for arrival_id in sorted((int(one) for one in ids), reverse=not between.is_rising):
        if between.holds(arrival_id):
            yield arrival_id


async def _all(client: RedisClient, between: Between) -> AsyncIterator[int]:
    assert not between.is_rising, "only a bot's own are walked from the oldest on"
    async for page in newest(client, "arrival_blocks", between.below):
        for arrival_id in page:
            if between.holds(arrival_id):
                yield arrival_id


async def _merged(walks: Sequence[AsyncIterator[int]], *, is_rising: bool) -> AsyncIterator[int]:
    """Several walks in the order of ids as one."""
    heads: dict[int, AsyncIterator[int]] = {}
    for walk in walks:
        async for head in walk:
            heads[head] = walk
            break
    while heads:
        head = min(heads) if is_rising else max(heads)
        walk = heads.pop(head)
        yield head
        async for follower in walk:
            heads[follower] = walk
            break


async def _pages(ids: AsyncIterator[int]) -> AsyncIterator[list[int]]:
    page: list[int] = []
    async for arrival_id in ids:
        page.append(arrival_id)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page


# ---- what a filter means ----


async def _stand_so(
    client: RedisClient,
    arrivals: Sequence[Arrival],
    wanted: ArrivalFilter,
    readers: dict[int, Consumer] | None,
    at_ms: int,
) -> list[bool]:
    """Whether each is seen by the filter's consumer, and stands with it as the filter says."""
    if readers is None:
        return [True] * len(arrivals)
    so: dict[int, bool] = {}
    for reader in readers.values():
        seen = [one for one in arrivals if one.bot_id == reader.bot_id and one.only_for in (None, reader.id)]
        if wanted.state is None:
            so |= {one.id: True for one in seen}
        else:
            standings = await _deliveries(client, reader, seen, at_ms)
            so |= {one.id: delivery.state is wanted.state for one, delivery in zip(seen, standings, strict=True)}
    return [so.get(one.id, False) for one in arrivals]


def is_wanted(arrival: Arrival, wanted: ArrivalFilter) -> bool:
    same: tuple[tuple[object, object], ...] = (
        (wanted.bot_id, arrival.bot_id),
        (wanted.type, arrival.type),
        (wanted.chat, arrival.lane),
        (wanted.user_id, arrival.user_id),
    )
    return (
        all(asked is None or asked == has for asked, has in same)
        and (wanted.bot_ids is None or arrival.bot_id in wanted.bot_ids)
        and _is_within(arrival.received_at_ms, wanted.since_ms, wanted.until_ms)
        and _is_within(arrival.number, wanted.first_number, wanted.last_number)
        and (not wanted.is_original or arrival.replay_of is None)
        and (wanted.text is None or _has_text(arrival.payload, wanted.text))
    )


def _is_within(value: int, first: int | None, last: int | None) -> bool:
    return (first is None or value >= first) and (last is None or value <= last)


def _has_text(payload: str, text: str) -> bool:
    """A payload is kept as Telegram wrote it."""
    whole = payload.lower()
    return any(way.lower() in whole for way in ways_of(text))


def _is_past(arrival: Arrival, wanted: ArrivalFilter, between: Between) -> bool:
    """Whether nothing that a filter wants can come after this one."""
    if between.is_rising:
        return wanted.until_ms is not None and arrival.received_at_ms > wanted.until_ms + CLOCK_SLACK_MS
    return wanted.since_ms is not None and arrival.received_at_ms < wanted.since_ms - CLOCK_SLACK_MS
