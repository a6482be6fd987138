"""The part of the library that sends."""

import datetime
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack, overload

import msgspec

from peik.core.letter import OnUncertain, State
from peik.core.lifecycle import UNCERTAIN
from peik.desk import CLEARED
from peik.errors import BadInput, NotFound, Unavailable
from peik.library.calls import Call, Sending
from peik.library.files import Content, File, is_content
from peik.library.letters import Letter, Receipt, Refused

if TYPE_CHECKING:
    from peik.library.counter import Counter

ChatId = int | str


class SendCalls:
    """The methods that send, for the class that has a counter."""

    def _at_counter(self) -> "Counter":
        raise NotImplementedError

    @overload
    async def send_text(self, chat_id: ChatId, text: str, *, wait: None = None, **more: Unpack[Sending]) -> Letter: ...
    @overload
    async def send_text(self, chat_id: ChatId, text: str, *, wait: float, **more: Unpack[Sending]) -> Receipt: ...
    async def send_text(
        self, chat_id: ChatId, text: str, *, wait: float | None = None, **more: Unpack[Sending]
    ) -> Letter:
        """Send a text. Further names are terms of delivery or parameters of Telegram's sendMessage."""
        return await self._send(Call("sendMessage", chat_id=chat_id, text=text, **more), wait)

    @overload
    async def send_photo(
        self,
        chat_id: ChatId,
        photo: Content | str,
        *,
        filename: str | None = None,
        wait: None = None,
        **more: Unpack[Sending],
    ) -> Letter: ...
    @overload
    async def send_photo(
        self,
        chat_id: ChatId,
        photo: Content | str,
        *,
        filename: str | None = None,
        wait: float,
        **more: Unpack[Sending],
    ) -> Receipt: ...
    async def send_photo(
        self,
        chat_id: ChatId,
        photo: Content | str,
        *,
        filename: str | None = None,
        wait: float | None = None,
        **more: Unpack[Sending],
    ) -> Letter:
        """Send a picture: bytes, a `pathlib.Path`, a file opened in binary mode, or a text with its URL or file_id.

        The bytes are on Peik's disk when this returns; the file may be removed.
        """
        return await self._send(_filed("sendPhoto", "photo", chat_id, photo, filename, more), wait)

    @overload
    async def send_document(
        self,
        chat_id: ChatId,
        document: Content | str,
        *,
        filename: str | None = None,
        wait: None = None,
        **more: Unpack[Sending],
    ) -> Letter: ...
    @overload
    async def send_document(
        self,
        chat_id: ChatId,
        document: Content | str,
        *,
        filename: str | None = None,
        wait: float,
        **more: Unpack[Sending],
    ) -> Receipt: ...
    async def send_document(
        self,
        chat_id: ChatId,
        document: Content | str,
        *,
        filename: str | None = None,
        wait: float | None = None,
        **more: Unpack[Sending],
    ) -> Letter:
        """Send any file, given as for `send_photo`."""
        return await self._send(_filed("sendDocument", "document", chat_id, document, filename, more), wait)

    @overload
    async def send_voice(
        self,
        chat_id: ChatId,
        voice: Content | str,
        *,
        filename: str | None = None,
        wait: None = None,
        **more: Unpack[Sending],
    ) -> Letter: ...
    @overload
    async def send_voice(
        self,
        chat_id: ChatId,
        voice: Content | str,
        *,
        filename: str | None = None,
        wait: float,
        **more: Unpack[Sending],
    ) -> Receipt: ...
    async def send_voice(
        self,
        chat_id: ChatId,
        voice: Content | str,
        *,
        filename: str | None = None,
        wait: float | None = None,
        **more: Unpack[Sending],
    ) -> Letter:
        """Send a voice message, given as for `send_photo`."""
        return await self._send(_filed("sendVoice", "voice", chat_id, voice, filename, more), wait)

    @overload
    async def send_location(
        self, chat_id: ChatId, latitude: float, longitude: float, *, wait: None = None, **more: Unpack[Sending]
    ) -> Letter: ...
    @overload
    async def send_location(
        self, chat_id: ChatId, latitude: float, longitude: float, *, wait: float, **more: Unpack[Sending]
    ) -> Receipt: ...
    async def send_location(
        self, chat_id: ChatId, latitude: float, longitude: float, *, wait: float | None = None, **more: Unpack[Sending]
    ) -> Letter:
        """Send a place on the map."""
        return await self._send(
            Call("sendLocation", chat_id=chat_id, latitude=latitude, longitude=longitude, **more), wait
        )

    @overload
    async def send(
        self, method: str, /, *, files: Mapping[str, File] | None = None, wait: None = None, **params: Any
    ) -> Letter: ...
    @overload
    async def send(
        self, method: str, /, *, files: Mapping[str, File] | None = None, wait: float, **params: Any
    ) -> Receipt: ...
    async def send(
        self, method: str, /, *, files: Mapping[str, File] | None = None, wait: float | None = None, **params: Any
    ) -> Letter:
        """Send by any sending, editing or creating method of the Bot API, also one that is newer than this Peik.

        Names are the terms of delivery or Telegram's own parameters. `files` holds what `attach://name` refers to; a
        file may also stand as the parameter itself, and a (filename, file) pair gives it a name.
        """
        return await self._send(Call(method, files=files, **params), wait)

    async def send_many(self, calls: Iterable[Call]) -> list[Letter]:
        """Accept many calls in one commit: all of them, or none. In the order given, up to 100,000, without files."""
        asked = list(calls)
        if any(call.parcels for call in asked):
            raise BadInput(code="files_in_batch", detail="A batch carries no files; send those one by one.")
        return await self._at_counter().accept([call.as_asked for call in asked])

    async def _send(self, call: Call, wait: float | None) -> Letter:
        counter = self._at_counter()
        if call.parcels:
            letter = await counter.accept_with_files(call.as_asked, call.parcels)
        else:
            (letter,) = await counter.accept([call.as_asked])
        if wait is None:
            return letter
        try:
            receipt = await counter.wait(int(letter.id), wait)
        except Unavailable as error:
            # Nobody must take this for a call that was not accepted, and send it again.
            raise Unavailable(
                code="accepted_unseen",
                detail=f"Letter {letter.id} is accepted and will be sent, but cannot be watched now: {error.detail}",
            ) from error
        except NotFound:
            receipt = _cleared(letter, call)  # its key was kept for longer than the letter
        if receipt.state is State.FAILED and receipt.failed_reason != UNCERTAIN:
            raise Refused(receipt)
        return receipt


