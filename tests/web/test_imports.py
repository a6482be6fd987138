"""What an import asks of the REST API: bounds, keys and answers."""

from pathlib import Path

from tests.processes.programs import BOT, Server, Sim
from tests.web.test_rest import play


def test_people_offset_and_notes_over_rest(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        people = [{"chat_id": 5, "name": "Sara", "language": "fa", "first_seen_at": 1700000000}, {"chat_id": "-1005"}]
        status, answer = await server.call("POST", "/v1/imports/contacts", json={"contacts": people})
        assert (status, answer) == (200, {"new": 2, "known": 0})
        assert (await server.get(f"/v1/contacts/{BOT}/5"))["first_seen_at"] == "2023-11-14T22:13:20.000Z"
        group = await server.get(f"/v1/contacts/{BOT}/-1005")
        assert (group["type"], group["language"]) == ("group", None)
        for wrong, code in (
            ({"contacts": []}, "bad_contacts"),
            ({"contacts": [{"chat_id": "me"}]}, "bad_chat_id"),
            ({"contacts": [{"chat_id": 5, "name": "x" * 257}]}, "bad_contact"),
            ({"contacts": [{"chat_id": 5, "age": 7}]}, "bad_request"),
        ):
            status, answer = await server.call("POST", "/v1/imports/contacts", json=wrong)
            assert (status, answer["code"]) == (422, code)

        note = {"name": "bot", "table": "outbox", "place": 500, "begun_at": 1700000000, "letters": 499}
        status, kept = await server.call("PUT", "/v1/imports", json=note)
        assert status == 200
        assert (await server.get("/v1/imports"))["imports"] == [kept]
        assert (kept["place"], kept["begun_at"]) == (500, "2023-11-14T22:13:20.000Z")
        assert (await server.call("PUT", "/v1/imports", json=note | {"name": ""}))[1]["code"] == "bad_name"
        assert (await server.call("GET", "/v1/imports?bot=5"))[1]["code"] == "unknown_filter"

        status, answer = await server.call("POST", "/v1/imports/offset", json={"last_update_id": 0})
        assert (status, answer["code"]) == (422, "bad_last_update_id")
        await server.call("PATCH", f"/v1/bots/{BOT}", json={"inbound": "polling"})
        status, answer = await server.call("POST", "/v1/imports/offset", json={"last_update_id": 105})
        assert (status, answer["code"]) == (409, "inbox_begun")

    play(tmp_path, story)
