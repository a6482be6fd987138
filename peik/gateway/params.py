"""The parameters of a gateway call: query string, form, JSON or multipart, read as Telegram's own server reads them.

The first value of a name counts, and the query string comes first. JSON that comes alone is not touched: its bytes are the
bytes that go to Telegram. Files are durable in the spool before anything is promised.
"""

from collections.abc import Iterable
from urllib.parse import parse_qsl

import msgspec

from peik.core.call import PARAMS_BYTES_MAX
from peik.core.letter import Enclosed, Priority
from peik.errors import BadInput
from peik.storage.spool import SpoolPort
from peik.web.bodies import (
    FIELDS_MAX,
    Receive,
    RequestForm,
    UnreadableBody,
    body_of,
    inflated,
    not_utf8,
    read_form,
    too_large,
)

KEY_PARAMETER = "peik_idempotency_key"
PRIORITY_PARAMETER = "peik_priority"
_OWN_BYTES = b"peik_"  # what both begin with
_PRIORITIES = {word: one for one in Priority for word in (str(int(one)), one.name.lower())}

Headers = Iterable[tuple[bytes, bytes]]


class GatewayParams(msgspec.Struct, frozen=True, kw_only=True):
    """What a call brought along."""

    params: bytes = b"{}"  # a JSON object, or what a client took for one
    enclosed: tuple[Enclosed, ...] = ()
    key: str | None = None
    trace: str | None = None  # what the call says that it answers: X-Peik-Trace,
    parent: str | None = None  # and traceparent
    priority: str | None = None  # as it is said; None: it is not

    def fields(self) -> dict[str, object]:
        """The parameters by name. Raises Unreadable."""
        return _object(self.params)


def given_of(fields: dict[str, str], enclosed: tuple[Enclosed, ...]) -> GatewayParams:
    """What a call from within this process brings along; its fields as a form would carry them."""
    return _of_fields(fields, None, enclosed)


class GatewayHead(msgspec.Struct, frozen=True, kw_only=True):
    """The few headers that matter here."""

    content_type: bytes = b""
    coding: bytes = b""
    key: str | None = None
    size_bytes: int | None = None  # as announced
    has_body: bool = False
    trace: str | None = None
    parent: str | None = None
    priority: str | None = None


def read_priority(said: str) -> Priority:
    """Raises BadInput for what is none: a call that is worth something else than its bot believes is found at once."""
    priority = _PRIORITIES.get(said.strip().lower())
    if priority is None:
        raise BadInput(code="bad_priority", detail=f"{PRIORITY_PARAMETER} is one of {', '.join(_PRIORITIES)}.")
    return priority


def read_head(headers: Headers) -> GatewayHead:
    content_type, coding, key = b"", b"", None
    trace: str | None = None
    parent: str | None = None
    priority: str | None = None
    size: int | None = None
    has_body = False
    for name, value in headers:
        match name:
            case b"content-type":
                content_type = value
            case b"content-length":
                size = int(value) if value.isdigit() else None
                has_body = size != 0
            case b"transfer-encoding":
                has_body = True
            case b"content-encoding":
                coding = value.strip().lower()
            case b"idempotency-key":
                key = value.decode("latin-1").strip() or None
            case b"x-peik-trace":
                trace = value.decode("latin-1").strip() or None
            case b"traceparent":
                parent = value.decode("latin-1")
            case b"peik-priority":
                priority = value.decode("latin-1").strip() or None
    return GatewayHead(
        content_type=content_type,
        coding=coding,
        key=key,
        size_bytes=size,
        has_body=has_body,
        trace=trace,
        parent=parent,
        priority=priority,
    )


async def read_given(
    headers: Headers, query: bytes, receive: Receive, *, spool: SpoolPort, file_bytes_max: int
) -> GatewayParams:
    """Everything that a call brought along. Raises Unreadable, Gone, and what the spool raises; leaves no file behind then."""
    head = read_head(headers)
    given = await _read_given(head, query, receive, spool=spool, file_bytes_max=file_bytes_max)
    if head.trace is None and head.parent is None and head.priority is None:
        return given
    priority = given.priority or head.priority
    return msgspec.structs.replace(given, trace=head.trace, parent=head.parent, priority=priority)


