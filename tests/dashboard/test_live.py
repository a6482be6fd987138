"""A real browser on the first page: it comes alive, keeps what people do, and breaks no rule of its own."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Page

from tests.dashboard.browser import browser, page_of
from tests.dashboard.test_overview import deliver
from tests.dashboard.visiting import KEY, House, visit

pytestmark = pytest.mark.gate  # a browser


async def sign_in(page: Page, home: House) -> None:
    await page.goto(f"{home.url}/admin/sign-in")
    await page.fill("form.card > label input[name=key]", KEY)
    await page.click("form.card > button")
    await page.wait_for_url("**/admin")


def test_figures_follow_what_happens_and_an_open_fold_stays_open(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with browser() as chromium, page_of(chromium) as page:
            await sign_in(page, home)
            await page.wait_for_selector("[data-live-state]:not(.off)")
            await page.click("details.menu summary")
            await deliver(home, 2)
            await page.locator(".tile", has_text=re.compile(r"Delivered\s*2\s*Last")).wait_for()
            assert await page.eval_on_selector("details.menu", "one => one.open")

    visit(tmp_path, story)


def test_keys_lead_around_and_help_is_there(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with browser() as chromium, page_of(chromium) as page:
            await sign_in(page, home)
            await page.keyboard.press("?")
            await page.wait_for_selector("dialog[open]")
            await page.keyboard.press("Escape")
            await page.keyboard.press("/")
            assert await page.evaluate("document.activeElement.id") in ("search", "")
            await page.goto(f"{home.url}/admin/settings")
            await page.keyboard.press("g")
            await page.keyboard.press("o")
            await page.wait_for_url("**/admin")

    visit(tmp_path, story)


def test_every_page_fits_a_phone_in_every_language(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with browser() as chromium:
            for language in ("en", "fa", "ru", "uz"):
                async with page_of(chromium, width=360, height=740, language=language) as page:
                    await sign_in(page, home)
                    for path in ("/admin", "/admin/settings"):
                        await page.goto(home.url + path)
                        wider = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                        assert wider <= 0, (language, path)

    visit(tmp_path, story)


def test_without_scripts_everything_is_there(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await deliver(home, 1)
        async with browser() as chromium, page_of(chromium, is_scripted=False) as page:
            await sign_in(page, home)
            assert await page.locator("svg.chart").count() == 2
            await page.click("details.menu summary")
            await page.click("details.menu button >> nth=0")
            await page.wait_for_url("**/admin/sign-in")

    visit(tmp_path, story)
