"""Room in the log: made in few steps ahead of the commits, never mistaken for letters, and never taken from a full disk."""

import random
import shutil
from pathlib import Path

from peik.storage.sqlite.store import SqliteStore
from simulation.disk import Disk
from tests.storage.acts import accept, draft, tally
from tests.storage.places import SqlitePlace

COMMITS = 60


def log_bytes(place: SqlitePlace) -> int:
    return place.path.with_name("peik.db-wal").stat().st_size


async def accept_many(place: SqlitePlace, store: SqliteStore) -> list[int]:
    """Commit by commit; how long the log was after each."""
    lengths = []
    for number in range(COMMITS):
        await accept(store, draft(number))
        lengths.append(log_bytes(place))
    return lengths


async def test_the_log_becomes_longer_in_few_steps(place: SqlitePlace) -> None:
    async with place.open() as store:
        lengths = await accept_many(place, store)
    assert lengths == sorted(lengths)
    assert len(set(lengths)) < COMMITS / 10


async def test_one_commit_alone_makes_no_room(place: SqlitePlace) -> None:
    async with place.open() as store:
        await accept_many(place, store)
        full = log_bytes(place)
        guest = SqliteStore(place.path, clock=place.clock, is_owner=False)
        await guest.open()
        await accept(guest, draft())
        assert log_bytes(place) == full
        await guest.close()


async def test_what_was_acknowledged_is_found_before_the_room(place: SqlitePlace, tmp_path: Path) -> None:
    copy = SqlitePlace(tmp_path / "copy")
    copy.path.parent.mkdir()
    async with place.open() as store:
        lengths = await accept_many(place, store)
        assert lengths[-1] == lengths[-2], "the last commit went into room that was there"
        for name in ("peik.db", "peik.db-wal"):  # as a power cut leaves them
            shutil.copy(place.path.with_name(name), copy.path.with_name(name))
    async with copy.open() as found:
        assert (await tally(found)).waiting == COMMITS


async def test_room_that_the_disk_does_not_have_is_given_back(place: SqlitePlace, tmp_path: Path) -> None:
    with Disk(tmp_path, random.Random(1), who=lambda: "Peik") as disk:
        async with place.open() as store:
            before, letters = log_bytes(place), 0
            disk.room_bytes = 100_000  # less than a step, more than a few commits need
            while log_bytes(place) == before:
                await accept(store, draft(text="x" * 20_000))
                letters += 1
            await accept(store, draft())  # here room is looked for
            assert before < log_bytes(place) < before + 100_000
            assert disk.room_bytes > 0
            assert (await tally(store)).waiting == letters + 1
