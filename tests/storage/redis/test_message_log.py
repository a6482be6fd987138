"""The message log of a store on Redis in a database with SQL: it follows, survives deaths, and forgets."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg  # type: ignore[import-untyped,unused-ignore]
import pytest

from peik.core.events import Events, Settled
from peik.core.letter import State
from peik.core.lifecycle import Move
from peik.erasure.model import ErasedPerson
from peik.erasure.parts import MessageLogPart
from peik.errors import StartError
from peik.outbox.message_log import MessageLogCopy
from peik.outbox.store import Retention, Store
from peik.storage.message_log import message_log_of
from tests.storage.acts import HOUR, NEVER, NOW, SENT, accept, attempt, draft, find
from tests.storage.places import BOT
from tests.storage.redis_place import RedisPlace
from tests.storage.servers import postgres, wanted

QUERY = "SELECT * FROM telegram_message_logs WHERE status = 'failed' ORDER BY created_at DESC"
ALL = "SELECT id, status, text FROM telegram_message_logs ORDER BY id"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'log.db'}"
    wanted()
    return f"{postgres().url}?schema=log_{abs(hash(tmp_path))}"


async def ask(url: str, query: str) -> list[dict[str, Any]]:
    """As any program would."""
    if url.startswith("sqlite"):
        rows = apsw.Connection(url.removeprefix("sqlite:///")).execute(query)
        return [dict(zip([one[0] for one in rows.get_description()], row, strict=True)) for row in rows]
    address, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(address, server_settings={"search_path": schema})
    try:
        return [dict(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def copying(place: RedisPlace, store: Store, url: str, events: Events) -> AsyncIterator[MessageLogCopy]:
    copy = MessageLogCopy(
        store, message_log_of(url), is_chief=lambda: True, keep_ms=90 * HOUR, clock=place.clock, events=events
    )
    await copy.open()
    yield copy
    await copy.close()


async def test_the_documents_query_is_answered_beside_a_queue_on_redis(place: RedisPlace, url: str) -> None:
    events = Events()
    async with place.open() as store, copying(place, store, url, events) as copy:
        dead = draft(-5, text="died \\u0000", user_id="u1", message_type="bill")
        ids = await accept(store, draft(1), dead, draft("@x"))
        await copy.copy()
        assert [row["status"] for row in await ask(url, ALL)] == ["waiting"] * 3
        await attempt(store, await find(store, ids[1]), NEVER)
        event = Settled(bot_id=BOT, letter_id=ids[1], method="", chat=-5, move=Move.GIVE_UP, state=State.FAILED)
        events.tell(event)
        await copy.copy()
        (row,) = await ask(url, QUERY)
        told = [row[name] for name in ("id", "user_id", "message_type", "method", "attempts", "error")]
        assert told == [ids[1], "u1", "bill", "sendMessage", 1, NEVER.words]
        assert str(row["chat_id"]) == "-5"
        assert row["text"].startswith("died")
        assert row["created_at"] is not None
        assert row["finished_at"] is not None


async def test_what_a_node_that_died_did_not_write_is_found(place: RedisPlace, url: str) -> None:
    async with place.open() as store:
        ids = await accept(store, *(draft(n) for n in range(1, 701)))
        async with copying(place, store, url, Events()) as copy:
            await copy.copy()
        ids += await accept(store, draft(701))
        for letter_id in ids[:3]:
            await attempt(store, await find(store, letter_id), SENT)  # told to nobody
        await store.clean(Retention(completed_ms=HOUR, dead_ms=HOUR, log_ms=90 * HOUR), at_ms=NOW + 9 * HOUR, limit=2)
        async with copying(place, store, url, Events()) as copy:
            await copy.copy()
            told = {row["id"]: row["status"] for row in await ask(url, ALL)}
        assert list(told) == ids
        assert [told[one] for one in (*ids[:4], ids[-1])] == ["completed"] * 3 + ["waiting"] * 2


async def test_a_person_who_is_forgotten_leaves_no_line(place: RedisPlace, url: str) -> None:
    async with place.open() as store, copying(place, store, url, Events()) as copy:
        await accept(
            store, draft(7_000_077), draft(5, user_id="lena"), draft(6, text="for 7000077"), draft(8, text="other")
        )
        await copy.copy()
        person = ErasedPerson(user_id=7_000_077, names=frozenset({"lena"}))
        part = MessageLogPart(lambda: message_log_of(url))
        assert (await part.forget(person, is_dry=True))["message_log"].removed == 3
        assert (await part.forget(person, is_dry=False))["message_log"].removed == 3
        assert [row["text"] for row in await ask(url, ALL)] == ["other"]


async def test_a_table_of_somebody_else_is_refused_in_words(url: str) -> None:
    if url.startswith("sqlite"):
        apsw.Connection(url.removeprefix("sqlite:///")).execute("CREATE TABLE telegram_message_logs (id)")
    else:
        address, _, schema = url.partition("?schema=")
        connection = await asyncpg.connect(address)
        await connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.telegram_message_logs (id int)")
        await connection.close()
    table = message_log_of(url)
    with pytest.raises(StartError, match="not Peik's"):
        await table.open()
    await table.close()
