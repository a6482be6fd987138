"""Broadcasts as people look at them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.cli.client import Document

_STYLES = {
    "completed": "green", "recalled": "green", "running": "cyan", "canary": "cyan", "snapshotting": "cyan",
    "recalling": "cyan", "stopped": "red", "paused": "yellow", "quiet": "yellow", "cancelled": "dim",
}  # fmt: skip
_ENDS = {"delivered": "green", "recalled": "green", "failed": "red", "blocked": "red", "queued": "cyan"}


def broadcasts_table(found: Any) -> "RenderableType":
    from peik.cli.output import age, plain, table

    rows = [
        (
            one["id"],
            plain(one["state"], _STYLES.get(one["state"], "")),
            age(one["created_at"]),
            one["name"] or one["method"],
            one["total"],
            one["counts"]["delivered"],
            f"{one['progress']:.0%}",
            one["reason"],
        )
        for one in found
    ]
    columns = ("id", "state", "age", "name", "total", "delivered", "done", "words")
    return table(
        columns, rows, right=("id", "total", "delivered", "done"), shrinking=("name",), empty="There are no broadcasts."
    )


def broadcast_page(one: "Document") -> "RenderableType":
    from peik.cli.output import facts, plain, when

    counts: Any = one["counts"]
    state, eta_s, progress = str(one["state"]), one["eta_s"], one["progress"]
    return facts(
        [
            ("broadcast", one["id"]),
            ("state", plain(state, _STYLES.get(state, ""))),
            ("why", one["reason"]),
            ("name", one["name"]),
            ("method", one["method"]),
            ("bot", one["bot_id"]),
            ("done", f"{progress:.1%}" if isinstance(progress, int | float) else None),
            ("about to take", f"{eta_s:.0f} s" if isinstance(eta_s, int | float) else None),
            ("recipients", one["total"]),
            *((name, number or None) for name, number in counts.items()),
            ("not recalled", one["unrecalled"] or None),
            ("quiet until", when(one["quiet_until"])),
            ("made", when(one["created_at"])),
            ("starts", when(one["start_at"])),
            ("started", when(one["started_at"])),
            ("ended", when(one["ended_at"])),
        ]
    )


def estimate_page(one: "Document") -> "RenderableType":
    from peik.cli.output import facts, when

    per_s, is_paid = one["per_s"], one["stars_max"] is not None
    return facts(
        [
            ("recipients", one["recipients"]),
            ("suppressed", f"at least {one['suppressed']}" if one["is_least"] else one["suppressed"]),
            ("messages", one["messages"]),
            ("a second", per_s if per_s is not None else "as many as can be"),
            ("takes", f"{one['duration_s']} s"),
            ("done", when(one["done_at"])),
            ("Stars", f"about {one['stars']}, at most {one['stars_most']}" if is_paid else None),
            ("stops at", f"{one['stars_max']} Stars" if is_paid else None),
        ]
    )


def ledger_table(lines: Any) -> "RenderableType":
    from peik.cli.output import plain, table, when

    rows = [
        (
            one["number"],
            one["chat_id"],
            plain(one["state"], _ENDS.get(one["state"], "")),
            one["letter_id"],
            one["message_id"],
            when(one["ended_at"]),
            one["error"],
        )
        for one in lines
    ]
    columns = ("number", "chat", "state", "letter", "message", "ended", "words")
    return table(
        columns,
        rows,
        right=("number", "chat", "letter", "message"),
        shrinking=(),
        empty="There are no such recipients.",
    )
