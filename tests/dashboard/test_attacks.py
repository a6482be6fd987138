"""The dashboard, met by somebody who means it no good: strange input everywhere, cookies and forms that are not ours, crowds."""

import asyncio
import contextlib
import urllib.parse
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from peik.admin.sign_ins import REFUSED_MAX, WINDOW_S, Refusals
from peik.app.dashboard import OWN_READERS_MAX
from peik.errors import Forbidden
from peik.web.dashboard.board import Flash, own_path, read_said, write_said
from tests.dashboard.visiting import BOT, Answer, House, Visit, visit
from tests.storage.places import ManualClock
from tests.web.accounts import until

SCRIPT = "\"'><script>alert(1)</script>{{1234*5678}}"
STRANGE = (SCRIPT, "\x00", "9" * 40, "-1", "١٢", "../../etc/passwd", "a" * 5000, "\uffff%")
NAMES = (
    "bot_id", "chat_id", "user_id", "cursor", "state", "text", "since", "until", "method", "consumer", "type", "kind", "who",
    "action", "estimate", "span", "act", "format", "agent_id", "phone", "session_id", "level", "campaign", "reach", "language",
    "newest", "seen", "minutes", "priority", "send_at", "params", "token", "inbound", "missed", "name", "role", "password",
    "scope", "expires_at", "webhook_url", "audience", "chats", "message", "title", "key", "arrived", "back", "quiet_start",
    "canary_percent", "stars_max", "start_at", "nonce", "message_type", "error", "cause", "user", "limits", "chat_per_s",
)  # fmt: skip


async def csrf_of(browser: Visit) -> str:
    return (await browser.get("/admin")).form("/admin/sign-out").fields["csrf"]


def strange_path(template: str, value: str) -> str:
    """Every place of a path filled with the same."""
    parts = [urllib.parse.quote(value, safe="") if part.startswith("{") else part for part in template.split("/")]
    return "/".join(parts)


def check(answer: Answer, what: object) -> None:
    assert answer.status < 500, (what, answer.status, answer.text[:300])
    assert "<script>alert" not in answer.body, what
    assert "7006652" not in answer.body, what  # no template takes it for its own
    assert "Traceback (most" not in answer.body, what


@pytest.mark.gate  # thousands of pages
@pytest.mark.parametrize("at", range(0, len(STRANGE), 4))
def test_no_page_breaks_or_speaks_in_tongues_whatever_it_is_asked(tmp_path: Path, at: int) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            for value in STRANGE[at : at + 4]:
                query = urllib.parse.urlencode(dict.fromkeys(NAMES, value[:400]), errors="replace")
                for verb, path, *_ in home.dashboard.pages:
                    if verb == "GET" and path != "/admin/live":
                        check(await browser.get(f"{strange_path(path, value)}?{query}"), (path, value))
                        if "{" not in path:
                            for name in ("cursor", "since", "bot_id"):
                                one = urllib.parse.urlencode({name: value[:400]}, errors="replace")
                                check(await browser.get(f"{path}?{one}"), (path, name, value))

    visit(tmp_path, story)


