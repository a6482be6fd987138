"""Recurring work of a whole Peik in virtual time: production code, SQLite, the simulated Telegram."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from peik.core.events import StoreFailed
from peik.core.pace import PaceLimits
from peik.errors import BadInput, Conflict, NotFound
from peik.schedules.model import (
    BroadcastWork,
    JobWork,
    LetterWork,
    MissedRuns,
    OverlapPolicy,
    Schedule,
    ScheduleMissed,
    ScheduleRan,
    ScheduleRunState,
    ScheduleState,
    Terms,
)
from peik.schedules.service import ScheduleService
from tests.outbox.story import BOT, Stage, play, play_closed

HOUR_S, DAY_S = 3600.0, 86_400.0
CHAT = 42
DONE, MISSED, SKIPPED, REFUSED = (
    ScheduleRunState.DONE,
    ScheduleRunState.MISSED,
    ScheduleRunState.SKIPPED,
    ScheduleRunState.REFUSED,
)


def letter(text: str = "at %{time}", cron: str = "0 * * * *", **more: Any) -> Terms:
    return Terms(cron=cron, letter=LetterWork(params={"chat_id": CHAT, "text": text}), bot_id=BOT, **more)


def service(stage: Stage) -> ScheduleService:
    return stage.peik.schedules.service


async def put(stage: Stage, terms: Terms, name: str = "one") -> Schedule:
    return (await service(stage).put(name, terms, by="Sara"))[0]


async def past(stage: Stage, seconds: float) -> None:
    """So long, and a little more: what is due at its end is done."""
    await asyncio.sleep(seconds + 30)
    await stage.quiet()


async def runs(stage: Stage, name: str = "one") -> list[tuple[ScheduleRunState, int]]:
    """The oldest first, with how many each stands for."""
    return [(run.state, run.count) for run in reversed(await service(stage).runs(name))]


def hours(stage: Stage, count: int, *, after_ms: int) -> list[str]:
    begins = datetime.fromtimestamp(after_ms / 1000, UTC).replace(minute=0, second=0, microsecond=0)
    return [f"at {begins + timedelta(hours=number + 1):%H:%M}" for number in range(count)]


def test_a_letter_goes_out_at_each_due_time() -> None:
    async def story(stage: Stage) -> None:
        made = await put(stage, letter())
        await past(stage, 3 * HOUR_S)
        assert stage.texts(CHAT) == hours(stage, 3, after_ms=made.created_at_ms)
        assert await runs(stage) == [(DONE, 1)] * 3
        found = await service(stage).get("one")
        assert (found.fired, found.last_state, found.firing) == (3, DONE, None)
        (first, *_) = stage.events_of(ScheduleRan)
        view = await stage.letter(int(first.made))
        assert view.created_at_ms - first.due_at_ms < 2000, "on time"
        assert not stage.events_of(ScheduleMissed)

    play(story)


def test_it_ends_by_its_count() -> None:
    async def story(stage: Stage) -> None:
        await put(stage, letter(runs_max=2))
        await past(stage, 5 * HOUR_S)
        assert len(stage.texts(CHAT)) == 2
        assert (await service(stage).get("one")).state is ScheduleState.ENDED
        with pytest.raises(Conflict, match="has ended"):
            await service(stage).resume("one")
        # Somebody edits it: it begins anew with what comes.
        await put(stage, letter(runs_max=3))
        await past(stage, 5 * HOUR_S)
        assert len(stage.texts(CHAT)) == 3

    play(story)


@pytest.mark.parametrize(
    ("missed", "sent", "told"),
    [
        (MissedRuns.ONCE, ["at 05:00"], [(MISSED, 4), (DONE, 1)]),
        (MissedRuns.SKIP, [], [(MISSED, 5)]),
        (MissedRuns.ALL, [f"at {hour:02}:00" for hour in range(1, 6)], [(DONE, 1)] * 5),
    ],
)
def test_what_peik_was_not_there_for(
    missed: MissedRuns, sent: list[str], told: list[tuple[ScheduleRunState, int]]
) -> None:
    async def story(stage: Stage) -> None:
        await to_midnight(stage)
        async with stage.open():
            await put(stage, letter(missed=missed))
        await asyncio.sleep(5 * HOUR_S + 1800)
        async with stage.open():
            await past(stage, 60)
            assert stage.texts(CHAT) == sent
            assert await runs(stage) == told
            (missing, *others) = stage.events_of(ScheduleMissed)
            assert missing.caught_up + missing.count >= 1
            assert sum(one.count for one in (missing, *others)) == sum(
                count for state, count in told if state is MISSED
            )
            await past(stage, 3600)
            assert len(stage.texts(CHAT)) == len(sent) + 1, "it goes on"

    play_closed(story)


async def to_midnight(stage: Stage) -> None:
    await asyncio.sleep(-(stage.clock.wall_ms() / 1000) % DAY_S)


def test_a_restart_misses_nothing() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            made = await put(stage, letter(missed=MissedRuns.SKIP))
        first = next(iter(service(stage).upcoming(made, 1)))
        await asyncio.sleep((first - stage.clock.wall_ms()) / 1000 + 200)
        async with stage.open():
            await past(stage, 10)
            assert len(stage.texts(CHAT)) == 1
            assert not stage.events_of(ScheduleMissed)

    play_closed(story)


def test_what_would_have_expired_is_told_and_not_sent() -> None:
    async def story(stage: Stage) -> None:
        await to_midnight(stage)
        async with stage.open():
            work = LetterWork(params={"chat_id": CHAT, "text": "now"}, expires_in_s=600)
            await put(stage, Terms(cron="@hourly", letter=work, bot_id=BOT))
        await asyncio.sleep(2 * HOUR_S + 1800)
        async with stage.open():
            await past(stage, 10)
            assert [state for state, _ in await runs(stage)] == [MISSED, MISSED]
            assert [one.caught_up for one in stage.events_of(ScheduleMissed)] == [0]

    play_closed(story)


def test_pause_resume_and_run_now() -> None:
    async def story(stage: Stage) -> None:
        await put(stage, letter("%{run}"))
        await service(stage).pause("one")
        await past(stage, 3 * HOUR_S)
        assert stage.texts(CHAT) == []
        run = await service(stage).run_now("one", by="Sara")
        assert (run.state, run.by) == (DONE, "Sara")
        await stage.quiet()
        assert len(stage.texts(CHAT)) == 1
        await service(stage).resume("one")
        await past(stage, HOUR_S)
        assert len(stage.texts(CHAT)) == 2, "what was due in the pause was not missed"
        assert not stage.events_of(ScheduleMissed)
        assert (await service(stage).get("one")).fired == 1

    play(story)


def test_an_edit_counts_from_now_on_and_keeps_how_it_was() -> None:
    async def story(stage: Stage) -> None:
        await put(stage, letter("before"))
        await past(stage, HOUR_S)
        changed = await put(stage, letter("after", cron="*/30 * * * *"))
        assert changed.revision == 2
        assert (await put(stage, letter("after", cron="*/30 * * * *"))).revision == 2, "nothing was changed"
        await past(stage, HOUR_S)
        assert stage.texts(CHAT) == ["before", "after", "after"]
        (edit,) = await service(stage).edits("one")
        assert edit.terms.letter is not None
        assert (edit.revision, edit.by, edit.terms.letter.params["text"]) == (1, "Sara", "before")

    play(story)


def test_a_broadcast_that_still_goes_on_is_not_begun_again() -> None:
    async def story(stage: Stage) -> None:
        await to_midnight(stage)
        await stage.peik.outbox.service.change_bot(BOT, limits=PaceLimits(bulk_per_s=1.0))
        work = BroadcastWork(params={"text": "to all"}, chat_ids=list(range(1, 151)))  # two minutes and a half
        await put(stage, Terms(cron="* * * * *", broadcast=work, bot_id=BOT, runs_max=2))
        await asyncio.sleep(400)
        assert [state for state, _ in await runs(stage)][:4] == [DONE, SKIPPED, SKIPPED, DONE]
        made = await stage.peik.broadcasts.service.find()
        assert [one.counts.delivered for one in made] == [150, 150]

    play(story)


def test_a_job_that_still_goes_on_is_passed_over_unless_that_is_wanted() -> None:
    async def story(stage: Stage) -> None:
        for name, overlap in (("one", OverlapPolicy.SKIP), ("two", OverlapPolicy.ALLOW)):
            work = JobWork(kind="report", params={"day": "%{date-1}"})
            await put(stage, Terms(cron="@hourly", job=work, overlap=overlap), name)
        await asyncio.sleep(3 * HOUR_S + 30)
        assert await runs(stage, "one") == [(DONE, 1), (SKIPPED, 1), (SKIPPED, 1)]
        assert await runs(stage, "two") == [(DONE, 1)] * 3
        (first,) = [run.made for run in await service(stage).runs("one") if run.made]
        await stage.peik.jobs.service.cancel(int(first))
        await asyncio.sleep(HOUR_S)
        assert (await runs(stage, "one"))[-1] == (DONE, 1)

    play(story)


def test_what_cannot_be_made_is_told_with_its_reason() -> None:
    async def story(stage: Stage) -> None:
        await put(stage, letter())
        await stage.peik.outbox.service.remove_bot(BOT)
        await asyncio.sleep(HOUR_S)
        assert await runs(stage) == [(REFUSED, 1)]
        (refused,) = stage.events_of(ScheduleRan)
        assert (refused.schedule, refused.state) == ("one", REFUSED)
        assert str(BOT) in refused.reason
        assert (await service(stage).get("one")).state is ScheduleState.ACTIVE, "the next one may go well"

    play(story)


def test_a_store_that_is_away_delays_a_run_and_loses_none() -> None:
    async def story(stage: Stage) -> None:
        stage.refuse("accept", 0)
        async with stage.open():
            made = await put(stage, letter())
            stage.refuse("accept", 5)
            await past(stage, 2 * HOUR_S)
            assert stage.texts(CHAT) == hours(stage, 2, after_ms=made.created_at_ms)
            assert await runs(stage) == [(DONE, 1)] * 2
            assert stage.events_of(StoreFailed)

    play_closed(story)


def test_a_clock_that_jumps_ahead_is_not_believed_at_once() -> None:
    async def story(stage: Stage) -> None:
        await put(stage, letter(cron="0 0 * * *", missed=MissedRuns.ALL))
        stage.clock.wall_offset_s += 7 * DAY_S
        await past(stage, 600)
        assert stage.texts(CHAT) == [], "nothing of a week that has not been"
        stage.clock.wall_offset_s -= 7 * DAY_S
        await past(stage, DAY_S)
        assert len(stage.texts(CHAT)) == 1

    play(story)


def test_a_clock_that_was_wrong_at_the_start_and_is_set_back_loses_and_doubles_nothing() -> None:
    async def story(stage: Stage) -> None:
        await to_midnight(stage)
        async with stage.open():
            await put(stage, letter("%{date}", cron="0 1 * * *", missed=MissedRuns.ONCE))
        stage.clock.wall_offset_s += 3 * DAY_S
        async with stage.open():  # it catches up with what has not been yet
            await past(stage, 2 * HOUR_S)
            assert len(stage.texts(CHAT)) == 2
            stage.clock.wall_offset_s -= 3 * DAY_S
            await past(stage, 5 * DAY_S)
            sent = sorted(datetime.fromisoformat(text).toordinal() for text in stage.texts(CHAT))
            assert len(sent) == 5, "what was passed over came at its time, and what was sent did not come again"
            assert sent == list(range(sent[0], sent[0] + 5))

    play_closed(story)


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        (letter(cron="61 * * * *"), "bad_cron"),
        (letter(tz="Mars/Base"), "unknown_zone"),
        (letter("%{nothing}"), "unknown_place"),
        (letter(runs_max=0), "bad_runs_max"),
        (letter(ends_at_ms=1), "never_due"),
        (letter(starts_at_ms=9_000_000_000_000, ends_at_ms=8_000_000_000_000), "bad_ends_at"),
        (Terms(cron="@daily", bot_id=BOT), "bad_schedule"),
        (Terms(cron="@daily", bot_id=BOT, letter=LetterWork(params={"text": "x"})), "missing_chat_id"),
        (Terms(cron="@daily", bot_id=BOT, letter=LetterWork(method="getMe")), "not_queueable"),
        (Terms(cron="@daily", bot_id=BOT, broadcast=BroadcastWork(params={"text": "x"}, chat_ids=[])), "no_recipients"),
        (
            Terms(cron="@daily", bot_id=BOT, broadcast=BroadcastWork(params={"text": "{first_nam}"})),
            "unknown_placeholder",
        ),
        (Terms(cron="@daily", job=JobWork(kind="no kind")), "bad_kind"),
    ],
)
def test_what_could_never_run_is_refused_when_it_is_made(terms: Terms, code: str) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises((BadInput, NotFound)) as problem:
            await put(stage, terms)
        assert problem.value.code == code
        assert await service(stage).find() == ([], None)

    play(story)


def test_a_deleted_one_is_gone_and_its_name_is_free() -> None:
    async def story(stage: Stage) -> None:
        await put(stage, letter("first"))
        await past(stage, HOUR_S)
        await service(stage).delete("one")
        with pytest.raises(NotFound):
            await service(stage).get("one")
        await past(stage, 2 * HOUR_S)
        assert len(stage.texts(CHAT)) == 1
        await put(stage, letter("second"))
        assert await runs(stage) == []
        await past(stage, HOUR_S)
        assert stage.texts(CHAT) == ["first", "second"]

    play(story)
