"""This process as one node among others: what begins and ends with its leases, and what it does when others have written."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from peik.app.runtime import Runtime
from peik.core.events import StoreFailed
from peik.core.nodes import CHORES, News
from peik.errors import StoreUnavailable
from peik.outbox.store import BotRecord

RETRY_S = 2.0
SWEEP_S = 3600.0
LOOK_BEATS = 5  # in the time of a lease: so long may something be unknown here whose news was lost

T = TypeVar("T")


class Node:
    """See `peik.outbox.leases.Duties`."""

    def __init__(self, office: Runtime, group: asyncio.TaskGroup) -> None:
        self._office = office
        self._group = group
        self._sweeping: asyncio.Task[None] | None = None
        self._beats = 0

    def served(self) -> list[BotRecord]:
        """The bots that this node acts for."""
        return [bot for bot in self._office.desk.bots() if self._office.leases.holds(bot.bot_id)]

    # ---- leases come and go ----

    async def begin(self, bot_ids: Collection[int]) -> None:
        office = self._office
        office.desk.take_up(await office.store.bots())  # one that was added a moment ago, by another node
        bots = self._served_of(bot_ids)
        if CHORES in bot_ids:
            self._sweeping = self._group.create_task(self._sweep())
            office.timekeeper.start(self._group)
            office.hooks.start(self._group)
            office.upkeep.start(self._group)
            office.releasing.start(self._group)
            office.broadcaster.start(self._group)
            if office.backups is not None:
                office.backups.start(self._group)
            office.forgetter.start(self._group)
        for bot in bots:
            office.courier.add(bot)
        await office.outages.begin(bots)
        for bot in self._served_of(bot_ids):  # anew: somebody may have changed one meanwhile
            office.receiver.add(bot)
        office.consumers.look()
        office.census.look()
        self._look_at_sessions()

    def _look_at_sessions(self) -> None:
        if self._office.sessions is not None:
            self._office.sessions.look()

    def _served_of(self, bot_ids: Collection[int]) -> list[BotRecord]:
        is_whole = self._office.leases.is_whole
        return [bot for bot in self.served() if is_whole or bot.bot_id in bot_ids]

    async def let_go(self, bot_id: int) -> None:
        office = self._office
        if bot_id == CHORES:
            await office.hooks.drain(office.config.grace)
            if office.sessions is not None:
                await office.sessions.let_go(None)
            self.drop(bot_id)
            return
        office.receiver.leave(bot_id)
        office.outages.leave(bot_id)
        # However long it takes: what is cut off would be uncertain to the next one, and nobody is in a hurry.
        await asyncio.gather(office.consumers.let_go(bot_id), office.courier.let_go(bot_id))
        if office.sessions is not None:  # an account's letters in flight need its connection
            await office.sessions.let_go(bot_id)

    def drop(self, bot_id: int) -> None:
        office = self._office
        if office.sessions is not None:
            office.sessions.drop(None if bot_id == CHORES else bot_id)
        if bot_id == CHORES:
            self.stop()
            office.timekeeper.stop()
            office.hooks.stop()
            office.upkeep.stop()
            office.releasing.stop()
            office.broadcaster.stop()
            if office.backups is not None:
                office.backups.stop()
            office.forgetter.stop()
            return
        office.courier.remove(bot_id)
        office.receiver.leave(bot_id)
        office.outages.leave(bot_id)
        office.consumers.drop(bot_id)

    def wake(self) -> None:
        self._office.courier.wake_all()
        self._office.consumers.wake_all()

    async def catch_up(self) -> None:
        """News can be lost. Letters are found by their numbers, and who waits asks for himself; whatever else there may be
        is read anew, less often."""
        office = self._office
        office.courier.catch_up(await office.store.nodes.last_numbers())
        office.desk.ask_again()
        self._beats += 1
        if self._beats % LOOK_BEATS == 0:
            await office.custodian.follow()
            office.desk.take_up(await office.store.bots())
            await office.keyring.refresh()
            await self._look_around()

    async def _sweep(self) -> None:
        """Remove files that no letter names: what a crash left behind."""
        while True:
            await self._surely(self._sweep_once)
            await asyncio.sleep(SWEEP_S)

    async def _sweep_once(self) -> None:
        office = self._office
        await office.spool.sweep(await office.store.blobs(), at_ms=office.settled.wall_ms())

    def stop(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()

    # ---- others have written ----

    async def follow(self) -> None:
        """Hear news until cancelled. None may be lost to a store that fails for a moment: each is told once."""
        task = asyncio.current_task()
        assert task is not None
        # Asked, not only awaited: a library that uses asyncio.wait_for can swallow a cancellation on Python 3.11.
        while not task.cancelling():
            news = await self._surely(self._office.store.nodes.news)
            await self._surely(partial(self.hear, news))

    async def _surely(self, act: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await act()
            except StoreUnavailable as error:
                self._office.events.tell(StoreFailed(what="a look at other processes", why=error.detail))
                await asyncio.sleep(RETRY_S)

    async def hear(self, news: News) -> None:
        office = self._office
        office.broadcaster.look()
        if news.is_all or news.is_records:
            await office.custodian.follow()
            office.desk.take_up(await office.store.bots())
            await office.keyring.refresh()
            office.leases.ring()
            self._look_at_sessions()
        if news.is_all:
            await self._look_everywhere()
            return
        if news.is_jobs:
            office.job_hands.workers.hear()
            office.jobs.ask_again()
        if news.is_leases:
            office.leases.ring()
        await self._hear_of_letters(news)
        if news.is_consumers:
            await self._look_at_outages()
            office.consumers.look()
        if news.arrivals:
            office.inbox.wake(news.arrivals)
            office.consumers.look()
            office.census.look()

    async def _hear_of_letters(self, news: News) -> None:
        office = self._office
        if news.ended:  # first: somebody waits for it
            office.desk.ask_again(_named(list(news.ended.values())))
            office.hooks.look()
        for bot_id in news.lanes:
            office.courier.reread(bot_id)
        if news.due_at_ms is not None:
            office.timekeeper.expect(news.due_at_ms)
        ranges = [one for one in news.accepted if office.leases.holds(one[0]) and one[0] not in news.lanes]
        if ranges:
            office.courier.on_accepted(await office.store.nodes.new_letters(ranges))
        for bot_id in news.chats:
            await office.courier.reread_chats(bot_id)

    async def _look_everywhere(self) -> None:
        """Anything may have changed."""
        office = self._office
        office.courier.reread_all()
        office.job_hands.workers.hear()
        office.jobs.ask_again()
        for bot in self.served():
            await office.courier.reread_chats(bot.bot_id)
        office.desk.ask_again()
        await self._look_around()

    async def _look_around(self) -> None:
        """What has no number by which one would see that it is missing."""
        office = self._office
        office.timekeeper.expect(0)  # something may be due, or expire, earlier than all that we know of
        office.hooks.look()
        office.releasing.look()
        office.broadcaster.look()
        office.census.look()
        await office.inbox.look()
        await self._look_at_outages()  # before its arrivals are seen
        office.consumers.look()

    async def _look_at_outages(self) -> None:
        office = self._office
        elsewhere = [bot.bot_id for bot in office.desk.bots() if not office.leases.holds(bot.bot_id)]
        await office.outages.look(elsewhere)


def _named(ended: Sequence[Sequence[int]]) -> set[int] | None:
    """The letters that ended. None: there are too many to name."""
    return None if not all(ended) else {letter_id for ids in ended for letter_id in ids}
