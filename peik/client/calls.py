"""What the library answers with: letters, receipts and counts, the same whether Peik is in this process or far away."""

import asyncio
import datetime
import mimetypes
import os
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self, TypedDict, TypeGuard

import msgspec

from peik.core.call import chat_key
from peik.core.letter import Backoff, OnUncertain, Priority, State
from peik.core.letter import LetterCall as DeskCall
from peik.core.trace import read_trace
from peik.errors import BadInput, Problem
from peik.outbox.api import LetterQuery


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is durable: it will be delivered, or its failure will be seen, through any crash from here on.

    `state` is as it was at that moment. Given where Telegram wants a message id (`reply_to=letter`, `message_id=letter`),
    a letter stands for the message that it will become.
    """

    id: str
    state: State


class LetterTry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a letter's history."""

    at: datetime.datetime
    outcome: str
    code: int | None = None
    words: str | None = None
    retry_after_s: float | None = None


class Receipt(Letter, frozen=True, kw_only=True):
    """A letter with all that is known of it. `state` may be any: `is_delivered` says whether Telegram has taken it."""

    bot_id: int
    method: str
    chat_id: int | str
    thread_id: int | None = None
    priority: int
    progress: int
    attempts: int
    attempts_made: int
    uncertain_tries: int
    failed_reason: str | None = None
    on_uncertain: OnUncertain
    result: object = None  # what Telegram answered
    merged_into: str | None = None
    params: dict[str, object]
    metadata: dict[str, object] | None = None
    trace: str | None = None  # what it answers
    trace_certainty: str | None = None  # exact or likely
    history: tuple[LetterTry, ...]
    created_at: datetime.datetime
    send_at: datetime.datetime | None = None
    expires_at: datetime.datetime | None = None
    finished_at: datetime.datetime | None = None
    why: str | None = None  # why it still waits, as a sentence

    def __post_init__(self) -> None:
        # REST writes ids as strings. A chat's number is a number to everybody who works with Telegram.
        if isinstance(self.chat_id, str) and self.chat_id.removeprefix("-").isdigit():
            msgspec.structs.force_setattr(self, "chat_id", int(self.chat_id))

    @property
    def is_delivered(self) -> bool:
        return self.state is State.COMPLETED

    @property
    def message_id(self) -> int | None:
        """Of the message that it became, the first one of an album; None as long as there is none."""
        first = self.result[0] if isinstance(self.result, list) and self.result else self.result
        found = first.get("message_id") if isinstance(first, dict) else None
        return found if isinstance(found, int) else None


class LetterCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many letters stand where."""

    waiting: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0
    delayed: int = 0
    cancelled: int = 0


class QueueStats(LetterCounts, frozen=True, kw_only=True):
    """Of all bots together, and of each."""

    bots: dict[int, LetterCounts]

    @classmethod
    def of(cls, bots: dict[int, LetterCounts]) -> Self:
        totals = {name: sum(getattr(one, name) for one in bots.values()) for name in LetterCounts.__struct_fields__}
        return cls(**totals, bots=bots)


class LettersPage(msgspec.Struct, frozen=True, kw_only=True):
    """Letters of a list, the newest first. `before` is where the next page begins; None: there is none."""

    letters: tuple[Receipt, ...]
    before: str | None = msgspec.field(name="next_cursor")


class Refused(Problem):
    """A letter that somebody waited for has failed for good. `words` are Telegram's; the dead letter is in `receipt`."""

    status = 502

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self.words = receipt.failed_reason or "no reason was given"
        super().__init__(code="refused", detail=f"Letter {receipt.id} was not delivered: {self.words}")


# Files as callers give them: bytes, paths, open files. Read in chunks and off the event loop, never held whole.


Content = bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO
File = Content | tuple[str, Content]  # with the name that people shall see

CHUNK_BYTES = 256 * 1024
# What bytes without a name are called, so that apps know how to show them.
_NAMES = {"photo": "photo.jpg", "voice": "voice.ogg", "audio": "audio.mp3", "video": "video.mp4"}


