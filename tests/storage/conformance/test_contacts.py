"""Known chats: what is known of one stays when it is seen again, a place never goes back, and filters find what they say."""

import asyncio
import random
from pathlib import Path

import msgspec
import pytest

from peik.core.documents import Contact, ContactFilter, ContactStore
from peik.errors import NotFound
from peik.inbox.store import ArrivalFilter
from peik.outbox.store import Store
from tests.storage.all_places import LIVES_ON_SERVERS, PLACES
from tests.storage.inbox_acts import FIRST, NOW, message, open_inbox, take
from tests.storage.places import BOT, OTHER_BOT, Place, SqlitePlace

ALL = ContactFilter()
LIVES = 15
STEPS = 25


def chat(chat_id: int, *, seen: int = 100, **more: object) -> Contact:
    told: dict[str, object] = {"type": "private", "first_seen_ms": seen, "last_seen_ms": seen} | more
    return Contact(bot_id=BOT, chat_id=chat_id, **told)  # type: ignore[arg-type]


async def ids(contacts: ContactStore, wanted: ContactFilter = ALL, *, after: int | None = None) -> list[int]:
    found = await contacts.contacts(BOT, wanted, after=after, limit=100)
    assert await contacts.count_contacts(BOT, wanted) == len(found) or after is not None
    newest = await contacts.newest_contacts(BOT, wanted, before=None, limit=100)
    assert after is not None or sorted(one.chat_id for one in newest.contacts) == [one.chat_id for one in found]
    return [one.chat_id for one in found]


async def test_chats_and_place_are_there_after_a_crash(place: Place) -> None:
    whole = chat(
        -1001234567890,
        type="supergroup",
        name="Łódź ☂",
        username="lodz",
        language="pl",
        first_seen_ms=NOW,
        last_seen_ms=NOW + 5,
        is_gone=True,
        campaign="spring",
    )
    async with place.open() as store:
        assert await store.contacts.contacts_place(BOT) == 0
        await store.contacts.save_contacts(BOT, [whole, chat(2**52 - 1), chat(-(2**52))], place=2**40)
        await place.crash(store)
    async with place.open() as store:
        assert await store.contacts.contact(BOT, whole.chat_id) == whole
        assert await store.contacts.contact(BOT, 1) is None
        assert await store.contacts.contact(OTHER_BOT, whole.chat_id) is None
        assert await store.contacts.contacts_place(BOT) == 2**40
        assert await ids(store.contacts) == [-(2**52), whole.chat_id, 2**52 - 1]
        assert await store.contacts.count_contacts(OTHER_BOT, ALL) == 0


async def test_what_is_known_stays_when_a_chat_is_seen_again(place: Place) -> None:
    first = chat(1, seen=100, name="Ann", username="ann", language="fa", campaign="spring")
    async with place.open() as store:
        await store.contacts.save_contacts(BOT, [first], place=1)
        await store.contacts.save_contacts(BOT, [chat(1, seen=300, name="Anna", is_gone=True, campaign="x")], place=2)
        again = msgspec.structs.replace(first, name="Anna", last_seen_ms=300, is_gone=True)
        assert await store.contacts.contact(BOT, 1) == again
        await store.contacts.save_contacts(BOT, [chat(1, seen=200, username="anna")], place=3)
        back = msgspec.structs.replace(again, username="anna", is_gone=False)
        assert await store.contacts.contact(BOT, 1) == back
        assert await store.contacts.count_contacts(BOT, ContactFilter(is_gone=True)) == 0


async def test_several_of_one_chat_count_one_after_the_other(place: Place) -> None:
    seen = [chat(1, seen=10, name="A", campaign="c"), chat(1, seen=30, language="en"), chat(1, seen=20, name="B")]
    async with place.open() as store:
        await store.contacts.save_contacts(BOT, seen, place=1)
        whole = chat(1, name="B", language="en", campaign="c", first_seen_ms=10, last_seen_ms=30)
        assert await store.contacts.contact(BOT, 1) == whole
        assert await ids(store.contacts) == [1]


