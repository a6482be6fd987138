"""JSON calls over real sockets."""

import asyncio
import ssl

import pytest
from aiohttp import web

from peik.core.outcome import NetworkFault, Reply
from peik.core.token import Token
from peik.errors import BadInput
from peik.telegram.client import BotApiCarrier
from peik.telegram.port import Carrier, Request
from tests.telegram.conftest import Run
from tests.telegram.peers import OK, SECRET, TOKEN, answering, call, carrier_to, peer, read_request


def test_a_call_is_one_plain_post_with_its_parameters_untouched(run: Run) -> None:
    async def story() -> None:
        seen: list[tuple[bytes, bytes]] = []

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(await read_request(reader))
            writer.write(OK)
            await reader.read()

        async with peer(talk) as root, carrier_to(f"{root}/mirror/") as carrier:
            params = '{"text":"پیک",  "n":1e2}'.encode()
            assert await carrier.carry(call(params, method="sendMessage")) == Reply(status=200, body=b'{"ok":true}')

        host = root.removeprefix("http://").encode()
        head = b"POST /mirror/bot42:%b/sendMessage HTTP/1.1\r\nHost: %b\r\n" % (SECRET.encode(), host)
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(params)
        assert seen == [(head, params)]

    run(story())


def test_a_method_cannot_smuggle_a_header_in(run: Run) -> None:
    async def story() -> None:
        heads: list[bytes] = []

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append((await read_request(reader))[0])
            writer.write(OK)
            await reader.read()

        async with peer(talk) as root, carrier_to(root) as carrier:
            await carrier.carry(call(method="test/get Me\r\nX: y"))
        assert heads[0].startswith(b"POST /bot42:%b/test/get%%20Me%%0D%%0AX%%3A%%20y HTTP/1.1\r\n" % SECRET.encode())

    run(story())


def test_a_well_behaved_server_gets_many_calls_over_few_connections(run: Run) -> None:
    async def story() -> None:
        peers = set()

        async def echo(request: web.Request) -> web.Response:
            assert request.transport is not None
            peers.add(request.transport.get_extra_info("peername"))
            return web.json_response(await request.json())

        app = web.Application()
        app.router.add_post("/bot{token}/{method}", echo)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with carrier_to(f"http://127.0.0.1:{runner.addresses[0][1]}", connections_max=5) as carrier:
            replies = await asyncio.gather(*(carrier.carry(call(b'{"n": %d}' % n)) for n in range(200)))
        await runner.cleanup()

        assert [reply.body for reply in replies] == [b'{"n": %d}' % n for n in range(200)]
        assert len(peers) <= 5

    run(story())


def test_the_most_recently_used_connection_is_taken_first(run: Run) -> None:
    async def story() -> None:
        async with peer(answering(OK)) as root, carrier_to(root) as carrier:
            await asyncio.gather(*(carrier.carry(call()) for _ in range(3)))
            last = carrier._idle[-1]
            carrier.start(call(), lambda _: None)
            assert last.exchange is not None

    run(story())


def test_done_is_called_by_the_loop_and_never_by_start(run: Run) -> None:
    async def story() -> None:
        replies: list[Reply] = []
        async with peer(answering(OK)) as root, carrier_to(root) as carrier:
            await carrier.carry(call())
            carrier.start(call(), replies.append)
            assert replies == []
        carrier.start(call(), replies.append)
        assert [reply.fault for reply in replies] == [NetworkFault.RESET]
        await asyncio.sleep(0)
        assert [reply.fault for reply in replies] == [NetworkFault.RESET, NetworkFault.NOT_TRIED]

    run(story())


def test_a_surprise_in_done_harms_no_other_request(run: Run) -> None:
    async def story() -> None:
        surprises: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: surprises.append(str(context["exception"])))
        async with peer(answering(OK)) as root, carrier_to(root, connections_max=1) as carrier:

            def fail(_: Reply) -> None:
                raise RuntimeError("a bug of the caller")

            carrier.start(call(), fail)
            assert [(await carrier.carry(call())).status for _ in range(3)] == [200] * 3
        assert surprises == ["a bug of the caller"]

    run(story())


