"""Pages of long jobs, of a Peik that does them."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.dashboard.browser import browser, page_of
from tests.dashboard.households import visit_works
from tests.dashboard.test_browser import sign_in
from tests.dashboard.visiting import Answer, Visit
from tests.web.accounts import until
from tests.web.working import Works


def test_what_runs_what_waits_and_cancelling(tmp_path: Path) -> None:
    async def story(works: Works, browser: Visit) -> None:
        first = await works.download("a", user="ali")
        await works.once(first, progress=0.25)
        second = await works.download("b", user="vali")
        page = await browser.get("/admin/jobs")
        assert "Running now" in page.text
        assert "25%" in page.text
        assert "reading" in page.text
        assert "place 1" in page.text
        assert ("progress", {"max": "100", "value": "25", "aria-label": "Progress"}) in page.tags

        page = await browser.submit(await browser.get(f"/admin/jobs/{second}"), f"/admin/jobs/{second}/cancel")
        assert f"Job {second} is cancelled." in page.text
        page = await browser.submit(page, f"/admin/jobs/{second}/retry")
        assert (await works.job(second))["state"] == "waiting"

        await browser.submit(await browser.get(f"/admin/jobs/{first}"), f"/admin/jobs/{first}/cancel")
        await works.once(first, state="cancelled")
        page = await browser.get(f"/admin/jobs/{first}?tz=Asia/Tehran")
        assert "admin key" in page.text  # who it was
        assert re.search(r"\d UTC", page.text) is None  # its runs, too, are told in the viewer's zone

        page = await browser.get("/admin/jobs?state=cancelled&kind=&user=&since=")
        assert f"/admin/jobs/{first}" in page.links
        assert f"/admin/jobs/{second}" not in page.links

    asyncio.run(visit_works(tmp_path, story))


def test_a_kind_is_paused_and_resumed_and_its_rate_is_set(tmp_path: Path) -> None:
    async def story(works: Works, browser: Visit) -> None:
        here = "/admin/jobs/kinds/download"
        page = await browser.submit(await browser.get(here), f"{here}/pause", why="Their wish.")
        assert "Jobs of download are paused." in page.text
        assert "Their wish." in page.text
        works.let_go("a")
        job_id = await works.download("a")
        assert (await works.job(job_id, "?wait=300ms"))["state"] == "waiting"
        assert "paused" in (await browser.get("/admin/jobs")).text
        page = await browser.submit(page, f"{here}/rate", rate="quickly")
        assert "a rate looks like" in page.text
        assert page.form(f"{here}/rate").fields["rate"] == "quickly"
        page = await browser.submit(page, f"{here}/rate", rate="۳۰/m")
        assert "Jobs of download begin at 30/m burst 1." in page.text
        page = await browser.submit(page, f"{here}/resume")
        assert "Jobs of download go on." in page.text
        await works.once(job_id, state="completed")
        page = await browser.submit(page, f"{here}/rate", rate="")
        assert "Jobs of download have no rate." in page.text
        assert (await browser.get("/admin/jobs/kinds/nothing")).status == 404
        assert "jobs.kinds.pause" in (await browser.get("/admin/audit")).text

    asyncio.run(visit_works(tmp_path, story))


def test_what_failed_says_why_and_the_hosts_say_how_they_are(tmp_path: Path) -> None:
    async def story(works: Works, browser: Visit) -> None:
        job_id = await works.queued("refuse", params={"text": "<b>چای</b>"}, metadata={"k": 1})
        await works.once(job_id, state="failed")
        page = await browser.get(f"/admin/jobs/{job_id}")
        assert "There is no such film." in page.text
        assert "&lt;b&gt;چای" in page.body
        assert "hopeless" in page.text
        assert f"/admin/jobs/{job_id}" in (await browser.get("/admin/jobs?state=failed")).links

        await works.queued("refuse", params={"host": "films.example"})

        async def told() -> Answer | None:
            page = await browser.get("/admin/jobs/hosts")
            return page if "films.example" in page.text else None

        page = await until(told)
        assert "download" in page.text
        assert "Work folders" in page.text

        assert (await browser.get("/admin/jobs/999999")).status == 404
        assert (await browser.get("/admin/jobs/what")).status == 422
        assert (await browser.get("/admin/jobs?state=odd")).status == 422

    asyncio.run(visit_works(tmp_path, story))


@pytest.mark.gate  # a browser
@pytest.mark.parametrize("is_scripted", [True, False])
def test_a_kind_is_bounded_and_paused_in_a_browser_with_the_mistakes_on_the_way(
    is_scripted: bool, tmp_path: Path
) -> None:
    async def story(works: Works, visitor: Visit) -> None:
        async with browser() as opened, page_of(opened, is_scripted=is_scripted, is_refused=True) as page:
            await sign_in(page, visitor.url, "/admin/jobs/kinds/download?lang=en")
            rate = page.locator("input[name=rate]")
            await rate.fill("thirty")
            await page.get_by_role("button", name="Set the rate").click()
            await expect(page.get_by_text("a rate looks like").first).to_be_visible()
            await expect(rate).to_have_value("thirty")
            await expect(rate).to_be_focused()
            await rate.fill("۳۰/m")  # as a Persian keyboard writes it
            await page.get_by_role("button", name="Set the rate").click()
            await expect(page.get_by_text("begin at 30/m burst 1")).to_be_visible()
            await page.locator("input[name=why]").fill("Their site is down.")
            await page.get_by_role("button", name="Pause").click()
            await expect(page.get_by_text("Their site is down.").first).to_be_visible()
            await page.reload()
            await expect(page.get_by_role("button", name="Pause")).to_have_count(0)
            works.let_go("a")
            job_id = await works.download("a")
            assert (await works.job(job_id, "?wait=300ms"))["state"] == "waiting"
            other = await page.context.new_page()  # somebody else was faster
            await other.goto(page.url)
            await other.get_by_role("button", name="Resume").click()
            await expect(other.get_by_text("Jobs of download go on.")).to_be_visible()
            await other.close()
            await works.once(job_id, state="completed")
            if not is_scripted:  # with a script the page has seen it
                await page.get_by_role("button", name="Resume").click()
                await expect(page.get_by_text("Jobs of download go on.")).to_be_visible()
            await page.reload()
            await expect(page.get_by_role("button", name="Pause")).to_be_visible()

    asyncio.run(visit_works(tmp_path, story))
