"""Where the library hands letters in: at a Peik in this process, or at one far away. One small protocol for both."""

import asyncio
import contextlib
import datetime
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from peik.accounts.feeds import FeedFilter
from peik.archive.store import Direction, LineKind, SessionState
from peik.client.calls import FileParcel, Letter
from peik.client.handlers import Handlers
from peik.client.jobs import GivenKind, QueuedJob
from peik.core.letter import LetterCall
from peik.jobs.model import JobRequest

ANSWER_S = 30.0  # how long an answer may take
T = TypeVar("T")


class Transport(Protocol):
    """Raises what `peik.errors` draws, the same on both sides."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def serve(self, handlers: Handlers) -> None:
        """Hand updates to these from now on; called again when there are more of them."""

    async def until_stopped(self) -> None:
        """Until the process is told to end."""

    def work(self, kind: GivenKind) -> None:
        """Do jobs of this kind here: from the opening on, or from now on if it is open."""

    async def queue_job(self, request: JobRequest) -> QueuedJob:
        """It is durable when this returns."""

    async def accept(self, calls: Sequence[LetterCall]) -> list[Letter]:
        """All of them in one commit, or none. They are durable when this returns."""

    async def accept_with_files(self, call: LetterCall, parcels: Sequence[FileParcel]) -> Letter: ...

    async def ask(
        self,
        handler: Callable[..., Awaitable[object]],
        *,
        into: type[T],
        timeout_s: float = ANSWER_S,
        **given: Any,
    ) -> T:
        """What an operation of an API answers, as a value of the library. It is asked by the method that does it, with what that
        takes, by name: `await transport.ask(JobApi.get_job, into=JobInfo, job_id=7)`."""

    async def ask_ended(
        self,
        handler: Callable[..., Awaitable[object]],
        *,
        into: type[T],
        is_over: Callable[[T], bool],
        timeout_s: float,
        **given: Any,
    ) -> T:
        """The same of something that ends, once it has ended, or as it stands when the time is over. The operation must take
        `?wait=`."""

    def import_files(
        self, paths: Sequence[Path], *, agent_id: str, check: bool, keep_files: bool
    ) -> AsyncGenerator["ImportedFile", None]:
        """Take in session files of accounts."""

    def listen(
        self, wanted: FeedFilter, *, after: Mapping[str, int] | None, reader: str | None
    ) -> AsyncGenerator["FeedLine", None]:
        """What accounts see, until this Peik is closed. A line is confirmed for its reader when the next one is asked for."""


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def decoder_of(into: type[T]) -> Callable[[bytes | str], T]:
    """Lax, because REST writes ids as strings."""
    if into not in _decoders:
        _decoders[into] = msgspec.json.Decoder(into, strict=False)
    decode: Callable[[bytes | str], T] = _decoders[into].decode
    return decode


# What the library answers with about accounts: sessions, what they saw, and lines of their feeds. Nothing secret is
# in it.
#
# All of it is read from the words of REST, also in this process, so that both transports cannot but say the same.


class ReadAsMapping(msgspec.Struct, frozen=True, kw_only=True):
    """Its fields are read as those of a dict, too: `session["phone"]`, `session.get("phone")`, `dict(session)`, as documents of
    MongoDB are."""

    def keys(self) -> KeysView[str]:
        return dict.fromkeys(self.__struct_fields__).keys()

    def values(self) -> list[Any]:
        return [getattr(self, name) for name in self.__struct_fields__]

    def items(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__]

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name) if name in self else default

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.__struct_fields__

    def __iter__(self) -> Iterator[str]:
        return iter(self.__struct_fields__)

    def __len__(self) -> int:
        return len(self.__struct_fields__)


class AccountSession(ReadAsMapping, frozen=True, kw_only=True):
    """One account that Peik signs in as, or may. Its letters go out with `bot_id=session.user_id`."""

    session_id: str
    agent_id: str
    phone: str | None = None
    user_id: int | None = None  # known once somebody has signed in
    username: str | None = None
    state: SessionState
    state_reason: str | None = None  # as a sentence
    state_until: datetime.datetime | None = None  # of a flood wait, or of a code
    is_connected: bool
    is_active: bool
    runs_from: str | None = None  # "key", "file", or None before the sign-in
    has_proxy: bool
    metadata: dict[str, Any]
    keep: dict[str, str] = {}  # what is archived of which chats: see `update_session_keep`
    created_at: datetime.datetime
    updated_at: datetime.datetime
    active_at: datetime.datetime | None = None  # when it last did or heard something


Mapping.register(ReadAsMapping)  # for whoever asks; a Struct cannot inherit it


class QrLogin(msgspec.Struct, frozen=True, kw_only=True):
    """What to show as a QR code: whoever scans it within its minute is signed in, so it is a secret until then."""

    url: str
    expires_at: datetime.datetime

    def __repr__(self) -> str:
        return f"QrLogin(expires_at={self.expires_at!r})"


class ImportedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one session file of Telethon."""

    file: str
    verdict: str  # imported, duplicate, not_a_session, empty, signed_out, unchecked, failed
    detail: str = ""
    session_id: str | None = None
    user_id: int | None = None


class CrawlInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How far a chat's history has been read backwards."""

    state: str  # none, running, stopped, whole
    crawled: int
    down_to: int | None = None  # a message id
    until: datetime.datetime | None = None
    progress: float | None = None  # of a crawl to the first message, about: 0 to 1


class SessionChat(ReadAsMapping, frozen=True, kw_only=True):
    """A chat of which a session knows something."""

    chat_id: int
    title: str
    newest_id: int | None = None
    keep: str = "all"  # what is archived of it: all, nothing
    crawl: CrawlInfo
    updated_at: datetime.datetime | None = None


class ArchivedMessage(ReadAsMapping, frozen=True, kw_only=True):
    """A message as one session saw it. `raw` is filled where a single message was asked for."""

    session_id: str
    agent_id: str
    chat_id: int
    message_id: int
    direction: Direction
    sender_id: int | None = None
    date: datetime.datetime
    edited_at: datetime.datetime | None = None
    deleted_at: datetime.datetime | None = None
    kind: str  # text, photo, video, voice, document, service, …
    text: str
    reply_to: int | None = None
    grouped_id: int | None = None
    media: dict[str, Any] | None = None
    letter_id: str | None = None  # the letter that sent it
    created_at: datetime.datetime  # when it was archived
    raw: Any = None


class ArchivedEvent(ReadAsMapping, frozen=True, kw_only=True):
    """Something else that a session saw: somebody joined, read, reacted; the session's own state."""

    event_id: str
    session_id: str
    agent_id: str
    event_type: str
    chat_id: int | None = None
    user_id: int | None = None
    payload: dict[str, Any]
    created_at: datetime.datetime


class FeedLine(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was archived, told to whoever listens. The numbers of a session's lines rise without a gap; a
    listener that asked for some of them only sees gaps."""

    session_id: str
    agent_id: str
    number: int
    kind: LineKind
    at: datetime.datetime  # when it was archived
    chat_id: int | None = None  # None with a deleted message: of some private chat or basic group, as Telegram tells it
    message_id: int | None = None
    message: ArchivedMessage | None = None  # of a new or edited one
    event: ArchivedEvent | None = None


class MessagePage(msgspec.Struct, frozen=True, kw_only=True):
    messages: tuple[ArchivedMessage, ...]
    next: str | None = None


class MessageVersions(msgspec.Struct, frozen=True, kw_only=True):
    versions: list[ArchivedMessage]


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    events: tuple[ArchivedEvent, ...]
    next: str | None = None


class ChatMemberInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody in a group or channel, as they were from one look on until another."""

    user_id: int
    name: str
    username: str | None = None
    role: str  # owner, admin, member, restricted
    since: datetime.datetime
    until: datetime.datetime | None = None


class MemberList(msgspec.Struct, frozen=True, kw_only=True):
    members: tuple[ChatMemberInfo, ...]
    next: str | None = None


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    sessions: tuple[AccountSession, ...]
    next: str | None = None


class _Deleted(msgspec.Struct):
    session_id: str
    agent_id: str
    chat_id: int | None
    message_id: int
    deleted_at: datetime.datetime


def line_of(kind: LineKind, body: str, *, number: int) -> FeedLine:
    """A line from what it tells. Raises msgspec.DecodeError."""
    match kind:
        case LineKind.EVENT:
            event = decoder_of(ArchivedEvent)(body)
            return FeedLine(
                session_id=event.session_id,
                agent_id=event.agent_id,
                number=number,
                kind=kind,
                at=event.created_at,
                chat_id=event.chat_id,
                event=event,
            )
        case LineKind.DELETED:
            gone = decoder_of(_Deleted)(body)
            return FeedLine(
                session_id=gone.session_id,
                agent_id=gone.agent_id,
                number=number,
                kind=kind,
                at=gone.deleted_at,
                chat_id=gone.chat_id,
                message_id=gone.message_id,
            )
        case LineKind.MESSAGE | LineKind.EDITED:
            message = decoder_of(ArchivedMessage)(body)
            return FeedLine(
                session_id=message.session_id,
                agent_id=message.agent_id,
                number=number,
                kind=kind,
                at=message.created_at,
                chat_id=message.chat_id,
                message_id=message.message_id,
                message=message,
            )


# Waiting for the end of a program: a signal, or something that ends by itself. It ends nothing.


SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def until_stopped(others: Iterable[asyncio.Future[None]] = ()) -> None:
    """Until SIGINT or SIGTERM comes, or one of the others is done. A second signal ends the process as it always did."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)

    taken = []
    for number in SIGNALS:
        with contextlib.suppress(
            NotImplementedError, RuntimeError, ValueError
        ):  # not the main thread, or no such thing
            loop.add_signal_handler(number, stop)
            taken.append(number)
    try:
        await asyncio.wait([stopped, *others], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        for number in taken:
            loop.remove_signal_handler(number)