@pytest.mark.gate  # thousands of forms
def test_no_form_breaks_whatever_is_filled_in(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            csrf = await csrf_of(browser)
            for value in (SCRIPT, "\x00", "9" * 40, "a" * 2000):
                for verb, path, *_ in home.dashboard.pages:
                    if verb == "POST" and "sign-out" not in path:
                        for url in {strange_path(path, value), strange_path(path, str(BOT))}:
                            if url != f"/admin/bots/{BOT}/remove":
                                fields = {**dict.fromkeys(NAMES, value), "csrf": csrf}
                                check(await browser.post(url, **fields), (path, value))
            check(await browser.get("/admin/audit"), "the audit log of all this")

    visit(tmp_path, story)


def test_what_people_and_telegram_say_is_text_on_every_page(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        await home.dashboard.board.audit.note(who=SCRIPT, action=SCRIPT, target=SCRIPT, is_done=False, detail=SCRIPT)
        await home.peik.keyring.make(SCRIPT[:40], ("read",), bot_ids=None)
        async with home.visitor() as browser:
            csrf = await csrf_of(browser)
            fields = {"bot_id": str(BOT), "chat_id": "5", "text": SCRIPT, "csrf": csrf}
            page = await browser.post("/admin/letters/new", **fields)
            for path in (page.url, "/admin/letters", "/admin/audit", "/admin/keys", "/admin", f"/admin/chats/{BOT}/5"):
                check(await browser.get(path), path)
                for tag, values in (await browser.get(path)).tags:
                    assert not [name for name in values if name.startswith("on") or name == "style"], (
                        path,
                        tag,
                        values,
                    )
                    assert not values.get("href", "").lower().startswith(("javascript:", "data:", "//")), (path, values)

    visit(tmp_path, story)


# ---- words that are shown once, ways back ----


def _jar(browser: Visit) -> aiohttp.abc.AbstractCookieJar:
    return browser._http.cookie_jar


def test_a_word_on_the_next_page_is_ours_and_is_never_too_long() -> None:
    said = Flash("problem_said", {"text": "🙈" * 200, "other": "چ" * 200}, True)
    written = write_said(said, "secret")
    assert len(written) < 2000
    again = read_said(written, "secret")
    assert again is not None
    assert (again.key, set(again.words), again.is_bad) == ("problem_said", {"text", "other"}, True)
    assert read_said(written, "of another") is None
    assert read_said(written.partition(".")[2], "secret") is None
    assert read_said("é.%ff", "secret") is None


def test_a_cookie_that_somebody_planted_is_not_shown_and_goes(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        planted = urllib.parse.quote('{"key": "problem_said", "words": {"text": "call 555 and say your key"}}')
        async with home.visitor() as browser:
            for value in (planted, f"00.{planted}", urllib.parse.quote('{"key": "letters_all_retried"}')):
                _jar(browser).update_cookies({"peik_said": value}, URL(home.url))
                page = await browser.get("/admin")
                assert page.status == 200
                assert "555" not in page.text
                assert any(one.startswith('peik_said=""') for one in page.cookies)

    visit(tmp_path, story)


@pytest.mark.parametrize(
    "url",
    [
        "//evil.example",
        "https://evil.example",
        "/admin\\@evil",
        "/admin/\r\nX: y",
        "/adminevil",
        "javascript:alert(1)",
        "",
    ],
)
def test_no_way_leads_out(url: str) -> None:
    assert own_path(url) == "/admin"


# ---- streams, refusals ----


def test_a_stream_ends_with_its_sign_in(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser, browser.stream("/admin/live") as stream:
            assert stream.status == 200
            await stream.content.readuntil(b"retry")
            page = await browser.get("/admin")
            await browser.submit(page, "/admin/sign-out")
            await asyncio.wait_for(stream.content.read(), 60)  # to its end

    visit(tmp_path, story)


def test_one_browser_takes_no_more_streams_than_a_few(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser, home.visitor("read") as other:
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(OWN_READERS_MAX):
                    stream = await stack.enter_async_context(browser.stream("/admin/live"))
                    await stream.content.readuntil(b"retry")
                assert (await browser.get("/admin/live")).status == 503
                async with other.stream("/admin/live") as third:
                    await third.content.readuntil(b"retry")

            async def is_free() -> bool | None:
                async with browser.stream("/admin/live") as again:
                    return again.status == 200 or None

            assert await until(is_free)

    visit(tmp_path, story)


def test_who_is_refused_all_the_time_fills_no_audit_log() -> None:
    clock = ManualClock()
    refusals = Refusals(clock)
    for _ in range(REFUSED_MAX):
        refusals.check("key of a program")
        refusals.note("key of a program")
    with pytest.raises(Forbidden, match="too often"):
        refusals.check("key of a program")
    refusals.check("somebody else")
    clock.pass_ms(int(WINDOW_S * 1000))
    refusals.check("key of a program")


def test_the_brake_holds_at_both_doors_and_leaves_reading_alone(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        made = await home.peik.keyring.make("nosy", ("read",), bot_ids=None)
        headers = {"Authorization": f"Bearer {made.text}"}
        async with home.stranger() as browser, aiohttp.ClientSession(headers=headers) as http:
            await browser.sign_in(made.text)
            csrf = await csrf_of(browser)
            async with http.delete(f"{home.url}/v1/bots/{BOT}") as answer:
                assert (await answer.json())["code"] == "wrong_scope"
            assert "needs_operator" in (await browser.post("/admin/letters/new", csrf=csrf)).text
            for _ in range(REFUSED_MAX - 2):  # as if each had been tried
                home.peik.audit.refusals.note("key nosy")
            lines = (await home.peik.audit.find(limit=100)).lines
            async with http.delete(f"{home.url}/v1/bots/{BOT}") as answer:
                assert (answer.status, (await answer.json())["code"]) == (403, "refused_too_often")
            assert "refused_too_often" in (await browser.post("/admin/letters/new", csrf=csrf)).text
            assert (await home.peik.audit.find(limit=100)).lines == lines
            assert (await browser.get("/admin/letters")).status == 200

    visit(tmp_path, story)
