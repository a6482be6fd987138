"""HTTP/1.1 as our own server speaks it, byte by byte, before an application that does as it is told by the path."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from peik.web.connection import ServerExchange
from peik.web.server import GuardedProtocol, GuardedServer
from tests.patience import PATIENCE_S

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Application:
    """Answers by the path: see each. It takes `/prompt` at once if the request is whole, and answers it when it is let."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.scopes: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.taken: list[ServerExchange] = []

    def take_at_once(self, exchange: ServerExchange) -> bool:
        if exchange.scope["path"] != "/prompt":
            return False
        self.taken.append(exchange)
        return True

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        path = scope["path"]
        if path == "/until-gone":
            self.heard.append((await receive())["type"])
            self.gate.set()
            self.heard.append((await receive())["type"])
            return
        if path not in SAID:
            body = b""
            while (message := await receive())["more_body"]:
                body += message["body"]
            said = b"%b %b|%b" % (scope["method"].encode(), path.encode(), body + message["body"])
            await send(start(200, (b"content-length", b"%d" % len(said))))
            await send({"type": "http.response.body", "body": said})
        for message in SAID.get(path, ()):
            await send(message)
            if path == "/stream":
                await self.gate.wait()
        if path.startswith("/surprise"):
            raise ZeroDivisionError


def start(status: int, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def piece(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


SAID: dict[str, list[dict[str, Any]]] = {
    "/stream": [start(200), piece(b"one", more=True), piece(b"", more=True), piece(b"two")],
    "/nothing": [start(204), piece(b"")],
    "/closing": [start(200, (b"content-length", b"2"), (b"connection", b"close")), piece(b"ok")],
    "/surprise": [],
    "/surprise-after-head": [start(200, (b"content-length", b"5"))],
    "/surprise-in-body": [start(200, (b"content-length", b"5")), piece(b"he", more=True)],
    "/long": [start(200, (b"content-length", b"2")), piece(b"too long")],
    "/short": [start(200, (b"content-length", b"20")), piece(b"short")],
    "/split": [start(200, (b"x-a", b"b\r\nx-b: c"), (b"content-length", b"0")), piece(b"")],
    "/silent": [],
}


class Stage:
    def __init__(self, server: GuardedServer, port: int, app: Application) -> None:
        self.server = server
        self.app = app
        self._port = port

    async def ask(self, *said: bytes) -> bytes:
        """All that is answered until the connection ends."""
        reader, writer = await self.connect()
        for data in said:
            writer.write(data)
            await writer.drain()
        async with asyncio.timeout(PATIENCE_S):
            heard = await reader.read()
        writer.close()
        return heard

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)


@asynccontextmanager
async def stage(app: Application) -> AsyncIterator[Stage]:
    config = uvicorn.Config(
        app, http=GuardedProtocol, lifespan="off", log_config=None, proxy_headers=False, timeout_graceful_shutdown=5
    )
    server = GuardedServer(config)
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server._serve([listener]))
    try:
        yield Stage(server, listener.getsockname()[1], app)
    finally:
        server.should_exit = True
        await serving


def played(story: Callable[[Stage], Awaitable[None]], actor: type[Application] = Application) -> None:
    async def play() -> None:
        async with stage(actor()) as one:
            await story(one)

    asyncio.run(play())


def asked(path: bytes, *headers: bytes, method: bytes = b"GET", version: bytes = b"1.1", body: bytes = b"") -> bytes:
    lines = b"".join(b"%b\r\n" % line for line in (b"Host: peik", *headers))
    return b"%b %b HTTP/%b\r\n%b\r\n%b" % (method, path, version, lines, body)


LAST = b"Connection: close"
CHUNKS = b"5\r\nfirst\r\n6;x=y\r\nsecond\r\n0\r\n\r\n"

