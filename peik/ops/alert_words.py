"""What alerts say, rule by rule: what happened, to what. What to do stands in the table, `peik.ops.alert_rules`."""

import datetime

from peik import events, job_events, outreach_events, session_events
from peik.ops.alert_rule import HOUR_S, ErrorSeen, Noticed

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
    "webhook": "Somebody set another webhook for this bot. Take it away there, or change the token with @BotFather.",
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


def broadcast_stopped(event: outreach_events.BroadcastMoved, _: int) -> str:
    return f"broadcast {event.broadcast_id} stopped by itself: {event.reason or 'it does not say why'}"


def noticed(event: Noticed, _: int) -> str:
    return event.words
