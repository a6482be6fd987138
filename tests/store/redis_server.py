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

import redis

PACKAGE = "redis-server"
HINT = f"Install it with: sudo apt-get install {PACKAGE} (or run `make unit` as root, which does that)."
STARTS_S_MAX = 20.0


def program() -> str | None:
    return shutil.which("redis-server") or shutil.which("valkey-server")


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
        found = program()
        assert found is not None, f"There is no Redis server here. {HINT}"
        command = [found, "--port", str(self.port), "--dir", str(self.folder)]
        for name, value in self.settings.items():
            command += [f"--{name.replace('_', '-')}", value]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=_die_with_parent
        )
        _await_answer(self.client(), self._process)
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


def _die_with_parent() -> None:
    """A test run that is killed leaves no server behind (Linux: PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _await_answer(client: redis.Redis, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + STARTS_S_MAX
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
    folder = tempfile.mkdtemp(prefix="peik-redis-")
    server = RedisServer(Path(folder)).start()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    return server
