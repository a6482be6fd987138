"""What is SQLite's own: a copy of one moment with the files that its letters need, whoever writes meanwhile."""

import asyncio
from collections.abc import Collection
from pathlib import Path

import apsw
import pytest

from peik.backups.model import BackupWatch, told
from peik.backups.sqlite import FILE, SqliteBackupSource
from peik.errors import Conflict, StartError, StoreUnavailable, Unavailable
from peik.storage.sqlite.database import OwnerLock
from tests.backups.trips import backups_in
from tests.storage.acts import accept, draft, enclosed
from tests.storage.moving.filling import BLOB
from tests.storage.places import SqlitePlace

OTHER = "f" * 32


async def untried(path: Path) -> None:
    raise AssertionError("nothing is tried out here")


def done(path: Path, sql: str) -> list[tuple[object, ...]]:
    """By somebody else, as another process would."""
    other = apsw.Connection(str(path))
    try:
        return other.execute(sql).fetchall()
    finally:
        other.close()


def source(path: Path) -> SqliteBackupSource:
    return SqliteBackupSource(path, locks=(), has_letters=True, try_out=untried)


async def test_a_letter_that_ends_while_it_is_copied_is_not_in_the_copy_without_its_file(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    async with place.open() as store:
        ended, waits = await accept(
            store, draft(enclosed=(enclosed(OTHER),)), draft(chat=2, enclosed=(enclosed(BLOB),))
        )
    held: list[Collection[str] | None] = []

    def hold(blobs: Collection[str] | None) -> set[str]:
        held.append(blobs)
        if len(held) > 1:
            return set()
        # It ends between the snapshot and the look at its file.
        done(place.path, f"DELETE FROM letters WHERE id = {ended}")
        return {OTHER}

    await source(place.path).copy(tmp_path / "copy", name="store", hold=hold, watch=BackupWatch())
    assert held == [{OTHER, BLOB}, {BLOB}]
    assert done(tmp_path / "copy" / FILE, "SELECT id FROM letters") == [(waits,)]


async def test_a_file_that_was_lost_before_is_named_and_keeps_nothing_from_being_backed_up(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft(enclosed=(enclosed(BLOB),)))
    warned: list[str] = []
    made = await backups_in(tmp_path, place).create(BackupWatch(warn=warned.append))
    assert made.manifest.missing_files == (BLOB,)
    assert len(warned) == 1


async def test_a_copy_is_of_one_moment_and_does_not_begin_anew_when_others_write(tmp_path: Path) -> None:
    path = tmp_path / "peik.db"
    done(path, "PRAGMA journal_mode = WAL")
    done(path, "CREATE TABLE pair (number INTEGER, filling BLOB)")
    done(path, "INSERT INTO pair VALUES (0, zeroblob(20000000)), (0, zeroblob(20000000))")
    steps = [0]

    def write(pages: int) -> None:
        steps[0] += 1
        done(path, "UPDATE pair SET number = number + 1")

    copied = await source(path).copy(
        tmp_path / "copy", name="store", hold=lambda blobs: set(), watch=BackupWatch(step=write)
    )
    assert copied.counts == {"pair": 2}
    assert 3 <= steps[0] <= 20
    assert done(tmp_path / "copy" / FILE, "SELECT DISTINCT number FROM pair") == [(0,)]
    assert done(path, "SELECT DISTINCT number FROM pair") == [(steps[0],)]


async def test_a_damaged_store_gives_way_to_a_backup(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    backups = backups_in(tmp_path, place)
    made = await backups.create(BackupWatch())
    place.path.write_bytes(b"no database at all" * 1000)
    place.path.with_name("peik.db-wal").write_bytes(b"nor a log")
    await backups.restore(made.path, BackupWatch())
    async with place.open() as store:
        assert await accept(store, draft()) == [2]
    # What could not be read is kept, its log too, under the name by which SQLite finds it.
    assert place.path.with_name("peik.db.before-restore").read_bytes().startswith(b"no database at all")
    assert place.path.with_name("peik.db.before-restore-wal").read_bytes() == b"nor a log"


async def test_a_log_that_was_set_aside_is_not_taken_for_that_of_the_next_one(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    backups = backups_in(tmp_path, place)
    made = await backups.create(BackupWatch())
    place.path.with_name("peik.db.before-restore").write_bytes(b"of long ago")
    place.path.with_name("peik.db.before-restore-wal").write_bytes(b"its log")
    await backups.restore(made.path, BackupWatch())
    assert not place.path.with_name("peik.db.before-restore-wal").exists()
    assert done(place.path.with_name("peik.db.before-restore"), "SELECT count(*) FROM letters") == [(1,)]


async def test_nobody_begins_to_run_on_it_until_it_is_restored(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    backups = backups_in(tmp_path, place)
    made = await backups.create(BackupWatch())
    stages: dict[str, list[bool]] = {}

    def begin(words: str, total: int) -> None:
        stages[words] = [OwnerLock(place.path, suffix=suffix).is_taken() for suffix in (".owner", ".server")]

    await backups.restore(made.path, BackupWatch(begin=begin))
    assert stages["Unpacking"] == stages["Putting files back"] == [True, True]
    assert not OwnerLock(place.path).is_taken()


async def test_a_store_that_can_be_copied_and_not_counted_is_told(tmp_path: Path) -> None:
    path = tmp_path / "peik.db"
    done(path, "CREATE TABLE torn (number INTEGER)")
    done(path, "INSERT INTO torn VALUES (1)")
    ((page_bytes,),) = done(path, "PRAGMA page_size")
    assert isinstance(page_bytes, int)
    with path.open("r+b") as file:
        file.seek(page_bytes)  # its one table is the second page
        file.write(b"\xff" * page_bytes)
    with pytest.raises(StoreUnavailable) as caught:
        await source(path).copy(tmp_path / "copy", name="store", hold=lambda blobs: set(), watch=BackupWatch())
    assert caught.value.code == "store_error"


def test_a_full_disk_is_told() -> None:
    """`/dev/full` is a disk that is always full."""
    with pytest.raises(Unavailable) as caught, told("The backup"), Path("/dev/full").open("wb", buffering=0) as full:
        full.write(b"x")
    assert caught.value.code == "disk_full"


async def test_two_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    backups = backups_in(tmp_path, place)
    both = await asyncio.gather(backups.create(BackupWatch()), backups.create(BackupWatch()))
    assert sorted(path.name for path in backups.folder.iterdir()) == sorted(made.path.name for made in both)


async def test_one_of_a_newer_schema_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    done(place.path, "PRAGMA user_version = 9999")
    backups = backups_in(tmp_path, place)
    made = await backups.create(BackupWatch())
    with pytest.raises(Conflict) as caught:
        await backups.restore(made.path, BackupWatch())
    assert caught.value.code == "newer_backup"
    assert done(place.path, "PRAGMA user_version") == [(9999,)]


# ---- PEIK_BACKUP_ALSO ----


async def test_the_file_of_a_program_comes_back_with_the_store(tmp_path: Path) -> None:
    """A copy of what was committed, though its program has it open and in WAL mode."""
    place, book = SqlitePlace(tmp_path), tmp_path / "bot" / "downloader.db"
    book.parent.mkdir()
    async with place.open() as store:
        await accept(store, draft())
    program = apsw.Connection(str(book))
    program.execute("PRAGMA journal_mode = WAL").fetchall()
    program.execute("CREATE TABLE people (id INTEGER); INSERT INTO people VALUES (1), (2)")
    backups = backups_in(tmp_path, place, backup_also=str(book))
    made = await backups.create(BackupWatch())
    part = made.manifest.part("also-downloader.db")
    assert part is not None
    assert part.counts == {"people": 2}
    await backups.verify(made.path, BackupWatch())
    program.execute("DELETE FROM people")
    with pytest.raises(Conflict, match=r"Another program has .* open"):
        await backups.restore(made.path, BackupWatch())
    program.close()
    await backups.restore(made.path, BackupWatch())
    assert done(book, "SELECT id FROM people") == [(1,), (2,)]


async def test_who_restores_without_it_is_told_to_name_it_and_a_missing_one_stops_nothing(tmp_path: Path) -> None:
    place, book = SqlitePlace(tmp_path), tmp_path / "downloader.db"
    async with place.open():
        pass
    warned: list[str] = []
    without = await backups_in(tmp_path, place, backup_also=str(book)).create(BackupWatch(warn=warned.append))
    assert without.manifest.part("also-downloader.db") is None
    assert [str(book) in one for one in warned] == [True]
    done(book, "CREATE TABLE people (id INTEGER)")
    made = await backups_in(tmp_path, place, backup_also=str(book)).create(BackupWatch())
    with pytest.raises(Conflict, match=f"PEIK_BACKUP_ALSO={book}"):
        await backups_in(tmp_path, place).restore(made.path, BackupWatch())
    with pytest.raises(StartError, match="two files of one name"):
        backups_in(tmp_path, place, backup_also="a/bot.db, b/bot.db")
