"""Tables in PostgreSQL are a source as files are."""

import asyncio
import uuid
from pathlib import Path

import asyncpg

from tests.cli.shell import TOKEN, Shell
from tests.storage.servers import postgres

TABLES = """
CREATE TABLE "PendingMessages" (id SERIAL PRIMARY KEY, "chatId" BIGINT, payload JSONB, "isSent" BOOLEAN DEFAULT FALSE);
INSERT INTO "PendingMessages" ("chatId", payload, "isSent") VALUES
    (5, '{"text": "one"}', FALSE), (5, '{"text": "sent"}', TRUE), (5, '{"text": "two"}', NULL), (5, '[]', FALSE);
CREATE TABLE users (telegram_id BIGINT, username TEXT, created_at TIMESTAMPTZ);
CREATE VIEW waiting AS SELECT * FROM "PendingMessages" WHERE NOT "isSent";
CREATE TABLE outbox (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), chat_id BIGINT, text TEXT, created_at TIMESTAMPTZ);
INSERT INTO outbox (chat_id, text, created_at) VALUES (7, 'second', '2026-11-02'), (7, 'first', '2026-11-01');
INSERT INTO users VALUES (5, 'sara', '2026-11-01 10:00:00+03:30'), (6, 'ali', NULL);
"""


def test_a_database_is_read_and_not_written(tmp_path: Path) -> None:
    name = f"old_{uuid.uuid4().hex}"
    url = postgres().url.removesuffix("/postgres") + f"/{name}"

    async def make() -> None:
        server = await asyncpg.connect(postgres().url)
        await server.execute(f"CREATE DATABASE {name}")
        await server.close()
        base = await asyncpg.connect(url)
        await base.execute(TABLES)
        await base.close()

    asyncio.run(make())
    shell = Shell(tmp_path, BOT_TOKEN=TOKEN)
    (tmp_path / "old.url").write_text(url, encoding="utf-8")
    done = shell.peik("import", "@old.url", "--yes", "--json").document
    letters, outbox, users = done["tables"]
    assert outbox["brought"] == 2
    assert [one["params"]["text"] for one in shell.asked("letters", "--chat", "7")["letters"]] == ["second", "first"]
    assert (letters["brought"], letters["left"], letters["errors"]) == (2, {"sent": 1}, 1)
    assert (users["kind"], users["brought"]) == ("people", 2)
    assert [one["params"]["text"] for one in shell.asked("letters", "--chat", "5")["letters"]] == ["two", "one"]
    again = shell.peik("import", url, "--yes", "--json").document["tables"]
    assert [(one["brought"], one["known"]) for one in again] == [(0, 2)] * 3
    wrong = shell.peik("import", url.replace(name, "absent"), "--yes")
    assert wrong.code == 5
    assert "cannot be read" in wrong.err
