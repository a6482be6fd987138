"""Keys as a client meets them: what each opens and what not, for which bots, until when."""

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from peik.clock import SystemClock
from peik.storage.sqlite.store import SqliteStore
from tests.processes.programs import BOT, KEY, Server, Sim
from tests.web.test_rest import message, play

OTHER = 7000002


async def made(server: Server, *scopes: str, **terms: Any) -> dict[str, Any]:
    status, body = await server.call("POST", "/v1/keys", json={"name": "shop", "scopes": list(scopes), **terms})
    assert status == 201, body
    return dict(body)


async def code(server: Server, key: str, verb: str, path: str, **more: Any) -> str:
    status, body = await server.call(verb, path, key=key, **more)
    return "ok" if status < 300 else body["code"]


def test_a_key_is_shown_once_and_kept_nowhere(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        key = await made(server, "send", bot_ids=[str(BOT)], expires_at="2030-01-01T00:00:00Z")
        assert key["key"].startswith("peik_")
        assert len(key["key"]) > 40
        assert await code(server, key["key"], "GET", "/v1/stats") == "ok"
        (shown,) = (await server.get("/v1/keys"))["keys"]
        assert (shown["id"], shown["name"], shown["scopes"], shown["bot_ids"]) == ("1", "shop", ["send"], [str(BOT)])
        assert (shown["expires_at"], shown["webhook_url"]) == ("2030-01-01T00:00:00.000Z", None)
        assert shown["last_used_at"] >= shown["created_at"]
        assert not {"key", "digest", "webhook_secret"} & set(shown)
        assert key["key"] not in "".join(server.output)
        texts.append(key["key"].encode())

    texts: list[bytes] = []
    play(tmp_path, story)
    written = b"".join(path.read_bytes() for path in tmp_path.glob("peik.db*") if path.is_file())
    assert b"shop" in written
    assert texts[0] not in written


REQUESTS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("read", "GET", "/v1/stats", {}),
    ("read", "GET", "/v1/bots", {}),
    ("read", "GET", "/v1/letters", {}),
    ("read", "GET", "/v1/letters/1", {}),
    ("send", "POST", "/v1/letters", {"json": message()}),
    ("send", "POST", "/v1/letters/batch", {"json": {"letters": [message()]}}),
    ("admin", "POST", "/v1/bots", {"json": {"token": "42:SECRET"}}),
    ("admin", "DELETE", "/v1/bots/42", {}),
    ("admin", "PATCH", f"/v1/bots/{BOT}", {"json": {"paused": False}}),
    ("admin", "GET", "/v1/keys", {}),
    ("admin", "POST", "/v1/keys", {"json": {"name": "more", "scopes": ["read"]}}),
    ("admin", "DELETE", "/v1/keys/4", {}),
    ("admin", "GET", "/v1/webhooks/secret", {}),
)


