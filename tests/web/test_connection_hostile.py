"""What somebody sends who wants two programs to read two things: our own server reads one, and answers it in its place."""

import asyncio
import contextlib
import gc
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from peik.web.connection import HEAD_BYTES_MAX, PIECES_MAX, WAITING_MAX, ServerExchange
from peik.web.server import HEAD_S_MAX, GuardedProtocol, sweep
from tests.patience import PATIENCE_S
from tests.web.test_connection import LAST, Application, Receive, Send, Stage, asked, played

OFFER = (b"Connection: Upgrade", b"Upgrade: h2c")
HIDDEN = asked(b"/hidden")


def bodies(heard: bytes) -> list[bytes]:
    return [one.partition(b"\r\n\r\n")[2] for one in heard.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("is_apart", [False, True])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_the_body_of_a_request_that_offers_another_protocol_is_no_request(is_apart: bool, is_chunked: bool) -> None:
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(HIDDEN)
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN) if is_chunked else HIDDEN

    async def story(stage: Stage) -> None:
        head = asked(b"/first?a=b", *OFFER, length, method=b"POST")
        reader, writer = await stage.connect()
        async with asyncio.timeout(PATIENCE_S):
            if is_apart:
                writer.write(head)
                while not stage.app.scopes:  # noqa: ASYNC110  nobody tells a test that the head was read
                    await asyncio.sleep(0.01)
                head = b""
            writer.write(head + body + asked(b"/second", *OFFER) + asked(b"/third", *OFFER) + asked(b"/last", LAST))
            heard = await reader.read()
        writer.close()
        assert bodies(heard) == [b"POST /first|" + HIDDEN, b"GET /second|", b"GET /third|", b"GET /last|"]
        assert stage.app.scopes[0]["query_string"] == b"a=b"

    played(story)


def test_an_offer_that_comes_byte_by_byte_is_read_as_one_that_comes_whole() -> None:
    async def story(stage: Stage) -> None:
        said = asked(b"/first", *OFFER, b"Content-Length: 3", method=b"POST", body=b"tea") + asked(b"/last", LAST)
        heard = await stage.ask(*[said[at : at + 1] for at in range(len(said))])
        assert bodies(heard) == [b"POST /first|tea", b"GET /last|"]

    played(story)


CHUNKED = b"Transfer-Encoding: chunked"


def test_what_stands_after_a_body_is_no_header() -> None:
    async def story(stage: Stage) -> None:
        body = b"3\r\ntea\r\n0\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n"
        heard = await stage.ask(asked(b"/first", CHUNKED, method=b"POST", body=body) + asked(b"/last", LAST))
        assert bodies(heard) == [b"POST /first|tea", b"GET /last|"]
        assert [name for name, _ in stage.app.scopes[0]["headers"]] == [b"host", b"transfer-encoding"]

    played(story)


