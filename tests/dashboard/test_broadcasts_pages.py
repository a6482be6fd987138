"""Pages of broadcasts: written, tried, started, halted, and read in the ledger, as an operator does it in a browser."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from peik.core.documents import Contact
from tests.dashboard.visiting import BOT, Answer, House, Visit, visit
from tests.web.accounts import until

ALL = "/admin/broadcasts"
NEW = f"{ALL}/new"
PEOPLE = (101, 102, 103)


async def written(browser: Visit, **fields: str) -> Answer:
    """The page after the form was sent."""
    return await browser.submit(await browser.get(NEW), ALL, **fields)


async def drafted(browser: Visit, **more: str) -> str:
    """A draft for three people; its page."""
    chats = ", ".join(str(one) for one in PEOPLE)
    page = await written(browser, **{"audience": "list", "chats": chats, "text": "Tea at five", **more})
    assert "The draft" in page.text, page.text
    return page.url.partition("?")[0]


async def once(browser: Visit, path: str, words: str) -> Answer:
    """The page as soon as it says so."""

    async def look() -> Answer | None:
        page = await browser.get(path)
        return page if words in page.text else None

    return await until(look)


async def started(browser: Visit, one: str, **fields: str) -> Answer:
    """The page after it was started, from the one that says who gets it."""
    return await browser.submit(await browser.get(f"{one}/start"), f"{one}/start", **fields)


def people(home: House) -> None:
    for number in PEOPLE:
        home.sim.telegram.user(number)


def test_a_broadcast_from_its_form_to_its_ledger(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        people(home)
        async with home.visitor("send") as browser:
            one = await drafted(browser, name="<b>tea</b>", text="<i>Tea</i> at five", parse_mode="HTML")
            page = await browser.get(f"{one}?estimate=1")
            assert "&lt;b&gt;tea" in page.body
            assert "Recipients 3" in page.text
            page = await browser.submit(page, f"{one}/preview", chat_id="101")
            assert "The preview goes to 101" in page.text
            await started(browser, one)
            page = await once(browser, one, "completed")
            assert "3 / 3" in page.text
            assert page.text.count("delivered") >= 3
            assert one in (await browser.get(ALL)).links

            csv = (await browser.get(f"{one}/ledger?format=csv")).body.splitlines()
            assert csv[0].startswith("number,chat_id,state")
            assert [line.split(",")[1:3] for line in csv[1:]] == [[str(chat), "delivered"] for chat in PEOPLE]
            lines = (await browser.get(f"{one}/ledger?format=jsonl&state=delivered")).body.splitlines()
            assert [json.loads(line)["chat_id"] for line in lines] == [str(chat) for chat in PEOPLE]
            assert "Nobody fits" in (await browser.get(f"{one}?state=failed")).text

            page = await browser.submit(await browser.get(one), f"{one}/delete")
            assert page.url == ALL
            assert (await browser.get(one)).status == 404

    visit(tmp_path, story)


def test_the_rows_of_a_file_fill_the_places_of_the_text(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        people(home)
        async with home.visitor("send") as browser:
            page = await browser.get(NEW)
            rows = "chat_id,name\n101,Ali\n102,لیلا\n".encode()
            page = await browser.upload(
                page, ALL, name="csv", body=rows, file="a.csv", audience="csv", text="Salom {name}"
            )
            one = page.url.partition("?")[0]
            await started(browser, one)
            await once(browser, one, "completed")
            assert [home.sim.telegram.sent.texts(chat) for chat in (101, 102)] == [["Salom Ali"], ["Salom لیلا"]]

            broken = await browser.upload(
                await browser.get(NEW), ALL, name="csv", body=b"who\n1\n", file="a.csv", audience="csv", text="x"
            )
            assert "chat_id among them" in broken.text

    visit(tmp_path, story)


def test_known_chats_are_chosen_by_what_is_known_of_them(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        people(home)
        known = [
            Contact(bot_id=BOT, chat_id=101, type="private", language="fa", first_seen_ms=1, last_seen_ms=1),
            Contact(bot_id=BOT, chat_id=102, type="private", language="ru", first_seen_ms=1, last_seen_ms=1),
            Contact(
                bot_id=BOT, chat_id=103, type="private", language="fa", first_seen_ms=1, last_seen_ms=1, is_gone=True
            ),
        ]
        await home.peik.store.contacts.save_contacts(BOT, known, place=1)
        async with home.visitor("send") as browser:
            page = await written(browser, audience="contacts", type="private", languages="fa", text="Salom")
            assert "Recipients 1" in page.text
            assert "written down when it starts" in page.text
            one = page.url.partition("?")[0]
            await started(browser, one)
            page = await once(browser, one, "completed")
            assert "1 / 1" in page.text

    visit(tmp_path, story)


def test_a_broadcast_is_put_off_cancelled_and_offers_only_what_can_be_done(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        people(home)
        async with home.visitor("send") as browser:
            tomorrow = datetime.now(UTC) + timedelta(days=1)
            one = await drafted(
                browser, canary_percent="10", quiet_start="22:00", quiet_end="08:00", quiet_tz="Asia/Tehran"
            )
            page = await started(browser, one, start_at=f"{tomorrow:%Y-%m-%dT%H:%M}")
            assert "scheduled" in page.text
            assert f"{tomorrow:%Y-%m-%d %H:%M}:00" in page.text
            assert "08:00 Asia/Tehran" in page.text
            assert "10 % first; stops above 20 % undelivered" in page.text
            assert not page.has_form(f"{one}/pause")
            assert not page.has_form(f"{one}/delete")
            csrf = page.form(f"{one}/cancel").fields["csrf"]
            page = await browser.post(f"{one}/pause", csrf=csrf)
            assert "it cannot pause from there" in page.text
            await browser.submit(page, f"{one}/cancel")
            page = await once(browser, one, "State cancelled")
            assert page.has_form(f"{one}/delete")
            assert home.sim.telegram.sent.texts(101) == []

    visit(tmp_path, story)


def test_a_form_that_is_sent_twice_makes_one_broadcast(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            form = await browser.get(NEW)
            fields = {"audience": "list", "chats": "101", "text": "once"}
            first = await browser.submit(form, ALL, **fields)
            second = await browser.submit(form, ALL, **fields)
            assert first.url == second.url

    visit(tmp_path, story)


def test_what_is_wrong_with_a_form_is_said(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            base = {"audience": "list", "chats": "101", "text": "x"}
            for change, words in (
                ({"text": ""}, "Say what to send"),
                ({"method": "sendPhoto", "params": "{}"}, "not both"),
                ({"text": "", "method": "sendPhoto", "params": "[1]"}, "JSON object"),
                ({"text": "", "method": "getMe", "params": "{}"}, "cannot wait in a queue"),
                ({"chats": "tea"}, "is no chat"),
                ({"chats": ""}, "chats is empty"),
                ({"audience": "csv", "chats": ""}, "Choose a CSV file"),
                ({"audience": "nobody", "chats": ""}, "Say who gets it"),
                ({"quiet_start": "22:00"}, "a beginning and an end"),
                ({"quiet_start": "22:00", "quiet_end": "08:00", "quiet_tz": "Mars"}, "Mars"),
                ({"paid": "1"}, "a bound in Stars"),
                ({"canary_percent": "200"}, "at most 100"),
                ({"bot_id": "5"}, "not known here"),
            ):
                page = await written(browser, **{**base, **change})
                assert words in page.text, (change, page.text)
            assert "There is no broadcast yet" in (await browser.get(ALL)).text

    visit(tmp_path, story)


def test_the_key_of_another_bot_sees_nothing_of_it(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            one = await drafted(browser)
        async with home.visitor("send", bot_ids=frozenset({7000002})) as other:
            assert re.search(one, (await other.get(ALL)).body) is None
            for path in (one, f"{one}/ledger"):
                assert (await other.get(path)).status == 404
            page = await other.get(NEW)
            csrf = page.form("/admin/sign-out").fields["csrf"]
            await other.post(f"{one}/start", csrf=csrf)
            await other.post(f"{one}/delete", csrf=csrf)
            page = await other.submit(page, ALL, bot_id=str(BOT), audience="list", chats="1", text="x")
            assert "not known here" in page.text
        async with home.visitor("read") as reader:
            page = await reader.get(one)
            assert "draft" in page.text
            assert not page.has_form(f"{one}/start")
            assert (await reader.get(NEW)).status == 403

    visit(tmp_path, story)
