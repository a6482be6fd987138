"""A move that is killed goes on where it was, as often as it is killed, and ends as one that was not."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from peik.job_ports import JobTally
from peik.store.moving.opening import end_of
from peik.store.moving.progress import Progress
from tests.store.acts import draft
from tests.store.all_places import PLACES
from tests.store.job_acts import a_job, queue
from tests.store.moving.filling import fill, fitted, folder, records, url_of
from tests.store.places import Place, SqlitePlace

LETTERS = 24_000
JOBS = 12_000
ENDS_S_MAX = 60.0
COMMAND = "import typer; from peik.doors.commands.migrate import migrate; typer.run(migrate)"


PAIRS = [(SqlitePlace, kind) for kind in PLACES] + [(kind, SqlitePlace) for kind in PLACES[1:]]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].__name__}-{pair[1].__name__}")
def test_a_killed_move_goes_on_and_ends_with_the_same(pair: tuple[type[Place], type[Place]], tmp_path: Path) -> None:
    origin, target = pair[0](folder(tmp_path, "from")), pair[1](folder(tmp_path, "to"))
    asyncio.run(fill_much(origin))
    killed_at = [kill_in_the_middle(origin, target, "letters", int(share * LETTERS)) for share in (0.05, 0.25, 0.45)]
    assert killed_at == sorted(set(killed_at)), "each went on where the one before stopped"
    assert 0 < killed_at[0] < killed_at[-1] < LETTERS
    assert 0 < kill_in_the_middle(origin, target, "jobs", JOBS // 10) < JOBS

    told = end_of_run(start(origin, target))
    assert told["was_begun"]
    assert told["counts"]["letters"] > LETTERS
    fit = end_of(url_of(target)).fit
    before, after = asyncio.run(records(origin, limit=1000)), asyncio.run(records(target, limit=1000))
    assert fitted(after) == fitted(before, fit)
    assert end_of_run(start(origin, target))["was_done"]
    assert asyncio.run(tallies(target)) == asyncio.run(tallies(origin))


def kill_in_the_middle(origin: Place, target: Place, kind: str, count: int) -> int:
    """How many of this kind had been moved when it was killed: so many at least."""
    process = start(origin, target)
    wait_until_moved(process, target, kind, count)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    progress = asyncio.run(progress_of(target))
    assert progress is not None
    assert progress.ended_at_ms is None
    return progress.of(kind).moved.count


async def tallies(place: Place) -> dict[str, JobTally]:
    async with place.open() as store:
        return {kind: tally for kind, tally in (await store.jobs.tallies()).items() if tally != JobTally()}


async def fill_much(origin: Place) -> None:
    async with origin.open() as store:
        await fill(store)
        for first in range(0, LETTERS, 1000):
            await store.accept([draft(one % 100, text=f"{one}") for one in range(first, first + 1000)], at_ms=1)
        for first in range(0, JOBS, 1000):
            await queue(store.jobs, *(a_job(f"u{one % 500}") for one in range(first, first + 1000)))


def start(origin: Place, target: Place) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", COMMAND, "--from", url_of(origin), "--to", url_of(target), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_until_moved(process: "subprocess.Popen[bytes]", target: Place, kind: str, count: int) -> None:
    deadline = time.monotonic() + ENDS_S_MAX
    while True:
        progress = asyncio.run(progress_of(target))
        if progress is not None and progress.of(kind).moved.count >= count:
            return
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline


async def progress_of(target: Place) -> Progress | None:
    """As somebody sees it who looks at the target from outside."""
    if isinstance(target, SqlitePlace) and not target.path.exists():
        return None
    end = end_of(url_of(target))
    try:
        await end.open(is_target=True)
        return await end.progress()
    finally:
        await end.close()


def end_of_run(process: "subprocess.Popen[bytes]") -> dict:
    out, err = process.communicate(timeout=ENDS_S_MAX)
    assert (process.returncode, err) == (0, b"")
    return msgspec.json.decode(out)
