"""Methods of the Bot API done as an account: parameters in, Telegram's requests out, and an answer such as the Bot API gives.

Every request that makes a message carries the random id that the caller gave: the same again is the same message to Telegram.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from telethon import functions, types, utils

from peik.carrier_ports import Enclosure, Request
from peik.core.reply import Fault, Reply
from peik.sessions.telethon_answers import Impossible, NotLeft, refusal, reply_of
from peik.sessions.telethon_given import Given
from peik.sessions.telethon_params import flag, following, number, reaction
from peik.sessions.telethon_reading import Deleted, peer_of, sent_message

Json = dict[str, Any]
PeerOf = Callable[[int | str], Awaitable[Any]]


class Sending:
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
            return Reply(fault=Fault.TIMEOUT, detail="no answer came in time")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return Reply(fault=Fault.RESET, detail="the connection was closed")
        except Exception as error:  # noqa: BLE001  the reply says what happened
            return reply_of(error)
        return Reply(status=200, body=msgspec.json.encode({"ok": True, "result": result}))

    async def ask(self, request: Any) -> Any:
        if not self._telegram.is_connected():
            raise NotLeft
        return await self._telegram(request)

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


class _Call(Given):
    """One call being done."""

    def __init__(self, sending: Sending, params: Json, files: Sequence[Enclosure], random_id: int) -> None:
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
        return self._message(await self._sending.ask(request), peer, [self._random_id])[0]

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
        request = functions.messages.ForwardMessagesRequest(
            from_peer=source,
            id=ids,
            to_peer=peer,
            random_id=random_ids,
            drop_author=is_copy or None,
            silent=self._flag("disable_notification"),
            noforwards=self._flag("protect_content"),
            top_msg_id=number(thread) if thread else None,
        )
        sent = self._message(await self._sending.ask(request), peer, random_ids)
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
        return self._message(await self._sending.ask(request), peer, [self._random_id])[0]

    # What Telegram answered.

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
                found.append({"message_id": ids.get(random_id, 0), "chat": self._sending.chat(peer), "date": 0})
        return found

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
