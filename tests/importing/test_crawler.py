"""A crawler's own MongoDB, as its author wrote it with Motor, into Peik's archive: on a real mongod."""

import asyncio
import datetime
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient

from peik.archive.mongo.archive import MongoArchive
from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.store import Archive, Direction, EventFilter, LogFilter, MessageFilter, SessionFilter, SessionState
from peik.errors import StartError
from peik.importing.crawler import (
    BadDocument,
    event_of,
    import_crawler,
    line_of,
    look_at_crawler,
    message_of,
    session_of,
)
from peik.settings.config import load
from tests.archive.mongo_server import shared, wanted
from tests.cli.shell import Shell

UTC = datetime.UTC
AT = datetime.datetime(2026, 10, 3, 8, 30, tzinfo=UTC)
AT_MS = round(AT.timestamp() * 1000)


class Old:
    """The author's database, in the shape of the document."""

    def __init__(self) -> None:
        wanted()
        self.name = f"old{uuid.uuid4().hex}"
        self.url = shared().url.format(database=self.name)
        self.peik = shared().url.format(database=f"new{uuid.uuid4().hex}")
        self._client: MongoClient[dict[str, Any]] = MongoClient(self.url)
        self.database = self._client[self.name]

    def fill(self, *, messages: int = 1200) -> None:
        self.database["telegram_sessions"].insert_many(
            [
                {
                    "session_id": "s1",
                    "agent_id": "agent-7",
                    "phone": "+98 912 345 6789",
                    "is_connected": True,
                    "is_active": True,
                    "metadata": {"team": "sales", "tags": ["a", "b"]},
                    "session_string": "1BVtsOK4…",
                    "created_at": AT,
                    "updated_at": AT,
                    "last_activity": AT + datetime.timedelta(hours=1),
                },
                {"session_id": "s2", "agent_id": "agent-7", "phone": "+989120000000", "created_at": AT},
                {"session_id": "s3", "agent_id": "agent-8", "phone": "+98 912 000 00 00", "created_at": AT},
            ]
        )
        self.database["messages"].insert_many(
            [
                {
                    "session_id": "s1",
                    "agent_id": "agent-7",
                    "chat_id": -1001234567890,
                    "message_id": number,
                    "type": "sent" if number % 4 == 0 else "received",
                    "sender_id": 500 + number,
                    "text": f"سلام {number}",
                    "date": AT + datetime.timedelta(seconds=number),
                    "views": number,
                    "created_at": AT + datetime.timedelta(seconds=number),
                }
                for number in range(1, messages + 1)
            ]
        )
        self.database["messages"].insert_one({"session_id": "s1", "text": "without a chat"})
        self.database["events"].insert_many(
            [
                {
                    "session_id": "s2",
                    "event_type": "user_joined",
                    "data": {"user": 5, "by": ObjectId()},
                    "created_at": AT,
                }
                for _ in range(3)
            ]
        )
        self.database["logs"].insert_one(
            {"level": "WARNING", "message": "Flood wait", "session_id": "s1", "timestamp": AT, "seconds": 30}
        )
        self.database["settings"].insert_one({"theme": "dark"})

    def close(self) -> None:
        self._client.drop_database(self.name)
        self._client.close()


@pytest.fixture
def old() -> Iterator[Old]:
    made = Old()
    yield made
    made.close()


def read(archive: Archive) -> dict[str, Any]:
    async def work() -> dict[str, Any]:
        await archive.open()
        try:
            messages, _ = await archive.messages(MessageFilter(), cursor=None, limit=5000)
            events, _ = await archive.events(EventFilter(), cursor=None, limit=100)
            logs, _ = await archive.logs(LogFilter(), cursor=None, limit=100)
            sessions = await archive.sessions(SessionFilter(), after=None, limit=100)
        finally:
            await archive.close()
        return {"messages": messages, "events": events, "logs": logs, "sessions": sessions}

    return asyncio.run(work())


