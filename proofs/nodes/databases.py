"""Servers of their own for a proof: durable, and ended in the two ways that a server ends."""

import contextlib
import signal
from pathlib import Path
from typing import Protocol

import psutil

from tests.storage.redis_server import RedisServer
from tests.storage.servers import PostgresServer

_DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "100"}


class Database(Protocol):
    """Blocks while it starts and stops."""

    @property
    def store(self) -> str:
        """What PEIK_STORE is set to."""

    @property
    def pid(self) -> int: ...

    def start(self) -> object: ...

    def stop(self) -> None:
        """In good order."""

    def kill(self) -> None:
        """With SIGKILL: it writes nothing any more."""

    def remove(self) -> None: ...


class Postgres(PostgresServer):
    def __init__(self, *, standby_of: str | None = None, **settings: str) -> None:
        super().__init__(_DURABLE | settings, standby_of=standby_of)

    @property
    def store(self) -> str:
        return f"{self.url}?schema=peik"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """All of its processes: the first would mend what befell the others, and one that lives on would keep the next start
        from recovering."""
        others = psutil.Process(self.pid).children(recursive=True)
        self._end(signal.SIGKILL)
        for one in others:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(others, timeout=10)


class Redis(RedisServer):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, appendonly="yes", appendfsync="always")

    @property
    def store(self) -> str:
        return f"{self.url}?prefix=peik"

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.kill()


def database(kind: str, folder: Path) -> Database:
    return Postgres() if kind == "postgres" else Redis(folder)
