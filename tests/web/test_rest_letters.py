"""Lists, cancel, retry, resolve, dead letters, lanes, chats and changes of bots, as a client of the REST API sees them."""

from pathlib import Path
from typing import Any

from tests.processes.programs import BOT, TOKEN, Server, Sim
from tests.web.test_rest import message, play


async def accept(server: Server, **more: Any) -> str:
    status, answer = await server.call("POST", "/v1/letters", json=message(**more.pop("params", {})) | more)
    assert status == 202, answer
    return str(answer["id"])


async def kill_letters(
    server: Server, sim: Sim, count: int, words: str = "Bad Request: message is too long"
) -> list[str]:
    """Dead letters, by a refusal that is final."""
    await sim.post("faults", kind="error", status=400, words=words, count=count)
    ids = [await accept(server, params={"chat_id": 100 + n, "text": f"dies {n}"}) for n in range(count)]
    for letter_id in ids:
        assert (await server.get(f"/v1/letters/{letter_id}?wait=200s"))["state"] == "failed"
    return ids


def test_letters_are_found_by_every_filter_and_paged_by_cursor(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await sim.post("faults", kind="dark")
        ids = [await accept(server, params={"chat_id": 5 + n % 2, "text": f"needle {n}"}) for n in range(7)]
        labelled = await accept(server, metadata={"user_id": "u1", "message_type": "receipt"}, params={"chat_id": 9})
        page = await server.get("/v1/letters?limit=3")
        seen = [letter["id"] for letter in page["letters"]]
        while page["next_cursor"]:
            page = await server.get(f"/v1/letters?limit=3&cursor={page['next_cursor']}")
            seen += [letter["id"] for letter in page["letters"]]
        assert seen == [labelled, *reversed(ids)]

        async def found(query: str) -> list[str]:
            return [letter["id"] for letter in (await server.get(f"/v1/letters?{query}"))["letters"]]

        assert await found("chat_id=6") == [ids[5], ids[3], ids[1]]
        assert await found("user_id=u1") == [labelled]
        assert await found("message_type=receipt") == [labelled]
        assert await found("text=NEEDLE%203") == [ids[3]]
        assert await found("state=completed") == []
        assert len(await found("state=waiting")) == 8
        assert len(await found(f"bot_id={BOT}&method=sendMessage&since=2026-01-01T00:00:00Z")) == 8
        assert await found("since=4102444800") == []
        for query, code in (("state=lost", "bad_state"), ("limit=0", "bad_limit"), ("chatid=5", "unknown_filter")):
            assert (await server.call("GET", f"/v1/letters?{query}"))[1]["code"] == code

    play(tmp_path, story)


def test_a_job_as_bullmq_writes_it_is_read(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await sim.post("faults", kind="dark")
        terms = {"attempts": 3, "backoff": {"type": "exponential", "delay": 2000}, "timeout": 30_000}
        job = await accept(server, metadata={"userId": "u7", "messageType": "receipt"}, **terms)
        for both in ("user_id=u7&message_type=receipt", "userId=u7&messageType=receipt"):
            (letter,) = (await server.get(f"/v1/letters?{both}"))["letters"]
            assert (letter["id"], letter["attempts"], letter["metadata"]["userId"]) == (job, 3, "u7")

    play(tmp_path, story)


def test_the_message_log_keeps_what_became_of_letters_that_are_gone(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await kill_letters(server, sim, 2)
        sent = await accept(server, metadata={"userId": "u7", "messageType": "receipt"}, params={"text": "Paid"})
        await server.get(f"/v1/letters/{sent}?wait=200s")
        assert (await server.call("DELETE", "/v1/dead"))[1] == {"cleared": 2}
        log = (await server.get("/v1/log"))["messages"]
        told = [(one["state"], one["text"], one["user_id"], one["message_type"], one["attempts_made"]) for one in log]
        assert told == [
            ("completed", "Paid", "u7", "receipt", 1),
            ("failed", "dies 1", None, None, 1),
            ("failed", "dies 0", None, None, 1),
        ]
        assert log[1]["error"] == "Bad Request: message is too long"
        assert all(one["created_at"] and one["finished_at"] for one in log)
        page = await server.get("/v1/log?state=failed&limit=1")
        following = await server.get(f"/v1/log?state=failed&limit=1&cursor={page['next_cursor']}")
        assert [one["text"] for one in page["messages"] + following["messages"]] == ["dies 1", "dies 0"]
        assert (await server.get("/v1/log?userId=u7"))["messages"] == log[:1]
        for query, code in (("cursor=x", "bad_cursor"), ("cause=x", "unknown_filter")):
            assert (await server.call("GET", f"/v1/log?{query}"))[1]["code"] == code

    play(tmp_path, story)


def test_a_waiting_letter_says_why_and_can_be_taken_back(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        first = await accept(server)
        await server.get(f"/v1/letters/{first}?wait=200s")
        assert (await server.call("DELETE", f"/v1/letters/{first}"))[1]["code"] == "already_ended"
        later = await accept(server, send_at="2030-01-01T00:00:00Z")
        assert "scheduled" in (await server.get(f"/v1/letters/{later}"))["why"]
        await sim.post("faults", kind="flood", retry_after=600, chat=5, count=1)
        held = await accept(server, params={"text": "held"})
        behind = await accept(server, params={"text": "behind"})
        sentence = ""
        while "held" not in sentence:
            sentence = (await server.get(f"/v1/letters/{held}"))["why"]
        assert "Its chat is held" in sentence
        lanes = (await server.get(f"/v1/lanes?bot_id={BOT}"))["lanes"]
        assert [(lane["chat_id"], lane["waiting"], lane["head"]) for lane in lanes] == [("5", 2, held)]
        for letter_id in (later, held, behind):
            status, letter = await server.call("DELETE", f"/v1/letters/{letter_id}")
            assert (status, letter["state"]) == (200, "cancelled")
        stats = await server.get("/v1/stats")
        assert (stats["cancelled"], stats["waiting"], stats["delayed"]) == (3, 0, 0)

    play(tmp_path, story)


def test_an_active_letter_cannot_be_taken_back(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await sim.post("faults", kind="hang", count=1)
        letter_id = await accept(server)
        while await sim.get("faults"):
            pass  # until the try hangs
        status, problem = await server.call("DELETE", f"/v1/letters/{letter_id}")
        assert (status, problem["code"]) == (409, "in_flight")

    play(tmp_path, story)


def test_dead_letters_are_listed_retried_and_cleared(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        ids = await kill_letters(server, sim, 4)
        dead = await server.get("/v1/dead")
        assert [letter["id"] for letter in dead["letters"]] == list(reversed(ids))
        assert (await server.call("POST", f"/v1/letters/{ids[0]}/retry"))[0] == 202
        again = await server.get(f"/v1/letters/{ids[0]}?wait=200s")
        assert (again["state"], again["attempts_made"]) == ("completed", 1)
        assert [line["outcome"] for line in again["history"]] == ["refused", "retry", "delivered"]
        assert (await server.call("POST", f"/v1/letters/{ids[0]}/retry"))[1]["code"] == "not_dead"
        status, answer = await server.call("POST", "/v1/dead/retry", json={"chat_id": 101})
        assert (status, answer) == (202, {"retried": 1})
        assert (await server.get(f"/v1/letters/{ids[1]}?wait=200s"))["state"] == "completed"
        assert (await server.call("DELETE", "/v1/dead?error=chat%20not%20found"))[1] == {"cleared": 0}
        assert (await server.call("DELETE", "/v1/dead?error=TOO%20LONG"))[1] == {"cleared": 2}
        assert (await server.get("/v1/stats"))["failed"] == 0
        assert (await server.call("GET", f"/v1/letters/{ids[3]}"))[0] == 404

    play(tmp_path, story)


def test_an_uncertain_letter_is_resolved_by_a_person(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await sim.post("faults", kind="lose_after", method="sendMessage", count=2)
        ids = [await accept(server, on_uncertain="hold", params={"chat_id": chat}) for chat in (5, 6)]
        for letter_id in ids:
            letter = await server.get(f"/v1/letters/{letter_id}?wait=200s")
            assert (letter["state"], letter["failed_reason"]) == ("failed", "uncertain")
        status, letter = await server.call("POST", f"/v1/letters/{ids[0]}/resolve", json={"arrived": True})
        assert (status, letter["state"], letter["failed_reason"]) == (200, "completed", None)
        await server.call("POST", f"/v1/letters/{ids[1]}/resolve", json={"arrived": False})
        assert (await server.get(f"/v1/letters/{ids[1]}?wait=200s"))["state"] == "completed"
        status, problem = await server.call("POST", f"/v1/letters/{ids[0]}/resolve", json={"arrived": True})
        assert (status, problem["code"]) == (409, "not_uncertain")
        assert len((await sim.get("sent", chat=5))["deliveries"]) == 1
        assert len((await sim.get("sent", chat=6))["deliveries"]) == 2

    play(tmp_path, story)


def test_a_bot_is_paused_resumed_limited_and_gets_a_new_token(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        path = f"/v1/bots/{BOT}"
        assert (await server.call("PATCH", path, json={"paused": True}))[1]["paused"] == "paused by hand"
        letter_id = await accept(server)
        assert "paused" in (await server.get(f"/v1/letters/{letter_id}?wait=300ms"))["why"]
        assert (await server.call("PATCH", path, json={"paused": False}))[1]["paused"] is None
        assert (await server.get(f"/v1/letters/{letter_id}?wait=200s"))["state"] == "completed"
        _, bot = await server.call("PATCH", path, json={"limits": {"bulk_per_s": 10}})
        assert bot["limits"]["bulk_per_s"] == 10
        assert (await server.call("PATCH", path, json={"limits": {"bulk_per_s": 0}}))[1]["code"] == "bad_limits"
        assert (await server.call("PATCH", path, json={"token": "42:other"}))[1]["code"] == "other_bot"
        assert (await server.call("PATCH", "/v1/bots/42", json={}))[1]["code"] == "unknown_bot"
        new = (await sim.post("revoke", bot=BOT))["token"]
        assert new != TOKEN
        stuck = await accept(server, params={"chat_id": 77})
        assert (await server.get(f"/v1/letters/{stuck}?wait=500ms"))["state"] == "waiting"
        assert (await server.call("PATCH", path, json={"token": new}))[0] == 200
        assert (await server.get(f"/v1/letters/{stuck}?wait=200s"))["state"] == "completed"

    play(tmp_path, story)


def test_a_chat_is_shown_opened_and_held(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await accept(server, params={"chat_id": 9})
        await sim.get("sent", at_least=1)
        await sim.post("block", bot=BOT, user=9)
        blocked = await accept(server, params={"chat_id": 9, "text": "blocked"})
        await server.get(f"/v1/letters/{blocked}?wait=200s")
        (chat,) = (await server.get(f"/v1/chats?bot_id={BOT}"))["chats"]
        assert (chat["chat_id"], chat["reachable"]) == ("9", False)
        assert "blocked by the user" in chat["reason"]
        await sim.post("unblock", bot=BOT, user=9)
        assert (await server.call("PATCH", f"/v1/chats/{BOT}/9", json={"reachable": True}))[0] == 200
        again = await accept(server, params={"chat_id": 9, "text": "welcome back"})
        assert (await server.get(f"/v1/letters/{again}?wait=200s"))["state"] == "completed"
        await server.call("PATCH", f"/v1/chats/{BOT}/9", json={"held_until": "2030-01-01T00:00:00Z"})
        held = await accept(server, params={"chat_id": 9, "text": "held"})
        assert (await server.get(f"/v1/letters/{held}?wait=300ms"))["state"] == "waiting"
        await server.call("PATCH", f"/v1/chats/{BOT}/9", json={"held_until": None})
        assert (await server.get(f"/v1/letters/{held}?wait=200s"))["state"] == "completed"
        assert (await server.get(f"/v1/chats?bot_id={BOT}"))["chats"] == []

    play(tmp_path, story)


def test_every_route_refuses_a_request_without_a_key(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        async with server._http.get(f"{server.url}/openapi.json") as response:
            paths = (await response.json())["paths"]
        assert len(paths) >= 15
        for path, verbs in paths.items():
            for verb in verbs:
                concrete = path.replace("{letter_id}", "1").replace("{bot_id}", "1").replace("{chat_id}", "1")
                concrete = concrete.replace("{key_id}", "1")
                status, answer = await server.call(verb.upper(), concrete, key=None)
                if path in ("/health", "/ready"):
                    assert status == 200
                else:
                    assert (status, answer["code"]) == (401, "no_key"), (verb, path)

    play(tmp_path, story)
