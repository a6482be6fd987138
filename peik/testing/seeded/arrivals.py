"""The invariants of the inbox: nothing is confirmed before its commit, all is stored once and in order, and handed on."""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from peik.core.arrival import read_update, wire_id
from peik.testing.updates import SHORT_LIVES_S, Event, QueueId, UpdateQueue

if TYPE_CHECKING:
    from peik.testing.seeded.clients import Program
    from peik.testing.seeded.witness import Witness


class WatchedQueue(UpdateQueue):
    """Telegram's queue of a bot. Whatever an offset deletes must be committed at that very moment."""

    def __init__(self, chance: random.Random, is_stored: Callable[[Event], bool], tell: Callable[[str], None]) -> None:
        super().__init__(chance)
        self._is_stored = is_stored
        self._tell = tell
        self._is_confirming = False
        self.all: list[Event] = []
        self.given_up: set[int] = set()  # by id(): what Telegram itself let go before anybody had it

    def push(
        self, kind: str, payload: bytes, *, now: float, expires_at: float, queue_id: QueueId | None
    ) -> Event | None:
        event = super().push(kind, payload, now=now, expires_at=expires_at, queue_id=queue_id)
        if event is not None:
            self.all.append(event)
        return event

    def drop(self, event: Event) -> None:
        if not event.is_gone and not self._is_stored(event):
            if self._is_confirming:
                self._tell(f"update {event.id} was confirmed, and is not stored")
            self.given_up.add(id(event))
        super().drop(event)

    def _delete_below(self, offset: int) -> None:
        with self._confirming():
            super()._delete_below(offset)

    def clear(self, *, keep: int = 0) -> None:
        with self._confirming():
            super().clear(keep=keep)

    @contextlib.contextmanager
    def _confirming(self) -> Iterator[None]:
        self._is_confirming = True
        yield
        self._is_confirming = False


def verdict(queue: WatchedQueue, witness: "Witness", program: "Program", *, handed_all: bool) -> Iterator[str]:
    """What is wrong with a bot's inbox when all is quiet. `handed_all`: nothing was to be kept from the program."""
    bot_id = program.bot_id
    lines: dict[QueueId, int] = {}
    twins = Counter(read_update(event.body).digest for event in queue.all)
    for place, event in enumerate(queue.all):
        update = read_update(event.body)
        found = witness.numbers_of(bot_id, update)
        if twins[update.digest] > 1 and len(found) <= twins[update.digest]:
            continue  # the same thing happened twice within a second
        if len(found) > 1 or (not found and id(event) not in queue.given_up):
            yield f"update {place} ({event.id}) of {bot_id} is stored {len(found)} times"
        for number in found:
            if number < lines.get(event.queue_id, 0):
                yield f"update {place} ({event.id}) of {bot_id} is out of order"
            lines[event.queue_id] = number
    rows = witness.look("SELECT number, lane, type FROM arrivals WHERE bot_id = ? ORDER BY number", bot_id)
    numbers = [row[0] for row in rows]
    if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        yield f"the numbers of {bot_id} have gaps"
    yield from _handed(program, rows, handed_all=handed_all)


def _handed(program: "Program", rows: list[tuple[int, object, str]], *, handed_all: bool) -> Iterator[str]:
    lanes = {wire_id(number): lane for number, lane, _ in rows}
    last: dict[object, int] = {}
    for number in program.order:
        lane = lanes.get(number)
        if lane is None:
            yield f"the program of {program.bot_id} got update {number}, which is not stored"
            continue
        if number < last.get(lane, 0):
            yield f"the program of {program.bot_id} got update {number} after a later one of {lane}"
        last[lane] = number
    if handed_all:
        missing = not_handed(program, [(number, kind) for number, _, kind in rows])
        if missing:
            yield f"the program of {program.bot_id} never got {len(missing)} updates: {missing[:5]}"


def not_handed(program: "Program", rows: list[tuple[int, str]]) -> list[int]:
    """Numbers that a program should have got by now. A query that is too old to be answered is not handed on."""
    return [number for number, kind in rows if kind not in SHORT_LIVES_S and wire_id(number) not in program.handed]
