"""The simulated disk under files that Peik writes itself: kept are those that were synced, in a folder that was synced."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from peik.errors import StoreUnavailable
from peik.storage.spool import FolderSpool
from simulation.disk import Disk

CONTENT = bytes(range(256)) * 20
SEEDS = 40


async def _chunks() -> AsyncIterator[bytes]:
    yield CONTENT[:1000]
    yield CONTENT[1000:]


def keep(spool: FolderSpool) -> Path:
    return spool.path_of(asyncio.run(spool.keep(_chunks(), size_bytes_max=len(CONTENT))).blob)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def found_after_cuts(folder: Path, write: Callable[[Path], None]) -> list[bytes | None]:
    """What a file holds after each of many power cuts; None if it is gone."""
    found = []
    for seed in range(SEEDS):
        home = folder / str(seed)
        home.mkdir()
        path = home / "file"
        with Disk(home, random.Random(seed), who=lambda: "peik") as disk:
            write(path)
            disk.cut_power()
        found.append(path.read_bytes() if path.exists() else None)
    return found


def test_a_file_of_a_letter_survives(tmp_path: Path) -> None:
    for seed in range(SEEDS):
        home = tmp_path / str(seed)
        home.mkdir()
        with Disk(home, random.Random(seed), who=lambda: "peik") as disk:
            paths = [keep(FolderSpool(home / "files")) for _ in range(2)]
            disk.cut_power()
        assert [path.read_bytes() for path in paths] == [CONTENT, CONTENT]


def test_a_file_that_was_not_synced_is_whole_or_shorter_or_gone(tmp_path: Path) -> None:
    found = found_after_cuts(tmp_path, lambda path: path.write_bytes(CONTENT) and None)
    assert {None, b"", CONTENT} <= set(found)
    parts = [one for one in found if one not in (None, b"", CONTENT)]
    assert parts
    # Its new length may have been written before its bytes were.
    assert all(CONTENT.startswith(one.rstrip(b"\0")) for one in parts if one is not None)


def test_a_file_that_was_synced_in_a_folder_that_was_not_is_whole_or_gone(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_bytes(CONTENT)
        sync(path)

    assert set(found_after_cuts(tmp_path, write)) == {None, CONTENT}


def test_what_was_added_after_the_sync_is_at_stake_and_nothing_before(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_bytes(CONTENT)
        sync(path)
        sync(path.parent)
        with path.open("ab") as file:
            file.write(CONTENT)

    found = set(found_after_cuts(tmp_path, write))
    assert {CONTENT, CONTENT + CONTENT} < found
    assert all(one is not None and one.startswith(CONTENT) for one in found)


def test_a_removal_that_was_not_synced_may_not_have_happened(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_bytes(CONTENT)
        sync(path)
        sync(path.parent)
        path.unlink()

    assert set(found_after_cuts(tmp_path, write)) == {None, CONTENT}


def test_a_file_cannot_be_kept_on_a_disk_that_fails_or_is_full_or_dies(tmp_path: Path) -> None:
    with Disk(tmp_path, random.Random(1), who=lambda: "peik") as disk:
        spool = FolderSpool(tmp_path / "files")
        keep(spool)
        for disk.fails, disk.room_bytes in ((1.0, None), (0.0, 100)):
            with pytest.raises(StoreUnavailable):
                keep(spool)
        disk.fails, disk.room_bytes = 0.0, None
        keep(spool)
        deaths = []
        disk.kill_after("peik", 1, lambda: deaths.append(1))
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                keep(spool)
        assert deaths == [1]


def test_a_folder_whose_first_sync_failed_is_synced_by_the_next_file(tmp_path: Path) -> None:
    for seed in range(8):
        home = tmp_path / str(seed)
        home.mkdir()
        with Disk(home, random.Random(seed), who=lambda: "peik") as disk:
            spool = FolderSpool(home / "files")
            disk.fails = 1.0
            with pytest.raises(StoreUnavailable):
                keep(spool)
            disk.fails = 0.0
            path = keep(spool)
            disk.cut_power()
        assert path.exists()


def test_locks_are_spared(tmp_path: Path) -> None:
    for seed in range(10):
        with Disk(tmp_path, random.Random(seed), who=lambda: "peik") as disk:
            (tmp_path / "peik.db.owner").write_text("1234")
            disk.cut_power()
        assert (tmp_path / "peik.db.owner").read_text() == "1234"
