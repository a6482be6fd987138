"""How the network fails, and whether bytes had left."""

import asyncio
import contextlib
import errno
import gc
import socket
import ssl
import struct
import warnings

import pytest

from peik.core.outcome import NetworkFault, Reply
from peik.telegram.client import CONNECTS_MAX, WAITING_MAX
from peik.telegram.connect import direct, first_to_answer, interleaved
from peik.telegram.http import HttpConnection
from tests.patience import PATIENCE_S
from tests.telegram.conftest import Run
from tests.telegram.peers import OK, SECRET, Talk, answering, call, carrier_to, peer, read_request, until


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def speaking_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await reader.read()


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_a_port_where_nobody_listens_is_refused_and_nothing_left(run: Run) -> None:
    async def story() -> None:
        async with carrier_to(f"http://127.0.0.1:{unused_port()}") as carrier:
            reply = await carrier.carry(call())
        assert (reply.fault, reply.left, reply.status) == (NetworkFault.REFUSED, False, 0)
        assert reply.detail
        assert SECRET not in reply.detail

    run(story())


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), NetworkFault.DNS),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), NetworkFault.DNS),
        (UnicodeError("label too long"), NetworkFault.DNS),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), NetworkFault.REFUSED),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), NetworkFault.REFUSED),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), NetworkFault.UNREACHABLE),
        (OSError(errno.EHOSTUNREACH, "No route to host"), NetworkFault.UNREACHABLE),
        (OSError(errno.EMFILE, "Too many open files"), NetworkFault.UNREACHABLE),
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), NetworkFault.CONNECT_TIMEOUT),
        (ssl.SSLCertVerificationError("certificate has expired"), NetworkFault.TLS),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_each_way_of_not_connecting_has_its_word_and_nothing_left(
    run: Run, error: Exception, fault: NetworkFault
) -> None:
    async def story() -> None:
        async def connect(*_: object) -> object:
            raise error

        async with carrier_to("http://nowhere.invalid", connect=connect) as carrier:
            reply = await carrier.carry(call())
        assert (reply.fault, reply.left) == (fault, False)

    run(story())


def test_a_name_that_cannot_be_one_fails_as_dns(run: Run) -> None:
    async def story() -> None:
        async with carrier_to(f"http://{'x' * 64}.invalid") as carrier:
            assert (await carrier.carry(call())).fault is NetworkFault.DNS

    run(story())


def test_a_connect_that_hangs_ends_by_its_own_shorter_time(run: Run) -> None:
    async def story() -> None:
        async def connect(*_: object) -> object:
            return await asyncio.Event().wait()

        async with carrier_to("http://127.0.0.1", connect=connect, connect_timeout_s=0.01) as carrier:
            reply = await carrier.carry(call(timeout_s=60))
        assert (reply.fault, reply.left) == (NetworkFault.CONNECT_TIMEOUT, False)

    run(story())


def test_a_request_whose_time_ends_while_connecting_has_not_left(run: Run) -> None:
    async def story() -> None:
        async def connect(*_: object) -> object:
            return await asyncio.Event().wait()

        async with carrier_to("http://127.0.0.1", connect=connect) as carrier:
            reply = await carrier.carry(call(timeout_s=0.01))
        assert (reply.fault, reply.left) == (NetworkFault.CONNECT_TIMEOUT, False)

    run(story())


def test_a_request_whose_time_ends_behind_busy_connections_has_not_left(run: Run) -> None:
    async def story() -> None:
        async with peer(silent) as root, carrier_to(root, connections_max=1) as carrier:
            busy = asyncio.create_task(carrier.carry(call(timeout_s=60)))
            await until(lambda: bool(carrier._connections))
            reply = await carrier.carry(call(timeout_s=0.01))
            assert (reply.fault, reply.left) == (NetworkFault.NOT_TRIED, False)
        assert (await busy).left

    run(story())


def test_no_answer_in_time_is_a_timeout_and_bytes_had_left(run: Run) -> None:
    async def story() -> None:
        has_both = asyncio.Barrier(2)

        async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            await has_both.wait()  # else the second call may go over the first connection
            writer.write(OK)
            await reader.read()

        async with peer(once) as root, carrier_to(root) as carrier:
            both = await asyncio.gather(carrier.carry(call()), carrier.carry(call()))
            assert [one.status for one in both] == [200, 200]
            patient = asyncio.create_task(carrier.carry(call(timeout_s=30)))
            await until(lambda: len(carrier._idle) == 1)
            reply = await carrier.carry(call(timeout_s=0.01))  # on a connection that is there: it leaves at once
            assert (reply.fault, reply.left) == (NetworkFault.TIMEOUT, True)
            assert not patient.done()
            assert carrier._idle == [], "its answer could still come, and be taken for another's"
        assert (await patient).left

    run(story())


