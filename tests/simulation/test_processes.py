"""Simulated processes: a dead one does nothing more, a frozen one does it late, and a world leaves nothing behind."""

import asyncio
import contextvars
import fcntl
import gc
import os
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from peik.testing.virtual import Standstill, VirtualClock, run_virtual
from simulation.play import play
from simulation.processes import OUTSIDE, Process, WorldLoop, current, run_world
from simulation.world import World

WORLDS = 10
Loud = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _only_our_own_garbage() -> None:
    """What other tests left is set aside for good: what is found afterwards was left here. If it were given back, every later
    collection of this worker would walk over all that is loaded, half a second each."""
    gc.collect()
    gc.freeze()


# ---- death ----


class Trace:
    """What a process did, step by step. Its last step ends it, by its own hand or from outside."""

    def __init__(self, process: Process, loop: WorldLoop, *, fuse: int, is_own_hand: bool) -> None:
        self.steps: list[str] = []
        self.at_death: list[str] | None = None
        self._process = process
        self._loop = loop
        self._fuse = fuse
        self._is_own_hand = is_own_hand

    def step(self, what: str) -> None:
        """Always the last thing before an await, so that a death here is a death at that await."""
        self.steps.append(what)
        if len(self.steps) != self._fuse:
            return
        if self._is_own_hand:
            self._die()
        else:
            self._loop.call_soon(self._die, context=OUTSIDE)

    def _die(self) -> None:
        self._process.kill()
        self.at_death = list(self.steps)


async def busy(trace: Trace) -> None:
    """A task with a `finally`, a child, a timer, a callback and work for a thread: all that could outlive a death."""
    asyncio.get_running_loop().call_later(2.5, trace.step, "timer")
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(child(trace)).add_done_callback(lambda done: trace.step("callback"))
            for number in range(4):
                trace.step(f"step {number}")
                await asyncio.sleep(number % 2)
            await asyncio.to_thread(trace.step, "thread")
    finally:
        trace.step("finally")
        await asyncio.sleep(1.0)
        trace.step("after finally")


async def child(trace: Trace) -> None:
    try:
        trace.step("child")
        await asyncio.sleep(0.5)
    finally:
        trace.step("child's finally")


def lives(*, fuse: int = 0, is_own_hand: bool = True) -> tuple[list[str], list[str] | None, list[str]]:
    """The steps of a process in all and at its death, and those of its neighbour, as they were when the world ended."""

    async def main(loop: WorldLoop, clock: VirtualClock) -> tuple[list[str], list[str] | None, list[str]]:
        loud = heard(loop)
        mortal, neighbour = (Process(name, loop) for name in ("mortal", "neighbour"))
        trace = Trace(mortal, loop, fuse=fuse, is_own_hand=is_own_hand)
        other = Trace(neighbour, loop, fuse=0, is_own_hand=True)
        mortal.start(busy(trace))
        neighbour.start(busy(other))
        for _ in range(10):
            await asyncio.sleep(0.5)
            gc.collect()  # what nobody holds any more must not be ended by Python, `finally` by `finally`
        assert loud == []
        return list(trace.steps), trace.at_death, list(other.steps)

    return run_world(main)


def heard(loop: WorldLoop) -> Loud:
    """What the loop complains of: tasks that were destroyed, errors that nobody took."""
    loud: Loud = []
    loop.set_exception_handler(lambda loop, context: loud.append(context))
    return loud


WHOLE = ["step 0", "child", "step 1", "child's finally", "callback", "step 2", "step 3", "thread", "finally"]


@pytest.mark.parametrize("is_own_hand", [True, False])
def test_nothing_of_a_process_runs_after_its_death_at_any_await(is_own_hand: bool) -> None:
    whole, at_death, neighbour = lives()
    assert (sorted(whole), at_death, neighbour) == (sorted([*WHOLE, "timer", "after finally"]), None, whole)
    for fuse in range(1, len(whole) + 1):
        steps, at_death, neighbour = lives(fuse=fuse, is_own_hand=is_own_hand)
        assert steps == at_death == whole[: len(steps)]
        assert len(steps) == fuse or not is_own_hand
        assert neighbour == whole, "its neighbour must not notice"


def test_what_a_process_begins_in_the_instant_of_its_death_is_never_begun() -> None:
    """A write to the disk may kill it, and the code around that write goes on to its next await."""
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")

    async def dies(process: Process) -> None:
        process.kill()
        asyncio.get_running_loop().create_task(work())
        asyncio.get_running_loop().call_soon(begun.append, "callback")
        asyncio.get_running_loop().call_later(1.0, begun.append, "timer")

    async def main(loop: WorldLoop, clock: VirtualClock) -> None:
        loud = heard(loop)
        process = Process("mortal", loop)
        process.start(dies(process))
        process.tell(begun.append, "told")
        await asyncio.sleep(2.0)
        process.tell(begun.append, "told later")
        await asyncio.sleep(0.0)
        gc.collect()
        assert (begun, loud) == ([], [])

    run_world(main)


