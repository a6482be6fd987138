"""Events as log lines. One event, one line, glyph first: -> sent, <- delivered, ~ retry, ! dead, # held."""

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence

import structlog

from peik.accounts import events as session_events
from peik.backups import model as backup_events
from peik.clock import Clock, SystemClock
from peik.core import events
from peik.core.letter import State
from peik.core.trace import is_likely, plain, trace_of
from peik.core.units import rfc3339
from peik.jobs import events as job_events
from peik.jobs.model import JobEnd
from peik.schedules import model as schedule_events

# What writes the lines of the log: to whom, how much, and the same trouble not again and again.


SAME_S = 60.0  # the same trouble is told again after so long

GLYPH = {
    State.COMPLETED: "<-",
    State.FAILED: "!",
    State.WAITING: "~",
    State.DELAYED: "~",
    State.CANCELLED: "x",
    State.ACTIVE: "->",
}


class LogWriter:
    def __init__(self, book: structlog.typing.FilteringBoundLogger, *, shows_all: bool, clock: Clock) -> None:
        self.book = book
        self.shows_all = shows_all  # also what goes as it should: there may be thousands a second
        self._clock = clock
        self._said_at: dict[Hashable, float] = {}  # in the order in which it was said

    def is_news(self, *trouble: Hashable) -> bool:
        """Anyone who needs the store asks it every second or two; of an hour with a full disk the log needs sixty lines."""
        now = self._clock.mono()
        while self._said_at and now - self._said_at[oldest := next(iter(self._said_at))] >= SAME_S:
            del self._said_at[oldest]
        if trouble in self._said_at:
            return False
        self._said_at[trouble] = now
        return True


# Lines of the log about accounts, and the archive of what they see.


def write_session(pen: LogWriter, event: events.Event) -> None:
    """Accounts and their connections."""
    match event:
        case session_events.SessionUp(bot_id=bot_id, session_id=session_id):
            pen.book.info("-> session is up", session=session_id, bot=bot_id)
        case session_events.SessionDown(bot_id=bot_id, session_id=session_id, why=why, retry_s=retry_s):
            if pen.is_news(session_events.SessionDown, session_id, why):
                pen.book.warning(
                    "~ session is down", session=session_id, bot=bot_id, why=why, retry_s=round(retry_s, 1)
                )
        case session_events.SessionCalm(session_id=session_id):
            pen.book.debug("-> session is down no more", session=session_id)
        case session_events.SessionFlooded(bot_id=bot_id, session_id=session_id, wait_s=wait_s):
            if pen.is_news(session_events.SessionFlooded, session_id):
                pen.book.warning(
                    "# Telegram asks the account to wait", session=session_id, bot=bot_id, wait_s=round(wait_s, 1)
                )
        case session_events.SessionRevoked(bot_id=bot_id, session_id=session_id, why=why):
            pen.book.error("! session revoked; sign in again", session=session_id, bot=bot_id, why=why)
        case session_events.SessionUnfit(bot_id=bot_id, session_id=session_id, why=why):
            if pen.is_news(event):
                pen.book.error("! session cannot run", session=session_id, bot=bot_id, why=why)
        case session_events.SessionLockLost(bot_id=bot_id, session_id=session_id):
            pen.book.warning("! this node left a session that it could not hold", session=session_id, bot=bot_id)
        case session_events.SessionNotice(words=words):
            pen.book.warning(f"! {words}")


