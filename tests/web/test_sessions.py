"""Accounts over REST: registered, changed, and signed in by code, password and QR, as a client sees it."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from peik.clock import SystemClock
from peik.testing.accounts import Person
from tests.web.accounts import House, play_house, until

ALI = "+998900000001"


class JumpingClock(SystemClock):
    """The computer's clock, which somebody sets ahead."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def ali_of(house: House, **more: Any) -> Person:
    return house.telegram.register(ALI, first_name="Ali", **more)


def persian(text: str) -> str:
    """As the keyboard of a phone in Iran writes it."""
    return text.translate({ord("0") + digit: 0x06F0 + digit for digit in range(10)})


async def in_state(house: House, session_id: str, state: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        shown: dict[str, Any] = await house.get(f"/v1/sessions/{session_id}")
        return shown if shown["state"] == state else None

    return await until(look)


# ---- the registry ----


def test_a_session_is_made_shown_changed_and_removed(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        body = {
            "agent_id": "support",
            "phone": persian("00998 90 000 00 01"),
            "metadata": {"owner": "سارا", "shift": 1},
        }
        status, made = await house.call("POST", "/v1/sessions", json=body)
        assert status == 201
        assert (made["agent_id"], made["phone"], made["state"]) == ("support", ALI, "new")
        assert (made["metadata"], made["user_id"], made["runs_from"]) == ({"owner": "سارا", "shift": 1}, None, None)
        path = f"/v1/sessions/{made['session_id']}"
        assert await house.get(path) == made

        status, changed = await house.call(
            "PATCH", path, json={"phone": "+998 90 000-00-02", "metadata": {"shift": None, "night": True}}
        )
        assert status == 200
        assert (changed["phone"], changed["metadata"]) == ("+998900000002", {"owner": "سارا", "night": True})
        _, changed = await house.call("PATCH", path, json={"proxy": "socks5://u:hidden@127.0.0.1:1080"})
        assert changed["has_proxy"]
        assert "hidden" not in str(changed)
        _, changed = await house.call("PATCH", path, json={"proxy": None, "is_active": False})
        assert (changed["has_proxy"], changed["is_active"]) == (False, False)
        _, changed = await house.call("PATCH", path, json={"is_active": True, "is_connected": True})
        assert (changed["is_active"], changed["is_connected"]) == (True, True)
        _, unchanged = await house.call("PATCH", path, json={})
        assert unchanged == changed
        noted = await house.post(f"{path}/activity")
        assert noted["active_at"] is not None

        assert (await house.call("DELETE", path))[0] == 204
        for verb in ("GET", "DELETE"):
            assert await house.code(verb, path) == (404, "no_such_session")
        assert await house.code("PATCH", path, json={}) == (404, "no_such_session")

    play_house(tmp_path, story)


def test_sessions_are_found_by_every_filter_and_paged(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        for number in range(7):
            more = {"phone": ALI} if number == 3 else {}
            await house.made("even" if number % 2 == 0 else "odd", session_id=f"s{number}", **more)
        await house.call("PATCH", "/v1/sessions/s6", json={"is_active": False})

        async def found(query: str) -> list[str]:
            return [one["session_id"] for one in (await house.get(f"/v1/sessions?{query}"))["sessions"]]

        assert await found("") == [f"s{number}" for number in range(7)]
        assert await found("agent_id=even") == ["s0", "s2", "s4", "s6"]
        assert await found("agent_id=even&active=true") == ["s0", "s2", "s4"]
        assert await found("active=false&state=new,active") == ["s6"]
        assert await found("state=active,revoked") == []
        assert await found("phone=00998900000001") == ["s3"]
        assert await found("phone=%2B998900000001&agent_id=even") == []
        page = await house.get("/v1/sessions?limit=3")
        seen = [one["session_id"] for one in page["sessions"]]
        while page["next"] is not None:
            page = await house.get(f"/v1/sessions?limit=3&cursor={page['next']}")
            assert page["sessions"], "a next page is never empty"
            seen += [one["session_id"] for one in page["sessions"]]
        assert seen == [f"s{number}" for number in range(7)]
        assert (await house.get("/v1/sessions?limit=7"))["next"] is None

    play_house(tmp_path, story)


def test_what_is_over_is_cleaned_up_and_keys_are_sealed_anew(tmp_path: Path) -> None:
    clock = JumpingClock()

    async def story(house: House) -> None:
        await house.signed_in(ali_of(house), session_id="lives")
        await house.made(session_id="over")
        await house.call("PATCH", "/v1/sessions/over", json={"is_active": False})
        assert await house.post("/v1/sessions/cleanup") == {"removed": 0}
        clock.ahead_ms = 40 * 86_400_000
        assert await house.post("/v1/sessions/cleanup", {"days": 60}) == {"removed": 0}
        assert await house.post("/v1/sessions/cleanup") == {"removed": 1}
        assert await house.code("GET", "/v1/sessions/over") == (404, "no_such_session")
        assert await house.post("/v1/sessions/reseal") == {"renewed": 0, "lost": []}

    play_house(tmp_path, story, clock=clock)


BAD: tuple[tuple[str, str, object, str], ...] = (
    ("POST", "/v1/sessions", {}, "bad_request"),
    ("POST", "/v1/sessions", {"agent_id": 5}, "bad_request"),
    ("POST", "/v1/sessions", {"agent_id": "a", "agent": "b"}, "bad_request"),
    ("POST", "/v1/sessions", {"agent_id": "a" * 201}, "malformed_agent_id"),
    ("POST", "/v1/sessions", {"agent_id": ""}, "malformed_agent_id"),
    ("POST", "/v1/sessions", {"agent_id": "a\0b"}, "malformed_agent_id"),
    ("POST", "/v1/sessions", {"agent_id": "a", "phone": "call me"}, "malformed_phone"),
    ("POST", "/v1/sessions", {"agent_id": "a", "metadata": [1]}, "bad_request"),
    ("POST", "/v1/sessions", {"agent_id": "a", "metadata": {"x": "y" * 20_000}}, "large_metadata"),
    ("POST", "/v1/sessions", {"agent_id": "a", "session_id": "a/b"}, "malformed_session_id"),
    ("POST", "/v1/sessions", {"agent_id": "a", "session_id": "cleanup"}, "malformed_session_id"),
    ("POST", "/v1/sessions", {"agent_id": "a", "session_id": "x" * 65}, "malformed_session_id"),
    ("POST", "/v1/sessions", {"agent_id": "a", "proxy": "gopher://x"}, "malformed_proxy"),
    ("POST", "/v1/sessions", {"agent_id": "a", "file": "../../etc/passwd"}, "no_sessions_dir"),
    ("POST", "/v1/sessions/cleanup", {"days": -1}, "bad_days"),
    ("POST", "/v1/sessions/cleanup", {"days": "all"}, "bad_request"),
    ("GET", "/v1/sessions?state=asleep", None, "bad_state"),
    ("GET", "/v1/sessions?active=yes", None, "bad_active"),
    ("GET", "/v1/sessions?limit=0", None, "bad_limit"),
    ("GET", "/v1/sessions?agent=a", None, "unknown_filter"),
    ("GET", "/v1/sessions?cursor=%00", None, "malformed_session_id"),
    ("GET", "/v1/sessions?phone=1", None, "malformed_phone"),
    ("GET", "/v1/sessions/%00", None, "malformed_session_id"),
    ("PATCH", "/v1/sessions/known", {"phone": None}, "bad_request"),
    ("PATCH", "/v1/sessions/known", {"state": "active"}, "bad_request"),
    ("PATCH", "/v1/sessions/known", {"is_active": "yes"}, "bad_request"),
    ("POST", "/v1/sessions/known/code", {"phone": "12"}, "malformed_phone"),
    ("POST", "/v1/sessions/known/code", None, "no_phone"),
    ("POST", "/v1/sessions/known/sign-in", None, "bad_json"),
    ("POST", "/v1/sessions/known/sign-in", {"code": ""}, "malformed_code"),
    ("POST", "/v1/sessions/known/sign-in", {"code": "1" * 100}, "malformed_code"),
    ("POST", "/v1/sessions/known/sign-in", {"code": -12345.5}, "bad_request"),
    ("POST", "/v1/sessions/known/password", {"password": ""}, "malformed_password"),
    ("POST", "/v1/sessions/known/password", {"password": "x" * 2000}, "malformed_password"),
    ("POST", "/v1/sessions/known/chats/@name/crawl", None, "bad_chat_id"),
    ("POST", "/v1/sessions/known/chats/0/crawl", None, "bad_chat_id"),
    ("POST", "/v1/sessions/known/chats/5/crawl", {"until": "yesterday"}, "bad_time"),
)


def test_what_cannot_be_right_is_refused_with_a_code(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        await house.made(session_id="known")
        for verb, path, body, code in BAD:
            more = {} if body is None else {"json": body}
            assert await house.code(verb, path, **more) == (422, code), (verb, path, body)
        assert [one["session_id"] for one in (await house.get("/v1/sessions"))["sessions"]] == ["known"]
        await house.made(session_id="first", phone=ALI)
        assert await house.code("POST", "/v1/sessions", json={"agent_id": "a", "session_id": "known"}) == (
            409,
            "session_exists",
        )
        assert await house.code("POST", "/v1/sessions", json={"agent_id": "a", "phone": ALI}) == (409, "phone_taken")
        assert await house.code("PATCH", "/v1/sessions/known", json={"phone": ALI}) == (409, "phone_taken")
        body = b'{"agent_id": "' + b"a" * 70_000 + b'"}'
        assert await house.code("POST", "/v1/sessions", data=body) == (413, "body_too_large")

    play_house(tmp_path, story)


# ---- signing in ----


def test_somebody_signs_in_by_code(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali = ali_of(house, username="ali")
        session_id = await house.made()
        path = f"/v1/sessions/{session_id}"
        shown = await house.post(f"{path}/code", {"phone": persian(ALI), "by_sms": True})
        assert (shown["state"], shown["phone"]) == ("code_sent", ALI)
        assert "sms" in shown["state_reason"]
        assert shown["state_until"] > shown["created_at"]
        code = house.telegram.code_of(ALI)
        wrong = f"{(int(code) + 1) % 100_000:05}"
        assert await house.code("POST", f"{path}/sign-in", json={"code": wrong}) == (422, "bad_code")
        shown = await house.post(f"{path}/sign-in", {"code": persian(f" {code[:2]}-{code[2:]} ")})
        assert (shown["state"], shown["user_id"], shown["username"]) == ("active", str(ali.user_id), "ali")
        assert shown["runs_from"] == "key"
        await house.connected(session_id)
        (key,) = house.telegram.keys.of(ali)
        assert key.client is not None, "it runs by itself"
        assert await house.code("POST", f"{path}/code") == (409, "signed_in")
        assert await house.code("POST", f"{path}/sign-in", json={"code": code}) == (409, "not_due")
        assert key.secret not in str(await house.get(path))
        assert key.secret not in repr(house.told)

    play_house(tmp_path, story)


def test_a_code_may_come_as_a_number(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali_of(house)
        session_id = await house.made(phone=ALI)
        while True:  # a number has no zero before it
            await house.post(f"/v1/sessions/{session_id}/code")
            code = house.telegram.code_of(ALI)
            if not code.startswith("0"):
                break
        shown = await house.post(f"/v1/sessions/{session_id}/sign-in", {"code": int(code)})
        assert shown["state"] == "active"

    play_house(tmp_path, story)


def test_a_code_that_comes_late_is_refused_and_another_may_be_asked_for(tmp_path: Path) -> None:
    clock = JumpingClock()

    async def story(house: House) -> None:
        ali_of(house)
        session_id = await house.made(phone=ALI)
        path = f"/v1/sessions/{session_id}"
        await house.post(f"{path}/code")
        clock.ahead_ms = 301_000
        given = {"code": house.telegram.code_of(ALI)}
        assert await house.code("POST", f"{path}/sign-in", json=given) == (422, "code_expired")
        assert (await house.get(path))["state"] == "new"
        assert await house.code("POST", f"{path}/sign-in", json=given) == (409, "not_due")
        await house.post(f"{path}/code")
        shown = await house.post(f"{path}/sign-in", {"code": house.telegram.code_of(ALI)})
        assert shown["state"] == "active"

    play_house(tmp_path, story, clock=clock)


def test_two_step_verification_wants_its_password(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali_of(house, password="Gruß an Sara")
        session_id = await house.made(phone=ALI)
        path = f"/v1/sessions/{session_id}"
        await house.post(f"{path}/code")
        assert await house.code("POST", f"{path}/password", json={"password": "early"}) == (409, "not_due")
        shown = await house.post(f"{path}/sign-in", {"code": house.telegram.code_of(ALI)})
        assert shown["state"] == "password_needed"
        assert await house.code("POST", f"{path}/password", json={"password": "wrong"}) == (422, "bad_password")
        shown = await house.post(f"{path}/password", {"password": "Gruß an Sara"})
        assert shown["state"] == "active"
        await house.connected(session_id)
        assert "Sara" not in repr(house.told)

    play_house(tmp_path, story)


def test_a_sign_in_is_left_and_telegram_that_is_away_is_503(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali_of(house)
        session_id = await house.made(phone=ALI)
        path = f"/v1/sessions/{session_id}"
        await house.post(f"{path}/code")
        status, shown = await house.call("DELETE", f"{path}/sign-in")
        assert (status, shown["state"], shown["state_until"]) == (200, "new", None)
        given = {"code": house.telegram.code_of(ALI)}
        assert await house.code("POST", f"{path}/sign-in", json=given) == (409, "not_due")
        house.telegram.is_down = True
        status, _, headers = await house.raw("POST", f"{path}/code")
        assert (status, headers["retry-after"]) == (503, "2")
        house.telegram.is_down = False
        house.telegram.flood("send_code", 77)
        assert await house.code("POST", f"{path}/code") == (409, "flood")
        shown = await house.get(path)
        assert shown["state"] == "flood_wait"
        assert "77" in shown["state_reason"]

    play_house(tmp_path, story)


def test_somebody_signs_in_by_qr(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali = ali_of(house)
        session_id = await house.made()
        path = f"/v1/sessions/{session_id}"
        status, body, headers = await house.raw("GET", f"{path}/qr", headers={"Accept": "image/svg+xml"})
        assert (status, headers["content-type"], headers["cache-control"]) == (200, "image/svg+xml", "no-store")
        assert body.startswith(b"<svg xmlns=")
        status, _, headers = await house.raw("GET", f"{path}/qr")
        assert (status, headers["cache-control"]) == (200, "no-store")
        shown = await house.get(f"{path}/qr")
        assert shown["url"].startswith("tg://login?token=")
        assert shown["expires_at"] > (await house.get(path))["created_at"]
        assert shown["svg"].startswith("<svg xmlns=")
        house.telegram.scan(shown["url"], ali)
        active = await in_state(house, session_id, "active")
        assert active["user_id"] == str(ali.user_id)
        assert "tg://" not in repr(house.told), "a secret of a minute"
        assert await house.code("GET", f"{path}/qr") == (409, "signed_in")
        await house.connected(session_id)

    play_house(tmp_path, story)


def test_without_the_package_that_draws_it_the_address_of_a_qr_code_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(house: House) -> None:
        path = f"/v1/sessions/{await house.made()}/qr"
        shown = await house.get(path)
        assert (shown["url"][:5], shown["svg"]) == ("tg://", None)
        assert await house.code("GET", path, headers={"Accept": "image/svg+xml"}) == (409, "no_pictures")

    monkeypatch.setitem(sys.modules, "segno", None)
    play_house(tmp_path, story)


def test_a_scan_may_want_the_password_too(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali = ali_of(house, password="secret")
        session_id = await house.made()
        path = f"/v1/sessions/{session_id}"
        house.telegram.scan((await house.get(f"{path}/qr"))["url"], ali)
        await in_state(house, session_id, "password_needed")
        assert (await house.post(f"{path}/password", {"password": "secret"}))["state"] == "active"

    play_house(tmp_path, story)


def test_of_two_who_give_the_code_at_once_nobody_ends_the_session(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali_of(house)
        session_id = await house.made(phone=ALI)
        path = f"/v1/sessions/{session_id}"
        await house.post(f"{path}/code")
        given = {"code": house.telegram.code_of(ALI)}
        answers = await asyncio.gather(*(house.call("POST", f"{path}/sign-in", json=given) for _ in range(2)))
        assert sorted(status for status, _ in answers) == [200, 409]
        assert (await house.connected(session_id))["state"] == "active"

    play_house(tmp_path, story)
