"""The search that is on every page."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from peik.contacts import pages_search
from tests.dashboard.browser import browser, page_of
from tests.dashboard.test_browser import sign_in
from tests.dashboard.test_letters_pages import accept, dead, ended
from tests.dashboard.visiting import BOT, House, visit
from tests.storage.all_places import PLACES

FAR = "2099-01-01T00:00:00Z"


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
def test_one_search_finds_numbers_chats_names_words_and_errors_and_no_keys(kind: Any, tmp_path: Path) -> None:
    async def story(home: House) -> None:
        (refused,) = await dead(home, 1)
        persian = await accept(home, text="مي\u200cروم به كتابخانه ۱۲", chat=41)
        channel = await accept(home, text="news", chat="@tea_channel")  # type: ignore[arg-type]
        for one in (persian, channel):
            await ended(home, one)
        async with home.visitor("read") as browser:

            async def found(words: str) -> set[str]:
                page = await browser.submit(await browser.get("/admin"), "/admin/search", q=words)
                assert page.status == 200, page.text
                return {link for link in page.links if re.fullmatch(r"/admin/letters/[0-9]+", link)}

            def own(*ids: int) -> set[str]:
                return {f"/admin/letters/{one}" for one in ids}

            for words in ("میروم", "می روم", "کتابخانه 12", "  ۱۲ کتابخانه "):
                assert await found(words) == own(persian), words
            assert await found("@TEA_channel") == own(channel)
            assert await found("message is too LONG") == own(refused)
            assert await found("chat_id") == await found("text") == set()
            assert own(refused) <= await found(str(refused).translate(str.maketrans("0123456789", "۰۱۲۳۴۵۶۷۸۹")))
            page = await browser.get("/admin/search?q=41")
            assert f"/admin/chats/{BOT}/41" in page.links
            page = await browser.get("/admin/search?q=" + "%00")
            assert page.status == 422
            assert "Finds messages" in (await browser.get("/admin/search?q=%E2%80%8C")).text

    place = kind(tmp_path)
    visit(tmp_path, story, store=getattr(place, "url", f"sqlite:///{tmp_path / 'peik.db'}"))


def test_a_key_of_another_bot_finds_nothing_of_this_one(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        letter = await accept(home, text="a secret parcel", chat=51)
        await ended(home, letter)
        async with home.visitor("read", bot_ids=frozenset({999})) as browser:
            for words in ("parcel", str(letter), "51", str(BOT)):
                page = await browser.get(f"/admin/search?q={words}")
                assert "secret" not in page.text
                assert f"/admin/letters/{letter}" not in page.links
                assert f"/admin/chats/{BOT}/51" not in page.links

    visit(tmp_path, story)


def test_what_was_not_looked_through_yet_is_said_and_looked_through_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_search, "LETTERS_LOOKED_MAX", 20)
    monkeypatch.setattr(pages_search, "STEP", 10)

    async def story(home: House) -> None:
        await waiting(home, "needle")
        for number in range(45):
            await waiting(home, f"hay {number}")
        async with home.visitor("read") as browser:
            page = await browser.get("/admin/search?q=NEEDLE")
            looks = 1
            while "needle" not in page.text:
                assert "Nothing found so far." in page.text
                assert "Looked through: 20, back to" in page.text
                (further,) = [
                    link
                    for link in page.links
                    if "in=letters&before=" in link and "lang" not in link and "theme" not in link and "tz" not in link
                ]
                page, looks = await browser.get(further), looks + 1
            assert looks == 3
            assert "Everything was looked through." in page.text

    visit(tmp_path, story)


async def waiting(home: House, text: str) -> int:
    return await accept(home, text=text, chat=61, send_at_ms=4_000_000_000_000)


@pytest.mark.gate  # a browser
def test_in_a_browser_the_look_goes_on_by_itself_and_a_mistyped_word_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_search, "LETTERS_LOOKED_MAX", 10)
    monkeypatch.setattr(pages_search, "STEP", 10)

    async def story(home: House) -> None:
        letter = await waiting(home, "نامه‌ی رضا")
        await asyncio.gather(*(waiting(home, f"hay {number}") for number in range(40)))
        async with browser() as opened, page_of(opened) as page:
            await sign_in(page, home.url)
            await page.keyboard.press("/")
            await page.keyboard.type("رظا")
            await page.keyboard.press("Enter")
            await expect(page.locator("main")).to_contain_text("Everything was looked through.")
            await expect(page.locator("table.rows tbody tr")).to_have_count(0)
            await page.locator("main").get_by_role("searchbox").fill("نامه ي رضا")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("link", name=str(letter), exact=True)).to_be_visible()
            assert await page.locator("table.rows tbody tr").count() == 1

    visit(tmp_path, story)