def write_archive(pen: LogWriter, event: events.Event) -> None:
    """What accounts see, and where it is kept. `SessionFed` has no line: there may be thousands a second."""
    match event:
        case session_events.ArchiveGap(session_id=session_id, chat_id=chat_id):
            if pen.is_news(event):
                chat = "private and groups" if chat_id is None else chat_id
                pen.book.info("# Telegram cannot replay; the history is read", session=session_id, chat=chat)
        case session_events.HolesFilled(session_id=session_id, chat_id=chat_id, found=found, deleted=deleted):
            pen.book.info("+ history read", session=session_id, chat=chat_id, found=found, deleted=deleted)
        case session_events.ChatUnread(session_id=session_id, chat_id=chat_id, why=why):
            if pen.is_news(event):
                pen.book.warning("! history cannot be read", session=session_id, chat=chat_id, why=why)
        case session_events.ChatBehind(session_id=session_id, chat_id=chat_id, why=why, retry_s=retry_s):
            if pen.is_news(session_events.ChatBehind, session_id, chat_id, why):
                chat = "list of chats" if chat_id is None else chat_id
                pen.book.warning(
                    "~ history cannot be read now", session=session_id, chat=chat, why=why, retry_s=round(retry_s)
                )
        case session_events.ChatReadAgain(session_id=session_id, chat_id=chat_id):
            chat = "list of chats" if chat_id is None else chat_id
            pen.book.info("-> history is read again", session=session_id, chat=chat)
        case session_events.CrawlAdvanced(session_id=session_id, chat_id=chat_id, crawled=crawled):
            words = "+ crawl is done" if event.is_done else "+ crawled"
            level = logging.INFO if event.is_done else logging.DEBUG
            pen.book.log(level, words, session=session_id, chat=chat_id, crawled=crawled, to=event.crawled_to)
        case session_events.MembersRead(session_id=session_id, chat_id=chat_id, members=members):
            pen.book.info(
                "+ members read",
                session=session_id,
                chat=chat_id,
                members=members,
                joined=event.joined,
                left=event.left,
                whole=event.is_whole,
            )
        case session_events.FileFetched(session_id=session_id, chat_id=chat_id, size_bytes=size_bytes):
            pen.book.debug("+ file", session=session_id, chat=chat_id, size_bytes=size_bytes)
        case session_events.FileGivenUp(session_id=session_id, chat_id=chat_id, message_id=message_id, why=why):
            pen.book.warning("! file cannot be had", session=session_id, chat=chat_id, message=message_id, why=why)
        case session_events.ArchiveAway(why=why):
            if pen.is_news(event):
                pen.book.warning("! the archive does not answer; accounts wait", why=why)
        case session_events.ArchiveBack():
            pen.book.info("-> the archive is open")
        case session_events.PushFailed(endpoint=endpoint, why=why):
            pen.book.warning("~ the webhook of accounts fails; lines are kept", endpoint=endpoint, why=why)
        case session_events.PushBack(endpoint=endpoint, away_s=away_s, is_left=is_left):
            words = "# another node posts to the webhook of accounts" if is_left else "-> the webhook answers again"
            pen.book.info(words, endpoint=endpoint, away_s=round(away_s, 1))
        case session_events.PushRefused(endpoint=endpoint, count=count):
            if pen.is_news(session_events.PushRefused, endpoint):
                pen.book.error("! the webhook does not want lines (410)", endpoint=endpoint, count=count)
        case session_events.LogDropped(count=count):
            pen.book.warning("! lines of the log are not in the archive", count=count)


# Lines of the log about updates, on their way in and on.


