"""Work in a process of its own. It can be killed at any moment, for real, with everything that it has started.

Between Peik and the process stands a guardian (see peik.jobs.guardian), which does the killing, also if Peik itself dies.
"""

import asyncio
import errno
import inspect
import io
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack, suppress
from multiprocessing import spawn
from pathlib import Path
from typing import Any, TypeVar, cast

from peik.errors import BadInput
from peik.jobs import guardian
from peik.jobs.child import found
from peik.jobs.messages import GarbledMessage, Message, heard_error, packed, read_message
from peik.jobs.outcome import JobHopeless, JobLater, WorkFailed

END_S = 5.0  # so long a process may take to end by itself, once it has said how its work went
KILL_S = (
    30.0  # a process in the middle of a broken disk's work cannot be killed; its guardian goes on trying without us
)
DRAIN_S = 1.0
MARKED_S = (0.0, 0.1, 0.3, 1.0)
UNSTARTED_S = 30.0
LINES_KEPT = 20
LINES_MAX = 1000  # of one run go into the log
LINE_BYTES_MAX = 1000
_WORDS_CHARS_MAX = 300
_MARK = "PEIK_JOB_PROCESS"
# Its modules come from where ours come from, whatever folder it begins in.
_BOOT = "import os, sys; sys.path[:] = sys.argv.pop().split(os.pathsep); from peik.jobs.child import main; main()"
_SHORT = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})

OnMessage = Callable[[Message], Awaitable[Message]]
OnLine = Callable[[int, str], None]
_T = TypeVar("_T")


async def run_in_process(
    work: Callable[..., Any],
    message: Message,
    *,
    folder: Path,
    on_message: OnMessage,
    on_line: OnLine | None = None,
) -> object:
    """What the function returns in a process of its own, which begins in `folder` and has its temporary files there.

    Raises what the function raised: as itself if it is one of those that say what becomes of a job, else as WorkFailed. If this
    is cancelled, the process and all that it started are dead before it returns. `on_line` gets the job's id and each line that
    it prints."""
    try:
        named = named_work(work)
    except BadInput as error:
        raise JobHopeless(error.detail) from None
    child = _Child(message["id"], on_line)
    try:
        await _to_its_end(child.start(folder))  # a moment, and halfway there nobody could say whose the ends are
        last = await child.serve({**named, "argv": sys.argv, "job": message}, on_message)
        await child.wait(END_S)
    finally:
        await _to_its_end(child.end())
    return child.result(last)


def check_work(work: Callable[..., Any]) -> None:
    """What can be said of a function before its module is loaded. Raises BadInput."""
    name = getattr(work, "__qualname__", "")
    if not name or "<" in name or not getattr(work, "__module__", None):
        raise BadInput(
            code="unnamed_work",
            detail=f"{name or work!r} cannot run in a process of its own: it has to be a function of a module, by its name, and "
            "not a lambda, a function within another one, or a partial.",
        )
    if inspect.iscoroutinefunction(work) or inspect.isasyncgenfunction(work):
        raise BadInput(
            code="async_work", detail=f"{name} is async: what runs in a process of its own has to be a plain function."
        )


def named_work(work: Callable[..., Any]) -> Message:
    """How another process finds it. Raises BadInput if it could not."""
    check_work(work)
    module, name = work.__module__, work.__qualname__
    inside = 0
    try:
        there = found(module, name, 0)
        while there != work:  # a decorator stands in its place
            there = there.__wrapped__  # type: ignore[attr-defined]
            inside += 1
    except (ImportError, AttributeError, KeyError):
        raise BadInput(
            code="unnamed_work",
            detail=f"{module}.{name} is not what runs under that name: another process could not find it.",
        ) from None
    return {"module": module, "name": name, "inside": inside, "main": _main() if module == "__main__" else None}


def _main() -> Message:
    told = spawn.get_preparation_data("")
    main = {key: told[key] for key in ("init_main_from_name", "init_main_from_path") if told.get(key)}
    if not main:
        raise BadInput(
            code="unnamed_work",
            detail="What was typed in or piped in cannot run in a process of its own: put it into a file.",
        )
    return main


async def _to_its_end(ending: Coroutine[Any, Any, None]) -> None:
    """A caller that cancels us waits: nothing may be left running."""
    task = asyncio.create_task(ending)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


