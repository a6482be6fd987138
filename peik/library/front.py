"""The library: `Peik.open` runs the courier in this process, `Peik.connect` asks one over REST. The same methods on both."""

import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from peik.core.letter import State
from peik.core.lifecycle import UNCERTAIN
from peik.errors import BadInput, Unavailable
from peik.library.accounts import AccountCalls
from peik.library.broadcasts import Broadcasts
from peik.library.calls import (
    DEAD_FILTER_NAMES,
    FILTER_NAMES,
    Call,
    DeadFilter,
    Filter,
    LetterId,
    Sending,
    When,
    filter_of,
    id_of,
    instant_ms,
)
from peik.library.files import Content, File, is_content
from peik.library.handlers import AnyHandler, Handlers
from peik.library.jobs import JobCalls
from peik.library.jobs_kinds import GivenKind
from peik.library.letters import Letter, QueueStats, Receipt, Refused
from peik.library.outreach import OutreachCalls, OutreachCounter
from peik.ports import NOW, LetterFilter

if TYPE_CHECKING:
    from peik.library.accounts_counter import AccountsCounter
    from peik.library.jobs_counter import JobsCounter, WholeCounter

PAGE_LETTERS = 200
WAIT_S = 30.0

ChatId = int | str
_ALSO = {"api_id": "telegram_api_id", "api_hash": "telegram_api_hash"}  # as every MTProto library calls them


