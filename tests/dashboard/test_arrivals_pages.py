"""Arrivals, dead things, lanes and chats at the dashboard, as somebody with a browser without JavaScript meets them."""

import json
from pathlib import Path

from peik.core.arrival import DEFAULT_CONSUMER, read_update, wire_id
from peik.core.documents import Contact
from peik.core.letter import State
from peik.core.token import Token
from peik.inbox.delivery import Failed, line_of
from peik.inbox.store import ArrivalFilter, Burial
from peik.jobs.model import JobEnd, JobRequest, Ran
from peik.jobs.store import KindTerms
from tests.dashboard.test_letters_pages import accept, dead, ended
from tests.dashboard.visiting import BOT, House, visit


def message(number: int, text: str, *, user: int = 9) -> bytes:
    person = {"id": user, "is_bot": False, "first_name": "Ann"}
    body = {"message_id": number, "date": 1_760_000_000, "text": text, "from": person}
    return json.dumps({"update_id": number, "message": body | {"chat": {"id": user, "type": "private"}}}).encode()


async def arrive(home: House, *texts: str, user: int = 9) -> list[int]:
    """These came in; their ids, the oldest first."""
    inbox, at_ms = home.peik.store.inbox, home.peik.clock.wall_ms()
    await inbox.open_inbox(BOT, server="sim", at_ms=at_ms)
    first = (await inbox.last_arrival_id()) + 100
    updates = [read_update(message(first + number, text, user=user)) for number, text in enumerate(texts)]
    await inbox.take_in(BOT, updates, at_ms=at_ms, last_update_id=None)
    found = await inbox.find_arrivals(ArrivalFilter(bot_id=BOT), before=None, limit=len(texts))
    return [view.arrival.id for view in reversed(found)]


async def give_up(home: House, ids: list[int], words: str) -> None:
    inbox, at_ms = home.peik.store.inbox, home.peik.clock.wall_ms()
    consumer = await inbox.ensure_consumer(BOT, DEFAULT_CONSUMER, at_ms=at_ms)
    line = line_of(Failed(words=words, trace="Traceback: line 7 of handlers.py"), at_ms=at_ms)
    for arrival_id in ids:
        view = await inbox.arrival(arrival_id)
        assert view is not None
        burial = Burial(number=view.arrival.number, tries=5, reason=words, entry=line)
        await inbox.settle_arrivals(consumer.id, dead=[burial], at_ms=at_ms)


