"""The part of the library that sends."""

import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import msgspec

from peik.client.calls import (
    DEAD_FILTER_NAMES,
    FILTER_NAMES,
    Call,
    Content,
    DeadFilter,
    File,
    Filter,
    Letter,
    LetterId,
    LettersPage,
    QueueStats,
    Receipt,
    Refused,
    SendDefaults,
    When,
    filter_of,
    id_of,
    instant_ms,
    is_content,
)
from peik.core.letter import OnUncertain, State
from peik.core.lifecycle import UNCERTAIN
from peik.core.units import rfc3339
from peik.errors import BadInput, NotFound, Unavailable
from peik.outbox.answers import LoggedMessageAnswer, MessageLogAnswer
from peik.outbox.api import ChangeBody, LetterApi, LetterQuery, LettersQuery, LogQuery, MessageQuery, ResolveBody
from peik.outbox.service import CLEARED
from peik.web.parse import write_query

if TYPE_CHECKING:
    from peik.client.transport import Transport

ChatId = int | str


class SendCalls:
    """The methods that send, for the class that has a transport."""

    def _open_transport(self) -> "Transport":
        raise NotImplementedError

    @overload
    async def send_text(
        self, chat_id: ChatId, text: str, *, wait: None = None, **more: Unpack[SendDefaults]
    ) -> Letter: ...
    @overload
    async def send_text(self, chat_id: ChatId, text: str, *, wait: float, **more: Unpack[SendDefaults]) -> Receipt: ...
    async def send_text(
        self, chat_id: ChatId, text: str, *, wait: float | None = None, **more: Unpack[SendDefaults]
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
        **more: Unpack[SendDefaults],
    ) -> Letter: ...
    @overload
    async def send_photo(
        self,
        chat_id: ChatId,
        photo: Content | str,
        *,
        filename: str | None = None,
        wait: float,
        **more: Unpack[SendDefaults],
    ) -> Receipt: ...
    async def send_photo(
        self,
        chat_id: ChatId,
        photo: Content | str,
        *,
        filename: str | None = None,
        wait: float | None = None,
        **more: Unpack[SendDefaults],
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
        **more: Unpack[SendDefaults],
    ) -> Letter: ...
    @overload
    async def send_document(
        self,
        chat_id: ChatId,
        document: Content | str,
        *,
        filename: str | None = None,
        wait: float,
        **more: Unpack[SendDefaults],
    ) -> Receipt: ...
    async def send_document(
        self,
        chat_id: ChatId,
        document: Content | str,
        *,
        filename: str | None = None,
        wait: float | None = None,
        **more: Unpack[SendDefaults],
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
        **more: Unpack[SendDefaults],
    ) -> Letter: ...
    @overload
    async def send_voice(
        self,
        chat_id: ChatId,
        voice: Content | str,
        *,
        filename: str | None = None,
        wait: float,
        **more: Unpack[SendDefaults],
    ) -> Receipt: ...
    async def send_voice(
        self,
        chat_id: ChatId,
        voice: Content | str,
        *,
        filename: str | None = None,
        wait: float | None = None,
        **more: Unpack[SendDefaults],
    ) -> Letter:
        """Send a voice message, given as for `send_photo`."""
        return await self._send(_filed("sendVoice", "voice", chat_id, voice, filename, more), wait)

    @overload
    async def send_location(
        self, chat_id: ChatId, latitude: float, longitude: float, *, wait: None = None, **more: Unpack[SendDefaults]
    ) -> Letter: ...
    @overload
    async def send_location(
        self, chat_id: ChatId, latitude: float, longitude: float, *, wait: float, **more: Unpack[SendDefaults]
    ) -> Receipt: ...
    async def send_location(
        self,
        chat_id: ChatId,
        latitude: float,
        longitude: float,
        *,
        wait: float | None = None,
        **more: Unpack[SendDefaults],
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
        return await self._open_transport().accept([call.as_asked for call in asked])

    async def _send(self, call: Call, wait: float | None) -> Letter:
        transport = self._open_transport()
        if call.parcels:
            letter = await transport.accept_with_files(call.as_asked, call.parcels)
        else:
            (letter,) = await transport.accept([call.as_asked])
        if wait is None:
            return letter
        try:
            receipt = await _ended(transport, int(letter.id), wait)
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


# The part of the library that watches letters which are accepted, and acts on them.


if TYPE_CHECKING:
    from peik.client.transport import Transport

PAGE_LETTERS = 200
MANY_S = 120.0  # for what is done to many letters
WAIT_S = 30.0


class LetterCalls:
    """The methods about letters, for the class that has a transport."""

    def _open_transport(self) -> "Transport":
        raise NotImplementedError

    # ---- watching ----

    async def wait(self, letter: LetterId, timeout: float = WAIT_S) -> Receipt:
        """The receipt once the letter has ended, well or not, or as it stands when the time is over.

        An edit that a newer one replaced ends as that one does. Safe to ask again, also after a restart.
        """
        return await _ended(self._open_transport(), id_of(letter), timeout)

    async def get_job_status(self, letter: LetterId) -> Receipt:
        """All that is known of a letter right now: state, progress, attempts_made, failed_reason and the rest."""
        return await self._open_transport().ask(LetterApi.get_letter, into=Receipt, letter_id=id_of(letter))

    async def get_queue_stats(self) -> QueueStats:
        """How many letters are waiting, active, completed, failed, delayed: over all, and per bot in `bots`."""
        return await self._open_transport().ask(LetterApi.get_stats, into=QueueStats)

    async def letters(self, **which: Unpack[Filter]) -> AsyncIterator[Receipt]:
        """All letters of a filter, the newest first, read page by page: `async for receipt in peik.letters(state="failed")`."""
        wanted = msgspec.structs.asdict(filter_of(which, FILTER_NAMES))
        before: int | None = None
        while True:
            query = LettersQuery(**wanted, cursor=before, limit=PAGE_LETTERS)
            page = await self._open_transport().ask(LetterApi.list_letters, into=LettersPage, query=query)
            for receipt in page.letters:
                yield receipt
            if page.before is None:
                return
            before = int(page.before)

    async def message_log(self, **which: Unpack[Filter]) -> AsyncIterator[LoggedMessageAnswer]:
        """Every message of a filter with text, state, error and times, also those whose letters are gone; the newest first."""
        wanted = filter_of(which, FILTER_NAMES - {"cause", "trace"})
        terms = {name: getattr(wanted, name) for name in MessageQuery.__struct_fields__}
        cursor: str | None = None
        while True:
            query = LogQuery(**terms, cursor=cursor, limit=PAGE_LETTERS)
            page = await self._open_transport().ask(LetterApi.list_log, into=MessageLogAnswer, query=query)
            for message in page.messages:
                yield message
            cursor = page.next_cursor
            if cursor is None:
                return

    # ---- acting on letters ----

    async def cancel(self, letter: LetterId) -> Receipt:
        """Take a letter back. Raises Conflict if it is being sent right now, or has ended."""
        return await self._open_transport().ask(LetterApi.cancel, into=Receipt, letter_id=id_of(letter))

    async def cancel_letters(self, **which: Unpack[Filter]) -> int:
        """Take back all letters of a filter that wait or are delayed. How many; what is in flight goes out. Raises BadInput
        without a filter: nobody takes everything back by a slip."""
        wanted = filter_of(which, FILTER_NAMES)
        if wanted == LetterQuery():
            raise BadInput(code="no_filter", detail='Say which letters: a filter at least, such as state="waiting".')
        if wanted.state not in (None, State.WAITING, State.DELAYED):
            raise BadInput(code="bad_state", detail="Only letters that are waiting or delayed can be taken back.")
        done = await self._asked_of_many(LetterApi.cancel_all, body=write_query(wanted))
        return done["cancelled"]

    async def change_letter(
        self, letter: LetterId, *, priority: int | None = None, send_at: When | Literal["now"] | None = None
    ) -> Receipt:
        """Give a letter that waits another priority, another time ("now": at once, also if it backs off), or both. Raises
        Conflict if it is being sent right now, or has ended."""
        at = "now" if isinstance(send_at, str) else rfc3339(instant_ms(send_at, "send_at"))
        body = ChangeBody(priority=priority, send_at=at)
        return await self._open_transport().ask(LetterApi.change, into=Receipt, letter_id=id_of(letter), body=body)

    async def resolve(self, letter: LetterId, *, arrived: bool) -> Receipt:
        """Say what became of a letter that failed as "uncertain": it had arrived, or it is to be sent again."""
        body = ResolveBody(arrived=arrived)
        return await self._open_transport().ask(LetterApi.resolve, into=Receipt, letter_id=id_of(letter), body=body)

    async def retry_failed_job(self, letter: LetterId) -> Receipt:
        """Send a dead letter again, at the end of its lane, its counters at zero. Raises Conflict if it is not dead."""
        return await self._open_transport().ask(LetterApi.retry, into=Receipt, letter_id=id_of(letter))

    async def retry_failed_jobs(self, **which: Unpack[DeadFilter]) -> int:
        """Send all dead letters of a filter again, or simply all. How many."""
        wanted = write_query(filter_of(which, DEAD_FILTER_NAMES))
        return (await self._asked_of_many(LetterApi.retry_dead, body=wanted))["retried"]

    async def clear_failed_jobs(self, **which: Unpack[DeadFilter]) -> int:
        """Clear away the dead letters of a filter, or simply all. How many; a line of each stays in the message log."""
        wanted = write_query(filter_of(which, DEAD_FILTER_NAMES))
        return (await self._asked_of_many(LetterApi.clear_dead, query=wanted))["cleared"]

    async def _asked_of_many(
        self, handler: Callable[..., Awaitable[object]], **which: Mapping[str, str]
    ) -> dict[str, int]:
        return await self._open_transport().ask(handler, into=dict[str, int], timeout_s=MANY_S, **which)


async def _ended(transport: "Transport", letter_id: int, timeout_s: float) -> Receipt:
    return await transport.ask_ended(
        LetterApi.get_letter,
        into=Receipt,
        is_over=lambda receipt: receipt.state.is_final,
        timeout_s=timeout_s,
        letter_id=letter_id,
    )
