"""Query strings about the archive: which messages, events and lines of the log. Read strictly."""

import re

from starlette.requests import Request

from peik.archive_ports import LOG_LEVELS, Direction, EventFilter, LineKind, LogFilter, MessageFilter
from peik.doors.bodies import instant_ms
from peik.doors.queries import WORD_CHARS_MAX, read_limit, whole_number
from peik.errors import BadInput
from peik.sessions import following
from peik.sessions.following import Wanted

LIMIT_DEFAULT = 100
CURSOR_CHARS_MAX = 64
PAGE_NAMES = ("cursor", "limit")
MESSAGE_FILTERS = (
    "session_id", "agent_id", "chat_id", "direction", "sender_id", "kind", "since", "until", "text", "deleted",
)  # fmt: skip
EVENT_FILTERS = ("session_id", "agent_id", "event_type", "chat_id", "since", "until")
LOG_FILTERS = ("level", "event", "session_id", "bot_id", "since", "until", "text")
STREAM_FILTERS = ("session_id", "agent_id", "chat_id", "reader", "kinds")
EVENTS_READER = "/events"  # is put behind the name of a reader of events
READER_CHARS_MAX = following.READER_CHARS_MAX - len(EVENTS_READER)

# What a query of one database could not even be asked with; others would find nothing.
_UNASKABLE = re.compile("[\x00\ud800-\udfff]")


def read_message_filter(request: Request, *, also: tuple[str, ...] = PAGE_NAMES) -> MessageFilter:
    given = _given(request, MESSAGE_FILTERS, also)
    return MessageFilter(
        session_id=given.get("session_id"),
        agent_id=given.get("agent_id"),
        chat_id=_number(given, "chat_id"),
        direction=_direction(given.get("direction")),
        sender_id=_number(given, "sender_id"),
        kind=given.get("kind"),
        since_ms=_moment(given, "since"),
        until_ms=_moment(given, "until"),
        text=given.get("text"),
        is_deleted=_flag(given, "deleted"),
    )


def read_event_filter(request: Request) -> EventFilter:
    given = _given(request, EVENT_FILTERS, PAGE_NAMES)
    return EventFilter(
        session_id=given.get("session_id"),
        agent_id=given.get("agent_id"),
        event_type=given.get("event_type"),
        chat_id=_number(given, "chat_id"),
        since_ms=_moment(given, "since"),
        until_ms=_moment(given, "until"),
    )


def read_log_filter(request: Request) -> LogFilter:
    given = _given(request, LOG_FILTERS, PAGE_NAMES)
    level = given.get("level")
    if level is not None and level not in LOG_LEVELS:
        raise BadInput(
            code="bad_level", detail=f"level is one of {', '.join(LOG_LEVELS)}: this one and worse are shown."
        )
    return LogFilter(
        level=level,
        event=given.get("event"),
        session_id=given.get("session_id"),
        bot_id=_number(given, "bot_id"),
        since_ms=_moment(given, "since"),
        until_ms=_moment(given, "until"),
        text=given.get("text"),
    )


def read_wanted(request: Request, kinds: frozenset[LineKind]) -> tuple[Wanted, str | None]:
    """Which lines a stream is to tell, and to whom: the name of its reader."""
    given = _given(request, STREAM_FILTERS, ())
    wanted = Wanted(
        session_id=given.get("session_id"),
        agent_id=given.get("agent_id"),
        chat_id=_number(given, "chat_id"),
        kinds=_kinds(given["kinds"]) if "kinds" in given else kinds,
    )
    reader = given.get("reader")
    return wanted, None if reader is None else check_reader(reader)


def check_reader(name: str) -> str:
    if not (0 < len(name) <= READER_CHARS_MAX and name.isprintable() and "/" not in name):
        detail = f"A reader has a name of 1 to {READER_CHARS_MAX} characters, on one line and without a slash."
        raise BadInput(code="bad_reader", detail=detail)
    return name


def _kinds(text: str) -> frozenset[LineKind]:
    try:
        return frozenset(LineKind(name) for name in text.split(","))
    except ValueError:
        raise BadInput(code="bad_kinds", detail=f"kinds are {', '.join(LineKind)}, with commas between.") from None


def read_agent(request: Request) -> str | None:
    return _given(request, ("agent_id",), ()).get("agent_id")


def read_page(request: Request) -> tuple[str | None, int]:
    """Where it begins, and how many."""
    return read_cursor(request), read_limit(request) if "limit" in request.query_params else LIMIT_DEFAULT


def read_cursor(request: Request) -> str | None:
    cursor = request.query_params.get("cursor")
    if cursor is not None and len(cursor) > CURSOR_CHARS_MAX:
        raise BadInput(code="bad_cursor", detail="The cursor is not one of ours. Begin again without it.")
    return cursor


def _given(request: Request, filters: tuple[str, ...], also: tuple[str, ...]) -> dict[str, str]:
    """An unknown name is refused: a mistyped filter must not mean "everything"."""
    query = request.query_params
    unknown = set(query) - {*filters, *also}
    if unknown:
        known = ", ".join((*filters, *also)) or "none"
        raise BadInput(
            code="unknown_filter", detail=f"There is no filter {', '.join(sorted(unknown))}. There are: {known}."
        )
    given = {name: query[name] for name in filters if name in query}
    for name, value in given.items():
        if not 0 < len(value) <= WORD_CHARS_MAX or _UNASKABLE.search(value):
            raise BadInput(code="bad_filter", detail=f"{name} has 1 to {WORD_CHARS_MAX} characters.")
    return given


def _number(given: dict[str, str], name: str) -> int | None:
    return None if name not in given else whole_number(given[name], name)


def _moment(given: dict[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return instant_ms(float(text), name)
    except ValueError:
        return instant_ms(text, name)


def _flag(given: dict[str, str], name: str) -> bool | None:
    text = given.get(name)
    if text not in (None, "true", "false"):
        raise BadInput(code=f"bad_{name}", detail=f"{name} is true or false.")
    return None if text is None else text == "true"


def _direction(text: str | None) -> Direction | None:
    if text is None:
        return None
    try:
        return Direction(text)
    except ValueError:
        raise BadInput(code="bad_direction", detail=f"direction is one of {', '.join(Direction)}.") from None
