"""Uploads as multipart/form-data: laid out with their exact length first, then streamed from disk, never held whole."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import BinaryIO, Self

import msgspec

from peik.core.outcome import NetworkFault, Reply
from peik.telegram.http import HttpConnection, HttpExchange
from peik.telegram.port import Enclosure

CHUNK_BYTES = 256 * 1024
# A healthy but slow uplink moves some bytes every few seconds; a minute without one is a dead path.
STALL_S_MAX = 60.0


class Spoiled(Exception):
    """The call cannot be sent as it lies in the spool: a file is gone or changed, or its parameters are no object."""


class UploadForm:
    """A multipart body: texts and the files between them, in turn, beginning and ending with a text."""

    def __init__(self, params: bytes, enclosures: Sequence[Enclosure]) -> None:
        """Raises Spoiled if the parameters are not a JSON object."""
        self.boundary = f"peik-{secrets.token_hex(16)}".encode()
        self._enclosures = enclosures
        self._texts = self._lay_out(_fields(params))
        self.size_bytes = sum(map(len, self._texts)) + sum(enclosure.size_bytes for enclosure in enclosures)

    def _lay_out(self, fields: dict[str, bytes]) -> list[bytes]:
        # A parameter of the same name stands for the file itself, so the file takes its place.
        names = {enclosure.field for enclosure in self._enclosures}
        text = b"".join(
            b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (self.boundary, _quoted(name), value)
            for name, value in fields.items()
            if name not in names
        )
        texts = []
        for enclosure in self._enclosures:
            text += b'--%b\r\nContent-Disposition: form-data; name="%b"; filename="%b"\r\nContent-Type: %b\r\n\r\n' % (
                self.boundary,
                _quoted(enclosure.field),
                _quoted(enclosure.filename),
                _content_type(enclosure),
            )
            texts.append(text)
            text = b"\r\n"
        return [*texts, text + b"--%b--\r\n" % self.boundary]

    @property
    def opening(self) -> bytes:
        """What stands before the first file's first byte. It travels with the head."""
        return self._texts[0]

    def open_files(self) -> "OpenFiles":
        """Open and check every file before the first byte of the request leaves. Blocks; raises Spoiled."""
        with contextlib.ExitStack() as opened:
            files = []
            for enclosure in self._enclosures:
                try:
                    file = opened.enter_context(enclosure.path.open("rb", buffering=0))
                    size_bytes = os.fstat(file.fileno()).st_size
                except (OSError, ValueError) as error:  # ValueError: no file system has such a path
                    raise Spoiled(f"the file {enclosure.filename!r} cannot be opened: {error}") from None
                if size_bytes != enclosure.size_bytes:
                    raise Spoiled(
                        f"the file {enclosure.filename!r} has {size_bytes} bytes, and had {enclosure.size_bytes}"
                    )
                files.append(file)
            return OpenFiles(opened.pop_all(), files)

    async def rest(self, loop: asyncio.AbstractEventLoop, opened: "OpenFiles") -> AsyncGenerator[bytes, None]:
        """All that follows the opening, in chunks. Raises Spoiled if a file became shorter meanwhile."""
        for enclosure, file, text in zip(self._enclosures, opened.files, self._texts[1:], strict=True):
            remaining = enclosure.size_bytes
            while remaining:
                try:
                    chunk = await loop.run_in_executor(None, file.read, min(CHUNK_BYTES, remaining))
                except OSError as error:
                    raise Spoiled(f"the file {enclosure.filename!r} cannot be read: {error.strerror}") from None
                if not chunk:
                    raise Spoiled(f"the file {enclosure.filename!r} became shorter while it was sent")
                remaining -= len(chunk)
                yield chunk
            yield text


class OpenFiles:
    """The files of one form, held open so that nobody can take them away in the middle."""

    def __init__(self, opened: contextlib.ExitStack, files: Sequence[BinaryIO]) -> None:
        self._opened = opened
        self.files = files

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()


class UploadBody(HttpExchange):
    """An exchange whose body follows its head bit by bit."""

    __slots__ = ("_unacknowledged", "connection", "is_over", "is_written")

    def __init__(
        self, *, payload: bytes, timeout_s: float, done: Callable[[Reply], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(payload=payload, timeout_s=timeout_s, done=done)
        self.is_written = False
        self.is_over = False
        # The connection that was found for it; None if it ended without one.
        self.connection: asyncio.Future[HttpConnection | None] = loop.create_future()
        self._unacknowledged = -1

    def begin(self, connection: HttpConnection, now: float) -> None:
        self.deadline = now + STALL_S_MAX
        self.connection.set_result(connection)

    def end(self, loop: asyncio.AbstractEventLoop, reply: Reply) -> None:
        self.is_over = True
        if not self.connection.done():
            self.connection.set_result(None)
        super().end(loop, reply)

    answer = end  # the one who streams it has to hear first that it is over

    def is_overdue(self, connection: HttpConnection, now: float) -> bool:
        """While the body is under way only a stall ends it; the answer's own time runs once the peer has it all."""
        unacknowledged = connection.unacknowledged_bytes()
        if unacknowledged != self._unacknowledged:
            self._unacknowledged = unacknowledged
            is_all_there = self.is_written and unacknowledged == 0
            self.deadline = now + (self.timeout_s if is_all_there else STALL_S_MAX)
        return now >= self.deadline

    async def stream(self, loop: asyncio.AbstractEventLoop, form: UploadForm, opened: OpenFiles) -> None:
        """Write what follows the opening, as fast as the peer takes it, unless the exchange ends before."""
        connection = await self.connection
        if connection is None:
            return
        try:
            async with contextlib.aclosing(form.rest(loop, opened)) as chunks:
                async for chunk in chunks:
                    if self.is_over:  # an early answer, a reset or a stall
                        return
                    connection.write(chunk)
                    # Something moved even if by chance exactly as much is unacknowledged as at the last sweep.
                    self._unacknowledged = -1
                    await connection.drain()
            self.is_written = True
            self._unacknowledged = -1
        except Spoiled as error:
            if not self.is_over:
                connection.fail(NetworkFault.RESET, str(error))
        finally:
            if not self.is_written and not self.is_over:
                connection.fail(NetworkFault.RESET, "the upload was broken off")


def _fields(params: bytes) -> dict[str, bytes]:
    """Each parameter as form text: a string as it is, all else as its own JSON, as the Bot API reads JSON calls too."""
    try:
        raw = msgspec.json.decode(params, type=dict[str, msgspec.Raw])
        return {
            name: msgspec.json.decode(value, type=str).encode() if bytes(value)[:1] == b'"' else bytes(value)
            for name, value in raw.items()
        }
    except (msgspec.DecodeError, UnicodeError):
        raise Spoiled("the parameters are not a JSON object") from None


def _quoted(text: str) -> bytes:
    """A name inside quotes as browsers write it: UTF-8, with only what would end the quotes or the line escaped."""
    return text.encode("utf-8", "replace").replace(b'"', b"%22").replace(b"\r", b"%0D").replace(b"\n", b"%0A")


def _content_type(enclosure: Enclosure) -> bytes:
    text = enclosure.content_type
    # A caller chose it; a line end in it would be a header of the caller's own.
    return text.encode() if text.isascii() and text.isprintable() and text else b"application/octet-stream"
