"""The one way a message gets into a chat: may this bot write here, does the envelope make sense, is there room in the limits."""

import re

import msgspec

from peik.testing import faults
from peik.testing.answer import (
    Json,
    Params,
    Refusal,
    bad,
    encode,
    flag,
    forbidden,
    integer,
    mapping,
    sequence,
    structure,
    text_of,
    too_many,
)
from peik.testing.entities import checked_link, formatted, may_have_links, trimmed
from peik.testing.world import SimBot, SimCall, SimChat, SimQuery, SimUser, Topic, World

TEXT_MAX = 4096
CAPTION_MAX = 1024
MARKUP_BYTES_MAX = 10_240
BUTTON_DATA_BYTES_MAX = 64
COPY_TEXT_MAX = 256
EPHEMERAL_MAX = 1_000  # of a chat


def known_chat(world: World, bot: SimBot, params: Params, field: str = "chat_id") -> SimChat:
    """The chat a request names. Raises for none, an unknown one, and a group that has moved."""
    where = params.get(field)
    if where is None or where == "":
        raise bad(f"{field} is empty")
    chat = world.find_chat(bot, where)
    if chat is None:
        raise bad("chat not found")
    if chat.migrated_to is not None:
        text = "Bad Request: group chat was upgraded to a supergroup chat"
        raise Refusal(400, text, migrate_to=chat.migrated_to)
    return chat


# What a permission is needed for, if it is not that for messages.
_NEEDED = {
    "audios": "can_send_audios", "documents": "can_send_documents", "photos": "can_send_photos",
    "videos": "can_send_videos", "video notes": "can_send_video_notes", "voice notes": "can_send_voice_notes",
    "polls": "can_send_polls", "animations": "can_send_other_messages", "stickers": "can_send_other_messages",
    "dice": "can_send_other_messages", "games": "can_send_other_messages",
}  # fmt: skip


def writable_chat(world: World, bot: SimBot, params: Params, what: str = "text messages") -> SimChat:
    """The chat, if this bot may write that to it."""
    chat = known_chat(world, bot, params)
    user = chat.user
    if user is not None:
        _refuse_unwilling(chat)
        return chat
    if chat.is_deleted:
        raise forbidden("the group chat was deleted")
    member = world.member(chat, bot)
    if member.status == "kicked":
        raise forbidden(f"bot was kicked from the {chat.type} chat")
    if member.status == "left":
        raise forbidden(f"bot is not a member of the {chat.type} chat")
    if chat.type == "channel" and member.status not in {"administrator", "creator"}:
        raise bad("need administrator rights in the channel chat")
    if not (member.can_send and world.permits(chat, member, _NEEDED.get(what, "can_send_messages"))):
        raise bad(f"not enough rights to send {what} to the chat")
    return chat


def _refuse_unwilling(chat: SimChat) -> None:
    user = chat.user
    assert user is not None
    if user.is_deactivated:
        raise forbidden("user is deactivated")
    if user.is_bot:
        raise forbidden("the bot can't send messages to the bot")
    if chat.is_blocked:
        raise forbidden("bot was blocked by the user")
    if not user.is_reachable and chat.active_at == float("-inf"):
        raise forbidden("bot can't initiate conversation with a user")


def post(world: World, call: SimCall, chat: SimChat, content: Json, *, text: str = "", amount: int = 1) -> Json:
    """Put one message into the chat, or raise. `amount` is charged to the limits; 0 if the caller has charged already."""
    around = envelope(world, call, chat)
    if amount:
        charge(world, call, chat, amount)
    if around is not None and "receiver_user" in around:
        return _whisper(world, call, chat, around | content, text)
    message_id = chat.next_message_id()
    message: Json = {"message_id": message_id}
    if chat.type == "channel":
        message["sender_chat"] = chat.face
    else:
        message["from"] = call.bot.face
    message["chat"] = chat.face
    message["date"] = int(call.now)
    if around is not None:
        message.update(around)
    message.update(content)
    world.keep(chat, message_id, message)
    if chat.drafts:
        chat.drafts.clear()
    if chat.more:
        world.let_expire(chat, message_id)
    thread = message.get("message_thread_id")
    thread_id = thread if isinstance(thread, int) else None
    world.note_sent(call, chat, message_id=message_id, thread_id=thread_id, text=text)
    return message


