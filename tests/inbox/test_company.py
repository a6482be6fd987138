"""Who comes while others are under way goes along with those behind him: shared journeys, and nobody's bad luck is another's."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from peik.errors import BadInput, StoreUnavailable
from peik.inbox.company import GROUP_MAX, LEADERS_MAX, Company


class Road:
    """Journeys that end when they are told to."""

    def __init__(self) -> None:
        self.journeys: list[tuple[list[str], bool]] = []
        self._ends: list[asyncio.Future[None]] = []
        self.company: Company[str] = Company(self._go)
        self._tasks: list[asyncio.Task[None]] = []

    async def _go(self, items: Sequence[str], begins: bool) -> None:
        self.journeys.append((list(items), begins))
        end = asyncio.get_running_loop().create_future()
        self._ends.append(end)
        await end

    def send(self, *names: str, begins: bool = False) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.company.travel(name, begins=begins), name=name) for name in names]
        self._tasks += tasks
        return tasks

    async def end(self, index: int, error: Exception | None = None) -> None:
        if error is None:
            self._ends[index].set_result(None)
        else:
            self._ends[index].set_exception(error)
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


def test_the_first_go_at_once_and_the_others_together_behind_them() -> None:
    async def story(road: Road) -> None:
        tasks = road.send(*"abcdef")
        await settle()
        assert road.seen == [["a"], ["b"]]
        assert LEADERS_MAX == 2
        await road.end(1)
        assert road.seen[2:] == [["c", "d", "e", "f"]]
        assert [task.get_name() for task in tasks if task.done()] == ["b"]
        await road.end(2)
        await road.end(0)
        assert all(task.done() for task in tasks)
        road.send("g")
        await settle()
        assert road.seen[-1] == ["g"]  # nobody is under way any more

    told(story)


def test_one_that_begins_something_new_goes_behind_nobody() -> None:
    async def story(road: Road) -> None:
        road.send(*"abcd")
        road.send("e", begins=True)
        road.send("f")
        await settle()
        await road.end(0)
        await road.end(1)
        assert road.journeys[2:] == [(["c", "d"], False), (["e", "f"], True)]

    told(story)


def test_a_group_is_bounded() -> None:
    async def story(road: Road) -> None:
        road.send(*map(str, range(GROUP_MAX + 5)))
        await settle()
        await road.end(0)
        await road.end(1)
        assert [len(items) for items in road.seen[2:]] == [GROUP_MAX, 3]

    told(story)


def test_one_bad_update_fails_none_of_its_neighbours() -> None:
    async def story(road: Road) -> None:
        tasks = road.send(*"abcde")
        await settle()
        await road.end(0)
        await road.end(2, BadInput(code="bad", detail="Bad."))
        assert road.seen[3:] == [["c"], ["d"], ["e"]]
        await road.end(3)
        await road.end(4, BadInput(code="bad", detail="Bad."))
        await road.end(5)
        assert tasks[2].exception() is None
        assert isinstance(tasks[3].exception(), BadInput)
        assert tasks[4].exception() is None

    told(story)


def test_while_the_store_is_away_nobody_tries_alone() -> None:
    async def story(road: Road) -> None:
        tasks = road.send(*"abcd")
        await settle()
        await road.end(0)
        await road.end(2, StoreUnavailable(code="store_full", detail="Full."))
        assert len(road.seen) == 3
        assert [isinstance(task.exception(), StoreUnavailable) for task in tasks[2:]] == [True, True]

    told(story)


@pytest.mark.parametrize("who", ["c", "d"])
def test_one_who_is_cancelled_on_the_way_leaves_the_others_going(who: str) -> None:
    async def story(road: Road) -> None:
        tasks = {task.get_name(): task for task in road.send(*"abcde")}
        await settle()
        await road.end(0)
        tasks[who].cancel()
        await settle()
        others = [name for name in "cde" if name != who]
        if who == "c":  # it led: nobody knows how far it came, and the same twice does no harm
            assert road.seen[3:] == [[name] for name in others]
            await road.end(3)
            await road.end(4)
        else:
            await road.end(2)
        assert all(tasks[name].done() and tasks[name].exception() is None for name in others)
        await road.end(1)
        road.send(*"xy")
        await settle()
        assert road.seen[-2:] == [["x"], ["y"]]

    told(story)


def test_one_who_is_cancelled_while_he_waits_is_not_taken_along() -> None:
    async def story(road: Road) -> None:
        tasks = road.send(*"abcde")
        await settle()
        tasks[2].cancel()
        await settle()
        await road.end(0)
        assert road.seen[2] == ["d", "e"]
        await road.end(2)
        assert tasks[4].done()

    told(story)


def test_one_who_is_cancelled_just_as_he_is_to_lead_lets_the_others_go() -> None:
    async def story(road: Road) -> None:
        tasks = road.send(*"abcd")
        await settle()
        road._ends[0].set_result(None)
        await asyncio.sleep(0)  # `a` names `c` the next leader, who does not know it yet
        tasks[2].cancel()
        await settle()
        await settle()
        assert [name for items in road.seen[2:] for name in items] == ["d"]
        await road.end(2)
        assert tasks[3].exception() is None
        await road.end(1)
        road.send(*"xy")
        await settle()
        assert road.seen[-2:] == [["x"], ["y"]]

    told(story)
