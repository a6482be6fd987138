"""Arrivals one after another for as long as somebody listens. A stream never holds more than one page, and never
acknowledges anything by itself: that it was written to a socket does not mean that it was handled.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from peik.clock import Clock
from peik.core.arrival import Arrival
from peik.errors import Conflict
from peik.inbox.reading import Readers, wants
from peik.inbox.waiting import Seat, Waiting
from peik.inbox_ports import Consumer, InboxStore

STREAM_PAGE = 100
STREAM_BYTES_MAX = 1 << 20


class Stream:
    """Where one listener is. Behind it lies what it was given, which may be far ahead of what it acknowledged."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        store: InboxStore,
        clock: Clock,
        waiting: Waiting,
        readers: Readers,
        after: int,
        is_tail: bool,
        types: frozenset[str] | None,
    ) -> None:
        self._consumer = consumer  # of a tail: the one through whose eyes it looks
        self._store = store
        self._clock = clock
        self._waiting = waiting
        self._readers = readers
        self._after = after
        self._is_tail = is_tail
        self._types = types  # of a tail; None: all

    @contextmanager
    def seated(self) -> Iterator[Seat]:
        """The place from which it listens. The newest stream of a consumer is the one that counts."""
        with self._waiting.seat(self._consumer.bot_id, None if self._is_tail else self._consumer.id) as seat:
            if self._is_tail:
                yield seat
                return
            self._waiting.hold(seat, _other_stream())
            try:
                yield seat
            finally:
                self._readers.saw(self._consumer.id)

    async def next(self, seat: Seat, wait_s: float) -> list[Arrival] | None:
        """The next page; empty if nothing came in time, None when Peik ends. Raises Conflict if it was sent away."""
        deadline = self._clock.mono() + wait_s
        while not self._waiting.is_ended():
            seat.check()
            found = await self._page()
            if found or self._clock.mono() >= deadline:
                return found
            await seat.wait(deadline)
            if not self._is_tail and not self._waiting.is_ended():
                self._consumer = await self._readers.again(self._consumer)
        return None

    async def _page(self) -> list[Arrival]:
        while self._is_tail or not self._readers.is_held(self._consumer):
            page = await self._store.arrivals_after(
                self._consumer.id, self._after, limit=STREAM_PAGE, bytes_max=STREAM_BYTES_MAX
            )
            found = [arrival for arrival in page if self._wants(arrival)]
            if not page:
                break
            await self._skip(page[-1].number if not found else found[0].number - 1)
            self._after = page[-1].number
            if found:
                return found
        return []

    def _wants(self, arrival: Arrival) -> bool:
        if self._is_tail:
            return self._types is None or arrival.type in self._types
        return wants(self._consumer, arrival)

    async def _skip(self, up_to: int) -> None:
        """What it does not want is over, if there is nothing before it that still has to be acknowledged."""
        if not self._is_tail and self._after == self._consumer.progress.watermark < up_to:
            self._consumer = await self._readers.settled(self._consumer, up_to)


def _other_stream() -> Conflict:
    return Conflict(
        code="other_stream", detail="Another stream of this consumer took over. Make sure that only one is running."
    )
