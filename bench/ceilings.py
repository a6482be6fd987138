"""What this machine can do without Peik: the disk, bare SQLite, the stub, and the shortest durable way by hand."""

import asyncio
import os
import time
from itertools import islice
from pathlib import Path

import aiohttp
import apsw
import msgspec

from bench.figures import Figures, percentiles
from bench.ground import Ground
from bench.loop import run
from bench.payload import TOKEN, params

# At 20,000 letters; fewer when there are fewer.
FSYNCS = 400
SINGLE_COMMITS = 2_000
BATCHED_ROWS = 40_000
WORKERS = 64  # as many as Peik has in flight per bot by default
STUB_POSTS = 64_000
_PIPELINED = 16
IDLE_POSTS = 200
IDLE_PAUSE_S = 0.004

# The columns that Peik writes for a plain letter, without its indexes, counters and numbers: bare means bare.
_TABLE = """CREATE TABLE letters (id INTEGER PRIMARY KEY, bot_id INTEGER, number INTEGER, rank INTEGER, chat INTEGER,
    thread INTEGER, weight INTEGER, method TEXT, params TEXT, created_at INTEGER, attempts INTEGER, backoff_ms INTEGER)"""
_INSERT = """INSERT INTO letters (bot_id, number, rank, chat, thread, weight, method, params, created_at, attempts,
    backoff_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


def fsync(ground: Ground) -> Figures:
    """Append 4 KiB and sync, again and again: about what a durable single commit must cost."""
    page = b"\0" * 4096
    fsyncs = ground.share(FSYNCS)
    with (ground.path / "page").open("wb", buffering=0) as file:
        began = time.monotonic()
        for _ in range(fsyncs):
            file.write(page)
            os.fdatasync(file.fileno())
        return {"fsync": fsyncs / (time.monotonic() - began)}


def sqlite_commits(ground: Ground) -> Figures:
    folder, singles, rows = ground.path, ground.share(SINGLE_COMMITS), ground.share(BATCHED_ROWS)
    return {
        "sqlite_1": _commits(folder / "single.db", singles, per_commit=1),
        "sqlite_100": _commits(folder / "hundred.db", rows, per_commit=100),
        "sqlite_500": _commits(folder / "many.db", rows, per_commit=500),
        "sqlite_500_lanes": _commits(folder / "lanes.db", rows, per_commit=500, with_lanes=True),
    }


def _commits(path: Path, rows: int, *, per_commit: int, with_lanes: bool = False) -> float:
    connection = _open(path)
    if with_lanes:
        connection.execute("CREATE INDEX letters_lane ON letters (bot_id, rank, chat, thread, number)")
    every = iter([_row(number) for number in range(rows)])
    began = time.monotonic()
    while block := list(islice(every, per_commit)):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, block)
        connection.execute("COMMIT")
    rate = rows / (time.monotonic() - began)
    connection.close()
    return rate


def _open(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 4096")  # as Peik's
    connection.execute(_TABLE)
    return connection


def _row(number: int) -> tuple[int | str, ...]:
    text = params(number).decode()
    return (123456789, number, 2, 1_000_000 + number % 400, 0, 1, "sendMessage", text, 1_763_200_000_000, 5, 2000)


def idle_commit_and_post(ground: Ground) -> Figures:
    """The shortest durable way by hand: one bare commit, then one aiohttp call on a warm connection."""

    async def post_some() -> list[float]:
        connection = _open(ground.path / "idle.db")
        url = f"{ground.stub}/bot{TOKEN}/sendMessage"
        taken: list[float] = []
        async with aiohttp.ClientSession() as session:
            for number in range(ground.share(IDLE_POSTS)):
                await asyncio.sleep(IDLE_PAUSE_S)
                began = time.monotonic()
                connection.execute(_INSERT, _row(number))
                async with session.post(url, data=params(number)) as answer:
                    message = msgspec.json.decode(await answer.read())
                taken.append(message["result"]["seen_at"] - began)
        connection.close()
        return taken

    half, most = percentiles(run(post_some()))
    return {"bare_idle_p50_ms": half * 1000, "bare_idle_p99_ms": most * 1000}


def stub_ceiling(ground: Ground) -> Figures:
    """Raw pipelined requests over many connections. If this is not far above the drain, the stub is the bottleneck."""

    async def flood() -> float:
        loop = asyncio.get_running_loop()
        each = ground.share(STUB_POSTS) // WORKERS + 1
        body = params(1)
        head = b"POST /bot%b/sendMessage HTTP/1.1\r\nHost: stub\r\nContent-Length: %d\r\n\r\n" % (
            TOKEN.encode(),
            len(body),
        )
        floods = [_Flood(head + body, each) for _ in range(WORKERS)]
        began = time.monotonic()
        for one in floods:
            await loop.create_connection(lambda one=one: one, "127.0.0.1", ground.stub_port)  # type: ignore[misc]
        await asyncio.gather(*(one.ended for one in floods))
        return each * WORKERS / (time.monotonic() - began)

    return {"stub": run(flood())}


class _Flood(asyncio.Protocol):
    """Keeps a few requests under way on one connection until it has had enough answers."""

    def __init__(self, request: bytes, posts: int) -> None:
        self._request = request
        self._left = posts
        self._tail = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._open = _PIPELINED
        self._write(_PIPELINED)

    def data_received(self, data: bytes) -> None:
        data = self._tail + data
        answered = data.count(b"\r\n\r\n")  # one per answer: there is none in a body
        self._tail = data[-3:] if not data.endswith(b"\r\n\r\n") else b""
        self._left -= answered
        self._open -= answered
        if self._left <= 0:
            self._transport.close()
            if not self.ended.done():
                self.ended.set_result(None)
        elif self._open <= _PIPELINED // 2:
            more = min(_PIPELINED - self._open, self._left - self._open)
            self._open += more
            self._write(more)

    def _write(self, requests: int) -> None:
        self._transport.write(self._request * requests)  # type: ignore[attr-defined]  # uvloop's own transport
