"""Who is to be forgotten, whether a text or a JSON document names that person, and what is left of it without them. Pure.

A person is known by the number that Telegram gave them, which is also the chat of a private talk with them, and by the names that
the caller's own systems have for them. A number counts wherever it may stand for a person: not as the id of a message or the size
of a file. Where it is not known what a field means it counts, since a record too many is better gone than one too few.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from peik.core.letter import Chat

NOBODY = 0  # stands where the person's number stood; Telegram gives it to nobody
_WORD_DIGITS_MIN = 5  # a shorter number in the middle of a sentence is a number, and nobody's name

# Fields whose numbers are never a person's.
_NOT_A_PERSON = re.compile(
    r"(^|_)(message_ids?|thread_id|update_id|story_id|request_id|letters?|letter_ids?|jobs?|job_id|date|size|width|height|duration|offset|length"
    r"|count|amount|at|ms|number|round|timestamp|day|attempts|epoch|version|priority|weight|progress)$"
)
# Texts that say what a thing is and nothing of a person. All others of a person's own update are emptied.
_PLAIN_TEXTS = frozenset({"type", "status", "chat_instance", "currency"})
_PLAIN_NUMBERS = re.compile(r"(^|_)(message_id|message_ids|thread_id|date|id)$")
_NAMED_FIELDS = frozenset({"user_id", "user", "recipient"})
# What is left of a message that the person wrote inside somebody else's update: all that a strict reader asks for.
_KEPT_OF_MESSAGE = frozenset({"message_id", "date", "chat", "from", "message_thread_id"})


class ErasedPerson(msgspec.Struct, frozen=True, kw_only=True):
    user_id: int
    names: frozenset[str] = frozenset()  # what the caller's own systems call them
    bot_id: int | None = None  # what this bot knows of them and no more; None: everything

    @property
    def words(self) -> frozenset[str]:
        return self.names | {str(self.user_id)}

    def is_chat(self, chat: Chat | None) -> bool:
        """Whether it is the private chat with them, or the lane of what is done to them."""
        return chat in (self.user_id, str(self.user_id), f"user:{self.user_id}")

    def is_called(self, name: str | None) -> bool:
        return name is not None and name in self.words


@cache
def _word(user_id: int) -> re.Pattern[str]:
    """The number as a word of its own. After a sign it is a group's number, unless the sign only joins two words."""
    return re.compile(rf"(?<![0-9A-Za-z])(?:(?<!-)|(?<=[0-9A-Za-z]-)){user_id}(?![0-9A-Za-z])")


def names(person: ErasedPerson, *texts: str | None) -> bool:
    """Whether any of these texts, JSON or words, names the person."""
    return any(text is not None and _in_text(person, text) for text in texts)


def _in_text(person: ErasedPerson, text: str) -> bool:
    if not any(word in text for word in person.words):
        return False
    document = _opened(text)
    return _in_words(person, text) if document is None else _in_value(person, "", document)


def _in_words(person: ErasedPerson, text: str) -> bool:
    digits = str(person.user_id)
    return text in person.words or (len(digits) >= _WORD_DIGITS_MIN and _word(person.user_id).search(text) is not None)


def _in_value(person: ErasedPerson, field: str, value: object) -> bool:
    match value:
        case dict():
            return any(_in_value(person, str(name), one) for name, one in value.items())
        case list():
            return any(_in_value(person, field, one) for one in value)
        case bool() | float() | None:
            return False
        case int():
            return value == person.user_id and _NOT_A_PERSON.search(field) is None
        case str():
            return _is_named(person, field, value)
    return False


def _is_named(person: ErasedPerson, field: str, text: str) -> bool:
    if _NOT_A_PERSON.search(field) is not None:
        return False
    if text in person.names:
        return field in _NAMED_FIELDS
    inner = _opened(text)  # a letter's params hold documents as texts
    if inner is not None:
        return _in_value(person, field, inner)
    return text == str(person.user_id) or (text not in person.words and _in_words(person, text))


def scrubbed(person: ErasedPerson, text: str) -> str:
    """The same without the person: their number is NOBODY's, what they wrote in it is gone, the rest stands as it was."""
    if not any(word in text for word in person.words):
        return text
    document = _opened(text)
    if document is None:
        return _without(person, text)
    return msgspec.json.encode(_scrub(person, "", document)).decode()


