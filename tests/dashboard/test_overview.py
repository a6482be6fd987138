"""The first page, the charts on it, and what keeps pages alive."""

import asyncio
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from playwright.async_api import expect

from peik.broadcasts.model import Broadcast, Phase, RecipientCounts
from peik.core.events import StoreFailed
from peik.core.letter import LetterCall
from peik.monitoring.figures import SPANS
from peik.web.dashboard.render import ChartBar, Dot, lines, nice_top, seconds_text, stacked
from tests.dashboard.browser import browser, page_of
from tests.dashboard.test_browser import sign_in
from tests.dashboard.visiting import BOT, KEY, Answer, House, Visit, visit
from tests.patience import PATIENCE_S
from tests.web.accounts import until


async def deliver(home: House, count: int) -> None:
    for number in range(count):
        (accepted,) = await home.peik.outbox.service.accept(
            [
                LetterCall(
                    bot_id=BOT,
                    method="sendMessage",
                    params=msgspec.json.encode({"chat_id": 5 + number, "text": "hello"}),
                )
            ]
        )
        view = await home.peik.outbox.service.wait(accepted.letter_id, PATIENCE_S)
        assert view.state == "completed"


def test_the_overview_shows_what_was_delivered_and_where_peik_stands(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await deliver(home, 3)
        async with home.visitor("read") as browser:
            page = await browser.get("/admin")
            assert page.status == 200
            assert "Delivered 3 Last hour" in page.text
            assert "direct in use connected" in page.text
            assert str(BOT) in page.text
            titles = [tag for tag, values in page.tags if tag == "svg" and values.get("class") == "chart"]
            assert len(titles) == 2
            bars = re.findall(r"Delivered: (\d+), Failures: 0", page.text)
            assert sum(map(int, bars)) == 3, "in one minute, or in two"
            day = await browser.get("/admin?span=day")
            assert "Delivered 3 Last day" in day.text

    visit(tmp_path, story)


def test_a_key_of_some_bots_sees_only_those(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await deliver(home, 1)
        async with home.visitor("read", bot_ids=frozenset({42})) as browser:
            page = await browser.get("/admin")
            assert page.status == 200
            assert str(BOT) not in page.body

    visit(tmp_path, story)


def test_queues_lead_to_the_letters(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("read") as browser:
            answer = await browser.get("/admin/queues", follow=False)
            assert (answer.status, answer.headers["location"]) == (303, "/admin/letters")

    visit(tmp_path, story)


def test_open_pages_are_told_when_something_happens_and_end_with_the_house(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("read") as browser:
            ticks = 0
            async with asyncio.timeout(PATIENCE_S), browser.stream("/admin/live") as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                async for line in response.content:
                    if line.startswith(b"retry:"):
                        home.peik.events.tell(StoreFailed(what="a test", why="nothing"))
                    if line == b"event: tick\n":
                        ticks += 1
                        home.dashboard.end()
            assert ticks == 1

    visit(tmp_path, story)


def test_a_stranger_follows_nothing(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{home.url}/admin/live", allow_redirects=False) as response,
        ):
            assert response.status == 303

    visit(tmp_path, story)


# ---- charts ----


@pytest.mark.parametrize(
    ("most", "top"), [(0, 1), (1, 1), (3, 4), (7, 8), (11, 20), (99, 100), (0.03, 0.04), (0.9, 1), (1234, 2000)]
)
def test_an_axis_ends_at_a_round_figure_above_all(most: float, top: float) -> None:
    assert nice_top(most) == pytest.approx(top)


@pytest.mark.parametrize(
    ("language", "most_s", "labels"),
    [
        ("en", 130, ["0 s", "2 min", "4 min"]),
        ("ru", 0.35, ["0 с", "200 мс", "400 мс"]),  # noqa: RUF001  that is how they are written
        ("uz", 9000, ["0 s", "2 soat", "4 soat"]),
    ],
)
def test_an_axis_of_time_has_round_figures_in_the_units_of_its_language(
    language: str, most_s: float, labels: list[str]
) -> None:
    drawn = ET.fromstring(lines([Dot(at_ms=0, values=(most_s,))], title="latency", language=language))
    assert [one.text for one in drawn.findall(".//text")][:3] == labels


def test_bars_fit_into_their_chart_and_their_titles_are_escaped() -> None:
    bars = [ChartBar(at_ms=60_000 * place, parts=(place, place % 3)) for place in range(60)]
    drawn = ET.fromstring(stacked(bars, title="<b>", names=("<i>", "failed")))
    rects = drawn.findall(".//rect")
    assert len(rects) == 59 + 40
    for rect in rects:
        assert 0 <= float(rect.attrib["y"]) <= 160
        assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= 420
    assert drawn.findtext("title") == "<b>"


def test_lines_break_where_nothing_was_measured() -> None:
    values = [(0.1, 0.2), (None, None), (0.3, 0.9), (0.2, None)]
    dots = [Dot(at_ms=0, values=pair) for pair in values]
    drawn = ET.fromstring(lines(dots, title="latency"))
    assert [path.attrib["d"].count("M") for path in drawn.findall(".//path")] == [2, 2]
    assert ET.fromstring(lines([], title="nothing")).findall(".//path") == []
    assert ET.fromstring(stacked([], title="nothing", names=())).findall(".//rect") == []


def test_seconds_are_told_in_the_unit_that_fits() -> None:
    assert [seconds_text(value) for value in (0, 0.0208, 1.5, 90, 7200)] == [
        "0 s",
        "20.8 ms",
        "1.5 s",
        "1.5 min",
        "2 h",
    ]


async def shown(browser: Visit, path: str) -> Answer | None:
    """The page, once its table has two that wait and three that are delayed, and no sum of these."""
    page = await browser.get(path)
    cells = re.findall(r'class="num"[^>]*>\s*(\d+)</td>', page.body)
    is_right = cells[:3] == ["2", "0", "3"]
    tile = re.search(r"waiting 2\b", page.text, re.IGNORECASE)
    return page if is_right and (tile is not None or path != "/admin") else None


def test_what_waits_on_the_tile_waits_in_the_tables(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        far_ms = home.peik.clock.wall_ms() + 3_600_000
        calls = [
            LetterCall(
                bot_id=BOT,
                method="sendMessage",
                params=b'{"chat_id":5,"text":"x"}',
                send_at_ms=far_ms if place < 3 else None,
            )
            for place in range(5)
        ]
        async with home.visitor() as browser:
            await browser.submit(await browser.get(f"/admin/bots/{BOT}"), f"/admin/bots/{BOT}/pause")
            await home.peik.outbox.service.accept(calls)
            await until(lambda: shown(browser, "/admin"))  # it is asked for once a second
            assert await shown(browser, "/admin/bots") is not None

    visit(tmp_path, story)


@pytest.mark.parametrize(
    ("phase", "counts", "unrecalled", "done"),
    [
        (Phase.RUNNING, RecipientCounts(delivered=60, failed=10), 0, (70, 100)),
        (Phase.RECALLING, RecipientCounts(delivered=40, recalled=20, failed=10, suppressed=30), 5, (25, 60)),
        (Phase.RECALLED, RecipientCounts(delivered=5, recalled=55, failed=10, suppressed=30), 5, (60, 60)),
    ],
)
def test_the_bar_of_a_recall_is_of_what_was_sent(
    phase: Phase, counts: RecipientCounts, unrecalled: int, done: tuple[int, int]
) -> None:
    one = Broadcast(
        id="1", bot_id=1, method="sendMessage", params="{}", created_at_ms=0,
        phase=phase, total=100, counts=counts, unrecalled=unrecalled,
    )  # fmt: skip
    assert one.steps_done == done


# ---- charts by bot, method and kind ----


def test_charts_tell_bots_and_methods_apart_and_one_can_be_chosen(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await deliver(home, 3)
        home.peik.watch.figures.breakdown.take()  # as each tick does
        async with home.visitor("read") as visitor:
            page = await visitor.get(f"/admin/bots/{BOT}")
            (link,) = [url for url in page.links if url.startswith("/admin/charts?")]
            page = await visitor.get(link)
            assert sum(map(int, re.findall(r"Delivered: (\d+), Failures: 0", page.text))) == 3
            page = await visitor.get("/admin/charts?by=method&span=week")
            assert "sendMessage 3 0 0" in page.text
            (link,) = [url for url in page.links if "name=sendMessage" in url]
            page = await visitor.get(link)
            assert "Charts: sendMessage" in page.text
            assert "span=week" in link
            page = await visitor.get("/admin/charts?by=kind")
            assert "Nothing was counted" in page.text
            for odd in ("by=x&span=y", "by=bot&name=unheard", "by=method&name=%3Cscript%3E", "span=month&name=other"):
                page = await visitor.get(f"/admin/charts?{odd}")
                assert page.status == 200
                assert "<script>" not in page.body

    visit(tmp_path, story)


def test_charts_show_a_key_of_some_bots_those_and_no_methods(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await deliver(home, 2)
        home.peik.watch.figures.breakdown.take()
        async with home.visitor("read", bot_ids=frozenset({42})) as visitor:
            for path in ("/admin/charts", "/admin/charts?by=method", "/admin/charts?by=method&name=sendMessage"):
                page = await visitor.get(path)
                assert page.status == 200
                assert "By method" not in page.text
                assert str(BOT) not in page.body
                assert "Delivered: 2" not in page.text
            assert (await visitor.get(f"/admin/charts?name={BOT}")).status == 404
            key = (await home.peik.keyring.make("narrow", ["read"], bot_ids=frozenset({42}))).text
            async with aiohttp.ClientSession(headers={"X-Api-Key": key}) as http:

                async def asked(query: str) -> int:
                    async with http.get(f"{home.url}/v1/figures?{query}") as response:
                        return response.status

                assert await asked("by=method") == 403
                assert await asked(f"name={BOT}") in (403, 404)
                assert await asked("by=bot") == 200

    visit(tmp_path, story)


def test_figures_are_told_over_rest_in_the_same_steps(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await deliver(home, 4)
        home.peik.watch.figures.breakdown.take()
        async with aiohttp.ClientSession(headers={"X-Api-Key": KEY}) as http:

            async def asked(query: str) -> tuple[int, dict[str, Any]]:
                async with http.get(f"{home.url}/v1/figures?{query}") as response:
                    return response.status, await response.json()

            for span in SPANS:
                status, found = await asked(f"by=method&span={span}&limit=1")
                assert status == 200
                (row,) = found["rows"]
                assert (row["name"], row["total"]["done"]) == ("sendMessage", 4)
                assert len(row["steps"]) == SPANS[span].steps
                assert sum(step["done"] for step in row["steps"]) == 4
                assert row["total"]["took"]["p50_s"] > 0
            status, found = await asked("by=kind&name=unheard")
            assert (status, found["rows"][0]["total"]["done"]) == (200, 0)
            for wrong in ("by=chat", "span=year", "limit=0", "limit=501", "by=bot&name=x", "what=1"):
                assert (await asked(wrong))[0] == 422, wrong

    visit(tmp_path, story)


@pytest.mark.gate  # a browser
@pytest.mark.parametrize("is_scripted", [True, False])
def test_a_span_stays_chosen_on_the_way_through_the_charts(is_scripted: bool, tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await deliver(home, 2)
        home.peik.watch.figures.breakdown.take()
        async with browser() as opened, page_of(opened, is_scripted=is_scripted) as page:
            await sign_in(page, home.url, "/admin/charts?lang=en")
            await page.get_by_role("link", name="30 days").click()
            await page.get_by_role("link", name="By method").click()
            await page.get_by_role("link", name="sendMessage").click()
            await expect(page.get_by_role("link", name="30 days")).to_have_attribute("aria-current", "page")
            await expect(page.get_by_role("img", name=re.compile("Messages ended"))).to_be_visible()
            await page.get_by_role("link", name="By kind of job").click()  # no such method there: all of them
            await expect(page.get_by_text("Nothing was counted in this time.")).to_be_visible()
            await expect(page.get_by_role("link", name="30 days")).to_have_attribute("aria-current", "page")
            await page.go_back()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("sendMessage")

    visit(tmp_path, story)
