"""What an update shows of a chat: who it is, whether the bot may still write there, and what stood behind /start. Pure."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from peik.core.arrival import FORGOTTEN_LANE, Arrival
from peik.core.documents import Contact, ContactFilter, ContactPage

NAME_CHARS_MAX = 200
ID_MAX = 2**52  # of Telegram's own; what is beyond is nobody's, and no store is to be asked to keep it
CODE_PREFIX = "peik-"  # of link codes: what else stands behind /start is a campaign, and never a try


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """A chat, seen in one update."""

    chat_id: int
    type: str  # private, group, supergroup or channel
    name: str | None = None
    username: str | None = None
    language: str | None = None  # of private chats only
    at_ms: int
    is_gone: bool = False
    text: str | None = None  # of a message in a private chat
    start: str | None = None  # what stood behind /start there

    @property
    def campaign(self) -> str | None:
        return None if self.start is None or self.start.startswith(CODE_PREFIX) else self.start

    @property
    def code(self) -> str | None:
        """The link code that was shown, right or wrong: behind /start, or as the whole text."""
        if self.start is not None:
            return self.start if self.start.startswith(CODE_PREFIX) else None
        alone = _ALONE.fullmatch(self.text or "")
        return None if alone is None else alone[1]


def read_sighting(arrival: Arrival) -> Sighting | None:
    """None: this type shows no chat of the bot's own, or cannot be read. Tomorrow's Bot API is not an error."""
    if arrival.lane == FORGOTTEN_LANE:
        return None
    read = _READERS.get(arrival.type)
    return None if read is None else read(arrival)


class _Person(msgspec.Struct):
    id: int
    is_bot: bool = False
    first_name: str | None = None
    last_name: str | None = None
    username: str | None = None
    language_code: str | None = None


class _Chat(msgspec.Struct):
    id: int
    type: str
    title: str | None = None
    first_name: str | None = None
    last_name: str | None = None
    username: str | None = None


class _Message(msgspec.Struct, rename={"sender": "from"}):
    chat: _Chat
    sender: _Person | None = None
    text: str | None = None
    migrate_to_chat_id: int | None = None
    left_chat_member: _Person | None = None


class _Press(msgspec.Struct, rename={"sender": "from"}):
    sender: _Person
    message: _Message | None = None


class _Member(msgspec.Struct):
    status: str


class _Change(msgspec.Struct, rename={"sender": "from"}):
    chat: _Chat
    sender: _Person
    new_chat_member: _Member


_Body = TypeVar("_Body")
_decode_top = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_message = msgspec.json.Decoder(_Message).decode
_decode_press = msgspec.json.Decoder(_Press).decode
_decode_change = msgspec.json.Decoder(_Change).decode
_TYPES = frozenset({"private", "group", "supergroup", "channel"})
_START = re.compile(r"/start(?:@\w+)?\s+([A-Za-z0-9_-]{1,64})\s*", re.ASCII)
_ALONE = re.compile(rf"\s*({CODE_PREFIX}[A-Za-z0-9_-]{{22}})\s*", re.ASCII)


def _of_message(arrival: Arrival) -> Sighting | None:
    message = _read(arrival, _decode_message)
    if message is None:
        return None
    # A basic group that became a supergroup is written to under its new number from now on. That the bot itself has left is
    # told here as well as by my_chat_member, before or after it.
    has_left = message.left_chat_member is not None and message.left_chat_member.id == arrival.bot_id
    is_gone = has_left or message.migrate_to_chat_id is not None
    return _sighting(arrival, message.chat, message.sender, message, is_gone=is_gone)


def _of_edit(arrival: Arrival) -> Sighting | None:
    """Seen, but nothing new was said: an edit of an old /start shows no code."""
    message = _read(arrival, _decode_message)
    return None if message is None else _sighting(arrival, message.chat, message.sender, None)


def _of_press(arrival: Arrival) -> Sighting | None:
    press = _read(arrival, _decode_press)
    if press is None or press.message is None:  # under an inline result, in a chat that may be any
        return None
    return _sighting(arrival, press.message.chat, press.sender, None)


def _of_change(arrival: Arrival) -> Sighting | None:
    change = _read(arrival, _decode_change)
    if change is None:
        return None
    is_gone = change.new_chat_member.status in ("kicked", "left")
    return _sighting(arrival, change.chat, change.sender, None, is_gone=is_gone)


_READERS: dict[str, Callable[[Arrival], Sighting | None]] = {
    "message": _of_message,
    "edited_message": _of_edit,
    "channel_post": _of_message,
    "edited_channel_post": _of_edit,
    "callback_query": _of_press,
    "my_chat_member": _of_change,
}


def _sighting(
    arrival: Arrival, chat: _Chat, sender: _Person | None, message: _Message | None, *, is_gone: bool = False
) -> Sighting | None:
    if chat.type not in _TYPES or abs(chat.id) > ID_MAX:
        return None
    is_private = chat.type == "private"
    person = sender if is_private and sender is not None and sender.id == chat.id else None
    text = None if message is None or person is None else message.text
    said = _START.fullmatch(text or "")
    return Sighting(
        chat_id=chat.id,
        type=chat.type,
        name=_name(chat, person),
        username=chat.username,
        language=None if person is None else person.language_code,
        at_ms=arrival.sent_at_ms or arrival.received_at_ms,
        is_gone=is_gone,
        text=text,
        start=None if said is None else said[1],
    )


def _name(chat: _Chat, person: _Person | None) -> str | None:
    parts = (chat.first_name, chat.last_name) if person is None else (person.first_name, person.last_name)
    name = chat.title or " ".join(part for part in parts if part)
    return name[:NAME_CHARS_MAX] or None


def _read(arrival: Arrival, decode: Callable[[msgspec.Raw], _Body]) -> _Body | None:
    try:
        raw = _decode_top(arrival.payload).get(arrival.type)
        return None if raw is None else decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


# What holds for known chats on every store: what becomes of one that is seen again, and which ones a filter wants.


LOOKED_FIRST = 1_000  # a page that most chats fit is full after this many


def folded(contacts: Sequence[Contact]) -> list[Contact]:
    """One for each chat, each as if they had been saved one after the other."""
    found: dict[int, Contact] = {}
    for contact in contacts:
        clean = msgspec.structs.replace(
            contact,
            name=_text(contact.name),
            username=_text(contact.username),
            language=_text(contact.language),
            campaign=_text(contact.campaign),
        )
        before = found.get(contact.chat_id)
        found[contact.chat_id] = clean if before is None else met_again(before, clean)
    return list(found.values())


def met_again(known: Contact, new: Contact) -> Contact:
    """A chat that was known before, as it is now."""
    return msgspec.structs.replace(
        new,
        name=known.name if new.name is None else new.name,
        username=known.username if new.username is None else new.username,
        language=known.language if new.language is None else new.language,
        first_seen_ms=known.first_seen_ms,
        last_seen_ms=max(known.last_seen_ms, new.last_seen_ms),
        campaign=known.campaign,
    )


def words_of(name: str | None, username: str | None) -> str:
    """What is searched: its name, and its username with an @ before it. Folded here, since databases fold Latin letters only."""
    return f"{name or ''}\n@{username or ''}".casefold()


def is_wanted(contact: Contact, wanted: ContactFilter) -> bool:
    """For a store that cannot ask its database."""
    return (
        (wanted.types is None or contact.type in wanted.types)
        and (wanted.languages is None or _speaks(contact.language, wanted.languages))
        and (wanted.seen_since_ms is None or contact.last_seen_ms >= wanted.seen_since_ms)
        and (wanted.seen_before_ms is None or contact.last_seen_ms < wanted.seen_before_ms)
        and (wanted.is_gone is None or contact.is_gone == wanted.is_gone)
        and (wanted.text is None or wanted.text.casefold() in words_of(contact.name, contact.username))
        and (wanted.campaign is None or (contact.campaign or "") == wanted.campaign)
    )


def is_tallied(wanted: ContactFilter) -> bool:
    """Whether it asks for kinds of chats only, of which it is known how many there are."""
    others = (wanted.seen_since_ms, wanted.seen_before_ms, wanted.text, wanted.campaign)
    return all(one is None for one in others)


def turned(contacts: list[Contact], *, limit: int, edge: tuple[int, int] | None) -> ContactPage:
    """A page of what was found. `edge`: the last chat that was looked at, if the look ended for its bound."""
    if len(contacts) >= limit:
        return ContactPage(contacts=contacts, cursor=(contacts[-1].last_seen_ms, contacts[-1].chat_id))
    return ContactPage(contacts=contacts, cursor=edge, is_cut=edge is not None)


def languages_of(wanted: ContactFilter) -> list[str] | None:
    """As they are compared."""
    return None if wanted.languages is None else sorted({language.lower() for language in wanted.languages})


def _speaks(language: str | None, wanted: frozenset[str]) -> bool:
    spoken = (language or "").lower()
    return any(spoken == one.lower() or spoken.startswith(f"{one.lower()}-") for one in wanted)


def _text(text: str | None) -> str | None:
    """Nothing is None. What not every database can keep, a zero character or half of one, must not stop the others."""
    if not text:
        return None
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode("utf-8", "replace").decode() or None
