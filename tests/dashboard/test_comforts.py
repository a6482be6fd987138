"""Small things that a day at the dashboard is made of: readable figures, keys of any keyboard, pages that come quickly."""

import gzip
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import expect

from peik.core.letter import State
from peik.web.dashboard.render import masked, number_text, unmasked
from tests.dashboard.browser import browser, page_of
from tests.dashboard.test_browser import sign_in
from tests.dashboard.test_letters_pages import accept, dead, ended
from tests.dashboard.visiting import Answer, House, visit


@pytest.mark.parametrize(
    ("value", "language", "shown"),
    [
        (999, "en", "999"),
        (1234567, "en", "1,234,567"),
        (12345, "fa", "12,345"),
        (12345, "ru", "12\u00a0345"),
        (12345, "uz", "12\u00a0345"),
        ("20000+", "en", "20,000+"),
        ("no number", "en", "no number"),
    ],
)
def test_thousands_are_parted_as_the_language_does(value: object, language: str, shown: str) -> None:
    assert number_text(value, language) == shown


def test_the_word_of_a_session_looks_otherwise_each_time_and_is_the_same() -> None:
    word = "0123456789abcdef" * 2
    shown = {masked(word) for _ in range(20)}
    assert len(shown) == 20
    assert {unmasked(one, chars=32) for one in shown} == {word}
    assert unmasked(word, chars=32) == word
    assert unmasked("z" * 64, chars=32) == "z" * 64


