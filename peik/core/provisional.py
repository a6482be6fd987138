"""Provisional message ids: what a bot calls a message that Telegram has not taken yet, and calls that name one. Pure.

They stand above everything that Telegram gives out and below 2³¹, since libraries keep message ids in 32 bits.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from peik.core.call import TEXT_CHARS_MAX, MessageRole, named_messages, opened
from peik.core.letter import State

FIRST_ID = 2_000_000_000
IDS = 2**31 - FIRST_ID
_NAME = b"message_id"  # all that names a message ends so, or with an s
_SHAPE = re.compile(rb"2[01][0-9]{8}")


def id_of(serial: int) -> int:
    """The id behind a serial number of a bot's provisional ids. After 147,483,648 of them the ids begin anew."""
    return FIRST_ID + serial % IDS


def serial_of(message_id: int, *, newest: int) -> int:
    """The newest serial number that has this id, of those up to `newest`. Below 0: it was never given."""
    return newest - (newest - (message_id - FIRST_ID)) % IDS


def with_room(serial: int, count: int) -> int:
    """The first serial number from here on at which `count` ids follow one another."""
    left = IDS - serial % IDS
    return serial if count <= left else serial + left


def is_provisional(value: object) -> bool:
    return isinstance(value, int) and FIRST_ID <= value < FIRST_ID + IDS


def may_name_one(params: bytes) -> bool:
    """Whether parameters may name a provisional id. Asked of every call: most are seen to name no message at all."""
    return _NAME in params and _SHAPE.search(params) is not None


def may_any_name_one(many: Iterable[bytes]) -> bool:
    """The same of many calls at once, as they come in a batch."""
    return any(may_name_one(params) for params in many if _NAME in params)


