"""The simulated disk under Peik's own store: what it acknowledged is there after every death, failure and power cut."""

import itertools
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from peik.core.letter import Letter
from peik.core.lifecycle import settle
from peik.core.token import Token
from peik.errors import StartError, StoreUnavailable
from peik.outbox.store import BotRecord
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.database import connect
from peik.storage.sqlite.store import SqliteStore
from peik.testing.virtual import VirtualClock, run_virtual
from simulation.disk import Disk
from tests.storage.acts import NOW, SENT, accept, advance, all_lanes, draft, find, state, tally
from tests.storage.places import BOT

pytestmark = pytest.mark.gate  # every power cut

CUTS_MAX = 2000
ROUNDS = 5


def with_store(path: Path, story: Callable[[SqliteStore], Awaitable[None]]) -> None:
    """A process that opens the store, lives its story and closes it, with checkpoints every few commits."""

    async def main(clock: VirtualClock) -> None:
        store = SqliteStore(path, clock=clock, executor=lambda name: InlineExecutor(), busy_ms=0)
        await store.open()
        try:
            store._connection.execute("PRAGMA wal_autocheckpoint = 20")
            await store.save_bot(BotRecord(bot_id=BOT, token=Token(f"{BOT}:secret")))
            await story(store)
        finally:
            await store.close()

    run_virtual(main)


class Account:
    """What a store acknowledged."""

    def __init__(self) -> None:
        self.accepted: list[list[int]] = []
        self.completed: list[int] = []

    async def write(self, store: SqliteStore) -> None:
        """Accept letters two by two; send the first of each two."""
        for chat in range(ROUNDS):
            pair = await accept(store, draft(chat, text="x" * 900 * chat), draft(chat))
            self.accepted.append(pair)
            await _send(store, await find(store, pair[0]))
            self.completed.append(pair[0])

    async def check(self, store: SqliteStore) -> None:
        assert [row[0] for row in store._connection.execute("PRAGMA integrity_check")] == ["ok"]
        for letter_id in itertools.chain(*self.accepted):
            assert await state(store, letter_id) != "gone"
        for letter_id in self.completed:
            assert await state(store, letter_id) == "completed"
        stored = next(store._connection.execute("SELECT count(*) FROM letters"))[0]
        assert stored % 2 == 0, "half a batch is there"
        counted = await tally(store, NOW)
        assert counted.waiting + counted.active == sum(map(len, (await all_lanes(store)).values()))


async def _send(store: SqliteStore, letter: Letter) -> None:
    marked = await advance(store, [], [letter])
    if marked.error is None:
        marked = await advance(store, [settle(letter, SENT, at_ms=NOW)], [])
    if marked.error is not None:
        raise marked.error


async def nothing(store: SqliteStore) -> None:
    """A process that only starts."""


class Life:
    """A process that dies in the middle of one of its operations; then the power goes."""

    def __init__(self, path: Path, story: Callable[[SqliteStore], Awaitable[None]], *, fuse: int) -> None:
        self.is_cut_short = False
        with Disk(path.parent, random.Random(fuse), who=lambda: "peik") as disk:
            disk.kill_after("peik", fuse, self._die)
            try:
                with_store(path, story)
            except (StartError, StoreUnavailable):
                assert self.is_cut_short
            disk.cut_power()

    def _die(self) -> None:
        self.is_cut_short = True


def test_what_was_acknowledged_survives_every_power_cut(tmp_path: Path) -> None:
    """The process dies while it opens the store, accepts, marks, settles, checkpoints and closes."""
    made = tmp_path / "made.db"
    with_store(made, nothing)
    for fuse in itertools.count(step=2):
        assert fuse < CUTS_MAX
        path = tmp_path / str(fuse) / "peik.db"
        path.parent.mkdir()
        shutil.copy(made, path)
        account = Account()
        life = Life(path, account.write, fuse=fuse)
        with_store(path, account.check)
        if not life.is_cut_short:
            break
    assert len(account.completed) == ROUNDS
    assert fuse > 100


def test_a_first_start_that_was_cut_short_is_made_up_for(tmp_path: Path) -> None:
    """The first commits, before the log is in use, one by one; the making of the schema in larger steps."""
    for fuse in itertools.chain(range(20), itertools.count(20, step=7)):
        assert fuse < CUTS_MAX
        path = tmp_path / str(fuse) / "peik.db"
        path.parent.mkdir()
        life = Life(path, nothing, fuse=fuse)
        with_store(path, Account().check)
        if not life.is_cut_short:
            break
    assert fuse > 100


def test_a_log_that_cannot_be_turned_on_is_an_error(tmp_path: Path) -> None:
    with Disk(tmp_path, random.Random(1), who=lambda: "peik") as disk:
        disk.fails, disk.fails_sync_only = 1.0, True
        with pytest.raises(apsw.IOError):
            connect(tmp_path / "peik.db").close()


