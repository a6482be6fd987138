"""Connections that the peer has closed must cost nothing: a request written to one would be uncertain for no reason."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from peik.core.outcome import NetworkFault, Reply
from peik.telegram.connect import direct
from peik.telegram.http import HttpConnection
from tests.patience import PATIENCE_S
from tests.telegram.conftest import Run
from tests.telegram.peers import OK, answering, call, carrier_to, peer, until, wait_for_fin


@contextlib.asynccontextmanager
async def listener() -> AsyncIterator[tuple[socket.socket, str]]:
    """A bare listening socket, so that a test closes exactly when it says, with no loop turn in between."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        yield listening, f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def accepting(listening: socket.socket, take: Callable[[socket.socket], None]) -> Iterator[None]:
    """Hand over each connection as it comes. `sock_accept`, cancelled in the turn in which it accepts, would lose the socket."""
    loop = asyncio.get_running_loop()

    def accept() -> None:
        with contextlib.suppress(BlockingIOError):
            accepted, _ = listening.accept()
            accepted.settimeout(0)
            take(accepted)

    loop.add_reader(listening, accept)
    try:
        yield
    finally:
        loop.remove_reader(listening)


async def serve(listening: socket.socket, *, answers: int, last: bytes = OK) -> socket.socket:
    """Accept one connection and answer so many requests on it."""
    loop = asyncio.get_running_loop()
    accepted, _ = await loop.sock_accept(listening)
    for number in range(answers):
        assert await loop.sock_recv(accepted, 65536)
        accepted.send(last if number == answers - 1 else OK)
    return accepted


