"""What is sealed is moved as it is, and opens with the same key wherever it is."""

import base64
import itertools
from pathlib import Path

import pytest

from peik.errors import StoreUnavailable
from peik.secrets import service
from peik.secrets.seals import is_sealed, seals_of
from peik.storage.moving.move import Ends, MoveWatch, end_of, move
from tests.storage.all_places import PLACES
from tests.storage.moving.filling import folder, url_of
from tests.storage.places import Place, SqlitePlace
from tests.storage.seal_acts import KEPT_AS_READ, fill, opened, read, texts

KEY = base64.b64encode(bytes(range(32))).decode()
ADMIN = "peik_of-the-admin"


async def test_sealed_secrets_stay_sealed_on_every_way_and_open_with_the_same_key(tmp_path: Path) -> None:
    way = [kind(folder(tmp_path, kind.__name__)) for kind in PLACES] + [SqlitePlace(folder(tmp_path, "back"))]
    seals = seals_of(KEY)
    async with opened(way[0], seals) as store:
        await fill(store)
        await service.settle(store.sealed, seals, may_rewrite=True)
        before = await texts(store)
    for origin, target in itertools.pairwise(way):
        await _moved(origin, target)
        async with opened(target, seals) as store:
            assert await texts(store) == before
            assert await read(store) == KEPT_AS_READ


@pytest.mark.skipif(len(PLACES) == 1, reason="needs a server's store")
async def test_the_admin_key_of_a_server_is_opened_for_its_file_or_the_move_says_that_it_cannot_be(
    tmp_path: Path,
) -> None:
    origin, target = PLACES[1](folder(tmp_path, "from")), SqlitePlace(folder(tmp_path, "to"))
    async with opened(origin, seals_of(KEY)) as store:
        assert await store.secret("admin_key", ADMIN) == ADMIN
        assert is_sealed((await texts(store))["secret:admin_key"])
    with pytest.raises(StoreUnavailable, match="PEIK_SECRET_KEY"):
        await _moved(origin, target, key=None)
    await _moved(origin, target)  # goes on where it stopped
    assert target.path.with_name("peik.db.key").read_text() == ADMIN + "\n"


async def _moved(origin: Place, target: Place, key: str | None = KEY) -> None:
    ends = Ends(origin=end_of(url_of(origin)), target=end_of(url_of(target), seals_of(key)))
    await move(ends, clock=target.clock, watch=MoveWatch())