def _cleared(letter: Letter, call: Call) -> Receipt:
    """What is known of a letter that was cleared away: the call, and how it ended."""
    asked = call.as_asked
    params = msgspec.json.decode(asked.params, type=dict[str, Any])
    is_failed = letter.state is State.FAILED
    return Receipt(
        id=letter.id,
        state=letter.state,
        bot_id=asked.bot_id or 0,
        method=asked.method,
        chat_id=params.get("chat_id", ""),
        priority=asked.priority,
        progress=0 if is_failed else 100,
        attempts=asked.attempts or 0,
        attempts_made=0,
        uncertain_tries=0,
        failed_reason=CLEARED if is_failed else None,
        on_uncertain=asked.on_uncertain or OnUncertain.RESEND,
        params=params,
        history=(),
        created_at=datetime.datetime.now(datetime.UTC),
    )


def _filed(
    method: str, field: str, chat_id: ChatId, file: Content | str, filename: str | None, more: Mapping[str, Any]
) -> Call:
    if isinstance(file, str):
        if "://" not in file and not file.replace("-", "").replace("_", "").isalnum():
            raise BadInput(
                code="bad_file",
                detail=f"{file[:80]!r} is neither a URL nor a file_id. A file on this machine is given as pathlib.Path(…).",
            )
        return Call(method, **{**more, "chat_id": chat_id, field: file})
    given: File = (filename, file) if filename is not None and is_content(file) else file
    return Call(method, files={field: given}, **{**more, "chat_id": chat_id})
