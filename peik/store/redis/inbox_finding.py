"""What people look for among arrivals: ids by the index that fits, page by page, judged here."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from peik.core.arrival import DEFAULT_CONSUMER, Arrival
from peik.core.letter import State
from peik.inbox_ports import ArrivalFilter, ArrivalView, Consumer, Delivery
from peik.store.redis.client import Client
from peik.store.redis.finding import newest
from peik.store.redis.inbox_records import arrival_of, consumer_of, delivery_of
from peik.store.redis.records import chat_key
from peik.store.wording import ways_of

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


async def consumers(client: Client, bot_id: int | None) -> list[Consumer]:
    (rows,) = await client.read(["consumers", None if bot_id is None else str(bot_id)])
    return sorted((consumer_of(row) for row in rows), key=lambda consumer: consumer.id)


async def find(
    client: Client, wanted: ArrivalFilter, between: Between, *, limit: int | None, at_ms: int
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


async def those(client: Client, ids: Sequence[int]) -> list[Arrival]:
    if not ids:
        return []
    (rows,) = await client.read(["arrivals", [str(one) for one in ids]])
    return [arrival_of(one, raw) for one, raw in zip(ids, rows, strict=True) if raw is not None]


async def views(client: Client, arrivals: Sequence[Arrival], consumer: str | None, at_ms: int) -> list[ArrivalView]:
    """Each with how it stands with the consumers that see it, or with one of them."""
    deliveries: dict[int, list[Delivery]] = {arrival.id: [] for arrival in arrivals}
    for bot_id in sorted({arrival.bot_id for arrival in arrivals}):
        for reader in await consumers(client, bot_id):
            if consumer is None or reader.name == consumer:
                seen = [one for one in arrivals if one.bot_id == bot_id and one.only_for in (None, reader.id)]
                for one, delivery in zip(seen, await _deliveries(client, reader, seen, at_ms), strict=True):
                    deliveries[one.id].append(delivery)
    return [ArrivalView(arrival=one, deliveries=tuple(deliveries[one.id])) for one in arrivals]


async def _deliveries(client: Client, reader: Consumer, seen: Sequence[Arrival], at_ms: int) -> list[Delivery]:
    if not seen:
        return []
    (stories,) = await client.read(["stories", str(reader.id), [str(one.number) for one in seen]])
    return [delivery_of(reader, one.number, raw, at_ms=at_ms) for one, raw in zip(seen, stories, strict=True)]


# ---- which ids ----


async def _readers(client: Client, wanted: ArrivalFilter) -> dict[int, Consumer] | None:
    """By bot, the consumer whom a filter means; None if it means nobody in particular."""
    if wanted.state is None and wanted.consumer is None:
        return None
    name = wanted.consumer or DEFAULT_CONSUMER
    return {
        one.bot_id: one
        for one in await consumers(client, wanted.bot_id)
        if one.name == name and (wanted.bot_ids is None or one.bot_id in wanted.bot_ids)
    }


async def meant(client: Client, wanted: ArrivalFilter) -> list[Consumer]:
    """The consumers whom a filter with a state means."""
    return list((await _readers(client, wanted) or {}).values())


async def _walk(
    client: Client, wanted: ArrivalFilter, between: Between, readers: dict[int, Consumer] | None
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


def _walks_of(client: Client, reader: Consumer, wanted: ArrivalFilter, between: Between) -> list[AsyncIterator[int]]:
    if wanted.state in _STORY_OF:
        return [_with_story(client, reader, _STORY_OF[wanted.state], between)]
    if wanted.chat is not None:
        return [_along(client, f"arrivals:{reader.bot_id}:{chat_key(wanted.chat)}", between)]
    return [_along(client, f"order:{reader.bot_id}:{whose}", between) for whose in (0, reader.id)]


async def _bots(client: Client, wanted: ArrivalFilter) -> list[int]:
    members: set[bytes] = await client.ask(client.redis.smembers(client.prefix + "inboxes"))
    return [
        bot
        for bot in sorted(int(member) for member in members)
        if wanted.bot_id in (None, bot) and (wanted.bot_ids is None or bot in wanted.bot_ids)
    ]


async def _along(client: Client, name: str, between: Between) -> AsyncIterator[int]:
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


async def _with_story(client: Client, reader: Consumer, index: str, between: Between) -> AsyncIterator[int]:
    (ids,) = await client.read(["with_story", str(reader.id), index])
    for arrival_id in sorted((int(one) for one in ids), reverse=not between.is_rising):
        if between.holds(arrival_id):
            yield arrival_id


async def _all(client: Client, between: Between) -> AsyncIterator[int]:
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
    client: Client,
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
