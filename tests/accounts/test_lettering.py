"""The message that a letter became: it has the letter's id, whenever it comes into the archive."""

import asyncio
from typing import Any

import msgspec
import pytest

from peik.accounts.letters import GIVE_UP_S, LetterLinks, places_of
from peik.archive.store import Direction, Message
from peik.core.events import Settled
from peik.core.letter import LetterCall, OnUncertain, State
from peik.outbox.store import LetterView
from tests.accounts.house import House, play, play_closed


async def begin(house: House) -> None:
    await house.sign_in(house.ali, session_id="s1")
    await house.connected(house.ali)


async def marked(house: House) -> dict[str, int | None]:
    return {one.text: one.letter_id for one in await house.kept("s1")}


def test_a_message_that_a_letter_sent_has_its_id_and_others_have_none() -> None:
    async def story(house: House) -> None:
        await begin(house)
        letters = [await house.send_as(house.ali, house.sara.user_id, f"{number}") for number in range(3)]
        house.accounts.say(house.private, house.sara, "from her")
        house.accounts.say(house.private, house.ali, "by hand")
        for letter in letters:
            assert (await house.ended(letter)).state is State.COMPLETED
        await asyncio.sleep(10)
        assert await marked(house) == {
            "0": letters[0],
            "1": letters[1],
            "2": letters[2],
            "from her": None,
            "by hand": None,
        }

    play(story)


def test_it_stays_so_when_the_message_is_edited() -> None:
    async def story(house: House) -> None:
        await begin(house)
        letter = await house.send_as(house.ali, house.sara.user_id, "helo")
        view = await house.ended(letter)
        await asyncio.sleep(10)
        ((chat_id, message_id),) = places_of(view)
        params = msgspec.json.encode({"chat_id": chat_id, "message_id": message_id, "text": "hello"})
        edit = LetterCall(bot_id=house.ali.user_id, method="editMessageText", params=params)
        await house.ended((await house.peik.outbox.service.accept([edit]))[0].letter_id)
        await asyncio.sleep(10)
        assert await marked(house) == {"hello": letter}

    play(story)


def test_a_letter_that_only_edits_did_not_send_the_message() -> None:
    async def story(house: House) -> None:
        await begin(house)
        post = house.accounts.say(house.private, house.ali, "by hand")
        params = msgspec.json.encode({"chat_id": post.chat_id, "message_id": post.message_id, "text": "edited"})
        edit = LetterCall(bot_id=house.ali.user_id, method="editMessageText", params=params)
        letter = (await house.peik.outbox.service.accept([edit]))[0].letter_id
        assert (await house.ended(letter)).state is State.COMPLETED
        await asyncio.sleep(60)
        assert await marked(house) == {"edited": None}

    play(story)


def test_a_letter_of_several_messages_marks_all_of_them() -> None:
    async def story(house: House) -> None:
        await begin(house)
        posts = [house.accounts.say(house.private, house.ali, f"{number}") for number in range(3)]
        params = msgspec.json.encode(
            {
                "chat_id": house.team.chat_id,
                "from_chat_id": house.sara.user_id,
                "message_ids": [one.message_id for one in posts],
            }
        )
        call = LetterCall(bot_id=house.ali.user_id, method="copyMessages", params=params)
        letter = (await house.peik.outbox.service.accept([call]))[0].letter_id
        assert (await house.ended(letter)).state is State.COMPLETED
        await asyncio.sleep(10)
        sent = [one for one in await house.kept("s1") if one.chat_id == house.team.chat_id]
        assert [one.letter_id for one in sent] == [letter] * 3

    play(story)


def test_an_archive_that_was_away_for_long_is_caught_up_with() -> None:
    async def story(house: House) -> None:
        await begin(house)
        letter = await house.send_as(house.ali, house.sara.user_id, "hello")
        await house.ended(letter)
        house.archive.is_down = True
        await asyncio.sleep(2 * GIVE_UP_S)
        house.archive.is_down = False
        await asyncio.sleep(GIVE_UP_S)
        assert await marked(house) == {"hello": letter}

    play(story)


