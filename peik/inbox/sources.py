"""All sources of this node: a poller or a webhook's keeper for each bot that wants updates. One's end never stops the
others.
"""

import asyncio
from collections.abc import Callable

from peik.core.events import Events, Surprise
from peik.errors import Conflict, NotFound
from peik.inbox.outages import OutagePort
from peik.inbox.poller import Poller
from peik.inbox.service import Recovery
from peik.inbox.source import SourceStatus
from peik.inbox.webhooks import PushedUpdates, WebhookKeeper
from peik.outbox.store import BotRecord

RESTART_S = 1.0
CLOSE_S = 5.0  # for the last notes, when Peik ends

Source = Poller | WebhookKeeper


class Receiver:
    """A source runs on the one node that holds its bot's lease.

    `make_poller` makes a poller of this node, or with True a visitor's (see Poller).
    """

    def __init__(
        self,
        *,
        events: Events,
        outages: OutagePort,
        pushed: PushedUpdates,
        is_served: Callable[[int], bool],
        make_poller: Callable[[BotRecord, bool], Poller],
        make_keeper: Callable[[BotRecord], WebhookKeeper],
    ) -> None:
        self.pushed = pushed
        self._events = events
        self._outages = outages
        self._is_served = is_served
        self._make_poller = make_poller
        self._make_keeper = make_keeper
        self._bots: dict[int, BotRecord] = {}
        self._sources: dict[int, Source] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._removals: dict[int, asyncio.Task[None]] = {}  # of webhooks that are not wanted any more
        self._visits = asyncio.Lock()  # two visitors to one bot would throw each other out
        self._group: asyncio.TaskGroup | None = None

    # ---- running ----

    def open(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    async def stop(self) -> None:
        """End all sources. What is not committed by now was not confirmed, and comes again."""
        self._group = None
        tasks = [*self._tasks.values(), *self._removals.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        closing = [asyncio.ensure_future(source.close()) for source in self._sources.values()]
        if closing:
            _, late = await asyncio.wait(closing, timeout=CLOSE_S)
            for one in late:
                one.cancel()

    def wake_all(self) -> None:
        """There is a way to Telegram again after there was none."""
        for source in self._sources.values():
            source.wake()

    def add(self, bot: BotRecord) -> None:
        """Begin with a bot's updates, if it is served here; or take up a change of where they come from or of its token."""
        if self._group is None or not self._is_served(bot.bot_id):
            return
        before = self._bots.get(bot.bot_id)
        self._bots[bot.bot_id] = bot
        if before is not None and (before.inbound, before.token) == (bot.inbound, bot.token):
            return
        self._end(bot.bot_id)
        if bot.inbound != "off" and bot.bot_id in self._removals:
            self._removals.pop(bot.bot_id).cancel()  # it would take away what is set from now on
        if before is not None and before.inbound == "webhook" and bot.inbound == "off":
            self._remove_webhook(bot)
        if bot.inbound == "off":
            self._outages.forget(bot.bot_id)
            return
        self._sources[bot.bot_id] = self._make(bot)
        self._tasks[bot.bot_id] = self._group.create_task(self._supervise(bot.bot_id))

    def leave(self, bot_id: int) -> None:
        """It is served elsewhere from now on. Its webhook stays."""
        self._bots.pop(bot_id, None)
        self._end(bot_id)

    def remove(self, bot_id: int) -> None:
        bot = self._bots.pop(bot_id, None)
        self._end(bot_id)
        self._outages.forget(bot_id)
        if bot is not None and bot.inbound == "webhook":
            self._remove_webhook(bot)

    def _end(self, bot_id: int) -> None:
        source = self._sources.pop(bot_id, None)
        if source is not None and self._group is not None:
            # Until now it has listened, and whoever comes next is not to take quiet hours for an absence.
            self._group.create_task(source.close())
        self.pushed.forget(bot_id)
        task = self._tasks.pop(bot_id, None)
        if task is not None:
            task.cancel()

    def _make(self, bot: BotRecord) -> Source:
        return self._make_keeper(bot) if bot.inbound == "webhook" else self._make_poller(bot, False)  # noqa: FBT003

    def _remove_webhook(self, bot: BotRecord) -> None:
        """Nobody will take what Telegram pushes there any more; from now on it keeps it. (A poller removes it itself.)"""
        if self._group is not None:
            self._removals[bot.bot_id] = self._group.create_task(self._removed(bot))

    async def _removed(self, bot: BotRecord) -> None:
        try:
            await self._make_keeper(bot).remove()
        except Exception as error:  # noqa: BLE001  it is told, and the others go on
            self._surprise(bot.bot_id, "webhook", error)

    async def _supervise(self, bot_id: int) -> None:
        """A source that meets a surprise begins anew from the store."""
        while True:
            try:
                await self._sources[bot_id].run()
            except NotFound:
                pass  # the bot was removed a moment ago, and we hear of it in the next
            except Exception as error:  # noqa: BLE001  it is told, and the other bots go on
                self._surprise(bot_id, "source", error)
            await asyncio.sleep(RESTART_S)
            self._sources[bot_id] = self._make(self._bots[bot_id])

    def _surprise(self, bot_id: int, where: str, error: Exception) -> None:
        self._events.tell(Surprise(bot_id=bot_id, where=where, error=f"{type(error).__name__}: {error}"))

    # ---- for people ----

    def status(self, bot_id: int) -> SourceStatus:
        source = self._sources.get(bot_id)
        return SourceStatus(source="off", is_well=True) if source is None else source.status()

    async def recover(
        self, bot: BotRecord, *, served_until_ms: int | None = None, counts_all: bool = False
    ) -> Recovery:
        """One pass over everything that Telegram has kept for a bot. Raises Conflict or Unavailable if there can be none.

        The running poller makes it, if there is one. A bot whose updates are off is visited: nothing of whoever serves
        it is changed, but what is fetched is confirmed. `served_until_ms`: until then that was done by somebody else.
        `counts_all`: since then it was away, however short that is.
        """
        source = self._sources.get(bot.bot_id)
        if isinstance(source, Poller):
            return await source.recover()
        if bot.inbound == "webhook":
            detail = "Telegram pushes the updates of this bot; there is nothing to fetch. Switch it to polling first."
            raise Conflict(code="pushed", detail=detail)
        async with self._visits:
            return await self._make_poller(bot, True).once(served_until_ms=served_until_ms, counts_all=counts_all)  # noqa: FBT003
