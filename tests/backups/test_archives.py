"""Every archive by a backup, beside whichever store."""

from pathlib import Path

import pytest

from peik.archive.move import summed
from peik.backups.model import BackupWatch
from tests.archive.places import PLACES, Place, SqlitePlace, opened
from tests.archive.samples import message
from tests.archive.test_moving import fill
from tests.backups.trips import backups_in
from tests.storage import places as stores

pytestmark = pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)


def url_of(place: Place) -> str:
    return f"sqlite:///{place.path}" if isinstance(place, SqlitePlace) else place.url


async def test_an_archive_comes_back_as_it_was(kind: type[Place], tmp_path: Path) -> None:
    archive, store = kind(tmp_path), stores.SqlitePlace(tmp_path)
    async with store.open():
        pass
    async with opened(archive) as one:
        await fill(one)
        before = await summed(one)
    backups = backups_in(tmp_path, store, archive=url_of(archive))
    made = await backups.create(BackupWatch())
    await backups.verify(made.path, BackupWatch())
    async with opened(archive) as one:
        assert await summed(one) == before
        await one.keep_messages([message(99, text="after the backup")])
        await one.remove_session("s2")
        assert await summed(one) != before
    await backups.restore(made.path, BackupWatch())
    async with opened(archive) as one:
        assert await summed(one) == before
        await one.keep_messages([message(100)])  # its indexes are there again


async def test_one_that_nobody_has_used_is_left_out(kind: type[Place], tmp_path: Path) -> None:
    archive, store = kind(tmp_path), stores.SqlitePlace(tmp_path)
    async with store.open():
        pass
    made = await backups_in(tmp_path, store, archive=url_of(archive)).create(BackupWatch())
    assert made.manifest.part("archive") is None
