"""Screenshots of every page of the dashboard, from a demo that is full: `python -m tests.dashboard.screens FOLDER`. With
`--shown` those alone that the docs show; with `--every` each page in four languages, light and dark, 1280 and 390 pixels wide,
and what pages become under a hand: menus, questions, refused forms.

The main pages are taken in all eight ways: English and Persian, light and dark, 1280 and 360 pixels wide. All others in four:
wide and light, narrow and dark, both in English and in Persian. The Russian and the Uzbek README show the overview.
A picture ends after one or two screens, but with `--whole`.
"""

import argparse
import asyncio
import itertools
import os
import re
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from playwright.async_api import Browser, Page

from tests.dashboard.browser import browser, page_of
from tests.dashboard.demo import SHOP, Demo
from tests.dashboard.furnishing import furnished
from tests.dashboard.palette import small
from tests.dashboard.visiting import KEY

MAIN = frozenset({"overview", "letters", "letter-dead", "dead", "broadcast-running", "sign-in"})
# Streams, files, a redirect, and questions that need a filter to be asked.
NO_PAGES = frozenset(
    {
        "/admin/live",
        "/admin/queues",
        "/admin/archive/export",
        "/admin/archive/events/export",
        "/admin/letters/bulk",
        "/admin/arrivals/replay",
        "/admin/sign-out",
    }
)
SIGN_IN = "/admin/sign-in"
WIDE, NARROW, PHONE = 1280, 360, 390
HEIGHT = 800
HEIGHT_MAX = {WIDE: 1150, NARROW: 1000, PHONE: 1000}


class Way(msgspec.Struct, frozen=True):
    language: str
    theme: str
    width: int

    @property
    def name(self) -> str:
        return f"{self.language}-{self.theme}-{self.width}"

    @property
    def is_usual(self) -> bool:
        """Taken of every page, and not only of the main ones."""
        return (self.theme, self.width) in (("light", WIDE), ("dark", NARROW))


WAYS = tuple(Way(*one) for one in itertools.product(("en", "fa"), ("light", "dark"), (WIDE, NARROW)))
EVERY = tuple(Way(*one) for one in itertools.product(("en", "fa", "ru", "uz"), ("light", "dark"), (WIDE, PHONE)))
README_ONLY = tuple(Way(language, "light", WIDE) for language in ("ru", "uz"))


def pages_of(demo: Demo) -> dict[str, str]:
    """Every page that can be looked at by its address alone, and some of one thing each."""
    plain = {
        path.removeprefix("/admin").strip("/").replace("/", "-").replace("~", "") or "overview": path
        for verb, path, *_ in demo.dashboard.pages
        if verb == "GET" and "{" not in path and path not in NO_PAGES
    }
    asked = {
        "overview-day": "/admin?span=day",
        "letters-found": "/admin/letters?text=order&state=completed",
        "letters-bulk": "/admin/letters/bulk?act=retry&state=failed",
        "letters-waiting": "/admin/letters?state=waiting",
        "search-found": "/admin/search?q=order",
        "search-none": "/admin/search?q=nobody+said+this",
        "charts-methods": "/admin/charts?by=method&span=day",
        "charts-kinds": "/admin/charts?by=kind",
        "charts-one": f"/admin/charts?by=bot&name={SHOP}",
        "arrivals-replay": f"/admin/arrivals/replay?bot_id={SHOP}",
        "job-kind": "/admin/jobs/kinds/report",
        "help-one": "/admin/help/disk",
        "problem": "/admin/letters?since=soon",
    }
    return {"sign-in": SIGN_IN, **plain, **asked, **demo.pages}


async def _press(page: Page, what: str, *, first: int = 1) -> None:
    for number in range(first):
        await page.locator(what).nth(number).click()


async def _send(page: Page) -> None:
    """The form of a page as it is, though browsers would ask for what is missing."""
    async with page.expect_navigation():
        await page.evaluate(
            """const form = document.querySelector("main form button.main").form;
            form.noValidate = true; form.requestSubmit();"""
        )


Hand = Callable[[Page], Awaitable[None]]
# What pages become under a hand: where, and what is done there.
TOUCHED: dict[str, tuple[str, Hand]] = {
    "menu": ("/admin", lambda page: _press(page, ".menu > summary")),
    "ticked": ("/admin/letters?state=failed", lambda page: _press(page, "td.tick input", first=2)),
    "sure": ("/admin/dead", lambda page: _press(page, "main details.confirm > summary")),
    "person": ("/admin/people", lambda page: _press(page, "main td details > summary")),
    "no-page": ("/admin/nothing", lambda page: page.wait_for_load_state()),
    "keyboard": ("/admin/bots", lambda page: page.keyboard.press("?")),
    "letter-refused": ("/admin/letters/new", _send),
    "broadcast-refused": ("/admin/broadcasts/new", _send),
    "schedule-refused": ("/admin/schedules/~new", _send),
}