def test_those_who_asked_hear_of_a_death_once_and_outside() -> None:
    told: list[tuple[str, Process | None]] = []

    async def main(loop: WorldLoop, clock: VirtualClock) -> None:
        process = Process("mortal", loop)
        process.when_dead(lambda: told.append(("mourner", current())))
        process.when_dead(lambda: told.append(("gone", current())))()
        process.tell(process.kill)  # by its own hand
        await asyncio.sleep(1.0)
        process.kill()
        await asyncio.sleep(1.0)

    run_world(main)
    assert told == [("mourner", None)]


def test_what_a_process_was_told_to_do_is_not_forgotten_while_it_waits() -> None:
    """The loop holds tasks but weakly; one that only waits for itself would be collected, and complained of."""

    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    async def main(loop: WorldLoop, clock: VirtualClock) -> None:
        loud = heard(loop)
        process = Process("patient", loop)
        process.start(waits())
        await asyncio.sleep(1.0)
        gc.collect()
        assert loud == []
        process.kill()

    run_world(main)


def test_locks_and_connections_of_the_dead_are_given_back(tmp_path: Path) -> None:
    """A Peik that dies in a transaction, and holds its locks, is followed by another on the same file."""

    async def main(loop: WorldLoop, clock: VirtualClock) -> None:
        world = World(loop, clock, tmp_path, seed=0)
        node = world.nodes[0]
        with world.running():
            node.start()
            await node.up()
            first = node.process
            assert first is not None
            assert node.runtime is not None
            assert node.runtime.store.is_owner
            assert first.connections
            assert len(first.locks) == 1
            first.connections[0].execute("BEGIN IMMEDIATE")
            node.kill()
            await asyncio.sleep(0.0)
            assert (first.connections, first.locks) == ([], [])
            assert open_in(tmp_path) == []
            node.start()
            await node.up()
            assert node.runtime.store.is_owner
            await node.stop()
            assert world.judge.wrong == []
        assert open_in(tmp_path) == []

    run_world(main)


def open_in(folder: Path) -> list[str]:
    """Which files below a folder this real process has open."""
    paths = []
    for fd in Path("/proc/self/fd").iterdir():
        try:
            paths.append(str(fd.readlink()))
        except FileNotFoundError:
            continue  # the listing itself
    return [path for path in paths if path.startswith(str(folder))]


# ---- frozen ----


def test_all_that_fell_due_in_a_frozen_process_happens_in_order_after_it_woke() -> None:
    happened: list[tuple[float, str]] = []

    async def main(loop: WorldLoop, clock: VirtualClock) -> None:
        process = Process("sleepy", loop)

        def note(what: str) -> None:
            happened.append((clock.mono(), what))

        async def work() -> None:
            for due_s in (3.0, 1.0, 2.0):
                loop.call_later(due_s, note, f"timer {due_s:g}")
            await asyncio.sleep(4.0)
            note("task")
            await asyncio.sleep(1.0)
            note("task again")

        process.start(work())
        await asyncio.sleep(0.5)
        process.freeze()
        await asyncio.sleep(2.0)
        process.tell(note, "told")
        await asyncio.sleep(7.5)
        assert happened == []
        process.thaw()
        await asyncio.sleep(5.0)

    run_world(main)
    late = ["timer 1", "timer 2", "told", "timer 3", "task"]
    assert happened == [*((10.0, what) for what in late), (11.0, "task again")]


def test_what_falls_due_in_the_instant_of_waking_comes_after_what_was_put_off() -> None:
    happened: list[str] = []

    async def main(loop: WorldLoop, clock: VirtualClock) -> None:
        process = Process("sleepy", loop)
        process.freeze()
        process.tell(happened.append, "first")
        await asyncio.sleep(1.0)
        process.tell(happened.append, "second")  # it waits in the loop while the process wakes
        process.thaw()
        await asyncio.sleep(1.0)

    run_world(main)
    assert happened == ["first", "second"]


