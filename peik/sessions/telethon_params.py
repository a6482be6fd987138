"""Parameters of the Bot API, which come as JSON or as strings of a form, as what Telegram wants."""

from typing import Any

import msgspec
from telethon import types

from peik.sessions.formatting import Entity
from peik.sessions.telethon_answers import Impossible

ENTITIES: dict[str, Any] = {
    "bold": types.MessageEntityBold,
    "italic": types.MessageEntityItalic,
    "underline": types.MessageEntityUnderline,
    "strikethrough": types.MessageEntityStrike,
    "spoiler": types.MessageEntitySpoiler,
    "code": types.MessageEntityCode,
    "blockquote": types.MessageEntityBlockquote,
    "mention": types.MessageEntityMention,
    "hashtag": types.MessageEntityHashtag,
    "cashtag": types.MessageEntityCashtag,
    "bot_command": types.MessageEntityBotCommand,
    "url": types.MessageEntityUrl,
    "email": types.MessageEntityEmail,
    "phone_number": types.MessageEntityPhone,
}


def decoded(value: object) -> object:
    """A form carries objects as JSON in a string."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return None
    return value


def flag(value: object) -> bool | None:
    """Telegram's flags are either there or not."""
    return True if value in (True, 1, "1", "true", "True") else None


def number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Impossible("a message id or another number is missing")
    try:
        return int(value)
    except ValueError:
        raise Impossible(f"{value!r} is no number") from None


def following(random_id: int, index: int) -> int:
    """The random id of a message further on in the same call: always the same, and within 64 bits with a sign."""
    return (random_id + index + 2**63) % 2**64 - 2**63


def reaction(given: object) -> Any:
    if isinstance(given, dict) and given.get("type") == "custom_emoji":
        return types.ReactionCustomEmoji(document_id=number(given.get("custom_emoji_id")))
    if isinstance(given, dict) and isinstance(given.get("emoji"), str):
        return types.ReactionEmoji(emoticon=given["emoji"])
    raise Impossible("a reaction must be an emoji or a custom emoji")


def given_entity(given: object) -> Entity:
    if not isinstance(given, dict):
        raise Impossible("entities must be objects")
    user = given.get("user")
    return Entity(
        type=str(given.get("type", "")),
        offset=number(given.get("offset")),
        length=number(given.get("length")),
        url=given.get("url"),
        language=given.get("language"),
        custom_emoji_id=given.get("custom_emoji_id"),
        user_id=user.get("id") if isinstance(user, dict) else None,
    )
