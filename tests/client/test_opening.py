"""Opening and connecting: what goes wrong at the door, and what a program around Peik may rely on."""

import asyncio
import datetime
import pickle
import ssl
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

import peik as package
from peik import (
    BadInput,
    Denied,
    OnUncertain,
    Peik,
    Problem,
    Receipt,
    Refused,
    StartError,
    State,
    StoreUnavailable,
    TooMany,
    Unavailable,
)
from tests.client.counters import opened, telegram
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, KEY, served
from tests.telegram.conftest import certificate, client_tls, server_tls  # noqa: F401  fixtures
from tests.telegram.peers import peer, read_request


def test_importing_peik_is_light_and_its_names_are_those_of_the_stub() -> None:
    program = "import sys, peik; print(sorted(name for name in sys.modules if name.startswith(('peik.', 'msgspec'))))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
    stub = Path(package.__file__).with_name("__init__.pyi").read_text()
    named = {line.rpartition(" as ")[2] for line in stub.splitlines() if " as " in line}
    assert named == package._HOME_OF.keys()
    assert all(getattr(package, name).__name__ == name for name in named)
    with pytest.raises(AttributeError):
        _ = package.Courier  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("store", "settings", "words"),
    [
        ("mysql://here", {}, "sqlite:///"),
        ("sqlite:///peik.db", {"token": "nonsense"}, "not a bot token"),
        ("sqlite:///peik.db", {"stoer": "x"}, "Did you mean PEIK_STORE"),
        ("sqlite:///peik.db", {"in_flight": 0}, "at least 1"),
    ],
)
def test_a_wrong_opening_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, settings: dict[str, str], words: str
) -> None:
    async def story() -> None:
        with pytest.raises(StartError, match=words):
            async with Peik.open(store, **settings):  # type: ignore[arg-type]
                pass

    monkeypatch.chdir(tmp_path)
    asyncio.run(story())


def test_it_may_be_opened_in_one_task_and_closed_in_another_and_is_shut_after_that(tmp_path: Path) -> None:
    async def story() -> None:
        async with telegram() as sim:
            peik = opened(tmp_path, sim)
            with pytest.raises(Unavailable, match="not open"):
                await peik.get_queue_stats()
            await asyncio.create_task(peik.__aenter__())
            sim.telegram.faults.add("slow", least_s=0.3, most_s=0.3)
            letter = await peik.send_text(5, "in flight")
            await sim.until(lambda: len(sim.telegram.sent) == 1, timeout=PATIENCE_S)
            await asyncio.create_task(peik.close())
            with pytest.raises(Unavailable, match="not open"):
                await peik.get_job_status(letter)
            async with opened(tmp_path, sim) as again:  # leaving finished what was in flight
                status = await again.get_job_status(letter)
                assert (status.state, status.uncertain_tries) == ("completed", 0)

    asyncio.run(story())


def test_what_was_not_sent_is_sent_by_the_next_who_opens(tmp_path: Path) -> None:
    async def story() -> None:
        async with telegram() as sim:
            sim.telegram.faults.add("dark")
            async with opened(tmp_path, sim) as peik:
                letters = [await peik.send_text(5, f"n{n}") for n in range(3)]
            sim.telegram.faults.clear()
            async with opened(tmp_path, sim) as peik:
                assert [(await peik.wait(letter)).is_delivered for letter in letters] == [True] * 3
            assert sim.telegram.sent.texts(5) == ["n0", "n1", "n2"]

    asyncio.run(story())


def test_a_server_that_is_not_there_not_peik_or_not_ours_is_told_apart(tmp_path: Path) -> None:
    async def story() -> None:
        async with Peik.connect("http://127.0.0.1:9", key=KEY) as peik:
            with pytest.raises(Unavailable) as raised:
                await peik.send_text(5, "anybody?")
            assert raised.value.code == "unreachable"
            assert "Nothing was accepted" in raised.value.detail

        async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            await read_request(reader)  # and hangs up

        async with peer(other) as url, Peik.connect(url, key=KEY) as peik:
            with pytest.raises(Unavailable) as raised:
                await peik.send_text(5, "who are you?")
            assert raised.value.code == "not_peik"
            with pytest.raises(Unavailable) as raised:
                await peik.send_text(5, "and now?")
            assert raised.value.code == "no_answer"
            assert "idempotency_key" in raised.value.detail
        async with (
            telegram() as sim,
            aiohttp.ClientSession() as http,
            served(tmp_path, sim.url, http) as server,
            Peik.connect(server.url, key="wrong") as peik,
        ):
            with pytest.raises(Denied) as denied:
                await peik.get_queue_stats()
            assert denied.value.code == "wrong_key"

    asyncio.run(story())