class Peik(AccountCalls, JobCalls, OutreachCalls):
    """A courier for Telegram. Every method that sends returns after a durable commit: what it returned a letter for will
    be delivered, or its failure will be seen, whatever crashes from then on.

    With `wait=` (seconds) a method that sends answers with the receipt instead: once Telegram has answered, or as the
    letter stands when the time is over. A letter that has failed by then raises `Refused`; one that failed as
    "uncertain" does not, since it may have arrived. Whoever stops waiting takes nothing back: the letter goes on.

    Raised are the problems of `peik.errors`: BadInput, NotFound, Conflict, TooLarge, Unavailable; over REST also Denied.
    """

    def __init__(self, counter: "WholeCounter") -> None:
        self._counter = counter
        self._is_open = False
        self._handlers = Handlers(self)
        self.broadcasts = Broadcasts(lambda: self._at_counter().broadcasts)

    @classmethod
    def open(
        cls,
        store: str | None = None,
        *,
        token: str | Sequence[str] | None = None,
        **settings: str | float | bool | Path,
    ) -> Self:
        """Peik in this process, on one store: `async with Peik.open("sqlite:///peik.db", token=TOKEN) as peik:`.

        Several processes may open one file. One of them owns it and sends; the others accept durably, read and wait, and
        one of them takes over when the owner ends. Settings are those of docs/reference/settings.md by their names in
        lower case (`api_root=…`, `pace=False`); what is not given comes from the environment as for `peik serve`.
        With `api_id` and `api_hash` (of your application at my.telegram.org) Peik also signs in as accounts of people; they
        and what they see are kept in `archive=…`, by default beside the store.
        Entering raises StartError with what to do; leaving finishes what is in flight, and the rest waits in the store.
        """
        from peik.library.local import LocalCounter

        tokens = token if token is None or isinstance(token, str) else ",".join(token)
        told = {_ALSO.get(name, name): _setting(value) for name, value in settings.items()}
        # A program that only sends must not take the bot's updates: they are polled for once it has a handler.
        settled = {"store": store, "bot_tokens": tokens, "inbound": "off", **told}
        return cls(LocalCounter(settled, may_poll="inbound" not in told))

    @classmethod
    def connect(cls, url: str, *, key: str, ssl_context: ssl.SSLContext | None = None) -> Self:
        """A `peik serve` over REST: `async with Peik.connect("http://127.0.0.1:8081", key=KEY) as peik:`.

        Certificates are verified; `ssl_context` is for a certificate authority of your own. While the server cannot be
        reached, methods raise Unavailable: "unreachable" if nothing was accepted, "no_answer" if it may have been, and
        then a repeat with the same `idempotency_key` is safe. `wait` rides through a restart of the server.
        """
        from peik.library.remote import RemoteCounter

        return cls(RemoteCounter(url, key, ssl_context))

    async def __aenter__(self) -> Self:
        await self._counter.open()
        self._is_open = True
        try:
            if self._handlers:
                self._counter.serve(self._handlers)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """The same as leaving `async with`, for programs that open in one place and close in another."""
        if self._is_open:
            try:
                await self._counter.close()  # handlers that are still at work may send until it is closed
            finally:
                self._is_open = False

    # ---- sending ----

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
        if receipt.state is State.FAILED and receipt.failed_reason != UNCERTAIN:
            raise Refused(receipt)
        return receipt

    # ---- receiving ----

    @overload
    def on_update(self, handler: AnyHandler, /) -> AnyHandler: ...
    @overload
    def on_update(
        self, *types: str, bot_id: int | None = None, consumer: str | None = None
    ) -> Callable[[AnyHandler], AnyHandler]: ...
    def on_update(self, *types: Any, bot_id: int | None = None, consumer: str | None = None) -> Any:
        """Register an async function for updates: `@peik.on_update("message", "callback_query")`, or all without types.

        An update is over when every handler that wants it has returned, one after another in the order in which they
        were registered. If one raises, or the process dies, it is handed on again, five times in all (settings
        `handler_attempts`, `handler_timeout`), and then kept as a dead arrival. Updates of one chat come one at a time
        and in order; those of other chats meanwhile. Each `consumer` has a cursor of its own.
        """
        if len(types) == 1 and callable(types[0]):
            self._register(types[0], (), bot_id, consumer)
            return types[0]

        def register(handler: AnyHandler) -> AnyHandler:
            self._register(handler, types, bot_id, consumer)
            return handler

        return register

    def _register(self, handler: Any, types: Sequence[str], bot_id: int | None, consumer: str | None) -> None:
        self._handlers.add(handler, types, bot_id, consumer)
        if self._is_open:
            self._counter.serve(self._handlers)

    async def run(self) -> None:
        """Until SIGINT or SIGTERM, or until cancelled: for programs that only handle updates. Leave `async with` then."""
        await self._at_counter().until_stopped()

    # ---- watching ----

    async def wait(self, letter: LetterId, timeout: float = WAIT_S) -> Receipt:
        """The receipt once the letter has ended, well or not, or as it stands when the time is over.

        An edit that a newer one replaced ends as that one does. Safe to ask again, also after a restart.
        """
        return await self._at_counter().wait(id_of(letter), timeout)

    async def get_job_status(self, letter: LetterId) -> Receipt:
        """All that is known of a letter right now: state, progress, attempts_made, failed_reason and the rest."""
        return await self._at_counter().letter(id_of(letter))

    async def get_queue_stats(self) -> QueueStats:
        """How many letters are waiting, active, completed, failed, delayed: over all, and per bot in `bots`."""
        return await self._at_counter().stats()

    async def forget(
        self,
        user_id: int | None = None,
        *,
        name: str | None = None,
        bot_id: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Remove a person's data everywhere: what went, place by place, and which backups still hold it. By Telegram's user id,
        or by your own name of a linked user. See docs/forget.md."""
        return await self._at_counter().forget(user_id=user_id, name=name, bot_id=bot_id, dry_run=dry_run)

    async def letters(self, **which: Unpack[Filter]) -> AsyncIterator[Receipt]:
        """All letters of a filter, the newest first, read page by page: `async for receipt in peik.letters(state="failed")`."""
        wanted = filter_of(which, FILTER_NAMES)
        before: int | None = None
        while True:
            page = await self._at_counter().find(wanted, before=before, limit=PAGE_LETTERS)
            for receipt in page.letters:
                yield receipt
            if page.before is None:
                return
            before = int(page.before)

    # ---- acting on letters ----

    async def cancel(self, letter: LetterId) -> Receipt:
        """Take a letter back. Raises Conflict if it is being sent right now, or has ended."""
        return await self._at_counter().cancel(id_of(letter))

    async def cancel_letters(self, **which: Unpack[Filter]) -> int:
        """Take back all letters of a filter that wait or are delayed. How many; what is in flight goes out. Raises BadInput
        without a filter: nobody takes everything back by a slip."""
        wanted = filter_of(which, FILTER_NAMES)
        if wanted == LetterFilter():
            raise BadInput(code="no_filter", detail='Say which letters: a filter at least, such as state="waiting".')
        if wanted.state not in (None, State.WAITING, State.DELAYED):
            raise BadInput(code="bad_state", detail="Only letters that are waiting or delayed can be taken back.")
        return await self._at_counter().cancel_all(wanted)

    async def change_letter(
        self, letter: LetterId, *, priority: int | None = None, send_at: When | Literal["now"] | None = None
    ) -> Receipt:
        """Give a letter that waits another priority, another time ("now": at once, also if it backs off), or both. Raises
        Conflict if it is being sent right now, or has ended."""
        send_at_ms = NOW if isinstance(send_at, str) else instant_ms(send_at, "send_at")
        return await self._at_counter().change(id_of(letter), priority=priority, send_at_ms=send_at_ms)

    async def resolve(self, letter: LetterId, *, arrived: bool) -> Receipt:
        """Say what became of a letter that failed as "uncertain": it had arrived, or it is to be sent again."""
        return await self._at_counter().resolve(id_of(letter), arrived=arrived)

    async def retry_failed_job(self, letter: LetterId) -> Receipt:
        """Send a dead letter again, at the end of its lane, its counters at zero. Raises Conflict if it is not dead."""
        return await self._at_counter().retry(id_of(letter))

    async def retry_failed_jobs(self, **which: Unpack[DeadFilter]) -> int:
        """Send all dead letters of a filter again, or simply all. How many."""
        return await self._at_counter().retry_dead(filter_of(which, DEAD_FILTER_NAMES))

    async def clear_failed_jobs(self, **which: Unpack[DeadFilter]) -> int:
        """Clear away the dead letters of a filter, or simply all. How many; a line of each stays in the message log."""
        return await self._at_counter().clear_dead(filter_of(which, DEAD_FILTER_NAMES))

    # ---- accounts: see AccountCalls ----

    def _accounts(self) -> "AccountsCounter":
        return self._at_counter().accounts

    # ---- jobs: see JobCalls ----

    def _jobs(self) -> "JobsCounter":
        return self._at_counter().jobs

    def _works(self, kind: GivenKind) -> None:
        self._counter.jobs.work(kind)

    # ---- links and notifications: see OutreachCalls ----

    def _outreach(self) -> OutreachCounter:
        return self._at_counter().outreach

    def _at_counter(self) -> "WholeCounter":
        if not self._is_open:
            raise Unavailable(code="closed", detail="This Peik is not open: use it within `async with`.")
        return self._counter


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


def _setting(value: str | float | bool | Path) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
