"""Messages to webhooks over real sockets: what is sent, what counts of the answer, and whom Peik refuses to speak to."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from peik.outbox.store import Posted
from peik.telegram.push import HttpPoster
from tests.patience import PATIENCE_S
from tests.telegram.conftest import Run
from tests.telegram.peers import Talk, answering, peer, read_request

HEADERS = {"webhook-id": "msg_1", "webhook-timestamp": "5", "webhook-signature": "v1,abc="}


async def post(url: str, *, timeout_s: float = PATIENCE_S, body: bytes = b"{}", **settings: Any) -> Posted:
    return await HttpPoster(**{"may_be_private": True, **settings}).post(url, HEADERS, body, timeout_s=timeout_s)


def test_one_request_with_the_headers_and_the_body_as_given(run: Run) -> None:
    async def story() -> None:
        heard: list[tuple[bytes, bytes]] = []

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await read_request(reader))
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

        async with peer(talk) as root:
            assert await post(f"{root}/hook/%20?a=b", body="سلام".encode()) == Posted(status=204)
            ((head, body),) = heard
            lines = head.decode().split("\r\n")
            assert lines[:2] == ["POST /hook/%20?a=b HTTP/1.1", f"Host: {root.removeprefix('http://')}"]
            assert {"webhook-id: msg_1", "webhook-timestamp: 5", "webhook-signature: v1,abc="} <= set(lines)
            assert body == "سلام".encode()

    run(story())


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", 202),
        (b"HTTP/1.0 410 Gone\r\n\r\nwithout a length", 410),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", 302),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\ncut off", 200),
        (b"SSH-2.0-OpenSSH_9.2\r\n", 0),
        (b"", 0),
    ],
)
def test_the_status_counts_and_nothing_else(run: Run, answer: bytes, status: int) -> None:
    async def story() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(answer)

        async with peer(talk) as root:
            posted = await post(f"{root}/")
            assert posted.status == status
            assert posted.why or status

    run(story())


def test_an_endless_answer_is_cut_off(run: Run) -> None:
    async def story() -> None:
        for head, status in ((b"HTTP/1.1 200 OK\r\n\r\n", 200), (b"HTTP/1.1 200 OK\r\nX-Endless: ", 0)):

            async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes = head) -> None:
                await read_request(reader)
                writer.write(head)
                while True:
                    writer.write(b"x" * 65536)
                    await writer.drain()

            async with peer(talk) as root:
                assert (await post(f"{root}/")).status == status

    run(story())


def test_a_receiver_that_hangs_is_given_up_with_what_it_had_said(run: Run) -> None:
    async def story() -> None:
        for said, status, timeout_s in ((b"", 0, 0.1), (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, 1)):

            async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytes = said) -> None:
                await read_request(reader)
                writer.write(said)
                await reader.read()  # until the other side is gone

            async with peer(talk) as root:
                why = f"no answer within {timeout_s} s"
                assert await post(f"{root}/", timeout_s=timeout_s) == Posted(status=status, why=why)

    run(story())


def test_nobody_there(run: Run) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        posted = await post(f"http://127.0.0.1:{port}/")
        assert posted.status == 0
        assert "no connection" in posted.why
        assert (await post("http://no-such-host.invalid/")).status == 0

    run(story())


def test_tls_is_checked_against_the_name(run: Run, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    async def story() -> None:
        async with peer(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), tls=server_tls) as root:
            assert (await post(f"{root}/", ssl_context=client_tls)).status == 200
            assert (await post(f"{root}/")).status == 0  # signed by nobody that the world trusts
            other = root.replace("localhost", "127.0.0.1")
            assert (await post(f"{other}/", ssl_context=client_tls)).status == 0

    run(story())


# ---- whom Peik refuses to speak to ----


@contextlib.asynccontextmanager
async def canary() -> AsyncIterator[tuple[int, list[object]]]:
    """A server that must hear nothing, on every loopback address; its port, and who came."""
    came: list[object] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer.get_extra_info("peername"))

    async with _listening(talk) as port:
        yield port, came


@contextlib.asynccontextmanager
async def _listening(talk: Talk) -> AsyncIterator[int]:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(closing, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def test_every_way_to_write_this_machine_is_refused_after_resolution(run: Run) -> None:
    async def story() -> None:
        hosts = ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0.0.0.0", "[::1]")
        hosts += ("[::ffff:127.0.0.1]", "[::]", socket.gethostname(), "169.254.169.254", "10.0.0.1", "[fe80::1]")
        async with canary() as (port, came):
            for host in hosts:
                posted = await post(f"http://{host}:{port}/", may_be_private=False, timeout_s=2.0)
                assert posted.status == 0, host
            assert "open internet" in (await post(f"http://2130706433:{port}/", may_be_private=False)).why
            assert came == []
            assert (await post(f"http://2130706433:{port}/")).status == 0  # the canary says nothing,
            assert len(came) == 1  # but hears those who may come: it does sing

    run(story())


def resolving(*turns: str) -> tuple[Any, list[str]]:
    """A resolver whose owner changes the answer each time, as in a rebinding attack."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[Any]:
        asked.append(host)
        address = turns[min(len(asked), len(turns)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (one, port)) for one in address.split()]

    return resolve, asked


def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_the_one_that_is_spoken_to(run: Run) -> None:
    async def story() -> None:
        async with canary() as (port, came):
            # 192.0.2.1 would be refused; 203.0.114.1 is public, and nobody answers there within the time.
            resolve, asked = resolving("203.0.114.1", "127.0.0.1")
            posted = await post(f"http://trap.example:{port}/", may_be_private=False, resolve=resolve, timeout_s=0.3)
            assert (posted.status, asked, came) == (0, ["trap.example"], [])

    run(story())


def test_of_several_addresses_only_the_public_ones_are_tried(run: Run) -> None:
    async def story() -> None:
        async with canary() as (port, came):
            for answer in ("127.0.0.1 203.0.114.1", "127.0.0.1 10.0.0.1"):
                resolve, _ = resolving(answer)
                await post(f"http://trap.example:{port}/", may_be_private=False, resolve=resolve, timeout_s=0.3)
            assert came == []

    run(story())
