"""Forgetting by REST, by the library and by the dashboard, on a running Peik."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from peik import Peik
from tests.dashboard.visiting import BOT, KEY, House, visit

PERSON = 912345678
TEXT = "saffron-and-rosewater"


async def asked(home: House, body: dict[str, Any], key: str = KEY) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as http,
        http.post(f"{home.url}/v1/forget", json=body) as response,
    ):
        return response.status, await response.json()


async def live_through(home: House) -> None:
    async with Peik.connect(home.url, key=KEY) as peik:
        await peik.send_text(PERSON, TEXT, wait=True)
        await peik.send_text(5, "somebody else's", wait=True)


def test_a_person_is_forgotten_over_rest(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await live_through(home)
        status, looked = await asked(home, {"user_id": str(PERSON), "dry_run": True})
        assert (status, looked["state"], looked["places"]["letters"]["removed"]) == (200, "dry_run", 1)
        status, done = await asked(home, {"user_id": PERSON})
        assert (status, done["state"], done["mark"]) == (200, "going_on", looked["mark"])
        assert done["places"]["letters"] == {"removed": 1, "blanked": 0, "left": 0}
        assert done["count"] == looked["count"]
        async with Peik.connect(home.url, key=KEY) as peik:
            assert [letter.chat_id async for letter in peik.letters()] == [5]
            # Whoever comes again begins afresh.
            await peik.send_text(PERSON, "welcome back", wait=True)
            again = await peik.forget(PERSON)
            assert (again["id"], again["count"]) == (done["id"], 2)
        page = await home.peik.audit.find(action="forgetEverywhere")
        assert [done["mark"] in line.detail for line in page.lines] == [True, True, True]
        assert str(PERSON) not in str(page.lines)

    visit(tmp_path, story, backups=str(tmp_path / "backups"))


def test_who_may_not_and_who_is_not_meant(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        sender = (await home.peik.keyring.make("s", ("read", "send"))).text
        narrow = (await home.peik.keyring.make("n", ("admin",), bot_ids=frozenset({BOT}))).text
        for key in (sender, narrow):
            assert (await asked(home, {"user_id": PERSON}, key))[0] == 403
        for body, status in (
            ({}, 422),
            ({"user_id": PERSON, "name": "ann"}, 422),
            ({"user_id": -100123}, 422),
            ({"user_id": "x"}, 422),
            ({"user_id": PERSON, "sure": True}, 422),
            ({"name": "nobody"}, 404),
            ({"name": "\0 ناشناس"}, 404),
            ({"user_id": "9" * 40}, 422),
            ({"user_id": PERSON, "bot_id": 1}, 404),
        ):
            assert (await asked(home, body))[0] == status, body

    visit(tmp_path, story)


def test_the_library_forgets_in_its_own_process(tmp_path: Path) -> None:
    async def story() -> None:
        store = f"sqlite:///{tmp_path / 'own.db'}"
        async with Peik.open(store, token=f"{BOT}:own", api_root="http://127.0.0.1:1") as peik:
            await peik.send_text(PERSON, TEXT)
            async with asyncio.timeout(60):  # while its first try is on its way, it is left
                while (await peik.forget(PERSON, dry_run=True))["places"]["letters"]["removed"] != 1:
                    pass
            assert (await peik.forget(PERSON))["places"]["letters"]["removed"] == 1
            assert [letter async for letter in peik.letters()] == []

    asyncio.run(story())


def test_the_page_of_a_chat_forgets_after_the_number_was_typed(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await live_through(home)
        here = f"/admin/chats/{BOT}/{PERSON}"
        async with home.visitor() as browser:
            page = await browser.get(here)
            wrong = await browser.submit(page, "/admin/chats/forget", typed="912")
            assert "Type the number of the chat" in wrong.text
            assert TEXT in (await browser.get(here)).text
            done = await browser.submit(await browser.get(here), "/admin/chats/forget", typed=str(PERSON))
            assert "The person is forgotten" in done.text
            assert TEXT not in (await browser.get(here)).text
        lines = (await home.peik.audit.find(action="chat.forget")).lines
        assert [str(line.outcome) for line in lines] == ["done", "refused"]
        assert str(PERSON) not in str(lines)
        async with home.visitor("read") as browser:
            assert "/admin/chats/forget" not in (await browser.get(here)).text

    visit(tmp_path, story)