def _whisper(world: World, call: SimCall, chat: SimChat, content: Json, text: str) -> Json:
    """An ephemeral message: one person sees it, it has no number in the chat, and it may be lost."""
    number = world.chance.randint(1, 0x7FFFFFFF)
    message: Json = {"message_id": 0, "ephemeral_message_id": number, "from": call.bot.face, "chat": chat.face}
    message |= {"date": int(call.now), **content}
    chat.ephemeral[number] = message
    while len(chat.ephemeral) > EPHEMERAL_MAX:
        del chat.ephemeral[next(iter(chat.ephemeral))]
    world.note_sent(call, chat, message_id=0, thread_id=None, text=text)
    return message


def charge(world: World, call: SimCall, chat: SimChat, amount: int) -> None:
    """Count messages against the limits of chat and bot, and against the chat's slow mode."""
    if "slow_mode_delay" in chat.more:
        _keep_slow(world, call, chat)
    figures = world.options.limits
    if not figures.on:
        return
    try:
        faults.charge(
            figures,
            call.bot.pace,
            call.now,
            chat_id=chat.id,
            is_private=chat.user is not None,
            is_reply=call.now - chat.active_at <= figures.reply_window_s,
            amount=amount,
            is_paid="allow_paid_broadcast" in call.params and flag(call.params, "allow_paid_broadcast"),
        )
    except Refusal:
        world.counters.limited += 1
        raise


def _keep_slow(world: World, call: SimCall, chat: SimChat) -> None:
    """Slow mode is for those who are no administrators."""
    member = world.member(chat, call.bot)
    if member.status in {"administrator", "creator"}:
        return
    wait_s = member.spoke_at + integer(chat.more, "slow_mode_delay") - call.now
    if wait_s > 0:
        raise too_many(int(wait_s) + 1)
    member.spoke_at = call.now


def charge_edit(world: World, call: SimCall, chat: SimChat) -> None:
    figures = world.options.limits
    if not figures.on or chat.user is not None:
        return
    try:
        faults.charge_edit(figures, call.bot.pace, call.now, chat_id=chat.id)
    except Refusal:
        world.counters.limited += 1
        raise


_MARKED = frozenset({"parse_mode", "entities", "link_preview_options", "disable_web_page_preview"})


def message_text(world: World, params: Params) -> Json:
    """The `text` of a request as the chat will see it, with its entities and what is said of its link preview."""
    given = params.get("text")
    if type(given) is str and params.keys().isdisjoint(_MARKED) and not may_have_links(given):
        text, entities = trimmed(given), None  # the common case, on which all benches stand
    else:
        text, entities = _formatted(world, params, "text", "entities")
    if not text:
        raise bad("message text is empty")
    if len(text) > TEXT_MAX:
        raise bad("message is too long")
    content: Json = {"text": text}
    if entities:
        content["entities"] = entities
    if entities is not None:
        content.update(_preview(params, text, entities))
    return content


def caption(world: World, params: Params, most: int = CAPTION_MAX) -> Json:
    """The `caption` of a request as the chat will see it; nothing if there is none."""
    if not params.get("caption"):
        return {}
    text, entities = _formatted(world, params, "caption", "caption_entities")
    if len(text) > most:
        raise bad("message caption is too long")
    content: Json = {"caption": text} if text else {}
    if entities:
        content["caption_entities"] = entities
    return content


def words(world: World, params: Params, field: str, *, mode_field: str, entities_field: str) -> tuple[str, list[Json]]:
    """Any other text of a request that may be formatted: a poll's question, a quote, a task."""
    return _formatted(world, params, field, entities_field, mode_field)


