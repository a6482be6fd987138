"""The simulated disk under SQLite: it fails, fills up, dies with a process, and repeats itself to the byte."""

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from peik.storage.sqlite.database import connect
from simulation import files as sqlite_files
from simulation.disk import Disk
from tests.simulation.pairs import COMMITS, add_pair, make_table, opened, pairs_in


def test_a_killed_process_leaves_what_it_wrote_and_a_checkpoint_in_the_middle(tmp_path: Path) -> None:
    """Without a power cut, what the system was given stays, whether or not it was synced."""
    is_cut_short = False
    for fuse in range(0, 150, 7):
        folder = tmp_path / str(fuse)
        folder.mkdir()
        acknowledged = []
        with Disk(folder, random.Random(fuse), who=lambda: "writer") as disk:
            disk.kill_after("writer", fuse, lambda: None)
            try:
                with opened(folder / "pairs.db", synchronous="OFF") as connection:
                    make_table(connection)
                    for number in range(COMMITS):
                        add_pair(connection, number)
                        acknowledged.append(number)
            except apsw.IOError:
                is_cut_short = True
        assert pairs_in(folder / "pairs.db")[: len(acknowledged)] == acknowledged
    assert is_cut_short


@pytest.mark.parametrize("is_sync_only", [False, True])
def test_a_disk_that_fails_now_and_then_costs_only_what_it_refused(tmp_path: Path, is_sync_only: bool) -> None:
    """A failed sync forgets what it should have written, and the next one succeeds without it, as on Linux."""
    refused = failed = 0
    kinds = set()
    for seed in range(60):
        folder = tmp_path / str(seed)
        folder.mkdir()
        acknowledged = []
        with Disk(folder, random.Random(seed), who=lambda: "writer") as disk:
            with opened(folder / "pairs.db") as connection:
                make_table(connection)
                disk.fails, disk.fails_sync_only = 0.05, is_sync_only
                for number in range(COMMITS):
                    try:
                        add_pair(connection, number)
                    except apsw.IOError as error:
                        kinds.add(error.extendedresult)
                        refused += 1
                    else:
                        acknowledged.append(number)
                disk.kill("writer")
            disk.cut_power()
            failed += disk.failed
        assert set(acknowledged) <= set(pairs_in(folder / "pairs.db")), f"seed {seed}"
    assert failed >= refused > 10
    assert kinds == {apsw.SQLITE_IOERR_FSYNC, *([] if is_sync_only else [apsw.SQLITE_IOERR_WRITE])}


def test_a_full_disk_says_so_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with Disk(tmp_path, random.Random(1), who=lambda: "writer") as disk:
        with opened(tmp_path / "pairs.db", checkpoint_pages=1000) as connection:
            make_table(connection)
            add_pair(connection, 1)
            disk.room_bytes = 5000
            with pytest.raises(apsw.FullError):
                add_pair(connection, 3)
            assert disk.room_bytes == 0
            disk.room_bytes = None
            add_pair(connection, 4)
            disk.kill("writer")
        disk.cut_power()
    assert pairs_in(tmp_path / "pairs.db") == [1, 4]


def test_a_checkpoint_gives_room_back(tmp_path: Path) -> None:
    with Disk(tmp_path, random.Random(1), who=lambda: "writer") as disk, opened(tmp_path / "pairs.db") as connection:
        make_table(connection)
        disk.room_bytes = 1_000_000
        connection.execute("PRAGMA wal_checkpoint = TRUNCATE")
        before = disk.room_bytes
        add_pair(connection, 3)
        wal = (tmp_path / "pairs.db-wal").stat().st_size
        assert disk.room_bytes == before - wal
        grown = -(tmp_path / "pairs.db").stat().st_size
        connection.execute("PRAGMA wal_checkpoint = TRUNCATE")
        grown += (tmp_path / "pairs.db").stat().st_size
        assert disk.room_bytes == before - grown


def test_a_disk_that_became_read_only(tmp_path: Path) -> None:
    """SQLite hears an I/O error for a file that is open, and opens others for reading."""
    path = tmp_path / "pairs.db"
    with Disk(tmp_path, random.Random(1), who=lambda: "writer") as disk, opened(path) as connection:
        make_table(connection)
        add_pair(connection, 1)
        disk.is_read_only = True
        with pytest.raises(apsw.IOError):
            add_pair(connection, 2)
        late = apsw.Connection(str(path))
        with pytest.raises(apsw.ReadOnlyError):
            late.execute("DELETE FROM pairs")
        late.close()
        disk.is_read_only = False
        add_pair(connection, 3)
    assert pairs_in(path) == [1, 3]


def test_a_dead_process_writes_nothing_more_and_another_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "pairs.db"
    owner: str | None = "first"
    with Disk(tmp_path, random.Random(1), who=lambda: owner) as disk, opened(path) as first:
        make_table(first)
        add_pair(first, 1)
        owner = "second"
        with opened(path) as second:
            disk.kill("first")
            with pytest.raises(apsw.IOError):
                add_pair(first, 2)
            add_pair(second, 3)
            first.close()
            add_pair(second, 4)
            owner = None
            assert pairs_in(path) == [1, 3, 4]


