"""Letters as the world sees them: one shape for REST and webhooks. Ids are strings, times are RFC 3339."""

import datetime
from typing import overload

import msgspec

from peik.core.letter import Priority, State
from peik.core.trace import certainty, plain
from peik.outbox.store import LetterView


@overload
def rfc3339(at_ms: int) -> str: ...
@overload
def rfc3339(at_ms: int | None) -> str | None: ...
def rfc3339(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    moment = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Line(msgspec.Struct):
    at: int
    outcome: str
    code: int | None = None
    words: str | None = None
    retry_after_s: float | None = None


_decode_history = msgspec.json.Decoder(list[_Line]).decode


def letter_view(view: LetterView) -> dict[str, object]:
    return {
        "id": str(view.id),
        "bot_id": str(view.bot_id),
        "method": view.method,
        "chat_id": str(view.chat),
        "thread_id": str(view.thread) if view.thread else None,
        "state": view.state,
        "priority": Priority.CRITICAL - view.rank,
        "progress": 100 if view.state is State.COMPLETED else 0,
        "attempts": view.attempts,
        "attempts_made": view.attempts_made,
        "uncertain_tries": view.uncertain_tries,
        "failed_reason": view.failed_reason,
        "on_uncertain": view.on_uncertain,
        "result": None if view.result is None else msgspec.Raw(view.result.encode()),
        "merged_into": None if view.merged_into is None else str(view.merged_into),
        "params": msgspec.Raw(view.params.encode()),
        "metadata": None if view.metadata is None else msgspec.Raw(view.metadata.encode()),
        "trace": None if view.trace is None else plain(view.trace),
        "trace_certainty": None if view.trace is None else certainty(view.trace),
        "history": _history(view),
        "created_at": rfc3339(view.created_at_ms),
        "send_at": _send_at(view),
        "expires_at": rfc3339(view.expires_at_ms),
        "finished_at": rfc3339(view.settled_at_ms) if view.state.is_final else None,
    }


def _send_at(view: LetterView) -> str | None:
    is_waiting_for_it = view.state is State.DELAYED and view.merged_into is None
    return rfc3339(view.due_at_ms) if is_waiting_for_it else None


def _history(view: LetterView) -> list[dict[str, object]]:
    """Every try. A plain delivery is not stored as a line, since the letter itself tells it."""
    lines: list[dict[str, object]] = []
    for line in _decode_history(view.history or "[]"):
        shown = {"at": rfc3339(line.at), "outcome": line.outcome, "code": line.code, "words": line.words}
        lines.append({name: value for name, value in shown.items() if value is not None})
        if line.retry_after_s is not None:
            lines[-1]["retry_after_s"] = line.retry_after_s
    is_told = any(line["outcome"] == "delivered" for line in lines)
    if view.state is State.COMPLETED and view.merged_into is None and not is_told:
        lines.append({"at": rfc3339(view.settled_at_ms), "outcome": "delivered"})
    return lines
