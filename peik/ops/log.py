"""Events as log lines. One event, one line, glyph first: -> sent, <- delivered, ~ retry, ! dead, # held."""

import logging
import sys
from collections.abc import Hashable, Sequence

import structlog

from peik import backup_events, events, job_events, session_events
from peik.clock import Clock, SystemClock
from peik.core.job import End
from peik.core.letter import State
from peik.core.token import without_secrets
from peik.core.trace import is_likely, plain, trace_of
from peik.ops.log_file import LogFile
from peik.shown import rfc3339

SAME_S = 60.0  # the same trouble is told again after so long

_GLYPH = {
    State.COMPLETED: "<-",
    State.FAILED: "!",
    State.WAITING: "~",
    State.DELAYED: "~",
    State.CANCELLED: "x",
    State.ACTIVE: "->",
}


def set_up(*, level: str, form: str, file: LogFile | None = None) -> None:
    """For people in a terminal, JSON lines elsewhere, and in a file besides."""
    is_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    renderer = structlog.processors.JSONRenderer(ensure_ascii=False) if is_json else structlog.dev.ConsoleRenderer()
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(_Masked(logging.BASIC_FORMAT))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *([] if file is None else [file.keep]),
            renderer,
            _mask,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[shown])
    if file is not None:
        logging.getLogger().addHandler(file.foreign())


def plain_log() -> structlog.typing.FilteringBoundLogger:
    """A log that goes to Python's own logger "peik", for programs that Peik is only a part of: they decide what is shown."""
    wrapped: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        logging.getLogger("peik"),
        processors=[structlog.stdlib.filter_by_level, structlog.processors.LogfmtRenderer(key_order=["event"]), _mask],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return wrapped


def _mask(logger: object, method: str, line: object) -> str:
    """After whatever makes text of it: nothing secret is left, wherever it stood. Our events hold none by themselves; the words
    of a foreign error might, and so might its causes."""
    return without_secrets(str(line))


