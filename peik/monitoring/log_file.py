"""The log in a file: JSON lines, turned over by size. It never holds Peik up and never fails it: what the disk does not take is
dropped, counted and told once on stderr."""

import asyncio
import contextlib
import io
import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TextIO, TypeVar

from peik.core.token import without_secrets
from peik.erasure.model import ErasedCounts, ErasedPerson, Found, scrubbed

# structlog takes rich for tracebacks wherever it finds it: 4 MB for as long as Peik runs, and `format_exc_info` writes ours.
_rich = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment]
try:
    import structlog
finally:
    del sys.modules["rich"]
    if _rich is not None:
        sys.modules["rich"] = _rich

QUEUE_MAX = 10_000  # lines; a disk that hangs must not fill the memory
LAST_S = 5.0  # for the last lines, when Peik ends
BEAT_S = 300.0  # after so long without a line one is written all the same: a quiet log is told from a dead one
MODE = 0o640  # chats and errors of people are in it

T = TypeVar("T")

_open: dict[Path, "LogFile"] = {}  # those that this process writes
_opening = threading.Lock()
_stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)


class LogFile:
    """Lines are taken at once and written by a thread of its own, from `with` on until its end."""

    def __init__(
        self,
        path: Path,
        *,
        bytes_max: int,
        files_kept: int,
        told: TextIO | None = None,
        last_s: float = LAST_S,
        beat_s: float = BEAT_S,
    ) -> None:
        self._file = _Turning(path, maxBytes=bytes_max, backupCount=files_kept)
        self._path = path
        self._told = sys.stderr if told is None else told
        self._lines: queue.SimpleQueue[str | Callable[[], None] | None] = queue.SimpleQueue()
        self._last_s = last_s
        self._beat_s = beat_s
        self._users = 1
        self._lock = threading.Lock()
        self._dropped = 0
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="peik-log-file", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        _open[self._path.absolute()] = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if open_file(self._path) is self:
            del _open[self._path.absolute()]
        self._lines.put(None)
        # A disk that hangs must not keep Peik from ending: the thread ends with the process.
        self._thread.join(self._last_s)

    # ---- from anyone who logs ----

    def keep(self, logger: object, method: str, said: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """As a processor before the one that makes text of it for the terminal."""
        if self._lines.qsize() >= QUEUE_MAX:
            self._drop()
        else:
            self._lines.put(_rendered(said))
        return said

    def foreign(self) -> logging.Handler:
        """For lines of Python's own loggers."""
        return _Foreign(self)

    async def between_lines(self, work: Callable[[], T]) -> T:
        """Run something on the thread that writes, with the file closed: whatever it does to the file, no line is lost."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def turn() -> None:
            self._file.shut()
            try:
                value = work()
            except Exception as error:  # noqa: BLE001  raised where it was asked for
                loop.call_soon_threadsafe(_settle, done, None, error)
            else:
                loop.call_soon_threadsafe(_settle, done, value, None)

        self._lines.put(turn)
        return await done

    def _drop(self) -> None:
        with self._lock:
            self._dropped += 1

    # ---- to the disk ----

    def _run(self) -> None:
        while (line := self._next()) is not None:
            if isinstance(line, str):
                self._write(line)
            else:
                line()
        self._file.shut()

    def _next(self) -> str | Callable[[], None] | None:
        try:
            return self._lines.get(timeout=self._beat_s)
        except queue.Empty:
            return _rendered(_stamp(None, "info", {"event": "-> the log goes on", "level": "info"}))

    def _write(self, line: str) -> None:
        try:
            self._file.write(line)
        except Exception as error:  # noqa: BLE001  a line that cannot be written must not stop those behind it
            self._file.shut()
            self._drop()
            if not self._is_failing:
                self._is_failing = True
                why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                self._tell(f"Peik cannot write its log to {self._path}: {why}. Lines are left out until it can.")
            return
        if self._is_failing or (self._dropped and self._lines.empty()):
            self._is_failing = False
            with self._lock:
                dropped, self._dropped = self._dropped, 0
            self._tell(f"Peik writes its log to {self._path} again; {dropped} lines were left out.")
            said = {"event": "! lines of the log were left out", "count": dropped, "level": "warning"}
            self._write(_rendered(_stamp(None, "warning", said)))

    def _tell(self, words: str) -> None:
        try:
            self._told.write(words + "\n")
            self._told.flush()
        except (OSError, ValueError):  # stderr is gone, too: there is nobody left to tell
            return


@contextlib.contextmanager
def own_log(
    path: Path, *, bytes_max: int, files_kept: int, level: str
) -> Iterator[structlog.typing.FilteringBoundLogger]:
    """For a program that Peik is only a part of: Peik's lines go to this file, whatever the program does with its own log.
    Two Peiks of one process write one file."""
    with _opening:
        file = _open.get(path.absolute())
        if file is None:
            file = LogFile(path, bytes_max=bytes_max, files_kept=files_kept)
            file.__enter__()
        else:
            file._users += 1  # noqa: SLF001  it is this module's own
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        _stamp,
        structlog.processors.format_exc_info,
        file.keep,
        _dropped,
    ]
    wrapper = structlog.make_filtering_bound_logger(getattr(logging, level.upper()))
    try:
        file.keep(
            None, "info", _stamp(None, "info", {"event": "-> the log begins", "level": "info", "process": os.getpid()})
        )
        yield structlog.wrap_logger(None, processors=processors, wrapper_class=wrapper)
    finally:
        with _opening:
            file._users -= 1  # noqa: SLF001
            is_last = not file._users  # noqa: SLF001
            if is_last:
                del _open[path.absolute()]
        if is_last:
            file.__exit__(None, None, None)


def _dropped(logger: object, method: str, said: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """The file has it; there is nobody else to tell."""
    raise structlog.DropEvent


def open_file(path: Path) -> LogFile | None:
    """The log of this process that is being written to this path."""
    return _open.get(path.absolute())


def _settle(done: "asyncio.Future[Any]", value: object, error: Exception | None) -> None:
    if done.done():  # the caller has gone
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)


def _rendered(said: Mapping[str, object]) -> str:
    # Events hold no token by themselves; the words of a foreign error might.
    return without_secrets(json.dumps(said, ensure_ascii=False, default=repr))


class _Turning(RotatingFileHandler):
    """The standard library's, which says what failed, makes its folder, and notices that its file was moved or deleted."""

    def __init__(self, path: Path, *, maxBytes: int, backupCount: int) -> None:  # noqa: N803  its names
        super().__init__(
            path, maxBytes=maxBytes, backupCount=backupCount, encoding="utf-8", errors="backslashreplace", delay=True
        )

    def write(self, line: str) -> None:
        if not self._is_there():
            self.shut()
        self.emit(logging.makeLogRecord({"msg": line}))

    def shut(self) -> None:
        """Without its buffer, if that cannot be written."""
        stream, self.stream = self.stream, None
        if stream is not None:
            try:
                stream.close()
            except OSError:
                return

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  its name
        """Called in the library's `except`: what was caught goes on to the caller."""
        raise

    def _is_there(self) -> bool:
        if self.stream is None:
            return False
        try:
            named = Path(self.baseFilename).stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(self.stream.fileno()))

    def _open(self) -> io.TextIOWrapper:
        path = Path(self.baseFilename)
        path.parent.mkdir(parents=True, exist_ok=True)
        is_torn = _is_torn(path)
        stream = open(  # noqa: SIM115  Path has no opener
            path, "a", encoding=self.encoding, errors=self.errors, opener=_opened
        )
        if is_torn:
            stream.write("\n")
        return stream


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags, MODE)


