"""A move that is killed goes on where it was, as often as it is killed, and ends as one that was not."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from peik.jobs.store import JobTally
from peik.storage.moving.ends import MoveProgress
from peik.storage.moving.move import PAGE, end_of
from tests.patience import PATIENCE_S
from tests.storage.acts import draft
from tests.storage.all_places import PLACES
from tests.storage.job_acts import a_job, queue
from tests.storage.moving.filling import fill, fitted, folder, records, taken_back, url_of
from tests.storage.places import Place, SqlitePlace

pytestmark = pytest.mark.gate  # kills of a move

LETTERS = 3 * PAGE + 500
JOBS = 2 * PAGE + 500

PAIRS = [(SqlitePlace, kind) for kind in PLACES] + [(kind, SqlitePlace) for kind in PLACES[1:]]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].__name__}-{pair[1].__name__}")
def test_a_killed_move_goes_on_and_ends_with_the_same(pair: tuple[type[Place], type[Place]], tmp_path: Path) -> None:
    origin, target = pair[0](folder(tmp_path, "from")), pair[1](folder(tmp_path, "to"))
    asyncio.run(fill_much(origin))
    assert kill(origin, target, "before", "letters", PAGE) < PAGE
    first = kill(origin, target, "after", "letters", PAGE)
    second = kill(origin, target, "during", "letters", first + 1)
    last = kill(origin, target, "after", "letters", second + 1)
    assert PAGE <= first <= second < last < LETTERS
    assert PAGE <= kill(origin, target, "after", "jobs", PAGE) < JOBS

    told = end_of_run(start(origin, target))
    assert told["was_begun"]
    assert told["counts"]["letters"] > LETTERS
    fit = end_of(url_of(target)).fit
    before, after = asyncio.run(records(origin, limit=1000)), asyncio.run(records(target, limit=1000))
    assert fitted(after) == fitted(before, fit)
    assert end_of_run(start(origin, target))["was_done"]
    assert asyncio.run(tallies(target)) == asyncio.run(tallies(origin))


def kill(origin: Place, target: Place, moment: str, kind: str, count: int) -> int:
    """How many of this kind had been moved when it was killed at the page that makes them `count` or more."""
    process = start(origin, target, "-m", "tests.storage.moving.mortal", moment, kind, str(count))
    told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGKILL, told
    progress = asyncio.run(progress_of(target))
    assert progress.ended_at_ms is None
    return progress.of(kind).moved.count


async def tallies(place: Place) -> dict[str, JobTally]:
    async with (await taken_back(place)).open() as store:
        return {kind: tally for kind, tally in (await store.jobs.tallies()).items() if tally != JobTally()}


async def fill_much(origin: Place) -> None:
    async with origin.open() as store:
        await fill(store)
        for first in range(0, LETTERS, 1000):
            await store.accept([draft(one % 100, text=f"{one}") for one in range(first, first + 1000)], at_ms=1)
        for first in range(0, JOBS, 1000):
            await queue(store.jobs, *(a_job(f"u{one % 500}") for one in range(first, first + 1000)))


def start(origin: Place, target: Place, *program: str) -> "subprocess.Popen[bytes]":
    command = [
        sys.executable,
        *(program or ("-m", "peik", "migrate")),
        "--from",
        url_of(origin),
        "--to",
        url_of(target),
    ]
    return subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


async def progress_of(target: Place) -> MoveProgress:
    """As somebody sees it who looks at the target from outside."""
    end = end_of(url_of(target))
    try:
        await end.open(is_target=True)
        progress = await end.progress()
        assert progress is not None
        return progress
    finally:
        await end.close()


def end_of_run(process: "subprocess.Popen[bytes]") -> dict:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, b"")
    return msgspec.json.decode(out)
