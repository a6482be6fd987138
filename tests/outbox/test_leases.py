"""For whom a node acts, in virtual time: beats, deadlines, begins and ends, on a server that does as it is told."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from peik.core.events import Event, Events, LeasesLetGo, LeasesLost, LeasesTaken
from peik.core.nodes import CHORES, Beat
from peik.errors import StoreUnavailable
from peik.outbox.leases import Leases
from peik.testing.virtual import VirtualClock, run_virtual

LEASE_S = 10.0
BEAT_S = 2.0


class Server:
    """What one node hears from its store: as the story goes."""

    lease_s: float | None = LEASE_S

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.leases: dict[int, int] = {}
        self.surplus = 0
        self.is_away = False
        self.is_silent = False
        self.beats: list[float] = []
        self.drains: list[bool] = []
        self.released: list[int] = []

    async def beat(self, *, is_draining: bool = False) -> Beat:
        self.beats.append(self._clock.mono())
        self.drains.append(is_draining)
        if self.is_silent:
            await asyncio.Event().wait()
        if self.is_away:
            raise StoreUnavailable(code="store_gone", detail="away")
        await asyncio.sleep(0.1)
        return Beat(leases=dict(self.leases), surplus=self.surplus)

    async def release(self, bot_ids: Sequence[int]) -> None:
        if self.is_away:
            raise StoreUnavailable(code="store_gone", detail="away")
        self.released.extend(bot_ids)
        for bot_id in bot_ids:
            self.leases.pop(bot_id, None)


class Work:
    """What a node does for its bots."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.may_begin = True
        self.may_leave = asyncio.Event()
        self.may_leave.set()
        self.caught_up = 0

    async def begin(self, bot_ids: Collection[int]) -> None:
        if not self.may_begin:
            raise StoreUnavailable(code="store_gone", detail="not now")
        self.log.extend(f"begin {bot_id}" for bot_id in sorted(bot_ids))

    async def let_go(self, bot_id: int) -> None:
        self.log.append(f"leaving {bot_id}")
        await self.may_leave.wait()
        self.log.append(f"left {bot_id}")

    def drop(self, bot_id: int) -> None:
        self.log.append(f"drop {bot_id}")

    def wake(self) -> None:
        self.log.append("wake")

    async def catch_up(self) -> None:
        self.caught_up += 1

    def said(self) -> list[str]:
        said, self.log = self.log, []
        return said


class Stage:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.server = Server(clock)
        self.work = Work()
        self.told: list[Event] = []
        events = Events()
        events.listen(self.told.extend)
        self.leases = Leases(store=self.server, clock=clock, events=events)  # type: ignore[arg-type]  all that it asks for

    async def beat(self) -> None:
        """One more, and what it sets off."""
        self.leases.ring()
        await asyncio.sleep(0.2)


def play(story: Callable[[Stage], Coroutine[Any, Any, None]], **leases: int) -> None:
    async def main(clock: VirtualClock) -> None:
        stage = Stage(clock)
        stage.server.leases = {int(name.removeprefix("b")): epoch for name, epoch in leases.items()}
        async with asyncio.TaskGroup() as group:
            await stage.leases.open(stage.work, group)
            running = group.create_task(stage.leases.run())
            await story(stage)
            running.cancel()
            stage.leases.stop()

    run_virtual(main)


def test_what_a_beat_gives_begins_and_what_it_does_not_give_any_more_ends() -> None:
    async def story(stage: Stage) -> None:
        assert stage.work.said() == ["begin 0", "begin 7"]
        assert stage.leases.of(7) is not None
        assert stage.leases.of(8) is None
        stage.server.leases = {7: 1, 8: 3}
        await stage.beat()
        assert stage.work.said() == ["drop 0", "begin 8"]
        stage.server.leases = {7: 2, 8: 3}  # lost and won again in between: everything of it is to be read anew
        await stage.beat()
        assert stage.work.said() == ["drop 7", "begin 7"]
        lease = stage.leases.of(7)
        assert lease is not None
        assert lease.epoch == 2
        assert [type(event) for event in stage.told] == [LeasesTaken, LeasesLost, LeasesTaken, LeasesLost, LeasesTaken]

    play(story, b0=1, b7=1)


def test_a_lease_ends_here_before_it_ends_there_and_goes_on_with_the_next_beat() -> None:
    async def story(stage: Stage) -> None:
        lease = stage.leases.of(7)
        assert lease is not None
        await asyncio.sleep(3 * BEAT_S)
        last = stage.server.beats[-1]
        assert lease.ends_at == last + 0.8 * LEASE_S  # counted from before the beat left
        stage.server.is_away = True
        await asyncio.sleep(LEASE_S)
        assert not stage.leases.is_live(7)
        assert stage.leases.holds(7)  # nobody has said that it is lost: what is in memory stays
        assert stage.work.said() == ["begin 7"]
        stage.server.is_away = False
        await asyncio.sleep(1.0)
        assert stage.leases.is_live(7)
        assert stage.work.said() == ["wake"]

    play(story, b7=1)


def test_a_beat_that_hangs_does_not_keep_the_next_one_from_being_sent() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(BEAT_S - 0.5)
        stage.server.is_silent = True
        await asyncio.sleep(BEAT_S)
        stage.server.is_silent = False
        await asyncio.sleep(LEASE_S / 2)
        assert stage.leases.is_live(7)

    play(story, b7=1)


