"""What is worth an alert, in one table: which events, how often, and in which words."""

import datetime

from peik import events, job_events, session_events
from peik.core.letter import State
from peik.ops.alert_rule import DAY_S, HOUR_S, Rule, as_rule

FLOOD_S = 600.0  # shorter waits are everyday life of an account
JOBS_FAILING = 10  # of a kind, in an hour
FOLDER_TRIES = 10  # to remove one: 1 s, doubling to 5 min, are ten minutes


def _bot(event: events.Event) -> str:
    return f"bot {event.bot_id}"


def _long(seconds: float) -> str:
    return f"{seconds / HOUR_S:.0f} hours" if seconds >= 1.5 * HOUR_S else f"{max(seconds / 60, 1):.0f} minutes"


def _at(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _offline(event: events.OfflineTooLong, _: int) -> str:
    lost = {None: "How many it dropped cannot be known", 0: "By the update ids none was dropped"}.get(
        event.expired, f"It dropped {event.expired}"
    )
    return (
        f"{_bot(event)} was offline for {_long(event.away_s)}. Telegram keeps updates for 24 hours only, so messages from "
        f"before that may be lost. {lost}. Ask users who waited to write again."
    )


def _near_expiry(event: events.InboxNearExpiry, _: int) -> str:
    return (
        f"{_bot(event)} could not fetch updates for long. {event.percent_left} % is left of the time that Telegram keeps "
        f"them; the oldest is lost at {_at(event.expires_at_ms)}. Look at the network, the routes and the log of Peik."
    )


def _expired(event: events.UpdatesExpired, _: int) -> str:
    return f"{_bot(event)}: Telegram dropped {event.count} updates before Peik could fetch them. They cannot be had any more."


_INTRUDERS = {
    "poller": "Another program polls with this bot's token and takes updates away. Stop it, or change the token.",
    "webhook": "Somebody set another webhook for this bot. Take it away there, or change the token with @BotFather.",
    "gap": "Updates are missing that Telegram had not dropped: another program took them. Find it, or change the token.",
}


def _intruder(event: events.Intruder, _: int) -> str:
    return f"{_bot(event)}: {_INTRUDERS.get(event.kind, 'Somebody else uses its token.')} ({event.detail})"


def _consumer_expired(event: events.ConsumerExpired, _: int) -> str:
    return (
        f"{_bot(event)}: consumer {event.consumer} was not used for long and is forgotten. Nothing is kept for it any more; "
        "when it comes back it begins with the oldest update that is still here."
    )


def _near_end(event: events.UnreadNearEnd, _: int) -> str:
    return (
        f"{_bot(event)}: consumer {event.consumer} has not read updates since {_at(event.oldest_at_ms)}. From "
        f"{_at(event.ends_at_ms)} on they are dropped. Start it, or raise PEIK_KEEP_UNREAD."
    )


def _dropped(event: events.UnreadDropped, _: int) -> str:
    return f"{_bot(event)}: {event.count} updates that nobody had read were too old and are gone (PEIK_KEEP_UNREAD)."


def _source_failed(event: events.SourceFailed, _: int) -> str:
    return (
        f"{_bot(event)} has had no updates by {event.source} for 5 minutes: {event.why}. Nothing is lost for 24 hours; "
        "Peik goes on trying. Look at the network and the routes."
    )


def _dead_arrival(event: events.ArrivalSettled, count: int) -> str:
    many = "1 update" if count == 1 else f"{count} updates"
    return (
        f"{_bot(event)}: {many} could not be handled by {event.consumer} and became dead arrivals; the last one is "
        f"{event.arrival_id} ({event.kind}): {event.reason}. Read them, mend the cause, and retry them: see inbox.md."
    )


def _paused(event: events.BotPaused, _: int) -> str:
    return f"{_bot(event)} is paused, and its letters wait: {event.reason}"


def _account(
    event: "session_events.SessionRevoked | session_events.SessionUnfit | session_events.SessionFlooded",
) -> str:
    return f"session {event.session_id}" + (f" (account {event.bot_id})" if event.bot_id else "")


def _revoked(event: session_events.SessionRevoked, _: int) -> str:
    return (
        f"Telegram ended {_account(event)}: {event.why}. Its letters wait, and nothing of it is archived. Sign in again: "
        "see sessions.md. Telegram does not replay all that happens until then."
    )


def _unfit(event: session_events.SessionUnfit, _: int) -> str:
    return f"{_account(event)} cannot run until somebody mends it: {event.why}"


def _flooded(event: session_events.SessionFlooded, _: int) -> str:
    return (
        f"Telegram lets {_account(event)} wait for {_long(event.wait_s)}. Its letters wait so long. Send less with it: "
        "accounts that write like machines are banned."
    )


def _archive_away(event: session_events.ArchiveAway, _: int) -> str:
    return (
        f"the archive has not answered for a minute: {event.why}. Accounts wait for it; bots go on. Telegram keeps what "
        "accounts miss, but not for ever. Look at its server, its disk and PEIK_ARCHIVE."
    )


def _push_failed(event: session_events.PushFailed, _: int) -> str:
    return (
        f"the webhook of accounts at {event.endpoint} has taken nothing for 5 minutes: {event.why}. Peik goes on trying; "
        "what waits is kept for PEIK_KEEP_FEED."
    )


def _host(event: job_events.HostOpened, _: int) -> str:
    return (
        f"{event.host} has failed for 5 minutes: {event.why}. Jobs that need it wait, and one at a time tries. Nothing is "
        "lost; look whether it is down for everybody, or only for this machine."
    )


def _jobs_failing(event: job_events.JobRan, _: int) -> str:
    return (
        f"{JOBS_FAILING} jobs of the kind {event.kind} failed within an hour; the last one is {event.job_id}: {event.reason} "
        "Read them, mend the cause, and retry them: see jobs.md."
    )


def _folder_left(event: job_events.FolderLeft, _: int) -> str:
    return (
        f"the work folder of job {event.job_id} could not be removed {event.tries} times, for 10 minutes by now: {event.why}. "
        "Peik goes on trying. Look at its rights and at what has it open: it takes room that other jobs need."
    )


def _disk_short(event: job_events.DiskShort, _: int) -> str:
    return (
        f"there has been no room for jobs for a minute: {event.why} Jobs that need a folder wait; letters go on. Free the "
        "disk, or change PEIK_WORK_MAX and PEIK_WORK_FREE."
    )


RULES: "tuple[Rule[events.Event], ...]" = (
    as_rule(Rule(event=events.OfflineTooLong, text=_offline, repeat_s=HOUR_S)),
    as_rule(
        Rule(
            event=events.InboxNearExpiry,
            text=_near_expiry,
            repeat_s=DAY_S,
            apart_by=("bot_id", "percent_left"),
            over=events.SourceBack,
        )
    ),
    as_rule(Rule(event=events.UpdatesExpired, text=_expired, repeat_s=60.0)),
    as_rule(
        Rule(event=events.Intruder, text=_intruder, repeat_s=HOUR_S, apart_by=("bot_id", "kind"), fades_s=2 * HOUR_S)
    ),
    as_rule(
        Rule(event=events.ConsumerExpired, text=_consumer_expired, repeat_s=HOUR_S, apart_by=("bot_id", "consumer"))
    ),
    as_rule(Rule(event=events.UnreadNearEnd, text=_near_end, repeat_s=DAY_S, apart_by=("bot_id", "consumer"))),
    as_rule(Rule(event=events.UnreadDropped, text=_dropped, repeat_s=DAY_S)),
    as_rule(
        Rule(event=events.SourceFailed, text=_source_failed, repeat_s=HOUR_S, after_s=300.0, ends=events.SourceBack)
    ),
    as_rule(
        Rule(
            event=events.ArrivalSettled,
            text=_dead_arrival,
            repeat_s=600.0,
            apart_by=("bot_id", "consumer"),
            is_meant=lambda event: event.state is State.FAILED,
            is_counted=True,
        )
    ),
    as_rule(Rule(event=events.BotPaused, text=_paused, repeat_s=HOUR_S, over=events.BotResumed)),
    as_rule(
        Rule(
            event=session_events.SessionRevoked,
            text=_revoked,
            repeat_s=HOUR_S,
            apart_by=("session_id",),
            over=session_events.SessionUp,
        )
    ),
    as_rule(
        Rule(
            event=session_events.SessionUnfit,
            text=_unfit,
            repeat_s=DAY_S,
            apart_by=("session_id",),
            over=session_events.SessionUp,
        )
    ),
    as_rule(
        Rule(
            event=session_events.SessionFlooded,
            text=_flooded,
            repeat_s=HOUR_S,
            apart_by=("session_id",),
            is_meant=lambda event: event.wait_s > FLOOD_S,
            fades_s=HOUR_S,
        )
    ),
    as_rule(
        Rule(
            event=session_events.ArchiveAway,
            text=_archive_away,
            repeat_s=HOUR_S,
            apart_by=(),
            after_s=60.0,
            ends=session_events.ArchiveBack,
        )
    ),
    as_rule(
        Rule(
            event=session_events.PushFailed,
            text=_push_failed,
            repeat_s=HOUR_S,
            apart_by=(),
            after_s=300.0,
            ends=session_events.PushBack,
        )
    ),
    as_rule(
        Rule(
            event=job_events.HostOpened,
            text=_host,
            repeat_s=HOUR_S,
            apart_by=("host",),
            after_s=300.0,
            ends=job_events.HostClosed,
        )
    ),
    as_rule(
        Rule(
            event=job_events.JobRan,
            text=_jobs_failing,
            repeat_s=HOUR_S,
            apart_by=("kind",),
            is_meant=lambda event: event.state is State.FAILED,
            at_least=JOBS_FAILING,
            fades_s=HOUR_S,
        )
    ),
    as_rule(
        Rule(
            event=job_events.FolderLeft,
            text=_folder_left,
            repeat_s=DAY_S,
            apart_by=("job_id",),
            is_meant=lambda event: event.tries >= FOLDER_TRIES,
        )
    ),
    as_rule(
        Rule(
            event=job_events.DiskShort,
            text=_disk_short,
            repeat_s=HOUR_S,
            apart_by=(),
            after_s=60.0,
            ends=job_events.DiskBack,
        )
    ),
)
