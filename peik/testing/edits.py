"""The methods that change or remove what is in a chat already, and their "already so" refusals.

See docs/telegram.md, Method classes, and docs/telegram.md, Uncertain sends.
"""

from collections import Counter

import msgspec

from peik.testing.answer import Json, bad, encode, integer, integers, mapping, number, sequence, text_of
from peik.testing.media import hidden
from peik.testing.posting import caption, charge_edit, check_connection, inline_keyboard, known_chat, message_text
from peik.testing.rich import plain, rich_message
from peik.testing.sends import IDS_MAX, LIVE_FOREVER_S, Handler, album_item, checklist, close_poll
from peik.testing.world import SimCall, SimChat, SimUser, World

_CONTENT = (
    "text",
    "entities",
    "caption",
    "caption_entities",
    "photo",
    "document",
    "audio",
    "video",
    "animation",
    "live_photo",
    "location",
    "venue",
    "has_media_spoiler",
    "show_caption_above_media",
)


def edit_text(world: World, call: SimCall) -> object:
    nothing: Json = dict.fromkeys(("text", "entities", "link_preview_options", "rich_message"))
    if call.params.get("rich_message"):
        content: Json = {"rich_message": rich_message(world, call, call.params)}
    else:
        content = message_text(world, call.params)
    return _edit(world, call, nothing | content, needs="text")


def edit_caption(world: World, call: SimCall) -> object:
    nothing: Json = {"caption": None, "caption_entities": None, "show_caption_above_media": None}
    above = {name: held for name, held in hidden(call.params).items() if name in nothing}
    return _edit(world, call, {**nothing, **caption(world, call.params), **above}, needs="media")


def edit_media(world: World, call: SimCall) -> object:
    item = mapping(call.params, "media", what="InputMedia")
    if item is None:
        raise bad("can't parse InputMedia: there is no media in the request")
    fresh = dict.fromkeys(_CONTENT[2:], None)
    return _edit(world, call, {**fresh, **album_item(world, call, item)}, needs="")


def edit_markup(world: World, call: SimCall) -> object:
    return _edit(world, call, {}, needs="")


def edit_checklist(world: World, call: SimCall) -> object:
    _, message = _own_message(world, call, "edit")
    before = message.get("checklist")
    if not isinstance(before, dict):
        raise bad("message can't be edited")
    return _edit(world, call, {"checklist": checklist(world, call.params, before)}, needs="")


def edit_location(world: World, call: SimCall) -> object:
    place: Json = {"latitude": number(call.params, "latitude"), "longitude": number(call.params, "longitude")}
    for name in ("live_period", "heading", "proximity_alert_radius"):
        if integer(call.params, name):
            place[name] = integer(call.params, name)
    accuracy = number(call.params, "horizontal_accuracy")
    if accuracy:
        place["horizontal_accuracy"] = accuracy
    before = _live_location(world, call)
    kept = {name: held for name, held in before.items() if name not in {"horizontal_accuracy", "heading"}}
    return _edit(world, call, {"location": {**kept, **place}}, needs="")


def stop_location(world: World, call: SimCall) -> object:
    gone = {"live_period", "heading", "proximity_alert_radius"}
    place = {name: held for name, held in _live_location(world, call).items() if name not in gone}
    return _edit(world, call, {"location": place}, needs="")


def _live_location(world: World, call: SimCall) -> Json:
    """The place as the message shows it. Raises if it is none, or no longer a live one."""
    if call.params.get("inline_message_id"):
        return {}
    _, message = _own_message(world, call, "edit")
    place = message.get("location")
    if not isinstance(place, dict) or "live_period" not in place:
        raise bad("message can't be edited")
    period_s = integer(place, "live_period")
    if period_s != LIVE_FOREVER_S and call.now > integer(message, "date") + period_s:
        raise bad("message can't be edited")
    return place


