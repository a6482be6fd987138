"""The methods that change or remove what is in a chat already, and their "already so" refusals.

See docs/telegram.md, Method classes, and docs/telegram.md, Uncertain sends.
"""

from peik.testing.answer import Json, bad, integer, integers, mapping, number, text_of
from peik.testing.posting import caption, charge_edit, inline_keyboard, known_chat, message_text, writable_chat
from peik.testing.sends import IDS_MAX, Handler, album_item, checklist
from peik.testing.world import SimCall, SimChat, Topic, World

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
    "location",
)


def edit_text(world: World, call: SimCall) -> object:
    return _edit(world, call, message_text(call.params), needs="text")


def edit_caption(world: World, call: SimCall) -> object:
    return _edit(world, call, {"caption": None, "caption_entities": None, **caption(call.params)}, needs="media")


def edit_media(world: World, call: SimCall) -> object:
    item = mapping(call.params, "media", what="InputMedia")
    if item is None:
        raise bad("can't parse InputMedia: there is no media in the request")
    fresh = dict.fromkeys(_CONTENT[2:], None)
    return _edit(world, call, {**fresh, **album_item(world, call, item)}, needs="")


def edit_markup(world: World, call: SimCall) -> object:
    return _edit(world, call, {}, needs="")


def edit_checklist(world: World, call: SimCall) -> object:
    return _edit(world, call, checklist(call.params), needs="")


def edit_location(world: World, call: SimCall) -> object:
    place = {"latitude": number(call.params, "latitude"), "longitude": number(call.params, "longitude")}
    return _edit(world, call, {"location": {**_live_location(world, call), **place}}, needs="")


def stop_location(world: World, call: SimCall) -> object:
    place = {name: held for name, held in _live_location(world, call).items() if name != "live_period"}
    return _edit(world, call, {"location": place}, needs="")


def _live_location(world: World, call: SimCall) -> Json:
    """The place as the message shows it. Raises if it is none, or no longer a live one."""
    if call.params.get("inline_message_id"):
        return {}
    _, message = _own_message(world, call, "edit")
    place = message.get("location")
    if not isinstance(place, dict) or "live_period" not in place:
        raise bad("message can't be edited")
    return place


def _edit(world: World, call: SimCall, change: Json, *, needs: str) -> object:
    """Apply a change of content and keyboard to one of the bot's own messages; None in it removes."""
    if call.params.get("inline_message_id"):
        world.note_applied(call, text=str(change.get("text") or change.get("caption") or ""))
        return True
    chat, message = _own_message(world, call, "edit")
    if needs == "text" and "text" not in message:
        raise bad("there is no text in the message to edit")
    if needs == "media" and "text" in message:
        raise bad("there is no caption in the message to edit")
    # Without reply_markup an edit removes the keyboard.
    change = {"entities": None, **change} if "text" in change else change
    change = {**change, "reply_markup": inline_keyboard(call.params)}
    if all(message.get(key) == held for key, held in change.items()):
        raise bad(
            "message is not modified: specified new message content and reply markup are exactly the same "
            "as a current content and reply markup of the message"
        )
    charge_edit(world, call, chat)
    for key, held in change.items():
        if held is None:
            message.pop(key, None)
        else:
            message[key] = held
    message["edit_date"] = int(call.now)
    _note(world, call, chat, message, str(message.get("text") or message.get("caption") or ""))
    return message


def stop_poll(world: World, call: SimCall) -> object:
    chat, message = _own_message(world, call, "edit", missing="message with poll to stop not found")
    poll = message.get("poll")
    if not isinstance(poll, dict):
        raise bad("message is not a poll")
    if poll["is_closed"]:
        raise bad("poll has already been closed")
    poll["is_closed"] = True
    _note(world, call, chat, message)
    return poll


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
    return chat.is_private or _is_own(call, message) or world.member(chat, call.bot).can_delete


