"""What the stores share, whatever is below: who listens is told of what a commit changed, and who waits is answered.

Other nodes hear of it after the commit. News that is lost costs time and nothing else: numbers are compared with every beat.
"""

import asyncio
import os
import secrets
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from peik.core.letter import Letter
from peik.core.nodes import News
from peik.outbox.store import Followed, LetterView, StoreListener, Stub
from peik.storage.rules import Changed
from peik.storage.sqlite.commit import Slot

T = TypeVar("T")

LANE_COUNTED_MAX = 10_000  # people want to know "many", not to wait for the exact number


def node_name() -> str:
    """Of this process, and of this opening of a store: anyone who comes back under the same pid is another."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"


class Committed(Protocol):
    """What a commit changed in lanes, besides what was accepted. Told once, to the first who asks, and empty then."""

    superseded: list[Stub]
    joined: list[Stub]
    followed: list[Followed]
    blobs_freed: list[str]


class Listened:
    """A store that commits in batches of slots, as one who is listened to."""

    def __init__(self, on_blobs_freed: Callable[[Sequence[str]], None]) -> None:
        self._on_blobs_freed = on_blobs_freed
        self._listener: StoreListener | None = None

    def listen(self, listener: StoreListener) -> None:
        self._listener = listener

    def _offer(self, slots: Sequence[Slot]) -> None:
        fresh = [
            slot.letter for slot in slots if slot.repeat_of is None and not slot.is_apart and not slot.is_superseded
        ]
        self._rejoin(fresh)

    def _rejoin(self, letters: Sequence[Letter]) -> None:
        if letters and self._listener is not None:
            self._listener.on_accepted(letters)

    def _tell_changed(self, change: Changed) -> None:
        """Somebody changed a letter that waited."""
        if self._listener is None:
            return
        if change.left is not None:
            self._listener.on_removed([change.left])
        if change.stands is not None:
            self._listener.on_joined([change.stands])
        if change.came is not None:
            self._listener.on_accepted([change.came])

    def _withdraw(self, views: Sequence[LetterView]) -> None:
        """These were ended by somebody's hand."""
        stubs = [Stub(letter_id=one.id, bot_id=one.bot_id, lane=(one.chat, one.thread)) for one in views]
        if stubs and self._listener is not None:
            self._listener.on_removed(stubs)

    def _tell(self, batch: Committed) -> None:
        """Let the engines know what a commit changed in their lanes. Once per batch, no matter who comes first."""
        if not (batch.superseded or batch.joined or batch.followed or batch.blobs_freed):
            return
        if self._listener is not None:
            if batch.superseded:
                self._listener.on_removed(batch.superseded)
            if batch.joined:
                self._listener.on_joined(batch.joined)
            if batch.followed:
                self._listener.on_followed(batch.followed)
        if batch.blobs_freed:
            self._on_blobs_freed(batch.blobs_freed)
        batch.superseded, batch.joined, batch.followed, batch.blobs_freed = [], [], [], []


def answer(future: "asyncio.Future[T]", value: T) -> None:
    """Nobody may be waiting any more. The one who waits wakes only after the listeners have been told."""
    if not future.done():
        future.set_result(value)


def fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class HeldBots:
    """The bots that this node holds, as far as its last beat tells. Of letters that it accepts for them nobody else needs to
    hear, since who holds them next reads them in the store; of letters that others accept, it needs to hear only for them."""

    def __init__(self) -> None:
        self._bots: frozenset[int] | None = None  # it never beat: it serves nobody, or hears for one who does
        self._until = float("-inf")

    def beaten(self, bots: Iterable[int], *, until: float) -> None:
        """`until`: by the loop's clock, and no later than by the server's."""
        self._bots, self._until = frozenset(bots), until

    def gone(self, bots: Iterable[int]) -> None:
        self._bots = None if self._bots is None else self._bots.difference(bots)

    @property
    def surely(self) -> frozenset[int]:
        """Those that nobody else holds now."""
        is_over = asyncio.get_running_loop().time() >= self._until
        return frozenset() if self._bots is None or is_over else self._bots

    def may_be(self, bot_id: int) -> bool:
        return self._bots is None or bot_id in self._bots


# News between nodes: collected while a commit is made, told after it in one short line, merged by who hears several.


LINE_BYTES_MAX = 7900  # PostgreSQL takes 8000
GAP_MAX = 64  # ids of other bots' letters within one range: looser is shorter, and a reader asks for one bot's


PAUSE_S_FIRST = 0.005
PAUSE_S_MAX = 0.02  # a node that is always busy is heard fifty times a second, and all others pay for no more


class NewsPause:
    """How long a line of news waits after the one before. One that comes by itself goes at once; while they come without end,
    each waits twice as long for the next, since every other node pays for every line."""

    def __init__(self) -> None:
        self._said_at = float("-inf")
        self._pause_s = PAUSE_S_FIRST

    def wait_s(self, now: float) -> float:
        left_s = self._said_at + self._pause_s - now
        if left_s <= 0:
            self._pause_s = PAUSE_S_FIRST
            return 0.0
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return left_s

    def said(self, now: float) -> None:
        self._said_at = now


class _Line(msgspec.Struct, array_like=True, omit_defaults=True):
    """As it is written: bots and ids only, in an order that leaves the rare fields out."""

    node: str
    accepted: list[tuple[int, int, int]] = []
    ended: dict[str, list[int]] = {}
    lanes: list[int] = []
    arrivals: list[int] = []
    chats: list[int] = []
    flags: int = 0
    due_at_ms: int | None = None


