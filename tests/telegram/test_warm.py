"""Warm connections: who gives up waiting takes nobody else's request along."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from peik.telegram.connect import direct
from peik.telegram.push import ConnectionPool, PoolRequest
from tests.telegram.conftest import Run

ASK = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def to_a_silent_server() -> AsyncIterator[ConnectionPool]:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        made = ConnectionPool(direct(host="127.0.0.1", port=server.sockets[0].getsockname()[1], ssl_context=None))
        try:
            yield made
        finally:
            await made.close()


def test_who_leaves_as_his_answer_comes_does_not_end_the_request_of_the_next(run: Run) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with to_a_silent_server() as warm:
            first, second = PoolRequest(ASK, loop), PoolRequest(ASK, loop)
            connection = await warm.begin(first)
            connection.data_received(ANSWER)  # who asked is told in the next turn; the connection is free now
            assert await warm.begin(second) is connection
            first.answered.cancel()
            warm.leave(connection, first)
            connection.data_received(ANSWER)
            assert (await second.answered).status == 200
            warm.leave(connection, second)
            third = PoolRequest(ASK, loop)
            assert await warm.begin(third) is connection, "it is still warm"
            warm.leave(connection, third)
            assert not connection.is_alive(loop.time()), "its answer would be taken for that of the next"

    run(story())
