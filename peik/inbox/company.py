"""Those who come while others are under way go on together: what a journey costs is shared."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from peik.errors import InDoubt, StoreUnavailable

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


class Company(Generic[T]):
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
