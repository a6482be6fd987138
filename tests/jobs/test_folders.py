"""Work folders: in virtual time on a real disk, and with real processes that die."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from peik.core.events import Event, Events
from peik.core.letter import State
from peik.errors import StartError
from peik.jobs import disk
from peik.jobs.disk import Space
from peik.jobs.events import DiskBack, DiskShort, FolderLeft
from peik.jobs.folders import RETRY_S_MAX, SWEEP_S, Folders
from peik.jobs.model import JobRecord
from peik.jobs.outcome import FolderOver, NoRoom
from peik.testing.virtual import VirtualClock, run_virtual

GB = 1024**3
ROOMY = Space(total=1000 * GB, free=500 * GB)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def job(job_id: int, run: int = 1) -> JobRecord:
    return JobRecord(
        id=job_id, kind="k", user="u", params="{}", rank=2, state=State.ACTIVE, attempts=3, run=run, created_at_ms=0
    )


class Place:
    """A base folder whose disk and whose obstinacy can be set."""

    def __init__(self, base: Path, clock: VirtualClock) -> None:
        self.base = base
        self.clock = clock
        self.told: list[Event] = []
        self.space = ROOMY
        self.is_stuck = False
        self.tries: list[float] = []

    async def folders(self, group: asyncio.TaskGroup, *, bytes_max: int | None = None) -> Folders:
        events = Events()
        events.listen(self.told.extend)
        folders = Folders(
            self.base,
            events=events,
            clock=self.clock,
            bytes_max=bytes_max,
            remove=self._remove,
            space_of=lambda _: self.space,
        )
        await folders.open()
        folders.start(group)
        return folders

    def _remove(self, path: Path) -> None:
        self.tries.append(self.clock.mono())
        if self.is_stuck:
            raise OSError(16, "Device or resource busy")
        disk.remove(path)

    def all_told(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]


def play(base: Path, story: Callable[[Place, asyncio.TaskGroup], Coroutine[Any, Any, None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        async with asyncio.TaskGroup() as group:
            await story(Place(base, clock), group)

    run_virtual(main)


def test_each_run_has_a_folder_of_its_own_and_nothing_stays(tmp_path: Path) -> None:
    base = tmp_path / "not" / "there" / "yet"

    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        folders = await place.folders(group)
        first, second = await folders.begin(job(7), 0), await folders.begin(job(7, run=2), 0)
        assert (first.name, second.name) == ("7-1", "7-2")
        assert list(first.iterdir()) == list(second.iterdir()) == []
        (first / "film").write_bytes(b"x" * 1000)
        assert (await folders.size(job(7)), await folders.size(job(7, run=2)), await folders.size(job(8))) == (
            1000,
            0,
            0,
        )
        await folders.end(job(7))
        assert not first.exists()
        assert second.exists()
        await folders.end(job(7))
        await folders.close()
        assert names(base) == []
        assert place.told == []

    play(base, story)


def test_what_is_set_aside_is_bounded(tmp_path: Path) -> None:
    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        folders = await place.folders(group, bytes_max=3 * GB)
        other = await place.folders(group, bytes_max=3 * GB)  # another process on the same disk
        await folders.begin(job(1), GB)
        await other.begin(job(2), GB)
        await folders.begin(job(3), GB)
        for full in (folders, other):
            with pytest.raises(
                NoRoom, match=r"may hold 3\.0 GB together; 3\.0 GB are set aside already, and .* 1 bytes"
            ):
                await full.begin(job(4), 1)
        await other.end(job(2))
        await folders.begin(job(4), GB)
        with pytest.raises(FolderOver, match=r"needs 4\.0 GB"):
            await folders.begin(job(5), 4 * GB)
        await folders.close()
        await other.begin(job(6), 3 * GB)
        await other.close()

    play(tmp_path, story)


def test_what_really_lies_there_counts(tmp_path: Path) -> None:
    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        folders = await place.folders(group, bytes_max=10_000)
        path = await folders.begin(job(1), 1000)
        (path / "film").write_bytes(b"x" * 9500)
        await folders.size(job(1))
        with pytest.raises(NoRoom):
            await folders.begin(job(2), 501)
        await folders.begin(job(2), 500)
        place.is_stuck = True
        await folders.end(job(1))
        with pytest.raises(NoRoom):  # it is over, and lies there all the same
            await folders.begin(job(3), 1)
        place.is_stuck = False
        await asyncio.sleep(RETRY_S_MAX + 1)
        await folders.begin(job(3), 9500)
        await folders.close()

    play(tmp_path, story)


def test_a_short_disk_is_told_once_and_so_is_its_end(tmp_path: Path) -> None:
    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        folders = await place.folders(group)
        await folders.begin(job(1), 2 * GB)
        place.space = Space(total=1000 * GB, free=4 * GB - 1)  # 2 set aside, 1 wanted, 1 has to stay
        for _ in range(3):
            with pytest.raises(NoRoom, match=r"4\.0 GB free, of which 3\.0 GB are set aside, and 1\.0 GB have to stay"):
                await folders.begin(job(2), GB)
            await asyncio.sleep(30)
        assert len(place.all_told(DiskShort)) == 1
        assert folders.view().short is not None
        place.space = Space(total=1000 * GB, free=4 * GB)
        await asyncio.sleep(30)
        assert [type(event) for event in place.told] == [DiskShort, DiskBack]
        assert folders.view().short is None
        await folders.begin(job(2), GB)
        place.space = Space(total=1000 * GB, free=400 * GB, files_free=3)
        with pytest.raises(NoRoom, match="3 more files"):
            await folders.begin(job(3), 0)
        assert [type(event) for event in place.told] == [DiskShort, DiskBack, DiskShort]
        await folders.close()

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("total", "wanted", "floor"), [(1000 * GB, None, GB), (10 * GB, None, GB // 2), (10 * GB, 3, 3), (10 * GB, 0, 0)]
)
def test_how_much_stays_free(total: int, wanted: int | None, floor: int) -> None:
    assert disk.floor_of(Space(total=total, free=0), wanted) == floor


def test_a_removal_that_fails_is_told_and_tried_again(tmp_path: Path) -> None:
    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        folders = await place.folders(group)
        path = await folders.begin(job(7), 0)
        place.is_stuck = True
        began_at = place.clock.mono()
        await folders.end(job(7))
        assert (await folders.begin(job(7), 0)).name == "7-1-2"  # never one that is not empty
        await asyncio.sleep(1000)
        waits = [after - before for before, after in zip(place.tries, place.tries[1:], strict=False)]
        assert place.tries[0] == began_at
        assert waits[:10] == pytest.approx([1, 2, 4, 8, 16, 32, 64, 128, 256, 300])
        told = place.all_told(FolderLeft)
        assert [(event.job_id, event.tries) for event in told] == [(7, n + 1) for n in range(len(place.tries))]
        assert "Device or resource busy" in told[0].why
        assert (folders.view().left, folders.view().failed_removals) == (1, len(told))
        place.is_stuck = False
        await asyncio.sleep(RETRY_S_MAX + 1)
        assert not path.exists()
        assert folders.view().left == 0
        await folders.close()

    play(tmp_path, story)


def test_strangers_in_the_base_folder_are_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    base = tmp_path / "base"
    for name in ("film.mp4", "7-1", "peik-mine", "peik-0123456789abcdef0"):
        (base / name).mkdir(parents=True)
    (elsewhere / "7-1").mkdir(parents=True)
    (base / "peik-00000000000000aa").symlink_to(elsewhere)  # a name of ours, and a trap

    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        folders = await place.folders(group)
        await folders.close()

    play(base, story)
    assert names(base) == ["7-1", "film.mp4", "peik-0123456789abcdef0", "peik-mine"]
    assert (elsewhere / "7-1").is_dir()


def test_folders_that_nobody_knows_are_swept(tmp_path: Path) -> None:
    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        folders = await place.folders(group)
        mine = await folders.begin(job(1), 0)
        (mine.parent / "9-4" / "deep").mkdir(parents=True)  # of one that was cancelled as it began
        (tmp_path / "peik-00000000000000bb" / "3-3").mkdir(parents=True)  # its owner's file is gone
        await asyncio.sleep(SWEEP_S + 1)
        assert names(mine.parent) == ["1-1"]
        assert names(tmp_path) == [mine.parent.name, f"{mine.parent.name}.owner", "peik.lock"]
        await folders.close()

    play(tmp_path, story)


def test_a_base_folder_that_somebody_tidied_is_made_again(tmp_path: Path) -> None:
    base = tmp_path / "base"

    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        folders = await place.folders(group)
        await folders.begin(job(1), 0)
        disk.remove(base)
        assert await folders.size(job(1)) == 0
        path = await folders.begin(job(2), 0)
        other = await place.folders(group)
        assert path.is_dir()  # the other one's sweep knows that it is ours
        await folders.end(job(1))
        await folders.end(job(2))
        await folders.close()
        await other.close()
        assert (names(base), place.told) == ([], [])

    play(base, story)


def test_a_base_folder_that_cannot_be_one_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "base").write_text("a file")

    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        with pytest.raises(StartError, match="PEIK_WORK"):
            await place.folders(group)

    play(tmp_path / "base", story)


def test_a_base_folder_that_fails_later_puts_jobs_off(tmp_path: Path) -> None:
    base = tmp_path / "base"

    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        folders = await place.folders(group)
        base.rename(tmp_path / "away")
        base.write_text("a file")
        with pytest.raises(NoRoom, match="cannot be used"):
            await folders.begin(job(1), 0)
        base.unlink()
        (tmp_path / "away").rename(base)
        await asyncio.sleep(30)
        assert [type(event) for event in place.told] == [DiskShort, DiskBack]
        await folders.end(job(1))
        await folders.close()
        assert names(base) == []

    play(base, story)


def test_many_at_once_in_real_threads(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        folders = Folders(tmp_path, events=Events(), clock=VirtualClock(loop), free_min=0, bytes_max=100)

        async def one(number: int) -> None:
            path = await folders.begin(job(number), 1)
            (path / "a" / "b").mkdir(parents=True)
            (path / "a" / "file").write_text("x")
            assert await folders.size(job(number)) == 1
            await folders.end(job(number))
            assert not path.exists()

        await folders.open()
        async with asyncio.TaskGroup() as group:
            folders.start(group)
            await asyncio.gather(*(one(number) for number in range(100)))
            impatient = asyncio.create_task(one(1000))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            impatient.cancel()
            await asyncio.wait([impatient])
            await folders.sweep()
            await folders.close()
        assert names(tmp_path) == []

    asyncio.run(main())


# ---- processes that die ----

_PROGRAM = """
import asyncio, sys
from pathlib import Path
from peik.clock import SystemClock
from peik.core.events import Events
from peik.jobs.folders import Folders
from tests.jobs.test_folders import job

