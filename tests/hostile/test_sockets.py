"""Bytes on a real socket that are no HTTP, or two requests in one: nothing slips in behind them, and the server lives on."""

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peik.web.server import BODY_PAUSE_S_MAX, HEAD_S_MAX, sweep
from tests.hostile.offices import TOKEN, Resident, resident
from tests.patience import PATIENCE_S

EXAMPLES = int(os.environ.get("TEST_HOSTILE_EXAMPLES", "800")) // 4
PATH = f"/bot{TOKEN}/sendMessage".encode()
SEND = b'{"chat_id":66,"text":"smuggled"}'
HIDDEN = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    PATH,
    len(SEND),
    SEND,
)
OPEN = HIDDEN.replace(b'"chat_id":66', b'"chat_id":77')
LAST = OPEN.replace(b"Host: x", b"Connection: close")  # after its answer the server closes
WELL_FORMED = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def peik() -> Iterator[Resident]:
    with resident() as one:
        yield one
        assert one.surprises() == []
        assert one.crashes == []
        assert TOKEN.partition(":")[2] not in one.log.getvalue()


def say(peik: Resident, *pieces: bytes, patience_s: float = 0.3) -> bytes:
    """All that comes back until the server closes, or says nothing more."""
    heard = b""
    with socket.create_connection(("127.0.0.1", peik.port), timeout=patience_s) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            while data := connection.recv(65536):
                heard += data
        except (TimeoutError, ConnectionError):
            pass
    return heard


def say_and_leave(peik: Resident, said: bytes, *, patience_s: float = 0.3) -> bytes:
    """As above, once the server has dealt with all of it: what is left behind is not to be counted to the next one."""

    async def settled() -> None:
        state = peik.server.server_state
        while state.connections or state.tasks:  # noqa: ASYNC110  nobody tells a test of it
            await asyncio.sleep(0.001)

    heard = say(peik, said, patience_s=patience_s)
    peik.run(settled())
    return heard


def is_alive(peik: Resident) -> bool:
    return say(peik, WELL_FORMED, patience_s=PATIENCE_S).startswith(b"HTTP/1.1 200 ")


def statuses(heard: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3})[ \r]", heard)]


def smuggled(peik: Resident) -> list[str]:
    return peik.telegram.sent.texts(66)


def head(*lines: bytes, verb: bytes = b"POST", path: bytes = b"/v1/letters") -> bytes:
    return b"%b %b HTTP/1.1\r\nHost: x\r\n" % (verb, path) + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


