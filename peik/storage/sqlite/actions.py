"""What people do to letters in the SQLite store: cancel, retry, resolve, clear; lanes and chats. Lists are in `search`."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import apsw
import msgspec

from peik.core.letter import Chat, LaneKey, Letter, State
from peik.core.lifecycle import EXPIRED
from peik.outbox.store import ChatRecord, LaneView, LetterFilter, LetterView, Retention, Stub
from peik.storage import rules
from peik.storage.rules import (
    Changed,
    ChangePlan,
    changed,
    line_of,
    must_be_as_seen,
    must_be_changeable,
    must_be_open,
    must_be_untried,
    planned,
    revised_line,
)
from peik.storage.sqlite import reads
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.rows import PHASE_APART, PHASE_IN_LANE, PHASE_OF, TALLY_COLUMNS, chat_from_row, letter_from_row
from peik.storage.sqlite.statements import Row, Value, load, run_many

_SQL = load("sqlite_people.sql")
_MAIN = load("sqlite.sql")


def cancel(batch: SqliteBatch, letter_id: int, at_ms: int, *, is_untried: bool) -> Stub:
    """Take a letter back. Raises Conflict if it is in flight or has ended."""
    view = known_view(batch, letter_id, at_ms)
    (must_be_untried if is_untried else must_be_open)(view)
    phase = phase_of(batch, letter_id)
    batch.connection.execute(_SQL["cancel"], {"id": letter_id, "at": at_ms})
    batch.count(view.bot_id, phase, PHASE_OF[State.CANCELLED])
    batch.free_blobs([(letter_id,)])
    batch.release([letter_id])
    return Stub(letter_id=letter_id, bot_id=view.bot_id, lane=(view.chat, view.thread))


def retry(batch: SqliteBatch, letter_id: int, at_ms: int) -> list[Letter]:
    """Send a dead letter again. Raises Conflict if it is not dead."""
    view = known_view(batch, letter_id, at_ms)
    rules.must_be_dead(view)
    return _revive(batch, [(letter_id, view.bot_id)], at_ms)


def resolve(batch: SqliteBatch, letter_id: int, at_ms: int, *, arrived: bool) -> list[Letter]:
    """What a person saw of an uncertain letter: it arrived, or it is to be sent again."""
    view = known_view(batch, letter_id, at_ms)
    rules.must_be_uncertain(view)
    if not arrived:
        return _revive(batch, [(letter_id, view.bot_id)], at_ms)
    line = rules.arrived_line(at_ms)
    batch.connection.execute(_SQL["resolve"], {"id": letter_id, "at": at_ms, "line": line})
    batch.count(view.bot_id, PHASE_OF[State.FAILED], PHASE_OF[State.COMPLETED])
    batch.free_blobs([(letter_id,)])
    return []


def retry_dead(batch: SqliteBatch, wanted: LetterFilter, at_ms: int, limit: int) -> list[Letter]:
    return _revive(batch, _dead(batch, wanted, at_ms, limit), at_ms)


def clear_dead(batch: SqliteBatch, wanted: LetterFilter, at_ms: int, limit: int) -> int:
    """Dead letters go into the message log, their files are freed."""
    found = _dead(batch, wanted, at_ms, limit)
    ids: list[Row] = [(letter_id,) for letter_id, _ in found]
    if ids:
        batch.free_blobs(ids)
        for name in ("log_letters", "drop_results", "drop_letters"):
            run_many(batch.connection, _MAIN[name], ids)
        for _, bot_id in found:
            batch.uncount(bot_id, TALLY_COLUMNS[PHASE_OF[State.FAILED]])
    return len(ids)


def _dead(batch: SqliteBatch, wanted: LetterFilter, at_ms: int, limit: int) -> list[tuple[int, int]]:
    where, bound = rules.where(wanted, at_ms, reads.DIALECT)
    rows = batch.connection.execute(_SQL["find_dead"].replace("{where}", where), bound | {"limit": limit})
    return [(row[0], row[1]) for row in rows]


def _revive(batch: SqliteBatch, dead: Sequence[tuple[int, int]], at_ms: int) -> list[Letter]:
    per_bot: dict[int, list[int]] = defaultdict(list)
    for letter_id, bot_id in dead:
        per_bot[bot_id].append(letter_id)
    line = rules.retry_line(at_ms)
    rows: list[Row] = []
    for bot_id, letter_ids in per_bot.items():
        count = len(letter_ids)
        ((_, after),) = run_many(batch.connection, _MAIN["number"], [(bot_id, count, 0, 0)])
        assert isinstance(after, int)
        rows.extend((letter_id, number, line) for number, letter_id in enumerate(letter_ids, start=after - count))
        batch.count(bot_id, PHASE_OF[State.FAILED], PHASE_IN_LANE, count)
    if not rows:
        return []
    run_many(batch.connection, _SQL["revive"], rows)
    revived = run_many(batch.connection, reads.LETTERS, [(row[0],) for row in rows])
    return [letter_from_row(row) for row in revived]


def lanes(connection: apsw.Connection, bot_id: int, chat: Chat | None, *, limit: int, most: int) -> list[LaneView]:
    bound = {"bot": bot_id, "chat": chat, "limit": limit, "most": most}
    rows = connection.execute(_SQL["lanes"], bound)
    return [LaneView(bot_id=bot_id, chat=row[0], thread=row[1], head=row[2], waiting=row[3]) for row in rows]


def head_of(connection: apsw.Connection, bot_id: int, lane: LaneKey) -> int | None:
    bound: dict[str, Value] = {"bot": bot_id, "chat": lane[0], "thread": lane[1]}
    return reads.number(connection, _SQL["ahead"], bound) or None


def known_chats(connection: apsw.Connection, bot_id: int, after: Chat | None, limit: int) -> list[ChatRecord]:
    rows = connection.execute(_SQL["known_chats"], {"bot": bot_id, "after": after, "limit": limit})
    return [chat_from_row(bot_id, row) for row in rows]


def known_view(batch: SqliteBatch, letter_id: int, at_ms: int) -> LetterView:
    return rules.must_be_known(reads.view(batch.connection, letter_id, at_ms), letter_id)


def phase_of(batch: SqliteBatch, letter_id: int) -> int:
    for _, _, phase in run_many(batch.connection, _MAIN["phases"], [(letter_id,)]):
        assert isinstance(phase, int)
        return phase
    return PHASE_APART


# What people change of letters that still wait in the SQLite store: take many back, give one another priority or
# time.


def cancel_many(batch: SqliteBatch, letter_ids: Sequence[int], at_ms: int) -> list[LetterView]:
    """Take back those of these letters that still wait and are not in flight. Which they were."""
    ids: list[Row] = [(letter_id,) for letter_id in letter_ids]
    stood = {row[0]: (row[1], row[2]) for row in run_many(batch.connection, _MAIN["phases"], ids)} if ids else {}
    rows: list[Row] = [(letter_id, at_ms) for letter_id in stood]
    cancelled = [row[0] for row in run_many(batch.connection, _SQL["cancel_many"], rows)] if rows else []
    if not cancelled:
        return []
    for (bot_id, phase), letters in Counter(stood[letter_id] for letter_id in cancelled).items():
        assert isinstance(bot_id, int)
        assert isinstance(phase, int)
        batch.count(bot_id, phase, PHASE_OF[State.CANCELLED], letters)
    ended = [letter_id for letter_id in cancelled if isinstance(letter_id, int)]
    batch.free_blobs([(letter_id,) for letter_id in ended])
    batch.release(ended)
    return reads.views(batch.connection, ended, at_ms)


def change(batch: SqliteBatch, letter_id: int, *, rank: int | None, due_at_ms: int | None, at_ms: int) -> Changed:
    """Raises NotFound, or Conflict if the letter is in flight or has ended."""
    view = known_view(batch, letter_id, at_ms)
    must_be_changeable(view)
    phase = phase_of(batch, letter_id)
    plan = planned(phase=phase, was_due_at_ms=view.due_at_ms, due_at_ms=due_at_ms, at_ms=at_ms)
    number = None
    if plan.joins:
        ((_, after),) = run_many(batch.connection, _MAIN["number"], [(view.bot_id, 1, 0, 0)])
        assert isinstance(after, int)
        number = after - 1
    batch.connection.execute(
        _SQL["change"],
        {
            "id": letter_id,
            "bot": view.bot_id,
            "chat": view.chat,
            "rank": rank,
            "phase": plan.phase,
            "due_at": plan.due_at_ms,
            "number": number,
            "line": line_of(rank=rank, due_at_ms=due_at_ms, at_ms=at_ms),
        },
    )
    batch.count(view.bot_id, phase, plan.phase)
    came = None
    if plan.joins:
        (row,) = run_many(batch.connection, reads.LETTERS, [(letter_id,)])
        came = letter_from_row(row)
    return changed(view, plan, phase=phase, came=came)


def revise(batch: SqliteBatch, letter_id: int, *, params: str, seen: int, at_ms: int) -> Changed:
    """Raises NotFound, or Conflict if the letter is not as it was seen, or was tried."""
    view = known_view(batch, letter_id, at_ms)
    must_be_as_seen(view, seen)
    bound: dict[str, Value] = {"id": letter_id, "params": params, "line": revised_line(at_ms)}
    batch.connection.execute(_SQL["revise"], bound)
    phase = phase_of(batch, letter_id)
    return changed(view, ChangePlan(phase=phase, due_at_ms=view.due_at_ms), phase=phase)


# What time does to letters in the SQLite store: scheduled ones join, late ones expire, old ones go into the log.


def park(batch: SqliteBatch, letter: Letter) -> None:
    """Set a letter apart, unless the one that it refers to has ended meanwhile."""
    before = batch.connection.total_changes()
    batch.connection.execute(_MAIN["park"], {"letter": letter.id, "awaits": letter.awaits})
    if batch.connection.total_changes() > before:
        batch.count(letter.bot_id, PHASE_IN_LANE, PHASE_APART)


def join_due(batch: SqliteBatch, at_ms: int, limit: int) -> tuple[list[Letter], int | None]:
    """Scheduled letters whose time has come take the next numbers of their bots' orders."""
    per_bot: dict[int, list[int]] = defaultdict(list)
    for letter_id, bot_id in batch.connection.execute(_MAIN["due"], (at_ms, limit)):
        per_bot[bot_id].append(letter_id)
    rows: list[Row] = []
    for bot_id, letter_ids in per_bot.items():
        count = len(letter_ids)
        ((_, after),) = run_many(batch.connection, _MAIN["number"], [(bot_id, count, count, -count)])
        assert isinstance(after, int)
        rows.extend((letter_id, number) for number, letter_id in enumerate(letter_ids, start=after - count))
    if rows:
        run_many(batch.connection, _MAIN["join"], rows)
    joined = [letter_from_row(row) for row in run_many(batch.connection, reads.LETTERS, [(row[0],) for row in rows])]
    return joined, reads.number(batch.connection, _MAIN["next_due"]) or None


