"""Records of bots and keys that are changed by several at once, or by a store that says no: nobody's change is lost."""

import asyncio
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from peik.admin.model import Key
from peik.core.letter import State
from peik.core.pace import ACCOUNT_LIMITS, PaceLimits
from peik.core.token import Token
from peik.errors import StoreUnavailable
from tests.outbox.story import BOT, Stage, play, play_closed

ME = '{"id":7000001,"is_bot":true,"first_name":"x","username":"other_bot"}'


@pytest.mark.parametrize("is_first", [True, False])
def test_what_telegram_says_of_a_bot_undoes_no_change_that_is_under_way(is_first: bool) -> None:
    async def story(stage: Stage) -> None:
        service = stage.peik.outbox.service
        noting, wanting = service.note_me(BOT, ME, "other_bot"), service.receive_for(BOT)
        await asyncio.gather(*((noting, wanting) if is_first else (wanting, noting)))
        (stored,) = await stage.peik.store.bots()
        for record in (stored, service.bot(BOT)):
            assert (record.inbound, record.me, record.username) == ("polling", ME, "other_bot")

    play(story)


def test_it_takes_up_what_another_process_has_changed() -> None:
    async def story(stage: Stage) -> None:
        service, store = stage.peik.outbox.service, stage.peik.store
        await store.save_bot(
            replace(service.bot(BOT), inbound="polling")
        )  # by somebody else: this desk has not heard of it
        await service.note_me(BOT, ME, "other_bot")
        (stored,) = await store.bots()
        assert (stored.inbound, stored.me) == ("polling", ME)

    play(story)


def test_changes_of_one_bot_that_come_at_once_undo_none_of_each_other() -> None:
    async def story(stage: Stage) -> None:
        service = stage.peik.outbox.service
        limits = PaceLimits(bulk_per_s=5.0)
        await asyncio.gather(
            service.change_bot(BOT, paused="for the night"),
            service.change_bot(BOT, limits=limits),
            service.note_me(BOT, ME, "other_bot"),
            service.change_bot(BOT, inbound="polling"),
        )
        (stored,) = await stage.peik.store.bots()
        for record in (stored, service.bot(BOT)):
            assert (record.paused, record.limits, record.me) == ("for the night", limits, ME)
            assert record.inbound == "polling"
        assert not service._changes, "the lock of a bot that nobody changes is kept"

    play(story)


def test_bots_that_are_paused_at_once_share_a_commit_and_wait_for_no_other() -> None:
    async def story(stage: Stage) -> None:
        service, store = stage.peik.outbox.service, stage.peik.store
        others = [Token(f"{BOT + more}:AAE-another-another-another-another-0") for more in range(1, 20)]
        for token in others:
            await service.save_bot(token)
        said: list[str] = []
        store._connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: said.append(event["sql"]))
        await asyncio.gather(*(service.change_bot(bot.bot_id, paused="for the night") for bot in service.bots()))
        store._connection.trace_v2(0, None)
        assert {bot.paused for bot in await store.bots()} == {"for the night"}
        assert said.count("COMMIT") <= 2

    play(story)


def test_a_change_that_could_not_be_stored_counts_nowhere() -> None:
    async def story(stage: Stage) -> None:
        stage.refuse("save_bot", 0)
        async with stage.open():
            stage.refuse("save_bot")
            with pytest.raises(StoreUnavailable):
                await stage.peik.outbox.service.change_bot(BOT, paused="for the night")
            assert stage.peik.outbox.service.bot(BOT).paused is None
            await stage.ended(await stage.text(5, "it goes on"), 10)

    play_closed(story)


# ---- keys ----


def test_of_two_looks_at_the_keys_the_older_one_never_wins() -> None:
    async def story(stage: Stage) -> None:
        keyring, store = stage.peik.keyring, stage.peik.store
        await keyring.make("first", ["send"])
        read = store.keys

        async def slow() -> tuple[int, list[Key]]:
            found = await read()
            await asyncio.sleep(5)
            return found

        keyring._generation = -1  # it knows that there is something new, as after news of another process
        store.keys = slow  # type: ignore[method-assign]
        looking = asyncio.ensure_future(keyring.refresh())
        await asyncio.sleep(1)
        store.keys = read  # type: ignore[method-assign]
        made = await keyring.make("second", ["send"])
        await looking
        assert keyring.find(made.key.digest) is not None

    play(story)


