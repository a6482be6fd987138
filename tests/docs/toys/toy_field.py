"""In the copy: the new field of a broadcast, by every way in and out."""

import asyncio
from pathlib import Path

import aiohttp
from typer.testing import CliRunner

from peik import Peik
from peik.app.commands import app
from peik.testing import SimServer
from tests.dashboard.visiting import KEY, house
from tests.client.counters import both, play
from tests.processes.programs import BOT


def body(**more: object) -> dict[str, object]:
    audience = {"chat_ids": [11, 12]}
    return {"method": "sendMessage", "params": {"text": "hello"}, "audience": audience, "bot_id": BOT, **more}


def test_it_goes_through_rest_and_is_documented(tmp_path: Path) -> None:
    async def story() -> None:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with house(tmp_path) as home, aiohttp.ClientSession(home.url, headers=headers) as http:
            made = await (await http.post("/v1/broadcasts", json=body(label="spring"))).json()
            found = await (await http.get(f"/v1/broadcasts/{made['id']}")).json()
            assert (made["label"], found["label"]) == ("spring", "spring")
            refused = await (await http.post("/v1/broadcasts", json=body(label=""))).json()
            assert refused["code"] == "bad_label"
            schemas = (await (await http.get("/openapi.json")).json())["components"]["schemas"]
            assert "label" in schemas["BroadcastBody"]["properties"]
            assert "label" in schemas["Broadcast"]["properties"]

    asyncio.run(story())


@both
def test_it_goes_through_the_library_in_this_process_and_over_rest(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        made = await peik.broadcasts.create("sendMessage", {"text": "hello"}, chat_ids=[11], label="spring")
        assert (await peik.broadcasts.get(made)).label == "spring"

    play(way, tmp_path, story)


def test_the_command_has_the_option() -> None:
    assert "--label" in CliRunner(env={"COLUMNS": "200"}).invoke(app, ["broadcast", "create", "--help"]).output
