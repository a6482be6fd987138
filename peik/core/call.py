"""Reading a call: its lane, its weight, its merge target and its letter references, found in the parameters as they came."""

import enum
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TypeGuard, TypeVar

import msgspec

from peik.core.letter import Chat
from peik.core.methods import TARGETS, MethodClass, classify, is_method_name
from peik.errors import BadInput

TEXT_CHARS_MAX = 4096
KEY_CHARS_MAX = 256  # names have 32 characters, ids of inline messages and connections a few dozen
PARAMS_BYTES_MAX = 1024 * 1024  # Telegram answers 413 above 1 MiB of parameters (docs/telegram.md, Sizes and files)

_Number = int | str | None
_MessageId = int | str | dict[str, object] | None
_Text = str | int | float | bool | None  # Telegram takes any plain value for a text, as it was written
_NOTHING = msgspec.Raw(b"null")  # Raw itself takes null; a union with None would take nothing else
_NUMBER_MAX = 2**63 - 1  # what Telegram and every store can hold


_Decoded = TypeVar("_Decoded")


class _Params(msgspec.Struct, gc=False):
    """The few parameters that matter to a courier. All others pass untouched, whatever they are called."""

    chat_id: _Number = None
    message_thread_id: _Number = None
    user_id: _Number = None
    inline_message_id: str | None = None
    business_connection_id: str | None = None
    message_id: _MessageId = None
    text: _Text = None
    caption: _Text = None
    parse_mode: _Text = None
    entities: msgspec.Raw = _NOTHING
    caption_entities: msgspec.Raw = _NOTHING
    media: msgspec.Raw = _NOTHING
    message_ids: msgspec.Raw = _NOTHING


