"""Backups by the clock: a month of them in a moment, and what happens when one fails."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peik.backups.keeper import RETRY_S, Keeper
from peik.backups.model import BackupFailed, BackupLedger, BackupMade, newest
from peik.backups.service import Backups
from peik.backups.wiring import backups_of
from peik.core.documents import Filing
from peik.core.events import Event, Events, Surprise
from peik.errors import StartError, StoreUnavailable
from peik.settings.config import load
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.store import SqliteStore
from peik.testing.virtual import VirtualClock, run_virtual

DAY_S = 24 * 3600.0


def inline(name: str) -> InlineExecutor:
    return InlineExecutor()


def no_trial(name: str) -> InlineExecutor:
    """Only trying one out opens a store."""
    raise StartError("It cannot be opened.")


class Documents:
    """Those of a store whose disk is full as long as `is_full`: it reads, and does not write."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.is_full = False

    async def file(self, filings: Sequence[Filing]) -> None:
        if self.is_full:
            raise StoreUnavailable(code="disk_full", detail="The disk is full.")
        await self._store.documents.file(filings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.documents, name)


def _spoil(told: Sequence[Event]) -> None:
    for event in told:
        if isinstance(event, BackupMade):
            path = Path(event.path)
            path.write_bytes(path.read_bytes()[:-5])


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class Story:
    """A store with a keeper, in virtual time."""

    def __init__(self, folder: Path, clock: VirtualClock) -> None:
        self.clock = clock
        environment = {"PEIK_STORE": f"sqlite:///{folder / 'peik.db'}", "PEIK_BACKUP_KEEP": "3"}
        self.config = load({}, environment=environment, folder=folder)
        self.store = SqliteStore(folder / "peik.db", clock=clock, executor=inline)
        self.told: list[Event] = []
        self.events = Events()
        self.events.listen(self._hear)
        self.failures = 0
        self.surprises = 0
        self.is_trial_failing = False
        self.is_disk_bad = False  # what is written to it changes
        self.documents = Documents(self.store)

    def _hear(self, told: Sequence[Event]) -> None:
        self.told.extend(told)

    async def make(self) -> Backups:
        if self.failures:
            self.failures -= 1
            raise StartError("PEIK_SECRET_KEY is too short.")
        if self.surprises:
            self.surprises -= 1
            raise RuntimeError("nobody foresaw this")
        if self.is_disk_bad:
            self.events.listen(_spoil, BackupMade)
        return backups_of(self.config, clock=self.clock, executor=no_trial if self.is_trial_failing else inline)

    async def run(self, seconds: float) -> None:
        """So long, with a keeper of its own, as after a restart or on another node."""
        keeper = Keeper(self.make, documents=self.documents, clock=self.clock, events=self.events, every_s=DAY_S)
        async with asyncio.TaskGroup() as group:
            keeper.start(group)
            await asyncio.sleep(seconds)
            keeper.stop()

    def made(self) -> list[BackupMade]:
        return [event for event in self.told if isinstance(event, BackupMade)]


def test_one_a_day_is_made_tried_out_and_the_oldest_go(tmp_path: Path) -> None:
    async def story(clock: VirtualClock) -> None:
        told = Story(tmp_path, clock)
        await told.store.open()
        await told.run(2.5 * DAY_S)
        await told.run(2 * DAY_S)  # whoever comes after goes on with the same days
        assert len(told.made()) == 5, told.told
        entries = await BackupLedger(told.store.documents).entries()
        files = names_in(tmp_path / "peik.db.backups")
        assert len(files) == 3
        assert set(entries) == files
        assert all(entry.verified_at_ms is not None for entry in entries.values())
        last = await newest(told.store.documents)
        assert last.made_at_ms is not None
        assert clock.wall_ms() - last.made_at_ms < DAY_S * 1000
        await told.store.close()

    run_virtual(story)


def test_one_that_fails_is_told_and_tried_again(tmp_path: Path) -> None:
    async def story(clock: VirtualClock) -> None:
        told = Story(tmp_path, clock)
        await told.store.open()
        told.failures = 2
        await told.run(1.5 * RETRY_S)
        failed = [event for event in told.told if isinstance(event, BackupFailed)]
        assert [event.why for event in failed] == ["PEIK_SECRET_KEY is too short."] * 2
        assert told.made() == []
        await told.run(RETRY_S)
        assert len(told.made()) == 1
        await told.store.close()

    run_virtual(story)


def test_what_nobody_foresaw_is_told_and_ends_nothing(tmp_path: Path) -> None:
    async def story(clock: VirtualClock) -> None:
        told = Story(tmp_path, clock)
        await told.store.open()
        told.surprises = 1
        await told.run(1.5 * RETRY_S)
        assert [type(event) for event in told.told] == [Surprise, BackupFailed, BackupMade]
        await told.store.close()

    run_virtual(story)


def test_a_store_that_cannot_be_told_gets_no_second_backup(tmp_path: Path) -> None:
    async def story(clock: VirtualClock) -> None:
        told = Story(tmp_path, clock)
        await told.store.open()
        told.documents.is_full = True
        await told.run(DAY_S / 4)
        await told.run(DAY_S / 4)  # after a restart too
        (name,) = names_in(tmp_path / "peik.db.backups")
        assert await BackupLedger(told.store.documents).entries() == {}
        told.documents.is_full = False
        await told.run(DAY_S / 4)
        entries = await BackupLedger(told.store.documents).entries()
        assert set(entries) == names_in(tmp_path / "peik.db.backups") == {name}
        assert entries[name].verified_at_ms is not None
        assert len(told.made()) == 1
        await told.store.close()

    run_virtual(story)


def test_the_last_good_one_outlives_those_that_cannot_be_tried_out(tmp_path: Path) -> None:
    async def story(clock: VirtualClock) -> None:
        told = Story(tmp_path, clock)
        await told.store.open()
        await told.run(DAY_S / 2)
        (good,) = names_in(tmp_path / "peik.db.backups")
        told.is_trial_failing = True
        await told.run(6 * DAY_S)
        files = names_in(tmp_path / "peik.db.backups")
        assert len(told.made()) == 7
        assert good in files
        assert len(files) == 4
        assert set(await BackupLedger(told.store.documents).entries()) == files
        told.is_trial_failing = False
        await told.run(DAY_S)
        assert good not in names_in(tmp_path / "peik.db.backups")
        await told.store.close()

    run_virtual(story)


def test_one_that_is_found_broken_counts_as_none(tmp_path: Path) -> None:
    async def story(clock: VirtualClock) -> None:
        told = Story(tmp_path, clock)
        await told.store.open()
        await told.run(DAY_S / 2)
        good = await newest(told.store.documents)
        told.is_disk_bad = True
        await told.run(DAY_S)
        assert len(told.made()) == 2
        assert "damaged" in next(event.why for event in told.told if isinstance(event, BackupFailed))
        assert await newest(told.store.documents) == good
        await told.store.close()

    run_virtual(story)