def write_source(pen: LogWriter, event: events.Event) -> None:
    """Updates on their way in."""
    bot_id = event.bot_id
    match event:
        case events.Arrived(stored=stored, duplicates=duplicates, last_number=last):
            if pen.shows_all:
                # The numbers of one commit follow each other.
                taken = " ".join(trace_of(bot_id, number) for number in range(last - stored + 1, last + 1))
                pen.book.debug(
                    "+ arrived",
                    bot=bot_id,
                    stored=stored,
                    duplicates=duplicates,
                    last_number=last,
                    **({"trace": taken} if taken else {}),
                )
        case events.InboxRecovered():
            pen.book.info(
                "+ recovered what Telegram kept",
                bot=bot_id,
                found=event.found,
                stored=event.stored,
                duplicates=event.duplicates,
                expired="unknown" if event.expired is None else event.expired,
                took_s=round(event.took_s, 2),
                away_s="first start" if event.away_s is None else round(event.away_s, 1),
            )
        case events.UpdatesExpired(count=count):
            pen.book.error("! Telegram dropped updates before we came", bot=bot_id, count=count)
        case events.Intruder(kind="webhook", detail=host):
            pen.book.error(
                "! the webhook of this bot led elsewhere; Peik takes it away",
                bot=bot_id,
                host=host,
                to_give_it_back=f"peik bots inbound {bot_id} off, then set it again over there",
            )
        case events.Intruder(kind=kind, detail=detail):
            pen.book.error("! somebody else uses this token", bot=bot_id, kind=kind, detail=detail)
        case events.SourceFailed(source=source, why=why, wait_s=wait_s):
            pen.book.warning("~ no updates can be had", bot=bot_id, source=source, why=why, wait_s=round(wait_s, 1))
        case events.SourceBack(source=source, away_s=away_s):
            pen.book.info("+ updates come again", bot=bot_id, source=source, away_s=round(away_s, 1))
        case events.NumberingReset(expected_id=expected, first_id=first, epoch=epoch):
            pen.book.warning(
                "# Telegram starts update ids over", bot=bot_id, expected_id=expected, first_id=first, epoch=epoch
            )
        case events.WebhookSet():
            pen.book.info("+ Telegram pushes updates to us", bot=bot_id)
        case events.InboxNearExpiry(percent_left=percent, expires_at_ms=at_ms):
            pen.book.error(
                "! Telegram will drop updates soon", bot=bot_id, percent_left=percent, expires_at=rfc3339(at_ms)
            )
        case events.OfflineTooLong(away_s=away_s, expired=expired):
            shown = "unknown" if expired is None else expired
            pen.book.error("! offline for more than a day", bot=bot_id, away_s=round(away_s), expired=shown)


def write_arrival(pen: LogWriter, event: events.Event) -> None:
    """Arrivals on their way on."""
    bot_id = event.bot_id
    match event:
        case events.HandedOn(consumer=consumer, arrivals=arrivals):
            if pen.shows_all:
                pen.book.debug(
                    "-> handed on",
                    bot=bot_id,
                    consumer=consumer,
                    arrival=" ".join(str(one.id) for one in arrivals),
                    trace=" ".join(trace_of(bot_id, one.number) for one in arrivals),
                )
        case events.HandedAgain(consumer=consumer, count=count):
            pen.book.warning(
                "~ handed again",
                bot=bot_id,
                consumer=consumer,
                count=count,
                first=event.first_number,
                deaths=event.deaths,
            )
        case events.ArrivalSettled(state=State.FAILED):
            pen.book.warning(
                "! dead arrival",
                bot=bot_id,
                consumer=event.consumer,
                arrival=event.arrival_id,
                trace=trace_of(bot_id, event.number),
                kind=event.kind,
                tries=event.tries,
                reason=event.reason,
            )
        case events.ArrivalSettled(consumer=consumer, arrival_id=arrival_id, kind=kind):
            if pen.shows_all:
                pen.book.debug(
                    "<- handled",
                    bot=bot_id,
                    consumer=consumer,
                    arrival=arrival_id,
                    kind=kind,
                    trace=trace_of(bot_id, event.number),
                )
        case events.ArrivalDeferred(consumer=consumer, arrival_id=arrival_id):
            pen.book.warning(
                "~ handling failed",
                bot=bot_id,
                consumer=consumer,
                arrival=arrival_id,
                trace=trace_of(bot_id, event.number),
                reason=event.reason,
                tries=event.tries,
                wait_s=round(event.wait_s, 1),
            )