def provisional_in(value: object) -> int | None:
    """The provisional id that stands where a message id is due, as a number or as the text of one."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 10:
        value = int(value)
    return value if isinstance(value, int) and is_provisional(value) else None


def provisional_ids(given: Mapping[str, object]) -> dict[int, MessageRole]:
    """Every provisional id that a call names, and what it wants of that message."""
    found = ((provisional_in(value), role) for role, value in named_messages(given))
    return {message_id: role for message_id, role in found if message_id is not None}


def with_chats(method: str, given: Mapping[str, object], chats: Mapping[int, str]) -> dict[str, object]:
    """The parameters with the chat of a message that they name, wherever they have 0 for it: nothing else can be told to a bot
    of a chat that it has named by its @name. `chats`: by provisional id, as they were named."""
    anew = dict(given)
    is_from = method.startswith(("forward", "copy"))
    for message_id, role in provisional_ids(given).items():
        chat = chats.get(message_id)
        if chat is None:
            continue
        if role is not MessageRole.REPLY:
            _name_chat(anew, "from_chat_id" if is_from else "chat_id", chat)
            continue
        reply = opened(anew.get("reply_parameters"))
        if isinstance(reply, dict) and "chat_id" in reply:
            reply = dict(reply)
            _name_chat(reply, "chat_id", chat)
            if reply["chat_id"] == chat and given.get("chat_id") in _NOBODY:
                del reply["chat_id"]  # the same one
            anew["reply_parameters"] = (
                msgspec.json.encode(reply).decode() if isinstance(given["reply_parameters"], str) else reply
            )
        _name_chat(anew, "chat_id", chat)
    return anew


_NOBODY = (0, "0")


def _name_chat(given: dict[str, object], name: str, chat: str) -> None:
    if given.get(name) in _NOBODY:
        given[name] = chat


# ---- what Telegram says of a message that is not there ----

_MISSING = (
    ("stoppoll", "message with poll to stop"),
    ("setgamescore", "message to set game score"),
    ("setmessagereaction", "message to react"),
    ("stopmessagelivelocation", "message to edit"),
    *((verb, f"message to {verb}") for verb in ("edit", "delete", "forward", "copy", "pin", "unpin")),
)


def wanted_of(method: str, role: MessageRole) -> str:
    """How Telegram calls the message that a method needs: "message to edit"."""
    if role is MessageRole.REPLY:
        return "message to be replied"
    lowered = method.lower()
    return next((words for start, words in _MISSING if lowered.startswith(start)), "message")


def may_do_without(given: Mapping[str, object]) -> bool:
    """Whether a reply goes out without the message that it replies to, if that is not there."""
    reply = opened(given.get("reply_parameters"))
    asked = reply.get("allow_sending_without_reply") if isinstance(reply, dict) else None
    return _flag(asked) or _flag(given.get("allow_sending_without_reply"))


def _flag(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "yes", "1")) or value == 1


def was_never_tried(*, state: State, attempts_made: int, uncertain_tries: int) -> bool:
    """Whether no try of a letter can have reached Telegram."""
    return state in (State.WAITING, State.DELAYED) and attempts_made <= 0 and uncertain_tries == 0


# ---- an edit of a letter that was never tried, put into the letter itself ----
#
# Only what Telegram surely takes: an edit that it refuses leaves the message as it was, and a letter that it refuses is dead.
# Whatever is in doubt waits for the message and edits it, which shows the same in the end.

_ADDRESS = frozenset({"chat_id", "message_id", "business_connection_id"})
_TEXT = ("text", "parse_mode", "entities", "link_preview_options", "disable_web_page_preview", "reply_markup")
_CAPTION = ("caption", "parse_mode", "caption_entities", "show_caption_above_media", "reply_markup")
_MARKUP = ("reply_markup",)
_CAPTIONED = frozenset({"sendPhoto", "sendVideo", "sendAudio", "sendDocument", "sendAnimation", "sendVoice"})
_MARKED = _CAPTIONED | {
    "sendMessage", "sendVideoNote", "sendSticker", "sendLocation", "sendVenue", "sendContact", "sendDice", "sendPoll",
}  # fmt: skip
_CAPTION_CHARS_MAX = 1024
_LINK = re.compile(r"https?://[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}(/[!-~]*)?")
_BUTTONS_MAX = 100
_BUTTONS_IN_ROW_MAX = 8


def edited(method: str, params: str, *, edit: str, given: Mapping[str, object], item: int) -> str | None:
    """The parameters of a send after an edit of what it makes; None if the edit must wait for the message."""
    letter: dict[str, Any] = msgspec.json.decode(params, type=dict[str, Any])
    names = _names_of(edit, method)
    if names is None or not _ADDRESS.union(names) >= given.keys():
        return None
    if given.get("business_connection_id") != letter.get("business_connection_id"):
        return None
    if not (_is_sure_markup(letter.get("reply_markup")) and _is_sure(edit, given)):
        return None
    anew = {name: given[name] for name in names if name in given}
    if method != "sendMediaGroup":
        kept = {name: value for name, value in letter.items() if name not in names}
        return msgspec.json.encode(kept | anew).decode()
    media = opened(letter.get("media"))
    if not isinstance(media, list) or item >= len(media) or not isinstance(media[item], dict) or "reply_markup" in anew:
        return None
    kept = {name: value for name, value in media[item].items() if name not in names}
    items = [*media[:item], kept | anew, *media[item + 1 :]]
    whole = msgspec.json.encode(items).decode() if isinstance(letter["media"], str) else items
    return msgspec.json.encode(letter | {"media": whole}).decode()


def _names_of(edit: str, method: str) -> tuple[str, ...] | None:
    match edit:
        case "editMessageText" if method == "sendMessage":
            return _TEXT
        case "editMessageCaption" if method in _CAPTIONED or method == "sendMediaGroup":
            return _CAPTION
        case "editMessageReplyMarkup" if method in _MARKED:
            return _MARKUP
    return None


def _is_sure(edit: str, given: Mapping[str, object]) -> bool:
    if not _is_sure_markup(given.get("reply_markup")):
        return False
    if edit == "editMessageReplyMarkup":
        return True
    if any(opened(given.get(name)) not in _NOTHING for name in ("entities", "caption_entities")):
        return False
    words, chars_max = (
        (given.get("text"), TEXT_CHARS_MAX)
        if edit == "editMessageText"
        else (given.get("caption", ""), _CAPTION_CHARS_MAX)
    )
    if not isinstance(words, str) or len(words.encode("utf-16-le")) // 2 > chars_max:
        return False
    if edit == "editMessageText" and not words.strip():
        return False
    return _is_sure_text(words, given.get("parse_mode"))


_NOTHING: tuple[object, ...] = (None, "", [])
_TAG = re.compile(r'<(/?)(b|strong|i|em|u|ins|s|strike|del|code|pre|tg-spoiler|a)( href="https?://[^"<>\s]+")?>')
_MARKDOWN = frozenset("_*`[")
_MARKDOWN_V2 = frozenset("_*[]()~`>#+-=|{}.!\\")


def _is_sure_text(text: str, parse_mode: object) -> bool:
    match parse_mode:
        case None | "":
            return True
        case str() if parse_mode.lower() == "html":
            return _is_sure_html(text)
        case str() if parse_mode.lower() == "markdown":
            return _MARKDOWN.isdisjoint(text)
        case str() if parse_mode.lower() == "markdownv2":
            return _MARKDOWN_V2.isdisjoint(text)
    return False


def _is_sure_html(text: str) -> bool:
    open_tags: list[str] = []
    for tag in _TAG.finditer(text):
        closes, name, has_link = tag[1], tag[2], tag[3] is not None
        if has_link != (name == "a" and not closes):
            return False
        if not closes:
            open_tags.append(name)
        elif not open_tags or open_tags.pop() != name:
            return False
    rest = _TAG.sub("", text)
    return not open_tags and "<" not in rest and bool(rest.strip())


def _is_sure_markup(value: object) -> bool:
    markup = opened(value)
    if markup in _NOTHING:
        return True
    if not isinstance(markup, dict) or markup.keys() != {"inline_keyboard"}:
        return False
    rows = markup["inline_keyboard"]
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) <= _BUTTONS_IN_ROW_MAX for row in rows):
        return False
    buttons = [button for row in rows for button in row]
    return len(buttons) <= _BUTTONS_MAX and all(_is_sure_button(button) for button in buttons)


def _is_sure_button(button: object) -> bool:
    if not isinstance(button, dict) or not isinstance(button.get("text"), str) or not button["text"].strip():
        return False
    data, url = button.get("callback_data"), button.get("url")
    if button.keys() == {"text", "callback_data"}:
        return isinstance(data, str) and 0 < len(data.encode()) <= 64
    return button.keys() == {"text", "url"} and isinstance(url, str) and _LINK.fullmatch(url) is not None


# ---- messages in what Telegram tells: updates and results ----

Place = tuple[int, int]  # (chat, message)


class _Chat(msgspec.Struct):
    id: int


class MadeMessage(msgspec.Struct):
    """What is looked at of a message in an answer. Copies have no chat."""

    message_id: int
    chat: _Chat | None = None


_decode_made = msgspec.json.Decoder(MadeMessage | list[MadeMessage]).decode


def made_in(result: str | None) -> list[MadeMessage]:
    """The messages that an answer of Telegram's tells of; none if it tells of something else."""
    if result is None:
        return []
    try:
        made = _decode_made(result)
    except msgspec.DecodeError:
        return []
    return made if isinstance(made, list) else [made]


