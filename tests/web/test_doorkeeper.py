"""The keeper of all doors: what every answer says to browsers, how long it took without what was the client's own affair."""

import asyncio
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from peik.app.middleware import Middleware
from peik.inbox.readers import ANSWER_S_MAX
from peik.monitoring.counts import Answering
from peik.web.connection import KEPT_BYTES_MAX, head_of
from peik.web.limits import RequestLimits
from peik.web.server import Proxies

Message = MutableMapping[str, Any]
API_HEADERS = {
    "x-content-type-options",
    "content-security-policy",
    "x-frame-options",
    "referrer-policy",
    "cache-control",
}


class Stage:
    """A doorkeeper before an application that takes its time by a clock of ours."""

    def __init__(self) -> None:
        self.now = 100.0
        self.answering = Answering()
        self.said: list[tuple[bytes, bytes]] = []
        self.works: Callable[[], None] = lambda: None
        self.keeper = Middleware(
            self._work,
            gate=RequestLimits(stranger=None, wrong=None, key=None),
            answering=self.answering,
            now=lambda: self.now,
            sections=frozenset({"letters"}),
            wait_s_max=60.0,
        )

    async def _work(self, scope: Any, receive: Any, send: Any) -> None:
        while scope["method"] == "POST" and (await receive())["more_body"]:
            pass
        self.works()
        await send({"type": "http.response.start", "status": 200, "headers": self.said})
        self.now += 1000  # the answer is taken slowly
        await send({"type": "http.response.body", "body": b""})

    def ask(
        self, path: str, *, query: str = "", took_s: float = 0.0, body_s: float = 0.0, scheme: str = "http"
    ) -> dict[str, str]:
        pieces = [{"type": "http.request", "body": b"", "more_body": more} for more in (True, False)]
        heard: list[Message] = []

        async def receive() -> Message:
            self.now += body_s / 2
            return pieces.pop(0)

        async def send(message: Message) -> None:
            heard.append(message)

        def works() -> None:
            self.now += took_s

        self.works = works
        scope = {
            "type": "http",
            "method": "POST" if body_s else "GET",
            "path": path,
            "scheme": scheme,
            "query_string": query.encode(),
            "client": ("203.0.113.5", 1),
        }
        asyncio.run(self.keeper(scope, receive, send))
        return {name.decode(): value.decode() for name, value in heard[0]["headers"]}

    def seen(self, door: str, route: str) -> float:
        """How long all of them took together."""
        return self.answering.took[door, route].sum_s


PLACES = {
    "/v1/letters": ("rest", "letters"),
    "/v1/letters/9223372036854775807/retry": ("rest", "letters"),
    "/v1/whatever-somebody-makes-up": ("rest", "other"),
    "/": ("rest", "other"),
    "/health": ("rest", "health"),
    "/metrics": ("rest", "metrics"),
    "/docs": ("rest", "docs"),
    "/bot7000001:AAtest/sendMessage": ("gateway", "send"),
    "/bot7000001:AAtest/SENDMESSAGE": ("gateway", "send"),
    "/bot7000001:AAtest/getMe": ("gateway", "read"),
    "/bot7000001:AAtest/getUpdates": ("gateway", "poll"),
    "/bot7000001:AAtest/inventSomething": ("gateway", "other"),
    "/file/bot7000001:AAtest/photos/1.jpg": ("files", "file"),
    "/admin": ("dashboard", "page"),
    "/admin/letters/5": ("dashboard", "page"),
    "/administrator": ("rest", "other"),
    "/webhook/7000001": ("webhook", "update"),
}


@pytest.mark.parametrize("path", PLACES)
def test_a_request_is_counted_by_its_door_and_kind_without_ids_or_tokens(path: str) -> None:
    stage = Stage()
    stage.ask(path)
    assert list(stage.answering.took) == [PLACES[path]]


def test_only_the_time_that_was_ours_counts() -> None:
    stage = Stage()
    stage.ask("/v1/letters", took_s=3, body_s=200)
    assert stage.seen("rest", "letters") == pytest.approx(3)
    stage.ask("/v1/letters", took_s=12, query="wait=10s")
    assert stage.seen("rest", "letters") == pytest.approx(3 + 2)
    stage.ask("/v1/letters", took_s=4, query="wait=10s&x=1")
    stage.ask("/v1/letters", took_s=70, query="wait=1h")  # which nobody is given: a minute is the most
    stage.ask("/v1/letters", took_s=1, query="wait=nonsense")
    assert stage.seen("rest", "letters") == pytest.approx(3 + 2 + 0 + 10 + 1)
    stage.ask("/bot1:a/getUpdates", took_s=ANSWER_S_MAX + 2)
    assert stage.seen("gateway", "poll") == pytest.approx(2)