def test_who_comes_after_a_crash_marks_what_the_dead_one_could_not() -> None:
    async def story(house: House) -> None:
        async with house.open():
            await begin(house)
            letter = await house.send_as(house.ali, house.sara.user_id, "hello")
            await house.until(lambda: house.told_of(Settled), within_s=10)
            await asyncio.sleep(0.1)  # less than the first look needs
            assert await marked(house) in ({}, {"hello": None})
        async with house.open():
            await house.connected(house.ali)
            await asyncio.sleep(60)
            assert await marked(house) == {"hello": letter}

    play_closed(story)


def test_what_never_comes_into_the_archive_is_given_up() -> None:
    async def story(house: House) -> None:
        await begin(house)
        found: list[LetterLinks] = [one for one in house.service._chores if isinstance(one, LetterLinks)]
        await house.service.crew.stop("s1")
        event = Settled(
            bot_id=house.ali.user_id,
            letter_id=await house.send_as(house.ali, house.sara.user_id, "waits"),
            method="sendMessage",
            chat=1,
            move="deliver",  # type: ignore[arg-type]
            state=State.COMPLETED,
        )
        other = msgspec.structs.replace(event, letter_id=99_999)
        found[0]._note(event.letter_id, event.bot_id, event.method, [(house.sara.user_id, 4711)])
        house.peik.events.tell(other)
        await asyncio.sleep(10)
        assert list(found[0]._waiting) == [event.letter_id], "a letter that is gone is not waited for"
        await asyncio.sleep(2 * GIVE_UP_S)
        assert not found[0]._waiting

    play(story)


def test_letters_of_bots_cost_nothing() -> None:
    async def story(house: House) -> None:
        params = msgspec.json.encode({"chat_id": 5, "text": "hello"})
        accepted = await house.peik.outbox.service.accept([LetterCall(method="sendMessage", params=params)])
        assert (await house.ended(accepted[0].letter_id)).state is State.COMPLETED
        (lettering,) = [one for one in house.service._chores if isinstance(one, LetterLinks)]
        assert not lettering._waiting

    play(story)


def view(result: str | None, chat: int | str = 7) -> LetterView:
    none: dict[str, Any] = dict.fromkeys(LetterView.__struct_fields__)
    known = {"id": 1, "chat": chat, "result": result, "state": State.COMPLETED, "on_uncertain": OnUncertain.RESEND}
    return LetterView(**{**none, **known})


@pytest.mark.parametrize(
    ("result", "chat", "places"),
    [
        ('{"message_id":5,"chat":{"id":-100,"type":"channel"},"text":"x"}', 7, [(-100, 5)]),
        ('[{"message_id":5,"chat":{"id":8}},{"message_id":6,"chat":{"id":8}}]', 7, [(8, 5), (8, 6)]),
        ('[{"message_id":5},{"message_id":6}]', 7, [(7, 5), (7, 6)]),
        ('{"message_id":5}', "@sara", []),
        ('{"message_id":0,"date":0}', 7, []),
        ("true", 7, []),
        ("not JSON", 7, []),
        (None, 7, []),
    ],
)
def test_where_an_answer_says_that_a_message_is(result: str | None, chat: int | str, places: list[Any]) -> None:
    assert places_of(view(result, chat)) == places


def test_the_archive_marks_a_version_that_is_not_the_newest_any_more() -> None:
    """An edit may come between our look and our mark."""

    async def story(house: House) -> None:
        first = Message(
            session_id="s1", agent_id="a", chat_id=7, message_id=5, direction=Direction.SENT, date_ms=1, text="helo",
            created_at_ms=1,
        )  # fmt: skip
        await house.archive.keep_messages([first])
        await house.archive.keep_messages([msgspec.structs.replace(first, edited_at_ms=2, text="hello")])
        await house.archive.keep_messages([msgspec.structs.replace(first, letter_id=9)])
        assert await marked(house) == {"hello": 9}

    play(story)
