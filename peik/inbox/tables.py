"""Arrivals as people look at them: a line in a list, or one with the update and its whole history."""

from collections.abc import Sequence

import msgspec
from rich.console import Group, RenderableType

from peik.cli.client import Document
from peik.cli.output import age, facts, plain, state, table, when

_WORDS_MAX = 60


def arrivals_table(arrivals: Sequence[Document], *, empty: str, is_dead: bool = False) -> RenderableType:
    """The last column is what one looks for first: why an arrival is dead, or what it says."""
    columns = ["id", "number", "age", "chat", "type", "says", "consumer", "tries", "reason"]
    if not is_dead:
        columns = ["id", "number", "state", "age", "chat", "user", "type", "says"]
    if len({arrival["bot_id"] for arrival in arrivals}) > 1:
        columns.insert(2, "bot")
    rows = [[_cells(arrival)[column] for column in columns] for arrival in arrivals]
    return table(columns, rows, right=("id", "number", "tries"), shrinking=("says", "type"), empty=empty)


def _cells(arrival: Document) -> dict[str, object]:
    given_up = next((one for one in _deliveries(arrival) if one["state"] == "failed"), {})
    text = str(arrival["text"] or "")
    return {
        "id": arrival["id"],
        "number": arrival["number"],
        "state": state(arrival["state"] or "not its"),
        "age": age(arrival["received_at"]),
        "bot": arrival["bot_id"],
        "chat": arrival["chat_id"] or arrival["lane"],
        "user": arrival["user_id"],
        "type": arrival["type"],
        "says": text if len(text) <= _WORDS_MAX else text[: _WORDS_MAX - 1] + "…",
        "consumer": given_up.get("consumer"),
        "tries": given_up.get("tries"),
        "reason": given_up.get("failed_reason"),
    }


def arrival_page(arrival: Document) -> RenderableType:
    head = facts(
        [
            ("arrival", arrival["id"]),
            ("number", arrival["number"]),
            ("update id", f"{arrival['update_id']} here, {arrival['telegram_update_id']} at Telegram"),
            ("bot", arrival["bot_id"]),
            ("type", arrival["type"]),
            ("chat", arrival["chat_id"] or arrival["lane"]),
            ("user", arrival["user_id"]),
            ("message", arrival["message_id"]),
            ("says", arrival["text"]),
            ("sent", when(arrival["sent_at"])),
            ("received", when(arrival["received_at"])),
            ("replay of", arrival["replay_of"]),
            ("trace", arrival["trace"]),
        ]
    )
    deliveries = _deliveries(arrival)
    rows = [
        (
            one["consumer"],
            state(one["state"]),
            one["tries"],
            when(one["due_at"]),
            when(one["settled_at"]),
            one["failed_reason"],
        )
        for one in deliveries
    ]
    columns = ("consumer", "state", "tries", "due", "settled", "reason")
    parts: list[RenderableType] = [head, "", table(columns, rows, right=("tries",), empty="Nobody reads it.")]
    tries = [(one["consumer"], line) for one in deliveries for line in _lines(one)]
    if tries:
        told = [(when(line.get("at")), name, _words(line)) for name, line in tries]
        parts += ["", table(("tried", "consumer", "what happened"), told, empty="")]
    parts += ["", _answers(arrival)]
    return Group(*parts, "", plain(msgspec.json.encode(arrival["update"]).decode()))


def _answers(arrival: Document) -> RenderableType:
    """The letters that answer it, with what Telegram calls them, and how long after the update."""
    found = arrival["answers"]
    assert isinstance(found, list)
    rows = [
        (
            one["letter_id"],
            state(one["state"]),
            one["method"],
            ", ".join(one["message_ids"]),
            _after(one["accepted_after_ms"]),
            _after(one["finished_after_ms"]),
            one["trace_certainty"],
        )
        for one in found
    ]
    columns = ("answer", "state", "method", "message", "accepted after", "ended after", "it is")
    return table(columns, rows, right=("answer", "message"), empty="No letter answers it.")


def _after(after_ms: object) -> str | None:
    return f"{after_ms / 1000:.3f} s" if isinstance(after_ms, int) else None


def _deliveries(arrival: Document) -> list[Document]:
    found = arrival["deliveries"]
    assert isinstance(found, list)
    return found


def _lines(delivery: Document) -> list[Document]:
    history = delivery["history"]
    return history if isinstance(history, list) else []


def _words(line: Document) -> str:
    return "; ".join(f"{name}: {value}" for name, value in line.items() if name != "at" and value is not None)
