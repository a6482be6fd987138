"""Jobs as people look at them: a line in a list, or one with all its runs."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from peik.cli.client import Document
from peik.cli.output import age, facts, plain, state, table, when
from peik.jobs.cli import standing

COUNTS = ("waiting", "delayed", "active", "completed", "failed", "cancelled")
_PRIORITIES = {2: "critical", 1: "high", 0: "normal", -1: "bulk"}
_HOST_STYLES = {"open": "red", "probing": "yellow", "closed": "green"}


def jobs_table(jobs: Sequence[Document]) -> RenderableType:
    rows = [
        (
            job["id"],
            state(job["state"]),
            age(job["created_at"]),
            job["kind"],
            job["user"],
            job["attempts_made"],
            _percent(job["progress"]),
            job["failed_reason"] or job["progress_text"],
        )
        for job in jobs
    ]
    columns = ("id", "state", "age", "kind", "user", "tries", "done", "words")
    return table(
        columns, rows, right=("id", "tries", "done"), shrinking=("user", "kind"), empty="There are no such jobs."
    )


def job_page(job: Document) -> RenderableType:
    priority = job["priority"]
    timeout_ms = job["timeout_ms"]
    head = facts(
        [
            ("job", job["id"]),
            ("state", state(job["state"])),
            ("it", standing(job) if job["ended_at"] is None else None),
            ("done", _percent(job["progress"])),
            ("doing", job["progress_text"]),
            ("reason", None if job["failed_reason"] is None else plain(job["failed_reason"], "red")),
            ("result", _json(job["result"])),
            ("kind", job["kind"]),
            ("user", job["user"]),
            ("params", _json(job["params"] or None)),
            ("metadata", _json(job["metadata"])),
            ("told of in", _chat(job["notice"])),
            ("priority", _PRIORITIES.get(priority, priority) if isinstance(priority, int) else priority),
            ("attempts", f"{job['attempts_made']} of {job['attempts']}"),
            ("time limit", f"{timeout_ms / 1000:g} s" if isinstance(timeout_ms, int) else None),
            ("key", job["idempotency_key"]),
            ("node", job["node"]),
            ("bytes used", job["bytes_used"] or None),
            ("queued", when(job["created_at"])),
            ("due", when(job["due_at"])),
            ("began", when(job["started_at"])),
            ("ended", when(job["ended_at"])),
        ]
    )
    history = job["history"]
    lines = history if isinstance(history, list) else []
    if not lines:
        return head
    rows = [(when(line["at"]), line["run"], line["end"], line["node"], line["reason"]) for line in lines]
    return Group(head, "", table(("ended", "run", "how", "node", "reason"), rows, right=("run",), empty=""))


def stats_table(kinds: dict[str, Any]) -> RenderableType:
    def cells(counts: Document) -> list[object]:
        return [Text(f"{counts[name]:,}", style=state(name).style if counts[name] else "dim") for name in COUNTS]

    rows = [[kind, *cells(counts)] for kind, counts in kinds.items()]
    return table(("kind", *COUNTS), rows, right=COUNTS, empty="There are no jobs, and nobody here does any.")


def used_page(used: Document) -> RenderableType:
    def of(name: str) -> str:
        most = used[f"{name}_max"]
        return f"{used[name]:,}" + ("" if most is None else f" of {most:,}")

    return facts(
        [("kind", used["kind"]), ("user", used["user"]), ("jobs today (UTC)", of("jobs")), ("bytes today", of("bytes"))]
    )


def hosts_table(hosts: Sequence[Document]) -> RenderableType:
    rows = [
        (
            host["host"],
            plain(host["state"], _HOST_STYLES.get(str(host["state"]), "")),
            age(host["since"]),
            None if host["retry_s"] is None else f"{host['retry_s']:.0f} s",
            host["why"],
        )
        for host in hosts
    ]
    columns = ("host", "state", "since", "tried in", "why")
    return table(columns, rows, empty="No job of this node has talked to an outside host yet.")


def _percent(progress: object) -> str | None:
    return f"{int(progress * 100 + 1e-9)} %" if isinstance(progress, int | float) else None


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _chat(notice: object) -> str | None:
    if not isinstance(notice, dict):
        return None
    by = f" by bot {notice['bot_id']}" if notice.get("bot_id") else ""
    return f"{notice['chat_id']}{by}"
