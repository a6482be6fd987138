"""How pages lie on a screen: on a telephone and on a desk, in every language, nothing is cut off, covered or nameless."""

import asyncio
import itertools
from pathlib import Path

import pytest
from playwright.async_api import Page

from tests.clients import node
from tests.dashboard.browser import browser, page_of
from tests.dashboard.furnishing import furnished
from tests.dashboard.screens import NARROW, SIGN_IN, WIDE, pages_of, sign_in

pytestmark = pytest.mark.gate  # a browser, on every page

DIRECTIONS = {"en": "ltr", "fa": "rtl", "ru": "ltr", "uz": "ltr"}

# WCAG 2.2 A and AA, and what axe holds to be good practice; minor remarks are left out.
GRAVE = ("critical", "serious", "moderate")
VIOLATIONS = """async (grave) => (await axe.run(document, {
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
})).violations.filter((one) => grave.includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`)"""

_FAULTS = Path(__file__).with_name("faults.js").read_text()


def test_nothing_is_cut_off_covered_or_nameless_on_any_page(tmp_path: Path) -> None:
    async def story() -> None:
        async with furnished(tmp_path) as demo, browser() as opened:
            faults: dict[str, list[str]] = {}
            for language, width in itertools.product(DIRECTIONS, (WIDE, NARROW)):
                async with page_of(opened, width=width, language=language) as page:
                    for name, path in pages_of(demo).items():
                        found = await faults_of(page, demo.url + path, language)
                        if found:
                            faults[f"{name} in {language}, {width} px"] = found
                        if path == SIGN_IN:
                            await sign_in(page, demo.url)
            assert faults == {}

    asyncio.run(story())


def test_axe_finds_nothing_serious_on_any_page(tmp_path: Path) -> None:
    node.wanted(has_packages=True)
    axe = (node.PACKAGES / "axe-core" / "axe.min.js").read_text()

    async def story() -> None:
        async with furnished(tmp_path) as demo, browser() as opened:
            found: dict[str, list[str]] = {}
            for language, width, is_dark in (("en", WIDE, False), ("fa", 390, True)):
                async with page_of(opened, width=width, language=language, is_dark=is_dark) as page:
                    for name, path in pages_of(demo).items():
                        await page.goto(demo.url + path)
                        await page.evaluate(
                            "document.querySelectorAll('main details').forEach((one) => (one.open = true))"
                        )
                        await page.evaluate(axe)
                        if violations := await page.evaluate(VIOLATIONS, sorted(GRAVE)):
                            found[f"{name} in {language}"] = violations
                        if path == SIGN_IN:
                            await sign_in(page, demo.url)
            assert found == {}

    asyncio.run(story())


def test_axe_sees_what_is_serious() -> None:
    node.wanted(has_packages=True)
    axe = (node.PACKAGES / "axe-core" / "axe.min.js").read_text()

    async def story() -> None:
        async with browser() as opened, page_of(opened) as page:
            await page.set_content(
                '<html lang="en"><title>x</title><main><p style="color: #ccc">pale</p><input></main>'
            )
            await page.evaluate(axe)
            found = await page.evaluate(VIOLATIONS, sorted(GRAVE))
            assert {one.partition(":")[0] for one in found} >= {"color-contrast", "label"}

    asyncio.run(story())


def test_faults_are_seen_where_there_are_some() -> None:
    page_of_faults = """<!doctype html><html dir="ltr"><body>
      <p style="width: 3000px">too wide</p>
      <p style="width: 50px; overflow: hidden; white-space: nowrap">longer than its place</p>
      <a href="/a" style="position: absolute; top: 200px">one</a> <a href="/b" style="position: absolute; top: 205px">other</a>
      <input type="text" name="nameless">
      <main><details style="display: none"><summary>gone</summary>folded</details></main>
      <svg class="chart" style="overflow: visible" width="90"><text x="80" y="9">beyond it</text></svg>"""

    async def story() -> None:
        async with browser() as opened, page_of(opened) as page:
            await page.set_content(page_of_faults)
            found = await page.evaluate(_FAULTS)
            assert [fault.partition(":")[0] for fault in found] == [
                "scrolls sideways",
                "cut off",
                "cut off",
                "hidden",
                "covered",
                "nameless",
            ]

    asyncio.run(story())


@pytest.mark.parametrize(("room", "is_covered"), [("3rem", False), ("0", True)])
def test_a_bar_at_the_thumb_covers_what_no_scrolling_uncovers(room: str, is_covered: bool) -> None:
    page_of_bar = f"""<!doctype html><html dir="ltr"><body style="margin: 0; padding-bottom: {room}">
      <p style="height: 1500px">long</p><p style="margin: 0; height: 3rem"><a href="/last">last of the page</a></p>
      <p style="position: fixed; bottom: 0; margin: 0; height: 3rem; width: 100%"><a href="/bar">bar</a></p>"""

    async def story() -> None:
        async with browser() as opened, page_of(opened) as page:
            await page.set_content(page_of_bar)
            await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
            found = await page.evaluate(_FAULTS)
            assert [fault.partition(":")[0] for fault in found] == ["covered"] * is_covered

    asyncio.run(story())


async def faults_of(page: Page, url: str, language: str) -> list[str]:
    """Those of a page as it comes, and with everything unfolded."""
    await page.goto(url)
    direction = await page.evaluate("document.documentElement.dir")
    found = [] if direction == DIRECTIONS[language] else [f"it is written {direction}"]
    found += await page.evaluate(_FAULTS)
    await page.evaluate("document.querySelectorAll('main details').forEach((one) => (one.open = true))")
    found += await page.evaluate(_FAULTS)
    return list(dict.fromkeys(found))
