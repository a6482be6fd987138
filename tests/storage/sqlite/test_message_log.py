"""A query of the view `telegram_message_logs` runs on the file with plain SQL, before and after retention."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from peik.core.outcome import Delivered
from peik.outbox.store import Retention
from tests.storage.acts import HOUR, LATER, NEVER, NOW, SENT, accept, attempt, draft, find, mark
from tests.storage.places import SqlitePlace

QUERY = "SELECT * FROM telegram_message_logs WHERE status = 'failed' ORDER BY created_at DESC"
KEEP = Retention(completed_ms=7 * HOUR, dead_ms=30 * HOUR, log_ms=90 * HOUR)


def ask(path: Path, query: str = QUERY) -> list[dict[str, object]]:
    """As any program would, with the standard library's sqlite3."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in connection.execute(query)]
    finally:
        connection.close()


async def test_failed_letters_are_listed_newest_first_and_outlive_their_letters(place: SqlitePlace) -> None:
    async with place.open() as store:
        ids = []
        for at, chat in enumerate((1, "@two", 3)):
            ids += await accept(store, draft(chat, user_id="u1", message_type="bill"), at_ms=NOW + at)
        for letter_id, outcome in zip(ids, (NEVER, NEVER, SENT), strict=True):
            await attempt(store, await find(store, letter_id), outcome)
    before = ask(place.path)
    assert [(row["id"], row["chat_id"], row["error"], row["user_id"]) for row in before] == [
        (ids[1], "@two", NEVER.words, "u1"),
        (ids[0], 1, NEVER.words, "u1"),
    ]
    assert before[0]["created_at"] == "2027-01-15T08:00:00.001Z"
    async with place.open() as store:
        await store.clean(KEEP, at_ms=NOW + 31 * HOUR, limit=100)
        assert [await store.letter(one) for one in ids] == [None] * 3
    assert ask(place.path) == before
    async with place.open() as store:
        await store.clean(KEEP, at_ms=NOW + 91 * HOUR, limit=100)
    assert ask(place.path) == []


async def test_every_state_has_its_name(place: SqlitePlace) -> None:
    async with place.open() as store:
        ids = await accept(store, *(draft(chat) for chat in range(1, 6)), draft(6, send_at_ms=NOW + HOUR))
        waiting, flying, done, dead, backing, apart = ids
        await mark(store, await find(store, flying))
        await attempt(store, await find(store, done), SENT)
        await attempt(store, await find(store, dead), NEVER)
        await attempt(store, await find(store, backing), LATER, at_ms=NOW * 2)
        past = (await accept(store, draft(7)))[0]
        await attempt(store, await find(store, past), LATER, at_ms=1000)
        await place.crash(store)
    told = {row["id"]: row["status"] for row in ask(place.path, "SELECT id, status FROM telegram_message_logs")}
    assert told == {
        waiting: "waiting",
        flying: "active",
        done: "completed",
        dead: "failed",
        backing: "delayed",
        apart: "delayed",
        past: "waiting",
    }


@pytest.mark.parametrize(
    ("result", "message_id"),
    [(b'{"message_id":5}', 5), (b'[{"message_id":5},{"message_id":6}]', 5), (b"true", None), (b"[" * 2000, None)],
)
async def test_any_answer_of_telegrams_can_be_logged(place: SqlitePlace, result: bytes, message_id: int | None) -> None:
    query = "SELECT message_id FROM telegram_message_logs"
    async with place.open() as store:
        (letter_id,) = await accept(store, draft())
        await attempt(store, await find(store, letter_id), Delivered(result=result))
    assert ask(place.path, query) == [{"message_id": message_id}]
    async with place.open() as store:
        assert (await store.clean(KEEP, at_ms=NOW + 8 * HOUR, limit=9))[0] == 1
    assert ask(place.path, query) == [{"message_id": message_id}]


async def test_it_can_be_read_while_peik_runs(place: SqlitePlace) -> None:
    program = f"import sqlite3; print(sqlite3.connect({str(place.path)!r}).execute({QUERY!r}).fetchall()[0][0])"
    async with place.open() as store:
        (letter_id,) = await accept(store, draft())
        await attempt(store, await find(store, letter_id), NEVER)
        said = await asyncio.to_thread(subprocess.check_output, [sys.executable, "-c", program], text=True)
        await accept(store, draft())
    assert said == f"{letter_id}\n"
