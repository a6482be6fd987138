"""Telegram's objects as Telethon reads them, turned into what the archive keeps. It asks nobody and changes nothing."""

import base64
import datetime
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from telethon import utils
from telethon.tl import types

from peik.accounts.client import ChatMember
from peik.archive.store import Direction, Happening, Message
from peik.errors import described


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that are gone. Without a chat: of some private chat or basic group, as Telegram does not say which."""

    chat_id: int | None
    message_ids: Sequence[int]


Seen = Message | Deleted | Happening

# A media object → how we call it. A document's kind is in its attributes.
_KINDS: dict[type, str] = {
    types.MessageMediaPhoto: "photo",
    types.MessageMediaContact: "contact",
    types.MessageMediaGeo: "location",
    types.MessageMediaGeoLive: "live_location",
    types.MessageMediaVenue: "venue",
    types.MessageMediaPoll: "poll",
    types.MessageMediaDice: "dice",
    types.MessageMediaGame: "game",
    types.MessageMediaInvoice: "invoice",
    types.MessageMediaStory: "story",
    types.MessageMediaGiveaway: "giveaway",
    types.MessageMediaPaidMedia: "paid_media",
    types.MessageMediaUnsupported: "unsupported",
    types.MessageMediaWebPage: "text",
    types.MessageMediaEmpty: "text",
}

_NEW = (types.UpdateNewMessage, types.UpdateNewChannelMessage)
_EDITED = (types.UpdateEditMessage, types.UpdateEditChannelMessage)


class TelethonReader:
    """Reads for one session."""

    def __init__(self, *, session_id: str, agent_id: str, wall_ms: Callable[[], int]) -> None:
        self._session_id = session_id
        self._agent_id = agent_id
        self._wall_ms = wall_ms
        self.self_id: int | None = None

    def seen(self, update: Any) -> Seen | None:
        """What an update tells that is worth keeping. One that we cannot read is kept as it is: it must neither be lost nor
        stop what comes after it, as it would come again and again."""
        try:
            return self._read(update)
        except Exception as error:  # noqa: BLE001  Telegram may send what nobody foresaw
            return self._told(update, "unreadable", None, _json({"error": described(error), "update": str(update)}))

    def _read(self, update: Any) -> Seen | None:
        match update:
            case Deleted():
                return update
            case _ if isinstance(update, _NEW + _EDITED):
                return self.message(update.message)
            case types.UpdateShortMessage() | types.UpdateShortChatMessage():
                return self.message(self._long(update))
            case types.UpdateShortSentMessage():
                sent = sent_message(update)
                return None if sent is None else self.message(sent)
            case types.UpdateDeleteMessages() if update.messages:
                return Deleted(chat_id=None, message_ids=tuple(update.messages))
            case types.UpdateDeleteChannelMessages() if update.messages:
                chat_id = utils.get_peer_id(types.PeerChannel(update.channel_id))
                return Deleted(chat_id=chat_id, message_ids=tuple(update.messages))
        return self._happening(update)

    def message(self, message: Any) -> Message | None:
        """A message as the archive keeps it; None for an empty place in a history."""
        if isinstance(message, types.MessageEmpty) or message.peer_id is None:
            return None
        chat_id = utils.get_peer_id(message.peer_id)
        sender_id = self._sender(message, chat_id)
        is_sent = bool(message.out) or (sender_id is not None and sender_id == self.self_id)
        is_service = isinstance(message, types.MessageService)
        edited = None if is_service else message.edit_date
        media = None if is_service else message.media
        reply = message.reply_to
        return Message(
            session_id=self._session_id,
            agent_id=self._agent_id,
            chat_id=chat_id,
            message_id=message.id,
            direction=Direction.SENT if is_sent else Direction.RECEIVED,
            sender_id=sender_id,
            date_ms=_ms(message.date),
            edited_at_ms=_ms(edited),
            kind="service" if is_service else _kind(media),
            text=_action(message.action) if is_service else message.message or "",
            reply_to=getattr(reply, "reply_to_msg_id", None),
            grouped_id=None if is_service else message.grouped_id,
            media=_media(media),
            raw=_raw(message),
            created_at_ms=self._wall_ms(),
        )

    def _sender(self, message: Any, chat_id: int) -> int | None:
        if message.from_id is not None:
            return int(utils.get_peer_id(message.from_id))
        if message.out and not message.post:
            return self.self_id
        # Private chats name nobody: it is the other one. A channel speaks for itself.
        return chat_id

    def _long(self, short: Any) -> Any:
        """The message behind one of Telegram's abbreviations."""
        me = types.PeerUser(self.self_id or 0)
        if isinstance(short, types.UpdateShortMessage):
            peer = types.PeerUser(short.user_id)
            sender = me if short.out else peer
        else:
            peer = types.PeerChat(short.chat_id)
            sender = types.PeerUser(short.from_id)
        return types.Message(
            id=short.id,
            peer_id=peer,
            from_id=sender,
            date=short.date,
            message=short.message,
            out=short.out,
            mentioned=short.mentioned,
            media_unread=short.media_unread,
            silent=short.silent,
            fwd_from=short.fwd_from,
            via_bot_id=short.via_bot_id,
            reply_to=short.reply_to,
            entities=short.entities,
            ttl_period=short.ttl_period,
        )

    def _happening(self, update: Any) -> Happening | None:
        event_type = _HAPPENINGS.get(type(update))
        if event_type is None:
            return None
        if isinstance(update, types.UpdateChatParticipant | types.UpdateChannelParticipant):
            event_type = _membership(update)
        return self._told(update, event_type, _chat_of(update), _raw(update), user_id=_person_of(update))

    def _told(
        self, update: Any, event_type: str, chat_id: int | None, payload: str, *, user_id: int | None = None
    ) -> Happening:
        name = f"{self._session_id}|{event_type}|{payload}|{type(update).__name__}"
        return Happening(
            event_id=hashlib.blake2b(name.encode(), digest_size=16).hexdigest(),
            session_id=self._session_id,
            agent_id=self._agent_id,
            event_type=event_type,
            chat_id=chat_id,
            user_id=user_id,
            payload=payload,
            created_at_ms=self._wall_ms(),
        )


