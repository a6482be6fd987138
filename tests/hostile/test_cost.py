"""What somebody without a right key can make Peik spend: processor time that grows no faster than what he sends, and memory that
does not grow with it. Judged by growth, not by seconds, and by the time of Peik's own thread: a busy machine changes neither.
"""

import contextlib
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from peik.accounts import markup
from peik.alerts.service import fingerprint_of
from peik.core import address, arrival, call, letter, token, trace, units
from peik.errors import BadInput
from peik.gateway.app import read_place
from peik.gateway.files import read_file_place
from peik.inbox import delivery
from peik.jobs.hosts import _shown
from peik.notifications import model
from peik.web.connection import CALL_HEAD_BYTES_MAX, HEAD_BYTES_MAX, QUERY_FIELDS_MAX
from peik.web.dashboard.board import cookie_of, own_path
from peik.web.dashboard.render import language_of
from peik.web.limits import address_of
from peik.web.server import Proxies
from tests.hostile.offices import BOT, KEY, TOKEN, Resident, kept_below, resident

TIMES = 8  # as much is sent
GROWTH_MAX = 24.0  # what is linear grows as it does, eightfold; what is quadratic 64-fold
NOISE_S = 0.0005  # what costs less is not worth judging
TRIES = 7
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def peik() -> Iterator[Resident]:
    with resident(trusted_proxies="127.0.0.1") as one:
        yield one
        assert one.surprises() == []
        assert one.crashes == []


def growth(cost: Callable[[int], float], size: int) -> float:
    """How many times as much eight times as much costs. Measured again while it looks bad: disturbances only add to it."""
    nothing = small = large = float("inf")
    grown = 0.0
    for _ in range(TRIES):
        nothing, small, large = min(nothing, cost(0)), min(small, cost(size)), min(large, cost(size * TIMES))
        grown = (large - nothing) / max(small - nothing, NOISE_S)
        if grown < GROWTH_MAX:
            break
    return grown


# ---- requests ----


def say(peik: Resident, said: bytes) -> bytes:
    """All that comes back until the server closes."""
    heard = b""
    address = ("127.0.0.1", peik.port)
    with socket.create_connection(address, timeout=PATIENCE_S) as connection, contextlib.suppress(OSError):
        connection.sendall(said)
        if b"Transfer-Encoding" in said or b"Connection: close" not in said:  # the server would wait for more
            connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(1 << 20):
            heard += data
    return heard


async def _spent_s() -> float:
    return time.thread_time()


def cost_of(peik: Resident, said: bytes) -> float:
    """The time that Peik's own thread takes for it."""
    before = peik.run(_spent_s())
    say(peik, said)
    return peik.run(_spent_s()) - before


