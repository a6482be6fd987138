"""Carries webhook pushes out. When and what is decided by `Telegram`; here are only sockets and the clock's patience."""

import asyncio
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

import httptools

from peik.testing.deliveries import PushResult
from peik.testing.telegram import Telegram
from peik.testing.webhooks import WebhookCheck
from peik.testing.world import Push

_ANSWER_BYTES_MAX = 4 << 20


class Pusher:
    """One task per push in flight; connections are kept and used again."""

    def __init__(self, telegram: Telegram, *, told: Callable[[], None]) -> None:
        self._telegram = telegram
        self._told = told  # called after each push
        self._bell = asyncio.Event()
        self._idle: dict[tuple[str, int, bool], list[_Line]] = {}

    def ring(self) -> None:
        self._bell.set()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._bell.clear()
                    for push in self._telegram.pushes_due():
                        group.create_task(self._carry(push))
                    await self._rest()
        finally:
            for lines in self._idle.values():
                for line in lines:
                    line.close()

    async def _rest(self) -> None:
        """Until the bell rings or the next retry is due."""
        next_at = self._telegram.next_push_at()
        wait_s = None if next_at is None else max(0.0, next_at - self._telegram.now())
        try:
            async with asyncio.timeout(wait_s):
                await self._bell.wait()
        except TimeoutError:
            pass

    async def _carry(self, push: Push) -> None:
        try:
            async with asyncio.timeout(self._telegram.options.webhook_timeout_s):
                result = await self._post(push)
        except TimeoutError:
            result = PushResult(error="Read timeout expired")
        except ConnectionRefusedError:
            result = PushResult(error="Connection refused")
        except (OSError, EOFError, ssl.SSLError, httptools.HttpParserError) as error:
            result = PushResult(error=str(error) or "Connection closed")
        self._telegram.push_done(push, result)
        self._bell.set()
        self._told()

    async def _post(self, push: Push) -> PushResult:
        parts = urlsplit(push.url)
        is_tls = parts.scheme == "https"
        key = (push.webhook.ip_address or parts.hostname or "", parts.port or (443 if is_tls else 80), is_tls)
        idle = self._idle.setdefault(key, [])
        while idle and idle[-1].is_over:
            idle.pop().close()
        line = idle.pop() if idle else await _Line.open(*key, server_name=parts.hostname or "")
        try:
            result = await line.post(push, host=parts.netloc.rpartition("@")[2], target=_target(push.url))
        except BaseException:
            line.close()
            raise
        if result.keeps_connection:
            idle.append(line)
        else:
            line.close()
        return result


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class _Line:
    """One connection to a webhook."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int, is_tls: bool, *, server_name: str) -> "_Line":
        context = None
        if is_tls:
            # A simulator's counterpart has a self-made certificate at best.
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        name = server_name if is_tls else None
        return cls(*await asyncio.open_connection(host, port, ssl=context, server_hostname=name))

    @property
    def is_over(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    async def post(self, push: Push, *, host: str, target: str) -> PushResult:
        headers = {"Host": host, **push.headers(), "Content-Length": str(len(push.body))}
        head = "\r\n".join([f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())])
        self._writer.write(head.encode("latin-1") + b"\r\n\r\n" + push.body)
        answer = _PushAnswer()
        while not answer.is_whole:
            data = await self._reader.read(65536)
            if not data:
                raise EOFError("Connection closed")
            answer.parser.feed_data(data)
        return answer.result()

    def close(self) -> None:
        self._writer.close()


class _PushAnswer:
    """A webhook's answer while it comes in."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._keeps_connection = False
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size <= _ANSWER_BYTES_MAX:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self.is_whole = True
        self._keeps_connection = self.parser.should_keep_alive()  # the parser forgets it afterwards

    def result(self) -> PushResult:
        retry_after = self._headers.get(b"retry-after", b"").decode("latin-1").strip()
        return PushResult(
            status=self.parser.get_status_code(),
            retry_after_s=float(retry_after) if retry_after.isdecimal() else None,
            body=b"".join(self._body),
            content_type=self._headers.get(b"content-type", b"").decode("latin-1"),
            keeps_connection=self._keeps_connection,
        )


async def try_connect(telegram: Telegram, check: WebhookCheck) -> None:
    """The "verification" of setWebhook: one TCP connect, no request (docs/telegram.md, Setting a webhook)."""
    error = ""
    try:
        async with asyncio.timeout(telegram.options.webhook_timeout_s):
            _, writer = await asyncio.open_connection(check.host, check.port)
            writer.close()
    except TimeoutError:
        error = "Connection timed out"
    except OSError as failed:
        error = "Connection refused" if isinstance(failed, ConnectionRefusedError) else str(failed)
    telegram.connected(check, error)
