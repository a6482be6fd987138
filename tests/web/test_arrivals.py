"""Arrivals and their consumers as a client of REST meets them: a real server, and people who write to its bot."""

import asyncio
from pathlib import Path
from typing import Any

from peik.clock import SystemClock
from peik.inbox.store import Burial
from peik.storage.sqlite.store import SqliteStore
from tests.processes.programs import BOT, TOKEN, Server, Sim
from tests.web.test_keys import code, made
from tests.web.test_rest import play

OTHER = 7000002


async def write(sim: Sim, count: int, *, user: int = 5, first: int = 1) -> None:
    for number in range(first, first + count):
        await sim.post("write", bot=TOKEN, user=user, text=f"text {number}")


async def arrived(server: Server, count: int, query: str = "") -> list[dict[str, Any]]:
    """The newest first, once there are so many."""
    while True:
        found = (await server.get(f"/v1/arrivals?limit=1000{query}"))["arrivals"]
        if len(found) >= count:
            return list(found)
        await asyncio.sleep(0.02)


async def bury(folder: Path, *numbers: int) -> None:
    """As if a handler had failed with these for the last time, in another process on the same file."""
    store = SqliteStore(folder / "peik.db", clock=SystemClock(), is_owner=False)
    await store.open()
    (consumer,) = [one for one in await store.inbox.consumers(BOT) if one.name == "default"]
    dead = [
        Burial(number=number, tries=5, reason="ValueError: no", entry='{"at": 1700000000000, "words": "no"}')
        for number in numbers
    ]
    await store.inbox.settle_arrivals(consumer.id, dead=dead, at_ms=SystemClock().wall_ms())
    await store.close()


def test_arrivals_are_listed_filtered_and_shown_with_how_they_stand(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 3)
        await write(sim, 1, user=6)
        found = await arrived(server, 4)
        numbers = [one["number"] for one in found]
        assert numbers == list(range(numbers[3] + 3, numbers[3] - 1, -1))
        newest = found[0]
        assert (newest["type"], newest["chat_id"], newest["user_id"], newest["text"]) == ("message", "6", "6", "text 1")
        assert (newest["state"], newest["telegram_update_id"]) == ("waiting", newest["update_id"])
        for query, count in (
            ("chat_id=5", 3), ("user_id=6", 1), ("type=message", 4), ("type=poll", 0), ("text=text 2", 1),
            ("state=waiting", 4), ("state=completed", 0), ("since=2099-01-01T00:00:00Z", 0), ("until=1", 0),
            (f"first_number={numbers[1]}", 2), (f"last_number={numbers[2]}", 2), (f"bot_id={BOT}&consumer=nobody", 0),
        ):  # fmt: skip
            assert len((await server.get(f"/v1/arrivals?{query}"))["arrivals"]) == count, query
        page = await server.get("/v1/arrivals?limit=3")
        rest = await server.get(f"/v1/arrivals?limit=3&cursor={page['next_cursor']}")
        assert [one["id"] for one in page["arrivals"] + rest["arrivals"]] == [one["id"] for one in found]
        assert rest["next_cursor"] is None
        shown = await server.get(f"/v1/arrivals/{newest['id']}")
        assert shown["update"]["update_id"] == newest["number"]
        assert shown["update"]["message"]["text"] == "text 1"
        (delivery,) = shown["deliveries"]
        assert (delivery["consumer"], delivery["state"], delivery["history"]) == ("default", "waiting", [])
        for path, answer in (
            ("/v1/arrivals/999", "unknown_arrival"), ("/v1/arrivals/x", "bad_arrival_id"),
            ("/v1/arrivals?colour=red", "unknown_filter"), ("/v1/arrivals?state=active", "bad_state"),
        ):  # fmt: skip
            assert (await server.call("GET", path))[1]["code"] == answer

    play(tmp_path, story, inbound="polling")


def test_dead_arrivals_are_retried_one_by_one_or_all_and_cleared(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 4)
        first = (await arrived(server, 4))[3]["number"]
        await bury(tmp_path, first, first + 1, first + 2)
        dead = (await server.get("/v1/arrivals/dead"))["arrivals"]
        assert [one["number"] for one in dead] == [first + 2, first + 1, first]
        (delivery,) = dead[2]["deliveries"]
        assert (delivery["failed_reason"], delivery["tries"]) == ("ValueError: no", 5)
        assert delivery["history"] == [{"at": "2023-11-14T22:13:20.000Z", "words": "no"}]
        status, again = await server.call("POST", f"/v1/arrivals/{dead[2]['id']}/retry")
        assert (status, again["number"], again["replay_of"]) == (202, first + 4, dead[2]["id"])
        assert (await server.call("POST", f"/v1/arrivals/{dead[2]['id']}/retry"))[1]["code"] == "not_dead"
        assert (await server.call("DELETE", f"/v1/arrivals/dead?first_number={first + 2}"))[1] == {"cleared": 1}
        assert (await server.call("POST", "/v1/arrivals/dead/retry", json={"type": "poll"}))[1] == {"retried": 0}
        assert (await server.call("POST", "/v1/arrivals/dead/retry"))[1] == {"retried": 1}
        assert (await server.get("/v1/arrivals/dead"))["arrivals"] == []

    play(tmp_path, story, inbound="polling")


