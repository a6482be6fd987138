"""Alerts to the people who run Peik: once per matter, with what to do, and never in anybody's way."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from peik.accounts import events as session_events
from peik.alerts.rules import RULES, AlertWords, ErrorSeen, Noticed
from peik.alerts.service import AlertService
from peik.alerts.ways import QUEUE_MAX
from peik.broadcasts import model as broadcast_events
from peik.core import events
from peik.core.events import ConsumerExpired, UnreadDropped, UnreadNearEnd
from peik.core.letter import State
from peik.errors import BadInput, StoreUnavailable
from peik.inbox.store import ArrivalFilter
from peik.jobs import events as job_events
from peik.jobs.model import JobEnd
from peik.schedules.model import ScheduleMissed, ScheduleRan
from peik.testing.virtual import VirtualClock, run_virtual
from tests.inbox.test_outages import begin, fetch
from tests.outbox.story import BOT, TOKEN, Stage, play

ADMIN = 99


class Desk:
    """Where alerts are handed in."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.keys: set[str] = set()
        self.failures: list[Exception] = []

    async def send(self, chat: str, text: str, idempotency_key: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append((chat, text))
        self.keys.add(idempotency_key)


def listening(
    story: Callable[[AlertService, Desk], Coroutine[Any, Any, None]],
    *,
    chats: tuple[str, ...] = ("1",),
    off: tuple[str, ...] = (),
) -> None:
    async def main(clock: VirtualClock) -> None:
        service = Desk()
        alerts = AlertService(chats=chats, clock=clock, send=service.send, off=off)
        running = asyncio.create_task(alerts.run())
        await story(alerts, service)
        running.cancel()

    run_virtual(main)


def dead(number: int) -> events.ArrivalSettled:
    return events.ArrivalSettled(
        bot_id=5, consumer="default", arrival_id=number, number=number, kind="message", state=State.FAILED, tries=5,
        reason="KeyError",
    )  # fmt: skip


_EXAMPLES: list[tuple[events.Event, str]] = [
    (events.OfflineTooLong(bot_id=5, away_s=90_000, expired=None), "offline for 25 hours.*cannot be known"),
    (events.OfflineTooLong(bot_id=5, away_s=90_000, expired=7), "It dropped 7"),
    (events.InboxNearExpiry(bot_id=5, percent_left=25, expires_at_ms=0), "25 % is left.*1970-01-01 00:00 UTC"),
    (events.UpdatesExpired(bot_id=5, count=3), "dropped 3 updates"),
    (events.Intruder(bot_id=5, kind="poller", detail="409"), "Another program polls.*409"),
    (events.ConsumerExpired(bot_id=5, consumer="stats"), "consumer stats was not used"),
    (events.UnreadNearEnd(bot_id=5, consumer="x", oldest_at_ms=0, ends_at_ms=0), "raise PEIK_KEEP_UNREAD"),
    (events.UnreadDropped(bot_id=5, count=9), "9 updates that nobody had read"),
    (events.BotPaused(bot_id=5, reason="Unauthorized."), "bot 5 is paused.*Unauthorized"),
    (
        session_events.SessionRevoked(bot_id=5, session_id="s1", why="AUTH_KEY_UNREGISTERED"),
        r"ended session s1 \(account 5\): AUTH_KEY_UNREGISTERED.*Sign in again",
    ),
    (
        session_events.SessionUnfit(session_id="s1", why="Its key cannot be opened."),
        "session s1 cannot run.*key cannot",
    ),
    (session_events.SessionFlooded(bot_id=5, session_id="s1", wait_s=7200.0), "session s1 .*wait for 2 hours"),
    (job_events.FolderLeft(job_id=7, why="Permission denied", tries=10), "folder of job 7 .* Permission denied"),
]

_MORE: list[tuple[events.Event, str]] = [
    (events.LeasesLost(lost=3, held=1), "lost 3 leases"),
    (
        events.ClockJumped(ahead_s=31 * 86_400.0, settles_s=3600.0),
        "744 hours ahead .* until it has held for 60 minutes",
    ),
    (
        events.HookDropped(letter_id=7, endpoint="https://shop.example", tries=9, why="410"),
        "shop.example will not hear.* 7",
    ),
    (
        broadcast_events.BroadcastMoved(broadcast_id="b1", state="stopped", reason="half of them failed."),
        "broadcast b1 stopped by itself: half of them",
    ),
    (events.Surprise(where="sender", error="KeyError: 'x'"), "a new error in sender: KeyError"),
]

_LASTING: list[tuple[events.Event, events.Event, float, str]] = [
    (
        events.SourceFailed(bot_id=5, source="polling", why="no route", wait_s=5.0),
        events.SourceBack(bot_id=5, source="polling", away_s=299.0),
        300.0,
        "no updates by polling for 5 minutes: no route",
    ),
    (session_events.ArchiveAway(why="no way there"), session_events.ArchiveBack(), 60.0, "for a minute: no way there"),
    (
        session_events.PushFailed(endpoint="https://shop.example", why="it answered 500"),
        session_events.PushBack(endpoint="https://shop.example", away_s=1.0),
        300.0,
        "https://shop.example has taken nothing for 5 minutes: it answered 500",
    ),
    (
        job_events.HostOpened(host="videos.example", why="it answers 503"),
        job_events.HostClosed(host="videos.example", after_s=299.0),
        300.0,
        "videos.example has failed for 5 minutes: it answers 503",
    ),
    (events.RouteChosen(route=None), events.RouteChosen(route="direct"), 30.0, "there is no way to Telegram"),
    (
        events.RouteOpened(route="direct", why="reset"),
        events.RouteClosed(route="direct", after_s=1.0),
        60.0,
        "route direct does not answer: reset",
    ),
    (
        events.ConsumerAway(bot_id=5, consumer="shop", why="it answered 500"),
        events.ConsumerBack(bot_id=5, consumer="shop", away_s=1.0),
        300.0,
        "consumer shop has not been reached for 5 minutes: it answered 500",
    ),
    (
        session_events.SessionDown(bot_id=5, session_id="s1", why="No way there.", retry_s=5.0),
        session_events.SessionCalm(session_id="s1"),
        600.0,
        "s1 has not been connected for ten minutes: No way there.",
    ),
    (
        session_events.ChatBehind(session_id="s1", chat_id=-1005, why="Telegram failed: 500.", retry_s=60.0),
        session_events.ChatReadAgain(session_id="s1", chat_id=-1005),
        3600.0,
        "s1 cannot read the history of chat -1005: Telegram failed: 500.",
    ),
    (
        job_events.DiskShort(why="1 MB is left."),
        job_events.DiskBack(),
        60.0,
        "no room for jobs for a minute: 1 MB is left.",
    ),
]


@pytest.mark.parametrize(("event", "words"), [*_EXAMPLES, *_MORE])
def test_an_alert_says_what_happened_and_what_to_do(event: events.Event, words: str) -> None:
    async def story(alerts: AlertService, service: Desk) -> None:
        alerts([event])
        await asyncio.sleep(1.0)
        ((chat, text),) = service.sent
        assert chat == "1"
        assert re.search(words, text), text
        assert re.search(r"\nTo do: .+ See docs/runbook.md#[a-z-]+\.$", text)
        alerts([event])
        await asyncio.sleep(10.0)
        assert len(service.sent) == 1

    listening(story)


def test_every_rule_has_an_example_somewhere() -> None:
    examples = {type(one[0]) for one in [*_EXAMPLES, *_MORE, *_LASTING]}
    elsewhere = {
        job_events.JobRan,
        events.ArrivalSettled,
        events.StoreFailed,
        Noticed,
        ErrorSeen,
        ScheduleRan,
        ScheduleMissed,
    }  # below, in tests/monitoring and in tests/alerts
    assert {rule.event for rule in RULES} == (examples | elsewhere) - {events.Surprise}


def test_every_chat_hears_of_each_matter_and_matters_are_apart() -> None:
    async def story(alerts: AlertService, service: Desk) -> None:
        for percent in (75, 50, 50, 25):
            alerts([events.InboxNearExpiry(bot_id=5, percent_left=percent, expires_at_ms=0)])
        for kind in ("poller", "gap", "poller"):
            alerts([events.Intruder(bot_id=5, kind=kind, detail="")])
        await asyncio.sleep(1.0)
        assert sorted(chat for chat, _ in service.sent) == ["1"] * 5 + ["@ops"] * 5
        assert len(service.keys) == len(service.sent)
        await asyncio.sleep(3600.0)
        alerts([events.Intruder(bot_id=5, kind="poller", detail="")])
        await asyncio.sleep(1.0)
        assert len(service.sent) == 12

    listening(story, chats=("1", "@ops"))


@pytest.mark.parametrize(("begins", "ends", "after_s", "words"), _LASTING)
def test_what_may_pass_is_an_alert_only_when_it_lasts(
    begins: events.Event, ends: events.Event, after_s: float, words: str
) -> None:
    async def story(alerts: AlertService, service: Desk) -> None:
        alerts([begins])
        await asyncio.sleep(after_s - 1)
        alerts([ends])
        await asyncio.sleep(2 * after_s)
        assert service.sent == []
        alerts([begins])
        await asyncio.sleep(after_s - 1)
        alerts([begins])  # some tell it with every try
        assert service.sent == []
        await asyncio.sleep(2.0)
        ((_, text),) = service.sent
        assert words in text
        alerts([ends])
        await asyncio.sleep(1.0)
        assert service.sent[1][1].startswith("Peik: over, after ")
        assert words in service.sent[1][1]
        assert len(service.sent) == 2

    listening(story)


def test_short_waits_of_an_account_are_no_alert() -> None:
    async def story(alerts: AlertService, service: Desk) -> None:
        alerts([session_events.SessionFlooded(bot_id=5, session_id="s1", wait_s=600.0)])
        await asyncio.sleep(60.0)
        assert service.sent == []

    listening(story)


def failed(number: int, *, kind: str = "download", state: State = State.FAILED) -> job_events.JobRan:
    return job_events.JobRan(
        job_id=number, kind=kind, user="u", run=1, end=JobEnd.FAILED, state=state, reason="KeyError: 'x'", run_s=1.0
    )


def test_ten_jobs_of_a_kind_that_fail_within_an_hour_are_an_alert_and_nine_are_none() -> None:
    async def story(alerts: AlertService, service: Desk) -> None:
        for number in range(9):
            alerts([failed(number), failed(number, kind="convert", state=State.DELAYED)])
        await asyncio.sleep(3601.0)
        for number in range(10, 19):
            alerts([failed(number)])
        await asyncio.sleep(60.0)
        assert service.sent == []
        alerts([failed(19)])
        await asyncio.sleep(60.0)
        ((_, text),) = service.sent
        assert re.search("10 jobs of the kind download failed within an hour; the last one is 19: KeyError", text), text
        alerts([failed(21)])
        await asyncio.sleep(60.0)
        assert len(service.sent) == 1

    listening(story, off=("new-error", "rising-error"))


def test_dead_arrivals_are_told_at_once_and_then_counted() -> None:
    async def story(alerts: AlertService, service: Desk) -> None:
        alerts([dead(1)])
        await asyncio.sleep(1.0)
        for number in range(2, 42):
            alerts([dead(number)])
            await asyncio.sleep(1.0)
        assert len(service.sent) == 1
        await asyncio.sleep(600.0)
        assert len(service.sent) == 2
        assert "40 updates could not be handled" in service.sent[1][1]
        await asyncio.sleep(6000.0)
        assert len(service.sent) == 2
        alerts([msgspec.structs.replace(dead(50), state=State.COMPLETED)])
        await asyncio.sleep(1.0)
        assert len(service.sent) == 2

    listening(story, off=("new-error", "rising-error"))


def test_a_service_that_cannot_take_an_alert_now_is_asked_again_and_one_that_never_can_is_not() -> None:
    async def story(alerts: AlertService, service: Desk) -> None:
        service.failures = [StoreUnavailable(code="x", detail="full"), StoreUnavailable(code="x", detail="full")]
        alerts([events.UpdatesExpired(bot_id=5, count=1)])
        await asyncio.sleep(60.0)
        assert len(service.sent) == 1
        service.failures = [BadInput(code="x", detail="no such chat")]
        alerts([events.UnreadDropped(bot_id=5, count=1)])
        await asyncio.sleep(60.0)
        alerts([events.UnreadDropped(bot_id=6, count=1)])
        await asyncio.sleep(60.0)
        assert [text.partition(":")[2].strip()[:5] for _, text in service.sent] == ["bot 5", "bot 6"]

    listening(story)


def test_a_flood_of_alerts_is_cut_and_says_so() -> None:
    async def story(alerts: AlertService, service: Desk) -> None:
        alerts([events.UnreadDropped(bot_id=bot_id, count=1) for bot_id in range(QUEUE_MAX + 30)])
        await asyncio.sleep(1.0)
        assert len(service.sent) == QUEUE_MAX
        alerts([events.UpdatesExpired(bot_id=5, count=1)])
        await asyncio.sleep(1.0)
        assert "30 more alerts could not be sent" in service.sent[-1][1]

    listening(story)


def test_without_chats_nobody_is_told_and_it_is_known_all_the_same() -> None:
    async def story(alerts: AlertService, service: Desk) -> None:
        alerts([dead(1)])
        await asyncio.sleep(1.0)
        assert service.sent == []
        assert {one.name for one in alerts.ongoing()} == {"dead-arrivals", "new-error"}

    listening(story, chats=())


# ---- the whole way ----


def test_an_alert_is_a_letter_of_the_first_bot() -> None:
    async def story(stage: Stage) -> None:
        stage.peik.events.tell(events.UpdatesExpired(bot_id=BOT, count=3))
        await asyncio.sleep(1.0)
        (text,) = stage.texts(ADMIN)
        assert text.startswith(f"Peik: bot {BOT}: Telegram dropped 3 updates before Peik could fetch them.")
        assert text.endswith("See docs/runbook.md#updates-expired.")

    play(story, admin_chats=str(ADMIN))


# ---- upkeep ----

HOUR_S = 3600.0


def test_what_is_unread_is_told_of_before_it_goes_and_when_it_went() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        stage.telegram.write(TOKEN, 11, "is anybody there?")
        await fetch(stage)
        await asyncio.sleep(39 * HOUR_S)
        assert stage.events_of(UnreadNearEnd) == []
        await asyncio.sleep(2 * HOUR_S)
        (near,) = stage.events_of(UnreadNearEnd)
        assert (near.consumer, near.ends_at_ms - near.oldest_at_ms) == ("default", 50 * HOUR_S * 1000)
        assert stage.events_of(UnreadDropped) == []
        await asyncio.sleep(10 * HOUR_S)
        assert [(event.bot_id, event.count) for event in stage.events_of(UnreadDropped)] == [(BOT, 1)]
        assert len(stage.events_of(UnreadNearEnd)) == 1

    play(story, keep_unread="50h")


def test_a_consumer_that_nobody_uses_is_forgotten_and_told_of() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        inbox = stage.peik.store.inbox
        consumer = await inbox.ensure_consumer(BOT, "stats", at_ms=stage.clock.wall_ms())
        await inbox.touch_consumers({consumer.id: stage.clock.wall_ms()})
        await asyncio.sleep(1.9 * HOUR_S)
        assert stage.events_of(ConsumerExpired) == []
        await asyncio.sleep(HOUR_S)
        assert [event.consumer for event in stage.events_of(ConsumerExpired)] == ["stats"]
        assert [one.name for one in await inbox.consumers(BOT)] == ["default"]

    play(story, consumer_idle="2h")


def test_what_everybody_has_read_goes_without_a_word() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        inbox = stage.peik.store.inbox
        assert await inbox.count_arrivals(ArrivalFilter(bot_id=BOT)) == 4
        await asyncio.sleep(52 * HOUR_S)
        assert await inbox.count_arrivals(ArrivalFilter(bot_id=BOT)) == 0
        assert stage.events_of(UnreadDropped) == []

    play(story, keep_arrivals="50h")


@pytest.mark.parametrize("language", ["fa", "ru", "uz"])
def test_every_rule_is_worded_in_the_language_of_the_people_who_run_it(language: str) -> None:
    words, english = AlertWords(language), AlertWords("en")
    for rule in RULES:
        fields = {one.name: "x" if one.type is str else 1 for one in msgspec.structs.fields(rule.event)}
        example = rule.event(**fields)  # what its fields hold is not the point
        told = words.began(words.text(rule, example, 3), rule)
        assert rule.runbook in told
        assert rule.todo not in told
        assert told != english.began(english.text(rule, example, 3), rule)


def test_alerts_are_told_in_the_language_that_is_set_and_shown_in_english() -> None:
    async def main(clock: VirtualClock) -> None:
        desk = Desk()
        alerts = AlertService(chats=("1",), clock=clock, send=desk.send, words=AlertWords("fa"))
        running = asyncio.create_task(alerts.run())
        alerts([events.OfflineTooLong(bot_id=5, away_s=90_000, expired=7)])
        await asyncio.sleep(1)
        ((_, text),) = desk.sent
        assert "آفلاین بوده است" in text
        assert "تلگرام 7 پیام را حذف کرده است" in text
        assert "چه باید کرد" in text
        assert "was offline for 25 hours" in alerts.ongoing()[0].text
        running.cancel()

    run_virtual(main)
