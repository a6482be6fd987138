"""The servers of a run, its own: Redis with `appendfsync always` and `everysec`, and PostgreSQL, all on free ports.

PostgreSQL syncs every commit (fsync and synchronous_commit on, as it is installed). All of them keep their files where the
measurements keep theirs, since a folder in memory would make every sync free.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from proofs.nodes.databases import Postgres
from tests.storage.redis_server import RedisServer, program


class Servers(msgspec.Struct, frozen=True, kw_only=True):
    """Their addresses; None where the machine has no such server."""

    redis_always: str | None = None
    redis_everysec: str | None = None
    postgres: str | None = None


@contextmanager
def running_servers(folder: Path) -> Iterator[Servers]:
    started: list[RedisServer | Postgres] = []
    try:
        urls: dict[str, str] = {}
        if program() is not None:
            for name in ("always", "everysec"):
                (folder / name).mkdir()
                redis = RedisServer(folder / name, appendonly="yes", appendfsync=name)
                started.append(redis)
                urls[f"redis_{name}"] = redis.start().url
        postgres = _postgres(folder)
        if postgres is not None:
            started.append(postgres)
            postgres.start()
            urls["postgres"] = postgres.url
        yield Servers(**urls)
    finally:
        for one in started:
            one.kill() if isinstance(one, RedisServer) else one.remove()


def _postgres(folder: Path) -> Postgres | None:
    """Its own account must be able to get to the folder, so it is told where temporary files go."""
    import tempfile

    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        os.chmod(folder, 0o755)  # noqa: PTH101  the account of PostgreSQL is not ours
        return Postgres()
    except AssertionError:
        return None  # there is none on this machine
    finally:
        tempfile.tempdir = before
