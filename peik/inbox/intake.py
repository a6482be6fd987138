"""The one way in: updates are stored, then told. Whoever brought them confirms them to Telegram only after that."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Generic, TypeVar

from peik.clock import Clock
from peik.core.arrival import Update, opens_chat
from peik.core.events import Arrived, Events
from peik.core.letter import Chat
from peik.errors import InDoubt, StoreUnavailable
from peik.inbox.store import InboxStore, TakenIn

Spoke = Callable[[int, Collection[Chat]], Awaitable[None]]


class Intake:
    """`spoke` hears which chats of a bot can be written to, as their updates show: one that was shut may be opened."""

    def __init__(self, *, store: InboxStore, clock: Clock, events: Events, spoke: Spoke) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._spoke = spoke

    async def take_in(
        self,
        bot_id: int,
        updates: Sequence[Update],
        *,
        last_update_id: int | None,
        is_new_epoch: bool = False,
        expired: int = 0,
    ) -> TakenIn:
        """Make updates durable. Raises StoreUnavailable, and then nothing may be confirmed."""
        taken = await self._store.take_in(
            bot_id,
            updates,
            at_ms=self._clock.wall_ms(),
            last_update_id=last_update_id,
            is_new_epoch=is_new_epoch,
            expired=expired,
        )
        self._events.tell(
            Arrived(bot_id=bot_id, stored=taken.stored, duplicates=taken.duplicates, last_number=taken.last_number)
        )
        opened = _opened(updates)
        if opened:
            # The updates are safe. A chat that stays shut for want of a commit is found open by its next daily probe.
            with contextlib.suppress(StoreUnavailable):
                await self._spoke(bot_id, opened)
        return taken


def _opened(updates: Sequence[Update]) -> set[Chat]:
    """The chats that can be written to, as far as the last word on each says so."""
    opened: set[Chat] = set()
    for update in updates:
        match opens_chat(update):
            case True:
                opened.add(update.lane)
            case False:
                opened.discard(update.lane)
    return opened


# Those who come while others are under way go on together: what a journey costs is shared.


T = TypeVar("T")

GROUP_MAX = 500

_BROKEN_OFF = InDoubt(code="store_in_doubt", detail="Storing was broken off in the middle. Send it again.")

Told = Callable[[Exception | None], None]  # None: it has arrived


class _Traveller(Generic[T]):
    __slots__ = ("begins", "item", "told")

    def __init__(self, item: T, told: Told, *, begins: bool) -> None:
        self.item = item
        self.told = told
        self.begins = begins


class Batcher(Generic[T]):
    """`go` takes many at once, in their order, and hears whether the first of them begins something new."""

    def __init__(self, go: Callable[[Sequence[T], bool], Awaitable[None]]) -> None:
        self._go = go
        self._waiting: list[_Traveller[T]] = []
        self._journey: asyncio.Task[None] | None = None  # of one group; all who go with it wait for its end

    async def travel(self, item: T, *, begins: bool = False) -> None:
        """Returns when `go` has returned for this one, and raises what it raised. Who is cancelled meanwhile goes all the same:
        nobody is told that he has arrived, and the same twice does no harm."""
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(error: Exception | None) -> None:
            if arrived.done():
                return  # it was cancelled
            if error is None:
                arrived.set_result(None)
            else:
                arrived.set_exception(error)

        self.join(item, told, begins=begins)
        await arrived

    def join(self, item: T, told: Told, *, begins: bool = False) -> None:
        """The same for one who is told instead of waiting. One that begins something new goes behind nobody.

        One's bad luck is not its neighbours': unless the store is away, each goes alone once a group has failed.
        """
        self._waiting.append(_Traveller(item, told, begins=begins))
        if self._journey is None:
            self._leave()

    def _leave(self) -> None:
        # In its first turn, so that who comes in the same turn of the loop comes along.
        self._journey = asyncio.get_running_loop().create_task(self._travel())

    async def _travel(self) -> None:
        group = self._cut()
        ends: list[Exception | None] = [_BROKEN_OFF] * len(group)
        try:
            ends = await self._ends_of(group)
        finally:  # also when it is cancelled: those who wait are not
            self._journey = None
            if self._waiting:
                self._leave()
            # Later, so that the disk works for the next ones while these hear how it went.
            asyncio.get_running_loop().call_soon(_tell, group, ends)

    async def _ends_of(self, group: Sequence[_Traveller[T]]) -> list[Exception | None]:
        try:
            await self._go([one.item for one in group], group[0].begins)
        except StoreUnavailable as error:
            return [error] * len(group)
        except Exception as error:  # noqa: BLE001  told to whom it concerns
            if len(group) == 1:
                return [error]
            return [end for one in group for end in await self._ends_of([one])]
        return [None] * len(group)

    def _cut(self) -> list[_Traveller[T]]:
        most = min(len(self._waiting), GROUP_MAX)
        end = next((index for index in range(1, most) if self._waiting[index].begins), most)
        group = self._waiting[:end]
        del self._waiting[:end]
        return group


def _tell(group: Sequence[_Traveller[T]], ends: Sequence[Exception | None]) -> None:
    loop = asyncio.get_running_loop()
    for one, end in zip(group, ends, strict=True):
        try:
            one.told(end)
        except Exception as error:  # noqa: BLE001  one listener's surprise must not keep the others waiting
            loop.call_exception_handler({"message": "one who travelled could not be told", "exception": error})
