"""One time: shown and asked in the zone of whoever looks, by the calendar of the language, and named once on a page."""

import datetime
import re
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from peik.core.units import gregorian_of, jalali_of
from peik.outbox.store import LetterFilter
from peik.web.dashboard.fields import zoned
from peik.web.dashboard.render import ChartBar, moment_text, read_moment, stacked
from tests.dashboard.test_letters_pages import accept
from tests.dashboard.visiting import House, visit

TEHRAN = ZoneInfo("Asia/Tehran")
NOON_MS = 1_794_988_800_000  # 2026-11-18 08:00 UTC


@pytest.mark.parametrize(
    ("day", "jalali"),
    [
        ("1979-02-11", (1357, 11, 22)),
        ("2024-03-20", (1403, 1, 1)),
        ("2025-03-20", (1403, 12, 30)),  # a leap year
        ("2025-03-21", (1404, 1, 1)),
        ("2026-03-20", (1404, 12, 29)),
        ("2026-03-21", (1405, 1, 1)),
        ("2026-11-18", (1405, 8, 27)),
        ("2030-03-21", (1409, 1, 1)),
    ],
)
def test_days_by_both_calendars(day: str, jalali: tuple[int, int, int]) -> None:
    moment = datetime.date.fromisoformat(day)
    assert jalali_of(moment) == jalali
    assert gregorian_of(*jalali) == moment


def test_every_day_of_a_century_comes_back() -> None:
    day = datetime.date(1950, 1, 1)
    before = jalali_of(day)
    for _ in range(36_600):
        day += datetime.timedelta(days=1)
        now = jalali_of(day)
        assert gregorian_of(*now) == day
        assert now > before
        before = now


@pytest.mark.parametrize("wrong", [(1404, 12, 30), (1405, 13, 1), (1405, 7, 31), (1405, 1, 0)])
def test_a_day_that_there_is_not_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="such day"):
        gregorian_of(*wrong)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-18T11:30", "2026-11-18T08:00:00"),
        ("2026-11-18 11:30", "2026-11-18T08:00:00"),
        ("1405/08/27 11:30", "2026-11-18T08:00:00"),
        ("1405-8-27", "2026-11-17T20:30:00"),
        ("\u06f1\u06f4\u06f0\u06f5/\u06f0\u06f8/\u06f2\u06f7 \u06f1\u06f1:\u06f3\u06f0", "2026-11-18T08:00:00"),
        ("2026-11-18T08:00:00Z", "2026-11-18T08:00:00"),
    ],
)
def test_times_are_read_in_the_zone_of_the_visitor(text: str, utc: str) -> None:
    moment = datetime.datetime.fromisoformat(zoned(text, "Asia/Tehran"))
    assert moment.astimezone(datetime.UTC).isoformat().removesuffix("+00:00") == utc


def test_what_is_no_time_stays_what_it_is() -> None:
    assert read_moment("soon", TEHRAN) is None
    assert zoned("1405/12/30", "Asia/Tehran") == "1405/12/30"
    assert zoned("2026-02-30", "UTC") == "2026-02-30"


def test_times_are_written_by_the_calendar_of_the_language() -> None:
    assert moment_text(NOON_MS, TEHRAN, "en") == "2026-11-18 11:30:00"
    assert moment_text(NOON_MS, TEHRAN, "fa") == "1405/08/27 11:30:00"
    drawn = stacked([ChartBar(at_ms=NOON_MS, parts=(1,))], title="x", names=("n",), zone=TEHRAN)
    assert "11:30" in drawn
    assert "08:00" not in drawn


def test_pages_show_and_ask_one_time(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        letter_id = await accept(home, chat=5, send_at_ms=4_100_000_000_000)  # 2099-12-03 16:53:20 UTC
        async with home.visitor() as browser:
            page = await browser.get(f"/admin/letters/{letter_id}?tz=Asia/Tehran")
            assert "2099-12-03 20:23:20" in page.text
            assert page.text.count("Times: Asia/Tehran") == 1
            page = await browser.get(f"/admin/letters/{letter_id}?lang=fa")  # the zone is remembered
            assert "1478/09/13 20:23:20" in page.text
            form = next(one for one in page.forms if "send_at" in one.fields and one.action.endswith("/change"))
            data = form.fields | {"send_at": "1478/09/14 00:00"}
            await browser.post(f"/admin/letters/{letter_id}/change", **data)
            (letter,) = (await home.peik.outbox.service.page(LetterFilter(), before=None, limit=5)).letters
            assert letter.due_at_ms is not None
            due = datetime.datetime.fromtimestamp(letter.due_at_ms / 1000, TEHRAN)
            assert f"{due:%Y-%m-%d %H:%M}" == "2099-12-04 00:00"
            wrong = await browser.post(f"/admin/letters/{letter_id}/change", **(data | {"send_at": "1478/13/30 00:00"}))
            assert re.search(r'value="1478/13/30 00:00"', wrong.body)
            for zone in ("Mars/Olympus", "../../etc/passwd", "x" * 500):
                assert (await browser.get(f"/admin/letters?tz={zone}")).status == 200

    visit(tmp_path, story)
