"""What the parameters of a Bot API call say, in Telegram's own types: who, which messages, what text, what file."""

import mimetypes
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from telethon import types, utils

from peik.carrier_ports import Enclosure
from peik.sessions.formatting import Entity, parse
from peik.sessions.telethon_answers import Impossible
from peik.sessions.telethon_params import ENTITIES, decoded, flag, given_entity, number


class Reach(Protocol):
    """See `peik.sessions.telethon_sending.Sending`."""

    async def peer(self, chat: object) -> Any: ...

    async def upload(self, enclosure: Enclosure) -> Any: ...


class Given:
    """Every look raises Impossible for what Telegram would refuse."""

    def __init__(self, reach: Reach, params: Mapping[str, Any], files: Sequence[Enclosure]) -> None:
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
