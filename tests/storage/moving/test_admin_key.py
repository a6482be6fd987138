"""The admin key goes along, from its file to a server's secrets and back."""

import itertools
import stat
from pathlib import Path

from tests.storage.acts import accept, draft
from tests.storage.all_places import PLACES
from tests.storage.moving.filling import folder, moved, records
from tests.storage.places import SqlitePlace

KEY = "peik_of-the-admin"


async def test_the_admin_key_stays_the_same_wherever_the_store_is(tmp_path: Path) -> None:
    way = [kind(folder(tmp_path, kind.__name__)) for kind in PLACES] + [SqlitePlace(folder(tmp_path, "back"))]
    async with way[0].open() as store:
        await accept(store, draft())
    key_file(way[0]).write_text(KEY + "\n")
    for origin, target in itertools.pairwise(way):
        await moved(origin, target)
        assert [(one.name, one.value) for one in (await records(target))["secrets"]] == [("admin_key", KEY)]
        if not isinstance(target, SqlitePlace):
            async with target.open() as store:
                assert await store.secret("admin_key", "another") == KEY
    back = key_file(way[-1])
    assert back.read_text() == KEY + "\n"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (back, way[-1].path)] == [0o600, 0o600]


def key_file(place: SqlitePlace) -> Path:
    return place.path.with_name(place.path.name + ".key")
