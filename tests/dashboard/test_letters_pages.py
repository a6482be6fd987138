"""Letters at the dashboard, as somebody with a browser without JavaScript meets them."""

from pathlib import Path
from typing import Any

import msgspec

from peik.core.letter import LetterCall, OnUncertain, State
from peik.core.token import Token
from peik.outbox.store import LetterFilter
from peik.testing.faults import Kind
from tests.dashboard.visiting import BOT, House, visit

FINAL = "Bad Request: message is too long"


async def accept(home: House, *, text: str = "hello", chat: int = 5, **terms: Any) -> int:
    params = msgspec.json.encode({"chat_id": chat, "text": text})
    (accepted,) = await home.peik.outbox.service.accept([LetterCall(method="sendMessage", params=params, **terms)])
    return accepted.letter_id


async def ended(home: House, letter_id: int) -> State:
    return (await home.peik.outbox.service.wait(letter_id, 60)).state


async def dead(home: House, count: int, words: str = FINAL) -> list[int]:
    home.sim.telegram.faults.add(Kind.ERROR, status=400, words=words, count=count)
    ids = [await accept(home, text=f"dies {number}", chat=100 + number) for number in range(count)]
    for letter_id in ids:
        assert await ended(home, letter_id) is State.FAILED
    return ids


async def uncertain(home: House, chat: int) -> int:
    home.sim.telegram.faults.add(Kind.LOSE_AFTER, method="sendMessage", count=1)
    letter_id = await accept(home, text="perhaps", chat=chat, on_uncertain=OnUncertain.HOLD)
    assert await ended(home, letter_id) is State.FAILED
    return letter_id


