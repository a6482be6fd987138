"""Query strings of the REST door: filters, cursors and limits, read strictly."""

import re

from starlette.requests import Request

from peik.core.call import chat_key
from peik.core.letter import Chat, State
from peik.core.trace import plain, read_trace
from peik.errors import BadInput
from peik.inbox.service import check_name
from peik.inbox.store import ArrivalFilter
from peik.outbox.store import LetterFilter
from peik.web.bodies import instant_ms, parse_id

LIMIT_DEFAULT = 50
LIMIT_MAX = 1000
WORD_CHARS_MAX = 200
_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
CHAT_PATTERN = "^(-?[0-9]{1,15}|@[A-Za-z0-9_]{1,64})$"
_FILTERS = (
    "state", "bot_id", "chat_id", "user_id", "message_type", "method", "since", "until", "text", "error", "cause",
    "trace",
)  # fmt: skip
ARRIVAL_FILTERS = (
    "bot_id", "consumer", "state", "type", "chat_id", "user_id", "since", "until", "first_number", "last_number", "text",
)  # fmt: skip


def read_filter(request: Request, *, also: tuple[str, ...] = ("cursor", "limit")) -> LetterFilter:
    """The filter of a list. An unknown name is refused: a mistyped filter must not mean "everything"."""
    return filter_of(_given(request, _FILTERS, also))


def read_arrival_filter(request: Request, *, also: tuple[str, ...] = ("cursor", "limit")) -> ArrivalFilter:
    """The same for arrivals."""
    return arrival_filter_of(_given(request, ARRIVAL_FILTERS, also))


def _given(request: Request, filters: tuple[str, ...], also: tuple[str, ...]) -> dict[str, str]:
    query = request.query_params
    unknown = set(query) - {*filters, *also}
    if unknown:
        raise BadInput(
            code="unknown_filter",
            detail=f"There is no filter {', '.join(sorted(unknown))}. There are: {', '.join((*filters, *also))}.",
        )
    for name in filters:
        if not 0 < len(query.get(name, "-")) <= WORD_CHARS_MAX:
            raise BadInput(code="bad_filter", detail=f"{name} has 1 to {WORD_CHARS_MAX} characters.")
    return {name: query[name] for name in filters if name in query}


def filter_of(given: dict[str, str]) -> LetterFilter:
    """The same from a JSON body."""
    return LetterFilter(
        state=_state(given.get("state")),
        bot_id=None if "bot_id" not in given else parse_id(given["bot_id"], "bot_id"),
        chat=None if "chat_id" not in given else chat_key(given["chat_id"]),
        user_id=given.get("user_id"),
        message_type=given.get("message_type"),
        method=given.get("method"),
        since_ms=_moment(given.get("since"), "since"),
        until_ms=_moment(given.get("until"), "until"),
        text=given.get("text"),
        error=given.get("error"),
        cause=given.get("cause"),
        trace=None if "trace" not in given else read_trace(plain(given["trace"])),
    )


def arrival_filter_of(given: dict[str, str]) -> ArrivalFilter:
    """Which arrivals, from a query or a JSON body."""

    def number(name: str) -> int | None:
        return None if name not in given else parse_id(given[name], name)

    if "consumer" in given:
        check_name(given["consumer"])
    return ArrivalFilter(
        bot_id=number("bot_id"),
        consumer=given.get("consumer"),
        state=_state(given.get("state")),
        type=given.get("type"),
        chat=None if "chat_id" not in given else _lane(given["chat_id"]),
        user_id=number("user_id"),
        since_ms=_moment(given.get("since"), "since"),
        until_ms=_moment(given.get("until"), "until"),
        first_number=number("first_number"),
        last_number=number("last_number"),
        text=given.get("text"),
    )


def _lane(text: str) -> Chat:
    """Updates name chats by number alone; what has no chat has a lane such as poll:7."""
    return int(text) if re.fullmatch("-?[0-9]{1,15}", text) else text


def _state(text: str | None) -> State | None:
    if text is None:
        return None
    try:
        return State(text)
    except ValueError:
        raise BadInput(code="bad_state", detail=f"state is one of {', '.join(State)}.") from None


def _moment(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    try:
        return instant_ms(float(text), name)
    except ValueError:
        return instant_ms(text, name)


def read_limit(request: Request) -> int:
    text = request.query_params.get("limit", str(LIMIT_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= LIMIT_MAX):
        raise BadInput(code="bad_limit", detail=f"limit is between 1 and {LIMIT_MAX}.")
    return int(text)


def read_switch(request: Request, name: str) -> bool:
    """`?name=true`; not given is false."""
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false"):
        raise BadInput(code=f"bad_{name}", detail=f"{name} is true or false.")
    return text == "true"


def read_since(request: Request) -> int | None:
    return _moment(request.query_params.get("since"), "since")


def read_cursor(request: Request) -> int | None:
    text = request.query_params.get("cursor")
    return None if text is None else parse_id(text, "cursor")


def read_chat(request: Request, name: str = "chat_id") -> Chat | None:
    text = request.query_params.get(name)
    return None if text is None else chat_key(text)


def path_chat(request: Request) -> Chat:
    text = request.path_params["chat_id"]
    if re.fullmatch(CHAT_PATTERN, text) is None:
        raise BadInput(code="bad_chat_id", detail="A chat is named by its number, or by @name.")
    return chat_key(text)


def whole_number(text: str, name: str) -> int:
    """An id as Telegram has them: those of groups and channels are negative."""
    if _NUMBER.fullmatch(text) is None:
        raise BadInput(code=f"bad_{name}", detail=f"{name} must be a number.")
    return int(text)