def write_consumer(pen: LogWriter, event: events.Event) -> None:
    """Who reads them, and what became of those that nobody read."""
    bot_id = event.bot_id
    match event:
        case events.ConsumerAway(consumer=consumer, why=why):
            pen.book.warning("# consumer is away; what comes is kept", bot=bot_id, consumer=consumer, why=why)
        case events.ConsumerBack(consumer=consumer, away_s=away_s):
            pen.book.info("-> consumer is back", bot=bot_id, consumer=consumer, away_s=round(away_s, 1))
        case events.ConsumerWaits(consumer=consumer):
            pen.book.info("# handlers wait for those of another process", bot=bot_id, consumer=consumer)
        case events.AnswerIgnored(consumer=consumer, arrival_id=arrival_id, why=why):
            pen.book.warning(
                "! a call in the answer to a push is none",
                bot=bot_id,
                consumer=consumer,
                arrival=arrival_id,
                why=why,
            )
        case events.ConsumerExpired(consumer=consumer):
            pen.book.warning("x consumer forgotten: nobody used it", bot=bot_id, consumer=consumer)
        case events.UnreadNearEnd(consumer=consumer, oldest_at_ms=oldest, ends_at_ms=ends):
            pen.book.error(
                "! unread arrivals will be dropped",
                bot=bot_id,
                consumer=consumer,
                oldest_at=rfc3339(oldest),
                ends_at=rfc3339(ends),
            )
        case events.UnreadDropped(count=count):
            pen.book.error("! unread arrivals dropped", bot=bot_id, count=count)
        case events.UserLimited(consumer=consumer, user_id=user_id):
            pen.book.info("# user writes too fast", bot=bot_id, consumer=consumer, user=user_id)
        case events.OutageSettled():
            # Every restart is an outage of a few seconds, through which nobody waited.
            pen.book.log(
                logging.INFO if event.missed else logging.DEBUG,
                "# outage settled",
                bot=bot_id,
                policy=event.policy,
                away_s=round(event.away_s, 1),
                missed=event.missed,
                handed=event.handed,
                notices=event.notices,
            )


# Lines of the log about jobs, and what they need.


def write_job(pen: LogWriter, event: events.Event) -> None:
    match event:
        case job_events.JobsQueued(kind=kind, count=count):
            if pen.shows_all:
                pen.book.debug("+ jobs queued", kind=kind, count=count)
        case job_events.JobBegan(job_id=job_id, kind=kind, run=run, waited_s=waited_s):
            if pen.shows_all:
                pen.book.debug("-> job begins", job=job_id, kind=kind, run=run, waited_s=round(waited_s, 1))
        case job_events.JobRan():
            _run(pen, event)
        case job_events.JobSaid(job_id=job_id, line=line):
            pen.book.info("| job", job=job_id, line=line)
        case job_events.JobCancelled(job_id=job_id, kind=kind):
            if pen.shows_all:
                pen.book.debug("x job cancelled", job=job_id, kind=kind)
        case job_events.JobKindChanged(kind=kind, is_paused=is_paused, rate=rate, by=by):
            words = "# a kind of jobs rests" if is_paused else "-> a kind of jobs goes"
            pen.book.info(words, kind=kind, rate=rate or "off", by=by)
        case job_events.FolderLeft(job_id=job_id, why=why, tries=tries):
            if pen.is_news(job_events.FolderLeft, job_id):
                pen.book.warning("! a work folder cannot be removed yet", job=job_id, tries=tries, why=why)
        case job_events.DiskShort(why=why):
            pen.book.error("# no room for work; jobs wait", why=why)
        case job_events.DiskBack():
            pen.book.info("-> there is room for work again")
        case job_events.HostOpened(host=host, why=why):
            pen.book.warning("! a host fails; jobs wait for it", host=host, why=why)
        case job_events.HostClosed(host=host, after_s=after_s):
            pen.book.info("-> the host answers again", host=host, after_s=round(after_s, 1))


def _run(pen: LogWriter, event: job_events.JobRan) -> None:
    fields = {"job": event.job_id, "kind": event.kind, "run": event.run, "run_s": round(event.run_s, 1)}
    if event.state is State.FAILED:
        pen.book.warning("! dead job", **fields, end=event.end.value, reason=event.reason)
    elif event.end in (JobEnd.FAILED, JobEnd.LATE, JobEnd.LOST):
        pen.book.info("~ job is tried again", **fields, end=event.end.value, reason=event.reason)
    elif pen.shows_all:
        pen.book.debug(f"{GLYPH[event.state]} job {event.end.value}", **fields, reason=event.reason)


