"""One call at two counters: `enqueue` in one schema, the service over the store in another. What they store can be compared."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from peik.core.events import Events
from peik.core.letter import Backoff, Chat, LetterCall, OnUncertain
from peik.errors import Problem
from peik.outbox.provisional import ProvisionalIds
from peik.outbox.service import Defaults, Guests, OutboxService
from peik.outbox.store import BotRecord, LetterView
from peik.storage.postgres.store import PostgresStore
from tests.storage.places import BOT
from tests.storage.postgres_place import PostgresPlace

SENDING = {"chat_id": 1, "text": "hi"}
NAMED = ("bot_id", "priority", "idempotency_key", "on_uncertain", "attempts", "backoff_ms", "backoff", "timeout_ms")


def enqueueing(terms: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The statement that a program would write, with these terms, and its values after the method and the parameters."""
    places = [f"{name} => ${place}" for place, name in enumerate(terms, start=3)]
    values = [json.dumps(value) if name == "metadata" else value for name, value in terms.items()]
    return f"SELECT enqueue({', '.join(('$1', '$2', *places))})", values


async def enqueue(connection: asyncpg.Connection, method: str, params: Mapping[str, Any], **terms: Any) -> int:
    terms.setdefault("bot_id", BOT)
    sql, values = enqueueing(terms)
    return int(await connection.fetchval(sql, method, json.dumps(params), *values))


@asynccontextmanager
async def program(place: PostgresPlace, **settings: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of a program that is not Peik's, to a schema with the rules in it."""
    connection = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema, **settings})
    try:
        yield connection
    finally:
        await connection.close()


class NoEngine:
    """Of chats it knows nothing, and it sends nothing: what is accepted stays as it is."""

    def chat_of(self, bot_id: int, chat: Chat) -> Chat:
        return chat

    def add(self, bot: BotRecord) -> None: ...

    def remove(self, bot_id: int) -> None: ...

    def why(self, view: LetterView, head: int | None) -> str | None: ...

    def watch(self, bot_id: int, letter_id: int, tell: Any) -> None: ...

    def open_chat(self, bot_id: int, chat: Chat) -> None: ...

    def hold_chat(self, bot_id: int, chat: Chat, until_ms: int) -> None: ...


class Counters:
    """Both. Each call is brought to both of them at one instant; ids are given alike."""

    def __init__(
        self, one: asyncpg.Connection, other: asyncpg.Connection, service: OutboxService, place: PostgresPlace
    ) -> None:
        self.connections = (one, other)
        self._service = service
        self._place = place

    async def bring(self, method: str, params: Mapping[str, Any], **terms: Any) -> tuple[int | str, int | str]:
        """What each answered: an id, or the code of its refusal."""
        one, other = self.connections
        written, noted = await one.fetchrow(
            "SELECT $1::jsonb::text, $2::jsonb::text", json.dumps(params), json.dumps(terms.get("metadata"))
        )
        try:
            said: int | str = await enqueue(one, method, params, **terms)
            at_ms = await one.fetchval("SELECT max(created_at) FROM letters")
            self._place.clock.now_ms = at_ms
            await other.execute("SELECT setval(pg_get_serial_sequence('letters', 'id'), $1, false)", said)
        except asyncpg.PostgresError as error:
            if not str(error.sqlstate).startswith("PK"):
                raise
            said = str(error.detail)
        try:
            (accepted,) = await self._service.accept([_call(method, written.encode(), noted.encode(), terms)])
            return said, accepted.letter_id
        except Problem as problem:
            return said, problem.code

    async def everything(self, table: str, *, without: str = "") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        one, other = [
            [dict(row) for row in await connection.fetch(f"SELECT * FROM {table} ORDER BY 1, 2")]
            for connection in self.connections
        ]
        for row in (*one, *other):
            row.pop(without, None)
        return one, other

    async def begin_anew(self) -> None:
        for connection in self.connections:
            await connection.execute(
                "TRUNCATE letters, idempotency RESTART IDENTITY;"
                " UPDATE tallies SET next_number = 1, in_lane = 0, apart = 0, completed = 0"
            )


@asynccontextmanager
async def counters(folder: Path) -> AsyncIterator[Counters]:
    places = PostgresPlace(folder), PostgresPlace(folder)
    async with (
        places[0].open(),
        places[1].open() as store,
        program(places[0]) as one,
        program(places[1]) as other,
    ):
        assert isinstance(store, PostgresStore)
        service = OutboxService(
            store=store,
            engine=NoEngine(),
            clock=places[1].clock,
            events=Events(),
            defaults=Defaults(),
            expect=lambda at_ms: None,
            guests=Guests(store.documents, places[1].clock),
            provisional=ProvisionalIds(store=store, documents=store.documents, clock=places[1].clock),
        )
        service.open(await store.bots())
        yield Counters(one, other, service, places[1])


def _call(method: str, params: bytes, metadata: bytes, terms: Mapping[str, Any]) -> LetterCall:
    given = {name: value for name, value in terms.items() if name in NAMED and value is not None}
    given.setdefault("bot_id", BOT)
    for name, kind in (("on_uncertain", OnUncertain), ("backoff", Backoff)):
        if name in given:
            given[name] = kind(given[name])
    return LetterCall(
        method=method,
        params=params,
        metadata=None if terms.get("metadata") is None else metadata,
        send_at_ms=_ms(terms.get("send_at")),
        expires_at_ms=_ms(terms.get("expires_at")),
        **given,
    )


def _ms(instant: Any) -> int | None:
    return None if instant is None else round(instant.timestamp() * 1000)
