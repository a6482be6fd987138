"""Bot API JSON as the TL objects of an MTProto client library, so that its own parser makes its own types of them.

Nothing here asks Telegram. What the JSON does not say is left out; what we do not translate is `MessageMediaUnsupported`.
"""

import inspect
import struct
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from peik.errors import BadInput
from peik.integrations import content

Json = Mapping[str, Any]

# Telegram's own arithmetic: a channel's id in the Bot API is this minus its id in MTProto.
_CHANNELS_BELOW = -1_000_000_000_000


class Schema:
    """The TL classes of one library, whatever layer it speaks."""

    def __init__(self, types: ModuleType, *, reread: Callable[[Any], Any], instant: Callable[[int], Any] = int) -> None:
        self._types = types
        self._fields: dict[str, frozenset[str]] = {}
        # Through bytes and back: what is not there then looks as it does when it comes from Telegram, which is not None
        # in every library, and a field of a wrong type shows itself here.
        self.reread = reread
        self.instant = instant  # how the library wants a date: as a number, or as a datetime

    def make(self, name: str, **fields: Any) -> Any:
        """An object of this class. A field that this layer does not know is left out."""
        kind = getattr(self._types, name)
        known = self._fields.get(name)
        if known is None:
            known = self._fields[name] = frozenset(inspect.signature(kind.__init__).parameters)
        return kind(**{field: value for field, value in fields.items() if field in known})

    def has(self, name: str) -> bool:
        return hasattr(self._types, name)


class TlParcel:
    """One update in TL, with the users and chats that it speaks of, by their ids in MTProto."""

    def __init__(self) -> None:
        self.update: Any = None
        self.message: Any = None  # of an update about a message, or the one with the button that was pressed
        self.reply: Any = None  # the message that it answers
        self.users: dict[int, Any] = {}
        self.chats: dict[int, Any] = {}


# The kinds of updates that are translated, and the TL update of each, in a channel and elsewhere.
_UPDATES = {
    "message": ("UpdateNewMessage", "UpdateNewChannelMessage"),
    "channel_post": ("UpdateNewMessage", "UpdateNewChannelMessage"),
    "edited_message": ("UpdateEditMessage", "UpdateEditChannelMessage"),
    "edited_channel_post": ("UpdateEditMessage", "UpdateEditChannelMessage"),
}
TRANSLATED = frozenset({*_UPDATES, "callback_query"})


def translate(schema: Schema, kind: str, body: Json, *, bot_id: int) -> TlParcel:
    """The parcel of one update. Raises BadInput if it is of a kind, or a shape, that is not translated."""
    parcel = TlParcel()
    write = _Writer(schema, parcel, bot_id)
    try:
        if kind == "callback_query":
            parcel.update = write.press(body)
        else:
            plain, in_channel = _UPDATES[kind]
            parcel.message = write.message(body)
            is_channel = body["chat"]["type"] in ("supergroup", "channel")
            parcel.update = schema.make(in_channel if is_channel else plain, message=parcel.message, pts=0, pts_count=0)
            parcel.reply = write.replied(body)
        _reread(schema, parcel)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError, struct.error) as error:
        raise BadInput(
            code="not_translated", detail=f"An update of type {kind} could not be translated: {error!r}."
        ) from error
    return parcel


def _reread(schema: Schema, parcel: TlParcel) -> None:
    parcel.update = schema.reread(parcel.update)
    if parcel.message is not None:
        parcel.message = getattr(parcel.update, "message", None) or schema.reread(parcel.message)
    if parcel.reply is not None:
        parcel.reply = schema.reread(parcel.reply)
    parcel.users = {user_id: schema.reread(user) for user_id, user in parcel.users.items()}
    parcel.chats = {chat_id: schema.reread(chat) for chat_id, chat in parcel.chats.items()}


