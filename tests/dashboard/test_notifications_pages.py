"""Pages of notifications: a code that links somebody, a test that arrives, templates."""

import re
from pathlib import Path

from peik.core.token import Token
from tests.dashboard.visiting import BOT, Answer, House, Visit, visit
from tests.web.accounts import until

ALL = "/admin/notifications"
USERS = f"{ALL}/users"
TEMPLATES = f"{ALL}/templates"
LENA = 501
OTHER = 7000002


async def once(browser: Visit, path: str, pattern: str) -> Answer:
    """The page as soon as it says so."""

    async def look() -> Answer | None:
        page = await browser.get(path)
        return page if re.search(pattern, page.text) else None

    return await until(look)


async def linked(home: House, browser: Visit, user_id: str = "lena-7") -> None:
    """Make a code on the page, and let somebody show it to the bot."""
    home.sim.telegram.user(LENA, "Lena", "ru")
    page = await browser.submit(
        await browser.get(USERS), USERS, button="Make a code", user_id=user_id, bot_id=str(BOT), minutes="5"
    )
    assert f"A code for {user_id}" in page.text
    code = next(values["value"] for tag, values in page.tags if tag == "input" and "readonly" in values)
    assert code not in (await browser.get(USERS)).body
    assert "not linked" in (await browser.get(USERS)).text
    home.sim.telegram.write(BOT, LENA, f"/start {code}")
    await once(browser, USERS, rf"{user_id} @\w+ {LENA}")


def test_somebody_is_linked_by_a_code_and_gets_a_test(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            await linked(home, browser)
            form = await browser.get(ALL)
            fields = {"user_id": "lena-7", "type": "task", "title": "Tea", "message": "<b>at five</b>"}
            page = await browser.submit(form, ALL, button="Send a test", **fields)
            assert "for lena-7 is on its way" in page.text
            await browser.submit(form, ALL, button="Send a test", **fields)  # pressed twice
            page = await once(browser, ALL, "delivered")
            assert page.text.count("task") == 1
            assert "&lt;b&gt;at five" in page.body
            assert "Nothing was sent yet" in (await browser.get(f"{ALL}?user_id=nobody")).text

            page = await browser.submit(await browser.get(USERS), f"{USERS}/lena-7/unlink")
            assert "lena-7 is unlinked" in page.text
            page = await browser.submit(await browser.get(ALL), ALL, button="Send a test", **fields)
            assert "lena-7 has linked no chat" in page.text

    visit(tmp_path, story, inbound="polling")


def test_a_template_is_written_read_and_removed(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            text = "<b>{title}</b>: {message}\nچی"
            page = await browser.submit(await browser.get(TEMPLATES), TEMPLATES, type="task", language="fa", text=text)
            assert "task/fa is saved" in page.text
            page = await browser.get(f"{TEMPLATES}/task/fa")
            fields = page.form(TEMPLATES).fields
            assert (fields["type"], fields["language"], fields["text"].strip()) == ("task", "fa", text)
            page = await browser.submit(page, TEMPLATES, text="<b>{title")
            assert "bad" in page.body
            page = await browser.submit(await browser.get(TEMPLATES), f"{TEMPLATES}/task/fa/remove")
            assert "There is no template" in page.text
            assert (await browser.get(f"{TEMPLATES}/task/fa")).status == 404

    visit(tmp_path, story)


def test_what_cannot_be_linked_is_refused_in_words(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            for wrong, words in (
                ({"user_id": "a b"}, "user_id is"),
                ({"user_id": "x", "minutes": "0.01"}, "A code is good for"),
                ({"user_id": "x", "bot_id": "5"}, "not known here"),
                ({"user_id": "x", "language": "?"}, "language is"),
            ):
                page = await browser.submit(
                    await browser.get(USERS), USERS, button="Make a code", **{"bot_id": str(BOT), **wrong}
                )
                assert words in page.text, (wrong, page.text)

    visit(tmp_path, story, inbound="polling")


def test_the_key_of_another_bot_sees_nobody(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            await linked(home, browser)
            await browser.submit(await browser.get(ALL), ALL, button="Send a test", user_id="lena-7", title="Tea")
        async with home.visitor("send", bot_ids=frozenset({7000002})) as other:
            page = await other.get(USERS)
            assert "lena-7" not in page.text
            csrf = page.form("/admin/sign-out").fields["csrf"]
            page = await other.post(f"{USERS}/lena-7/unlink", csrf=csrf)
            assert "Nobody is known as lena-7" in page.text
            page = await other.get(ALL)
            assert "lena-7" not in page.text
            page = await other.submit(page, ALL, button="Send a test", user_id="lena-7", title="Tea")
            assert "bad" in page.body
            assert not (await other.get(TEMPLATES)).has_form(TEMPLATES)
            assert "all bots" in (await other.post(TEMPLATES, csrf=csrf, type="a", language="fa", text="x")).text
        async with home.visitor("send") as browser:
            assert (await browser.get(ALL)).text.count("Tea") == 1

    visit(tmp_path, story, inbound="polling")


def test_a_key_of_one_bot_sees_and_changes_the_same_users_as_over_rest(tmp_path: Path) -> None:
    """Who has a code of another bot is that one's to link, also if he is linked here."""
    other_token = f"{OTHER}:BBsecretsecretsecretsecretsecretsec"

    async def story(home: House) -> None:
        home.sim.telegram.add_bot(other_token)
        await home.peik.outbox.service.save_bot(Token(other_token), inbound="polling")
        links = home.peik.notifications.service.links
        async with home.visitor("send", bot_ids=frozenset({BOT})) as browser:
            await linked(home, browser, "lena-7")
            await links.new_code("aziz-8", bot_id=BOT)
            assert "aziz-8" in (await browser.get(USERS)).text
            await links.new_code("lena-7", bot_id=OTHER)
            page = await browser.get(USERS)
            assert "lena-7" not in page.text
            page = await browser.submit(
                page, USERS, button="Make a code", user_id="lena-7", bot_id=str(BOT), minutes="5"
            )
            assert "Nobody is known as lena-7" in page.text

    visit(tmp_path, story, inbound="polling")
