"""Pages of accounts and their archive, with a simulated Telegram behind them."""

import asyncio
import json
from pathlib import Path

from tests.dashboard.households import visit_accounts
from tests.dashboard.visiting import House as Visited
from tests.dashboard.visiting import Visit, visit
from tests.web.accounts import House, until

PHONE = "+998900000001"


def test_somebody_is_signed_in_by_code_and_password_runs_and_is_logged_out(tmp_path: Path) -> None:
    async def story(house: House, browser: Visit) -> None:
        house.telegram.register(PHONE, first_name="Ali", password="open sesame")
        page = await browser.submit(
            await browser.get("/admin/sessions"),
            "/admin/sessions",
            button="Register",
            agent_id="shop",
            phone=PHONE,
            session_id="ali",
        )
        one = "/admin/sessions/ali"
        assert page.url == one
        page = await browser.submit(page, f"{one}/code")
        page = await browser.submit(page, f"{one}/sign-in", code=house.telegram.code_of(PHONE))
        assert "also needs its password" in page.text
        page = await browser.submit(page, f"{one}/password", password="open sesame")
        assert "is signed in" in page.text
        await house.connected("ali")
        assert "connected" in (await browser.get(one)).text
        assert "ali" in (await browser.get("/admin/sessions?agent_id=shop&state=active&phone=")).text
        assert "No account fits" in (await browser.get("/admin/sessions?state=revoked")).text
        assert "/admin/sessions/ali" in (await browser.get(f"/admin/sessions?phone=%2B{PHONE[1:]}")).links

        page = await browser.submit(await browser.get(one), f"{one}/restart")
        page = await browser.submit(page, f"{one}/stop")
        assert (await house.get("/v1/sessions/ali"))["state"] == "paused"
        page = await browser.submit(page, f"{one}/start")
        await house.connected("ali")
        page = await browser.submit(await browser.get(one), f"{one}/log-out")
        assert "is logged out" in page.text
        page = await browser.submit(page, f"{one}/delete")
        assert page.url == "/admin/sessions"
        audit = (await browser.get("/admin/audit")).body
        assert "sessions.sign_in" in audit
        assert "open sesame" not in audit

    asyncio.run(visit_accounts(tmp_path, story))


def test_a_wrong_code_is_told_and_can_be_given_again(tmp_path: Path) -> None:
    async def story(house: House, browser: Visit) -> None:
        house.telegram.register(PHONE, first_name="Ali")
        await house.made(session_id="ali", phone=PHONE)
        one = "/admin/sessions/ali"
        page = await browser.submit(await browser.get(one), f"{one}/code")
        page = await browser.submit(page, f"{one}/sign-in", code="00000")
        assert "code" in page.text
        assert page.form(f"{one}/sign-in").fields["code"] == "00000"
        page = await browser.submit(page, f"{one}/leave-sign-in")
        assert not page.has_form(f"{one}/sign-in")

    asyncio.run(visit_accounts(tmp_path, story))


def test_somebody_scans_the_code_of_a_page(tmp_path: Path) -> None:
    async def story(house: House, browser: Visit) -> None:
        ali = house.telegram.register(PHONE, first_name="Ali")
        await house.made(session_id="ali")
        page = await browser.get("/admin/sessions/ali/qr")
        assert page.status == 200
        assert "<svg" in page.body[page.body.index('class="qr"') :]
        assert page.headers["cache-control"] == "no-store"
        house.telegram.scan((await house.get("/v1/sessions/ali/qr"))["url"], ali)
        await house.connected("ali")
        assert (await browser.get("/admin/sessions/ali/qr")).url == "/admin/sessions/ali"

    asyncio.run(visit_accounts(tmp_path, story))


def test_the_archive_is_read_exported_and_forgotten(tmp_path: Path) -> None:
    async def story(house: House, browser: Visit) -> None:
        ali = house.telegram.register(PHONE, first_name="Ali")
        leila = house.telegram.register("+998900000002", first_name="Leila")
        await house.signed_in(ali, session_id="ali")
        house.telegram.say(house.telegram.private(ali, leila), leila, "<i>سلام</i> green tea")
        (message,) = await house.messages(1)

        page = await browser.get("/admin/archive?text=green&session_id=&kind=")
        assert "&lt;i&gt;سلام" in page.body
        assert "Nothing fits" in (await browser.get("/admin/archive?text=coffee")).text
        one = f"/admin/archive/messages/ali/{message['chat_id']}/{message['message_id']}"
        assert one in page.links
        page = await browser.get(one)
        assert "as it was sent" in page.text

        (line,) = (await browser.get("/admin/archive/export?text=green&format=jsonl")).body.splitlines()
        assert json.loads(line)["text"] == "<i>سلام</i> green tea"
        exported = await browser.get("/admin/archive/export?format=csv")
        assert exported.headers["content-disposition"] == 'attachment; filename="messages.csv"'
        assert len(exported.body.splitlines()) == 2
        assert (await browser.get("/admin/archive/export?format=xml")).status == 422
        assert (await browser.get("/admin/archive?chat_id=here")).status == 422

        assert (await browser.get("/admin/archive/events")).status == 200
        assert (await browser.get("/admin/archive/events/export?format=csv")).status == 200
        assert "PEIK_LOG_IN_ARCHIVE" in (await browser.get("/admin/archive/logs?level=error")).text

        page = await browser.submit(
            await browser.get("/admin/archive"), "/admin/archive/forget", user_id=str(leila.user_id)
        )
        assert f"Of {leila.user_id}" in page.text
        assert (await house.get("/v1/messages"))["messages"] == []

    asyncio.run(visit_accounts(tmp_path, story))


def test_the_history_of_a_chat_is_read_when_asked_for(tmp_path: Path) -> None:
    async def story(house: House, browser: Visit) -> None:
        ali = house.telegram.register(PHONE, first_name="Ali")
        leila = house.telegram.register("+998900000002", first_name="Leila")
        await house.signed_in(ali, session_id="ali")
        house.telegram.say(house.telegram.private(ali, leila), leila, "hello")
        (message,) = await house.messages(1)
        path = f"/admin/sessions/ali/chats/{message['chat_id']}"

        async def known() -> bool:
            return (await browser.get("/admin/sessions/ali")).has_form(f"{path}/crawl")

        await until(known)
        page = await browser.submit(await browser.get("/admin/sessions/ali"), f"{path}/crawl")
        assert "is being read" in page.text

    asyncio.run(visit_accounts(tmp_path, story))


def test_without_accounts_a_page_says_which_settings_turn_them_on(tmp_path: Path) -> None:
    async def story(home: Visited) -> None:
        async with home.visitor() as browser:
            for path in ("/admin/sessions", "/admin/archive", "/admin/archive/events", "/admin/archive/logs"):
                page = await browser.get(path)
                assert page.status == 200
                assert "TELEGRAM_API_ID" in page.text
            assert (await browser.get("/admin/sessions/ali")).status == 409

    visit(tmp_path, story)