def test_a_use_of_a_key_that_could_not_be_noted_is_noted_later() -> None:
    async def story(stage: Stage) -> None:
        stage.refuse("note_key_use", 0)
        async with stage.open():
            made = await stage.peik.keyring.make("shop", ["send"])
            assert stage.peik.keyring.find(made.key.digest) is not None
            used_at_ms = stage.clock.wall_ms()
            stage.refuse("note_key_use")
            await asyncio.sleep(180)
            _, (kept,) = await stage.peik.store.keys()
            assert (kept.last_used_at_ms, stage.refusals["note_key_use"]) == (used_at_ms, 0)

    play_closed(story)


# ---- limits ----


@pytest.mark.parametrize("change", [{"limits": PaceLimits(bulk_per_s=5.0)}, {"limits": None}, {"missed": "drop"}])
def test_a_change_of_a_bot_forgets_no_hold(change: dict[str, Any]) -> None:
    async def story(stage: Stage) -> None:
        service = stage.peik.outbox.service
        await service.change_bot(BOT, limits=PaceLimits(bulk_per_s=20.0))
        stage.telegram.faults.add("flood", retry_after=600, chat=5, count=1)
        held = await stage.text(5, "held")
        await asyncio.sleep(100)
        begun = stage.clock.mono()
        await service.change_bot(BOT, **change)
        await asyncio.sleep(100)
        assert (await stage.letter(held)).state is State.WAITING
        await stage.ended(held)
        assert 490 < stage.clock.mono() - begun < 520

    play(story)


def test_a_change_of_limits_forgets_no_hold_of_the_whole_bot() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("flood", retry_after=600, count=2)
        flooded = [await stage.text(chat, "flooded") for chat in (5, 6)]
        await asyncio.sleep(100)
        await stage.peik.outbox.service.change_bot(BOT, limits=PaceLimits(bulk_per_s=5.0))
        other = await stage.text(7, "behind the hold")
        await asyncio.sleep(100)
        assert [(await stage.letter(one)).state for one in (*flooded, other)] == [State.WAITING] * 3
        await stage.quiet(600)

    play(story)


def test_another_figure_does_not_let_a_bot_go_on_that_telegram_does_not_take() -> None:
    async def story(stage: Stage) -> None:
        new = stage.telegram.revoke(BOT)
        stuck = await stage.text(5, "stuck")
        await asyncio.sleep(1)
        before = stage.telegram.counters.requests["sendMessage"]
        await stage.peik.outbox.service.change_bot(BOT, limits=PaceLimits(bulk_per_s=5.0))
        await asyncio.sleep(0.5)
        assert "Unauthorized" in (await stage.peik.outbox.service.why(await stage.letter(stuck)) or "")
        assert stage.telegram.counters.requests["sendMessage"] == before
        await stage.peik.outbox.service.change_bot(BOT, token=Token(new))
        assert (await stage.ended(stuck)).state is State.COMPLETED

    play(story)


def test_limits_that_are_not_given_stay_and_an_account_keeps_its_own() -> None:
    async def story(stage: Stage) -> None:
        service = stage.peik.outbox.service
        await service.save_account(42, "somebody")
        for bot_id, usual, none in ((42, ACCOUNT_LIMITS, ACCOUNT_LIMITS), (BOT, PaceLimits(), None)):
            changed = await service.change_bot(bot_id, limits={"bulk_per_s": 0.5})
            assert changed.limits == replace(usual, bulk_per_s=0.5)
            changed = await service.change_bot(bot_id, limits={"private_burst": 1})
            assert changed.limits == replace(usual, bulk_per_s=0.5, private_burst=1)
            assert (await service.change_bot(bot_id, limits=None)).limits == none

    play(story)
