"""The end of a broadcast before its time: who still waits is cancelled, and in a recall, what was sent is deleted."""

from collections.abc import Sequence

from msgspec.structs import replace

from peik.broadcasts.book import Book
from peik.broadcasts.ends import arrived
from peik.broadcasts.gathering import UNRECALLED
from peik.broadcasts.handing import Handing
from peik.broadcasts.pen import Pen
from peik.broadcasts.ports import Letters
from peik.broadcasts.records import Broadcast, Entry, Recipient
from peik.clock import Clock
from peik.core.broadcast import Phase, RecipientState, Step, window_size
from peik.core.letter import State
from peik.ports import LetterView

PAGE = 1000
_FAILED = (RecipientState.FAILED, RecipientState.BLOCKED)
DELETABLE_MS = 48 * 3_600_000  # Telegram deletes a bot's messages only for so long


class Ending:
    def __init__(self, *, book: Book, pen: Pen, handing: Handing, letters: Letters, clock: Clock) -> None:
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
            await self._pen.move(seen, Step.END, reason=seen.reason)
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
            await self._pen.move(seen, Step.END)
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
        entries: list[Entry] = []
        next_number = seen.recall_next if page else seen.total + 1
        for number, line in page:
            if line.state is RecipientState.DELIVERED:
                is_deletable = self._is_deletable(line)
                if late if is_deletable else entries:
                    break
                if is_deletable:
                    entries.append(Entry(number, line.recall_round))
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