def test_a_loop_that_was_held_up_reads_before_it_gives_up(run: Run) -> None:
    async def story() -> None:
        async with peer(answering(OK)) as root, carrier_to(root) as carrier:
            await carrier.carry(call())
            answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            carrier.start(call(timeout_s=0.0), answer.set_result)
            carrier._sweep_due_at -= 5  # as if the sweep that is due now came five seconds late
            assert carrier._sweeper is not None
            carrier._sweeper.cancel()
            carrier._sweep()
            assert (await answer).status == 200

    run(story())


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"", NetworkFault.RESET),
        (b"HTTP/1.1 20", NetworkFault.RESET),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + b'{"ok"', NetworkFault.RESET),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + b'{"ok"\r\n', NetworkFault.RESET),
        (b"SSH-2.0-OpenSSH_9.2\r\n", NetworkFault.GARBLED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", NetworkFault.GARBLED),
    ],
    ids=["none", "cut head", "cut body", "cut chunks", "another protocol", "bad length"],
)
def test_an_answer_that_is_none_leaves_the_request_uncertain(run: Run, answer: bytes, fault: NetworkFault) -> None:
    async def story() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(answer)

        async with peer(talk) as root, carrier_to(root) as carrier:
            reply = await carrier.carry(call())
        assert (reply.fault, reply.left, reply.status) == (fault, True, 0)
        assert reply.detail
        assert SECRET not in reply.detail

    run(story())


def test_a_reset_in_the_middle_leaves_the_request_uncertain(run: Run) -> None:
    async def story() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            peer_socket = writer.get_extra_info("socket")
            peer_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close sends RST
            writer.transport.abort()

        async with peer(talk) as root, carrier_to(root) as carrier:
            reply = await carrier.carry(call())
        assert (reply.fault, reply.left) == (NetworkFault.RESET, True)

    run(story())


def test_an_untrusted_certificate_is_a_tls_fault_and_nothing_left(run: Run, server_tls: ssl.SSLContext) -> None:
    async def story() -> None:
        async with peer(answering(OK), tls=server_tls) as root, carrier_to(root) as carrier:
            reply = await carrier.carry(call())
        assert (reply.fault, reply.left) == (NetworkFault.TLS, False)

    run(story())


