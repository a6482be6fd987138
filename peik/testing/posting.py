"""The one way a message gets into a chat: may this bot write here, does the envelope make sense, is there room in the limits."""

import html
import re

import msgspec

from peik.testing import faults
from peik.testing.answer import Json, Params, Refusal, bad, encode, flag, forbidden, integer, mapping, sequence, text_of
from peik.testing.world import SimBot, SimCall, SimChat, Topic, World

# parse_mode as far as a sender can get it wrong: the plain text that a chat sees, or Telegram's "can't parse
# entities".


_TAGS = frozenset(
    {
        "b",
        "strong",
        "i",
        "em",
        "u",
        "ins",
        "s",
        "strike",
        "del",
        "span",
        "tg-spoiler",
        "tg-emoji",
        "tg-time",
        "a",
        "code",
    }
    | {"pre", "blockquote"}
)
_TAG = re.compile(r"<(/?)([^\s<>/]*)([^<>]*)>?")
_RESERVED = frozenset("_*[]()~`>#+-=|{}.!")


def plain(text: str, parse_mode: str) -> str:
    """The text without its markup. Raises the refusal for markup that is clearly broken."""
    match parse_mode.lower():
        case "":
            return text
        case "html":
            return _html(text)
        case "markdown":
            return _markdown(text)
        case "markdownv2":
            return _markdown_v2(text)
        case _:
            raise bad("unsupported parse_mode")


def _broken(why: str) -> Refusal:
    return bad(f"can't parse entities: {why}")


def _offset(text: str, index: int) -> int:
    return len(text[:index].encode())


def _html(text: str) -> str:
    open_tags: list[str] = []
    parts: list[str] = []
    index = 0
    while (start := text.find("<", index)) >= 0:
        parts.append(text[index:start])
        match = _TAG.match(text, start)
        assert match is not None
        closing, name, _ = match.groups()
        name = name.lower()
        if not closing and name not in _TAGS:
            raise _broken(f'Unsupported start tag "{name}" at byte offset {_offset(text, start)}')
        if not match[0].endswith(">"):
            raise _broken(f"Unclosed start tag at byte offset {_offset(text, start)}")
        if closing:
            if not open_tags:
                raise _broken(f"Unexpected end tag at byte offset {_offset(text, start)}")
            if name and name != open_tags[-1]:
                raise _broken(
                    f'Unmatched end tag at byte offset {_offset(text, start)}, expected "</{open_tags[-1]}>", found "</{name}>"'
                )
            open_tags.pop()
        else:
            open_tags.append(name)
        index = match.end()
    parts.append(text[index:])
    if open_tags:
        raise _broken(f'Can\'t find end tag corresponding to start tag "{open_tags[-1]}"')
    return html.unescape("".join(parts))


def _markdown(text: str) -> str:
    """The first Markdown: no nesting, and a backslash frees the four marks."""
    parts: list[str] = []
    index = 0
    while index < len(text):
        mark = text[index]
        if mark == "\\" and text[index + 1 : index + 2] in {"_", "*", "`", "["}:
            parts.append(text[index + 1])
            index += 2
            continue
        if mark not in "_*`[":
            parts.append(mark)
            index += 1
            continue
        fence = "```" if text.startswith("```", index) else "]" if mark == "[" else mark
        start = index + (3 if fence == "```" else 1)
        end = text.find(fence, start)
        if end < 0:
            raise _broken(f"Can't find end of the entity starting at byte offset {_offset(text, index)}")
        parts.append(text[start:end])
        index = end + len(fence)
        if mark == "[" and text.startswith("(", index):
            index = max(text.find(")", index), index) + 1
    return "".join(parts)


_V2_MARKS = ("```", "||", "__", "*", "_", "~", "`", "[", "]")


def _markdown_v2(text: str) -> str:
    """MarkdownV2: marks nest, and every other reserved character must be escaped."""
    open_marks: list[tuple[str, int]] = []
    parts: list[str] = []
    index = 0
    while index < len(text):
        character = text[index]
        if character == "\\" and index + 1 < len(text) and ord(text[index + 1]) < 128:
            parts.append(text[index + 1])
            index += 2
            continue
        inside = open_marks[-1][0] if open_marks else ""
        if inside in {"`", "```"} and not text.startswith(inside, index):
            parts.append(character)
            index += 1
            continue
        is_quote = (character == ">" or text.startswith("**>", index)) and (index == 0 or text[index - 1] == "\n")
        if is_quote:
            index += 3 if character == "*" else 1
            continue
        mark = next((mark for mark in _V2_MARKS if text.startswith(mark, index)), "")
        if mark == "||" and inside != "||" and text[index + 2 : index + 3] in {"", "\n"}:
            index += 2  # the end of an expandable quote
        elif mark:
            index = _v2_mark(text, index, mark, open_marks)
        elif character in _RESERVED and not text.startswith("![", index):
            raise _broken(f"Character '{character}' is reserved and must be escaped with the preceding '\\'")
        else:
            if character != "!":
                parts.append(character)
            index += 1
    if open_marks:
        mark, start = open_marks[-1]
        raise _broken(f"Can't find end of {_NAMES[mark]} entity at byte offset {_offset(text, start)}")
    return "".join(parts)


_NAMES = {
    "```": "Pre", "||": "Spoiler", "__": "Underline", "*": "Bold", "_": "Italic", "~": "Strikethrough",
    "`": "Code", "[": "TextUrl",
}  # fmt: skip