def write_schedule(pen: LogWriter, event: events.Event) -> None:
    match event:
        case schedule_events.ScheduleRan(schedule=name, due_at_ms=due_ms, state=state, made=made, reason=reason):
            if state is schedule_events.ScheduleRunState.REFUSED:
                pen.book.warning("! schedule refused", schedule=name, due=rfc3339(due_ms), reason=reason)
            elif state is schedule_events.ScheduleRunState.SKIPPED:
                pen.book.info("# schedule passed over", schedule=name, due=rfc3339(due_ms), reason=reason)
            else:
                pen.book.info("-> schedule ran", schedule=name, due=rfc3339(due_ms), made=made)
        case schedule_events.ScheduleMissed(schedule=name, count=count, caught_up=caught_up):
            pen.book.warning(
                "! schedule missed",
                schedule=name,
                count=f"{count} or more" if event.is_least else count,
                caught_up=caught_up,
                first=rfc3339(event.first_ms),
                last=rfc3339(event.last_ms),
            )


class EventLog:
    """A listener that writes. Letters that go as they should are told at debug level only: there may be thousands a second."""

    def __init__(
        self, *, level: str, log: structlog.typing.FilteringBoundLogger | None = None, clock: Clock | None = None
    ) -> None:
        self._pen = LogWriter(
            log or structlog.get_logger("peik"), shows_all=level == "debug", clock=clock or SystemClock()
        )

    def __call__(self, told: Sequence[events.Event]) -> None:
        for event in told:
            _write(self._pen, event)


# Who has the lines of the rest, by the module that an event is of.
_OTHERS: Mapping[str, Sequence[Callable[[LogWriter, events.Event], None]]] = {
    events.__name__: (write_source, write_arrival, write_consumer),
    session_events.__name__: (write_session, write_archive),
    job_events.__name__: (write_job,),
    schedule_events.__name__: (write_schedule,),
}