def test_a_key_over_its_rate_is_told_as_a_passing_trouble_with_its_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            telegram() as sim,
            aiohttp.ClientSession() as http,
            served(tmp_path, sim.url, http, rate_key="1/h burst 3") as server,
            Peik.connect(server.url, key=KEY) as peik,
        ):
            with pytest.raises(Unavailable) as raised:
                await sent(peik, 9)
            problem = raised.value
            assert (type(problem), problem.status, problem.code) == (TooMany, 429, "too_many_requests")
            assert 2 < problem.retry_after_s <= 3600

    asyncio.run(story())


async def sent(peik: Peik, count: int) -> None:
    for n in range(count):
        await peik.send_text(5, f"n{n}", idempotency_key=f"n{n}")


RECEIPT = Receipt(
    id="7",
    bot_id=BOT,
    chat_id=5,
    method="sendMessage",
    state=State.FAILED,
    priority=0,
    progress=0,
    attempts=3,
    attempts_made=1,
    uncertain_tries=0,
    failed_reason="Forbidden: bot was blocked by the user",
    on_uncertain=OnUncertain.HOLD,
    params={"chat_id": 5},
    history=(),
    created_at=datetime.datetime.now(datetime.UTC),
)


@pytest.mark.parametrize(
    "problem",
    [
        BadInput(code="text_empty", detail="It has no text.", field="text"),
        StoreUnavailable(code="store_gone", detail="The store cannot be reached."),
        TooMany(code="too_many_requests", detail="Wait.", wait_s=7),
        Refused(RECEIPT),
    ],
)
def test_a_problem_goes_through_pickle_as_itself(problem: Problem) -> None:
    """Celery and process pools carry errors that way."""
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(problem, protocol))
        assert type(again) is type(problem)
        assert (str(again), again.args, vars(again)) == (str(problem), problem.args, vars(problem))


@pytest.mark.parametrize(("url", "key"), [("peik.example", "k"), ("http://h/?q", "k"), ("http://h", "k\r\nX: y")])
def test_wrong_addresses_and_keys_are_refused_before_anything_is_sent(url: str, key: str) -> None:
    async def story() -> None:
        with pytest.raises(package.BadInput):
            async with Peik.connect(url, key=key):
                pass

    asyncio.run(story())


def test_certificates_are_verified(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:  # noqa: F811
    heads: list[bytes] = []

    async def stats(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append((await read_request(reader))[0])
            body = b'{"waiting":3,"active":0,"completed":0,"failed":0,"delayed":0,"cancelled":0,"bots":{}}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    async def story() -> None:
        async with peer(stats, tls=server_tls) as url:
            async with Peik.connect(f"{url}/behind/a/proxy", key=KEY, ssl_context=client_tls) as peik:
                assert (await peik.get_queue_stats()).waiting == 3
                assert (await peik.get_queue_stats()).waiting == 3
            async with Peik.connect(url, key=KEY) as peik:
                with pytest.raises(Unavailable) as raised:
                    await peik.get_queue_stats()
                assert raised.value.code == "unreachable"
        assert len(heads) == 2
        assert heads[0].startswith(b"GET /behind/a/proxy/v1/stats HTTP/1.1\r\n")
        assert b"Authorization: Bearer test-key\r\n" in heads[0]

    asyncio.run(story())


def test_a_wait_rides_through_a_restart_of_the_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with telegram() as sim, aiohttp.ClientSession() as http, served(tmp_path, sim.url, http) as server:
            sim.telegram.faults.add("dark")
            async with Peik.connect(server.url, key=KEY) as peik:
                letter = await peik.send_text(5, "patience")
                waiting = asyncio.create_task(peik.wait(letter, timeout=PATIENCE_S))
                await server.program.kill()
                sim.telegram.faults.clear()
                await server.start()
                assert (await waiting).is_delivered

    asyncio.run(story())
