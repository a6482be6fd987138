"""What is particular to SQLite: its file, and what can be wrong with it."""

import asyncio
import os
import stat
from pathlib import Path

import apsw
import pytest

from peik.archive.sql import migrations
from peik.archive.sqlite.archive import APPLICATION_ID, PACKAGE, SqliteArchive
from peik.archive.store import Fed, MessageFilter
from peik.errors import StartError, StoreUnavailable
from tests.archive.places import SqlitePlace, opened
from tests.archive.samples import line, message, session


async def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StartError, match="no archive of Peik's"):
        await SqliteArchive(path).open()


async def test_a_file_of_a_newer_peik_is_refused(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    async with opened(place):
        pass
    connection = apsw.Connection(str(place.path))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StartError, match="newer Peik"):
        await place.make().open()


async def test_a_file_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    connection = apsw.Connection(str(place.path))
    connection.execute(migrations(PACKAGE)[0])
    connection.execute(f"PRAGMA user_version = 1; PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("INSERT INTO updates_states VALUES ('s1', x'01')")
    connection.close()
    for number in range(1, 3):
        async with opened(place) as archive:
            assert await archive.updates_state("s1") == b"\1"
            await archive.feed([line(f"k{number}")])
            assert await archive.fed_to() == {"s1": Fed(first=1, last=number)}


@pytest.mark.parametrize(("before", "after"), [(None, 0o600), (0o644, 0o600), (0o640, 0o640)])
async def test_it_is_for_its_owner_alone_also_if_an_earlier_peik_made_it(
    tmp_path: Path, before: int | None, after: int
) -> None:
    place = SqlitePlace(tmp_path)
    mask = os.umask(0o022)
    try:
        if before is not None:
            async with opened(place):
                pass
            place.path.chmod(before)
        async with opened(place) as archive:
            await archive.feed([line("k1")])
            files = await asyncio.to_thread(lambda: [one.stat() for one in tmp_path.glob(f"{place.path.name}*")])
            assert len(files) == 3
            assert {stat.S_IMODE(one.st_mode) for one in files} == {after}
    finally:
        os.umask(mask)


async def test_a_folder_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="folder exists"):
        await SqliteArchive(tmp_path / "no" / "a").open()


async def test_a_file_that_vanishes_acknowledges_nothing(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    async with opened(place) as archive:
        await archive.keep_messages([message(1)])
        place.path.rename(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailable) as met:
            await archive.keep_messages([message(2)])
        assert met.value.code == "store_gone"
        assert "is gone" in (archive.trouble() or "")
        (tmp_path / "elsewhere").rename(place.path)
        await archive.keep_messages([message(2)])
        assert archive.trouble() is None


async def test_a_piece_that_fails_is_undone_alone(tmp_path: Path) -> None:
    async with opened(SqlitePlace(tmp_path)) as archive:
        told = await asyncio.gather(
            *(archive.add_session(session(f"s{number % 4}")) for number in range(8)), return_exceptions=True
        )
        assert sum(isinstance(one, Exception) for one in told) == 4
        assert (await archive.tally()).sessions == 4


async def test_words_that_many_messages_have_are_found_as_well(tmp_path: Path) -> None:
    async with opened(SqlitePlace(tmp_path)) as archive:
        await archive.keep_messages(
            [message(number, text="سلام" if number % 2 else "Ёж سلام") for number in range(25_000)]
        )
        wanted = MessageFilter(text="سلام")
        found, cursor = await archive.messages(wanted, cursor=None, limit=10)
        rest, _ = await archive.messages(wanted, cursor=cursor, limit=10)
        assert [one.message_id for one in found + rest] == list(range(24_999, 24_979, -1))
        assert await archive.count_messages(wanted) == 25_000
        found, _ = await archive.messages(MessageFilter(text="سلام ежик"), cursor=None, limit=10)
        assert found == []
        found, _ = await archive.messages(MessageFilter(text="سلام еж"), cursor=None, limit=1)
        assert [one.message_id for one in found] == [24_998]