def filled(shape: str, size: int) -> str:
    """`size` bytes of what stands in brackets, over and over, within the rest."""
    before, again, after = re.fullmatch(r"(.*)⟨(.+)⟩(.*)", shape, re.DOTALL).groups()  # type: ignore[union-attr]
    return before + again * (size // len(again)) + after


PATHS = ["/health", "/v1/stats", "/v1/letters", f"/bot{TOKEN}/getMe", "/botnonsense/getMe", f"/file/bot{TOKEN}/x",
    f"/webhook/{BOT}", "/admin", "/admin/sign-in", "/admin/letters", "/metrics", "/docs", "/nowhere"]  # fmt: skip
QUERIES = [
    "wait=⟨0s⟩",
    "wait=⟨1 ⟩x",
    "wait=⟨9⟩",
    "wait=1&⟨%41⟩",
    "next=⟨/⟩",
    "next=/admin?⟨%2f⟩",
    "lang=⟨a;⟩",
    "⟨=⟩",
    "⟨;⟩",
]
HEADERS = [
    'Cookie: a="⟨\\"⟩"', "Cookie: ⟨a=b;⟩", "Cookie: ⟨;⟩", "Cookie: ⟨=⟩", 'Cookie: peik_said="⟨\\"⟩', "Cookie: peik_session=⟨a⟩",
    "Cookie: peik_form=⟨a⟩", "Accept-Language: ⟨en,⟩", "Accept-Language: ⟨a;q=⟩", "Accept-Language: en;q=⟨9⟩", "Accept: ⟨a/b,⟩",
    "Accept: ⟨application/openmetrics-text;version=⟩", "X-Forwarded-For: ⟨1.1.1.1,⟩", "X-Forwarded-For: ⟨127.0.0.1,⟩",
    "X-Forwarded-For: ⟨:⟩", "X-Forwarded-For: ⟨[⟩", "Authorization: Bearer ⟨a⟩", "Authorization: ⟨ ⟩x", "X-Api-Key: ⟨é⟩",
    "Range: bytes=⟨1-2,⟩", "Range: bytes=⟨9⟩-", "Content-Type: ⟨a;⟩", 'Content-Type: multipart/form-data; boundary="⟨;⟩',
    'Content-Type: multipart/form-data; boundary="⟨\\";⟩', "traceparent: ⟨00-⟩", "X-Peik-Trace: ⟨a⟩", "Idempotency-Key: ⟨a⟩",
    "Referer: ⟨/⟩", "Origin: ⟨[⟩", "Host: ⟨a.⟩", "Upgrade: ⟨a,⟩", "Connection: Upgrade,⟨a,⟩", "Transfer-Encoding: ⟨a,⟩", "⟨a⟩: b",
    "a: ⟨ ⟩", "a: b\r\n⟨b:c\r\n⟩d: e",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_the_head_of_a_request_costs_no_more_than_its_size(peik: Resident, path: str) -> None:
    size = HEAD_BYTES_MAX // TIMES - 100

    def head(shape: str, size: int) -> bytes:
        lines = filled(shape, size) if ":" in shape else "a: b"
        query = "" if ":" in shape else "?" + filled(shape, size)
        return f"GET {path}{query} HTTP/1.1\r\nConnection: close\r\n{lines}\r\n\r\n".encode()

    for shape in [*QUERIES, *HEADERS]:
        grown = growth(lambda size, shape=shape: cost_of(peik, head(shape, size)), size)  # type: ignore[misc]
        assert grown < GROWTH_MAX, shape


PIECES = ["/", "a/", "%2f", "%", "%41", "..", "//", "@", ":", "1:"]


@pytest.mark.parametrize(
    "beginning", ["/", "/bot", f"/bot{TOKEN}/", "/file/bot", "/v1/", "/v1/letters/", "/admin/", "/webhook/"]
)
def test_a_long_path_costs_no_more_than_its_size(peik: Resident, beginning: str) -> None:
    for piece in PIECES:

        def cost(size: int, piece: str = piece) -> float:
            path = beginning + piece * (size // len(piece))
            return cost_of(peik, f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())

        assert growth(cost, HEAD_BYTES_MAX // TIMES - 100) < GROWTH_MAX, piece


HUGE = {
    "a cookie": (b"GET /admin HTTP/1.1\r\nCookie: a=\"" + b'\\"' * 75_000 + b'"\r\n\r\n', 431),
    "a query": (b"GET /health?wait=" + b"0s" * 125_000 + b" HTTP/1.1\r\n\r\n", 431),
    "a call": (b"GET /bot1:a/getMe?a=" + b"a" * CALL_HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 431),
    "fields of a query": (b"GET /admin?" + b"a&" * QUERY_FIELDS_MAX + b" HTTP/1.1\r\n\r\n", 414),
}  # fmt: skip


@pytest.mark.parametrize("what", HUGE)
def test_a_head_beyond_all_bounds_is_refused(peik: Resident, what: str) -> None:
    said, status = HUGE[what]
    heard = say(peik, said)
    assert heard == b"" or heard.startswith(b"HTTP/1.1 %d " % status), heard[
        :100
    ]  # it may be closed before it is heard


BODIES = {
    "a form": ("application/x-www-form-urlencoded", "csrf=x&⟨a=%41&⟩"),
    "one field": ("application/x-www-form-urlencoded", "key=⟨%41⟩"),
    "blanks": ("application/x-www-form-urlencoded", "name=⟨+⟩x"),
    "a multipart": (
        "multipart/form-data; boundary=b",
        "⟨--b\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n⟩--b--",
    ),
    "no boundary": ("multipart/form-data; boundary=b", "⟨\r\n--⟩"),
    "headers of a part": (
        "multipart/form-data; boundary=b",
        '--b\r\nContent-Disposition: form-data; name="⟨;⟩\r\n\r\n',
    ),
    "nested JSON": ("application/json", "⟨[⟩"),
    "nested objects": ("application/json", '⟨{"a":⟩'),
    "a number": ("application/json", '{"a":⟨9⟩}'),
    "escapes": ("application/json", '{"a":"⟨\\u0041⟩"}'),
}
POSTS = [("/admin/sign-in", ""), ("/admin/letters", ""), ("/v1/letters", ""), ("/v1/letters", KEY), ("/v1/letters/batch", KEY),
    ("/v1/letters/cancel", KEY), (f"/bot{TOKEN}/sendMessage", ""), (f"/bot{TOKEN}/getUpdates", ""),
    ("/botnonsense/sendMessage", ""), (f"/webhook/{BOT}", "")]  # fmt: skip


@pytest.mark.parametrize(("path", "key"), POSTS)
def test_a_body_costs_no_more_than_its_size(peik: Resident, path: str, key: str) -> None:
    size = (16 if path == "/admin/sign-in" else 512) * 1024 // TIMES - 100

    def post(kind: str, shape: str, size: int) -> bytes:
        body = filled(shape, size).encode()
        head = f"POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + (f"Authorization: Bearer {key}\r\n" if key else "").encode() + b"\r\n" + body

    for what, (kind, shape) in BODIES.items():
        grown = growth(lambda size, kind=kind, shape=shape: cost_of(peik, post(kind, shape, size)), size)  # type: ignore[misc]
        assert grown < GROWTH_MAX, what


# ---- parsers, without any bound before them ----


def request_with(name: bytes, value: str) -> Request:
    return Request({"type": "http", "headers": [(name, value.encode())]})


def forwarded(text: str) -> None:
    scope = {
        "type": "http",
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "headers": [(b"x-forwarded-for", text.encode())],
    }
    Proxies(["127.0.0.1"]).believe(scope)


PARSERS: dict[str, Callable[[str], Any]] = {
    "duration": units.parse_duration_s,
    "size": lambda text: units.parse_size_bytes(f"1{text}x"),
    "rate": lambda text: units.parse_rate(f"1{text}x"),
    "cookie": lambda text: cookie_of(request_with(b"cookie", text), "peik_session"),
    "quoted cookie": lambda text: cookie_of(request_with(b"cookie", f'peik_session="{text}"'), "peik_session"),
    "language": lambda text: language_of(None, text, text),
    "own path": lambda text: own_path(f"/admin{text}"),
    "forwarded": forwarded,
    "address": address_of,
    "webhook": lambda text: address.read_address(f"http://{text}", reach=address.AddressReach.PUBLIC),
    "place": lambda text: read_place(f"/bot{text}"),
    "file": lambda text: read_file_place(f"/file/bot1:a/{text}"),
    "token": token.Token,
    "masking": token.without_secrets,
    "trace": trace.read_trace,
    "traceparent": trace.read_parent,
    "cause": letter.cause_of,
    "template": model.check_template,
    "markup": model.units_of,
    "answer": lambda text: delivery.read_answer(f"--b\r\n{text}".encode()),
    "mended": lambda text: arrival.mended(text.encode()),
    "update": lambda text: arrival.read_update(f'{{"update_id":1,"message":{text}'.encode()),
    "call": lambda text: call.read_call("sendMessage", text.encode()),
    "markup of a call": lambda text: call.read_call(
        "sendMessage", json.dumps({"chat_id": 1, "text": "x", "reply_markup": text}).encode()
    ),
    "HTML": lambda text: markup.parse(text, "HTML"),
    "HTML of a link": lambda text: markup.parse(f'<a href="{text}', "HTML"),
    "Markdown": lambda text: markup.parse(text, "MarkdownV2"),
    "Markdown of a link": lambda text: markup.parse(f"[a{text}", "MarkdownV2"),
    "fault": lambda text: _shown(Exception(text)),
    "error": lambda text: fingerprint_of("x", text),
}  # fmt: skip
REPEATED = ["0s", "1 ", " ", "a", "9", "_", '\\"', "\\", ";", "a;", '";', ",", "a,", "=", "&", "&#", "&amp", "<", "<a", "<b>",
    "<!--", "</", "[", "](", "`", "```", "*", "||", "\n>", "{", '{"a":', "{a}", "://", "://:", "://a@", "12345:", "@", "'", '"',
    "\r\n", "--b\r\n", '; name="', "%41", "%", ":", "/", "\u0661"]  # fmt: skip


SIZES = {"duration": 32_000}  # where the quick steps outweigh the others for long


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_takes_no_longer_than_its_text_is(name: str) -> None:
    parse = PARSERS[name]

    def cost(text: str) -> float:
        began_s = time.thread_time()
        with contextlib.suppress(BadInput, ValueError, markup.BadMarkup, RecursionError):
            parse(text)
        return time.thread_time() - began_s

    for piece in REPEATED:
        grown = growth(lambda size, piece=piece: cost(piece * (size // len(piece))), SIZES.get(name, 4_000))  # type: ignore[misc]
        assert grown < GROWTH_MAX, piece


def test_the_measure_sees_what_is_quadratic() -> None:
    def cost(size: int) -> float:
        began_s, text = time.thread_time(), "a" * size
        re.sub(r"\w+:", "", text)
        return time.thread_time() - began_s

    assert growth(cost, 800) > GROWTH_MAX


def test_nothing_of_ours_reads_cookies_by_the_standard_library() -> None:
    """Before Python 3.11.10 and 3.12.6 it takes half a minute for one (CVE-2024-7592)."""
    for path in Path("peik").rglob("*.py"):
        assert (
            re.search(r"request\.cookies|http\.cookies|cookie_parser", path.read_text().replace("`http.cookies`", ""))
            is None
        ), path


# ---- memory ----


def test_a_body_is_not_kept_before_its_key_is_known(peik: Resident) -> None:
    body = bytes(8 << 20)
    with kept_below(3 << 20):
        for path in (
            "/v1/letters",
            "/v1/letters/batch",
            "/botnonsense/sendMessage",
            f"/webhook/{BOT}",
            "/admin/sign-in",
            "/admin/bots",
        ):
            head = f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            say(peik, head + body[: 1 << 20])
