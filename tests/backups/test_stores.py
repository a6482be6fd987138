"""Every store by a backup: what was there comes back as it was, and nothing is left behind where it was tried out."""

from pathlib import Path

import pytest

from peik.backups.model import BackupWatch
from peik.errors import Conflict
from peik.storage.open import AnyStore
from tests.backups.trips import backups_in
from tests.storage.acts import accept, draft
from tests.storage.all_places import PLACES
from tests.storage.moving.filling import fill, fitted, records
from tests.storage.places import Place

pytestmark = pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)


async def test_everything_comes_back_as_it_was(kind: type[Place], tmp_path: Path) -> None:
    place = kind(tmp_path)
    async with place.open() as store:
        await fill(store)
    before = fitted(await records(place))
    backups = backups_in(tmp_path, place)
    made = await backups.create(BackupWatch())
    verified = await backups.verify(made.path, BackupWatch())
    assert verified.manifest == made.manifest
    assert fitted(await records(place)) == before, "trying it out changes nothing"

    async with place.open() as store:
        await accept(store, draft(chat=99), draft(chat=98))
    assert fitted(await records(place)) != before
    await gone(place)
    assert len(await backups.occupied()) == 1
    await backups.restore(made.path, BackupWatch())
    assert fitted(await records(place)) == before
    assert [path.name for path in backups.folder.iterdir()] == [made.path.name]


async def test_the_restored_store_goes_on(kind: type[Place], tmp_path: Path) -> None:
    """Letters get the next numbers, and a try that was under way is found as one."""
    place = kind(tmp_path)
    async with place.open() as store:
        first = await accepted(store)
    backups = backups_in(tmp_path, place)
    made = await backups.create(BackupWatch())
    async with place.open() as store:
        await accepted(store)
    await gone(place)
    await backups.restore(made.path, BackupWatch())
    async with place.open() as store:
        assert await accepted(store) == first + 1


async def test_a_store_in_use_is_copied_and_not_overwritten(kind: type[Place], tmp_path: Path) -> None:
    place = kind(tmp_path)
    backups = backups_in(tmp_path, place)
    async with place.open() as store:
        await accept(store, draft())
        made = await backups.create(BackupWatch())
        with pytest.raises(Conflict) as caught:
            await backups.restore(made.path, BackupWatch())
        assert caught.value.code == "in_use"
        await accept(store, draft())  # it goes on as if nothing had been


async def test_one_of_another_store_is_refused(kind: type[Place], tmp_path: Path) -> None:
    place = kind(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    made = await backups_in(tmp_path, place).create(BackupWatch())
    other = next((one for one in PLACES if one is not kind), None)
    if other is None:
        return  # only SQLite is asked for
    elsewhere = backups_in(tmp_path, other(tmp_path))
    with pytest.raises(Conflict) as caught:
        await elsewhere.restore(made.path, BackupWatch())
    assert caught.value.code == "other_store"


async def accepted(store: AnyStore) -> int:
    (letter_id,) = await accept(store, draft())
    return letter_id


async def gone(place: Place) -> None:
    """Its node ended long ago."""
    if hasattr(place, "expire_leases"):
        place.expire_leases()