def _formatted(
    world: World, params: Params, field: str, entities_field: str, mode_field: str = "parse_mode"
) -> tuple[str, list[Json]]:
    given = sequence(params, entities_field, what="MessageEntity") if entities_field in params else None
    mode = params.get(mode_field)
    text, entities = formatted(text_of(params, field), str(mode) if mode else "", given)
    for entity in entities:
        if entity["type"] == "text_mention":
            user = world.users.get(integer(entity, "user"))
            entity["user"] = user.as_json() if user is not None else None
    # A mention of somebody whom the bot has never met is plain text.
    return text, [one for one in entities if one.get("user", one) is not None] if entities else entities


def _preview(params: Params, text: str, entities: list[Json]) -> Json:
    """What a message says of its link preview: which link, and how it is shown. Every link is taken to have one."""
    given = mapping(params, "link_preview_options", what="LinkPreviewOptions")
    if given is None:
        given = {"is_disabled": flag(params, "disable_web_page_preview")}
    found: Json = {}
    if flag(given, "is_disabled"):
        found["link_preview_options"] = {"is_disabled": True}
        return found
    shown: Json = {name: held for name, held in given.items() if held not in (False, None, "")}
    if "url" not in shown:
        link = next((one for one in entities if one["type"] in {"url", "text_link"}), None)
        if link is None:
            if shown:
                found["link_preview_options"] = shown
            return found
        named = text.encode("utf-16-le")[2 * integer(link, "offset") :][: 2 * integer(link, "length")]
        shown = {"url": link.get("url") or named.decode("utf-16-le"), **shown}
    found["link_preview_options"] = shown
    return found


_ENVELOPE = frozenset({
    "message_thread_id", "reply_parameters", "reply_to_message_id", "reply_markup", "business_connection_id",
    "protect_content", "message_effect_id", "direct_messages_topic_id", "receiver_user_id", "ephemeral_message_parameters",
    "suggested_post_parameters",
})  # fmt: skip


def envelope(world: World, call: SimCall, chat: SimChat) -> Json | None:
    """What stands around the content: thread, reply, keyboard. None is the common case."""
    params = call.params
    if params.keys().isdisjoint(_ENVELOPE):
        return None
    found: Json = {}
    if "receiver_user_id" in params or "ephemeral_message_parameters" in params:
        found["receiver_user"] = _receiver(world, params)
    thread_id = thread(params, chat) if "message_thread_id" in params else None
    if thread_id:
        found["message_thread_id"] = thread_id
        found["is_topic_message"] = True
    if "reply_parameters" in params or "reply_to_message_id" in params:
        found.update(_reply(world, call, chat))
    markup = inline_keyboard(params, chat)
    if markup is not None:
        found["reply_markup"] = markup
    if params.get("business_connection_id"):
        connection_id = text_of(params, "business_connection_id")
        check_connection(world, call.bot, connection_id)
        found["business_connection_id"] = connection_id
    if "protect_content" in params and flag(params, "protect_content"):
        found["has_protected_content"] = True
    if params.get("message_effect_id") and chat.is_private:
        found["effect_id"] = text_of(params, "message_effect_id")
    if params.get("direct_messages_topic_id"):
        found["direct_messages_topic"] = {"topic_id": integer(params, "direct_messages_topic_id")}
    if params.get("suggested_post_parameters"):
        found["suggested_post_info"] = _suggestion(call, chat)
    return found


# In which coins a suggested post may be paid, and how many of them.
_PRICES = {"XTR": (5, 100_000), "TON": (10_000_000, 10_000_000_000_000)}


def _suggestion(call: SimCall, chat: SimChat) -> Json:
    given = mapping(call.params, "suggested_post_parameters", what="SuggestedPostParameters") or {}
    if not (chat.parent or chat.is_lenient):
        raise bad("SUGGESTED_POST_PEER_INVALID")
    found: Json = {"state": "pending"}
    price = mapping(given, "price", what="SuggestedPostPrice")
    if price is not None:
        least, most = _PRICES.get(text_of(price, "currency"), (1, 0))
        if not least <= integer(price, "amount") <= most:
            raise bad("STARS_AMOUNT_INVALID")
        found["price"] = {"currency": text_of(price, "currency"), "amount": integer(price, "amount")}
    send_at = integer(given, "send_date")
    if send_at:
        if not call.now + 300 <= send_at <= call.now + 2_678_400:
            raise bad("SCHEDULE_DATE_INVALID")
        found["send_date"] = send_at
    return found


