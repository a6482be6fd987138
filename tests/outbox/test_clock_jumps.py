"""The clock of a whole Peik is set ahead by a year: nothing that goes by age goes, until that time has held."""

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from peik.core.documents import Filing
from peik.core.events import ClockJumped, ClockSettled, OutageSettled, UnreadDropped, UnreadNearEnd
from peik.core.letter import State
from tests.inbox.test_outages import begin, fetch
from tests.outbox.story import BOT, TOKEN, Stage, play, play_closed

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86_400.0
YEAR_S = 400 * DAY_S


def contents(stage: Stage) -> Counter[str]:
    """How many rows each table has, and documents each collection."""
    found: Counter[str] = Counter()
    with contextlib.closing(sqlite3.connect(f"file:{stage.config().sqlite_path}?mode=ro", uri=True)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            (found[table],) = file.execute(f"SELECT count(*) FROM {table}").fetchone()
        found.update(
            {
                f"paper {collection}": count
                for collection, count in file.execute("SELECT shelf, count(*) FROM papers GROUP BY 1")
            }
        )
    return found


@contextlib.asynccontextmanager
async def watched(stage: Stage) -> AsyncIterator[None]:
    """Opened, and its clock watched: in virtual time that is not so by itself."""
    async with stage.open():
        watching = asyncio.create_task(stage.peik.watch.clock.run())
        yield
        watching.cancel()


async def furnish(stage: Stage) -> int:
    """Something of everything that goes by age. The letter of the key."""
    await begin(stage)
    inbox = stage.peik.store.inbox
    stage.telegram.write(TOKEN, 11, "is anybody there?")
    await fetch(stage)
    at_ms = stage.clock.wall_ms()
    stats = await inbox.ensure_consumer(BOT, "stats", at_ms=at_ms)
    await inbox.touch_consumers({stats.id: at_ms})
    keyed = await stage.text(11, "once", idempotency_key="k")
    await stage.ended(keyed)
    stage.telegram.block(TOKEN, 12)
    assert (await stage.ended(await stage.text(12, "never arrives"))).state is State.FAILED
    await stage.peik.audit.note(who="mina", action="old", target="", is_done=True)
    await stage.peik.store.documents.file([Filing(collection="sign_in_homes", key="home", body=str(at_ms))])
    await asyncio.sleep(10 * MINUTE_S)  # figures are filed, and passes were made
    return keyed


def test_nothing_goes_until_the_new_time_has_held_and_then_it_does() -> None:
    async def story(stage: Stage) -> None:
        keyed = await furnish(stage)
        before = contents(stage)
        stage.clock.wall_offset_s += YEAR_S
        assert await stage.text(11, "once", idempotency_key="k") == keyed
        await asyncio.sleep(50 * MINUTE_S)
        after = contents(stage)
        assert not before - after, "something is gone"
        (jumped,) = stage.events_of(ClockJumped)
        assert jumped.ahead_s == pytest.approx(YEAR_S, abs=1)
        assert stage.events_of(UnreadNearEnd) == []
        assert await stage.text(11, "once", idempotency_key="k") == keyed

        await asyncio.sleep(20 * MINUTE_S)
        assert len(stage.events_of(ClockSettled)) == 1
        assert contents(stage)["idempotency"] == 0
        assert "default" in {event.consumer for event in stage.events_of(UnreadNearEnd)}
        assert stage.events_of(UnreadDropped) == []
        await asyncio.sleep(23 * HOUR_S)
        assert stage.events_of(UnreadDropped) == [], "it was warned of less than a day ago"
        await asyncio.sleep(2 * HOUR_S)
        assert [event.count for event in stage.events_of(UnreadDropped)] == [1]

    play_watched(story)


def test_a_clock_that_comes_back_within_the_hour_has_cost_nothing() -> None:
    async def story(stage: Stage) -> None:
        keyed = await furnish(stage)
        before = contents(stage)
        stage.clock.wall_offset_s += YEAR_S
        await asyncio.sleep(50 * MINUTE_S)
        stage.clock.wall_offset_s -= YEAR_S
        await asyncio.sleep(3 * HOUR_S)
        assert not before - contents(stage)
        assert len(stage.events_of(ClockJumped)) == len(stage.events_of(ClockSettled)) == 1
        assert await stage.text(11, "once", idempotency_key="k") == keyed

    play_watched(story)


def test_a_clock_that_is_set_back_loses_nothing_and_holds_nothing_up() -> None:
    async def story(stage: Stage) -> None:
        keyed = await furnish(stage)
        before = contents(stage)
        stage.clock.wall_offset_s -= YEAR_S
        assert (await stage.ended(await stage.text(13, "goes"), 60.0)).state is State.COMPLETED
        due = await stage.text(13, "in a minute", send_at_ms=stage.clock.wall_ms() + 60_000)
        assert (await stage.ended(due, 180.0)).state is State.COMPLETED
        await asyncio.sleep(2 * HOUR_S)
        assert not before - contents(stage)
        assert await stage.text(11, "once", idempotency_key="k") == keyed
        assert stage.events_of(ClockJumped) == []

    play_watched(story)


@pytest.mark.parametrize("held_before_s", [0.0, 40 * MINUTE_S])
def test_a_start_with_a_clock_far_ahead_destroys_nothing_for_an_hour_of_running(held_before_s: float) -> None:
    async def story(stage: Stage) -> None:
        async with watched(stage):
            keyed = await furnish(stage)
            if held_before_s:
                stage.clock.wall_offset_s += YEAR_S
                await asyncio.sleep(held_before_s)
        before = contents(stage)
        if not held_before_s:
            stage.clock.wall_offset_s += YEAR_S
        async with watched(stage):
            await asyncio.sleep(55 * MINUTE_S - held_before_s)
            assert not before - contents(stage)
            assert len(stage.events_of(ClockJumped)) == 1 + bool(held_before_s)
            assert await stage.text(11, "once", idempotency_key="k") == keyed
            await asyncio.sleep(10 * MINUTE_S)
            assert len(stage.events_of(ClockSettled)) == 1
            await asyncio.sleep(10 * MINUTE_S)
            assert contents(stage)["idempotency"] == 0
            await asyncio.sleep(12 * HOUR_S)
        async with stage.open():  # the half day of the warning counts
            await asyncio.sleep(11 * HOUR_S)
            assert stage.events_of(UnreadDropped) == []
            await asyncio.sleep(2 * HOUR_S)
            assert [event.count for event in stage.events_of(UnreadDropped)] == [1]

    play_closed(story)


def test_off_for_a_night_is_nothing_to_tell_of() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await furnish(stage)
        await asyncio.sleep(10 * HOUR_S)
        async with watched(stage):
            assert stage.peik.settled.wall_ms() < stage.clock.wall_ms() - 9 * HOUR_S * 1000
            await asyncio.sleep(2 * HOUR_S)
            assert stage.peik.settled.wall_ms() == stage.clock.wall_ms()
            assert stage.events_of(ClockJumped) == stage.events_of(ClockSettled) == []

    play_closed(story)


def test_a_bot_that_polls_all_the_time_was_not_away_because_the_clock_was_set() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        inbox = stage.peik.inbox.service
        await inbox.updates(BOT)
        stage.telegram.write(TOKEN, 11, "is anybody there?")
        await fetch(stage)
        stage.clock.wall_offset_s += 31 * DAY_S
        found = await inbox.updates(BOT)
        assert len(found) == 1
        assert [one for one in stage.events_of(OutageSettled) if one.missed] == []

    play(story, missed="drop")


def play_watched(story: Any) -> None:
    """As of a server: whose clock is watched."""

    async def opened(stage: Stage) -> None:
        async with watched(stage):
            await story(stage)

    play_closed(opened)
