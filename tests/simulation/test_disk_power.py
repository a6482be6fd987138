"""Power cuts under SQLite: what was committed survives each of them, and what was not synced is really at stake."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import apsw

from simulation.disk import SECTOR_BYTES, Disk, Image, Luck
from tests.simulation.pairs import COMMITS, add_pair, make_table, opened, pairs_in

CUTS_MAX = 1000


class Life:
    """A process that writes pairs until its fuse has burnt; then the power goes."""

    def __init__(self, folder: Path, *, fuse: int, synchronous: str) -> None:
        self.path = folder / "pairs.db"
        self.deaths: list[int] = []
        self.acknowledged: list[int] = []
        self.disk = Disk(folder, random.Random(fuse), who=lambda: "writer")
        with self.disk:
            self.disk.kill_after("writer", fuse, lambda: self.deaths.append(fuse))
            try:
                with opened(self.path, synchronous=synchronous) as connection:
                    self._write(connection)
            except apsw.IOError:
                assert self.deaths
            self.disk.cut_power()

    def _write(self, connection: apsw.Connection) -> None:
        make_table(connection)
        for number in range(COMMITS):
            add_pair(connection, number)
            self.acknowledged.append(number)


def lives(folder: Path, *, synchronous: str) -> Iterator[Life]:
    """One that ends at each of its operations, and one that comes to the end of its script."""
    for fuse in itertools.count():
        assert fuse < CUTS_MAX
        home = folder / str(fuse)
        home.mkdir()
        life = Life(home, fuse=fuse, synchronous=synchronous)
        yield life
        if not life.deaths:
            return


def test_a_commit_survives_every_power_cut(tmp_path: Path) -> None:
    lost_writes = torn_writes = uncommitted = cuts = 0
    for life in lives(tmp_path, synchronous="FULL"):
        found = pairs_in(life.path)
        # The one commit that was under way may be there or not.
        assert found in (life.acknowledged, [*life.acknowledged, len(life.acknowledged)]), f"fuse {cuts}"
        uncommitted += found != life.acknowledged
        lost_writes += life.disk.lost_writes
        torn_writes += life.disk.torn_writes
        cuts += 1
    assert life.acknowledged == list(range(COMMITS))
    assert cuts > 100
    assert min(lost_writes, torn_writes, uncommitted) > 0


def test_without_a_sync_per_commit_some_are_lost_but_the_file_is_sound(tmp_path: Path) -> None:
    losses = 0
    for life in lives(tmp_path, synchronous="NORMAL"):
        found = pairs_in(life.path)
        assert found == list(range(len(found)))
        losses += len(found) < len(life.acknowledged)
    assert losses > 10


def test_without_any_sync_even_the_file_is_ruined(tmp_path: Path) -> None:
    losses = ruins = 0
    for life in lives(tmp_path, synchronous="OFF"):
        try:
            losses += pairs_in(life.path) != life.acknowledged
        except (apsw.CorruptError, apsw.NotADBError, AssertionError):
            ruins += 1
    assert losses > 10
    assert ruins > 0


def test_what_a_failed_sync_forgot_the_next_one_does_not_bring_back() -> None:
    found = set()
    for seed in range(40):
        image, luck = Image(1), Luck(random.Random(seed))
        image.write(b"old", 0)
        image.sync()
        image.write(b"new", 0)
        image.fail_sync(luck)
        image.sync()
        found.add(image.cut_power(luck))
    assert found == {b"old", b"new"}


def test_a_torn_write_ends_where_a_sector_does_and_later_ones_may_survive_without_it() -> None:
    found = set()
    for seed in range(400):
        image = Image(1)
        image.write(b"a" * (2 * SECTOR_BYTES - 100), 100)
        image.write(b"b", 3 * SECTOR_BYTES)
        found.add(image.cut_power(Luck(random.Random(seed))))
    head, tail = bytes(100), bytes(SECTOR_BYTES) + b"b"
    torn, whole = b"a" * (SECTOR_BYTES - 100), b"a" * (2 * SECTOR_BYTES - 100)
    assert {b"", head + torn, head + whole, head + whole + tail} <= found
    assert {head + torn + bytes(SECTOR_BYTES) + tail, bytes(3 * SECTOR_BYTES) + b"b"} <= found
    assert {one.count(b"a") for one in found} == {0, len(torn), len(whole)}


def test_a_shortening_that_was_not_synced_may_not_have_happened() -> None:
    found = set()
    for seed in range(40):
        image = Image(1)
        image.write(b"longer", 0)
        image.sync()
        image.truncate(4)
        found.add(image.cut_power(Luck(random.Random(seed))))
    assert found == {b"long", b"longer"}
