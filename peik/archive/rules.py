"""Which versions of messages are new, and what then has to be written: pure, and the same for every archive.

An archive first tries to insert the newest version of each chain. `settle` says what to do with the chains whose message was
there already, `beside` what goes with those that were new.
"""

import enum
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from peik.archive.store import (
    LOG_LEVELS,
    FeedRecord,
    Happening,
    KeptCounts,
    LogLine,
    MemberRecord,
    Message,
    ReaderPlace,
    Session,
)
from peik.errors import BadInput, Conflict, NotFound

Key = tuple[str, int, int]


class VersionFate(enum.Enum):
    NEW = "new"
    EDITED = "edited"
    KNOWN = "known"


class Chain:
    """All versions of one message that were handed in together."""

    __slots__ = ("key", "places", "versions")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.versions: list[Message] = []  # the oldest first, each once
        self.places: dict[int, int] = {}  # by edit date: who handed that version in first

    @property
    def newest(self) -> Message:
        return self.versions[-1]


class Replacing(msgspec.Struct):
    """A version that is in force is put aside, then another takes its place, then those between them are put aside. In this
    order a version is in force or aside at every moment, and nobody counts one that somebody else has counted."""

    old: Message
    new: Message
    between: list[Message]


class Todo(msgspec.Struct):
    """What is left to write. What is put aside may be there already: the archive tells which were not."""

    aside: list[Message] = []
    replace: list[Replacing] = []
    fill: list[Message] = []  # the versions that are here, of which we now know more


def key_of(message: Message) -> Key:
    return message.session_id, message.chat_id, message.message_id


def chains(messages: Sequence[Message]) -> list[Chain]:
    """In the order of their keys: anyone who locks rows does so in the same order."""
    found: dict[Key, Chain] = {}
    for place, message in enumerate(messages):
        key = key_of(message)
        chain = found.get(key)
        if chain is None:
            chain = found[key] = Chain(key)
        if message.edited_at_ms in chain.places:
            index = next(i for i, one in enumerate(chain.versions) if one.edited_at_ms == message.edited_at_ms)
            chain.versions[index] = filled(chain.versions[index], message)
        else:
            chain.places[message.edited_at_ms] = place
            chain.versions.append(message)
    for chain in found.values():
        if len(chain.versions) > 1:
            _put_in_order(chain)
    return sorted(found.values(), key=lambda chain: chain.key)


def _put_in_order(chain: Chain) -> None:
    chain.versions.sort(key=lambda message: message.edited_at_ms)
    whole = chain.newest
    for older in chain.versions[:-1]:
        whole = filled(whole, older)
    # As if each version had come by itself: it was archived when the first one was.
    first = min(version.created_at_ms for version in chain.versions)
    chain.versions[-1] = msgspec.structs.replace(whole, created_at_ms=first)


def filled(message: Message, other: Message) -> Message:
    """The message, and what only the other one knew. One that was deleted stays deleted."""
    letter_id = message.letter_id if message.letter_id is not None else other.letter_id
    deleted_at_ms = message.deleted_at_ms if message.deleted_at_ms is not None else other.deleted_at_ms
    if letter_id == message.letter_id and deleted_at_ms == message.deleted_at_ms:
        return message
    return msgspec.structs.replace(message, letter_id=letter_id, deleted_at_ms=deleted_at_ms)


def beside(chain: Chain) -> list[Message]:
    """What is put aside with a message that is new."""
    return chain.versions[:-1]


def settle(todo: Todo, chain: Chain, current: Message) -> None:
    """The message of a chain is here: what does the chain bring?"""
    newer = [version for version in chain.versions if version.edited_at_ms > current.edited_at_ms]
    todo.aside += [version for version in chain.versions if version.edited_at_ms < current.edited_at_ms]
    if newer:
        taking = filled(newer[-1], current)
        # It was archived when its first version was: retention counts from there.
        taking = msgspec.structs.replace(taking, created_at_ms=current.created_at_ms)
        todo.replace.append(Replacing(current, taking, newer[:-1]))
        return
    whole = filled(current, chain.newest)
    if whole is not current:
        todo.fill.append(whole)


