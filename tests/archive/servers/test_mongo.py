"""What is particular to MongoDB."""

from pathlib import Path

import pytest
from pymongo import MongoClient

from peik.archive.mongo.archive import MongoArchive
from peik.archive_ports import Kept
from peik.errors import StartError
from tests.archive.mongo_server import MongoServer, shared
from tests.archive.places import MongoPlace, opened
from tests.archive.samples import message, session

DOCUMENTED = {
    "telegram_sessions": [[("session_id", 1)], [("agent_id", 1)], [("phone", 1)]],
    "messages": [
        [("session_id", 1), ("created_at", -1)],
        [("agent_id", 1), ("created_at", -1)],
        [("chat_id", 1), ("date", -1)],
    ],
    "events": [[("session_id", 1), ("created_at", -1)], [("agent_id", 1), ("event_type", 1)]],
}


async def test_collections_have_the_documented_indexes(tmp_path: Path) -> None:
    place = MongoPlace(tmp_path)
    async with opened(place):
        pass
    async with opened(place):  # again: nothing is made twice
        pass
    with MongoClient(place.url) as client:
        database = client.get_default_database()
        for collection, wanted in DOCUMENTED.items():
            found = [index["key"] for index in database[collection].index_information().values()]
            assert all(keys in found for keys in wanted), collection
        assert database["telegram_sessions"].index_information()["session_id_1"]["unique"]


async def test_a_single_server_without_a_replica_set_will_do(tmp_path: Path) -> None:
    server = MongoServer(tmp_path, is_set=False).start()
    try:
        archive = MongoArchive(server.url.format(database=""))
        await archive.open()
        await archive.add_session(session())
        assert await archive.keep_messages([message(1)]) == Kept(new=1)
        assert await archive.keep_messages([message(1, edited_at_ms=5)]) == Kept(edited=1)
        assert (await archive.tally()).versions == 1
        assert ["replica set" in sentence for sentence in await archive.durability()] == [True]
        await archive.close()
        with MongoClient(server.url.format(database="")) as client:
            assert client.get_database("peik")["messages"].count_documents({}) == 1
    finally:
        server.kill()


async def test_what_the_address_asks_of_writes_does_not_weaken_them() -> None:
    archive = MongoArchive(shared().url.format(database="weak") + "&w=0&journal=false&readPreference=secondary")
    await archive.open()
    concern = archive._server.collection("messages").write_concern.document
    assert concern == {"w": "majority", "j": True}
    await archive.add_session(session())
    assert await archive.session("s1") is not None
    await archive.close()


@pytest.mark.parametrize(
    "url", ["mongodb://127.0.0.1:1/peik?serverSelectionTimeoutMS=50", "mongodb://:::/", "mongodb://"]
)
async def test_a_server_that_is_none_is_said_in_a_sentence(url: str) -> None:
    with pytest.raises(StartError) as met:
        await MongoArchive(url).open()
    assert "PEIK_ARCHIVE" in str(met.value) or "as the archive" in str(met.value)
