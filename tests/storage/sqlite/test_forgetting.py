"""Of a person who is forgotten not even bytes are left, where nobody else has the file."""

from pathlib import Path

from tests.storage import inbox_acts
from tests.storage.forgetting_acts import MARKER, NAME, PERSON, forgetter, live_through
from tests.storage.places import SqlitePlace


async def test_their_bytes_are_gone_from_the_file(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    async with place.open() as store:
        await inbox_acts.open_inbox(store.inbox)
        await live_through(store)
        assert _bytes(place).count(MARKER.encode()) > 20
        whole = forgetter(place, store)
        done = await whole.forget(await whole.person(user_id=PERSON), who="a test")
        assert done.notes == ()
        assert MARKER.encode() not in _bytes(place)
        assert NAME.encode() not in _bytes(place)


def _bytes(place: SqlitePlace) -> bytes:
    beside = (place.path, place.path.with_name(place.path.name + "-wal"))
    return b"".join(path.read_bytes() for path in beside if path.exists())
