"""`/file/bot<token>/<path>`: files of a bot, streamed from Telegram, kept for a while on disk within a bound.

However many ask for one file at once, it is fetched once, and goes on where it was after the network broke off.
"""

import asyncio
import contextlib
import hashlib
import re
import shutil
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from peik.app.runtime import Runtime
from peik.core.events import Surprise
from peik.core.outcome import Reply
from peik.core.token import Token
from peik.erasure.parts import FileCachePart
from peik.gateway.answers import AWAY, NOT_FOUND, SURPRISE, GatewayAnswer, of_reply
from peik.gateway.tokens import Tokens, Turned
from peik.outbox.store import BotRecord
from peik.telegram.client import HttpDownload
from peik.telegram.port import Interrupted
from peik.web.access import host_of

CHUNK_BYTES = 256 * 1024
FRESH_S = 3600.0  # a path leads to its file for an hour at least (docs/telegram.md, Sizes and files)
FILES_MAX = 10_000
RESUMES_MAX = 3
RESUME_PAUSE_S = 0.5
STALL_S_MAX = 60.0  # a client that takes nothing for so long has gone
_WHOLE_ANSWER_BYTES_MAX = 64 * 1024  # of a refusal

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_Header = tuple[bytes, bytes]

# What is said of the file. All else is of the connection to Telegram, or ours to say: whoever answers must neither set cookies
# under our address nor undo what keeps a page from running there.
_PASSED = frozenset(
    {
        b"content-type",
        b"content-encoding",
        b"content-disposition",
        b"content-language",
        b"accept-ranges",
        b"last-modified",
        b"etag",
        b"cache-control",
        b"expires",
    }
)
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class GatewayFiles:
    def __init__(self, peik: Runtime, tokens: Tokens, *, is_keeping: bool) -> None:
        self._passage = peik.passthrough
        self._tokens = tokens
        self._events = peik.events
        folder = peik.config.beside(".cache")
        self._shelf = Shelf(folder, bytes_max=peik.config.file_cache if is_keeping else 0, now=peik.clock.mono)
        if is_keeping:
            self._shelf.clear()
            peik.eraser.join("file cache", FileCachePart(self._shelf.empty))

    async def serve(self, scope: Scope, send: Send) -> None:
        """Answer one request, whatever comes of it."""
        out = _Out(send, is_head=scope["method"] == "HEAD")
        try:
            await self._serve(scope, out)
        except Turned as turned:
            await out.whole(turned.answer)
        except (Interrupted, TimeoutError):
            await out.cut()
        except Exception as error:  # noqa: BLE001  it is told, without the path, which holds a token
            self._events.tell(Surprise(where="gateway files", error=type(error).__name__))
            await out.cut()

    async def _serve(self, scope: Scope, out: "_Out") -> None:
        found = read_file_place(scope["path"])
        if found is None or scope["method"] not in ("GET", "HEAD"):
            await out.whole(NOT_FOUND)
            return
        token, path = found
        bot = await self._tokens.admit(token, host_of(scope))
        asked = _range_of(scope)
        held = self._shelf.find(bot.bot_id, path)
        if held is None and asked is None and self._shelf.bytes_max:
            await self._fetch(bot, path, out)
        elif held is not None and await held.is_to_be_had():
            await _give(held, asked, out)
        else:
            await self._stream(bot, path, asked, out)

    async def _stream(self, bot: BotRecord, path: str, asked: str | None, out: "_Out") -> None:
        """Straight through, with the range as it was asked for."""
        download = await self._open(bot.token, path, {} if asked is None else {"Range": asked})
        try:
            length = _length(download)
            await out.start(download.status, [*_passed(download), *_also(download, b"content-range")], length)
            await _pour(download, out)
        finally:
            download.close()

    async def _open(self, token: Token, path: str, headers: dict[str, str]) -> HttpDownload:
        opened = await self._passage.download(token, path, headers=headers)
        if isinstance(opened, Reply):
            raise Turned(of_reply(opened))
        return opened

    async def _fetch(self, bot: BotRecord, path: str, out: "_Out") -> None:
        """Fetch a file for everybody who wants it now or soon, and give it to the one who asked first."""
        held = self._shelf.place(bot.bot_id, path)
        try:
            await self._fill(held, bot.token, path, out)
        except BaseException as error:
            self._shelf.drop(held)
            held.fail(error.answer if isinstance(error, Turned) else AWAY)
            raise

    async def _fill(self, held: "CachedFile", token: Token, path: str, out: "_Out") -> None:
        download = await self._open(token, path, {})
        try:
            length = _length(download)
            if download.status != 200:
                raise Turned(await _whole(download))  # all who wait may hear it
            if length is None or not self._shelf.has_room(length):
                self._shelf.drop(held)
                held.step_aside()
                await out.start(200, _passed(download), length)
                await _pour(download, out)
                return
            held.begin(length, _passed(download))
            # The file comes in as fast as it can, however slowly its first reader takes it; and to its end, even if he goes.
            async with asyncio.TaskGroup() as group:
                giving = group.create_task(_given_up_quietly(_give(held, None, out)))
                await self._write(held, download, token, path)
                await giving
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            download.close()

    async def _write(self, held: "CachedFile", first: HttpDownload, token: Token, path: str) -> None:
        download = first
        for resumes in range(RESUMES_MAX + 1):
            try:
                async for chunk in download.chunks():
                    await held.write(chunk)
                if not held.is_whole:
                    raise Interrupted("the file ended too early")
                return
            except Interrupted:
                if resumes == RESUMES_MAX:
                    raise
            finally:
                download.close()
            await asyncio.sleep(RESUME_PAUSE_S)
            with contextlib.suppress(Turned):  # no way just now; the next round says so again
                download = await self._resumed(held, token, path) or download

    async def _resumed(self, held: "CachedFile", token: Token, path: str) -> HttpDownload | None:
        download = await self._open(token, path, {"Range": f"bytes={held.written}-"})
        if download.status == 206:
            return download
        download.close()
        return None


