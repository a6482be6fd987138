"""What time does to letters in the SQLite store: scheduled ones join, late ones expire, old ones go into the log."""

from collections import defaultdict

import msgspec

from peik.core.letter import Letter, State
from peik.core.lifecycle import EXPIRED, Move, Try
from peik.ports import LetterView, Retention
from peik.store import reading
from peik.store.commit import Batch
from peik.store.rows import PHASE_APART, PHASE_IN_LANE, PHASE_OF, TALLY_COLUMNS, letter_from_row
from peik.store.statements import Row, load, run_many

_SQL = load("sqlite.sql")


def park(batch: Batch, letter: Letter) -> None:
    """Set a letter apart, unless the one that it refers to has ended in the meantime."""
    before = batch.connection.total_changes()
    batch.connection.execute(_SQL["park"], {"letter": letter.id})
    if batch.connection.total_changes() > before:
        batch.count(letter.bot_id, PHASE_IN_LANE, PHASE_APART)


def join_due(batch: Batch, at_ms: int, limit: int) -> tuple[list[Letter], int | None]:
    """Scheduled letters whose time has come take the next numbers of their bots' orders."""
    per_bot: dict[int, list[int]] = defaultdict(list)
    for letter_id, bot_id in batch.connection.execute(_SQL["due"], (at_ms, limit)):
        per_bot[bot_id].append(letter_id)
    rows: list[Row] = []
    for bot_id, letter_ids in per_bot.items():
        count = len(letter_ids)
        ((_, after),) = run_many(batch.connection, _SQL["number"], [(bot_id, count, count, -count)])
        assert isinstance(after, int)
        rows.extend((letter_id, number) for number, letter_id in enumerate(letter_ids, start=after - count))
    if rows:
        run_many(batch.connection, _SQL["join"], rows)
    joined = [letter_from_row(row) for row in run_many(batch.connection, reading.LETTERS, [(row[0],) for row in rows])]
    return joined, reading.number(batch.connection, _SQL["next_due"]) or None


def expire(batch: Batch, at_ms: int, limit: int) -> tuple[list[LetterView], int | None]:
    """Letters that are too late and not in flight fail."""
    ids: list[int] = [row[0] for row in batch.connection.execute(_SQL["expired"], (at_ms, limit))]
    line = msgspec.json.encode(Try(at=at_ms, outcome=str(Move.EXPIRE), words=EXPIRED)).decode()
    if ids:
        rows: list[Row] = [(letter_id, PHASE_OF[State.FAILED], at_ms, EXPIRED, line) for letter_id in ids]
        batch.end_untried(rows)
    views = [view for letter_id in ids if (view := reading.view(batch.connection, letter_id, at_ms)) is not None]
    return views, reading.number(batch.connection, _SQL["next_expiry"]) or None


def clean(batch: Batch, retention: Retention, at_ms: int, limit: int) -> tuple[int, list[str]]:
    """Ended letters whose time is over leave a line in the message log; the log's own tail is cut."""
    bound = (at_ms - retention.completed_ms, limit, at_ms - retention.dead_ms, limit)
    old = list(batch.connection.execute(_SQL["old_letters"], bound))
    ids: list[Row] = [(row[0],) for row in old]
    blobs = [one["blob"] for row in old if row[3] is not None for one in msgspec.json.decode(row[3])]
    if ids:
        for name in ("log_letters", "drop_results", "drop_letters"):
            run_many(batch.connection, _SQL[name], ids)
        for _, bot_id, phase, _ in old:
            batch.uncount(bot_id, TALLY_COLUMNS[phase])
    before = batch.connection.total_changes()
    batch.connection.execute(_SQL["clean_log"], (at_ms - retention.log_ms, limit))
    batch.connection.execute(_SQL["clean_keys"], (at_ms, limit))
    return len(ids) + batch.connection.total_changes() - before, blobs
