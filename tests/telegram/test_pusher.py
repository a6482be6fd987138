"""Pushes over real sockets: what is sent, connections that stay, and what is made of every kind of end."""

import asyncio
import socket
import ssl
from functools import partial

import pytest

from peik.core.address import AddressReach
from peik.inbox.store import PushAnswer
from peik.telegram.connect import AddressInfo
from peik.telegram.push import HttpPusher
from tests.telegram.conftest import Run
from tests.telegram.peers import answering, peer, read_request

ANY = AddressReach.ANYWHERE
HEADERS = {"X-Telegram-Bot-Api-Secret-Token": "s3cret"}


def test_one_request_after_another_on_one_connection_with_the_whole_answer(run: Run) -> None:
    async def story() -> None:
        heard: list[tuple[bytes, bytes]] = []
        connections = 0

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            while True:
                heard.append(await read_request(reader))
                writer.write(b"HTTP/1.1 200 OK\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nwell")

        async with peer(talk) as root:
            pusher = HttpPusher()
            for body in ("سلام".encode(), b"{}"):
                pushed = await pusher.push(f"{root}/hook?a=b", HEADERS, body, timeout_s=60, reach=ANY)
                assert pushed == PushAnswer(status=200, body=b"well", retry_after_s=7, ip_address="127.0.0.1")
            await pusher.close()
        assert connections == 1
        lines = heard[0][0].decode().split("\r\n")
        assert lines[:2] == ["POST /hook?a=b HTTP/1.1", f"Host: {root.removeprefix('http://')}"]
        assert {"X-Telegram-Bot-Api-Secret-Token: s3cret", "Content-Type: application/json"} <= set(lines)
        assert [body for _, body in heard] == ["سلام".encode(), b"{}"]

    run(story())


def test_pushes_at_once_have_connections_of_their_own(run: Run) -> None:
    async def story() -> None:
        all_here = asyncio.Barrier(5)

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            await all_here.wait()
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

        async with peer(talk) as root:
            pusher = HttpPusher()
            pushed = await asyncio.gather(*(pusher.push(root, {}, b"{}", timeout_s=60, reach=ANY) for _ in range(5)))
            assert [one.status for one in pushed] == [204] * 5
            await pusher.close()

    run(story())


def test_a_kept_connection_that_was_closed_at_the_wrong_moment_costs_one_more_try_and_no_absence(run: Run) -> None:
    async def story() -> None:
        requests = 0

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            await read_request(reader)
            requests += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await read_request(reader)
            requests += 1  # it has the second request, and closes all the same

        async with peer(talk) as root:
            pusher = HttpPusher()
            assert [(await pusher.push(root, {}, b"{}", timeout_s=60, reach=ANY)).status for _ in range(2)] == [
                200,
                200,
            ]
            assert requests == 3
            await pusher.close()

    run(story())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "the bot closed the connection before it answered"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\ncut", "the bot closed the connection before it answered"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 2_500_000, "larger than"),
    ],
)
def test_what_is_no_answer_is_told_in_words(run: Run, answer: bytes, why: str) -> None:
    async def story() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(answer)

        async with peer(talk) as root:
            pusher = HttpPusher()
            pushed = await pusher.push(root, {}, b"{}", timeout_s=60, reach=ANY)
            assert pushed.status == 0
            assert why in pushed.why
            await pusher.close()

    run(story())


def test_a_bot_that_hangs_or_is_not_there_or_has_no_name(run: Run) -> None:
    async def story() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        pusher = HttpPusher()
        async with peer(talk) as root:
            assert (await pusher.push(root, {}, b"{}", timeout_s=0.1, reach=ANY)).why == "no answer within 0.1 s"
        assert "no connection" in (await pusher.push(root, {}, b"{}", timeout_s=60, reach=ANY)).why
        assert (
            "no connection"
            in (await pusher.push("http://no.such.host.invalid/", {}, b"{}", timeout_s=60, reach=ANY)).why
        )
        await pusher.close()

    run(story())


def test_over_tls_certificates_are_verified(run: Run, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    async def story() -> None:
        ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        async with peer(answering(ok), tls=server_tls) as root:
            trusting, strict = HttpPusher(ssl_context=client_tls), HttpPusher()
            assert (await trusting.push(root, {}, b"{}", timeout_s=60, reach=ANY)).status == 200
            assert (await strict.push(root, {}, b"{}", timeout_s=60, reach=ANY)).status == 0
            await trusting.close()
            await strict.close()

    run(story())


FORMS = ["127.0.0.1", "::1", "10.1.2.3", "169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "fe80::1", "0.0.0.0"]


@pytest.mark.parametrize("address", FORMS)
def test_a_name_that_leads_inside_is_not_called_unless_it_may(run: Run, address: str) -> None:
    async def story() -> None:
        heard: list[bytes] = []

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append((await read_request(reader))[0])
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

        async with peer(talk) as root:
            port = int(root.rpartition(":")[2])

            async def resolve(host: str, asked: int) -> list[AddressInfo]:
                """A name of the open internet, in the hands of somebody who means ill."""
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                return [(family, socket.SOCK_STREAM, 0, "", (address, port))]

            pusher = HttpPusher(resolve=resolve)
            ask = partial(pusher.push, "http://bot.example/", HEADERS, b"{}", timeout_s=5)
            if address == "127.0.0.1":
                assert (
                    await ask(reach=AddressReach.INSIDE)
                ).status == 204  # by the owner's bot; the connection stays open
            heard.clear()
            pushed = await ask(reach=AddressReach.PUBLIC)
            assert (pushed.status, "PEIK_PUSHES_ALLOW_PRIVATE" in pushed.why) == (0, True)
            if address in ("169.254.169.254", "fe80::1"):
                assert (await ask(reach=AddressReach.INSIDE)).status == 0
            assert heard == []
            await pusher.close()

    run(story())
