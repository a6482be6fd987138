"""Signing in at the dashboard, tried by somebody who has no key: guesses, crowds, forms that are too much, locks as weapons."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from peik.admin.model import Role
from peik.admin.people import AT_ONCE_MAX, WAITING_MAX, Passwords
from peik.admin.sign_ins import FAILURES_MAX, HOME_MS, HOMES, OWN_MAX, REFUSED_MAX, Attempts
from peik.app.dashboard import STRANGERS_BYTES_MAX
from peik.errors import Forbidden, Unavailable
from tests.dashboard.documents import opened
from tests.dashboard.visiting import KEY, Answer, House, Visit, visit
from tests.storage.places import ManualClock

PASSWORD = "correct horse battery"


async def by_name(browser: Visit, name: str, password: str, **headers: str) -> int:
    page = await browser.get("/admin/sign-in")
    fields = page.form("/admin/sign-in").fields | {"key": "", "name": name, "password": password}
    return (await browser.post("/admin/sign-in", headers=headers, **fields)).status


def test_a_name_is_locked_whatever_address_is_claimed_and_however_it_is_written(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await home.dashboard.board.people.add("kamran", Role.ADMIN, PASSWORD)
        async with home.stranger() as browser:
            for number, name in enumerate(("kamran", "KAMRAN", " kamran\t", "\u212aamran", "Kamran")):
                claimed = {"X-Forwarded-For": f"203.0.113.{number}"}
                assert await by_name(browser, name, "wrong horse battery", **claimed) == 401, name
            assert await by_name(browser, "kamran", PASSWORD, **{"X-Forwarded-For": "198.51.100.7"}) == 403
            page = await browser.sign_in(KEY)
            assert page.url == "/admin"
            assert FAILURES_MAX == 5

    visit(tmp_path, story)


async def by_key(browser: Visit, key: str) -> int:
    fields = {**browser_form(await browser.get("/admin/sign-in")), "key": key}
    return (await browser.post("/admin/sign-in", follow=False, **fields)).status


def browser_form(page: Answer) -> dict[str, str]:
    return page.form("/admin/sign-in").fields


def test_keys_are_guessed_within_the_limits_of_all_doors_and_each_guess_is_in_the_audit_log(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        made = await home.peik.keyring.make("made", ("read",), bot_ids=None)
        async with home.stranger() as browser:
            answers = [await by_key(browser, f"guess {number}") for number in range(100)]
            assert answers == [401] * 30 + [429] * 70
            assert await by_key(browser, KEY) == 429, "whether it is right is not told"
            assert await by_key(browser, "guess 29") == 401, "a mistake that was told before"
            assert await by_key(browser, made.text) == 303, "it cannot be guessed, and its owner may be a neighbour"
        lines = (await home.peik.audit.find(action="sign_in", limit=200)).lines
        told = [line.detail for line in lines]
        assert told.count("wrong_key") == 31
        assert [one for one in told if one.startswith("too_many")] == ["too_many_requests, 64 times or more"]

    visit(tmp_path, story, rate_wrong="1/h burst 30")


def test_the_same_wrong_key_and_a_locked_name_do_not_fill_the_audit_log(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.stranger() as browser:
            assert {await by_key(browser, "mistake") for _ in range(REFUSED_MAX + 40)} == {401}
            assert [await by_name(browser, "mina", "wrong horse battery") for _ in range(FAILURES_MAX + 9)][-1] == 403
        told = [line.detail for line in (await home.peik.audit.find(action="sign_in", limit=500)).lines]
        assert told.count("wrong_key") == REFUSED_MAX
        assert "wrong_key, 32 times or more" in told
        assert "locked_out, 8 times or more" in told

    visit(tmp_path, story)


def test_strangers_elsewhere_lock_nobody_out_where_he_is_at_home(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock) as store:
            attempts = Attempts(store.documents, clock)
            places = await attempts.begin(name="mina", address="192.0.2.1")
            await attempts.forgive(places, name="mina", address="192.0.2.1")
            for number in range(FAILURES_MAX):
                await attempts.begin(name="Mina", address=f"203.0.113.{number}")
            with pytest.raises(Forbidden):
                await attempts.begin(name="mina", address="203.0.113.99")
            for _ in range(FAILURES_MAX):  # she is braked as everybody is, by herself alone
                await attempts.begin(name="mina", address="192.0.2.1")
            with pytest.raises(Forbidden):
                await attempts.begin(name="mina", address="192.0.2.1")
            clock.pass_ms(HOME_MS + 1)
            await attempts.sweep(at_ms=clock.wall_ms())
            assert await store.documents.count_documents(HOMES) == 0

    asyncio.run(story())


def test_strangers_at_the_same_address_lock_nobody_out_of_a_browser_that_knows_him(tmp_path: Path) -> None:
    """Behind a proxy that is not believed, or of a whole office, everybody is one address."""

    async def story(home: House) -> None:
        await home.dashboard.board.people.add("mina", Role.ADMIN, PASSWORD)
        async with home.stranger() as browser, home.stranger() as thief, home.stranger() as other:
            assert await by_name(browser, "mina", PASSWORD) == 200
            await browser.post("/admin/sign-out", **(await browser.get("/admin")).form("/admin/sign-out").fields)
            for number in range(2 * FAILURES_MAX):
                assert await by_name(thief, "mina", f"wrong horse {number}") in (401, 403)
            assert await by_name(thief, "mina", PASSWORD) == 403
            assert await by_name(other, "mina", PASSWORD) == 403, "one that nobody knows is braked as the thief is"
            assert await by_name(browser, "mina", PASSWORD) == 200
            assert (await other.sign_in(KEY)).url == "/admin", "a right key opens all the same"

    visit(tmp_path, story)


def test_a_browser_that_is_known_may_guess_no_more_than_any_other(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await home.dashboard.board.people.add("mina", Role.ADMIN, PASSWORD)
        await home.dashboard.board.people.add("omid", Role.ADMIN, PASSWORD)
        async with home.stranger() as browser:
            assert await by_name(browser, "mina", PASSWORD) == 200
            for number in range(FAILURES_MAX):
                assert await by_name(browser, "mina", f"wrong horse {number}") == 401
            assert await by_name(browser, "mina", PASSWORD) == 403
            for number in range(FAILURES_MAX):  # it is known for her, and for nobody else
                await by_name(browser, "omid", f"wrong horse {number}")
            assert await by_name(browser, "omid", PASSWORD) == 403

    visit(tmp_path, story)


def test_a_password_is_taken_as_it_was_typed(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await home.dashboard.board.people.add("mina", Role.VIEWER, f" {PASSWORD} ")
        async with home.stranger() as browser:
            assert await by_name(browser, "mina", PASSWORD) == 401
            assert await by_name(browser, "mina", f" {PASSWORD} ") == 200

    visit(tmp_path, story)


def test_strangers_send_no_large_forms_and_no_odd_ones(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.stranger() as browser:
            page = await browser.get("/admin/sign-in")
            fields = page.form("/admin/sign-in").fields
            answer = await browser.post("/admin/sign-in", **{**fields, "key": "k" * STRANGERS_BYTES_MAX})
            assert answer.status == 413
            with aiohttp.MultipartWriter("form-data") as odd:
                odd.append(b"\\ud800" * 100, {"Content-Disposition": 'form-data; name="csrf"'})
            for charset in ("raw_unicode_escape", "punycode", "utf-7", '"utf-8-sig"'):
                kind = f"multipart/form-data; boundary={odd.boundary}; charset={charset}"
                async with aiohttp.ClientSession() as http:
                    url = f"{home.url}/admin/sign-in"
                    async with http.post(url, data=odd, headers={"Content-Type": kind}) as found:
                        assert found.status == 422, charset
            assert (await browser.sign_in()).url == "/admin"

    visit(tmp_path, story)


def test_a_crowd_of_guessers_is_told_to_come_again(tmp_path: Path) -> None:
    async def story() -> None:
        passwords = Passwords()
        kept = await passwords.hashed(PASSWORD)
        crowd = [passwords.is_right(kept, "wrong horse battery") for _ in range(200)]
        ends = await asyncio.gather(*crowd, return_exceptions=True)
        assert ends.count(False) == AT_ONCE_MAX + WAITING_MAX
        assert sum(isinstance(end, Unavailable) for end in ends) == 200 - AT_ONCE_MAX - WAITING_MAX
        assert await passwords.is_right(kept, PASSWORD)  # and the crowd leaves nothing behind

    asyncio.run(story())


def test_a_browser_is_signed_in_once_and_nobody_fills_the_store_with_sign_ins(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        sign_ins = home.dashboard.board.sign_ins
        read = await home.peik.keyring.make("read", ("read",), bot_ids=None)
        other = await sign_ins.sign_in_key(read.key, address="")
        async with home.visitor() as browser:
            token = _cookie(browser)
            await browser.sign_in()
            assert _cookie(browser) != token
            assert await sign_ins.find(token) is None
            admin = sign_ins.key(KEY)
            assert admin is not None
            tokens = [await sign_ins.sign_in_key(admin, address="") for _ in range(OWN_MAX + 5)]
            assert await home.peik.store.documents.count_documents("sign_ins") == OWN_MAX + 1
            assert await sign_ins.find(tokens[-1]) is not None
            assert await sign_ins.find(other) is not None  # others keep theirs

    visit(tmp_path, story)


def test_a_cookie_behind_a_proxy_that_speaks_tls_is_for_tls_only(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.stranger() as browser:
            page = await browser.get("/admin/sign-in")
            fields = page.form("/admin/sign-in").fields | {"key": KEY}
            tls = {"Origin": "https://peik.example"}
            answer = await browser.post("/admin/sign-in", follow=False, headers=tls, **fields)
            (cookie,) = [one for one in answer.cookies if one.startswith("peik_session=")]
            assert {"Secure", "HttpOnly", "SameSite=lax", "Path=/admin"} <= set(cookie.split("; "))

    visit(tmp_path, story)


def _cookie(browser: Visit) -> str:
    return next(cookie.value for cookie in browser._http.cookie_jar if cookie.key == "peik_session")