class VersionFates:
    """What became of each message that was handed in."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._fates = [VersionFate.KNOWN] * len(messages)

    def inserted(self, chain: Chain) -> None:
        """Its newest version is a message that was not here before."""
        self._fates[chain.places[chain.newest.edited_at_ms]] = VersionFate.NEW

    def kept(self, chain: Chain, edited_at_ms: int) -> None:
        """Another one of its versions was not here before."""
        self._fates[chain.places[edited_at_ms]] = VersionFate.EDITED

    def told(self) -> list[VersionFate]:
        return self._fates


def tally(fates: Iterable[VersionFate]) -> KeptCounts:
    counts = dict.fromkeys(VersionFate, 0)
    for fate in fates:
        counts[fate] += 1
    return KeptCounts(new=counts[VersionFate.NEW], edited=counts[VersionFate.EDITED], known=counts[VersionFate.KNOWN])


# What every database can keep: texts without NUL and without lone surrogates, so that all archives hold the same.


R = TypeVar("R", Message, Happening, FeedRecord, LogLine, MemberRecord)

_BAD = re.compile("[\0\ud800-\udfff]")
_TEXTS: dict[type, tuple[str, ...]] = {
    Message: ("session_id", "agent_id", "kind", "text", "media", "raw"),
    Happening: ("event_id", "session_id", "agent_id", "event_type", "payload"),
    FeedRecord: ("session_id", "agent_id", "key", "body"),
    LogLine: ("level", "event", "node", "session_id", "fields"),
    MemberRecord: ("session_id", "agent_id", "name", "username", "role"),
}


def fitted(record: R) -> R:
    """The record itself if it fits, as nearly all do."""
    bad = [name for name in _TEXTS[type(record)] if (text := getattr(record, name)) and not _fits(text)]
    if not bad:
        return record
    return msgspec.structs.replace(record, **{name: _BAD.sub("\ufffd", getattr(record, name)) for name in bad})


def _fits(text: str) -> bool:
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()  # quicker than any look at each character
    except UnicodeEncodeError:
        return False
    return True


# What feeds, places and the log mean alike in every archive: pure.
#
# A feed has an end: the last number there ever was, which outlives its lines. An end is copied among the places of
# readers, as the place of a reader without a name, so that a copy goes on with the numbers where the original was.


DIGEST_BYTES = 16
NOBODY = ""  # the reader whose places are the ends of feeds


def once(lines: Sequence[FeedRecord]) -> list[FeedRecord]:
    """As a database can keep them, each key once: the first counts. They are of one session."""
    assert len({line.session_id for line in lines}) <= 1, "lines are fed session by session"
    found: dict[str, FeedRecord] = {}
    for line in map(fitted, lines):
        found.setdefault(line.key, line)
    return list(found.values())


def end_of(session_id: str, last: int) -> ReaderPlace:
    """The end of a feed as it is copied."""
    return ReaderPlace(reader=NOBODY, session_id=session_id, number=last, at_ms=0)


def is_end(place: ReaderPlace) -> bool:
    return place.reader == NOBODY


def digest_of(line: LogLine) -> bytes:
    """By which a line of the log is known again: all that it says."""
    return hashlib.blake2b(msgspec.json.encode(line), digest_size=DIGEST_BYTES).digest()


def levels_from(level: str) -> tuple[str, ...]:
    """This one and worse. Raises BadInput."""
    if level not in LOG_LEVELS:
        raise BadInput(code="bad_level", detail=f"A level is one of: {', '.join(LOG_LEVELS)}.")
    return LOG_LEVELS[LOG_LEVELS.index(level) :]


def folded(text: str) -> str:
    """A text as it is compared where case does not matter."""
    return text.casefold()


# The words of a text as a search knows them: one function for all archives, so that they find the same.
#
# Case, diacritics and vowel signs do not matter, nor how a keyboard writes a letter: Arabic ي and ك are Persian ی and
# ک, Russian yo is ye, every alef is one, digits of all scripts are 0 to 9. Half-spaces and other invisible characters
# are not there at all.


WORD_CHARS_MAX = 64  # the rest of a longer one does not matter; a database bounds them, too
WORDS_MAX = 5000  # of one text; Telegram's own longest has 4096 characters

# Letters of their own, though Unicode writes them with a mark: without it they would be other words.
_WHOLE = frozenset("йїў")
_ALIKE = {"ي": "ی", "ى": "ی", "ك": "ک", "ە": "ه", "ة": "ه", "ı": "i", "ـ": ""}  # noqa: RUF001  just these
# Scripts without spaces between words: every character is one.
_IDEOGRAPH = re.compile("([぀-ヿ㐀-䶿一-鿿豈-﫿\U00020000-\U0003ffff])")
_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Each once, in the order in which they come."""
    folded = text.lower() if text.isascii() else _folded(text)
    found = dict.fromkeys(word[:WORD_CHARS_MAX] for word in _WORD.findall(folded))
    return list(found)[:WORDS_MAX]


def _folded(text: str) -> str:
    return _IDEOGRAPH.sub(r" \1 ", unicodedata.normalize("NFC", text).translate(_TABLE))


class _Table(dict[int, str]):
    """What becomes of a character, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold(chr(code))
        return folded


def _fold(character: str) -> str:
    out: list[str] = []
    for one in unicodedata.normalize("NFKC", character).casefold():
        if one in _WHOLE:
            out.append(one)
            continue
        for part in unicodedata.normalize("NFD", one):
            category = unicodedata.category(part)
            if category[0] == "M" or category == "Cf":
                continue
            digit = unicodedata.digit(part, None)
            out.append(_ALIKE.get(part, part) if digit is None else str(digit))
    return "".join(out)


_TABLE = _Table()


# What the registry refuses, in the same words on every archive.


def taken_id(session: Session) -> Conflict:
    return Conflict(
        code="session_exists", detail=f"There is a session {session.session_id} already. Choose another id."
    )


def taken_phone(session: Session) -> Conflict:
    return Conflict(
        code="phone_taken",
        detail="Another active session has this phone. Deactivate or remove it first, or sign in with that one.",
    )


def was_changed(session: Session) -> Conflict:
    return Conflict(
        code="session_changed",
        detail=f"The session {session.session_id} was changed meanwhile. Read it again and repeat.",
    )


def gone(session: Session) -> NotFound:
    return NotFound(code="no_such_session", detail=f"There is no session {session.session_id}.")


# Where a page ends: a time and the row of that time that was shown last.


_CURSOR = re.compile(r"(-?\d{1,18})\.([0-9a-f]{1,24})")


def cursor_of(at_ms: int, row: object) -> str:
    return f"{at_ms}.{row}"


def read_cursor(cursor: str) -> tuple[int, str]:
    """Raises BadInput if nobody here made it."""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadInput(code="bad_cursor", detail="The cursor is not one of ours. Begin again without it.")
    return int(found[1]), found[2]


def read_row(cursor: str) -> tuple[int, int]:
    """The same where rows are numbered."""
    at_ms, row = read_cursor(cursor)
    if not row.isdigit() or len(row) > 18:
        raise BadInput(code="bad_cursor", detail="The cursor is not one of this archive's. Begin again without it.")
    return at_ms, int(row)
