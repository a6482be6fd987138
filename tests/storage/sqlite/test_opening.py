"""Opening a file: settings that make a commit durable, files that must not be touched, one owner at a time."""

import asyncio
import contextlib
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from peik.clock import SystemClock
from peik.errors import StartError
from peik.outbox.store import Tally
from peik.storage.sqlite.database import APPLICATION_ID, SchemaUpgrade
from peik.storage.sqlite.store import SqliteStore
from tests.patience import PATIENCE_S
from tests.storage.acts import SENT, accept, attempt, draft, edit, find, tally
from tests.storage.places import SqlitePlace
from tests.storage.sqlite import programs
from tests.storage.sqlite.older import rewind


async def test_commits_are_durable_by_wal_and_full_sync(place: SqlitePlace) -> None:
    async with place.open() as store:
        for connection in (store._connection, store._reader):
            settings = [next(connection.execute(f"PRAGMA {name}"))[0] for name in ("journal_mode", "synchronous")]
            assert settings == ["wal", 2]
        assert next(store._reader.execute("PRAGMA query_only"))[0] == 1


async def test_accepting_needs_no_temporary_files(place: SqlitePlace) -> None:
    """They would cost a file per commit, and a full /tmp would stop a store whose own disk has room."""
    async with place.open() as store:
        settings = [next(one.execute("PRAGMA temp_store"))[0] for one in (store._connection, store._reader)]
        assert settings == [2, 2]


async def test_an_edit_that_completed_when_it_was_merged_stays_so(place: SqlitePlace) -> None:
    """As Peik once did it; what refers to it waits for the newer edit, which has the answer."""
    async with place.open() as store:
        (old,), (newer,) = [await accept(store, edit()) for _ in range(2)]
        (dependent,) = await accept(store, draft(2, awaits=old))
    rewind(place.path, 9)
    with contextlib.closing(sqlite3.connect(place.path)) as before:
        before.executescript(
            f"""
            UPDATE letters SET phase = 2, settled_at = created_at WHERE id = {old};
            UPDATE tallies SET apart = 0, completed = 1 WHERE bot_id = 7;
            """
        )
    async with place.open() as store:
        await store.park(await find(store, dependent))
        assert await tally(store) == Tally(waiting=1, delayed=1, completed=1)
        await attempt(store, await find(store, newer), SENT)
        assert await tally(store) == Tally(waiting=1, completed=2)


async def test_before_its_schema_is_changed_the_file_is_copied_and_that_is_said(place: SqlitePlace) -> None:
    async with place.open() as store:
        await accept(store, draft(1))
    rewind(place.path, 9)
    older = place.path.with_name(f"{place.path.name}.before-schema-9")
    older.touch()
    said: list[str] = []
    upgrade = SchemaUpgrade(is_backed_up=True, tell=said.append)
    async with opened(place.path, upgrade) as store:
        assert await tally(store) == Tally(waiting=1)
    copy = place.path.with_name(f"{place.path.name}.before-schema-10")
    assert said[0].startswith(
        f"The schema of {place.path.name} is brought from 9 to {len(upgrade.steps)}: An edit that gave way"
    )
    assert str(copy) in said[1]
    assert copy.stat().st_mode & 0o777 == 0o600
    assert not older.exists()
    with contextlib.closing(sqlite3.connect(copy)) as before:
        assert before.execute("PRAGMA user_version").fetchone() == (9,)
        assert before.execute("SELECT count(*) FROM letters").fetchone() == (1,)
        assert before.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    async with opened(place.path, SchemaUpgrade(is_backed_up=True, tell=said.append)):
        assert len(said) == 2  # once is enough


async def test_without_room_for_the_copy_nothing_is_changed(
    place: SqlitePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.open():
        pass
    rewind(place.path, 9)
    with monkeypatch.context() as full:
        full.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000_000))
        with pytest.raises(StartError, match=r"1 MB free\..*PEIK_BACKUP_BEFORE_UPGRADE=off\. Nothing was changed"):
            async with opened(place.path, SchemaUpgrade(is_backed_up=True)):
                pass
        with contextlib.closing(sqlite3.connect(place.path)) as left:
            assert left.execute("PRAGMA user_version").fetchone() == (9,)
        async with opened(place.path, SchemaUpgrade()):  # whoever has a backup elsewhere
            pass
    assert not list(place.path.parent.glob("*.before-schema-*"))