_HAPPENINGS: dict[type, str] = {
    types.UpdateReadHistoryInbox: "read",
    types.UpdateReadHistoryOutbox: "read",
    types.UpdateReadChannelInbox: "read",
    types.UpdateReadChannelOutbox: "read",
    types.UpdateMessageReactions: "reaction",
    types.UpdateUserStatus: "online",
    types.UpdateUserName: "renamed",
    types.UpdateChatParticipant: "joined",
    types.UpdateChannelParticipant: "joined",
    types.UpdatePinnedMessages: "pinned",
    types.UpdatePinnedChannelMessages: "pinned",
    types.UpdateMessagePoll: "poll",
    types.UpdateChannel: "chat_changed",
    types.UpdateChat: "chat_changed",
    types.UpdateServiceNotification: "notice",
    types.UpdateNewAuthorization: "signed_in_elsewhere",
}


def _membership(update: Any) -> str:
    before, after = update.prev_participant, update.new_participant
    if before is None and after is not None:
        return "joined"
    if before is not None and after is None:
        return "left"
    return "member_changed"


def _chat_of(update: Any) -> int | None:
    if getattr(update, "channel_id", None):
        return int(utils.get_peer_id(types.PeerChannel(update.channel_id)))
    if getattr(update, "chat_id", None):
        return int(utils.get_peer_id(types.PeerChat(update.chat_id)))
    peer = getattr(update, "peer", None)
    if isinstance(peer, types.PeerUser | types.PeerChat | types.PeerChannel):
        return int(utils.get_peer_id(peer))
    return int(update.user_id) if getattr(update, "user_id", None) else None


def _person_of(update: Any) -> int | None:
    """Whom it tells of: what `peik forget` finds it by."""
    if getattr(update, "user_id", None):
        return int(update.user_id)
    peer = getattr(update, "peer", None)
    if isinstance(peer, types.PeerUser):
        return int(peer.user_id)
    recent = getattr(getattr(update, "reactions", None), "recent_reactions", None) or ()
    people = {one.peer_id.user_id for one in recent if isinstance(one.peer_id, types.PeerUser)}
    return int(people.pop()) if len(people) == 1 else None


def sent_message(update: Any) -> Any | None:
    """The whole message behind Telegram's shortest answer to a send, which names neither chat nor text: they are those of
    the request, which `sends` leaves in it."""
    request = getattr(update, "peik_request", None)
    if request is None:
        return None
    reply = request.reply_to
    return types.Message(
        id=update.id,
        peer_id=peer_of(request.peer),
        date=update.date,
        message=getattr(request, "message", ""),
        out=True,
        entities=update.entities,
        media=update.media,
        ttl_period=update.ttl_period,
        reply_to=types.MessageReplyHeader(reply_to_msg_id=reply.reply_to_msg_id)
        if isinstance(reply, types.InputReplyToMessage)
        else None,
    )


def peer_of(input_peer: Any) -> Any:
    match input_peer:
        case types.InputPeerUser():
            return types.PeerUser(input_peer.user_id)
        case types.InputPeerChat():
            return types.PeerChat(input_peer.chat_id)
        case types.InputPeerChannel():
            return types.PeerChannel(input_peer.channel_id)
    return None


