"""With Redis as the store and MongoDB as the archive, nothing of an account is ever in a SQLite file, and nothing else is."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.accounts import worker_without_sqlite
from tests.accounts.house import KEY
from tests.archive.mongo_server import MongoServer
from tests.storage.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
MAGIC = b"SQLite format 3\0"
ENDINGS = ("-journal", "-wal", "-shm", ".db", ".sqlite", ".sqlite3", ".archive")


def folder_in(place: Path, name: str) -> Path:
    made = place / name
    made.mkdir()
    return made


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@pytest.fixture
def servers(tmp_path: Path) -> "tuple[RedisServer, MongoServer]":
    return (
        RedisServer(folder_in(tmp_path, "redis"), appendonly="yes", appendfsync="always"),
        MongoServer(folder_in(tmp_path, "mongo")),
    )


@pytest.mark.gate  # two lives of a process and two servers
def test_accounts_live_on_redis_and_mongodb_alone(tmp_path: Path, servers: "tuple[RedisServer, MongoServer]") -> None:
    redis, mongo = servers
    homes = {name: folder_in(tmp_path, name) for name in ("cwd", "home", "tmp")}
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(homes["home"]),
        "TMPDIR": str(homes["tmp"]),
        "PEIK_STORE": f"{redis.url}?prefix=peik",
        "PEIK_ARCHIVE": mongo.url.format(database=f"a{uuid.uuid4().hex[:12]}"),
        "PEIK_SECRET_KEY": KEY,
    }
    try:
        redis.start()
        mongo.start()
        with subprocess.Popen(
            [sys.executable, "-m", worker_without_sqlite.__name__],
            cwd=homes["cwd"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            assert worker.stdout.readline() == "restart\n"
            for server in servers:
                server.kill()
                server.start()
            worker.stdin.write("\n")
            worker.stdin.flush()
            seen = json.loads(worker.stdout.readline() or "{}")
        assert worker.returncode == 0
    finally:
        redis.kill()
        mongo.kill()
    assert seen["sessions"] == [[seen["session_id"], "active"]]
    assert seen["letter"] == "completed"
    assert seen["delivered"] == ["two", "five"], "each once"
    assert seen["texts"] == ["five", "four", "one", "three", "two"]
    assert seen["heard"] == [1, 2, 3, 4, 5]
    assert seen["surprises"] == []
    assert seen["connections"] == []
    there = [path for home in homes.values() for path in home.rglob("*") if path.is_file()]
    files = {
        *there,
        *(path for path in map(Path, seen["made"]) if path.is_file() and path.parts[1] not in ("dev", "proc")),
    }
    assert not [path for path in files if is_sqlite(path) or path.name.endswith(ENDINGS)]


def test_the_watch_sees_what_it_is_to_see(tmp_path: Path) -> None:
    """Else the story above would prove little."""
    program = (
        "import sqlite3, apsw; from tests.accounts.worker_without_sqlite import watch, made, connections; watch();"
        "sqlite3.connect('a').close(); apsw.Connection('b').close(); open('c', 'w').close();"
        "print(sorted(one.rsplit('/')[-1] for one in [*connections, *made]))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['a', 'b', 'c']\n"
    assert not is_sqlite(tmp_path / "c")
