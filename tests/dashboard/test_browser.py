"""The dashboard in a real browser, before a real Peik and a simulated Telegram in processes of their own."""

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from peik.core.events import BotPaused
from tests.dashboard.browser import PATIENCE_MS, browser, page_of
from tests.dashboard.test_letters_pages import accept, dead, ended
from tests.dashboard.test_sentences import english_in
from tests.dashboard.visiting import BOT, KEY, House, visit
from tests.processes.programs import Server, Sim, served, simulated

pytestmark = pytest.mark.gate  # a browser

LETTERS = "/admin/letters"
RECIPIENTS = 5000
FIRST = 60_000_000
SOON_S, LATER_S = 0.05, 0.15  # how long Telegram takes for one: 5,000 take some seconds, with 64 at a time
LATE_S = 2.0  # before the pause: minutes for all, so that it is surely not over when somebody has found the button

expect.set_options(timeout=PATIENCE_MS)


async def sign_in(page: Page, url: str, path: str = "/admin") -> None:
    """By the form, which leads on to the page that was asked for."""
    await page.goto(url + path)
    await page.get_by_label("API key").fill(KEY)
    await page.get_by_role("button", name="Sign in").first.click()
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.url == url + path


async def post(server: Server, chat: int, text: str, **terms: Any) -> str:
    """A new letter's id."""
    body = {"method": "sendMessage", "params": {"chat_id": chat, "text": text}, **terms}
    written = json.dumps(body, ensure_ascii=False).encode()
    status, answer = await server.call("POST", "/v1/letters", data=written)
    assert status == 202, answer
    return str(answer["id"])


async def ends(server: Server, letter_id: str) -> str:
    return str((await server.get(f"/v1/letters/{letter_id}?wait=60"))["state"])


def state_of(page: Page) -> Any:
    return page.locator("h1 .state")


def test_a_letter_goes_out_before_ones_eyes_is_found_and_sent_again_or_resolved(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            served(tmp_path, sim.url, http) as server,
            browser() as opened,
            page_of(opened) as page,
        ):
            await watch(server, sim, page)
            await find(server, page)
            await send_again(server, sim, page)
            await resolve(server, sim, page)
            assert not server.surprises()

    asyncio.run(story())


async def watch(server: Server, sim: Sim, page: Page) -> None:
    letter_id = await post(server, 11, "a parcel for Leila", send_at="2099-01-01T00:00:00Z")
    await sign_in(page, server.url, f"{LETTERS}/{letter_id}")
    await expect(state_of(page)).to_have_text("delayed")
    await page.evaluate("window.isTheSame = true")
    status, _ = await server.call("PATCH", f"/v1/letters/{letter_id}", json={"send_at": "now"})
    assert status == 200
    await expect(state_of(page)).to_have_text("delivered")
    await expect(page.locator(".timeline")).to_contain_text("delivered")
    assert await page.evaluate("window.isTheSame"), "the page was loaded anew"
    assert [one["text"] for one in (await sim.get("sent", chat=11))["deliveries"]] == ["a parcel for Leila"]


async def find(server: Server, page: Page) -> None:
    """By its words, with the search that is on every page, and its history behind it."""
    letter_id = await post(server, 12, "چای سبز برای رضا")
    assert await ends(server, letter_id) == "completed"
    await page.goto(f"{server.url}/admin")
    await page.get_by_role("searchbox", name="Search everything").fill("سبز")
    await page.keyboard.press("Enter")
    rows = page.locator("table.rows tbody tr")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("چای سبز برای رضا")
    await rows.get_by_role("link", name=letter_id, exact=True).click()
    await expect(state_of(page)).to_have_text("delivered")
    await expect(page.locator(".timeline li")).to_have_count(2)  # accepted, delivered


async def send_again(server: Server, sim: Sim, page: Page) -> None:
    await sim.post("faults", kind="error", status=400, words="Bad Request: message is too long", chat=13, count=1)
    letter_id = await post(server, 13, "too long at first")
    assert await ends(server, letter_id) == "failed"
    await page.goto(f"{server.url}/admin/dead")
    await page.get_by_role("link", name=letter_id, exact=True).click()
    await expect(page.locator("main")).to_contain_text("message is too long")
    await page.get_by_role("button", name="Send again").click()
    await expect(page.get_by_role("status")).to_contain_text(f"Message {letter_id} is sent again.")
    await expect(state_of(page)).to_have_text("delivered")


