"""Signing in and out at the dashboard: by key, by name and password; what ends a sign-in, and what brakes guessing."""

import asyncio
from pathlib import Path

import pytest

from peik.admin.model import Key, Role, digest_of
from peik.admin.people import People
from peik.admin.sign_ins import (
    AGE_MS,
    COLLECTION,
    FAILURES_MAX,
    IDLE_MS,
    REFUSED_MS,
    SEEN_MS,
    WINDOW_MS,
    Attempts,
    SignIns,
)
from peik.errors import BadInput, Conflict, Forbidden, NotFound, StoreUnavailable
from tests.dashboard.documents import Failing, opened
from tests.dashboard.visiting import KEY, House, Visit, visit
from tests.storage.places import ManualClock

PASSWORD = "correct horse battery"


async def by_name(browser: Visit, name: str, password: str) -> int:
    page = await browser.get("/admin/sign-in")
    fields = page.forms[1].fields | {"name": name, "password": password}
    return (await browser.post("/admin/sign-in", **fields)).status


# ---- as a browser meets it ----


def test_a_key_opens_the_page_that_was_asked_for_and_signing_out_closes_it(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.stranger() as browser:
            page = await browser.get("/admin/settings?x=1")
            assert page.url.startswith("/admin/sign-in")
            page = await browser.submit(page, "/admin/sign-in", key=KEY)
            assert (page.status, page.url) == (200, "/admin/settings?x=1")
            await browser.submit(page, "/admin/sign-out")
            assert (await browser.get("/admin")).url == "/admin/sign-in"

    visit(tmp_path, story)


def test_the_cookie_is_for_the_dashboard_alone_and_its_text_is_kept_nowhere(tmp_path: Path) -> None:
    tokens: list[bytes] = []

    async def story(home: House) -> None:
        async with home.stranger() as browser:
            page = await browser.get("/admin/sign-in")
            fields = page.forms[0].fields | {"key": KEY}
            answer = await browser.post("/admin/sign-in", follow=False, **fields)
            cookie = next(text for text in answer.cookies if text.startswith("peik_session="))
            assert {"HttpOnly", "Path=/admin", "SameSite=lax"} <= {part.strip() for part in cookie.split(";")}
            tokens.append(cookie.partition("=")[2].partition(";")[0].encode())
            fields = (await browser.get("/admin/sign-in")).forms[0].fields | {"key": KEY}
            over_https = await browser.post(
                "/admin/sign-in", follow=False, headers={"X-Forwarded-Proto": "https"}, **fields
            )
            assert "Secure" in next(text for text in over_https.cookies if text.startswith("peik_session="))

    visit(tmp_path, story)
    written = b"".join(path.read_bytes() for path in tmp_path.glob("peik.db*") if path.is_file())
    assert b"admin key" in written
    assert tokens[0] not in written


def test_a_person_signs_in_by_password_and_is_out_when_it_changes(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        people = home.dashboard.board.people
        await people.add("Mina", Role.OPERATOR, PASSWORD)
        async with home.stranger() as browser:
            assert await by_name(browser, "mina", "wrong horse battery") == 401
            assert await by_name(browser, "nobody", PASSWORD) == 401
            assert await by_name(browser, "MINA", PASSWORD) == 200
            page = await browser.get("/admin")
            assert "mina" in page.text
            assert (await browser.get("/admin/settings")).status == 403  # not for operators
            for change in (
                people.set_password("mina", PASSWORD + "!"),
                people.set_role("mina", Role.ADMIN),
                people.sign_out("mina"),
                people.remove("mina"),
            ):
                await change
                assert (await browser.get("/admin")).url == "/admin/sign-in"
                if await people.person("mina") is not None:
                    assert await by_name(browser, "mina", PASSWORD + "!") == 200
                    assert (await browser.get("/admin")).url == "/admin"

    visit(tmp_path, story)


def test_a_sign_in_ends_with_its_key(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        made = await home.peik.keyring.make("shop", ["read"])
        async with home.stranger() as browser:
            assert (await browser.sign_in(made.text)).url == "/admin"
            await home.peik.keyring.revoke(made.key.id)
            assert (await browser.get("/admin")).url == "/admin/sign-in"
            assert (await browser.sign_in(made.text)).status == 401

    visit(tmp_path, story)


def test_signing_out_everywhere_ends_all_of_the_same_key_and_no_other(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as one, home.visitor() as two, home.visitor("read") as other:
            page = await one.get("/admin")
            await one.submit(page, "/admin/sign-out-everywhere")
            assert (await two.get("/admin")).url == "/admin/sign-in"
            assert (await other.get("/admin")).url == "/admin"

    visit(tmp_path, story)


def test_five_wrong_sign_ins_lock_the_name_and_the_address_for_passwords_but_not_for_a_key(
    tmp_path: Path,
) -> None:
    async def story(home: House) -> None:
        await home.dashboard.board.people.add("mina", Role.VIEWER, PASSWORD)
        async with home.stranger() as browser:
            for _ in range(FAILURES_MAX):
                assert await by_name(browser, "mina", "wrong horse battery") == 401
            assert await by_name(browser, "mina", PASSWORD) == 403
            assert (await browser.sign_in("a wrong key")).status == 401  # keys have limits of their own
            lines = (await home.dashboard.board.audit.find(action="sign_in")).lines
            told = [(line.who, line.detail, line.address) for line in reversed(lines)]
            assert told == [
                *[("mina", "wrong_password", "127.0.0.1")] * 5,
                ("?", "locked_out", "127.0.0.1"),
                ("?", "wrong_key", "127.0.0.1"),
            ]
            assert (await browser.sign_in()).url == "/admin"

    visit(tmp_path, story)


def test_a_password_in_the_field_of_the_name_is_written_down_nowhere(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.stranger() as browser:
            assert await by_name(browser, "my-secret-word", PASSWORD) == 401
            (line,) = (await home.dashboard.board.audit.find()).lines
            assert (line.who, line.target) == ("?", "password")

    visit(tmp_path, story)
    assert not [path for path in tmp_path.glob("peik.db*") if b"my-secret-word" in path.read_bytes()]


def test_a_sign_in_form_of_somebody_else_is_refused(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.stranger() as browser, home.stranger() as other:
            theirs = (await other.get("/admin/sign-in")).forms[0].fields
            assert (await browser.post("/admin/sign-in", key=KEY)).status == 403
            await browser.get("/admin/sign-in")
            assert (await browser.post("/admin/sign-in", **(theirs | {"key": KEY}))).status == 403
            own = (await browser.get("/admin/sign-in")).forms[0].fields | {"key": KEY}
            cross = {"Sec-Fetch-Site": "cross-site"}
            assert (await browser.post("/admin/sign-in", headers=cross, **own)).status == 403

    visit(tmp_path, story)


# ---- in a time of our own ----


def test_a_sign_in_ends_when_it_is_idle_or_old(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock) as store:
            people = People(store.documents, clock)
            sign_ins = SignIns(store.documents, people, clock, find_key=lambda digest: None, admin_key=KEY)
            key = sign_ins.key(KEY)
            assert key is not None
            token = await sign_ins.sign_in_key(key, address="")
            clock.pass_ms(IDLE_MS + 1)
            assert await sign_ins.find(token) is None
            used = await sign_ins.sign_in_key(key, address="")
            passed = 0
            while passed + IDLE_MS <= AGE_MS:
                clock.pass_ms(IDLE_MS)
                passed += IDLE_MS
                assert await sign_ins.find(used) is not None
            clock.pass_ms(IDLE_MS)
            assert await sign_ins.find(used) is None
            assert await store.documents.count_documents(COLLECTION) == 2
            await sign_ins.sweep()
            assert await store.documents.count_documents(COLLECTION) == 0

    asyncio.run(story())


def test_use_is_noted_in_five_minutes_once(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock) as store:
            people = People(store.documents, clock)
            sign_ins = SignIns(store.documents, people, clock, find_key=lambda digest: None, admin_key=KEY)
            key = sign_ins.key(KEY)
            assert key is not None
            token = await sign_ins.sign_in_key(key, address="")
            for _ in range(3):
                clock.pass_ms(SEEN_MS // 2)
                # Two requests of one browser at once: one of them notes it.
                assert None not in await asyncio.gather(sign_ins.find(token), sign_ins.find(token))
            (document,) = await store.documents.documents(COLLECTION, limit=10)
            assert document.version == 2

    asyncio.run(story())


def test_who_is_signed_in_can_look_while_nothing_can_be_written(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock) as store:
            documents = Failing(store.documents)
            people = People(documents, clock)
            sign_ins = SignIns(documents, people, clock, find_key=lambda digest: None, admin_key=KEY)
            key = sign_ins.key(KEY)
            assert key is not None
            token = await sign_ins.sign_in_key(key, address="")
            clock.pass_ms(SEEN_MS)
            documents.is_down = True
            assert await sign_ins.find(token) is not None
            with pytest.raises(StoreUnavailable):
                await sign_ins.sign_in_key(key, address="")

    asyncio.run(story())


def test_a_sign_in_by_a_key_whose_time_is_over_is_over(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock) as store:
            made = Key(
                id=3, name="shop", digest=digest_of("text"), scopes=("send",), expires_at_ms=clock.wall_ms() + 1000
            )
            keys = {made.digest: made}
            people = People(store.documents, clock)
            sign_ins = SignIns(store.documents, people, clock, find_key=keys.get, admin_key=KEY)
            token = await sign_ins.sign_in_key(made, address="")
            found = await sign_ins.find(token)
            assert found is not None
            assert (found.name, found.role) == ("key shop", Role.OPERATOR)
            clock.pass_ms(1000)
            assert await sign_ins.find(token) is None
            assert sign_ins.key("text") is None

    asyncio.run(story())


def test_a_thousand_guesses_at_once_are_no_more_than_five(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock) as store:
            attempts = Attempts(store.documents, clock)
            many = [attempts.begin(name="mina", address=f"10.0.0.{number}") for number in range(40)]
            ends = await asyncio.gather(*many, return_exceptions=True)
            assert sum(not isinstance(end, Forbidden) for end in ends) == FAILURES_MAX
            assert all(isinstance(end, Forbidden | list) for end in ends)

    asyncio.run(story())


def test_the_lock_opens_after_a_quarter_of_an_hour_and_old_failures_do_not_count(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock) as store:
            attempts = Attempts(store.documents, clock)
            for _ in range(FAILURES_MAX):
                await attempts.begin(name=None, address="2001:db8::1")
            with pytest.raises(Forbidden, match="quarter"):
                await attempts.begin(name=None, address="2001:db8::ffff")  # the same household
            await attempts.begin(name=None, address="2001:db8:0:1::1")
            clock.pass_ms(REFUSED_MS)
            for _ in range(FAILURES_MAX - 1):
                await attempts.begin(name=None, address="2001:db8::1")
            clock.pass_ms(WINDOW_MS)
            places = await attempts.begin(name=None, address="2001:db8::1")
            await attempts.forgive(places)
            clock.pass_ms(WINDOW_MS)
            await attempts.sweep(at_ms=clock.wall_ms())
            assert await store.documents.count_documents("sign_in_attempts") == 0

    asyncio.run(story())


def test_people_are_added_once_changed_and_removed(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock) as store:
            people = People(store.documents, clock)
            await people.add("Mina.K@shop", Role.VIEWER, PASSWORD)
            with pytest.raises(Conflict, match="already"):
                await people.add("mina.k@shop", Role.ADMIN, PASSWORD)
            for name in ("", "two words", "../x", "x" * 65):
                with pytest.raises(BadInput):
                    await people.add(name, Role.VIEWER, PASSWORD)
            with pytest.raises(BadInput, match="longer"):
                await people.add("ali", Role.VIEWER, "short")
            with pytest.raises(NotFound):
                await people.remove("ali")
            (person,) = await people.everybody()
            assert (person.name, person.role, PASSWORD in person.password) == ("mina.k@shop", Role.VIEWER, False)
            assert "argon2id" in person.password
            assert person.password not in repr(person)
            await people.remove("MINA.K@shop")
            assert await people.everybody() == []

    asyncio.run(story())
