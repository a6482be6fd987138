"""The author of a crawler on FastAPI, Telethon, MongoDB and Redis: old data over, the endpoints, the library, his queries."""

import asyncio
import datetime
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from peik import Peik
from tests.archive.mongo_server import MongoServer
from tests.cli.shell import Shell
from tests.first_hours.page import Said
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, Server, served, simulated
from tests.storage.redis_server import RedisServer

AT = datetime.datetime(2026, 10, 3, 8, 30, tzinfo=datetime.UTC)
INDEXES = {
    "telegram_sessions": ("session_id_1", "agent_id_1", "phone_1"),
    "messages": ("session_id_1_created_at_-1", "agent_id_1_created_at_-1", "chat_id_1_date_-1"),
    "events": ("session_id_1_created_at_-1", "agent_id_1_event_type_1"),
}


async def hour(folder: Path, said: Said) -> None:
    for name in ("redis", "mongo", "peik"):
        (folder / name).mkdir()
    redis = RedisServer(folder / "redis", appendonly="yes", appendfsync="always", requirepass="r3d1s")
    mongo = MongoServer(folder / "mongo", is_set=False)  # as the document runs it: a single server
    try:
        redis.start()
        mongo.start()
        with MongoClient(mongo.url.format(database="telegram")) as client:
            await asyncio.to_thread(_old, client["telegram"])
            await _with(folder / "peik", said, redis=redis, mongo=mongo, client=client)
    finally:
        redis.kill()
        mongo.kill()


def _old(database: Any) -> None:
    """What the old crawler had kept."""
    ids = [f"agent_{agent}_{number}" for agent in "ab" for number in (1, 2)]
    database["telegram_sessions"].insert_many(
        {
            "session_id": one,
            "agent_id": one[:7],
            "phone": f"+98912000{at:04}",
            "is_active": True,
            "metadata": {"team": "sales" if at % 2 else "support"},
            "created_at": AT,
        }
        for at, one in enumerate(ids)
    )
    database["messages"].insert_many(
        {
            "session_id": ids[number % 4],
            "chat_id": 700 + number % 3,
            "message_id": number,
            "type": "sent" if number % 5 == 0 else "received",
            "text": f"پیام {number}",
            "date": AT + datetime.timedelta(seconds=number),
            "created_at": AT + datetime.timedelta(seconds=number),
        }
        for number in range(1, 1001)
    )
    database["events"].insert_one(
        {"session_id": ids[0], "event_type": "joined", "data": {"chat": 700}, "created_at": AT}
    )


async def _with(folder: Path, said: Said, *, redis: RedisServer, mongo: MongoServer, client: Any) -> None:
    archive = mongo.url.format(database="peik")
    shell = Shell(folder, PEIK_ARCHIVE=archive, PEIK_STORE=redis.url)
    said.did("peik import mongodb://127.0.0.1/telegram --yes       # what the old crawler has; it is only read")
    ran = await asyncio.to_thread(shell.peik, "import", mongo.url.format(database="telegram"), "--yes")
    said.lines += ran.out.strip().splitlines()
    said.did("peik import mongodb://127.0.0.1/telegram --yes       # verify: run it again")
    ran = await asyncio.to_thread(shell.peik, "import", mongo.url.format(database="telegram"), "--yes")
    said.lines += ran.out.strip().splitlines()

    settings = {"store": redis.url, "archive": archive, "telegram_api_id": "1", "telegram_api_hash": "0" * 32}
    async with (
        asyncio.timeout(PATIENCE_S),
        simulated(folder) as (sim, http),
        served(folder, sim.url, http, **settings) as peik,
    ):
        said.did("curl /health")
        health = await _healthy(peik)
        said.saw(health["status"], *(f"{name}={health['parts'][name]['status']}" for name in ("store", "archive")))
        await _endpoints(peik, said)
        await _library(peik, said)
    said.did("mongosh peik")
    database = client["peik"]
    asked = {"metadata.team": "sales", "agent_id": "agent_b"}
    said.saw(f"> db.telegram_sessions.countDocuments({asked})".replace("'", '"'))
    said.saw(await asyncio.to_thread(database["telegram_sessions"].count_documents, asked))
    for name, wanted in INDEXES.items():
        there = await asyncio.to_thread(database[name].index_information)
        said.saw(f"> db.{name}.getIndexes()")
        said.saw(*(one if one in there else f"{one} IS MISSING" for one in wanted))
    said.did("redis-cli ping")
    said.saw("PONG" if redis.client().ping() else "nothing")
    said.did("find . -name '*.db*'         # no SQLite file")
    said.saw(*await asyncio.to_thread(_files, folder))


async def _healthy(peik: Server) -> Any:
    """The archive is opened behind the rest."""
    while True:
        health = await peik.get("/health")
        if health["parts"].get("archive", {}).get("status") in ("ok", "warning"):
            return health
        await asyncio.sleep(0.05)


async def _endpoints(peik: Server, said: Said) -> None:
    said.did("curl '/v1/sessions?agent_id=agent_a'")
    page = await peik.get("/v1/sessions?agent_id=agent_a")
    for one in page["sessions"]:
        said.saw(one["session_id"], one["phone"], one["state"], one["metadata"])
    said.did("curl '/v1/messages?agent_id=agent_a&chat_id=701&direction=sent&limit=2'")
    page = await peik.get("/v1/messages?agent_id=agent_a&chat_id=701&direction=sent&limit=2")
    for one in page["messages"]:
        said.saw(one["session_id"], one["message_id"], one["direction"], one["text"])
    said.did("curl '/v1/events?event_type=joined'")
    for one in (await peik.get("/v1/events?event_type=joined"))["events"]:
        said.saw(one["session_id"], one["agent_id"], one["event_type"], one["payload"])


async def _library(server: Server, said: Said) -> None:
    async with Peik.connect(server.url, key=KEY) as peik:
        phone = "+989123334455"
        made = await peik.create_session("agent_c", phone=phone, metadata={"team": "night"}, session_id="c1")
        said.did('session = await peik.create_session("agent_c", phone=…, metadata={"team": "night"}, session_id="c1")')
        said.saw(f"session.get('phone') = {made.get('phone')}, session['agent_id'] = {made['agent_id']}")
        said.did("await peik.get_session_by_phone(…); get_sessions_by_agent; get_all_active_sessions")
        found = await peik.get_session_by_phone(phone)
        assert found is not None
        by_agent, active = await peik.get_sessions_by_agent("agent_a"), await peik.get_all_active_sessions()
        said.saw(found["session_id"], len(by_agent), len(active))
        said.did("await peik.update_session_metadata(…); deactivate_session; delete_session; cleanup_old_sessions")
        changed = await peik.update_session_metadata("c1", {"team": "day"})
        stopped = await peik.deactivate_session("c1")
        said.saw(dict(changed["metadata"]), f"active: {stopped['is_active']}")
        await peik.delete_session("c1")
        said.saw("gone:", await peik.get_session_by_id("c1") is None)


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.db*")) or ["(nothing)"]