def test_pages_are_compressed_for_whoever_takes_it_and_not_what_another_site_asks_for(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as visitor:
            jar = visitor.cookies
            async with aiohttp.ClientSession(cookie_jar=jar, auto_decompress=False) as http:

                async def asked(path: str, **headers: str) -> tuple[str | None, bytes]:
                    async with http.get(home.url + path, headers=headers) as response:
                        assert response.status == 200
                        return response.headers.get("Content-Encoding"), await response.read()

                plain = await asked("/admin/letters", **{"Accept-Encoding": "identity"})
                packed = await asked("/admin/letters", **{"Accept-Encoding": "br, gzip"})
                assert (plain[0], packed[0]) == (None, "gzip")
                assert len(packed[1]) * 2 < len(plain[1])
                assert b"</html>" in gzip.decompress(packed[1])
                assert (await asked("/admin", **{"Accept-Encoding": "gzip;q=0"}))[0] is None
                other = {"Accept-Encoding": "gzip", "Sec-Fetch-Site": "cross-site"}
                assert (await asked("/admin/letters", **other))[0] is None
                tags = (await visitor.get("/admin")).tags
                sheet = next(given["href"] for _, given in tags if given.get("href", "").endswith(".css"))
                assert (await asked(sheet, **{"Accept-Encoding": "gzip"}))[0] == "gzip"
                async with http.get(home.url + "/admin/live", headers={"Accept-Encoding": "gzip"}) as stream:
                    assert stream.headers.get("Content-Encoding") is None

    visit(tmp_path, story)


@pytest.mark.gate  # a browser
def test_keys_work_on_a_persian_keyboard_and_what_is_shown_is_copied(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        letter = await accept(home, text="copy me", chat=21)
        await ended(home, letter)
        async with browser() as opened, page_of(opened) as page:
            await sign_in(page, home.url)
            await page.goto(f"{home.url}/admin?lang=fa")
            await type_on(page, "\u0644", "KeyG")  # the key of g
            await type_on(page, "\u0645", "KeyL")
            await page.wait_for_url("**/admin/letters")
            await type_on(page, "\u062a", "KeyJ")
            await expect(page.get_by_role("link", name=str(letter), exact=True)).to_be_focused()
            await type_on(page, "\u061f", "Slash", is_shifted=True)
            await expect(page.locator("dialog")).to_be_visible()
            await page.keyboard.press("Escape")
            await page.goto(f"{home.url}/admin/letters/{letter}?lang=en")
            await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
            button = page.get_by_role("button", name="Copy").first
            await button.click()
            await expect(page.get_by_role("button", name="Copied")).to_be_visible()
            assert "copy me" in await page.evaluate("navigator.clipboard.readText()")

    visit(tmp_path, story)


async def type_on(page, key: str, code: str, *, is_shifted: bool = False) -> None:  # type: ignore[no-untyped-def]
    """As a keyboard with another alphabet does."""
    given = {"key": key, "code": code, "shiftKey": is_shifted, "bubbles": True}
    await page.evaluate("(given) => document.body.dispatchEvent(new KeyboardEvent('keydown', given))", given)


@pytest.mark.gate  # a browser
@pytest.mark.parametrize("is_scripted", [True, False])
def test_who_pressed_the_wrong_button_gets_out_of_it(is_scripted: bool, tmp_path: Path) -> None:
    async def story(home: House) -> None:
        (letter,) = await dead(home, 1)
        async with browser() as opened, page_of(opened, is_scripted=is_scripted) as page:
            await sign_in(page, home.url, "/admin/letters?state=failed")
            await page.get_by_role("button", name="Delete the undelivered ones").click()
            way_out = page.get_by_role("link", name="No, go back")
            danger = page.get_by_role("button", name="Yes, ")
            apart = [await one.bounding_box() for one in (way_out, danger)]
            assert apart[0]
            assert apart[1]
            assert apart[1]["x"] - apart[0]["x"] - apart[0]["width"] >= 60
            await way_out.click()
            await expect(page.get_by_role("link", name=str(letter), exact=True)).to_be_visible()

    visit(tmp_path, story)


def test_filters_offer_what_is_there_and_nothing_of_other_bots(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await dead(home, 2)
        await ended(home, await accept(home, text="<b>&\"'", chat=31))
        home.peik.watch.figures.breakdown.take()
        async with home.visitor() as visitor:
            page = await visitor.get("/admin/letters")
            shown = offered(page)
            assert {"31"} <= shown["chat_id"]
            assert "sendMessage" in shown["method"]
            assert any("Bad Request" in error for error in shown["error"])
            found = await visitor.submit(page, "/admin/letters", error=min(shown["error"]))
            assert "sendMessage" in found.text
            assert found.status == 200
            shown = offered(await visitor.get("/admin/audit"))
            assert "sign_in" in shown["action"]
            for path in (
                "/admin/log",
                "/admin/chats",
                "/admin/jobs",
                "/admin/arrivals",
                "/admin/letters?text=nothing-like-it",
            ):
                assert (await visitor.get(path)).status == 200, path
        async with home.visitor("read", bot_ids=frozenset({42})) as visitor:
            assert not any(offered(await visitor.get("/admin/letters")).values())

    visit(tmp_path, story)


def offered(page: Answer) -> dict[str, set[str]]:
    """What fields offer, by the name of the field that points to it."""
    found: dict[str, set[str]] = {}
    lists: dict[str, str] = {}
    here = ""
    for tag, values in page.tags:
        if tag == "input" and "list" in values:
            lists[values["list"]] = values["name"]
        if tag == "datalist":
            here = lists[values["id"]]
            found[here] = set()
        elif tag == "option" and here:
            found[here].add(values["value"])
        elif tag in ("select", "input", "label"):
            here = ""
    return found


@pytest.mark.gate  # a browser
@pytest.mark.parametrize("is_scripted", [True, False])
def test_a_field_that_offers_words_can_still_be_filled_with_others(is_scripted: bool, tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await dead(home, 1)
        home.peik.watch.figures.breakdown.take()
        async with browser() as opened, page_of(opened, is_scripted=is_scripted) as page:
            await sign_in(page, home.url, "/admin/letters?lang=en")
            field = page.locator("input[name=method]")
            assert await field.get_attribute("list") == "offered-method"
            assert await page.locator("datalist#offered-method option").count() >= 1
            await field.fill("sendmesage")  # a slip: nothing is found, and it stands there to be mended
            await page.get_by_role("button", name="Show", exact=True).click()
            await expect(page.locator("input[name=method]")).to_have_value("sendmesage")
            await page.locator("input[name=method]").fill("sendMessage")
            await page.get_by_role("button", name="Show", exact=True).click()
            await expect(page.locator("table.rows tbody tr")).to_have_count(1)

    visit(tmp_path, story)


@pytest.mark.gate  # a browser
@pytest.mark.parametrize("is_scripted", [True, False])
def test_ticked_rows_are_dealt_with_after_every_mistake_on_the_way(is_scripted: bool, tmp_path: Path) -> None:
    async def story(home: House) -> None:
        ids = await dead(home, 3)
        async with browser() as opened, page_of(opened, is_scripted=is_scripted, is_refused=True) as page:
            await sign_in(page, home.url, "/admin/letters?state=failed&lang=en")

            async def press(name: str) -> None:
                await page.locator("form#ticked").get_by_role("button", name=name).click()

            if not is_scripted:  # with a script, the buttons are there once something is ticked
                await press("Delete")
                await expect(page.get_by_text("Nothing is chosen")).to_be_visible()
                await page.goto(f"{home.url}/admin/letters?state=failed")
            await page.get_by_role("checkbox", name=f"Choose {ids[0]}").check()
            await page.get_by_role("checkbox", name=f"Choose {ids[1]}").check()
            await press("Delete")  # the wrong button
            await expect(page.locator("main")).to_contain_text(str(ids[0]))
            await expect(page.locator("main")).not_to_contain_text(str(ids[2]))
            await page.get_by_role("link", name="No, go back").click()
            for letter in ids:
                await expect(page.get_by_role("link", name=str(letter), exact=True)).to_be_visible()
            for letter in ids[:2]:  # they are chosen still
                await page.get_by_role("checkbox", name=f"Choose {letter}").uncheck()
            await page.get_by_role("checkbox", name=f"Choose {ids[2]}").check()
            await press("Delete")
            await page.get_by_role("button", name="Yes, delete them").click()
            await expect(page.get_by_text("Messages deleted: 1")).to_be_visible()
            await page.go_back()  # to the question, and once more
            await page.reload()
            await expect(page.get_by_role("button", name="Yes, delete them")).to_have_count(0)
        states = [(await home.peik.outbox.service.letter(one)).state for one in ids[:2]]
        assert states == [State.FAILED] * 2

    visit(tmp_path, story)
