"""The log in the archive: every line, in batches, and nobody who logs is ever held up or failed by it."""

import asyncio
import json
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from peik.accounts.events import LogDropped, SessionRevoked, SessionUp
from peik.archive.store import LogFilter, LogLine
from peik.core import events
from peik.monitoring.archived_log import QUEUE_MAX, VALUE_CHARS_MAX, ArchivedLog
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.house import House, play_closed
from tests.accounts.inline_archive import InlineArchive

TOKEN = "7000001:AAE_abcdefghijklmnopqrstuvwxyz12345"


class Counting(InlineArchive):
    batches = 0
    error: Exception | None = None

    async def keep_logs(self, lines: Sequence[LogLine]) -> None:
        self.batches += 1
        if self.error is not None:
            raise self.error
        await super().keep_logs(lines)


class Room:
    def __init__(self, clock: VirtualClock, archive: Counting, level: str) -> None:
        self.clock = clock
        self.archive = archive
        self.events = events.Events()
        self.told: list[events.Event] = []
        self.events.listen(self.told.extend)
        log = ArchivedLog(archive=archive, node="n1", level=level, clock=clock, events=self.events)
        self.running = asyncio.create_task(log.run())

    def tell(self, *told: events.Event) -> None:
        self.events.tell(*told)

    async def lines(self) -> list[LogLine]:
        """The oldest first."""
        found, cursor = await self.archive.logs(LogFilter(), cursor=None, limit=1000)
        while cursor is not None:
            page, cursor = await self.archive.logs(LogFilter(), cursor=cursor, limit=1000)
            found += page
        return found[::-1]

    async def end(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])

    def told_of(self, kind: type[events.Event]) -> list[Any]:
        return [one for one in self.told if isinstance(one, kind)]


