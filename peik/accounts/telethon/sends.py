"""Methods of the Bot API done as an account: parameters in, Telegram's requests out, and an answer such as the Bot API gives.

Every request that makes a message carries the random id that the caller gave: the same again is the same message to Telegram.
"""

import asyncio
import mimetypes
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from telethon import functions, types, utils
from telethon.errors import RandomIdDuplicateError, RPCError

from peik.accounts.markup import Entity, parse
from peik.accounts.telethon.errors import Impossible, NotLeft, refusal, reply_of
from peik.accounts.telethon.objects import Deleted, file_place, peer_of, sent_message
from peik.core.outcome import NetworkFault, Reply
from peik.telegram.port import Enclosure, Request

# Parameters of the Bot API, which come as JSON or as strings of a form, as what Telegram wants.


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


# What the parameters of a Bot API call say, in Telegram's own types: who, which messages, what text, what file.


class GivenParams:
    """Every look raises Impossible for what Telegram would refuse."""

    def __init__(self, reach: "TelethonSends", params: Mapping[str, Any], files: Sequence[Enclosure]) -> None:
        self._reach = reach
        self._params = params
        self._files = files

    async def _chat(self) -> Any:
        return await self._reach.peer(self._params.get("chat_id"))

    def _id(self) -> int:
        return number(self._params.get("message_id"))

    def _ids(self) -> list[int]:
        ids = [number(one) for one in self._list("message_ids") or ()]
        if not 0 < len(ids) <= 100:
            raise Impossible("message_ids must have 1 to 100 ids")
        return ids

    def _float(self, field: str) -> float:
        try:
            return float(self._params[field])
        except (KeyError, TypeError, ValueError):
            raise Impossible(f"{field} is missing or no number") from None

    def _flag(self, field: str) -> bool | None:
        return flag(self._params.get(field))

    def _object(self, field: str) -> Mapping[str, Any]:
        value = decoded(self._params.get(field))
        return value if isinstance(value, dict) else {}

    def _list(self, field: str) -> list[Any] | None:
        value = decoded(self._params.get(field))
        return value if isinstance(value, list) else None

    async def _text(self, field: str, entities_field: str) -> tuple[str, list[Any]]:
        text = self._params.get(field) or ""
        if not isinstance(text, str):
            raise Impossible(f"{field} must be a string")
        given = self._list(entities_field)
        if given:
            plain, found = text, [given_entity(one) for one in given]
        else:
            plain, found = parse(text, self._params.get("parse_mode"))
        return plain, [await self._entity(one) for one in found]

    async def _entity(self, entity: Entity) -> Any:
        at = {"offset": entity.offset, "length": entity.length}
        match entity.type:
            case "text_link":
                return types.MessageEntityTextUrl(**at, url=entity.url or "")
            case "text_mention":
                user = utils.get_input_user(await self._reach.peer(entity.user_id))
                return types.InputMessageEntityMentionName(**at, user_id=user)
            case "pre":
                return types.MessageEntityPre(**at, language=entity.language or "")
            case "custom_emoji":
                return types.MessageEntityCustomEmoji(**at, document_id=number(entity.custom_emoji_id))
            case "expandable_blockquote":
                return types.MessageEntityBlockquote(**at, collapsed=True)
        kind = ENTITIES.get(entity.type)
        if kind is None:
            raise Impossible(f"unknown entity type {entity.type}")
        return kind(**at)

    def _reply_to(self) -> Any | None:
        reply = self._object("reply_parameters")
        message_id = reply.get("message_id") or self._params.get("reply_to_message_id")
        thread = self._params.get("message_thread_id")
        if not message_id and not thread:
            return None
        return types.InputReplyToMessage(
            reply_to_msg_id=number(message_id or thread),
            top_msg_id=number(thread) if thread and message_id else None,
            quote_text=reply.get("quote"),
        )

    async def _media(self, field: str) -> Any:
        value = self._params.get(field)
        name = value.removeprefix("attach://") if isinstance(value, str) else field
        enclosure = next((file for file in self._files if file.field in (name, field)), None)
        if enclosure is not None:
            return await self._uploaded(field, enclosure)
        if isinstance(value, str) and value.startswith(("http://", "https://")):
            external = types.InputMediaPhotoExternal if field == "photo" else types.InputMediaDocumentExternal
            return external(url=value)
        raise Impossible(f"{field} must be a file or a URL: a file_id is worth something to bots only")

    async def _uploaded(self, field: str, enclosure: Enclosure) -> Any:
        file = await self._reach.upload(enclosure)
        if field == "photo":
            return types.InputMediaUploadedPhoto(file=file, spoiler=self._flag("has_spoiler"))
        guessed = mimetypes.guess_type(enclosure.filename)[0]
        mime = enclosure.content_type
        if not mime or mime == "application/octet-stream":
            mime = guessed or "application/octet-stream"
        return types.InputMediaUploadedDocument(
            file=file,
            mime_type=mime,
            attributes=[types.DocumentAttributeFilename(enclosure.filename), *self._attributes(field)],
            force_file=field == "document" or None,
            nosound_video=field == "video" or None,
            spoiler=self._flag("has_spoiler"),
        )

    def _attributes(self, field: str) -> list[Any]:
        given = self._params
        duration = number(given.get("duration") or 0)
        match field:
            case "video" | "animation":
                video = types.DocumentAttributeVideo(
                    duration=duration,
                    w=number(given.get("width") or 0),
                    h=number(given.get("height") or 0),
                    supports_streaming=self._flag("supports_streaming"),
                )
                return [video] if field == "video" else [video, types.DocumentAttributeAnimated()]
            case "audio":
                title, performer = given.get("title"), given.get("performer")
                return [types.DocumentAttributeAudio(duration=duration, title=title, performer=performer)]
            case "voice":
                return [types.DocumentAttributeAudio(duration=duration, voice=True)]
        return []


