"""`peik.client.enqueue` over the connections of every driver that it knows."""

import datetime
import importlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from peik.client.enqueue import enqueue, enqueue_sync
from peik.core.letter import State
from peik.errors import BadInput, Conflict, NotFound
from peik.outbox.store import Tally
from tests.storage.acts import find, front, tally
from tests.storage.places import BOT
from tests.storage.postgres.outbox_service import program
from tests.storage.postgres_place import PostgresPlace


@asynccontextmanager
async def by_asyncpg(place: PostgresPlace) -> AsyncIterator[Any]:
    async with program(place) as connection:
        await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        await connection.execute("BEGIN")
        yield connection, connection.execute


@asynccontextmanager
async def by_psycopg(place: PostgresPlace) -> AsyncIterator[Any]:
    psycopg = importlib.import_module("psycopg")
    rows = importlib.import_module("psycopg.rows")
    async with (
        program(place),
        await psycopg.AsyncConnection.connect(place.server.url, row_factory=rows.dict_row) as connection,
    ):
        yield connection, connection.execute


@asynccontextmanager
async def by_sqlalchemy(place: PostgresPlace) -> AsyncIterator[Any]:
    made = importlib.import_module("sqlalchemy.ext.asyncio")
    text = importlib.import_module("sqlalchemy").text
    engine = made.create_async_engine(place.server.url.replace("postgresql:", "postgresql+asyncpg:"))
    try:
        async with program(place), made.AsyncSession(engine) as session:
            yield session, lambda sql: session.commit() if sql == "COMMIT" else session.execute(text(sql))
    finally:
        await engine.dispose()


DRIVERS = pytest.mark.parametrize("driver", [by_asyncpg, by_psycopg, by_sqlalchemy])


@DRIVERS
async def test_a_letter_is_there_when_the_callers_transaction_has_committed(place: PostgresPlace, driver: Any) -> None:
    async with place.open() as node, driver(place) as (connection, run):
        later = datetime.datetime(2090, 1, 1, tzinfo=datetime.UTC)
        here = {"bot_id": BOT, "schema": place.schema}
        letter = await enqueue(connection, "sendMessage", chat_id=1, text="سلام", priority=2, attempts=9, **here)
        answer = await enqueue(
            connection, "sendPhoto", chat_id=1, photo="id", reply_to=letter, metadata={"user_id": 5}, **here
        )
        delayed = await enqueue(connection, "sendMessage", chat_id=1, text="hi", send_at=later, **here)
        assert (letter.state, delayed.state) == (State.WAITING, State.DELAYED)
        assert await tally(node) == Tally()
        await run("COMMIT")
        first, second = await front(node)
        assert (first.id, first.rank, first.attempts, json.loads(first.params)["text"]) == (
            int(letter.id),
            0,
            9,
            "سلام",
        )
        assert (second.id, second.awaits) == (int(answer.id), int(letter.id))
        view = await node.letter(int(delayed.id))
        assert view is not None
        assert view.due_at_ms == later.timestamp() * 1000


@DRIVERS
async def test_refusals_are_the_librarys_own(place: PostgresPlace, driver: Any) -> None:
    async with place.open() as node, driver(place) as (connection, run):
        here = {"bot_id": BOT, "schema": place.schema}
        with pytest.raises(BadInput, match="4096") as caught:
            await enqueue(connection, "sendMessage", chat_id=1, text="x" * 5000, **here)
        assert caught.value.code == "text_too_long"
        letter = await enqueue(connection, "sendMessage", chat_id=1, text="hi", idempotency_key="k", **here)
        await run("COMMIT")  # what was refused here had not been asked: the transaction was whole
        assert (await find(node, int(letter.id))).number == 1
        with pytest.raises(Conflict, match="another call"):
            await enqueue(connection, "sendMessage", chat_id=1, text="ho", idempotency_key="k", **here)


async def test_a_bot_that_is_not_there_is_not_found(place: PostgresPlace) -> None:
    async with place.open(), program(place) as app:
        with pytest.raises(NotFound, match="Bot 9 is not known") as caught:
            await enqueue(app, "sendMessage", chat_id=1, text="hi", bot_id=9, schema=place.schema)
        assert caught.value.code == "unknown_bot"


async def test_a_program_without_a_loop_asks_the_same(place: PostgresPlace) -> None:
    psycopg = importlib.import_module("psycopg")
    sqlalchemy = importlib.import_module("sqlalchemy")
    here = {"bot_id": BOT, "schema": place.schema}
    async with place.open() as node, program(place):
        with psycopg.connect(place.server.url) as connection:
            first = enqueue_sync(connection, "sendMessage", chat_id=1, text="hi", **here)
        engine = sqlalchemy.create_engine(place.server.url.replace("postgresql:", "postgresql+psycopg:"))
        with engine.begin() as connection:
            second = enqueue_sync(connection, "sendMessage", chat_id=1, text="hi", **here)
            with pytest.raises(BadInput, match="between 1 and 100"):
                enqueue_sync(connection, "sendMessage", chat_id=1, text="hi", attempts=1000, **here)
            connection.rollback()
        engine.dispose()
        assert [letter.id for letter in await front(node)] == [int(first.id)], second


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"photo": b"bytes"}, "files_not_here"),
    ({"text": "hi", "webhook_url": "https://a.example/"}, "webhook_not_here"),
    ({"text": "nul: \0"}, "bad_params"),
    ({"text": "hi", "attempts": 2**40}, "bad_attempts"),
    ({"text": "hi", "schema": 'x".y'}, "bad_schema"),
]


@pytest.mark.parametrize(("params", "code"), WRONG)
async def test_what_cannot_be_enqueued_is_refused_before_the_server_is_asked(params: dict[str, Any], code: str) -> None:
    with pytest.raises(BadInput) as caught:
        await enqueue(object(), "sendMessage", chat_id=1, **params)
    assert caught.value.code == code


async def test_a_backslash_before_u0000_is_no_nul(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        await enqueue(app, "sendMessage", chat_id=1, text="\\u0000", bot_id=BOT, schema=place.schema)
        assert json.loads((await front(node))[0].params)["text"] == "\\u0000"


async def test_a_pool_is_no_connection(place: PostgresPlace) -> None:
    async with asyncpg.create_pool(place.server.url, min_size=0) as pool:
        for given in (pool, object()):
            with pytest.raises(TypeError, match="is no connection"):
                await enqueue(given, "sendMessage", chat_id=1, text="hi")
            with pytest.raises(TypeError, match="is no connection"):
                enqueue_sync(given, "sendMessage", chat_id=1, text="hi")
