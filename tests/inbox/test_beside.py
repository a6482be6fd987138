"""A program with handlers beside a server that owns the store: outages are dealt with wherever somebody was away."""

import asyncio

from peik.core.arrival import DEFAULT_CONSUMER
from tests.inbox.handing import Program, until, written
from tests.outbox.story import BOT, Stage, play_closed
from tests.outbox.test_neighbours import neighbour

HOUR_S = 3600.0


async def notices(stage: Stage) -> list[str]:
    await stage.quiet()
    return stage.texts(5)


def test_a_program_that_was_away_while_the_server_polled_tells_who_waited() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open():
            async with neighbour(stage) as (guest, _):
                program = Program(stage)
                program.run(consumers=guest.inbox.consumers)
                await written(stage, "before")
                await until(stage, lambda: program.texts == ["before"])
            await asyncio.sleep(HOUR_S)
            await written(stage, "meanwhile", "and again")
            await asyncio.sleep(HOUR_S)
            async with neighbour(stage) as (guest, _):
                program = Program(stage)
                program.run(consumers=guest.inbox.consumers)
                await until(stage, lambda: program.texts == ["meanwhile", "and again"])
                (notice,) = await notices(stage)
                assert "meanwhile" in notice

    play_closed(story, missed="both")


def test_what_the_server_was_not_there_to_fetch_is_held_until_it_has_settled_it() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, _):
            program = Program(stage)
            program.run(consumers=guest.inbox.consumers)
            await written(stage, "before")
            await until(stage, lambda: program.texts == ["before"])
            outages = stage.peik.inbox.outages
            outages.expect(BOT, "source", stage.clock.wall_ms() - int(HOUR_S * 1000))
            await outages.kept(BOT)
            await written(stage, "fetched late", chat=5)
            await asyncio.sleep(30)
            assert guest.inbox.outages.holds(BOT)
            assert program.texts == ["before"], "who hands on waits for who settles"
            outages.over(BOT, "source")
            await until(stage, lambda: not guest.inbox.outages.holds(BOT))
            await written(stage, "after")
            await until(stage, lambda: "after" in program.texts)
            progress = (await guest.store.inbox.ensure_consumer(BOT, DEFAULT_CONSUMER, at_ms=0)).progress
            assert not progress.spans

    play_closed(story, missed="both")


def test_a_server_and_a_program_that_were_both_away_tell_everybody_once() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, _):
            program = Program(stage)
            program.run(consumers=guest.inbox.consumers)
            await written(stage, "before")
            await until(stage, lambda: program.texts == ["before"])
            await asyncio.sleep(30)
        await asyncio.sleep(HOUR_S)
        async with stage.open():
            outages = stage.peik.inbox.outages
            outages.expect(BOT, "source", stage.clock.wall_ms() - int(HOUR_S * 1000))
            await outages.kept(BOT)
            async with neighbour(stage) as (guest, _):
                program = Program(stage)
                program.run(consumers=guest.inbox.consumers)
                stage.clock.wall_offset_s -= 1800  # it was written half an hour ago
                await written(stage, "meanwhile")
                stage.clock.wall_offset_s += 1800
                await asyncio.sleep(20)
                outages.over(BOT, "source")
                await until(stage, lambda: program.texts == ["meanwhile"])
                assert len(await notices(stage)) == 1

    play_closed(story, missed="both")


def test_a_program_that_was_killed_while_it_settled_holds_nobody_for_ever() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open():
            async with neighbour(stage) as (guest, _):
                program = Program(stage)
                program.run(consumers=guest.inbox.consumers)
                await written(stage, "before")
                await until(stage, lambda: program.texts == ["before"])
                now_ms = stage.clock.wall_ms()
                await guest.store.inbox.open_outage(
                    BOT, began_at_ms=now_ms - 3_600_000, ended_at_ms=now_ms, last_number=0
                )
            async with neighbour(stage) as (guest, _):
                program = Program(stage)
                program.run(consumers=guest.inbox.consumers)
                await written(stage, "after")
                await asyncio.sleep(300)
                assert not guest.inbox.outages.holds(BOT)
                await written(stage, "and on")
                await until(stage, lambda: program.texts == ["after", "and on"])
                assert await stage.peik.store.inbox.outages(BOT, is_open=True) == []

    play_closed(story, missed="both")
