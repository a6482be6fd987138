"""Alerts over REST and on the dashboard: what goes on, what was told, what to do, and a test of the ways."""

from pathlib import Path
from typing import Any

import aiohttp

from peik.core import events
from tests.dashboard.visiting import BOT, KEY, House, visit
from tests.web.accounts import until

ADMIN = 40_100_106


async def asked(home: House, verb: str, path: str, key: str = KEY) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as http,
        http.request(verb, home.url + path) as response,
    ):
        return response.status, await response.json()


def test_what_goes_on_is_shown_with_what_to_do_and_so_is_its_end(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        home.peik.events.tell(events.BotPaused(bot_id=BOT, reason="Unauthorized"))

        async def told() -> Any:
            _, shown = await asked(home, "GET", "/v1/alerts")
            return shown if shown["last"] and shown["ongoing"] else None

        shown = await until(told)
        (one,) = shown["ongoing"]
        assert (one["rule"], one["bot_id"], one["runbook"]) == ("bot-paused", str(BOT), "docs/runbook.md#bot-paused")
        assert "peik bots add" in one["todo"]
        assert [(line["kind"], line["rule"]) for line in shown["last"]] == [("began", "bot-paused")]
        async with home.visitor() as browser:
            page = await browser.get("/admin")
            assert "/admin/help/bot-paused" in page.links
            assert "@BotFather" in (await browser.get("/admin/help/bot-paused")).text
        home.peik.events.tell(events.BotResumed(bot_id=BOT))

        async def over() -> Any:
            _, shown = await asked(home, "GET", "/v1/alerts")
            return shown if not shown["ongoing"] and len(shown["last"]) == 2 else None

        assert (await until(over))["last"][0]["kind"] == "over"

    visit(tmp_path, story)


def test_a_key_of_some_bots_sees_what_is_theirs_and_tests_nothing(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        key = (await home.peik.keyring.make("x", ("read", "admin"), bot_ids=frozenset({BOT}))).text
        home.peik.events.tell(events.BotPaused(bot_id=BOT, reason="Unauthorized"), events.LeasesLost(lost=3, held=1))

        async def told() -> Any:
            _, shown = await asked(home, "GET", "/v1/alerts")
            return shown if len(shown["ongoing"]) == len(shown["last"]) == 2 else None

        await until(told)
        _, shown = await asked(home, "GET", "/v1/alerts", key)
        assert [one["rule"] for one in shown["ongoing"]] == ["bot-paused"]
        assert [one["rule"] for one in shown["last"]] == ["bot-paused"]
        assert (await asked(home, "POST", "/v1/alerts/test", key))[0] == 403
        assert (await asked(home, "GET", "/v1/alerts", "nobody"))[0] == 401

    visit(tmp_path, story)


def test_a_test_goes_by_every_way(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        status, shown = await asked(home, "POST", "/v1/alerts/test")
        assert status == 200
        assert shown["ways"] == [{"way": f"chat {ADMIN}", "is_done": True, "why": None}]

        async def came() -> bool:
            return any("this is a test" in text for text in home.sim.telegram.sent.texts(ADMIN))

        await until(came)

    visit(tmp_path, story, admin_chats=str(ADMIN))
