"""The archives: how fast messages are kept beside the barest way that each database offers, how long pages take, and what a
message costs on the disk.

    python -m bench.archive --count 1000000 --archives sqlite,postgres,mongo

Bare and Peik write the same rows with the same indexes and the same durability, 2,000 a commit. Bare gets its rows ready-made and
looks at nothing; only its calls are timed. Peik folds the words, finds what is there already and counts.
"""

import argparse
import asyncio
import json
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import msgspec
from pymongo import AsyncMongoClient, WriteConcern

from peik.archive.cache import CachedArchive, SessionCache
from peik.archive.mongo.archive import MongoArchive
from peik.archive.mongo.documents import INDEXES, message_document
from peik.archive.postgres.archive import PostgresArchive
from peik.archive.rules import words
from peik.archive.sql import MESSAGE, load
from peik.archive.sqlite.archive import SqliteArchive, connect, migrate
from peik.archive.store import Archive, Direction, Message, MessageFilter, Session
from tests.archive.mongo_server import MongoServer
from tests.storage.redis_server import RedisServer
from tests.storage.servers import PostgresServer

AT_ONCE = 2000
CALLERS, PAGE = 20, 100
ASKED = 20
SESSIONS, AGENTS, CHATS, SENDERS = 20, 5, 500, 5000
BEGAN = 1_700_000_000_000
_SYLLABLES = ("ka lo mi ren tu va", "سا می را نو ده کن", "при вет мир дом ле то")


def vocabulary() -> list[str]:
    chance = random.Random(1)
    parts = [line.split() for line in _SYLLABLES]
    return sorted({"".join(chance.choices(chance.choice(parts), k=chance.randint(2, 5))) for _ in range(30_000)})


VOCABULARY = vocabulary()
_WEIGHTS = [1 / (place + 10) for place in range(len(VOCABULARY))]


def batches(count: int) -> Iterator[list[Message]]:
    """Always the same messages: about ten words each, of which a few are common and most are rare, in three scripts."""
    chance = random.Random(2)
    spoken = chance.choices(VOCABULARY, _WEIGHTS, k=200_000)
    for start in range(0, count, AT_ONCE):
        yield [_message(number, chance, spoken) for number in range(start, min(start + AT_ONCE, count))]


def _message(number: int, chance: random.Random, spoken: list[str]) -> Message:
    at, length = chance.randrange(len(spoken) - 20), chance.randint(4, 16)
    session = number // PAGE % SESSIONS  # a page is of one chat of one session, as a crawl brings it
    chat = number // PAGE * 7 % CHATS
    return Message(
        session_id=f"session-{session:04}",
        agent_id=f"agent-{session % AGENTS}",
        chat_id=chat + 1 if chat % 2 else -1_001_000_000_000 - chat,
        message_id=number,
        direction=Direction.SENT if number % 4 == 0 else Direction.RECEIVED,
        sender_id=chance.randrange(SENDERS),
        date_ms=BEGAN + number // 3 * 1000,
        text=" ".join(spoken[at : at + length]),
        created_at_ms=BEGAN + number,
    )


# ---- bare ----


async def bare_sqlite(path: Path, count: int) -> float:
    sql = load("peik.archive.sqlite", "queries.sql")
    connection = connect(path)
    migrate(connection, path)
    taken = 0.0
    number = 0
    for batch in batches(count):
        rows = [(number + place, *msgspec.structs.astuple(one)) for place, one in enumerate(batch)]
        texts = [(row[0], " ".join(words(one.text))) for row, one in zip(rows, batch, strict=True)]
        number += len(batch)
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(sql["add_message"], rows)
        connection.executemany(sql["add_words"], texts)
        connection.execute("COMMIT")
        taken += time.perf_counter() - began
    connection.close()
    return count / taken


async def bare_postgres(url: str, count: int) -> float:
    archive = PostgresArchive(f"{url}?schema=bare")
    await archive.open()
    await archive.close()
    connection = await asyncpg.connect(url, server_settings={"search_path": "bare", "synchronous_commit": "on"})
    taken = 0.0
    for batch in batches(count):
        lines = ["\t".join(_copied(value) for value in (*msgspec.structs.astuple(one), _vector(one))) for one in batch]
        source = _bytes("\n".join(lines).encode() + b"\n")
        began = time.perf_counter()
        await connection.copy_to_table("messages", source=source, columns=[*MESSAGE, "words"])
        taken += time.perf_counter() - began
    await connection.close()
    return count / taken


