"""`peik sessions sign-in`: step by step in a terminal, one step at a time without one, or by a QR code. Nothing secret is an
argument, and nothing secret is shown."""

import asyncio
from pathlib import Path

import pytest

from peik.testing.accounts import Accounts, boxes
from tests.cli.served_accounts import Place, play_place

PHONE = "+998900000001"
PASSWORD = "hush-hush-hush"


def pending_qr(telegram: Accounts) -> str:
    """What a camera would read from the screen."""
    return list(telegram.keys._tokens)[-1]


def test_a_terminal_asks_for_phone_code_and_password_and_forgives_slips(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        ali = place.telegram.register(PHONE, username="ali", password=PASSWORD)
        session = await place.house.made("shop")
        steps = [
            ("Phone number", lambda: PHONE),
            ("Code: ", lambda: "00000"),
            ("Try again.", str),
            ("Code: ", lambda: place.telegram.code_of(PHONE)),
            ("verification): ", lambda: "wrong"),
            ("Try again.", str),
            ("verification): ", lambda: PASSWORD),
        ]
        code, shown = await place.talk("sessions", "sign-in", session, steps=steps)
        assert code == 0, shown
        assert "Signed in as ali." in shown
        assert PASSWORD not in shown
        assert f"Code: {place.telegram.code_of(PHONE)}" not in shown
        found = await place.house.connected(session)
        assert (found["state"], found["user_id"]) == ("active", str(ali.user_id))
        code, shown = await place.talk("sessions", "sign-in", session, steps=[])
        assert (code, "Somebody is signed in already" in shown) == (4, True)

    play_place(tmp_path, story)


def test_without_a_terminal_it_goes_step_by_step_and_reads_secrets_from_standard_input(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.telegram.register(PHONE, password=PASSWORD)
        session = await place.house.made("shop", phone=PHONE)
        sent = await place.peik("sessions", "sign-in", session)
        assert (sent.code, f"sign-in {session} --code -" in sent.err) == (0, True)
        refused = await place.peik("sessions", "sign-in", session, "--code", "12345")
        assert (refused.code, "--code -" in refused.err) == (2, True)
        wrong = await place.peik("sessions", "sign-in", session, "--code", "-", "--json", stdin="00000\n")
        assert (wrong.code, wrong.problem["code"]) == (2, "bad_code")
        given = await place.asked(
            "sessions", "sign-in", session, "--code", "-", stdin=place.telegram.code_of(PHONE) + "\n"
        )
        assert given["state"] == "password_needed"
        given = await place.asked("sessions", "sign-in", session, "--password", "-", stdin=PASSWORD + "\n")
        assert given["state"] == "active"
        other = await place.peik("sessions", "sign-in", session, "--qr", "--cancel")
        assert other.code == 2

    play_place(tmp_path, story)


def test_both_lines_at_once_and_a_sign_in_that_is_left(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.telegram.register(PHONE, password=PASSWORD)
        session = await place.house.made("shop", phone=PHONE)
        await place.asked("sessions", "sign-in", session)
        assert (await place.asked("sessions", "sign-in", session, "--cancel"))["state"] == "new"
        await place.asked("sessions", "sign-in", session)
        lines = f"{place.telegram.code_of(PHONE)}\n{PASSWORD}\n"
        done = await place.asked("sessions", "sign-in", session, "--code", "-", "--password", "-", stdin=lines)
        assert done["state"] == "active"

    play_place(tmp_path, story)


def test_a_qr_code_is_drawn_scanned_and_never_written_out(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        loop = asyncio.get_running_loop()
        ali = place.telegram.register(PHONE, username="ali", password=PASSWORD)
        session = await place.house.made("shop")

        def scan() -> str:
            loop.call_soon_threadsafe(lambda: place.telegram.scan(pending_qr(place.telegram), ali))
            return ""

        steps = [("▀", scan), ("verification): ", lambda: PASSWORD)]
        code, shown = await place.talk("sessions", "sign-in", session, "--qr", steps=steps)
        assert code == 0, shown
        assert "Signed in as ali." in shown
        assert "tg://" not in shown
        assert (await place.peik("sessions", "sign-in", session, "--qr", "--json")).problem["code"] == "no_terminal"

    play_place(tmp_path, story)


def test_a_fresh_qr_code_is_drawn_when_the_last_one_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "QR_S", 2.0)

    async def story(place: Place) -> None:
        loop = asyncio.get_running_loop()
        ali = place.telegram.register(PHONE, username="ali")
        session = await place.house.made("shop")
        drawn: list[str] = []

        def look() -> str:
            drawn.append(pending_qr(place.telegram))
            if len(drawn) == 2:
                loop.call_soon_threadsafe(place.telegram.scan, drawn[1], ali)
            return ""

        code, shown = await place.talk("sessions", "sign-in", session, "--qr", steps=[("▀", look), ("\x1b[J", look)])
        assert (code, len(set(drawn))) == (0, 2)
        assert "Signed in as ali." in shown

    play_place(tmp_path, story)


def test_ctrl_c_ends_the_wait_for_a_scan(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        session = await place.house.made("shop")
        code, _ = await place.talk("sessions", "sign-in", session, "--qr", steps=[("▀", lambda: "\x03")])
        assert code == 130
        assert (await place.asked("sessions", "show", session))["state"] == "new"
        assert all(key.client is None for key in place.telegram.keys._keys.values())  # nobody waits for it any more

    play_place(tmp_path, story)
