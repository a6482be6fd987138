"""Clients without manners: they are ended in time, and nobody else notices."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvicorn

from peik.web.connection import CALL_HEAD_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, SLICE_BYTES
from peik.web.server import (
    ADDRESS_HELD_BYTES_MAX,
    ANSWER_PAUSE_S_MAX,
    BODY_BYTES_PER_S_MIN,
    BODY_PAUSE_S_MAX,
    HEAD_S_MAX,
    HELD_BYTES_MAX,
    KEEP_ALIVE_S,
    ConnectionLedger,
    GuardedProtocol,
    GuardedServer,
    sweep,
)
from tests.gateway.gateways import Client, play
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN, Server, Sim

IDLE = 3000
LARGE_BYTES = 32 * 1024 * 1024


async def read_all(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[..., Any]) -> None:
    """An application that answers early to /early, and otherwise when it has the whole body."""
    size = 0
    while scope["path"] not in ("/early", "/large"):
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        if not message["more_body"]:
            break
    body = bytes(LARGE_BYTES) if scope["path"] == "/large" else b"%d" % size
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


class Peer:
    """One raw connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            head = await self._reader.readuntil(b"\r\n\r\n")
            return head + await self._reader.readexactly(
                int(head.lower().split(b"content-length: ")[1].split(b"\r")[0])
            )

    async def head(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.readuntil(b"\r\n\r\n")

    async def is_closed(self) -> bool:
        """Whatever was still said before."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                await self._reader.read()
            return True

    async def is_ended(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self._writer.close()


class DeafPeer:
    """A bare socket: nothing is read of it but what is taken. A stream would read ahead."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._taken = 0

    async def take(self, size: int) -> bool:
        """Whether so much came."""
        loop = asyncio.get_running_loop()
        goal = self._taken + size
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                while self._taken < goal and (data := await loop.sock_recv(self._connection, 1 << 20)):
                    self._taken += len(data)
        return self._taken >= goal

    async def is_given_all(self) -> bool:
        try:
            return await self.take(LARGE_BYTES - self._taken)
        finally:
            self._connection.close()


class Stage:
    def __init__(self, server: GuardedServer, port: int) -> None:
        self._server = server
        self._port = port
        self.peers: list[Peer] = []

    async def connect(self) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self._port))
        self.peers.append(peer)
        return peer

    async def small_peer(self, said: bytes) -> "DeafPeer":
        """One that asks and takes nothing by itself: the system takes a little for it, and no more."""
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, said)
        await self.seen()
        return DeafPeer(connection)

    async def peer(self, *said: bytes) -> Peer:
        peer = await self.connect()
        for data in said:
            await peer.say(data)
        await self.seen()
        return peer

    async def seen(self) -> None:
        """Until the server has read what was said: another client's whole exchange takes longer than that."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        await reader.read()
        writer.close()

    def pass_time(self, seconds: float) -> None:
        sweep(self._server.server_state.connections, asyncio.get_running_loop().time() + seconds)


@asynccontextmanager
async def listening() -> AsyncIterator[Stage]:
    config = uvicorn.Config(
        read_all,
        http=GuardedProtocol,
        lifespan="off",
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
    server = GuardedServer(config)
    listener = socket.create_server(("127.0.0.1", 0))  # who connects before it is served waits in the backlog
    serving = asyncio.create_task(server._serve([listener]))
    stage = Stage(server, listener.getsockname()[1])
    await stage.seen()
    try:
        yield stage
    finally:
        for peer in stage.peers:
            peer.close()
        server.should_exit = True
        await serving


POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"

LATE = {
    "nothing at all": ((), HEAD_S_MAX),
    "half a head": ((b"POST /bot1:a/getMe HTTP/1.1\r\nHost: x\r\nX-a: b",), HEAD_S_MAX),
    "half a body": ((POST, b"x" * 90_000), BODY_PAUSE_S_MAX),
    "half a second request": ((b"GET / HTTP/1.1\r\n\r\n", b"GET / HT"), HEAD_S_MAX),
    "half a body after its answer": ((POST.replace(b" / ", b" /early "), b"x" * 99), BODY_PAUSE_S_MAX),
}


@pytest.mark.parametrize("what", LATE)
def test_a_client_that_keeps_us_waiting_is_ended_in_time_and_not_before(what: str) -> None:
    said, patience_s = LATE[what]

    async def story() -> None:
        async with listening() as stage:
            slow = await stage.peer(*said)
            whole = await stage.peer(b"GET / HTTP/1.1\r\n\r\n")
            stage.pass_time(patience_s - 2)
            await slow.say(b"\r" if what == "half a head" else b"")
            if what == "half a body":
                await slow.say(b"x" * 5_000)
                await stage.seen()
                stage.pass_time(patience_s - 2)
                await slow.say(b"x" * 5_000)
                assert (await slow.answer()).endswith(b"100000")
                return
            stage.pass_time(patience_s + 2)
            if "second" in what or "answer" in what:
                await slow.answer()
            assert await slow.is_ended()
            assert (await whole.answer()).endswith(b"0")

    asyncio.run(story())


def test_empty_lines_do_not_keep_a_connection() -> None:
    async def story() -> None:
        async with listening() as stage:
            idle = await stage.peer(b"GET / HTTP/1.1\r\n\r\n")
            await idle.answer()
            await idle.say(b"\r\n")
            await stage.seen()
            stage.pass_time(KEEP_ALIVE_S + 1)
            assert await idle.is_ended()

    asyncio.run(story())


def test_a_connection_that_is_not_used_is_ended_in_time_and_not_before() -> None:
    async def story() -> None:
        async with listening() as stage:
            used, idle = [await stage.peer(b"GET / HTTP/1.1\r\n\r\n") for _ in range(2)]
            for peer in (used, idle):
                await peer.answer()
            stage.pass_time(KEEP_ALIVE_S - 2)
            await used.say(b"GET / HTTP/1.1\r\n\r\n")
            assert (await used.answer()).endswith(b"0")
            stage.pass_time(KEEP_ALIVE_S + 1)
            assert await idle.is_ended()

    asyncio.run(story())


def test_a_body_that_only_crawls_is_ended_however_steadily_it_comes() -> None:
    async def story() -> None:
        async with listening() as stage:
            slow = await stage.peer(POST, b"x" * 100)
            stage.pass_time(BODY_PAUSE_S_MAX - 1)
            await slow.say(b"x")
            await stage.seen()
            stage.pass_time(BODY_PAUSE_S_MAX - 1)  # heard of a moment ago, and too little in all
            fast = await stage.peer(POST, b"x" * int(BODY_BYTES_PER_S_MIN * 2 * BODY_PAUSE_S_MAX))
            stage.pass_time(BODY_PAUSE_S_MAX - 1)
            await fast.say(b"x" * (100_000 - int(BODY_BYTES_PER_S_MIN * 2 * BODY_PAUSE_S_MAX)))
            assert (await fast.answer()).endswith(b"100000")
            stage.pass_time(BODY_PAUSE_S_MAX + 1)
            assert await slow.is_ended()

    asyncio.run(story())


def test_a_head_without_end_is_not_collected() -> None:
    async def story() -> None:
        async with listening() as stage:
            flood = await stage.peer(b"GET / HTTP/1.1\r\n")
            with contextlib.suppress(ConnectionError):
                for number in range(1 + HEAD_BYTES_MAX // 1000 * 2):
                    await flood.say(b"x-%d: %b\r\n" % (number, b"y" * 1000))
                    await asyncio.sleep(0)
            assert await flood.is_ended()

    asyncio.run(story())


HEADS = {
    "as long as it may be": (b"/x", HEAD_BYTES_MAX - 50, b"200"),
    "too long": (b"/x", HEAD_BYTES_MAX + 1, b"431"),
    "a long call": (b"/bot1:a/sendMessage?text=", HEAD_BYTES_MAX + 1, b"200"),
    "too long a call": (b"/bot1:a/sendMessage?text=", CALL_HEAD_BYTES_MAX + 1, b"431"),
    "a long path of a file": (b"/file/bot1:a/", HEAD_BYTES_MAX + 1, b"431"),
}


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("what", HEADS)
def test_a_long_head_is_refused_whether_or_not_it_comes_to_its_end(what: str, is_whole: bool) -> None:
    path, size, status = HEADS[what]

    async def story() -> None:
        async with listening() as stage:
            for target, header in ((path + b"x" * size, b"a: b"), (path, b"a: " + b"x" * size)):
                peer = await stage.connect()
                head = b"GET %b HTTP/1.1\r\n%b\r\n" % (target, header)
                if is_whole or status == b"200":
                    head += b"\r\n"
                else:
                    head += b"b: " + b"x" * SLICE_BYTES  # it is measured slice by slice
                with contextlib.suppress(ConnectionError):
                    await peer.say(head)
                assert (await peer.head()).startswith(b"HTTP/1.1 " + status), target[:9]

    asyncio.run(story())


class Tenant:
    """Stands for a connection: it only knows that it was ended."""

    def __init__(self, ledger: ConnectionLedger, address: str) -> None:
        self.ledger, self.address, self.is_ended = ledger, address, False

    def hold(self, size: int) -> None:
        self.ledger.set(self, self.address, size)  # type: ignore[arg-type]

    def end(self) -> None:
        self.is_ended = True
        self.hold(0)


def test_what_one_address_holds_is_bounded_and_what_all_hold_is_too() -> None:
    ledger = ConnectionLedger()
    one = [Tenant(ledger, "one") for _ in range(9)]
    for tenant in one:
        tenant.hold(ADDRESS_HELD_BYTES_MAX // 8)
    assert [tenant.is_ended for tenant in one] == [False] * 8 + [True], "who asks for more is ended"
    others = [Tenant(ledger, f"other {number}") for number in range(8)]
    for tenant in others:
        tenant.hold(ADDRESS_HELD_BYTES_MAX)
    assert ledger.total <= HELD_BYTES_MAX
    assert [tenant.is_ended for tenant in one] == [True] * 9, "the oldest go first"
    assert [tenant.is_ended for tenant in others] == [False] * 8
    for tenant in others:
        tenant.hold(0)
    assert (ledger.total, dict(ledger.by_address)) == (0, {})


def test_unfinished_heads_of_one_address_take_little_memory_and_others_go_on() -> None:
    many = 2 * ADDRESS_HELD_BYTES_MAX // HEAD_BYTES_MAX

    async def story() -> None:
        async with listening() as stage:
            held = GuardedProtocol.held
            peers = [await stage.connect() for _ in range(many)]
            await counted(many)
            half = b"GET / HTTP/1.1\r\nx: " + b"y" * (HEAD_BYTES_MAX - 1000)
            await asyncio.gather(*(peer.say(half) for peer in peers), return_exceptions=True)
            async with asyncio.timeout(60):
                while GuardedProtocol.addresses["127.0.0.1"] > ADDRESS_HELD_BYTES_MAX // len(half):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert 0 < held.by_address["127.0.0.1"] <= ADDRESS_HELD_BYTES_MAX
            await stage.seen()  # a whole head holds nothing, and is answered
            stage.pass_time(HEAD_S_MAX + 1)
            for peer in peers:
                assert await peer.is_closed()
            await counted(0)
            assert (held.total, dict(held.by_address)) == (0, {})

    asyncio.run(story())


def test_a_stranger_has_fewer_connections_and_unread_answers_and_who_is_known_has_more() -> None:
    strangers = True

    async def story() -> None:
        nonlocal strangers
        async with listening() as stage:
            held = [await stage.peer() for _ in range(3)]
            GuardedProtocol.stranger_connections_max = 4
            await stage.connect()
            assert await (await stage.connect()).is_ended()
            strangers = False
            more = await stage.peer(b"GET / HTTP/1.1\r\n\r\n")
            assert (await more.answer()).endswith(b"0")
            for peer in held:
                peer.close()
            strangers = True
            GuardedProtocol.stranger_connections_max = 1 << 30
            deaf = await stage.small_peer(b"GET /large HTTP/1.1\r\n\r\n")
            assert not await deaf.is_given_all(), "so much is not kept for a stranger who does not take it"
            strangers = False
            known = await stage.small_peer(b"GET /large HTTP/1.1\r\n\r\n")
            assert await known.is_given_all()

    before = GuardedProtocol.is_stranger, GuardedProtocol.stranger_connections_max
    GuardedProtocol.is_stranger = staticmethod(lambda _: strangers)
    try:
        asyncio.run(story())
    finally:
        GuardedProtocol.is_stranger, GuardedProtocol.stranger_connections_max = staticmethod(before[0]), before[1]


def test_connections_over_the_bound_are_turned_away_and_those_within_go_on() -> None:
    async def story() -> None:
        async with listening() as stage:
            held = [await stage.peer() for _ in range(3)]
            GuardedProtocol.connections_max = 5  # the stage itself has one more at times
            try:
                last = await stage.peer()
                await stage.connect()
                another = await stage.connect()
                assert await another.is_ended()
            finally:
                GuardedProtocol.connections_max = 1 << 30
            for peer in (*held, last):
                await peer.say(b"GET / HTTP/1.1\r\n\r\n")
                assert (await peer.answer()).endswith(b"0")

    asyncio.run(story())


async def counted(connections: int) -> None:
    """Until the server has so many."""
    async with asyncio.timeout(PATIENCE_S):
        while GuardedProtocol.addresses["127.0.0.1"] != connections:  # noqa: ASYNC110  nobody tells a test of it
            await asyncio.sleep(0.01)


def test_one_address_does_not_take_all_connections_and_gives_back_those_that_end() -> None:
    async def story() -> None:
        GuardedProtocol.addresses.clear()  # of servers of other tests
        async with listening() as stage:
            await counted(0)
            held = [await stage.connect() for _ in range(3)]
            await counted(3)
            GuardedProtocol.address_connections_max = 4
            try:
                await stage.connect()
                greedy = await stage.connect()
                assert await greedy.is_ended()
                held.pop().close()
                held.pop().close()
                await counted(2)
                another = await stage.connect()
                await another.say(b"GET / HTTP/1.1\r\n\r\n")
                assert (await another.answer()).endswith(b"0")
            finally:
                GuardedProtocol.address_connections_max = 1 << 30

    asyncio.run(story())


def test_a_head_of_very_many_headers_is_refused_and_one_of_many_is_not() -> None:
    async def story() -> None:
        async with listening() as stage:
            for count, status in ((HEADERS_MAX, b"200"), (HEADERS_MAX + 1, b"431"), (20_000, b"431")):
                lines = b"".join(b"x-%d: y\r\n" % number for number in range(count))
                peer = await stage.connect()
                with contextlib.suppress(ConnectionError):
                    await peer.say(b"GET / HTTP/1.1\r\n" + lines + b"\r\n")
                assert (await peer.head()).startswith(b"HTTP/1.1 " + status), count
                if status == b"431":
                    assert await peer.is_closed()

    asyncio.run(story())


def test_a_client_that_takes_nothing_of_its_answer_is_ended_and_a_slow_one_is_not() -> None:
    async def story() -> None:
        async with listening() as stage:
            deaf, slow = [await stage.small_peer(b"GET /large HTTP/1.1\r\n\r\n") for _ in range(2)]
            stage.pass_time(0)
            stage.pass_time(ANSWER_PAUSE_S_MAX - 1)
            assert await slow.take(16 * 1024 * 1024)
            stage.pass_time(ANSWER_PAUSE_S_MAX + 1)
            assert not await deaf.is_given_all()
            assert await slow.is_given_all()

    asyncio.run(story())


def test_thousands_of_idle_connections_cost_little_and_others_go_on(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await bot.call("sendMessage", chat_id=5, text="warm")
        process = psutil.Process(peik.pid)
        before = process.memory_info().rss
        place = peik.url.removeprefix("http://").split(":")
        idle = []
        for at in range(0, IDLE, 200):
            idle += await asyncio.gather(*(asyncio.open_connection(*place) for _ in range(at, at + 200)))
        for number, (_, writer) in enumerate(idle):
            if number % 2:  # half of them in the middle of a head
                writer.write(b"GET /bot" + TOKEN.encode())
        async with asyncio.timeout(PATIENCE_S):
            for number in range(5):
                assert (await bot.call("sendMessage", chat_id=6, text=str(number))).result["message_id"]
        each = (process.memory_info().rss - before) / IDLE
        assert each < 16_000, f"{each:.0f} bytes per idle connection"
        for _, writer in idle:
            writer.transport.abort()

    play(tmp_path, story, pace="off")