def logging_(story: Callable[[Room], Coroutine[Any, Any, None]], *, level: str = "info") -> None:
    async def main(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory(prefix="peik-log-") as folder:
            archive = Counting(Path(folder) / "a.archive")
            await archive.open()
            room = Room(clock, archive, level)
            await story(room)
            await room.end()
            await archive.close()

    run_virtual(main)


def paused(bot_id: int, reason: str = "Unauthorized.") -> events.BotPaused:
    return events.BotPaused(bot_id=bot_id, reason=reason)


def test_a_line_is_kept_as_it_was_said() -> None:
    async def story(room: Room) -> None:
        at_ms = room.clock.wall_ms()
        room.tell(SessionRevoked(bot_id=5, session_id="s1", why="AUTH_KEY_UNREGISTERED"))
        await asyncio.sleep(2)
        assert await room.lines() == [
            LogLine(
                at_ms=at_ms,
                level="error",
                event="! session revoked; sign in again",
                node="n1",
                session_id="s1",
                bot_id=5,
                fields='{"why":"AUTH_KEY_UNREGISTERED"}',
            )
        ]

    logging_(story)


def test_what_the_level_hides_is_not_kept() -> None:
    async def story(room: Room) -> None:
        room.tell(SessionUp(bot_id=5, session_id="s1"), events.StoreWeak(what="fsync"), paused(5))
        room.tell(events.OutageSettled(bot_id=5, policy="both", away_s=1, missed=0, handed=0, notices=0))
        await asyncio.sleep(2)
        assert [one.level for one in await room.lines()] == ["warning", "error"]

    logging_(story, level="warning")


def test_lines_are_written_together_about_once_a_second_and_nothing_is_written_when_nothing_is_said() -> None:
    async def story(room: Room) -> None:
        for number in range(100):
            room.tell(paused(number + 1))
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        assert [one.bot_id for one in await room.lines()] == list(range(1, 101))
        assert room.archive.batches <= 7
        await asyncio.sleep(3600)
        assert room.archive.batches <= 7

    logging_(story)


def test_an_archive_that_is_away_holds_nobody_up_and_gets_the_lines_later() -> None:
    async def story(room: Room) -> None:
        room.archive.is_down = True
        for number in range(600):
            room.tell(paused(number + 1))
            await asyncio.sleep(1)
        assert [one.what for one in room.told_of(events.StoreFailed)] == ["the log in the archive"]
        room.archive.is_down = False
        await asyncio.sleep(10)
        kept = await room.lines()
        assert [one.bot_id for one in kept if one.bot_id] == list(range(1, 601))
        assert len(kept) == 601, "and one line about the outage itself"
        assert not room.told_of(LogDropped)

    logging_(story)


def test_what_is_too_much_is_dropped_counted_and_told_of() -> None:
    async def story(room: Room) -> None:
        room.archive.is_down = True
        for number in range(QUEUE_MAX + 500):
            room.tell(paused(number + 1))
        await asyncio.sleep(60)
        room.archive.is_down = False
        await asyncio.sleep(60)
        (dropped,) = room.told_of(LogDropped)
        assert dropped.count == 501, "the line about the outage had no room either"
        kept = await room.lines()
        assert (len(kept), json.loads(kept[-1].fields)) == (QUEUE_MAX + 1, {"count": 501})

    logging_(story)


def test_lines_that_no_archive_takes_stop_nothing_and_do_not_talk_about_themselves_without_end() -> None:
    async def story(room: Room) -> None:
        room.archive.error = ValueError("no such column")
        for number in range(60):
            room.tell(paused(number + 1))
            await asyncio.sleep(10)
        assert len(room.told_of(events.Surprise)) == 1
        room.archive.error = None
        room.tell(paused(999))
        await asyncio.sleep(5)
        assert [one.bot_id for one in await room.lines()] == [999, None]
        (dropped,) = room.told_of(LogDropped)
        assert dropped.count == 61

    logging_(story)


def test_the_last_lines_are_written_when_peik_ends() -> None:
    async def story(room: Room) -> None:
        room.tell(paused(1))
        await asyncio.sleep(0.1)
        room.tell(paused(2))
        await room.end()
        assert [one.bot_id for one in await room.lines()] == [1, 2]

    logging_(story)


def test_an_archive_that_is_away_at_the_end_keeps_nobody_from_ending() -> None:
    async def story(room: Room) -> None:
        room.archive.is_down = True
        room.tell(paused(1))
        await asyncio.sleep(0.1)
        await room.end()
        assert room.running.cancelled()

    logging_(story)


def test_no_token_is_in_it_and_anything_can_be_said() -> None:
    async def story(room: Room) -> None:
        room.tell(events.Surprise(where="x", error=f"ValueError: https://api.telegram.org/bot{TOKEN}/sendMessage"))
        room.tell(paused(2, reason="\ud800 \x00 половина"), paused(3, reason="x" * 100_000))
        room.tell(events.Held(bot_id=4, chat=None, wait_s=float("inf")))
        await asyncio.sleep(2)
        kept = {one.bot_id: json.loads(one.fields) for one in await room.lines()}
        assert kept[None]["error"] == "ValueError: https://api.telegram.org/bot7000001:***/sendMessage"
        assert kept[2]["reason"].endswith("половина")
        assert len(kept[3]["reason"]) == VALUE_CHARS_MAX
        assert kept[4] == {"chat": "all", "wait_s": None}

    logging_(story)


# ---- the whole way ----


def test_a_house_keeps_its_log_if_it_is_told_to() -> None:
    async def story(house: House) -> None:
        async with house.open():
            await house.sign_in(house.ali, session_id="s1")
            await house.connected(house.ali)
        async with house.open():
            found, _ = await house.service.archive.logs(LogFilter(session_id="s1"), cursor=None, limit=10)
            assert [one.event for one in found][-1] == "-> session is up"
            assert found[-1].node == house.peik.store.nodes.node

    play_closed(story, log_in_archive="on")


def test_and_keeps_none_by_default() -> None:
    async def story(house: House) -> None:
        async with house.open():
            await house.sign_in(house.ali, session_id="s1")
            await house.connected(house.ali)
            await asyncio.sleep(10)
            assert await house.service.archive.logs(LogFilter(), cursor=None, limit=10) == ([], None)

    play_closed(story)