LOOK_BACK = 20  # messages of a chat
HISTORY_MAX = 100  # Telegram gives no more at once

Json = dict[str, Any]
PeerOf = Callable[[int | str], Awaitable[Any]]


class TelethonSends:
    """Sends through one TelegramClient."""

    def __init__(
        self,
        telegram: Any,
        peer: PeerOf,
        *,
        is_broadcast: Callable[[int], bool],
        on_deleted: Callable[[Deleted], None],
    ) -> None:
        self._telegram = telegram
        self._peer = peer
        self._is_broadcast = is_broadcast
        self.on_deleted = on_deleted

    async def carry(self, request: Request, *, random_id: int) -> Reply:
        """Never raises, but for its own cancellation."""
        method = _METHODS.get(request.method.lower())
        if method is None:
            return refusal(400, f"Bad Request: {request.method} is not possible as an account")
        try:
            params = msgspec.json.decode(request.params)
            call = _Call(self, params if isinstance(params, dict) else {}, request.enclosures, random_id)
            async with asyncio.timeout(request.timeout_s):
                result = await method(call)
        except TimeoutError:
            return Reply(fault=NetworkFault.TIMEOUT, detail="no answer came in time")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return Reply(fault=NetworkFault.RESET, detail="the connection was closed")
        except Exception as error:  # noqa: BLE001  the reply says what happened
            return reply_of(error)
        return Reply(status=200, body=msgspec.json.encode({"ok": True, "result": result}))

    async def ask(self, request: Any) -> Any:
        if not self._telegram.is_connected():
            raise NotLeft
        return await self._telegram(request)

    async def sent_before(self, request: Any) -> Any | None:
        """The newest message of this account in the chat that says what this request would. In a lane nothing is sent behind a
        try that may have arrived, so it is that one, unless its owner wrote the same by hand since."""
        try:
            page = await self.ask(
                functions.messages.GetHistoryRequest(
                    peer=request.peer, offset_id=0, offset_date=None, add_offset=0, limit=LOOK_BACK, max_id=0, min_id=0,
                    hash=0,
                )
            )  # fmt: skip
        except RPCError:
            return None
        is_text = isinstance(request, functions.messages.SendMessageRequest)
        for message in page.messages:
            if not isinstance(message, types.Message) or not message.out:
                continue
            has_file = _file_in(message) is not None
            if message.message == request.message.strip() and has_file != is_text:
                return message
        return None

    async def forwarded_before(self, request: Any) -> list[Any]:
        """For each message of this forward or copy the newest that this account made of it in the chat; None where there is
        none. Telegram keeps them in the order in which they were asked for."""
        try:
            originals = (await self.ask(messages_by_id(request.from_peer, request.id))).messages
            page = await self.ask(
                functions.messages.GetHistoryRequest(
                    peer=request.to_peer, offset_id=0, offset_date=None, add_offset=0,
                    limit=min(LOOK_BACK + len(request.id), HISTORY_MAX), max_id=0, min_id=0, hash=0,
                )
            )  # fmt: skip
        except RPCError:
            return [None for _ in request.id]
        by_id = {one.id: one for one in originals if isinstance(one, types.Message)}
        ours = [one for one in page.messages if isinstance(one, types.Message) and one.out]
        found: list[Any] = []
        for message_id in reversed(request.id):
            original = by_id.get(message_id)
            is_made = partial(_is_made_of, original=original, request=request)
            made = None if original is None else next(filter(is_made, ours), None)
            if made is not None:
                ours = ours[ours.index(made) + 1 :]
            found.append(made)
        return found[::-1]

    async def peer(self, chat: object) -> Any:
        if isinstance(chat, bool) or not isinstance(chat, int | str) or chat == "":
            raise Impossible("chat_id is empty")
        if isinstance(chat, str) and chat.lstrip("-").isdecimal():
            chat = int(chat)
        return await self._peer(chat)

    async def upload(self, enclosure: Enclosure) -> Any:
        return await self._telegram.upload_file(str(enclosure.path), file_name=enclosure.filename)

    def chat(self, peer: Any) -> Json:
        chat_id = int(utils.get_peer_id(peer_of(peer)))
        match peer:
            case types.InputPeerUser():
                kind = "private"
            case types.InputPeerChat():
                kind = "group"
            case _:
                kind = "channel" if self._is_broadcast(peer.channel_id) else "supergroup"
        return {"id": chat_id, "type": kind}


