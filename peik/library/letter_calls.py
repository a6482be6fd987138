"""The part of the library that watches letters which are accepted, and acts on them."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal, Unpack

from peik.core.letter import State
from peik.errors import BadInput
from peik.library.calls import (
    DEAD_FILTER_NAMES,
    FILTER_NAMES,
    DeadFilter,
    Filter,
    LetterId,
    When,
    filter_of,
    id_of,
    instant_ms,
)
from peik.library.letters import QueueStats, Receipt
from peik.ports import NOW, LetterFilter

if TYPE_CHECKING:
    from peik.library.counter import Counter

PAGE_LETTERS = 200
WAIT_S = 30.0


class LetterCalls:
    """The methods about letters, for the class that has a counter."""

    def _at_counter(self) -> "Counter":
        raise NotImplementedError

    # ---- watching ----

    async def wait(self, letter: LetterId, timeout: float = WAIT_S) -> Receipt:
        """The receipt once the letter has ended, well or not, or as it stands when the time is over.

        An edit that a newer one replaced ends as that one does. Safe to ask again, also after a restart.
        """
        return await self._at_counter().wait(id_of(letter), timeout)

    async def get_job_status(self, letter: LetterId) -> Receipt:
        """All that is known of a letter right now: state, progress, attempts_made, failed_reason and the rest."""
        return await self._at_counter().letter(id_of(letter))

    async def get_queue_stats(self) -> QueueStats:
        """How many letters are waiting, active, completed, failed, delayed: over all, and per bot in `bots`."""
        return await self._at_counter().stats()

    async def letters(self, **which: Unpack[Filter]) -> AsyncIterator[Receipt]:
        """All letters of a filter, the newest first, read page by page: `async for receipt in peik.letters(state="failed")`."""
        wanted = filter_of(which, FILTER_NAMES)
        before: int | None = None
        while True:
            page = await self._at_counter().find(wanted, before=before, limit=PAGE_LETTERS)
            for receipt in page.letters:
                yield receipt
            if page.before is None:
                return
            before = int(page.before)

    # ---- acting on letters ----

    async def cancel(self, letter: LetterId) -> Receipt:
        """Take a letter back. Raises Conflict if it is being sent right now, or has ended."""
        return await self._at_counter().cancel(id_of(letter))

    async def cancel_letters(self, **which: Unpack[Filter]) -> int:
        """Take back all letters of a filter that wait or are delayed. How many; what is in flight goes out. Raises BadInput
        without a filter: nobody takes everything back by a slip."""
        wanted = filter_of(which, FILTER_NAMES)
        if wanted == LetterFilter():
            raise BadInput(code="no_filter", detail='Say which letters: a filter at least, such as state="waiting".')
        if wanted.state not in (None, State.WAITING, State.DELAYED):
            raise BadInput(code="bad_state", detail="Only letters that are waiting or delayed can be taken back.")
        return await self._at_counter().cancel_all(wanted)

    async def change_letter(
        self, letter: LetterId, *, priority: int | None = None, send_at: When | Literal["now"] | None = None
    ) -> Receipt:
        """Give a letter that waits another priority, another time ("now": at once, also if it backs off), or both. Raises
        Conflict if it is being sent right now, or has ended."""
        send_at_ms = NOW if isinstance(send_at, str) else instant_ms(send_at, "send_at")
        return await self._at_counter().change(id_of(letter), priority=priority, send_at_ms=send_at_ms)

    async def resolve(self, letter: LetterId, *, arrived: bool) -> Receipt:
        """Say what became of a letter that failed as "uncertain": it had arrived, or it is to be sent again."""
        return await self._at_counter().resolve(id_of(letter), arrived=arrived)

    async def retry_failed_job(self, letter: LetterId) -> Receipt:
        """Send a dead letter again, at the end of its lane, its counters at zero. Raises Conflict if it is not dead."""
        return await self._at_counter().retry(id_of(letter))

    async def retry_failed_jobs(self, **which: Unpack[DeadFilter]) -> int:
        """Send all dead letters of a filter again, or simply all. How many."""
        return await self._at_counter().retry_dead(filter_of(which, DEAD_FILTER_NAMES))

    async def clear_failed_jobs(self, **which: Unpack[DeadFilter]) -> int:
        """Clear away the dead letters of a filter, or simply all. How many; a line of each stays in the message log."""
        return await self._at_counter().clear_dead(filter_of(which, DEAD_FILTER_NAMES))