@pytest.mark.parametrize("parting", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"], ids=["silent", "408"])
def test_a_close_that_only_the_kernel_knows_of_is_seen_before_writing(run: Run, parting: bytes) -> None:
    async def story() -> None:
        async with listener() as (listening, root), carrier_to(root) as carrier:
            first = asyncio.create_task(serve(listening, answers=1))
            assert (await carrier.carry(call())).status == 200
            accepted = await first
            second = asyncio.create_task(serve(listening, answers=1))

            # From here to `start` the loop does not run, so it cannot have read the FIN.
            accepted.send(parting)
            accepted.shutdown(socket.SHUT_WR)
            wait_for_fin(carrier)
            answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            carrier.start(call(), answer.set_result)

            assert await answer == Reply(status=200, body=b'{"ok":true}')
            accepted.settimeout(0)
            with contextlib.suppress(ConnectionResetError):
                assert accepted.recv(1) == b"", "nothing was written to the closed connection"
            accepted.close()
            (await second).close()

    run(story())


@pytest.mark.parametrize("is_only_announced", [False, True], ids=["closed", "close_notify"])
def test_a_close_over_tls_is_seen_before_writing(
    run: Run, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, is_only_announced: bool
) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.settimeout(PATIENCE_S)
            may_close, has_closed = threading.Event(), threading.Event()

            def serve_twice() -> None:
                with contextlib.ExitStack() as opened:
                    for _ in range(2):
                        accepted, _ = listening.accept()
                        secured = opened.enter_context(server_tls.wrap_socket(accepted, server_side=True))
                        secured.recv(65536)
                        secured.send(OK)
                        may_close.wait(PATIENCE_S)
                        secured.settimeout(0)
                        with contextlib.suppress(ssl.SSLWantReadError, OSError):
                            secured.unwrap()  # sends close_notify, and does not wait for the other's
                        if not is_only_announced:
                            secured.close()
                        has_closed.set()

            server = asyncio.create_task(asyncio.to_thread(serve_twice))
            root = f"https://localhost:{listening.getsockname()[1]}"
            async with carrier_to(root, ssl_context=client_tls) as carrier:
                assert (await carrier.carry(call())).status == 200
                may_close.set()
                has_closed.wait(PATIENCE_S)  # blocks the loop too, which therefore has not read the close
                wait_for_fin(carrier)
                assert (await carrier.carry(call())).status == 200
            await server

    run(story())


def test_a_peer_that_closes_every_few_requests_makes_none_uncertain(run: Run) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        connections = 0

        async def talk(accepted: socket.socket) -> None:
            with accepted:
                for _ in range(3):
                    if not await loop.sock_recv(accepted, 65536):
                        return
                    accepted.send(OK)
                # Answer and FIN reach the client in one turn of the loop: it has the FIN when it reads the answer.

        async with listener() as (listening, root), asyncio.TaskGroup() as talks:

            def take(accepted: socket.socket) -> None:
                nonlocal connections
                connections += 1
                talks.create_task(talk(accepted))

            with accepting(listening, take):
                async with carrier_to(root, connections_max=16) as carrier:
                    replies = await asyncio.gather(*(carrier.carry(call()) for _ in range(600)))

        assert {reply.status for reply in replies} == {200}
        assert connections >= 200

    run(story())


def test_a_connection_closed_while_idle_leaves_the_pool_at_once(run: Run) -> None:
    async def story() -> None:
        async with listener() as (listening, root), carrier_to(root) as carrier:
            serving = asyncio.create_task(serve(listening, answers=1))
            await carrier.carry(call())
            (await serving).close()
            await until(lambda: not carrier._connections)
            assert carrier._idle == []

    run(story())


def test_bytes_that_nobody_asked_for_end_an_idle_connection(run: Run) -> None:
    async def story() -> None:
        async with listener() as (listening, root), carrier_to(root) as carrier:
            serving = asyncio.create_task(serve(listening, answers=1))
            await carrier.carry(call())
            with await serving as accepted:
                accepted.send(OK)
                await until(lambda: not carrier._connections)
            assert carrier._idle == []

    run(story())


@pytest.mark.parametrize(
    ("settings", "header"),
    [({"idle_s_max": 0}, b""), ({}, b"Keep-Alive: timeout=1\r\n"), ({}, b"Connection: close\r\n")],
    ids=["ours", "keep-alive", "close"],
)
def test_a_connection_is_not_kept_longer_than_either_side_wants(
    run: Run, settings: dict[str, float], header: bytes
) -> None:
    async def story() -> None:
        answer = b"HTTP/1.1 200 OK\r\n%bContent-Length: 0\r\n\r\n" % header
        async with peer(answering(answer)) as root, carrier_to(root, **settings) as carrier:
            assert (await carrier.carry(call())).status == 200
            assert carrier._idle == []
            assert (await carrier.carry(call())).status == 200

    run(story())


def test_an_idle_connection_is_dropped_by_the_sweep_which_then_rests(run: Run) -> None:
    async def story() -> None:
        async with peer(answering(OK)) as root, carrier_to(root, idle_s_max=0.1) as carrier:
            await carrier.carry(call())
            assert carrier._sweeper is not None
            await until(lambda: carrier._sweeper is None)
            assert not carrier._connections

    run(story())


def test_a_peer_that_closes_every_new_connection_is_refusing(run: Run) -> None:
    async def story() -> None:
        async with listener() as (listening, root):
            through = direct(host="127.0.0.1", port=listening.getsockname()[1], ssl_context=None)

            async def connect_and_wait(
                loop: asyncio.AbstractEventLoop, factory: Callable[[], HttpConnection]
            ) -> tuple[asyncio.BaseTransport, HttpConnection]:
                transport, connection = await through(loop, factory)
                await until(lambda: transport.is_closing() or bool(connection._poll(0)))
                return transport, connection

            with accepting(listening, socket.socket.close):
                async with carrier_to(root, connect=connect_and_wait) as carrier:
                    replies = await asyncio.gather(*(carrier.carry(call()) for _ in range(3)))
        assert {(reply.fault, reply.left) for reply in replies} == {(NetworkFault.REFUSED, False)}

    run(story())
