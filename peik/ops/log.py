"""Events as log lines. One event, one line, glyph first: -> sent, <- delivered, ~ retry, ! dead, # held."""

import logging
import sys
from collections.abc import Sequence

import structlog

from peik import events
from peik.core.letter import State

_GLYPH = {
    State.COMPLETED: "<-",
    State.FAILED: "!",
    State.WAITING: "~",
    State.DELAYED: "~",
    State.CANCELLED: "x",
    State.ACTIVE: "->",
}


def set_up(*, level: str, form: str) -> None:
    """For people in a terminal, JSON lines elsewhere."""
    is_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    renderer = structlog.processors.JSONRenderer(ensure_ascii=False) if is_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)


def plain_log() -> structlog.typing.FilteringBoundLogger:
    """A log that goes to Python's own logger "peik", for programs that Peik is only a part of: they decide what is shown."""
    wrapped: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        logging.getLogger("peik"),
        processors=[structlog.stdlib.filter_by_level, structlog.processors.LogfmtRenderer(key_order=["event"])],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return wrapped


class EventLog:
    """A listener that writes. Letters that go as they should are told at debug level only: there may be thousands a second."""

    def __init__(self, *, level: str, log: structlog.typing.FilteringBoundLogger | None = None) -> None:
        self._log = log or structlog.get_logger("peik")
        self._shows_all = level == "debug"

    def __call__(self, told: Sequence[events.Event]) -> None:
        for event in told:
            self._tell(event)

    def _tell(self, event: events.Event) -> None:
        match event:
            case events.Settled():
                self._letter(event)
            case events.Accepted(count=count):
                if self._shows_all:
                    self._log.debug(f"+ accepted {count}")
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
                self._log.error("! the store does not answer", what=what, why=why)
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
            case events.Surprise(bot_id=bot_id, where=where, error=error):
                self._log.error("! surprise", bot=bot_id, where=where, error=error)

    def _letter(self, event: events.Settled) -> None:
        if event.state is State.FAILED:
            self._log.warning("! dead letter", bot=event.bot_id, letter=event.letter_id, reason=event.reason)
        elif self._shows_all:
            glyph = _GLYPH[event.state]
            self._log.debug(f"{glyph} {event.move}", bot=event.bot_id, letter=event.letter_id, chat=event.chat)