def test_everything_comes_over_once_however_often_it_is_run(old: Old, tmp_path: Path) -> None:
    old.fill()
    before = {name: old.database[name].count_documents({}) for name in old.database.list_collection_names()}
    shell = Shell(tmp_path, PEIK_ARCHIVE=old.peik)
    looked = shell.peik("import", old.url, "--dry-run")
    assert "messages: 1,200 of 1,201 messages can be brought." in looked.out
    assert "Not brought: the collection settings, which Peik does not know." in looked.out
    brought = shell.peik("import", old.url, "--yes")
    assert brought.code == 1, brought  # one message cannot be, and it is said which
    assert "telegram_sessions: 3 of 3 sessions brought, 0 that were there already." in brought.out
    assert "it does not say in which chat it is" in brought.out
    assert "another active session has its phone" in brought.out
    again = shell.peik("import", old.url, "--yes", "--json").document
    assert [(part["kind"], part["brought"], part["known"]) for part in again["parts"][:3]] == [
        ("sessions", 0, 3),
        ("messages", 0, 1200),
        ("events", 0, 3),
    ]
    found = read(MongoArchive(old.peik))
    assert (len(found["messages"]), len(found["events"]), len(found["logs"])) == (1200, 3, 1)
    newest = found["messages"][0]
    assert (newest.message_id, newest.direction, newest.chat_id) == (1200, Direction.SENT, -1001234567890)
    assert (newest.text, newest.raw, newest.agent_id) == ("سلام 1200", '{"views":1200}', "agent-7")
    assert {event.agent_id for event in found["events"]} == {"agent-7"}  # that of their session
    assert (found["logs"][0].level, found["logs"][0].event, found["logs"][0].fields) == (
        "warning",
        "Flood wait",
        '{"seconds":30}',
    )
    first, _, third = found["sessions"]
    assert (first.session_id, first.phone, first.state) == ("s1", "+989123456789", SessionState.NEW)
    assert first.metadata == '{"team":"sales","tags":["a","b"]}'  # and no key in clear
    assert (first.created_at_ms, first.active_at_ms) == (AT_MS, AT_MS + 3_600_000)
    assert "without its Telethon file" in (first.state_reason or "")
    assert not third.is_active
    assert before == {name: old.database[name].count_documents({}) for name in old.database.list_collection_names()}


def test_a_run_that_is_broken_off_goes_on_and_doubles_nothing(old: Old, tmp_path: Path) -> None:
    old.fill(messages=1199)  # and one that cannot be
    config = load({"archive": old.peik, "store": f"sqlite:///{tmp_path}/peik.db"}, environment={}, folder=tmp_path)

    def stop(_: int) -> None:
        stopped.append(1)
        if len(stopped) == 3:  # sessions, and two pages of messages
            raise KeyboardInterrupt

    stopped: list[int] = []
    begun = look_at_crawler(old.url, config)
    with pytest.raises(KeyboardInterrupt):
        import_crawler(old.url, config, begun, is_dry=False, step=stop)
    again = look_at_crawler(old.url, config)
    import_crawler(old.url, config, again, is_dry=False)
    assert [(part.brought, part.known) for part in again.parts[:2]] == [(0, 3), (199, 1000)]
    assert len(read(MongoArchive(old.peik))["messages"]) == 1199


def test_it_goes_to_any_archive_and_sessions_with_a_file_run(old: Old, tmp_path: Path) -> None:
    old.fill(messages=5)
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "s1.session").touch()
    shell = Shell(tmp_path, PEIK_SESSIONS_DIR=str(tmp_path / "sessions"))
    assert shell.peik("import", old.url, "--yes", "--only", "sessions", "--only", "messages").code == 1
    found = read(SqliteArchive(tmp_path / "peik.db.archive"))
    assert (len(found["messages"]), found["events"]) == (5, [])
    assert (found["sessions"][0].file, found["sessions"][0].state) == ("s1", SessionState.ACTIVE)


