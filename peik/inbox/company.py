"""Those who come while others are under way go on together, behind one of them: what a journey costs is shared.

No task is made for it: the first one that waits leads those behind it, and on its return the next one is told to lead.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import Generic, TypeVar

from peik.errors import StoreUnavailable

T = TypeVar("T")

LEADERS_MAX = 2  # one group is on its way to the disk, the next gets ready meanwhile
GROUP_MAX = 500


class _Word(Enum):
    """What one who waits is told."""

    LEAD = auto()
    ARRIVED = auto()
    ALONE = auto()


class _Traveller(Generic[T]):
    __slots__ = ("begins", "behind", "item", "told")

    def __init__(self, item: T, *, begins: bool) -> None:
        self.item = item
        self.begins = begins
        self.told: asyncio.Future[_Word] = asyncio.get_running_loop().create_future()
        self.behind: list[_Traveller[T]] = []  # who comes along, if it leads


class Company(Generic[T]):
    """`go` takes many at once, in their order, and hears whether the first of them begins something new."""

    def __init__(self, go: Callable[[Sequence[T], bool], Awaitable[None]]) -> None:
        self._go = go
        self._waiting: list[_Traveller[T]] = []  # nobody, unless all who may lead do
        self._leaders = 0

    async def travel(self, item: T, *, begins: bool = False) -> None:
        """Returns when `go` has returned for this one, and raises what it raised. One that begins something new goes behind
        nobody.

        One's bad luck is not its neighbours': unless the store is away, each goes alone once a group has failed.
        """
        own = _Traveller(item, begins=begins)
        if self._leaders < LEADERS_MAX:
            self._leaders += 1
            word = _Word.LEAD
        else:
            self._waiting.append(own)
            word = await self._word(own)
        if word is _Word.LEAD:
            word = await self._lead(own)
        if word is _Word.ALONE:
            await self._go([item], begins)

    async def _word(self, own: _Traveller[T]) -> _Word:
        try:
            return await own.told
        except asyncio.CancelledError:
            if own in self._waiting:
                self._waiting.remove(own)
            elif not own.told.cancelled() and own.told.result() is _Word.LEAD:
                self._end(own.behind, _Word.ALONE)
            raise

    async def _lead(self, own: _Traveller[T]) -> _Word:
        """Whether it has arrived, or has to go once more, alone."""
        word, failure = _Word.ALONE, None
        try:
            await self._go([own.item, *(one.item for one in own.behind)], own.begins)
            word = _Word.ARRIVED
        except StoreUnavailable as error:
            failure = error
            raise
        except Exception:
            if not own.behind:
                raise
        finally:  # also when it is cancelled: the others are not
            self._end(own.behind, word, failure)
        return word

    def _end(self, behind: Sequence[_Traveller[T]], word: _Word, failure: StoreUnavailable | None = None) -> None:
        """The next group goes first: the disk works while this one hears how it went."""
        if self._waiting:
            self._send_off()
        else:
            self._leaders -= 1
        for one in behind:
            if one.told.done():
                continue  # it was cancelled
            if failure is None:
                one.told.set_result(word)
            else:
                one.told.set_exception(failure)

    def _send_off(self) -> None:
        most = min(len(self._waiting), GROUP_MAX)
        end = next((index for index in range(1, most) if self._waiting[index].begins), most)
        leader, *behind = self._waiting[:end]
        del self._waiting[:end]
        leader.behind = behind
        leader.told.set_result(_Word.LEAD)
