"""What is Redis' own: writes wait while it is copied, and never longer than a lease allows."""

import threading
from pathlib import Path

import pytest
import redis

from peik.backups.model import BackupWatch, Stopped
from peik.errors import Unavailable
from tests.backups.trips import backups_in
from tests.storage.acts import accept, draft
from tests.storage.all_places import HAS_SERVERS

if not HAS_SERVERS:
    pytest.skip("they need servers", allow_module_level=True)

from tests.storage.redis_place import RedisPlace

PAIRS = 4000


async def test_a_copy_is_of_one_moment_while_others_write(tmp_path: Path) -> None:
    """Two keys far apart are always written together; in the copy they are equal as well."""
    place = RedisPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    with place.server.client() as client:
        client.hset(place.key("left"), mapping={str(number): 0 for number in range(PAIRS)})
        client.hset(place.key("right"), mapping={str(number): 0 for number in range(PAIRS)})
        writing = Writing(place)
        backups = backups_in(tmp_path, place)
        made = await backups.create(BackupWatch())
        writing.end()
        assert writing.count > 0
        place.expire_leases()
        await backups.restore(made.path, BackupWatch())
        assert client.hgetall(place.key("left")) == client.hgetall(place.key("right"))
        assert not list(client.scan_iter(match="peik-restoring-*"))


async def test_more_than_fits_into_half_a_lease_is_refused_and_writes_go_on(tmp_path: Path) -> None:
    place = RedisPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
        backups = backups_in(tmp_path, place, lease="1s")
        held = threading.Event()

        def dawdle(done: int) -> None:
            held.wait(0.6)  # longer than half of the lease

        with pytest.raises(Unavailable) as caught:
            await backups.create(BackupWatch(step=dawdle))
        assert caught.value.code == "too_slow"
        await accept(store, draft())
    assert not [path for path in backups.folder.iterdir() if path.name.endswith(".backup")]


async def test_a_user_who_may_not_hold_writes_is_told_what_to_allow(tmp_path: Path) -> None:
    place = RedisPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
        with place.server.client() as client:
            client.acl_setuser("plain", enabled=True, nopass=True, commands=["+@all", "-client|pause"], keys=["*"])
        url = place.url.replace("redis://", "redis://plain:any@")
        with pytest.raises(Unavailable) as caught:
            await backups_in(tmp_path, url).create(BackupWatch())
        assert caught.value.code == "cannot_pause"
    place.expire_leases()
    await backups_in(tmp_path, url).create(BackupWatch())  # with nobody there nothing changes


async def test_one_that_is_stopped_lets_writes_go_on(tmp_path: Path) -> None:
    place = RedisPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
        watch = BackupWatch()
        watch.stop()
        with pytest.raises(Stopped):
            await backups_in(tmp_path, place).create(watch)
        await accept(store, draft())


class Writing(threading.Thread):
    """Somebody who always writes two fields in one step."""

    def __init__(self, place: RedisPlace) -> None:
        super().__init__(daemon=True)
        self._place = place
        self._is_over = threading.Event()
        self._has_begun = threading.Event()
        self.count = 0
        self.start()
        self._has_begun.wait()

    def run(self) -> None:
        client: redis.Redis = self._place.server.client()
        with client:
            while not self._is_over.is_set():
                self.count += 1
                both = client.pipeline(transaction=True)
                for name in ("left", "right"):
                    both.hset(self._place.key(name), str(self.count % PAIRS), self.count)
                both.execute()
                self._has_begun.set()

    def end(self) -> None:
        self._is_over.set()
        self.join()
