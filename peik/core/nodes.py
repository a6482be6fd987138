"""What the nodes of one store ask of it: leases, news of each other, and files that all of them can read.

A node believes in its leases for less time than the store does, counted from before the beat left. It looks at that deadline
before it marks, and again before bytes leave. The store writes a mark only under a live lease of the same epoch, and takes a
settlement only from the node that marked or adopted. So a node that lost its lease can do nothing that the next holder does not
know to be uncertain.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from peik.core.letter import Letter

CHORES = (
    0  # in the place of a bot's id: the lease of what is done once for the whole store (due letters, hooks, upkeep)
)


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a beat: for whom this node may act, and under which epoch. CHORES may be among them."""

    leases: Mapping[int, int]
    surplus: int = 0  # how many of them are more than its share: to be let go when what is in flight has ended
    is_whole: bool = False  # all bots, those that come later too: one process holds the whole store, as on SQLite
    epoch: int = 0  # of all of them, if it is the whole


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node that gave a sign of life within the time of a lease."""

    name: str
    version: str
    address: str | None  # where its HTTP server is, if it has one
    started_at_ms: int
    seen_at_ms: int
    is_draining: bool = False
    bots: tuple[int, ...] = ()  # for which it holds leases, CHORES among them


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What other nodes have written. A bell and no more: anyone who hears it looks into the store, and anyone who misses it finds
    out at the next beat."""

    is_all: bool = False  # anything may have changed: something was missed
    accepted: tuple[tuple[int, int, int], ...] = ()  # (bot, first id, last id): among these are new letters of the bot
    lanes: frozenset[int] = frozenset()  # bots whose letters left or joined their lanes in another way
    ended: Mapping[int, tuple[int, ...]] = {}  # by bot: letters that ended; none named: there are too many
    chats: frozenset[int] = frozenset()  # bots of which chats were held, shut or opened
    arrivals: frozenset[int] = frozenset()  # bots for which updates came, or come again
    is_consumers: bool = False  # a consumer was made, changed or removed; an outage began or ended
    is_records: bool = False  # a bot or a key was made, changed or removed
    is_leases: bool = False  # a lease was let go, or a node came or went
    is_jobs: bool = False  # jobs came or changed, or there is room for others to begin
    due_at_ms: int | None = None  # a letter was accepted that is due, or expires, then


class NodeStore(Protocol):
    """What a store that nodes share offers beyond `Store`. SQLite's offers it to the processes on one file."""

    @property
    def lease_s(self) -> float | None:
        """How long leases last after a beat. None: as long as the process, and nobody can take them before."""

    @property
    def node(self) -> str: ...

    async def beat(self, *, is_draining: bool = False) -> Beat:
        """This node lives: its leases go on for `lease_s`, by the store's own clock. Unless it is draining, it takes what is
        free or over, each under a new epoch, up to its share: all bots and CHORES, divided by the nodes that live and do
        not drain, rounded up. Who has as much as that rounded down takes nothing while another has less, and gives one up if
        it has more: nobody goes without. Who has lived, from its first beat to its last, for less than 0.4 of a lease is
        young, and may be about to die again: nobody makes room for it, and while there are older ones it takes nothing; so a
        node that dies again and again takes no bot out of service. What was free for 0.4 of a lease is taken by anyone who
        beats, share or not. A lease that was over but that nobody took goes on under its epoch.

        Raises StoreUnavailable; what the node then holds is unknown, and ends when it would have ended.
        """

    async def release(self, bot_ids: Sequence[int]) -> None:
        """Let leases go, so that others may take them at once. They hear of it."""

    async def take_lock(self, name: str) -> bool:
        """A right with a name of its own, to one node at a time; whether it is this node's now. It goes on with the beats."""

    async def drop_lock(self, name: str) -> None: ...

    async def is_locked(self, name: str) -> bool:
        """By any node, this one included."""

    async def nodes(self) -> list[NodeRecord]: ...

    async def drain_node(self, name: str, *, is_draining: bool) -> bool:
        """Ask a node to let its leases go (it does at its next beat), or to take some again. Whether there is such a node."""

    async def news(self) -> News:
        """Waits until other nodes have written, or may have. One caller."""

    async def new_letters(self, ranges: Sequence[tuple[int, int, int]]) -> list[Letter]:
        """Of ranges as `News.accepted` has them: those of each bot with ids in its range that wait in their lanes and are
        not in flight, in the order of their numbers for each bot."""

    async def last_numbers(self) -> dict[int, int]:
        """By bot, the number of the newest letter, for bots whose lease this node holds: one that is unknown here was
        accepted elsewhere, and its bell was missed."""

    async def durability(self) -> list[str]:
        """What of this store's settings breaks the promise, each with what to set instead. Empty: a commit outlives a
        power cut."""

    async def failover_loses(self) -> bool:
        """Whether a copy of the store follows that no commit waits for: a failover to it loses what it had not heard."""


class FileStore(Protocol):
    """Files of letters that every node can read, in parts. What is kept stays until it is dropped."""

    async def keep_part(self, blob: str, place: int, part: bytes) -> None: ...

    async def part(self, blob: str, place: int) -> bytes | None: ...

    async def drop_files(self, blobs: Sequence[str]) -> None: ...

    async def kept_files(self) -> dict[str, int]:
        """Every file here, and when its first part was kept (ms since 1970, by the store's clock)."""
