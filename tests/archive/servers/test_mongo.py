"""What is particular to MongoDB."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from peik.archive.mongo.archive import MongoArchive
from peik.archive.store import (
    Archive,
    ArchiveRetention,
    EventFilter,
    Fed,
    KeptCounts,
    LogFilter,
    MessageFilter,
    RecordKind,
)
from peik.errors import StartError
from tests.archive.mongo_server import MongoServer, shared
from tests.archive.places import MongoPlace, opened
from tests.archive.samples import NOW, PERSON, event, line, log, message, session

DOCUMENTED = {
    "telegram_sessions": [[("session_id", 1)], [("agent_id", 1)], [("phone", 1)]],
    "messages": [
        [("session_id", 1), ("created_at", -1)],
        [("agent_id", 1), ("created_at", -1)],
        [("chat_id", 1), ("date", -1)],
    ],
    "events": [[("session_id", 1), ("created_at", -1)], [("agent_id", 1), ("event_type", 1)]],
    "feed": [[("session_id", 1), ("number", 1)], [("session_id", 1), ("key", 1)], [("at", 1)], [("user_id", 1)]],
    "reader_places": [[("reader", 1), ("session_id", 1)], [("at", 1)]],
    "logs": [[("digest", 1)], [("at", -1), ("_id", -1)]],
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
        assert await archive.keep_messages([message(1)]) == KeptCounts(new=1)
        assert await archive.keep_messages([message(1, edited_at_ms=5)]) == KeptCounts(edited=1)
        assert (await archive.tally()).versions == 1
        assert await archive.feed([line("a"), line("b")]) == 2
        assert await archive.feed([line("b"), line("c")]) == 1
        assert await archive.fed_to() == {"s1": Fed(first=1, last=3)}
        assert ["replica set" in sentence for sentence in await archive.durability()] == [True]
        await archive.close()
        with MongoClient(server.url.format(database="")) as client:
            assert client.get_database("peik")["messages"].count_documents({}) == 1
    finally:
        server.kill()


async def test_what_the_address_asks_of_writes_does_not_weaken_them() -> None:
    archive = MongoArchive(shared().url.format(database="weak") + "&w=0&journal=false&readPreference=secondary")
    await archive.open()
    concern = archive._server.database["messages"].write_concern.document
    assert concern == {"w": "majority", "j": True}
    await archive.add_session(session())
    assert await archive.session("s1") is not None
    await archive.close()


# PyMongo does not close a socket that is being connected when its client is closed: the collector does.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "url", ["mongodb://127.0.0.1:1/peik?serverSelectionTimeoutMS=50", "mongodb://:::/", "mongodb://"]
)
async def test_a_server_that_is_none_is_said_in_a_sentence(url: str) -> None:
    with pytest.raises(StartError) as met:
        await MongoArchive(url).open()
    assert "PEIK_ARCHIVE" in str(met.value) or "as the archive" in str(met.value)


# ---- sub-documents ----

RAW = '{"id":7,"peer":{"user_id":9007199254740993},"views":1.0,"list":[1,{"a":null}]}'
DEEP = '{"x":' * 99 + "1" + "}" * 99
ODD = ['{"a": 1}', '{"$set":{"a":1}}', '{"a.b":1}', '{"":1}', '{"big":18446744073709551615}', "[1]", "no JSON", DEEP]


async def test_what_is_json_can_be_asked_for_and_comes_back_as_it_came(tmp_path: Path) -> None:
    place = MongoPlace(tmp_path)
    async with opened(place) as archive:
        await archive.add_session(session(metadata='{"team":"sales","tags":["a","b"]}'))
        await archive.keep_messages([message(1, raw=RAW, media='{"name":"a.pdf"}')])
        await archive.keep_messages([message(2, raw='{"a": 1}'), message(3, raw='{"b":2}')])
        await archive.keep_messages([message(2, edited_at_ms=5), message(3, raw='{"c":3}', edited_at_ms=5)])
        await archive.keep_events([event(f"odd{number}", payload=text) for number, text in enumerate(ODD)])
        await archive.keep_logs([log("sent", fields='{"took_s": 1.5, "chat": 7}')])
        with by_hand(place) as database:
            assert database["telegram_sessions"].count_documents({"metadata.team": "sales"}) == 1
            assert database["messages"].count_documents({"raw.peer.user_id": 9007199254740993}) == 1
            assert database["messages"].count_documents({"media.name": "a.pdf", "raw.list.a": None}) == 1
            assert database["message_versions"].count_documents({"raw.b": 2}) == 1
            assert database["messages"].count_documents({"raw.c": 3}) == 1
            assert database["messages"].count_documents({"raw_json": {"$ne": None}}) == 0
            assert database["events"].count_documents({"payload.a": 1}) == 1
            assert database["logs"].count_documents({"fields.took_s": {"$gt": 1}}) == 1
        found, _ = await archive.messages(MessageFilter(), cursor=None, limit=9)
        assert {one.message_id: one.raw for one in found} == {1: RAW, 2: None, 3: '{"c":3}'}
        events, _ = await archive.events(EventFilter(), cursor=None, limit=99)
        assert sorted(one.payload for one in events) == sorted(ODD)
        logs, _ = await archive.logs(LogFilter(text='"chat": 7'), cursor=None, limit=9)
        assert [one.fields for one in logs] == ['{"took_s": 1.5, "chat": 7}']


async def test_an_archive_of_before_is_brought_over_and_read_meanwhile(tmp_path: Path) -> None:
    place = MongoPlace(tmp_path)
    async with opened(place) as archive:
        await archive.add_session(session(metadata='{"team":"sales"}'))
        await archive.keep_messages([message(number, raw=RAW) for number in range(1, 1203)])
        await archive.keep_events([event("e1", payload='{"a": 1}')])
        await archive.keep_logs([log("sent", fields='{"n":1}')])
    texts = {
        "telegram_sessions": ("metadata", '{"team":"sales"}'),
        "messages": ("raw", RAW),
        "events": ("payload", '{"a": 1}'),
    }
    with by_hand(place) as database:
        for name, (field, text) in {**texts, "logs": ("fields", '{"n":1}')}.items():
            database[name].update_many({}, {"$set": {field: text}, "$unset": {f"{field}_json": ""}})
        database["upgrades"].drop()
    async with opened(place) as archive:
        found = await archive.session("s1")
        assert found is not None
        assert found.metadata == '{"team":"sales"}'
        await archive.bringing_over.done()
        with by_hand(place) as database:
            assert database["telegram_sessions"].count_documents({"metadata.team": "sales"}) == 1
            assert database["messages"].count_documents({"raw.peer.user_id": 9007199254740993}) == 1202
            assert database["events"].count_documents({"payload.a": 1}) == 1
            assert database["logs"].count_documents({"fields.n": 1}) == 1
        assert len((await archive.logs(LogFilter(text='"n":1'), cursor=None, limit=9))[0]) == 1
        assert (await archive.messages(MessageFilter(), cursor=None, limit=1))[0][0].raw == RAW
        assert (await archive.events(EventFilter(), cursor=None, limit=1))[0][0].payload == '{"a": 1}'


# ---- the feed ----


@contextmanager
def by_hand(place: MongoPlace) -> "Iterator[Database[dict[str, Any]]]":
    """Its database, past the archive: what another process did before it died, or will do that looked a moment ago."""
    with MongoClient(place.url) as client:
        yield client.get_default_database()


async def told(archive: Archive) -> list[tuple[int, str]]:
    return [(one.number, one.key) for one in await archive.fed("s1", after=0, limit=1000)]


async def test_two_archives_feed_one_session_while_its_lines_are_let_go(tmp_path: Path) -> None:
    """The last line goes again and again, right under the hands of the writers: no number is used twice, and none is left out."""
    place, is_over = MongoPlace(tmp_path), False
    async with opened(place) as one, opened(place) as other, opened(place) as third:

        async def write(archive: Archive, name: str) -> int:
            new = 0
            for number in range(40):
                mine = [line(f"{name} {number} {part}", user_id=PERSON) for part in range(3)]
                new += await archive.feed([*mine, line(f"{name} {number}", at_ms=NOW - 5)])
            return new

        async def let_go() -> int:
            gone = 0
            while not is_over:
                gone += (await third.forget_person(PERSON))["feed"]
                gone += await third.clean(ArchiveRetention(feed_ms=1), at_ms=NOW, limit=1000)
            return gone

        watching = asyncio.create_task(let_go())
        new = await asyncio.gather(*(write(archive, str(n)) for n, archive in enumerate((one, other, one, other))))
        is_over = True
        gone = await watching
        assert sum(new) == 4 * 40 * 4
        left = await told(one)
        assert gone + len(left) == sum(new)
        assert (await one.fed_to())["s1"].last == sum(new)
        await third.forget_person(PERSON)
        await third.clean(ArchiveRetention(feed_ms=1), at_ms=NOW, limit=1000)
        assert await one.fed_to() == {"s1": Fed(first=sum(new) + 1, last=sum(new))}


async def test_two_archives_feed_one_session_in_the_order_of_each(tmp_path: Path) -> None:
    place = MongoPlace(tmp_path)
    async with opened(place) as one, opened(place) as other:

        async def write(archive: Archive, name: str) -> int:
            batches = (
                [line(f"{name} {start + n}") for n in range(5)] + [line(f"common {start}")] for start in range(0, 50, 5)
            )
            return sum([await archive.feed(batch) for batch in batches])

        new = await asyncio.gather(write(one, "one"), write(other, "other"))
        found = await told(one)
        assert [number for number, _ in found] == list(range(1, 111)) == list(range(1, sum(new) + 1))
        keys = [key for _, key in found]
        for name in ("one", "other"):
            assert [key for key in keys if key.startswith(f"{name} ")] == [f"{name} {n}" for n in range(50)]
        assert len(set(keys)) == 110


async def test_lines_of_a_client_that_died_count(tmp_path: Path) -> None:
    """It died after its insert, before it did or told anything else; and in the midst of one."""
    place = MongoPlace(tmp_path)
    async with opened(place) as archive:
        await archive.feed([line("a")])
        with by_hand(place) as database:
            known = database["feed"].find_one({"key": "a"}, {"_id": False})
            assert known is not None
            database["feed"].insert_many([{**known, "number": 2, "key": "b"}, {**known, "number": 3, "key": "c"}])
        assert await archive.fed_to() == {"s1": Fed(first=1, last=3)}
        assert await archive.feed([line("b"), line("c"), line("d")]) == 1  # its work is handed in again
        assert await told(archive) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def make_old(database: "Database[dict[str, Any]]") -> None:
    """As if all lines had come two hours ago, whatever the clock of this machine says."""
    for place, document in enumerate(list(database["feed"].find().sort("number", 1))):
        database["feed"].delete_one({"_id": document["_id"]})
        seconds = int(document["_id"].generation_time.timestamp()) - 7200
        database["feed"].insert_one({**document, "_id": ObjectId(seconds.to_bytes(4) + place.to_bytes(8))})


@pytest.mark.parametrize("is_old", [False, True])
async def test_a_writer_that_looked_before_lines_came_and_went_cannot_take_their_numbers(
    tmp_path: Path, is_old: bool
) -> None:
    """Of lines that came long ago the last number is kept: nobody looked before the others."""
    place = MongoPlace(tmp_path)
    async with opened(place) as archive:
        await archive.feed([line("a"), line("b", user_id=PERSON), line("c", user_id=PERSON)])
        with by_hand(place) as database:
            if is_old:
                make_old(database)
            assert (await archive.forget_person(PERSON))["feed"] == 2
            for number in (3,) if is_old else (2, 3):
                with pytest.raises(DuplicateKeyError):
                    database["feed"].insert_one({"session_id": "s1", "number": number, "key": "late"})
            left = list(database["feed"].find({"key": None}).sort("number", 1))
            assert [one["number"] for one in left] == ([3] if is_old else [2, 3])
            assert all(one.keys() == {"_id", "session_id", "number", "emptied"} for one in left)
        assert await archive.fed_to() == {"s1": Fed(first=1, last=3)}


async def test_emptied_lines_are_no_lines_and_go_in_the_end(tmp_path: Path) -> None:
    place, short = MongoPlace(tmp_path), ArchiveRetention(feed_ms=1)
    async with opened(place) as archive:
        await archive.feed([line("a"), line("b")])
        assert await archive.clean(short, at_ms=NOW + 2, limit=9) == 2
        assert await archive.fed_to() == {"s1": Fed(first=3, last=2)}
        await archive.feed([line("c", at_ms=NOW + 5)])
        assert await archive.fed_to() == {"s1": Fed(first=3, last=3)}
        assert await told(archive) == [(3, "c")]
        records, _ = await archive.page(RecordKind.FEED, after=None, limit=9)
        assert [record.number for record in records] == [3]  # type: ignore[union-attr]
        with by_hand(place) as database:
            assert await archive.clean(short, at_ms=NOW + 2, limit=9) == 0
            assert database["feed"].count_documents({}) == 3
            make_old(database)
            assert await archive.clean(short, at_ms=NOW + 2, limit=9) == 0
            assert database["feed"].count_documents({}) == 1
        assert await archive.fed_to() == {"s1": Fed(first=3, last=3)}


async def test_how_far_feeds_go_is_read_off_the_edges_of_an_index(tmp_path: Path) -> None:
    place = MongoPlace(tmp_path)
    async with opened(place) as archive:
        for name in ("s1", "s2", "s3"):
            await archive.feed([line(f"k{n}", session_id=name) for n in range(500)])
        with by_hand(place) as database:
            database.command("profile", 2)
            for asked in (None, ["s1", "s3"]):
                assert len(await archive.fed_to(asked)) == len(asked or "123")
            database.command("profile", 0)
            looks = list(database["system.profile"].find({"ns": f"{database.name}.feed"}))
        assert len(looks) == 6
        assert sum(look["keysExamined"] for look in looks) < 50
        assert sum(look["docsExamined"] for look in looks) == 0
