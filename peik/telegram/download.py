"""Files from a Bot API server, streamed: one connection each, read no faster than somebody takes them. Nothing is stored."""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Mapping

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from peik.core.outcome import NetworkFault, Reply
from peik.core.token import Token
from peik.telegram.client import Root
from peik.telegram.connect import Connect, detail_of, direct, fault_of, system_context
from peik.telegram.http import HEAD_BYTES_MAX
from peik.telegram.port import Interrupted

CONNECT_S_MAX = 10.0
HEAD_S_MAX = 60.0
STALL_S_MAX = 60.0  # as for uploads: a minute without a byte is a dead path
AHEAD_BYTES_MAX = 256 * 1024


class HttpDownloader:
    """See `peik.telegram.port.Downloader`."""

    def __init__(
        self, api_root: str, *, connect: Connect | None = None, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._root = Root(api_root)
        if self._root.is_tls and ssl_context is None:
            ssl_context = system_context()
        self._connect = connect or direct(
            host=self._root.host, port=self._root.port, ssl_context=ssl_context if self._root.is_tls else None
        )

    async def open(self, token: Token, path: str, *, headers: Mapping[str, str]) -> "HttpDownload | Reply":
        """The answer once its head is there; or why there is none."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                _, download = await self._connect(loop, HttpDownload)
        except (OSError, UnicodeError) as error:
            return Reply(fault=fault_of(error), left=False, detail=detail_of(error))
        try:
            download.ask(self._root.file_head(token=token.reveal(), path=path) + _lines(headers))
            async with asyncio.timeout(HEAD_S_MAX):
                await download.headed
        except TimeoutError:
            download.close()
            return Reply(fault=NetworkFault.TIMEOUT, detail="no answer came in time")
        except BaseException:
            download.close()
            raise
        if not download.status:
            download.close()
            return Reply(fault=NetworkFault.RESET, detail="the connection ended before the answer")
        return download


def _lines(headers: Mapping[str, str]) -> bytes:
    # A value is a client's: what is no plain text is left out, so that no line of its own can be in it.
    plain = {name: value for name, value in headers.items() if value.isascii() and value.isprintable()}
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in plain.items()) + b"\r\n"


class HttpDownload(asyncio.Protocol):
    """One answer as it comes in. See `peik.telegram.port.Download`."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.headed: asyncio.Future[None] = loop.create_future()
        self._parser = HttpResponseParser(self)
        self._waiting: deque[bytes] = deque()
        self._ahead_bytes = 0
        self._head_bytes = 0
        self._is_paused = False
        self._is_whole = False
        self._is_framed = False  # by Content-Length or chunks; else the answer ends with the connection
        self._is_lost = False
        self._more = asyncio.Event()

    def ask(self, request: bytes) -> None:
        self._transport.write(request)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        while True:
            while self._waiting:
                chunk = self._waiting.popleft()
                self._ahead_bytes -= len(chunk)
                if self._is_paused and self._ahead_bytes < AHEAD_BYTES_MAX // 2:
                    self._is_paused = False
                    self._transport.resume_reading()
                yield chunk
            if self._is_whole:
                return
            if self._is_lost:
                raise Interrupted("the connection ended in the middle of the file")
            self._more.clear()
            try:
                async with asyncio.timeout(STALL_S_MAX):
                    await self._more.wait()
            except TimeoutError:
                self.close()
                raise Interrupted("the file stopped in the middle") from None

    def close(self) -> None:
        self._transport.abort()

    # What the transport tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport, so this cannot be asserted.
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._is_whole:
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self.close()
            return
        if not self.status:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.close()
        if self._ahead_bytes > AHEAD_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            with contextlib.suppress(RuntimeError):  # it is closing already
                self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self.status and not self._is_framed and exc is None:
            self._is_whole = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        if not self.headed.done():
            self.headed.set_result(None)

    # What the parser tells us.

    def on_message_begin(self) -> None:
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers.append((name, value))
        self._is_framed = self._is_framed or name in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:  # 100 Continue and its kin come before the answer
            self.status = status
            self._wake()

    def on_body(self, data: bytes) -> None:
        self._waiting.append(data)
        self._ahead_bytes += len(data)
        self._more.set()

    def on_message_complete(self) -> None:
        if self.status:
            self._is_whole = True
            self._more.set()