def test_the_dead_remove_nothing_when_they_are_closed(tmp_path: Path) -> None:
    """The last connection takes the log with it. One whose process is gone cannot."""
    path = tmp_path / "pairs.db"
    with Disk(tmp_path, random.Random(1), who=lambda: "writer") as disk:
        with opened(path) as connection:
            make_table(connection)
            connection.execute("PRAGMA wal_checkpoint = FULL")  # nothing is left that would have to be written
            disk.kill("writer")
        assert (tmp_path / "pairs.db-wal").exists()


def test_a_fuse_counts_and_tells_once(tmp_path: Path) -> None:
    told = []
    with Disk(tmp_path, random.Random(1), who=lambda: "writer") as disk, opened(tmp_path / "pairs.db") as connection:
        make_table(connection)
        before = disk.writes + disk.syncs
        disk.kill_after("writer", 2, lambda: told.append(disk.writes + disk.syncs - before))
        for number in (1, 2):
            with pytest.raises(apsw.IOError):
                add_pair(connection, number)
    assert told == [2]


def test_the_power_is_not_cut_under_an_open_file(tmp_path: Path) -> None:
    with Disk(tmp_path, random.Random(1), who=lambda: "writer") as disk:
        with opened(tmp_path / "pairs.db"), pytest.raises(RuntimeError, match=r"pairs\.db is open"):
            disk.cut_power()
        disk.cut_power()


def test_the_witness_never_fails(tmp_path: Path) -> None:
    with Disk(tmp_path, random.Random(1), who=lambda: None) as disk:
        disk.fails, disk.room_bytes, disk.is_read_only = 1.0, 0, True
        with opened(tmp_path / "pairs.db") as connection:
            make_table(connection)
            add_pair(connection, 1)
    assert disk.failed == 0


def test_files_elsewhere_are_left_alone(tmp_path: Path) -> None:
    inside, outside = tmp_path / "disk", tmp_path / "disk-elsewhere"
    inside.mkdir()
    outside.mkdir()
    with Disk(inside, random.Random(1), who=lambda: "writer") as disk:
        disk.fails = 1.0
        with opened(outside / "pairs.db") as connection:
            make_table(connection)
            add_pair(connection, 1)
            assert sqlite_files._files == {}
            with (outside / "plain").open("wb") as file:
                os.fsync(file)
        disk.cut_power()
    assert (disk.writes, disk.syncs, disk.failed) == (0, 0, 0)
    assert pairs_in(outside / "pairs.db") == [1]


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_one_seed_one_life_to_the_byte(tmp_path: Path, is_power_cut: bool) -> None:
    lives_seen = []
    for name in ("once", "again"):
        folder = tmp_path / name
        folder.mkdir()
        with Disk(folder, random.Random(5), who=lambda: "writer") as disk:
            disk.fails = 0.02
            disk.kill_after("writer", 120, lambda: None)
            with opened(folder / "pairs.db", synchronous="NORMAL", checkpoint_pages=20) as connection:
                make_table(connection)
                for number in range(2 * COMMITS):
                    try:
                        add_pair(connection, number)
                    except apsw.IOError:
                        continue
            if is_power_cut:
                disk.cut_power()
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        lives_seen.append((files, disk.writes, disk.syncs, disk.failed, disk.lost_writes, disk.torn_writes))
    assert lives_seen[0] == lives_seen[1]
    assert lives_seen[0][0].keys() >= {"pairs.db", "pairs.db-wal"}  # the log, too, with its salts


def test_nothing_is_left_of_a_disk_that_is_gone(tmp_path: Path) -> None:
    real = os.fsync
    methods = 0
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with Disk(folder, random.Random(seed), who=lambda: "writer"), opened(folder / "pairs.db") as connection:
            make_table(connection)
            assert os.fsync is not real
        assert (sqlite_files._files, sqlite_files._watched) == ({}, {})
        methods = methods or len(sqlite_files._installed[0]._methods)
    assert os.fsync is real
    assert len(sqlite_files._installed[0]._methods) == methods


def test_threads_may_open_and_write_at_once(tmp_path: Path) -> None:
    inside, outside = tmp_path / "disk", tmp_path / "elsewhere"

    def write(path: Path) -> list[int]:
        for number in range(COMMITS):
            with opened(path) as connection:
                make_table(connection)
                add_pair(connection, number)
        return pairs_in(path)

    inside.mkdir()
    outside.mkdir()
    paths = [folder / f"{number}.db" for number in range(3) for folder in (inside, outside)]
    with Disk(inside, random.Random(1), who=lambda: "writer") as disk, ThreadPoolExecutor(len(paths)) as threads:
        assert list(threads.map(write, paths)) == [list(range(COMMITS))] * len(paths)
        disk.cut_power()
    assert [pairs_in(path) for path in paths] == [list(range(COMMITS))] * len(paths)


def test_what_goes_wrong_below_sqlite_is_raised_in_the_end(tmp_path: Path) -> None:
    def explode() -> None:
        raise ZeroDivisionError

    disk = Disk(tmp_path, random.Random(1), who=lambda: "writer")
    disk.__enter__()
    disk.kill_after("writer", 0, explode)
    with pytest.raises(apsw.IOError):
        connect(tmp_path / "pairs.db", busy_ms=0)
    with pytest.raises(RuntimeError) as caught:
        disk.__exit__(None, None, None)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
