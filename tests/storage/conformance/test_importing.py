"""The service of imports on every store: people who are new, a first place in Telegram's updates, notes of how far it is."""

import msgspec
import pytest

from peik.clock import SystemClock
from peik.core.documents import Contact
from peik.errors import Conflict
from peik.importing.service import ImportNote, ImportService
from peik.outbox.store import Store
from tests.storage.inbox_acts import NOW, SERVER, message, take
from tests.storage.places import BOT, Place


def service_of(store: Store) -> ImportService:
    return ImportService(
        documents=store.documents, contacts=store.contacts, inbox=store.inbox, clock=SystemClock(), server=SERVER
    )


def person(chat: int, name: str) -> Contact:
    return Contact(bot_id=BOT, chat_id=chat, type="private", name=name, first_seen_ms=NOW, last_seen_ms=NOW)


async def test_people_who_are_known_stay_as_peik_knows_them(place: Place) -> None:
    async with place.open() as store:
        await store.contacts.save_contacts(BOT, [person(5, "Sara")], place=40)
        service = service_of(store)
        assert await service.add_contacts(BOT, [person(5, "an old name"), person(6, "Ali"), person(6, "Ali B")]) == 1
        assert await service.add_contacts(BOT, [person(6, "Ali")]) == 0
        names = {}
        for chat in (5, 6):
            known = await store.contacts.contact(BOT, chat)
            assert known is not None
            names[chat] = known.name
        assert names == {5: "Sara", 6: "Ali B"}
        assert await store.contacts.contacts_place(BOT) == 40  # the census goes on where it was


async def test_whom_the_census_meets_meanwhile_stays_as_it_saw_them(place: Place) -> None:
    async with place.open() as store:
        service = service_of(store)
        asked, contact = store.contacts.contact, 0

        async def contact_and_census(bot_id: int, chat_id: int) -> Contact | None:
            """Just after it was said that nobody knows her, she writes."""
            nonlocal contact
            known = await asked(bot_id, chat_id)
            contact += 1
            if contact == 1:
                await store.contacts.save_contacts(BOT, [person(5, "Sara")], place=40)
            return known

        store.contacts.contact = contact_and_census  # type: ignore[method-assign]
        gone = msgspec.structs.replace(person(5, "an old name"), is_gone=True)
        await service.add_contacts(BOT, [gone, person(6, "Ali")])
        sara, ali = await asked(BOT, 5), await asked(BOT, 6)
        assert sara is not None
        assert (sara.name, sara.is_gone) == ("Sara", False)
        assert ali is not None


async def test_the_place_of_the_old_program_is_taken_once_and_only_before_any_update_came(place: Place) -> None:
    async with place.open() as store:
        service = service_of(store)
        with pytest.raises(Conflict):
            await service.set_last_update(BOT, 105, is_received=True)
        await service.set_last_update(BOT, 105, is_received=False)
        await service.set_last_update(BOT, 105, is_received=True)  # it is so already
        _, state = await store.inbox.open_inbox(BOT, server=SERVER, at_ms=NOW)
        assert (state.last_update_id, state.last_number, state.epoch) == (105, 0, 1)
        with pytest.raises(Conflict):
            await service.set_last_update(BOT, 200, is_received=False)
        await take(store.inbox, message(106))
        state_now = await store.inbox.inbox(BOT)
        assert state_now is not None
        assert state_now.last_update_id == 106


async def test_a_note_is_kept_for_each_table_of_each_source(place: Place) -> None:
    def note(table: str, row: int) -> ImportNote:
        return ImportNote(bot_id=BOT, name="ربات", table=table, place=row, begun_at_ms=NOW, letters=row)

    async with place.open() as store:
        service = service_of(store)
        for table, row in (("outbox", 500), ("mail", 3), ("outbox", 1000)):
            await service.keep_note(note(table, row))
        kept = sorted(await service.notes(BOT), key=lambda one: one.table)
        assert kept == [note("mail", 3), note("outbox", 1000)]
        assert await service.notes(BOT + 1) == []