class _Writer:
    def __init__(self, schema: Schema, parcel: TlParcel, bot_id: int) -> None:
        self._schema = schema
        self._make = schema.make
        self._parcel = parcel
        self._bot_id = bot_id

    # ---- messages ----

    def message(self, body: Json) -> Any:
        chat, sender = body["chat"], body.get("from")
        fields = {
            "id": body["message_id"],
            "peer_id": self.chat(chat),
            "from_id": self._from(body),
            "out": sender is not None and sender["id"] == self._bot_id,
            "post": chat["type"] == "channel",
            "date": self._schema.instant(body["date"]),
            "reply_to": self._reply_header(body),
        }
        action = content.action(self._schema, body, self.user)
        if action is not None:
            return self._make("MessageService", **fields, action=action)
        text = body.get("text")
        media = None if text is not None else content.media(self._schema, body)
        return self._make(
            "Message",
            **fields,
            message=text if text is not None else body.get("caption", ""),
            entities=self.entities(body.get("entities") or body.get("caption_entities")),
            media=media,
            fwd_from=self._forward(body.get("forward_origin")),
            via_bot_id=self.user(body["via_bot"]) if "via_bot" in body else None,
            edit_date=self._schema.instant(body["edit_date"]) if "edit_date" in body else None,
            grouped_id=int(body["media_group_id"]) if "media_group_id" in body else None,
            post_author=body.get("author_signature"),
            noforwards=body.get("has_protected_content"),
            reply_markup=self._buttons(body.get("reply_markup")),
        )

    def replied(self, body: Json) -> Any:
        reply = body.get("reply_to_message")
        return None if reply is None or "date" not in reply else self.message(reply)

    def press(self, body: Json) -> Any:
        """A button under a message. One under an inline message has an id that only Telegram's own server can read."""
        message = body["message"]
        self._parcel.message = self.message(message) if message.get("date") else None
        data = body.get("data")
        return self._make(
            "UpdateBotCallbackQuery",
            query_id=int(body["id"]),
            user_id=self.user(body["from"]),
            peer=self.chat(message["chat"]),
            msg_id=message["message_id"],
            chat_instance=int(body["chat_instance"]),
            data=None if data is None else data.encode(),
            game_short_name=body.get("game_short_name"),
        )

    def _from(self, body: Json) -> Any:
        """Who wrote it. In a private chat and in a channel the chat itself says so, as in MTProto."""
        chat, sender, sender_chat = body["chat"], body.get("from"), body.get("sender_chat")
        if chat["type"] == "channel":
            return None
        if sender_chat is not None:
            return self.chat(sender_chat)
        if sender is None:
            return None
        user_id = self.user(sender)
        return None if user_id == chat["id"] else self._make("PeerUser", user_id=user_id)

    def _reply_header(self, body: Json) -> Any:
        reply, thread, quote = body.get("reply_to_message"), body.get("message_thread_id"), body.get("quote")
        is_topic = body.get("is_topic_message", False)
        if reply is None and not is_topic:
            return None
        reply_id = thread if reply is None else reply["message_id"]
        return self._make(
            "MessageReplyHeader",
            reply_to_msg_id=reply_id,
            reply_to_top_id=None if thread == reply_id else thread,
            forum_topic=is_topic,
            reply_to_scheduled=False,
            quote=quote is not None,
            quote_text=None if quote is None else quote["text"],
            quote_entities=None if quote is None else self.entities(quote.get("entities")),
            quote_offset=None if quote is None else quote.get("position"),
        )

    def _forward(self, origin: Json | None) -> Any:
        if origin is None:
            return None
        source = origin.get("sender_chat") or origin.get("chat")
        sender = origin.get("sender_user")
        peer = None
        if source is not None:
            peer = self.chat(source)
        elif sender is not None:
            peer = self._make("PeerUser", user_id=self.user(sender))
        return self._make(
            "MessageFwdHeader",
            date=self._schema.instant(origin["date"]),
            from_id=peer,
            from_name=origin.get("sender_user_name"),
            channel_post=origin.get("message_id"),
            post_author=origin.get("author_signature"),
        )

    def _buttons(self, markup: Json | None) -> Any:
        """The inline keyboard of a message that the bot sent itself: its buttons with data and those with links."""
        if markup is None or "inline_keyboard" not in markup:
            return None
        is_new = self._schema.has("KeyboardInlineButton")  # the layers of late 2026 write buttons another way
        button = self._button if is_new else self._old_button
        row_name = "KeyboardInlineButtonRow" if is_new else "KeyboardButtonRow"
        rows = [[made for one in row if (made := button(one)) is not None] for row in markup["inline_keyboard"]]
        return self._make("ReplyInlineMarkup", rows=[self._make(row_name, buttons=row) for row in rows if row])

    def _button(self, button: Json) -> Any:
        if "callback_data" in button:
            kind = self._make("InlineButtonTypeCallback", data=button["callback_data"].encode())
        elif "url" in button:
            kind = self._make("InlineButtonTypeUrl", url=button["url"])
        else:
            return None
        return self._make("KeyboardInlineButton", text=button["text"], type=kind)

    def _old_button(self, button: Json) -> Any:
        if "callback_data" in button:
            return self._make("KeyboardButtonCallback", text=button["text"], data=button["callback_data"].encode())
        if "url" in button:
            return self._make("KeyboardButtonUrl", text=button["text"], url=button["url"])
        return None

    # ---- people ----

    def user(self, user: Json) -> int:
        """The id, and the user among those that the parcel knows."""
        user_id: int = user["id"]
        self._parcel.users[user_id] = self._make(
            "User",
            id=user_id,
            is_self=user_id == self._bot_id,
            bot=user.get("is_bot") or None,
            bot_info_version=1 if user.get("is_bot") else None,  # TL's mark of a bot that may talk to people
            first_name=user.get("first_name"),
            last_name=user.get("last_name"),
            username=user.get("username"),
            lang_code=user.get("language_code"),
            premium=user.get("is_premium"),
        )
        return user_id

    def chat(self, chat: Json) -> Any:
        """The peer, and the chat among those that the parcel knows."""
        chat_id, kind = chat["id"], chat["type"]
        if kind == "private":
            if chat_id not in self._parcel.users:
                self.user(chat)
            return self._make("PeerUser", user_id=chat_id)
        fields = {
            "title": chat.get("title", ""),
            "photo": self._make("ChatPhotoEmpty"),
            "date": self._schema.instant(0),
        }
        if kind == "group":
            self._parcel.chats[-chat_id] = self._make("Chat", id=-chat_id, participants_count=0, version=0, **fields)
            return self._make("PeerChat", chat_id=-chat_id)
        channel_id = _CHANNELS_BELOW - chat_id
        self._parcel.chats[channel_id] = self._make(
            "Channel",
            id=channel_id,
            megagroup=kind == "supergroup",
            broadcast=kind == "channel",
            username=chat.get("username"),
            forum=chat.get("is_forum"),
            monoforum=chat.get("is_direct_messages"),
            **fields,
        )
        return self._make("PeerChannel", channel_id=channel_id)

    # ---- text ----

    def entities(self, entities: list[Json] | None) -> list[Any] | None:
        """None if there are none: Pyrogram 2.0 cannot write an empty list that TL allows to be left out."""
        made = (self._entity(one) for one in entities or ())
        return [one for one in made if one is not None] or None

    def _entity(self, entity: Json) -> Any:
        kind = entity["type"]
        place = {"offset": entity["offset"], "length": entity["length"]}
        match kind:
            case "text_link":
                return self._make("MessageEntityTextUrl", **place, url=entity["url"])
            case "text_mention":
                return self._make("MessageEntityMentionName", **place, user_id=self.user(entity["user"]))
            case "pre":
                return self._make("MessageEntityPre", **place, language=entity.get("language", ""))
            case "custom_emoji":
                return self._make("MessageEntityCustomEmoji", **place, document_id=int(entity["custom_emoji_id"]))
            case "expandable_blockquote":
                return self._make("MessageEntityBlockquote", **place, collapsed=True)
        name = _ENTITIES.get(kind)
        return self._make(name, **place) if name is not None and self._schema.has(name) else None


_ENTITIES = {
    "mention": "MessageEntityMention",
    "hashtag": "MessageEntityHashtag",
    "cashtag": "MessageEntityCashtag",
    "bot_command": "MessageEntityBotCommand",
    "url": "MessageEntityUrl",
    "email": "MessageEntityEmail",
    "phone_number": "MessageEntityPhone",
    "bold": "MessageEntityBold",
    "italic": "MessageEntityItalic",
    "underline": "MessageEntityUnderline",
    "strikethrough": "MessageEntityStrike",
    "spoiler": "MessageEntitySpoiler",
    "blockquote": "MessageEntityBlockquote",
    "code": "MessageEntityCode",
}
