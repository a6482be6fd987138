"""Bots, chats, holds and file ids outlive the process that stored them."""

import pytest

from peik.core.pace import PaceLimits
from peik.core.token import Token
from peik.errors import Conflict, NotFound
from peik.outbox.store import BotRecord, ChatRecord, Retention, Tally
from tests.storage.acts import HOUR, NOW, SENT, accept, attempt, draft, find, front, tally
from tests.storage.places import BOT, OTHER_BOT, Place

EXTRA = BotRecord(
    bot_id=33,
    token=Token("33:abc"),
    username="peik_bot",
    inbound="polling",
    paused="by hand",
    limits=PaceLimits(),
    created_at_ms=5,
)


async def test_bots_survive_and_can_be_changed(place: Place) -> None:
    async with place.open() as store:
        await store.save_bot(EXTRA)
        await store.save_bot(BotRecord(bot_id=33, token=Token("33:new"), created_at_ms=99))
    async with place.open() as store:
        known = {bot.bot_id: bot for bot in await store.bots()}
    assert set(known) == {BOT, OTHER_BOT, 33}
    changed = known[33]
    assert (changed.token.reveal(), changed.username, changed.paused, changed.limits) == (
        "33:new",
        "peik_bot",
        None,
        None,
    )


async def test_limits_and_pauses_survive(place: Place) -> None:
    async with place.open() as store:
        await store.save_bot(EXTRA)
    async with place.open() as store:
        assert EXTRA in await store.bots()


async def test_a_bot_with_letters_to_send_is_not_removed(place: Place) -> None:
    async with place.open() as store:
        await accept(store, draft(send_at_ms=NOW + 1))
        with pytest.raises(Conflict) as caught:
            await store.remove_bot(BOT)
        assert caught.value.code == "letters_waiting"
        assert BOT in {bot.bot_id for bot in await store.bots()}


async def test_a_removed_bot_takes_nothing_and_comes_back_with_its_counts(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft())
        await attempt(store, await find(store, letter_id), SENT)
        await store.remove_bot(BOT)
        assert BOT not in await store.tallies(at_ms=NOW)
        with pytest.raises(NotFound):
            await accept(store, draft())
    async with place.open() as store:  # which adds the bot again
        assert await tally(store) == Tally(completed=1)
        await accept(store, draft())
        assert [one.number for one in await front(store)] == [2]
        await store.clean(Retention(completed_ms=1, dead_ms=1, log_ms=1), at_ms=NOW + HOUR, limit=10)
        assert await tally(store) == Tally(waiting=1)


async def test_shut_chats_and_holds_survive_until_they_are_lifted(place: Place) -> None:
    async with place.open() as store:
        await store.shut_chat(BOT, 1, "bot was blocked by the user", at_ms=NOW)
        await store.hold(BOT, 1, NOW + 500)
        await store.shut_chat(BOT, "@two", "chat not found", at_ms=NOW)
        await store.shut_chat(BOT, "@two", None, at_ms=NOW)
        await store.hold(BOT, None, NOW + 900)
    async with place.open() as store:
        assert await store.chats(BOT) == [
            ChatRecord(
                bot_id=BOT, chat=1, shut_reason="bot was blocked by the user", shut_at_ms=NOW, held_until_ms=NOW + 500
            )
        ]
        assert await store.chats(OTHER_BOT) == []
        assert (await store.bot_held_until(BOT), await store.bot_held_until(OTHER_BOT)) == (NOW + 900, 0)


async def test_file_ids_survive_until_they_are_forgotten(place: Place) -> None:
    async with place.open() as store:
        await store.keep_file_id(BOT, "digest", "photo", "old", at_ms=NOW)
        await store.keep_file_id(BOT, "digest", "photo", "new", at_ms=NOW)
    async with place.open() as store:
        assert await store.file_id(BOT, "digest", "photo") == "new"
        assert await store.file_id(BOT, "digest", "document") is None
        assert await store.file_id(OTHER_BOT, "digest", "photo") is None
        await store.keep_file_id(BOT, "digest", "photo", None, at_ms=NOW)
        assert await store.file_id(BOT, "digest", "photo") is None


async def test_a_letter_that_never_was_is_none(place: Place) -> None:
    async with place.open() as store:
        assert await store.letter(12345) is None
