# ruff: noqa: E501  one row, one line: it is read as a table
"""One rule of what is worth an alert: which events, how often, in which words, what to do, and when it is over."""

import datetime
import enum
import re
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from peik.accounts import events as session_events
from peik.broadcasts import model as broadcast_events
from peik.core import events
from peik.core.letter import State
from peik.core.translation import translations
from peik.jobs import events as job_events
from peik.schedules import model as schedule_events

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
RUNBOOK = "docs/runbook.md"

E = TypeVar("E", bound=events.Event)


class Noticed(events.Event, frozen=True, kw_only=True):
    """What a look found (`peik.alerts.watch`). It is told again with every look for as long as it is so."""

    rule: str
    subject: str  # what it is about: looks that differ in it are different matters
    words: str


class ErrorSeen(events.Event, frozen=True, kw_only=True):
    """An error that was not seen for long, or is seen more and more often (`peik.alerts.service`)."""

    fingerprint: str
    where: str
    error: str
    in_hour: int
    is_rising: bool


class RulePlace(enum.Enum):
    """Where a matter that has a bot is heard of, so that the next one there goes on with it."""

    BOT = enum.auto()  # on the node that serves the bot
    CHORES = enum.auto()  # on the node that does the chores, no matter who serves the bot
    ANY = enum.auto()  # on whatever node it happened


class AlertRule(msgspec.Struct, Generic[E], frozen=True, kw_only=True):
    """When an event is an alert. Events of one fingerprint are one matter, told at most every `repeat_s`."""

    name: str  # for people: what to silence, and where in the runbook to look
    means: str  # when it is told, as the docs say it
    todo: str  # one line
    event: type[E]
    text: Callable[[E, int], str]  # of the newest event, and how many there were since the last alert
    repeat_s: float
    apart_by: tuple[str, ...] = ("bot_id",)  # fields: events that differ in one of them are different matters
    is_meant: Callable[[E], bool] = lambda event: True
    after_s: float = 0.0  # only if it lasts so long
    at_least: int = 1  # only from this many on
    within_s: float = HOUR_S  # in so long
    ends: type[events.Event] | None = None  # what ends the matter
    is_over: Callable[[events.Event], bool] = lambda event: True  # of an event of that type
    fades_s: float = DAY_S  # without an end of its own, it is over when it was not heard of for so long
    place: RulePlace = RulePlace.BOT
    is_local: bool = False  # of one machine: the same trouble of another is another matter
    is_moment: bool = False  # it happens and does not last, so that nobody is told that it is over
    is_kept: bool = False  # it goes on after a restart, whether or not it is heard of again

    @property
    def lasts_s(self) -> float | None:
        """None: until its end is heard."""
        return None if self.ends is not None else self.fades_s

    def is_over_by(self, event: events.Event) -> bool:
        return type(event) is self.ends and self.is_over(event)

    def apart(self, event: events.Event) -> dict[str, str]:
        """What tells its matter from others of the rule. Of an end, as much of it as the end says."""
        return {name: str(getattr(event, name)) for name in self.apart_by if hasattr(event, name)}

    @property
    def runbook(self) -> str:
        return f"{RUNBOOK}#{self.name}"


def as_rule(rule: AlertRule[E]) -> "AlertRule[events.Event]":
    """Each row is typed by its own event; the table is of events."""
    return rule  # type: ignore[return-value]


# What alerts say, rule by rule: what happened, to what. What to do stands in the table, `peik.alerts.rules`.


JOBS_FAILING = 10  # of a kind, in an hour


def bot(event: events.Event) -> str:
    return f"bot {event.bot_id}"


def long(seconds: float) -> str:
    return f"{seconds / HOUR_S:.0f} hours" if seconds >= 1.5 * HOUR_S else f"{max(seconds / 60, 1):.0f} minutes"