def _edit(world: World, call: SimCall, change: Json, *, needs: str) -> object:
    """Apply a change of content and keyboard to one of the bot's own messages; None in it removes."""
    inline_id = text_of(call.params, "inline_message_id")
    if inline_id and inline_id not in call.bot.inline:
        if not world.options.accept_any_chat:
            raise bad("MESSAGE_ID_INVALID")
        world.note_applied(call, text=str(change.get("text") or change.get("caption") or ""))
        return True
    chat, message = (None, call.bot.inline[inline_id]) if inline_id else _own_message(world, call, "edit")
    if needs == "text" and "text" not in message and "rich_message" not in message:
        raise bad("there is no text in the message to edit")
    if needs == "media" and "text" in message:
        raise bad("there is no caption in the message to edit")
    # Without reply_markup an edit removes the keyboard.
    change["reply_markup"] = inline_keyboard(call.params)
    if all(message.get(key) == held for key, held in change.items()):
        raise bad(
            "message is not modified: specified new message content and reply markup are exactly the same "
            "as a current content and reply markup of the message"
        )
    if chat is not None:
        charge_edit(world, call, chat)
    for key, held in change.items():
        if held is None:
            message.pop(key, None)
        else:
            message[key] = held
    message["edit_date"] = int(call.now)
    text = str(message.get("text") or message.get("caption") or "") or plain(message.get("rich_message")).rstrip()
    if chat is None:
        world.note_applied(call, text=text)
        return True
    _note(world, call, chat, message, text)
    return True if "Ephemeral" in call.method else message


def stop_poll(world: World, call: SimCall) -> object:
    chat, message = _own_message(world, call, "edit", missing="message with poll to stop not found")
    poll = message.get("poll")
    if not isinstance(poll, dict):
        raise bad("message is not a poll")
    if poll["is_closed"]:
        raise bad("poll has already been closed")
    markup = inline_keyboard(call.params)
    message.pop("reply_markup", None)
    if markup is not None:
        message["reply_markup"] = markup
    close_poll(world, poll)
    _note(world, call, chat, message)
    return poll


def delete_ephemeral(world: World, call: SimCall) -> object:
    chat, message = _own_message(world, call, "delete")
    del chat.ephemeral[integer(message, "ephemeral_message_id")]
    world.note_applied(call, chat_id=chat.id)
    return True


