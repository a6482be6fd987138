"""Recurring work over REST, by command and through the library: a real Peik, a real little Telegram, `kill -9`, two nodes."""

import asyncio
import json
import os
import random
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from peik import BadInput, JobWork, LetterWork, NotFound, Peik
from peik.testing import SimServer
from tests.broadcasts.test_rest import deliveries
from tests.client.counters import both, play
from tests.patience import PATIENCE_S
from tests.processes import nursery
from tests.processes.programs import BOT, KEY, Server, served, simulated
from tests.storage.shared_places import SHARED

HOURLY = {"cron": "@hourly", "letter": {"params": {"chat_id": 42, "text": "%{name} of %{date}"}}}


async def put(server: Server, name: str, body: Any, *, key: str | None = KEY) -> tuple[int, Any]:
    return await server.call("PUT", f"/v1/schedules/{name}", json=body, key=key)


def test_a_schedule_over_rest_from_its_preview_to_its_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http) as server:
            status, found = await server.call("POST", "/v1/schedules/preview", json=HOURLY | {"tz": "Asia/Tehran"})
            assert (status, len(found["next"])) == (200, 5)
            assert found["params"]["text"].startswith("preview of 20")
            status, made = await put(server, "news", HOURLY)
            assert (status, made["state"], made["bot_id"], made["revision"]) == (201, "active", str(BOT), 1), made
            assert (await put(server, "news", HOURLY))[0] == 200
            status, changed = await put(server, "news", HOURLY | {"cron": "0 9 * * *", "title": "News"})
            assert (status, changed["revision"], changed["title"]) == (200, 2, "News")
            (edit,) = (await server.get("/v1/schedules/news/edits"))["edits"]
            assert (edit["revision"], edit["cron"]) == (1, "@hourly")
            status, run = await server.call("POST", "/v1/schedules/news/run")
            assert (status, run["state"], run["by"]) == (200, "done", "the admin key"), run
            letter = await server.get(f"/v1/letters/{run['letter_id']}?wait=200s")
            assert letter["state"] == "completed"
            (sent,) = await deliveries(sim)
            assert sent["text"].startswith("news of 20")
            assert (await server.call("POST", "/v1/schedules/news/pause"))[1]["state"] == "paused"
            assert (await server.call("POST", "/v1/schedules/news/resume"))[1]["state"] == "active"
            runs = await server.get("/v1/schedules/news/runs")
            assert [one["letter_id"] for one in runs["runs"]] == [run["letter_id"]]
            assert [one["name"] for one in (await server.get("/v1/schedules"))["schedules"]] == ["news"]
            assert (await server.call("GET", "/v1/schedules?cursor="))[1]["code"] == "bad_cursor"
            await mistakes_are_told(server)
            await keys_are_minded(server)
            lines = await server.get("/v1/audit?action=putSchedule")
            assert "news" in json.dumps(lines)
            assert (await server.call("DELETE", "/v1/schedules/news"))[0] == 204
            assert (await server.call("GET", "/v1/schedules/news"))[0] == 404
            assert not server.surprises()

    asyncio.run(story())


async def mistakes_are_told(server: Server) -> None:
    for change, code in (
        ({"cron": "9"}, "bad_cron"),
        ({"tz": "Tehran"}, "unknown_zone"),
        ({"missed": "maybe"}, "bad_request"),
        ({"letter": None}, "bad_schedule"),
        ({"job": {"kind": "x"}}, "bad_schedule"),
        ({"bot_id": 5}, "unknown_bot"),
        ({"letter": {"params": {"text": "to nobody"}}}, "missing_chat_id"),
        ({"letter": {"param": {}}}, "bad_request"),
        ({"ends_at": "2020-01-01T00:00:00Z"}, "never_due"),
    ):
        status, problem = await put(server, "wrong", HOURLY | change)
        assert problem["code"] == code, (change, status, problem)
    assert (await put(server, "no name", HOURLY))[1]["code"] == "bad_name"