async def resolve(server: Server, sim: Sim, page: Page) -> None:
    """One of which nobody knew had arrived, and is sent no more; the other had not, and is."""
    for chat, button, times in ((14, "It arrived", 1), (15, "It did not: send again", 2)):
        await sim.post("faults", kind="lose_after", chat=chat, count=1)
        letter_id = await post(server, chat, "perhaps", on_uncertain="hold")
        assert await ends(server, letter_id) == "failed"
        await page.goto(f"{server.url}{LETTERS}/{letter_id}")
        await expect(state_of(page)).to_have_text("uncertain")
        await page.get_by_role("button", name=button).click()
        await expect(state_of(page)).to_have_text("delivered")
        assert len((await sim.get("sent", chat=chat))["deliveries"]) == times


@pytest.mark.timeout(900)
def test_a_broadcast_is_paused_on_its_page_and_goes_on_after_kills_and_everybody_gets_it_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            served(tmp_path, sim.url, http, pace="off") as server,
            browser() as opened,
            enduring(opened) as page,
        ):
            await sim.post("faults", kind="slow", least_s=LATE_S, most_s=LATE_S)
            await write(server, page)
            await page.get_by_role("link", name="Start…").click()
            await page.get_by_label("Type the number").fill(str(RECIPIENTS))
            await page.get_by_role("button", name="Start").click()
            await reaches(page, 200)
            await page.get_by_role("button", name="Pause").click()
            await expect(page.locator(".s-paused")).to_be_visible()
            await sim.delete("faults")
            await sim.post("faults", kind="slow", least_s=SOON_S, most_s=LATER_S)
            await server.program.kill()
            await server.start()
            await page.reload()
            await expect(page.locator(".s-paused")).to_be_visible()
            assert await done(page) < RECIPIENTS
            await page.get_by_role("button", name="Resume").click()
            await reaches(page, 1500)
            await server.program.kill()  # and the page stays open
            await server.start()
            await expect(page.locator(".kv .s-completed")).to_be_visible()
            assert await done(page) == RECIPIENTS
            await judge(server, sim)

    asyncio.run(story())


@contextlib.asynccontextmanager
async def enduring(opened: Browser) -> AsyncIterator[Page]:
    """A window that may meet a server that is not there."""
    context = await opened.new_context(locale="en")
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield await context.new_page()
    finally:
        await context.close()


async def write(server: Server, page: Page) -> None:
    await sign_in(page, server.url, "/admin/broadcasts/new")
    await page.get_by_label("Text", exact=True).fill("Tea at five")
    await page.get_by_label("A list of chats").check()
    await page.get_by_label("Chats", exact=True).fill(" ".join(str(FIRST + number) for number in range(RECIPIENTS)))
    await page.get_by_role("button", name="Make a draft").click()
    await expect(page.locator("progress")).to_have_attribute("max", str(RECIPIENTS))


async def done(page: Page) -> int:
    return int(await page.locator("progress").get_attribute("value") or 0)


async def reaches(page: Page, count: int) -> None:
    """The page shows, without being asked, that so many have had it."""
    await page.wait_for_function("(count) => document.querySelector('progress').value >= count", arg=count)


async def judge(server: Server, sim: Sim) -> None:
    """By Telegram's own books: everybody got it, and twice only whose try a kill has cut off."""
    had: Counter[int] = Counter()
    after = 0
    while page := (await sim.get("sent", after=after, limit=5000))["deliveries"]:
        had.update(one["chat_id"] for one in page)
        after = page[-1]["number"]
    assert set(had) == set(range(FIRST, FIRST + RECIPIENTS))
    doubtful: Counter[int] = Counter()
    path = "/v1/letters?limit=1000"
    cursor = ""
    while True:
        found = await server.get(path + cursor)
        for letter in found["letters"]:
            doubtful[int(letter["chat_id"])] += letter["uncertain_tries"]
        if found["next_cursor"] is None:
            break
        cursor = f"&cursor={found['next_cursor']}"
    assert {chat: times for chat, times in had.items() if times > 1 + doubtful[chat]} == {}
    assert sum(doubtful.values()) <= 2 * 64  # so many were on their way when it was killed


