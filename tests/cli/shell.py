"""A shell for tests: `peik …` as a user types it, in a folder and an environment of its own; and the servers around it."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from tests.patience import PATIENCE_S
from tests.processes import nursery

TOKEN = "7000001:AAtest"
BOT = "7000001"
CTRL_C = b"\x03"
PEIK = ("-m", "peik")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Ran:
    """What became of a command. `document` is its one JSON document, and `problem` that of its errors."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def problem(self) -> Any:
        return json.loads(self.err)

    def __repr__(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.err}"


class Shell:
    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PEIK_", "BOT_", "REDIS_"))}
        self.environment = kept | {"TZ": "UTC", "PEIK_PORT": "1"} | environment  # nobody listens on port 1

    def peik(self, *arguments: str, stdin: str = "", **environment: str) -> Ran:
        ran = self._run(arguments, stdin, self.environment | environment)
        assert "Traceback" not in ran.err, ran.err
        assert "\x1b" not in ran.out + ran.err, ran
        return ran

    def _run(self, arguments: Sequence[str], stdin: str, environment: dict[str, str]) -> Ran:
        if nursery.can_run(environment):
            bound = {"folder": self.folder, "environment": environment, "timeout_s": PATIENCE_S}
            return Ran(*nursery.run(arguments, stdin=stdin, **bound))  # type: ignore[arg-type]
        ended = subprocess.run(
            [sys.executable, *PEIK, *arguments],
            cwd=self.folder,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    def asked(self, *arguments: str, stdin: str = "") -> Any:
        """The JSON document of a command that must succeed."""
        ran = self.peik(*arguments, "--json", stdin=stdin)
        assert ran.code == 0, ran
        assert ran.err == ""
        return ran.document

    def in_terminal(
        self, *arguments: str, program: Sequence[str] = PEIK, columns: int = 80, when: str = "", then: bytes = b""
    ) -> tuple[int, str]:
        """The same in a terminal; when it has shown some words, something is typed. Exit code, and all that was shown."""
        ours, theirs = pty.openpty()
        environment = self.environment | {"COLUMNS": str(columns), "TERM": "xterm"}
        with _begun(self.folder, program, arguments, environment, [theirs] * 3) as process:
            os.close(theirs)
            try:
                shown = self._converse(process, ours, when.encode(), then)
                code = process.wait(PATIENCE_S)
            finally:
                process.kill()
        os.close(ours)
        return code, shown.decode()

    def _converse(self, process: "_Process", terminal: int, when: bytes, then: bytes) -> bytes:
        shown = b""
        deadline = time.monotonic() + PATIENCE_S  # for something that goes on talking as well
        while time.monotonic() < deadline and select.select([terminal], [], [], PATIENCE_S)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # how a terminal says that nobody writes any more
                return shown
            if then and when in shown:
                if then == CTRL_C:
                    process.send_signal(signal.SIGINT)
                else:
                    os.write(terminal, then)
                then = b""
        raise AssertionError(f"it neither ended nor said more than this: {shown!r}")


@contextmanager
def started(shell: Shell, *arguments: str, ready: str, **environment: str) -> Iterator[re.Match[str]]:
    """A server of `peik` until the end of the block, once it has written what shows that it is ready."""
    ours, theirs = os.pipe()
    with Path(os.devnull).open("rb") as nothing, os.fdopen(ours, encoding="utf-8") as said:
        streams = [nothing.fileno(), theirs, theirs]
        with _begun(shell.folder, PEIK, arguments, shell.environment | environment, streams) as process:
            os.close(theirs)
            output = _Output(said, re.compile(ready))
            try:
                yield output.match()
            finally:
                process.kill()
                output.join()
                process.wait(PATIENCE_S)


_Process = subprocess.Popen[bytes] | nursery.Child


def _begun(
    folder: Path, program: Sequence[str], arguments: Sequence[str], environment: dict[str, str], streams: Sequence[int]
) -> _Process:
    """`peik …` as a copy out of the nursery if it may be one, else as a start of Python."""
    if program == PEIK and nursery.can_run(environment):
        return nursery.start("peik", arguments, folder=folder, environment=environment, streams=streams)
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        cwd=folder,
        env=environment,
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        start_new_session=True,
    )


class _Output(threading.Thread):
    """Reads all that a server writes, for as long as it lives: one whose pipe is full would stand still."""

    def __init__(self, said: TextIO, ready: re.Pattern[str]) -> None:
        super().__init__(daemon=True)
        self._stream = said
        self._ready = ready
        self._match: re.Match[str] | None = None
        self._decided = threading.Event()
        self._said = ""
        self.start()

    def run(self) -> None:
        for line in self._stream:
            self._said += line
            if self._match is None and (match := self._ready.search(line)):
                self._match = match
                self._decided.set()
        self._decided.set()

    def match(self) -> re.Match[str]:
        """The line that shows that it is ready."""
        is_decided = self._decided.wait(PATIENCE_S)
        assert self._match is not None, f"it {'ended' if is_decided else 'is not ready'}, and said: {self._said}"
        return self._match


class Telegram:
    """The simulated one, and what it was told."""

    def __init__(self, url: str, control_url: str) -> None:
        self.url = url
        self._control = control_url

    def post(self, path: str, **body: Any) -> Any:
        return self._open(urllib.request.Request(f"{self._control}/sim/{path}", json.dumps(body).encode()))

    def sent_to(self, chat: int) -> list[Any]:
        return list(self._open(f"{self._control}/sim/sent?chat={chat}")["deliveries"])

    def _open(self, request: Any) -> Any:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)["result"]


@contextmanager
def telegram(shell: Shell) -> Iterator[Telegram]:
    with started(shell, "sim", "--port", "0", "--seed", "7", ready=r"^(\{.*\})") as match:
        places = json.loads(match[1])
        yield Telegram(places["url"], places["control_url"])


@contextmanager
def served(shell: Shell, api_root: str, **environment: str) -> Iterator[str]:
    """A running Peik in the folder of the shell; its address."""
    settings = {"PEIK_PORT": "0", "PEIK_API_ROOT": api_root, "PEIK_LOG_LEVEL": "error", **environment}
    with started(shell, "serve", ready=r"listens on (http://\S+)", **settings) as match:
        yield match[1]
