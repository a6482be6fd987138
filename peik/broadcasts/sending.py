"""One step of a broadcast that sends: look at ends, mind quiet hours, the first slice and the cap, and hand over what fits."""

from msgspec.structs import replace

from peik.broadcasts.book import Book
from peik.broadcasts.handing import Handing
from peik.broadcasts.pen import Pen
from peik.broadcasts.ports import Letters
from peik.broadcasts.records import Broadcast, Entry
from peik.clock import Clock
from peik.core.broadcast import Phase, RecipientState, Step, is_too_bad, may_still_cost, slice_size, window_size
from peik.core.quiet import quiet_until
from peik.zones import zone_of


class Sending:
    def __init__(self, *, book: Book, pen: Pen, handing: Handing, letters: Letters, clock: Clock) -> None:
        self._book = book
        self._pen = pen
        self._handing = handing
        self._letters = letters
        self._clock = clock

    async def go_on(self, seen: Broadcast) -> bool:
        """Whether there is more to do at once. Raises Overtaken."""
        hush_ms = None if seen.quiet is None else quiet_until(self._clock.wall_ms(), seen.quiet, zone_of(seen.quiet.tz))
        if _is_done(seen):
            await self._pen.move(seen, Step.GO if seen.phase is Phase.CANARY else Step.END)
            return True
        if seen.phase is Phase.CANARY and await self._judged(seen):
            return True
        if hush_ms is not None:
            await self._pen.move(seen, Step.HUSH, reason="Quiet hours.", until_ms=hush_ms)
            return True
        return await self._hand_over(seen)

    async def _judged(self, seen: Broadcast) -> bool:
        """Whether the first slice is over, well or not."""
        assert seen.canary is not None
        size = canary_size(seen)
        if is_too_bad(seen.canary, seen.counts, size):
            bad = seen.counts.failed + seen.counts.blocked
            await self._pen.move(
                seen,
                Step.FAIL,
                reason=f"Of the first {size} recipients {bad} could not be reached; {seen.canary.limit:.0%} is the limit.",
            )
            return True
        if seen.handed >= size and not seen.open and not seen.again:
            await self._pen.move(seen, Step.GO)
            return True
        return False

    async def _hand_over(self, seen: Broadcast) -> bool:
        room = window_size(self._letters.per_s(seen.bot_id), seen.weight) - len(seen.open)
        if seen.phase is Phase.CANARY:
            room = min(room, canary_size(seen) - seen.handed)
        if seen.paid is not None:
            affordable = may_still_cost(seen.paid, seen.handed, seen.weight)
            if affordable == 0 and not seen.open:
                reason = f"One more message could cost more than {seen.paid.stars_max:g} Stars."
                await self._pen.move(seen, Step.STOP, reason=reason)
                return True
            room = min(room, affordable)
        if room <= 0:
            return False
        entries = list(seen.again[:room])
        next_number = seen.next
        if len(entries) < room:
            lines = await self._book.lines(seen.id, first=seen.next, limit=room - len(entries))
            entries += [Entry(number, line.round) for number, line in lines if line.state is RecipientState.PENDING]
            next_number = lines[-1][0] + 1 if lines else seen.next
        if entries:
            await self._handing.hand(seen, entries, next_number=next_number)
            return False
        if next_number > seen.next:  # all of these are suppressed
            await self._pen.write(seen, lambda old: replace(old, next=next_number))
            return True
        return False


def canary_size(seen: Broadcast) -> int:
    assert seen.canary is not None
    return slice_size(seen.canary, seen.total - seen.counts.suppressed)


def _is_done(seen: Broadcast) -> bool:
    """Everybody has had a letter, and every letter has an end."""
    return seen.next > seen.total and not seen.again and not seen.open