def delete_message(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    message_id = integer(call.params, "message_id")
    message = chat.messages.get(message_id)
    if message is None:
        raise bad("message to delete not found")
    if not _may_delete(world, call, chat, message):
        raise bad("message can't be deleted for everyone" if chat.is_private else "message can't be deleted")
    del chat.messages[message_id]
    world.note_applied(call, chat_id=chat.id, message_id=message_id)
    return True


def delete_messages(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    ids = integers(call.params, "message_ids", what="message identifiers")
    if not ids:
        raise bad("message identifiers are not specified")
    if len(ids) > IDS_MAX:
        raise bad("too many message identifiers specified")
    for message_id in ids:
        # What cannot be found or deleted is skipped in silence.
        message = chat.messages.get(message_id)
        if message is not None and _may_delete(world, call, chat, message):
            del chat.messages[message_id]
    world.note_applied(call, chat_id=chat.id)
    return True


def _may_delete(world: World, call: SimCall, chat: SimChat, message: Json) -> bool:
    if call.now - integer(message, "date") > 48 * 3600:
        return False
    return chat.is_private or _is_own(call, message) or world.may(chat, call.bot, "can_delete_messages")


def react(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    message_id = integer(call.params, "message_id")
    if message_id not in chat.messages:
        raise bad("message to react not found")
    reactions = sequence(call.params, "reaction", what="ReactionType") or []
    for one in reactions:
        if not isinstance(one, dict) or one.get("type") not in {"emoji", "custom_emoji", "paid"}:
            raise bad("can't parse reaction: ReactionType must be an Object")
        if one["type"] == "emoji" and one.get("emoji") not in REACTIONS:
            raise bad("REACTION_INVALID")
    if len(reactions) > 1:
        raise bad("REACTIONS_TOO_MANY")
    set_reactions(world, chat, message_id, call.bot.user, [one for one in reactions if isinstance(one, dict)])
    world.note_applied(call, chat_id=chat.id, message_id=message_id)
    return True


def set_reactions(world: World, chat: SimChat, message_id: int, user: SimUser, fresh: list[Json]) -> None:
    """What somebody thinks of a message is told to other bots: who it was, or in a channel how many."""
    held = chat.reactions.setdefault(message_id, {})
    old = held.pop(user.id, [])
    if fresh:
        held[user.id] = fresh
    if not held:
        del chat.reactions[message_id]
    if old == fresh:
        return
    told: Json = {"chat": chat.as_json(), "message_id": message_id, "date": int(world.now())}
    kind = "message_reaction"
    if chat.type == "channel":
        kind = "message_reaction_count"
        counts = Counter(encode(one) for row in held.values() for one in row)
        told["reactions"] = [{"type": msgspec.Raw(one), "total_count": count} for one, count in counts.items()]
    else:
        told |= {"user": user.as_json(), "old_reaction": old, "new_reaction": fresh}
    if chat.is_private:
        bots = [bot for bot in world.bots.values() if bot.dialogs.get(chat.id) is chat]
    else:
        bots = [
            world.bots[who]
            for who, member in chat.members.items()
            if member.status == "administrator" and who in world.bots
        ]
    for bot in bots:
        if bot.id != user.id:
            world.push(bot, kind, told)


def delete_reactions(world: World, call: SimCall) -> object:
    """deleteMessageReaction and deleteAllMessageReactions: what one person thinks of a message, or of all."""
    chat = known_chat(world, call.bot, call.params)
    if chat.is_private or not world.may(chat, call.bot, "can_delete_messages"):
        raise bad("not enough rights to delete reactions" if not chat.is_private else "chat not found")
    who = integer(call.params, "user_id") or integer(call.params, "actor_chat_id")
    user = world.users.get(who) or SimUser(id=who, first_name="")
    message_id = integer(call.params, "message_id")
    if "All" not in call.method and message_id not in chat.messages:
        raise bad("message to react not found")
    for one in list(chat.reactions) if "All" in call.method else [message_id]:
        set_reactions(world, chat, one, user, [])
    world.note_applied(call, chat_id=chat.id, message_id=message_id)
    return True


# What Telegram lets anybody react with.
REACTIONS = frozenset({
    "❤", "👍", "👎", "🔥", "🥰", "👏", "😁", "🤔", "🤯", "😱", "🤬", "😢", "🎉", "🤩", "🤮", "💩", "🙏",
    "👌", "🕊", "🤡", "🥱", "🥴", "😍", "🐳", "❤\u200d🔥", "🌚", "🌭", "💯", "🤣", "⚡", "🍌", "🏆", "💔",
    "🤨", "😐", "🍓", "🍾", "💋", "🖕", "😈", "😴", "😭", "🤓", "👻", "👨\u200d💻", "👀", "🎃", "🙈", "😇",
    "😨", "🤝", "✍", "🤗", "🫡", "🎅", "🎄", "☃", "💅", "🤪", "🗿", "🆒", "💘", "🙉", "🦄", "😘", "💊",
    "🙊", "😎", "👾", "🤷\u200d♂", "🤷", "🤷\u200d♀", "😡",
})  # fmt: skip


def _own_message(world: World, call: SimCall, verb: str, *, missing: str = "") -> tuple[SimChat, Json]:
    chat = known_chat(world, call.bot, call.params)
    if "business_connection_id" in call.params:
        check_connection(world, call.bot, text_of(call.params, "business_connection_id"))
    is_ephemeral = "Ephemeral" in call.method
    message_id = integer(call.params, "ephemeral_message_id" if is_ephemeral else "message_id")
    if not message_id:
        raise bad("message identifier is not specified")
    message = (chat.ephemeral if is_ephemeral else chat.messages).get(message_id)
    if message is None or (is_ephemeral and not _is_for(call, message)):
        raise bad(missing or f"message to {verb} not found")
    if not _is_own(call, message):
        raise bad(f"message can't be {verb}ed")
    return chat, message


def _is_for(call: SimCall, message: Json) -> bool:
    """An ephemeral message is named together with whom it is for, if anybody."""
    reader = message.get("receiver_user")
    return not call.params.get("receiver_user_id") or (
        isinstance(reader, dict) and reader["id"] == integer(call.params, "receiver_user_id")
    )


def _is_own(call: SimCall, message: Json) -> bool:
    return message.get("from") is call.bot.face or "sender_chat" in message


def _note(world: World, call: SimCall, chat: SimChat, message: Json, text: str = "") -> None:
    world.note_applied(call, chat_id=chat.id, message_id=integer(message, "message_id"), text=text)


EDITS: dict[str, Handler] = {
    "editMessageText": edit_text,
    "editMessageCaption": edit_caption,
    "editMessageMedia": edit_media,
    "editMessageReplyMarkup": edit_markup,
    "editMessageLiveLocation": edit_location,
    "stopMessageLiveLocation": stop_location,
    "editMessageChecklist": edit_checklist,
    "stopPoll": stop_poll,
    "deleteMessage": delete_message,
    "deleteMessages": delete_messages,
    "editEphemeralMessageText": edit_text,
    "editEphemeralMessageCaption": edit_caption,
    "editEphemeralMessageMedia": edit_media,
    "editEphemeralMessageReplyMarkup": edit_markup,
    "deleteEphemeralMessage": delete_ephemeral,
    "setMessageReaction": react,
    "deleteMessageReaction": delete_reactions,
    "deleteAllMessageReactions": delete_reactions,
}