def messages_by_id(peer: Any, message_ids: Sequence[int]) -> Any:
    ids = [types.InputMessageID(one) for one in message_ids]
    if isinstance(peer, types.InputPeerChannel):
        return functions.channels.GetMessagesRequest(utils.get_input_channel(peer), ids)
    return functions.messages.GetMessagesRequest(ids)


def _is_made_of(message: Any, *, original: Any, request: Any) -> bool:
    """By what a forward shows: the time of its first writing, the text and the file. A copy shows no time."""
    head, file = message.fwd_from, _file_in(original)
    time = None if request.drop_author else (original.fwd_from or original).date
    text = "" if request.drop_media_captions and file is not None else original.message
    return (None if head is None else head.date) == time and message.message == text and _file_in(message) == file


def _file_in(message: Any) -> tuple[type, int | None] | None:
    """A preview of an address in the text is no file of the message."""
    if isinstance(message.media, types.MessageMediaWebPage | None):
        return None
    place = file_place(message.media)
    return type(message.media), None if place is None else place.location.id


class _Sent:
    """Telegram's shortest answer to a send says neither where nor what. The request leaves itself in it, before anyone reads
    it: so the archive can tell what was sent."""

    def read_result(self, reader: Any) -> Any:
        result = reader.tgread_object()
        if isinstance(result, types.UpdateShortSentMessage):
            result.peik_request = self
        return result


class _SendMessage(_Sent, functions.messages.SendMessageRequest):  # type: ignore[misc]
    pass


class _SendMedia(_Sent, functions.messages.SendMediaRequest):  # type: ignore[misc]
    pass


