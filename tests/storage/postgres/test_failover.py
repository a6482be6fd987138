"""Two servers in one address: the one that may be written is found, whichever it is by now."""

from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from peik.errors import StartError, StoreUnavailable
from peik.outbox.store import Tally
from peik.storage.postgres.session import read_address
from peik.storage.postgres.writer import SURELY_THERE_S
from tests.storage.acts import accept, draft, tally
from tests.storage.places import BOT
from tests.storage.postgres.facts import until
from tests.storage.postgres.proxy import Proxy
from tests.storage.postgres_place import PostgresPlace
from tests.storage.servers import USER, PostgresServer

END_ALL = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = 'peik'"


@pytest.fixture
def standby(own_server: PostgresServer) -> Iterator[PostgresServer]:
    server = PostgresServer({}, standby_of=own_server.url)
    server.start()
    yield server
    server.remove()


def _place(folder: Path, *ports: int, surely_there_s: float = SURELY_THERE_S) -> PostgresPlace:
    place = PostgresPlace(folder)
    place.surely_there_s = surely_there_s
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    place.url = f"postgresql://{USER}@{servers}/postgres"
    return place


async def test_letters_go_to_the_primary_wherever_it_stands_in_the_address_and_to_the_standby_once_it_is_promoted(
    tmp_path: Path, own_server: PostgresServer, standby: PostgresServer
) -> None:
    async with _place(tmp_path, standby.port, own_server.port).open() as store:
        await accept(store, draft(1))
        assert await tally(store) == Tally(waiting=1)
        await _followed(own_server, standby)
        own_server.stop()
        with pytest.raises(StoreUnavailable):
            await accept(store, draft(1))
        await _run(standby, "SELECT pg_promote()")
        await accept(store, draft(1))
        assert await tally(store) == Tally(waiting=2)


async def test_a_standby_that_no_commit_waits_for_is_known(
    tmp_path: Path, own_server: PostgresServer, standby: PostgresServer
) -> None:
    async with _place(tmp_path, own_server.port).open() as store:
        await _followed(own_server, standby)
        assert await store.nodes.failover_loses()
        await _run(own_server, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        await _run(own_server, "SELECT pg_reload_conf()")

        async def is_waited_for() -> bool:
            return not await store.nodes.failover_loses()

        await until(is_waited_for)
        standby.stop()
        await _run(own_server, "ALTER SYSTEM RESET synchronous_standby_names")
        await _run(own_server, "SELECT pg_reload_conf()")

        async def is_reset() -> bool:
            return not await _run(own_server, "SHOW synchronous_standby_names")

        await until(is_reset)
        assert not await store.nodes.failover_loses()  # nobody follows


async def test_a_standby_alone_is_refused_at_the_start(tmp_path: Path, standby: PostgresServer) -> None:
    with pytest.raises(StartError, match="read-only"):
        await _place(tmp_path, standby.port).make(is_owner=True).open()


async def test_an_address_that_led_to_a_standby_is_gone_to_again(
    tmp_path: Path, own_server: PostgresServer, standby: PostgresServer
) -> None:
    async with (
        Proxy(own_server.port).running() as way,
        _place(tmp_path, way.port, surely_there_s=0.0).open() as store,
    ):
        await accept(store, draft(1))
        await _followed(own_server, standby)
        way.server_port = standby.port  # whoever moved the address was too quick
        await _run(own_server, END_ALL)
        with pytest.raises(StoreUnavailable, match="read-only"):
            await accept(store, draft(1))
        way.server_port = own_server.port
        await accept(store, draft(1))
        assert await tally(store) == Tally(waiting=2)


async def test_a_machine_that_says_nothing_is_passed_over_in_time_for_a_beat(
    tmp_path: Path, own_server: PostgresServer
) -> None:
    async with Proxy(own_server.port).running() as silent:
        silent.answers.clear()
        place = _place(tmp_path, silent.port, own_server.port)
        async with place.open() as store:
            store._neighbourhood._patience_s = 3.0
            store._neighbourhood._drop()
            assert BOT in (await store.nodes.beat()).leases


def test_each_of_several_servers_is_asked_with_the_same_account_whether_it_may_be_written() -> None:
    both = read_address("postgresql://me:a%2Cb@one,two:5433/peik?sslmode=require&schema=shop")
    rest = "/peik?sslmode=require&target_session_attrs=read-write"
    assert both.hosts == (f"postgresql://me:a%2Cb@one{rest}", f"postgresql://me:a%2Cb@two:5433{rest}")
    assert both.shown == "postgresql://one,two:5433/peik?schema=shop"
    assert read_address("postgresql://me@one/peik").hosts == ("postgresql://me@one/peik",)
    asked = "/peik?target_session_attrs=any"
    assert read_address(f"postgresql://one,two{asked}").hosts[1] == f"postgresql://two{asked}"


async def _run(server: PostgresServer, sql: str) -> object:
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def _followed(primary: PostgresServer, standby: PostgresServer) -> None:
    written = await _run(primary, "SELECT pg_current_wal_lsn()::text")

    async def has_it() -> bool:
        return bool(await _run(standby, f"SELECT pg_last_wal_replay_lsn() >= '{written}'"))

    await until(has_it)