def _pressing(what: str) -> Hand:
    return lambda page: _press(page, what)


FOLDED = {"sections": ("/admin", ".nav-fold > summary"), "filters": ("/admin/letters", ".fold-head")}  # on a phone


async def sign_in(page: Page, url: str) -> None:
    await page.goto(url + SIGN_IN)
    await page.locator("input[name=key]").fill(KEY)
    await page.locator("form button").first.click()
    await page.wait_for_url(lambda address: SIGN_IN not in address)


def shown() -> frozenset[str]:
    """The pictures that a page of the docs shows."""
    pages = [*Path().glob("README*.md"), *Path("docs").rglob("*.md")]
    return frozenset(
        name for page in pages for name in re.findall(r"screens/([a-z0-9-]+\.png)", page.read_text("utf-8"))
    )


async def taken(
    demo: Demo, opened: Browser, folder: Path, *, is_whole: bool, names: frozenset[str], files: frozenset[str]
) -> None:
    async with page_of(opened) as service:
        for way in (*WAYS, *README_ONLY):
            async with page_of(opened, width=way.width, language=way.language, is_dark=way.theme == "dark") as page:
                for name, path in pages_of(demo).items():
                    is_wanted = name == "overview" if way in README_ONLY else name in MAIN or way.is_usual
                    file = folder / f"{name}-{way.name}.png"
                    if is_wanted and (not names or name in names) and (not files or file.name in files):
                        picture = await _picture(page, demo, path, way, is_whole=is_whole)
                        file.write_bytes(await small(service, picture))
                    if path == SIGN_IN:  # the first of them, and the only one that needs no sign-in
                        await sign_in(page, demo.url)


async def every(demo: Demo, opened: Browser, folder: Path, names: frozenset[str], ways: tuple[Way, ...]) -> None:
    for way in ways:
        dark = way.theme == "dark"
        async with page_of(opened, width=way.width, language=way.language, is_dark=dark, is_refused=True) as page:
            for name, path in pages_of(demo).items():
                if not names or name in names:
                    picture = await _picture(page, demo, path, way, is_whole=False)
                    (folder / f"{name}-{way.name}.png").write_bytes(picture)
                if path == SIGN_IN:
                    await sign_in(page, demo.url)
            folded = {name: (path, _pressing(what)) for name, (path, what) in FOLDED.items()}
            for name, (path, hand) in (TOUCHED if way.width == WIDE else {**TOUCHED, **folded}).items():
                if not names or name in names:
                    await page.goto(demo.url + path)
                    await hand(page)
                    picture = await page.screenshot(animations="disabled")
                    (folder / f"{name}-{way.name}.png").write_bytes(picture)


async def _picture(page: Page, demo: Demo, path: str, way: Way, *, is_whole: bool) -> bytes:
    await page.goto(demo.url + path)
    names = {str(demo.folder): "/var/lib/peik", str(Path.cwd()): "/srv/shop", os.uname().nodename: "peik-1"}
    await page.evaluate(_ELSEWHERE, names)
    height = await page.evaluate("document.documentElement.scrollHeight")
    height = height if is_whole else min(height, HEIGHT_MAX[way.width])
    if way.width != WIDE:  # the bar at the thumb is at the end of the picture, and not in its middle
        await page.set_viewport_size({"width": way.width, "height": height})
    picture = await page.screenshot(
        full_page=True, clip={"x": 0, "y": 0, "width": way.width, "height": height}, animations="disabled"
    )
    await page.set_viewport_size({"width": way.width, "height": HEIGHT})
    return picture


# Pictures are the same wherever they are taken: the names of this machine and its folders are none of their business.
_ELSEWHERE = """(names) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    for (const [name, other] of Object.entries(names)) {
      walker.currentNode.data = walker.currentNode.data.replaceAll(name, other);
    }
  }
}"""


async def _main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--whole", action="store_true", help="pages to their very end")
    asked.add_argument("--only", default="", help="names of pages, comma-separated")
    asked.add_argument("--shown", action="store_true", help="those alone that a page of the docs shows")
    asked.add_argument("--every", action="store_true", help="each page in every language, theme and width")
    asked.add_argument("--ways", default="", help="with --every, of these alone: fa-dark-390,…")
    told = asked.parse_args()
    told.folder.mkdir(parents=True, exist_ok=True)
    names = frozenset(name for name in told.only.split(",") if name)
    with tempfile.TemporaryDirectory() as folder:
        async with furnished(Path(folder)) as demo, browser() as opened:
            if told.every:
                named = {way.name: way for way in EVERY}
                ways = tuple(named[name] for name in told.ways.split(",")) if told.ways else EVERY
                await every(demo, opened, told.folder, names, ways)
                return
            files = shown() if told.shown else frozenset()
            await taken(demo, opened, told.folder, is_whole=told.whole, names=names, files=files)


if __name__ == "__main__":
    asyncio.run(_main())