def test_a_schema_that_cannot_be_written_says_what_is_wrong_with_the_disk(tmp_path: Path) -> None:
    with Disk(tmp_path, random.Random(1), who=lambda: "peik") as disk:
        disk.kill_after("peik", 30, lambda: None)
        with pytest.raises(StartError, match="The disk reported an error"):
            with_store(tmp_path / "peik.db", nothing)


def test_a_store_in_a_new_folder_survives_with_its_folder(tmp_path: Path) -> None:
    for seed in range(8):
        home = tmp_path / str(seed)
        home.mkdir()
        account = Account()
        with Disk(home, random.Random(seed), who=lambda: "peik") as disk:
            with_store(home / "new" / "data" / "peik.db", account.write)
            disk.cut_power()
        with_store(home / "new" / "data" / "peik.db", account.check)


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_disk_that_fails_now_and_then_refuses_and_loses_nothing(tmp_path: Path, is_power_cut: bool) -> None:
    refusals = 0
    for seed in range(20):
        path = tmp_path / str(seed) / "peik.db"
        path.parent.mkdir()
        account = Account()
        with Disk(path.parent, random.Random(seed), who=lambda: "peik") as disk:

            async def story(store: SqliteStore, account: Account = account, disk: Disk = disk) -> None:
                nonlocal refusals
                for disk.fails in (*[0.05] * 8, 0.0):
                    try:
                        await account.write(store)
                    except StoreUnavailable as error:
                        refusals += error.code == "store_io"
                        assert disk.fails, "it goes on as soon as the disk does"
                if is_power_cut:
                    disk.kill("peik")

            with_store(path, story)
            if is_power_cut:
                disk.cut_power()
        with_store(path, account.check)
    assert refusals > 20


@pytest.mark.parametrize(("fault", "code"), [("full", "store_full"), ("read-only", "store_io")])
def test_it_goes_on_by_itself_when_there_is_room_again(tmp_path: Path, fault: str, code: str) -> None:
    account = Account()
    with Disk(tmp_path, random.Random(1), who=lambda: "peik") as disk:

        async def story(store: SqliteStore) -> None:
            await account.write(store)
            disk.room_bytes, disk.is_read_only = (20_000, False) if fault == "full" else (None, True)
            with pytest.raises(StoreUnavailable) as caught:
                await accept(store, draft(text="x" * 1_000_000))
            assert caught.value.code == code
            disk.room_bytes, disk.is_read_only = None, False
            await account.write(store)
            disk.kill("peik")

        with_store(tmp_path / "peik.db", story)
        disk.cut_power()
    with_store(tmp_path / "peik.db", account.check)


def test_a_store_on_a_disk_that_is_read_only_does_not_open(tmp_path: Path) -> None:
    account = Account()
    with Disk(tmp_path, random.Random(1), who=lambda: "peik") as disk:
        with_store(tmp_path / "peik.db", account.write)
        disk.is_read_only = True
        with pytest.raises(StartError, match="cannot be"):
            with_store(tmp_path / "peik.db", account.write)
    with_store(tmp_path / "peik.db", account.check)


def test_a_second_process_goes_on_where_the_first_died(tmp_path: Path) -> None:
    """Deaths one after another on one file, now and then with the power: nothing acknowledged is lost on the way."""
    chance = random.Random(1)
    account = Account()
    lives = itertools.count()
    life = next(lives)
    with Disk(tmp_path, chance, who=lambda: life) as disk:
        for life in itertools.islice(lives, 60):
            disk.kill_after(life, chance.randrange(120), lambda: None)
            try:
                with_store(tmp_path / "peik.db", account.write)
            except (StartError, StoreUnavailable):
                if chance.random() < 0.5:
                    disk.cut_power()
    assert len(account.completed) > 30
    with_store(tmp_path / "peik.db", account.check)


def test_a_start_that_fails_leaves_no_file_open(tmp_path: Path) -> None:
    """Whichever step of it met the disk's error: a file that stays open keeps its locks, and others out."""
    failed = 0
    for seed in range(60):
        with Disk(tmp_path, random.Random(seed), who=lambda: "peik") as disk:
            disk.fails = 0.01

            async def start(clock: VirtualClock, seed: int = seed) -> None:
                path = tmp_path / f"{seed}.db"
                store = SqliteStore(path, clock=clock, executor=lambda name: InlineExecutor(), busy_ms=0)
                await store.open()
                await store.close()

            try:
                run_virtual(start)
            except (StartError, StoreUnavailable):
                failed += 1
            disk.cut_power()  # refuses while a file is open
    assert 5 < failed < 60