_decode = msgspec.json.Decoder(_Line).decode
_ALL, _CONSUMERS, _RECORDS, _LEASES, _JOBS = 1, 2, 4, 8, 16


class NodeNews:
    """What one commit, or several, have to say to the other nodes."""

    __slots__ = ("_accepted", "_due_at_ms", "_ended", "_flags", "arrivals", "chats", "lanes")

    def __init__(self) -> None:
        self._accepted: dict[int, list[tuple[int, int]]] = {}
        self._ended: dict[int, list[int] | None] = defaultdict(list)  # None: too many to name
        # Bots. Of lanes: letters left or joined them, other than by being accepted or by the bot's own sender.
        self.lanes: set[int] = set()
        self.arrivals: set[int] = set()
        self.chats: set[int] = set()
        self._flags = 0
        self._due_at_ms: int | None = None

    def __bool__(self) -> bool:
        return bool(
            self._accepted
            or self._ended
            or self.lanes
            or self.arrivals
            or self.chats
            or self._flags
            or self._due_at_ms is not None
        )

    # ---- what happened ----

    def accepted(self, bot_id: int, first_id: int, last_id: int) -> None:
        """New letters of a bot have ids from the first to the last (others may, too)."""
        ranges = self._accepted.setdefault(bot_id, [])
        if ranges and ranges[-1][0] <= first_id <= ranges[-1][1] + GAP_MAX:
            ranges[-1] = (ranges[-1][0], max(last_id, ranges[-1][1]))
        else:
            ranges.append((first_id, last_id))

    def ended(self, bot_id: int, letter_ids: Iterable[int]) -> None:
        named = list(letter_ids)
        known = self._ended[bot_id] if named else None
        if known is not None:
            known.extend(named)

    def consumers(self) -> None:
        self._flags |= _CONSUMERS

    def records(self) -> None:
        self._flags |= _RECORDS

    def leases(self) -> None:
        self._flags |= _LEASES

    def jobs(self) -> None:
        """Jobs came or changed, or there is room for others to begin."""
        self._flags |= _JOBS

    def everything(self) -> None:
        self._flags |= _ALL

    def due(self, at_ms: int | None) -> None:
        if at_ms is not None and (self._due_at_ms is None or at_ms < self._due_at_ms):
            self._due_at_ms = at_ms

    def add(self, other: "NodeNews") -> None:
        self._take(other.written(""))

    def leave_out(self, bots: frozenset[int]) -> None:
        """Nobody else needs to hear what was accepted for these."""
        for bot_id in bots & self._accepted.keys():
            del self._accepted[bot_id]

    # ---- on the wire ----

    def line(self, node: str) -> str:
        """All of it in one line, the less exactly the more there is."""
        text = msgspec.json.encode(self.written(node)).decode()
        for shorten in (self._shorten_ended, self._shorten_accepted, self._shorten_all):
            if len(text) <= LINE_BYTES_MAX:
                break
            shorten()
            text = msgspec.json.encode(self.written(node)).decode()
        return text

    def written(self, node: str) -> _Line:
        return _Line(
            node=node,
            accepted=[(bot_id, *one) for bot_id, ranges in self._accepted.items() for one in ranges],
            ended={str(bot_id): letter_ids or [] for bot_id, letter_ids in self._ended.items()},
            lanes=sorted(self.lanes),
            arrivals=sorted(self.arrivals),
            chats=sorted(self.chats),
            flags=self._flags,
            due_at_ms=self._due_at_ms,
        )

    def _shorten_ended(self) -> None:
        for bot_id in self._ended:
            self._ended[bot_id] = None

    def _shorten_accepted(self) -> None:
        self.lanes |= self._accepted.keys()
        self._accepted = {}

    def _shorten_all(self) -> None:
        self._flags |= _ALL
        for named in (self._accepted, self._ended, self.lanes, self.arrivals, self.chats):
            named.clear()

    # ---- as it is heard ----

    def hear(self, line: str | bytes, *, besides: str, may_be: Callable[[int], bool] = lambda bot_id: True) -> None:
        """Take up what another node said. What comes from `besides` is one's own, and no news. `may_be`: whether letters that
        were accepted for a bot are this node's to send."""
        try:
            said = _decode(line)
        except msgspec.DecodeError:
            self.everything()  # another version of Peik, or another program's: look for oneself
            return
        if said.node != besides:
            self._take(said, may_be)

    def _take(self, said: _Line, may_be: Callable[[int], bool] = lambda bot_id: True) -> None:
        for bot_id, first_id, last_id in said.accepted:
            if may_be(bot_id):
                self.accepted(bot_id, first_id, last_id)
        for text, letter_ids in said.ended.items():
            if letter_ids:
                self.ended(int(text), letter_ids)
            else:
                self._ended[int(text)] = None
        self.lanes.update(said.lanes)
        self.arrivals.update(said.arrivals)
        self.chats.update(said.chats)
        self._flags |= said.flags
        self.due(said.due_at_ms)

    def news(self) -> News:
        return News(
            is_all=bool(self._flags & _ALL),
            accepted=tuple((bot_id, *one) for bot_id, ranges in self._accepted.items() for one in ranges),
            lanes=frozenset(self.lanes),
            ended={bot_id: tuple(letter_ids or ()) for bot_id, letter_ids in self._ended.items()},
            chats=frozenset(self.chats),
            arrivals=frozenset(self.arrivals),
            is_consumers=bool(self._flags & _CONSUMERS),
            is_records=bool(self._flags & _RECORDS),
            is_leases=bool(self._flags & _LEASES),
            is_jobs=bool(self._flags & _JOBS),
            due_at_ms=self._due_at_ms,
        )
