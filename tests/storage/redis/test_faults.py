"""The server dies, refuses, forgets our scripts: what was acknowledged stays, and Peik goes on by itself."""

import asyncio
import contextlib
import subprocess
from pathlib import Path

import pytest

from peik.core.nodes import CHORES
from peik.errors import StartError, StoreUnavailable
from peik.outbox.store import Tally
from peik.storage.redis import RedisStore
from tests.storage.acts import NOW, SENT, accept, all_lanes, attempt, draft, edit, find, front, state, tally
from tests.storage.inbox_acts import message, numbers, open_inbox, settle, take
from tests.storage.places import epoch_of
from tests.storage.redis_place import RedisPlace
from tests.storage.redis_server import RedisServer, free_port


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(durable: RedisServer, tmp_path: Path) -> None:
    place = RedisPlace(tmp_path, durable)
    acknowledged: list[int] = []
    is_time = asyncio.Event()

    async def caller(store: RedisStore, who: int) -> None:
        with contextlib.suppress(StoreUnavailable):
            while True:
                acknowledged.extend(await accept(store, draft(who), draft(who)))
                if len(acknowledged) >= 500:
                    is_time.set()

    async def killer() -> None:
        await is_time.wait()
        durable.kill()

    async with place.open() as store:
        await asyncio.gather(killer(), *(caller(store, who) for who in range(20)))
        durable.start()
        lanes = await all_lanes(store)
        here = {letter_id for ids in lanes.values() for letter_id in ids}
        assert here >= set(acknowledged)
        assert len(here) % 2 == 0  # the two of a call are there, or neither is
        assert (await tally(store)).waiting == len(here)
        (letter_id,) = await accept(store, draft(99))
        assert (await find(store, letter_id)).number == len(here) + 1


async def test_settlements_and_updates_outlive_the_server(durable: RedisServer, tmp_path: Path) -> None:
    place = RedisPlace(tmp_path, durable)
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(1))
        await attempt(store, await find(store, letter_id), SENT)
        default = await open_inbox(store.inbox)
        await take(store.inbox, message(1), message(2))
        await settle(store.inbox, default, 1)
        durable.kill()
        durable.start()
        assert await state(store, letter_id) == "completed"
        assert await numbers(store.inbox, default) == [1, 2]
        assert (await store.inbox.consumers())[0].progress.watermark == 1


async def test_a_server_that_is_gone_is_told_and_peik_goes_on_when_it_is_back(
    durable: RedisServer, tmp_path: Path
) -> None:
    place = RedisPlace(tmp_path, durable)
    async with place.open() as store:
        durable.kill()
        for ask in (lambda: accept(store, draft(1)), lambda: tally(store), lambda: store.bots()):
            with pytest.raises(StoreUnavailable) as caught:
                await ask()
            assert caught.value.code == "store_gone"
        trouble = store.trouble()
        assert trouble is not None
        assert trouble.code == "store_gone"
        durable.start()
        await accept(store, draft(1))
        assert store.trouble() is None
        assert (await tally(store)).waiting == 1


async def test_marks_that_could_not_be_stored_are_told_as_an_error(durable: RedisServer, tmp_path: Path) -> None:
    place = RedisPlace(tmp_path, durable)
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(1))
        letter = await find(store, letter_id)
        durable.kill()
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        epoch = epoch_of(store)
        store.advance([], [letter], epoch=epoch, at_ms=NOW, done=lambda marked: answered.set_result(marked.error))
        assert isinstance(await answered, StoreUnavailable)
        trouble = store.trouble()
        assert trouble is not None
        assert trouble.code == "store_gone"
        durable.start()


async def test_scripts_that_were_flushed_are_loaded_again(place: RedisPlace) -> None:
    async with place.open() as store:
        for _ in range(2):
            with place.server.client() as client:
                client.script_flush()
            await accept(store, draft(1))
        with place.server.client() as client:
            client.script_flush()
        assert len(await front(store)) == 2