class FileParcel(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a call, not read yet."""

    field: str
    filename: str
    content_type: str
    content: Content


def is_content(value: object) -> TypeGuard[Content]:
    """A text is never a path: whoever passes on what others wrote must not give away files of this machine."""
    return isinstance(value, bytes | bytearray | memoryview | os.PathLike) or hasattr(value, "read")


def parcels_of(files: Mapping[str, File]) -> tuple[FileParcel, ...]:
    """Raises BadInput for what is no file."""
    return tuple(_parcel(field, file) for field, file in files.items())


def _parcel(field: str, file: File) -> FileParcel:
    name, content = file if isinstance(file, tuple) else (None, file)
    if not is_content(content):
        raise BadInput(
            code="bad_file",
            detail=f"{field} is not a file: give bytes, a pathlib.Path or a file opened in binary mode. "
            "A URL or a file_id goes where the parameter goes.",
        )
    filename = name or _name_of(field, content)
    return FileParcel(
        field=field,
        filename=filename,
        content_type=mimetypes.guess_type(filename)[0] or "application/octet-stream",
        content=content,
    )


def _name_of(field: str, content: Content) -> str:
    path = content if isinstance(content, os.PathLike) else getattr(content, "name", None)
    if isinstance(path, str | os.PathLike):
        return Path(path).name or field
    return _NAMES.get(field, field)


async def chunks(parcel: FileParcel) -> AsyncGenerator[bytes, None]:
    """The file bit by bit, from where an open one stands. Raises BadInput if it cannot be read."""
    content = parcel.content
    if isinstance(content, bytes | bytearray | memoryview):
        for begin in range(0, len(content), CHUNK_BYTES):
            yield bytes(content[begin : begin + CHUNK_BYTES])
    elif isinstance(content, os.PathLike):
        try:
            file = await asyncio.to_thread(open, content, "rb")
        except OSError as error:
            raise _unreadable(parcel, error) from None
        try:
            async for chunk in _read(parcel, file):
                yield chunk
        finally:
            file.close()
    else:
        async for chunk in _read(parcel, content):
            yield chunk


async def _read(parcel: FileParcel, file: BinaryIO) -> AsyncGenerator[bytes, None]:
    while True:
        try:
            chunk: object = await asyncio.to_thread(file.read, CHUNK_BYTES)
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise _unreadable(parcel, error) from None
        if not isinstance(chunk, bytes):
            raise BadInput(code="bad_file", detail=f"{parcel.field} must be opened in binary mode: open(path, 'rb').")
        if not chunk:
            return
        yield chunk


def _unreadable(parcel: FileParcel, error: Exception) -> BadInput:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BadInput(code="unreadable_file", detail=f"The file {parcel.filename!r} cannot be read: {reason}.")


# From what a caller writes in Python to a call as the service knows it: parameters as JSON, terms checked, files apart.


When = datetime.datetime | int | float  # an instant with its offset, or Unix seconds
LetterId = Letter | str | int


class SendTerms(TypedDict, total=False):
    """The terms of delivery; every sending method takes them, and REST has them under the same names.

    Without `bot_id` the only bot there is sends it. `attempts` counts refusals that may pass; the first comes back after
    `backoff_ms`, then doubling. After a try that may have arrived, `on_uncertain` says whether it is sent again
    ("resend", at least once) or waits for a person ("hold", at most once). With an `idempotency_key`, a repeat within 48
    hours is the same letter. `metadata` is yours; letters can be found by its `user_id` and `message_type`. `trace` says
    what the letter answers; in a handler it is known without.
    """

    bot_id: int
    priority: Priority | int
    attempts: int
    backoff_ms: int
    backoff: Backoff | Literal["exponential", "fixed"]
    timeout_ms: int
    send_at: When
    expires_at: When
    on_uncertain: OnUncertain | Literal["resend", "hold"]
    idempotency_key: str
    metadata: Mapping[str, object]
    webhook_url: str
    trace: str


class SendDefaults(SendTerms, total=False):
    """Terms, and Telegram's parameters that sends have in common. Any other name is passed to Telegram too."""

    reply_to: Letter | int
    parse_mode: str
    entities: list[dict[str, Any]]
    link_preview_options: Mapping[str, Any]
    caption: str
    caption_entities: list[dict[str, Any]]
    show_caption_above_media: bool
    has_spoiler: bool
    duration: int
    disable_notification: bool
    protect_content: bool
    allow_paid_broadcast: bool
    message_thread_id: int
    message_effect_id: str
    business_connection_id: str
    reply_markup: Mapping[str, Any]
    reply_parameters: Mapping[str, Any]
    horizontal_accuracy: float
    live_period: int
    heading: int
    proximity_alert_radius: int


class DeadFilter(TypedDict, total=False):
    """Which dead letters; what is not given does not matter."""

    bot_id: int
    chat_id: int | str
    user_id: str | int
    message_type: str
    method: str
    since: When
    until: When
    text: str
    error: str
    cause: str
    trace: str


class Filter(DeadFilter, total=False):
    """Which letters."""

    state: State | str


class Call:
    """One Bot API method with its parameters, files and terms, for `send_many`. Nothing is promised about it yet."""

    __slots__ = ("as_asked", "parcels")

    def __init__(self, method: str, /, *, files: Mapping[str, File] | None = None, **params: Any) -> None:
        """Raises BadInput if it cannot be a call. All names but those of `SendTerms` are Telegram's own."""
        terms = {name: params.pop(name) for name in _TERM_NAMES & params.keys()}
        if "reply_to" in params:
            _reply(params)
        lifted: dict[str, File] = dict(files or {})
        given: dict[str, object] = {}
        for name, value in params.items():
            if type(value) in _PLAIN:
                given[name] = value
            elif is_content(value):
                lifted[name] = value
            elif value is not None:
                given[name] = _told(value)
        self.parcels: tuple[FileParcel, ...] = parcels_of(lifted) if lifted else ()
        self.as_asked = DeskCall(method=method, params=_json(given, "The parameters"), **_checked(terms))

    def __repr__(self) -> str:
        return f"Call({self.as_asked.method})"


_TERM_NAMES = SendTerms.__optional_keys__
_PLAIN = frozenset({str, int, float, bool})
_encode = msgspec.json.Encoder().encode


class _Terms(msgspec.Struct, forbid_unknown_fields=True):
    """What terms must look like, whoever wrote them. Their bounds are the service's to check."""

    bot_id: int | None = None
    priority: int = Priority.NORMAL
    attempts: int | None = None
    backoff_ms: int | None = None
    backoff: Backoff = Backoff.EXPONENTIAL
    timeout_ms: int | None = None
    send_at: datetime.datetime | int | float | None = None
    expires_at: datetime.datetime | int | float | None = None
    on_uncertain: OnUncertain | None = None
    idempotency_key: str | None = None
    metadata: Any = None
    webhook_url: str | None = None
    trace: str | None = None


def _checked(terms: dict[str, Any]) -> dict[str, Any]:
    if not terms:
        return {}
    try:
        asked = msgspec.convert({name: value for name, value in terms.items() if value is not None}, _Terms)
    except msgspec.ValidationError as error:
        raise BadInput(code="bad_request", detail=f"{error}.") from None
    return {
        "bot_id": asked.bot_id,
        "priority": asked.priority,
        "attempts": asked.attempts,
        "backoff_ms": asked.backoff_ms,
        "backoff": asked.backoff,
        "timeout_ms": asked.timeout_ms,
        "send_at_ms": instant_ms(asked.send_at, "send_at"),
        "expires_at_ms": instant_ms(asked.expires_at, "expires_at"),
        "on_uncertain": asked.on_uncertain,
        "idempotency_key": asked.idempotency_key,
        "metadata": None if asked.metadata is None else _json(asked.metadata, "metadata"),
        "hook": asked.webhook_url,
        "trace": None if asked.trace is None else read_trace(asked.trace),
    }


def _reply(params: dict[str, Any]) -> None:
    target = params.pop("reply_to")
    if target is not None:
        params["reply_parameters"] = {**(params.get("reply_parameters") or {}), "message_id": target}


def _told(value: object) -> object:
    """A parameter as Telegram and Peik read it: letters as references, instants as Unix seconds."""
    match value:
        case Letter():
            return {"letter": value.id}
        case datetime.datetime():
            return (instant_ms(value, "A parameter") or 0) // 1000
        case Mapping():
            return {name: _told(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_told(inner) for inner in value]
        case _:
            return value


def _json(value: object, what: str) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
        raise BadInput(code="bad_params", detail=f"{what} cannot be written as JSON: {error}.") from None


def instant_ms(value: When | None, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, datetime.datetime):
        value = value.timestamp() if value.tzinfo is not None else -1
    if 0 <= value < 1e11:
        return int(value * 1000)
    raise BadInput(code="bad_time", detail=f"{name} must be a datetime with its time zone, or Unix seconds.")


def id_of(letter: LetterId) -> int:
    """The number of a letter, however it was given."""
    text = letter.id if isinstance(letter, Letter) else str(letter)
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise BadInput(code="bad_letter_id", detail="letter_id must be a number, or the letter itself.")


def filter_of(given: Mapping[str, Any], names: frozenset[str]) -> LetterQuery:
    """Raises BadInput for a name that is no filter: a mistyped one must not mean "everything"."""
    unknown = given.keys() - names
    if unknown:
        raise BadInput(
            code="unknown_filter",
            detail=f"There is no filter {', '.join(sorted(unknown))}. There are: {', '.join(sorted(names))}.",
        )
    wanted = {name: value for name, value in given.items() if value is not None}
    return LetterQuery(
        state=_state(wanted.get("state")),
        bot_id=wanted.get("bot_id"),
        chat_id=chat_key(wanted["chat_id"]) if "chat_id" in wanted else None,
        user_id=_text(wanted.get("user_id")),
        message_type=_text(wanted.get("message_type")),
        method=_text(wanted.get("method")),
        since=instant_ms(wanted.get("since"), "since"),
        until=instant_ms(wanted.get("until"), "until"),
        text=_text(wanted.get("text")),
        error=_text(wanted.get("error")),
        cause=_text(wanted.get("cause")),
        trace=None if "trace" not in wanted else read_trace(str(wanted["trace"])),
    )


FILTER_NAMES = Filter.__optional_keys__
DEAD_FILTER_NAMES = DeadFilter.__optional_keys__


def _state(given: str | None) -> State | None:
    try:
        return None if given is None else State(given)
    except ValueError:
        raise BadInput(code="bad_state", detail=f"state is one of {', '.join(State)}.") from None


def _text(given: object) -> str | None:
    return None if given is None else str(given)
