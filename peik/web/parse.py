"""Reads what a request says into values: words of a path and of a query, and JSON. One reader for each kind of word, which also
says what the OpenAPI document tells of it. It knows no server, so that clients and commands can use the same."""

import datetime
import re
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from peik.core.call import chat_key
from peik.core.letter import Chat, State
from peik.core.trace import plain, read_trace
from peik.core.units import parse_duration_s, rfc3339
from peik.errors import BadInput
from peik.web.openapi import ID, LIMIT_DEFAULT, LIMIT_MAX, SECONDS, TIME, TRACE, WORD, WORD_CHARS_MAX, Json

T = TypeVar("T")
Q = TypeVar("Q", bound=msgspec.Struct)
Time = int | float | str | None
CHAT_PATTERN = "^(-?[0-9]{1,15}|@[A-Za-z0-9_]{1,64})$"
_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


# ---- bodies ----


def decode(kind: type[T], body: bytes) -> T:
    return decoded(msgspec.json.Decoder(kind).decode, body)


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise BadInput(code="bad_request", detail=f"{error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(code="bad_json", detail=f"The body is not valid JSON: {error}.") from None


# ---- single words ----


def parse_id(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise BadInput(code=f"bad_{name}", detail=f"{name} must be a number.")


def id_of(value: int | str | None, name: str) -> int | None:
    """An id as bodies have it: a number, or a string as it is shown."""
    return parse_id(value, name) if isinstance(value, str) else value


def whole_number(text: str, name: str) -> int:
    """An id as Telegram has them: those of groups and channels are negative."""
    if _NUMBER.fullmatch(text) is None:
        raise BadInput(code=f"bad_{name}", detail=f"{name} must be a number.")
    return int(text)


def instant_ms(value: Time, name: str) -> int | None:
    """Unix seconds or an RFC 3339 string, as milliseconds."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            raise _bad_time(name) from None
        if moment.tzinfo is None:
            raise _bad_time(name)
        value = moment.timestamp()
    # One that no calendar can show would be stored, and every list with it in it would fail from then on.
    if not 0 <= value < 1e11:
        raise _bad_time(name)
    return int(value * 1000)


def _bad_time(name: str) -> BadInput:
    return BadInput(
        code="bad_time", detail=f"{name} must be Unix seconds or RFC 3339 with an offset, such as 2026-11-15T08:30:00Z."
    )


def moment_ms(text: str, name: str) -> int | None:
    """The same where everything is text."""
    try:
        return instant_ms(float(text), name)
    except ValueError:
        return instant_ms(text, name)


def _word(text: str, name: str) -> str:
    return text


def _cursor(text: str, name: str) -> str:
    if not 0 < len(text) <= WORD_CHARS_MAX:
        raise BadInput(code="bad_cursor", detail="cursor is the next_cursor of the page before.")
    return text


def state_of(text: str, name: str) -> State:
    try:
        return State(text)
    except ValueError:
        raise BadInput(code="bad_state", detail=f"state is one of {', '.join(State)}.") from None


def _chat(text: str, name: str) -> Chat:
    return chat_key(text)


def chat_in_path(text: str, name: str) -> Chat:
    if re.fullmatch(CHAT_PATTERN, text) is None:
        raise BadInput(code="bad_chat_id", detail="A chat is named by its number, or by @name.")
    return chat_key(text)


def _trace(text: str, name: str) -> str:
    return read_trace(plain(text))


def _duration_s(text: str, name: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise BadInput(code=f"bad_{name}", detail=f"{name}: {error}.") from None


def _switch(text: str, name: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadInput(code=f"bad_{name}", detail=f"{name} is true or false.")
    return text.lower() == "true"


def _limit(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= LIMIT_MAX):
        raise BadInput(code="bad_limit", detail=f"limit is between 1 and {LIMIT_MAX}.")
    return int(text)


# ---- parameters: how a word is read and written, and what the document says of it ----


class Param(msgspec.Struct, frozen=True):
    """Stands in the annotation of a query's field, or of a place in a path: `Annotated[int | None, BOT]`."""

    read: Callable[[str, str], object]  # the word, and the name that it was given under
    schema: Json
    text: str = ""
    chars_max: int | None = None  # of a filter: with nothing in it, or with too much, it is refused before it is read
    write: Callable[[Any], str] = str
    is_list: bool = False  # of a query: it may be said several times, and is read with commas between

    def saying(self, text: str) -> "Param":
        return msgspec.structs.replace(self, text=text)

    def as_filter(self) -> "Param":
        return msgspec.structs.replace(self, chars_max=WORD_CHARS_MAX)

    def as_text(self) -> "Param":
        """Handed on as it is: for what counts only at times, and is read then."""
        return msgspec.structs.replace(self, read=_word, write=str)

    def value_of(self, text: str, name: str) -> object:
        if self.chars_max is not None and not 0 < len(text) <= self.chars_max:
            raise BadInput(code="bad_filter", detail=f"{name} has 1 to {self.chars_max} characters.")
        return self.read(text, name)


_SECONDS: Json = {"anyOf": [TIME, SECONDS | {"exclusiveMaximum": 1e11}]}
_DURATION: Json = {"anyOf": [{"type": "string", "pattern": "^[0-9]{1,3}(ms|s|m)$"}, SECONDS]}

TEXT = Param(_word, WORD, chars_max=WORD_CHARS_MAX)
NUMBER = Param(parse_id, ID)
BOT = Param(parse_id, ID, "The bot; may be left out when there is one.")
CHAT = Param(_chat, WORD)
STATE = Param(state_of, {"type": "string", "enum": [str(state) for state in State]})
MOMENT = Param(moment_ms, _SECONDS, write=rfc3339)
TRACED = Param(_trace, TRACE)
SWITCH = Param(_switch, {"type": "boolean"}, write=lambda value: str(value).lower())
WAIT = Param(_duration_s, _DURATION, "Wait for the end, at most so long: 10s.", write=lambda value: f"{value:.3f}s")
LIMIT = Param(_limit, {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}, "How many.")
CURSOR = Param(parse_id, ID, "The next_cursor of the page before.")
WORD_CURSOR = Param(_cursor, WORD, "The next_cursor of the page before.")
KEY = Param(
    _word,
    {"type": "string", "minLength": 1, "maxLength": 255},
    "A repeat with the same key within 48 hours is the same one.",
)


def word_like(pattern: str, text: str = "") -> Param:
    """A word of this pattern. Only the document says so: it is checked by who knows what it names."""
    return Param(_word, {"type": "string", "pattern": pattern}, text)


def key_up_to(chars_max: int, text: str) -> Param:
    """An idempotency key, of a header."""
    return Param(_word, {"type": "string", "minLength": 1, "maxLength": chars_max}, text)


NumberInPath = Annotated[int, Param(parse_id, ID)]
ChatInPath = Annotated[Chat, Param(chat_in_path, {"type": "string", "pattern": CHAT_PATTERN})]
NameInPath = Annotated[str, Param(_word, WORD)]


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True):
    wait: Annotated[float, WAIT] = 0.0


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Of a list whose cursor is a number."""

    cursor: Annotated[int | None, CURSOR] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


def param_in(hint: Any) -> Param | None:
    """What an annotation says of a word."""
    found = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Param)]
    return found[0] if found else None


@cache
def params_of(query: type[msgspec.Struct]) -> dict[str, Param]:
    """Of every field, in their order."""
    hints = typing.get_type_hints(query, include_extras=True)
    params = {name: param_in(hints[name]) for name in query.__struct_fields__}
    missing = [name for name, param in params.items() if param is None]
    assert not missing, f"{query.__name__}: how is {missing} read?"
    return {name: param for name, param in params.items() if param is not None}


@cache
def required_in(query: type[msgspec.Struct]) -> frozenset[str]:
    """Fields without a default. Where one is left out, an empty word is read, and refused as that."""
    return frozenset(field.name for field in msgspec.structs.fields(query) if field.required)


_PLAIN_NAMES = {"userId": "user_id", "messageType": "message_type"}  # as JavaScript writes them, also in metadata


def read_query(query: type[Q], given: Mapping[str, str]) -> Q:
    """A query that forbids unknown fields refuses an unknown name: a mistyped filter must not mean "everything". It may have
    words of its own for that, as `unknown_filter`."""
    params = params_of(query)
    required = required_in(query)
    given = {_PLAIN_NAMES.get(name, name): value for name, value in given.items()}
    if query.__struct_config__.forbid_unknown_fields and (unknown := set(given) - set(params)):
        known = f". There are: {', '.join(params)}" if len(params) > 1 else f"; only {', '.join(params)}"
        usual = f"There is no filter {', '.join(sorted(unknown))}{known}."
        raise BadInput(code="unknown_filter", detail=getattr(query, "unknown_filter", usual))
    said = ((name, param) for name, param in params.items() if name in given or name in required)
    return query(**{name: param.value_of(given.get(name, ""), name) for name, param in said})


def write_query(query: msgspec.Struct) -> dict[str, str]:
    """The same in words: only what differs from the defaults."""
    params = params_of(type(query))
    defaults = dict(zip(reversed(query.__struct_fields__), reversed(query.__struct_defaults__), strict=False))
    values = {name: getattr(query, name) for name in params}
    return {
        name: params[name].write(value)
        for name, value in values.items()
        if value is not None and value != defaults.get(name)
    }
