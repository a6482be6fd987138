"""A real Redis server for the tests: started on a free port and stopped by its id. `tests.machine` brings it."""

import atexit
import ctypes
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest
import redis

from tests import wanting
from tests.patience import PATIENCE_S

PACKAGE = "redis-server"
HOW = wanting.packaged(PACKAGE)


def program() -> str | None:
    return shutil.which("redis-server") or shutil.which("valkey-server")


def wanted() -> str:
    """The same for a test, which is skipped if there is none."""
    return program() or wanting.skip(PACKAGE, HOW)


needed = pytest.mark.skipif(program() is None, reason=wanting.words(PACKAGE, HOW))


class RedisServer:
    """One server in one folder. It can be killed and started again, and has what it had synced."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.settings = {"appendonly": "no", "save": "", "bind": "127.0.0.1", "daemonize": "no"} | settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        password = self.settings.get("requirepass")
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"

    def start(self) -> "RedisServer":
        command = [wanted(), "--port", str(self.port), "--dir", str(self.folder)]
        for name, value in self.settings.items():
            command += [f"--{name.replace('_', '-')}", value]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent
        )
        await_answer(self.client(), self._process)
        return self

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a power cut would, as far as a process can tell."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def die_with_parent() -> None:
    """A test run that is killed leaves no server behind (Linux: PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def await_answer(client: redis.Redis, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + PATIENCE_S
    with client:
        while True:
            assert process.poll() is None, "redis-server ended at once"
            try:
                client.ping()
            except redis.ConnectionError:
                assert time.monotonic() < until, "redis-server does not answer"
                time.sleep(0.01)
            else:
                return


def free_port() -> int:
    """Nobody else is given it as long as this process lives, whether a server of ours listens on it or is being started. A
    port that is merely free now may be somebody else's then."""
    place = socket.socket()
    # Bound and not listening it is in the way of none that says the same of itself, as servers do.
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    port: int = place.getsockname()[1]
    place.detach()  # it stays open
    return port


@cache
def shared() -> RedisServer:
    """One for all stories of this process; each has a prefix of its own."""
    wanted()
    folder = tempfile.mkdtemp(prefix="peik-redis-")
    server = RedisServer(Path(folder)).start()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    return server