@pytest.mark.parametrize("beginning", [b"0\r\nX: ", b"0\r\n", b"3;x="])
def test_what_stands_beside_a_body_has_an_end(beginning: bytes) -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect()
        writer.write(asked(b"/until-gone", CHUNKED, method=b"POST", body=b"3\r\ntea\r\n" + beginning))
        async with asyncio.timeout(PATIENCE_S):
            await stage.app.gate.wait()
            for _ in range(64):
                writer.write(b"x" * (HEAD_BYTES_MAX // 16))
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()

    played(story)


def test_a_long_body_in_small_chunks_comes_in() -> None:
    async def story(stage: Stage) -> None:
        chunks = (b"3;x=y\r\ntea\r\n" * 1000 for _ in range(HEAD_BYTES_MAX // 3000))
        said = asked(b"/", CHUNKED, LAST, method=b"POST"), *chunks, b"0\r\nX: y\r\n\r\n"
        (body,) = bodies(await stage.ask(*said))
        assert body == b"POST /|" + b"tea" * 1000 * (HEAD_BYTES_MAX // 3000)

    played(story)


@pytest.mark.parametrize(("path", "said"), [(b"/stream", b"3\r\none\r\n"), (b"/nothing", b"")])
def test_a_request_that_breaks_after_its_answer_has_begun_gets_no_second_one(path: bytes, said: bytes) -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect()
        writer.write(asked(path, CHUNKED, method=b"POST"))
        async with asyncio.timeout(PATIENCE_S):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"no size\r\n")
            assert said.startswith(await reader.read())
        writer.close()
        stage.app.gate.set()

    played(story)


class Clumsy(Application):
    def take_at_once(self, exchange: ServerExchange) -> bool:
        if exchange.scope["path"] == "/clumsy":
            raise ZeroDivisionError
        return super().take_at_once(exchange)


@pytest.mark.parametrize("before", [b"", asked(b"/first")])
def test_a_surprise_while_a_request_is_taken_at_once_is_answered(before: bytes) -> None:
    async def story(stage: Stage) -> None:
        heard = await stage.ask(before + asked(b"/clumsy") + asked(b"/never"))
        assert bodies(heard) == [b"GET /first|"] * bool(before) + [b"Internal Server Error"]

    played(story, Clumsy)


class Hasty(Application):
    """Answers in its next turn what it has taken at once."""

    def take_at_once(self, exchange: ServerExchange) -> bool:
        self.taken.append(exchange)
        asyncio.get_running_loop().call_soon(exchange.answer, 200, ((b"content-length", b"65536"),), b"x" * 65536)
        return True

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        self.gate.set()
        await super().__call__(scope, receive, send)


def test_who_does_not_take_his_answers_gets_no_more_of_them() -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        many = 900
        writer.write(asked(b"/prompt") * many + asked(b"/last", LAST))
        async with asyncio.timeout(PATIENCE_S):
            await stage.app.gate.wait()  # one goes the usual way, in which it has to wait
            assert len(stage.app.taken) < many
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            while await reader.read(1 << 20):
                pass
        writer.close()
        assert len(stage.app.taken) + len(stage.app.scopes) == many + 1

    played(story, Hasty)


MARK: ContextVar[str] = ContextVar("mark", default="")


class Marked(Application):
    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        self.heard.append(MARK.get())
        MARK.set(scope["path"])
        await super().__call__(scope, receive, send)


def test_a_request_has_nothing_of_the_context_of_the_one_before() -> None:
    async def story(stage: Stage) -> None:
        await stage.ask(asked(b"/first") + asked(b"/second") + asked(b"/last", LAST))
        assert stage.app.heard == ["", "", ""]

    played(story, Marked)


def only(stage: Stage) -> GuardedProtocol:
    (connection,) = stage.server.server_state.connections
    assert isinstance(connection, GuardedProtocol)
    return connection


def test_half_a_head_behind_a_long_answer_is_not_late() -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect()
        writer.write(asked(b"/prompt") + asked(b"/second") + b"GET /last HT")
        async with asyncio.timeout(PATIENCE_S):
            while not stage.app.taken:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            connection = only(stage)
            connection.since -= 2 * HEAD_S_MAX  # so long it has taken already
            connection._paused_at -= 2 * HEAD_S_MAX
            sweep([connection], asyncio.get_running_loop().time())
            stage.app.taken[0].answer(200, ((b"content-length", b"2"),), b"ok")
            await reader.readuntil(b"GET /second|")
            while connection.is_paused:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            sweep([connection], asyncio.get_running_loop().time())
            writer.write(b"TP/1.1\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"GET /last|")
        writer.close()

    played(story)


@pytest.mark.parametrize("said", [b"", asked(b"/"), asked(b"/", LAST), asked(b"/until-gone"), b"no request\r\n\r\n"])
def test_a_connection_that_is_over_leaves_nothing_to_the_collector(said: bytes) -> None:
    async def story(stage: Stage) -> None:
        gc.disable()
        try:
            _, writer = await stage.connect()
            async with asyncio.timeout(PATIENCE_S):
                while not stage.server.server_state.connections:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                connection = weakref.ref(only(stage))
                writer.write(said)
                await writer.drain()
                writer.close()
                while connection() is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()

    played(story)


def test_a_packet_full_of_requests_is_answered_as_far_as_it_goes() -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect()
        writer.write(asked(b"/prompt"))
        async with asyncio.timeout(PATIENCE_S):
            while not stage.app.taken:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            only(stage).data_received(b"GET / HTTP/1.1\r\n\r\n" * WAITING_MAX * 3)  # as if they had come in one read
            stage.app.taken[0].answer(200, ((b"content-length", b"2"),), b"ok")
            heard = await reader.read()
        writer.close()
        assert bodies(heard) == [b"ok", *[b"GET /|"] * WAITING_MAX, b"Invalid HTTP request received."]

    played(story)


def test_a_body_in_tiny_pieces_is_kept_in_few() -> None:
    wire: Any = None  # nothing is written
    exchange = ServerExchange(wire, {"method": "POST"}, keeps=True, awaits_word=False, is_bare=False)
    pieces = [b"%02d" % (number % 100) for number in range(10_000)]
    for piece in pieces:
        exchange.take(piece)
        assert len(exchange._chunks) <= PIECES_MAX
    assert (exchange.body, exchange.held_bytes) == (b"".join(pieces), 20_000)


def test_an_old_client_is_not_told_to_go_on() -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect()
        writer.write(asked(b"/", b"Expect: 100-continue", b"Content-Length: 3", method=b"POST", version=b"1.0"))
        async with asyncio.timeout(PATIENCE_S):
            while not stage.app.scopes:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            writer.write(b"tea")
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()

    played(story)