def _receiver(world: World, params: Params) -> Json:
    given = mapping(params, "ephemeral_message_parameters", what="EphemeralMessageParameters") or params
    user = world.users.get(integer(given, "receiver_user_id"))
    if user is None:
        raise bad("user not found")
    return user.as_json()


def check_connection(world: World, bot: SimBot, connection_id: str) -> Json | None:
    """A business connection must exist, once there are any; where any chat may be made up, a connection may be as well."""
    found = bot.connections.get(connection_id)
    if found is None and (bot.connections or not world.options.accept_any_chat):
        raise bad("BUSINESS_CONNECTION_INVALID")
    return found


def thread(params: Params, chat: SimChat) -> int | None:
    """The topic a request names, if there is one."""
    thread_id = integer(params, "message_thread_id")
    if not thread_id:
        return None
    topic = chat.topics.get(thread_id)
    if topic is None and chat.is_lenient:
        topic = chat.topics[thread_id] = Topic(id=thread_id, name=f"Topic {thread_id}")
    if topic is None:
        raise bad("message thread not found")
    if topic.is_closed:
        raise bad("TOPIC_CLOSED")
    return thread_id


def _reply(world: World, call: SimCall, chat: SimChat) -> Json:
    """What a message shows of the one it answers: that one, or of another chat its content; and the quote."""
    reply = mapping(call.params, "reply_parameters", what="reply parameters") or call.params
    is_old = reply is call.params
    message_id = integer(reply, "reply_to_message_id" if is_old else "message_id")
    if not message_id:
        return {}
    elsewhere = None if is_old or reply.get("chat_id") in (None, "", chat.id, str(chat.id)) else reply["chat_id"]
    source = chat if elsewhere is None else world.find_chat(call.bot, elsewhere)
    if source is chat:
        elsewhere = None  # called by its name
    message = source.messages.get(message_id) if source is not None else None
    if source is None or message is None:
        if flag(reply, "allow_sending_without_reply") or flag(call.params, "allow_sending_without_reply"):
            return {}
        raise bad("message to be replied not found")
    quote: Json = {} if is_old or not reply.get("quote") else {"quote": _quote(world, reply, message)}
    if elsewhere is None:
        return quote | {"reply_to_message": {key: held for key, held in message.items() if key != "reply_to_message"}}
    media = {key: held for key, held in message.items() if key not in _NOT_MEDIA}
    external: Json = {"origin": origin(message), "message_id": message_id, **media}
    if not source.is_private:
        external["chat"] = source.face
    return quote | {"external_reply": external}


_NOT_MEDIA = frozenset({
    "message_id", "from", "sender_chat", "chat", "date", "edit_date", "text", "entities", "caption", "caption_entities",
    "reply_to_message", "reply_markup", "message_thread_id", "is_topic_message", "business_connection_id", "quote",
    "media_group_id", "forward_origin", "has_protected_content", "effect_id", "external_reply", "pinned_message",
})  # fmt: skip


def origin(message: Json) -> Json:
    """Where a forwarded or quoted message comes from."""
    if "forward_origin" in message:
        first = message["forward_origin"]
        assert isinstance(first, dict)
        return first
    if "from" in message:
        return {"type": "user", "sender_user": message["from"], "date": message["date"]}
    return {"type": "channel", "chat": message["chat"], "message_id": message["message_id"], "date": message["date"]}


