"""The control calls under /sim/: another process in any language can do all that a test in Python can."""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

from docs.pages.simulator import simulator_parts
from peik.testing import Kind, Options, SimServer, Telegram, control
from tests.patience import PATIENCE_S
from tests.sim.conftest import TOKEN
from tests.sim.wires import BASE, story

DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"


class Outsider:
    """A test in another process, as far as HTTP shows."""

    def __init__(self, client: aiohttp.ClientSession, url: str) -> None:
        self.client = client
        self.url = url

    async def do(self, verb: str, path: str, expect: int = 200, **given: Any) -> Any:
        query = given if verb == "GET" else None
        body = None if verb == "GET" else given
        async with self.client.request(verb, f"{self.url}{path}", params=query, json=body) as response:
            answer = await response.json()
            assert response.status == expect, answer
            return answer["result"] if expect == 200 else answer["description"]


def test_a_whole_conversation_is_driven_and_read_from_outside():
    async def play() -> None:
        async with SimServer() as sim, aiohttp.ClientSession() as client:
            outsider = Outsider(client, sim.url)
            await outsider.do("POST", "/sim/bots", token=TOKEN, username="tea_bot")
            await outsider.do("POST", "/sim/users", id=7, first_name="Ann")
            await outsider.do("POST", "/sim/write", bot=TOKEN, user=7, text="/start")
            updates = await outsider.do("POST", f"{BASE}/getUpdates")
            assert updates[0]["message"]["from"]["first_name"] == "Ann"
            await outsider.do("POST", f"{BASE}/sendMessage", chat_id=7, text="Tea?")
            message = await outsider.do("GET", "/sim/message", bot=700042, chat=7, message_id=2)
            assert message["from"]["username"] == "tea_bot"
            query = await outsider.do("POST", "/sim/press", bot=700042, user=7, message_id=2, data="yes")
            assert await outsider.do("POST", f"{BASE}/answerCallbackQuery", callback_query_id=query["id"])
            sent = await outsider.do("GET", "/sim/sent", chat=7)
            assert [row["text"] for row in sent["deliveries"]] == ["Tea?"]
            applied = await outsider.do("GET", "/sim/applied", method="answerCallbackQuery")
            assert applied["total"] == 1
            counters = await outsider.do("GET", "/sim/counters")
            assert counters["requests"]["sendMessage"] == 1
            assert (await outsider.do("GET", "/sim/bots"))[0]["pending_update_count"] == 2
            assert await outsider.do("POST", "/sim/reset") is True
            assert (await outsider.do("GET", "/sim/sent"))["total"] == 0

    story(play())


def test_chats_topics_files_and_standing_from_outside():
    async def play() -> None:
        async with SimServer() as sim, aiohttp.ClientSession() as client:
            outsider = Outsider(client, sim.url)
            await outsider.do("POST", "/sim/bots", token=TOKEN)
            forum = await outsider.do(
                "POST", "/sim/chats", type="supergroup", title="Forum", is_forum=True, bots=[TOKEN]
            )
            topic = await outsider.do("POST", "/sim/topics", chat=forum["id"], name="News")
            await outsider.do(
                "POST",
                f"{BASE}/sendMessage",
                chat_id=forum["id"],
                text="x",
                message_thread_id=topic["message_thread_id"],
            )
            assert await outsider.do("POST", "/sim/standing", bot=TOKEN, chat=forum["id"], status="left")
            await outsider.do("POST", f"{BASE}/sendMessage", expect=403, chat_id=forum["id"], text="x")
            group = await outsider.do("POST", "/sim/chats", type="group", bots=[700042])
            assert (await outsider.do("POST", "/sim/migrate", chat=group["id"]))["chat_id"] < -(10**12)
            assert await outsider.do("POST", "/sim/block", bot=TOKEN, user=7)
            await outsider.do("POST", f"{BASE}/sendMessage", expect=403, chat_id=7, text="x")
            assert await outsider.do("POST", "/sim/unblock", bot=TOKEN, user=7)
            cat = base64.b64encode(b"meow").decode()
            message = await outsider.do(
                "POST", "/sim/upload", bot=TOKEN, user=7, kind="photo", base64=cat, filename="cat.jpg"
            )
            edited = await outsider.do(
                "POST", "/sim/edit", bot=TOKEN, chat=7, message_id=message["message_id"], text="new"
            )
            assert edited["text"] == "new"
            await outsider.do("POST", "/sim/ask", bot=TOKEN, user=7, kind="inline")
            pushed = await outsider.do("POST", "/sim/update", bot=TOKEN, type="poll", payload={"id": "5"})
            assert pushed["update_id"] > 2_000_000
            fresh = await outsider.do("POST", "/sim/revoke", bot=TOKEN)
            await outsider.do("POST", f"{BASE}/getMe", expect=401)
            await outsider.do("POST", f"/bot{fresh['token']}/getMe")

    story(play())