def test_arrivals_are_found_opened_and_replayed_after_their_count_was_shown(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        needle, hay = await arrive(home, "a needle", "only hay")
        async with home.visitor("send") as browser:
            page = await browser.get("/admin/arrivals")
            assert "default" in page.text
            assert "only hay" in page.text
            page = await browser.submit(page, "/admin/arrivals", text="needle")
            assert f"/admin/arrivals/{needle}" in page.links
            assert f"/admin/arrivals/{hay}" not in page.links
            (replay,) = [url for url in page.links if url.startswith("/admin/arrivals/replay")]
            page = await browser.get(replay)
            assert "to default: 1" in page.text
            page = await browser.submit(page, "/admin/arrivals/replay")
            assert "Incoming updates handed on again: 1" in page.text
            newest = (await home.peik.inbox.service.arrivals(ArrivalFilter(bot_id=BOT), before=None, limit=1))[
                0
            ].arrival
            assert newest.replay_of == needle
            page = await browser.get(f"/admin/arrivals/{needle}")
            assert '"text": "a needle"' in page.text
            page = await browser.submit(page, f"/admin/arrivals/{needle}/replay")
            assert "handed on again: 1" in page.text
            for query in ("state=active", "user_id=x", "since=soon"):
                page = await browser.get(f"/admin/arrivals?{query}")
                assert any(tag[1].get("role") == "alert" for tag in page.tags), query

    visit(tmp_path, story)


def test_what_a_dead_poller_had_in_hand_is_told_with_the_reason(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        first, second = await arrive(home, "one", "two")
        inbox = home.peik.inbox.service
        found = await inbox.updates(BOT)
        await inbox.updates(BOT, offset=wire_id(found[-1].number) + 1)
        async with home.visitor("send") as browser:
            page = await browser.get("/admin/arrivals")
            assert "handed again" not in page.text
            assert [one.id for one in await inbox.updates(BOT)] == [first], "another program begins"
            page = await browser.get("/admin/arrivals")
            assert "2 handed again, since the bot ended" in page.text
            assert f"/admin/arrivals/{second}" in page.links
            page = await browser.get(f"/admin/arrivals/{first}")
            assert "its poller ended, and nothing showed that it was dealt with" in page.text

    visit(tmp_path, story)


def test_dead_arrivals_stand_by_their_reason_with_the_traceback_and_go_on_by_group(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        ids = await arrive(home, "one", "two", "three")
        await give_up(home, ids[:2], "KeyError: 17\nsecond line")
        await give_up(home, ids[2:], "TimeoutError")
        async with home.visitor("send") as browser:
            page = await browser.get("/admin/dead/arrivals")
            assert "KeyError: N" in page.text
            assert "line 7 of handlers.py" in page.text
            forms = [form for form in page.forms if form.action == "/admin/dead/arrivals/retry"]
            (form,) = [one for one in forms if one.fields["newest"] == str(ids[1])]
            page = await browser.post("/admin/dead/arrivals/retry", **form.fields)
            assert "Incoming updates handed on again: 2" in page.text
            assert "KeyError" not in page.text
            page = await browser.post("/admin/dead/arrivals/retry", **form.fields)
            assert "Look again" in page.text, "nothing is handed on twice by a second click"
            page = await browser.submit(page, "/admin/dead/arrivals/clear")
            assert "Incoming updates deleted: 1" in page.text
            assert "No consumer has given up anything" in page.text

    visit(tmp_path, story)


def test_a_dead_arrival_goes_to_its_consumer_once_more(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        (dead_one,) = await arrive(home, "again")
        await give_up(home, [dead_one], "ValueError")
        async with home.visitor("send") as browser:
            page = await browser.get(f"/admin/arrivals/{dead_one}")
            assert "ValueError" in page.text
            page = await browser.submit(page, f"/admin/arrivals/{dead_one}/retry")
            assert f"/admin/arrivals/{dead_one}" in page.links, "the copy names what it is a copy of"

    visit(tmp_path, story)


def test_dead_letters_stand_by_their_cause_and_go_out_or_away_by_group(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        flooded = await dead(home, 2, "Bad Request: something about 17 things")
        await dead(home, 1, "Bad Request: message is too long")
        async with home.visitor("send") as browser:
            page = await browser.get("/admin/dead")
            assert "Undelivered in all: 3" in page.text
            assert "something about N things" in page.text
            (url,) = [url for url in page.links if "cause=" in url and "about" in url]
            listed = await browser.get(url)
            assert {f"/admin/letters/{one}" for one in flooded} <= set(listed.links)
            forms = [form for form in page.forms if form.action == "/admin/dead/retry"]
            (form,) = [one for one in forms if one.fields["newest"] == str(flooded[-1])]
            page = await browser.post("/admin/dead/retry", **form.fields)
            assert "Messages sent again: 2" in page.text
            for letter_id in flooded:
                assert await ended(home, letter_id) is State.COMPLETED
            page = await browser.submit(page, "/admin/dead/clear")
            assert "Messages deleted: 1" in page.text
            assert "Nothing is undelivered" in page.text

    visit(tmp_path, story)


def test_failed_jobs_stand_by_their_reason_and_run_again_by_group(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        jobs, at_ms = home.peik.store.jobs, home.peik.clock.wall_ms()
        queued = await home.peik.jobs.service.queue([JobRequest(kind="grab"), JobRequest(kind="grab")])
        terms = KindTerms(concurrency=2, per_user=2)
        for number, job in enumerate(await jobs.take("grab", terms, limit=2, lease_ms=60_000, at_ms=at_ms)):
            ran = Ran(job_id=job.id, run=job.run, end=JobEnd.HOPELESS, reason=f"ValueError: {number} is no address.")
            await jobs.settle([ran], at_ms=at_ms)
        async with home.visitor("send") as browser:
            page = await browser.get("/admin/dead/jobs")
            assert "ValueError: N is no address." in page.text
            page = await browser.submit(page, "/admin/dead/jobs/retry")
            assert "Jobs that run again: 2" in page.text
            assert "No job has failed" in page.text
        assert [(await home.peik.jobs.service.get(one.job_id)).state for one in queued] == [State.WAITING] * 2

    visit(tmp_path, story)


def test_lanes_say_why_they_wait_and_a_held_chat_is_let_go(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            page = await browser.get(f"/admin/chats/{BOT}/5")
            page = await browser.submit(page, f"/admin/chats/{BOT}/5/hold", minutes="90")
            assert "The chat 5 is paused" in page.text
            held = await accept(home, chat=5)
            page = await browser.get("/admin/lanes")
            assert "Its chat is paused" in page.text
            assert f"/admin/letters/{held}" in page.links
            page = await browser.submit(page, f"/admin/chats/{BOT}/5/release")
            assert page.url.startswith("/admin/lanes")
            assert await ended(home, held) is State.COMPLETED
            page = await browser.submit(page, "/admin/lanes/hold", chat_id="@Somebody", minutes="5")
            assert "The chat @somebody is paused" in page.text
            assert page.has_form(f"/admin/chats/{BOT}/@somebody/release")
            page = await browser.submit(
                await browser.get(f"/admin/chats/{BOT}/5"), f"/admin/chats/{BOT}/5/hold", minutes="0"
            )
            assert "1 to" in page.text

    visit(tmp_path, story)


def test_chats_are_known_filtered_and_opened_again(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        store, at_ms = home.peik.store, home.peik.clock.wall_ms()
        people = [
            Contact(bot_id=BOT, chat_id=5, type="private", name="Ann <b>", username="ann", language="fa",
                    first_seen_ms=at_ms, last_seen_ms=at_ms, campaign="spring"),
            Contact(bot_id=BOT, chat_id=6, type="private", name="Bob", language="ru",
                    first_seen_ms=at_ms, last_seen_ms=at_ms - 1, is_gone=True),
            Contact(bot_id=BOT, chat_id=-100, type="supergroup", name="The group",
                    first_seen_ms=at_ms, last_seen_ms=at_ms - 2),
        ]  # fmt: skip
        await store.contacts.save_contacts(
            BOT, people, place=2**40
        )  # ahead of the census, which would see Ann otherwise
        await store.shut_chat(BOT, 6, "Forbidden: bot was blocked by the user", at_ms=at_ms)
        await arrive(home, "hello from Ann", user=5)
        async with home.visitor() as browser:
            page = await browser.get("/admin/chats")
            for words in ("Ann <b>", "Bob", "The group", "spring", "bot was blocked"):
                assert words in page.text
            for query, there, gone in (
                ("reach=gone", "Bob", "Ann"), ("language=fa", "Ann", "Bob"), ("type=supergroup", "The group", "Bob"),
                ("text=bo", "Bob", "Ann"), ("campaign=spring", "Ann", "Bob"),
            ):  # fmt: skip
                page = await browser.get(f"/admin/chats?{query}")
                assert there in page.text, query
                assert gone not in page.text, query
            assert "Bob" in (await browser.get("/admin/chats/shut")).text
            page = await browser.get(f"/admin/chats/{BOT}/6")
            page = await browser.submit(page, f"/admin/chats/{BOT}/6/open")
            assert "is tried again" in page.text
            assert "bot was blocked" not in page.text
            assert "hello from Ann" in (await browser.get(f"/admin/chats/{BOT}/5")).text
            assert (await browser.get("/admin/chats?type=planet")).status == 422
            assert (await browser.get("/admin/chats/1/5")).status == 404
            assert (await browser.get(f"/admin/chats/{BOT}/@somebody")).status == 200
        async with home.visitor("send") as browser:
            page = await browser.get(f"/admin/chats/{BOT}/5")
            assert not [form for form in page.forms if "/admin/chats/" in form.action], "only admins keep chats back"

    visit(tmp_path, story)


def test_whoever_signed_in_for_some_bots_sees_nothing_of_the_others(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        (arrival,) = await arrive(home, "a secret of the first bot")
        await give_up(home, [arrival], "ValueError: secret")
        await dead(home, 1)
        other = 77777
        await home.peik.outbox.service.save_bot(Token(f"{other}:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"))
        async with home.visitor("read", "send", bot_ids=frozenset({other})) as browser:
            for path in ("/admin/arrivals", "/admin/dead", "/admin/dead/arrivals", "/admin/lanes", "/admin/chats"):
                page = await browser.get(path)
                assert page.status == 200, path
                assert "secret" not in page.text, path
                assert "too long" not in page.text, path
            for path in (f"/admin/arrivals/{arrival}", f"/admin/chats/{BOT}/5", f"/admin/lanes?bot_id={BOT}"):
                assert (await browser.get(path)).status == 404, path
            assert (await browser.get("/admin/dead/jobs")).status == 403

    visit(tmp_path, story)