async def test_a_server_without_memory_takes_nothing_in_part_and_goes_on_later(
    durable: RedisServer, tmp_path: Path
) -> None:
    place = RedisPlace(tmp_path, durable)
    async with place.open() as store:
        (kept,) = await accept(store, draft(1))
        with durable.client() as client:
            client.config_set("maxmemory", "1mb")
            several = (
                draft(2),
                draft(3, idempotency_key="k", digest="d"),
                draft(4, send_at_ms=NOW + 1),
                draft(5),
                edit(),  # which has to write at once what came before it
            )
            ended = await asyncio.gather(*(accept(store, one) for one in several), return_exceptions=True)
            assert [one.code for one in ended if isinstance(one, StoreUnavailable)] == ["store_full"] * 5
            assert store.trouble() is not None
            client.config_set("maxmemory", "0")
        (later,) = await accept(store, draft(1))
        assert [(one.id, one.number) for one in await front(store)] == [(kept, 1), (later, 2)]
        assert await tally(store) == Tally(waiting=2)


async def test_a_replica_is_refused_in_words(durable: RedisServer, tmp_path: Path) -> None:
    place = RedisPlace(tmp_path, durable)
    async with place.open() as store:
        with durable.client() as client:
            client.replicaof("127.0.0.1", "1")
            with pytest.raises(StoreUnavailable) as caught:
                await accept(store, draft(1))
            assert caught.value.code in ("store_read_only", "store_gone")
            client.replicaof("NO", "ONE")
        await accept(store, draft(1))


async def test_a_draft_that_cannot_be_written_fails_alone(place: RedisPlace) -> None:
    async with place.open() as store:
        half = draft(2, text="\ud83c")
        ended = await asyncio.gather(
            accept(store, draft(1)), accept(store, draft(3), half), accept(store, draft(4)), return_exceptions=True
        )
        assert [isinstance(one, Exception) for one in ended] == [False, True, False]
        assert set(await all_lanes(store)) == {(1, 0), (4, 0)}


# ---- at the start ----


async def test_no_server_at_all_is_a_sentence(tmp_path: Path, place: RedisPlace) -> None:
    nobody = RedisServer(tmp_path)
    with pytest.raises(StartError, match="cannot be reached"):
        await RedisStore(nobody.url, clock=place.clock).open()


async def test_a_password_is_needed_used_and_never_shown(tmp_path: Path, place: RedisPlace) -> None:
    server = RedisServer(tmp_path, requirepass="open-sesame").start()
    try:
        for url in (server.url.replace("open-sesame", "wrong-word"), server.url.replace(":open-sesame@", "")):
            with pytest.raises(StartError) as caught:
                await RedisStore(url, clock=place.clock).open()
            assert "wrong-word" not in str(caught.value)
            assert "password" in str(caught.value)
        store = RedisStore(server.url, clock=place.clock)
        await store.open()
        assert (await store.nodes.beat()).leases.keys() == {CHORES}
        await store.close()
    finally:
        server.kill()


def make_certificate(folder: Path) -> dict[str, str]:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make, *names], check=True, capture_output=True)
    return {"tls_cert_file": str(certificate), "tls_key_file": str(key), "tls_ca_cert_file": str(certificate)}


async def test_tls_is_spoken_where_the_address_says_so(tmp_path: Path, place: RedisPlace) -> None:
    paths = make_certificate(tmp_path)
    server = RedisServer(tmp_path, requirepass="s", tls_auth_clients="no", tls_port=str(free_port()), **paths).start()
    try:
        url = f"rediss://:s@127.0.0.1:{server.settings['tls_port']}/0"
        store = RedisStore(f"{url}?ssl_ca_certs={paths['tls_cert_file']}&prefix=secret:", clock=place.clock)
        await store.open()
        assert await store.bots() == []
        await store.close()
        with pytest.raises(StartError, match="certificate"):  # of nobody whom this machine knows
            await RedisStore(url, clock=place.clock).open()
    finally:
        server.kill()


async def test_a_socket_file_is_an_address_too(tmp_path: Path, place: RedisPlace) -> None:
    path = tmp_path / "redis.sock"
    server = RedisServer(tmp_path, unixsocket=str(path), requirepass="s").start()
    try:
        store = RedisStore(f"unix://:s@{path}?prefix=local:", clock=place.clock)
        await store.open()
        assert await store.bots() == []
        await store.close()
        with pytest.raises(StartError) as caught:
            await RedisStore(f"unix://:open-sesame@{path}", clock=place.clock).open()
        assert str(path) in str(caught.value)
        assert "open-sesame" not in str(caught.value)
    finally:
        server.kill()


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1/0?prefix=a{b}", "redis://127.0.0.1/0?prefix=", "redis://127.0.0.1:port/0"]
)
async def test_an_address_that_cannot_be_right_is_refused(place: RedisPlace, url: str) -> None:
    with pytest.raises(StartError):
        await RedisStore(url, clock=place.clock).open()