def test_a_replay_is_counted_first_and_then_made_for_one_consumer(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 5)
        await arrived(server, 5)
        wanted = {"since": 0, "chat_id": 5}
        dry = await server.call("POST", "/v1/arrivals/replay", json={**wanted, "dry_run": True})
        assert dry == (200, {"would_replay": 5})
        answer = await server.call("POST", "/v1/arrivals/replay", json=wanted)
        assert answer == (200, {"replayed": 5, "next_cursor": None})
        page = (await server.call("POST", "/v1/arrivals/replay", json={**wanted, "limit": 3}))[1]
        rest = await server.call("POST", "/v1/arrivals/replay", json={**wanted, "cursor": page["next_cursor"]})
        assert (page["replayed"], rest[1]) == (3, {"replayed": 2, "next_cursor": None})
        assert len(await arrived(server, 15)) == 15
        for body, answer_code in (
            ({}, "replay_of_what"), ({"consumer": "default"}, "replay_of_what"), ({**wanted, "cursor": "x"}, "bad_cursor"),
            ({**wanted, "consumer": "nobody"}, "unknown_consumer"), ({**wanted, "limit": 0}, "bad_limit"),
        ):  # fmt: skip
            assert (await server.call("POST", "/v1/arrivals/replay", json=body))[1]["code"] == answer_code

    play(tmp_path, story, inbound="polling")


def test_acknowledged_and_seen_ones_are_over(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 4)
        first = (await arrived(server, 4))[3]
        number = first["number"]
        ack = {"consumer": "default", "update_id": first["update_id"]}
        assert (await server.call("POST", "/v1/arrivals/ack", json=ack))[1] == {
            "consumer": "default",
            "acknowledged_up_to": number,
        }
        message_id = int(first["message_id"])
        seen = {"messages": [{"chat_id": 5, "message_id": message_id + 2}, {"chat_id": "-100", "message_id": "7"}]}
        assert (await server.call("POST", "/v1/arrivals/seen", json=seen))[1] == {"noted": 2, "matched": 1}
        open_ones = [one["number"] for one in (await server.get("/v1/arrivals?state=waiting"))["arrivals"]]
        assert open_ones == [number + 3, number + 1]
        for body, answer in (
            ({"consumer": "default", "number": number + 9}, "bad_number"),
            ({"consumer": "default"}, "which_number"),
            ({"consumer": "nobody", "number": number}, "unknown_consumer"),
        ):
            assert (await server.call("POST", "/v1/arrivals/ack", json=body))[1]["code"] == answer

    play(tmp_path, story, inbound="polling")


def test_consumers_are_set_listed_and_removed_and_their_secrets_never_shown(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 2)
        await arrived(server, 2)
        path = f"/v1/consumers/{BOT}/reports"
        body = {"url": "http://127.0.0.1:9/hook", "secret": "s3cret", "allowed_updates": ["poll"], "max_connections": 3}
        status, consumer = await server.call("PUT", path, json=body)
        assert (status, consumer["kind"], consumer["url"]) == (200, "push", body["url"])
        assert (consumer["has_secret"], consumer["allowed_updates"], consumer["max_connections"]) == (True, ["poll"], 3)
        listed = {one["name"]: one for one in (await server.get("/v1/consumers"))["consumers"]}
        assert (listed["default"]["open"], listed["default"]["failed"]) == (2, 0)
        assert "s3cret" not in str(listed)
        assert (await server.call("PUT", path, json={"url": None}))[1]["kind"] == "none"
        assert (await server.call("DELETE", path))[0] == 204
        for verb, where, more, answer in (
            ("DELETE", path, {}, "unknown_consumer"),
            ("DELETE", f"/v1/consumers/{BOT}/default", {}, "default_consumer"),
            ("PUT", f"/v1/consumers/{OTHER}/reports", {"json": {}}, "unknown_bot"),
            ("PUT", f"/v1/consumers/{BOT}/a b", {"json": {}}, "bad_consumer"),
            ("PUT", path, {"json": {"url": "ftp://x"}}, "bad_webhook_url"),
            ("PUT", path, {"json": {"secret": "no spaces"}}, "bad_secret"),
            ("PUT", path, {"json": {"max_connections": 0}}, "bad_max_connections"),
        ):
            assert (await server.call(verb, where, **more))[1]["code"] == answer, (verb, where, more)

    play(tmp_path, story, inbound="polling")


