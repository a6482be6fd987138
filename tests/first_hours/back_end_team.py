"""A back-end on BullMQ: its settings, its jobs, its manual tests, its board and its SQL."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.first_hours.page import Said
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN, Server, Sim, simulated
from tests.storage.redis_server import RedisServer

# The document's own job: five tries, exponential from 2,000 ms. A hundredth of that here, for the hour's sake.
JOB: dict[str, Any] = {
    "attempts": 5,
    "backoff": {"type": "exponential", "delay": 20},
    "timeout": 10_000,
    "priority": 1,
    "metadata": {"userId": "user-17", "messageType": "task_assigned"},
}
SQL = "SELECT * FROM telegram_message_logs WHERE status = 'failed' ORDER BY created_at DESC"


async def hour(folder: Path, said: Said) -> None:
    (folder / "redis").mkdir()
    redis = RedisServer(folder / "redis", appendonly="yes", appendfsync="always", requirepass="r3d1s")
    redis.start()
    # The document's names, as they stand in its .env; the log of messages beside them, in SQL.
    named = {
        "REDIS_HOST": "127.0.0.1",
        "REDIS_PORT": str(redis.port),
        "REDIS_PASSWORD": "r3d1s",
        "QUEUE_MAX_CONCURRENT_JOBS": "5",
        "QUEUE_DEFAULT_ATTEMPTS": "5",
        "QUEUE_BACKOFF_DELAY": "20",
    }
    try:
        async with asyncio.timeout(PATIENCE_S), simulated(folder) as (sim, http):
            await sim.post("bots", token=TOKEN)
            settings = {"message_log": f"sqlite:///{folder}/log.db", "inbound": "polling"}
            peik = Server(folder, sim.url, http, is_copy=False, **settings)
            peik._environment |= named
            await peik.start()
            try:
                said.did(
                    "REDIS_HOST=… REDIS_PASSWORD=… QUEUE_DEFAULT_ATTEMPTS=5 PEIK_MESSAGE_LOG=sqlite:///log.db peik serve"
                )
                said.saw(
                    "Redis has",
                    "keys" if redis.client().dbsize() else "nothing",
                    "of it; no peik.db:",
                    not (folder / "peik.db").exists(),
                )
                await _manual_tests(sim, peik, said)
                await _dead_letters(sim, peik, said, folder)
                await _notifications(sim, peik, said)
                await _board(peik, said)
            finally:
                await peik.program.kill()
    finally:
        redis.kill()


async def _manual_tests(sim: Sim, peik: Server, said: Said) -> None:
    letter = {"method": "sendMessage", "params": {"chat_id": 17, "text": "Task 1"}, **JOB}
    said.did(
        'curl /v1/letters -d {…, "attempts": 5, "backoff": {"type", "delay"}, "timeout", "metadata": {"userId", "messageType"}}'
    )
    first = await _post(peik, "/v1/letters", letter)
    await _until(peik, first["id"], "completed")
    _show(said, await peik.get(f"/v1/letters/{first['id']}"))

    said.did("# network off, send, network on")
    await sim.post("dark", on=True)
    second = await _post(peik, "/v1/letters", {**letter, "params": {"chat_id": 17, "text": "Task 2"}})
    await _until(peik, second["id"], "waiting", "active", "delayed")
    said.saw("while it is off:", "not delivered,", (await peik.get("/v1/stats"))["failed"], "failed")
    await sim.post("dark", on=False)
    await _until(peik, second["id"], "completed")
    _show(said, await peik.get(f"/v1/letters/{second['id']}"))
    stats = await peik.get("/v1/stats")
    said.did("curl /v1/stats")
    said.saw(*(f"{name}={stats[name]}" for name in ("waiting", "active", "completed", "failed", "delayed")))


async def _dead_letters(sim: Sim, peik: Server, said: Said, folder: Path) -> None:
    said.did("# Telegram answers 500 to everything, for longer than five tries; and once 403")
    await sim.post("faults", kind="error", status=500, words="Internal Server Error", method="sendMessage", chat=18)
    await sim.post(
        "faults",
        kind="error",
        status=403,
        words="Forbidden: bot was blocked by the user",
        method="sendMessage",
        chat=19,
    )
    made = {}
    for chat in (18, 19):
        letter = {"method": "sendMessage", "params": {"chat_id": chat, "text": f"To {chat}"}, **JOB}
        made[chat] = (await _post(peik, "/v1/letters", letter))["id"]
        await _until(peik, made[chat], "failed")
        _show(said, await peik.get(f"/v1/letters/{made[chat]}"))
    said.did("curl '/v1/dead?messageType=task_assigned'")
    said.saw(len((await peik.get("/v1/dead?messageType=task_assigned"))["letters"]), "dead letters")
    said.did("curl '/v1/log?userId=user-17&state=failed'")
    for one in (await peik.get("/v1/log?userId=user-17&state=failed"))["messages"]:
        said.saw(one["state"], one["text"], one["message_type"])
    said.did(f'sqlite3 log.db "{SQL}"')
    async with asyncio.timeout(PATIENCE_S):
        while len(rows := _asked(folder / "log.db")) < 2:  # noqa: ASYNC110  the copy follows
            await asyncio.sleep(0.05)
    for row in rows:
        said.saw(*(row[name] for name in ("status", "user_id", "message_type", "attempts", "error", "text")))
    await sim.delete("faults")
    said.did("curl -X POST /v1/dead/retry -d '{\"chat_id\": 18}'     # Telegram is well again")
    await _post(peik, "/v1/dead/retry", {"chat_id": 18})
    await _until(peik, made[18], "completed")
    said.saw("delivered:", *sorted({row["text"] for row in (await sim.get("sent"))["deliveries"]}))


def _asked(path: Path) -> list[sqlite3.Row]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return list(connection.execute(SQL))


async def _notifications(sim: Sim, peik: Server, said: Said) -> None:
    said.did("curl -X POST /v1/users/user-17/link      # and the user opens t.me/<bot>?start=<code>")
    code = (await _post(peik, "/v1/users/user-17/link", {}))["code"]
    await sim.post("write", bot=TOKEN, user=501, text=f"/start {code}")
    async with asyncio.timeout(PATIENCE_S):
        while not (await peik.get("/v1/users/user-17/link"))["linked"]:  # noqa: ASYNC110  another process
            await asyncio.sleep(0.05)
    said.saw("linked to chat", (await peik.get("/v1/users/user-17/link"))["chat_id"])
    said.did(
        'curl /v1/notifications -d {"userId", "type", "messageType", "title", "message", "attempts", "backoff", "timeout"}'
    )
    wanted = {
        "userId": "user-17",
        "type": "task_assigned",
        "messageType": "task_assigned",
        "title": "Task",
        "message": "Amir Temur 1",
    }
    terms = {name: JOB[name] for name in ("attempts", "backoff", "timeout")}
    made = await _post(peik, "/v1/notifications", {**wanted, **terms})
    async with asyncio.timeout(PATIENCE_S):
        while (found := await peik.get(f"/v1/notifications/{made['id']}"))["state"] != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    letter = await peik.get(f"/v1/letters/{found['letter_ids'][0]}")
    said.saw(found["state"], f"priority={letter['priority']}", f"attempts={letter['attempts']}")


async def _board(peik: Server, said: Said) -> None:
    said.did("curl -L /admin/queues")
    async with peik._http.get(f"{peik.url}/admin/queues") as answer:
        said.saw(answer.status, answer.content_type)


def _show(said: Said, letter: dict[str, Any]) -> None:
    reason = f", {letter['failed_reason']}" if letter.get("failed_reason") else ""
    said.saw(f"{letter['state']}, attempts made: {letter['attempts_made']} of {letter['attempts']}{reason}")


async def _until(peik: Server, letter: str, *states: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await peik.get(f"/v1/letters/{letter}"))["state"] not in states:  # noqa: ASYNC110  another process
            await asyncio.sleep(0.02)


async def _post(peik: Server, path: str, body: dict[str, Any]) -> Any:
    status, found = await peik.call("POST", path, json=body)
    assert status in (200, 201, 202), found
    return found
