"""Changing letters, taking many back, causes of death, and counting before doing, as a client of the REST API sees it."""

from pathlib import Path

from tests.processes.programs import BOT, Server, Sim
from tests.web.test_rest import play
from tests.web.test_rest_letters import accept, kill_letters


def test_a_letter_gets_another_priority_and_another_time(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        later = await accept(server, send_at="2030-01-01T00:00:00Z")
        path = f"/v1/letters/{later}"
        status, letter = await server.call("PATCH", path, json={"priority": 2, "send_at": "2031-01-01T00:00:00Z"})
        assert (status, letter["priority"], letter["state"]) == (200, 2, "delayed")
        assert letter["send_at"].startswith("2031-01-01T00:00:00")
        for body, code in (
            ({}, "nothing_to_change"),
            ({"priority": 9}, "bad_priority"),
            ({"send_at": "soon"}, "bad_time"),
            ({"chat_id": 5}, "bad_request"),
        ):
            status, problem = await server.call("PATCH", path, json=body)
            assert (status, problem["code"]) == (422, code), problem
        assert (await server.call("PATCH", path, json={"send_at": "now"}))[0] == 200
        assert (await server.get(f"{path}?wait=200s"))["state"] == "completed"
        assert (await server.call("PATCH", path, json={"priority": 1}))[1]["code"] == "already_ended"
        assert (await server.call("PATCH", "/v1/letters/999999", json={"priority": 1}))[0] == 404

    play(tmp_path, story)


def test_letters_of_a_filter_are_counted_and_taken_back(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        ids = [await accept(server, params={"chat_id": 5}, send_at="2030-01-01T00:00:00Z") for _ in range(3)]
        other = await accept(server, params={"chat_id": 6}, send_at="2030-01-01T00:00:00Z")

        async def cancel(**body: object) -> tuple[int, dict[str, object]]:
            return await server.call("POST", "/v1/letters/cancel", json=body)

        assert (await cancel())[1]["code"] == "no_filter"
        assert (await cancel(state="failed"))[1]["code"] == "bad_state"
        assert await cancel(chat_id=5, dry_run=True) == (200, {"count": 3, "is_least": False})
        assert await cancel(chat_id=5) == (200, {"cancelled": 3})
        assert await cancel(state="delayed", dry_run=True) == (200, {"count": 1, "is_least": False})
        states = [(await server.get(f"/v1/letters/{one}"))["state"] for one in (*ids, other)]
        assert states == ["cancelled"] * 3 + ["delayed"]
        assert (await server.get("/v1/letters?state=cancelled&until=2026-01-01T00:00:00Z"))["letters"] == []

    play(tmp_path, story)


def test_dead_letters_are_told_by_cause_and_handled_by_it(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        ids = await kill_letters(server, sim, 3, words="Bad Request: message 17 is wrong")
        (causes,) = (await server.get(f"/v1/dead/causes?bot_id={BOT}"))["causes"]
        assert causes["reason"] == "Bad Request: message N is wrong"
        assert (causes["count"], causes["methods"], causes["newest_id"]) == (3, ["sendMessage"], ids[2])
        assert (causes["is_uncertain"], (await server.get("/v1/dead/causes?since=4102444800"))["causes"]) == (False, [])
        cause = "cause=Bad%20Request:%20message%20N%20is%20wrong"
        assert len((await server.get(f"/v1/dead?{cause}"))["letters"]) == 3
        dry = {"cause": causes["reason"], "dry_run": True}
        assert await server.call("POST", "/v1/dead/retry", json=dry) == (200, {"count": 3, "is_least": False})
        assert await server.call("DELETE", f"/v1/dead?{cause}&dry_run=true") == (200, {"count": 3, "is_least": False})
        assert (await server.call("DELETE", "/v1/dead?dry_run=perhaps"))[1]["code"] == "bad_dry_run"
        assert (await server.call("POST", "/v1/dead/retry", json={"cause": causes["reason"]}))[1] == {"retried": 3}
        for letter_id in ids:
            assert (await server.get(f"/v1/letters/{letter_id}?wait=200s"))["state"] == "completed"

    play(tmp_path, story)
