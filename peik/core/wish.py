"""What somebody wanted who wrote or pressed while nobody was there: read from an update, as far as it takes to tell him."""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from peik.core.arrival import Arrival


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A missed message or press, with what is needed to tell its sender. `content` names a kind of media, or is "text"."""

    number: int
    chat: int
    may_tell: bool
    language: str | None = None
    message_id: int | None = None
    thread: int | None = None
    content: str = "text"
    text: str | None = None
    query_id: str | None = None  # of a press
    received_at_ms: int = 0


class _Person(msgspec.Struct):
    id: int
    is_bot: bool = False
    language_code: str | None = None


class _Chat(msgspec.Struct):
    id: int
    type: str = ""


class _Replied(msgspec.Struct, rename={"sender": "from"}):
    sender: _Person | None = None


class _Message(msgspec.Struct, rename={"sender": "from"}):
    chat: _Chat
    date: int
    message_id: int | None = None
    sender: _Person | None = None
    sender_chat: _Chat | None = None
    text: str | None = None
    caption: str | None = None
    reply_to_message: _Replied | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False


class _Press(msgspec.Struct, rename={"sender": "from"}):
    id: str
    sender: _Person
    message: _Message | None = None


class _Member(msgspec.Struct):
    status: str = ""


class _Change(msgspec.Struct):
    chat: _Chat
    new_chat_member: _Member


_Body = TypeVar("_Body")
_Decode = Callable[[msgspec.Raw], _Body]
_decode_top = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_message = msgspec.json.Decoder(_Message).decode
_decode_press = msgspec.json.Decoder(_Press).decode
_decode_change = msgspec.json.Decoder(_Change).decode

# What a person can send again, the most telling name first: an animation comes with a document, a venue with a location.
# Everything else that is called a message (a payment, a new member, a pinned message) is a fact.
CONTENTS = (
    "text", "photo", "animation", "video", "voice", "audio", "video_note", "sticker", "document", "contact", "venue",
    "location", "poll", "dice", "game", "story", "paid_media", "checklist", "web_app_data", "users_shared", "chat_shared",
)  # fmt: skip


def read_wish(arrival: Arrival, *, bot_id: int, username: str | None, began_at_ms: int) -> Wish | None:
    """The wish in a message, an edit or a press. None: it is a fact, or nothing that we can read."""
    if arrival.type == "callback_query":
        return _read_press(arrival)
    message = _read(arrival, _decode_message)
    raw = _read(arrival, _decode_top)
    content = next((name for name in CONTENTS if name in (raw or ())), None)
    if message is None or content is None:
        return None
    if arrival.type == "edited_message" and (message.date + 1) * 1000 <= began_at_ms:
        return None  # a change to something that was there before the outage
    return Wish(
        number=arrival.number,
        chat=message.chat.id,
        may_tell=_may_tell(message, bot_id=bot_id, username=username),
        language=None if message.sender is None else message.sender.language_code,
        message_id=message.message_id,
        thread=message.message_thread_id if message.is_topic_message else None,
        content=content,
        text=message.text or message.caption,
        received_at_ms=arrival.received_at_ms,
    )


def read_standing(arrival: Arrival) -> tuple[int, bool] | None:
    """Of a my_chat_member: the chat, and whether the bot is still inside, or not blocked."""
    change = _read(arrival, _decode_change)
    return None if change is None else (change.chat.id, change.new_chat_member.status not in ("kicked", "left"))


def _read_press(arrival: Arrival) -> Wish | None:
    press = _read(arrival, _decode_press)
    if press is None:
        return None
    message = press.message
    # Without a message it was pressed under an inline result somewhere: its sender may never have met the bot.
    return Wish(
        number=arrival.number,
        chat=press.sender.id if message is None else message.chat.id,
        may_tell=message is not None and message.chat.type != "channel" and not press.sender.is_bot,
        language=press.sender.language_code,
        message_id=None if message is None else message.message_id,
        thread=message.message_thread_id if message is not None and message.is_topic_message else None,
        content="press",
        query_id=press.id,
        received_at_ms=arrival.received_at_ms,
    )


def _may_tell(message: _Message, *, bot_id: int, username: str | None) -> bool:
    """In private always; in a group only who spoke to this bot; never a channel, and never another bot."""
    sender = message.sender
    if sender is None or sender.is_bot or message.sender_chat is not None:
        return False
    if message.chat.type == "private":
        return True
    if message.chat.type not in ("group", "supergroup"):
        return False
    replied = message.reply_to_message
    if replied is not None and replied.sender is not None and replied.sender.id == bot_id:
        return True
    return _is_addressed(message.text or message.caption or "", username)


_COMMAND = re.compile(r"/\w+(?:@(\w+))?")
_MENTION = re.compile(r"(?<!\w)@(\w+)")


def _is_addressed(text: str, username: str | None) -> bool:
    command = _COMMAND.match(text)
    if command is not None:
        named = command.group(1)
        return named is None or username is None or named.lower() == username.lower()
    return username is not None and username.lower() in (name.lower() for name in _MENTION.findall(text))


def _read(arrival: Arrival, decode: _Decode[_Body]) -> _Body | None:
    """The body of an update. Tomorrow's Bot API is not an error: what cannot be read is None."""
    try:
        raw = _decode_top(arrival.payload).get(arrival.type)
        return None if raw is None else decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
