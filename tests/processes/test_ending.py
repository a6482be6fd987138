"""How Peik ends: in good order on SIGTERM, at once on the second, and with a sentence when it cannot start."""

import asyncio
import re
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.processes.programs import Copied, served, simulated


def send(chat_id: int, text: str) -> dict[str, object]:
    return {"json": {"method": "sendMessage", "params": {"chat_id": chat_id, "text": text}}}


def test_sigterm_finishes_what_is_in_flight_and_the_next_start_sends_the_rest(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http, is_copy=False) as server:
            await sim.post("faults", kind="slow", least_s=0.5, most_s=0.5, count=1)
            ids = [(await server.call("POST", "/v1/letters", **send(5, f"n{n}")))[1]["id"] for n in range(3)]
            await sim.get("sent", at_least=1)
            assert await server.program.terminate() == 0
            await server.start()
            letters = [(await server.get(f"/v1/letters/{letter_id}?wait=200s")) for letter_id in ids]
            assert [letter["state"] for letter in letters] == ["completed"] * 3
            assert [letter["uncertain_tries"] for letter in letters] == [0, 0, 0]
            sent = await sim.get("sent", chat=5)
            assert [one["text"] for one in sent["deliveries"]] == ["n0", "n1", "n2"]
            assert not server.surprises()

    asyncio.run(story())


def test_a_second_signal_ends_at_once_and_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path) as (sim, http),
            served(tmp_path, sim.url, http, is_copy=False, grace="1h") as server,
        ):
            await sim.post("faults", kind="hang", count=1)
            _, letter = await server.call("POST", "/v1/letters", **send(5, "patience"))
            async with asyncio.timeout(PATIENCE_S):
                while await sim.get("faults"):  # noqa: ASYNC110  another process is waited for
                    await asyncio.sleep(0.02)  # until the try hangs
            server.program.process.send_signal(signal.SIGTERM)
            server.program.process.send_signal(signal.SIGINT)
            assert await server.program.ended() == 130
            await server.start()
            ended = await server.get(f"/v1/letters/{letter['id']}?wait=200s")
            assert (ended["state"], ended["uncertain_tries"]) == ("completed", 1)

    asyncio.run(story())


async def refusal(folder: Path, *arguments: str, **environment: str) -> str:
    """What `peik serve` says when it does not start."""
    program = Copied("-m", "peik", "serve", *arguments, folder=folder, **environment)
    with pytest.raises(RuntimeError) as said:
        await program.start(re.compile("listens on"))
    assert await program.ended() == 1
    assert "Traceback" not in str(said.value)
    return str(said.value)


def test_a_second_peik_on_the_same_file_is_told_who_has_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http) as server:
            said = await refusal(tmp_path, "--port", "0", PEIK_ADMIN_KEY="k")
            assert f"process {server.pid}" in said
            assert "PEIK_STORE" in said
            assert (await server.call("POST", "/v1/letters?wait=200s", **send(5, "unharmed")))[0] == 200

    asyncio.run(story())


def test_each_wrong_start_is_explained_in_a_sentence(tmp_path: Path) -> None:
    async def story() -> None:
        newer = tmp_path / "newer.db"
        with sqlite3.connect(newer) as connection:
            connection.execute("CREATE TABLE t (x)")
            connection.execute(f"PRAGMA application_id = {0x5045494B}")
            connection.execute("PRAGMA user_version = 999")
        connection.close()
        (tmp_path / "text.db").write_text("this is no database at all, " * 50)
        assert "newer Peik" in await refusal(tmp_path, "--store", f"sqlite:///{newer}", "--port", "0")
        assert "text.db" in await refusal(tmp_path, "--store", f"sqlite:///{tmp_path}/text.db", "--port", "0")
        assert "sqlite:///" in await refusal(tmp_path, "--store", "mysql://here", "--port", "0")
        assert "PEIK_PORT" in await refusal(tmp_path, PEIK_PORT="many")
        assert "Did you mean PEIK_STORE" in await refusal(tmp_path, PEIK_STOER="x")
        assert "not a bot token" in await refusal(tmp_path, "--port", "0", BOT_TOKEN="nonsense")
        assert "http://" in await refusal(tmp_path, "--api-root", "telegram", "--port", "0")

    asyncio.run(story())


def test_a_taken_port_is_explained(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (sim, _):
            said = await refusal(tmp_path, "--port", sim.url.rsplit(":", 1)[1])
            assert "PEIK_PORT" in said

    asyncio.run(story())


def test_no_token_in_any_line_of_the_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http, log_level="debug") as server:
            await sim.post("faults", kind="lose_after", count=1)
            await server.call("POST", "/v1/letters?wait=200s", **send(5, "one"))
            await sim.post("faults", kind="error", status=401, words="Unauthorized", count=1)
            await server.call("POST", "/v1/letters?wait=1s", **send(5, "two"))
            await server.call("POST", "/v1/bots", json={"token": "123:SECRETSECRET", "inbound": "nowhere"})
            _, bots = await server.call("GET", "/v1/bots")
            _, missing = await server.call("GET", "/bot7000001:AAtest/getMe")
            await server.program.terminate()
            everything = "".join(server.output) + str(bots) + str(missing)
            assert "AAtest" not in everything
            assert "SECRETSECRET" not in everything

    asyncio.run(story())
