"""How operations are put into commits: half of those who ask go ahead, so that server and callers work at the same time."""

import asyncio
from typing import Any, cast

from peik.storage.redis.client import RedisClient, RedisGroup
from peik.storage.redis.records import decode
from peik.storage.redis.writer import RedisOperation, RedisWriter

DONE = [1, b"", None]


class Server:
    """Keeps every commit until it is told to answer it."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._begun: list[asyncio.Future[Any]] = []
        self._came = asyncio.Event()

    def send_commit(self, group: RedisGroup) -> "asyncio.Future[Any]":
        self.sizes.append(len(decode(group.asked)) - 1)
        self._begun.append(asyncio.get_running_loop().create_future())
        self._came.set()
        return self._begun[-1]

    async def commit(self, group: RedisGroup, begun: "asyncio.Future[Any]") -> list[Any]:
        return cast("list[Any]", await begun)

    async def answer(self) -> None:
        """The oldest commit, and only when all who wait for it have had their turn."""
        await self._came.wait()
        self._came.clear()
        for _ in range(5):
            await asyncio.sleep(0)
        self._begun.pop(0).set_result([DONE] * self.sizes[-1])


async def callers(writer: RedisWriter, *, count: int, each: int) -> None:
    async def one_caller() -> None:
        for _ in range(each):
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            writer.submit(RedisOperation(lambda among: ["accept"], lambda ended, to=answer: to.set_result(None)))  # type: ignore[misc]
            await answer

    await asyncio.gather(*(one_caller() for _ in range(count)))


async def commits_of(*, count: int, each: int) -> list[int]:
    server = Server()
    writer = RedisWriter(cast("RedisClient", server), node="n")
    asking = asyncio.ensure_future(callers(writer, count=count, each=each))
    while not asking.done():
        answering = asyncio.ensure_future(server.answer())
        await asyncio.wait([asking, answering], return_when=asyncio.FIRST_COMPLETED)
        answering.cancel()
    await writer.drained()
    return server.sizes


async def test_of_many_callers_half_go_with_each_commit() -> None:
    sizes = await commits_of(count=50, each=40)
    assert sum(sizes) == 50 * 40
    assert sizes[3:-3] == [25] * len(sizes[3:-3])


async def test_a_few_callers_go_together() -> None:
    assert set(await commits_of(count=6, each=10)) == {6}


async def test_one_caller_waits_for_nobody() -> None:
    assert await commits_of(count=1, each=10) == [1] * 10