def _without(person: ErasedPerson, text: str) -> str:
    if text in person.words:
        return str(NOBODY)
    return _word(person.user_id).sub(str(NOBODY), text) if len(str(person.user_id)) >= _WORD_DIGITS_MIN else text


def _scrub(person: ErasedPerson, field: str, value: Any) -> Any:
    match value:
        case dict() if value.get("id") == person.user_id:
            return _nobody(value)
        case dict() if _wrote(person, value):
            return {name: _scrub(person, name, one) for name, one in value.items() if name in _KEPT_OF_MESSAGE}
        case dict():
            return {_key(person, name): _scrub(person, name, one) for name, one in value.items()}
        case list():
            return [_scrub(person, field, one) for one in value]
        case int() if _in_value(person, field, value):
            return NOBODY
        case str() if _is_named(person, field, value):
            inner = _opened(value)
            return (
                _without(person, value) if inner is None else msgspec.json.encode(_scrub(person, field, inner)).decode()
            )
    return value


def _key(person: ErasedPerson, name: str) -> str:
    return _without(person, name) if str(person.user_id) in name else name


def _nobody(user: dict[str, Any]) -> dict[str, Any]:
    """A user or a private chat, as Telegram shows an account that was deleted."""
    kept: dict[str, Any] = {name: user[name] for name in ("is_bot", "type") if name in user}
    return {"id": NOBODY, **kept, **({"first_name": ""} if "first_name" in user else {})}


def _wrote(person: ErasedPerson, message: dict[str, Any]) -> bool:
    writer = message.get("from")
    return isinstance(writer, dict) and writer.get("id") == person.user_id and "message_id" in message


def reworded(person: ErasedPerson, text: str) -> str:
    """The same for a document whose numbers are counts and whose words may name the person: only texts are changed."""
    if not any(word in text for word in person.words):
        return text
    document = _opened(text)
    return _without(person, text) if document is None else msgspec.json.encode(_reword(person, "", document)).decode()


def _reword(person: ErasedPerson, field: str, value: Any) -> Any:
    match value:
        case dict():
            return {_key(person, name): _reword(person, name, one) for name, one in value.items()}
        case list():
            return [_reword(person, field, one) for one in value]
        case str() if field == "target":  # of an action: the ids of its path
            return "/".join(
                str(NOBODY) if part in person.words else _without(person, part) for part in value.split("/")
            )
        case str() if value not in person.names:
            return _without(person, value)
    return value


def hollow(person: ErasedPerson, payload: str) -> str:
    """An update of the person's own with its shape and nothing in it: anyone who reads it strictly can still read it."""
    document = _opened(payload)
    return "{}" if document is None else msgspec.json.encode(_hollow(person, "", document)).decode()


def _hollow(person: ErasedPerson, field: str, value: Any) -> Any:
    match value:
        case dict():
            return {_key(person, name): _hollow(person, name, one) for name, one in value.items()}
        case list():
            return [_hollow(person, field, one) for one in value]
        case str():
            return value if field in _PLAIN_TEXTS else ""
        case bool() | None:
            return value
        case float():
            return 0.0
        case int():
            return value if value != person.user_id and _PLAIN_NUMBERS.search(field) is not None else NOBODY
    return value


def _opened(text: str) -> dict[str, Any] | list[Any] | None:
    """None: it is no JSON object or array."""
    if text[:1] not in ("{", "["):
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


# ---- what was found ----


class ErasedCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a place's records of a person. `left`: they are in use just now, and go when that has ended."""

    removed: int = 0
    blanked: int = 0
    left: int = 0

    def __add__(self, other: "ErasedCounts") -> "ErasedCounts":
        return ErasedCounts(
            removed=self.removed + other.removed, blanked=self.blanked + other.blanked, left=self.left + other.left
        )

    @property
    def is_nothing(self) -> bool:
        return not (self.removed or self.blanked or self.left)


Found = dict[str, ErasedCounts]  # by place


def added(founds: Iterable[Found]) -> Found:
    """All of them; places with nothing stay, so that people see that they were looked at."""
    whole: Found = {}
    for found in founds:
        for place, gone in found.items():
            whole[place] = whole.get(place, ErasedCounts()) + gone
    return whole


def is_over(found: Found) -> bool:
    """Whether nothing was left for later."""
    return not any(gone.left for gone in found.values())


def is_clean(found: Found) -> bool:
    """Whether nothing at all was found."""
    return all(gone.is_nothing for gone in found.values())
