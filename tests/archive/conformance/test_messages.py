"""Keeping messages, their versions and deletions."""

import asyncio
import random

import msgspec
import pytest

from peik.archive.store import Direction, KeptCounts, Message, MessageFilter
from tests.archive.places import Place, opened
from tests.archive.samples import CHANNEL, CHAT, NOW, message


async def test_a_message_is_read_as_it_was_kept(place: Place) -> None:
    given = message(
        2**31,
        chat_id=CHANNEL,
        direction=Direction.SENT,
        sender_id=None,
        kind="photo",
        text="سلام — привет 👋",
        reply_to=3,
        grouped_id=2**62,
        media='{"name": "a.jpg"}',
        raw='{"x": [1, null]}',
        letter_id=12,
    )
    async with opened(place) as archive:
        assert await archive.keep_messages([given]) == KeptCounts(new=1)
        assert await archive.keep_messages([]) == KeptCounts()
    async with opened(place) as archive:
        assert await archive.messages(MessageFilter(), cursor=None, limit=5) == ([given], None)
        assert await archive.versions("s1", CHANNEL, 2**31) == [given]


async def test_the_same_again_is_no_second_one(place: Place) -> None:
    async with opened(place) as archive:
        assert await archive.keep_messages([message(1), message(2), message(1)]) == KeptCounts(new=2, known=1)
        assert await archive.keep_messages([message(2), message(3)]) == KeptCounts(new=1, known=1)
        others = [message(1, session_id="s2"), message(1, chat_id=6)]
        assert await archive.keep_messages(others) == KeptCounts(new=2)
        assert (await archive.tally()).messages == 5


async def test_a_newer_version_takes_the_place_of_the_older_one(place: Place) -> None:
    first = message(1, text="one", media="{}", reply_to=9)
    second = message(1, text="two", edited_at_ms=NOW + 5)
    async with opened(place) as archive:
        await archive.keep_messages([first])
        assert await archive.keep_messages([second]) == KeptCounts(edited=1)
        assert await archive.versions("s1", CHAT, 1) == [first, second]
        assert await archive.messages(MessageFilter(), cursor=None, limit=5) == ([second], None)
        assert await archive.messages(MessageFilter(text="one"), cursor=None, limit=5) == ([], None)
        assert await archive.messages(MessageFilter(text="two"), cursor=None, limit=5) == ([second], None)


async def test_a_message_was_archived_when_its_first_version_was_whatever_came_together(place: Place) -> None:
    versions = [
        message(1, text=str(count), edited_at_ms=count and NOW + count, created_at_ms=NOW + count) for count in range(3)
    ]
    async with opened(place) as archive:
        await archive.keep_messages(versions[:2])
        assert await archive.messages(MessageFilter(), cursor=None, limit=5) == (
            [msgspec.structs.replace(versions[1], created_at_ms=NOW)],
            None,
        )
        await archive.keep_messages(versions[1:])
        assert await archive.messages(MessageFilter(), cursor=None, limit=5) == (
            [msgspec.structs.replace(versions[2], created_at_ms=NOW)],
            None,
        )


async def test_an_older_version_that_comes_late_is_put_aside(place: Place) -> None:
    versions = [message(1, text=str(count), edited_at_ms=count and NOW + count) for count in range(4)]
    async with opened(place) as archive:
        await archive.keep_messages([versions[2]])
        assert await archive.keep_messages([versions[0]]) == KeptCounts(edited=1)
        assert await archive.keep_messages([versions[0], versions[2]]) == KeptCounts(known=2)
        assert await archive.keep_messages([versions[3], versions[1]]) == KeptCounts(edited=2)
        assert await archive.versions("s1", CHAT, 1) == versions
        assert (await archive.tally()).versions == 3


async def test_whatever_order_versions_come_in_the_end_is_the_same(place: Place) -> None:
    versions = [
        message(number, text=f"{number} {count}", edited_at_ms=count and NOW + count)
        for number in (1, 2, 3)
        for count in range(4)
    ]
    async with opened(place) as archive:
        for seed in range(6):
            chance = random.Random(seed)
            given = [msgspec.structs.replace(one, session_id=f"s{seed}") for one in versions]
            handed = given * 2
            chance.shuffle(handed)
            kept = []
            while handed:
                count = chance.randint(1, 6)
                kept.append(await archive.keep_messages(handed[:count]))
                handed = handed[count:]
            assert sum(one.new for one in kept) == 3
            assert sum(one.edited for one in kept) == 9
            assert sum(one.known for one in kept) == 12
            for number in (1, 2, 3):
                wanted = [one for one in given if one.message_id == number]
                assert await archive.versions(f"s{seed}", CHAT, number) == wanted


