"""Peik's own log: kept, found page by page, and let go."""

import random

import pytest

from peik.archive.store import LOG_LEVELS, Archive, ArchiveRetention, LogFilter, LogLine
from peik.errors import BadInput
from tests.archive.places import Place, opened
from tests.archive.samples import NOW, log

EVENTS = ("session.started", "letter.failed", "ОШИБКА связи", "پیام رسید")
FIELDS = ("{}", '{"reason":"50% of [all] C:\\\\x_y"}', '{"chat":"Größe","n":1}', '{"text":"سلام"}')


def _some(count: int) -> list[LogLine]:
    chance = random.Random(7)
    return [
        log(
            chance.choice(EVENTS),
            at_ms=NOW + chance.randrange(40),  # many in one millisecond
            level=chance.choice(LOG_LEVELS),
            node=f"node {number}",
            session_id=chance.choice(["s1", "s2", None]),
            bot_id=chance.choice([7, 1 << 40, None]),
            fields=chance.choice(FIELDS),
        )
        for number in range(count)
    ]


FILTERS = (
    LogFilter(),
    *(LogFilter(level=level) for level in LOG_LEVELS),
    LogFilter(event="letter.failed"),
    LogFilter(event="letter"),
    LogFilter(session_id="s1"),
    LogFilter(bot_id=1 << 40),
    LogFilter(since_ms=NOW + 10, until_ms=NOW + 20),
    LogFilter(session_id="s2", level="warning", since_ms=NOW + 5),
    LogFilter(text="FAILED"),
    LogFilter(text="ошибка"),
    LogFilter(text="рейс"),
    LogFilter(text="سلام", level="error"),
    LogFilter(text="GRÖßE", bot_id=7),
    LogFilter(text="0% of [ALL]"),
    LogFilter(text="x_y"),
    LogFilter(text="xzy"),
    LogFilter(text=".*"),
    LogFilter(text=""),
    LogFilter(text="nowhere"),
    LogFilter(event="letter.failed", session_id="s1", bot_id=7, level="info", text="größe", until_ms=NOW + 35),
)


def _fits(one: LogLine, wanted: LogFilter) -> bool:
    return (
        all(getattr(wanted, name) in (None, getattr(one, name)) for name in ("event", "session_id", "bot_id"))
        and (wanted.level is None or LOG_LEVELS.index(one.level) >= LOG_LEVELS.index(wanted.level))
        and (wanted.since_ms is None or one.at_ms >= wanted.since_ms)
        and (wanted.until_ms is None or one.at_ms < wanted.until_ms)
        and (wanted.text is None or any(wanted.text.lower() in text.lower() for text in (one.event, one.fields)))
    )


async def _found(archive: Archive, wanted: LogFilter, *, limit: int = 7) -> list[LogLine]:
    found, cursor = await archive.logs(wanted, cursor=None, limit=limit)
    while cursor is not None:
        page, cursor = await archive.logs(wanted, cursor=cursor, limit=limit)
        assert 0 < len(page) <= limit
        found += page
    return found


async def test_pages_hold_all_that_fits_the_newest_first(place: Place) -> None:
    given = _some(300)
    async with opened(place) as archive:
        await archive.keep_logs(given[:200])
        await archive.keep_logs(given[200:])
        await archive.keep_logs([])
        for wanted in FILTERS:
            found = await _found(archive, wanted)
            assert [one.at_ms for one in found] == sorted((one.at_ms for one in found), reverse=True)
            by_node = {one.node: one for one in found}
            assert len(by_node) == len(found)
            assert by_node == {one.node: one for one in given if _fits(one, wanted)}, wanted


async def test_a_page_is_steady_while_others_are_added(place: Place) -> None:
    async with opened(place) as archive:
        await archive.keep_logs([log(f"l{number}") for number in range(10)])
        first, cursor = await archive.logs(LogFilter(), cursor=None, limit=4)
        await archive.keep_logs([log(f"l{number}") for number in range(10, 20)])
        await archive.keep_logs([log("newer", at_ms=NOW + 1)])
        rest, cursor = await archive.logs(LogFilter(), cursor=cursor, limit=50)
        assert cursor is None
        assert sorted(one.event for one in first + rest) == [f"l{number}" for number in range(10)]


async def test_a_line_that_is_handed_in_again_is_there_once(place: Place) -> None:
    """Whoever does not know whether they were kept may keep them again."""
    given = [log("one"), log("one", at_ms=NOW + 1), log("one", node="two"), log("one", fields='{"n":1}')]
    async with opened(place) as archive:
        for _ in range(2):
            await archive.keep_logs([*given, given[0]])
        found = await _found(archive, LogFilter())
        assert sorted(map(repr, found)) == sorted(map(repr, given))


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.zz", "1.1.1", "9" * 30, f"1.{'f' * 25}"])
async def test_a_cursor_of_somebody_else_is_refused(place: Place, cursor: str) -> None:
    async with opened(place) as archive:
        await archive.keep_logs([log()])
        with pytest.raises(BadInput):
            await archive.logs(LogFilter(), cursor=cursor, limit=5)


async def test_a_level_that_is_none_is_refused(place: Place) -> None:
    async with opened(place) as archive:
        with pytest.raises(BadInput, match="warning"):
            await archive.logs(LogFilter(level="loud"), cursor=None, limit=5)


async def test_retention_lets_go_of_old_lines(place: Place) -> None:
    async with opened(place) as archive:
        await archive.keep_logs([log(f"l{number}", at_ms=NOW + number) for number in range(6)])
        assert await archive.clean(ArchiveRetention(feed_ms=1), at_ms=NOW * 2, limit=100) == 0
        some = ArchiveRetention(logs_ms=1000)
        assert [await archive.clean(some, at_ms=NOW + 1004, limit=3) for _ in range(3)] == [3, 1, 0]
        assert [one.event for one in await _found(archive, LogFilter())] == ["l5", "l4"]


async def test_what_no_database_keeps_becomes_a_sign(place: Place) -> None:
    async with opened(place) as archive:
        await archive.keep_logs([log("a\0b", fields='"\ud800"', session_id="s\0")])
        found = await _found(archive, LogFilter(text="A\ufffdB"))
        assert [(one.event, one.fields, one.session_id) for one in found] == [("a\ufffdb", '"\ufffd"', "s\ufffd")]
