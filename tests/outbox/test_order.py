"""Who goes before whom: lanes, priorities, schedules, and backlogs larger than memory."""

import asyncio

from peik.core.letter import Priority, State
from peik.testing import Options
from tests.outbox.story import BOT, Stage, call, play


def texts(chat_ids: range, per_chat: int) -> list[tuple[int, str]]:
    return [(chat_id, f"{chat_id}:{number}") for number in range(per_chat) for chat_id in chat_ids]


def test_lanes_keep_their_order_through_losses_refusals_and_floods() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("lose_before", method="sendMessage", probability=0.05)
        stage.telegram.faults.add("lose_after", method="sendMessage", probability=0.05)
        stage.telegram.faults.add("flood", retry_after=2, method="sendMessage", probability=0.02)
        stage.telegram.faults.add("error", status=400, words="Bad Request: Group send failed", probability=0.02)
        wanted = texts(range(1, 31), 20)
        ids = await stage.accept_all([call(params={"chat_id": chat, "text": text}) for chat, text in wanted])
        await stage.quiet()
        repeats = 0
        for chat in range(1, 31):
            first_seen = list(dict.fromkeys(stage.texts(chat)))
            assert first_seen == [f"{chat}:{number}" for number in range(20)]
            repeats += len(stage.texts(chat)) - 20
        letters = [await stage.letter(letter_id) for letter_id in ids]
        assert repeats <= sum(letter.uncertain_tries for letter in letters)

    play(story)


def test_a_higher_priority_overtakes_within_its_lane_even_one_that_backs_off() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=400, words="Bad Request: Group send failed", count=1)
        await stage.text(5, "backs off")
        await stage.text(5, "behind it")
        await asyncio.sleep(0.5)
        urgent = await stage.ended(await stage.text(5, "urgent", priority=Priority.HIGH))
        assert urgent.state is State.COMPLETED
        await stage.quiet()
        assert stage.texts(5) == ["urgent", "backs off", "behind it"]

    play(story)


def test_a_letter_that_people_wait_for_is_not_delayed_by_a_broadcast() -> None:
    async def story(stage: Stage) -> None:
        bulk = [call(params={"chat_id": 1000 + n, "text": "news"}, priority=Priority.BULK) for n in range(3000)]
        await stage.accept_all(bulk)
        await asyncio.sleep(5)
        begun = stage.clock.mono()
        await stage.ended(await stage.text(5, "reply", priority=Priority.HIGH))
        assert stage.clock.mono() - begun < 1
        await stage.quiet()
        assert stage.telegram.sent.total == 3001

    play(story)


def test_bulk_goes_on_while_normal_letters_keep_coming() -> None:
    async def story(stage: Stage) -> None:
        await stage.accept_all([call(params={"chat_id": 9, "text": "bulk"}, priority=Priority.BULK)])
        normal = [call(params={"chat_id": 1000 + n, "text": "normal"}) for n in range(2000)]
        await stage.accept_all(normal)
        await asyncio.sleep(20)
        assert stage.texts(9) == ["bulk"]

    play(story)


def test_threads_of_a_chat_are_lanes_of_their_own_and_share_its_pace() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=400, words="Bad Request: Group send failed", count=1)
        params = {"chat_id": -1009, "message_thread_id": 2, "text": "stuck"}
        stuck = await stage.accept(params=params)
        await asyncio.sleep(0.2)
        free = await stage.ended(await stage.accept(params={**params, "message_thread_id": 3, "text": "free"}))
        assert free.state is State.COMPLETED
        assert (await stage.letter(stuck)).state is State.DELAYED
        await stage.ended(stuck)
        assert stage.texts(-1009) == ["free", "stuck"]

    play(story)


def test_scheduled_letters_join_their_lane_when_they_are_due() -> None:
    async def story(stage: Stage) -> None:
        due_ms = stage.clock.wall_ms() + 3600_000
        later = await stage.text(5, "in an hour", send_at_ms=due_ms)
        assert (await stage.letter(later)).state is State.DELAYED
        await stage.ended(await stage.text(5, "now"))
        letter = await stage.ended(later)
        assert (letter.settled_at_ms or 0) >= due_ms
        assert (letter.settled_at_ms or 0) < due_ms + 2000
        assert stage.texts(5) == ["now", "in an hour"]

    play(story)


def test_a_letter_whose_time_is_over_is_not_sent_although_nobody_has_ended_it_yet() -> None:
    async def story(stage: Stage) -> None:
        stage.peik.outbox.timekeeper.stop()
        stage.telegram.faults.add("flood", retry_after=120, chat=5, count=1)
        await stage.text(5, "held")
        late = await stage.text(5, "late", expires_at_ms=stage.clock.wall_ms() + 60_000)
        letter = await stage.ended(late)
        assert (letter.state, letter.failed_reason) == (State.FAILED, "expired")
        await stage.quiet()
        assert stage.texts(5) == ["held"]

    play(story)


def test_a_letter_that_is_too_late_expires_even_behind_a_held_one() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("flood", retry_after=7200, chat=5, count=1)
        first = await stage.text(5, "held")
        late = await stage.text(5, "late", expires_at_ms=stage.clock.wall_ms() + 60_000)
        begun = stage.clock.mono()
        letter = await stage.ended(late)
        assert (letter.state, letter.failed_reason) == (State.FAILED, "expired")
        assert stage.clock.mono() - begun < 65
        await stage.ended(first)
        assert stage.texts(5) == ["held"]

    play(story)


def test_a_backlog_larger_than_memory_comes_out_whole_and_in_order() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.dark(True)
        wanted = texts(range(1, 1201), 2) + [(7, f"deep{number}") for number in range(300)]
        for start in range(0, len(wanted), 500):
            part = wanted[start : start + 500]
            await stage.accept_all([call(params={"chat_id": chat, "text": text}) for chat, text in part])
        await asyncio.sleep(60)
        stage.telegram.dark(False)
        await stage.quiet()
        assert stage.telegram.sent.total == len(wanted)
        assert stage.texts(7) == ["7:0", "7:1"] + [f"deep{number}" for number in range(300)]
        assert all(stage.texts(chat) == [f"{chat}:0", f"{chat}:1"] for chat in range(8, 1201))

    play(story, options=Options(), pace="off")


def test_one_group_with_a_deep_backlog_does_not_delay_other_chats() -> None:
    async def story(stage: Stage) -> None:
        await stage.accept_all([call(params={"chat_id": -1001, "text": f"g{n}"}) for n in range(2000)])
        await asyncio.sleep(120)
        begun = stage.clock.mono()
        for chat in range(100, 120):
            assert (await stage.ended(await stage.text(chat, "quick"))).state is State.COMPLETED
        assert stage.clock.mono() - begun < 10
        tally = (await stage.peik.outbox.service.tallies())[BOT]
        assert tally.waiting > 1900

    play(story)


def test_the_pace_keeps_telegram_from_answering_429() -> None:
    async def story(stage: Stage) -> None:
        wanted = texts(range(1, 101), 3) + texts(range(-1010, -1000), 25)
        await stage.accept_all([call(params={"chat_id": chat, "text": text}) for chat, text in wanted])
        await stage.quiet()
        assert stage.telegram.sent.total == len(wanted)
        assert stage.telegram.counters.limited == 0

    play(story)
