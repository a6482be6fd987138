"""How /health and /ready stand by an archive that is away: it is told by its kind, and letters of bots go on."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.monitoring.checks import of_accounts
from tests.archive.mongo_server import MongoServer
from tests.archive.places import HAS_SERVERS
from tests.storage.redis_server import RedisServer, wanted
from tests.web.accounts import House, play_house, until


async def parts(house: House) -> dict[str, Any]:
    shown = await house.get("/health")
    assert shown["status"] == "ok", "calls are accepted all the same"
    assert (await house.call("GET", "/ready"))[0] == 200
    return dict(shown["parts"])


async def archive_in(house: House, status: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        found: dict[str, Any] = (await parts(house))["archive"]
        return found if found["status"] == status else None

    return await until(look)


def test_an_archive_that_cannot_be_opened_is_told_and_comes_by_itself(tmp_path: Path) -> None:
    blocked = tmp_path / "archive.db"
    blocked.mkdir()

    async def story(house: House) -> None:
        away = await archive_in(house, "away")
        assert away["kind"] == "sqlite"
        assert away["why"]
        assert "cache" not in await parts(house)
        for verb, path in (("GET", "/v1/sessions"), ("POST", "/v1/sessions/some/start"), ("GET", "/v1/messages")):
            status, problem = await house.call(verb, path)
            assert (status, problem["code"]) == (503, "archive_away"), (verb, path)
        status, _, headers = await house.raw("GET", "/v1/sessions/some")
        assert (status, headers["retry-after"]) == (503, "2")
        assert (await house.call("POST", "/v1/bots", json={"token": "42:SECRET"}))[0] == 201
        blocked.rmdir()
        back = await archive_in(house, "ok")
        assert back == {"status": "ok", "kind": "sqlite", "why": None}
        await house.made()

    play_house(tmp_path, story, is_open=False, archive=f"sqlite:///{blocked}")


def test_an_account_that_cannot_connect_is_seen_at_every_door(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali = house.telegram.register("+998900000001", first_name="Ali")
        session_id = await house.signed_in(ali)
        assert (await parts(house))["accounts"] == {"status": "ok", "kind": "telegram", "why": None}
        shown = await house.get(f"/v1/sessions/{session_id}")
        assert shown["health"] == {"grade": "ok", "line": "Connected.", "todo": None}
        house.telegram.is_down = True
        house.telegram.cut(ali)

        async def failing() -> Any:
            found = (await parts(house))["accounts"]
            return found if found["status"] == "failing" else None

        assert (await until(failing))["why"] == "1 of the 1 accounts that run here are not connected."

        async def told() -> Any:
            health = (await house.get(f"/v1/sessions/{session_id}"))["health"]
            return health if health["grade"] == "failing" else None

        health = await until(told)
        assert "tries again by itself" in health["line"]
        assert "proxy" in health["todo"]

        async def counted() -> Any:
            return (await house.get("/v1/overview"))["session_health"].get("failing")

        assert await until(counted) == 1
        metrics = (await house.raw("GET", "/metrics"))[1].decode()
        assert 'peik_session_health{grade="failing"} 1.0' in metrics
        assert 'peik_session_health{grade="ok"} 0.0' in metrics
        settings = msgspec.structs.replace(house.runtime.config, telegram_api_id=1, telegram_api_hash="h")
        findings = await asyncio.to_thread(asyncio.run, of_accounts(settings))
        (finding,) = [one for one in findings if one.name == "account"]
        assert (finding.grade, finding.words) == ("yellow", f"{session_id}: {health['line']}")
        assert finding.fix == health["todo"]
        house.telegram.is_down = False

    play_house(tmp_path, story)


@pytest.mark.gate  # waits until a dead server is given up
@pytest.mark.skipif(not HAS_SERVERS, reason="TEST_STORES=sqlite: a quick look without servers")
def test_mongodb_and_redis_are_named_and_one_that_dies_is_told(tmp_path: Path) -> None:
    (tmp_path / "mongo").mkdir()
    (tmp_path / "redis").mkdir()
    wanted()
    mongo = MongoServer(tmp_path / "mongo").start()
    redis = RedisServer(tmp_path / "redis", appendonly="yes", appendfsync="always").start()

    async def story(house: House) -> None:
        found = await parts(house)
        assert found["archive"] == {"status": "ok", "kind": "mongodb", "why": None}
        assert found["cache"] == {"status": "ok", "kind": "redis", "why": None}
        session_id = await house.made()
        mongo.kill()
        away = await archive_in(house, "away")
        assert away["kind"] == "mongodb"
        assert away["why"]
        assert (await parts(house))["cache"]["status"] == "ok"
        assert (await house.call("GET", "/v1/messages"))[0] == 503
        mongo.start()
        await archive_in(house, "ok")
        assert (await house.get(f"/v1/sessions/{session_id}"))["session_id"] == session_id

    try:
        url = mongo.url.format(database="peik")
        play_house(tmp_path, story, store=redis.url, archive=url, has_accounts=False)
    finally:
        mongo.kill()
        redis.kill()