def test_beginning_is_tried_until_it_works_and_beats_go_on_meanwhile() -> None:
    async def story(stage: Stage) -> None:
        stage.work.may_begin = False
        stage.server.leases[8] = 1
        await asyncio.sleep(3 * BEAT_S)
        assert len(stage.server.beats) >= 3
        assert stage.work.said() == ["begin 7"]
        del stage.server.leases[8]
        await asyncio.sleep(BEAT_S)
        stage.work.may_begin = True
        await asyncio.sleep(BEAT_S)
        assert stage.work.said() == ["drop 8"]  # it is not begun: somebody else has it
        stage.work.may_begin = False
        stage.server.leases[9] = 1
        await asyncio.sleep(3 * BEAT_S)
        stage.work.may_begin = True
        await asyncio.sleep(BEAT_S)
        assert stage.work.said() == ["begin 9"]

    play(story, b7=1)


def test_what_is_too_much_is_let_go_when_nothing_of_it_is_in_flight_the_chores_last() -> None:
    async def story(stage: Stage) -> None:
        stage.work.said()
        stage.work.may_leave.clear()
        stage.server.surplus = 2
        await asyncio.sleep(3 * BEAT_S)
        assert stage.work.said() == ["leaving 9", "leaving 8"]  # once, and no more than that
        assert [stage.leases.holds(bot_id) for bot_id in (0, 7, 8, 9)] == [True, True, False, False]
        assert stage.server.released == []  # kept alive until then
        stage.server.surplus = 0
        stage.work.may_leave.set()
        await asyncio.sleep(0.1)
        assert sorted(stage.server.released) == [8, 9]
        await asyncio.sleep(BEAT_S)
        assert stage.work.said() == ["left 9", "left 8"]
        assert stage.told[-1] == LeasesLetGo(let_go=2, held=2)

    play(story, b0=1, b7=1, b8=1, b9=1)


def test_a_lease_that_is_lost_while_it_is_let_go_is_dropped() -> None:
    async def story(stage: Stage) -> None:
        stage.work.said()
        stage.work.may_leave.clear()
        stage.server.surplus = 1
        await stage.beat()
        stage.server.leases, stage.server.surplus = {}, 0
        await stage.beat()
        assert stage.work.said() == ["leaving 7", "drop 7"]
        stage.server.leases = {7: 2}
        await stage.beat()
        assert stage.work.said() == ["begin 7"]
        assert stage.server.released == []

    play(story, b7=1)


def test_a_node_that_ends_lets_everything_go_and_says_that_it_drains() -> None:
    async def story(stage: Stage) -> None:
        stage.server.is_away = True
        draining = asyncio.create_task(stage.leases.drain(20.0))
        await asyncio.sleep(1.0)
        stage.server.is_away = False  # it is told again and again
        await draining
        assert sorted(stage.server.released) == [CHORES, 7, 8]
        await asyncio.sleep(BEAT_S)
        assert stage.server.drains[-1]

    play(story, b0=1, b7=1, b8=1)


def test_the_time_for_the_end_is_bounded() -> None:
    async def story(stage: Stage) -> None:
        stage.work.may_leave.clear()
        began = stage.clock.mono()
        await stage.leases.drain(3.0)
        assert stage.clock.mono() - began == 3.0
        assert stage.server.released == []

    play(story, b7=1)


def test_a_bot_that_is_removed_is_no_loss() -> None:
    async def story(stage: Stage) -> None:
        stage.leases.forget(7)
        del stage.server.leases[7]
        await asyncio.sleep(BEAT_S)
        assert stage.work.said() == ["begin 7"]
        assert [type(event) for event in stage.told] == [LeasesTaken]

    play(story, b7=1)


def test_every_beat_is_a_chance_to_find_out_what_no_news_told() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(5 * BEAT_S)
        assert stage.work.caught_up >= 4

    play(story, b7=1)


def test_who_holds_the_whole_store_holds_bots_that_come_later_and_needs_no_beats() -> None:
    async def story(stage: Stage) -> None:
        assert stage.leases.is_whole
        lease = stage.leases.of(12345)
        assert lease is not None
        assert (lease.epoch, lease.ends_at) == (5, float("inf"))
        await asyncio.sleep(3600)
        assert len(stage.server.beats) == 1

    async def main(clock: VirtualClock) -> None:
        stage = Stage(clock)
        stage.server.lease_s = None

        async def beat(*, is_draining: bool = False) -> Beat:
            stage.server.beats.append(clock.mono())
            return Beat(leases={}, is_whole=True, epoch=5)

        stage.server.beat = beat  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as group:
            await stage.leases.open(stage.work, group)
            assert stage.work.said() == ["begin 0"]
            running = group.create_task(stage.leases.run())
            await story(stage)
            running.cancel()
            stage.leases.stop()

    run_virtual(main)


def test_what_is_lost_and_won_again_while_it_begins_begins_once_more() -> None:
    async def story(stage: Stage) -> None:
        stage.work.said()
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begin = stage.work.begin

        async def slowly(bot_ids: Collection[int]) -> None:
            stage.work.begin = begin  # type: ignore[method-assign]  once
            await begun
            await begin(bot_ids)

        stage.work.begin = slowly  # type: ignore[method-assign]
        stage.server.leases = {8: 1}
        await stage.beat()
        stage.server.leases = {}
        await stage.beat()
        stage.server.leases = {8: 2}
        await stage.beat()
        begun.set_result(None)
        await asyncio.sleep(0.1)
        assert stage.work.said() == ["drop 7", "drop 8", "begin 8", "begin 8"]

    play(story, b7=1)
