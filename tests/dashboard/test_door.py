"""The door of the dashboard: who comes in, who may what, whose form it is. One walk over the table of all pages."""

import re
from pathlib import Path

from peik.admin.model import Role
from peik.web.dashboard.board import own_path
from tests.dashboard.visiting import House, Visit, visit


def sample(path: str) -> str:
    """A path of a table with something in its places."""
    return re.sub(r"\{[^}]*\}", "1", path)


async def csrf_of(browser: Visit) -> str:
    return (await browser.get("/admin/settings-that-are-not-there")).form("/admin/sign-out").fields["csrf"]


def test_without_a_sign_in_pages_lead_to_the_form_and_deeds_are_refused(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.stranger() as browser:
            for verb, path, *_ in home.dashboard.pages:
                if verb == "GET":
                    answer = await browser.get(sample(path), follow=False)
                    assert (answer.status, answer.headers["location"].partition("?")[0]) == (303, "/admin/sign-in"), (
                        path
                    )
                else:
                    answer = await browser.post(sample(path), follow=False, csrf="x")
                    assert answer.status == 403, path
                assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], path
        assert (await home.dashboard.board.audit.find()).lines == []  # nobody did anything

    visit(tmp_path, story)


def test_each_role_is_refused_what_is_for_those_above_it(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        for scope, role in (("read", Role.VIEWER), ("send", Role.OPERATOR)):
            async with home.visitor(scope) as browser:
                csrf = await csrf_of(browser)
                refused = [page for page in home.dashboard.pages if not role.allows(page[3])]
                assert refused
                for verb, path, *_ in refused:
                    ask = browser.get(sample(path)) if verb == "GET" else browser.post(sample(path), csrf=csrf)
                    assert (await ask).status == 403, (role, verb, path)
                deeds = [row for row in refused if row[0] == "POST"]
                lines = (await home.dashboard.board.audit.find(who=f"key {scope} of tests", limit=1000)).lines
                assert [line.outcome for line in lines if line.action != "sign_in"] == ["refused"] * len(deeds)

    visit(tmp_path, story)


def test_a_form_that_is_not_ours_does_nothing_whoever_sends_it(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            csrf = await csrf_of(browser)
            foreign = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
            deeds = [sample(path) for verb, path, *_ in home.dashboard.pages if verb == "POST"]
            for path in deeds:
                assert (await browser.post(path, csrf="0" * 32)).status == 403, path
                assert (await browser.post(path, csrf=csrf, headers=foreign)).status == 403, path
            assert (await browser.post(deeds[0])).status == 403
            assert (await browser.post(deeds[0], csrf=csrf, headers={"Sec-Fetch-Site": "same-site"})).status == 403
            assert (await browser.get("/admin")).status == 200  # still signed in
            lines = (await home.dashboard.board.audit.find(limit=1000)).lines
            assert {line.outcome for line in lines if line.action != "sign_in"} == {"refused"}
            assert any("foreign_form" in line.detail for line in lines)

    visit(tmp_path, story)


def test_every_answer_is_safe_and_kept_nowhere(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            page = await browser.get("/admin")
            assert page.headers["cache-control"] == "no-store"
            assert page.headers["x-content-type-options"] == "nosniff"
            assert page.headers["content-security-policy"].startswith("default-src 'self'")
            sheets = [values["href"] for tag, values in page.tags if values.get("rel") == "stylesheet"]
            scripts = [values["src"] for tag, values in page.tags if tag == "script"]
            for url in sheets + scripts:
                file = await browser.get(url)
                assert (file.status, "immutable" in file.headers["cache-control"]) == (200, True)
            assert (await browser.get("/admin/static/style.css")).status == 404
            assert (await browser.get("/admin/static/..%2f..%2fboard.py")).status == 404

    visit(tmp_path, story)


def test_what_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            page = await browser.get("/admin/nowhere")
            assert (page.status, "There is no such page." in page.text) == (404, True)
            assert (await browser.get("/admin/")).url == "/admin"
            assert (await browser.post("/admin", csrf="x")).status == 405
            page = await browser.get("/admin/nowhere?lang=ru")
            assert "Такой страницы нет." in page.text
            assert "Обзор" in (await browser.get("/admin")).text  # remembered

    visit(tmp_path, story)


def test_persian_is_written_from_right_to_left_and_colours_are_remembered(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            await browser.get("/admin?lang=fa&theme=dark")
            page = await browser.get("/admin/settings")
            (root,) = [values for tag, values in page.tags if tag == "html"]
            assert (root["dir"], root["lang"], root["data-theme"]) == ("rtl", "fa", "dark")
            page = await browser.get("/admin/settings?theme=%22%3E")
            assert [values["data-theme"] for tag, values in page.tags if tag == "html"] == ["auto"]

    visit(tmp_path, story)


def test_settings_show_values_and_no_secrets(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            page = await browser.get("/admin/settings")
            assert "PEIK_ADMIN_KEY" in page.text
            assert "set, and secret" in page.text
            assert "AAtest" not in page.body
            assert "test-key" not in page.body
            assert "hidden-word" not in page.body

    visit(tmp_path, story, sessions_webhook="https://user:hidden-word@example.com/hook")


def test_a_key_of_some_bots_sees_no_settings(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("admin", bot_ids=frozenset({7000001})) as browser:
            assert (await browser.get("/admin")).status == 200
            assert (await browser.get("/admin/settings")).status == 403

    visit(tmp_path, story)


def test_nobody_is_sent_away_from_here() -> None:
    for text in ("https://evil.example", "//evil.example", "/admin\\evil", "/administrator", "/admin/\nx", ""):
        assert own_path(text) == "/admin"
    for text in ("/admin", "/admin/letters/5", "/admin?span=day"):
        assert own_path(text) == text


def test_a_key_of_some_bots_is_led_only_to_pages_that_it_may_see(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("admin", bot_ids=frozenset({7000001})) as browser:
            page = await browser.get("/admin")
            led = {values["href"] for tag, values in page.tags if tag == "a" and values["href"].startswith("/admin/")}
            assert "/admin/letters" in led
            for path in sorted(path for path in led if "?" not in path):
                assert (await browser.get(path)).status == 200, path

    visit(tmp_path, story)


def test_a_form_with_files_is_closed_whatever_becomes_of_it(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            page = await browser.get("/admin")
            answer = await browser.upload(
                page, "/admin/sign-out", name="list", body=b"5\n" * 1_000_000, file="chats.csv", csrf="forged"
            )
            assert answer.status == 403
            assert (await browser.get("/admin")).url == "/admin"

    visit(tmp_path, story)
