"""Before all HTTP applications: turns away strangers who come too often, tells browsers what they may not do with an answer, and
takes the time. It reads no body and knows no key."""

import functools
import math
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.responses import Response

from peik.core.methods import classify, known_methods
from peik.core.units import parse_duration_s
from peik.gateway.answers import too_many
from peik.gateway.app import respond
from peik.inbox.readers import ANSWER_S_MAX
from peik.monitoring.counts import Answering, Place
from peik.web.access import host_of, too_often
from peik.web.connection import HEADS_KEPT, ServerExchange, is_short
from peik.web.limits import RequestLimits
from peik.web.responses import problem_response
from peik.web.server import Proxies

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

# Given the word after the beginning of a path, the scope and the body: whether it has taken the request and will answer later.
Taker = Callable[[str, Scope, bytes, Callable[[Response], None]], bool]

FIELDS_MAX = 100  # of a query whose sender waits; there is no path that has more
POLL: Place = ("gateway", "poll")
_HSTS = (b"strict-transport-security", b"max-age=31536000")
_ALWAYS: Headers = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_NO_PAGE: Headers = (
    *_ALWAYS,
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
# What a person sent to a bot may be a page with a script in it, and lies under the address of the dashboard here.
_FILE: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),  # its own address holds a token
)
_DOCS_POLICY = (
    b"content-security-policy",
    b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
)
_DOCS: Headers = (_DOCS_POLICY, *(one for one in _NO_PAGE if one[0] != _DOCS_POLICY[0]))


class Middleware:
    """An ASGI application in front of all others. `sections`: what may follow `/v1/`, for the names of kinds of requests.
    `takers`: who can take whole requests at once, by the beginning of a path, which ends with a slash."""

    def __init__(
        self,
        otherwise: App,
        *,
        gate: RequestLimits,
        answering: Answering,
        now: Callable[[], float],
        sections: frozenset[str],
        wait_s_max: float,
        proxies: Proxies | None = None,
        takers: Mapping[str, Taker] | None = None,
    ) -> None:
        self._otherwise = otherwise
        self._gate = gate
        self._answering = answering
        self._now = now
        self._sections = sections
        self._wait_s_max = wait_s_max
        self._proxies = proxies
        self._takers = {beginning: (taker, self._place_of(beginning)) for beginning, taker in (takers or {}).items()}

    def is_stranger(self, host: str) -> bool:
        """Whether nothing valid was shown from there lately. A proxy is none: those behind it are many, and not known by its
        address."""
        return not self._gate.is_known(host, self._now()) and not (self._proxies and self._proxies.trusts(host))

    def take_at_once(self, exchange: ServerExchange) -> bool:
        """See `peik.web.connection`. Strangers are counted, and go the usual way."""
        scope = exchange.scope
        path: str = scope["path"]
        edge = path.rfind("/") + 1
        found = self._takers.get(path[:edge])
        if found is None:
            return False
        taker, place = found
        began_at = self._now()
        if self._proxies is not None:
            self._proxies.believe(scope)
        if self._gate.is_stranger(host_of(scope), began_at):
            return False
        own = _headers_of(place, scope)

        def answered(response: Response) -> None:
            self._answering.add(place, self._now() - began_at)
            exchange.answer(response.status_code, _joined(tuple(response.raw_headers), own), bytes(response.body))

        return taker(path[edge:], scope, exchange.body, answered)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._otherwise(scope, receive, send)
            return
        began_at = self._now()
        if self._proxies is not None:
            self._proxies.believe(scope)
        place = self._place_of(scope["path"])
        headers = _headers_of(place, scope)

        async def received() -> Message:
            # How fast a body comes in is the client's affair.
            nonlocal began_at
            message = await receive()
            if not message.get("more_body", False):
                began_at = self._now()
            return message

        def answered(message: Message) -> Awaitable[None]:
            # And so is how fast an answer is taken: its first byte counts.
            if message["type"] == "http.response.start":
                took_s = self._now() - began_at
                if place is POLL or scope["query_string"]:
                    took_s = max(0.0, took_s - self._asked_s(place, scope))
                self._answering.add(place, took_s)
                message["headers"] = _joined(tuple(message["headers"]), headers)
            return send(message)

        wait_s = self._gate.stranger_wait_s(host_of(scope), began_at)
        if wait_s:
            if place[0] in ("gateway", "files"):
                await respond(answered, too_many(math.ceil(wait_s)))
            else:
                await problem_response(too_often(wait_s))(scope, receive, answered)
            return
        await self._otherwise(scope, receive if scope["method"] == "GET" else received, answered)

    def _place_of(self, path: str) -> Place:
        if path.startswith("/bot"):
            method = path[path.rfind("/") + 1 :]
            return _METHODS.get(method) or _place_of_method(method)
        if path.startswith("/v1/"):
            section = path[4:].partition("/")[0]
            return "rest", section if section in self._sections else "other"
        if path.startswith("/file/bot"):
            return "files", "file"
        if path == "/admin" or path.startswith("/admin/"):
            return "dashboard", "page"
        if path.startswith("/webhook/"):
            return "webhook", "update"
        return "rest", _ALONE.get(path, "other")

    def _asked_s(self, place: Place, scope: Scope) -> float:
        """How long the client itself wanted to wait."""
        if place is POLL:
            return ANSWER_S_MAX
        query: bytes = scope["query_string"]
        if b"wait=" not in query:
            return 0.0
        try:
            asked = urllib.parse.parse_qs(query.decode("latin-1"), max_num_fields=FIELDS_MAX).get("wait", ["0"])
            return min(parse_duration_s(asked[-1]), self._wait_s_max)
        except ValueError:
            return 0.0


def _place_of_method(method: str) -> Place:
    name, kind = classify(method)
    return POLL if name == "getUpdates" else ("gateway", "other" if kind is None else kind.value)


_METHODS = {method: _place_of_method(method) for method in known_methods()}
_ALONE = {"/health": "health", "/ready": "health", "/metrics": "metrics", "/docs": "docs", "/openapi.json": "docs"}


# Bots read no others than those, and there are many of them. The dashboard says its own, on every page.
_HEADERS: dict[str, Headers] = {"gateway": _ALWAYS, "files": _FILE, "dashboard": ()}


def _joined(said: Headers, own: Headers) -> Headers:
    return _kept(said, own) if is_short(said) else _join(said, own)


def _join(said: Headers, own: Headers) -> Headers:
    """What an answer says itself counts."""
    names = {name for name, _ in said}
    return (*said, *[one for one in own if one[0] not in names])


_kept = functools.lru_cache(maxsize=HEADS_KEPT)(_join)


def _headers_of(place: Place, scope: Scope) -> Headers:
    headers = _HEADERS.get(place[0])
    if headers is None:
        headers = _DOCS if scope["path"] == "/docs" else _NO_PAGE
    return (*headers, _HSTS) if scope["scheme"] == "https" else headers
