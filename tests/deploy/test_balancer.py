"""The balancer of deploy/ as it is: what reached a node is never sent to another, and a dead node costs nobody anything."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from tests.deploy.balancers import balanced, needed
from tests.patience import PATIENCE_S

pytestmark = needed


class Stub:
    """A node that reads a whole request and then does as it is told. `heard` is what it got."""

    def __init__(self, *, hangs_up: bool) -> None:
        self.heard: list[str] = []
        self._hangs_up = hangs_up

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                for line in head.lower().splitlines():
                    if line.startswith("content-length:"):
                        await reader.readexactly(int(line.partition(":")[2]))
                self.heard.append(" ".join(head.split()[:2]))
                if self._hangs_up:
                    break
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()


@contextlib.asynccontextmanager
async def stubs(folder: Path, *kinds: bool) -> AsyncIterator[tuple[str, list[Stub]]]:
    """The address of a balancer before stubs, each of which hangs up or does not."""
    made = [Stub(hangs_up=hangs_up) for hangs_up in kinds]
    servers = [await asyncio.start_server(stub.serve, "127.0.0.1", 0) for stub in made]
    places = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    try:
        async with balanced(folder, places) as url:
            yield url, made
    finally:
        for server in servers:
            server.close()


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(main())


ONCE = [
    ("POST", "/v1/letters"),
    ("POST", "/bot7000001:AAtest/sendMessage"),
    ("GET", "/bot7000001:AAtest/sendMessage?chat_id=5&text=hello"),
    ("GET", "/%62ot7000001:AAtest/sendMessage?chat_id=5&text=hello"),
    ("GET", "//bot7000001:AAtest/getUpdates"),
    ("PATCH", "/v1/bots/7000001"),
    ("PUT", "/v1/consumers/7000001/shop"),
    ("DELETE", "/v1/letters/5"),
    ("POST", "/webhook/7000001"),
]


@pytest.mark.parametrize(("verb", "path"), ONCE)
def test_what_a_node_got_is_not_sent_to_another(tmp_path: Path, verb: str, path: str) -> None:
    async def story() -> None:
        async with stubs(tmp_path, True, True) as (url, (one, two)), aiohttp.ClientSession() as http:
            body = b"x" * 100 if verb == "POST" else None
            async with http.request(verb, URL(url + path, encoded=True), data=body) as answer:
                assert answer.status == 502
            assert len(one.heard + two.heard) == 1
        assert "AAtest" not in (tmp_path / "nginx" / "log").read_text()

    play(story)


def test_a_question_is_asked_again_elsewhere(tmp_path: Path) -> None:
    async def story() -> None:
        async with stubs(tmp_path, True, False) as (url, (_, two)), aiohttp.ClientSession() as http:
            for _ in range(4):
                async with http.get(f"{url}/v1/letters/5") as answer:
                    assert answer.status == 200
            assert len(two.heard) == 4

    play(story)


def test_a_node_that_cannot_be_connected_to_costs_no_post(tmp_path: Path) -> None:
    async def story() -> None:
        alive = Stub(hangs_up=False)
        server = await asyncio.start_server(alive.serve, "127.0.0.1", 0)
        gone = await asyncio.start_server(alive.serve, "127.0.0.1", 0)
        places = [f"127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in (gone, server)]
        gone.close()
        async with balanced(tmp_path, places) as url, aiohttp.ClientSession() as http:
            for _ in range(20):
                async with http.post(f"{url}/v1/letters", data=b"x" * 1000) as answer:
                    assert answer.status == 200
        assert alive.heard == ["POST /v1/letters"] * 20
        server.close()

    play(story)