def expire(batch: SqliteBatch, at_ms: int, limit: int) -> tuple[list[LetterView], int | None]:
    """Letters that are too late and not in flight fail."""
    ids: list[int] = [row[0] for row in batch.connection.execute(_MAIN["expired"], (at_ms, limit))]
    line = rules.expiry_line(at_ms)
    if ids:
        rows: list[Row] = [(letter_id, PHASE_OF[State.FAILED], at_ms, EXPIRED, line) for letter_id in ids]
        batch.end_untried(rows)
    views = [view for letter_id in ids if (view := reads.view(batch.connection, letter_id, at_ms)) is not None]
    return views, reads.number(batch.connection, _MAIN["next_expiry"]) or None


def clean(batch: SqliteBatch, retention: Retention, at_ms: int, limit: int) -> tuple[int, list[str]]:
    """Ended letters whose time is over leave a line in the message log; the log's own tail is cut."""
    bound = (at_ms - retention.completed_ms, limit, at_ms - retention.dead_ms, limit)
    old = list(batch.connection.execute(_MAIN["old_letters"], bound))
    ids: list[Row] = [(row[0],) for row in old]
    blobs = [one["blob"] for row in old if row[3] is not None for one in msgspec.json.decode(row[3])]
    if ids:
        for name in ("log_letters", "drop_results", "drop_letters"):
            run_many(batch.connection, _MAIN[name], ids)
        for _, bot_id, phase, _ in old:
            batch.uncount(bot_id, TALLY_COLUMNS[phase])
    before = batch.connection.total_changes()
    batch.connection.execute(_MAIN["clean_log"], (at_ms - retention.log_ms, limit))
    batch.connection.execute(_MAIN["clean_keys"], (at_ms, limit))
    return len(ids) + batch.connection.total_changes() - before, blobs
