"""Those who come while others are under way go on together, behind one of them: what a journey costs is shared.

No task is made for it: the first one that waits leads those behind it, and on its return the next one is told to lead.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import Generic, TypeVar

from peik.errors import StoreUnavailable

T = TypeVar("T")

GROUP_MAX = 500


class _Word(Enum):
    """What one who waits is told."""

    LEAD = auto()
    ARRIVED = auto()
    ALONE = auto()


class _Traveller(Generic[T]):
    __slots__ = ("begins", "item", "told")

    def __init__(self, item: T, *, begins: bool) -> None:
        self.item = item
        self.begins = begins
        self.told: asyncio.Future[_Word] = asyncio.get_running_loop().create_future()


class Company(Generic[T]):
    """`go` takes many at once, in their order, and hears whether the first of them begins something new."""

    def __init__(self, go: Callable[[Sequence[T], bool], Awaitable[None]]) -> None:
        self._go = go
        self._has_leader = False
        self._waiting: list[_Traveller[T]] = []  # nobody, unless there is a leader

    async def travel(self, item: T, *, begins: bool = False) -> None:
        """Returns when `go` has returned for this one, and raises what it raised. One that begins something new goes behind
        nobody.

        One's bad luck is not its neighbours': unless the store is away, each goes alone once a group has failed.
        """
        if self._has_leader:
            word = await self._word(_Traveller(item, begins=begins))
        else:
            word = await self._first()
        if word is _Word.LEAD:
            word = await self._lead(item, begins=begins)
        if word is _Word.ALONE:
            await self._go([item], begins)

    async def _first(self) -> _Word:
        """Who comes in the same turn of the loop shall come along."""
        self._has_leader = True
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._name_leader()
            raise
        return _Word.LEAD

    async def _word(self, own: _Traveller[T]) -> _Word:
        self._waiting.append(own)
        try:
            return await own.told
        except asyncio.CancelledError:
            if own in self._waiting:
                self._waiting.remove(own)
            elif not own.told.cancelled() and own.told.exception() is None and own.told.result() is _Word.LEAD:
                self._name_leader()
            raise

    async def _lead(self, item: T, *, begins: bool) -> _Word:
        """Whether it has arrived, or has to go once more, alone."""
        behind = self._cut()
        word, failure = _Word.ALONE, None
        try:
            await self._go([item, *(one.item for one in behind)], begins)
            word = _Word.ARRIVED
        except StoreUnavailable as error:
            failure = error
            raise
        except Exception:
            if not behind:
                raise
        finally:  # also when it is cancelled: the others are not
            self._name_leader()  # first, so that the disk works while these hear how it went
            for one in behind:
                if one.told.done():
                    continue  # it was cancelled
                if failure is None:
                    one.told.set_result(word)
                else:
                    one.told.set_exception(failure)
        return word

    def _cut(self) -> list[_Traveller[T]]:
        most = min(len(self._waiting), GROUP_MAX - 1)
        end = next((index for index in range(most) if self._waiting[index].begins), most)
        behind = self._waiting[:end]
        del self._waiting[:end]
        return behind

    def _name_leader(self) -> None:
        while self._waiting:
            told = self._waiting.pop(0).told
            if not told.done():
                told.set_result(_Word.LEAD)
                return
            # It was cancelled in this turn of the loop, and does not know it yet.
        self._has_leader = False
