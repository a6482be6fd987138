"""Reading requests of the REST door: JSON and multipart bodies, bounded, into the desk's calls."""

import datetime
from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from peik.core.letter import Backoff, Enclosed, OnUncertain
from peik.core.trace import HEADER, PARENT_HEADER, read_parent, read_trace
from peik.core.units import parse_duration_s
from peik.desk import Call
from peik.doors.access import header_in
from peik.doors.forms import Form, Gone, Unreadable, body_of, read_form
from peik.errors import BadInput, Problem, TooLarge
from peik.store.spool import Spool

FIELDS_MAX = 100
FIELDS_BYTES_MAX = 1024 * 1024

T = TypeVar("T")
_Time = int | float | str | None
_EMPTY = msgspec.Raw(b"{}")
_NOTHING = msgspec.Raw(b"null")  # Raw itself takes null; a union with None would take nothing else


class _Backoff(msgspec.Struct, forbid_unknown_fields=True):
    type: Backoff = Backoff.EXPONENTIAL
    delay: int | None = None


class LetterBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/letters`. Parameters and metadata stay as the bytes that came."""

    method: str
    params: msgspec.Raw = msgspec.field(default_factory=lambda: _EMPTY)
    bot_id: int | str | None = None
    priority: int = 0
    attempts: int | None = None
    backoff_ms: int | None = None
    backoff: _Backoff | None = None
    timeout_ms: int | None = None
    send_at: _Time = None
    expires_at: _Time = None
    on_uncertain: OnUncertain | None = None
    idempotency_key: str | None = None
    webhook_url: str | None = None
    trace: str | None = None
    metadata: msgspec.Raw = msgspec.field(default_factory=lambda: _NOTHING)


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    letters: list[LetterBody]


_HEADER = HEADER.lower().encode()
_PARENT_HEADER = PARENT_HEADER.lower().encode()
_decode_letter = msgspec.json.Decoder(LetterBody).decode
_decode_batch = msgspec.json.Decoder(BatchBody).decode


async def read_body(request: Request, *, bytes_max: int) -> bytes:
    """The whole body, or TooLarge before more than the bound was taken."""
    _refuse_announced(request, bytes_max)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > bytes_max:
            raise _too_large(bytes_max)
        if not message.get("more_body", False):
            return b"".join([*chunks, chunk]) if chunks else chunk
        chunks.append(chunk)


def _refuse_announced(request: Request, bytes_max: int) -> None:
    for name, value in request.scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > bytes_max:
            raise _too_large(bytes_max)


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(code="body_too_large", detail=f"The request is larger than {bytes_max} bytes. Send less at once.")


def decode_letter(body: bytes) -> LetterBody:
    return _decoded(_decode_letter, body)


def decode_batch(body: bytes) -> BatchBody:
    return _decoded(_decode_batch, body)


def decode(kind: type[T], body: bytes) -> T:
    return _decoded(msgspec.json.Decoder(kind).decode, body)


def _decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise BadInput(code="bad_request", detail=f"{error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(code="bad_json", detail=f"The body is not valid JSON: {error}.") from None


def read_traced(request: Request) -> str | None:
    """What the headers say that this answers: ours counts before `traceparent`. Raises BadInput."""
    own = header_in(request.scope, _HEADER)
    if own:
        return read_trace(own)
    parent = header_in(request.scope, _PARENT_HEADER)
    return None if parent is None else read_parent(parent)


def call_of(
    letter: LetterBody, *, key: str | None = None, trace: str | None = None, enclosed: tuple[Enclosed, ...] = ()
) -> Call:
    """The desk's call. A key or a trace in the body wins over the header."""
    params = bytes(letter.params)
    if _has_usual_terms(letter):
        return Call(
            method=letter.method,
            params=params,
            bot_id=_bot_id(letter.bot_id),
            priority=letter.priority,
            idempotency_key=key,
            enclosed=enclosed,
            trace=trace,
        )
    backoff = letter.backoff or _Backoff()
    metadata = bytes(letter.metadata)
    return Call(
        method=letter.method,
        params=params,
        bot_id=_bot_id(letter.bot_id),
        priority=letter.priority,
        attempts=letter.attempts,
        backoff_ms=backoff.delay if letter.backoff_ms is None else letter.backoff_ms,
        backoff=backoff.type,
        timeout_ms=letter.timeout_ms,
        send_at_ms=instant_ms(letter.send_at, "send_at"),
        expires_at_ms=instant_ms(letter.expires_at, "expires_at"),
        on_uncertain=letter.on_uncertain,
        idempotency_key=letter.idempotency_key or key,
        metadata=None if metadata == b"null" else metadata,
        enclosed=enclosed,
        hook=letter.webhook_url,
        trace=trace if letter.trace is None else read_trace(letter.trace),
    )


def _has_usual_terms(letter: LetterBody) -> bool:
    """Whether it says nothing of how it is to be delivered: most do not, and come by the hundred."""
    return (
        letter.metadata is _NOTHING
        and letter.attempts is None
        and letter.backoff_ms is None
        and letter.backoff is None
        and letter.timeout_ms is None
        and letter.send_at is None
        and letter.expires_at is None
        and letter.on_uncertain is None
        and letter.idempotency_key is None
        and letter.webhook_url is None
        and letter.trace is None
    )


def _bot_id(value: int | str | None) -> int | None:
    if isinstance(value, str):
        return parse_id(value, "bot_id")
    return value


def parse_id(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise BadInput(code=f"bad_{name}", detail=f"{name} must be a number.")


def instant_ms(value: _Time, name: str) -> int | None:
    """Unix seconds or an RFC 3339 string, as milliseconds."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            raise _bad_time(name) from None
        if moment.tzinfo is None:
            raise _bad_time(name)
        value = moment.timestamp()
    # One that no calendar can show would be stored, and every list with it in it would fail from then on.
    if not 0 <= value < 1e11:
        raise _bad_time(name)
    return int(value * 1000)


def _bad_time(name: str) -> BadInput:
    return BadInput(
        code="bad_time", detail=f"{name} must be Unix seconds or RFC 3339 with an offset, such as 2026-11-15T08:30:00Z."
    )


def wait_s(request: Request, *, most_s: float) -> float:
    """`?wait=10s`, bounded; 0 if it is not given."""
    text = request.query_params.get("wait") if request.scope["query_string"] else None
    if text is None:
        return 0.0
    try:
        return min(parse_duration_s(text), most_s)
    except ValueError as error:
        raise BadInput(code="bad_wait", detail=f"wait: {error}.") from None


# ---- multipart: the letter as JSON in the field `letter`, and files under the names of their parameters ----


async def read_multipart(
    request: Request, spool: Spool, *, file_bytes_max: int
) -> tuple[LetterBody, tuple[Enclosed, ...]]:
    """The letter and its files, which are durable in the spool when this returns."""
    bound = file_bytes_max + 2 * FIELDS_BYTES_MAX
    _refuse_announced(request, bound)
    kind = header_in(request.scope, b"content-type") or ""
    enclosed: list[Enclosed] = []
    try:
        form = Form(kind.encode("latin-1"), body_of(request.receive, bound))
        fields, enclosed = await read_form(
            form, spool=spool, file_bytes_max=file_bytes_max, room=FIELDS_BYTES_MAX, fields_max=FIELDS_MAX
        )
        if not form.is_whole:  # a letter must not be accepted without half of its files
            raise Unreadable(400, "it breaks off before its last boundary")
        return _letter_of(fields), tuple(enclosed)
    except BaseException as error:
        spool.remove([one.blob for one in enclosed])
        if isinstance(error, Unreadable):
            raise _bad_form(error) from None
        if isinstance(error, Gone):
            raise ClientDisconnect from None
        raise


def _bad_form(error: Unreadable) -> Problem:
    detail = f"The form cannot be read: {error.words.removeprefix('Bad Request: ')}."
    kind = TooLarge if error.status == 413 else BadInput
    return kind(code="body_too_large" if error.status == 413 else "bad_multipart", detail=detail)


def _letter_of(fields: dict[str, str]) -> LetterBody:
    """Either one field `letter` with the whole JSON, or the fields of it one by one, nested ones as JSON."""
    if "letter" in fields:
        return decode_letter(fields["letter"].encode())
    nested = {
        name: msgspec.Raw(value.encode()) if name in _NESTED or _is_number(value) else value
        for name, value in fields.items()
    }
    return decode_letter(msgspec.json.encode(nested))


_NESTED = frozenset({"params", "metadata", "backoff"})


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit() and text.isascii()
