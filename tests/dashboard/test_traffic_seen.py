"""Letters and arrivals in a real browser: pages follow what happens, and fit a phone in a language from right to left."""

from pathlib import Path

from playwright.async_api import Page, expect

from peik.core.documents import Contact
from tests.dashboard.browser import PATIENCE_MS, browser, page_of
from tests.dashboard.test_arrivals_pages import arrive, give_up
from tests.dashboard.test_letters_pages import accept, dead
from tests.dashboard.visiting import BOT, KEY, House, visit

HOUR_MS = 3_600_000


async def sign_in(page: Page, home: House) -> None:
    await page.goto(f"{home.url}/admin/sign-in")
    await page.fill("input[name=key]", KEY)
    await page.locator("form:has(input[name=key]) button").first.click()
    await page.wait_for_url("**/admin")


def test_the_page_of_a_letter_follows_its_delivery_without_being_asked(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        service = home.peik.outbox.service
        await service.hold_chat(BOT, 5, home.peik.clock.wall_ms() + HOUR_MS)
        letter_id = await accept(home, chat=5)
        async with browser() as opened, page_of(opened) as page:
            await sign_in(page, home)
            await page.goto(f"{home.url}/admin/letters/{letter_id}")
            await expect(page.locator("h1")).to_contain_text("waiting")
            await expect(page.locator("[data-live-state]")).to_have_text("live", timeout=PATIENCE_MS)
            await service.hold_chat(BOT, 5, 0)
            await expect(page.locator("h1")).to_contain_text("delivered", timeout=PATIENCE_MS)
            await expect(page.locator(".timeline")).to_contain_text("delivered", timeout=PATIENCE_MS)

    visit(tmp_path, story)


def test_no_page_is_wider_than_a_phone_in_persian(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        at_ms = home.peik.clock.wall_ms()
        (letter_id,) = await dead(home, 1, f"Bad Request: {'long' * 60}")
        await accept(home, chat=5, text="سلام " * 40, send_at_ms=at_ms + HOUR_MS)
        await home.peik.outbox.service.hold_chat(BOT, 5, at_ms + HOUR_MS)
        person = Contact(
            bot_id=BOT, chat_id=5, type="private", name="م" * 60, first_seen_ms=at_ms, last_seen_ms=at_ms, campaign="c" * 60
        )  # fmt: skip
        await home.peik.store.contacts.save_contacts(BOT, [person], place=2**40)
        (arrival_id,) = await arrive(home, "x" * 500, user=5)
        await give_up(home, [arrival_id], "ValueError: " + "y" * 200)
        paths = (
            "letters", "letters/new", "letters/bulk?act=retry", f"letters/{letter_id}", "dead", "dead/arrivals", "dead/jobs",
            "lanes", "arrivals", f"arrivals/{arrival_id}", "arrivals/replay", "chats", "chats/shut", f"chats/{BOT}/5",
        )  # fmt: skip
        async with browser() as opened, page_of(opened, width=360, height=740, language="fa") as page:
            await sign_in(page, home)
            for path in paths:
                await page.goto(f"{home.url}/admin/{path}")
                await expect(page.locator("html")).to_have_attribute("dir", "rtl")
                assert await page.locator("h1").count() == 1, path
                root = "document.documentElement"
                over = await page.evaluate(f"{root}.scrollWidth - {root}.clientWidth")
                assert over <= 0, f"{path} is {over} px too wide"

    visit(tmp_path, story)
