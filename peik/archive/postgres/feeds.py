"""Feeds of the PostgreSQL archive and the places of their readers. Each function is a piece of work on an asking.

Whoever adds lines to a feed or takes some away locks its end first, and looks at its lines only in a later statement: that one
sees what everybody has committed who held the lock before.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from peik.archive.postgres.connection import PACKAGE, ArchiveSession
from peik.archive.rules import cursor_of, digest_of, folded, is_end, levels_from, read_row
from peik.archive.sql import FEED, LOG, filled, line_of, load, log_of
from peik.archive.store import ArchiveRetention, Fed, FeedRecord, LogFilter, LogLine, ReaderPlace

_SQL = load(PACKAGE, "queries.sql")
_FED = filled(_SQL["fed"], line_columns=", ".join(FEED))
_LOCK_OLD = filled(_SQL["lock_ends"], which=_SQL["with_old_lines"])
_LOCK_OF_PERSON = filled(_SQL["lock_ends"], which=_SQL["with_lines_of"])

# ---- lines ----


async def feed(asking: ArchiveSession, lines: Sequence[FeedRecord]) -> int:
    """Lines of one session, each key once."""
    if not lines:
        return 0
    session_id = lines[0].session_id
    if await asking.value(_SQL["lock_end"], session_id=session_id) is None:
        await asking.run(_SQL["begin_feed"], session_id=session_id)
        await asking.value(_SQL["lock_end"], session_id=session_id)
    columns = zip(
        *((one.agent_id, one.key, one.kind, one.chat_id, one.user_id, one.body, one.at_ms) for one in lines),
        strict=True,
    )
    rows = await asking.rows(_SQL["add_lines"], session_id, *columns)
    return int(rows[0][0])


async def fed(asking: ArchiveSession, session_id: str, after: int, limit: int) -> list[FeedRecord]:
    return [line_of(row) for row in await asking.rows(_FED, session_id=session_id, after=after, limit=limit)]


async def fed_to(asking: ArchiveSession, session_ids: Sequence[str] | None) -> dict[str, Fed]:
    query = _SQL["fed_to" if session_ids is None else "fed_to_of_some"]
    rows = await asking.rows(query, session_ids=session_ids)
    return {session_id: Fed(first=first, last=last) for session_id, first, last in rows}


async def put_lines(asking: ArchiveSession, lines: Sequence[FeedRecord]) -> None:
    """Under their own numbers, over what is here."""
    if not lines:
        return
    ends: dict[str, int] = {}
    for line in lines:
        ends[line.session_id] = max(line.number, ends.get(line.session_id, 0))
    await _raise_ends(asking, ends)
    await asking.rows(_SQL["put_lines"], *_columns(lines))
    await asking.run(_SQL["settle_firsts"], session_ids=list(ends))


async def _raise_ends(asking: ArchiveSession, ends: Mapping[str, int]) -> None:
    await asking.rows(_SQL["raise_ends"], *zip(*sorted(ends.items()), strict=True))


# ---- places ----


async def places(asking: ArchiveSession, reader: str) -> dict[str, int]:
    return {row[0]: row[1] for row in await asking.rows(_SQL["places"], reader=reader)}


async def save_places(asking: ArchiveSession, reader: str, found: Mapping[str, int], at_ms: int) -> None:
    if found:
        session_ids, numbers = zip(*sorted(found.items()), strict=True)
        await asking.run(_SQL["save_places"], reader=reader, session_ids=session_ids, numbers=numbers, at_ms=at_ms)


async def remove_reader(asking: ArchiveSession, reader: str) -> bool:
    return await asking.run(_SQL["remove_reader"], reader=reader) > 0


async def put_places(asking: ArchiveSession, found: Sequence[ReaderPlace]) -> None:
    of_readers = [place for place in found if not is_end(place)]
    if of_readers:
        await asking.rows(_SQL["put_places"], *_columns(of_readers))
    ends = {place.session_id: place.number for place in found if is_end(place)}
    if ends:
        await _raise_ends(asking, ends)
        await asking.run(_SQL["settle_firsts"], session_ids=list(ends))


# ---- letting go ----


async def clean(asking: ArchiveSession, retention: ArchiveRetention, at_ms: int, limit: int) -> int:
    """How many lines went; places are not counted."""
    if retention.feed_ms is None:
        return 0
    asked = {"before_ms": at_ms - retention.feed_ms, "limit": limit}
    await asking.run(_SQL["remove_old_places"], **asked)
    return await _remove(asking, _LOCK_OLD, "remove_old_lines", asked)


async def forget_person(asking: ArchiveSession, user_id: int) -> int:
    return await _remove(asking, _LOCK_OF_PERSON, "forget_lines", {"user_id": user_id})


async def _remove(asking: ArchiveSession, lock: str, query: str, asked: Mapping[str, Any]) -> int:
    """Only from feeds whose ends were locked."""
    session_ids = [row[0] for row in await asking.rows(lock, **asked)]
    if not session_ids:
        return 0
    gone = await asking.run(_SQL[query], **asked, session_ids=session_ids)
    await asking.run(_SQL["settle_firsts"], session_ids=session_ids)
    return gone


def _columns(records: Sequence[FeedRecord] | Sequence[ReaderPlace]) -> "zip[tuple[Any, ...]]":
    return zip(*map(msgspec.structs.astuple, records), strict=True)


# Peik's own log in the PostgreSQL archive. Each function is a piece of work on an asking.


_COLUMNS = ", ".join(LOG)


async def keep_logs(asking: ArchiveSession, lines: Sequence[LogLine]) -> None:
    if not lines:
        return
    rows = [(digest_of(line), *msgspec.structs.astuple(line), folded(f"{line.event}\n{line.fields}")) for line in lines]
    await asking.rows(_SQL["add_logs"], *zip(*rows, strict=True))


async def find_logs(
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


async def drop_logs(asking: ArchiveSession, lines: Sequence[LogLine]) -> int:
    return await asking.run(_SQL["drop_logs"], digests=[digest_of(line) for line in lines])


async def clean_logs(asking: ArchiveSession, retention: ArchiveRetention, at_ms: int, limit: int) -> int:
    if retention.logs_ms is None:
        return 0
    return await asking.run(_SQL["remove_old_logs"], before_ms=at_ms - retention.logs_ms, limit=limit)
