"""A real browser for tests: Debian's Chromium, driven by Playwright."""

import contextlib
import shutil
from collections.abc import AsyncIterator

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests import wanting
from tests.patience import PATIENCE_S

PACKAGE = "chromium"
FONTS = "fonts-noto-core"  # for the Persian pages
PATIENCE_MS = PATIENCE_S * 1000
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name)) is not None), None)


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    path = program() or wanting.skip(PACKAGE, wanting.packaged(PACKAGE, FONTS))
    async with async_playwright() as playwright:
        # Without a sandbox of its own it also runs as root; it sees nothing but our own pages.
        opened = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield opened
        finally:
            await opened.close()


@contextlib.asynccontextmanager
async def page_of(
    opened: Browser,
    *,
    width: int = 1280,
    height: int = 800,
    language: str = "en",
    is_dark: bool = False,
    is_scripted: bool = True,
    is_refused: bool = False,
) -> AsyncIterator[Page]:
    """A window of its own. Whatever a page says against its own rules, or an error in a script, fails the test; with `is_refused`
    a form may be refused, of which browsers make an error as well."""
    context: BrowserContext = await opened.new_context(
        viewport={"width": width, "height": height},
        locale=language,
        color_scheme="dark" if is_dark else "light",
        java_script_enabled=is_scripted,
        timezone_id="Asia/Tehran",
    )
    context.set_default_timeout(PATIENCE_MS)
    troubles: list[str] = []
    page = await context.new_page()
    page.on("pageerror", lambda error: troubles.append(str(error)))

    def hear(text: str) -> None:
        if not (is_refused and "the server responded with a status of 4" in text):
            troubles.append(text)

    page.on("console", lambda message: hear(message.text) if message.type == "error" else None)
    try:
        yield page
    finally:
        await context.close()
    assert not troubles, troubles
