"""The disk says no: each fault has its own code and words, nothing is half stored, and work goes on afterwards."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from peik.errors import StartError, StoreUnavailable
from peik.storage.sqlite.store import SqliteStore
from tests.storage.acts import accept, advance, all_lanes, draft, find, mark, tally
from tests.storage.places import BOT, SqlitePlace
from tests.storage.sqlite import programs

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount or to become nobody")


def _impatient(place: SqlitePlace) -> SqliteStore:
    """A second process's store that waits for a lock for 50 ms only."""
    return SqliteStore(place.path, clock=place.clock, is_owner=True, busy_ms=50)


def _blocker(place: SqlitePlace) -> apsw.Connection:
    """Another connection in the middle of a write. Not the standard library's sqlite3: locks of two SQLite libraries in
    one process do not see each other."""
    connection = apsw.Connection(str(place.path))
    connection.execute("BEGIN IMMEDIATE")
    return connection


async def test_a_locked_database_is_told_to_everyone_at_once_and_works_again(place: SqlitePlace) -> None:
    async with place.open() as setup:
        await accept(setup, draft())
    store = _impatient(place)
    await store.open()
    blocker = _blocker(place)
    began = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*(accept(store, draft()) for _ in range(40)), return_exceptions=True)
    waited_s = asyncio.get_running_loop().time() - began
    assert {getattr(one, "code", one) for one in map(_problem, answers)} == {"store_locked"}
    assert waited_s < 40 * 0.05 / 2  # the whole group waited once or twice, not each caller in turn
    assert [one.id for one in (await store.fronts(BOT, [(1, 0)], letters=5))[1, 0].letters] == [1]  # reads go on
    marked = await advance(store, [], [await find(store, 1)])
    assert isinstance(marked.error, StoreUnavailable)
    blocker.execute("ROLLBACK")
    blocker.close()
    await accept(store, draft())
    assert [one.number for one in await _front(store)] == [1, 2]
    await store.close()


def _problem(answer: object) -> object:
    assert isinstance(answer, StoreUnavailable)
    assert "Nothing was accepted" in answer.detail
    return answer


async def _front(store: SqliteStore) -> list:  # type: ignore[type-arg]
    return (await store.fronts(BOT, [(1, 0)], letters=50))[1, 0].letters


async def test_a_store_that_is_locked_can_still_be_closed(place: SqlitePlace) -> None:
    async with place.open():
        pass
    store = _impatient(place)
    await store.open()
    blocker = _blocker(place)
    await store.close()
    blocker.close()
    async with place.open():  # and its ownership is free
        pass


async def test_a_locked_database_does_not_open(place: SqlitePlace) -> None:
    async with place.open():
        pass
    blocker = _blocker(place)
    with pytest.raises(StartError, match="locked by another program"):
        await _impatient(place).open()
    blocker.close()


async def test_a_full_disk_stores_nothing_and_works_again_when_there_is_room(place: SqlitePlace) -> None:
    async with place.open() as store:
        (kept,) = await accept(store, draft())
        pages = next(store._connection.execute("PRAGMA page_count"))[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        big = draft(text="x" * 100_000)
        with pytest.raises(StoreUnavailable) as caught:
            await accept(store, draft(2), big)
        assert caught.value.code == "store_full"
        assert await all_lanes(store) == {(1, 0): [kept]}
        assert (await tally(store)).waiting == 1
        store._connection.execute("PRAGMA max_page_count = 1000000")
        await accept(store, big)
    assert [one.number for one in place.heard.accepted] == [1, 2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small disk here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@needs_root
async def test_a_really_full_disk_keeps_what_was_accepted(small_disk: Path) -> None:
    place = SqlitePlace(small_disk)
    async with place.open() as store:
        with pytest.raises(StoreUnavailable) as caught:
            await _fill(store)
        stored = len(place.heard.accepted)
        assert caught.value.code in ("store_full", "store_io")
        assert 10 < stored < 10_000
        assert (await tally(store)).waiting == stored
        assert len(await all_lanes(store)) == stored
    # An owner writes its epoch: on a disk full to its last page somebody has to make room first.
    await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    async with place.open() as store:
        assert (await tally(store)).waiting == stored


async def _fill(store: SqliteStore) -> None:
    for chat in range(10_000):
        await accept(store, draft(chat, text="x" * 20_000))


async def test_a_connection_that_may_not_write_says_so(place: SqlitePlace) -> None:
    async with place.open() as store:
        store._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreUnavailable) as caught:
            await accept(store, draft())
        assert caught.value.code == "store_read_only"
        store._connection.execute("PRAGMA query_only = OFF")
        (letter_id,) = await accept(store, draft())
        assert await mark(store, await find(store, letter_id)) == [letter_id]


@needs_root
@pytest.mark.parametrize("denied", ["file", "folder", "both"])
async def test_without_the_right_to_write_peik_does_not_start(tmp_path: Path, denied: str) -> None:
    home = Path("/tmp") / f"peik-denied-{os.getpid()}-{denied}"  # nobody may enter pytest's own folders
    home.mkdir()
    try:
        place = SqlitePlace(home)
        async with place.open():
            pass
        for path in (home, *home.iterdir()):
            is_denied = denied == "both" or (denied == "folder") == path.is_dir()
            owner = 0 if is_denied else programs.NOBODY
            os.chown(path, owner, owner)
            path.chmod(0o755 if path.is_dir() else 0o644)
        process = programs.start("denied", place.path)
        said = (await asyncio.to_thread(process.communicate))[0]
        assert said.startswith("StartError: Cannot open"), said
    finally:
        shutil.rmtree(home)


async def test_whoever_could_not_become_the_owner_keeps_nobody_else_from_it(place: SqlitePlace) -> None:
    async with place.open():
        pass
    guest = SqliteStore(place.path, clock=place.clock, is_owner=False, busy_ms=50)
    await guest.open()
    blocker = _blocker(place)
    with pytest.raises(StoreUnavailable):
        await guest.claim()
    blocker.close()
    async with place.open() as owner:
        assert (owner.is_owner, guest.is_owner, await guest.claim()) == (True, False, 0)
    assert await guest.claim() > 0
    await guest.close()