def _copied(value: object) -> str:
    return "\\N" if value is None else str(value)


def _vector(one: Message) -> str:
    return " ".join(f"'{word}'" for word in words(one.text))


async def _bytes(whole: bytes) -> AsyncIterator[bytes]:
    yield whole


async def bare_mongo(url: str, count: int) -> float:
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        concern = WriteConcern(w="majority", j=True)
        messages = client.get_database("bare").get_collection("messages", write_concern=concern)
        await messages.create_indexes(INDEXES["messages"])
        taken = 0.0
        for batch in batches(count):
            documents = [message_document(one) for one in batch]
            began = time.perf_counter()
            await messages.insert_many(documents, ordered=False)
            taken += time.perf_counter() - began
    return count / taken


# ---- Peik ----


async def kept(archive: Archive, count: int) -> float:
    """Twenty callers, each with a page of a hundred, as crawls do. Making up the messages is not counted."""
    taken = 0.0
    for batch in batches(count):
        began = time.perf_counter()
        pages = [batch[start : start + PAGE] for start in range(0, len(batch), PAGE)]
        await asyncio.gather(*(archive.keep_messages(page) for page in pages))
        taken += time.perf_counter() - began
    assert (await archive.tally()).messages == count
    return count / taken


async def known_again(archive: Archive, count: int) -> float:
    """The same handed in once more: nothing is written."""
    some = [batch for batch, _ in zip(batches(count), range(10), strict=False)]
    began = time.perf_counter()
    for batch in some:
        assert (await archive.keep_messages(batch)).known == len(batch)
    return sum(map(len, some)) / (time.perf_counter() - began)


def questions(count: int) -> dict[str, MessageFilter]:
    middle = BEGAN + count // 6 * 1000
    common = max(("konto", *VOCABULARY[:3]), key=lambda word: word in VOCABULARY[:3])
    return {
        "everything": MessageFilter(),
        "session": MessageFilter(session_id="session-0007"),
        "agent": MessageFilter(agent_id="agent-3"),
        "chat": MessageFilter(chat_id=42),
        "session and chat": MessageFilter(session_id="session-0007", chat_id=50),
        "sender": MessageFilter(sender_id=1234),
        "direction and kind": MessageFilter(direction=Direction.SENT, kind="text"),
        "session, one day": MessageFilter(session_id="session-0007", since_ms=middle, until_ms=middle + 86_400_000),
        "common word": MessageFilter(text=common),
        "rare word": MessageFilter(text=VOCABULARY[-5]),
        "two words": MessageFilter(text=f"{VOCABULARY[1]} {VOCABULARY[40]}"),
        "common word in a chat": MessageFilter(text=common, chat_id=42),
        "deleted (there is none)": MessageFilter(session_id="session-0007", is_deleted=True),
    }


async def asked(archive: Archive, count: int) -> dict[str, str]:
    """The first page of fifty, and the tenth: how long each takes, in ms, the median of twenty."""
    told: dict[str, str] = {}
    for name, wanted in questions(count).items():
        first = [await _timed(partial(archive.messages, wanted, cursor=None, limit=50)) for _ in range(ASKED)]
        cursor = None
        for _ in range(9):
            _, following = await archive.messages(wanted, cursor=cursor, limit=50)
            cursor = following or cursor
        tenth = [await _timed(partial(archive.messages, wanted, cursor=cursor, limit=50)) for _ in range(ASKED)]
        told[name] = f"{median(first):.1f} / {median(tenth):.1f}"
    told["ids of a chat"] = f"{await _timed(lambda: archive.message_ids('session-0007', 50, above=0, limit=1000)):.1f}"
    ids = list(range(100))
    told["deletion without a chat, 100 ids"] = (
        f"{await _timed(lambda: archive.mark_deleted('session-0007', None, ids, at_ms=BEGAN)):.1f}"
    )
    told["count of a session"] = (
        f"{await _timed(lambda: archive.count_messages(MessageFilter(session_id='session-0007'))):.1f}"
    )
    told["count of all"] = f"{await _timed(archive.tally):.1f}"
    told["forget a person"] = f"{await _timed(lambda: archive.forget_person(4321)):.1f}"
    return told