def pin(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    message_id = integer(call.params, "message_id")
    if message_id not in chat.messages:
        raise bad("message to pin not found")
    if not chat.is_private and not world.member(chat, call.bot).can_pin:
        raise bad("not enough rights to manage pinned messages in the chat")
    if message_id not in chat.pinned:
        chat.pinned.append(message_id)
    world.note_applied(call, chat_id=chat.id, message_id=message_id)
    return True


def unpin(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    message_id = integer(call.params, "message_id") or (chat.pinned[-1] if chat.pinned else 0)
    if message_id not in chat.pinned:
        raise bad("message to unpin not found")
    chat.pinned.remove(message_id)
    world.note_applied(call, chat_id=chat.id, message_id=message_id)
    return True


def unpin_all(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    chat.pinned.clear()
    world.note_applied(call, chat_id=chat.id)
    return True


def react(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    message_id = integer(call.params, "message_id")
    if message_id not in chat.messages:
        raise bad("message to react not found")
    world.note_applied(call, chat_id=chat.id, message_id=message_id)
    return True


def _own_message(world: World, call: SimCall, verb: str, *, missing: str = "") -> tuple[SimChat, Json]:
    chat = known_chat(world, call.bot, call.params)
    message_id = integer(call.params, "message_id")
    if not message_id:
        raise bad("message identifier is not specified")
    message = chat.messages.get(message_id)
    if message is None:
        raise bad(missing or f"message to {verb} not found")
    if not _is_own(call, message):
        raise bad(f"message can't be {verb}ed")
    return chat, message


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
    "pinChatMessage": pin,
    "unpinChatMessage": unpin,
    "unpinAllChatMessages": unpin_all,
    "setMessageReaction": react,
}


# Forum topics: made, closed, opened again, deleted.


def create(world: World, call: SimCall) -> object:
    chat = writable_chat(world, call.bot, call.params)
    name = text_of(call.params, "name")
    if not name:
        raise bad("topic name must be non-empty")
    if not (chat.is_forum or chat.is_lenient or chat.is_private):
        raise bad("the chat is not a forum")
    topic = add(world, chat, name)
    world.note_applied(call, chat_id=chat.id, message_id=topic.id, text=name)
    return {"message_thread_id": topic.id, "name": name, "icon_color": topic.icon_color}


def add(world: World, chat: SimChat, name: str) -> Topic:
    """A new topic; its id is that of the service message that opens it."""
    topic = Topic(id=chat.next_message_id(), name=name)
    chat.topics[topic.id] = topic
    return topic


def edit(world: World, call: SimCall) -> object:
    chat, topic = _topic(world, call)
    topic.name = text_of(call.params, "name") or topic.name
    return _done(world, call, chat, topic)


def close(world: World, call: SimCall) -> object:
    chat, topic = _topic(world, call)
    if topic.is_closed:
        raise bad("TOPIC_NOT_MODIFIED")
    topic.is_closed = True
    return _done(world, call, chat, topic)


def reopen(world: World, call: SimCall) -> object:
    chat, topic = _topic(world, call)
    if not topic.is_closed:
        raise bad("TOPIC_NOT_MODIFIED")
    topic.is_closed = False
    return _done(world, call, chat, topic)


def delete(world: World, call: SimCall) -> object:
    chat, topic = _topic(world, call)
    del chat.topics[topic.id]
    return _done(world, call, chat, topic)


def _topic(world: World, call: SimCall) -> tuple[SimChat, Topic]:
    chat = writable_chat(world, call.bot, call.params)
    topic = chat.topics.get(integer(call.params, "message_thread_id"))
    if topic is None:
        raise bad("message thread not found")
    return chat, topic


def _done(world: World, call: SimCall, chat: SimChat, topic: Topic) -> object:
    world.note_applied(call, chat_id=chat.id, message_id=topic.id, text=topic.name)
    return True


TOPICS: dict[str, Handler] = {
    "createForumTopic": create,
    "editForumTopic": edit,
    "closeForumTopic": close,
    "reopenForumTopic": reopen,
    "deleteForumTopic": delete,
}
