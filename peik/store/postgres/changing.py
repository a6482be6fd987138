"""What people change of letters that still wait in the PostgreSQL store: take many back, give one another priority or time."""

from collections import Counter
from collections.abc import Sequence

from peik.core.letter import State
from peik.ports import LetterView
from peik.store.change_rules import Changed, changed, line_of, must_be_changeable, planned
from peik.store.postgres import chats, looking, people, reading
from peik.store.postgres.commit import Batch
from peik.store.postgres.queries import load
from peik.store.rows import PHASE_OF

_SQL = load("people.sql")
_LETTERS = load("letters.sql")


async def cancel_many(batch: Batch, letter_ids: Sequence[int], at_ms: int) -> list[LetterView]:
    """Take back those of these letters that still wait and are not in flight. Which they were."""
    await batch.lock(row[0] for row in await batch.session.rows(_SQL["bots_of"], letters=letter_ids))
    rows = await batch.session.returned(_SQL["cancel_many"], letters=letter_ids, at=at_ms)
    ended = [row[0] for row in rows]
    if not ended:
        return []
    for (bot_id, phase), letters in Counter((row[1], row[2]) for row in rows).items():
        batch.count(bot_id, phase, PHASE_OF[State.CANCELLED], letters)
    for bot_id in sorted({row[1] for row in rows}):
        batch.telling.lanes(bot_id)
        batch.telling.ended(bot_id, [row[0] for row in rows if row[1] == bot_id])
    await batch.free_blobs(ended)
    await batch.release(ended)
    return await looking.views(batch.session, ended, at_ms)


async def change(batch: Batch, letter_id: int, *, rank: int | None, due_at_ms: int | None, at_ms: int) -> Changed:
    """Raises NotFound, or Conflict if the letter is in flight or has ended."""
    view = await people.locked_view(batch, letter_id, at_ms)
    must_be_changeable(view)
    phase = await batch.session.number(_LETTERS["phase_of"], letter=letter_id)
    plan = planned(phase=phase, was_due_at_ms=view.due_at_ms, due_at_ms=due_at_ms, at_ms=at_ms)
    number = (await people.number_anew(batch, {view.bot_id: [letter_id]}))[letter_id] if plan.joins else None
    await batch.session.run(
        _SQL["change"],
        letter=letter_id,
        bot=view.bot_id,
        chat=chats.encode(view.chat),
        rank=rank,
        phase=plan.phase,
        due_at=plan.due_at_ms,
        number=number,
        line=line_of(rank=rank, due_at_ms=due_at_ms, at_ms=at_ms),
    )
    batch.count(view.bot_id, phase, plan.phase)
    batch.telling.lanes(view.bot_id)
    batch.telling.due(due_at_ms or None)
    came = (await reading.letters_by_id(batch.session, [letter_id]))[0] if plan.joins else None
    return changed(view, plan, phase=phase, came=came)
