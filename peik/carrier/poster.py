"""Takes messages to webhooks: one connection each, only the status of the answer counts, no redirect is followed.

Addresses come from whoever holds a key, so by default only machines of the open internet are spoken to. The check is made
on what the name resolved to, and the connection goes to that very address: a name that changes in between gains nothing.
"""

import asyncio
import ssl
import urllib.parse
from collections.abc import Mapping

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from peik import __version__
from peik.carrier.dialling import (
    PrivateError,
    Resolve,
    detail_of,
    first_to_answer,
    interleaved,
    system_resolve,
    within,
)
from peik.carrier.trust import system_context
from peik.core.address import Reach
from peik.hook_ports import Posted

ANSWER_BYTES_MAX = 64 * 1024  # of head and body; what a receiver says beyond its status is read for politeness only


class HttpPoster:
    """See `peik.hook_ports.Poster`."""

    def __init__(
        self,
        *,
        may_be_private: bool,
        resolve: Resolve = system_resolve,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._reach = Reach.private(may_be_private)
        self._resolve = resolve
        self._ssl_context = ssl_context

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float) -> Posted:
        answer = _Answer()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(url, headers, body, answer)
        except PrivateError as refusal:
            return Posted(why=f"{refusal}, and PEIK_HOOKS_ALLOW_PRIVATE is off")
        except TimeoutError:
            return Posted(status=answer.status, why=f"no answer within {timeout_s:g} s")
        except (OSError, UnicodeError) as error:
            return Posted(status=answer.status, why=detail_of(error))

    async def _exchange(self, url: str, headers: Mapping[str, str], body: bytes, answer: "_Answer") -> Posted:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        is_tls = parts.scheme == "https"
        found = await self._resolve(host, parts.port or (443 if is_tls else 80))
        loop = asyncio.get_running_loop()
        peer = await first_to_answer(loop, interleaved(within(found, self._reach)))
        tls, name = (self._tls(), host) if is_tls else (None, None)
        transport, _ = await loop.create_connection(lambda: answer, sock=peer, ssl=tls, server_hostname=name)
        try:
            transport.write(_request(parts, headers, body))
            return await answer.ended
        finally:
            transport.abort()

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = system_context()
        return self._ssl_context


def _request(parts: urllib.parse.SplitResult, headers: Mapping[str, str], body: bytes) -> bytes:
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"POST {target} HTTP/1.1",
        f"Host: {parts.netloc}",
        f"User-Agent: Peik/{__version__}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body


class _Answer(asyncio.Protocol):
    """Reads one answer as far as it matters. `status` is known once its head is."""

    def __init__(self) -> None:
        self.status = 0
        self.ended: asyncio.Future[Posted] = asyncio.get_running_loop().create_future()
        self._parser = HttpResponseParser(self)
        self._received = 0

    def _end(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(Posted(status=self.status, why=why))

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._end("the answer is not HTTP")
        if self._received > ANSWER_BYTES_MAX:
            self._end("the answer is too large")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection ended before the answer")

    # What the parser tells us.

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:  # 100 Continue and its kin come before the answer
            self.status = status

    def on_message_complete(self) -> None:
        if self.status:
            self._end("")
