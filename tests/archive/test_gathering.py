"""Many callers, few commits."""

import asyncio
from collections.abc import Sequence

import pytest

from peik.archive.batcher import ArchiveBatcher
from peik.errors import StoreUnavailable


class Commits:
    def __init__(self) -> None:
        self.made: list[list[int]] = []
        self.may_go = asyncio.Event()

    async def keep(self, items: Sequence[int]) -> list[int]:
        await self.may_go.wait()
        if -1 in items:
            raise ValueError("a bad one")
        if -2 in items:
            raise StoreUnavailable(code="store_gone", detail="Gone.")
        self.made.append(list(items))
        return [10 * item for item in items]


async def test_what_waits_goes_together_and_everybody_hears_of_their_own() -> None:
    commits = Commits()
    gathering = ArchiveBatcher(commits.keep, at_once_max=4)
    callers = [asyncio.create_task(gathering.add([number, number])) for number in range(5)]
    await asyncio.sleep(0)
    commits.may_go.set()
    assert await asyncio.gather(*callers) == [[10 * number] * 2 for number in range(5)]
    assert commits.made == [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4]]
    await gathering.drained()


async def test_one_bad_item_does_not_fail_its_neighbours() -> None:
    commits = Commits()
    commits.may_go.set()
    gathering = ArchiveBatcher(commits.keep)
    told = await asyncio.gather(*(gathering.add([number]) for number in (1, -1, 2)), return_exceptions=True)
    assert told[0] == [10]
    assert isinstance(told[1], ValueError)
    assert told[2] == [20]


async def test_a_store_that_is_gone_is_told_to_all_at_once() -> None:
    commits = Commits()
    commits.may_go.set()
    gathering = ArchiveBatcher(commits.keep)
    told = await asyncio.gather(*(gathering.add([number]) for number in (1, -2, 2)), return_exceptions=True)
    assert all(isinstance(one, StoreUnavailable) for one in told)
    assert commits.made == []
    assert await gathering.add([3]) == [30]


async def test_more_than_fits_is_committed_in_parts() -> None:
    commits = Commits()
    commits.may_go.set()
    gathering = ArchiveBatcher(commits.keep, at_once_max=3)
    assert await gathering.add(list(range(7))) == [10 * number for number in range(7)]
    assert [len(made) for made in commits.made] == [3, 3, 1]
    assert await gathering.add([]) == []


async def test_a_caller_who_leaves_does_not_keep_the_others() -> None:
    commits = Commits()
    gathering = ArchiveBatcher(commits.keep)
    leaving = asyncio.create_task(gathering.add([1]))
    staying = asyncio.create_task(gathering.add([2]))
    await asyncio.sleep(0)
    leaving.cancel()
    commits.may_go.set()
    assert await staying == [20]
    with pytest.raises(asyncio.CancelledError):
        await leaving