def test_each_scope_opens_what_it_is_for_and_all_below_it(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await server.call("POST", "/v1/letters", json=message())
        scopes = ("read", "send", "admin")
        keys = {scope: (await made(server, scope))["key"] for scope in scopes}
        for needed, verb, path, more in REQUESTS:
            for scope in scopes:
                wanted = "ok" if scopes.index(scope) >= scopes.index(needed) else "wrong_scope"
                assert await code(server, keys[scope], verb, path, **more) == wanted, (scope, verb, path)
        both = (await made(server, "read", "send"))["key"]
        assert await code(server, both, "POST", "/v1/letters", json=message()) == "ok"
        assert (await server.call("GET", "/v1/keys", key=both))[0] == 403

    play(tmp_path, story)


def test_a_key_of_one_bot_neither_sees_nor_sends_for_another(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await server.call("POST", "/v1/bots", json={"token": f"{OTHER}:AAtest"})
        own = (await server.call("POST", "/v1/letters", json=message() | {"bot_id": BOT}))[1]["id"]
        other = (await server.call("POST", "/v1/letters", json=message() | {"bot_id": OTHER}))[1]["id"]
        key = (await made(server, "admin", bot_ids=[BOT]))["key"]
        for verb, path in (("GET", ""), ("GET", "?wait=5s"), ("DELETE", ""), ("POST", "/retry")):
            assert await code(server, key, verb, f"/v1/letters/{other}{path}") == "unknown_letter"
            _, theirs = await server.call(verb, f"/v1/letters/{other}{path}", key=key)
            _, nobodys = await server.call(verb, f"/v1/letters/999{path}", key=key)
            assert theirs["detail"].replace(other, "N") == nobodys["detail"].replace("999", "N")
        assert await code(server, key, "GET", f"/v1/letters/{own}") == "ok"
        listed = (await server.call("GET", "/v1/letters", key=key))[1]["letters"]
        assert {one["id"] for one in listed} == {own}
        assert await code(server, key, "GET", f"/v1/letters?bot_id={OTHER}") == "wrong_bot"
        assert set((await server.call("GET", "/v1/stats", key=key))[1]["bots"]) == {str(BOT)}
        assert [one["bot_id"] for one in (await server.call("GET", "/v1/bots", key=key))[1]["bots"]] == [str(BOT)]
        for bot_id in (OTHER, 999):  # whether or not there is such a bot
            assert await code(server, key, "GET", f"/v1/bots/{bot_id}") == "wrong_bot"
            assert await code(server, key, "POST", "/v1/letters", json=message() | {"bot_id": bot_id}) == "wrong_bot"
            mixed = {"letters": [message(), message() | {"bot_id": str(bot_id)}]}
            assert await code(server, key, "POST", "/v1/letters/batch", json=mixed) == "wrong_bot"
        for verb, path, more in (
            ("POST", "/v1/bots", {"json": {"token": "42:SECRET"}}),
            ("GET", "/v1/keys", {}),
            ("POST", "/v1/keys", {"json": {"name": "escape", "scopes": ["admin"]}}),
            ("GET", "/v1/webhooks/secret", {}),
            ("GET", "/v1/routes", {}),
        ):
            assert await code(server, key, verb, path, **more) == "wrong_bot", path
        # Left out, the bot is the key's own, although there are two.
        _, accepted = await server.call("POST", "/v1/letters", key=key, json=message())
        assert (await server.get(f"/v1/letters/{accepted['id']}"))["bot_id"] == str(BOT)
        assert (await server.quiet())["completed"] == 3

    play(tmp_path, story)


def test_a_revoked_or_expired_key_opens_nothing_from_then_on(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        key = await made(server, "read")
        assert await code(server, key["key"], "GET", "/v1/stats") == "ok"
        assert (await server.call("DELETE", f"/v1/keys/{key['id']}"))[0] == 204
        assert await code(server, key["key"], "GET", "/v1/stats") == "wrong_key"
        assert (await server.call("DELETE", f"/v1/keys/{key['id']}"))[1]["code"] == "unknown_key"
        short = await made(server, "read", expires_at=time.time() + 3600)
        assert await code(server, short["key"], "GET", "/v1/stats") == "ok"
        await server.program.kill()
        with contextlib.closing(sqlite3.connect(tmp_path / "peik.db", isolation_level=None)) as connection:
            connection.execute("UPDATE keys SET expires_at = ?", (time.time_ns() // 1_000_000,))  # an hour passes
        await server.start()
        assert await code(server, short["key"], "GET", "/v1/stats") == "expired_key"
        assert await code(server, KEY, "GET", "/v1/stats") == "ok"

    play(tmp_path, story)


def test_keys_outlive_a_kill_and_a_change_by_another_process_counts(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        kept, gone = await made(server, "read"), await made(server, "read")
        await server.program.kill()
        await server.start()
        assert await code(server, gone["key"], "GET", "/v1/stats") == "ok"
        other = SqliteStore(tmp_path / "peik.db", clock=SystemClock(), is_owner=False)
        await other.open()
        try:
            await other.revoke_key(int(gone["id"]), at_ms=0)
            while await code(server, gone["key"], "GET", "/v1/stats") == "ok":
                pass
        finally:
            await other.close()
        assert await code(server, kept["key"], "GET", "/v1/stats") == "ok"

    play(tmp_path, story)


BAD = [
    ({"scopes": ["read"]}, "bad_request"),
    ({"name": "shop", "scopes": ["write"]}, "bad_request"),
    ({"name": "shop", "scopes": ["read"], "admin": True}, "bad_request"),
    ({"name": " ", "scopes": ["read"]}, "bad_name"),
    ({"name": "x" * 101, "scopes": ["read"]}, "bad_name"),
    ({"name": "shop", "scopes": []}, "no_scope"),
    ({"name": "shop", "scopes": ["read"], "bot_ids": []}, "no_bot_ids"),
    ({"name": "shop", "scopes": ["read"], "bot_ids": ["x"]}, "bad_bot_id"),
    ({"name": "shop", "scopes": ["read"], "bot_ids": [1]}, "unknown_bot"),
    ({"name": "shop", "scopes": ["read"], "expires_at": 5}, "already_expired"),
    ({"name": "shop", "scopes": ["read"], "webhook_url": "ftp://shop.example/"}, "bad_webhook_url"),
    ({"name": "shop", "scopes": ["read"], "webhook_url": "http://127.0.0.1/"}, "private_webhook_url"),
]


def test_a_key_that_cannot_be_right_is_not_made(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        for body, wanted in BAD:
            status, problem = await server.call("POST", "/v1/keys", json=body)
            assert problem["code"] == wanted, body
            assert status in (404, 422)
        assert (await server.get("/v1/keys"))["keys"] == []

    play(tmp_path, story)


@pytest.mark.parametrize("header", ["Bearer", "bearer "])
def test_no_key_is_no_key(tmp_path: Path, header: str) -> None:
    async def story(server: Server, sim: Sim) -> None:
        status, problem = await server.call("GET", "/v1/stats", key=None, headers={"Authorization": header})
        assert (status, problem["code"]) == (401, "no_key")

    play(tmp_path, story)
