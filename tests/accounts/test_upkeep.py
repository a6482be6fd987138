"""The archive's upkeep in virtual time: what is too old goes, by whoever has the chores, and trouble is told once."""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from peik.accounts.events import ArchiveAway, ArchiveBack
from peik.accounts.registry import Registry
from peik.accounts.upkeep import PAGE, ArchiveUpkeep, ArchiveWatch
from peik.archive.store import ArchiveRetention, Happening, MessageFilter, SessionFilter
from peik.core.events import Event, Events, StoreFailed
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.house import House, play_closed
from tests.accounts.inline_archive import InlineArchive, opened

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


class Place:
    def __init__(self, clock: VirtualClock, archive: InlineArchive) -> None:
        self.clock = clock
        self.archive = archive
        self.registry = Registry(archive, clock)
        self.events = Events()
        self.told: list[Event] = []
        self.events.listen(self.told.extend)
        self.is_ours = True
        self.removed: list[int] = []  # accounts

    async def add(self, user_id: int, username: str | None) -> None: ...

    async def remove(self, user_id: int) -> None:
        self.removed.append(user_id)

    def upkeep(self, *, keep_sessions_s: float | None = None) -> ArchiveUpkeep:
        return ArchiveUpkeep(
            archive=self.archive,
            registry=self.registry,
            accounts=self,
            retention=ArchiveRetention(events_ms=int(2 * HOUR_S * 1000)),
            keep_sessions_s=keep_sessions_s,
            is_ours=lambda: self.is_ours,
            clock=self.clock,
            events=self.events,
        )

    async def see(self, count: int = 1) -> None:
        at_ms = self.clock.wall_ms()
        made = [
            Happening(
                event_id=f"{at_ms} {number}", session_id="s1", agent_id="a", event_type="read", payload="{}",
                created_at_ms=at_ms,
            )
            for number in range(count)
        ]  # fmt: skip
        await self.archive.keep_events(made)

    async def count(self) -> int:
        return (await self.archive.tally()).events

    def told_of(self, kind: type[Event]) -> list[Any]:
        return [one for one in self.told if isinstance(one, kind)]


def keeping(
    story: Callable[[Place], Coroutine[Any, Any, None]], make: Callable[[Place], Any] = lambda place: place.upkeep()
) -> None:
    async def main(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory(prefix="peik-upkeep-") as folder:
            place = Place(clock, await opened(Path(folder)))
            running = asyncio.create_task(make(place).run())
            await story(place)
            running.cancel()
            await asyncio.wait([running])
            await place.archive.close()

    run_virtual(main)


def test_what_is_too_old_goes_within_the_hour_and_the_rest_stays() -> None:
    async def story(place: Place) -> None:
        await place.see()
        await asyncio.sleep(1.9 * HOUR_S)
        await place.see()
        assert await place.count() == 2
        await asyncio.sleep(1.2 * HOUR_S)
        assert await place.count() == 1

    keeping(story)


def test_much_that_is_too_old_goes_in_pages_all_at_once() -> None:
    async def story(place: Place) -> None:
        await place.see(3 * PAGE + 7)
        await asyncio.sleep(3.1 * HOUR_S)
        assert await place.count() == 0

    keeping(story)


def test_a_node_without_the_chores_leaves_it_to_the_other_and_takes_it_up_within_minutes() -> None:
    async def story(place: Place) -> None:
        place.is_ours = False
        await place.see()
        await asyncio.sleep(5 * HOUR_S)
        assert await place.count() == 1
        place.is_ours = True
        await asyncio.sleep(120)
        assert await place.count() == 0

    keeping(story)


def test_an_archive_that_fails_is_told_of_once_and_asked_again_until_it_works() -> None:
    async def story(place: Place) -> None:
        await place.see()
        place.archive.is_down = True
        await asyncio.sleep(5 * HOUR_S)
        assert [one.what for one in place.told_of(StoreFailed)] == ["the archive's upkeep"]
        place.archive.is_down = False
        await asyncio.sleep(120)
        assert await place.count() == 0
        place.archive.is_down = True
        await asyncio.sleep(2 * HOUR_S)
        assert len(place.told_of(StoreFailed)) == 2, "another outage"

    keeping(story)


def test_sessions_that_are_over_are_forgotten_if_that_was_asked_for() -> None:
    async def story(place: Place) -> None:
        for name in ("old", "used"):
            await place.registry.create_session("a", session_id=name)
        await place.registry.deactivate_session("old")
        await asyncio.sleep(2.9 * DAY_S)
        assert len(await place.registry.all(SessionFilter())) == 2
        await asyncio.sleep(0.2 * DAY_S)
        assert [one.session_id for one in await place.registry.all(SessionFilter())] == ["used"]

    keeping(story, lambda place: place.upkeep(keep_sessions_s=3 * DAY_S))


def test_sessions_stay_for_ever_by_default() -> None:
    async def story(place: Place) -> None:
        await place.registry.create_session("a", session_id="old")
        await place.registry.deactivate_session("old")
        await asyncio.sleep(20 * DAY_S)
        assert len(await place.registry.all(SessionFilter())) == 1

    keeping(story)


class Watched(InlineArchive):
    """What the last write met is known, as it is of real ones."""

    last: str | None = None

    def trouble(self) -> str | None:
        return self.last


def test_an_archive_that_goes_away_and_comes_back_is_told_of_once_each() -> None:
    async def main(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory(prefix="peik-upkeep-") as folder:
            archive = Watched(Path(folder) / "a.archive")
            await archive.open()
            place = Place(clock, archive)
            running = asyncio.create_task(
                ArchiveWatch(archive=archive, clock=clock, events=place.events).run(), name="watch"
            )
            archive.last = "The disk was full for a moment."  # and nobody wrote since
            await asyncio.sleep(60)
            assert place.told == []
            archive.is_down = True
            await asyncio.sleep(600)
            assert [one.why for one in place.told_of(ArchiveAway)] == ["The archive is away."]
            assert place.told_of(ArchiveBack) == []
            archive.is_down = False
            await asyncio.sleep(60)
            assert len(place.told_of(ArchiveBack)) == len(place.told_of(ArchiveAway)) == 1
            running.cancel()
            await asyncio.wait([running])
            await archive.close()

    run_virtual(main)


# ---- the whole way ----


def test_messages_go_when_the_settings_say_so() -> None:
    async def story(house: House) -> None:
        async with house.open():
            await house.sign_in(house.ali, session_id="s1")
            await house.connected(house.ali)
            house.accounts.say(house.private, house.sara, "hello")
            await asyncio.sleep(60)
            assert len(await house.kept("s1")) == 1
            await asyncio.sleep(2 * HOUR_S)
            assert len(await house.kept("s1")) == 1
            await asyncio.sleep(3 * HOUR_S)
            assert await house.archive.count_messages(MessageFilter(session_id="s1")) == 0

    play_closed(story, keep_messages="3h")
