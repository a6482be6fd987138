"""Webhooks in virtual time: every end of a letter is told, patiently, and one deaf receiver costs the others nothing."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from peik.core import events
from peik.core.letter import LetterCall
from peik.outbox.hooks import Hooks
from peik.outbox.store import HooksDue, HookStore
from tests.outbox.receivers import HANGS, Heard, Receivers, verified
from tests.outbox.story import BOT, Stage, call, play_closed

Story = Callable[[Stage, Receivers], Coroutine[Any, Any, None]]
URL = "https://shop.example/hook"
DAY = 86_400


def tell(story: Story, answer: Callable[[Heard], int] = lambda heard: 200, **settings: str) -> None:
    async def main(stage: Stage) -> None:
        stage.poster = receivers = Receivers(stage.clock, answer)
        async with stage.open():
            await story(stage, receivers)
        assert not stage.events_of(events.Surprise)

    play_closed(main, pace="off", **settings)


async def told(stage: Stage, kind: type[events.Event], count: int, timeout_s: float = 4 * DAY) -> list[Any]:
    """The events of a kind, once there are so many."""
    more = asyncio.Event()
    stage.peik.events.listen(lambda heard: more.set())
    async with asyncio.timeout(timeout_s):
        while len(stage.events_of(kind)) < count:
            more.clear()
            await more.wait()
    return stage.events_of(kind)


def test_an_end_is_told_once_with_the_letter_signed_and_soon() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        letter_id = await stage.text(5, "hello", hook=URL, metadata={"order": 7})
        await stage.ended(letter_id)
        began_at = stage.clock.mono()
        await told(stage, events.HookTold, 1)
        await asyncio.sleep(DAY)
        (heard,) = receivers.heard
        assert heard.at_s - began_at < 0.1
        secret = await stage.peik.outbox.hooks.own_secret()
        message = verified(
            secret, heard.headers, heard.body, now_s=heard.at_s + stage.clock.wall_s() - stage.clock.mono()
        )
        assert message["type"] == "letter.completed"
        data = message["data"]
        assert (data["id"], data["state"], data["bot_id"]) == (str(letter_id), "completed", str(BOT))
        assert (data["result"]["text"], data["metadata"]) == ("hello", {"order": 7})
        assert data["finished_at"] == message["timestamp"]

    tell(story)


def test_failed_and_cancelled_letters_are_told_too_and_others_are_not() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        failed = await stage.accept(params={"chat_id": 5, "text": "<b", "parse_mode": "HTML"}, hook=URL)
        cancelled = await stage.text(6, "later", send_at_ms=stage.clock.wall_ms() + DAY * 1000, hook=URL)
        await stage.text(7, "nobody wants to know")
        await stage.ended(failed)
        await stage.peik.outbox.service.cancel(cancelled)
        await told(stage, events.HookTold, 2)
        await asyncio.sleep(DAY)
        types = {one.letter_id: one.message["type"] for one in receivers.heard}
        assert types == {failed: "letter.failed", cancelled: "letter.cancelled"}
        assert len(receivers.heard) == 2

    tell(story)


def test_tries_follow_the_schedule_with_the_same_id_and_body_and_a_fresh_signature_until_three_days_are_over() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        await stage.ended(await stage.text(5, "hello", hook=URL))
        (dropped,) = await told(stage, events.HookDropped, 1)
        assert dropped.tries == len(receivers.heard) == 13
        gaps = [later.at_s - sooner.at_s for sooner, later in zip(receivers.heard, receivers.heard[1:], strict=False)]
        assert gaps == pytest.approx([5, 30, 120, 600, 3600, 10_800, *[36_000] * 6], abs=0.2)
        assert len({(one.id, one.body) for one in receivers.heard}) == 1
        assert len({one.headers["webhook-signature"] for one in receivers.heard}) == 13
        await asyncio.sleep(DAY)
        assert len(receivers.heard) == 13

    tell(story, lambda heard: 500)


@pytest.mark.parametrize("answer", [HANGS, 302, 404, 503])
def test_a_receiver_that_comes_back_is_told_at_the_next_try(answer: int) -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        await stage.ended(await stage.text(5, "hello", hook=URL))
        await told(stage, events.HookFailed, 3)
        receivers.answer = lambda heard: 204
        await told(stage, events.HookTold, 1)
        await asyncio.sleep(DAY)
        assert len(receivers.heard) == 4

    tell(story, lambda heard: answer)


def test_a_clock_set_a_month_ahead_gives_nobody_up_and_set_back_again_holds_nobody_up() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        await stage.ended(await stage.text(5, "hello", hook=URL))
        await told(stage, events.HookFailed, 2)
        stage.clock.wall_offset_s += 31 * DAY
        await told(stage, events.HookFailed, 4)
        assert not stage.events_of(events.HookDropped)
        stage.clock.wall_offset_s -= 31 * DAY
        receivers.answer = lambda heard: 204
        await told(stage, events.HookTold, 1, timeout_s=3600)

    tell(story, lambda heard: 500)


def test_410_stops_at_once() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        await stage.ended(await stage.text(5, "hello", hook=URL))
        (dropped,) = await told(stage, events.HookDropped, 1)
        assert dropped.why == "it answered 410"
        await asyncio.sleep(4 * DAY)
        assert len(receivers.heard) == 1

    tell(story, lambda heard: 410)


def test_what_a_message_says_does_not_change_when_the_letter_does() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        letter_id = await stage.accept(params={"chat_id": 5, "text": "<b", "parse_mode": "HTML"}, hook=URL)
        await stage.ended(letter_id)
        await told(stage, events.HookFailed, 1)
        await stage.peik.outbox.service.retry(letter_id)
        await stage.ended(letter_id)
        receivers.answer = lambda heard: 200
        await told(stage, events.HookTold, 2)
        by_id = {one.id: one.message["data"]["history"] for one in receivers.heard}
        assert len(by_id) == 2  # each end is a message of its own
        first, second = by_id.values()
        assert len(first) < len(second)

    tell(story, lambda heard: 500)


def test_a_deaf_receiver_with_a_long_queue_delays_nobody_else() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        await stage.accept_all([_call(chat, "https://deaf.example/x") for chat in range(1, 401)])
        await stage.quiet()
        await asyncio.sleep(60)  # it is known to be deaf by now, and all its letters wait
        for number in range(20):
            began_at = stage.clock.mono()
            await stage.ended(await stage.text(5000 + number, "hello", hook="https://well.example/x"))
            await told(stage, events.HookTold, number + 1)
            assert stage.clock.mono() - began_at < 1.0
            await asyncio.sleep(7)
        assert receivers.at_once_max["deaf.example"] == 1

    tell(story, lambda heard: HANGS if "deaf" in heard.url else 200)


def test_two_hundred_deaf_receivers_do_not_keep_one_that_answers_waiting() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        await stage.ended(await stage.text(1, "first", hook="https://well.example/x"))
        await told(stage, events.HookTold, 1)
        calls = [_call(chat, f"https://deaf{chat % 200}.example/x") for chat in range(2, 1002)]
        await stage.accept_all(calls)
        await stage.quiet()
        for number in range(10):
            began_at = stage.clock.mono()
            await stage.ended(await stage.text(5000 + number, "hello", hook="https://well.example/x"))
            await told(stage, events.HookTold, number + 2)
            assert stage.clock.mono() - began_at < 1.0
            await asyncio.sleep(20)
        assert sum(receivers.at_once.values()) <= 32

    tell(story, lambda heard: HANGS if "deaf" in heard.url else 200)


def test_thousands_of_messages_are_told_once_each_in_parallel_within_the_bounds() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        await stage.accept_all([_call(n, f"https://host{min(n % 40, 12)}.example/x") for n in range(1, 2401)])
        await told(stage, events.HookTold, 2400, timeout_s=600)
        assert set(Counter(one.letter_id for one in receivers.heard).values()) == {1}
        assert max(receivers.at_once_max.values()) == 8
        assert receivers.all_at_once_max <= 64
        await asyncio.sleep(DAY)
        assert len(receivers.heard) == 2400

    tell(story)


def test_what_was_on_its_way_when_peik_died_is_told_by_the_next_one() -> None:
    async def main(stage: Stage) -> None:
        stage.poster = receivers = Receivers(stage.clock, lambda heard: HANGS)
        async with stage.open():
            letter_id = await stage.text(5, "hello", hook=URL)
            await stage.ended(letter_id)
            await receivers.came.wait()
        receivers.answer = lambda heard: 200
        async with stage.open():
            await told(stage, events.HookTold, 1)
        first, second = receivers.heard
        assert (first.id, first.letter_id) == (second.id, second.letter_id) == (first.id, letter_id)

    play_closed(main)


def test_a_message_on_its_way_when_peik_ends_gets_a_moment_to_come_back() -> None:
    async def main(stage: Stage) -> None:
        stage.poster = receivers = Receivers(stage.clock)
        async with stage.open():
            await stage.ended(await stage.text(5, "hello", hook=URL))
            await receivers.came.wait()
        async with stage.open():
            await asyncio.sleep(DAY)
        assert len(receivers.heard) == 1

    play_closed(main)


def test_a_letter_that_is_gone_is_still_told_as_it_was() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        letter_id = await stage.text(5, "hello", hook=URL)
        await stage.ended(letter_id)
        await told(stage, events.HookFailed, 5)
        assert await stage.peik.store.letter(letter_id) is None
        receivers.answer = lambda heard: 200
        await told(stage, events.HookTold, 1)
        assert receivers.heard[-1].message["data"]["params"] == {"chat_id": 5, "text": "hello"}

    tell(story, lambda heard: 500, keep_completed="1s")


class LateStore:
    """A store whose reader is slow: what it shows was true half a second ago."""

    def __init__(self, store: HookStore) -> None:
        self._store = store
        self.hook_content = store.hook_content
        self.settle_hooks = store.settle_hooks
        self.secret = store.secret

    async def hooks_due(self, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue:
        page = await self._store.hooks_due(at_ms=at_ms, after=after, endpoints=endpoints, each=each)
        await asyncio.sleep(0.5)
        return page


def test_what_was_told_while_the_store_was_being_read_is_not_told_again() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        runtime = stage.peik
        runtime.outbox.hooks.stop()
        hooks = Hooks(
            store=LateStore(runtime.store),
            poster=receivers,
            clock=stage.clock,
            settled=stage.clock,
            events=runtime.events,
        )
        async with asyncio.TaskGroup() as group:
            hooks.start(group)
            await stage.accept_all([_call(n, URL) for n in range(1, 301)])
            await told(stage, events.HookTold, 300)
            hooks.stop()
        assert set(Counter(one.letter_id for one in receivers.heard).values()) == {1}

    tell(story)


def test_a_try_that_failed_while_the_store_was_being_read_is_repeated_in_time() -> None:
    async def story(stage: Stage, receivers: Receivers) -> None:
        runtime = stage.peik
        runtime.outbox.hooks.stop()
        hooks = Hooks(
            store=LateStore(runtime.store),
            poster=receivers,
            clock=stage.clock,
            settled=stage.clock,
            events=runtime.events,
        )
        async with asyncio.TaskGroup() as group:
            hooks.start(group)
            await stage.text(5, "hello", hook=URL)
            await receivers.came.wait()
            hooks.look()  # it begins to read before the failure is stored, and ends after
            await told(stage, events.HookFailed, 2)
            hooks.stop()
        first, second = receivers.heard
        assert second.at_s - first.at_s < 7

    tell(story, lambda heard: 500)


def _call(chat: int, url: str) -> LetterCall:
    return call(params={"chat_id": chat, "text": "hello"}, hook=url)