def _kind(media: Any) -> str:
    if media is None:
        return "text"
    if isinstance(media, types.MessageMediaDocument):
        return _document_kind(media)
    return _KINDS.get(type(media), "unsupported")


def _document_kind(media: Any) -> str:
    attributes = {type(one): one for one in getattr(media.document, "attributes", ())}
    audio = attributes.get(types.DocumentAttributeAudio)
    video = attributes.get(types.DocumentAttributeVideo)
    if types.DocumentAttributeSticker in attributes:
        return "sticker"
    if types.DocumentAttributeAnimated in attributes:
        return "animation"
    if audio is not None:
        return "voice" if audio.voice else "audio"
    if video is not None:
        return "video_note" if video.round_message else "video"
    return "document"


def _media(media: Any) -> str | None:
    """What is worth asking about a file: JSON, or None where there is no file."""
    document = getattr(media, "document", None)
    if isinstance(document, types.Document):
        found: dict[str, object] = {
            "id": str(document.id),
            "dc_id": document.dc_id,
            "type": document.mime_type,
            "size": document.size,
        }
        for attribute in document.attributes:
            for name, key in _ATTRIBUTES:
                value = getattr(attribute, name, None)
                if value is not None:
                    found.setdefault(key, value)
        return _json(found)
    photo = getattr(media, "photo", None)
    if isinstance(photo, types.Photo):
        widest = _widest(photo)
        found = {"id": str(photo.id), "dc_id": photo.dc_id, "type": "image/jpeg"}
        if widest is not None:
            found |= {"width": widest.w, "height": widest.h, "size": _photo_bytes(widest)}
        return _json(found)
    return None


class FilePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the file of a message is at Telegram, for as long as its reference holds."""

    location: Any
    dc_id: int
    size: int | None


def file_place(media: Any) -> FilePlace | None:
    document, photo = getattr(media, "document", None), getattr(media, "photo", None)
    if isinstance(document, types.Document):
        location: Any = types.InputDocumentFileLocation(document.id, document.access_hash, document.file_reference, "")
        return FilePlace(location=location, dc_id=document.dc_id, size=document.size)
    if not isinstance(photo, types.Photo):
        return None
    widest = _widest(photo)
    if widest is None:
        return None
    location = types.InputPhotoFileLocation(photo.id, photo.access_hash, photo.file_reference, widest.type)
    return FilePlace(location=location, dc_id=photo.dc_id, size=_photo_bytes(widest))


def _widest(photo: Any) -> Any:
    return max((one for one in photo.sizes if hasattr(one, "w")), key=lambda one: one.w, default=None)


# How Telegram calls a member, of a basic group and of a channel → how we do.
_ROLES: dict[type, str] = {
    types.ChatParticipant: "member",
    types.ChatParticipantAdmin: "admin",
    types.ChatParticipantCreator: "owner",
    types.ChannelParticipant: "member",
    types.ChannelParticipantSelf: "member",
    types.ChannelParticipantAdmin: "admin",
    types.ChannelParticipantCreator: "owner",
    types.ChannelParticipantBanned: "restricted",
}


def member_of(participant: Any, users: Mapping[int, Any]) -> ChatMember | None:
    """None: somebody who is no user, or not there any more."""
    role = _ROLES.get(type(participant))
    if role is None or getattr(participant, "left", False):
        return None
    peer = getattr(participant, "peer", None)
    user_id = getattr(participant, "user_id", None) or getattr(peer, "user_id", None)
    if user_id is None:
        return None
    user = users.get(user_id)
    names = [getattr(user, "first_name", None), getattr(user, "last_name", None)]
    return ChatMember(
        user_id=user_id,
        name=" ".join(one for one in names if one),
        username=getattr(user, "username", None),
        role=role,
    )


_ATTRIBUTES = (
    ("file_name", "name"),
    ("duration", "duration"),
    ("w", "width"),
    ("h", "height"),
    ("title", "title"),
    ("performer", "performer"),
)


def _photo_bytes(size: Any) -> int | None:
    if getattr(size, "sizes", None):
        return int(max(size.sizes))
    found: int | None = getattr(size, "size", None)
    return found


def _action(action: Any) -> str:
    """A service message in one line: chat_add_user, pin_message; a new title is said."""
    name = type(action).__name__.removeprefix("MessageAction")
    words = "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
    title = getattr(action, "title", None)
    return f"{words}: {title}" if isinstance(title, str) else words


def _raw(thing: Any) -> str:
    return _json(thing.to_dict())


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=_plain).decode()


def _plain(value: object) -> object:
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return str(value)


def _ms(instant: datetime.datetime | None) -> int:
    return 0 if instant is None else int(instant.timestamp()) * 1000
