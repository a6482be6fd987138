"""Bodies of the broadcasts' part of the REST door: JSON, or a form with a CSV."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from peik.broadcasts.audience import Audience, ContactAudience, ListAudience, listed, read_csv
from peik.broadcasts.desk import BroadcastRequest
from peik.core.broadcast import Canary, Paid
from peik.core.letter import OnUncertain
from peik.core.quiet import Quiet
from peik.doors.bodies import decode, instant_ms, parse_id, read_body
from peik.errors import BadInput
from peik.paper_ports import ContactFilter

_Time = int | float | str | None
TYPES = frozenset({"private", "group", "supergroup", "channel"})


class ContactsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Known chats of the bot. What is left out does not matter."""

    types: list[str] | None = None
    languages: list[str] | None = None
    seen_since: _Time = None
    seen_before: _Time = None
    gone: bool | None = None
    text: str | None = None
    campaign: str | None = None


class AudienceBody(msgspec.Struct, forbid_unknown_fields=True):
    """One of the three."""

    chat_ids: list[int | str] | None = None
    csv: str | None = None
    contacts: ContactsBody | None = None


class CanaryBody(msgspec.Struct, forbid_unknown_fields=True):
    count: int | None = None
    percent: float | None = None
    limit: float = 0.2


class QuietBody(msgspec.Struct, forbid_unknown_fields=True):
    start: str
    end: str
    tz: str = "UTC"


class PaidBody(msgspec.Struct, forbid_unknown_fields=True):
    stars_max: float


class BroadcastBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/broadcasts`. `params` are those of the method, without chat_id."""

    method: str
    params: dict[str, Any]
    audience: AudienceBody | None = None  # left out in a form with a CSV
    bot_id: int | str | None = None
    name: str | None = None
    canary: CanaryBody | None = None
    quiet: QuietBody | None = None
    paid: PaidBody | None = None
    on_uncertain: OnUncertain | None = None
    start: bool = False
    send_at: _Time = None
    idempotency_key: str | None = None


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    send_at: _Time = None


class PreviewBody(msgspec.Struct, forbid_unknown_fields=True):
    chat_id: int | str


async def read_broadcast_body(request: Request, *, bytes_max: int) -> tuple[BroadcastBody, Audience]:
    """The body, and who is to be written to. Raises BadInput, TooLarge."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        body = decode(BroadcastBody, await read_body(request, bytes_max=bytes_max))
        return body, await asyncio.to_thread(audience_of, body.audience)  # a million lines take seconds
    form = await _form(request, await read_body(request, bytes_max=bytes_max))
    try:
        whole, file = form.get("broadcast"), form.get("csv")
        if not isinstance(whole, str) or not isinstance(file, UploadFile):
            raise BadInput(
                code="bad_multipart",
                detail="A form has the field broadcast, as JSON, and the file csv with the recipients.",
            )
        body = decode(BroadcastBody, whole.encode())
        if body.audience is not None:
            raise BadInput(
                code="bad_audience", detail="The recipients come either in the CSV or in audience, not in both."
            )
        return body, await asyncio.to_thread(read_csv, await file.read())
    finally:
        await form.close()


async def _form(request: Request, raw: bytes) -> FormData:
    async def whole() -> AsyncGenerator[bytes, None]:
        yield raw

    try:
        if not raw.rstrip().endswith(b"--"):  # half of a list must not be taken for the whole
            raise MultiPartException("it breaks off before its last boundary")
        return await MultiPartParser(
            request.headers, whole(), max_files=1, max_fields=10, max_part_size=1024 * 1024
        ).parse()
    except MultiPartException as error:
        raise BadInput(code="bad_multipart", detail=f"The form cannot be read: {error.message}.") from None


def audience_of(body: AudienceBody | None) -> Audience:
    given = [] if body is None else [one for one in (body.chat_ids, body.csv, body.contacts) if one is not None]
    if body is None or len(given) != 1:
        raise BadInput(code="bad_audience", detail="audience has one of chat_ids, csv and contacts.")
    if body.chat_ids is not None:
        return listed(body.chat_ids)
    if body.csv is not None:
        return read_csv(body.csv.encode())
    assert body.contacts is not None
    return ContactAudience(wanted=_wanted(body.contacts))


def _wanted(body: ContactsBody) -> ContactFilter:
    if body.types is not None and not TYPES.issuperset(body.types):
        raise BadInput(code="bad_audience", detail=f"types are of {', '.join(sorted(TYPES))}.")
    return ContactFilter(
        types=None if body.types is None else frozenset(body.types),
        languages=None if body.languages is None else frozenset(one.lower() for one in body.languages),
        seen_since_ms=instant_ms(body.seen_since, "seen_since"),
        seen_before_ms=instant_ms(body.seen_before, "seen_before"),
        is_gone=body.gone,
        text=body.text,
        campaign=body.campaign,
    )


def request_of(
    body: BroadcastBody, audience: Audience, *, bot_id: int | None, key: str | None, created_by: str | None
) -> BroadcastRequest:
    """The desk's request. A key in the body wins over the header."""
    return BroadcastRequest(
        method=body.method,
        params=body.params,
        audience=audience,
        bot_id=bot_id,
        name=body.name,
        canary=None if body.canary is None else Canary(**msgspec.structs.asdict(body.canary)),
        quiet=None if body.quiet is None else Quiet(**msgspec.structs.asdict(body.quiet)),
        paid=None if body.paid is None else Paid(stars_max=body.paid.stars_max),
        on_uncertain=body.on_uncertain,
        start=body.start,
        start_at_ms=instant_ms(body.send_at, "send_at"),
        key=body.idempotency_key or key,
        created_by=created_by,
    )


def bot_id_in(body: BroadcastBody) -> int | None:
    return parse_id(body.bot_id, "bot_id") if isinstance(body.bot_id, str) else body.bot_id


def duplicates_of(audience: Audience) -> int:
    return audience.duplicates if isinstance(audience, ListAudience) else 0
