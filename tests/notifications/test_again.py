"""What was accepted stays accepted: a repeat is answered with it whatever has changed since, and nobody is woken by it."""

import asyncio
import datetime
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from peik.core.quiet import Quiet
from peik.errors import BadInput, Conflict, Forbidden, NotFound
from peik.notifications.model import KEYS, NotifyRequest
from peik.notifications.queue import Packing
from tests.notifications.test_stores import Outbox, Parts, shown
from tests.storage.places import BOT, SqlitePlace

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


class Told:
    """Parts with somebody who is linked, and the hours of his day."""

    def __init__(self, parts: Parts, place: SqlitePlace, outbox: Outbox) -> None:
        self.parts, self.clock, self.outbox = parts, place.clock, outbox

    async def notify(self, message: str, **more: Any) -> str:
        (notice,) = await self.parts.service.notify([request(message, **more)])
        return notice.id

    def quiet(self, start_ms: int, end_ms: int) -> Quiet:
        """From and to so many ms from now."""
        times = [
            datetime.datetime.fromtimestamp((self.clock.now_ms + at) / 1000, datetime.UTC) for at in (start_ms, end_ms)
        ]
        return Quiet(start=f"{times[0]:%H:%M}", end=f"{times[1]:%H:%M}")

    async def link(self, number: int) -> None:
        code = (await self.parts.links.new_code("lena")).code
        await self.parts.redeeming.see(*shown(number, 501, code, self.clock.now_ms))


def request(message: str, **more: Any) -> NotifyRequest:
    return NotifyRequest(**{"user_id": "lena", "type": "task", "title": "Task", "message": message, **more})


