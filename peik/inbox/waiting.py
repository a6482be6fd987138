"""Readers that wait for arrivals: who sits where, who rings for them, and who has to go. It never reads the store.

However many wait, there is one listener. A reader costs a seat and a timer, and is woken by what concerns its bot alone.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from peik.bell import Bell
from peik.errors import Conflict
from peik.events import Arrived, Event, Events, OutageSettled


class Seat:
    """One reader's place for as long as it reads. A ring while it looks into the store is remembered."""

    __slots__ = ("_bell", "_dismissal", "bot_id", "consumer_id")

    def __init__(self, bot_id: int, consumer_id: int | None) -> None:
        self.bot_id = bot_id
        self.consumer_id = consumer_id  # None: a reader without a cursor, beside whom any number may sit
        self._bell = Bell()
        self._dismissal: Conflict | None = None

    def ring(self) -> None:
        self._bell.ring()

    def dismiss(self, why: Conflict) -> None:
        self._dismissal = why
        self._bell.ring()

    def check(self) -> None:
        """Raises the Conflict that this reader was sent away with."""
        if self._dismissal is not None:
            raise self._dismissal

    async def wait(self, until: float) -> None:
        """Until something may have come, or until the loop's time is `until`. Raises Conflict if it was sent away."""
        await self._bell.wait(until)
        self.check()


class Waiting:
    def __init__(self, *, events: Events) -> None:
        self._seats: dict[int, set[Seat]] = defaultdict(set)
        self._holders: dict[int, Seat] = {}
        self._is_ended = False
        events.listen(self._listen, Arrived, OutageSettled)

    @contextmanager
    def seat(self, bot_id: int, consumer_id: int | None) -> Iterator[Seat]:
        """A place among the readers of a bot. Take it before the first look into the store, so that no ring is missed."""
        seat = Seat(bot_id, consumer_id)
        self._seats[bot_id].add(seat)
        try:
            yield seat
        finally:
            self._seats[bot_id].discard(seat)
            if not self._seats[bot_id]:
                del self._seats[bot_id]
            if consumer_id is not None and self._holders.get(consumer_id) is seat:
                del self._holders[consumer_id]

    def hold(self, seat: Seat, why: Conflict) -> None:
        """From now on this one reads for its consumer: the newest wins, and an older one goes with `why`."""
        assert seat.consumer_id is not None
        older = self._holders.get(seat.consumer_id)
        if older is not None and older is not seat:
            older.dismiss(why)
        self._holders[seat.consumer_id] = seat

    def dismiss(self, consumer_id: int, why: Conflict) -> None:
        """Send away whoever reads for a consumer: it is somebody else's now."""
        older = self._holders.pop(consumer_id, None)
        if older is not None:
            older.dismiss(why)

    def held(self) -> list[int]:
        """The consumers that somebody reads for at this moment."""
        return list(self._holders)

    def is_held(self, consumer_id: int) -> bool:
        return consumer_id in self._holders

    def ring(self, bot_id: int) -> None:
        for seat in self._seats.get(bot_id, ()):
            seat.ring()

    def ring_all(self) -> None:
        """Another process may have written for anybody."""
        for bot_id in self._seats:
            self.ring(bot_id)

    def end(self) -> None:
        """Nobody waits any more, now or later: Peik ends, and must not be held up by those who wait for nothing."""
        self._is_ended = True
        self.ring_all()

    def is_ended(self) -> bool:
        return self._is_ended

    def _listen(self, events: Sequence[Event]) -> None:
        if not self._seats:
            return
        for event in events:
            # What an outage held back may go on when it is settled.
            if isinstance(event, Arrived | OutageSettled):
                self.ring(event.bot_id)
