"""Documents and known chats under real locks: nobody else waits for a collection, and what is in doubt is found out."""

import asyncio

import asyncpg
import pytest

from peik.core.documents import Contact, ContactFilter, Filing
from peik.errors import Conflict, InDoubt
from peik.storage.postgres.store import PostgresStore
from tests.storage.acts import accept, draft
from tests.storage.places import BOT
from tests.storage.postgres.facts import locked_out, until
from tests.storage.postgres.proxy import Break, Proxy
from tests.storage.postgres_place import PostgresPlace


def filing(version: int | None = None) -> Filing:
    return Filing(collection="audit", key="a", body="{}", version=version)


async def test_no_letter_waits_for_a_shelf(place: PostgresPlace) -> None:
    async with place.open() as store:
        await store.documents.file([filing()])
        rival = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema})
        try:
            async with rival.transaction():
                await rival.execute("SELECT 1 FROM paper_shelves FOR UPDATE")
                waits = asyncio.create_task(store.documents.file([filing(version=1)]))
                await until(lambda: locked_out(place, 1))
                await accept(store, draft(5))
                assert await store.documents.count_documents("audit") == 1
                assert not waits.done()
        finally:
            await rival.close()
        await waits


@pytest.mark.parametrize("breaks", [Break.BEFORE, Break.AFTER])
async def test_whoever_is_in_doubt_finds_out_by_the_version(place: PostgresPlace, breaks: Break) -> None:
    async with Proxy(place.server.port).running() as proxy, place.open() as watcher:
        store = PostgresStore(place.url.replace(f":{place.server.port}/", f":{proxy.port}/"), clock=place.clock)
        await store.open()
        proxy.breaks = breaks
        with pytest.raises(InDoubt):
            await store.documents.file([filing(version=0)])
        if breaks is Break.AFTER:
            with pytest.raises(Conflict):
                await store.documents.file([filing(version=0)])
        else:
            await store.documents.file([filing(version=0)])
        found = await watcher.documents.document("audit", "a")
        assert found is not None
        assert found.version == 1
        await store.close()


async def test_a_connection_that_ends_between_two_questions_is_made_anew(place: PostgresPlace) -> None:
    seen = Contact(bot_id=BOT, chat_id=1, type="private", first_seen_ms=1, last_seen_ms=1)
    async with place.open() as store:
        for turn in range(3):
            await store.documents.file([filing(version=turn)])
            await store.contacts.save_contacts(BOT, [seen], place=turn)
            await place.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'peik'")
        assert await store.documents.count_documents("audit") == 1
        assert await store.contacts.count_contacts(BOT, ContactFilter()) == 1
