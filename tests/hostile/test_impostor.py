"""Somebody who is not Telegram answers Peik: a bot behind the gateway still gets whole envelopes, and Peik lives on."""

import os
import socketserver
import threading
from collections.abc import Iterator
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peik.core.outcome import Reply
from peik.gateway.answers import of_reply
from peik.telegram.routes import CLOSED
from tests.hostile.offices import TOKEN, Resident, resident
from tests.patience import PATIENCE_S

EXAMPLES = int(os.environ.get("TEST_HOSTILE_EXAMPLES", "800")) // 8
ME = b'{"ok":true,"result":{"id":7000001,"is_bot":true,"first_name":"x","username":"x_bot"}}'


class Impostor(socketserver.ThreadingTCPServer):
    """An HTTP server that says the same to everybody."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.status, self.body, self.headers = 200, ME, b""
        self.asked = 0
        self.was_asked = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def is_asked_again(self, before: int) -> bool:
        return self.asked > before


class _Connection(socketserver.StreamRequestHandler):
    server: Impostor

    def handle(self) -> None:
        while line := self.rfile.readline():
            size = 0
            while line.strip():
                name, _, value = line.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
                line = self.rfile.readline()
            self.rfile.read(size)
            with self.server.was_asked:
                self.server.asked += 1
                self.server.was_asked.notify_all()
            said = (self.server.status, self.server.headers, len(self.server.body), self.server.body)
            self.wfile.write(b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n%b" % said)


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[Resident, Impostor]]:
    with Impostor() as impostor:
        threading.Thread(target=impostor.serve_forever, daemon=True).start()
        # One try for each letter: else tries of earlier ones are heard among the later ones, and two chats that are told to wait
        # silence the whole bot.
        with resident(api_root=impostor.url, gateway_wait="500ms", attempts="1") as peik:
            yield peik, impostor
            assert peik.surprises() == []
            assert peik.crashes == []
            assert "AAtest" not in peik.log.getvalue()
        impostor.shutdown()


async def _trust(peik: Resident) -> None:
    """Let the way to Telegram count as open: after some nonsense Peik would ask the impostor nothing more."""
    routes = peik.peik.outbox.courier.routes
    routes._is_open = False
    for route in routes._routes:
        route._breaker = CLOSED


def answer(peik: Resident, method: str, **params: object) -> None:
    peik.run(_trust(peik))
    body = msgspec.json.encode(params)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    heard = peik.ask("POST", f"/bot{TOKEN}/{method}", headers=headers, body=body)
    assert heard is not None
    assert 200 <= heard.status <= 599
    assert heard.headers["content-type"] == "application/json"
    assert b"something went wrong inside Peik" not in heard.body


BODIES = [
    b"", b"{}", b"null", b"[]", b"<html></html>", b"\xff\xfe", b'{"ok":true', b'{"ok":true}', b'{"ok":true,"result":}',
    b'{"ok":true,"result":"\xff"}', b'{"ok":true,"result":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"ok":true,"result":null}',

    b'{"ok":true,"result":{"id":7000001,"is_bot":true,"first_name":"\xff"}}',
    b'{"ok":false}', b'{"ok":false,"error_code":-5}', b'{"ok":false,"error_code":99,"description":"x"}', b'{"ok":"yes"}',
    b'{"ok":false,"error_code":200,"description":"x"}', b'{"ok":false,"error_code":1000}', b'{"ok":false,"x":' + b"[" * 5000,
    b'{"ok":false,"x":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"ok":false,"error_code":400,"description":"\\ud800"}',
    b'{"ok":false,"error_code":429,"parameters":{"retry_after":1e308}}', b'{"ok":false,"parameters":{"retry_after":-7}}',
    b'{"ok":false,"error_code":400,"parameters":{"migrate_to_chat_id":' + b"9" * 30 + b"}}", ME,
    b'{"ok":false,"error_code":400,"description":"Bad Request: group chat was upgraded to a supergroup chat","parameters":'
    b'{"migrate_to_chat_id":' + b"9" * 30 + b"}}",
]  # fmt: skip
STATUSES = [1, 200, 201, 204, 302, 400, 403, 409, 413, 418, 429, 500, 502, 599, 600, 999]


@settings(max_examples=4 * EXAMPLES, derandomize=True)
@given(st.sampled_from(STATUSES), st.sampled_from(BODIES) | st.binary(max_size=30))
def test_any_reply_to_what_goes_straight_through_becomes_a_whole_envelope(status: int, body: bytes) -> None:
    given = of_reply(Reply(status=status, body=body))
    assert 200 <= given.status <= 599
    if body.startswith(b'{"ok":true') and status == 200:
        return  # passed on byte for byte, as it came
    envelope = msgspec.json.decode(given.body, type=dict[str, msgspec.Raw])
    is_yes = bytes(envelope["ok"]) == b"true"
    assert is_yes is (given.status == 200) or status == 200, (
        "only a mirror that says 200 to everything may say no with it"
    )


@pytest.mark.parametrize("method", ["getMe", "sendMessage"])
def test_whatever_is_said_in_telegrams_place_peik_does_not_fail(stage: tuple[Resident, Impostor], method: str) -> None:
    """Said with 200, so that nothing is asked twice."""
    peik, impostor = stage
    for number, body in enumerate(BODIES):
        impostor.body, before = body, impostor.asked
        answer(peik, method, chat_id=number + 1, text="x")
        with impostor.was_asked:  # on a busy machine a send is answered for before it has left
            was_asked = impostor.was_asked.wait_for(partial(impostor.is_asked_again, before), PATIENCE_S)
        assert was_asked, "nobody asked the impostor"


OF_A_FILE = {"content-type": "text/html", "etag": '"1"', "cache-control": "max-age=60"}
NOT_OURS = {
    "content-security-policy": "default-src *",
    "x-content-type-options": "sniff",
    "referrer-policy": "unsafe-url",
    "strict-transport-security": "max-age=0",
    "set-cookie": "peik_session=planted; Path=/admin",
    "access-control-allow-origin": "*",
    "refresh": "0; url=https://elsewhere.example",
    "clear-site-data": "*",
    "x-frame-options": "ALLOWALL",
}


@pytest.mark.parametrize("asked", [(), ((b"range", b"bytes=0-3"),)])
def test_who_gives_a_file_says_nothing_in_our_name(
    stage: tuple[Resident, Impostor], asked: tuple[tuple[bytes, bytes], ...]
) -> None:
    peik, impostor = stage
    lines = [f"{name}: {value}\r\n" for name, value in (OF_A_FILE | NOT_OURS).items()]
    impostor.status, impostor.body, impostor.headers = 200, b"<script>", "".join(lines).encode()
    try:
        peik.run(_trust(peik))
        heard = peik.ask("GET", f"/file/bot{TOKEN}/documents/{len(asked)}.html", headers=asked)
    finally:
        impostor.status, impostor.body, impostor.headers = 200, ME, b""
    assert heard is not None
    assert (heard.status, heard.body) == (200, b"<script>")
    assert OF_A_FILE.items() <= heard.headers.items()
    assert not NOT_OURS.items() & heard.headers.items()
    assert heard.headers["content-security-policy"].startswith("sandbox;")
    assert heard.headers["x-content-type-options"] == "nosniff"
    assert heard.headers["referrer-policy"] == "no-referrer"
