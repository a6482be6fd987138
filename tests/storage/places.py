"""Where the stores of the conformance suite live. A new store joins the suite with one more class in `all_places`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from peik.core.letter import Letter
from peik.core.token import Token
from peik.outbox.store import BotRecord, Followed, Store, Stub
from peik.secrets.seals import PLAIN, Seals
from peik.storage.executor import run_in
from peik.storage.sqlite.store import SqliteStore

BOT, OTHER_BOT = 7, 8
LEASE_S = 3600.0  # they end when a story says so, and not while a slow machine is busy

S = TypeVar("S", bound=Store)

_held: dict[int, Mapping[int, int]] = {}  # by store: the leases that it was opened with


def epoch_of(store: Store, bot_id: int = BOT) -> int:
    """The epoch under which this store acts for a bot; 0: it does not."""
    if isinstance(store, SqliteStore):
        return store.epoch
    return _held[id(store)].get(bot_id, 0)


async def take_leases(store: Store) -> None:
    """From now on it acts for the bots that it gets."""
    _held[id(store)] = (await store.nodes.beat()).leases


class ManualClock:
    """Stands still until told to move."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def mono(self) -> float:
        return self.now_ms / 1000

    steady = mono

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms


class Recorder:
    """A StoreListener that remembers what it heard, in order."""

    def __init__(self) -> None:
        self.accepted: list[Letter] = []
        self.removed: list[Stub] = []
        self.joined: list[Stub] = []
        self.followed: list[Followed] = []

    def on_accepted(self, letters: Sequence[Letter]) -> None:
        self.accepted.extend(letters)

    def on_removed(self, stubs: Sequence[Stub]) -> None:
        self.removed.extend(stubs)

    def on_joined(self, stubs: Sequence[Stub]) -> None:
        self.joined.extend(stubs)

    def on_followed(self, ends: Sequence[Followed]) -> None:
        self.followed.extend(ends)


class Place(Protocol):
    """One set of data. Stores open and close on it; the data stays."""

    clock: ManualClock
    heard: Recorder
    freed: list[str]
    seals: Seals

    def open(self, *, is_owner: bool = True) -> AsyncIterator[Store]:
        """A store with two bots, whose listener is `heard`; closed in the end. An owner has the leases of both, if they are
        free."""

    async def crash(self, store: Store) -> None:
        """The store's process is gone: whatever it had not committed is lost, and its leases are over."""

    def unseat(self) -> None:
        """Let somebody else become the owner although the first one lives on and does not know."""


class StorePlace(Generic[S]):
    """What all places share; each makes stores of its own kind."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.heard = Recorder()
        self.freed: list[str] = []
        self.seals = PLAIN  # of the next store
        self._crashed: set[int] = set()

    def make(self, *, is_owner: bool) -> S:
        raise NotImplementedError

    @asynccontextmanager
    async def open(self, *, is_owner: bool = True) -> AsyncIterator[S]:
        store = self.make(is_owner=is_owner)
        store.listen(self.heard)
        await store.open()
        for bot_id in (BOT, OTHER_BOT):
            await store.save_bot(BotRecord(bot_id=bot_id, token=Token(f"{bot_id}:secret")))
        _held[id(store)] = {}
        if is_owner:
            await take_leases(store)
        try:
            yield store
        finally:
            del _held[id(store)]
            if id(store) not in self._crashed:
                await store.close()


class SqlitePlace(StorePlace[SqliteStore]):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "peik.db"

    def make(self, *, is_owner: bool) -> SqliteStore:
        return SqliteStore(
            self.path, clock=self.clock, is_owner=is_owner, on_blobs_freed=self.freed.extend, seals=self.seals
        )

    async def crash(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        self._crashed.add(id(store))
        await run_in(store._reading, store._reader.close)
        await run_in(store._writing, store._connection.close)
        await store._abandon()

    def unseat(self) -> None:
        # Somebody removed the lock's file: the next owner locks another one of the same name.
        self.path.with_name(self.path.name + ".owner").unlink()