def _v2_mark(text: str, index: int, mark: str, open_marks: list[tuple[str, int]]) -> int:
    """Open or close one mark; the index behind it."""
    opener = "[" if mark == "]" else mark
    if open_marks and open_marks[-1][0] == opener and mark != "[":
        open_marks.pop()
        index += len(mark)
        if mark == "]" and text.startswith("(", index):
            end = text.find(")", index)
            if end < 0:
                raise _broken(f"Can't find end of a URL at byte offset {_offset(text, index)}")
            index = end + 1
        return index
    if mark == "]":
        raise _broken("Character ']' is reserved and must be escaped with the preceding '\\'")
    open_marks.append((mark, index))
    return index + len(mark)


TEXT_MAX = 4096
CAPTION_MAX = 1024
MARKUP_BYTES_MAX = 10_240
BUTTON_DATA_BYTES_MAX = 64


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


def writable_chat(world: World, bot: SimBot, params: Params, what: str = "text messages") -> SimChat:
    """The chat, if this bot may write to it."""
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
    if not member.can_send:
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
    around = envelope(call, chat)
    if amount:
        charge(world, call, chat, amount)
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
    thread = message.get("message_thread_id")
    thread_id = thread if isinstance(thread, int) else None
    world.note_sent(call, chat, message_id=message_id, thread_id=thread_id, text=text)
    return message


def charge(world: World, call: SimCall, chat: SimChat, amount: int) -> None:
    """Count messages against the limits of chat and bot."""
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


def charge_edit(world: World, call: SimCall, chat: SimChat) -> None:
    figures = world.options.limits
    if not figures.on or chat.user is not None:
        return
    try:
        faults.charge_edit(figures, call.bot.pace, call.now, chat_id=chat.id)
    except Refusal:
        world.counters.limited += 1
        raise


def message_text(params: Params) -> Json:
    """The `text` of a request as the chat will see it, with its entities."""
    text = _formatted(params, "text", "entities")
    if not text.strip():
        raise bad("message text is empty")
    if len(text) > TEXT_MAX:
        raise bad("message is too long")
    content: Json = {"text": text}
    entities = sequence(params, "entities", what="MessageEntity") if "entities" in params else None
    if entities:
        content["entities"] = entities
    return content


def caption(params: Params) -> Json:
    """The `caption` of a request as the chat will see it; nothing if there is none."""
    if not params.get("caption"):
        return {}
    text = _formatted(params, "caption", "caption_entities")
    if len(text) > CAPTION_MAX:
        raise bad("message caption is too long")
    content: Json = {"caption": text} if text else {}
    entities = sequence(params, "caption_entities", what="MessageEntity") if "caption_entities" in params else None
    if entities:
        content["caption_entities"] = entities
    return content


def _formatted(params: Params, field: str, entities_field: str) -> str:
    text = text_of(params, field)
    mode = params.get("parse_mode")
    # Given entities win over a parse mode, as at Telegram.
    if not mode or params.get(entities_field):
        return text
    return plain(text, str(mode))


_ENVELOPE = ("message_thread_id", "reply_parameters", "reply_to_message_id", "reply_markup", "business_connection_id")


def envelope(call: SimCall, chat: SimChat) -> Json | None:
    """What stands around the content: thread, reply, keyboard. None is the common case."""
    params = call.params
    if params.keys().isdisjoint(_ENVELOPE):
        return None
    found: Json = {}
    thread_id = thread(params, chat)
    if thread_id:
        found["message_thread_id"] = thread_id
        found["is_topic_message"] = True
    reply_to = _replied(params, chat)
    if reply_to is not None:
        found["reply_to_message"] = {key: held for key, held in reply_to.items() if key != "reply_to_message"}
    markup = inline_keyboard(params)
    if markup is not None:
        found["reply_markup"] = markup
    if params.get("business_connection_id"):
        found["business_connection_id"] = params["business_connection_id"]
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


def _replied(params: Params, chat: SimChat) -> Json | None:
    reply = mapping(params, "reply_parameters", what="reply parameters") or params
    message_id = integer(reply, "message_id" if reply is not params else "reply_to_message_id")
    if not message_id or reply.get("chat_id") not in (None, chat.id, str(chat.id)):
        return None
    message = chat.messages.get(message_id)
    if message is None and not (
        flag(reply, "allow_sending_without_reply") or flag(params, "allow_sending_without_reply")
    ):
        raise bad("message to be replied not found")
    return message


def inline_keyboard(params: Params) -> Json | None:
    """A checked inline keyboard; None for none and for the other keyboards, which no message shows."""
    if not params.get("reply_markup"):
        return None
    markup = mapping(params, "reply_markup", what="reply keyboard markup")
    if markup is None:
        return None
    if len(encode(markup)) > MARKUP_BYTES_MAX:
        raise bad("reply markup is too long")
    rows = markup.get("inline_keyboard")
    if rows is None:
        return None
    if not isinstance(rows, list):
        raise bad('field "inline_keyboard" of the InlineKeyboardMarkup must be an Array')
    for row in rows:
        for button in row if isinstance(row, list) else [None]:
            _check_button(button)
    return {"inline_keyboard": rows} if rows else None


def _check_button(button: object) -> None:
    if not isinstance(button, dict) or not button.get("text"):
        raise bad("can't parse inline keyboard button: expected an Object with a text")
    if len(button) < 2 or button.keys() <= {"text", "style", "icon_custom_emoji_id"}:
        raise bad("text buttons are unallowed in the inline keyboard")
    data = button.get("callback_data")
    if data is not None and not 0 < len(str(data).encode()) <= BUTTON_DATA_BYTES_MAX:
        raise bad("BUTTON_DATA_INVALID")


def visible(message: Json) -> Json:
    """A message as plain Python, for people and tests: the faces in it are kept encoded."""
    decoded: Json = msgspec.json.decode(encode(message))
    return decoded
