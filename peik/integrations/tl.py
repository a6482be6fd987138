"""Bot API JSON as the TL objects of an MTProto client library, so that its own parser makes its own types of them.

Nothing here asks Telegram. What the JSON does not say is left out; what we do not translate is `MessageMediaUnsupported`.
"""

import base64
import binascii
import inspect
import mimetypes
import struct
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import msgspec

from peik.errors import BadInput

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
        action = action_of(self._schema, body, self.user)
        if action is not None:
            return self._make("MessageService", **fields, action=action)
        text = body.get("text")
        media = None if text is not None else media_of(self._schema, body)
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


# What a message holds beside text: files, places, contacts, and the messages of the chat itself.


# A Bot API file id, read: it holds where the file lies at Telegram, which is all that MTProto needs to fetch it.


_HAS_REFERENCE = 1 << 25
_IS_WEB = 1 << 24
_VERSION = 4


class FileAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file lies. Good only for the bot that the file id was given to, as the file id itself."""

    id: int
    access_hash: int
    reference: bytes
    dc_id: int


NOWHERE = FileAddress(id=0, access_hash=0, reference=b"", dc_id=0)


def read_file_id(text: str) -> FileAddress:
    """The address in a file id. One of another form gives NOWHERE: the message is whole, the file cannot be fetched."""
    try:
        data = _zeros_back(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if not data or data[-1] != _VERSION:
            return NOWHERE
        kind, dc_id = struct.unpack_from("<ii", data)
        if kind & _IS_WEB:
            return NOWHERE
        reference, place = _bytes_at(data, 8) if kind & _HAS_REFERENCE else (b"", 8)
        media_id, access_hash = struct.unpack_from("<qq", data, place)
    except (binascii.Error, ValueError, struct.error, IndexError):
        return NOWHERE
    return FileAddress(id=media_id, access_hash=access_hash, reference=reference, dc_id=dc_id)


def _zeros_back(data: bytes) -> bytes:
    """Runs of zero bytes are written as one zero and their number."""
    found = bytearray()
    place = 0
    while place < len(data):
        if data[place] == 0:
            found += bytes(data[place + 1])
            place += 2
        else:
            found.append(data[place])
            place += 1
    return bytes(found)


def _bytes_at(data: bytes, place: int) -> tuple[bytes, int]:
    """A TL byte string: its length in one byte, or in three after 254; padded to a multiple of four."""
    length, begin = data[place], place + 1
    if length == 254:
        length, begin = int.from_bytes(data[place + 1 : place + 4], "little"), place + 4
    end = begin + length
    return data[begin:end], end + (place - end) % 4


# https://core.telegram.org/api/files#image-thumbnail-types: the longest side that each kind of size may have.
_BOXES = (("s", 100), ("m", 320), ("x", 800), ("y", 1280))
_LARGEST = "w"

# Before `document`: an animation has that field too, for clients that do not know animations.
_DOCUMENTS = ("animation", "audio", "voice", "video_note", "video", "sticker", "document")


def media_of(schema: Schema, body: Json) -> Any:
    """The TL media of a message without text."""
    is_hidden = body.get("has_media_spoiler")
    if "photo" in body:
        return schema.make("MessageMediaPhoto", photo=_photo(schema, body), spoiler=is_hidden)
    for name in _DOCUMENTS:
        if name in body:
            document = _document(schema, name, body[name], body["date"])
            return schema.make("MessageMediaDocument", document=document, spoiler=is_hidden)
    if "venue" in body:
        return _venue(schema, body["venue"])
    if "location" in body:
        return _location(schema, body["location"])
    if "contact" in body:
        contact = body["contact"]
        return schema.make(
            "MessageMediaContact",
            phone_number=contact["phone_number"],
            first_name=contact["first_name"],
            last_name=contact.get("last_name", ""),
            vcard=contact.get("vcard", ""),
            user_id=contact.get("user_id", 0),
        )
    if "dice" in body:
        return schema.make("MessageMediaDice", value=body["dice"]["value"], emoticon=body["dice"]["emoji"])
    return schema.make("MessageMediaUnsupported")


def action_of(schema: Schema, body: Json, user: Callable[[Json], int]) -> Any:
    """What happened in the chat, if the message says so. None: somebody wrote it."""
    for name, make in _ACTIONS.items():
        if name in body:
            return make(schema, body[name], user)
    return None


_ACTIONS: dict[str, Callable[[Schema, Any, Callable[[Json], int]], Any]] = {
    "new_chat_members": lambda schema, members, user: schema.make(
        "MessageActionChatAddUser", users=[user(one) for one in members]
    ),
    "left_chat_member": lambda schema, member, user: schema.make("MessageActionChatDeleteUser", user_id=user(member)),
    "new_chat_title": lambda schema, title, _: schema.make("MessageActionChatEditTitle", title=title),
    "delete_chat_photo": lambda schema, _, __: schema.make("MessageActionChatDeletePhoto"),
    "group_chat_created": lambda schema, _, __: schema.make("MessageActionChatCreate", title="", users=[]),
    "successful_payment": lambda schema, payment, _: _payment(schema, payment),
    "web_app_data": lambda schema, data, _: schema.make(
        "MessageActionWebViewDataSentMe", text=data["button_text"], data=data["data"]
    ),
}


def _payment(schema: Schema, payment: Json) -> Any:
    return schema.make(
        "MessageActionPaymentSentMe",
        currency=payment["currency"],
        total_amount=payment["total_amount"],
        payload=payment["invoice_payload"].encode(),
        charge=schema.make(
            "PaymentCharge",
            id=payment["telegram_payment_charge_id"],
            provider_charge_id=payment["provider_payment_charge_id"],
        ),
        shipping_option_id=payment.get("shipping_option_id"),
        recurring_init=payment.get("is_first_recurring"),
        recurring_used=payment.get("is_recurring"),
    )


def _photo(schema: Schema, body: Json) -> Any:
    sizes: list[Json] = body["photo"]
    address = read_file_id(sizes[-1]["file_id"])
    return schema.make(
        "Photo",
        id=address.id,
        access_hash=address.access_hash,
        file_reference=address.reference,
        date=schema.instant(body["date"]),
        sizes=[_size(schema, one) for one in sizes],
        dc_id=address.dc_id,
    )


def _size(schema: Schema, size: Json) -> Any:
    longest = max(size["width"], size["height"])
    letter = next((letter for letter, box in _BOXES if longest <= box), _LARGEST)
    return schema.make("PhotoSize", type=letter, w=size["width"], h=size["height"], size=size.get("file_size", 0))


def _document(schema: Schema, name: str, file: Json, date: int) -> Any:
    address = read_file_id(file["file_id"])
    thumbnail = file.get("thumbnail")
    return schema.make(
        "Document",
        id=address.id,
        access_hash=address.access_hash,
        file_reference=address.reference,
        date=schema.instant(date),
        mime_type=file.get("mime_type") or _mime_type(name, file),
        size=file.get("file_size", 0),
        dc_id=address.dc_id,
        attributes=_attributes(schema, name, file),
        thumbs=None if thumbnail is None else [_size(schema, thumbnail)],
    )


def _mime_type(name: str, file: Json) -> str:
    if name == "sticker":
        return (
            "application/x-tgsticker"
            if file.get("is_animated")
            else "video/webm"
            if file.get("is_video")
            else "image/webp"
        )
    if name == "video_note":
        return "video/mp4"
    return mimetypes.guess_type(file.get("file_name", ""))[0] or "application/octet-stream"


def _attributes(schema: Schema, name: str, file: Json) -> list[Any]:
    found = []
    if name in ("video", "video_note", "animation"):
        side = file.get("length", 0)
        found.append(
            schema.make(
                "DocumentAttributeVideo",
                duration=file["duration"],
                w=file.get("width", side),
                h=file.get("height", side),
                round_message=name == "video_note",
            )
        )
    if name == "animation":
        found.append(schema.make("DocumentAttributeAnimated"))
    if name in ("audio", "voice"):
        found.append(
            schema.make(
                "DocumentAttributeAudio",
                duration=file["duration"],
                voice=name == "voice",
                title=file.get("title"),
                performer=file.get("performer"),
            )
        )
    if name == "sticker":
        found.append(schema.make("DocumentAttributeImageSize", w=file["width"], h=file["height"]))
        found.append(
            schema.make("DocumentAttributeSticker", alt=file.get("emoji", ""), stickerset=_sticker_set(schema, file))
        )
    if "file_name" in file:
        found.append(schema.make("DocumentAttributeFilename", file_name=file["file_name"]))
    return found


def _sticker_set(schema: Schema, sticker: Json) -> Any:
    name = sticker.get("set_name")
    if name is None:
        return schema.make("InputStickerSetEmpty")
    return schema.make("InputStickerSetShortName", short_name=name)


def _location(schema: Schema, location: Json) -> Any:
    geo = _point(schema, location)
    if "live_period" not in location:
        return schema.make("MessageMediaGeo", geo=geo)
    return schema.make("MessageMediaGeoLive", geo=geo, period=location["live_period"], heading=location.get("heading"))


def _venue(schema: Schema, venue: Json) -> Any:
    is_google = "google_place_id" in venue
    return schema.make(
        "MessageMediaVenue",
        geo=_point(schema, venue["location"]),
        title=venue["title"],
        address=venue["address"],
        provider="gplaces" if is_google else "foursquare",
        venue_id=venue.get("google_place_id" if is_google else "foursquare_id", ""),
        venue_type=venue.get("google_place_type" if is_google else "foursquare_type", ""),
    )


def _point(schema: Schema, location: Json) -> Any:
    return schema.make("GeoPoint", long=location["longitude"], lat=location["latitude"], access_hash=0)
