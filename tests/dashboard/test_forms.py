"""Forms never lose and never guess: what was refused comes back as it was typed, with the error beside its field; and what was
typed when the session was over is there again after the sign-in."""

import io
import re
import urllib.parse
from pathlib import Path

import aiohttp
import pytest

from peik.core.letter import LetterCall
from peik.errors import BadInput
from peik.web.dashboard.fields import Typed, refilled
from tests.dashboard.test_attacks_sign_in import _cookie
from tests.dashboard.test_broadcasts_pages import ALL, NEW, drafted, people, started, written
from tests.dashboard.visiting import BOT, KEY, Answer, Form, House, visit

FULL = {
    "name": "news of <May>",
    "text": "First line\r\nسلام {name}",  # noqa: RUF001  Persian
    "parse_mode": "HTML",
    "audience": "list",
    "chats": "101 102\r\n103",
    "canary_percent": "200",
    "canary_limit": "15",
    "quiet_start": "22:00",
    "quiet_end": "08:00",
    "quiet_tz": "Asia/Tehran",
    "paid": "1",
    "stars_max": "12,5",
}


def beside(page: Answer) -> str | None:
    """The field that has an error beside it."""
    found = re.findall(r'<p class="field-error" id="error-([a-z_]+)">', page.body)
    assert len(found) <= 1
    named = [given["name"] for tag, given in page.tags if given.get("aria-invalid") == "true"]
    assert named == found
    return found[0] if found else None


def plain(fields: dict[str, str]) -> dict[str, str]:
    return {name: value.replace("\r\n", "\n").strip() for name, value in fields.items()}


def test_a_refused_broadcast_comes_back_with_every_field(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            page = await written(browser, **FULL)
            assert page.status == 422
            assert beside(page) == "canary_percent"
            form = page.form(ALL, button="Make a draft")
            assert plain({name: form.fields[name] for name in FULL}) == plain(FULL)
            mended = await browser.submit(page, ALL, button="Make a draft", canary_percent="20", text="Salom")
            assert "The draft" in mended.text
            (one,) = await home.peik.broadcasts.service.find()
            assert (one.bot_id, one.canary and one.canary.limit, one.total) == (BOT, 0.15, 3)

    visit(tmp_path, story)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"audience": ""}, "chats"),  # ids without their button
        ({"audience": "contacts"}, "chats"),
        ({"chats": "", "languages": "fa"}, "languages"),
        (
            {"audience": "contacts", "chats": "", "seen_since": "2026-03-02T00:00", "seen_before": "2026-03-01T00:00"},
            "seen_since",
        ),
        ({"chats": "", "audience": ""}, "audience"),
        ({"chats": "tea"}, "chats"),
        ({"chats": ""}, "chats"),
        ({"params": '{"photo": "x"}'}, "method"),
        ({"method": "sendPhoto", "params": "{}"}, "method"),
        ({"text": "", "method": "sendPhoto", "params": "[1]"}, "params"),
        ({"text": "", "method": "sendPhoto", "params": "{}", "parse_mode": "HTML"}, "parse_mode"),
        ({"text": ""}, "text"),
        ({"text": "Salom {who}"}, "text"),
        ({"canary_limit": "5"}, "canary_percent"),
        ({"canary_percent": "5", "canary_count": "7"}, "canary_count"),
        ({"quiet_tz": "Asia/Tehran"}, "quiet_start"),
        ({"quiet_start": "22:00"}, "quiet_end"),
        ({"quiet_start": "22:00", "quiet_end": "08:00", "quiet_tz": "Mars"}, "quiet_tz"),
        ({"stars_max": "5"}, "paid"),
        ({"paid": "1"}, "stars_max"),
        ({"paid": "1", "stars_max": "many"}, "stars_max"),
        ({"bot_id": "5"}, "bot_id"),
    ],
)
def test_parts_of_a_broadcast_that_contradict_each_other_are_refused(
    change: dict[str, str], field: str, tmp_path: Path
) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            fields = {"audience": "list", "chats": "101", "text": "x"} | change
            page = await written(browser, **fields)
            assert beside(page) == field, page.text
            form = page.form(ALL, button="Make a draft")
            assert plain({name: form.fields.get(name, "") for name in fields}) == plain(fields)
            assert await home.peik.broadcasts.service.find() == []

    visit(tmp_path, story)