# What one of two servers would take for the end of a request, and the other not: behind it stands a request that nobody
# may see as one of its own.
SMUGGLING = {
    "length and chunked": head(b"Content-Length: 4", b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + HIDDEN,
    "chunked and length": head(b"Transfer-Encoding: chunked", b"Content-Length: 4") + b"0\r\n\r\n" + HIDDEN,
    "two lengths": head(b"Content-Length: 0", b"Content-Length: %d" % len(HIDDEN)) + HIDDEN,
    "a list of lengths": head(b"Content-Length: 0, %d" % len(HIDDEN)) + HIDDEN,
    "a length with a plus": head(b"Content-Length: +0") + HIDDEN,
    "a length with letters": head(b"Content-Length: 0x0") + HIDDEN,
    "a length that is negative": head(b"Content-Length: -1") + HIDDEN,
    "a length beyond all numbers": head(b"Content-Length: " + b"9" * 30) + HIDDEN,
    "a space before the colon": head(b"Content-Length : 0", b"Content-Length: %d" % len(HIDDEN)) + HIDDEN,
    "a folded header": head(b"X-a: b", b" Content-Length: 0", b"Content-Length: %d" % len(HIDDEN)) + HIDDEN,
    "a folded encoding": head(b"Transfer-Encoding:", b" chunked", b"Content-Length: %d" % len(HIDDEN)) + HIDDEN,
    "chunked that is not last": head(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n" + HIDDEN,
    "nearly chunked": head(b"Transfer-Encoding: xchunked", b"Content-Length: 0") + HIDDEN,
    "chunked with a tab": head(b"Transfer-Encoding:\x0bchunked", b"Content-Length: 0") + HIDDEN,
    "a bare return": head(b"X: y\rContent-Length: 0", b"Content-Length: %d" % len(HIDDEN)) + HIDDEN,
    "bare line feeds": b"POST /v1/letters HTTP/1.1\nHost: x\nContent-Length: 0\nTransfer-Encoding: chunked\n\n" + HIDDEN,
    "a chunk larger than all numbers": head(b"Transfer-Encoding: chunked") + b"f" * 30 + b"\r\n" + HIDDEN,
    "a chunk with letters": head(b"Transfer-Encoding: chunked") + b"0x5\r\nhello\r\n0\r\n\r\n" + HIDDEN,
    "a chunk without its end": head(b"Transfer-Encoding: chunked") + b"2\r\nhello" + HIDDEN,
    "a nul in a header": head(b"X: a\0b", b"Content-Length: 0") + HIDDEN,
    "a line end in the path": head(path=b"/v1/stats\r\nContent-Length: 0\r\n\r\n") + HIDDEN[:30],
}  # fmt: skip


@pytest.mark.parametrize("shape", SMUGGLING)
def test_no_request_is_hidden_inside_another(peik: Resident, shape: str) -> None:
    """If the outer one is read at all, what is behind it must be read the only way that it can be read: whole, or not."""
    before = peik.letters()
    heard = say_and_leave(peik, SMUGGLING[shape])
    assert all(status < 500 for status in statuses(heard))
    assert is_alive(peik)
    assert (peik.letters() - before, smuggled(peik)) == (0, [])


def test_two_whole_requests_on_one_connection_are_two_requests(peik: Resident) -> None:
    """And so the test above can fail: the hidden request is one that works."""
    before = peik.letters()
    assert statuses(say(peik, OPEN + LAST, patience_s=PATIENCE_S)) == [200, 200]
    assert peik.letters() - before == 2


GARBAGE = {
    "nothing": b"",
    "noise": bytes(range(256)) * 20,
    "empty lines": b"\r\n" * 5000,
    "a TLS hello": bytes.fromhex("1603010200010001fc0303") + b"\x00" * 500,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 60,
    "HTTP/0.9": b"GET /health\r\n",
    "HTTP/9.9": b"GET /health HTTP/9.9\r\n\r\n",
    "half a line": b"POST /bot",
    "half a head": b"POST /v1/letters HTTP/1.1\r\nHost:",
    "half a body": head(b"Content-Length: 100") + b"x",
    "half a chunk": head(b"Transfer-Encoding: chunked") + b"ff\r\nx",
    "a path of bytes": b"GET /bot\xff\xfe/getMe HTTP/1.1\r\nHost: x\r\n\r\n",
    "a path of escapes": b"GET /bot%ff%00%2f%0d%0a/getMe HTTP/1.1\r\nHost: x\r\n\r\n",
    "a broken escape": b"GET /bot%/getMe?%=%zz HTTP/1.1\r\nHost: x\r\n\r\n",
    "no path": b"GET  HTTP/1.1\r\n\r\n",
    "an absolute path": b"GET http://elsewhere/health HTTP/1.1\r\nHost: x\r\n\r\n",
    "a tunnel": b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "an upgrade": b"GET /v1/stats HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n",
    "an upgrade to HTTP/2": b"GET /v1/stats HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n",
    "a verb of its own": b"BREW /v1/stats HTTP/1.1\r\n\r\n",
    "a verb without end": b"A" * 70_000,
    "headers of bytes": head(b"Authorization: Bearer \xff\xfe", b"X-Api-Key: \x80", verb=b"GET", path=b"/v1/stats"),
    "a thousand headers": head(*(b"x-%d: y" % number for number in range(1000)), verb=b"GET", path=b"/v1/stats"),
    "an expectation": head(b"Expect: 100-continue", b"Content-Length: 5"),
    "an expectation of its own": head(b"Expect: miracles", b"Content-Length: 0"),
}  # fmt: skip


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_refused_or_waited_for_and_others_are_served(peik: Resident, what: str) -> None:
    before = peik.letters()
    heard = say_and_leave(peik, GARBAGE[what], patience_s=0.2)
    assert all(100 <= status < 500 for status in statuses(heard)), heard[:200]
    assert is_alive(peik)
    assert peik.letters() == before


_whole = st.sampled_from(
    [OPEN, WELL_FORMED, head(b"Transfer-Encoding: chunked", path=PATH) + b"5\r\nhello\r\n0\r\n\r\n"]
)


@settings(max_examples=EXAMPLES, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_whole, st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=4)), min_size=1, max_size=4))
def test_a_request_with_any_bytes_changed_is_answered_or_refused(
    peik: Resident, whole: bytes, changes: list[tuple[int, bytes]]
) -> None:
    for at, put in changes:
        at %= len(whole)
        whole = whole[:at] + put + whole[at + 1 :]
    before = peik.letters()
    heard = say_and_leave(peik, whole + b"\r\n\r\n", patience_s=0.02)
    assert all(status < 500 for status in statuses(heard)), heard[:300]
    assert peik.letters() - before <= 1


def test_the_server_lives_on_after_all_of_this(peik: Resident) -> None:
    assert is_alive(peik)
    assert statuses(say(peik, LAST, patience_s=PATIENCE_S)) == [200]


SLOW = {
    "half a head": (b"POST %b HTTP/1.1\r\nHost: x\r\nX-a: " % PATH, HEAD_S_MAX),
    "half an upload": (
        head(b"Content-Type: multipart/form-data; boundary=b", b"Content-Length: 100000", path=PATH)
        + b'--b\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\n'
        + b"x" * 50_000,
        BODY_PAUSE_S_MAX,
    ),
}


@pytest.mark.parametrize("what", SLOW)
def test_a_client_that_stops_halfway_is_ended_in_time_and_leaves_no_file(peik: Resident, what: str) -> None:
    said, patience_s = SLOW[what]

    async def pass_time(seconds: float) -> None:
        sweep(peik.server.server_state.connections, peik._loop.time() + seconds)

    with socket.create_connection(("127.0.0.1", peik.port), timeout=PATIENCE_S) as connection:
        connection.sendall(said)
        while what == "half an upload" and not peik.spooled():
            assert is_alive(peik)
        peik.run(pass_time(patience_s - 5))
        assert is_alive(peik)
        peik.run(pass_time(patience_s + 5))
        with contextlib.suppress(ConnectionError):
            assert connection.recv(1) == b""
    while peik.spooled():
        assert is_alive(peik)