def test_faults_and_options_from_outside_through_the_side_door():
    async def play() -> None:
        async with SimServer() as sim, aiohttp.ClientSession() as client:
            outsider = Outsider(client, sim.control_url)
            options = await outsider.do("POST", "/sim/options", limits={"chat_burst": 1})
            assert options["limits"]["chat_burst"] == 1
            assert (await outsider.do("GET", "/sim/options"))["limits"]["bot_per_s"] == 30
            fault = await outsider.do("POST", "/sim/faults", kind="error", status=503, method="getMe", seconds=60)
            async with client.get(f"{sim.url}{BASE}/getMe") as response:
                assert response.status == 503
            assert [one["kind"] for one in await outsider.do("GET", "/sim/faults")] == ["error"]
            await outsider.do("DELETE", "/sim/faults", id=fault["id"])
            await outsider.do("POST", "/sim/dark", on=True)
            assert await is_refused(sim)
            await outsider.do("POST", "/sim/dark", on=False)
            assert not await is_refused(sim)
            await outsider.do("POST", "/sim/outage", seconds=600)
            assert await is_refused(sim)
            await outsider.do("DELETE", "/sim/faults", kind="dark")
            assert not await is_refused(sim)

    story(play())


async def is_refused(sim: SimServer) -> bool:
    try:
        _, writer = await asyncio.open_connection(sim.host, sim.port)
    except ConnectionRefusedError:
        return True
    writer.close()
    await writer.wait_closed()
    return False


def test_an_outsider_waits_for_a_number_of_deliveries_not_for_a_time():
    async def play() -> None:
        async with SimServer() as sim, aiohttp.ClientSession() as client:
            outsider = Outsider(client, sim.url)
            waiting = asyncio.create_task(outsider.do("GET", "/sim/sent", at_least=2, timeout=10))
            await sim.until(lambda: len(sim.telegram.awaited) == 1, timeout=PATIENCE_S)
            for text in ("one", "two"):
                await outsider.do("POST", f"{BASE}/sendMessage", chat_id=7, text=text)
            assert (await waiting)["total"] == 2
            assert (await outsider.do("GET", "/sim/sent", at_least=9, timeout=0.01))["total"] == 2

    story(play())


def test_mistakes_are_told_with_what_to_do():
    async def play() -> None:
        async with SimServer() as sim, aiohttp.ClientSession() as client:
            outsider = Outsider(client, sim.url)
            assert "POST /sim/write" in await outsider.do("GET", "/sim/nothing", expect=404)
            assert "user" in await outsider.do("POST", "/sim/write", expect=422, bot=TOKEN)
            assert "colour" in await outsider.do("POST", "/sim/write", expect=422, bot=TOKEN, user=7, colour="red")
            assert "no bot 5" in await outsider.do("POST", "/sim/write", expect=422, bot=5, user=7)
            assert "lose_before" in await outsider.do("POST", "/sim/faults", expect=422, kind="explode")
            assert "option" in await outsider.do("POST", "/sim/options", expect=422, speed=1)
            assert "no message 9" in await outsider.do(
                "POST", "/sim/press", expect=422, bot=TOKEN, user=7, message_id=9, data="x"
            )

    story(play())