async def main():
    folders = Folders(Path(sys.argv[1]), events=Events(), clock=SystemClock(), bytes_max=1000, free_min=0)
    await folders.open()
    path = await folders.begin(job(int(sys.argv[2])), 400)
    (path / "half a film").write_bytes(b"x" * 100)
    print(path, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def started(base: Path, number: int) -> "tuple[subprocess.Popen[str], Path]":
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", _PROGRAM, str(base), str(number)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def killed(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_what_a_killed_process_left_is_swept_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    first, first_path = started(tmp_path, 1)
    second, second_path = started(tmp_path, 2)

    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        folders = await place.folders(group, bytes_max=1000)
        with pytest.raises(NoRoom):
            await folders.begin(job(3), 201)
        killed(first)
        assert first_path.is_dir()
        await folders.sweep()
        assert (first_path.exists(), second_path.is_dir()) == (False, True)
        await folders.begin(job(3), 600)
        killed(second)
        place.is_stuck = True
        await asyncio.sleep(SWEEP_S + 1)
        assert place.all_told(FolderLeft)[0].job_id == 2
        await folders.end(job(3))
        with pytest.raises(NoRoom):  # what cannot be removed takes its room
            await folders.begin(job(4), 901)
        place.is_stuck = False
        await asyncio.sleep(RETRY_S_MAX + 1)
        assert not second_path.exists()
        await folders.begin(job(4), 1000)
        await folders.close()
        assert names(tmp_path) == []

    try:
        play(tmp_path, story)
    finally:
        killed(first)
        killed(second)


def test_the_next_start_sweeps(tmp_path: Path) -> None:
    process, path = started(tmp_path, 1)
    killed(process)
    assert path.is_dir()

    async def story(place: Place, group: asyncio.TaskGroup) -> None:
        await (await place.folders(group)).close()

    play(tmp_path, story)
    assert names(tmp_path) == []
