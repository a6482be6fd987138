"""Pages of keys, people and the audit log."""

from pathlib import Path

from tests.dashboard.visiting import BOT, House, visit

PASSWORD = "a long and quiet word"


def made_key(body: str) -> str:
    start = body.index('value="peik_') + len('value="')
    return body[start : body.index('"', start)]


def test_a_key_is_shown_once_and_opens_what_it_was_made_for(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            page = await browser.get("/admin/keys")
            page = await browser.submit(page, "/admin/keys", name="site", scope="send", bot_id=str(BOT))
            key = made_key(page.body)
            assert "Copy it now" in page.text
            shown = await browser.get("/admin/keys")
            assert key not in shown.body
            assert "site" in shown.text
            (kept,) = home.peik.keyring.known()
            assert (kept.scopes, kept.bot_ids) == (("send",), frozenset({BOT}))
            assert key not in (await browser.get("/admin/audit")).body

            async with home.stranger() as other:
                assert (await other.sign_in(key)).status == 200
                assert (await other.get("/admin/bots")).status == 200
                page = await browser.submit(shown, f"/admin/keys/{kept.id}/revoke")
                assert home.peik.keyring.known() == []
                assert (await other.get("/admin/bots")).url.startswith("/admin/sign-in")

    visit(tmp_path, story)


def test_a_key_gets_a_rate_of_its_own_and_shows_it(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            for name, rate in (("shop", "5/s burst 20"), ("free", "off"), ("usual", "")):
                await browser.submit(
                    await browser.get("/admin/keys"), "/admin/keys", name=name, scope="send", rate=rate
                )
            rates = {key.name: key.rate and str(key.rate) for key in home.peik.keyring.known()}
            assert rates == {"shop": "5/s burst 20", "free": "off", "usual": None}
            shown = (await browser.get("/admin/keys")).text
            assert "5/s burst 20" in shown
            assert "as usual" in shown

    visit(tmp_path, story)


def test_a_key_that_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            for wrong, words in (
                ({"name": "", "scope": "send"}, "name is empty"),
                ({"name": "x", "scope": "everything"}, "Say what the key is for"),
                ({"name": "x", "scope": "read", "expires_at": "2001-01-01T00:00"}, "in the past"),
                ({"name": "x", "scope": "read", "expires_at": "soon"}, "expires_at is no time"),
                ({"name": "x", "scope": "read", "bot_id": "5"}, "not known here"),
                ({"name": "x", "scope": "read", "rate": "often"}, "rate: "),
            ):
                page = await browser.submit(await browser.get("/admin/keys"), "/admin/keys", **wrong)
                assert words in page.text, (wrong, page.text)
            assert home.peik.keyring.known() == []

    visit(tmp_path, story)


def test_a_person_signs_in_and_is_out_when_the_role_changes(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser, home.stranger() as other:
            page = await browser.get("/admin/people")
            page = await browser.submit(page, "/admin/people", name="Leila", role="viewer", password=PASSWORD)
            assert "leila may sign in now" in page.text
            assert PASSWORD not in page.body

            form = await other.get("/admin/sign-in")
            csrf = form.form("/admin/sign-in").fields["csrf"]
            await other.post("/admin/sign-in", name="leila", password=PASSWORD, csrf=csrf)
            assert (await other.get("/admin/bots")).url == "/admin/bots"
            assert (await other.get("/admin/keys")).status == 403

            page = await browser.submit(page, "/admin/people/leila/role", role="admin")
            assert (await other.get("/admin/bots")).url.startswith("/admin/sign-in")
            assert [str(one.role) for one in await home.dashboard.board.people.everybody()] == ["admin"]

            page = await browser.submit(page, "/admin/people/leila/password", password="another long word")
            page = await browser.submit(page, "/admin/people/leila/sign-out")
            page = await browser.submit(page, "/admin/people/leila/remove")
            assert "Nobody is here yet" in page.text
            assert await home.dashboard.board.people.everybody() == []

    visit(tmp_path, story)


def test_the_audit_log_tells_who_did_what_and_what_was_refused(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        one = f"/admin/bots/{BOT}"
        async with home.visitor() as browser, home.visitor("read") as reader:
            await browser.submit(await browser.get(one), f"{one}/pause")
            page = await reader.get("/admin/bots")
            csrf = page.form("/admin/sign-out").fields["csrf"]
            assert (await reader.post(f"{one}/resume", csrf=csrf)).status == 403

            text = (await browser.get("/admin/audit")).text
            assert f"admin key Pause a bot bots.pause {BOT} done" in text
            assert f"key read of tests Resume a bot bots.resume {BOT} refused needs_admin" in text
            assert "127.0.0.1" in text

            text = (await browser.get("/admin/audit?action=bots.pause")).text
            assert "bots.pause" in text
            assert "bots.resume" not in text
            assert "Nothing fits" in (await browser.get("/admin/audit?who=nobody")).text
            assert "Nothing fits" in (await browser.get("/admin/audit?since=2100-01-01T00:00")).text
            assert (await browser.get("/admin/audit?since=soon")).status == 422

    visit(tmp_path, story)