async def read_sessions(archive: Archive) -> str:
    """One session, from the archive and through Redis: ms, the median of two hundred."""
    folder = Path(tempfile.mkdtemp(prefix="peik-bench-redis-"))
    server = RedisServer(folder).start()
    try:
        await archive.add_session(Session(session_id="session-0007", agent_id="agent-2", secret=bytes(400)))
        cache = SessionCache(server.url, kept_s=60)
        await cache.open()
        cached = CachedArchive(archive, cache)
        own = [await _timed(partial(archive.session, "session-0007")) for _ in range(200)]
        through = [await _timed(partial(cached.session, "session-0007")) for _ in range(200)]
        await cache.close()
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return f"{median(own):.2f} / {median(through):.2f}"


async def _timed(ask: Callable[[], Any]) -> float:
    began = time.perf_counter()
    await ask()
    return (time.perf_counter() - began) * 1000


# ---- each archive ----


@asynccontextmanager
async def sqlite(folder: Path, count: int, figures: dict[str, Any]) -> AsyncIterator[Archive]:
    figures["bare executemany, messages/s"] = await bare_sqlite(folder / "bare.archive", count)
    archive = SqliteArchive(folder / "peik.archive")
    await archive.open()
    yield archive
    await archive.close()
    figures["bytes per message"] = (folder / "peik.archive").stat().st_size / count


@asynccontextmanager
async def postgres(folder: Path, count: int, figures: dict[str, Any]) -> AsyncIterator[Archive]:
    server = PostgresServer({"fsync": "on", "shared_buffers": "512MB", "max_wal_size": "4GB"})
    try:
        server.start()
        figures["bare COPY, messages/s"] = await bare_postgres(server.url, count)
        archive = PostgresArchive(server.url)
        await archive.open()
        yield archive
        await archive.close()
        connection = await asyncpg.connect(server.url)
        await connection.execute("DROP SCHEMA bare CASCADE")
        await connection.execute("VACUUM ANALYZE peik_archive.messages")
        size = await connection.fetchval("SELECT pg_total_relation_size('peik_archive.messages')")
        table = await connection.fetchval("SELECT pg_table_size('peik_archive.messages')")
        await connection.close()
        figures["bytes per message"] = size / count
        figures["of these the table"] = table / count
    finally:
        server.remove()


@asynccontextmanager
async def mongo(folder: Path, count: int, figures: dict[str, Any]) -> AsyncIterator[Archive]:
    server = MongoServer(folder).start()
    try:
        figures["bare insert_many, messages/s"] = await bare_mongo(server.url.format(database="bare"), count)
        archive = MongoArchive(server.url.format(database="peik"))
        await archive.open()
        yield archive
        await archive.close()
        async with AsyncMongoClient[dict[str, Any]](server.url.format(database="peik")) as client:
            await client.admin.command("fsync")
            told = await client.get_database("peik").command("collStats", "messages")
        figures["bytes per message"] = (told["storageSize"] + told["totalIndexSize"]) / count
        figures["of these the documents"] = told["storageSize"] / count
    finally:
        server.kill()


ARCHIVES = {"sqlite": sqlite, "postgres": postgres, "mongo": mongo}


async def measure(name: str, count: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="peik-bench-archive-"))
    figures: dict[str, Any] = {}
    try:
        async with ARCHIVES[name](folder, count, figures) as archive:
            figures["keep_messages, messages/s"] = await kept(archive, count)
            figures["known again, messages/s"] = await known_again(archive, count)
            figures["pages, ms (first / tenth)"] = await asked(archive, count)
            figures["one session, ms (archive / Redis)"] = await read_sessions(archive)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--archives", default=",".join(ARCHIVES))
    given = parser.parse_args(arguments)
    for name in given.archives.split(","):
        figures = asyncio.run(measure(name, given.count))
        shown = {key: round(value) if isinstance(value, float) else value for key, value in figures.items()}
        print(json.dumps({"archive": name, "messages": given.count, **shown}, indent=2, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