async def test_many_who_hand_in_the_same_at_once_keep_it_once(place: Place) -> None:
    versions = [message(number, edited_at_ms=count and NOW + count) for number in range(5) for count in range(3)]
    async with opened(place) as one, opened(place) as other:

        async def hand_in(seed: int) -> KeptCounts:
            mine = versions.copy()
            random.Random(seed).shuffle(mine)
            kept = [await (one if seed % 2 else other).keep_messages(mine[start : start + 5]) for start in (0, 5, 10)]
            return KeptCounts(
                new=sum(k.new for k in kept), edited=sum(k.edited for k in kept), known=sum(k.known for k in kept)
            )

        told = await asyncio.gather(*map(hand_in, range(8)))
        assert sum(kept.new for kept in told) == 5
        assert sum(kept.edited for kept in told) == 10
        tallied = await one.tally()
        assert (tallied.messages, tallied.versions) == (5, 10)
        for number in range(5):
            found = await other.versions("s1", CHAT, number)
            assert [one.edited_at_ms for one in found] == [0, NOW + 1, NOW + 2]


async def test_a_deleted_message_stays_deleted(place: Place) -> None:
    async with opened(place) as archive:
        await archive.keep_messages([message(1), message(2)])
        assert await archive.mark_deleted("s1", CHAT, [1, 9], at_ms=NOW + 7) == 1
        assert await archive.mark_deleted("s1", CHAT, [1], at_ms=NOW + 8) == 1
        await archive.keep_messages([message(1), message(1, edited_at_ms=NOW + 9)])
        found, _ = await archive.messages(MessageFilter(is_deleted=True), cursor=None, limit=5)
        assert [(one.message_id, one.edited_at_ms, one.deleted_at_ms) for one in found] == [(1, NOW + 9, NOW + 7)]
        found, _ = await archive.messages(MessageFilter(is_deleted=False), cursor=None, limit=5)
        assert [one.message_id for one in found] == [2]


async def test_a_deletion_without_a_chat_spares_channels(place: Place) -> None:
    group = -44
    async with opened(place) as archive:
        given = [message(1), message(1, chat_id=CHANNEL), message(2, chat_id=group), message(1, session_id="s2")]
        await archive.keep_messages(given)
        assert await archive.mark_deleted("s1", None, [1, 2, 3], at_ms=NOW) == 2
        found, _ = await archive.messages(MessageFilter(is_deleted=True), cursor=None, limit=5)
        assert {(one.session_id, one.chat_id) for one in found} == {("s1", CHAT), ("s1", group)}


async def test_a_message_stays_the_letters_that_sent_it(place: Place) -> None:
    async with opened(place) as archive:
        await archive.keep_messages([message(1)])
        assert await archive.keep_messages([message(1, letter_id=5)]) == KeptCounts(known=1)
        await archive.keep_messages([message(1, text="edited", edited_at_ms=NOW + 1)])
        found, _ = await archive.messages(MessageFilter(), cursor=None, limit=5)
        assert [(one.text, one.letter_id) for one in found] == [("edited", 5)]


async def test_what_no_database_keeps_becomes_a_sign(place: Place) -> None:
    async with opened(place) as archive:
        await archive.keep_messages([message(1, text="a\0b\ud800c"), message(2)])
        found, _ = await archive.messages(MessageFilter(), cursor=None, limit=5)
        assert [one.text for one in found] == ["message 2", "a\ufffdb\ufffdc"]


async def test_ids_of_a_chat_come_in_order(place: Place) -> None:
    async with opened(place) as archive:
        given: list[Message] = [message(number) for number in (9, 2, 30, 4)]
        await archive.keep_messages([*given, message(5, chat_id=6), message(5, session_id="s2")])
        assert await archive.message_ids("s1", CHAT, above=0, limit=9) == [2, 4, 9, 30]
        assert await archive.message_ids("s1", CHAT, above=4, limit=1) == [9]
        assert await archive.message_ids("s1", CHAT, above=30, limit=9) == []


@pytest.mark.parametrize("count", [1, 3000])
async def test_one_call_may_bring_many(place: Place, count: int) -> None:
    async with opened(place) as archive:
        assert await archive.keep_messages([message(number) for number in range(count)]) == KeptCounts(new=count)
        assert (await archive.tally()).messages == count
