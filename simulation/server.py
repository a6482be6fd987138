"""The model of a server that nodes share, as PostgreSQL or Redis is one: production's SQLite engine in a process of its own.

What it answers to beats, locks and rings is here; the letters are in the production tables of its file, where the witness looks.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import apsw
import msgspec

from peik import __version__
from peik.core.nodes import Beat, NodeRecord
from peik.storage.spool import make_folder
from peik.storage.sqlite.database import check, connect, migrate
from simulation.processes import OUTSIDE, Process, WorldLoop

# How many leases a node of the model may keep and take: fair shares among those who have lived for a while.


YOUNG = 0.4  # of a lease: who has lived for less may be about to die again, and what was free for so long is anybody's


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node that takes part, as the one that beats sees it."""

    held: int
    is_old: bool


class Share(msgspec.Struct, frozen=True, kw_only=True):
    keeps: int = 0
    takes: int = 0


def share_of(me: Member, others: Sequence[Member], *, total: int, forsaken: int) -> Share:
    """The share of a node. `others` live, do not drain and have been heard of lately; `forsaken` leases were free for long."""
    elders = [one for one in others if one.is_old]
    keeps = -(-total // (len(elders) + 1))
    least = total // (len(elders) + 1)
    if least <= me.held <= keeps and any(one.held < least for one in elders):
        keeps = max(me.held - 1, least)
    takes = 0
    if me.is_old:
        takes = keeps - me.held
    elif not elders:
        takes = -(-total // (len(others) + 1)) - me.held
    return Share(keeps=keeps, takes=max(takes, forsaken))


_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def load() -> dict[str, str]:
    """The model's own queries, by name."""
    text = (files("simulation") / "server.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


class Subscriber(Protocol):
    """A node that listens to what others tell."""

    @property
    def node(self) -> str: ...

    def deliver(self, line: str) -> bool:
        """Send it on its way. False: the connection is broken, and what else is told is not heard there."""


class Server:
    """`granted(bot, epoch, node)` hears of every lease that is taken, once that is durable."""

    def __init__(
        self,
        loop: WorldLoop,
        path: Path,
        *,
        note: Callable[[str], None],
        granted: Callable[[int, int, str], None],
        began_ms: int,
    ) -> None:
        self._loop = loop
        self.path = path
        self._note = note
        self._granted = granted
        self._began_ms = began_ms
        self._lives = 0
        self.process: Process | None = None
        self._connection: apsw.Connection | None = None
        self._subscribers: dict[str, Subscriber] = {}

    # ---- its life ----

    @property
    def is_up(self) -> bool:
        return self.process is not None

    def now_ms(self) -> int:
        """Its own clock, which never jumps."""
        return self._began_ms + int(self._loop.time() * 1000)

    def start(self) -> None:
        """Raises what the disk says if it cannot."""
        assert self.process is None
        self._lives += 1
        process = Process(f"server.{self._lives}", self._loop)
        self._note(f"{process} starts")
        self.process = process
        process.perform(self._open)

    def _open(self) -> None:
        make_folder(self.path.parent)
        if not self.path.exists():
            self.path.touch(mode=0o600)
        check(self.path)
        self._connection = connection = self.connect()
        migrate(connection, self.path)
        with _transaction(connection):
            connection.execute(load()["schema"])

    def connect(self, *, for_reading: bool = False) -> apsw.Connection:
        """For a session of a node, in the server's own process."""
        connection = connect(self.path, for_reading=for_reading)
        connection.create_scalar_function("server_now", lambda *_: self.now_ms(), 0)
        return connection

    def died(self, process: Process) -> None:
        """What it had not committed is gone, and so is who listened."""
        self._note(f"{process} dies")
        process.kill()
        self.process = self._connection = None
        self._subscribers.clear()
        self._loop.call_soon(process.bury, context=OUTSIDE)

    # ---- what nodes ask; always in the server's process ----

    @property
    def session(self) -> apsw.Connection:
        assert self._connection is not None
        return self._connection

    def rows(self, name: str, *bound: Any) -> list[tuple[Any, ...]]:
        return list(self.session.execute(load()[name], bound))

    def write(self, name: str, *bound: Any) -> list[tuple[Any, ...]]:
        with _transaction(self.session):
            return self.rows(name, *bound)

    def write_named(self, name: str, bound: dict[str, Any]) -> list[tuple[Any, ...]]:
        with _transaction(self.session):
            return list(self.session.execute(load()[name], bound))

    def beat(self, node: str, *, address: str | None, lease_ms: int, is_draining: bool) -> tuple[Beat, bool]:
        """The answer, and whether it is news that this node lives, or that it drains."""
        sql, session = load(), self.session
        taken: list[tuple[int, int]] = []
        with _transaction(session):
            is_news = not self.rows("is_known", node, is_draining)
            life = {"node": node, "version": __version__, "address": address, "lease_ms": lease_ms}
            ((is_away,),) = session.execute(sql["live_on"], life | {"is_draining": is_draining})
            self.rows("lock_on", lease_ms, node)
            self.rows("forget_bots")
            self.rows("note_bots")
            self.rows("note_held", node)
            self.rows("note_free")
            held = len(self.rows("held", node))
            share = Share() if is_away else self._share(node, int(YOUNG * lease_ms))
            for (bot_id,) in self.rows("free", max(0, share.takes)):
                ((epoch,),) = self.rows("new_epoch", bot_id, node)
                self.rows("take", node, epoch, bot_id)
                taken.append((bot_id, epoch))
            leases = dict(self.rows("held", node))
        for bot_id, epoch in taken:
            self._granted(bot_id, epoch, node)
        return Beat(leases=leases, surplus=max(0, held - share.keeps)), is_news

    def _share(self, node: str, young_ms: int) -> Share:
        ((total, forsaken),) = self.rows("counted", young_ms)
        members = {
            name: Member(held=held, is_old=age_ms >= young_ms)
            for name, age_ms, held in self.session.execute(load()["members"], {"node": node, "young_ms": young_ms})
        }
        me = members.pop(node)
        return share_of(me, list(members.values()), total=total, forsaken=forsaken)

    def release(self, node: str, bot_ids: list[int]) -> int:
        """How many it held."""
        before = self.session.total_changes()
        with _transaction(self.session):
            for bot_id in bot_ids:
                self.rows("release", node, bot_id)
        return self.session.total_changes() - before

    def leave(self, node: str) -> int:
        """How much it gives back."""
        before = self.session.total_changes()
        with _transaction(self.session):
            for name in ("leave", "leave_leases", "leave_locks"):
                self.rows(name, node)
        self._subscribers.pop(node, None)
        return self.session.total_changes() - before

    def nodes(self) -> list[NodeRecord]:
        return [
            NodeRecord(
                name=name,
                version=version,
                address=address,
                started_at_ms=started_at,
                seen_at_ms=seen_at,
                is_draining=bool(is_draining),
                bots=tuple(bot_id for bot_id, _ in self.rows("held", name)),
            )
            for name, version, address, started_at, seen_at, is_draining in self.rows("nodes")
        ]

    def drain(self, name: str, *, is_draining: bool) -> bool:
        before = self.session.total_changes()
        self.write("drain", is_draining, name)
        return self.session.total_changes() > before

    # ---- what they tell each other ----

    def subscribe(self, subscriber: Subscriber) -> bool:
        """Whether it has listened all the time."""
        is_known = self._subscribers.get(subscriber.node) is subscriber
        self._subscribers[subscriber.node] = subscriber
        return is_known

    def ring(self, line: str, *, teller: str) -> None:
        for name, subscriber in list(self._subscribers.items()):
            if name != teller and not subscriber.deliver(line):
                del self._subscribers[name]


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
