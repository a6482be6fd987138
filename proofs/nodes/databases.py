"""Servers of their own for a proof: durable, and ended in the two ways that a server ends."""

import contextlib
import signal
import subprocess
from pathlib import Path
from typing import Protocol

import psutil
import redis

from tests.storage.redis_server import RedisServer, await_answer, die_with_parent, free_port, wanted
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
        folder.mkdir(exist_ok=True)
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


class RedisSentinel:
    """One that promotes by itself: a second after it has not heard of the primary."""

    NAME = "courier"

    def __init__(self, folder: Path, primary: int) -> None:
        self.port = free_port()
        self._file = folder / "sentinel.conf"
        self._file.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {self.NAME} 127.0.0.1 {primary} 1\n"
            f"sentinel down-after-milliseconds {self.NAME} 1000\nsentinel failover-timeout {self.NAME} 5000\n",
            encoding="utf-8",
        )

    @property
    def store(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/{self.NAME}?prefix=peik"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [wanted(), str(self._file), "--sentinel"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
        await_answer(redis.Redis(port=self.port), self._process)

    def primary(self) -> int:
        """The port of the one that it takes for the primary."""
        with redis.Redis(port=self.port, decode_responses=True) as client:
            return int(client.sentinel_get_master_addr_by_name(self.NAME)[1])

    def replicas(self) -> int:
        with redis.Redis(port=self.port, decode_responses=True) as client:
            known = client.sentinel_slaves(self.NAME)
        # It promotes only one that has told it, at its last look, that it follows.
        return sum("s_down" not in one["flags"] and one["master-link-status"] == "ok" for one in known)

    def remove(self) -> None:
        self._process.kill()
        self._process.wait()


def database(kind: str, folder: Path) -> Database:
    return Postgres() if kind == "postgres" else Redis(folder)
