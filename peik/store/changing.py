"""What people change of letters that still wait in the SQLite store: take many back, give one another priority or time."""

from collections import Counter
from collections.abc import Sequence

from peik.core.letter import State
from peik.ports import LetterView
from peik.store import looking, reading
from peik.store.change_rules import Changed, changed, line_of, must_be_changeable, planned
from peik.store.commit import Batch
from peik.store.people import known_view, phase_of
from peik.store.rows import PHASE_OF, letter_from_row
from peik.store.statements import Row, load, run_many

_SQL = load("sqlite_people.sql")
_MAIN = load("sqlite.sql")


def cancel_many(batch: Batch, letter_ids: Sequence[int], at_ms: int) -> list[LetterView]:
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
    return looking.views(batch.connection, ended, at_ms)


def change(batch: Batch, letter_id: int, *, rank: int | None, due_at_ms: int | None, at_ms: int) -> Changed:
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
        (row,) = run_many(batch.connection, reading.LETTERS, [(letter_id,)])
        came = letter_from_row(row)
    return changed(view, plan, phase=phase, came=came)
