"""The writer's own connection: answers come in order, and one that is lost is told to all who asked on it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio as aioredis
from redis import exceptions
from redis.asyncio.connection import AbstractConnection

from peik.storage.redis.client import RedisClient, RedisLine
from tests.storage.redis_place import RedisPlace


def line_to(url: str, *, patience_s: float = 20.0, **settings: Any) -> RedisLine:
    make = aioredis.ConnectionPool.from_url(url, **settings).make_connection
    return RedisLine(make, patience_s=patience_s)


@asynccontextmanager
async def lined(url: str, **settings: Any) -> AsyncIterator[RedisLine]:
    line = line_to(url, **settings)
    try:
        yield line
    finally:
        await line.close()


async def test_answers_come_in_the_order_of_questions(place: RedisPlace) -> None:
    async with lined(place.url.partition("?")[0]) as line:
        asked = [line.ask("ECHO", str(number)) for number in range(50)]
        assert await asyncio.gather(*asked) == [str(number).encode() for number in range(50)]


async def test_a_refusal_is_raised_and_the_next_question_is_answered(place: RedisPlace) -> None:
    async with lined(place.url.partition("?")[0]) as line:
        with pytest.raises(exceptions.NoScriptError):
            await line.ask("EVALSHA", "0" * 40, 0)
        with pytest.raises(exceptions.ResponseError, match="unknown command"):
            await line.ask("NO_SUCH_COMMAND")
        assert await line.ask("PING") == b"PONG"


async def test_nothing_is_sent_without_a_connection_and_a_lost_one_is_made_anew(place: RedisPlace) -> None:
    async with lined(place.url.partition("?")[0]) as line:
        assert line.send("PING") is None
        own = await line.ask("CLIENT", "ID")
        begun = line.send("PING")
        assert begun is not None
        assert await begun == b"PONG"
        await line.ask("CLIENT", "KILL", "ID", own, "SKIPME", "no")  # it says "one" before it closes
        while (then := await asked_again(line)) is None:
            pass
        assert then != own


@pytest.mark.parametrize("protocol", [2, 3])
async def test_what_is_said_on_a_channel_is_heard_from_the_beginning_on(place: RedisPlace, protocol: int) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    client = RedisClient(f"{place.url}&protocol={protocol}")
    await client.open()
    try:
        is_begun = asyncio.Event()
        hearing = asyncio.create_task(client.hear("news", heard.put_nowait, begun=is_begun.set))
        await is_begun.wait()
        for words in ("one", "two"):
            await client.publish("news", words)
        assert [await heard.get(), await heard.get()] == [b"one", b"two"]
        with place.server.client() as killer:
            killer.client_kill_filter(_type="pubsub")
        with pytest.raises(exceptions.ConnectionError):
            await hearing
    finally:
        await client.close()


async def test_who_may_not_hear_is_told_so(place: RedisPlace) -> None:
    client = RedisClient(place.url)
    await client.open()
    try:
        with place.server.client() as server:
            server.execute_command("ACL", "SETUSER", "default", "-subscribe")
            try:
                with pytest.raises(exceptions.ResponseError, match="NOPERM"):
                    await client.hear("news", lambda words: None, begun=lambda: None)
            finally:
                server.execute_command("ACL", "SETUSER", "default", "+subscribe")
    finally:
        await client.close()


async def asked_again(line: RedisLine) -> Any:
    """None if the end of the old connection came between question and answer."""
    with contextlib.suppress(exceptions.ConnectionError):
        return await line.ask("CLIENT", "ID")


async def test_what_the_server_pushes_is_no_answer(place: RedisPlace) -> None:
    url = place.url.partition("?")[0]
    async with lined(url, protocol=3) as line:
        await line.ask("CLIENT", "TRACKING", "ON", "BCAST")
        await line.ask("SET", "somebody", "new")  # the line is told of it before or after the answer
        assert await line.ask("ECHO", "mine") == b"mine"
        await line.ask("DEL", "somebody")


async def test_a_server_that_is_silent_is_given_up_by_all_who_asked() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            if b"SETINFO" in chunk:  # redis-py's own greeting, in one piece or in two
                writer.write(b"+OK\r\n" * chunk.count(b"SETINFO"))
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with lined(f"redis://127.0.0.1:{port}", patience_s=0.05, protocol=2) as line:
            ended = await asyncio.gather(line.ask("PING"), line.ask("PING"), return_exceptions=True)
            assert [type(one) for one in ended] == [exceptions.TimeoutError] * 2
            assert line.send("PING") is None


async def test_who_is_cancelled_while_a_connection_is_made_leaves_none_open(place: RedisPlace) -> None:
    made: list[AbstractConnection] = []

    class Late(aioredis.Connection):
        """The end of who asked comes in the moment in which the connection stands, and redis-py swallows it (see `heeding`)."""

        async def connect(self) -> None:
            made.append(self)
            await super().connect()
            asking.cancel()

    pool = aioredis.ConnectionPool.from_url(place.url.partition("?")[0], connection_class=Late)
    line = RedisLine(pool.make_connection, patience_s=20.0)
    asking = asyncio.create_task(line.ask("PING"))
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert [one.is_connected for one in made] == [False]


async def test_an_opening_that_is_cancelled_leaves_no_connection_open(place: RedisPlace) -> None:
    """The first question of the second connection is never answered; the first connection stands by then."""
    is_asked, open_ones = asyncio.Event(), 0
    is_over = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_ones
        open_ones += 1
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(1 << 16):
                if b"PING" not in chunk:
                    writer.write(b"+OK\r\n" * chunk.count(b"*"))
                elif open_ones == 1:
                    writer.write(b"+PONG\r\n")
                else:
                    is_asked.set()
        writer.close()
        open_ones -= 1
        if not open_ones:
            is_over.set()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        client = RedisClient(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}?protocol=2")
        opening = asyncio.create_task(client.open())
        await is_asked.wait()
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()
        await is_over.wait()
