"""Pages of bots and nodes, as a browser without JavaScript meets them."""

from pathlib import Path

from peik.core.pace import PaceLimits
from peik.core.token import Token
from peik.testing.faults import Kind
from tests.dashboard.visiting import BOT, House, visit
from tests.processes.programs import TOKEN

OTHER = "7000002:BBsecretsecret"
ONE = f"/admin/bots/{BOT}"


def test_a_bot_is_added_by_its_token_which_no_page_shows_again(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        home.sim.telegram.add_bot(OTHER, username="lila_bot")
        async with home.visitor() as browser:
            page = await browser.submit(
                await browser.get("/admin/bots"), "/admin/bots", button="Add", token=f" {OTHER} "
            )
            assert (page.status, page.url) == (200, "/admin/bots/7000002")
            assert "Bot 7000002 is added." in page.text
            assert home.peik.outbox.service.bot(7000002).username == "lila_bot"
            assert home.peik.outbox.service.bot(7000002).inbound == "polling"
            pages = [page, await browser.get("/admin/bots"), await browser.get("/admin/audit")]
            assert not any("BBsecret" in one.body for one in pages)
            assert "bots.add 7000002 done" in pages[2].text

            page = await browser.submit(await browser.get("/admin/bots"), "/admin/bots", button="Add", token="what")
            assert page.url == "/admin/bots"
            assert len(home.peik.outbox.service.bots()) == 2

    visit(tmp_path, story)


def test_a_slip_in_a_token_is_told_at_once_and_a_dark_telegram_is_no_slip(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        home.sim.telegram.add_bot(OTHER)
        async with home.visitor() as browser:
            slip = f"{OTHER}x"
            page = await browser.submit(await browser.get("/admin/bots"), "/admin/bots", button="Add", token=slip)
            assert page.url == "/admin/bots/7000002"
            assert "Telegram does not accept this token of bot 7000002." in page.text
            page = await browser.submit(page, "/admin/bots/7000002/token", token=f"{OTHER}y")
            assert "Telegram does not accept this token" in page.text
            assert home.peik.outbox.service.bot(7000002).token.reveal() == f"{OTHER}y"  # what was asked for is done
            home.sim.telegram.faults.add(Kind.REFUSE)
            page = await browser.submit(page, "/admin/bots/7000002/token", token=OTHER)
            assert "Bot 7000002 has its new token." in page.text
            home.sim.telegram.faults.clear()

    visit(tmp_path, story)


def test_a_bot_is_paused_and_goes_on(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            page = await browser.submit(await browser.get(ONE), f"{ONE}/pause")
            assert home.peik.outbox.service.bot(BOT).paused == "paused by hand"
            assert "paused by hand" in page.text
            assert "paused" in (await browser.get("/admin/bots")).text
            assert not page.has_form(f"{ONE}/pause")
            await browser.submit(page, f"{ONE}/resume")
            assert home.peik.outbox.service.bot(BOT).paused is None

    visit(tmp_path, story)


def test_what_a_bot_does_with_updates_and_how_fast_it_goes_is_set(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            await browser.submit(await browser.get(ONE), f"{ONE}/inbound", inbound="polling")
            await browser.submit(await browser.get(ONE), f"{ONE}/missed", missed="both")
            page = await browser.submit(await browser.get(ONE), f"{ONE}/limits", button="Save", bulk_per_s="12,5")
            bot = home.peik.outbox.service.bot(BOT)
            assert (bot.inbound, bot.missed, bot.limits) == ("polling", "both", PaceLimits(bulk_per_s=12.5))
            assert page.form(f"{ONE}/limits", button="Save").fields["bulk_per_s"] == "12.5"

            for wrong in ({"group_per_min": "1.5"}, {"bulk_per_s": "0"}, {"bulk_per_s": "fast"}, {"bulk_per_s": ""}):
                page = await browser.submit(await browser.get(ONE), f"{ONE}/limits", button="Save", **wrong)
                assert "bad" in page.body
                assert home.peik.outbox.service.bot(BOT).limits == PaceLimits(bulk_per_s=12.5)

            await browser.submit(await browser.get(ONE), f"{ONE}/limits", button="Back to Telegram")
            await browser.submit(await browser.get(ONE), f"{ONE}/missed", missed="")
            bot = home.peik.outbox.service.bot(BOT)
            assert (bot.missed, bot.limits) == (None, None)

            page = await browser.submit(await browser.get(ONE), f"{ONE}/inbound", inbound="webhook")
            assert "PEIK_PUBLIC_URL" in page.text
            assert home.peik.outbox.service.bot(BOT).inbound == "polling"

    visit(tmp_path, story)


def test_a_token_is_rotated_for_the_same_bot_only(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            page = await browser.submit(await browser.get(ONE), f"{ONE}/token", token=OTHER)
            assert "belongs to bot 7000002" in page.text
            assert home.peik.outbox.service.bot(BOT).token.reveal() == TOKEN
            fresh = home.sim.telegram.revoke(BOT)
            page = await browser.submit(page, f"{ONE}/token", token=fresh)
            assert "has its new token" in page.text
            assert home.peik.outbox.service.bot(BOT).token.reveal() == fresh
            assert fresh.partition(":")[2] not in page.body

    visit(tmp_path, story)


def test_a_bot_is_removed(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            page = await browser.submit(await browser.get(ONE), f"{ONE}/remove")
            assert (page.url, home.peik.outbox.service.bots()) == ("/admin/bots", [])
            assert "No bot is here yet" in page.text
            assert (await browser.get(ONE)).status == 404

    visit(tmp_path, story)


def test_the_key_of_some_bots_shows_these_alone(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            await browser.submit(await browser.get("/admin/bots"), "/admin/bots", button="Add", token=OTHER)
        async with home.visitor("admin", bot_ids=frozenset({BOT})) as browser:
            page = await browser.get("/admin/bots")
            assert str(BOT) in page.text
            assert "7000002" not in page.text
            assert [form.verb for form in page.forms if form.action == "/admin/bots"] == ["GET"]
            assert (await browser.get("/admin/bots/7000002")).status == 404
            page = await browser.get(ONE)
            assert page.has_form(f"{ONE}/pause")
            assert not page.has_form(f"{ONE}/remove")
            for whole in ("nodes", "keys", "people", "audit", "sessions", "archive", "jobs", "jobs/hosts"):
                answer = await browser.get(f"/admin/{whole}")
                assert answer.status == 403, (whole, answer.text)

    visit(tmp_path, story)


def test_who_only_sees_finds_nothing_to_press(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("read") as browser:
            for path in ("/admin/bots", ONE, "/admin/nodes", "/admin/jobs", "/admin/sessions"):
                page = await browser.get(path)
                assert page.status == 200
                own = ("/admin/sign-out", "/admin/sign-out-everywhere")
                assert [form.action for form in page.forms if form.verb == "POST" and form.action not in own] == []

    visit(tmp_path, story)


def test_many_bots_are_found_by_name_and_shown_in_pages(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        for number in range(60):
            await home.peik.outbox.service.save_bot(Token(f"{8000000 + number}:AAtest"))
        async with home.visitor() as browser:
            page = await browser.get("/admin/bots")
            assert "Bots here: 61" in page.text
            (older,) = [link for link in page.links if "cursor=" in link]
            assert "8000059" in (await browser.get(older)).text
            assert "Bots here: 1" in (await browser.get("/admin/bots?text=8000042")).text
            assert "No bot fits" in (await browser.get("/admin/bots?text=nobody")).text

    visit(tmp_path, story)


def test_the_page_of_nodes_says_who_serves_whom(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            page = await browser.get("/admin/nodes")
            assert home.peik.store.nodes.node in page.text
            assert str(BOT) in page.text
            assert "one process owns the file" in page.text
            csrf = page.form("/admin/sign-out").fields["csrf"]
            page = await browser.post(f"/admin/nodes/{home.peik.store.nodes.node}/drain", csrf=csrf)
            assert "On SQLite one process owns the file" in page.text  # why it is refused

    visit(tmp_path, story)