def _is_torn(path: Path) -> bool:
    """Whether a crash or a full disk left half a line, which the next one must not be glued to."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


class _Foreign(logging.Handler):
    def __init__(self, file: LogFile) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        try:
            said = _said(record)
        except Exception:  # noqa: BLE001  words and arguments of a stranger that do not fit
            self.handleError(record)
            return
        self._file.keep(None, said["level"], said)


def _said(record: logging.LogRecord) -> structlog.typing.EventDict:
    """A line of Python's own loggers, with the fields of ours."""
    level = record.levelname.lower()
    said: structlog.typing.EventDict = {"event": record.getMessage(), "logger": record.name, "level": level}
    if record.exc_info:
        said["exception"] = logging.Formatter().formatException(record.exc_info)
    return dict(_stamp(None, level, said))


# Where lines of the log go: a terminal, JSON elsewhere, a file besides, or the logger of a program. No secret goes
# with them.


def set_up(*, level: str, form: str, file: LogFile | None = None) -> None:
    """For people in a terminal, JSON lines elsewhere, and in a file besides."""
    is_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    renderer = structlog.processors.JSONRenderer(ensure_ascii=False) if is_json else structlog.dev.ConsoleRenderer()
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(_JsonLine() if is_json else _Masked(logging.BASIC_FORMAT))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *([] if file is None else [file.keep]),
            renderer,
            _mask,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # One write for a line with its end: several processes write to the same place (peik.app.processes).
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[shown])
    if file is not None:
        logging.getLogger().addHandler(file.foreign())


