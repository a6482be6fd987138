"""A server, a program on `Peik.open` and a command line on one SQLite file at once: nothing lost, one sender."""

import asyncio
from pathlib import Path

from peik import Peik
from tests.cli.shell import Shell
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN, Server, served, simulated

EACH = 6


def test_a_server_a_program_and_a_command_line_share_one_file(tmp_path: Path) -> None:
    async def story() -> None:
        store = f"sqlite:///{tmp_path}/peik.db"
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            served(tmp_path, sim.url, http, pace="off") as server,
        ):
            shell = Shell(tmp_path)
            async with Peik.open(store, token=TOKEN, api_root=sim.url) as program:
                for number in range(EACH):
                    body = {"method": "sendMessage", "params": {"chat_id": 5, "text": f"server {number}"}}
                    assert (await server.call("POST", "/v1/letters", json=body))[0] == 202
                    await program.send_text(5, f"program {number}")
                    text = f"shell {number}"
                    sent = await asyncio.to_thread(shell.peik, "send", "5", text, "--store", store, "--json")
                    assert sent.code == 0, sent
            await sim.get("sent", at_least=3 * EACH)
            assert (await server.quiet())["completed"] == 3 * EACH
            arrived = [one["text"] for one in (await sim.get("sent", chat=5))["deliveries"]]
            # Each was acknowledged before the next was asked for, so that is their order, whoever took them in.
            assert arrived == [f"{who} {n}" for n in range(EACH) for who in ("server", "program", "shell")]
            assert not server.surprises()

    asyncio.run(story())


def test_a_server_starts_beside_a_program_that_owns_the_file_and_takes_over_when_it_ends(tmp_path: Path) -> None:
    async def story() -> None:
        store = f"sqlite:///{tmp_path}/peik.db"
        async with simulated(tmp_path, limits={"on": False}) as (sim, http):
            async with Peik.open(store, token=TOKEN, api_root=sim.url) as program:
                await program.send_text(5, "first", wait=PATIENCE_S)
                server = Server(tmp_path, sim.url, http, pace="off")
                await server.start()
                body = {"method": "sendMessage", "params": {"chat_id": 5, "text": "sent by the program"}}
                assert (await server.call("POST", "/v1/letters?wait=200s", json=body))[1]["state"] == "completed"
            body = {"method": "sendMessage", "params": {"chat_id": 5, "text": "sent by the server"}}
            assert (await server.call("POST", "/v1/letters?wait=200s", json=body))[1]["state"] == "completed"
            assert await server.program.terminate() == 0
            assert not server.surprises()
            arrived = [one["text"] for one in (await sim.get("sent", chat=5))["deliveries"]]
            assert arrived == ["first", "sent by the program", "sent by the server"]

    asyncio.run(story())
