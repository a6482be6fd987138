"""The link that `peik demo` prints: it brings its key behind the #, and a person only has to press the button."""

import asyncio
from pathlib import Path

from playwright.async_api import expect

from tests.dashboard.browser import PATIENCE_MS, browser, page_of
from tests.dashboard.visiting import KEY
from tests.processes.programs import served, simulated

expect.set_options(timeout=PATIENCE_MS)


def test_a_key_behind_the_hash_is_filled_in_taken_away_and_used_by_nobody_but_a_person(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path) as (sim, http),
            served(tmp_path, sim.url, http) as server,
            browser() as opened,
            page_of(opened) as page,
        ):
            asked: list[str] = []
            page.on("request", lambda request: asked.append(f"{request.method} {request.url}"))
            await page.goto(f"{server.url}/admin#key={KEY}")
            await expect(page.get_by_label("API key")).to_have_value(KEY)
            assert KEY not in page.url
            assert not any(KEY in one or one.startswith("POST") for one in asked)
            await page.get_by_role("button", name="Sign in").first.click()
            await page.wait_for_url(f"{server.url}/admin")
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert not server.surprises()

    asyncio.run(story())
