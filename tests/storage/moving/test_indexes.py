"""A Redis store keeps its own indexes: a move has to write every one of them, and nothing else."""

from pathlib import Path

import pytest

from tests.storage.all_places import PLACES
from tests.storage.moving.filling import fill, folder, moved
from tests.storage.places import Place

# What belongs to whoever is served, or to the move itself; files, which have their own way; and what may be written in more
# than one way, and is compared as records or by what the store shows.
APART = frozenset({"nodes", "alive", "leases", "locks", "epoch", "moving", "moved", "parts", "parts_kept"})
APART |= {"state", "tally", "keys_generation", "recent", "job_state", "job_lease_ms"}


@pytest.mark.parametrize("kind", [one for one in PLACES if one.__name__ == "RedisPlace"])
async def test_every_key_that_the_store_made_is_there_with_the_same_members(kind: type[Place], tmp_path: Path) -> None:
    origin, target = kind(folder(tmp_path, "from")), kind(folder(tmp_path, "to"))
    async with origin.open() as store:
        await fill(store)
    await moved(origin, target)
    assert keys(target) == keys(origin)


def keys(place: Place) -> dict[str, object]:
    """Fields of hashes without their values, which are compared as records; members of sets with their scores."""
    prefix = f"{place.prefix}{{{place.prefix.rstrip(':')}}}:"
    found: dict[str, object] = {}
    with place.server.client() as client:
        for raw in client.scan_iter(match=f"{place.prefix}*"):
            name = raw.decode().removeprefix(prefix)
            if name.partition(":")[0] in APART:
                continue
            match client.type(raw):
                case b"hash":
                    found[name] = set(client.hkeys(raw))
                case b"zset":
                    found[name] = dict(client.zrange(raw, 0, -1, withscores=True))
                case b"set":
                    found[name] = client.smembers(raw)
                case b"string":
                    found[name] = client.get(raw)
    return found