@pytest.mark.parametrize(
    "path", ["/v1/letters", "/v1/nothing", "/health", "/openapi.json", "/docs", "/webhook/5", "/x"]
)
def test_an_answer_of_the_api_is_no_page_and_is_kept_by_nobody(path: str) -> None:
    said = Stage().ask(path)
    assert set(said) >= API_HEADERS
    assert (said["x-content-type-options"], said["cache-control"]) == ("nosniff", "no-store")
    assert said["content-security-policy"].startswith("default-src 'none'; ")
    assert ("style-src" in said["content-security-policy"]) == (path == "/docs")
    assert "strict-transport-security" not in said


def test_bots_get_what_matters_to_them_and_files_cannot_act() -> None:
    assert Stage().ask("/bot1:a/getMe") == {"x-content-type-options": "nosniff", "cache-control": "no-store"}
    said = Stage().ask("/file/bot1:a/documents/page.html")
    assert said["content-security-policy"].startswith("sandbox;")
    assert (said["x-content-type-options"], said["referrer-policy"]) == ("nosniff", "no-referrer")


def test_what_an_answer_says_itself_stays_and_is_not_said_twice() -> None:
    stage = Stage()
    stage.said = [(b"cache-control", b"max-age=5"), (b"x-frame-options", b"SAMEORIGIN")]
    said = stage.ask("/v1/letters")
    assert (said["cache-control"], said["x-frame-options"]) == ("max-age=5", "SAMEORIGIN")
    assert Stage().ask("/admin/letters") == {}, "the dashboard says its own"


def test_over_https_a_browser_is_told_to_come_that_way_again() -> None:
    for path in ("/v1/letters", "/admin", "/bot1:a/getMe"):
        assert Stage().ask(path, scheme="https")["strict-transport-security"] == "max-age=31536000"


def test_lately_is_what_was_answered_within_the_last_few_looks() -> None:
    answering = Answering()
    assert answering.lately() == {}
    answering.add(("rest", "letters"), 40.0)
    answering.add(("rest", "other"), 40.0)
    answering.add(("gateway", "send"), 0.1)
    for _ in range(3):
        lately = answering.lately()
        assert {door: took.count for door, took in lately.items()} == {"rest": 2, "gateway": 1}
    assert {door: took.count for door, took in answering.lately().items()} == {"rest": 2, "gateway": 1}
    assert {door: took.count for door, took in answering.lately().items()} == {"rest": 0, "gateway": 0}


def test_what_a_stranger_has_sent_is_not_kept_when_it_comes_back_in_an_answer() -> None:
    """A redirect says where he wanted to go. A thousand of these in memory would be hundreds of megabytes."""
    stage = Stage()
    wanted = b"/" + bytes(KEPT_BYTES_MAX)
    known = sys.getrefcount(wanted)
    stage.said = [(b"location", wanted)]
    stage.ask("/admin/letters")
    stage.said = []
    assert sys.getrefcount(wanted) == known
    wanted = wanted.replace(b"\0", b"x")
    known = sys.getrefcount(wanted)
    assert head_of(303, ((b"location", wanted),)) is not head_of(303, ((b"location", wanted),))
    assert sys.getrefcount(wanted) == known
    assert head_of(303, ((b"location", b"/admin"),)) is head_of(303, ((b"location", b"/admin"),))


def test_a_stranger_is_who_has_shown_nothing_and_is_no_proxy_whatever_the_limits_are() -> None:
    gate = RequestLimits(stranger=None, wrong=None, key=None)
    keeper = Middleware(
        Stage()._work,
        gate=gate,
        answering=Answering(),
        now=lambda: 100.0,
        sections=frozenset(),
        wait_s_max=60.0,
        proxies=Proxies(["127.0.0.1", "10.0.0.0/8"]),
    )
    gate.vouch("203.0.113.7", 1, 99.0)
    asked = {host: keeper.is_stranger(host) for host in ("203.0.113.5", "203.0.113.7", "127.0.0.1", "10.1.2.3")}
    assert asked == {"203.0.113.5": True, "203.0.113.7": False, "127.0.0.1": False, "10.1.2.3": False}
