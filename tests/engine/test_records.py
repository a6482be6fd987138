"""Records of bots that are changed by several at once: nobody's change is lost."""

import asyncio

import apsw
import pytest
from msgspec.structs import replace

from peik.core.pace import Limits
from peik.core.token import Token
from tests.engine.story import BOT, Stage, play

ME = '{"id":7000001,"is_bot":true,"first_name":"x","username":"other_bot"}'


@pytest.mark.parametrize("is_first", [True, False])
def test_what_telegram_says_of_a_bot_undoes_no_change_that_is_under_way(is_first: bool) -> None:
    async def story(stage: Stage) -> None:
        desk = stage.peik.desk
        noting, wanting = desk.note_me(BOT, ME, "other_bot"), desk.receive_for(BOT)
        await asyncio.gather(*((noting, wanting) if is_first else (wanting, noting)))
        (stored,) = await stage.peik.store.bots()
        for record in (stored, desk.bot(BOT)):
            assert (record.inbound, record.me, record.username) == ("polling", ME, "other_bot")

    play(story)


def test_it_takes_up_what_another_process_has_changed() -> None:
    async def story(stage: Stage) -> None:
        desk, store = stage.peik.desk, stage.peik.store
        await store.save_bot(
            replace(desk.bot(BOT), inbound="polling")
        )  # by somebody else: this desk has not heard of it
        await desk.note_me(BOT, ME, "other_bot")
        (stored,) = await store.bots()
        assert (stored.inbound, stored.me) == ("polling", ME)

    play(story)


def test_changes_of_one_bot_that_come_at_once_undo_none_of_each_other() -> None:
    async def story(stage: Stage) -> None:
        desk = stage.peik.desk
        limits = Limits(bulk_per_s=5.0)
        await asyncio.gather(
            desk.change_bot(BOT, paused="for the night"),
            desk.change_bot(BOT, limits=limits),
            desk.note_me(BOT, ME, "other_bot"),
            desk.change_bot(BOT, inbound="polling"),
        )
        (stored,) = await stage.peik.store.bots()
        for record in (stored, desk.bot(BOT)):
            assert (record.paused, record.limits, record.me) == ("for the night", limits, ME)
            assert record.inbound == "polling"
        assert not desk._changes, "the lock of a bot that nobody changes is kept"

    play(story)


def test_bots_that_are_paused_at_once_share_a_commit_and_wait_for_no_other() -> None:
    async def story(stage: Stage) -> None:
        desk, store = stage.peik.desk, stage.peik.store
        others = [Token(f"{BOT + more}:AAE-another-another-another-another-0") for more in range(1, 20)]
        for token in others:
            await desk.save_bot(token)
        said: list[str] = []
        store._connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: said.append(event["sql"]))
        await asyncio.gather(*(desk.change_bot(bot.bot_id, paused="for the night") for bot in desk.bots()))
        store._connection.trace_v2(0, None)
        assert {bot.paused for bot in await store.bots()} == {"for the night"}
        assert said.count("COMMIT") <= 2

    play(story)