async def keys_are_minded(server: Server) -> None:
    """A key of another bot neither sees nor changes it; one that may only read changes nothing; jobs are for keys of all bots."""
    assert (await server.call("POST", "/v1/bots", json={"token": "42:AAother", "inbound": "off"}))[0] == 201
    other = (await server.call("POST", "/v1/keys", json={"name": "o", "scopes": ["send"], "bot_ids": [42]}))[1]["key"]
    reader = (await server.call("POST", "/v1/keys", json={"name": "r", "scopes": ["read"]}))[1]["key"]
    own = (await server.call("POST", "/v1/keys", json={"name": "b", "scopes": ["send", "read"], "bot_ids": [BOT]}))[1][
        "key"
    ]
    assert (await server.call("POST", "/v1/schedules/news/run", key=other))[0] == 404
    assert (await put(server, "news", HOURLY, key=other))[0] in (403, 404)
    assert (await put(server, "news", HOURLY, key=reader))[0] == 403
    assert (await server.call("DELETE", "/v1/schedules/news", key=reader))[0] == 403
    job = {"cron": "@daily", "job": {"kind": "report"}}
    assert (await put(server, "job", job, key=own))[0] == 403
    assert (await put(server, "job", job))[0] == 201
    status, seen = await server.call("GET", "/v1/schedules", key=own)
    assert (status, [one["name"] for one in seen["schedules"]]) == (200, ["news"])
    assert (await put(server, "job", HOURLY, key=own))[0] == 403, "nobody takes over another's name"
    assert (await server.call("DELETE", "/v1/schedules/job"))[0] == 204


def test_a_schedule_by_command(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http) as server:
            line = ("--cron", "30 9 * * 1-5", "--tz", "Asia/Tehran", "--chat", "42", "--text", "It is %{date}")
            shown = await peik(server, "put", "morning", *line, "--dry-run", "--json")
            assert len(json.loads(shown)["next"]) == 5
            due = r"\S+ 09:30:00 Asia/Tehran \("
            assert len(re.findall(due, await peik(server, "put", "morning", *line, "--dry-run"))) == 5
            assert re.search(rf"is active; next: {due}", await peik(server, "put", "morning", *line))
            page = await peik(server, "show", "morning")
            assert "30 9 * * 1-5 (Asia/Tehran)" in page
            assert len(re.findall(due, page)) == 5
            assert "done" in await peik(server, "run", "morning")
            assert re.search(r"\S+ \S+ Asia/Tehran \(.*done", await peik(server, "runs", "morning"))
            assert "paused" in await peik(server, "pause", "morning")
            assert "morning" in await peik(server, "list")
            assert "active" in await peik(server, "resume", "morning")
            assert "Nobody has changed it" in await peik(server, "edits", "morning")
            assert "deleted" in await peik(server, "delete", "morning", "--yes")

    asyncio.run(story())


async def peik(server: Server, *words: str) -> str:
    environment = {**os.environ, "PEIK_URL": server.url, "PEIK_KEY": KEY, "PEIK_ADMIN_KEY": KEY}
    line = partial(nursery.run, ("schedules", *words), stdin="", timeout_s=PATIENCE_S)
    code, out, err = await asyncio.to_thread(line, folder=Path.cwd(), environment=environment)
    assert code == 0, err
    return " ".join((out + err).split())


