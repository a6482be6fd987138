"""The inbox of the Redis store. What is asked goes into the store's own commits and reads."""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from peik.clock import Clock
from peik.core.arrival import Arrival, ConsumerProgress, Span, Update
from peik.core.letter import Chat, State
from peik.errors import NotFound
from peik.inbox.store import (
    ArrivalFilter,
    ArrivalRetention,
    ArrivalsCleaned,
    ArrivalView,
    Burial,
    Consumer,
    Deferral,
    InboxState,
    InboxTally,
    OutageRecord,
    TakenIn,
)
from peik.secrets.seals import PLAIN, Seals
from peik.storage.news import NodeNews
from peik.storage.redis import inbox_records, search
from peik.storage.redis.client import RedisClient
from peik.storage.redis.commits import Commits
from peik.storage.redis.inbox_records import (
    Between,
    arrivals_of,
    consumer_of,
    consumer_terms,
    deferral_of,
    inbox_state,
    outage_of,
    update_row,
)
from peik.storage.redis.records import chat_key
from peik.storage.redis.writer import CommitDone, problem
from peik.storage.rules import opened, sealed

DUPLICATES_MS = 48 * 3600 * 1000  # see intake.lua
_GONE_AT_ONCE = 1000


class RedisInbox:
    """See `peik.inbox.store.InboxStore`. Made by the store when it is opened."""

    def __init__(self, client: RedisClient, commits: Commits, *, clock: Clock, seals: Seals = PLAIN) -> None:
        self._seals = seals
        self._client = client
        self._write = commits.write
        self._submit = commits.submit
        self._clock = clock

    # ---- sources ----

    async def open_inbox(self, bot_id: int, *, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
        before, now = await self._write(
            "open_inbox",
            str(bot_id),
            server,
            at_ms,
            news=lambda telling, answer: telling.consumers() if answer[0][0] is None else None,
        )
        state = inbox_state(bot_id, now)
        assert state is not None
        return inbox_state(bot_id, before) or InboxState(bot_id=bot_id), state

    async def inbox(self, bot_id: int) -> InboxState | None:
        (row,) = await self._client.read(["inbox", str(bot_id)])
        return inbox_state(bot_id, row)

    async def take_in(
        self,
        bot_id: int,
        updates: Sequence[Update],
        *,
        at_ms: int,
        last_update_id: int | None,
        is_new_epoch: bool = False,
        expired: int = 0,
    ) -> TakenIn:
        def build(among: list[bytes]) -> list[object]:
            rows = [update_row(bot_id, update, among) for update in updates]
            return ["take_in", str(bot_id), rows, at_ms, last_update_id, is_new_epoch, expired]

        def read(done: CommitDone) -> TakenIn:
            stored, duplicates, last_number, epoch = done.value
            return TakenIn(stored=stored, duplicates=duplicates, last_number=last_number, epoch=epoch)

        def news(telling: NodeNews, done: CommitDone) -> None:
            if done.value[0]:
                telling.arrivals.add(bot_id)

        return await self._submit(build, read, weight=len(updates) + 1, news=news)

    async def note_seen(self, bot_id: int, *, at_ms: int) -> None:
        await self._write("note_seen", str(bot_id), at_ms)

    # ---- consumers ----

    async def consumers(self, bot_id: int | None = None) -> list[Consumer]:
        return [opened(one, self._seals) for one in await inbox_records.consumers(self._client, bot_id)]

    async def ensure_consumer(self, bot_id: int, name: str, *, at_ms: int, most: int | None = None) -> Consumer:
        found = await self._named(bot_id, name)
        if found is None:
            await self._write("ensure_consumer", str(bot_id), name, at_ms, most, news=_of_consumers)
            found = await self._named(bot_id, name)
        if found is None:  # the bot was removed between the two
            raise problem("unknown_bot", bot_id)
        return found

    async def _named(self, bot_id: int, name: str) -> Consumer | None:
        return next((one for one in await self.consumers(bot_id) if one.name == name), None)

    async def save_consumer(self, consumer: Consumer) -> None:
        await self._write(
            "save_consumer", str(consumer.id), *consumer_terms(sealed(consumer, self._seals)), news=_of_consumers
        )

    async def touch_consumers(self, seen: Mapping[int, int]) -> None:
        await self._write("touch_consumers", [[str(consumer_id), at_ms] for consumer_id, at_ms in seen.items()])

    async def remove_consumer(self, consumer_id: int) -> None:
        await self._write("remove_consumer", str(consumer_id), news=_of_consumers)

    # ---- handing on ----

    async def arrivals_after(
        self, consumer_id: int, number: int, *, limit: int, bytes_max: int = 4 << 20, lane: Chat | None = None
    ) -> list[Arrival]:
        whose = str(consumer_id)
        if lane is None:
            (rows,) = await self._client.read(["page", whose, number, limit, bytes_max])
        else:
            (rows,) = await self._client.read(["lane_page", whose, chat_key(lane), number, limit, bytes_max])
        return arrivals_of(rows)

    async def arrivals_from(self, bot_id: int, number: int, *, limit: int) -> list[Arrival]:
        (rows,) = await self._client.read(["page_of_bot", str(bot_id), number, limit])
        return arrivals_of(rows)

    async def deferrals(self, consumer_id: int) -> list[Deferral]:
        (rows,) = await self._client.read(["deferrals", str(consumer_id)])
        return sorted((deferral_of(row) for row in rows), key=lambda deferral: deferral.number)

    async def settle_arrivals(
        self,
        consumer_id: int,
        *,
        over: Sequence[Span] = (),
        deferred: Sequence[Deferral] = (),
        dead: Sequence[Burial] = (),
        at_ms: int,
    ) -> ConsumerProgress:
        put_off = [[one.number, one.tries, one.due_at_ms, one.entry] for one in deferred]
        given_up = [[one.number, one.tries, one.reason, one.entry] for one in dead]
        spans = [list(span) for span in over]
        reached = await self._write("settle_arrivals", str(consumer_id), spans, put_off, given_up, at_ms)
        return ConsumerProgress(watermark=reached[0], spans=tuple((first, last) for first, last in reached[1]))

    # ---- outages ----

    async def open_outage(self, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last_number: int) -> OutageRecord:
        outage_id = await self._write(
            "open_outage", str(bot_id), began_at_ms, ended_at_ms, last_number, news=_of_consumers
        )
        return OutageRecord(
            id=int(outage_id),
            bot_id=bot_id,
            began_at_ms=began_at_ms,
            ended_at_ms=ended_at_ms,
            last_number=last_number,
        )

    async def outages(self, bot_id: int, *, is_open: bool) -> list[OutageRecord]:
        (rows,) = await self._client.read(["outages", str(bot_id), is_open])
        return [outage_of(row) for row in rows]

    async def settle_outage(self, outage_id: int, *, at_ms: int) -> None:
        await self._write("settle_outage", str(outage_id), at_ms, news=_of_consumers)

    # ---- MTProto clients ----

    async def note_handled(self, bot_id: int, messages: Sequence[tuple[int, int]], *, at_ms: int) -> int:
        noted = [[chat_key(chat), message_id] for chat, message_id in dict.fromkeys(messages)]
        if not noted:
            return 0

        def news(telling: NodeNews, here: int) -> None:
            if here:
                telling.arrivals.add(bot_id)  # they are over now for anyone who was about to deliver them

        here: int = await self._write("note_handled", str(bot_id), noted, at_ms, news=news)
        return here

    # ---- people ----

    async def find_arrivals(self, wanted: ArrivalFilter, *, before: int | None, limit: int) -> list[ArrivalView]:
        at_ms = self._clock.wall_ms()
        found = await inbox_records.find(self._client, wanted, Between(below=before), limit=limit, at_ms=at_ms)
        return await inbox_records.views(self._client, found, wanted.consumer, at_ms)

    async def arrival(self, arrival_id: int) -> ArrivalView | None:
        found = await inbox_records.those(self._client, [arrival_id])
        views = await inbox_records.views(self._client, found, None, self._clock.wall_ms())
        return next(iter(views), None)

    async def count_arrivals(self, wanted: ArrivalFilter) -> int:
        at_ms = self._clock.wall_ms()
        return len(await inbox_records.find(self._client, wanted, Between(), limit=None, at_ms=at_ms))

    async def replay(
        self, wanted: ArrivalFilter, consumer_id: int, *, after: int, up_to: int, limit: int, at_ms: int
    ) -> tuple[int, int | None]:
        bot_id = (await self._by_id(consumer_id)).bot_id
        if wanted.bot_id not in (None, bot_id) or (wanted.bot_ids is not None and bot_id not in wanted.bot_ids):
            return 0, None
        own = msgspec.structs.replace(wanted, bot_id=bot_id, is_original=True)
        between = Between(above=after, below=up_to + 1, is_rising=True)
        found = await inbox_records.find(self._client, own, between, limit=limit, at_ms=at_ms)
        if not found:
            return 0, None
        ids = [str(one.id) for one in found]
        made = await self._write(
            "replay", str(consumer_id), ids, at_ms, news=lambda telling, _: telling.arrivals.add(bot_id)
        )
        return len(made), found[-1].id if len(found) == limit else None

    async def _by_id(self, consumer_id: int) -> Consumer:
        for one in await self.consumers():
            if one.id == consumer_id:
                return one
        raise NotFound(code="unknown_consumer", detail=f"There is no consumer {consumer_id} here (any more).")

    async def last_arrival_id(self) -> int:
        """The newest that is still here; what is above it will come later."""
        async for page in search.newest(self._client, "arrival_blocks", None):
            found = await inbox_records.those(self._client, page)
            if found:
                return found[0].id
        return 0

    async def retry_dead_arrivals(self, wanted: ArrivalFilter, *, at_ms: int, limit: int) -> list[int]:
        return await self._bring_back(wanted, at_ms, limit, is_retry=True)

    async def clear_dead_arrivals(self, wanted: ArrivalFilter, *, limit: int) -> int:
        return len(await self._bring_back(wanted, self._clock.wall_ms(), limit, is_retry=False))

    async def _bring_back(self, wanted: ArrivalFilter, at_ms: int, limit: int, *, is_retry: bool) -> list[int]:
        """Dead arrivals by consumer, the oldest first: they go back in the order in which they came."""
        failed = msgspec.structs.replace(wanted, state=State.FAILED)
        made: list[int] = []
        for reader in await inbox_records.meant(self._client, failed):
            own = msgspec.structs.replace(failed, bot_id=reader.bot_id)
            between = Between(is_rising=True)
            left = limit - len(made)
            dead = await inbox_records.find(self._client, own, between, limit=left, at_ms=at_ms) if left > 0 else []
            if dead:
                ids = [str(one.id) for one in dead]
                news = partial(_of_arrivals, bot_id=reader.bot_id) if is_retry else _of_nothing
                back = await self._write("bring_back", str(reader.id), ids, at_ms, is_retry, news=news)
                made += [int(one) for one in back]
        return made

    async def inbox_tallies(self, bot_id: int | None = None) -> list[InboxTally]:
        readers = await self.consumers(bot_id)
        if not readers:
            return []
        (rows,) = await self._client.read(["inbox_tallies", [str(one.id) for one in readers], self._clock.wall_ms()])
        return [
            InboxTally(
                consumer=reader,
                open=still_open,
                delayed=delayed,
                failed=failed,
                oldest_open_at_ms=None if oldest is None else int(oldest),
            )
            for reader, (still_open, delayed, failed, oldest) in zip(readers, rows, strict=True)
        ]

    # ---- upkeep ----

    async def clean_arrivals(self, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned:
        await self.drop_gone()  # of a removal that was cut short
        is_brief = retention.read_ms < DUPLICATES_MS  # duplicates are known by what is stored
        gone, unread, expired = await self._write(
            "clean_arrivals",
            at_ms - retention.read_ms,
            at_ms - max(retention.unread_ms, DUPLICATES_MS),
            at_ms - retention.unread_ms,
            at_ms - retention.idle_ms,
            at_ms - retention.handled_ms,
            at_ms - DUPLICATES_MS if is_brief else None,
            at_ms,
            limit,
            news=lambda telling, answer: telling.consumers() if answer[2] else None,
        )
        return ArrivalsCleaned(
            gone=gone,
            unread={int(bot): count for bot, count in unread},
            expired=tuple(consumer_of(row) for row in expired),
        )

    async def drop_gone(self) -> None:
        """What bots that were removed have left, in steps."""
        while await self._write("drop_gone", _GONE_AT_ONCE) == _GONE_AT_ONCE:
            pass


def _of_consumers(telling: NodeNews, _: object) -> None:
    telling.consumers()


def _of_arrivals(telling: NodeNews, _: object, *, bot_id: int) -> None:
    telling.arrivals.add(bot_id)


def _of_nothing(telling: NodeNews, _: object) -> None:
    """Nothing that another node must know."""
