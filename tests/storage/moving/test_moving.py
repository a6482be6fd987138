"""Everything moves, from any store to any other, and goes on there as if nothing had happened."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.admin.model import digest_of
from peik.core.documents import ContactFilter, Filing
from peik.core.letter import Draft
from peik.errors import Conflict
from peik.outbox.store import Store
from peik.storage.moving import redis_rows
from peik.storage.moving.move import end_of
from tests.storage import inbox_acts
from tests.storage.acts import HOUR, NOW, accept, all_lanes, draft, edit, left_in_flight, state
from tests.storage.all_places import PLACES, pairs
from tests.storage.moving.filling import BLOB, KEY, file_in, fill, fitted, folder, keep_file, moved, records, url_of
from tests.storage.places import BOT, OTHER_BOT, Place


@pytest.fixture(params=pairs(all_others=pytest.mark.gate))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Place, Place]:
    """A store with something of everything, and an empty place, of each kind."""
    origin, target = request.param
    return origin(folder(tmp_path, "from")), target(folder(tmp_path, "to"))


async def test_every_record_is_the_same_in_the_other_store(pair: tuple[Place, Place]) -> None:
    origin, target = pair
    async with origin.open() as store:
        await fill(store)
    await keep_file(origin, b"the bytes of a picture")
    told = await moved(origin, target)
    held = await records(origin)
    assert all(held.values()), "something of everything was there"
    fit = end_of(url_of(target)).fit
    assert fitted(await records(target)) == fitted(held, fit)
    assert told.counts == {**{kind: len(some) for kind, some in held.items()}, "files": 1}
    assert told.missing_files == 1  # the dead letter's was never there
    assert await file_in(target) == b"the bytes of a picture"


async def test_what_went_around_through_all_stores_is_what_it_was(tmp_path: Path) -> None:
    way = [kind(folder(tmp_path, kind.__name__)) for kind in PLACES] + [PLACES[0](folder(tmp_path, "back"))]
    async with way[0].open() as store:
        await fill(store)
    first = await records(way[0])
    for origin, target in itertools.pairwise(way):
        await moved(origin, target)
    assert fitted(await records(way[-1]), redis_rows.fit) == fitted(first, redis_rows.fit)


async def test_the_other_store_shows_the_same(pair: tuple[Place, Place]) -> None:
    origin, target = pair
    async with origin.open() as store:
        await fill(store)
        before = await seen(store)
    await moved(origin, target)
    async with target.open() as store:
        await store.save_bot(before["bots"][1])  # opening a place writes its bots anew
        assert await seen(store) == before


async def seen(store: Store) -> dict[str, Any]:
    """What engines, people and programs see of a store."""
    inbox = store.inbox
    consumers = await inbox.consumers(BOT)
    return {
        "bots": await store.bots(),
        "letters": [await store.letter(one) for one in range(1, 30)],
        "lanes": await all_lanes(store),
        "tallies": await store.tallies(at_ms=NOW),
        "chats": sorted(await store.chats(BOT), key=str),
        "hold": await store.bot_held_until(BOT),
        "file id": await store.file_id(BOT, "d1", "photo"),
        "tries": sorted((str(one.chat), one.at_ms) for one in await store.recent_tries(BOT, since_ms=NOW - HOUR)),
        "keys": (await store.keys())[1],
        "hooks": await store.hooks_due(at_ms=NOW + 2 * HOUR, after="", endpoints=10, each=10),
        "blobs": await store.blobs(),
        "inbox": await inbox.inbox(BOT),
        "consumers": consumers,
        "arrivals": [await inbox.arrivals_after(one.id, 0, limit=100) for one in consumers],
        "deferrals": [await inbox.deferrals(one.id) for one in consumers],
        "states": [await inbox_acts.states(inbox, one.name) for one in consumers],
        "outages": [await inbox.outages(BOT, is_open=is_open) for is_open in (True, False)],
        "tallies of arrivals": await inbox.inbox_tallies(),
        **await seen_documents(store),
    }


async def seen_documents(store: Store) -> dict[str, Any]:
    collections = await store.documents.collections("")
    contacts, everybody = store.contacts, ContactFilter()
    kinds = (everybody, ContactFilter(is_gone=True), ContactFilter(languages=frozenset({"ru"})))
    return {
        "collections": [(one, await store.documents.count_documents(one)) for one in collections],
        "documents": [await store.documents.documents(one, limit=100) for one in collections],
        "known chats": [await contacts.contacts(bot, everybody, after=None, limit=100) for bot in (BOT, OTHER_BOT)],
        "newest chats": await contacts.newest_contacts(BOT, everybody, before=None, limit=100),
        "found chats": await contacts.contacts(BOT, ContactFilter(text="@ZH"), after=None, limit=100),
        "kinds of chats": [await contacts.count_contacts(BOT, one) for one in kinds],
        "campaigns": await contacts.count_campaigns(BOT, since_ms=0),
        "place": await contacts.contacts_place(BOT),
    }


async def test_life_goes_on_in_the_other_store(pair: tuple[Place, Place]) -> None:
    origin, target = pair
    async with origin.open() as store:
        await fill(store)
        last_id = max([one for one in range(1, 60) if await store.letter(one) is not None])
        last_number = max(one.number for one in origin.heard.accepted if one.bot_id == BOT)
        (flying,) = [one for one in range(1, 30) if await state(store, one) == "active"]
    await moved(origin, target)
    async with target.open() as store:
        # ids and numbers go on
        (new,) = await accept(store, draft(5, text="the first one here"))
        assert new == last_id + 1
        assert target.heard.accepted[-1].number == last_number + 1
        # the lane keeps its order, and the new one stands at its end
        assert (await all_lanes(store))[5, 0][-1] == new
        # the key of an order still answers with its letter, and is refused for another call
        (again,) = await store.accept([keyed()], at_ms=NOW + 1)
        assert again.is_repeat
        # what was in flight is found as that of an owner who died
        assert [one.id for one in await left_in_flight(store)] == [flying]
        # an API key works, a revoked one does not
        assert [key.digest for key in (await store.keys())[1]] == [digest_of(KEY)]
        assert await store.secret("webhook", "another") == "made up once"
        # a newer edit replaces the one that waited
        (newest,) = await accept(store, edit("m5", text="newest"))
        assert [one.into for one in target.heard.removed] == [newest]
        # what was scheduled joins, and what expires expires
        joined, _ = await store.join_due(at_ms=NOW + HOUR, limit=10)
        ended, _ = await store.expire(at_ms=NOW + 3 * HOUR, limit=10)
        assert (joined, len(ended)) == (2, 1)
        assert BLOB in await store.blobs()


async def test_documents_and_chats_go_on_in_the_other_store(pair: tuple[Place, Place]) -> None:
    origin, target = pair
    async with origin.open() as store:
        await fill(store)
    await moved(origin, target)
    async with target.open() as store:
        with pytest.raises(Conflict):
            await store.documents.file([Filing(collection="audit", key="B", body="{}", version=1)])
        await store.documents.file([Filing(collection="audit", key="B", body="{}", version=2)])
        await store.documents.file([Filing(collection="b:1", key="c", body="{}", version=0)])
        assert [await store.documents.count_documents(collection) for collection in ("audit", "b:1", "b:2")] == [
            4,
            4,
            0,
        ]
        known = await store.contacts.contact(BOT, 5)
        assert known is not None
        back = msgspec.structs.replace(known, is_gone=False, campaign="another")
        await store.contacts.save_contacts(BOT, [back], place=504)  # too old
        assert await store.contacts.count_contacts(BOT, ContactFilter(is_gone=True)) == 2
        await store.contacts.save_contacts(BOT, [back], place=506)
        assert await store.contacts.count_contacts(BOT, ContactFilter(is_gone=True)) == 1
        assert await store.contacts.count_campaigns(BOT, since_ms=0) == {"": 2, "a:b": 1}


def keyed() -> Draft:
    return draft("@shop", text="readdressed", expires_at_ms=NOW + 2 * HOUR, idempotency_key="order-1", digest="abc")


async def test_updates_go_on_in_the_other_store(pair: tuple[Place, Place]) -> None:
    origin, target = pair
    async with origin.open() as store:
        await fill(store)
        before = await store.inbox.inbox(BOT)
    await moved(origin, target)
    async with target.open() as store:
        inbox = store.inbox
        assert before is not None
        again = inbox_acts.message(4, text="a new numbering")
        old = inbox_acts.message(505, chat=2)  # of the numbering before, with the same payload
        taken = await inbox_acts.take(inbox, again, old, inbox_acts.message(5))
        assert (taken.stored, taken.duplicates) == (1, 2)
        assert taken.last_number == before.last_number + 1
        default = await inbox_acts.named(inbox, "default")
        assert (await inbox_acts.numbers(inbox, default))[-1] == taken.last_number
        # an MTProto client has handled this one before it came here
        late = inbox_acts.message(6, message_id=99999, date=NOW // 1000 - 1)
        after = await inbox_acts.take(inbox, late)
        assert (await inbox_acts.progress(inbox, default)).is_over(after.last_number)
        assert len(await inbox.retry_dead_arrivals(inbox_acts.ArrivalFilter(bot_id=BOT), at_ms=NOW, limit=5)) == 1
        assert (await inbox.ensure_consumer(OTHER_BOT, "new", at_ms=NOW)).id == default.id + 2
        assert (await inbox.open_outage(BOT, began_at_ms=1, ended_at_ms=2, last_number=3)).id == 3