@both
def test_a_schedule_through_the_library(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        letter = LetterWork(params={"chat_id": 7, "text": "run now"})
        made = await peik.schedules.put("one", "0 9 * * *", tz="Asia/Tashkent", letter=letter, missed="all")
        assert (made.name, made.state, len(made.next), made.letter) == ("one", "active", 5, letter)
        assert await peik.schedules.upcoming("0 9 * * *", tz="Asia/Tashkent", letter=letter) == made.next
        run = await peik.schedules.run_now(made)
        assert run.letter_id is not None
        await peik.wait(run.letter_id)
        assert [one.text for one in sim.telegram.sent.where(method="sendMessage")] == ["run now"]
        assert [one.letter_id async for one in peik.schedules.runs(made)] == [run.letter_id]
        assert (await peik.schedules.pause(made)).state == "paused"
        assert (await peik.schedules.resume("one")).state == "active"
        await peik.schedules.put("two", "@daily", job=JobWork(kind="report"))
        assert [one.name async for one in peik.schedules.find()] == ["one", "two"]
        with pytest.raises(BadInput, match="cron"):
            await peik.schedules.put("three", "never", letter=letter)
        with pytest.raises(BadInput, match="missed is one of"):
            await peik.schedules.put("three", "@daily", letter=letter, missed="perhaps")
        await peik.schedules.delete(made)
        with pytest.raises(NotFound):
            await peik.schedules.get(made)

    play(way, tmp_path, story)


def test_killed_in_the_middle_of_a_run_there_is_one_letter_not_two_and_not_none(tmp_path: Path) -> None:
    """What was stored to be made is made by the next process, once; an answer that was given holds."""
    chance = random.Random(3)

    async def story() -> None:
        async with simulated(tmp_path, limits={"on": False}) as (sim, http), served(tmp_path, sim.url, http) as server:
            names = [f"n{number}" for number in range(40)]
            for chat, name in enumerate(names, start=42):  # a chat each, so that none waits a second for the one before
                body = {"cron": "0 0 1 1 *", "letter": {"params": {"chat_id": chat, "text": "%{name} %{run}"}}}
                assert (await put(server, name, body))[0] == 201
            acknowledged: list[str] = []

            async def run(name: str) -> None:
                try:
                    status, answer = await server.call("POST", f"/v1/schedules/{name}/run")
                except (aiohttp.ClientError, ConnectionError):
                    return  # Peik is down
                assert (status, answer["state"]) in ((200, "done"), (200, "firing")), answer
                acknowledged.append(name)

            for start in range(0, len(names), 10):
                running = [asyncio.create_task(run(name)) for name in names[start : start + 10]]
                await asyncio.sleep(chance.uniform(0.005, 0.05))
                await server.program.kill()
                await asyncio.gather(*running)
                await server.start()
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    runs = {name: (await server.get(f"/v1/schedules/{name}/runs"))["runs"] for name in names}
                    if all(one["state"] == "done" for some in runs.values() for one in some):
                        break
                    await asyncio.sleep(0.05)
            await server.quiet()
            made = {name: [one["letter_id"] for one in some] for name, some in runs.items()}
            assert all(len(made[name]) == 1 for name in acknowledged), "an answer that was given holds"
            letters = (await server.get("/v1/letters?limit=1000"))["letters"]
            assert Counter(one["params"]["text"].split()[0] for one in letters) == Counter(
                name for name in names if made[name]
            )
            assert all(one["state"] == "completed" for one in letters)
            assert not server.surprises()

    asyncio.run(story())


@pytest.mark.gate  # waits for a full minute
def test_when_the_node_that_does_it_is_killed_at_the_due_time_another_does_it_once(tmp_path: Path) -> None:
    async def story() -> None:
        place = SHARED[0](tmp_path)
        settings: dict[str, Any] = {"store": place.url, "lease": "3s"}
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            served(tmp_path / "one", sim.url, http, **settings) as one,
            served(tmp_path / "two", sim.url, http, **settings) as two,
        ):
            names = [f"n{number}" for number in range(30)]
            for name in names:
                body = {"cron": "* * * * *", "letter": {"params": {"chat_id": 42, "text": f"{name} %{{time}}"}}}
                assert (await put(two, name, body | {"runs_max": 1}))[0] == 201
            first = await with_chores(one, two)
            other = two if first is one else one
            async with asyncio.timeout(PATIENCE_S):
                while not await deliveries(sim):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            await first.program.kill()
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    found = (await other.get("/v1/schedules?limit=1000"))["schedules"]
                    if all(each["state"] == "ended" and each["last_state"] == "done" for each in found):
                        break
                    await asyncio.sleep(0.1)
            assert len(found) == len(names)
            letters = (await other.get("/v1/letters?limit=1000"))["letters"]
            assert sorted(each["params"]["text"].split()[0] for each in letters) == sorted(names)
            assert not other.surprises()

    if not SHARED:
        pytest.skip("TEST_STORES=sqlite")
    asyncio.run(story())


async def with_chores(*servers: Server) -> Server:
    """The one that does it. A lease may just be changing hands."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for server in servers:
                nodes = (await server.get("/v1/nodes"))["nodes"]
                if any(node["is_this"] and node["does_chores"] for node in nodes):
                    return server
            await asyncio.sleep(0.05)
