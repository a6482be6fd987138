"""Opening: a schema of our own, made once, never somebody else's; and what the server promises."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from peik.archive.postgres.connection import translate as translate_for_archive
from peik.core.nodes import CHORES
from peik.core.token import Token
from peik.errors import BadInput, StartError, StoreUnavailable
from peik.outbox.store import BotRecord
from peik.storage.postgres.errors import translate
from peik.storage.postgres.store import PostgresStore
from tests.storage.acts import accept, draft
from tests.storage.places import ManualClock
from tests.storage.postgres_place import PostgresPlace
from tests.storage.servers import PostgresServer


async def test_nodes_that_open_a_new_schema_at_once_all_open_it(place: PostgresPlace) -> None:
    async def open_one() -> None:
        async with place.open(is_owner=False) as store:
            await accept(store, draft(1))

    await asyncio.gather(*(open_one() for _ in range(4)))
    assert (await place.run("SELECT count(*) FROM letters"))[0][0] == 4
    versions = [row["version"] for row in await place.run("SELECT version FROM peik_schema ORDER BY version")]
    assert versions == list(range(1, len(versions) + 1))


async def test_a_schema_with_other_tables_is_left_alone(place: PostgresPlace) -> None:
    await place.run(f"CREATE SCHEMA {place.schema}")
    await place.run("CREATE TABLE letters (theirs text)")
    with pytest.raises(StartError, match="not Peik's"):
        async with place.open():
            pass
    tables = await place.run("SELECT tablename::text FROM pg_tables WHERE schemaname = $1", place.schema)
    assert [row[0] for row in tables] == ["letters"]


async def test_a_schema_of_a_newer_peik_is_left_alone(place: PostgresPlace) -> None:
    async with place.open():
        pass
    await place.run("INSERT INTO peik_schema (version) VALUES (999)")
    with pytest.raises(StartError, match="newer Peik"):
        async with place.open():
            pass


async def test_two_schemas_in_one_database_know_nothing_of_each_other(place: PostgresPlace, tmp_path: Path) -> None:
    other = PostgresPlace(tmp_path)
    async with place.open() as mine, other.open() as theirs:
        await accept(mine, draft(1))
        assert (await place.run("SELECT count(*) FROM letters"))[0][0] == 1
        assert (await other.run("SELECT count(*) FROM letters"))[0][0] == 0
        assert set((await mine.nodes.beat()).leases) == set((await theirs.nodes.beat()).leases) == {CHORES, 7, 8}
        await theirs.save_bot(BotRecord(bot_id=9, token=Token("9:secret")))
        async with other.open(is_owner=False) as third:
            await third.hold(9, None, 1)
            assert (await theirs.nodes.news()).accepted == ()  # only what happens in their own


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u:hidden@127.0.0.1:1/db", "cannot be reached"),
        ("postgresql://u:hidden@127.0.0.1/db?schema=Robert'); DROP", "schema"),
        ("mysql://u:hidden@127.0.0.1/db", "postgresql://"),
    ],
)
async def test_what_cannot_be_opened_says_why_and_never_the_password(url: str, words: str) -> None:
    with pytest.raises(StartError, match=words) as told:
        await PostgresStore(url, clock=ManualClock()).open()
    assert "hidden" not in str(told.value)


async def test_a_database_that_is_not_there_is_said_to_be_missing(place: PostgresPlace) -> None:
    place.url = place.url.replace("/postgres?", "/nowhere?")
    with pytest.raises(StartError, match="no such database"):
        async with place.open():
            pass


async def test_what_the_server_does_not_promise_is_told(tmp_path: Path) -> None:
    server = PostgresServer({"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"})
    try:
        server.start()
        async with PostgresPlace(tmp_path, server).open() as store:
            told = await store.nodes.durability()
            assert [word for word in ("fsync", "full_page_writes", "synchronous_commit") if word in " ".join(told)] == [
                "fsync",
                "full_page_writes",
                "synchronous_commit",
            ]
            session = await store._writer._connected()
            assert await session.connection.fetchval("SHOW synchronous_commit") == "on"
    finally:
        server.remove()


async def test_a_server_as_it_comes_promises_all_and_one_that_is_read_only_says_so(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    place = PostgresPlace(tmp_path, own_server)
    async with place.open() as store:
        assert await store.nodes.durability() == []
        await place.run("ALTER SYSTEM SET default_transaction_read_only = on")
        await place.run("SELECT pg_reload_conf()")
        refused: list[str] = []
        while not refused:  # the server reads its settings in its own time
            try:
                await accept(store, draft(1))
            except StoreUnavailable as error:
                refused.append(error.code)
        assert refused == ["store_read_only"]
        assert store.trouble() is not None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (asyncpg.DiskFullError("no space left on device"), "store_full"),
        (asyncpg.TooManyConnectionsError("sorry, too many clients already"), "store_busy"),
        (asyncpg.DeadlockDetectedError("deadlock detected"), "store_locked"),
        (asyncpg.LockNotAvailableError("canceling statement due to lock timeout"), "store_locked"),
        (asyncpg.CannotConnectNowError("the database system is starting up"), "store_gone"),
        (asyncpg.AdminShutdownError("terminating connection"), "store_gone"),
        (asyncpg.ConnectionDoesNotExistError("connection was closed"), "store_gone"),
        (ConnectionRefusedError(111, "refused"), "store_gone"),
        (TimeoutError(), "store_gone"),
        (asyncpg.InvalidPasswordError("password authentication failed"), "store_denied"),
        (asyncpg.DataCorruptedError("invalid page"), "store_corrupt"),
        (asyncpg.DivisionByZeroError("a surprise"), "bad_value"),
        (asyncpg.UndefinedColumnError("a surprise"), "store_error"),
    ],
)
def test_the_servers_words_become_ours(error: BaseException, code: str) -> None:
    for told in (translate(error), translate_for_archive(error)):
        assert isinstance(told, StoreUnavailable | BadInput)
        assert told.code == code


def test_a_disk_error_is_not_told_as_if_nothing_had_been_stored() -> None:
    told = translate_for_archive(asyncpg.PostgresIOError("could not fsync file"))
    assert isinstance(told, StoreUnavailable)
    assert told.code == "store_io"
    assert "may be there or not" in told.detail
    assert "PEIK_ARCHIVE" in str(translate_for_archive(asyncpg.InvalidPasswordError("no")))
