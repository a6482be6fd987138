"""Where lines of the log go: a terminal, JSON elsewhere, a file besides, or the logger of a program. No secret goes with them."""

import logging
import sys

import structlog

from peik.core.token import without_secrets
from peik.ops.log_file import LogFile


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