ANSWERS = {
    "a path": ([asked(b"/a/b?c=d", LAST)], b"200", b"GET /a/b|"),
    "a path with a fragment": ([asked(b"/a#b", LAST)], b"200", b"GET /a|"),
    "a whole address": ([asked(b"http://peik/a", LAST)], b"200", b"GET /a|"),
    "an escaped path": ([asked(b"/a%20b", LAST)], b"200", b"GET /a b|"),
    "chunks": (
        [asked(b"/", LAST, b"Transfer-Encoding: chunked", method=b"POST", body=CHUNKS)],
        b"200",
        b"POST /|firstsecond",
    ),
    "a body in pieces": (
        [asked(b"/", LAST, b"Content-Length: 6", method=b"POST"), b"abc", b"def"],
        b"200",
        b"POST /|abcdef",
    ),
    "a head without its body": ([asked(b"/", LAST, method=b"HEAD")], b"200", b""),
    "an old client": ([asked(b"/", version=b"1.0")], b"200", b"GET /|"),
    "nothing to say": ([asked(b"/nothing", LAST)], b"204", b""),
    "an answer that closes": ([asked(b"/closing")], b"200", b"ok"),
    "another protocol": ([asked(b"/", b"Connection: upgrade, close", b"Upgrade: h2c")], b"200", b"GET /|"),
    "a surprise": ([asked(b"/surprise")], b"500", b"Internal Server Error"),
    "a surprise before anything has left": ([asked(b"/surprise-after-head")], b"500", b"Internal Server Error"),
    "no answer": ([asked(b"/silent")], b"500", b"Internal Server Error"),
    "more than was said": ([asked(b"/long")], b"500", b"Internal Server Error"),
    "less than was said": ([asked(b"/short")], b"500", b"Internal Server Error"),
    "a header that would be two": ([asked(b"/split")], b"500", b"Internal Server Error"),
    "no HTTP": ([b"\x16\x03\x01 hello\r\n\r\n"], b"400", b"Invalid HTTP request received."),
    "no path": ([asked(b"example.com:443", method=b"CONNECT")], b"400", b"Invalid HTTP request received."),
    "two lengths": (
        [asked(b"/", b"Content-Length: 1", b"Content-Length: 2", method=b"POST", body=b"ab")],
        b"400",
        b"Invalid HTTP request received.",
    ),
    "a length and chunks": (
        [asked(b"/", b"Content-Length: 5", b"Transfer-Encoding: chunked", method=b"POST", body=CHUNKS)],
        b"400",
        b"Invalid HTTP request received.",
    ),
    "a broken chunk": (
        [asked(b"/", b"Transfer-Encoding: chunked", method=b"POST", body=b"zz\r\n")],
        b"400",
        b"Invalid HTTP request received.",
    ),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_a_request_is_answered_once_and_the_connection_ends(what: str) -> None:
    said, status, body = ANSWERS[what]

    async def story(stage: Stage) -> None:
        head, _, heard = (await stage.ask(*said)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status)
        assert heard == body
        assert b"\r\nconnection: close" in head
        assert b"\r\ndate: " in head

    played(story)


def test_what_breaks_in_the_middle_of_a_body_ends_the_connection() -> None:
    async def story(stage: Stage) -> None:
        heard = await stage.ask(asked(b"/surprise-in-body"))
        assert heard.endswith(b"\r\n\r\nhe")

    played(story)


@pytest.mark.parametrize(("version", "body"), [(b"1.1", b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"), (b"1.0", b"onetwo")])
def test_a_stream_begins_before_its_first_bytes_are_there(version: bytes, body: bytes) -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect()
        writer.write(asked(b"/stream", LAST, version=version))
        async with asyncio.timeout(PATIENCE_S):
            head = await reader.readuntil(b"\r\n\r\n")
            assert (b"transfer-encoding: chunked" in head) == (version == b"1.1")
            stage.app.gate.set()
            assert await reader.read() == body
        writer.close()

    played(story)


def test_who_waits_for_a_word_before_his_body_hears_it() -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect()
        writer.write(asked(b"/", LAST, b"Expect: 100-continue", b"Content-Length: 3", method=b"POST"))
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"tea")
            assert (await reader.read()).endswith(b"POST /|tea")
        writer.close()

    played(story)


BROKEN_CHUNK = asked(b"/", b"Transfer-Encoding: chunked", method=b"POST", body=b"zz\r\n")


@pytest.mark.parametrize("nonsense", [b"\x00\x01 nonsense\r\n\r\n", BROKEN_CHUNK])
def test_what_comes_together_is_answered_in_its_order_and_what_is_no_request_after_it(nonsense: bytes) -> None:
    async def story(stage: Stage) -> None:
        many = b"".join(asked(b"/%d" % number) for number in range(20))
        heard = await stage.ask(many + nonsense)
        answers = heard.split(b"HTTP/1.1 ")[1:]
        assert [one[:3] for one in answers] == [b"200"] * 20 + [b"400"]
        assert [one.rpartition(b"\r\n\r\n")[2] for one in answers[:-1]] == [
            b"GET /%d|" % number for number in range(20)
        ]

    played(story)


def test_a_connection_goes_on_after_an_answer_that_came_before_the_end_of_its_request() -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect()
        writer.write(asked(b"/nothing", b"Content-Length: 4", method=b"POST"))
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            writer.write(b"rest" + asked(b"/next", LAST))
            assert (await reader.read()).endswith(b"GET /next|")
        writer.close()

    played(story)


def test_an_application_hears_that_its_client_has_gone() -> None:
    async def story(stage: Stage) -> None:
        _, writer = await stage.connect()
        writer.write(asked(b"/until-gone"))
        async with asyncio.timeout(PATIENCE_S):
            await stage.app.gate.wait()
            writer.transport.abort()
            while len(stage.app.heard) < 2:  # noqa: ASYNC110  nobody tells a test of it
                await asyncio.sleep(0.01)
        assert stage.app.heard == ["http.request", "http.disconnect"]

    played(story)


def test_what_is_taken_at_once_is_answered_when_it_is_time_and_in_its_order() -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect()
        whole = asked(b"/prompt", b"Content-Length: 3", method=b"POST", body=b"tea")
        writer.write(whole + asked(b"/next") + asked(b"/prompt", b"Content-Length: 3", method=b"POST"))
        async with asyncio.timeout(PATIENCE_S):
            while not stage.app.taken:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            (exchange,) = stage.app.taken
            assert exchange.body == b"tea"
            exchange.answer(201, ((b"content-length", b"2"),), b"ok")
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 201")
            assert (await reader.readuntil(b"|")).endswith(b"GET /next|")
            writer.write(b"tea")  # this one was not whole when its turn came
            assert (await reader.readuntil(b"|tea")).endswith(b"POST /prompt|tea")
        writer.close()

    played(story)


def test_a_server_that_ends_waits_for_what_was_taken_at_once() -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect()
        _, idle = await stage.connect()
        writer.write(asked(b"/prompt"))
        async with asyncio.timeout(PATIENCE_S):
            while not stage.app.taken:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            stage.server.should_exit = True
            while len(stage.server.server_state.connections) > 1:  # noqa: ASYNC110  the idle one is ended
                await asyncio.sleep(0.01)
            stage.app.taken[0].answer(200, ((b"content-length", b"2"),), b"ok")
            assert (await reader.read()).endswith(b"ok")
        writer.close()
        idle.close()

    played(story)


def test_who_has_gone_before_his_answer_harms_nobody() -> None:
    async def story(stage: Stage) -> None:
        _, writer = await stage.connect()
        writer.write(asked(b"/prompt"))
        async with asyncio.timeout(PATIENCE_S):
            while not stage.app.taken:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            writer.transport.abort()
            while not stage.app.taken[0].is_gone:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        stage.app.taken[0].answer(200, ((b"content-length", b"2"),), b"ok")
        assert (await stage.ask(asked(b"/", LAST))).endswith(b"GET /|")

    played(story)