def plain_log() -> structlog.typing.FilteringBoundLogger:
    """A log that goes to Python's own logger "peik", for programs that Peik is only a part of: they decide what is shown."""
    wrapped: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        logging.getLogger("peik"),
        processors=[structlog.stdlib.filter_by_level, structlog.processors.LogfmtRenderer(key_order=["event"]), _mask],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return wrapped


def _mask(logger: object, method: str, line: object) -> str:
    """After whatever makes text of it: nothing secret is left, wherever it stood. Our events hold none by themselves; the words
    of a foreign error might, and so might its causes."""
    return without_secrets(str(line))


class _Masked(logging.Formatter):
    """The same for the lines of Python's own loggers: of libraries that name the address that they could not reach."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class _JsonLine(logging.Formatter):
    """One line of JSON, also for what libraries say: whoever collects the log reads each of its lines as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        return _rendered(_said(record))


# Log files without a person who is forgotten. Each file is written anew beside itself and then put in its place, so
# that a crash leaves the old one or the new one whole. Who writes the log meanwhile does it himself, between two
# lines: none is lost.


class LogFilesPart:
    """The port `ErasurePart`."""

    def __init__(self, path: Path, *, files_kept: int) -> None:
        self._path = path
        self._files_kept = files_kept

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        def work() -> int:
            return sum(_rewritten(path, person, is_dry=is_dry) for path in self._files())

        writer = open_file(self._path)
        blanked = await (asyncio.to_thread(work) if writer is None else writer.between_lines(work))
        return {"log_files": ErasedCounts(blanked=blanked)}

    def _files(self) -> list[Path]:
        older = (self._path.with_name(f"{self._path.name}.{number}") for number in range(1, self._files_kept + 1))
        return [path for path in (self._path, *older) if path.is_file()]


def _rewritten(path: Path, person: ErasedPerson, *, is_dry: bool) -> int:
    """How many lines named the person. A file without any is left as it is."""
    words = [word.encode() for word in person.words]
    changed = 0
    beside = path.with_name(f".{path.name}.forgetting")
    with path.open("rb") as old, _opened_anew(beside, like=path) as new:
        for raw in old:
            line = raw
            if any(word in raw for word in words):
                text = raw.decode("utf-8", "replace")
                left = scrubbed(person, text.rstrip("\n"))
                if left != text.rstrip("\n"):
                    line, changed = left.encode() + b"\n", changed + 1
            new.write(line)
        new.flush()
        os.fsync(new.fileno())
    if changed and not is_dry:
        beside.replace(path)
    else:
        beside.unlink()
    return changed


def _opened_anew(path: Path, *, like: Path) -> BinaryIO:
    mode = like.stat().st_mode & 0o777
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb")
