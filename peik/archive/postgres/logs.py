"""Peik's own log in the PostgreSQL archive. Each function is a piece of work on an asking."""

from collections.abc import Sequence
from typing import Any

import msgspec

from peik.archive.postgres.connection import PACKAGE, ArchiveSession
from peik.archive.rules import cursor_of, digest_of, folded, levels_from, read_row
from peik.archive.sql import LOG, filled, load, log_of
from peik.archive.store import ArchiveRetention, LogFilter, LogLine

_SQL = load(PACKAGE, "queries.sql")
_COLUMNS = ", ".join(LOG)


async def keep(asking: ArchiveSession, lines: Sequence[LogLine]) -> None:
    if not lines:
        return
    rows = [(digest_of(line), *msgspec.structs.astuple(line), folded(f"{line.event}\n{line.fields}")) for line in lines]
    await asking.rows(_SQL["add_logs"], *zip(*rows, strict=True))


async def find(
    asking: ArchiveSession, wanted: LogFilter, cursor: str | None, limit: int
) -> tuple[list[LogLine], str | None]:
    named: dict[str, Any] = {"limit": limit + 1}
    parts: list[str] = []
    for name in ("event", "session_id", "bot_id", "since_ms", "until_ms"):
        value = getattr(wanted, name)
        if value is not None:
            named[name] = value
            parts.append(_SQL[f"logs_{name}"])
    if wanted.level is not None:
        parts.append(_SQL[f"logs_from_{levels_from(wanted.level)[0]}"])
    if wanted.text is not None:
        named["text"] = folded(wanted.text)
        parts.append(_SQL["logs_text"])
    if cursor is not None:
        parts.append(_SQL["logs_before"])
        named["cursor_ms"], named["cursor_id"] = read_row(cursor)
    query = filled(_SQL["logs"], where=" ".join(parts), log_columns=_COLUMNS)
    rows = await asking.rows(query, **named)
    found = [log_of(list(row)[1:]) for row in rows[:limit]]
    following = cursor_of(found[-1].at_ms, rows[limit - 1][0]) if len(rows) > limit else None
    return found, following


async def drop(asking: ArchiveSession, lines: Sequence[LogLine]) -> int:
    return await asking.run(_SQL["drop_logs"], digests=[digest_of(line) for line in lines])


async def clean(asking: ArchiveSession, retention: ArchiveRetention, at_ms: int, limit: int) -> int:
    if retention.logs_ms is None:
        return 0
    return await asking.run(_SQL["remove_old_logs"], before_ms=at_ms - retention.logs_ms, limit=limit)