def play(folder: Path, story: Callable[[Told], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        place, outbox = SqlitePlace(folder), Outbox()
        async with place.open() as store:
            told = Told(Parts(store, place.clock, outbox), place, outbox)
            await told.link(1)
            await story(told)

    asyncio.run(main())


# ---- repeats under a key ----


def test_a_repeat_is_answered_although_it_would_be_refused_by_now(tmp_path: Path) -> None:
    async def story(told: Told) -> None:
        ends_at_ms = told.clock.now_ms + MINUTE_MS
        late = {"idempotency_key": "late", "expires_at_ms": ends_at_ms}
        first = await told.notify("in time", **late)
        other = await told.notify("plain", idempotency_key="plain")
        told.clock.pass_ms(HOUR_MS)
        assert await told.notify("in time", **late) == first
        with pytest.raises(BadInput):
            await told.notify("in time", **{**late, "idempotency_key": "new"})
        await told.parts.service.templates.save("task", "default", "{title} №{number}")
        assert await told.notify("plain", idempotency_key="plain") == other
        with pytest.raises(Conflict):
            await told.notify("changed", idempotency_key="plain", data={"number": 1})
        await told.parts.links.unlink("lena")
        assert await told.notify("plain", idempotency_key="plain") == other
        with pytest.raises(NotFound):
            await told.notify("plain", idempotency_key="never")
        assert len(told.outbox.parcels) == 2

    play(tmp_path, story)


def test_of_a_batch_only_what_is_new_is_checked_and_the_wrong_one_has_its_number(tmp_path: Path) -> None:
    async def story(told: Told) -> None:
        old = request("old", idempotency_key="old", expires_at_ms=told.clock.now_ms + MINUTE_MS)
        (first,) = await told.parts.service.notify([old])
        told.clock.pass_ms(HOUR_MS)
        new = request("new", idempotency_key="new")
        with pytest.raises(BadInput, match="Notification 2 of the batch"):
            await told.parts.service.notify([old, new, request("", title="")])
        answers = await told.parts.service.notify([new, old, new])
        assert [one.request.message for one in answers] == ["new", "old", "new"]
        assert (answers[1].id, answers[0].id) == (first.id, answers[2].id)
        assert len(told.outbox.parcels) == 2

    play(tmp_path, story)


def test_a_key_of_other_bots_learns_nothing_of_what_was_accepted(tmp_path: Path) -> None:
    async def story(told: Told) -> None:
        await told.notify("secret", idempotency_key="k")
        with pytest.raises(Forbidden):
            await told.notify("secret", idempotency_key="k", bot_ids=frozenset({BOT + 1}))
        with pytest.raises(Forbidden):
            await told.notify("other words", idempotency_key="k", bot_ids=frozenset({BOT + 1}))

    play(tmp_path, story)


def test_keys_go_with_what_they_are_of(tmp_path: Path) -> None:
    async def story(told: Told) -> None:
        await told.notify("old", idempotency_key="k")
        assert await told.parts.documents.count_documents(KEYS) == 2
        told.clock.pass_ms(30 * HOUR_MS)
        await told.parts.releasing._cleaning.look()
        assert await told.parts.documents.count_documents(KEYS) == 0

    play(tmp_path, story)


# ---- quiet hours ----


def test_what_the_rate_puts_off_into_quiet_hours_waits_for_their_end(tmp_path: Path) -> None:
    async def story(told: Told) -> None:
        await told.parts.links.change("lena", quiet=told.quiet(20 * MINUTE_MS, 8 * HOUR_MS))
        for at in range(5):  # the rate of an hour
            await told.notify(f"n{at}")
        held = await told.notify("too much")
        critical = await told.notify("fire", priority=2)
        assert critical in told.outbox.parcels
        told.clock.pass_ms(HOUR_MS + MINUTE_MS)
        await told.parts.releasing.release()
        assert held not in told.outbox.parcels
        told.clock.pass_ms(7 * HOUR_MS)
        await told.parts.releasing.release()
        assert held in told.outbox.parcels

    play(tmp_path, story)


def test_what_is_let_go_late_or_under_new_hours_wakes_nobody(tmp_path: Path) -> None:
    async def story(told: Told) -> None:
        due = told.clock.now_ms + 10 * MINUTE_MS
        late = await told.notify("late", send_at_ms=due, digest_s=0.0)
        critical = await told.notify("fire", send_at_ms=due, priority=2)
        await told.parts.links.change("lena", quiet=told.quiet(HOUR_MS, 3 * HOUR_MS))
        told.clock.pass_ms(2 * HOUR_MS)  # nobody did the chores
        await told.parts.releasing.release()
        assert list(told.outbox.parcels) == [critical]
        told.clock.pass_ms(HOUR_MS + MINUTE_MS)
        await told.parts.releasing.release()
        assert late in told.outbox.parcels
        assert await told.parts.documents.collections("notices-waiting") == []

    play(tmp_path, story)


def test_the_usual_hours_hold_what_is_let_go_late_to_whoever_has_none_of_his_own(tmp_path: Path) -> None:
    async def story(told: Told) -> None:
        usual = Packing(told.parts.documents, rate_max=5, quiet=told.quiet(HOUR_MS, 3 * HOUR_MS))
        told.parts.releasing._packing = usual
        due = told.clock.now_ms + 10 * MINUTE_MS
        await told.notify("late", send_at_ms=due)
        await told.notify("to a chat", user_id=None, chat_id=7, send_at_ms=due)
        told.clock.pass_ms(2 * HOUR_MS)
        await told.parts.releasing.release()
        assert not told.outbox.parcels
        told.clock.pass_ms(HOUR_MS + MINUTE_MS)
        await told.parts.releasing.release()
        assert len(told.outbox.parcels) == 2

    play(tmp_path, story)


# ---- an outbox that is away ----


def test_what_could_not_be_handed_over_has_not_failed_and_is_handed_over_in_ten_seconds(tmp_path: Path) -> None:
    async def story(told: Told) -> None:
        told.outbox.is_away = True
        await told.notify("in a moment")
        told.outbox.is_away = False
        releasing = Parts(told.parts, told.clock, told.outbox).releasing  # of another life
        await releasing._surely()
        assert not told.outbox.parcels, "whoever packed it may still be at it"
        assert 9.0 < releasing._due_at - told.clock.mono() < 10.1
        told.clock.pass_ms(10_100)
        await releasing._surely()
        (view,) = await told.parts.service.recent(limit=5)
        assert (view.notice.failed_reason, len(view.notice.letter_ids), len(told.outbox.parcels)) == (None, 1, 1)

    play(tmp_path, story)