def test_a_certificate_for_another_name_is_a_tls_fault(
    run: Run, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def story() -> None:
        async with peer(answering(OK), tls=server_tls) as root:
            async with carrier_to(root.replace("localhost", "127.0.0.1"), ssl_context=client_tls) as carrier:
                reply = await carrier.carry(call())
            assert (reply.fault, reply.left) == (NetworkFault.TLS, False)

    run(story())


@pytest.mark.parametrize(
    ("talk", "fault"),
    [(closing, NetworkFault.TLS), (speaking_plainly, NetworkFault.TLS), (silent, NetworkFault.CONNECT_TIMEOUT)],
)
def test_a_peer_that_does_not_finish_the_handshake_got_nothing(run: Run, talk: Talk, fault: NetworkFault) -> None:
    async def story() -> None:
        async with peer(talk) as plain:
            connect_timeout_s = 0.05 if talk is silent else PATIENCE_S
            root = plain.replace("http:", "https:")
            async with carrier_to(root, connect_timeout_s=connect_timeout_s) as carrier:
                reply = await carrier.carry(call())
        assert (reply.fault, reply.left) == (fault, False)

    run(story())


def test_a_dead_host_draws_few_connects_and_everyone_waiting_learns_at_once(run: Run) -> None:
    async def story() -> None:
        under_way, most, total = 0, 0, 0
        may_fail = asyncio.Event()

        async def connect(*_: object) -> object:
            nonlocal under_way, most, total
            total += 1
            under_way += 1
            most = max(most, under_way)
            await may_fail.wait()
            under_way -= 1
            raise OSError(errno.EHOSTUNREACH, "No route to host")

        async with carrier_to("http://127.0.0.1", connect=connect) as carrier:
            calls = [asyncio.create_task(carrier.carry(call(timeout_s=60))) for _ in range(1_000)]
            await until(lambda: under_way == CONNECTS_MAX)
            may_fail.set()
            replies = await asyncio.gather(*calls)
        assert {(reply.fault, reply.left) for reply in replies} == {(NetworkFault.UNREACHABLE, False)}
        assert most == CONNECTS_MAX
        # Those who queued after the first eight attempts had begun need one more.
        assert total <= 2 * CONNECTS_MAX

    run(story())


def test_one_failed_connect_fails_nobody_while_another_is_under_way(run: Run) -> None:
    async def story() -> None:
        async with peer(answering(OK)) as root:
            through = direct(host="127.0.0.1", port=int(root.rpartition(":")[2]), ssl_context=None)
            tries = 0

            async def connect(loop: asyncio.AbstractEventLoop, factory: object) -> object:
                nonlocal tries
                tries += 1
                if tries == 1:
                    raise ConnectionRefusedError
                return await through(loop, factory)  # type: ignore[arg-type]

            async with carrier_to(root, connect=connect) as carrier:
                replies = await asyncio.gather(*(carrier.carry(call()) for _ in range(5)))
            assert [reply.status for reply in replies] == [200] * 5

    run(story())


def test_a_peer_that_wants_no_more_connections_still_serves_those_who_wait(run: Run) -> None:
    async def story() -> None:
        async with peer(answering(OK)) as root:
            through = direct(host="127.0.0.1", port=int(root.rpartition(":")[2]), ssl_context=None)
            opened: list[HttpConnection] = []

            async def connect(loop: asyncio.AbstractEventLoop, factory: object) -> object:
                if opened:
                    raise ConnectionRefusedError
                found = await through(loop, factory)  # type: ignore[arg-type]
                opened.append(found[1])
                return found

            async with carrier_to(root, connect=connect) as carrier:
                await carrier.carry(call())
                replies = await asyncio.gather(*(carrier.carry(call()) for _ in range(50)))
            assert [reply.status for reply in replies] == [200] * 50

    run(story())


@pytest.mark.parametrize("is_silent", [False, True], ids=["refusing", "silent"])
def test_a_host_with_a_dead_address_is_reached_by_another(run: Run, is_silent: bool) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as opened:
            living = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            dead = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            where = dead.getsockname()
            if is_silent:
                opened.enter_context(socket.create_connection(where))  # its backlog is full: it answers no one
            else:
                dead.close()
            addresses = await loop.getaddrinfo(*where) + await loop.getaddrinfo(*living.getsockname())
            found = await first_to_answer(loop, [info for info in addresses if info[1] is socket.SOCK_STREAM])
            with found:
                assert found.getpeername() == living.getsockname()

    run(story())


@pytest.mark.parametrize("steps", range(8))
def test_who_is_cancelled_while_the_losers_end_loses_no_socket(run: Run, steps: int) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as opened:
            living = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            silent = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            opened.enter_context(socket.create_connection(silent.getsockname()))
            found = await loop.getaddrinfo(*silent.getsockname()) + await loop.getaddrinfo(*living.getsockname())
            dialling = loop.create_task(first_to_answer(loop, [one for one in found if one[1] is socket.SOCK_STREAM]))
            living.settimeout(0)
            opened.enter_context((await loop.sock_accept(living))[0])
            for _ in range(steps):
                await asyncio.sleep(0)
            dialling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await dialling).close()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run(story())
        gc.collect()
    assert [str(one.message) for one in told if one.category is ResourceWarning] == []


def test_the_families_of_a_host_take_turns() -> None:
    six = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", (f"2001:db8::{n}", 443, 0, 0)) for n in range(3)]
    four = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{n}", 443)) for n in range(2)]

    assert interleaved([*six, *four]) == [six[0], four[0], six[1], four[1], six[2]]


def test_the_queue_is_bounded_and_who_finds_it_full_has_not_left(run: Run) -> None:
    async def story() -> None:
        async def connect(*_: object) -> object:
            return await asyncio.Event().wait()

        replies: list[Reply] = []
        async with carrier_to("http://127.0.0.1", connect=connect) as carrier:
            for _ in range(WAITING_MAX):
                carrier.start(call(), replies.append)
            await asyncio.sleep(0)
            assert replies == []
            reply = await carrier.carry(call())
            assert (reply.fault, reply.left) == (NetworkFault.NOT_TRIED, False)
        assert len(replies) == WAITING_MAX

    run(story())
