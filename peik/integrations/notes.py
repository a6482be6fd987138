"""What an MTProto client has handled: kept in memory so that nothing is handled twice in one life, and written to Peik so
that it is not handed over in the next. Writing fails quietly towards the bot: the worst that follows is a message twice.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from peik.errors import Unavailable
from peik.ops.logger import plain_log

BATCH = 100
PENDING_MAX = 10_000  # beyond this the oldest notes are dropped: their messages may be handed over again
REMEMBERED = 10_000  # handled messages that this process still knows
RETRY_S = 1.0
FLUSH_S = 5.0

Message = tuple[int, int]  # chat id as in the Bot API, message id


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a client handles, the same by both ways to it: a message, an edit of one, or a press of a button."""

    chat: int = 0
    message_id: int = 0
    edited_at: int = 0  # in seconds; 0: the message as it was first sent
    query_id: int = 0  # of a press


class Notes:
    """Writes as soon as it can, everything that waits at that moment, so that a killed bot has little left to forget."""

    def __init__(self, write: Callable[[Sequence[Message]], Awaitable[object]]) -> None:
        self._write = write
        self._pending: list[Message] = []
        self._writing: asyncio.Task[None] | None = None
        self._log = plain_log()

    def add(self, message: Message) -> None:
        self._pending.append(message)
        if len(self._pending) > PENDING_MAX:
            dropped = len(self._pending) - PENDING_MAX
            del self._pending[:dropped]
            self._log.warning("! notes dropped; these messages may be handed over again", count=dropped)
        if self._writing is None or self._writing.done():
            # Awaited by `flush`; it never raises.
            self._writing = asyncio.get_running_loop().create_task(self._write_all())

    async def settle(self) -> None:
        """Returns when everything is written, or the time is over."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing], timeout=FLUSH_S)

    async def flush(self) -> None:
        """The same, and the end: what is not written by then is named in the log and forgotten."""
        await self.settle()
        if self._writing is not None and not self._writing.done():
            self._writing.cancel()
            await asyncio.wait([self._writing])
        if self._pending:
            self._log.warning("! not noted; these messages may be handed over again", count=len(self._pending))
            self._pending.clear()

    async def _write_all(self) -> None:
        is_told = False
        while self._pending:
            batch = self._pending[:BATCH]
            try:
                await self._write(batch)
            except Unavailable as error:
                if not is_told:
                    self._log.warning("~ handled messages cannot be noted; trying on", why=error.detail)
                is_told = True
                await asyncio.sleep(RETRY_S)
                continue
            except Exception as error:  # noqa: BLE001  a bot goes on, whatever is wrong with its notes
                self._log.error(
                    "! not noted; these messages may be handed over again", count=len(batch), why=repr(error)
                )
            del self._pending[: len(batch)]


class Hold:
    """One item in the hands of the client's handlers."""

    __slots__ = ("ended", "is_recovered", "item")

    def __init__(self, item: Item, *, is_recovered: bool) -> None:
        self.item = item
        self.is_recovered = is_recovered
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Watch:
    """Which items the client is at work on or done with, whichever way they came. The first way to an item has it."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._at_work: dict[Item, Hold] = {}
        self._done: OrderedDict[Item, bool] = OrderedDict()  # whether the recovery had it

    def begin(self, item: Item) -> Hold | None:
        """Over MTProto. None: the recovery had it, or has it just now, and its handlers are not to run again.

        What comes twice over MTProto is the client's own affair; so is an edit, since two of one second look the same.
        """
        running = self._at_work.get(item)
        is_recovered = self._done.get(item, False) if running is None else running.is_recovered
        if is_recovered and not item.edited_at:
            return None
        return self._hold(item, is_recovered=False)

    async def begin_recovered(self, item: Item) -> Hold | None:
        """Out of the inbox. None: the client had it. Waits for handlers that run already, in case they fail."""
        while (running := self._at_work.get(item)) is not None:
            await asyncio.shield(running.ended)
        return None if item in self._done else self._hold(item, is_recovered=True)

    def end(self, hold: Hold, *, is_handled: bool) -> None:
        """The handlers have ended. What came over MTProto is noted; what was recovered is settled by who hands it on."""
        item = hold.item
        hold.ended.set_result(None)
        if self._at_work.get(item) is hold:
            del self._at_work[item]
        if not is_handled:
            return
        self._done[item] = hold.is_recovered
        if len(self._done) > REMEMBERED:
            self._done.popitem(last=False)
        if not hold.is_recovered and not item.query_id:
            self._notes.add((item.chat, item.message_id))

    def _hold(self, item: Item, *, is_recovered: bool) -> Hold:
        hold = Hold(item, is_recovered=is_recovered)
        self._at_work.setdefault(item, hold)
        return hold

    async def settle(self) -> None:
        await self._notes.settle()

    async def flush(self) -> None:
        await self._notes.flush()
