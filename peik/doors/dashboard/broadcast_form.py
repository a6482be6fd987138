"""A broadcast as somebody fills it in on a page: the call, who gets it, and how it goes out."""

import asyncio
import re
from typing import Any

import msgspec

from peik.broadcasts.audience import Audience, ContactAudience, ListAudience, listed, read_csv
from peik.broadcasts.desk import BroadcastRequest
from peik.core.broadcast import Canary, Paid
from peik.core.quiet import Quiet
from peik.doors.dashboard.fields import Fields
from peik.errors import BadInput, TooLarge
from peik.paper_ports import ContactFilter

CSV_BYTES_MAX = 32 * 1024 * 1024
LIST_CHARS_MAX = 1024 * 1024
TEXT_CHARS_MAX = 20_000
PARAMS_CHARS_MAX = 64 * 1024
PARSE_MODES = ("HTML", "MarkdownV2")
CHAT_TYPES = ("private", "group", "supergroup", "channel")
_BETWEEN = re.compile(r"[\s,;]+")


async def request_of(fields: Fields, *, bot_id: int, by: str) -> BroadcastRequest:
    """Raises BadInput with what is to be mended."""
    method, params = _call(fields)
    return BroadcastRequest(
        bot_id=bot_id,
        name=fields.text("name"),
        method=method,
        params=params,
        audience=await _audience(fields),
        canary=_canary(fields),
        quiet=_quiet(fields),
        paid=_paid(fields),
        key=fields.text("key"),
        created_by=by,
    )


def _call(fields: Fields) -> tuple[str, dict[str, Any]]:
    """A text, or any other method with its parameters as JSON."""
    text, method = fields.text("text", chars_max=TEXT_CHARS_MAX), fields.text("method")
    if method is None:
        if text is None:
            raise BadInput(code="no_text", detail="Say what to send: a text, or a method with its parameters.")
        mode = fields.text("parse_mode")
        return "sendMessage", {"text": text} if mode is None else {"text": text, "parse_mode": mode}
    if text is not None:
        raise BadInput(code="text_and_method", detail="Give a text, or a method with its parameters, not both.")
    try:
        params = msgspec.json.decode(
            fields.text("params", chars_max=PARAMS_CHARS_MAX) or "{}", type=dict[str, msgspec.Raw]
        )
    except msgspec.DecodeError:
        raise BadInput(code="bad_params", detail="The parameters must be a JSON object.") from None
    return method, {name: msgspec.json.decode(value) for name, value in params.items()}


async def _audience(fields: Fields) -> Audience:
    match fields.text("audience"):
        case "list":
            words = _BETWEEN.split(fields.need("chats", chars_max=LIST_CHARS_MAX))
            return await asyncio.to_thread(listed, [word for word in words if word])
        case "csv":
            return await _from_csv(fields)
        case "contacts":
            return ContactAudience(wanted=_contacts(fields))
    raise BadInput(code="no_audience", detail="Say who gets it: a list, a CSV file, or known chats.")


async def _from_csv(fields: Fields) -> ListAudience:
    file = fields.file("csv")
    if file is None:
        raise BadInput(code="no_csv", detail="Choose a CSV file with a column chat_id.")
    raw = await file.read(CSV_BYTES_MAX + 1)
    if len(raw) > CSV_BYTES_MAX:
        raise TooLarge(code="csv_too_large", detail=f"A CSV has at most {CSV_BYTES_MAX // 1024 // 1024} MB.")
    return await asyncio.to_thread(read_csv, raw)  # a million rows take a while, and others are to be served


def _contacts(fields: Fields) -> ContactFilter:
    languages = [word for word in _BETWEEN.split(fields.text("languages") or "") if word]
    return ContactFilter(
        types=frozenset(fields.all("type")) or None,
        languages=frozenset(languages) or None,
        seen_since_ms=fields.instant_ms("seen_since"),
        seen_before_ms=fields.instant_ms("seen_before"),
        campaign=fields.text("campaign"),
        is_gone=False,
    )


def _canary(fields: Fields) -> Canary | None:
    percent, count = fields.decimal("canary_percent"), fields.id("canary_count")
    if percent is None and count is None:
        return None
    limit = fields.decimal("canary_limit")
    return Canary(count=count, percent=percent, limit=0.2 if limit is None else limit / 100)


def _quiet(fields: Fields) -> Quiet | None:
    start, end, zone = fields.text("quiet_start"), fields.text("quiet_end"), fields.text("quiet_tz")
    if start is None and end is None:
        return None
    if start is None or end is None:
        raise BadInput(code="bad_quiet", detail="Quiet hours have a beginning and an end.")
    return Quiet(start=start, end=end, tz=zone or "UTC")


def _paid(fields: Fields) -> Paid | None:
    stars_max = fields.decimal("stars_max")
    if not fields.is_on("paid"):
        return None
    if stars_max is None:
        raise BadInput(code="bad_paid", detail="A paid broadcast needs a bound in Stars that it must not pass.")
    return Paid(stars_max=stars_max)
