"""What Peik and a job's process say to each other: JSON objects, each after its length. Errors can be said, too."""

import asyncio
import errno
import os
import socket
import struct
import threading
from typing import Any

import msgspec

import peik.errors
from peik.errors import Problem, described
from peik.jobs.outcome import (
    RESULT_BYTES_MAX,
    FolderOver,
    HostShut,
    JobHopeless,
    JobLater,
    NoRoom,
    WorkFailed,
    trace_of,
)

MESSAGE_BYTES_MAX = 1024 * 1024
_LENGTH = struct.Struct(">I")

Message = dict[str, Any]


class GarbledMessage(Exception):
    """What came is not a message."""


def packed(message: Message) -> bytes:
    """Raises TypeError for what does not fit into JSON, ValueError for what is too long."""
    body = msgspec.json.encode(message)
    if len(body) > MESSAGE_BYTES_MAX:
        raise ValueError(f"This is too long to be said to Peik ({len(body)} bytes): give files as a Path.")
    return _LENGTH.pack(len(body)) + body


def unpacked(body: bytes) -> Message:
    try:
        message = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise GarbledMessage(str(error)) from None
    if not isinstance(message, dict):
        raise GarbledMessage("not an object")
    return message


def length_of(head: bytes) -> int:
    length: int = _LENGTH.unpack(head)[0]
    if length > MESSAGE_BYTES_MAX:
        raise GarbledMessage("too long")
    return length


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None: there are no more. Raises GarbledMessage."""
    try:
        length = length_of(await reader.readexactly(_LENGTH.size))
        return unpacked(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError):
        return None


class ProcessTalk:
    """The process's end. Its threads may all ask; they are answered one after the other."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=number)
        self._socket.set_inheritable(False)
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def ask(self, message: Message) -> Message:
        """Returns when Peik has answered."""
        said = packed({"ask": message})
        if os.getpid() != self._pid:
            raise WorkFailed("Only the job's own process can talk to Peik, and not one that it started.")
        with self._lock:
            try:
                self._socket.sendall(said)
                return self.hear()
            except OSError:
                raise WorkFailed("Peik does not answer any more.") from None

    def tell(self, message: Message) -> None:
        with self._lock:
            self._socket.sendall(packed(message))

    def hear(self) -> Message:
        """Raises OSError if Peik is gone."""
        return unpacked(self._read(length_of(self._read(_LENGTH.size))))

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise ConnectionResetError
            parts += part
        return bytes(parts)


# ---- how it ended ----


def said_result(result: object) -> Message:
    """A result as the last message. One that cannot be kept is the function's mistake, and would be again."""
    try:
        size = len(msgspec.json.encode(result))
    except (TypeError, ValueError, RecursionError) as error:
        return said_error(JobHopeless(f"What it returned is not JSON ({error})."))
    if size > RESULT_BYTES_MAX:
        return said_error(JobHopeless(f"What it returned has more than {RESULT_BYTES_MAX} bytes of JSON."))
    return {"done": result}


def said_error(error: BaseException) -> Message:
    """What the work raised, as the last message."""
    said: Message
    match error:
        case JobLater():
            said = {"type": "JobLater", "after_s": float(error.after_s), "text": str(error)}
        case HostShut():
            said = {"type": "HostShut", "host": error.host, "retry_s": error.retry_s}
        case JobHopeless() | NoRoom() | FolderOver() | WorkFailed():
            known = next(name for name, kind in _PLAIN.items() if isinstance(error, kind))
            said = {"type": known, "text": str(error) or type(error).__name__}
        case Problem():
            said = {"type": type(error).__name__, "code": error.code, "text": error.detail}
        case OSError() if error.errno in _FULL:  # it is not the job's fault
            said = {"type": "OSError", "errno": error.errno, "text": error.strerror or ""}
        case SystemExit():
            said = {"type": "", "text": f"It called sys.exit({'' if error.code is None else error.code})."}
        case _:
            said = {"type": "", "text": described(error), "trace": trace_of(error)}
    return {"failed": {name: _sayable(value) for name, value in said.items()}}


def heard_error(said: Message) -> Exception:
    """The same on Peik's side: as itself where somebody looks at its type, else as a sentence."""
    text = str(said.get("text", ""))
    match said:
        case {"type": "JobLater", "after_s": float() | int() as after_s}:
            return JobLater(after_s, text)
        case {"type": "HostShut", "host": str() as host, "retry_s": float() | int() as retry_s}:
            return HostShut(host, retry_s)
        case {"type": "OSError", "errno": int() as number}:
            return OSError(number, text)
        case {"type": str() as name, "code": str() as code}:
            kind = getattr(peik.errors, name, None)
            if isinstance(kind, type) and issubclass(kind, Problem):
                return kind(code=code, detail=text)
        case {"type": str() as name} if name in _PLAIN:
            return _PLAIN[name](text)
    failed = WorkFailed(text)
    failed.trace = str(said["trace"]) if "trace" in said else None
    return failed


_PLAIN: dict[str, type[Exception]] = {
    "JobHopeless": JobHopeless,
    "NoRoom": NoRoom,
    "FolderOver": FolderOver,
    "WorkFailed": WorkFailed,
}
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_TEXT_CHARS_MAX = 4000


def _sayable(value: object) -> object:
    """Texts of errors may hold anything, and a lot of it."""
    if isinstance(value, str):
        return value[:_TEXT_CHARS_MAX].encode(errors="replace").decode()
    return value
