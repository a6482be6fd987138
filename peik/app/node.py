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
WORK_LOOK_S = 0.25  # news come a hundred times a second, and broadcasts and schedules are looked at by many queries
LOOK_BEATS = 5  # in the time of a lease: so long may something be unknown here whose news was lost

T = TypeVar("T")


class Node:
    """See `peik.outbox.leases.Duties`."""

    def __init__(self, runtime: Runtime, group: asyncio.TaskGroup) -> None:
        self._runtime = runtime
        self._group = group
        self._sweeping: asyncio.Task[None] | None = None
        self._beats = 0
        self._work_seen_at = float("-inf")

    def served(self) -> list[BotRecord]:
        """The bots that this node acts for."""
        return [bot for bot in self._runtime.outbox.service.bots() if self._runtime.outbox.leases.holds(bot.bot_id)]

    # ---- leases come and go ----

    async def begin(self, bot_ids: Collection[int]) -> None:
        runtime = self._runtime
        runtime.outbox.service.take_up(await runtime.store.bots())  # one that was added a moment ago, by another node
        bots = self._served_of(bot_ids)
        if CHORES in bot_ids:
            self._sweeping = self._group.create_task(self._sweep())
            runtime.outbox.timekeeper.start(self._group)
            runtime.outbox.hooks.start(self._group)
            runtime.inbox.upkeep.start(self._group)
            runtime.notifications.releases.start(self._group)
            runtime.broadcasts.engine.start(self._group)
            runtime.schedules.engine.start(self._group)
            if runtime.backups is not None:
                runtime.backups.start(self._group)
            runtime.eraser.start(self._group)
        for bot in bots:
            runtime.outbox.courier.add(bot)
        await runtime.inbox.outages.begin(bots)
        for bot in self._served_of(bot_ids):  # read again: somebody may have changed one meanwhile
            runtime.inbox.receiver.add(bot)
        runtime.inbox.consumers.look()
        runtime.notifications.contacts.look()
        self._look_at_sessions()

    def _look_at_sessions(self) -> None:
        if self._runtime.accounts is not None:
            self._runtime.accounts.look()

    def _served_of(self, bot_ids: Collection[int]) -> list[BotRecord]:
        is_whole = self._runtime.outbox.leases.is_whole
        return [bot for bot in self.served() if is_whole or bot.bot_id in bot_ids]

    async def let_go(self, bot_id: int) -> None:
        runtime = self._runtime
        if bot_id == CHORES:
            await runtime.outbox.hooks.drain(runtime.config.grace)
            if runtime.accounts is not None:
                await runtime.accounts.let_go(None)
            self.drop(bot_id)
            return
        runtime.inbox.receiver.leave(bot_id)
        runtime.inbox.outages.leave(bot_id)
        # However long it takes: what is cut off would be uncertain to the next one, and nobody is in a hurry.
        await asyncio.gather(runtime.inbox.consumers.let_go(bot_id), runtime.outbox.courier.let_go(bot_id))
        if runtime.accounts is not None:  # an account's letters in flight need its connection
            await runtime.accounts.let_go(bot_id)

    def drop(self, bot_id: int) -> None:
        runtime = self._runtime
        if runtime.accounts is not None:
            runtime.accounts.drop(None if bot_id == CHORES else bot_id)
        if bot_id == CHORES:
            self.stop()
            runtime.outbox.timekeeper.stop()
            runtime.outbox.hooks.stop()
            runtime.inbox.upkeep.stop()
            runtime.notifications.releases.stop()
            runtime.broadcasts.engine.stop()
            runtime.schedules.engine.stop()
            if runtime.backups is not None:
                runtime.backups.stop()
            runtime.eraser.stop()
            return
        runtime.outbox.courier.remove(bot_id)
        runtime.inbox.receiver.leave(bot_id)
        runtime.inbox.outages.leave(bot_id)
        runtime.inbox.consumers.drop(bot_id)

    def wake(self) -> None:
        self._runtime.outbox.courier.wake_all()
        self._runtime.inbox.consumers.wake_all()

    async def catch_up(self) -> None:
        """News can be lost. Letters are found by their numbers, and who waits asks for himself; whatever else there may be
        is read again, less often."""
        runtime = self._runtime
        runtime.outbox.courier.catch_up(await runtime.store.nodes.last_numbers())
        runtime.outbox.service.ask_again()
        self._beats += 1
        if self._beats % LOOK_BEATS == 0:
            await runtime.secrets.follow()
            runtime.outbox.service.take_up(await runtime.store.bots())
            await runtime.keyring.refresh()
            await self._look_around()

    async def _sweep(self) -> None:
        """Remove files that no letter names: what a crash left behind."""
        while True:
            await self._surely(self._sweep_once)
            await asyncio.sleep(SWEEP_S)

    async def _sweep_once(self) -> None:
        runtime = self._runtime
        await runtime.spool.sweep(await runtime.store.blobs(), at_ms=runtime.settled.wall_ms())

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
            news = await self._surely(self._runtime.store.nodes.news)
            await self._surely(partial(self.hear, news))

    async def _surely(self, act: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await act()
            except StoreUnavailable as error:
                self._runtime.events.tell(StoreFailed(what="a look at other processes", why=error.detail))
                await asyncio.sleep(RETRY_S)

    async def hear(self, news: News) -> None:
        runtime = self._runtime
        self._look_at_work()
        if news.is_all or news.is_records:
            await runtime.secrets.follow()
            runtime.outbox.service.take_up(await runtime.store.bots())
            await runtime.keyring.refresh()
            runtime.outbox.leases.ring()
            self._look_at_sessions()
        if news.is_all:
            await self._look_everywhere()
            return
        if news.is_jobs:
            runtime.jobs.workers.workers.hear()
            runtime.jobs.service.ask_again()
        if news.is_leases:
            runtime.outbox.leases.ring()
        await self._hear_of_letters(news)
        if news.is_consumers:
            await self._look_at_outages()
            runtime.inbox.consumers.look()
        if news.arrivals:
            runtime.inbox.service.wake(news.arrivals)
            runtime.inbox.consumers.look()
            runtime.notifications.contacts.look()

    def _look_at_work(self) -> None:
        """What news are about may be of a broadcast or a schedule. They look by themselves soon after, if this is too often."""
        now = self._runtime.clock.mono()
        if now - self._work_seen_at >= WORK_LOOK_S:
            self._work_seen_at = now
            self._runtime.broadcasts.engine.look()
            self._runtime.schedules.engine.look()

    async def _hear_of_letters(self, news: News) -> None:
        runtime = self._runtime
        if news.ended:  # first: somebody waits for it
            runtime.outbox.service.ask_again(_named(list(news.ended.values())))
            runtime.outbox.hooks.look()
        here = {one[0] for one in news.accepted if runtime.outbox.leases.holds(one[0])}
        unread = news.lanes | {bot_id for bot_id in here if runtime.outbox.courier.is_resting(bot_id)}
        for bot_id in unread:
            runtime.outbox.courier.reread(bot_id)
        if news.due_at_ms is not None:
            runtime.outbox.timekeeper.expect(news.due_at_ms)
        ranges = [one for one in news.accepted if one[0] in here - unread]
        if ranges:
            runtime.outbox.courier.on_accepted(await runtime.store.nodes.new_letters(ranges))
        for bot_id in news.chats:
            await runtime.outbox.courier.reread_chats(bot_id)

    async def _look_everywhere(self) -> None:
        """Anything may have changed."""
        runtime = self._runtime
        runtime.outbox.courier.reread_all()
        runtime.jobs.workers.workers.hear()
        runtime.jobs.service.ask_again()
        for bot in self.served():
            await runtime.outbox.courier.reread_chats(bot.bot_id)
        runtime.outbox.service.ask_again()
        await self._look_around()

    async def _look_around(self) -> None:
        """What has no number by which one would see that it is missing."""
        runtime = self._runtime
        runtime.outbox.timekeeper.expect(0)  # something may be due, or expire, earlier than all that we know of
        runtime.outbox.hooks.look()
        runtime.notifications.releases.look()
        runtime.broadcasts.engine.look()
        runtime.schedules.engine.look()
        runtime.notifications.contacts.look()
        await runtime.inbox.service.look()
        await self._look_at_outages()  # before its arrivals are seen
        runtime.inbox.consumers.look()

    async def _look_at_outages(self) -> None:
        runtime = self._runtime
        elsewhere = [bot.bot_id for bot in runtime.outbox.service.bots() if not runtime.outbox.leases.holds(bot.bot_id)]
        await runtime.inbox.outages.look(elsewhere)


def _named(ended: Sequence[Sequence[int]]) -> set[int] | None:
    """The letters that ended. None: there are too many to name."""
    return None if not all(ended) else {letter_id for ids in ended for letter_id in ids}