async def test_an_older_place_changes_nothing_and_the_same_one_saves_again(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        await one.contacts.save_contacts(BOT, [chat(1, name="new")], place=9)
        await other.contacts.save_contacts(BOT, [chat(1, name="old"), chat(2)], place=8)
        assert [contact.name for contact in await one.contacts.contacts(BOT, ALL, after=None, limit=9)] == ["new"]
        await other.contacts.save_contacts(BOT, [chat(1, is_gone=True)], place=9)
        await other.contacts.save_contacts(BOT, [], place=10)
        found = await one.contacts.contact(BOT, 1)
        assert found == chat(1, name="new", is_gone=True)
        assert await one.contacts.contacts_place(BOT) == 10
        assert await one.contacts.contacts_place(OTHER_BOT) == 0


async def test_filters_find_what_they_say(place: Place) -> None:
    everybody = [
        chat(1, seen=100, name="Ali Rezaei", username="AliR", language="fa"),
        chat(2, seen=200, name="ЖЕНЯ", language="fa-IR", campaign="spring"),
        chat(3, seen=300, username="zheni", language="far", is_gone=True),
        chat(4, seen=300, name="100%_real", language="EN-us", campaign="spring"),
        chat(-5, seen=400, type="group", name="Straße"),
        chat(-6, seen=500, type="channel", name="ali's news", is_gone=True),
    ]
    stories: list[tuple[ContactFilter, list[int]]] = [
        (ALL, [-6, -5, 1, 2, 3, 4]),
        (ContactFilter(types=frozenset({"private"})), [1, 2, 3, 4]),
        (ContactFilter(types=frozenset({"group", "channel"})), [-6, -5]),
        (ContactFilter(types=frozenset()), []),
        (ContactFilter(languages=frozenset({"fa"})), [1, 2]),
        (ContactFilter(languages=frozenset({"FA", "en"})), [1, 2, 4]),
        (ContactFilter(languages=frozenset({"fa-IR"})), [2]),
        (ContactFilter(languages=frozenset({""})), [-6, -5]),
        (ContactFilter(languages=frozenset({"", "far"})), [-6, -5, 3]),
        (ContactFilter(seen_since_ms=300), [-6, -5, 3, 4]),
        (ContactFilter(seen_before_ms=300), [1, 2]),
        (ContactFilter(seen_since_ms=200, seen_before_ms=400), [2, 3, 4]),
        (ContactFilter(seen_since_ms=200, is_gone=False), [-5, 2, 4]),
        (ContactFilter(is_gone=True), [-6, 3]),
        (ContactFilter(text="ALI"), [-6, 1]),
        (ContactFilter(text="женя"), [2]),
        (ContactFilter(text="STRASSE"), [-5]),
        (ContactFilter(text="%_"), [4]),
        (ContactFilter(text="@ali"), [1]),
        (ContactFilter(text="@heni"), []),
        (ContactFilter(text=""), [-6, -5, 1, 2, 3, 4]),
        (ContactFilter(campaign="spring"), [2, 4]),
        (ContactFilter(campaign=""), [-6, -5, 1, 3]),
        (ContactFilter(types=frozenset({"private"}), languages=frozenset({"fa"}), is_gone=False, text="ali"), [1]),
    ]
    async with place.open() as store:
        await store.contacts.save_contacts(BOT, everybody, place=1)
        for wanted, found in stories:
            assert await ids(store.contacts, wanted) == found, wanted
        assert await ids(store.contacts, ContactFilter(is_gone=False), after=1) == [2, 4]


async def test_pages_by_id_and_by_time_miss_nobody(place: Place) -> None:
    many = [chat(number - 600, seen=number // 7, is_gone=number % 3 == 0) for number in range(1200)]
    here = ContactFilter(is_gone=False)
    async with place.open() as store:
        await store.contacts.save_contacts(BOT, many, place=1)
        wanted = [one for one in many if not one.is_gone]
        found: list[Contact] = []
        while page := await store.contacts.contacts(BOT, here, after=found[-1].chat_id if found else None, limit=301):
            found += page
        assert found == wanted
        newest: list[Contact] = []
        before: tuple[int, int] | None = None
        while newest == [] or before is not None:
            page_of_newest = await store.contacts.newest_contacts(BOT, here, before=before, limit=301)
            newest += page_of_newest.contacts
            before = page_of_newest.cursor
        assert newest == sorted(wanted, key=lambda one: (one.last_seen_ms, one.chat_id), reverse=True)
        assert await store.contacts.count_contacts(BOT, ContactFilter(is_gone=False, text="")) == len(wanted)


async def test_a_page_goes_on_though_its_last_chat_was_seen_again(place: Place) -> None:
    async with place.open() as store:
        await store.contacts.save_contacts(BOT, [chat(number, seen=100) for number in range(1, 7)], place=1)
        page = await store.contacts.newest_contacts(BOT, ALL, before=None, limit=3)
        assert [one.chat_id for one in page.contacts] == [6, 5, 4]
        assert page.cursor == (100, 4)
        await store.contacts.save_contacts(BOT, [chat(4, seen=200)], place=2)
        page = await store.contacts.newest_contacts(BOT, ALL, before=(100, 4), limit=9)
        assert [one.chat_id for one in page.contacts] == [3, 2, 1]
        assert (page.cursor, page.is_cut) == (None, False)


async def test_a_page_that_finds_few_ends_early_and_says_where_to_go_on(place: Place) -> None:
    """Whatever the bound, the pages together are all that the filter wants, each once."""
    many = [
        chat(number, seen=number // 3, name="Ann" if number in (1, 40, 1500, 1501, 2500) else "Bob")
        for number in range(1, 2501)
    ]
    anns = ContactFilter(text="ann", seen_before_ms=830)
    async with place.open() as store:
        await store.contacts.save_contacts(BOT, many, place=1)
        for looked_max in (1_000, 1_001, 5_000):
            found: list[int] = []
            cuts = 0
            page = await store.contacts.newest_contacts(BOT, anns, before=None, limit=2, looked_max=looked_max)
            while True:
                found += [one.chat_id for one in page.contacts]
                cuts += page.is_cut
                if page.cursor is None:
                    break
                page = await store.contacts.newest_contacts(
                    BOT, anns, before=page.cursor, limit=2, looked_max=looked_max
                )
            assert found == [1501, 1500, 40, 1]
            assert bool(cuts) is (looked_max < 5_000)


async def test_campaigns_are_counted_by_when_chats_first_wrote(place: Place) -> None:
    many = [chat(number, seen=number, campaign=(None, "spring", "a:b 7")[number % 3]) for number in range(1, 5001)]
    async with place.open() as store:
        await store.contacts.save_contacts(BOT, many, place=1)
        await store.contacts.save_contacts(BOT, [chat(1, seen=9999, campaign="late")], place=2)
        assert await store.contacts.count_campaigns(BOT, since_ms=4999) == {"spring": 1, "a:b 7": 1}
        assert await store.contacts.count_campaigns(BOT, since_ms=0) == {"": 1666, "spring": 1667, "a:b 7": 1667}
        assert await store.contacts.count_campaigns(BOT, since_ms=5001) == {}


async def test_what_no_database_can_keep_is_left_out_of_names(place: Place) -> None:
    async with place.open() as store:
        await store.contacts.save_contacts(BOT, [chat(1, name="a\0b", username="\0", language="")], place=1)
        assert await store.contacts.contact(BOT, 1) == chat(1, name="ab")


async def test_chats_are_forgotten_with_their_bot(place: Place) -> None:
    async with place.open() as store:
        await store.contacts.save_contacts(BOT, [chat(1, campaign="spring")], place=7)
        record = next(one for one in await store.bots() if one.bot_id == BOT)
        await store.remove_bot(BOT)
        with pytest.raises(NotFound) as refused:
            await store.contacts.save_contacts(BOT, [chat(2)], place=8)
        assert refused.value.code == "unknown_bot"
        await store.save_bot(record)
        assert await ids(store.contacts) == []
        assert await store.contacts.contacts_place(BOT) == 0
        assert await store.contacts.count_campaigns(BOT, since_ms=0) == {}
        await store.contacts.save_contacts(BOT, [chat(1)], place=1)
        assert await ids(store.contacts) == [1]


async def test_whoever_saves_while_a_bot_is_removed_leaves_nothing_behind(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:

        async def save(number: int) -> None:
            try:
                await other.contacts.save_contacts(BOT, [chat(number)], place=number)
            except NotFound:
                return

        record = next(bot for bot in await one.bots() if bot.bot_id == BOT)
        await asyncio.gather(*(save(number) for number in range(1, 10)), one.remove_bot(BOT), save(10))
        await one.save_bot(record)
        assert await ids(one.contacts) == []


async def test_arrivals_are_read_from_a_number_on_whoever_has_read_them(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        await take(store.inbox, *(message(FIRST + number, chat=number % 3 + 1) for number in range(5)))
        consumer = await store.inbox.ensure_consumer(BOT, "second", at_ms=NOW)
        await store.inbox.settle_arrivals(consumer.id, over=[(FIRST, FIRST + 2)], at_ms=NOW)
        await replayed(store, consumer.id)
        await take(store.inbox, message(FIRST + 5))
        found = await store.inbox.arrivals_from(BOT, 0, limit=100)
        assert [one.update_id for one in found] == [FIRST + number for number in range(6)]
        assert [one.number for one in found] == sorted(one.number for one in found)
        (after,) = await store.inbox.arrivals_from(BOT, found[1].number, limit=1)
        assert after == found[2]
        assert await store.inbox.arrivals_from(BOT, found[-1].number, limit=9) == []
        assert await store.inbox.arrivals_from(OTHER_BOT, 0, limit=9) == []


async def replayed(store: Store, consumer_id: int) -> None:
    count, _ = await store.inbox.replay(
        ArrivalFilter(bot_id=BOT), consumer_id, after=0, up_to=10**9, limit=10, at_ms=NOW
    )
    assert count == 5


# ---- a life ----


def drawn(chance: random.Random, chat_id: int) -> Contact:
    return chat(
        chat_id,
        seen=chance.randint(1, 20),
        type=chance.choice(("private", "group")),
        name=chance.choice((None, "Ann", "Женя")),
        language=chance.choice((None, "fa", "fa-IR")),
        is_gone=chance.random() < 0.3,
        campaign=chance.choice((None, "x")),
    )


async def live(place: Place, chance: random.Random) -> None:
    """Whatever two nodes save, counts are what a walk over all of them finds."""
    async with place.open() as one, place.open(is_owner=False) as other:
        for step in range(STEPS):
            contacts = chance.choice((one, other)).contacts
            some = [drawn(chance, chance.randint(-4, 4)) for _ in range(chance.randint(0, 5))]
            await contacts.save_contacts(BOT, some, place=max(0, step - chance.choice((0, 0, 1))))
            everybody = await contacts.contacts(BOT, ALL, after=None, limit=100)
            for is_gone in (None, True, False):
                for types in (None, frozenset({"group"})):
                    for languages in (None, frozenset({"fa"}), frozenset({""})):
                        wanted = ContactFilter(is_gone=is_gone, types=types, languages=languages)
                        found = [
                            who
                            for who in everybody
                            if is_gone in (None, who.is_gone)
                            and (types is None or who.type in types)
                            and (languages is None or (who.language or "")[:2] in languages)
                        ]
                        assert await contacts.count_contacts(BOT, wanted) == len(found)
            newest = await contacts.newest_contacts(BOT, ALL, before=None, limit=100)
            assert newest.contacts == sorted(everybody, key=lambda who: (who.last_seen_ms, who.chat_id), reverse=True)


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
async def test_counts_are_true_in_every_life(kind: type[SqlitePlace], tmp_path: Path) -> None:
    for seed in range(LIVES if kind is SqlitePlace else LIVES_ON_SERVERS // 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        await live(kind(folder), random.Random(seed))
