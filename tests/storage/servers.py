"""A real PostgreSQL for the stories: started once per process that asks for one, on a free port, in a folder of its own."""

import atexit
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tests import wanting
from tests.patience import PATIENCE_S
from tests.storage.redis_server import free_port

USER = "peik"
PACKAGE = "postgresql"
CARRIER = "pgserver"  # of PyPI, for those who are not root
HOW = f"{wanting.packaged(PACKAGE)}, or .venv/bin/python -m pip install {CARRIER}"

# Quick, not durable: what a story needs beyond that it says itself.
SETTINGS = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "100"}


@cache
def postgres() -> "PostgresServer":
    """The server that all stories of this process share."""
    server = PostgresServer(SETTINGS)
    atexit.register(server.remove)
    server.start()
    return server


class PostgresServer:
    """`standby_of`: where the server is, with its user, that this one copies and follows until it is promoted."""

    def __init__(self, settings: dict[str, str], *, standby_of: str | None = None) -> None:
        self._settings = settings
        self._bin = wanted()
        self._account = _account()
        self._folder = Path(tempfile.mkdtemp(prefix="peik-postgres-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if self._account is not None:
            os.chown(self._folder, self._account, -1)
        where = ("-D", str(self._folder / "data"), "--no-sync")
        if standby_of is None:
            data = ("-U", USER, "-A", "trust", "-E", "UTF8", "--locale", "C")
            made = self._popen(str(self._bin / "initdb"), *where, *data)
        else:
            made = self._popen(str(self._bin / "pg_basebackup"), *where, "-d", standby_of, "-R", "-c", "fast")
        assert made.wait(PATIENCE_S) == 0, self.log()

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def start(self) -> None:
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        where = ("-D", str(self._folder / "data"), "-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._folder))
        self._process = self._popen(str(self._bin / "postgres"), *where, *options)
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_ready():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def stop(self) -> None:
        """As `pg_ctl stop -m fast` does: connections are ended, what they had not committed is undone."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """As a power cut does, but for the disk: nothing is written any more, and the next start must recover."""
        self._end(signal.SIGQUIT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(how)
            process.wait(PATIENCE_S)

    def _is_ready(self) -> bool:
        asked = self._popen(str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port))
        return asked.wait(PATIENCE_S) == 0

    def _popen(self, *command: str) -> "subprocess.Popen[bytes]":
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, user=self._account, preexec_fn=_end_with_parent
            )


def _end_with_parent() -> None:
    """Whoever kills the tests leaves no server behind: the kernel stops it."""
    ctypes.CDLL(None).prctl(1, signal.SIGINT)


def debian() -> Path | None:
    """Where Debian's own is, the newest."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def wanted() -> Path:
    """Where its programs are: Debian's own; else those that the PyPI package `pgserver` carries. A test without is skipped."""
    own = debian()
    if own is not None:
        return own
    found = find_spec(CARRIER)
    if found is None:
        wanting.skip(PACKAGE, HOW)
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin"


def _account() -> int | None:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    return 65534