def test_a_timer_that_was_cancelled_stays_so_over_a_freeze() -> None:
    happened: list[str] = []

    async def main(loop: WorldLoop, clock: VirtualClock) -> None:
        process = Process("sleepy", loop)
        timers: dict[str, asyncio.TimerHandle] = {}

        def begin() -> None:
            for place, name in enumerate(["before", "meanwhile", "by another", "kept"]):
                timers[name] = loop.call_later(2.0 + place, happened.append, name)
            loop.call_later(1.0, timers["by another"].cancel)  # it wakes, and finds both due

        process.tell(begin)
        await asyncio.sleep(0.5)
        timers["before"].cancel()
        process.freeze()
        await asyncio.sleep(9.0)
        timers["meanwhile"].cancel()
        process.thaw()
        await asyncio.sleep(1.0)

    run_world(main)
    assert happened == ["kept"]


def test_a_process_may_be_frozen_again_at_once_or_die_frozen() -> None:
    happened: list[tuple[float, str]] = []

    async def main(loop: WorldLoop, clock: VirtualClock) -> None:
        again, dead = Process("again", loop), Process("dead", loop)
        for process in (again, dead):
            process.freeze()
            for name in ("first", "second"):
                process.tell(lambda name=name, process=process: happened.append((clock.mono(), f"{process} {name}")))
        await asyncio.sleep(1.0)
        again.thaw()
        again.freeze()
        dead.thaw()
        dead.kill()
        await asyncio.sleep(1.0)
        again.thaw()
        await asyncio.sleep(1.0)

    run_world(main)
    assert happened == [(2.0, "again first"), (2.0, "again second")]


def test_a_task_keeps_its_context_over_a_freeze() -> None:
    """What it had set before is still set afterwards, and can be taken back: frameworks do that around each request."""
    caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")
    seen: list[str] = []

    async def work(bell: asyncio.Event) -> None:
        token = caller.set("ann")
        await bell.wait()
        seen.append(caller.get())
        caller.reset(token)
        seen.append(caller.get())

    async def main(loop: WorldLoop, clock: VirtualClock) -> None:
        bell = asyncio.Event()
        process = Process("sleepy", loop)
        task = process.start(work(bell))
        await asyncio.sleep(0.5)
        process.freeze()
        bell.set()  # its next step is due, and is put off
        await asyncio.sleep(5.0)
        process.thaw()
        await task

    run_world(main)
    assert seen == ["ann", "nobody"]


# ---- nothing is left ----


@pytest.mark.gate  # whole lives
def test_worlds_leave_nothing_behind() -> None:
    play(0, deeds=12)  # imports and opens what is imported and opened once for all
    gc.collect()
    before = _around()
    for seed in range(WORLDS):
        assert play(seed, deeds=12).wrong == []
    gc.collect()
    assert _around() == before
    assert [held for held in gc.get_objects() if type(held) in (WorldLoop, Process, asyncio.Task)] == []


def _around() -> tuple[object, ...]:
    """Everything that a world takes or changes for its time."""
    fds = len(list(Path("/proc/self/fd").iterdir()))
    return (
        fds,
        threading.active_count(),
        len(apsw.connections()),
        len(apsw.connection_hooks),
        fcntl.flock,
        open,
        os.fsync,
    )


# ---- virtual time ----


def test_work_for_a_thread_is_done_in_the_loop_at_the_same_instant() -> None:
    async def main(clock: VirtualClock) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.001, lambda: None)  # time would run on to it if it could
        assert await loop.run_in_executor(None, threading.get_ident) == threading.get_ident()
        assert await asyncio.to_thread(lambda first, *, second: first + second, 1, second=2) == 3
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        assert clock.mono() == 0.0

    run_virtual(main)


def test_work_for_a_thread_is_not_done_within_the_call_nor_after_it_was_given_up() -> None:
    done: list[str] = []

    async def main(clock: VirtualClock) -> None:
        loop = asyncio.get_running_loop()
        kept = loop.run_in_executor(None, done.append, "kept")
        loop.run_in_executor(None, done.append, "given up").cancel()
        assert done == []
        await kept
        await asyncio.sleep(1.0)

    run_virtual(main)
    assert done == ["kept"]


@pytest.mark.parametrize(("is_restless", "words"), [(True, "time stands still"), (False, "every task waits")])
def test_a_world_in_which_time_cannot_go_on_says_so(
    monkeypatch: pytest.MonkeyPatch, is_restless: bool, words: str
) -> None:
    """It would hang otherwise, and nobody would know of which seed."""
    monkeypatch.setattr("peik.testing.virtual._TURNS_MAX", 1000)
    monkeypatch.setattr("peik.testing.virtual._REAL_WAIT_S", 0.01)

    async def main(loop: WorldLoop, clock: VirtualClock) -> None:
        def again() -> None:
            loop.call_soon(again)

        heard(loop)
        await asyncio.sleep(1.0)
        if is_restless:
            again()
        await loop.create_future()

    with pytest.raises(Standstill, match=words):
        run_world(main)
