"""Histories read backwards: resumable, within the budget, down to a date."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from peik.accounts.events import ChatUnread, CrawlAdvanced
from peik.accounts.history import (
    SHARED,
    ChatStates,
    ask_for_crawl,
    estimated,
    is_wanted,
    stop_crawl,
)
from peik.accounts.registry import Registry, progress_of
from peik.accounts.runner import SessionRunner
from peik.archive.store import SessionState
from peik.errors import BadInput
from tests.accounts.inline_archive import Fate, Mortal
from tests.accounts.listening import until
from tests.accounts.stage import Stage
from tests.accounts.test_running import play, running


async def write_history(stage: Stage, count: int, *, every_s: float = 60.0) -> None:
    for number in range(count):
        stage.telegram.say(stage.team, stage.sara, f"t{number}")
        await asyncio.sleep(every_s)


def chats_of(stage: Stage) -> ChatStates:
    return ChatStates("s1", stage.archive, stage.vault, stage.clock)


def test_down_to_the_first_message_with_progress(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await write_history(stage, 250)
        async with running(stage) as runner:
            await until(lambda: runner.client)
            assert await stage.texts() == []
            await ask_for_crawl(runner.chats, stage.team.chat_id)
            runner.ring()
            await until(lambda: any(one.is_done for one in stage.told_of(CrawlAdvanced)), within_s=120)
            assert [(one.crawled_to, one.crawled) for one in stage.told_of(CrawlAdvanced)] == [
                (151, 100),
                (51, 200),
                (0, 250),
            ]
            assert len(await stage.kept()) == 250
            again = await ask_for_crawl(runner.chats, stage.team.chat_id)
            assert not is_wanted(again)

    play(tmp_path, story)


def test_how_long_it_takes_is_said_before_and_how_far_it_is_meanwhile(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await write_history(stage, 1050, every_s=0.01)
        async with running(stage) as runner:
            await until(lambda: runner.client)
            assert await runner.ask(lambda client: client.count(stage.team.chat_id, None)) == 1050
            state = (await runner.chats.all())[stage.team.chat_id]
            told = estimated(state, 1050, others=0)
            assert (told.messages, told.requests, told.seconds) == (1050, 11, 33.0)
            assert estimated(state, 1050, others=2).seconds == 99.0
            assert progress_of(state) is None
            await ask_for_crawl(runner.chats, stage.team.chat_id)
            began, seen = stage.clock.mono(), []
            runner.ring()
            while (state := (await runner.chats.all())[stage.team.chat_id]).crawled_to != 0:
                seen.append(progress_of(state))
                await asyncio.sleep(1)
            took_s = stage.clock.mono() - began
            assert told.seconds * 0.8 <= took_s <= told.seconds * 1.3
            assert seen == sorted(seen, key=lambda one: one or 0.0)
            assert any(one is not None and 0.3 < one < 0.7 for one in seen)
            assert progress_of(state) == 1.0
            assert estimated(state, 1050, others=0).seconds == 0
            dated = await ask_for_crawl(runner.chats, stage.private.id_for(stage.ali), until_ms=5)
            assert progress_of(dated) is None

    play(tmp_path, story)


def test_it_stops_at_a_date_and_goes_deeper_when_asked(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        began_ms = stage.clock.wall_ms()
        await write_history(stage, 500)
        chats = chats_of(stage)
        async with running(stage) as runner:
            await until(lambda: runner.client)
            await ask_for_crawl(chats, stage.team.chat_id, until_ms=began_ms + 350 * 60_000)
            await asyncio.sleep(1000)
            assert len(await stage.kept()) == 200
            assert not is_wanted((await chats.all())[stage.team.chat_id])
            await ask_for_crawl(chats, stage.team.chat_id, until_ms=began_ms + 150 * 60_000)
            runner.ring()
            await asyncio.sleep(100)
            assert len(await stage.kept()) == 400

    play(tmp_path, story)


async def live(stage: Stage, *, awaits: int) -> None:
    """One process, which dies after so many awaits."""
    fate = Fate()
    fate.die_at = awaits
    real: list[Any] = []

    def clients(**wanted: Any) -> Any:
        real.append(stage.telegram.clients(**wanted))
        return Mortal(real[-1], fate)

    book: Any = Mortal(stage.archive, fate)
    tools = stage.tools(book=book, registry=Registry(book, stage.clock), clients=clients)
    task = asyncio.create_task(SessionRunner("s1", tools).run())
    await asyncio.wait([task, asyncio.create_task(fate.dead.wait())], timeout=60, return_when="FIRST_COMPLETED")
    fate.dead.set()
    for client in real:
        await client.disconnect()
    task.cancel()
    await asyncio.wait([task])


def test_a_crash_anywhere_repeats_a_page_at_most(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await write_history(stage, 350, every_s=1.0)
        chats = chats_of(stage)
        await ask_for_crawl(chats, stage.team.chat_id)
        for life in range(200):
            await live(stage, awaits=20 + life)
            if not is_wanted((await chats.all())[stage.team.chat_id]):
                break
        else:
            pytest.fail("it never came to its end")
        assert life > 3
        assert len(await stage.kept()) == 350
        assert (await chats.all())[stage.team.chat_id].crawled_to == 0

    play(tmp_path, story)


def test_flood_waits_are_obeyed(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await write_history(stage, 150, every_s=1.0)
        async with running(stage) as runner:
            await until(lambda: runner.client)
            stage.telegram.flood("history", 1000)
            await ask_for_crawl(runner.chats, stage.team.chat_id)
            runner.ring()
            await asyncio.sleep(900)
            assert (await stage.session()).state is SessionState.FLOOD_WAIT
            assert await stage.texts() == []
            await asyncio.sleep(200)
            assert (await stage.session()).state is SessionState.ACTIVE
            assert len(await stage.kept()) == 150

    play(tmp_path, story)


def test_chats_take_turns_and_one_that_is_shut_stops_nobody(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        other = stage.telegram.channel("Other", stage.sara, stage.ali)
        for number in range(500):
            stage.telegram.say(stage.team, stage.sara, f"t{number}")
            stage.telegram.say(other, stage.sara, f"o{number}")
        async with running(stage) as runner:
            await until(lambda: runner.client)
            for chat_id in (stage.team.chat_id, other.chat_id, -1_000_000_099_999):
                await ask_for_crawl(runner.chats, chat_id)
            runner.ring()
            await until(lambda: len(stage.told_of(CrawlAdvanced)) == 4, within_s=60)
            assert {one.chat_id for one in stage.told_of(CrawlAdvanced)[:2]} == {stage.team.chat_id, other.chat_id}
            assert [one.why for one in stage.told_of(ChatUnread)] == ["chat not found"]
            stopped = await stop_crawl(runner.chats, other.chat_id)
            assert not is_wanted(stopped)
            await asyncio.sleep(100)
        texts = await stage.texts()
        assert sum(one.startswith("t") for one in texts) == 500
        assert sum(one.startswith("o") for one in texts) <= 300

    play(tmp_path, story)


def test_a_chat_has_a_number(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(BadInput):
            await ask_for_crawl(chats_of(stage), SHARED)

    play(tmp_path, story)