def test_everything_can_be_reached_by_keys(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        ids = [await accept(home, text=f"number {number}", chat=20 + number) for number in range(3)]
        for letter_id in ids:
            await ended(home, letter_id)
        async with browser() as opened, page_of(opened) as page:
            await sign_in(page, home.url)
            await page.keyboard.press("Tab")
            skip = page.get_by_role("link", name="Skip to the content")
            await expect(skip).to_be_focused()
            await expect(skip).to_be_in_viewport()
            await page.keyboard.press("Enter")
            await expect(page.locator("main")).to_be_focused()

            await page.keyboard.press("?")
            await expect(page.locator("dialog")).to_be_visible()
            await page.keyboard.press("Escape")
            await expect(page.locator("dialog")).to_be_hidden()

            await page.keyboard.press("g")
            await page.keyboard.press("l")
            await page.wait_for_url(re.compile(f"{LETTERS}$"))
            for key, place in (("j", 2), ("j", 1), ("k", 2)):  # the newest first
                await page.keyboard.press(key)
                link = page.get_by_role("link", name=str(ids[place]), exact=True)
                await expect(link).to_be_focused()
            assert await link.evaluate("(one) => getComputedStyle(one).outlineStyle") == "solid"
            await page.keyboard.press("Enter")
            await page.wait_for_url(re.compile(f"{LETTERS}/{ids[2]}$"))

            await page.keyboard.press("/")
            await expect(page.get_by_role("searchbox")).to_be_focused()
            await page.keyboard.press("?")  # a letter like any other, here
            await expect(page.locator("dialog")).to_be_hidden()

    visit(tmp_path, story)


def test_without_javascript_one_signs_in_reads_and_sends_again(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        (letter_id,) = await dead(home, 1)
        async with browser() as opened, page_of(opened, is_scripted=False) as page:
            await sign_in(page, home.url, f"{LETTERS}?state=failed")
            await expect(page.locator("table.rows tbody tr")).to_have_count(1)
            await page.get_by_role("link", name=str(letter_id), exact=True).click()
            await page.get_by_role("button", name="Send again").click()
            await expect(page.get_by_role("status")).to_contain_text("is sent again")
            await ended(home, letter_id)
            await page.reload()
            await expect(state_of(page)).to_have_text("delivered")
            await page.goto(f"{home.url}/admin/dead")
            await expect(page.locator(".empty")).to_be_visible()
            await page.locator("details.menu summary").first.click()
            await page.get_by_role("button", name="Sign out", exact=True).click()
            await expect(page.get_by_label("API key")).to_be_visible()

    visit(tmp_path, story)


@pytest.mark.parametrize("is_scripted", [True, False])
def test_a_broadcast_is_written_with_every_mistake_and_nothing_is_lost(is_scripted: bool, tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with browser() as opened, page_of(opened, is_scripted=is_scripted, is_refused=True) as page:
            await sign_in(page, home.url, "/admin/broadcasts/new")
            chats = " ".join(str(2000 + number) for number in range(101))
            await page.get_by_role("textbox", name="Text", exact=True).fill("one\ntwo {name}")
            await page.get_by_role("textbox", name="Chats", exact=True).fill(chats)  # and no button chosen
            await page.get_by_role("button", name="Make a draft").click()
            await expect(page.get_by_role("textbox", name="Chats", exact=True)).to_have_value(chats)
            await expect(page.locator("#error-chats")).to_be_visible()
            await page.get_by_label("A list of chats").check()
            await page.get_by_role("button", name="Make a draft").click()
            await expect(page.locator("#error-text")).to_contain_text("name")
            await expect(page.get_by_role("textbox", name="Text", exact=True)).to_have_value("one\ntwo {name}")
            await page.get_by_role("textbox", name="Text", exact=True).fill("one\ntwo")

            # The session ends while somebody writes.
            for cookie in await page.context.cookies():
                if cookie["name"] == "peik_session":
                    await home.dashboard.board.sign_ins.sign_out(cookie["value"])
            await page.get_by_role("button", name="Make a draft").click()
            await expect(page.locator("main")).to_contain_text("the form is there again")
            await page.get_by_label("API key").fill(KEY)
            await page.get_by_role("button", name="Sign in").first.click()
            await expect(page.get_by_role("textbox", name="Text", exact=True)).to_have_value("one\ntwo")
            await expect(page.get_by_label("A list of chats")).to_be_checked()
            await page.get_by_role("button", name="Make a draft").click()
            await expect(page.locator(".bubble")).to_contain_text("two")

            await page.get_by_role("link", name="Start…").click()
            number = page.get_by_label("Type the number")
            await number.fill("11")
            await page.get_by_role("button", name="Start").click()
            await expect(page.locator("#error-number")).to_be_visible()
            await expect(number).to_have_value("11")
            await number.fill("101")
            await page.get_by_role("button", name="Start").click()
            await expect(page.get_by_role("status")).to_contain_text("starts")
            (one,) = await home.peik.broadcasts.service.find()
            assert (one.total, one.params) == (101, '{"text":"one\\ntwo"}')

    visit(tmp_path, story)


def test_whoever_reads_persian_makes_every_mistake_and_reads_no_english(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        (letter_id,) = await dead(home, 1)
        home.peik.events.tell(BotPaused(bot_id=BOT, reason="Unauthorized"))
        async with browser() as opened, page_of(opened, language="fa", width=390, is_refused=True) as page:
            await page.goto(f"{home.url}/admin/sign-in")
            await page.locator("input[name=key]").fill("mistyped")
            await page.locator("form button").first.click()
            await expect(page.locator("[role=alert]")).to_contain_text("این کلید شناخته نیست")
            await page.locator("input[name=key]").fill(KEY)
            await page.locator("form button").first.click()

            # From the alert to what is to be done about it, and back to the whole of it.
            await page.locator("#alerts a[href='/admin/help/bot-paused']").click()
            await expect(page.locator("main")).to_contain_text("توکن را از @BotFather بگیرید")
            await page.locator("main a[href='/admin/help']").click()
            await expect(page.locator("#disk")).to_contain_text("دیسک")

            # A day that there is not, then one by the Persian calendar, in Persian digits.
            await page.goto(f"{home.url}{LETTERS}?since=1404/13/01")
            await expect(page.locator("[role=alert]")).to_contain_text("زمان نیست")
            await expect(page.locator("input[name=since]")).to_have_value("1404/13/01")
            await page.goto(f"{home.url}{LETTERS}?since=۱۴۰۴/۰۱/۰۱ ۰۸:۳۰")  # noqa: RUF001  its digits
            await expect(page.get_by_role("link", name=str(letter_id), exact=True)).to_be_visible()
            await page.get_by_role("link", name=str(letter_id), exact=True).click()
            # What it means, before Telegram's own words.
            await expect(page.locator(".said.bad")).to_contain_text("درخواست درست ساخته نشده")
            assert english_in(await page.content()) == []

            # Ticked nothing; a message that is empty; a broadcast to nobody.
            await page.goto(f"{home.url}{LETTERS}/bulk?act=retry&ticked=1")
            await expect(page.locator("[role=alert]")).to_contain_text("چیزی انتخاب نکرده‌اید")
            for path, field, words in (
                (f"{LETTERS}/new", "chat_id", "بگویید به کدام گفتگو"),
                ("/admin/broadcasts/new", "text", "بگویید چه فرستاده شود"),
                ("/admin/schedules/~new", "name", "خالی است"),
            ):
                await page.goto(home.url + path)
                await page.evaluate(
                    "document.querySelectorAll('main [required]').forEach((one) => one.required = false)"
                )
                await page.locator("main form[method=post] button:not([type=button])").first.click()
                await expect(page.locator(f"#error-{field}")).to_contain_text(words)
                assert english_in(await page.content()) == [], path

    visit(tmp_path, story)