def test_one_pass_brings_in_what_telegram_has_kept_and_says_how_much(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 120)
        status, report = await server.call("POST", f"/v1/bots/{BOT}/recover")
        assert (status, report["found"], report["stored"], report["duplicates"]) == (200, 120, 120, 0)
        assert report["took_s"] >= 0
        assert (await server.call("POST", f"/v1/bots/{BOT}/recover"))[1]["found"] == 0
        assert (await server.call("POST", f"/v1/bots/{OTHER}/recover"))[1]["code"] == "unknown_bot"
        (inbox,) = (await server.get("/v1/inbox"))["bots"]
        assert (inbox["bot_id"], inbox["source"], inbox["epoch"]) == (str(BOT), "off", 1)
        assert inbox["last_number"] == inbox["last_update_id"]
        assert inbox["expires_at"] > inbox["seen_at"]
        assert [(one["name"], one["open"]) for one in inbox["consumers"]] == [("default", 120)]
        counted = await server.get("/v1/stats")
        assert counted["inbox"]["open"] == 120
        assert counted["inbox"]["bots"][str(BOT)]["default"] == {"open": 120, "delayed": 0, "failed": 0}

    play(tmp_path, story)


REQUESTS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("read", "GET", "/v1/arrivals", {}),
    ("read", "GET", "/v1/arrivals/dead", {}),
    ("read", "GET", "/v1/arrivals/1", {}),
    ("read", "GET", "/v1/inbox", {}),
    ("send", "POST", "/v1/arrivals/dead/retry", {}),
    ("send", "DELETE", "/v1/arrivals/dead", {}),
    ("send", "POST", "/v1/arrivals/replay", {"json": {"since": 0, "dry_run": True}}),
    ("send", "POST", "/v1/arrivals/seen", {"json": {"messages": []}}),
    ("send", "POST", "/v1/arrivals/ack", {"json": {"consumer": "default", "number": 0}}),
    ("send", "POST", f"/v1/bots/{BOT}/recover", {}),
    ("admin", "GET", "/v1/consumers", {}),
    ("admin", "PUT", f"/v1/consumers/{BOT}/reports", {"json": {}}),
)


def test_each_scope_opens_what_it_is_for_and_a_key_of_another_bot_sees_nothing(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 1)
        await arrived(server, 1)
        scopes = ("read", "send", "admin")
        keys = {scope: (await made(server, scope))["key"] for scope in scopes}
        await server.call("POST", "/v1/bots", json={"token": f"{OTHER}:AAother"})
        foreign = (await made(server, "admin", bot_ids=[OTHER]))["key"]
        for needed, verb, path, more in REQUESTS:
            more = {"json": {"bot_id": BOT, **more["json"]}} if path.startswith("/v1/arrivals") and more else more
            assert await code(server, "no-key", verb, path, **more) == "wrong_key"
            for scope in scopes:
                wanted = "ok" if scopes.index(scope) >= scopes.index(needed) else "wrong_scope"
                assert await code(server, keys[scope], verb, path, **more) == wanted, (scope, verb, path)
            if more or str(BOT) in path:
                assert await code(server, foreign, verb, path, **more) == "wrong_bot", (verb, path)
        assert (await server.call("GET", "/v1/arrivals", key=foreign))[1]["arrivals"] == []
        assert (await server.call("GET", "/v1/arrivals/1", key=foreign))[1]["code"] == "unknown_arrival"
        assert (await server.call("POST", "/v1/arrivals/1/retry", key=foreign))[1]["code"] == "unknown_arrival"
        assert [bot["bot_id"] for bot in (await server.call("GET", "/v1/inbox", key=foreign))[1]["bots"]] == [
            str(OTHER)
        ]
        consumers = (await server.call("GET", "/v1/consumers", key=foreign))[1]["consumers"]
        assert not [one for one in consumers if one["bot_id"] == str(BOT)]

    play(tmp_path, story, inbound="polling")


IMPOSSIBLE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/arrivals/seen", {"messages": [{"chat_id": "x", "message_id": 1}]}),
    ("/v1/arrivals/seen", {"messages": [{"chat_id": 1, "message_id": 10**30}]}),
    ("/v1/arrivals/ack", {"consumer": "default", "number": 2**63 - 1}),
    ("/v1/arrivals/ack", {"consumer": "default", "update_id": 2**62}),
    ("/v1/arrivals/replay", {"since": "yesterday"}),
    ("/v1/arrivals/replay", {"first_number": -1}),
    ("/v1/arrivals/replay", {"first_number": 2**62}),
    ("/v1/arrivals/dead/retry", {"user_id": "x"}),
)


def test_numbers_that_cannot_be_are_refused(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await server.call("PUT", f"/v1/consumers/{BOT}/default", json={})
        for path, body in IMPOSSIBLE:
            assert (await server.call("POST", path, json=body))[0] == 422, (path, body)

    play(tmp_path, story)
