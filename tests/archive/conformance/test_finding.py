"""Pages of messages and events by every filter."""

import random

import pytest

from peik.archive.store import Direction, EventFilter, Message, MessageFilter
from peik.errors import BadInput
from tests.archive.places import Place, opened
from tests.archive.samples import CHANNEL, NOW, event, message

TEXTS = ("Hello world", "سلام دنیا", "Привет, мир!", "")


def _some(count: int) -> list[Message]:
    chance = random.Random(7)
    return [
        message(
            number,
            session_id=chance.choice(["s1", "s2"]),
            agent_id=chance.choice(["anna", "boris"]),
            chat_id=chance.choice([5, 6, CHANNEL]),
            direction=chance.choice(list(Direction)),
            sender_id=chance.choice([77, 78, None]),
            kind=chance.choice(["text", "photo"]),
            date_ms=NOW + chance.randrange(20) * 1000,  # many in one second
            text=chance.choice(TEXTS),
            deleted_at_ms=chance.choice([None, NOW]),
        )
        for number in range(count)
    ]


FILTERS = (
    MessageFilter(),
    MessageFilter(session_id="s1"),
    MessageFilter(agent_id="boris"),
    MessageFilter(chat_id=CHANNEL),
    MessageFilter(sender_id=77),
    MessageFilter(direction=Direction.SENT),
    MessageFilter(kind="photo"),
    MessageFilter(is_deleted=True),
    MessageFilter(since_ms=NOW + 5000, until_ms=NOW + 9000),
    MessageFilter(session_id="s1", chat_id=5, since_ms=NOW + 3000),
    MessageFilter(text="hello", agent_id="anna", kind="text"),
    MessageFilter(text="МИР", sender_id=78, is_deleted=False, until_ms=NOW + 15000),
    MessageFilter(text="nowhere"),
    MessageFilter(session_id="nobody"),
)


def _fits(one: Message, wanted: MessageFilter) -> bool:
    names = ("session_id", "agent_id", "chat_id", "sender_id", "direction", "kind")
    return (
        all(getattr(wanted, name) in (None, getattr(one, name)) for name in names)
        and (wanted.since_ms is None or one.date_ms >= wanted.since_ms)
        and (wanted.until_ms is None or one.date_ms < wanted.until_ms)
        and (wanted.is_deleted is None or wanted.is_deleted == (one.deleted_at_ms is not None))
        and (wanted.text is None or wanted.text.lower() in one.text.lower())
    )


async def test_pages_hold_all_that_fits_the_newest_first(place: Place) -> None:
    given = _some(300)
    async with opened(place) as archive:
        await archive.keep_messages(given)
        for wanted in FILTERS:
            fitting = {one.message_id for one in given if _fits(one, wanted)}
            found: list[Message] = []
            cursor = None
            while True:
                page, cursor = await archive.messages(wanted, cursor=cursor, limit=7)
                found += page
                assert len(page) <= 7
                if cursor is None:
                    break
            assert [one.date_ms for one in found] == sorted((one.date_ms for one in found), reverse=True)
            assert len(found) == len(fitting), wanted
            assert {one.message_id for one in found} == fitting
            assert await archive.count_messages(wanted) == len(fitting)


async def test_a_page_is_steady_while_others_are_added(place: Place) -> None:
    async with opened(place) as archive:
        await archive.keep_messages([message(number, date_ms=NOW) for number in range(10)])
        first, cursor = await archive.messages(MessageFilter(), cursor=None, limit=4)
        await archive.keep_messages([message(number, date_ms=NOW) for number in range(10, 20)])
        await archive.keep_messages([message(20, date_ms=NOW + 1)])
        rest, cursor = await archive.messages(MessageFilter(), cursor=cursor, limit=50)
        assert cursor is None
        assert sorted(one.message_id for one in first + rest) == list(range(10))


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.zz", "1.1.1", "9" * 30, f"1.{'f' * 25}"])
async def test_a_cursor_of_somebody_else_is_refused(place: Place, cursor: str) -> None:
    async with opened(place) as archive:
        await archive.keep_messages([message(1)])
        with pytest.raises(BadInput):
            await archive.messages(MessageFilter(), cursor=cursor, limit=5)
        with pytest.raises(BadInput):
            await archive.events(EventFilter(), cursor=cursor, limit=5)


@pytest.mark.parametrize(
    ("text", "asked", "is_found"),
    [
        ("Hello, World!", "world HELLO", True),
        ("Hello, World!", "wor", False),
        ("می‌خواهم كتاب بخرم", "ميخواهم کتاب", True),
        ("Ёлка и ёж", "елка ЕЖ", True),
        ("мой дом", "мои", False),
        ("Crème Brûlée", "creme brulee", True),
        ("سَلام", "سلام", True),
        ("کد ۱۲۳۴", "1234", True),
        ("我在北京", "北京", True),
        ("it's 'quoted' \"twice\" & <b>", "'quoted\" & twice", True),
        ("a" * 100, "a" * 90, True),
        ("Straße", "STRASSE", True),
        ("anything", "…!?", False),
        ("anything", "", False),
        ("one OR two NOT three", "or not", True),
        ("🙂 smile", "smile 🙂", True),
    ],
)
async def test_words_are_found_however_they_are_written(place: Place, text: str, asked: str, is_found: bool) -> None:
    async with opened(place) as archive:
        await archive.keep_messages([message(1, text=text), message(2, text="other")])
        found, _ = await archive.messages(MessageFilter(text=asked), cursor=None, limit=5)
        assert [one.message_id for one in found] == ([1] if is_found else [])


async def test_events_are_kept_once_and_found(place: Place) -> None:
    given = [
        event(
            f"e{number}",
            session_id=f"s{number % 2}",
            event_type=("joined", "left", "read")[number % 3],
            chat_id=number % 4 or None,
            user_id=number,
            payload=f'{{"n": {number}, "text": "سلام"}}',
            created_at_ms=NOW + number // 5,
        )
        for number in range(40)
    ]
    async with opened(place) as archive:
        assert await archive.keep_events(given[:30]) == 30
        assert await archive.keep_events(given[20:]) == 10
        assert await archive.keep_events([given[0], given[0], event("new"), event("new")]) == 1
        found, cursor = await archive.events(EventFilter(agent_id="anna", since_ms=NOW + 1), cursor=None, limit=10)
        while cursor is not None:
            page, cursor = await archive.events(EventFilter(agent_id="anna", since_ms=NOW + 1), cursor=cursor, limit=10)
            found += page
        assert len(found) == 35
        assert [one.created_at_ms for one in found] == sorted((one.created_at_ms for one in found), reverse=True)
        assert {one.event_id: one for one in found} == {one.event_id: one for one in given[5:]}
        some, _ = await archive.events(
            EventFilter(session_id="s1", event_type="left", chat_id=3), cursor=None, limit=50
        )
        wanted = {f"e{number}" for number in range(40) if number % 2 == 1 and number % 3 == 1 and number % 4 == 3}
        assert {one.event_id for one in some} == wanted
        some, _ = await archive.events(EventFilter(until_ms=NOW + 1), cursor=None, limit=50)
        assert {one.event_id for one in some} == {"e0", "e1", "e2", "e3", "e4", "new"}
