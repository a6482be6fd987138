"""Group commit, and one bad call among good ones."""

import asyncio

import pytest

from peik.errors import BadInput, NotFound
from peik.outbox.store import Tally
from tests.storage.acts import NOW, accept, draft, edit, find, mark, state, tally
from tests.storage.inbox_acts import message, open_inbox, take
from tests.storage.postgres_place import PostgresPlace


async def test_what_waits_at_a_moment_is_one_transaction(place: PostgresPlace) -> None:
    async with place.open() as store:
        before = store.commits
        await asyncio.gather(*(accept(store, draft(chat)) for chat in range(50)))
        (row,) = await place.run("SELECT count(*), count(DISTINCT xmin::text) FROM letters")
        assert tuple(row) == (50, 1)
        assert store.commits == before + 1


async def test_what_comes_during_a_commit_goes_into_the_next_one(place: PostgresPlace) -> None:
    async with place.open() as store:
        before = store.commits

        async def caller(chat: int) -> None:
            for _ in range(10):
                await accept(store, draft(chat))

        await asyncio.gather(*(caller(chat) for chat in range(50)))
        assert await tally(store) == Tally(waiting=500)
        assert store.commits - before <= 50


async def test_a_text_that_cannot_be_kept_is_the_callers_mistake_and_nobody_elses(place: PostgresPlace) -> None:
    async with place.open() as store:
        answers = await asyncio.gather(
            accept(store, draft(1)),
            accept(store, draft(2, user_id="a\0b")),
            accept(store, draft(3, bot_id=99)),
            accept(store, draft(4)),
            return_exceptions=True,
        )
        assert [type(one) for one in answers] == [list, BadInput, NotFound, list]
        assert await tally(store) == Tally(waiting=2)
        assert store.trouble() is None


async def test_edits_of_one_commit_replace_each_other_and_older_ones_but_not_one_in_flight(
    place: PostgresPlace,
) -> None:
    async with place.open() as store:
        flying, old = await accept(store, edit("m1", text="flying"), edit("m2"))
        assert await mark(store, await find(store, flying)) == [flying]
        first, second, third = await accept(store, edit("m2"), edit("m1"), edit("m2"))
        views = [await store.letter(one) for one in (old, first, second, third, flying)]
        assert [view and view.merged_into for view in views] == [first, third, None, None, None]
        assert await state(store, flying) == "active"
        assert [(one.letter_id, one.into) for one in place.heard.removed] == [(old, first), (first, third)]


@pytest.mark.parametrize("chat", ["12", "-5", "'12", "'", "", "@a", "user:1", 12, -100])
async def test_every_chat_is_read_as_it_was_written(place: PostgresPlace, chat: int | str) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(chat))
        view = await store.letter(letter_id)
        assert view is not None
        assert view.chat == chat
        assert (await find(store, letter_id)).chat == chat


async def test_the_views_for_people_answer(place: PostgresPlace) -> None:
    async with place.open() as store:
        await accept(store, draft("12"), draft(-100), at_ms=NOW)
        rows = await place.run("SELECT chat_id, status, created_at FROM telegram_message_logs ORDER BY id")
        assert [(row["chat_id"], row["status"]) for row in rows] == [("12", "waiting"), ("-100", "waiting")]
        assert rows[0]["created_at"].timestamp() * 1000 == NOW
        assert await place.run("SELECT * FROM bot_state") == await place.run("SELECT * FROM pending_messages") == []
        await open_inbox(store.inbox)
        await take(store.inbox, message(1, text="سلام"))
        (state,) = await place.run("SELECT last_update_id, last_startup, updated_at FROM bot_state WHERE id = 1")
        assert (state["last_update_id"], state["last_startup"].timestamp() * 1000) == (1, NOW)
        (pending,) = await place.run("SELECT user_id, message_text FROM pending_messages WHERE status = 'pending'")
        assert dict(pending) == {"user_id": 1, "message_text": "سلام"}
        (setting,) = await place.run("SELECT setting_key, bot_token FROM telegram_settings WHERE bot_id = 7")
        assert dict(setting) == {"setting_key": "bot_token:7", "bot_token": "7:…"}
