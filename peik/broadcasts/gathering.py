"""Looks what became of letters that were handed over, and takes back those that still wait when a broadcast halts."""

import asyncio
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from peik.broadcasts.book import Book
from peik.broadcasts.ends import ended
from peik.broadcasts.pen import Pen
from peik.broadcasts.ports import Letters
from peik.broadcasts.records import Broadcast, Entry, Open, Recipient
from peik.clock import Clock
from peik.core.broadcast import Phase, RecipientState
from peik.core.letter import State
from peik.errors import Conflict, NotFound
from peik.ports import LetterView

UNRECALLED = "It could not be recalled: "
UNCERTAIN = "uncertain: it may have arrived"
_ENDING = (Phase.CANCELLING, Phase.RECALLING)


class Gathering:
    def __init__(self, *, book: Book, pen: Pen, letters: Letters, clock: Clock) -> None:
        self._book = book
        self._pen = pen
        self._letters = letters
        self._clock = clock

    async def look(self, seen: Broadcast) -> Broadcast:
        """Write down who has an end. If it halts, take back first what can be. Raises Overtaken."""
        views = await self._letters.those([one.letter_id for one in seen.open]) if seen.open else {}
        if seen.is_withdrawing:
            views = await self._take_back(seen, views)
        over = [one for one in seen.open if one.letter_id not in views or views[one.letter_id].state.is_final]
        ids = {one.letter_id for one in over}
        left = [views[one.letter_id] for one in seen.open if one.letter_id not in ids]
        # What may have arrived is not taken back: it would go out anew.
        is_withdrawing = seen.is_withdrawing and any(_may_be_taken_back(seen, view) for view in left)
        if not over and is_withdrawing is seen.is_withdrawing:
            return seen
        rows = await self._book.those(seen.id, [one.number for one in over])
        return await self._write_down(seen, over, rows, views, is_withdrawing=is_withdrawing)

    async def _take_back(self, seen: Broadcast, views: Mapping[int, LetterView]) -> dict[int, LetterView]:
        waiting = [
            view
            for view in views.values()
            if view.state in (State.WAITING, State.DELAYED) and _may_be_taken_back(seen, view)
        ]
        taken = await asyncio.gather(*(self._cancel(view) for view in waiting))
        return {**views, **{view.id: view for view in taken}}

    async def _cancel(self, view: LetterView) -> LetterView:
        try:
            return await self._letters.cancel(view.id)
        except (Conflict, NotFound):
            return replace(view, state=State.ACTIVE)  # it left, or ended, a moment ago: the next look tells

    async def _write_down(
        self,
        seen: Broadcast,
        over: Sequence[Open],
        rows: Mapping[int, Recipient],
        views: Mapping[int, LetterView],
        *,
        is_withdrawing: bool,
    ) -> Broadcast:
        at_ms = self._clock.wall_ms()
        judge = _deleted if seen.recall_next else _sent
        judged = {one: judge(seen, rows[one.number], views.get(one.letter_id), at_ms) for one in over}
        lines = [(one.number, line) for one, line in judged.items()]
        again = tuple(
            Entry(one.number, line.recall_round if seen.recall_next else line.round)
            for one, line in judged.items()
            if _is_again(seen, one, line)
        )

        def change(old: Broadcast) -> Broadcast:
            counts, unrecalled = old.counts, old.unrecalled
            for one, line in judged.items():
                if seen.recall_next and line.state is RecipientState.RECALLED:
                    counts = counts.moved(RecipientState.DELIVERED, -1).moved(RecipientState.RECALLED)
                elif seen.recall_next:
                    unrecalled += not _is_round(line, one)
                elif line.state is not RecipientState.PENDING:
                    counts = counts.moved(line.state)
            return replace(
                old,
                open=tuple(one for one in old.open if one not in judged),
                again=old.again + again,
                counts=counts,
                unrecalled=unrecalled,
                # If it was not halted when we looked, it may be since: halted, and let go again.
                is_withdrawing=is_withdrawing if seen.is_withdrawing else old.is_withdrawing,
            )

        return await self._pen.write(seen, change, lines)


def _may_be_taken_back(seen: Broadcast, view: LetterView) -> bool:
    return view.uncertain_tries == 0 or seen.phase in _ENDING


def _sent(seen: Broadcast, row: Recipient, view: LetterView | None, at_ms: int) -> Recipient:
    line = ended(row, view, at_ms=at_ms)
    if line.state is not RecipientState.CANCELLED or not seen.is_withdrawing or seen.phase in _ENDING:
        return line
    if view is not None and view.uncertain_tries:
        return replace(line, state=RecipientState.FAILED, error=UNCERTAIN)
    return replace(row, state=RecipientState.PENDING, round=row.round + 1, letter_id=None, queued_at_ms=None)


def _deleted(seen: Broadcast, row: Recipient, view: LetterView | None, at_ms: int) -> Recipient:
    """A recipient after the letter that was to delete what it was sent."""
    if view is not None and view.state is State.COMPLETED:
        return replace(row, state=RecipientState.RECALLED, error=None, ended_at_ms=view.settled_at_ms or at_ms)
    if view is not None and view.state is State.CANCELLED and seen.is_withdrawing:
        return replace(row, recall_round=row.recall_round + 1, recall_letter_id=None)
    why = "its letter is gone" if view is None else (view.failed_reason or "somebody cancelled it")
    return replace(row, error=f"{UNRECALLED}{why}")


def _is_round(line: Recipient, one: Open) -> bool:
    """Whether its deletion was taken back, to be tried in another round."""
    return line.recall_round > one.round


def _is_again(seen: Broadcast, one: Open, line: Recipient) -> bool:
    if seen.recall_next:
        return _is_round(line, one) and seen.phase is not Phase.CANCELLING
    return line.state is RecipientState.PENDING