async def _read_given(
    head: GatewayHead, query: bytes, receive: Receive, *, spool: SpoolPort, file_bytes_max: int
) -> GatewayParams:
    if not head.has_body and not query:
        return GatewayParams(key=head.key)
    asked = _pairs(query) if query else {}
    kind = head.content_type.partition(b";")[0].strip().lower()
    if not head.has_body:
        return _of_fields(asked, head.key)
    if kind == b"multipart/form-data":
        bound = file_bytes_max + 2 * PARAMS_BYTES_MAX
        _refuse_announced(head, bound)
        form = RequestForm(head.content_type, inflated(body_of(receive, bound), head.coding, bound))
        fields, enclosed = await read_form(form, spool=spool, file_bytes_max=file_bytes_max, room=PARAMS_BYTES_MAX)
        return _of_fields({**fields, **asked}, head.key, tuple(enclosed))
    _refuse_announced(head, PARAMS_BYTES_MAX)
    chunks = inflated(body_of(receive, PARAMS_BYTES_MAX), head.coding, PARAMS_BYTES_MAX)
    body = b"".join([chunk async for chunk in chunks])
    if kind == b"application/json":
        return _of_json(body, asked, head.key)
    if kind == b"application/x-www-form-urlencoded":
        return _of_fields({**_pairs(body), **asked}, head.key)
    return _of_fields(asked, head.key)  # the body of any other kind means nothing to Telegram


def _refuse_announced(head: GatewayHead, bytes_max: int) -> None:
    if head.size_bytes is not None and head.size_bytes > bytes_max:
        raise too_large()


# ---- texts ----


def _pairs(text: bytes) -> dict[str, str]:
    if len(text) > PARAMS_BYTES_MAX:
        raise too_large()
    try:
        pairs = parse_qsl(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except UnicodeDecodeError:
        raise not_utf8() from None
    except ValueError:
        raise UnreadableBody(413, "Request Entity Too Large: too much parameters") from None
    return dict(reversed(pairs))  # the first of a name counts


def _is_empty(body: bytes) -> bool:
    """Telegram's server takes `null` for an empty body: JSON.stringify(undefined ?? null) is what some clients send."""
    return body.strip() in (b"", b"null")


def _object(text: bytes) -> dict[str, object]:
    if _is_empty(text):
        return {}
    try:
        return _decode_object(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnreadableBody(400, "Bad Request: can't parse JSON: an object is expected") from None


_decode_object = msgspec.json.Decoder(dict[str, object]).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def _of_json(body: bytes, asked: dict[str, str], key: str | None) -> GatewayParams:
    if not asked and _OWN_BYTES not in body:
        return GatewayParams(params=b"{}" if _is_empty(body) else body, key=key)
    _object(body)  # whatever it says must be whole: parts of it are about to be written anew
    fields: dict[str, object] = {**({} if _is_empty(body) else _decode_raw(body)), **asked}
    named, priority = _said(fields, KEY_PARAMETER), _said(fields, PRIORITY_PARAMETER)
    return GatewayParams(params=_encode(fields), key=named or key, priority=priority)


def _said(fields: dict[str, object], name: str) -> str | None:
    """A parameter that is ours, taken out of those that go to Telegram. What says nothing is not there."""
    value = fields.pop(name, None)
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(value)
    return None if value is None or value == "" else str(value)


def _of_fields(fields: dict[str, str], key: str | None, enclosed: tuple[Enclosed, ...] = ()) -> GatewayParams:
    named, priority = fields.pop(KEY_PARAMETER, None), fields.pop(PRIORITY_PARAMETER, None)
    return GatewayParams(params=_encode(fields), key=named or key, enclosed=enclosed, priority=priority or None)
