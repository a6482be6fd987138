"""The inbox through the gateway: long polls and webhooks as Telegram's own, and updates that outlive a crash."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.gateways import Client, Envelope, play, until
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, Server, Sim


async def write(sim: Sim, *texts: str, user: int = 5) -> None:
    for text in texts:
        await sim.post("write", bot=BOT, user=user, text=text)


def texts(polled: Envelope) -> list[str]:
    return [update["message"]["text"] for update in polled.result]


async def poll(bot: Client, *, token: str | None = None, at_least: int = 1, **params: Any) -> Envelope:
    """What a poll finds once Peik has fetched so much."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await bot.call("getUpdates", token=token, timeout=5, **params)
            if len(found.result) >= at_least:
                return found


def test_a_bot_that_polls_gets_what_people_write_until_it_says_that_it_has_it(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await write(sim, "one", "two", "three")
        found = await poll(bot, at_least=3)
        assert texts(found) == ["one", "two", "three"]
        ids = [update["update_id"] for update in found.result]
        assert ids == list(range(ids[0], ids[0] + 3))
        assert texts(await bot.send("GET", "getUpdates", params={"limit": 1})) == ["one"]
        assert texts(await bot.send("POST", "getUpdates", data={"offset": str(ids[1])})) == ["two", "three"]
        await peik.program.kill()
        await peik.start()
        assert texts(await poll(bot, at_least=2)) == ["two", "three"]
        assert (await bot.call("getUpdates", offset=ids[2] + 1)).result == []
        waiting = asyncio.create_task(bot.call("getUpdates", offset=ids[2] + 1, timeout=50))
        await write(sim, "four")
        assert texts(await waiting) == ["four"]

    play(tmp_path, story, polling_redelivery="off")


def test_a_consumer_too_many_is_refused_in_words_at_every_door(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        assert (await bot.call("getUpdates", token=f"{bot.token}@first")).result == []
        refused = await bot.call("getUpdates", token=f"{bot.token}@second")
        assert refused.status == 409
        assert "raise PEIK_CONSUMERS_MAX" in refused.json["description"]
        pushed = await bot.call("setWebhook", token=f"{bot.token}@third", url="https://bot.example/")
        assert (pushed.status, "PEIK_CONSUMERS_MAX" in pushed.json["description"]) == (409, True)
        bot_id = bot.token.partition(":")[0]
        for verb, path, body in (
            ("PUT", f"/v1/consumers/{bot_id}/fourth", {"url": "https://bot.example/"}),
            ("GET", f"/v1/arrivals/stream?bot_id={bot_id}&consumer=fifth", None),
        ):
            status, problem = await peik.call(verb, path, json=body)
            assert (status, problem["code"]) == (409, "too_many_consumers")
        assert (await bot.call("getUpdates", token=f"{bot.token}@first")).result == []
        assert {one["name"] for one in (await peik.get("/v1/consumers"))["consumers"]} == {"default", "first"}

    play(tmp_path, story, consumers_max="1")


def test_a_long_poll_that_finds_nothing_is_answered_with_nothing(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        longer = asyncio.create_task(bot.call("getUpdates", token=f"{bot.token}@other", timeout=50))
        assert (await bot.call("getUpdates", timeout=1)).result == []
        assert not longer.done()
        longer.cancel()
        await asyncio.wait([longer])

    play(tmp_path, story)


def test_the_newest_poll_wins_and_the_older_one_is_told_so_in_telegrams_words(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await bot.call("getUpdates")
        polls = [asyncio.create_task(bot.call("getUpdates", timeout=50)) for _ in range(2)]
        done, parked = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        (older,) = done
        assert older.result().refusal == (
            409,
            "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
        )
        await write(sim, "for the newer one")
        (newer,) = parked
        assert texts(await newer) == ["for the newer one"]

    play(tmp_path, story)


def test_two_programs_on_one_token_each_see_everything_and_say_for_themselves_what_they_want(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        stats = f"{bot.token}@stats"
        await bot.call("getUpdates", allowed_updates=["message"])
        await bot.call("getUpdates", token=stats, allowed_updates='["callback_query", "message"]')
        await write(sim, "hello")
        sent = await bot.call("sendMessage", chat_id=5, text="menu")
        await sim.post("press", bot=BOT, user=5, message_id=sent.result["message_id"], data="x")
        for_stats = await poll(bot, token=stats, at_least=2)
        assert [set(update) - {"update_id"} for update in for_stats.result] == [{"message"}, {"callback_query"}]
        plain = await poll(bot)
        assert texts(plain) == ["hello"]
        last = for_stats.result[-1]["update_id"]
        assert (await bot.call("getUpdates", token=stats, offset=last + 1)).result == []
        assert texts(await bot.call("getUpdates")) == ["hello"]

    play(tmp_path, story)


def test_pending_updates_are_dropped_for_the_one_who_asks_and_kept_for_the_others(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await write(sim, "old", "older")
        await poll(bot, at_least=2)
        assert (await bot.call("getWebhookInfo")).result["pending_update_count"] == 2
        dropped = await bot.call("deleteWebhook", drop_pending_updates="true")
        assert dropped.json == {"ok": True, "result": True, "description": "Webhook is already deleted"}
        assert (await bot.call("getUpdates")).result == []
        assert texts(await poll(bot, token=f"{bot.token}@other", at_least=2)) == ["old", "older"]
        assert texts(await bot.call("getUpdates", token=f"{bot.token}@other", offset=-1)) == ["older"]

    play(tmp_path, story)


def test_a_webhook_is_set_shown_and_removed_and_telegram_never_hears_of_it(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        parked = asyncio.create_task(bot.call("getUpdates", timeout=50))
        await write(sim, "wake")
        await parked
        url = "http://127.0.0.1:9/hook"
        hook = {"url": url, "secret_token": "s3cret", "max_connections": "7", "allowed_updates": '["message"]'}
        assert (await bot.send("POST", "setWebhook", data=hook)).json["description"] == "Webhook was set"
        assert (await bot.send("POST", "setWebhook", data=hook)).json["description"] == "Webhook is already set"
        info = (await bot.call("getWebhookInfo")).result
        assert (info["url"], info["max_connections"], info["allowed_updates"]) == (url, 7, ["message"])
        refused = await bot.call("getUpdates")
        assert refused.status == 409
        assert "while webhook is active" in refused.refusal[1]
        assert (await bot.call("setWebhook", url="ftp://x")).refusal[1].startswith("Bad Request: bad webhook: ")
        assert (await bot.call("setWebhook", url=url, secret_token="a b")).status == 400
        assert (await bot.call("setWebhook", url="127.0.0.1:9/hook")).result is True
        assert (await bot.call("getWebhookInfo")).result["url"] == "https://127.0.0.1:9/hook"
        assert (await bot.call("setWebhook", url="")).json["description"] == "Webhook was deleted"
        assert (await bot.call("getWebhookInfo")).result["url"] == ""
        assert texts(await bot.call("getUpdates")) == ["wake"]
        assert (await bot.call("close")).result is True
        assert (await bot.call("logOut")).result is True
        requests = (await sim.get("counters"))["requests"]
        assert not {"setWebhook", "close", "logOut"} & requests.keys()

    play(tmp_path, story)


def test_updates_are_pushed_to_the_bots_webhook_and_a_call_in_its_answer_is_a_letter(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        pushed: asyncio.Queue[tuple[str | None, dict[str, Any]]] = asyncio.Queue()

        async def take(request: web.Request) -> web.Response:
            update = await request.json()
            pushed.put_nowait((request.headers.get("X-Telegram-Bot-Api-Secret-Token"), update))
            reply = {"method": "sendMessage", "chat_id": 5, "text": f"echo {update['message']['text']}"}
            return web.json_response(reply)

        app = web.Application()
        app.router.add_post("/hook", take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            port = runner.addresses[0][1]
            assert (await bot.call("setWebhook", url=f"http://127.0.0.1:{port}/hook", secret_token="s3")).result
            await write(sim, "ping")
            async with asyncio.timeout(PATIENCE_S):
                secret, update = await pushed.get()
            assert (secret, update["message"]["text"]) == ("s3", "ping")
            sent = await sim.get("sent", at_least=1)
            assert sent["deliveries"][0]["text"] == "echo ping"
        finally:
            await runner.cleanup()

    play(tmp_path, story)


def test_a_webhook_that_fails_is_shown_with_its_address_and_the_last_error(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        pushed: asyncio.Queue[str] = asyncio.Queue()

        async def take(request: web.Request) -> web.Response:
            text = (await request.json())["message"]["text"]
            pushed.put_nowait(text)
            return web.Response(status=500 if text == "poison" and pushed.qsize() == 1 else 200)

        app = web.Application()
        app.router.add_post("/hook", take)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            url = f"http://localhost:{runner.addresses[0][1]}/hook"
            assert (await bot.call("setWebhook", url=url)).result
            info = (await bot.call("getWebhookInfo")).result
            assert (info["ip_address"], "last_error_date" in info) == ("<unknown>", False)
            before_s = int(time.time())
            await write(sim, "poison")
            async with asyncio.timeout(PATIENCE_S):
                while (  # noqa: ASYNC110  another process is waited for
                    (await bot.call("getWebhookInfo")).result["pending_update_count"] or pushed.qsize() < 2
                ):
                    await asyncio.sleep(0.02)  # it is tried again by real time, and taken
            info = (await bot.call("getWebhookInfo")).result
            assert info["ip_address"] == "127.0.0.1"
            assert info["last_error_date"] >= before_s
            assert info["last_error_message"] == "Wrong response from the webhook: 500 Internal Server Error"
            assert (await bot.call("setWebhook", url="http://127.0.0.1:9/other")).result
            assert "last_error_date" not in (await bot.call("getWebhookInfo")).result
        finally:
            await runner.cleanup()

    play(tmp_path, story)


def test_a_poll_is_answered_at_once_when_peik_ends(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        polls = [asyncio.create_task(bot.call("getUpdates", timeout=50)) for _ in range(2)]
        _, (parked,) = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)  # the newer one has come, too
        assert await peik.program.terminate() == 0
        assert (await parked).result == []

    play(tmp_path, story, grace="1h")


@pytest.mark.gate  # waits until a real poll is given up
def test_a_bot_that_dies_is_handed_again_what_it_had_not_answered(tmp_path: Path) -> None:
    """Over real connections: that of the bot that dies is closed while its next poll waits."""

    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await write(sim, "one", "two")
        found = await poll(bot, at_least=2)
        first, last = (update["update_id"] for update in found.result)
        waiting = asyncio.create_task(bot.call("getUpdates", offset=last + 1, timeout=50))
        chat = found.result[0]["message"]["chat"]["id"]
        answered = {"message_id": found.result[0]["message"]["message_id"]}
        # Until its poll is there, and confirms.
        await until(lambda: bot.call("getWebhookInfo"), lambda info: info.result["pending_update_count"] == 0)
        await bot.call("sendMessage", chat_id=chat, text="answer", reply_parameters=answered)
        [consumer] = (await peik.get("/v1/consumers"))["consumers"]
        assert consumer["handed"] == 1
        states = {one["number"]: one["state"] for one in (await peik.get("/v1/arrivals"))["arrivals"]}
        assert states[last] == "active"
        waiting.cancel()
        again = await poll(bot, at_least=1)
        assert texts(again) == ["two"]
        assert [update["update_id"] for update in again.result] == [last]
        assert first < last
        [view] = [one for one in (await peik.get("/v1/arrivals"))["arrivals"] if one["number"] == last]
        [delivery] = (await peik.get(f"/v1/arrivals/{view['id']}"))["deliveries"]
        assert [line["outcome"] for line in delivery["history"]] == ["handed again"]

    play(tmp_path, story)