# Every other form of the dashboard, with a mistake in it: where it is, where it goes, what was typed, and what is wrong.
MISTAKES = (
    ("/admin/letters/new", "/admin/letters/new", {"chat_id": "5", "text": "hi", "send_at": "soon"}, "send_at"),
    ("/admin/letters/new", "/admin/letters/new", {"chat_id": "5", "text": "hi\r\nyou", "params": "{}"}, "chat_id"),
    ("/admin/letters/new", "/admin/letters/new", {"text": "hi"}, "chat_id"),
    (
        "/admin/notifications",
        "/admin/notifications",
        {"user_id": "7", "type": "a b", "title": "T", "message": "m"},
        "type",
    ),
    ("/admin/notifications/users", "/admin/notifications/users", {"user_id": "u7", "minutes": "many"}, "minutes"),
    (
        "/admin/notifications/templates",
        "/admin/notifications/templates",
        {"type": "x", "language": "fa", "text": ""},
        "text",
    ),
    ("/admin/bots", "/admin/bots", {"token": "no token", "inbound": "webhook"}, "token"),
    (f"/admin/bots/{BOT}", f"/admin/bots/{BOT}/limits", {"bulk_per_s": "fast", "group_per_min": "7"}, "bulk_per_s"),
    ("/admin/keys", "/admin/keys", {"name": "shop", "rate": "often", "expires_at": "2099-01-01T00:00"}, "rate"),
    ("/admin/people", "/admin/people", {"name": "mehri", "role": "operator", "password": "short"}, "password"),
    (f"/admin/lanes?bot_id={BOT}", "/admin/lanes/hold", {"chat_id": "tea", "minutes": "60"}, "chat_id"),
    (f"/admin/bots/{BOT}", f"/admin/bots/{BOT}/token", {"token": "7000002:no"}, "token"),
    (f"/admin/chats/{BOT}/5", f"/admin/chats/{BOT}/5/hold", {"minutes": "many"}, "minutes"),
    (f"/admin/chats/{BOT}/5", "/admin/chats/forget", {"typed": "6"}, "typed"),
    ("/admin/letters/{letter}", "/admin/letters/{letter}/change", {"priority": "2", "send_at": "soon"}, "send_at"),
)


@pytest.mark.parametrize(("where", "action", "fields", "field"), MISTAKES)
def test_every_form_comes_back_as_it_was_typed(
    where: str, action: str, fields: dict[str, str], field: str | None, tmp_path: Path
) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            delayed = LetterCall(
                bot_id=BOT, method="sendMessage", params=b'{"chat_id":5,"text":"x"}', send_at_ms=4_000_000_000_000
            )
            (accepted,) = await home.peik.outbox.service.accept([delayed])
            page_at, action_at = (text.format(letter=accepted.letter_id) for text in (where, action))
            page = await browser.get(page_at)
            kept = {name: value for name, value in fields.items() if name not in ("password", "token")}
            form = _filled(page, action_at, fields)
            page = await browser.post(action_at, **(form.fields | fields))
            assert page.status in (404, 409, 422), page.text
            if field is not None:
                assert beside(page) == field, page.body
            again = _filled(page, action_at, fields)
            assert plain({name: again.fields[name] for name in kept}) == plain(kept)
            assert all(not again.fields[name] for name in fields.keys() - kept.keys())
            assert again.fields["from"].partition("?")[0] == page_at.partition("?")[0]

    visit(tmp_path, story)


def _filled(page: Answer, action: str, fields: dict[str, str]) -> Form:
    """The form of the page with these fields."""
    return next(form for form in page.forms if form.action == action and fields.keys() <= form.fields.keys())