class _Masked(logging.Formatter):
    """The same for the lines of Python's own loggers: of libraries that name the address that they could not reach."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class EventLog:
    """A listener that writes. Letters that go as they should are told at debug level only: there may be thousands a second."""

    def __init__(
        self, *, level: str, log: structlog.typing.FilteringBoundLogger | None = None, clock: Clock | None = None
    ) -> None:
        self._log = log or structlog.get_logger("peik")
        self._shows_all = level == "debug"
        self._clock = clock or SystemClock()
        self._said_at: dict[Hashable, float] = {}  # in the order in which it was said

    def __call__(self, told: Sequence[events.Event]) -> None:
        for event in told:
            self._tell(event)

    def _is_news(self, *trouble: Hashable) -> bool:
        """Whoever needs the store asks it every second or two; of an hour with a full disk the log needs sixty lines."""
        now = self._clock.mono()
        while self._said_at and now - self._said_at[oldest := next(iter(self._said_at))] >= SAME_S:
            del self._said_at[oldest]
        if trouble in self._said_at:
            return False
        self._said_at[trouble] = now
        return True

    def _tell(self, event: events.Event) -> None:
        match event:
            case events.Settled():
                self._letter(event)
            case events.Accepted(count=count):
                if self._shows_all:
                    self._log.debug(f"+ accepted {count}", **_answering(event.traced))
            case events.Answered(bot_id=bot_id, method=method, trace=trace, is_taken=is_taken):
                if self._shows_all:
                    self._log.debug(
                        "<- answered" if is_taken else "! answer refused", bot=bot_id, method=method, **_traced(trace)
                    )
            case events.Held(bot_id=bot_id, chat=chat, wait_s=wait_s):
                self._log.info("# held by Telegram", bot=bot_id, chat=chat or "all", wait_s=wait_s)
            case events.ChatShut(bot_id=bot_id, chat=chat, reason=reason):
                self._log.info("# chat cannot be reached", bot=bot_id, chat=chat, reason=reason)
            case events.ChatMoved(bot_id=bot_id, chat=chat, to_chat_id=new):
                self._log.info("# chat has another id now", bot=bot_id, chat=chat, to=new)
            case events.BotPaused(bot_id=bot_id, reason=reason):
                self._log.error("! bot paused", bot=bot_id, reason=reason)
            case events.BotResumed(bot_id=bot_id):
                self._log.info("-> bot goes on", bot=bot_id)
            case events.RouteOpened(route=route, why=why):
                self._log.warning("! route is down", route=route, why=why)
            case events.RouteClosed(route=route, after_s=after_s):
                self._log.info("-> route answers again", route=route, after_s=round(after_s, 1))
            case events.RouteChosen(route=None):
                self._log.warning("! Telegram cannot be reached; letters wait")
            case events.RouteChosen(route=route):
                self._log.info("-> letters go by", route=route)
            case events.StoreFailed(what=what, why=why):
                if self._is_news(event):
                    self._log.error("! the store does not answer", what=what, why=why)
            case events.DoorsWeak(what=what):
                self._log.warning("! the doors are weak", what=what)
            case events.CertificateRenewed():
                self._log.info("-> another certificate is shown from now on")
            case events.StoreWeak(what=what):
                self._log.warning("! the store may lose what was accepted", what=what)
            case events.SecretsNotice(words=words):
                self._log.warning(f"! {words}")
            case events.StoreRecovered():
                self._log.info("-> the store is back")
            case events.Recovered(bot_id=bot_id, count=count):
                self._log.warning("~ found in flight after a crash; they may have arrived", bot=bot_id, count=count)
            case events.HookTold(letter_id=letter_id, endpoint=endpoint):
                if self._shows_all:
                    self._log.debug("<- webhook told", letter=letter_id, endpoint=endpoint)
            case events.HookFailed(letter_id=letter_id, endpoint=endpoint, why=why, wait_s=wait_s):
                self._log.warning("~ webhook failed", letter=letter_id, endpoint=endpoint, why=why, wait_s=wait_s)
            case events.HookDropped(letter_id=letter_id, endpoint=endpoint, tries=tries, why=why):
                self._log.error("! webhook given up", letter=letter_id, endpoint=endpoint, tries=tries, why=why)
            case events.LeasesTaken(taken=taken, held=held):
                self._log.info("+ acts for more bots", taken=taken, held=held)
            case events.LeasesLetGo(let_go=let_go, held=held):
                self._log.info("# left bots to other nodes", let_go=let_go, held=held)
            case events.LeasesLost(lost=lost, held=held):
                self._log.warning("! another node has taken bots from this one", lost=lost, held=held)
            case events.Surprise(bot_id=bot_id, where=where, error=error):
                self._log.error("! surprise", bot=bot_id, where=where, error=error)
            case backup_events.BackupMade(path=path, size_bytes=size_bytes):
                self._log.info("+ backup made", path=path, size_bytes=size_bytes)
            case backup_events.BackupFailed(what=what, why=why):
                self._log.error("! backup failed", what=what, why=why)
            case _:
                self._source(event)
                self._consumer(event)
                self._session(event)
                self._archive(event)
                self._job(event)

    def _source(self, event: events.Event) -> None:
        """Updates on their way in."""
        bot_id = event.bot_id
        match event:
            case events.Arrived(stored=stored, duplicates=duplicates, last_number=last):
                if self._shows_all:
                    # The numbers of one commit follow each other.
                    taken = " ".join(trace_of(bot_id, number) for number in range(last - stored + 1, last + 1))
                    self._log.debug(
                        "+ arrived",
                        bot=bot_id,
                        stored=stored,
                        duplicates=duplicates,
                        last_number=last,
                        **({"trace": taken} if taken else {}),
                    )
            case events.InboxRecovered():
                self._log.info(
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
                self._log.error("! Telegram dropped updates before we came", bot=bot_id, count=count)
            case events.Intruder(kind=kind, detail=detail):
                self._log.error("! somebody else uses this token", bot=bot_id, kind=kind, detail=detail)
            case events.SourceFailed(source=source, why=why, wait_s=wait_s):
                self._log.warning(
                    "~ no updates can be had", bot=bot_id, source=source, why=why, wait_s=round(wait_s, 1)
                )
            case events.SourceBack(source=source, away_s=away_s):
                self._log.info("+ updates come again", bot=bot_id, source=source, away_s=round(away_s, 1))
            case events.NumberingReset(expected_id=expected, first_id=first, epoch=epoch):
                self._log.warning(
                    "# Telegram numbers updates anew", bot=bot_id, expected_id=expected, first_id=first, epoch=epoch
                )
            case events.WebhookSet():
                self._log.info("+ Telegram pushes updates to us", bot=bot_id)
            case events.InboxNearExpiry(percent_left=percent, expires_at_ms=at_ms):
                self._log.error(
                    "! Telegram will drop updates soon", bot=bot_id, percent_left=percent, expires_at=rfc3339(at_ms)
                )
            case events.OfflineTooLong(away_s=away_s, expired=expired):
                shown = "unknown" if expired is None else expired
                self._log.error("! offline for more than a day", bot=bot_id, away_s=round(away_s), expired=shown)

    def _consumer(self, event: events.Event) -> None:
        """Arrivals on their way on."""
        bot_id = event.bot_id
        match event:
            case events.HandedOn(consumer=consumer, arrivals=arrivals):
                if self._shows_all:
                    self._log.debug(
                        "-> handed on",
                        bot=bot_id,
                        consumer=consumer,
                        arrival=" ".join(str(one.id) for one in arrivals),
                        trace=" ".join(trace_of(bot_id, one.number) for one in arrivals),
                    )
            case events.ArrivalSettled(state=State.FAILED):
                self._log.warning(
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
                if self._shows_all:
                    self._log.debug(
                        "<- handled",
                        bot=bot_id,
                        consumer=consumer,
                        arrival=arrival_id,
                        kind=kind,
                        trace=trace_of(bot_id, event.number),
                    )
            case events.ArrivalDeferred(consumer=consumer, arrival_id=arrival_id):
                self._log.warning(
                    "~ handling failed",
                    bot=bot_id,
                    consumer=consumer,
                    arrival=arrival_id,
                    trace=trace_of(bot_id, event.number),
                    reason=event.reason,
                    tries=event.tries,
                    wait_s=round(event.wait_s, 1),
                )
            case events.ConsumerAway(consumer=consumer, why=why):
                self._log.warning("# consumer is away; what comes is kept", bot=bot_id, consumer=consumer, why=why)
            case events.ConsumerBack(consumer=consumer, away_s=away_s):
                self._log.info("-> consumer is back", bot=bot_id, consumer=consumer, away_s=round(away_s, 1))
            case events.ConsumerWaits(consumer=consumer):
                self._log.info("# handlers wait for those of another process", bot=bot_id, consumer=consumer)
            case events.AnswerIgnored(consumer=consumer, arrival_id=arrival_id, why=why):
                self._log.warning(
                    "! a call in the answer to a push is none",
                    bot=bot_id,
                    consumer=consumer,
                    arrival=arrival_id,
                    why=why,
                )
            case events.ConsumerExpired(consumer=consumer):
                self._log.warning("x consumer forgotten: nobody used it", bot=bot_id, consumer=consumer)
            case events.UnreadNearEnd(consumer=consumer, oldest_at_ms=oldest, ends_at_ms=ends):
                self._log.error(
                    "! unread arrivals will be dropped",
                    bot=bot_id,
                    consumer=consumer,
                    oldest_at=rfc3339(oldest),
                    ends_at=rfc3339(ends),
                )
            case events.UnreadDropped(count=count):
                self._log.error("! unread arrivals dropped", bot=bot_id, count=count)
            case events.UserLimited(consumer=consumer, user_id=user_id):
                self._log.info("# user writes too fast", bot=bot_id, consumer=consumer, user=user_id)
            case events.OutageSettled():
                # Every restart is an outage of a few seconds, through which nobody waited.
                self._log.log(
                    logging.INFO if event.missed else logging.DEBUG,
                    "# outage settled",
                    bot=bot_id,
                    policy=event.policy,
                    away_s=round(event.away_s, 1),
                    missed=event.missed,
                    handed=event.handed,
                    notices=event.notices,
                )

    def _session(self, event: events.Event) -> None:
        """Accounts and their connections."""
        match event:
            case session_events.SessionUp(bot_id=bot_id, session_id=session_id):
                self._log.info("-> session is up", session=session_id, bot=bot_id)
            case session_events.SessionDown(bot_id=bot_id, session_id=session_id, why=why, retry_s=retry_s):
                if self._is_news(session_events.SessionDown, session_id, why):
                    self._log.warning(
                        "~ session is down", session=session_id, bot=bot_id, why=why, retry_s=round(retry_s, 1)
                    )
            case session_events.SessionFlooded(bot_id=bot_id, session_id=session_id, wait_s=wait_s):
                if self._is_news(session_events.SessionFlooded, session_id):
                    self._log.warning(
                        "# Telegram asks the account to wait", session=session_id, bot=bot_id, wait_s=round(wait_s, 1)
                    )
            case session_events.SessionRevoked(bot_id=bot_id, session_id=session_id, why=why):
                self._log.error("! session revoked; sign in again", session=session_id, bot=bot_id, why=why)
            case session_events.SessionUnfit(bot_id=bot_id, session_id=session_id, why=why):
                if self._is_news(event):
                    self._log.error("! session cannot run", session=session_id, bot=bot_id, why=why)
            case session_events.SessionLockLost(bot_id=bot_id, session_id=session_id):
                self._log.warning("! this node left a session that it could not hold", session=session_id, bot=bot_id)
            case session_events.SessionNotice(words=words):
                self._log.warning(f"! {words}")

    def _archive(self, event: events.Event) -> None:
        """What accounts see, and where it is kept. `SessionFed` has no line: there may be thousands a second."""
        match event:
            case session_events.ArchiveGap(session_id=session_id, chat_id=chat_id):
                if self._is_news(event):
                    chat = "private and groups" if chat_id is None else chat_id
                    self._log.info("# Telegram cannot replay; the history is read", session=session_id, chat=chat)
            case session_events.HolesFilled(session_id=session_id, chat_id=chat_id, found=found, deleted=deleted):
                self._log.info("+ history read", session=session_id, chat=chat_id, found=found, deleted=deleted)
            case session_events.ChatUnread(session_id=session_id, chat_id=chat_id, why=why):
                if self._is_news(event):
                    self._log.warning("! history cannot be read", session=session_id, chat=chat_id, why=why)
            case session_events.CrawlAdvanced(session_id=session_id, chat_id=chat_id, crawled=crawled):
                words = "+ crawl is done" if event.is_done else "+ crawled"
                level = logging.INFO if event.is_done else logging.DEBUG
                self._log.log(level, words, session=session_id, chat=chat_id, crawled=crawled, to=event.crawled_to)
            case session_events.ArchiveAway(why=why):
                if self._is_news(event):
                    self._log.warning("! the archive does not answer; accounts wait", why=why)
            case session_events.ArchiveBack():
                self._log.info("-> the archive is open")
            case session_events.PushFailed(endpoint=endpoint, why=why):
                self._log.warning("~ the webhook of accounts fails; lines are kept", endpoint=endpoint, why=why)
            case session_events.PushBack(endpoint=endpoint, away_s=away_s, is_left=is_left):
                words = "# another node posts to the webhook of accounts" if is_left else "-> the webhook answers again"
                self._log.info(words, endpoint=endpoint, away_s=round(away_s, 1))
            case session_events.PushRefused(endpoint=endpoint, count=count):
                if self._is_news(session_events.PushRefused, endpoint):
                    self._log.error("! the webhook does not want lines (410)", endpoint=endpoint, count=count)
            case session_events.LogDropped(count=count):
                self._log.warning("! lines of the log are not in the archive", count=count)

    def _job(self, event: events.Event) -> None:
        """Jobs, and what they need."""
        match event:
            case job_events.JobsQueued(kind=kind, count=count):
                if self._shows_all:
                    self._log.debug("+ jobs queued", kind=kind, count=count)
            case job_events.JobBegan(job_id=job_id, kind=kind, run=run, waited_s=waited_s):
                if self._shows_all:
                    self._log.debug("-> job begins", job=job_id, kind=kind, run=run, waited_s=round(waited_s, 1))
            case job_events.JobRan():
                self._run(event)
            case job_events.JobSaid(job_id=job_id, line=line):
                self._log.info("| job", job=job_id, line=line)
            case job_events.JobCancelled(job_id=job_id, kind=kind):
                if self._shows_all:
                    self._log.debug("x job cancelled", job=job_id, kind=kind)
            case job_events.FolderLeft(job_id=job_id, why=why, tries=tries):
                if self._is_news(job_events.FolderLeft, job_id):
                    self._log.warning("! a work folder cannot be removed yet", job=job_id, tries=tries, why=why)
            case job_events.DiskShort(why=why):
                self._log.error("# no room for work; jobs wait", why=why)
            case job_events.DiskBack():
                self._log.info("-> there is room for work again")
            case job_events.HostOpened(host=host, why=why):
                self._log.warning("! a host fails; jobs wait for it", host=host, why=why)
            case job_events.HostClosed(host=host, after_s=after_s):
                self._log.info("-> the host answers again", host=host, after_s=round(after_s, 1))

    def _run(self, event: job_events.JobRan) -> None:
        fields = {"job": event.job_id, "kind": event.kind, "run": event.run, "run_s": round(event.run_s, 1)}
        if event.state is State.FAILED:
            self._log.warning("! dead job", **fields, end=event.end.value, reason=event.reason)
        elif event.end in (End.FAILED, End.LATE, End.LOST):
            self._log.info("~ job is tried again", **fields, end=event.end.value, reason=event.reason)
        elif self._shows_all:
            self._log.debug(f"{_GLYPH[event.state]} job {event.end.value}", **fields, reason=event.reason)

    def _letter(self, event: events.Settled) -> None:
        if event.state is State.FAILED:
            self._log.warning(
                "! dead letter",
                bot=event.bot_id,
                letter=event.letter_id,
                reason=event.reason,
                **_traced(event.trace),
            )
        elif self._shows_all:
            glyph = _GLYPH[event.state]
            ids = event.message_ids
            self._log.debug(
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