class _Child:
    """One process, seen from Peik."""

    def __init__(self, job_id: int, on_line: OnLine | None) -> None:
        self._life = _Life()
        self._output = _Output(lambda line: None if on_line is None else on_line(job_id, line))
        self._guardian: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_garbled = False
        self._mark = secrets.token_hex(16)

    async def start(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        try:
            with ExitStack() as there:
                life, life_there = socket.socketpair()
                there.enter_context(life_there)
                await _connect(loop.create_unix_connection(lambda: self._life, sock=life), life)
                talk, talk_there = socket.socketpair()
                there.enter_context(talk_there)
                self._reader, writer = await _connect(asyncio.open_unix_connection(sock=talk), talk)
                self._writer = writer
                abort = writer.transport.abort  # what nobody could kill may hold the other end open for ever
                self._life.over.add_done_callback(lambda _: loop.call_later(DRAIN_S, abort))
                read, written = os.pipe()
                there.callback(os.close, written)
                output = os.fdopen(read, "rb", buffering=0)
                await _connect(loop.connect_read_pipe(lambda: self._output, output), output)
                self._spawn(folder, life=life_there.fileno(), talk=talk_there.fileno(), output=written)
        except OSError as error:
            if error.errno in _SHORT:
                raise _unstarted(str(error.strerror)) from None
            raise

    def _spawn(self, folder: Path, *, life: int, talk: int, output: int) -> None:
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        child = [sys.executable, "-P", "-c", _BOOT, str(talk), paths]
        guard = [sys.executable, "-S", "-P", guardian.__file__, str(life), str(talk), str(os.getpid())]
        self._guardian = subprocess.Popen(  # noqa: S603  both are ours
            [*guard, *child],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(life, talk),
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder), _MARK: self._mark},
            start_new_session=True,  # Ctrl-C in Peik's terminal is for Peik
        )

    async def serve(self, first: Message, on_message: OnMessage) -> Message | None:
        """Answer it until its last message. None: it said none."""
        assert self._reader is not None, "it was started"
        assert self._writer is not None, "it was started"
        answer = first
        while True:
            try:
                self._writer.write(packed(answer))
                await self._writer.drain()
                message = await read_message(self._reader)
            except GarbledMessage:
                self._is_garbled = True
                return None
            except ConnectionError:
                return None
            match message:
                case None | {"done": _} | {"failed": dict()}:
                    return message
                case {"ask": dict() as asked}:
                    answer = await on_message(asked)
                case _:
                    self._is_garbled = True
                    return None

    async def wait(self, most_s: float) -> None:
        if not self._is_garbled:
            await asyncio.wait([self._life.over], timeout=most_s)

    async def end(self) -> None:
        """Killed, if it is still there. All is dead when this returns, except what nobody can kill."""
        if self._guardian is not None:
            self._life.tell_to_end()
            await asyncio.wait([self._life.over], timeout=KILL_S)
            await _reaped(self._guardian)
            if self._life.over.done() and not self._life.said:  # somebody killed the guardian
                await _kill_marked(self._mark)
            await asyncio.wait([self._output.over], timeout=DRAIN_S)
        self._life.close()
        self._output.close()
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()

    def result(self, last: Message | None) -> object:
        if self._is_garbled:
            raise WorkFailed("Its process wrote into what only Peik may use, and was ended.")
        match last:
            case {"done": result}:
                return result
            case {"failed": dict() as failed}:
                raise heard_error(failed)
        said = self._life.said.decode(errors="replace")
        if said.startswith(guardian.UNSTARTED):
            raise _unstarted(said.removeprefix(guardian.UNSTARTED).strip())
        raise WorkFailed(_ended(said) + self._output.last_words())


async def _connect(connecting: Awaitable[_T], end: "socket.socket | io.FileIO") -> _T:
    try:
        return await connecting
    except OSError:
        with suppress(OSError):
            end.close()
        raise


async def _reaped(process: "subprocess.Popen[bytes]") -> None:
    """Its end of the socket is shut, so it is at its own end. (No child watcher is needed, in whatever thread we run.)"""
    for _ in range(200):
        if process.poll() is not None:
            return
        await asyncio.sleep(0.005)


async def _kill_marked(mark: str) -> None:
    """Without a guardian: whatever has the mark of this process in its environment. A program that is only just being started
    has none to show yet, so we look more than once."""
    marked = f"{_MARK}={mark}".encode()
    for wait_s in MARKED_S:
        await asyncio.sleep(wait_s)
        for pid in guardian.pids():
            with suppress(OSError):
                if marked in Path(f"/proc/{pid}/environ").read_bytes():  # noqa: ASYNC240  no disk is behind it
                    os.kill(pid, signal.SIGKILL)


def _unstarted(why: str) -> JobLater:
    return JobLater(UNSTARTED_S, f"The machine cannot start a process now ({why}).")


def _ended(said: str) -> str:
    try:
        code = int(said)
    except ValueError:
        return "Its process was killed."
    if code >= 0:
        return f"Its process ended with code {code}, and said no result."
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"Its process was killed by {name}{' (perhaps for want of memory)' if name == 'SIGKILL' else ''}."


class _Life(asyncio.Protocol):
    """Our end of the guardian's life: when we shut it, it kills; when it shuts it, all is dead."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.said = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it

    def data_received(self, data: bytes) -> None:
        self.said = (self.said + data)[:LINE_BYTES_MAX]

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def tell_to_end(self) -> None:
        if self._transport is not None and not self.over.done():
            with suppress(OSError):
                self._transport.write_eof()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _Output(asyncio.Protocol):
    """What it prints: read at once, so that it never waits for us. The last lines are kept, as they may say why it failed."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_line = on_line
        self._last: deque[str] = deque(maxlen=LINES_KEPT)
        self._rest = b""
        self._lines = 0
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *whole, rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")  # a bar of progress begins its line again
        for line in whole:
            self._take(line)
        self._rest = rest[:LINE_BYTES_MAX]

    def connection_lost(self, error: Exception | None) -> None:
        self._take(self._rest)
        if not self.over.done():
            self.over.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def last_words(self) -> str:
        words = " / ".join(self._last)[-_WORDS_CHARS_MAX:]
        return f" Its last words: {words}" if words else ""

    def _take(self, line: bytes) -> None:
        text = line[:LINE_BYTES_MAX].decode(errors="replace").rstrip()
        if not text:
            return
        self._last.append(text)
        self._lines += 1
        if self._lines < LINES_MAX:
            self._on_line(text)
        elif self._lines == LINES_MAX:
            self._on_line("(It says more than anybody reads; the rest is left out.)")
