"""Broadcasts as the world sees them: one shape for REST, the command line and the dashboard. Ids are strings, times RFC 3339."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from peik.broadcasts.model import Broadcast, Estimate, Phase, Recipient, RecipientState, stars_most, steps_from, work_ms
from peik.clock import zone_of
from peik.core.quiet import done_at
from peik.core.units import rfc3339

COLUMNS = (
    "number", "chat_id", "state", "letter_id", "message_id", "error", "queued_at", "ended_at", "uncertain_tries",
)  # fmt: skip
_ETA = (Phase.SNAPSHOTTING, Phase.CANARY, Phase.RUNNING, Phase.QUIET)


def broadcast_view(broadcast: Broadcast, *, per_s: float | None, now_ms: int) -> dict[str, object]:
    """`per_s` is the pace of its bot."""
    done = broadcast.counts.done
    return {
        "id": broadcast.id,
        "bot_id": str(broadcast.bot_id),
        "name": broadcast.name,
        "method": broadcast.method,
        "params": msgspec.Raw(broadcast.params.encode()),
        "state": broadcast.phase,
        "reason": broadcast.reason,
        "steps": [str(step) for step in steps_from(broadcast.phase)],
        "audience": _audience_view(broadcast),
        "total": broadcast.total,
        "counts": {
            "pending": broadcast.pending,
            "queued": broadcast.queued,
            **msgspec.structs.asdict(broadcast.counts),
        },
        "unrecalled": broadcast.unrecalled,
        "progress": round(done / broadcast.total, 4) if broadcast.total else float(broadcast.phase.is_final),
        "eta_s": _eta_s(broadcast, per_s, now_ms),
        "canary": _built(broadcast.canary),
        "quiet": _built(broadcast.quiet),
        "paid": None if broadcast.paid is None else _paid_view(broadcast),
        "created_by": broadcast.created_by,
        "created_at": rfc3339(broadcast.created_at_ms),
        "start_at": rfc3339(broadcast.start_at_ms),
        "started_at": rfc3339(broadcast.started_at_ms),
        "quiet_until": rfc3339(broadcast.quiet_until_ms),
        "ended_at": rfc3339(broadcast.ended_at_ms),
    }


def _built(value: object) -> object:
    return None if value is None else msgspec.to_builtins(value)


def _audience_view(broadcast: Broadcast) -> dict[str, object]:
    if broadcast.wanted is None:
        return {"kind": "list", "columns": list(broadcast.columns)}
    wanted = broadcast.wanted
    shown = {
        "types": None if wanted.types is None else sorted(wanted.types),
        "languages": None if wanted.languages is None else sorted(wanted.languages),
        "seen_since": rfc3339(wanted.seen_since_ms),
        "seen_before": rfc3339(wanted.seen_before_ms),
        "gone": wanted.is_gone,
        "text": wanted.text,
        "campaign": wanted.campaign,
    }
    return {"kind": "contacts", **{name: value for name, value in shown.items() if value is not None}}


def _paid_view(broadcast: Broadcast) -> dict[str, object]:
    assert broadcast.paid is not None
    return {"stars_max": broadcast.paid.stars_max, "stars_most": stars_most(broadcast.handed * broadcast.weight)}


def _eta_s(broadcast: Broadcast, per_s: float | None, now_ms: int) -> float | None:
    """About so long until its end; None: nobody knows, or it is halted or over."""
    if broadcast.phase not in _ETA or per_s is None:
        return None
    left_ms = work_ms((broadcast.pending + broadcast.queued) * broadcast.weight, per_s)
    zone = zone_of("UTC" if broadcast.quiet is None else broadcast.quiet.tz)
    return round((done_at(now_ms, left_ms, broadcast.quiet, zone) - now_ms) / 1000, 1)


def estimate_view(estimate: Estimate) -> dict[str, object]:
    return {
        "recipients": estimate.recipients,
        "suppressed": estimate.suppressed,
        "is_least": estimate.is_least,
        "messages": estimate.messages,
        "per_s": estimate.per_s,
        "duration_s": round(estimate.duration_ms / 1000, 1),
        "done_at": rfc3339(estimate.done_at_ms),
        "stars": estimate.stars,
        "stars_most": estimate.stars_most,
        "stars_max": estimate.stars_max,
    }


def recipient_view(number: int, line: Recipient) -> dict[str, object]:
    return {
        "number": str(number),
        "chat_id": str(line.chat),
        "state": line.state,
        "letter_id": None if line.letter_id is None else str(line.letter_id),
        "message_id": str(line.messages[0]) if line.messages else None,
        "message_ids": [str(one) for one in line.messages],
        "error": line.error,
        "values": line.values,
        "uncertain_tries": line.uncertain_tries,
        "recall_letter_id": None if line.recall_letter_id is None else str(line.recall_letter_id),
        "queued_at": rfc3339(line.queued_at_ms),
        "ended_at": rfc3339(None if line.state is RecipientState.PENDING else line.ended_at_ms),
    }


# ---- the ledger as a file ----

_encode = msgspec.json.Encoder().encode


def ledger_jsonl(lines: Iterable[tuple[int, Recipient]]) -> bytes:
    return b"".join(_encode(recipient_view(number, line)) + b"\n" for number, line in lines)


def ledger_head() -> bytes:
    return (",".join(COLUMNS) + "\r\n").encode()


def ledger_csv(lines: Iterable[tuple[int, Recipient]]) -> bytes:
    return csv_of(recipient_view(number, line) for number, line in lines).encode()


def csv_of(views: Iterable[Mapping[str, Any]]) -> str:
    """Of lines as `recipient_view` shows them, here or over REST. An album's ids are all in one cell."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for view in views:
        shown = {**view, "message_id": " ".join(view["message_ids"])}
        writer.writerow([cell(shown[name]) for name in COLUMNS])
    return text.getvalue()


def cell(value: object) -> str:
    """A spreadsheet takes what begins so for a formula; Telegram's words and names of chats are others' text."""
    text = "" if value is None else str(value)
    is_number = text.removeprefix("-").isdigit()
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not is_number else text