def _quote(world: World, reply: Json, message: Json) -> Json:
    text, entities = words(world, reply, "quote", mode_field="quote_parse_mode", entities_field="quote_entities")
    whole = str(message.get("text") or message.get("caption") or "")
    near = integer(reply, "quote_position")
    places = [match.start() for match in re.finditer(re.escape(text), whole)] if text else []
    if not places:
        raise bad("QUOTE_TEXT_INVALID")
    position = min(places, key=lambda place: abs(place - near))
    shown: Json = {"text": text, "position": position, "is_manual": True}
    return shown | ({"entities": entities} if entities else {})


def inline_keyboard(params: Params, chat: SimChat | None = None) -> Json | None:
    """A checked inline keyboard; None for none and for the other keyboards, which no message shows."""
    if not params.get("reply_markup"):
        return None
    markup = structure(params, "reply_markup", what="reply keyboard markup")
    if not markup:
        return None
    if not isinstance(markup, dict):
        raise bad("object expected as reply markup")
    if len(encode(markup)) > MARKUP_BYTES_MAX:
        raise bad("reply markup is too long")
    if "keyboard" in markup:
        for row in _check_rows(markup["keyboard"], 'field "keyboard" must be an Array of Arrays'):
            for key in row:
                _check_key(key, is_private=chat is None or chat.is_private)
        return None
    rows = markup.get("inline_keyboard")
    if rows is None:
        return None
    shown = [
        [checked_button(button) for button in row]
        for row in _check_rows(rows, 'field "inline_keyboard" of the InlineKeyboardMarkup must be an Array of Arrays')
    ]
    return {"inline_keyboard": [row for row in shown if row]} if any(shown) else None


def _check_rows(rows: object, text: str) -> list[list[object]]:
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise bad(text)
    return rows


# What people can be asked for by a key of a reply keyboard, where nobody else sees it.
_ASKED = {
    "request_contact": "phone number can be requested", "request_location": "location can be requested",
    "request_poll": "poll can be requested", "web_app": "Web App buttons can be used",
    "request_users": "users can be requested", "request_user": "users can be requested",
    "request_chat": "chats can be requested", "request_managed_bot": "managed bots can be requested",
}  # fmt: skip


def _check_key(key: object, *, is_private: bool) -> None:
    """One key of a reply keyboard."""
    if isinstance(key, dict):
        if "text" not in key:
            raise bad("can't parse keyboard button: can't find field \"text\"")
        for name, said in _ASKED.items():
            if key.get(name) and not is_private:
                raise bad(f"{said} in private chats only")
    elif not isinstance(key, str):
        raise bad("can't parse keyboard button: KeyboardButton must be a String or an Object")
    if not (key["text"] if isinstance(key, dict) else key):
        raise bad("keyboard button text must be non-empty")


# What a button may do, in the order in which Telegram looks.
_DEEDS = (
    "url", "callback_data", "callback_game", "pay", "switch_inline_query", "switch_inline_query_current_chat",
    "switch_inline_query_chosen_chat", "login_url", "web_app", "copy_text",
)  # fmt: skip