def test_an_answer_before_the_whole_request_was_sent_is_taken(run: Run) -> None:
    async def story() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\n\r\n")
            await reader.read()

        async with peer(talk) as root, carrier_to(root) as carrier:
            large = b'{"text":"%b"}' % (b"x" * 16_000_000)
            assert await carrier.carry(call(large)) == Reply(status=413)
            assert carrier._idle == [], "the rest of the body would follow on this connection"

    run(story())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\n" + b'{"ok":true}',
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b'{"ok":true}',
        b"HTTP/1.0 200 OK\r\ncontent-length: 11\r\n\r\n" + b'{"ok":true}',
    ],
    ids=["1.0", "close", "1.0 with length"],
)
def test_an_answer_may_end_with_its_connection(run: Run, answer: bytes) -> None:
    async def story() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(answer)

        async with peer(talk) as root, carrier_to(root) as carrier:
            for _ in range(3):
                assert await carrier.carry(call()) == Reply(status=200, body=b'{"ok":true}')

    run(story())


def test_calls_go_over_tls_and_keep_their_connection(
    run: Run, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def story() -> None:
        connections = 0

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await answering(OK)(reader, writer)

        async with peer(talk, tls=server_tls) as root, carrier_to(root, ssl_context=client_tls) as carrier:
            assert [(await carrier.carry(call())).status for _ in range(50)] == [200] * 50
        assert connections == 1

    run(story())


def test_the_cache_of_heads_is_bounded_and_never_mixes_bots(run: Run) -> None:
    async def story() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                head, _ = await read_request(reader)
                path = head.split(b" ")[1]
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))

        async with peer(talk) as root, carrier_to(root) as carrier:
            for _ in range(2):
                for bot in (1, 2):
                    request = Request(token=Token(f"{bot}:{SECRET}"), method="getMe", params=b"{}", timeout_s=60)
                    assert (await carrier.carry(request)).body == b"/bot%d:%b/getMe" % (bot, SECRET.encode())
            for number in range(5_000):
                carrier._head(call(method=f"method{number}"))
            assert len(carrier._heads) <= 4_096

    run(story())


@pytest.mark.parametrize(
    "api_root",
    ["", "api.telegram.org", "ftp://host", "http://", "http://host:0", "http://h:x", "http://[::1", "http://ی..ک"],
)
def test_an_api_root_that_is_no_url_is_the_callers_mistake(run: Run, api_root: str) -> None:
    async def story() -> None:
        with pytest.raises(BadInput):
            BotApiCarrier(api_root)

    run(story())


def test_no_repr_shows_a_token(run: Run) -> None:
    async def story() -> None:
        async with peer(answering(OK)) as root, carrier_to(root) as carrier:
            port: Carrier = carrier
            carrier.start(call(), lambda _: None)
            exchange = carrier._waiting[0]
            assert SECRET not in repr((port, call(), TOKEN, exchange, carrier._root))
            await carrier.carry(call())
            assert SECRET not in repr((carrier._idle, carrier._connections))

    run(story())


def test_who_fails_on_an_answer_fails_alone(run: Run) -> None:
    async def story() -> None:
        connections = 0
        told: list[str] = []

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            while True:
                await read_request(reader)
                writer.write(OK)

        def fail(reply: Reply) -> None:
            raise RuntimeError(f"a surprise after {reply.status}")

        loop = asyncio.get_running_loop()
        async with peer(talk) as root, carrier_to(root) as carrier:
            has_told = asyncio.Event()

            def tell(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
                told.append(str(context["exception"]))
                has_told.set()

            before = loop.get_exception_handler()
            loop.set_exception_handler(tell)
            carrier.start(call(), fail)
            await has_told.wait()
            loop.set_exception_handler(before)
            assert (await carrier.carry(call())).status == 200
        assert (told, connections) == (["a surprise after 200"], 1)

    run(story())