def at(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def offline(event: events.OfflineTooLong, _: int) -> str:
    lost = {None: "How many it dropped cannot be known", 0: "By the update ids none was dropped"}.get(
        event.expired, f"It dropped {event.expired}"
    )
    return (
        f"{bot(event)} was offline for {long(event.away_s)}. Telegram keeps updates for 24 hours only, so messages from "
        f"before that may be lost. {lost}. Ask users who waited to write again."
    )


def near_expiry(event: events.InboxNearExpiry, _: int) -> str:
    return (
        f"{bot(event)} could not fetch updates for long. {event.percent_left} % is left of the time that Telegram keeps "
        f"them; the oldest is lost at {at(event.expires_at_ms)}. Look at the network, the routes and the log of Peik."
    )


def expired(event: events.UpdatesExpired, _: int) -> str:
    return f"{bot(event)}: Telegram dropped {event.count} updates before Peik could fetch them. They cannot be had any more."


_INTRUDERS = {
    "poller": "Another program polls with this bot's token and takes updates away. Stop it, or change the token.",
    "webhook": "The webhook of this bot led elsewhere, and Peik takes it away. Stop what set it, or leave the updates to it "
    "(inbound off); if you do not know it, change the token with @BotFather.",
    "gap": "Updates are missing that Telegram had not dropped: another program took them. Find it, or change the token.",
}


def intruder(event: events.Intruder, _: int) -> str:
    return f"{bot(event)}: {_INTRUDERS.get(event.kind, 'Somebody else uses its token.')} ({event.detail})"


def consumer_expired(event: events.ConsumerExpired, _: int) -> str:
    return (
        f"{bot(event)}: consumer {event.consumer} was not used for long and is forgotten. Nothing is kept for it any more; "
        "when it comes back it begins with the oldest update that is still here."
    )


def near_end(event: events.UnreadNearEnd, _: int) -> str:
    return (
        f"{bot(event)}: consumer {event.consumer} has not read updates since {at(event.oldest_at_ms)}. From "
        f"{at(event.ends_at_ms)} on they are dropped. Start it, or raise PEIK_KEEP_UNREAD."
    )


def dropped(event: events.UnreadDropped, _: int) -> str:
    return f"{bot(event)}: {event.count} updates that nobody had read were too old and are gone (PEIK_KEEP_UNREAD)."


def clock_jumped(event: events.ClockJumped, _: int) -> str:
    return (
        f"The clock of this machine is {long(event.ahead_s)} ahead of the time that has passed. Nothing is removed by age until "
        f"it has held for {long(event.settles_s)}. If it is wrong, set it right before."
    )


def source_failed(event: events.SourceFailed, _: int) -> str:
    return (
        f"{bot(event)} has had no updates by {event.source} for 5 minutes: {event.why}. Nothing is lost for 24 hours; "
        "Peik goes on trying. Look at the network and the routes."
    )


def dead_arrival(event: events.ArrivalSettled, count: int) -> str:
    many = "1 update" if count == 1 else f"{count} updates"
    return (
        f"{bot(event)}: {many} could not be handled by {event.consumer} and became dead arrivals; the last one is "
        f"{event.arrival_id} ({event.kind}): {event.reason}. Read them, mend the cause, and retry them: see inbox.md."
    )


def paused(event: events.BotPaused, _: int) -> str:
    return f"{bot(event)} is paused, and its letters wait: {event.reason}"


def account(
    event: "session_events.SessionRevoked | session_events.SessionUnfit | session_events.SessionFlooded",
) -> str:
    return f"session {event.session_id}" + (f" (account {event.bot_id})" if event.bot_id else "")


def revoked(event: session_events.SessionRevoked, _: int) -> str:
    return (
        f"Telegram ended {account(event)}: {event.why}. Its letters wait, and nothing of it is archived. Sign in again: "
        "see sessions.md. Telegram does not replay all that happens until then."
    )


def unfit(event: session_events.SessionUnfit, _: int) -> str:
    return f"{account(event)} cannot run until somebody mends it: {event.why}"


def down(event: session_events.SessionDown, _: int) -> str:
    return (
        f"session {event.session_id} has not been connected for ten minutes: {event.why} It tries again by itself; meanwhile "
        "nothing of it is archived, and its letters wait."
    )


def chat_behind(event: session_events.ChatBehind, _: int) -> str:
    what = "the list of its chats" if event.chat_id is None else f"the history of chat {event.chat_id}"
    return (
        f"session {event.session_id} cannot read {what}: {event.why} It tries again by itself; its other chats go on."
    )


def flooded(event: session_events.SessionFlooded, _: int) -> str:
    return (
        f"Telegram lets {account(event)} wait for {long(event.wait_s)}. Its letters wait so long. Send less with it: "
        "accounts that write like machines are banned."
    )


def archive_away(event: session_events.ArchiveAway, _: int) -> str:
    return (
        f"the archive has not answered for a minute: {event.why}. Accounts wait for it; bots go on. Telegram keeps what "
        "accounts miss, but not for ever. Look at its server, its disk and PEIK_ARCHIVE."
    )


def push_failed(event: session_events.PushFailed, _: int) -> str:
    return (
        f"the webhook of accounts at {event.endpoint} has taken nothing for 5 minutes: {event.why}. Peik goes on trying; "
        "what waits is kept for PEIK_KEEP_FEED."
    )


def host(event: job_events.HostOpened, _: int) -> str:
    return (
        f"{event.host} has failed for 5 minutes: {event.why}. Jobs that need it wait, and one at a time tries. Nothing is "
        "lost; look whether it is down for everybody, or only for this machine."
    )


def jobs_failing(event: job_events.JobRan, _: int) -> str:
    return (
        f"{JOBS_FAILING} jobs of the kind {event.kind} failed within an hour; the last one is {event.job_id}: {event.reason} "
        "Read them, mend the cause, and retry them: see jobs.md."
    )


def folder_left(event: job_events.FolderLeft, _: int) -> str:
    return (
        f"the work folder of job {event.job_id} could not be removed {event.tries} times, for 10 minutes by now: {event.why}. "
        "Peik goes on trying. Look at its rights and at what has it open: it takes room that other jobs need."
    )


def disk_short(event: job_events.DiskShort, _: int) -> str:
    return (
        f"there has been no room for jobs for a minute: {event.why} Jobs that need a folder wait; letters go on. Free the "
        "disk, or change PEIK_WORK_MAX and PEIK_WORK_FREE."
    )


def no_way(event: events.RouteChosen, _: int) -> str:
    return (
        "there is no way to Telegram: no route answers. Letters wait, and go on by themselves. Look at the network and at "
        "the routes."
    )


def route(event: events.RouteOpened, _: int) -> str:
    return f"route {event.route} does not answer: {event.why}. Peik asks it again and again; letters take another one."


def store_failed(event: events.StoreFailed, count: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    return (
        f"the store failed {times}, the last time for {event.what}: {event.why} Nothing that was accepted is lost; look at "
        "its disk or server."
    )


def surprise(event: events.Surprise, count: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    return f"something that Peik did not foresee happened {times} in {event.where}: {event.error}. Please report it."


def leases_lost(event: events.LeasesLost, _: int) -> str:
    return f"this node lost {event.lost} leases to another: it did not reach the store in time. What was in flight is uncertain."


def store_locked(event: events.StoreFailed, count: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    return f"the database was locked {times}, the last time for {event.what}: {event.why}"


def error_seen(event: ErrorSeen, _: int) -> str:
    if event.is_rising:
        return (
            f"an error comes more and more often, {event.in_hour} times within an hour, in {event.where}: {event.error}"
        )
    return f"a new error in {event.where}: {event.error}"


def consumer_away(event: events.ConsumerAway, _: int) -> str:
    return f"{bot(event)}: consumer {event.consumer} has not been reached for 5 minutes: {event.why}. What comes for it is kept."


def hook_dropped(event: events.HookDropped, count: int) -> str:
    many = "1 letter" if count == 1 else f"{count} letters"
    return (
        f"the webhook {event.endpoint} will not hear how {many} ended; the last one is {event.letter_id}, after "
        f"{event.tries} tries: {event.why}"
    )


def broadcast_stopped(event: broadcast_events.BroadcastMoved, _: int) -> str:
    return f"broadcast {event.broadcast_id} stopped by itself: {event.reason or 'it does not say why'}"


def schedule_missed(event: schedule_events.ScheduleMissed, _: int) -> str:
    caught_up = "The last of them is made up for." if event.caught_up else "None is made up for now."
    if not event.count:
        return f"schedule {event.schedule} was due at {at(event.last_ms)}, and ran only now: Peik was not there."
    least = "at least " if event.is_least else ""
    return (
        f"schedule {event.schedule} missed {least}{event.count} of its due times, from {at(event.first_ms)} to "
        f"{at(event.last_ms)}: Peik was not there. {caught_up}"
    )


def schedule_refused(event: schedule_events.ScheduleRan, count: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    return f"schedule {event.schedule} could not run {times}; the last time was due at {at(event.due_at_ms)}: {event.reason}"


def noticed(event: Noticed, _: int) -> str:
    return event.words


# What is worth an alert, in one table: which events or looks, how often, and what to do. A page of docs is made of
# it.


FLOOD_S = 600.0  # shorter waits are everyday life of an account
FOLDER_TRIES = 10  # to remove one: 1 s, doubling to 5 min, are ten minutes
CALM_S = 60.0  # what looks do not find for so long is over
STORE_FAILURES = 3  # of one that is only busy for a moment nobody need hear
STORE_S = 180.0  # where nothing is to be sent, a store that fails is tried, and told of, once a minute only
_LOCKED = re.compile(r"\b(dead)?lock", re.IGNORECASE)


def _is_locked(event: events.StoreFailed) -> bool:
    return _LOCKED.search(event.why) is not None


def _seen(
    name: str, *, means: str, todo: str, repeat_s: float = HOUR_S, after_s: float = 0.0, is_local: bool = False
) -> "AlertRule[events.Event]":
    """A rule about what looks find."""
    return as_rule(
        AlertRule(
            name=name, means=means, todo=todo, event=Noticed, text=noticed, repeat_s=repeat_s, apart_by=("subject",),
            is_meant=lambda event: event.rule == name, after_s=after_s, fades_s=CALM_S, is_local=is_local,
        )
    )  # fmt: skip


RULES: "tuple[AlertRule[events.Event], ...]" = (
    # the machine
    _seen("disk", means="Less than 10 % of a disk is free (PEIK_ALERT_DISK): of the store, of files, of work folders, of sessions.", todo="Free the disk, or make it larger, before the store cannot write.", is_local=True),
    _seen("memory", means="More than 80 % of the memory is in use (PEIK_ALERT_MEMORY), for a minute: of the container's limit, else of the machine.", todo="Look what takes it; give more, or do less at once (PEIK_JOBS, PEIK_IN_FLIGHT).", after_s=MINUTE_S, is_local=True),
    _seen("slow", means="Answers take longer than 30 s (PEIK_ALERT_SLOW), for a minute: calls of Telegram (the slowest twentieth), requests at the doors of a node (the same), updates that wait for their handler or consumer, or this process itself.", todo="Look at the network to Telegram, at the handlers, and at the load of the machine.", after_s=MINUTE_S),
    as_rule(AlertRule(name="no-room", means="There has been no room for work folders of jobs for a minute.", todo="Free the disk, or change PEIK_WORK_MAX and PEIK_WORK_FREE.", event=job_events.DiskShort, text=disk_short, repeat_s=HOUR_S, apart_by=(), after_s=MINUTE_S, ends=job_events.DiskBack, is_local=True)),
    as_rule(AlertRule(name="folder-left", means="The work folder of a job could not be removed ten times.", todo="Look at its rights, and at what has it open.", event=job_events.FolderLeft, text=folder_left, repeat_s=DAY_S, apart_by=("job_id",), is_meant=lambda event: event.tries >= FOLDER_TRIES, is_local=True, is_moment=True)),
    as_rule(AlertRule(name="clock", means="The clock of the machine was set forward by more than 5 minutes; or Peik starts more than a day after the last time that its store knows.", todo="Set the clock right, if it is wrong. Nothing is removed by age before it has held for an hour (PEIK_CLOCK_SETTLES).", event=events.ClockJumped, text=clock_jumped, repeat_s=HOUR_S, apart_by=(), ends=events.ClockSettled, is_local=True)),
    # the store
    as_rule(AlertRule(name="store", means="The store failed three times within three minutes.", todo="Look at its server or disk; what was accepted is safe, and goes on by itself.", event=events.StoreFailed, text=store_failed, repeat_s=HOUR_S, apart_by=(), is_meant=lambda event: not _is_locked(event), at_least=STORE_FAILURES, within_s=STORE_S, fades_s=STORE_S, is_local=True)),
    as_rule(AlertRule(name="store-locked", means="The database was locked when Peik had to write or read, three times within ten minutes.", todo="Find who holds the lock: a backup tool, a console, a transaction left open.", event=events.StoreFailed, text=store_locked, repeat_s=HOUR_S, apart_by=(), is_meant=_is_locked, at_least=STORE_FAILURES, within_s=600.0, fades_s=600.0, is_local=True)),
    _seen("store-weak", means="A setting of the store breaks the promise that what was accepted outlives a power cut. Looked for every 5 minutes.", todo="Change that setting; stores.md says which ones Peik needs.", repeat_s=DAY_S),
    as_rule(AlertRule(name="leases-lost", means="A node did not reach the store in time, and another took its bots.", todo="Look at the network and the load of that node; raise PEIK_LEASE if it happens again.", event=events.LeasesLost, text=leases_lost, repeat_s=HOUR_S, apart_by=(), fades_s=HOUR_S, is_local=True, is_moment=True)),
    _seen("backup", means="The last good backup is older than one and a half times PEIK_BACKUP_EVERY. Not told if that is not set.", todo="Run `peik backup create`, and read why the last one failed.", repeat_s=DAY_S),
    # letters
    _seen("dead-letters", means="There are more than 50 dead letters (PEIK_ALERT_DEAD).", todo="Read the causes with `peik dead causes`, mend them, then retry or clear the letters.", repeat_s=6 * HOUR_S),
    _seen("stuck", means="The same letter has been the oldest that waits for more than 10 minutes (PEIK_ALERT_WAIT), and its bot is not paused.", todo="Ask `peik status` of the letter and `peik lanes` why it waits."),
    _seen("failures", means="Of what ended within 10 minutes, 20 letters at least, more than 20 % failed (PEIK_ALERT_FAILURES).", todo="Read the causes with `peik dead causes`: one cause for all is a bug or a ban.", after_s=0.0),
    _seen("delays", means="The slowest twentieth of what was delivered within a minute took longer than 10 minutes (PEIK_ALERT_WAIT), for five minutes.", todo="Look at 429s and the backlog on the overview: too much is sent at once, or the way is slow.", after_s=5 * MINUTE_S),
    as_rule(AlertRule(name="webhook-dropped", means="A webhook is not told any more how a letter ended: it said so, or did not answer for three days.", todo="Mend the endpoint; ask the REST API for the letters that it missed.", event=events.HookDropped, text=hook_dropped, repeat_s=HOUR_S, apart_by=("endpoint",), is_moment=True)),
    # bots and routes
    as_rule(AlertRule(name="bot-paused", means="Telegram does not know a bot's token any more, so that the bot is paused. Not told of a bot that somebody paused.", todo="Give it a valid token with `peik bots add`.", event=events.BotPaused, text=paused, repeat_s=DAY_S, ends=events.BotResumed)),
    as_rule(AlertRule(name="intruder", means="Somebody else uses a bot's token.", todo="Stop that program, or change the token with @BotFather.", event=events.Intruder, text=intruder, repeat_s=HOUR_S, apart_by=("bot_id", "kind"), fades_s=2 * HOUR_S)),
    as_rule(AlertRule(name="no-way", means="No route to Telegram has answered for half a minute.", todo="Look at the network, and add another route to PEIK_ROUTES.", event=events.RouteChosen, text=no_way, repeat_s=HOUR_S, apart_by=(), is_meant=lambda event: event.route is None, after_s=30.0, ends=events.RouteChosen, is_over=lambda event: isinstance(event, events.RouteChosen) and event.route is not None, is_local=True)),
    as_rule(AlertRule(name="route", means="The breaker of a route has been open for a minute.", todo="Look at that proxy or server; letters take another route if there is one.", event=events.RouteOpened, text=route, repeat_s=6 * HOUR_S, apart_by=("route",), after_s=MINUTE_S, ends=events.RouteClosed, is_local=True)),
    # updates
    as_rule(AlertRule(name="source", means="A bot has had no updates for 5 minutes, because they cannot be fetched.", todo="Look at the network and the routes: Telegram keeps updates for 24 hours.", event=events.SourceFailed, text=source_failed, repeat_s=HOUR_S, after_s=300.0, ends=events.SourceBack)),
    as_rule(AlertRule(name="inbox-expiry", means="Three quarters, half or a quarter is left of the time until Telegram drops updates that were not fetched.", todo="Bring Peik back online, or receive by another node, before that time.", event=events.InboxNearExpiry, text=near_expiry, repeat_s=DAY_S, apart_by=("bot_id", "percent_left"), ends=events.SourceBack)),
    as_rule(AlertRule(name="offline", means="Peik was away for more than 24 hours.", todo="Ask users who waited to write again.", event=events.OfflineTooLong, text=offline, repeat_s=HOUR_S, is_moment=True)),
    as_rule(AlertRule(name="updates-expired", means="Telegram dropped updates before Peik came for them.", todo="They cannot be had any more: ask users who waited to write again.", event=events.UpdatesExpired, text=expired, repeat_s=MINUTE_S, is_moment=True)),
    as_rule(AlertRule(name="dead-arrivals", means="Updates could not be handled by a consumer, and became dead arrivals.", todo="Read them with `peik arrivals`, mend the handler, and retry them.", event=events.ArrivalSettled, text=dead_arrival, repeat_s=600.0, apart_by=("bot_id", "consumer"), is_meant=lambda event: event.state is State.FAILED, is_moment=True, place=RulePlace.ANY)),
    as_rule(AlertRule(name="consumer-away", means="A consumer that updates are pushed to has not been reached for 5 minutes.", todo="Start it, or mend its address with `peik consumers`.", event=events.ConsumerAway, text=consumer_away, repeat_s=HOUR_S, apart_by=("bot_id", "consumer"), after_s=300.0, ends=events.ConsumerBack)),
    as_rule(AlertRule(name="consumer-expired", means="A consumer that nobody used for long is forgotten.", todo="Nothing, if it is not needed; else start it, and it begins with the oldest update.", event=events.ConsumerExpired, text=consumer_expired, repeat_s=HOUR_S, apart_by=("bot_id", "consumer"), is_moment=True, place=RulePlace.CHORES)),
    as_rule(AlertRule(name="unread", means="Updates that a consumer has not read will soon be dropped.", todo="Start that consumer, or raise PEIK_KEEP_UNREAD.", event=events.UnreadNearEnd, text=near_end, repeat_s=DAY_S, apart_by=("bot_id", "consumer"), is_moment=True, place=RulePlace.CHORES)),
    as_rule(AlertRule(name="unread-dropped", means="Updates that nobody had read were too old, and are gone.", todo="Start the consumer; raise PEIK_KEEP_UNREAD if it may be away so long.", event=events.UnreadDropped, text=dropped, repeat_s=DAY_S, is_moment=True, place=RulePlace.CHORES)),
    # jobs and outside hosts
    as_rule(AlertRule(name="jobs-failing", means="Ten jobs of a kind failed within an hour.", todo="Read them with `peik jobs`, mend the cause, and retry them.", event=job_events.JobRan, text=jobs_failing, repeat_s=6 * HOUR_S, apart_by=("kind",), is_meant=lambda event: event.state is State.FAILED, at_least=JOBS_FAILING, fades_s=HOUR_S, place=RulePlace.ANY)),
    _seen("jobs-stuck", means="Jobs of a kind have waited for 10 minutes, and none of it runs.", todo="Start a process that does jobs of this kind; look at no-room and the hosts that they need.", after_s=600.0),
    as_rule(AlertRule(name="host", means="An outside host that jobs need has failed for 5 minutes.", todo="Look whether it is down for everybody, or blocks this machine.", event=job_events.HostOpened, text=host, repeat_s=HOUR_S, apart_by=("host",), after_s=300.0, ends=job_events.HostClosed, is_local=True)),
    # errors
    as_rule(AlertRule(name="new-error", means="An error that was not seen for a week: of Peik itself, of a handler or of a job.", todo="Read the log around it; if it is Peik's own, please report it.", event=ErrorSeen, text=error_seen, repeat_s=DAY_S, apart_by=("fingerprint",), is_meant=lambda event: not event.is_rising, is_moment=True, place=RulePlace.ANY)),
    as_rule(AlertRule(name="rising-error", means="An error came ten times or more within an hour, and three times as often as in the day before.", todo="Read the log around it, and what was changed last.", event=ErrorSeen, text=error_seen, repeat_s=HOUR_S, apart_by=("fingerprint",), is_meant=lambda event: event.is_rising, fades_s=HOUR_S / 2, place=RulePlace.ANY)),
    # broadcasts
    as_rule(AlertRule(name="broadcast-stopped", means="A broadcast stopped by itself: too many of its letters failed.", todo="Read its ledger, mend it, then resume or cancel it.", event=broadcast_events.BroadcastMoved, text=broadcast_stopped, repeat_s=DAY_S, apart_by=("broadcast_id",), is_meant=lambda event: event.state == "stopped", ends=broadcast_events.BroadcastMoved, is_over=lambda event: isinstance(event, broadcast_events.BroadcastMoved) and event.state != "stopped", is_kept=True, place=RulePlace.CHORES)),
    # recurring work
    as_rule(AlertRule(name="schedule-missed", means="Peik was not there when a schedule was due, for more than 5 minutes.", todo="See what it missed with `peik schedules runs`; run it now if it is still needed.", event=schedule_events.ScheduleMissed, text=schedule_missed, repeat_s=HOUR_S, apart_by=("schedule",), is_moment=True, place=RulePlace.CHORES)),
    as_rule(AlertRule(name="schedule-refused", means="A schedule was due, and what it makes was refused.", todo="Read why with `peik schedules runs`, edit it, and run it now.", event=schedule_events.ScheduleRan, text=schedule_refused, repeat_s=DAY_S, apart_by=("schedule",), is_meant=lambda event: event.state is schedule_events.ScheduleRunState.REFUSED, ends=schedule_events.ScheduleRan, is_over=lambda event: isinstance(event, schedule_events.ScheduleRan) and event.state is schedule_events.ScheduleRunState.DONE, is_kept=True, place=RulePlace.CHORES)),
    # accounts
    as_rule(AlertRule(name="session-ended", means="Telegram ended the session of an account.", todo="Sign in again: see sessions.md.", event=session_events.SessionRevoked, text=revoked, repeat_s=DAY_S, apart_by=("session_id",), ends=session_events.SessionUp, is_kept=True)),
    as_rule(AlertRule(name="session-unfit", means="An account cannot run until somebody mends it: its key cannot be opened, its proxy cannot be right.", todo="Read why with `peik sessions show`, and mend that.", event=session_events.SessionUnfit, text=unfit, repeat_s=DAY_S, apart_by=("session_id",), ends=session_events.SessionUp, is_kept=True)),
    as_rule(AlertRule(name="session-down", means="An account has not been connected for ten minutes.", todo="Look at its network and its proxy; `peik sessions show` says why.", event=session_events.SessionDown, text=down, repeat_s=HOUR_S, apart_by=("session_id",), after_s=10 * MINUTE_S, ends=session_events.SessionCalm)),
    as_rule(AlertRule(name="session-behind", means="Telegram has not let an account read the history of a chat, or the list of its chats, for an hour.", todo="It is tried again by itself; see whether the account can open the chat, and stop a crawl of it that nobody needs.", event=session_events.ChatBehind, text=chat_behind, repeat_s=DAY_S, apart_by=("session_id", "chat_id"), after_s=HOUR_S, ends=session_events.ChatReadAgain)),
    as_rule(AlertRule(name="session-flooded", means="Telegram lets an account wait for more than ten minutes.", todo="Send less with it: accounts that write like machines are banned.", event=session_events.SessionFlooded, text=flooded, repeat_s=HOUR_S, apart_by=("session_id",), is_meant=lambda event: event.wait_s > FLOOD_S, fades_s=HOUR_S, is_moment=True)),
    as_rule(AlertRule(name="archive", means="The archive has not answered for a minute.", todo="Look at its server, its disk and PEIK_ARCHIVE; bots go on meanwhile.", event=session_events.ArchiveAway, text=archive_away, repeat_s=HOUR_S, apart_by=(), after_s=MINUTE_S, ends=session_events.ArchiveBack, is_local=True)),
    as_rule(AlertRule(name="sessions-webhook", means="The webhook of accounts has taken nothing for 5 minutes.", todo="Mend the endpoint before PEIK_KEEP_FEED is over.", event=session_events.PushFailed, text=push_failed, repeat_s=HOUR_S, apart_by=(), after_s=300.0, ends=session_events.PushBack)),
)  # fmt: skip

BY_NAME = {rule.name: rule for rule in RULES}


# The same in other languages. What is filed and logged stays English.


class AlertWords:
    """How an alert is worded in one language."""

    def __init__(self, language: str) -> None:
        self._language = language

    def text(self, rule: "AlertRule[events.Event]", event: events.Event, count: int) -> str:
        """What happened."""
        return self._say(rule.text(event, count))

    def began(self, text: str, rule: "AlertRule[events.Event]") -> str:
        return self._fill("Peik: {}", text) + self._todo(rule)

    def still(self, text: str, rule: "AlertRule[events.Event]", ms: float) -> str:
        return self._fill("Peik, still after {}: {}", self._say(span(ms)), text) + self._todo(rule)

    def over(self, text: str, ms: float) -> str:
        return self._fill("Peik: over, after {}: {}", self._say(span(ms)), text)

    @property
    def test(self) -> str:
        return self._say("Peik: this is a test. Whoever reads it would hear of alerts.")

    def _todo(self, rule: "AlertRule[events.Event]") -> str:
        return self._fill("\nTo do: {} See {}.", self._say(rule.todo), rule.runbook)

    def _say(self, text: str) -> str:
        return text if self._language == "en" else translations().text(self._language, text)

    def _fill(self, key: str, *values: str) -> str:
        return translations().fill(self._language, key, *values)


MINUTE_MS = 60_000


def span(ms: float) -> str:
    minutes = ms / MINUTE_MS
    if minutes < 1.5:
        return "a minute" if minutes >= 0.75 else f"{ms / 1000:.0f} s"
    if minutes < 90:
        return f"{minutes:.0f} minutes"
    return f"{minutes / 60:.0f} hours" if minutes < 48 * 60 else f"{minutes / 1440:.0f} days"
