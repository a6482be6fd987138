"""Who comes while others are under way goes with those who come meanwhile: journeys are shared, and bad luck is not."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from peik.errors import BadInput, InDoubt, StoreUnavailable
from peik.inbox.intake import GROUP_MAX, Batcher


class Road:
    """Journeys that end when they are told to."""

    def __init__(self) -> None:
        self.journeys: list[tuple[list[str], bool]] = []
        self.ends: list[asyncio.Future[None]] = []
        self.company: Batcher[str] = Batcher(self._go)
        self._tasks: list[asyncio.Task[None]] = []

    async def _go(self, items: Sequence[str], begins: bool) -> None:
        self.journeys.append((list(items), begins))
        end = asyncio.get_running_loop().create_future()
        self.ends.append(end)
        await end

    def send(self, *names: str, begins: bool = False) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.company.travel(name, begins=begins), name=name) for name in names]
        self._tasks += tasks
        return tasks

    async def end(self, index: int, error: Exception | None = None) -> None:
        if error is None:
            self.ends[index].set_result(None)
        else:
            self.ends[index].set_exception(error)
        await settle()

    @property
    def seen(self) -> list[list[str]]:
        return [items for items, _ in self.journeys]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def told(story: Callable[[Road], Awaitable[None]]) -> None:
    async def play() -> None:
        await story(Road())

    asyncio.run(play())


def test_who_comes_in_one_moment_goes_together_and_the_others_behind_them() -> None:
    async def story(road: Road) -> None:
        tasks = road.send("a", "b")
        await settle()
        assert road.seen == [["a", "b"]]
        tasks += road.send("c", "d")
        await settle()
        tasks += road.send("e")
        await settle()
        assert len(road.seen) == 1
        await road.end(0)
        assert road.seen[1:] == [["c", "d", "e"]]
        assert [task.get_name() for task in tasks if task.done()] == ["a", "b"]
        await road.end(1)
        assert all(task.done() for task in tasks)
        road.send("f")
        await settle()
        assert road.seen[2:] == [["f"]]  # nobody is under way any more

    told(story)


def test_one_that_begins_something_new_goes_behind_nobody() -> None:
    async def story(road: Road) -> None:
        road.send("a", "b")
        road.send("c", begins=True)
        road.send("d")
        await settle()
        await road.end(0)
        assert road.journeys == [(["a", "b"], False), (["c", "d"], True)]

    told(story)


def test_a_group_is_bounded() -> None:
    async def story(road: Road) -> None:
        road.send(*map(str, range(GROUP_MAX + 3)))
        await settle()
        await road.end(0)
        assert [len(items) for items in road.seen] == [GROUP_MAX, 3]

    told(story)


def test_one_bad_update_fails_none_of_its_neighbours() -> None:
    async def story(road: Road) -> None:
        tasks = road.send(*"abc")
        await settle()
        await road.end(0, BadInput(code="bad", detail="Bad."))
        for index, error in enumerate([None, BadInput(code="bad", detail="Bad."), None], start=1):
            await road.end(index, error)
        assert road.seen[1:] == [["a"], ["b"], ["c"]]
        assert [type(task.exception()) for task in tasks] == [type(None), BadInput, type(None)]

    told(story)


def test_while_the_store_is_away_nobody_tries_alone() -> None:
    async def story(road: Road) -> None:
        tasks = road.send(*"ab")
        await settle()
        await road.end(0, StoreUnavailable(code="store_full", detail="Full."))
        assert len(road.seen) == 1
        assert [type(task.exception()) for task in tasks] == [StoreUnavailable, StoreUnavailable]

    told(story)


@pytest.mark.parametrize("who", ["a", "b"])
@pytest.mark.parametrize("is_under_way", [True, False])
def test_one_who_is_cancelled_leaves_the_others_going(who: str, is_under_way: bool) -> None:
    async def story(road: Road) -> None:
        tasks = {task.get_name(): task for task in road.send(*"abc")}
        await (settle() if is_under_way else asyncio.sleep(0))
        tasks[who].cancel()
        await settle()
        assert road.seen == [["a", "b", "c"]]  # nobody has told him that it is stored, and the same twice does no harm
        await road.end(0)
        assert all(tasks[name].cancelled() if name == who else tasks[name].exception() is None for name in "abc")
        await everybody_is_home(road)

    told(story)


def test_one_who_is_cancelled_as_he_hears_that_the_store_is_away_stays_cancelled() -> None:
    async def story(road: Road) -> None:
        _, second = road.send(*"ab")
        await settle()
        road.ends[0].set_exception(StoreUnavailable(code="store_full", detail="Full."))
        second.cancel()
        await settle()
        assert second.cancelled()
        await everybody_is_home(road)

    told(story)


def test_a_journey_that_is_broken_off_leaves_nobody_waiting() -> None:
    async def story(road: Road) -> None:
        tasks = road.send(*"ab")
        await settle()
        tasks += road.send("c")
        await settle()
        road.ends[0].cancel()
        await settle()
        assert [type(task.exception()) for task in tasks[:2]] == [InDoubt, InDoubt]
        assert road.seen[1:] == [["c"]]
        await road.end(1)
        assert tasks[2].exception() is None

    told(story)


def test_one_who_cannot_be_told_keeps_no_other_waiting() -> None:
    async def story(road: Road) -> None:
        heard: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))

        def deaf(error: Exception | None) -> None:
            raise ZeroDivisionError

        ends: list[Exception | None] = []
        road.company.join("a", deaf)
        road.company.join("b", ends.append)
        await settle()
        await road.end(0)
        assert ends == [None]
        assert [type(one) for one in heard] == [ZeroDivisionError]

    told(story)


async def everybody_is_home(road: Road) -> None:
    """Else whoever comes next would wait for ever."""
    before = len(road.seen)
    road.send("z")
    await settle()
    assert road.seen[before:] == [["z"]]
