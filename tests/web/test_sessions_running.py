"""Accounts over REST: run, crawled for, sent as; and who may ask for that, as a client sees it."""

from pathlib import Path
from typing import Any

from peik.accounts.api import SessionApi
from peik.web.operations import operations_of
from tests.web.accounts import House, play_house, until
from tests.web.test_sessions import ALI, ali_of


def test_a_session_is_stopped_started_restarted_and_logged_out(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali = ali_of(house)
        session_id = await house.signed_in(ali)
        path = f"/v1/sessions/{session_id}"
        (key,) = house.telegram.keys.of(ali)
        first = key.client
        await house.post(f"{path}/restart")
        await until(lambda: _has_other(key, first))
        await house.connected(session_id)

        shown = await house.post(f"{path}/stop")
        assert (shown["state"], shown["is_connected"]) == ("paused", False)
        assert key.client is None
        assert await house.code("POST", f"{path}/restart") == (409, "session_off")
        assert (await house.post(f"{path}/start"))["state"] == "active"
        await house.connected(session_id)

        shown = await house.post(f"{path}/log-out")
        assert (shown["state"], shown["runs_from"], shown["is_connected"]) == ("revoked", None, False)
        assert key.ended is not None, "at Telegram, too"
        assert await house.code("POST", f"{path}/start") == (409, "not_signed_in")
        assert (await house.call("DELETE", path))[0] == 204

    async def _has_other(key: Any, first: object) -> bool:
        return key.client is not None and key.client is not first

    play_house(tmp_path, story)


def test_chats_are_listed_and_crawled(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali = ali_of(house)
        sara = house.telegram.register("+998900000002", first_name="Sara")
        chat = house.telegram.private(ali, sara)
        for number in range(5):
            house.telegram.say(chat, sara, f"before {number}")
        session_id = await house.signed_in(ali)
        path = f"/v1/sessions/{session_id}/chats"
        status, shown = await house.call("POST", f"{path}/{sara.user_id}/crawl")
        assert status == 202
        assert shown["crawl"]["state"] in ("running", "whole")

        async def crawled() -> dict[str, Any] | None:
            chats = (await house.get(path))["chats"]
            found: dict[str, Any] = next(one for one in chats if one["chat_id"] == str(sara.user_id))
            return found if found["crawl"]["state"] == "whole" else None

        assert (await until(crawled))["crawl"]["crawled"] == 5
        assert (await house.call("DELETE", f"{path}/{sara.user_id}/crawl"))[0] == 200
        assert await house.code("DELETE", f"{path}/4711/crawl") == (404, "no_such_chat")
        until_2020 = {"until": "2020-01-01T00:00:00Z"}
        status, shown = await house.call("POST", f"{path}/-1004711/crawl", json=until_2020)
        assert (status, shown["crawl"]["until"]) == (202, "2020-01-01T00:00:00.000Z")

    play_house(tmp_path, story)


# ---- accounts as senders ----


def test_a_letter_sent_as_an_account_arrives(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali = ali_of(house, username="ali")
        sara = house.telegram.register("+998900000002", first_name="Sara")
        house.telegram.private(ali, sara)
        session_id = await house.signed_in(ali)

        async def enlisted() -> dict[str, Any] | None:
            bots = (await house.get("/v1/bots"))["bots"]
            return bots[0] if bots else None

        bot = await until(enlisted)
        assert (bot["bot_id"], bot["is_account"], bot["username"]) == (str(ali.user_id), True, "ali")
        assert "@account" not in str(bot)
        letter = {
            "bot_id": str(ali.user_id),
            "method": "sendMessage",
            "params": {"chat_id": sara.user_id, "text": "Hi"},
        }
        shown = await house.post("/v1/letters?wait=200s", letter)
        assert shown["state"] == "completed", shown
        assert [(post.sender_id, post.text) for post in house.telegram.deliveries] == [(ali.user_id, "Hi")]

        # Nobody comes through the gateway as an account, and nobody makes one of a token, or a token of it.
        mark = f"{ali.user_id}:@account"
        send = {"chat_id": sara.user_id, "text": "as somebody else"}
        for name in (mark, mark.replace(":", "%3A").replace("@", "%40")):
            status, refusal, _ = await house.raw("POST", f"/bot{name}/sendMessage", json=send)
            assert status == 401, refusal
        assert await house.code("POST", "/v1/bots", json={"token": mark}) == (422, "malformed_token")
        token = f"{ali.user_id}:AAAAAAAAAAAAAAA"
        assert await house.code("POST", "/v1/bots", json={"token": token}) == (422, "is_account")
        for change in ({"token": token}, {"inbound": "polling"}, {"token": mark}):
            assert (await house.call("PATCH", f"/v1/bots/{ali.user_id}", json=change))[0] == 422
        assert len(house.telegram.deliveries) == 1

        assert (await house.call("DELETE", f"/v1/sessions/{session_id}"))[0] == 204
        assert (await house.get("/v1/bots"))["bots"] == []

    play_house(tmp_path, story)


# ---- who may ----


def every_route() -> list[tuple[str, str]]:
    return [(one.verb, one.path_of(session_id="known", chat_id="5")) for one in operations_of(SessionApi)]


def test_only_keys_of_all_bots_come_in_and_only_admin_keys_change(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        await house.made(session_id="known")

        async def key(*scopes: str, **terms: object) -> str:
            return str((await house.post("/v1/keys", {"name": "k", "scopes": list(scopes), **terms}))["key"])

        reader, sender = await key("read"), await key("send")
        ali = ali_of(house)
        await house.signed_in(ali, session_id="other")
        await until(lambda: _known(house, ali.user_id))
        bound = await key("admin", bot_ids=[str(ali.user_id)])
        for verb, path in every_route():
            assert await house.code(verb, path, key=None) == (401, "no_key"), (verb, path)
            assert await house.code(verb, path, key=bound) == (403, "wrong_bot"), (verb, path)
            if verb != "GET" or path.endswith(("/qr", "/contacts", "/crawl")):
                for one in (reader, sender):
                    assert await house.code(verb, path, key=one) == (403, "wrong_scope"), (verb, path)
            else:
                assert (await house.call(verb, path, key=reader))[0] == 200, (verb, path)

    async def _known(house: House, user_id: int) -> bool:
        return house.runtime.outbox.service.known(user_id) is not None

    play_house(tmp_path, story)


def test_without_accounts_every_route_says_what_to_set(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        for verb, path in every_route():
            status, problem = await house.call(verb, path)
            assert (status, problem["code"]) == (409, "no_sessions"), (verb, path)
            assert "TELEGRAM_API_ID" in problem["detail"]
        assert set((await house.get("/health"))["parts"]) == {"store", "telegram", "access"}

    play_house(tmp_path, story, has_accounts=False)


def test_an_archive_alone_can_be_read_and_nobody_signs_in(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        session_id = await house.made(phone=ALI)
        path = f"/v1/sessions/{session_id}"
        assert (await house.get(path))["phone"] == ALI
        for verb, step in (("POST", "code"), ("GET", "qr"), ("POST", "start"), ("POST", "log-out")):
            assert await house.code(verb, f"{path}/{step}") == (409, "no_application")

    archive = f"sqlite:///{tmp_path}/kept.db"
    play_house(tmp_path, story, has_accounts=False, archive=archive)


def test_who_is_not_signed_in_yet_is_said_to_be_so(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        session_id = await house.made(phone=ali_of(house).phone)
        path = f"/v1/sessions/{session_id}"
        await house.post(f"{path}/code")
        for verb, step in (("POST", "restart"), ("GET", "contacts")):
            status, problem = await house.call(verb, f"{path}/{step}")
            assert (status, problem["code"]) == (409, "session_off")
            assert problem["detail"].endswith(f"Give the code: peik sessions sign-in {session_id}")
        assert (await house.post(f"{path}/stop"))["state"] == "code_sent"
        status, problem = await house.call("POST", f"{path}/export", json={"plain": True})
        assert (status, problem["code"]) == (409, "not_signed_in")
        assert problem["detail"] == "There is no key to export: nobody is signed in."
        assert await house.code("POST", "/v1/sessions/none/restart") == (404, "no_such_session")

    play_house(tmp_path, story)


def test_an_account_moves_by_its_string_and_the_audit_log_has_it_without_the_string(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali = ali_of(house)
        session_id = await house.signed_in(ali)
        path, phrase = f"/v1/sessions/{session_id}", "a sentence that nobody guesses"
        wanted = {"passphrase": phrase}
        assert await house.code("POST", f"{path}/export", json=wanted) == (409, "session_runs")
        await house.post(f"{path}/stop")
        assert await house.code("POST", f"{path}/export", json={}) == (422, "no_passphrase")
        assert await house.code("POST", f"{path}/export", json={"passphrase": "short"}) == (422, "short_passphrase")
        made = await house.post("/v1/keys", {"name": "looks", "scopes": ["read", "send"]})
        assert (await house.call("POST", f"{path}/export", key=made["key"], json=wanted))[0] == 403
        status, _, headers = await house.raw("POST", f"{path}/export", json=wanted)
        assert (status, headers["cache-control"]) == (200, "no-store")
        sealed = await house.post(f"{path}/export", wanted)
        assert sealed["is_sealed"] is True
        plain = await house.post(f"{path}/export", {"plain": True})
        assert plain["is_sealed"] is False
        assert (await house.get(path))["metadata"]["exported_at"]

        taking = {"agent_id": "b", "string": sealed["string"], "passphrase": phrase}
        assert await house.code("POST", "/v1/sessions/import", json=taking) == (409, "session_known")
        assert (await house.call("DELETE", path))[0] == 204
        wrong = {**taking, "passphrase": "some other sentence"}
        assert await house.code("POST", "/v1/sessions/import", json=wrong) == (422, "wrong_passphrase")
        taken = await house.post("/v1/sessions/import", taking)
        await house.connected(taken["session_id"])
        shown = await house.get(f"/v1/sessions/{taken['session_id']}")
        assert (shown["user_id"], shown["phone"]) == (str(ali.user_id), ali.phone)

        log = (await house.raw("GET", "/v1/audit?limit=100"))[1].decode()
        assert log.count("exportSession") >= 3
        assert "importSession" in log
        for secret in (phrase, plain["string"], sealed["string"]):
            assert secret not in log

    play_house(tmp_path, story)


def test_an_account_joins_by_a_link_and_what_is_written_from_then_on_is_archived(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        session_id = await house.signed_in(ali_of(house))
        path = f"/v1/sessions/{session_id}"
        sara = house.telegram.register("+998900000002", first_name="Sara", username="sara")
        club = house.telegram.channel("Club", sara)
        house.telegram.say(club, sara, "from before")
        link = house.telegram.invite(club)
        joined = await house.post(f"{path}/join", {"link": link})
        assert (joined["chat_id"], joined["title"], joined["newest_id"]) == (str(club.chat_id), "Club", "1")
        assert (await house.post(f"{path}/join", {"link": link}))["chat_id"] == str(club.chat_id)
        house.telegram.say(club, sara, "from now on")
        (message,) = await house.messages(1)
        assert message["text"] == "from now on"
        assert [one["chat_id"] for one in (await house.get(f"{path}/chats"))["chats"]] == [str(club.chat_id)]

        asked = house.telegram.invite(house.telegram.channel("Closed", sara), asks_admin=True)
        status, problem = await house.call("POST", f"{path}/join", json={"link": asked})
        assert (status, problem["code"]) == (422, "refused")
        assert "has to let it in" in problem["detail"]

        wanted = {
            "contacts": [
                {"phone": "998 90 000 00 02", "first_name": "S"},
                {"phone": "+998911111111", "first_name": "N"},
            ]
        }
        added = await house.post(f"{path}/contacts", wanted)
        assert [(one["user_id"], one["first_name"]) for one in added["contacts"]] == [(str(sara.user_id), "S")]
        assert (await house.get(f"{path}/contacts"))["contacts"] == added["contacts"]
        assert await house.code("POST", f"{path}/contacts", json={"contacts": []}) == (422, "bad_contacts")
        house.telegram.flood("join", 600)
        assert await house.code("POST", f"{path}/join", json={"link": link}) == (409, "flood")
        assert (await house.get(path))["state"] == "flood_wait"
        assert await house.code("GET", f"{path}/contacts") == (409, "flood"), "it asks nothing until then"
        await house.post(f"{path}/stop")
        _, problem = await house.call("POST", f"{path}/join", json={"link": link})
        assert problem["code"] == "session_off"
        assert "Its owner paused it." in problem["detail"]

    play_house(tmp_path, story)
