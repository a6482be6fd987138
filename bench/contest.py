"""Who is measured in which row: Peik, its peers and the ceilings, side by side, so that all of a row meet the same weather."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.ground import Ground

FOLDER = Path(__file__).parent
BULLMQ = FOLDER / "peers" / "bullmq.mjs"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A queue on a store, and what a reader must know of its terms."""

    name: str
    title: str
    module: str | None  # of Python; None: BullMQ, of Node
    store: str  # a field of Ground
    works: tuple[str, ...]
    terms: str


_ALL = ("accept_1", "accept_50", "accept_batch", "drain", "idle")
_NO_BATCHES = ("accept_1", "accept_50", "drain", "idle")
_BULLMQ = ("accept_1", "accept_50", "accept_batch", "drain_c5", "drain_c50", "idle")

PEERS: tuple[Peer, ...] = (
    Peer(
        name="bullmq_always",
        title="BullMQ, Redis always",
        module=None,
        store="redis_always",
        works=_BULLMQ,
        terms="every write synced; bulk adds; worker in the process, concurrency 5 and 50",
    ),
    Peer(
        name="bullmq_everysec",
        title="BullMQ, Redis everysec",
        module=None,
        store="redis_everysec",
        works=_BULLMQ,
        terms="may lose a second of what it accepted",
    ),
    Peer(
        name="bullmq_postgres",
        title="BullMQ, PostgreSQL",
        module=None,
        store="postgres",
        works=("accept_1", "accept_50", "accept_batch"),
        terms="every commit synced; a pool of 50 connections",
    ),
    Peer(
        name="bullmq_python",
        title="BullMQ for Python, Redis always",
        module="bullmq_python",
        store="redis_always",
        works=_ALL,
        terms="every write synced; bulk adds; a pool of 50 connections (it makes one by itself); concurrency 50",
    ),
    Peer(
        name="taskiq",
        title="taskiq, Redis streams always",
        module="taskiq_streams",
        store="redis_always",
        works=_NO_BATCHES,
        terms="every write synced; acknowledged after the task; no results kept; 50 tasks at once",
    ),
    Peer(
        name="saq",
        title="SAQ, Redis always",
        module="saq_queue",
        store="redis_always",
        works=_NO_BATCHES,
        terms="every write synced; concurrency 50",
    ),
    Peer(
        name="saq_postgres",
        title="SAQ, PostgreSQL",
        module="saq_queue",
        store="postgres",
        works=("accept_1", "accept_50"),
        terms="every commit synced; a pool of 50 connections",
    ),
    Peer(
        name="dramatiq",
        title="dramatiq, Redis always",
        module="dramatiq_redis",
        store="redis_always",
        works=_NO_BATCHES,
        terms="every write synced; threads: 50 callers, 8 workers; no results kept",
    ),
    Peer(
        name="procrastinate",
        title="procrastinate, PostgreSQL",
        module="procrastinate_queue",
        store="postgres",
        works=_ALL,
        terms="every commit synced; batch defers; a pool of 50 connections, concurrency 50",
    ),
    Peer(
        name="huey",
        title="huey, SQLite",
        module="huey_sqlite",
        store="folder",
        works=_NO_BATCHES,
        terms="fsync on; a crash loses the task that was under way; threads: 50 callers, 8 workers",
    ),
)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One process that prints figures. Those of a peer are found under its name and a dot."""

    name: str
    prefix: str = ""
    peer: Peer | None = None
    work: str = ""
    is_once: bool = False  # long, or the same every time: one round of it is enough

    def command(self, ground: Ground) -> list[str]:
        text = msgspec.json.encode(ground).decode()
        if self.peer is None:
            return [sys.executable, "-m", "bench.one", self.name, text]
        if self.peer.module is None:
            return [str(shutil.which("node")), str(BULLMQ), self.work, self.peer.store, text]
        return [sys.executable, "-m", f"bench.peers.{self.peer.module}", self.work, self.peer.store, text]

    def can_run(self, ground: Ground) -> bool:
        """Whether this machine has what it needs."""
        if self.peer is not None and self.peer.module is None and shutil.which("node") is None:
            return False
        needed = self.peer.store if self.peer is not None else _NEEDS.get(self.name, "folder")
        return getattr(ground, needed) is not None


_NEEDS = {
    "postgres_ceiling": "postgres",
    "postgres_accept": "postgres",
    "redis_ceiling": "redis_always",
    "redis_accept": "redis_always",
}


def own(*names: str, is_once: bool = False) -> tuple[Task, ...]:
    return tuple(Task(name=name, is_once=is_once) for name in names)


def peers(work: str) -> tuple[Task, ...]:
    """Every peer that can do this work, with each of its concurrencies."""
    tasks = []
    for peer in PEERS:
        for one in peer.works:
            if one == work or one.startswith(f"{work}_c"):
                suffix = one.removeprefix(work)
                name = f"{peer.name}{suffix}"
                tasks.append(Task(name=f"{name}.{work}", prefix=f"{name}.", peer=peer, work=one))
    return tuple(tasks)


ROWS: Mapping[str, Sequence[Task]] = {
    "accept_1": (*own("fsync", "sqlite_commits", "accept_one_caller"), *peers("accept_1")),
    "accept_50": (
        *own("accept_many_callers", "postgres_ceiling", "postgres_accept", "redis_ceiling", "redis_accept"),
        *peers("accept_50"),
    ),
    "accept_batch": (*own("accept_batches"), *peers("accept_batch")),
    "rest": own("serve_backlog", "rest_single"),
    "drain": (
        *own("stub_ceiling", "aiohttp_loop", "carrier_loop", "aiogram_loop", "drain", "deliver_as_accepted"),
        *peers("drain"),
    ),
    "idle": (*own("idle_commit_and_post", "idle_latency"), *peers("idle")),
    "gateway": own("gateway", "gateway_edits", "gateway_reads", "answers"),
    "webhook": own("bare_webhooks", "webhook"),
    "inbox": own("recover", "read_page"),
    "million": own("serve_million", is_once=True),
    "lossy": own("lossy", is_once=True),
}

# The most telling, beside their ceilings alone: for every day.
QUICK: Mapping[str, Sequence[Task]] = {
    "accept": own("sqlite_commits", "accept_one_caller", "accept_many_callers", "accept_batches"),
    "drain": own("stub_ceiling", "aiohttp_loop", "carrier_loop", "drain"),
    "idle": own("idle_commit_and_post", "idle_latency"),
    "gateway": own("gateway"),
    "webhook": own("bare_webhooks", "webhook"),
    "inbox": own("recover"),
    "rest": own("serve_backlog"),
}


def title_of(figure: str) -> str | None:
    """The peer whose figure this is, as people know it; None for one of Peik's or a ceiling's."""
    name, dot, _ = figure.partition(".")
    if not dot:
        return None
    for peer in PEERS:
        if name == peer.name:
            return peer.title
        if name.startswith(f"{peer.name}_c"):
            return f"{peer.title}, {name.removeprefix(f'{peer.name}_c')} at once"
    return None