def test_letters_are_found_by_their_text_and_opened_with_their_history(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        found = await accept(home, text="a needle in the hay")
        await accept(home, text="only hay", chat=6)
        await ended(home, found)
        async with home.visitor("read") as browser:
            page = await browser.get("/admin/letters")
            assert "a needle in the hay" in page.text
            assert "only hay" in page.text
            page = await browser.submit(page, "/admin/letters", text="NEEDLE")
            assert f"/admin/letters/{found}" in page.links
            assert "only hay" not in page.text
            page = await browser.get(f"/admin/letters/{found}")
            assert page.status == 200
            assert "accepted" in page.text
            assert "delivered" in page.text
            assert "a needle in the hay" in page.text
            assert f"/admin/chats/{BOT}/5" in page.links

    visit(tmp_path, story)


def test_the_message_log_shows_also_what_is_gone(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        gone, _ = await dead(home, 2)
        await home.peik.outbox.service.clear_dead(LetterFilter(chat=100))
        async with home.visitor("read") as browser:
            page = await browser.get("/admin/log?state=failed")
            assert "dies 0" in page.text
            assert FINAL in page.text
            assert f"/admin/letters/{gone}" not in page.links
            page = await browser.submit(page, "/admin/log", text="DIES 1")
            assert "dies 1" in page.text
            assert "dies 0" not in page.text
            assert "Begin again with the first" in (await browser.get("/admin/log?cursor=x")).text

    visit(tmp_path, story)


def test_the_list_is_paged_filtered_by_tabs_and_says_what_is_wrong_with_a_filter(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        ids = [await accept(home, text=f"number {number}", chat=number + 1, send_at_ms=1 << 42) for number in range(60)]
        async with home.visitor("read") as browser:
            page = await browser.get("/admin/letters")
            assert f"/admin/letters/{ids[-1]}" in page.links
            assert f"/admin/letters/{ids[0]}" not in page.links
            (older,) = [url for url in page.links if "cursor=" in url]
            assert f"/admin/letters/{ids[0]}" in (await browser.get(older)).links
            assert "delayed 60" in page.text
            page = await browser.get("/admin/letters?state=waiting")
            assert "No message fits" in page.text
            page = await browser.get("/admin/letters?chat_id=7&since=2026-01-01T00:00&method=sendMessage&state=delayed")
            assert [url for url in page.links if url == f"/admin/letters/{ids[6]}"]
            for query in ("state=lost", "bot_id=x", "since=soon", "cursor=x", "text=" + "x" * 300):
                page = await browser.get(f"/admin/letters?{query}")
                assert page.status == 200
                assert any(tag[1].get("role") == "alert" for tag in page.tags), query

    visit(tmp_path, story)


def test_a_dead_letter_is_sent_again_by_hand(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        (letter_id,) = await dead(home, 1)
        async with home.visitor("send") as browser:
            page = await browser.get(f"/admin/letters/{letter_id}")
            assert FINAL in page.text
            page = await browser.submit(page, f"/admin/letters/{letter_id}/retry")
            assert f"Message {letter_id} is sent again." in page.text
            assert await ended(home, letter_id) is State.COMPLETED
            page = await browser.get(f"/admin/letters/{letter_id}")
            assert "sent again by hand" in page.text
            assert not page.has_form(f"/admin/letters/{letter_id}/retry")

    visit(tmp_path, story)


def test_an_uncertain_letter_is_resolved_either_way(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            first = await uncertain(home, 5)
            page = await browser.get(f"/admin/letters/{first}")
            assert "Nobody knows whether it arrived" in page.text
            await browser.submit(page, f"/admin/letters/{first}/resolve", button="It arrived")
            assert (await home.peik.outbox.service.letter(first)).state is State.COMPLETED
            second = await uncertain(home, 6)
            page = await browser.get(f"/admin/letters/{second}")
            await browser.submit(page, f"/admin/letters/{second}/resolve", button="send again")
            assert await ended(home, second) is State.COMPLETED
            assert home.sim.telegram.sent.texts(6) == ["perhaps", "perhaps"]

    visit(tmp_path, story)


def test_a_waiting_letter_says_why_and_is_changed_hurried_or_cancelled(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        later, never = [await accept(home, chat=chat, send_at_ms=1 << 42) for chat in (5, 6)]
        async with home.visitor("send") as browser:
            page = await browser.get(f"/admin/letters/{later}")
            assert "It is scheduled" in page.text
            page = await browser.submit(page, f"/admin/letters/{later}/change", button="Change", priority="2")
            assert "critical" in page.text
            assert (await home.peik.outbox.service.letter(later)).rank == 0
            page = await browser.submit(page, f"/admin/letters/{later}/change", button="Send now")
            assert await ended(home, later) is State.COMPLETED
            old = await browser.get(f"/admin/letters/{never}")
            page = await browser.submit(old, f"/admin/letters/{never}/cancel")
            assert "is cancelled" in page.text
            assert (await home.peik.outbox.service.letter(never)).state is State.CANCELLED
            page = await browser.submit(old, f"/admin/letters/{never}/cancel")
            assert page.url == f"/admin/letters/{never}"
            assert f"Message {never} is cancelled" not in page.text, "a refusal is told as one"

    visit(tmp_path, story)


def test_all_of_a_filter_is_dealt_with_after_its_count_was_shown(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        ids = await dead(home, 3)
        other = await accept(home, chat=7, send_at_ms=1 << 42)
        async with home.visitor("send") as browser:
            page = await browser.get("/admin/letters?state=failed&chat_id=100")
            page = await browser.submit(page, "/admin/letters/bulk", button="undelivered ones again")
            assert "sent again: 1" in page.text
            page = await browser.submit(page, "/admin/letters/bulk")
            assert "Messages sent again: 1" in page.text
            assert await ended(home, ids[0]) is State.COMPLETED
            page = await browser.get("/admin/letters?state=failed")
            page = await browser.submit(page, "/admin/letters/bulk", button="Delete the undelivered")
            assert "deleted: 2" in page.text
            page = await browser.submit(page, "/admin/letters/bulk")
            counted = await home.peik.outbox.service.count(LetterFilter(state=State.FAILED))
            assert counted.letters == 0
            page = await browser.submit(
                await browser.get("/admin/letters"), "/admin/letters/bulk", button="Cancel the waiting"
            )
            late = await accept(home, chat=8, send_at_ms=1 << 42)
            page = await browser.submit(page, "/admin/letters/bulk")
            assert "Messages cancelled: 1" in page.text
            assert (await home.peik.outbox.service.letter(other)).state is State.CANCELLED
            assert (await home.peik.outbox.service.letter(late)).state is State.DELAYED, "it came after the count"

    visit(tmp_path, story)


def test_ticked_rows_alone_are_dealt_with_and_none_is_never_all(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        ids = await dead(home, 3)
        waits = [await accept(home, chat=chat, send_at_ms=1 << 42) for chat in (7, 8)]
        async with home.visitor("send") as browser:
            page = await browser.get("/admin/letters")
            assert sum(given.get("form") == "ticked" for _, given in page.tags) == 5
            ticked = "/admin/letters/bulk?ticked=1"
            page = await browser.get(f"{ticked}&act=retry")
            assert page.status == 422
            assert "Nothing is chosen" in page.text

            page = await browser.get(f"{ticked}&act=retry&id={ids[0]}&id={ids[1]}&id={waits[0]}")
            assert "sent again: 2" in page.text, "what waits is not sent again"
            page = await browser.submit(page, "/admin/letters/bulk")
            assert "Messages sent again: 2" in page.text
            assert [await ended(home, one) for one in ids[:2]] == [State.COMPLETED] * 2
            assert (await home.peik.outbox.service.letter(ids[2])).state is State.FAILED

            page = await browser.submit(await browser.get(f"{ticked}&act=cancel&id={waits[0]}"), "/admin/letters/bulk")
            states = [(await home.peik.outbox.service.letter(one)).state for one in waits]
            assert states == [State.CANCELLED, State.DELAYED]
            page = await browser.submit(await browser.get(f"{ticked}&act=clear&id={ids[2]}"), "/admin/letters/bulk")
            assert "Messages deleted: 1" in page.text
            assert (await home.peik.outbox.service.count(LetterFilter(state=State.FAILED))).letters == 0

    visit(tmp_path, story)


def test_a_test_message_is_sent_once_however_often_the_form_comes(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor("send") as browser:
            page = await browser.get("/admin/letters/new")
            sent = await browser.submit(page, "/admin/letters/new", chat_id="5", text="from the <dashboard>")
            assert "is accepted" in sent.text
            again = await browser.submit(page, "/admin/letters/new", chat_id="5", text="from the <dashboard>")
            assert again.url == sent.url
            assert await ended(home, int(sent.url.rpartition("/")[2])) is State.COMPLETED
            assert "<dashboard>" not in (await browser.get(sent.url)).body, "what people write is escaped"
            page = await browser.submit(page, "/admin/letters/new", method="sendMessage", params="{broken")
            assert page.status == 422
            assert "{broken" in page.form("/admin/letters/new").fields["params"], "nothing that was typed is lost"
            page = await browser.submit(page, "/admin/letters/new", params='{"chat_id": 9, "text": "json"}')
            assert await ended(home, int(page.url.rpartition("/")[2])) is State.COMPLETED

    visit(tmp_path, story)


def test_a_viewer_sees_no_buttons_and_nobody_sees_the_letters_of_other_bots(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        other_bot = 77777
        await home.peik.outbox.service.save_bot(Token(f"{other_bot}:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"))
        waiting = await accept(home, send_at_ms=1 << 42, bot_id=BOT)
        hidden = await accept(home, send_at_ms=1 << 42, bot_id=other_bot, text="not for you")
        async with home.visitor("read", bot_ids=frozenset({BOT})) as browser:
            page = await browser.get("/admin/letters")
            assert f"/admin/letters/{waiting}" in page.links
            assert "not for you" not in page.text
            assert "/admin/letters/new" not in page.links
            assert not page.has_form("/admin/letters/bulk")
            page = await browser.get(f"/admin/letters/{waiting}")
            assert not [form for form in page.forms if "/admin/letters/" in form.action]
            assert (await browser.get(f"/admin/letters/{hidden}")).status == 404
            assert (await browser.get(f"/admin/letters?bot_id={other_bot}")).status in (403, 404)
            assert (await browser.get("/admin/letters/new")).status == 403
            assert (await browser.get("/admin/letters/999999999")).status == 404

    visit(tmp_path, story)
