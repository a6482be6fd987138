"""Events as log lines. One event, one line, glyph first: -> sent, <- delivered, ~ retry, ! dead, # held."""

from collections.abc import Callable, Mapping, Sequence

import structlog

from peik import backup_events, events, job_events, session_events
from peik.clock import Clock, SystemClock
from peik.core.letter import State
from peik.core.trace import is_likely, plain
from peik.ops.log_accounts import write_archive, write_session
from peik.ops.log_inbox import write_arrival, write_consumer, write_source
from peik.ops.log_jobs import write_job
from peik.ops.log_pen import GLYPH, Pen


class EventLog:
    """A listener that writes. Letters that go as they should are told at debug level only: there may be thousands a second."""

    def __init__(
        self, *, level: str, log: structlog.typing.FilteringBoundLogger | None = None, clock: Clock | None = None
    ) -> None:
        self._pen = Pen(log or structlog.get_logger("peik"), shows_all=level == "debug", clock=clock or SystemClock())

    def __call__(self, told: Sequence[events.Event]) -> None:
        for event in told:
            _write(self._pen, event)


# Who has the lines of the rest, by the module that an event is of.
_OTHERS: Mapping[str, Sequence[Callable[[Pen, events.Event], None]]] = {
    events.__name__: (write_source, write_arrival, write_consumer),
    session_events.__name__: (write_session, write_archive),
    job_events.__name__: (write_job,),
}


def _write(pen: Pen, event: events.Event) -> None:
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


def _write_letter(pen: Pen, event: events.Settled) -> None:
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