async def _given_up_quietly(giving: Awaitable[None]) -> None:
    """The first reader's own trouble is not the others'."""
    with contextlib.suppress(TimeoutError):
        await giving


async def _pour(download: HttpDownload, out: "_Out") -> None:
    if not out.is_head:
        async for chunk in download.chunks():
            await out.write(chunk)
    await out.end()


async def _whole(download: HttpDownload) -> GatewayAnswer:
    body = b""
    async for chunk in download.chunks():
        body += chunk
        if len(body) > _WHOLE_ANSWER_BYTES_MAX:
            break
    return of_reply(Reply(status=download.status, body=body))


def read_file_place(path: str) -> tuple[str, str] | None:
    """The token and the file's own path. None for what is no such place, or leads out of it."""
    token, slash, rest = path.removeprefix("/file/bot").partition("/")
    if rest.startswith("test/"):
        token, rest = f"{token}/test", rest.removeprefix("test/")
    token, at, consumer = token.partition("@")  # any consumer of a bot may have its files
    if at and consumer.endswith("/test"):
        token = f"{token}/test"
    parts = rest.split("/")
    # uvicorn has undone one round of %-signs; a second one must not appear either.
    if (
        not slash
        or "\\" in rest
        or "%" in rest
        or not rest.isprintable()
        or any(part in ("", ".", "..") for part in parts)
    ):
        return None
    return token, rest


