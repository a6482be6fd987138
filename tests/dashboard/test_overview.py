"""The first page, the charts on it, and what keeps pages alive."""

import asyncio
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import aiohttp
import msgspec
import pytest

from peik.broadcasts.model import Broadcast, Phase, RecipientCounts
from peik.core.events import StoreFailed
from peik.core.letter import LetterCall
from peik.web.dashboard.render import ChartBar, Dot, lines, nice_top, seconds_text, stacked
from tests.dashboard.visiting import BOT, Answer, House, Visit, visit
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