def checked_button(button: object) -> Json:
    """One button as the chat shows it: with one deed, the first that it names."""
    if not isinstance(button, dict):
        raise bad("can't parse inline keyboard button: InlineKeyboardButton must be an Object")
    if "text" not in button:
        raise bad("can't parse inline keyboard button: can't find field \"text\"")
    if not button["text"]:
        raise bad("can't parse inline keyboard button: expected an Object with a text")
    for deed in _DEEDS:
        held = button.get(deed)
        if held is not None and held is not False:
            break
    else:
        raise bad("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
    shown: Json = {"text": button["text"], **_deed(deed, held)}
    if len(button) > 2:
        shown |= {name: button[name] for name in ("style", "icon_custom_emoji_id") if button.get(name)}
    return shown


def _deed(deed: str, held: object) -> Json:
    """What pressing the button does, as the chat shows it."""
    if deed == "callback_data":
        if not 0 < len(str(held).encode()) <= BUTTON_DATA_BYTES_MAX:
            raise bad("BUTTON_DATA_INVALID")
        return {deed: held}
    url = text_of(held, "url") if isinstance(held, dict) else ""
    match deed:
        case "url":
            return {"url": _checked_url(str(held))}
        case "login_url":
            if not url.lower().startswith("https://"):
                raise bad("BUTTON_URL_INVALID")
            return {"url": url}  # as it is shown to the bot itself
        case "web_app" if not url.lower().startswith("https://"):
            raise bad(f"inline keyboard button Web App URL '{url}' is invalid: only HTTPS links are allowed")
        case "copy_text" if not isinstance(held, dict) or not 0 < len(text_of(held, "text")) <= COPY_TEXT_MAX:
            raise bad("BUTTON_COPY_TEXT_INVALID")
        case _:
            return {deed: held}


def _checked_url(url: str) -> str:
    checked = checked_link(url)
    if not checked:
        raise bad(f"inline keyboard button URL '{url}' is invalid: wrong HTTP URL")
    return checked


def tell(world: World, bot: SimBot, chat: SimChat, content: Json, *, sender: SimUser | None = None) -> Json:
    """A service message: what has changed in a chat, said by whoever changed it. Bots see those of others alone."""
    message_id = chat.next_message_id()
    message: Json = {"message_id": message_id}
    if chat.type == "channel":
        message["sender_chat"] = chat.face
    else:
        message["from"] = bot.face if sender is None else sender.as_json()
    message |= {"chat": chat.face, "date": int(world.now()), **content}
    world.keep(chat, message_id, message)
    kind = "channel_post" if chat.type == "channel" else "message"
    for user_id, member in list(chat.members.items()):
        other = world.bots.get(user_id)
        if other is not None and member.is_inside and (sender is not None or other is not bot):
            world.push(other, kind, visible(message))
    return message


def told_by(world: World, bot: SimBot, chat: SimChat, content: Json, user: SimUser) -> Json:
    """A service message of a person's, which the bot sees."""
    message = tell(world, bot, chat, content, sender=user)
    if chat.is_private:
        kind = "business_message" if "business_connection_id" in content else "message"
        world.push(bot, kind, visible(message), date=world.now())
    return message


def appear(world: World, channel: SimChat, content: Json) -> Json:
    """A post that nobody has just sent: it was due. Every bot in the channel sees it."""
    message_id = channel.next_message_id()
    post: Json = {"message_id": message_id, "sender_chat": channel.face, "chat": channel.face}
    post |= {"date": int(world.now()), **content}
    world.keep(channel, message_id, post)
    for user_id, member in list(channel.members.items()):
        if member.is_inside and user_id in world.bots:
            world.push(world.bots[user_id], "channel_post", visible(post))
    return post


def visible(message: Json) -> Json:
    """A message as plain Python, for people and tests: the faces in it are kept encoded."""
    decoded: Json = msgspec.json.decode(encode(message))
    return decoded


ADDRESS = ("country_code", "state", "city", "street_line1", "street_line2", "post_code")

# What a query says unless told otherwise. Strict libraries refuse one without these.
USUAL: dict[str, Json] = {
    "inline": {"query": "", "offset": ""},
    "pre_checkout": {"currency": "XTR", "total_amount": 1, "invoice_payload": ""},
    "shipping": {
        "invoice_payload": "",
        "shipping_address": dict.fromkeys(ADDRESS, ""),
    },
}


def ask(world: World, bot: SimBot, user: SimUser, kind: str, payload: Json, *, chat_id: int | None = None) -> str:
    """A query that wants an answer: callback, inline, pre_checkout or shipping; its id."""
    now = world.now()
    query_id = str(world.chance.getrandbits(62))
    bot.queries[kind, query_id] = SimQuery(kind=kind, asked_at=now, chat_id=chat_id)
    while len(bot.queries) > 10_000:
        oldest = next(iter(bot.queries))
        del bot.queries[oldest]
        bot.checkouts.pop(oldest[1], None)
    if kind == "pre_checkout":
        bot.checkouts[query_id] = {**payload, "user_id": user.id}
    world.push(bot, f"{kind}_query", {"id": query_id, "from": user.as_json(), **payload})
    return query_id