def test_line_ends_are_those_of_telegram(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        people(home)
        async with home.visitor("send") as browser:
            one = await drafted(browser, text="one\r\ntwo")
            await started(browser, one)
            page = await browser.get("/admin/letters/new")
            page = await browser.submit(page, "/admin/letters/new", chat_id="102", text="three\r\nfour")
            letter = page.url.rpartition("/")[2]
            assert "three\\r" not in (await home.peik.outbox.service.letter(int(letter))).params
        (broadcast,) = await home.peik.broadcasts.service.find()
        assert broadcast.params == '{"text":"one\\ntwo"}'

    visit(tmp_path, story)


def test_a_file_is_kept_when_its_form_is_refused(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            rows = "chat_id,name\n101,Ali\n102,لیلا\n".encode()
            fields = {"audience": "csv", "text": "Salom {name}", "quiet_start": "22:00"}
            page = await browser.upload(await browser.get(NEW), ALL, name="csv", body=rows, file="a.csv", **fields)
            assert beside(page) == "quiet_end"
            assert "a.csv was kept" in page.text
            refused = await browser.submit(page, ALL, button="Make a draft", audience="list", quiet_end="08:00")
            assert beside(refused) == "csv"  # a file and a list: one of them is not meant
            page = await browser.submit(page, ALL, button="Make a draft", quiet_end="08:00")
            assert "The draft" in page.text, page.text
            (one,) = await home.peik.broadcasts.service.find()
            assert (one.total, one.columns) == (2, ("name",))

    visit(tmp_path, story)


def test_who_was_signed_out_meanwhile_finds_the_form_as_it_was_typed(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        people(home)
        async with home.visitor("send") as browser:
            form = await browser.get(NEW)
            await home.dashboard.board.sign_ins.sign_out(
                _cookie(browser)
            )  # its time was over; the browser knows nothing
            page = await browser.submit(form, ALL, button="Make a draft", **FULL)
            assert page.status == 403
            assert "the form is there again" in page.text
            assert "May" not in page.body  # not for others who look at this screen
            wrong = await browser.submit(page, "/admin/sign-in", key="wrong")
            page = await browser.submit(wrong, "/admin/sign-in", key=KEY)
            assert "You are signed in again" in page.text
            again = page.form(ALL, button="Make a draft")
            assert plain({name: again.fields[name] for name in FULL}) == plain(FULL)
            assert await home.peik.broadcasts.service.find() == []  # nobody pressed the button yet
            page = await browser.submit(page, ALL, button="Make a draft", canary_percent="20", text="x")
            assert "The draft" in page.text

    visit(tmp_path, story)


def test_who_was_overtaken_while_signed_out_is_told_so_before_anything_is_overwritten(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        people(home)
        async with home.visitor("send") as browser, home.visitor("send") as other:
            edit = f"{await drafted(browser, text='as it was')}/edit"
            form = await browser.get(edit)
            await home.dashboard.board.sign_ins.sign_out(_cookie(browser))
            await other.submit(await other.get(edit), edit, text="theirs")
            page = await browser.submit(form, edit, text="mine")
            page = await browser.submit(page, "/admin/sign-in", key=KEY)
            assert page.form(edit).fields["text"].strip() == "mine"
            page = await browser.submit(page, edit)
            assert "Somebody has changed it meanwhile." in page.text
            (one,) = await home.peik.broadcasts.service.find()
            assert one.params == '{"text":"theirs"}'
            await browser.submit(page, edit)
            (one,) = await home.peik.broadcasts.service.find()
            assert one.params == '{"text":"mine"}'

    visit(tmp_path, story)


def test_what_is_secret_is_not_carried_over_a_sign_in(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            form = await browser.get("/admin/people")
            await browser.submit(form, "/admin/sign-out")
            data = form.form("/admin/people").fields | {"name": "mehri", "password": "horse battery staple"}
            page = await browser.post("/admin/people", **data)
            page = await browser.submit(page, "/admin/sign-in", key=KEY)
            assert page.form("/admin/people").fields["name"] == "mehri"
            assert "horse battery" not in page.body

    visit(tmp_path, story)


def test_a_form_of_another_site_is_neither_done_nor_shown(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
        async with home.visitor("send") as browser:
            fields = {"bot_id": str(BOT), "audience": "list", "chats": "1", "text": "planted", "csrf": "guessed"}
            page = await browser.post(ALL, headers=evil, **fields)
            assert page.status == 403
            assert "planted" not in page.body
            # An old form of ours, after a sign-in in another window: shown again, and not done.
            page = await browser.post(ALL, **fields)
            assert page.status == 403
        async with home.stranger() as stranger:
            page = await stranger.post(ALL, headers=evil, **fields)
            assert page.status == 403
            assert not page.has_form("/admin/sign-in")
            page = await stranger.get("/admin/sign-in")
            sealed = {"typed": f"{'0' * 32}.eJw", "key": KEY}
            page = await stranger.submit(page, "/admin/sign-in", **sealed)
            assert page.url == "/admin"
        assert await home.peik.broadcasts.service.find() == []

    visit(tmp_path, story)


def test_a_large_form_of_nobody_is_not_read(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.stranger():
            large = {f"field{number}": "x" * 100_000 for number in range(11)}
            async with aiohttp.ClientSession() as http:
                ours = {"Origin": home.url, "Content-Type": "application/x-www-form-urlencoded"}
                body = io.BytesIO(urllib.parse.urlencode(large).encode())
                async with http.post(f"{home.url}{ALL}", data=body, headers=ours) as answer:
                    assert answer.status in (413, 422)
            async with aiohttp.ClientSession() as http, http.post(f"{home.url}{ALL}", data={"text": "x"}) as answer:
                assert answer.status == 403  # a program says nothing of where its form comes from

    visit(tmp_path, story)


# ---- what is before a start ----


def test_before_a_start_one_reads_who_gets_it_and_types_how_many(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            chats = " ".join(str(1000 + number) for number in range(150))
            one = await drafted(browser, chats=chats)
            page = await browser.get(f"{one}/start")
            for words in (f"{BOT}", "A list of chats", "Recipients 150", "1000", "1001", "1002", "Tea at five"):
                assert words in page.text, words
            assert "1003" not in page.text
            for typed in ("", "15", "151"):
                page = await browser.submit(page, f"{one}/start", number=typed)
                assert beside(page) == "number"
                assert page.form(f"{one}/start").fields["number"] == typed
            stale = page.form(f"{one}/start").fields | {"shown": "90", "number": ""}
            page = await browser.post(f"{one}/start", **stale)
            assert "150 recipients, not to 90" in page.text
            assert (await home.peik.broadcasts.service.get(one.rpartition("/")[2])).phase == "draft"
            page = await browser.submit(await browser.get(f"{one}/start"), f"{one}/start", number="۱۵۰")  # noqa: RUF001  a Persian keyboard
            assert "starts" in page.text

    visit(tmp_path, story)


def test_a_draft_is_edited_and_duplicated(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        people(home)
        service = home.peik.broadcasts.service
        async with home.visitor("send") as browser:
            one = await drafted(browser, name="tea", text="Tea at five", parse_mode="HTML", canary_percent="10")
            page = await browser.get(f"{one}/edit")
            form = page.form(f"{one}/edit")
            assert (form.fields["text"].strip(), form.fields["audience"], form.fields["canary_percent"]) == (
                "Tea at five", "same", "10",
            )  # fmt: skip
            refused = await browser.submit(page, f"{one}/edit", text="Tea at {hour}")
            assert beside(refused) == "text"
            assert refused.form(f"{one}/edit").fields["text"].strip() == "Tea at {hour}"
            page = await browser.submit(refused, f"{one}/edit", text="Tea at six")
            assert page.url.partition("?")[0] == one
            found = await service.get(one.rpartition("/")[2])
            assert (found.params, found.total, found.name) == ('{"text":"Tea at six","parse_mode":"HTML"}', 3, "tea")

            page = await browser.submit(
                await browser.get(f"{one}/edit"), f"{one}/edit", audience="list", chats="101 102"
            )
            other = page.url.partition("?")[0]
            (only,) = await service.find()
            assert other.endswith(only.id)
            assert only.total == 2

            page = await browser.get(f"{NEW}?like={only.id}")
            page = await browser.submit(page, ALL, button="Make a draft", text="Tea at seven")
            twin = page.url.partition("?")[0]
            await started(browser, twin)
            first = await service.first(twin.rpartition("/")[2], 3)
            assert [line.chat for line in first] == [101, 102]
            assert (await browser.get(f"{twin}/edit")).status == 409

    visit(tmp_path, story)


def test_a_preview_fills_the_places_for_the_chosen_person(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        people(home)
        async with home.visitor("send") as browser:
            rows = "chat_id,name\n101,Ali\n102,لیلا\n".encode()
            page = await browser.get(NEW)
            page = await browser.upload(
                page, ALL, name="csv", body=rows, file="a.csv", audience="csv", text="Salom {name}"
            )
            one = page.url.partition("?")[0]
            assert "Salom Ali" in page.text
            assert "Salom لیلا" in (await browser.get(f"{one}?like=102")).text
            page = await browser.submit(await browser.get(one), f"{one}/preview", chat_id="103", like="102")
            letter = await home.peik.outbox.service.letter(int(re.findall(r"message (\d+)", page.text)[0]))
            assert letter.params == '{"text":"Salom لیلا","chat_id":103}'
            page = await browser.submit(page, f"{one}/preview", chat_id="103", like="999")
            assert beside(page) == "like"

    visit(tmp_path, story)


# ---- the filling in itself ----

PAGE = (
    '<form method="post" action="/x"><details><summary>More</summary><label>A<input name="a" value="&quot;1"></label></details>'
    '<select name="s"><option value="1" selected>one</option><option value="2">two</option></select>'
    '<textarea name="t">\nold</textarea><input type="hidden" name="csrf" value="new"></form>'
)


@pytest.mark.parametrize("typed", ['"><script>alert(1)</script>', "</textarea><b>", "&lt;", "\n\nx", "'", "سلام"])
def test_what_was_typed_is_words_and_never_markup(typed: str) -> None:
    found = refilled(PAGE, Typed("/x", (("a", typed), ("t", typed), ("s", typed), ("csrf", "old"))))
    page = Answer(200, "/", found.page, {}, [])
    fields = page.form("/x").fields
    assert (fields["a"], fields["t"], fields["s"]) == (typed, typed, typed)
    assert fields["csrf"] == "new"
    assert "<script" not in found.page
    assert "<details open>" in found.page


def test_a_page_without_the_form_is_left_as_it_is() -> None:
    assert refilled(PAGE, Typed("/y", (("a", "1"),))).is_there is False
    problem = BadInput(code="bad_a", detail="a is wrong.")
    found = refilled(PAGE, Typed("/x", (("a", "1"),)), problem=problem, error="no")
    assert 'aria-describedby="error-a"' in found.page
    assert found.page.count("field-error") == 1
