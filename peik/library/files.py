"""Files as callers give them: bytes, paths, open files. Read in chunks and off the event loop, never held whole."""

import asyncio
import mimetypes
import os
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeGuard

import msgspec

from peik.errors import BadInput

Content = bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO
File = Content | tuple[str, Content]  # with the name that people shall see

CHUNK_BYTES = 256 * 1024
# What bytes without a name are called, so that apps know how to show them.
_NAMES = {"photo": "photo.jpg", "voice": "voice.ogg", "audio": "audio.mp3", "video": "video.mp4"}


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a call, not read yet."""

    field: str
    filename: str
    content_type: str
    content: Content


def is_content(value: object) -> TypeGuard[Content]:
    """A text is never a path: whoever passes on what others wrote must not give away files of this machine."""
    return isinstance(value, bytes | bytearray | memoryview | os.PathLike) or hasattr(value, "read")


def parcels_of(files: Mapping[str, File]) -> tuple[Parcel, ...]:
    """Raises BadInput for what is no file."""
    return tuple(_parcel(field, file) for field, file in files.items())


def _parcel(field: str, file: File) -> Parcel:
    name, content = file if isinstance(file, tuple) else (None, file)
    if not is_content(content):
        raise BadInput(
            code="bad_file",
            detail=f"{field} is not a file: give bytes, a pathlib.Path or a file opened in binary mode. "
            "A URL or a file_id goes where the parameter goes.",
        )
    filename = name or _name_of(field, content)
    return Parcel(
        field=field,
        filename=filename,
        content_type=mimetypes.guess_type(filename)[0] or "application/octet-stream",
        content=content,
    )


def _name_of(field: str, content: Content) -> str:
    path = content if isinstance(content, os.PathLike) else getattr(content, "name", None)
    if isinstance(path, str | os.PathLike):
        return Path(path).name or field
    return _NAMES.get(field, field)


async def chunks(parcel: Parcel) -> AsyncGenerator[bytes, None]:
    """The file bit by bit, from where an open one stands. Raises BadInput if it cannot be read."""
    content = parcel.content
    if isinstance(content, bytes | bytearray | memoryview):
        for begin in range(0, len(content), CHUNK_BYTES):
            yield bytes(content[begin : begin + CHUNK_BYTES])
    elif isinstance(content, os.PathLike):
        try:
            file = await asyncio.to_thread(open, content, "rb")
        except OSError as error:
            raise _unreadable(parcel, error) from None
        try:
            async for chunk in _read(parcel, file):
                yield chunk
        finally:
            file.close()
    else:
        async for chunk in _read(parcel, content):
            yield chunk


async def _read(parcel: Parcel, file: BinaryIO) -> AsyncGenerator[bytes, None]:
    while True:
        try:
            chunk: object = await asyncio.to_thread(file.read, CHUNK_BYTES)
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise _unreadable(parcel, error) from None
        if not isinstance(chunk, bytes):
            raise BadInput(code="bad_file", detail=f"{parcel.field} must be opened in binary mode: open(path, 'rb').")
        if not chunk:
            return
        yield chunk


def _unreadable(parcel: Parcel, error: Exception) -> BadInput:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BadInput(code="unreadable_file", detail=f"The file {parcel.filename!r} cannot be read: {reason}.")