def test_what_people_do_is_done_from_outside_as_in_python():
    async def play() -> None:
        options = Options(accept_any_chat=False)
        async with SimServer(options=options) as sim, aiohttp.ClientSession() as client:
            outsider = Outsider(client, sim.url)
            await outsider.do("POST", "/sim/bots", token=TOKEN)
            for user_id, name in ((7, "Ann"), (8, "Bob")):
                await outsider.do("POST", "/sim/users", id=user_id, first_name=name, last_name="Tea")
            group = (await outsider.do("POST", "/sim/chats", type="supergroup", bots=[TOKEN], slow_mode_s=5))["id"]
            rights = {"can_pin_messages": False}
            assert await outsider.do(
                "POST", "/sim/set_member", chat=group, user=700042, status="administrator", rights=rights
            )
            assert await outsider.do("POST", "/sim/join", bot=TOKEN, chat=group, user=7) is True
            members = await outsider.do("POST", f"{BASE}/getChatMember", chat_id=group, user_id=700042)
            assert members["can_pin_messages"] is False
            poll = await outsider.do("POST", f"{BASE}/sendPoll", chat_id=7, question="Tea?", options=["yes", "no"])
            assert await outsider.do("POST", "/sim/vote", bot=TOKEN, user=7, poll_id=poll["poll"]["id"], options=[1])
            prices = [{"label": "tea", "amount": 3}]
            terms = {"title": "Tea", "description": "d", "payload": "pot", "currency": "XTR", "prices": prices}
            invoice = await outsider.do("POST", f"{BASE}/sendInvoice", chat_id=7, **terms)
            query_id = await outsider.do("POST", "/sim/pay", bot=TOKEN, user=7, message=invoice)
            assert await outsider.do("POST", "/sim/answer", bot=TOKEN, query_id=query_id) is None
            await outsider.do("POST", f"{BASE}/answerPreCheckoutQuery", pre_checkout_query_id=query_id, ok=True)
            assert await outsider.do("POST", "/sim/answer", bot=TOKEN, query_id=query_id) == {"ok": True}
            file = {"base64": base64.b64encode(b"tea").decode(), "filename": "ann.png"}
            assert await outsider.do("POST", "/sim/picture", bot=TOKEN, user=7, file=file) is True
            photos = await outsider.do("POST", f"{BASE}/getUserProfilePhotos", user_id=7)
            assert photos["total_count"] == 1
            told = [
                next(kind for kind in one if kind != "update_id")
                for one in await outsider.do("POST", f"{BASE}/getUpdates")
            ]
            assert {"my_chat_member", "poll", "pre_checkout_query", "message"} <= set(told)
            assert "unknown field" in await outsider.do(
                "POST", "/sim/join", expect=422, bot=TOKEN, chat=group, person=7
            )
            gone = await outsider.do("POST", "/sim/vote", expect=422, bot=TOKEN, user=7, poll_id="0", options=[1])
            assert gone == "There is no open poll 0."
            await outsider.do("POST", "/sim/picture", expect=422, bot=TOKEN, user=7, file={"base64": "?"})

    story(play())


def test_everything_that_people_do_in_python_has_a_control_call():
    # The bots' side, the pusher's, and what a program has other calls for.
    others = {"call", "ripe", "connected", "exchange", "download", "pushes_due", "push_done", "next_push_at", "bot", "chat",
              "user", "topic", "kick", "upload", "edit", "press", "ask", "update", "block", "unblock", "migrate", "message",
              "outage", "dark", "revoke"}  # fmt: skip
    verbs = {name for name, held in vars(Telegram).items() if callable(held) and not name.startswith("_")}
    assert verbs == others | set(control.DEEDS)


def test_every_control_call_and_every_fault_has_its_place_in_the_docs():
    text = DOCS.read_text()
    assert [kind for kind in Kind if f"`{kind}`" not in text] == []
    calls = simulator_parts()[-1].splitlines()[2:]
    assert len(calls) == len(control.CALLS)
    assert [row for row in calls if row.endswith("|  |")] == []


def test_as_a_program_it_says_where_it_listens_and_ends_when_told():
    async def play() -> None:
        config = json.dumps({"limits": {"on": False}, "accept_any_token": False})
        command = [sys.executable, "-m", "peik.testing", "--port", "0", "--seed", "1", "--config", config]
        program = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert program.stdout is not None
        said = json.loads(await program.stdout.readline())
        async with aiohttp.ClientSession() as client:
            outsider = Outsider(client, said["url"])
            await outsider.do("POST", f"{BASE}/getMe", expect=401)
            await Outsider(client, said["control_url"]).do("POST", "/sim/bots", token=TOKEN)
            await outsider.do("POST", f"{BASE}/getMe")
        program.terminate()
        assert await program.wait() == 0

    story(play())
