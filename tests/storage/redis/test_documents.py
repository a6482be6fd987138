"""Documents whose answer was lost on the way: filed once, and whoever asks again finds out by the version."""

import pytest

from peik.core.documents import Filing
from peik.errors import Conflict, InDoubt
from tests.storage.redis.test_lost_answers import wired
from tests.storage.redis_place import RedisPlace


async def test_whoever_is_in_doubt_finds_out_by_the_version(place: RedisPlace) -> None:
    async with place.open(is_owner=False), wired(place) as (store, wire):
        await store.documents.file([Filing(collection="audit", key="a", body="{}", version=0)])
        again = [Filing(collection="audit", key="a", body="[]", version=1)]
        wire.loses = b"paper_file"
        with pytest.raises(InDoubt):
            await store.documents.file(again)
        assert wire.lost == 1
        with pytest.raises(Conflict):
            await store.documents.file(again)
        found = await store.documents.document("audit", "a")
        assert found is not None
        assert (found.body, found.version) == ("[]", 2)