class Reading(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a call says about its own delivery."""

    method: str
    kind: MethodClass
    chat: Chat
    thread: int
    weight: int
    target: str | None
    awaits: int | None


_decode_params = msgspec.json.Decoder(_Params).decode
_decode_object = msgspec.json.Decoder(dict[str, object]).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode

# Sends that go to a story or to a connection instead of a chat.
_CHATLESS_SENDS = frozenset({"postStory", "repostStory"})


def read_call(method: str, params: bytes) -> Reading:
    """Understand a call well enough to queue it. Raises BadInput with what to fix if it cannot be a letter."""
    name, kind = _queued(method)
    if len(params) > PARAMS_BYTES_MAX:
        raise BadInput(
            code="params_too_large", detail="Telegram takes at most 1 MiB of parameters; send files as files."
        )
    # The whole: what is accepted here will be read again when a chat moves or a reference is filled.
    given = _decode(params, _decode_object)
    awaits = _awaited(given) if b"letter" in params else None  # rare, and cheap to see
    if name == "sendMessage" and _says_only_text(given):  # nearly all calls: half the time that the long way takes
        text, chat_id = given["text"], given["chat_id"]
        assert isinstance(text, str)
        assert isinstance(chat_id, int)
        if "parse_mode" not in given:
            _check_text(name, text)
        return Reading(method=name, kind=kind, chat=chat_id, thread=0, weight=1, target=None, awaits=awaits)
    fields = _decode(params, _decode_params)
    chat = _chat_key(fields)
    if chat == "bot" and kind is MethodClass.SEND and name not in _CHATLESS_SENDS:
        raise BadInput(code="missing_chat_id", detail=f"{name} needs a chat_id: a number, or @name of a public chat.")
    _check_lengths(name, fields)
    return Reading(
        method=name,
        kind=kind,
        chat=chat,
        thread=_whole(fields.message_thread_id, "message_thread_id") or 0,
        weight=_weight(name, kind, fields),
        target=_target(name, given),
        awaits=awaits,
    )


@lru_cache(maxsize=1024)  # more than the Bot API has, however they are spelled
def _queued(method: str) -> tuple[str, MethodClass]:
    if not is_method_name(method):
        raise BadInput(code="bad_method", detail=f"{method[:80]!r} is not the name of a Bot API method.")
    name, kind = classify(method)
    if kind is None or not kind.is_queued:
        what = kind.value if kind else "unknown"
        raise BadInput(
            code="not_queueable",
            detail=f"{name} is not sent by letter (its class is {what}): it cannot wait in a queue. Call it directly.",
        )
    return name, kind


_OTHERS = frozenset(_Params.__struct_fields__) - {"chat_id", "text", "parse_mode"}


def _says_only_text(given: dict[str, object]) -> bool:
    """Whether it names a chat by its number, a text, and nothing else that matters to a courier."""
    chat_id = given.get("chat_id")
    return (
        type(chat_id) is int
        and -_NUMBER_MAX <= chat_id <= _NUMBER_MAX
        and type(given.get("text")) is str
        and type(given.get("parse_mode", "")) is str
        and _OTHERS.isdisjoint(given)
    )


def _decode(params: bytes, decode: Callable[[bytes], _Decoded]) -> _Decoded:
    try:
        return decode(params)
    except msgspec.ValidationError as error:
        raise BadInput(code="bad_params", detail=f"A parameter has the wrong type: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(code="bad_params", detail=f"The parameters are not a JSON object: {error}.") from None


def chat_key(chat_id: int | str) -> Chat:
    """One key for all spellings of a chat: numbers as numbers, names in lower case."""
    if isinstance(chat_id, int):
        if abs(chat_id) > _NUMBER_MAX:
            raise BadInput(code="bad_params", detail="chat_id is larger than any chat's number.")
        return chat_id
    text = chat_id.strip()
    if _is_number(text.removeprefix("-")):
        return int(text)
    if not text:
        raise BadInput(code="missing_chat_id", detail="chat_id is empty: give a number, or @name of a public chat.")
    if not text.isprintable() or len(text) > KEY_CHARS_MAX:
        raise BadInput(code="bad_params", detail="chat_id is neither a number nor a name that Telegram gives.")
    return text.lower() if text.startswith("@") else f"@{text.lower()}"


def _chat_key(fields: _Params) -> Chat:
    if type(fields.chat_id) is int and abs(fields.chat_id) <= _NUMBER_MAX:
        return fields.chat_id  # nearly all
    key = _addressee(fields)
    if isinstance(key, str) and not (key.isprintable() and len(key) <= KEY_CHARS_MAX):
        raise BadInput(code="bad_params", detail="chat_id, or what stands for it, is not a name that Telegram gives.")
    return key


def _addressee(fields: _Params) -> Chat:
    # Forms often carry empty fields; to Telegram they are not there.
    if fields.chat_id not in _ABSENT:
        return chat_key(fields.chat_id)
    if fields.user_id not in _ABSENT:
        return f"user:{_plain(fields.user_id)}"
    if fields.inline_message_id not in _ABSENT:
        return f"inline:{fields.inline_message_id}"
    if fields.business_connection_id not in _ABSENT:
        return f"business:{fields.business_connection_id}"
    return "bot"


_ABSENT = (None, "")


def _plain(value: object) -> object:
    """A number as a number, however it was written: forms know only texts."""
    if isinstance(value, str) and _is_number(value.strip().removeprefix("-")):
        return int(value)
    return value


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _whole(value: _Number, name: str) -> int | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        number = int(value)
    except ValueError:
        number = _NUMBER_MAX + 1
    if abs(number) > _NUMBER_MAX:
        raise BadInput(code="bad_params", detail=f"{name} must be a whole number.")
    return number


def _check_lengths(method: str, fields: _Params) -> None:
    # With entities or a parse mode only Telegram can count what is left of the text after parsing.
    if isinstance(fields.text, str) and fields.parse_mode is None and _is_null(fields.entities):
        _check_text(method, fields.text)
    # Premium business accounts may use captions as long as texts.
    is_plain = fields.parse_mode is None and _is_null(fields.caption_entities)
    if isinstance(fields.caption, str) and is_plain and len(fields.caption) > TEXT_CHARS_MAX:
        raise BadInput(code="caption_too_long", detail="The caption is longer than Telegram takes. Shorten it.")


def _check_text(method: str, text: str) -> None:
    if len(text) > TEXT_CHARS_MAX and method in ("sendMessage", "editMessageText"):
        raise BadInput(
            code="text_too_long",
            detail=f"The text has {len(text)} characters; Telegram takes {TEXT_CHARS_MAX}. Split it.",
        )
    if method == "sendMessage" and not text.strip():
        raise BadInput(code="text_empty", detail="The text is empty; Telegram refuses empty messages.")


def _weight(method: str, kind: MethodClass, fields: _Params) -> int:
    """How many messages Telegram will count: an album is its items, and a write that makes no message is free."""
    if method == "sendMediaGroup":
        return max(1, _length(fields.media))
    if method in ("forwardMessages", "copyMessages"):
        return max(1, _length(fields.message_ids))
    if kind is MethodClass.WRITE and not method.startswith("edit"):
        return 0
    return 1


def _is_null(raw: msgspec.Raw) -> bool:
    return raw is _NOTHING or bytes(raw) == b"null"


def _length(raw: msgspec.Raw) -> int:
    value = opened(_decode_any(raw))
    return len(value) if isinstance(value, list) else 1


def _target(method: str, given: dict[str, object]) -> str | None:
    """The thing that an edit replaces, as a string that is equal for equal targets; None for what is never merged."""
    names = TARGETS.get(method)
    if names is None:
        return None
    parts = {name: _same(name, given[name]) for name in names if given.get(name) not in _ABSENT}
    return f"{method}{_encode_sorted(parts).decode()}"


def _same(name: str, value: object) -> object:
    """One value for all ways to write it."""
    if name == "chat_id" and isinstance(value, int | str):
        return chat_key(value)
    if name in _OPAQUE:
        return value
    reference = _reference_of(opened(value)) if name in _MESSAGE_ID_NAMES else None
    if reference is None:
        return _plain(value)
    # As targets have always been written; another item of an album is another target. What comes after a copy of the message
    # takes the place of nothing that comes before it: else each would wait for the other.
    more = {"item": reference.item} if reference.item else {}
    return {"letter": reference.letter_id, **more} | ({"after": reference.after} if reference.after else {})


_OPAQUE = frozenset(
    {"inline_message_id", "business_connection_id"}
)  # ids that are texts, even if they look like numbers


def opened(value: object) -> object:
    """What a text holds if it is a JSON object or array: forms carry nested parameters so. Anything else as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return _decode_any(value.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return value


# ---- letter references: {"letter": "<id>"} where a message id is due ----


class LetterReference(msgspec.Struct, frozen=True, kw_only=True):
    """A message that another letter makes. `item`: which one, of an album. `message_id`: what the bot called it, if it was told
    a provisional id for it (see `peik.core.provisional`). `after`: letters that must have ended as well, however they did."""

    letter_id: int
    item: int = 0
    message_id: int | None = None
    after: tuple[int, ...] = ()

    def written(self) -> dict[str, object]:
        """As it stands in parameters."""
        plain: dict[str, object] = {"letter": str(self.letter_id)}
        if self.message_id is not None:
            plain |= {"item": self.item, "id": self.message_id}
        return plain | {"after": list(map(str, self.after))} if self.after else plain


def references_in(params: str) -> list[LetterReference]:
    """Every letter that these parameters refer to, each once, in the order of letters."""
    return _references_in(_decode_object(params.encode()))


def fill_references(params: str, ids: Mapping[LetterReference, int]) -> str:
    """The parameters with letter references replaced by message ids, wherever one is known."""
    return msgspec.json.encode(replaced(_decode_object(params.encode()), lambda value: _filled(value, ids))).decode()


def readdress(params: str, chat_id: int) -> str:
    """The parameters with another chat_id: Telegram told us that the chat has moved."""
    value = _decode_any(params.encode())
    value["chat_id"] = chat_id
    return msgspec.json.encode(value).decode()


def _awaited(given: dict[str, object]) -> int | None:
    """The letter that this call has to wait for, if any: of several the newest, which most likely ends last."""
    return max((letter for one in _references_in(given) for letter in (one.letter_id, *one.after)), default=None)


def _references_in(given: dict[str, object]) -> list[LetterReference]:
    found = {one for _, value in named_messages(given) if (one := _reference_of(value)) is not None}
    return sorted(found, key=lambda one: (one.letter_id, one.item))


def _filled(value: object, ids: Mapping[LetterReference, int]) -> object:
    reference = _reference_of(value)
    return value if reference is None else ids.get(reference, value)


def _reference_of(value: object) -> LetterReference | None:
    if not isinstance(value, dict) or not {"letter"} <= set(value) <= {"letter", "item", "id", "after"}:
        return None
    named, item, told = _plain(value["letter"]), value.get("item", 0), value.get("id")
    listed = value.get("after", [])
    after = tuple(_plain(one) for one in listed) if isinstance(listed, list) else (None,)
    is_told = isinstance(item, int) and 0 <= item < _NUMBER_MAX and (told is None or _is_id(told))
    if _is_id(named) and is_told and _are_ids(after):
        return LetterReference(letter_id=named, item=item, message_id=told, after=after)
    raise BadInput(code="bad_reference", detail='A letter reference looks like {"letter": "<id of the letter>"}.')


def _are_ids(values: tuple[object, ...]) -> TypeGuard[tuple[int, ...]]:
    return all(map(_is_id, values))


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _NUMBER_MAX


# ---- where Telegram expects message ids. Elsewhere {"letter": …} is the caller's own data and stays as it is. ----


class MessageRole(enum.Enum):
    """What a call wants of a message that it names."""

    TARGET = "target"
    REPLY = "reply"
    ONE_OF_MANY = "one of many"


_REPLY_NAMES = frozenset({"reply_to_message_id", "reply_parameters"})
_MESSAGE_ID_NAMES = frozenset({"message_id", "reply_to_message_id"})
DROPPED = object()  # what `replaced` leaves out of a list


def named_messages(given: Mapping[str, object]) -> Iterator[tuple[MessageRole, object]]:
    """Whatever stands where a message id is due. What a form carries as a text is opened."""
    for name in ("message_id", "reply_to_message_id"):
        if name in given:
            yield MessageRole.REPLY if name in _REPLY_NAMES else MessageRole.TARGET, opened(given[name])
    reply = opened(given.get("reply_parameters"))
    if isinstance(reply, dict) and "message_id" in reply:
        yield MessageRole.REPLY, opened(reply["message_id"])
    many = opened(given.get("message_ids"))
    for one in many if isinstance(many, list) else ():
        yield MessageRole.ONE_OF_MANY, opened(one)


def replaced(given: Mapping[str, object], change: Callable[[object], object]) -> dict[str, object]:
    """Parameters with every message id changed. What came as a text goes as a text."""
    anew = dict(given)
    for name in _MESSAGE_ID_NAMES & given.keys():
        before = opened(given[name])
        after = change(before)
        if after is not before:
            anew[name] = after
    for name in ("reply_parameters", "message_ids"):
        before = opened(given.get(name))
        after = _replaced_within(before, change)
        if after != before:
            anew[name] = _encode(after).decode() if isinstance(given[name], str) else after
    return anew


def _are_numbers(values: list[object]) -> bool:
    return all(isinstance(one, int) for one in values)


def _replaced_within(value: object, change: Callable[[object], object]) -> object:
    if isinstance(value, list):
        anew = [one for one in (change(opened(one)) for one in value) if one is not DROPPED]
        # Telegram takes several messages in the order of their ids only, and other ids stand here now.
        return sorted({one for one in anew if isinstance(one, int)}) if _are_numbers(anew) else anew
    if isinstance(value, dict) and "message_id" in value:
        return value | {"message_id": change(opened(value["message_id"]))}
    return value
