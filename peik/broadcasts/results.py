"""Looks what became of letters that were handed over, and takes back those that still wait when a broadcast halts."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from peik.broadcasts.dispatch import BroadcastDispatch
from peik.broadcasts.model import (
    Broadcast,
    BroadcastLettersPort,
    LedgerEntry,
    Open,
    Phase,
    PhaseStep,
    Recipient,
    RecipientState,
    window_size,
)
from peik.broadcasts.repository import BroadcastRepository, FencedUpdate
from peik.clock import Clock
from peik.core.catalogue import Scope, Verdict, look_up
from peik.core.letter import State
from peik.core.lifecycle import Move
from peik.errors import Conflict, NotFound
from peik.outbox.store import LetterView

# How a letter of a broadcast ended, as a line of its ledger.


WORDS_MAX = 500
LOST = "Its letter is no longer kept: what became of it is not known."


class _Line(msgspec.Struct):
    outcome: str
    code: int | None = None
    words: str | None = None


class _Sent(msgspec.Struct):
    message_id: int = 0


_read_history = msgspec.json.Decoder(list[_Line]).decode
_read_one = msgspec.json.Decoder(_Sent).decode
_read_many = msgspec.json.Decoder(list[_Sent]).decode


def ended(recipient: Recipient, view: LetterView | None, *, at_ms: int) -> Recipient:
    """A recipient whose letter has ended. None in its place: it is gone."""
    if view is None:
        return msgspec.structs.replace(recipient, state=RecipientState.FAILED, error=LOST, ended_at_ms=at_ms)
    match view.state:
        case State.COMPLETED:
            state, error = RecipientState.DELIVERED, None
        case State.CANCELLED:
            state, error = RecipientState.CANCELLED, None
        case _:
            state = RecipientState.BLOCKED if is_blocked(view) else RecipientState.FAILED
            error = (view.failed_reason or "")[:WORDS_MAX]
    return msgspec.structs.replace(
        recipient,
        state=state,
        error=error,
        messages=messages_of(view.result) if view.state is State.COMPLETED else (),
        uncertain_tries=recipient.uncertain_tries + view.uncertain_tries,
        ended_at_ms=view.settled_at_ms or at_ms,
    )


def arrived(recipient: Recipient, view: LetterView, *, at_ms: int) -> Recipient:
    """One that had failed, whose letter somebody sent again since, and it arrived."""
    return msgspec.structs.replace(
        recipient,
        state=RecipientState.DELIVERED,
        error=None,
        messages=messages_of(view.result),
        uncertain_tries=max(recipient.uncertain_tries, view.uncertain_tries),
        ended_at_ms=view.settled_at_ms or at_ms,
    )


def messages_of(result: str | None) -> tuple[int, ...]:
    """The ids of the messages that Telegram answered with, of one or of an album."""
    if result is None:
        return ()
    try:
        found = _read_many(result) if result.lstrip().startswith("[") else [_read_one(result)]
    except msgspec.DecodeError:
        return ()  # a method that makes no message answers True
    return tuple(one.message_id for one in found if one.message_id > 0)


def is_blocked(view: LetterView) -> bool:
    """Whether it failed because its chat cannot be reached at all."""
    lines = _read_history(view.history or "[]")
    if not lines:
        return False
    last = lines[-1]
    if last.outcome == Move.SHUT_OUT:
        return True
    if last.code is None:
        return False
    row = look_up(code=last.code, words=last.words or "", method=view.method)
    return row.verdict is Verdict.FINAL and row.scope is Scope.CHAT


UNRECALLED = "It could not be recalled: "
UNCERTAIN = "uncertain: it may have arrived"
_ENDING = (Phase.CANCELLING, Phase.RECALLING)


class BroadcastResults:
    def __init__(
        self, *, book: BroadcastRepository, pen: FencedUpdate, letters: BroadcastLettersPort, clock: Clock
    ) -> None:
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
        # What may have arrived is not taken back: it would go out again.
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
            LedgerEntry(one.number, line.recall_round if seen.recall_next else line.round)
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


# The end of a broadcast before its time: who still waits is cancelled, and in a recall, what was sent is deleted.


PAGE = 1000
_FAILED = (RecipientState.FAILED, RecipientState.BLOCKED)
DELETABLE_MS = 48 * 3_600_000  # Telegram deletes a bot's messages only for so long


class BroadcastEnding:
    def __init__(
        self,
        *,
        book: BroadcastRepository,
        pen: FencedUpdate,
        handing: BroadcastDispatch,
        letters: BroadcastLettersPort,
        clock: Clock,
    ) -> None:
        self._book = book
        self._pen = pen
        self._handing = handing
        self._letters = letters
        self._clock = clock

    async def go_on(self, seen: Broadcast) -> bool:
        """One step. Whether there is more to do at once. Raises Overtaken."""
        if seen.recall_next and seen.phase is Phase.RECALLING:
            return await self._recall(seen)
        if seen.open:
            return False  # they are in flight: their ends come
        if not seen.recall_next and (seen.again or seen.next <= seen.total):
            await self._cancel_waiting(seen)
            return True
        if seen.phase is Phase.RECALLING:
            await self._pen.write(seen, lambda old: replace(old, recall_next=1))
        else:
            await self._pen.move(seen, PhaseStep.END, reason=seen.reason)
        return True

    async def _cancel_waiting(self, seen: Broadcast) -> None:
        back = await self._book.those(seen.id, [entry.number for entry in seen.again])
        page = await self._book.lines(seen.id, first=seen.next, limit=PAGE)
        at_ms = self._clock.wall_ms()
        lines = [
            (number, replace(line, state=RecipientState.CANCELLED, ended_at_ms=at_ms))
            for number, line in [*back.items(), *page]
            if line.state is RecipientState.PENDING
        ]
        next_number = page[-1][0] + 1 if page else seen.total + 1

        def change(old: Broadcast) -> Broadcast:
            return replace(
                old, again=(), next=next_number, counts=old.counts.moved(RecipientState.CANCELLED, len(lines))
            )

        await self._pen.write(seen, change, lines)

    # ---- recall ----

    async def _recall(self, seen: Broadcast) -> bool:
        if seen.recall_next > seen.total and not seen.again and not seen.open:
            await self._pen.move(seen, PhaseStep.END)
            return True
        room = window_size(self._letters.per_s(seen.bot_id), 1) - len(seen.open)
        if room <= 0:
            return False
        if seen.again:
            await self._handing.hand(seen, seen.again[:room], next_number=seen.recall_next)
            return False
        page = await self._book.lines(seen.id, first=seen.recall_next, limit=room)
        if late := await self._sent_since(page):
            await self._count_as_delivered(seen, late)
            return True
        return await self._delete(seen, page)

    async def _sent_since(self, page: Sequence[tuple[int, Recipient]]) -> list[tuple[int, Recipient, LetterView]]:
        """Those who had got nothing, until somebody sent their dead letter again."""
        failed = [(number, line) for number, line in page if line.state in _FAILED and line.letter_id is not None]
        if not failed:
            return []
        views = await self._letters.those([line.letter_id for _, line in failed if line.letter_id is not None])
        return [
            (number, line, view)
            for number, line in failed
            if (view := views.get(line.letter_id or 0)) is not None and view.state is State.COMPLETED
        ]

    async def _count_as_delivered(self, seen: Broadcast, late: Sequence[tuple[int, Recipient, LetterView]]) -> None:
        def change(old: Broadcast) -> Broadcast:
            counts = old.counts.moved(RecipientState.DELIVERED, len(late))
            for _, line, _ in late:
                counts = counts.moved(line.state, -1)
            return replace(old, counts=counts)

        at_ms = self._clock.wall_ms()
        await self._pen.write(seen, change, [(number, arrived(line, view, at_ms=at_ms)) for number, line, view in late])

    async def _delete(self, seen: Broadcast, page: Sequence[tuple[int, Recipient]]) -> bool:
        """Of a page the first few: either such as can be deleted, or such as cannot."""
        late: list[tuple[int, Recipient]] = []
        entries: list[LedgerEntry] = []
        next_number = seen.recall_next if page else seen.total + 1
        for number, line in page:
            if line.state is RecipientState.DELIVERED:
                is_deletable = self._is_deletable(line)
                if late if is_deletable else entries:
                    break
                if is_deletable:
                    entries.append(LedgerEntry(number, line.recall_round))
                else:
                    late.append((number, _kept(line)))
            next_number = number + 1
        if entries:
            await self._handing.hand(seen, entries, next_number=next_number)
            return bool(len(page) > len(entries))
        await self._pen.write(
            seen, lambda old: replace(old, recall_next=next_number, unrecalled=old.unrecalled + len(late)), late
        )
        return True

    def _is_deletable(self, line: Recipient) -> bool:
        sent_at_ms = line.queued_at_ms if line.ended_at_ms is None else line.ended_at_ms
        return bool(line.messages) and self._clock.wall_ms() - (sent_at_ms or 0) < DELETABLE_MS


def _kept(line: Recipient) -> Recipient:
    why = "Telegram deletes only what is younger than 48 hours." if line.messages else "no message of it is known."
    return replace(line, error=f"{UNRECALLED}{why}")
