"""The connection breaks between a commit and its answer: nobody is told that it was made, and it is never made twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from peik.core.nodes import CHORES
from peik.errors import StoreUnavailable
from peik.storage.redis import RedisStore
from tests.storage.acts import NOW, accept, draft, find, front, tally
from tests.storage.places import BOT, OTHER_BOT
from tests.storage.redis_place import RedisPlace


class Wire:
    """Between Peik and the server. Told to, it lets one request through and loses its answer, with the connection."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.loses = b""  # the answer to the next request in which these bytes are
        self.lost = 0
        self.carrying: set[asyncio.Task[None]] = set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.carrying.add(task)
        behind_reader, behind = await asyncio.open_connection("127.0.0.1", self._server_port)
        is_doomed = asyncio.Event()

        async def there() -> None:
            seen = b""  # what is looked for may come in two pieces
            while chunk := await reader.read(1 << 16):
                seen = seen[-64:] + chunk
                if self.loses and self.loses in seen:
                    self.loses = b""
                    is_doomed.set()
                behind.write(chunk)

        async def back() -> None:
            while chunk := await behind_reader.read(1 << 16):
                if is_doomed.is_set():
                    self.lost += 1
                    break
                writer.write(chunk)

        async def one_way(carried: Awaitable[None]) -> None:
            """However it ends, the other way ends as well: who closes before all was read resets the connection."""
            try:
                with contextlib.suppress(ConnectionError):
                    await carried
            finally:
                writer.close()
                behind.close()

        await asyncio.gather(one_way(there()), one_way(back()))
        self.carrying.discard(task)


@asynccontextmanager
async def wired(place: RedisPlace) -> AsyncIterator[tuple[RedisStore, Wire]]:
    wire = Wire(place.server.port)
    listener = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    store = RedisStore(place.url.replace(f":{place.server.port}", f":{port}"), clock=place.clock)
    store.listen(place.heard)
    await store.open()
    await store.accept([draft(1, bot_id=OTHER_BOT)], at_ms=NOW)  # now the server has the script that is lost later
    place.heard.accepted.clear()
    try:
        yield store, wire
    finally:
        await store.close()
        listener.close()
        await asyncio.gather(*wire.carrying)


async def test_a_commit_whose_answer_was_lost_is_made_once_and_its_caller_is_told_what_is_known(
    place: RedisPlace,
) -> None:
    async with place.open(is_owner=False), wired(place) as (store, wire):
        wire.loses = b"accept"
        with pytest.raises(StoreUnavailable) as caught:
            await accept(store, draft(1))
        assert caught.value.code == "store_gone"
        assert "may be there or not" in caught.value.detail
        assert wire.lost == 1
        assert place.heard.accepted == []
        await accept(store, draft(1))
        assert [one.number for one in await front(store)] == [1, 2]
        assert [one.number for one in place.heard.accepted] == [2]  # who hears of a gap reads the store
        assert (await tally(store)).waiting == 2


async def test_a_repeat_under_the_same_key_finds_what_was_stored(place: RedisPlace) -> None:
    async with place.open(is_owner=False), wired(place) as (store, wire):
        given = draft(1, idempotency_key="k", digest="d")
        wire.loses = b"accept"
        with pytest.raises(StoreUnavailable):
            await accept(store, given)
        (again,) = await store.accept([given], at_ms=NOW)
        assert again.is_repeat
        assert (await tally(store)).waiting == 1


async def test_marks_whose_answer_was_lost_are_found_in_flight(place: RedisPlace) -> None:
    async with place.open(is_owner=False), wired(place) as (store, wire):
        (letter_id,) = await accept(store, draft(1))
        letter = await find(store, letter_id)
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        epoch = (await store.nodes.beat()).leases[BOT]
        wire.loses = b"advance"
        store.advance([], [letter], epoch=epoch, at_ms=NOW, done=lambda marked: answered.set_result(marked.error))
        assert isinstance(await answered, StoreUnavailable)
        assert await store.left_in_flight(BOT, epoch=epoch) == [letter]


async def test_a_beat_whose_answer_was_lost_took_its_leases_once(place: RedisPlace) -> None:
    async with place.open(is_owner=False), wired(place) as (store, wire):
        await store.nodes.nodes()
        await store.nodes.drop_lock("nobody's")  # now the server has the script
        wire.loses = b"beat"
        with pytest.raises(StoreUnavailable):
            await store.nodes.beat()
        first, second = await store.nodes.beat(), await store.nodes.beat()
        assert first == second
        assert first.leases.keys() == {CHORES, BOT, OTHER_BOT}


async def test_a_read_whose_answer_was_lost_is_asked_again(place: RedisPlace) -> None:
    async with place.open(is_owner=False), wired(place) as (store, wire):
        (letter_id,) = await accept(store, draft(1))
        wire.loses = b"fronts"
        assert [one.id for one in await front(store)] == [letter_id]
        assert wire.lost == 1
