"""One performance from start to end: play, count, clear away. A signal ends what goes on, and the rest still happens."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path

import msgspec

from peik.demo import chapters, narration
from peik.demo.book import Counts
from peik.demo.calls import Declined, Unanswered
from peik.demo.encore import encore
from peik.demo.scene import CHAPTERS, FULL, QUICK, Scene
from peik.demo.screen import Screen
from peik.demo.stage import Stage
from peik.demo.watch import Stuck
from peik.errors import StartError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STORY = (chapters.flow, chapters.dark, chapters.crash, chapters.flood, chapters.blocked)
_DRAIN_S = 2.0  # how long a demo that was stopped waits for what is under way
_COUNT_S = 6.0  # and how long for all of its counting
_AGAIN_S = 0.1


def demo(*, is_once: bool, is_quick: bool, seed: int) -> int:
    """The exit code: 0 unless a letter was lost, or came twice without a word about it. Raises StartError."""
    try:
        return asyncio.run(_perform(is_once=is_once, is_quick=is_quick, seed=seed))
    except BrokenPipeError:  # `peik demo | head`: nobody reads on, and all is cleared away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


async def _perform(*, is_once: bool, is_quick: bool, seed: int) -> int:
    interruptions = Interruptions()
    screen = Screen()
    with tempfile.TemporaryDirectory(prefix="peik-demo-") as folder:
        stage = Stage(Path(folder), seed=seed)
        scene = Scene(stage, screen, scale=QUICK if is_quick else FULL, seed=seed)
        try:
            is_whole = await interruptions.run(_play(scene, is_once=is_once))
            if not is_whole:
                screen.say(f"\n{narration.STOPPING}")
            await interruptions.run(_count(scene) if is_whole else _count_what_there_is(scene))
        except (Stuck, Unanswered, Declined) as trouble:
            raise StartError(str(trouble)) from None
        finally:
            try:
                screen.close()
            finally:
                await stage.close()
    counts = scene.book.counts(is_over=is_whole)
    _tell(screen, counts)
    if not is_whole and scene.book.open_promises():
        return 1 if counts.lost else 0  # stopped before Peik could be asked about every letter
    return 0 if counts.is_good else 1


async def _play(scene: Scene, *, is_once: bool) -> None:
    """From the first process to the last chapter; then on and on, unless once is enough."""
    screen, stage = scene.screen, scene.stage
    screen.open(is_once=is_once)
    screen.say(narration.STARTING)
    await stage.open()
    await scene.town.settle_in()
    screen.say(narration.STARTED, sim_url=stage.sim.url, peik_url=stage.peik.url, pid=stage.peik_pid)
    try:
        async with asyncio.TaskGroup() as group:
            behind = [group.create_task(scene.watch.run()), group.create_task(scene.town.run_bot())]
            for chapter in _STORY:
                await chapter(scene)
            if not is_once:
                await encore(scene)
            for task in behind:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


async def _count(scene: Scene) -> None:
    """Ask Peik about every letter, then read the ledger to its end."""
    await scene.audit()
    while arrivals := await scene.stage.sim.arrivals(scene.book.ledger_number):
        scene.book.arrived(arrivals)


async def _count_what_there_is(scene: Scene) -> None:
    """The same in the middle of anything: Telegram may be dark and Peik dead. What takes too long stays uncounted."""
    if scene.book.is_empty:
        return
    with contextlib.suppress(TimeoutError, Unanswered):
        async with asyncio.timeout(_COUNT_S):
            await scene.stage.sim.end_faults()
            if not scene.stage.is_peik_up:
                await scene.stage.start_peik()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await _drained(scene)
            await _count(scene)


async def _drained(scene: Scene) -> None:
    while True:
        with contextlib.suppress(Unanswered):
            if not (await scene.stage.peik.stats()).unfinished:
                return
        await asyncio.sleep(_AGAIN_S)


def _tell(screen: Screen, counts: Counts) -> None:
    screen.chapter(f"{CHAPTERS}. {narration.COUNTS}", narration.COUNTS_LEAD)
    failed = narration.COUNTS_FAILED
    if counts.failed_arrived:
        failed += narration.COUNTS_FAILED_ARRIVED.format(arrived=counts.failed_arrived)
    rows = [
        (narration.COUNTS_ACCEPTED, counts.accepted, True),
        (narration.COUNTS_DELIVERED, counts.delivered, True),
        (failed, counts.failed, True),
        (narration.COUNTS_WAITING, counts.waiting, True),
        (narration.COUNTS_LOST, counts.lost, counts.lost == 0),
        (narration.COUNTS_DOUBLED, counts.doubled, counts.doubled <= counts.uncertain_tries),
        (narration.COUNTS_UNCERTAIN, counts.uncertain_tries, True),
    ]
    screen.table([row for row in rows if row[0] != narration.COUNTS_WAITING or row[1]])
    screen.say("")
    screen.last(narration.LAST_LINE.format(**msgspec.structs.asdict(counts)))


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one thing that went wrong first, as itself."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Interruptions:
    """Each signal ends the part of the performance that goes on, and only that: clearing away always happens."""

    def __init__(self) -> None:
        self._running: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup a hang-up is meant to be ignored
                loop.add_signal_handler(number, self._interrupt)

    async def run(self, part: Coroutine[object, object, None]) -> bool:
        """Whether the part came to its own end."""
        self._running = asyncio.ensure_future(part)
        await asyncio.wait([self._running])
        ended, self._running = self._running, None
        if ended.cancelled():
            return False
        ended.result()
        return True

    def _interrupt(self) -> None:
        if self._running is not None:
            self._running.cancel()