async def test_a_step_that_the_process_beside_could_not_live_with_waits_for_its_end(place: SqlitePlace) -> None:
    async with place.open():
        steps = [*SchemaUpgrade().steps, "-- All is new.\n-- alone: it looks for what is gone\nCREATE TABLE news (one)"]
        with pytest.raises(StartError, match=r"cannot live with: it looks for what is gone\. Stop it first"):
            async with opened(place.path, SchemaUpgrade(steps=steps), is_owner=False):
                pass
    async with opened(place.path, SchemaUpgrade(steps=steps), is_owner=False) as store:
        assert next(store._reader.execute("PRAGMA user_version"))[0] == len(steps)


@contextlib.asynccontextmanager
async def opened(path: Path, upgrade: SchemaUpgrade, *, is_owner: bool = True) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, clock=SystemClock(), is_owner=is_owner, upgrade=upgrade)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_opening_again_changes_nothing(place: SqlitePlace) -> None:
    def schema() -> list[tuple[object, ...]]:
        with sqlite3.connect(place.path) as connection:
            found = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
            versions = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "application_id")]
        connection.close()
        return [*found, *versions]

    async with place.open() as store:
        await accept(store, draft())
    before = schema()
    for _ in range(2):
        async with place.open() as store:
            assert (await tally(store)).waiting == 1
    assert schema() == before
    assert before[-1] == (APPLICATION_ID,)


def _altered(path: Path, *statements: str) -> bytes:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path.read_bytes()


async def test_a_file_of_a_newer_peik_is_refused_and_left_as_it_is(place: SqlitePlace) -> None:
    async with place.open() as store:
        await accept(store, draft())
    before = _altered(place.path, "PRAGMA user_version = 999", "CREATE TABLE of_the_future (x)")
    with pytest.raises(StartError, match=r"newer Peik .*999.*Upgrade Peik"):
        async with place.open():
            pass
    assert place.path.read_bytes() == before


async def test_another_programs_database_is_refused_and_left_as_it_is(place: SqlitePlace) -> None:
    before = _altered(place.path, "CREATE TABLE theirs (x)", "INSERT INTO theirs VALUES (1)")
    with pytest.raises(StartError, match=r"not one of Peik's\. Name another file"):
        async with place.open():
            pass
    assert place.path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(place: SqlitePlace) -> None:
    place.path.write_text("Dear diary, " * 500)
    before = place.path.read_bytes()
    with pytest.raises(StartError, match="not a SQLite database"):
        async with place.open():
            pass
    assert place.path.read_bytes() == before


async def test_an_empty_file_is_a_new_one(place: SqlitePlace) -> None:
    place.path.touch()
    async with place.open() as store:
        await accept(store, draft())


async def test_a_folder_that_cannot_be_made_is_told(place: SqlitePlace) -> None:
    place.path.parent.joinpath("file").touch()
    place.path = place.path.parent / "file" / "peik.db"
    with pytest.raises(StartError, match="Cannot open"):
        async with place.open():
            pass


async def test_a_second_owner_is_refused_with_the_first_ones_pid(place: SqlitePlace) -> None:
    process = programs.start("own", place.path)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    with pytest.raises(StartError, match=rf"process {process.pid}\) already owns peik.db. Stop it"):
        async with place.open():
            pass
    async with place.open(is_owner=False) as other:  # but it may accept and read
        await accept(other, draft())
    programs.kill(process)
    async with place.open() as store:  # the lock died with its process
        assert (await tally(store)).waiting == 1


async def test_the_owner_is_free_after_a_failed_start(place: SqlitePlace) -> None:
    place.path.write_text("not a database, " * 100)
    with pytest.raises(StartError):
        async with place.open():
            pass
    place.path.unlink()
    async with place.open():
        pass


@pytest.mark.parametrize("turn", range(3))
def test_processes_that_open_a_new_file_at_once_all_succeed(tmp_path: Path, turn: int) -> None:
    racers = [programs.start("race", tmp_path / "peik.db") for _ in range(4)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert [_end(racer) for racer in racers] == [(0, "done\n")] * 4
    connection = sqlite3.connect(tmp_path / "peik.db")
    assert connection.execute("SELECT number FROM letters ORDER BY number").fetchall() == [(1,), (2,), (3,), (4,)]
    connection.close()


def _end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    said = process.communicate(timeout=PATIENCE_S)[0]
    return process.returncode, said


async def test_whoever_gives_up_while_it_is_opened_leaves_it_to_others(place: SqlitePlace) -> None:
    given_up = SqliteStore(place.path, clock=place.clock)
    for turns in range(6):
        opening = asyncio.ensure_future(given_up.open())
        for _ in range(turns):
            await asyncio.sleep(0.002)
        is_open = not opening.cancel()
        await asyncio.wait([opening])
        if is_open:
            await given_up.close()
        async with place.open():
            pass