def _write(pen: LogWriter, event: events.Event) -> None:
    match event:
        case events.Settled():
            _write_letter(pen, event)
        case events.Accepted(count=count):
            if pen.shows_all:
                pen.book.debug(f"+ accepted {count}", **_answering(event.traced))
        case events.Answered(bot_id=bot_id, method=method, trace=trace, is_taken=is_taken):
            if pen.shows_all:
                pen.book.debug(
                    "<- answered" if is_taken else "! answer refused", bot=bot_id, method=method, **_traced(trace)
                )
        case events.Held(bot_id=bot_id, chat=chat, wait_s=wait_s):
            pen.book.info("# held by Telegram", bot=bot_id, chat=chat or "all", wait_s=wait_s)
        case events.ChatShut(bot_id=bot_id, chat=chat, reason=reason):
            pen.book.info("# chat cannot be reached", bot=bot_id, chat=chat, reason=reason)
        case events.ChatMoved(bot_id=bot_id, chat=chat, to_chat_id=new):
            pen.book.info("# chat has another id now", bot=bot_id, chat=chat, to=new)
        case events.BotPaused(bot_id=bot_id, reason=reason):
            pen.book.error("! bot paused", bot=bot_id, reason=reason)
        case events.BotResumed(bot_id=bot_id):
            pen.book.info("-> bot goes on", bot=bot_id)
        case events.RouteOpened(route=route, why=why):
            pen.book.warning("! route is down", route=route, why=why)
        case events.RouteClosed(route=route, after_s=after_s):
            pen.book.info("-> route answers again", route=route, after_s=round(after_s, 1))
        case events.RouteChosen(route=None):
            pen.book.warning("! Telegram cannot be reached; letters wait")
        case events.RouteChosen(route=route):
            pen.book.info("-> letters go by", route=route)
        case events.StoreFailed(what=what, why=why):
            if pen.is_news(event):
                pen.book.error("! the store does not answer", what=what, why=why)
        case events.DoorsWeak(what=what):
            pen.book.warning("! the doors are weak", what=what)
        case events.CertificateRenewed():
            pen.book.info("-> another certificate is shown from now on")
        case events.ServerReplaced(version=version):
            pen.book.info(
                "-> another process serves from now on; this one answers what it was asked, and ends", version=version
            )
        case events.ServerTakenOver(process=process, version=version):
            pen.book.info("-> took over from the process that ran before", process=process, version=version)
        case events.ProcessEnded(place=place, process=process, how=how, again_s=again_s):
            pen.book.error(
                "! a process ended; another one is started", place=place, process=process, how=how, again_s=again_s
            )
        case events.ProcessesReplaced(replaced=replaced, processes=processes) if replaced < processes:
            pen.book.error("! a new process did not come up; the others stay", replaced=replaced, processes=processes)
        case events.ProcessesReplaced(processes=processes):
            pen.book.info("-> all processes were replaced", processes=processes)
        case events.StoreWeak(what=what):
            pen.book.warning("! the store may lose what was accepted", what=what)
        case events.ClockJumped(ahead_s=ahead_s, settles_s=settles_s):
            pen.book.error(
                "! the clock was set forward; nothing goes by age", ahead_s=round(ahead_s), settles_s=round(settles_s)
            )
        case events.ClockSettled():
            pen.book.info("-> the clock is believed again")
        case events.SecretsNotice(words=words):
            pen.book.warning(f"! {words}")
        case events.StoreUpgraded(words=words):
            pen.book.warning(f"-> {words}")
        case events.StoreRecovered():
            pen.book.info("-> the store is back")
        case events.Recovered(bot_id=bot_id, count=count):
            pen.book.warning("~ found in flight after a crash; they may have arrived", bot=bot_id, count=count)
        case events.HookTold(letter_id=letter_id, endpoint=endpoint):
            if pen.shows_all:
                pen.book.debug("<- webhook told", letter=letter_id, endpoint=endpoint)
        case events.HookFailed(letter_id=letter_id, endpoint=endpoint, why=why, wait_s=wait_s):
            pen.book.warning("~ webhook failed", letter=letter_id, endpoint=endpoint, why=why, wait_s=wait_s)
        case events.HookDropped(letter_id=letter_id, endpoint=endpoint, tries=tries, why=why):
            pen.book.error("! webhook given up", letter=letter_id, endpoint=endpoint, tries=tries, why=why)
        case events.LeasesTaken(taken=taken, held=held):
            pen.book.info("+ acts for more bots", taken=taken, held=held)
        case events.LeasesLetGo(let_go=let_go, held=held):
            pen.book.info("# left bots to other nodes", let_go=let_go, held=held)
        case events.LeasesLost(lost=lost, held=held):
            pen.book.warning("! another node has taken bots from this one", lost=lost, held=held)
        case events.Surprise(bot_id=bot_id, where=where, error=error):
            pen.book.error("! surprise", bot=bot_id, where=where, error=error)
        case backup_events.BackupMade(path=path, size_bytes=size_bytes):
            pen.book.info("+ backup made", path=path, size_bytes=size_bytes)
        case backup_events.BackupFailed(what=what, why=why):
            pen.book.error("! backup failed", what=what, why=why)
        case _:
            for write in _OTHERS.get(type(event).__module__, ()):
                write(pen, event)


def _write_letter(pen: LogWriter, event: events.Settled) -> None:
    if event.state is State.FAILED:
        pen.book.warning(
            "! dead letter",
            bot=event.bot_id,
            letter=event.letter_id,
            reason=event.reason,
            **_traced(event.trace),
        )
    elif pen.shows_all:
        glyph = GLYPH[event.state]
        ids = event.message_ids
        pen.book.debug(
            f"{glyph} {event.move}",
            bot=event.bot_id,
            letter=event.letter_id,
            chat=event.chat,
            **_traced(event.trace),
            **({"message": ids[0] if len(ids) == 1 else list(ids)} if ids else {}),
        )


def _traced(trace: str | None) -> dict[str, object]:
    """The same word in every line of one story; and whether it is only likely that this line belongs to it."""
    if trace is None:
        return {}
    return {"trace": plain(trace), "is_likely": True} if is_likely(trace) else {"trace": trace}


def _answering(traced: Sequence[tuple[int, str]]) -> dict[str, object]:
    """The same for all letters of a commit."""
    if not traced:
        return {}
    fields: dict[str, object] = {"letter": " ".join(str(letter_id) for letter_id, _ in traced)}
    fields["trace"] = " ".join(dict.fromkeys(plain(trace) for _, trace in traced))
    return fields | ({"is_likely": True} if any(is_likely(trace) for _, trace in traced) else {})