def _range_of(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"range":
            text = value.decode("latin-1").replace(" ", "")
            return text if _RANGE.fullmatch(text) is not None and text != "bytes=-" else None
    return None


def _length(download: HttpDownload) -> int | None:
    for name, value in download.headers:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None


def _passed(download: HttpDownload) -> list[_Header]:
    return [(name, value) for name, value in download.headers if name in _PASSED]


def _also(download: HttpDownload, wanted: bytes) -> list[_Header]:
    return [(name, value) for name, value in download.headers if name == wanted]


# ---- the shelf ----


class CachedFile:
    """One file on the shelf: whole, or still coming in. Readers follow its writer."""

    def __init__(self, file: Path, *, fresh_until: float) -> None:
        self.file = file
        self.fresh_until = fresh_until
        self.size = 0
        self.written = 0
        self.headers: list[_Header] = []
        self.is_begun = False
        self.is_kept = True
        self.failure: GatewayAnswer | None = None
        self._changed = asyncio.Event()

    @property
    def is_whole(self) -> bool:
        return self.is_begun and self.written == self.size

    def begin(self, size: int, headers: list[_Header]) -> None:
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.file.touch(mode=0o600)
        self.size = size
        self.headers = [*headers, (b"accept-ranges", b"bytes")]
        self.is_begun = True
        self._tell()

    async def write(self, chunk: bytes) -> None:
        if self.written + len(chunk) > self.size:
            raise Interrupted("the file is longer than it was said to be")
        await asyncio.to_thread(_append, self.file, chunk)
        self.written += len(chunk)
        self._tell()

    def fail(self, answer: GatewayAnswer) -> None:
        self.failure = answer
        self._tell()

    def step_aside(self) -> None:
        """It is not kept after all; those who wait must fetch it themselves."""
        self.is_kept = False
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def is_to_be_had(self) -> bool:
        """Once it has begun: yes. No if it is not kept after all. Raises Turned if Telegram does not give it."""
        while not self.is_begun and self.is_kept:
            if self.failure is not None:
                raise Turned(self.failure)
            await self._changed.wait()
        return self.is_kept

    async def _until(self, written: int) -> None:
        while self.written < written:
            if self.failure is not None:
                raise Interrupted("the file did not come to its end")
            await self._changed.wait()

    async def pieces(self, first: int, last: int) -> AsyncIterator[bytes]:
        """Its bytes from `first` to `last`, as they come in."""
        at = first
        with await asyncio.to_thread(self.file.open, "rb") as file:
            while at <= last:
                await self._until(at + 1)
                size = min(CHUNK_BYTES, self.written - at, last + 1 - at)
                yield await asyncio.to_thread(_read, file, at, size)
                at += size


def _append(path: Path, chunk: bytes) -> None:
    with path.open("ab") as file:
        file.write(chunk)


def _read(file: Any, at: int, size: int) -> bytes:
    file.seek(at)
    data: bytes = file.read(size)
    return data


class Shelf:
    """Files by bot and path, the least recently used first to go. It begins empty: nothing of an earlier run is trusted."""

    def __init__(self, folder: Path, *, bytes_max: int, now: Callable[[], float]) -> None:
        self.bytes_max = bytes_max
        self._folder = folder
        self._now = now
        self._held: OrderedDict[str, CachedFile] = OrderedDict()

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def empty(self) -> None:
        """Let go of all that is here as a whole. Who reads one has it open, and reads on."""
        for held in list(self._held.values()):
            if held.is_whole:
                self.drop(held)

    def find(self, bot_id: int, path: str) -> CachedFile | None:
        name = _name(bot_id, path)
        held = self._held.get(name)
        if held is None:
            return None
        if held.is_whole and self._now() >= held.fresh_until:
            self.drop(held)
            return None
        self._held.move_to_end(name)
        return held

    def place(self, bot_id: int, path: str) -> CachedFile:
        name = _name(bot_id, path)
        self._held[name] = held = CachedFile(self._folder / name, fresh_until=self._now() + FRESH_S)
        return held

    def has_room(self, size: int) -> bool:
        """Whether a file of this size fits, once others have made room. Those that still come in cannot."""
        coming = sum(held.size for held in self._held.values() if not held.is_whole)
        if size + coming > self.bytes_max:
            return False
        used = size + sum(held.size for held in self._held.values())
        for held in list(self._held.values()):
            if used <= self.bytes_max and len(self._held) <= FILES_MAX:
                break
            if held.is_whole:  # who reads it has it open, and reads on
                used -= held.size
                self.drop(held)
        return True

    def drop(self, held: CachedFile) -> None:
        if self._held.get(held.file.name) is held:
            del self._held[held.file.name]
            with contextlib.suppress(OSError):
                held.file.unlink(missing_ok=True)


def _name(bot_id: int, path: str) -> str:
    return hashlib.blake2b(f"{bot_id}/{path}".encode(), digest_size=16).hexdigest()


# ---- giving ----


async def _give(held: CachedFile, asked: str | None, out: "_Out") -> None:
    """A file that has begun, or a part of it, from the shelf."""
    span = None if asked is None else span_of(asked, held.size)
    if asked is not None and span is None:
        await out.start(416, [(b"content-range", b"bytes */%d" % held.size)], 0)
        await out.end()
        return
    first, last = span or (0, held.size - 1)
    headers = [*held.headers]
    if span is not None:
        headers.append((b"content-range", b"bytes %d-%d/%d" % (first, last, held.size)))
    await out.start(200 if span is None else 206, headers, last + 1 - first)
    if not out.is_head:
        async for piece in held.pieces(first, last):
            await out.write(piece)
    await out.end()


def span_of(asked: str, size: int) -> tuple[int, int] | None:
    """The first and last byte of a range (RFC 9110 §14.1.2). None if the file has none of it."""
    found = _RANGE.fullmatch(asked)
    assert found is not None
    first, last = found[1], found[2]
    if not first:
        count = min(int(last), size)
        return (size - count, size - 1) if count else None
    begin, end = int(first), min(int(last), size - 1) if last else size - 1
    return (begin, end) if begin <= end else None


class _Out:
    """The client's side of one request."""

    def __init__(self, send: Send, *, is_head: bool) -> None:
        self._send = send
        self.is_head = is_head
        self._is_started = False

    async def start(self, status: int, headers: list[_Header], length: int | None) -> None:
        self._is_started = True
        sized = headers if length is None else [*headers, (b"content-length", b"%d" % length)]
        await self._say({"type": "http.response.start", "status": status, "headers": sized})

    async def write(self, chunk: bytes) -> None:
        await self._say({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self) -> None:
        await self._say({"type": "http.response.body", "body": b"", "more_body": False})

    async def whole(self, answer: GatewayAnswer) -> None:
        await self.start(answer.status, [(b"content-type", b"application/json"), *answer.headers], len(answer.body))
        await self._say({"type": "http.response.body", "body": answer.body})

    async def cut(self) -> None:
        """Say that something went wrong; or, if it is too late for words, break off, so that nobody takes a part for all."""
        if not self._is_started:
            await self.whole(SURPRISE)
        # An answer that is left unfinished makes the server close the connection.

    async def _say(self, message: MutableMapping[str, Any]) -> None:
        async with asyncio.timeout(STALL_S_MAX):
            await self._send(message)
