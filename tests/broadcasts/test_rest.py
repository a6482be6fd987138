"""Broadcasts over REST and by command: a real Peik, a real little Telegram, and `kill -9` in the middle."""

import asyncio
import csv
import io
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, KEY, Server, Sim, served, simulated

COUNT = 600


async def until(server: Server, broadcast_id: str, *states: str) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await server.get(f"/v1/broadcasts/{broadcast_id}")
            if found["state"] in states:
                return found
            await asyncio.sleep(0.05)


async def deliveries(sim: Sim) -> list[Any]:
    found: list[Any] = []
    while page := (await sim.get("sent", after=found[-1]["number"] if found else 0, limit=5000))["deliveries"]:
        found += page
    return found


async def ledger(server: Server, broadcast_id: str) -> list[Any]:
    lines: list[Any] = []
    cursor = ""
    while True:
        page = await server.get(f"/v1/broadcasts/{broadcast_id}/recipients?limit=1000{cursor}")
        lines += page["recipients"]
        if page["next_cursor"] is None:
            return lines
        cursor = f"&cursor={page['next_cursor']}"


@pytest.mark.gate  # several lives of a process
def test_killed_in_the_middle_everybody_gets_it_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path, limits={"on": False}) as (sim, http):
            await sim.post("faults", kind="slow", least_s=0.0, most_s=0.05)
            async with served(tmp_path, sim.url, http) as server:
                body = {
                    "method": "sendMessage",
                    "params": {"text": "Salam"},
                    "audience": {"chat_ids": list(range(1, COUNT + 1))},
                    "start": True,
                    "on_uncertain": "resend",
                }
                limits = {"limits": {"bulk_per_s": 200.0}}
                assert (await server.call("PATCH", f"/v1/bots/{BOT}", json=limits))[0] == 200
                status, made = await server.call("POST", "/v1/broadcasts", json=body)
                assert (status, made["total"]) == (201, COUNT), made
                for share in (0.05, 0.2, 0.4, 0.6):
                    while len(await deliveries(sim)) < share * COUNT:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                    await server.program.kill()
                    await server.start()
                done = await until(server, made["id"], "completed")
                assert done["counts"]["delivered"] == COUNT
                got = Counter(one["chat_id"] for one in await deliveries(sim))
                lines = await ledger(server, made["id"])
                assert [int(line["chat_id"]) for line in lines] == list(range(1, COUNT + 1))
                for line in lines:
                    assert 1 <= got[int(line["chat_id"])] <= 1 + line["uncertain_tries"], line
                assert not server.surprises()

    asyncio.run(story())


def test_a_broadcast_over_rest_from_its_draft_to_its_recall(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http) as server:
            form = {
                "broadcast": json.dumps({"method": "sendMessage", "params": {"text": "Salam {name}"}, "name": "news"}),
                "csv": io.BytesIO(b"chat_id,name\n1,Ali\n2,Sara\n2,Sara\n"),
            }
            status, made = await server.call("POST", "/v1/broadcasts", data=form)
            assert (status, made["state"], made["total"], made["duplicates"]) == (201, "draft", 2, 1), made
            path = f"/v1/broadcasts/{made['id']}"
            assert (await server.call("POST", f"{path}/pause"))[1]["code"] == "wrong_phase"
            status, estimate = await server.call("POST", f"{path}/estimate")
            assert (status, estimate["recipients"], estimate["per_s"]) == (200, 2, 30.0)
            status, preview = await server.call("POST", f"{path}/preview", json={"chat_id": 9})
            assert (status, (await server.get(f"/v1/letters/{preview['letter_id']}?wait=200s"))["chat_id"]) == (
                202,
                "9",
            )
            assert (await server.call("POST", f"{path}/start"))[0] == 200
            done = await until(server, made["id"], "completed")
            assert (done["counts"]["delivered"], done["progress"], done["name"]) == (2, 1.0, "news")
            assert sorted(one["text"] for one in await deliveries(sim)) == ["Salam Ali", "Salam Ali", "Salam Sara"]
            await exported(server, path)
            assert (await server.call("POST", f"{path}/recall"))[0] == 200
            assert (await until(server, made["id"], "recalled"))["counts"]["recalled"] == 2
            assert [one["id"] for one in (await server.get("/v1/broadcasts"))["broadcasts"]] == [made["id"]]
            await keys_are_minded(server, path)
            assert (await server.call("DELETE", path))[0] == 204
            assert (await server.call("GET", path))[0] == 404

    asyncio.run(story())


async def exported(server: Server, path: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with server._http.get(f"{server.url}{path}/recipients?format=csv", headers=headers) as response:
        rows = list(csv.DictReader(io.StringIO(await response.text())))
    assert [(row["chat_id"], row["state"]) for row in rows] == [("1", "delivered"), ("2", "delivered")]
    async with server._http.get(f"{server.url}{path}/recipients?format=jsonl", headers=headers) as response:
        lines = [json.loads(line) for line in (await response.text()).splitlines()]
    assert [line["message_id"] for line in lines] == [row["message_id"] for row in rows]


async def keys_are_minded(server: Server, path: str) -> None:
    assert (await server.call("POST", "/v1/bots", json={"token": "42:AAother", "inbound": "off"}))[0] == 201
    wanted = {"name": "other", "scopes": ["send"], "bot_ids": [42]}
    key = (await server.call("POST", "/v1/keys", json=wanted))[1]["key"]
    assert (await server.call("GET", path, key=key))[0] == 404
    assert (await server.call("POST", f"{path}/recall", key=key))[0] == 404
    body = {"bot_id": str(BOT), "method": "sendMessage", "params": {"text": "a"}, "audience": {"chat_ids": [1]}}
    assert (await server.call("POST", "/v1/broadcasts", key=key, json=body))[0] == 403


def test_commands_make_start_and_export_a_broadcast(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http) as server:
            chats = tmp_path / "chats.csv"
            chats.write_text("chat_id;name\n1;Ali\n-5;Team\n", encoding="utf-8")
            made = await peik(
                server, tmp_path, "create", "--text", "Salam {name}", "--csv", str(chats), "--canary", "1"
            )
            assert (made["state"], made["total"]) == ("draft", 2)
            assert (await peik(server, tmp_path, "estimate", made["id"]))["messages"] == 2
            done = await peik(server, tmp_path, "start", made["id"], "--wait", "200s")
            assert (done["state"], done["counts"]["delivered"]) == ("completed", 2)
            assert [one["id"] for one in (await peik(server, tmp_path, "list"))["broadcasts"]] == [made["id"]]
            out = tmp_path / "ledger.csv"
            await peik(server, tmp_path, "ledger", made["id"], "--output", str(out))
            assert [row["chat_id"] for row in csv.DictReader(io.StringIO(out.read_text(encoding="utf-8")))] == [
                "1",
                "-5",
            ]
            await peik(server, tmp_path, "delete", made["id"], "--yes")

    asyncio.run(story())


async def peik(server: Server, folder: Path, *arguments: str) -> Any:
    """What a command prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "peik", "broadcast", *arguments, "--json", "--url", server.url),
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith(("PEIK_", "BOT_"))}
        | {"PEIK_KEY": KEY},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out) if out.strip() else None