def places_in(value: object) -> Iterator[Place]:
    """Every message that stands in some JSON with its chat."""
    if isinstance(value, dict):
        chat = _chat_of(value)
        if chat is not None:
            for name in ("message_id", "message_ids"):
                ids = value.get(name)
                yield from ((chat, one) for one in (ids if isinstance(ids, list) else [ids]) if isinstance(one, int))
        for inner in value.values():
            yield from places_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from places_in(inner)


def retold(value: Any, told: Mapping[Place, int]) -> Any:
    """The same JSON with the ids that the bot was told."""
    if isinstance(value, list):
        return [retold(inner, told) for inner in value]
    if not isinstance(value, dict):
        return value
    anew = {name: retold(inner, told) for name, inner in value.items()}
    chat = _chat_of(value)
    if chat is not None:
        if isinstance(value.get("message_id"), int):
            anew["message_id"] = told.get((chat, value["message_id"]), value["message_id"])
        if isinstance(value.get("message_ids"), list):
            anew["message_ids"] = [told.get((chat, one), one) for one in value["message_ids"]]
    return anew


def _chat_of(value: Mapping[str, Any]) -> int | None:
    chat = value.get("chat")
    number = chat.get("id") if isinstance(chat, dict) else None
    return number if isinstance(number, int) else None