class _Call(GivenParams):
    """One call being done."""

    def __init__(self, sending: TelethonSends, params: Json, files: Sequence[Enclosure], random_id: int) -> None:
        super().__init__(sending, params, files)
        self._sending = sending
        self._random_id = random_id

    async def send_message(self) -> Json:
        peer = await self._chat()
        text, entities = await self._text("text", "entities")
        if not text.strip():
            raise Impossible("message text is empty")
        preview = self._object("link_preview_options")
        request = _SendMessage(
            peer=peer,
            message=text,
            entities=entities or None,
            no_webpage=flag(preview.get("is_disabled")) or self._flag("disable_web_page_preview"),
            invert_media=flag(preview.get("show_above_text")),
            reply_to=self._reply_to(),
            silent=self._flag("disable_notification"),
            noforwards=self._flag("protect_content"),
            random_id=self._random_id,
        )
        return await self._made(request, peer)

    def sender_of(self, field: str) -> Callable[[], Awaitable[Json]]:
        async def send() -> Json:
            peer = await self._chat()
            media = await self._media(field)
            return await self._send_media(peer, media)

        return send

    async def send_location(self) -> Json:
        peer = await self._chat()
        place = types.InputGeoPoint(lat=self._float("latitude"), long=self._float("longitude"))
        period = self._params.get("live_period")
        media = (
            types.InputMediaGeoLive(geo_point=place, period=number(period))
            if period
            else types.InputMediaGeoPoint(geo_point=place)
        )
        return await self._send_media(peer, media)

    async def forward(self, *, is_copy: bool, is_many: bool) -> Any:
        source = await self._sending.peer(self._params.get("from_chat_id"))
        peer = await self._chat()
        ids = self._ids() if is_many else [self._id()]
        random_ids = [following(self._random_id, index) for index in range(len(ids))]
        thread = self._params.get("message_thread_id")
        caption = self._params.get("caption") if is_copy else None
        if caption:
            raise Impossible("a copy that an account makes keeps its caption, or has none")
        request = functions.messages.ForwardMessagesRequest(
            from_peer=source,
            id=ids,
            to_peer=peer,
            random_id=random_ids,
            drop_author=is_copy or None,
            drop_media_captions=True if caption == "" or (is_copy and self._flag("remove_caption")) else None,
            silent=self._flag("disable_notification"),
            noforwards=self._flag("protect_content"),
            top_msg_id=number(thread) if thread else None,
        )
        try:
            sent = self._message(await self._sending.ask(request), peer, random_ids)
        except RandomIdDuplicateError:
            made = await self._sending.forwarded_before(request)
            sent = [self._unnamed(peer) if one is None else self._shown(one, peer) for one in made]
        if is_copy or is_many:
            found: list[Json] = [{"message_id": one["message_id"]} for one in sent]
            return found if is_many else found[0]
        return sent[0]

    async def edit(self, field: str, entities_field: str) -> Json:
        peer = await self._chat()
        message_id = self._id()
        text, entities = await self._text(field, entities_field)
        preview = self._object("link_preview_options")
        request = functions.messages.EditMessageRequest(
            peer=peer,
            id=message_id,
            message=text,
            entities=entities or None,
            no_webpage=flag(preview.get("is_disabled")) or self._flag("disable_web_page_preview"),
        )
        result = await self._sending.ask(request)
        for update in getattr(result, "updates", ()):
            if isinstance(update, types.UpdateEditMessage | types.UpdateEditChannelMessage):
                return self._shown(update.message, peer)
        return {"message_id": message_id, "chat": self._sending.chat(peer), "date": 0, "text": text}

    async def delete(self, *, is_many: bool) -> bool:
        peer = await self._chat()
        ids = self._ids() if is_many else [self._id()]
        if isinstance(peer, types.InputPeerChannel):
            request = functions.channels.DeleteMessagesRequest(channel=utils.get_input_channel(peer), id=ids)
        else:
            request = functions.messages.DeleteMessagesRequest(id=ids, revoke=True)
        await self._sending.ask(request)
        # Telegram answers with a number and no update.
        chat_id = self._sending.chat(peer)["id"] if isinstance(peer, types.InputPeerChannel) else None
        self._sending.on_deleted(Deleted(chat_id=chat_id, message_ids=tuple(ids)))
        return True

    async def pin(self, *, is_on: bool) -> bool:
        request = functions.messages.UpdatePinnedMessageRequest(
            peer=await self._chat(),
            id=self._id(),
            silent=self._flag("disable_notification"),
            unpin=None if is_on else True,
        )
        await self._sending.ask(request)
        return True

    async def react(self) -> bool:
        reactions = [reaction(one) for one in self._list("reaction") or ()]
        request = functions.messages.SendReactionRequest(
            peer=await self._chat(), msg_id=self._id(), reaction=reactions, big=self._flag("is_big")
        )
        await self._sending.ask(request)
        return True

    async def _send_media(self, peer: Any, media: Any) -> Json:
        text, entities = await self._text("caption", "caption_entities")
        request = _SendMedia(
            peer=peer,
            media=media,
            message=text,
            entities=entities or None,
            reply_to=self._reply_to(),
            silent=self._flag("disable_notification"),
            noforwards=self._flag("protect_content"),
            random_id=self._random_id,
        )
        return await self._made(request, peer)

    # What Telegram answered.

    async def _made(self, request: Any, peer: Any) -> Json:
        try:
            return self._message(await self._sending.ask(request), peer, [self._random_id])[0]
        except RandomIdDuplicateError:
            # The first of two equal sends was taken, and Telegram does not say which message it became.
            found = await self._sending.sent_before(request)
            if found is None:
                raise
            return self._shown(found, peer)

    def _message(self, result: Any, peer: Any, random_ids: Sequence[int]) -> list[Json]:
        """The messages that were made, in the order of their random ids. The same send again brings the same ones."""
        if isinstance(result, types.UpdateShortSentMessage):
            return [self._shown(sent_message(result) or result, peer)]
        updates = getattr(result, "updates", ())
        ids = {one.random_id: one.id for one in updates if isinstance(one, types.UpdateMessageID)}
        new = types.UpdateNewMessage | types.UpdateNewChannelMessage | types.UpdateNewScheduledMessage
        messages = {one.message.id: one.message for one in updates if isinstance(one, new)}
        found = []
        for random_id in random_ids:
            message = messages.get(ids.get(random_id, 0))
            if message is not None:
                found.append(self._shown(message, peer))
            else:
                found.append(self._unnamed(peer) | {"message_id": ids.get(random_id, 0)})
        return found

    def _unnamed(self, peer: Any) -> Json:
        """A message that is there, and of which Telegram does not say which it is."""
        return {"message_id": 0, "chat": self._sending.chat(peer), "date": 0}

    def _shown(self, message: Any, peer: Any) -> Json:
        shown: Json = {
            "message_id": message.id,
            "chat": self._sending.chat(peer),
            "date": int(message.date.timestamp()) if message.date else 0,
        }
        text = getattr(message, "message", "")
        if text:
            shown["caption" if getattr(message, "media", None) else "text"] = text
        return shown