def test_a_foreign_collection_in_the_way_is_refused_before_anything_is_written(old: Old, tmp_path: Path) -> None:
    old.fill(messages=3)
    shell = Shell(tmp_path, PEIK_ARCHIVE=old.url)
    same = shell.peik("import", old.url, "--yes")
    assert same.code != 0
    assert "Give it a database of its own on that server: PEIK_ARCHIVE=mongodb://…/peik" in same.err
    indexes = {name: old.database[name].index_information() for name in ("messages", "telegram_sessions")}

    async def opened() -> None:
        archive = MongoArchive(old.url)
        await archive.open()
        await archive.close()

    with pytest.raises(StartError, match="has a collection `telegram_sessions` that is not Peik's") as refused:
        asyncio.run(opened())
    assert f"`peik import mongodb://…/{old.name}`" in str(refused.value)
    assert "updates_states" not in old.database.list_collection_names()
    assert indexes == {name: old.database[name].index_information() for name in ("messages", "telegram_sessions")}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mongodb://127.0.0.1:1/old?serverSelectionTimeoutMS=200", "cannot be read"),
        ("mongodb://127.0.0.1", "Name server and database"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(url: str, words: str, tmp_path: Path) -> None:
    ran = Shell(tmp_path).peik("import", url, "--yes")
    assert ran.code != 0
    assert words in ran.err


def test_peiks_own_archive_and_an_empty_database_are_refused(old: Old, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert "none of the collections that Peik brings" in shell.peik("import", old.url, "--yes").err
    for name in ("updates_states", "chat_states", "message_versions", "feed"):
        old.database.create_collection(name)
    assert "`peik migrate --archive FROM TO` moves one" in shell.peik("import", old.url, "--yes").err
    assert shell.peik("import", old.url, "--table", "x").code == 2
    assert "letters is none of sessions" in shell.peik("import", old.url, "--only", "letters").err


# ---- documents, by what people call their fields ----


def test_messages_of_other_shapes() -> None:
    camel = {
        "_id": ObjectId(),
        "sessionId": "s",
        "chatId": "77",
        "msgId": 4,
        "isOutgoing": True,
        "text": "x",
        "date": AT,
    }
    found = message_of(camel, agents={"s": "shop"})
    assert (found.chat_id, found.message_id, found.direction, found.agent_id) == (77, 4, Direction.SENT, "shop")
    plain = {
        "_id": ObjectId(),
        "session_id": "s",
        "chat_id": 7,
        "message_id": 4,
        "message_type": "photo",
        "media": {"size": 3},
    }
    found = message_of(plain, collection="sent_messages")
    assert (found.kind, found.direction, found.media) == ("photo", Direction.SENT, '{"size":3}')
    assert found.date_ms == round(plain["_id"].generation_time.timestamp() * 1000)
    assert found == message_of(dict(plain), collection="sent_messages")  # the same again is the same
    for lacking in ("session_id", "chat_id", "message_id"):
        with pytest.raises(BadDocument, match="it does not say"):
            message_of({name: value for name, value in plain.items() if name != lacking})
    with pytest.raises(BadDocument, match="which is no time"):
        message_of({**plain, "date": "yesterday"})
    with pytest.raises(BadDocument, match="which is no number"):
        message_of({**plain, "chat_id": "@name"})


def test_sessions_events_and_lines_of_other_shapes() -> None:
    session = session_of(
        {"_id": "old", "agent": "a", "active": False, "api_hash": "secret", "note": "x", "created": AT}
    )
    assert (session.session_id, session.agent_id, session.is_active, session.metadata) == (
        "old",
        "a",
        False,
        '{"note":"x"}',
    )
    with pytest.raises(BadDocument):
        session_of({"_id": "s", "phone": "call me", "created_at": AT})
    made = ObjectId()
    event = event_of({"_id": made, "session_id": "s", "type": "left", "details": {"at": AT}})
    assert (event.event_id, event.event_type, event.payload) == (
        f"import:{made}",
        "left",
        '{"at":"2026-10-03T08:30:00Z"}',
    )
    line = line_of({"_id": made, "level": "CRITICAL", "msg": "Down", "time": AT.timestamp()})
    assert (line.level, line.event, line.at_ms, line.fields) == ("error", "Down", AT_MS, "{}")
