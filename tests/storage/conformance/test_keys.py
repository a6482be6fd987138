"""Keys: kept by their digest, found by every process, gone when revoked."""

import msgspec
import pytest

from peik.admin.model import Key
from peik.errors import Conflict
from tests.storage.acts import HOUR, NOW
from tests.storage.places import BOT, OTHER_BOT, Place


def key(name: str = "shop", **terms: object) -> Key:
    plain = Key(id=0, name=name, digest=name.encode() * 8, scopes=("send",), created_at_ms=NOW)
    return msgspec.structs.replace(plain, **terms)


async def test_a_key_comes_back_as_it_was_kept(place: Place) -> None:
    rich = key(
        "all of it",
        scopes=("read", "send"),
        bot_ids=frozenset({BOT, OTHER_BOT}),
        expires_at_ms=NOW + HOUR,
        webhook_url="https://shop.example/hook",
    )
    async with place.open() as store:
        first = await store.add_key(key(), webhook_secret=None)
        second = await store.add_key(rich, webhook_secret="whsec_c2VjcmV0")
        assert (first.id, second.id) == (1, 2)
    async with place.open() as store:
        _, kept = await store.keys()
        assert kept == [first, second]
        assert msgspec.structs.replace(second, id=0) == rich


async def test_every_change_is_a_new_generation_for_other_processes_too(place: Place) -> None:
    async with place.open() as owner, place.open(is_owner=False) as other:
        seen = [await other.keys_generation()]
        kept = await owner.add_key(key(), webhook_secret=None)
        seen.append(await other.keys_generation())
        await other.add_key(key("second"), webhook_secret=None)
        seen.append(await owner.keys_generation())
        await owner.revoke_key(kept.id, at_ms=NOW)
        seen.append((await other.keys())[0])
        assert seen == sorted(set(seen))


async def test_a_revoked_key_is_gone_and_its_id_is_not_used_again(place: Place) -> None:
    async with place.open() as store:
        kept = await store.add_key(key(), webhook_secret=None)
        assert await store.revoke_key(kept.id, at_ms=NOW)
        assert not await store.revoke_key(kept.id, at_ms=NOW)
        assert not await store.revoke_key(99, at_ms=NOW)
        assert (await store.keys())[1] == []
        assert (await store.add_key(key(), webhook_secret=None)).id == kept.id + 1


async def test_the_last_use_only_rises_and_is_no_change_of_a_key(place: Place) -> None:
    async with place.open() as store:
        first = await store.add_key(key(), webhook_secret=None)
        second = await store.add_key(key("second"), webhook_secret=None)
        before = await store.keys_generation()
        await store.note_key_use({first.id: NOW + 5, second.id: NOW + 6, 99: NOW})
        await store.note_key_use({first.id: NOW + 1})
        generation, kept = await store.keys()
        assert [one.last_used_at_ms for one in kept] == [NOW + 5, NOW + 6]
        assert generation == before


async def test_there_is_a_bound(place: Place) -> None:
    async with place.open() as store:
        kept = [await store.add_key(key(f"k{number:04}"), webhook_secret=None) for number in range(1000)]
        with pytest.raises(Conflict) as problem:
            await store.add_key(key(), webhook_secret=None)
        assert problem.value.code == "too_many_keys"
        await store.revoke_key(kept[0].id, at_ms=NOW)
        await store.add_key(key(), webhook_secret=None)


async def test_a_secret_is_made_up_once(place: Place) -> None:
    async with place.open() as owner, place.open(is_owner=False) as other:
        assert await owner.secret("webhook", "first") == "first"
        assert await other.secret("webhook", "second") == "first"
        assert await other.secret("another", "third") == "third"