_METHODS: dict[str, Callable[[_Call], Awaitable[Any]]] = {
    "sendmessage": _Call.send_message,
    "sendphoto": lambda call: call.sender_of("photo")(),
    "senddocument": lambda call: call.sender_of("document")(),
    "sendvideo": lambda call: call.sender_of("video")(),
    "sendanimation": lambda call: call.sender_of("animation")(),
    "sendaudio": lambda call: call.sender_of("audio")(),
    "sendvoice": lambda call: call.sender_of("voice")(),
    "sendlocation": _Call.send_location,
    "forwardmessage": lambda call: call.forward(is_copy=False, is_many=False),
    "forwardmessages": lambda call: call.forward(is_copy=False, is_many=True),
    "copymessage": lambda call: call.forward(is_copy=True, is_many=False),
    "copymessages": lambda call: call.forward(is_copy=True, is_many=True),
    "editmessagetext": lambda call: call.edit("text", "entities"),
    "editmessagecaption": lambda call: call.edit("caption", "caption_entities"),
    "deletemessage": lambda call: call.delete(is_many=False),
    "deletemessages": lambda call: call.delete(is_many=True),
    "pinchatmessage": lambda call: call.pin(is_on=True),
    "unpinchatmessage": lambda call: call.pin(is_on=False),
    "setmessagereaction": _Call.react,
}
