"""Runs broadcasts: on the node with the chores, each a step at a time. A step begins with what is stored, so that a node that
takes over after a crash goes on exactly where the other was."""

import asyncio
import random
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from peik.broadcasts.audience import Snapshot
from peik.broadcasts.dispatch import BroadcastDispatch
from peik.broadcasts.model import (
    Broadcast,
    BroadcastLettersPort,
    LedgerEntry,
    Phase,
    PhaseStep,
    RecipientState,
    is_too_bad,
    may_still_cost,
    slice_size,
    window_size,
)
from peik.broadcasts.repository import BroadcastRepository, FencedUpdate, Overtaken
from peik.broadcasts.results import BroadcastEnding, BroadcastResults
from peik.clock import Clock, zone_of
from peik.core.documents import ContactStore, DocumentStore
from peik.core.events import Event, Events, Settled, StoreFailed, Surprise
from peik.core.quiet import quiet_until
from peik.errors import NotFound, StoreUnavailable, described
from peik.wakeup import Wakeup

# One step of a broadcast that sends: look at ends, mind quiet hours, the first slice and the cap, and hand over what
# fits.


class SendingStep:
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
        """Whether there is more to do at once. Raises Overtaken."""
        hush_ms = None if seen.quiet is None else quiet_until(self._clock.wall_ms(), seen.quiet, zone_of(seen.quiet.tz))
        if _is_done(seen):
            await self._pen.move(seen, PhaseStep.GO if seen.phase is Phase.CANARY else PhaseStep.END)
            return True
        if seen.phase is Phase.CANARY and await self._judged(seen):
            return True
        if hush_ms is not None:
            await self._pen.move(seen, PhaseStep.HUSH, reason="Quiet hours.", until_ms=hush_ms)
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
                PhaseStep.FAIL,
                reason=f"Of the first {size} recipients {bad} could not be reached; {seen.canary.limit:.0%} is the limit.",
            )
            return True
        if seen.handed >= size and not seen.open and not seen.again:
            await self._pen.move(seen, PhaseStep.GO)
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
                await self._pen.move(seen, PhaseStep.STOP, reason=reason)
                return True
            room = min(room, affordable)
        if room <= 0:
            return False
        entries = list(seen.again[:room])
        next_number = seen.next
        if len(entries) < room:
            lines = await self._book.lines(seen.id, first=seen.next, limit=room - len(entries))
            entries += [
                LedgerEntry(number, line.round) for number, line in lines if line.state is RecipientState.PENDING
            ]
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


TICK_S = 0.5  # between two steps of one that works
LOOK_S = 1.0  # what somebody asked of another node is noticed within this time
IDLE_S = 60.0  # where a bell comes with all that others ask: a store of our own is not asked without need
MISSED_S = 3.0  # ends of letters that nobody told are found at the latest after so long
RETRY_S = 2.0
SURPRISED_S = 30.0  # a broadcast that met something unforeseen rests so long, and the others go on
SWEEP_S = 3600.0
ABANDONED_MS = 6 * 3_600_000  # recipients without a broadcast, so long after it was begun to be written down
HEARD_MAX = 10_000
STEPS_MAX = 20  # of one broadcast in a row, before the others have their turn


class Broadcaster:
    def __init__(
        self,
        *,
        documents: DocumentStore,
        contacts: ContactStore,
        letters: BroadcastLettersPort,
        clock: Clock,
        settled: Clock,
        events: Events,
        chance: random.Random,
        is_ours: Callable[[], bool],
        keep_ms: int,
        is_shared: bool = False,
    ) -> None:
        """`is_ours`: whether this node has the chores. Ended broadcasts are kept for `keep_ms`. `is_shared`: other nodes write
        to the store, and not all that they write is heard here."""
        self._book = BroadcastRepository(documents)
        self._contacts = contacts
        self._letters = letters
        self._clock = clock
        self._settled = settled
        self._events = events
        self._chance = chance
        self._is_ours = is_ours
        self._keep_ms = keep_ms
        self._idle_s = LOOK_S if is_shared else IDLE_S
        self._bell = Wakeup()
        self._task: asyncio.Task[None] | None = None
        self._heard: set[int] = set()
        self._open: dict[str, frozenset[int]] = {}  # the letters of each that have no end yet
        self._looked_at: dict[str, float] = {}
        self._rests_until: dict[str, float] = {}
        self._swept_at = float("-inf")
        events.listen(self._listen, Settled)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin, under the lease of the chores."""
        self.stop()
        self._task = group.create_task(self._run())

    def stop(self) -> None:
        """End at once. What is half done is finished by the next process."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def look(self) -> None:
        """Somebody asked for something, here or elsewhere."""
        self._bell.ring()

    def _listen(self, events: Sequence[Event]) -> None:
        if not self._open:
            return
        for event in events:
            if isinstance(event, Settled) and event.state.is_final:
                self._heard.add(event.letter_id)
        if (
            len(self._heard) > HEARD_MAX
        ):  # nearly all are letters of others; of ours the next look finds what is lost here
            self._heard.clear()

    # ---- the loop ----

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        work = self._work_of(f"{self._chance.getrandbits(64):016x}")
        is_failing = False
        while not task.cancelling():
            wait_s = RETRY_S
            try:
                wait_s = await self._turn(work)
                is_failing = False
            except StoreUnavailable as error:
                if not is_failing:
                    self._events.tell(StoreFailed(what="broadcasts", why=error.detail))
                is_failing = True
            except Exception as error:  # noqa: BLE001  told of; the store may hold what a newer version wrote
                self._events.tell(Surprise(where="broadcasts", error=described(error)))
                wait_s = SURPRISED_S
            if wait_s > 0:
                await self._bell.wait(self._clock.mono() + wait_s)

    async def _turn(self, work: "_Work") -> float:
        """A step of each. How long nothing has to be done after it."""
        if not self._is_ours():
            return LOOK_S
        ids = await self._book.active()
        self._forget_others(ids)
        waits = [await self._steps(work, broadcast_id) for broadcast_id in ids]
        if self._clock.mono() - self._swept_at >= SWEEP_S:
            self._swept_at = self._clock.mono()
            await self._sweep()
        return min(waits, default=self._idle_s)

    async def _steps(self, work: "_Work", broadcast_id: str) -> float:
        rests_s = self._rests_until.get(broadcast_id, 0.0) - self._clock.mono()
        if rests_s > 0:
            return rests_s
        try:
            for _ in range(STEPS_MAX):
                wait_s = await self._step(work, broadcast_id)
                if wait_s > 0:
                    return wait_s
                await asyncio.sleep(0)
        except Overtaken:
            pass
        except StoreUnavailable:
            raise
        except NotFound:
            return LOOK_S  # somebody deleted it
        except Exception as error:  # noqa: BLE001  others go on
            self._events.tell(Surprise(where=f"broadcast {broadcast_id}", error=described(error)))
            self._rests_until[broadcast_id] = self._clock.mono() + SURPRISED_S
            return LOOK_S
        return 0.001  # the others first

    async def _step(self, work: "_Work", broadcast_id: str) -> float:
        """One step. After how long the next one is due; 0: at once."""
        seen = await self._book.get(broadcast_id)
        if seen.is_at_rest:
            return LOOK_S
        seen = await work.pen.claim(seen)
        if seen.phase is Phase.SCHEDULED:
            if self._clock.wall_ms() < (seen.start_at_ms or 0):
                return self._until(seen.start_at_ms or 0)
            await work.pen.move(seen, PhaseStep.START)
            return 0.0
        if seen.phase is Phase.SNAPSHOTTING:
            await work.snapshot.page(seen)
            return 0.0
        seen = await self._gathered(work, await work.handing.finish(seen))
        if await self._go_on(work, seen):
            return 0.0
        is_resting = seen.phase is Phase.QUIET and not seen.is_withdrawing and not seen.open
        return self._until(seen.quiet_until_ms or 0) if is_resting else TICK_S

    def _until(self, at_ms: int) -> float:
        """Nothing has to be done before then, unless somebody asks."""
        return min(self._idle_s, max(TICK_S, (at_ms - self._clock.wall_ms()) / 1000))

    async def _go_on(self, work: "_Work", seen: Broadcast) -> bool:
        if seen.phase is Phase.QUIET and not seen.is_withdrawing:
            if self._clock.wall_ms() < (seen.quiet_until_ms or 0):
                return False
            await work.pen.move(seen, PhaseStep.WAKE)
            return True
        if seen.is_withdrawing:
            return False
        if seen.phase.is_sending:
            return await work.sending.go_on(seen)
        if seen.phase in (Phase.CANCELLING, Phase.RECALLING):
            return await work.ending.go_on(seen)
        return False

    async def _gathered(self, work: "_Work", seen: Broadcast) -> Broadcast:
        """Look at letters when one is known to have ended, and now and then."""
        ids = self._open[seen.id] = frozenset(one.letter_id for one in seen.open)
        is_heard = not ids.isdisjoint(self._heard)
        is_late = self._clock.mono() - self._looked_at.get(seen.id, float("-inf")) >= MISSED_S
        if not seen.is_withdrawing and not is_heard and not (ids and is_late):
            return seen
        self._heard -= ids
        self._looked_at[seen.id] = self._clock.mono()
        return await work.gathering.look(seen)

    def _forget_others(self, ids: Sequence[str]) -> None:
        for memory in (self._open, self._looked_at, self._rests_until):
            for gone in memory.keys() - set(ids):
                del memory[gone]
        if not self._open:
            self._heard.clear()

    # ---- tidying ----

    async def _sweep(self) -> None:
        """Take away what is long over, and recipients that were written down for a broadcast that never came to be."""
        now_ms = self._settled.wall_ms()
        for broadcast_id in await self._book.ledgers():
            found = await self._book.find(broadcast_id)
            if found is None:
                began_ms = int(broadcast_id[:13]) if broadcast_id[:13].isdigit() else 0
                if now_ms - began_ms > ABANDONED_MS:
                    await self._book.clear(broadcast_id)
        await self._drop_old(now_ms)

    async def _drop_old(self, now_ms: int) -> None:
        before: str | None = None
        while page := await self._book.newest(before=before, limit=100):
            for one in page:
                if _is_old(one, now_ms, self._keep_ms):
                    await self._book.remove(one.id, may=lambda stored: _is_old(stored, now_ms, self._keep_ms))
            before = page[-1].id

    # ---- building ----

    def _work_of(self, holder: str) -> "_Work":
        return _Work(
            holder,
            book=self._book,
            letters=self._letters,
            contacts=self._contacts,
            clock=self._clock,
            events=self._events,
        )


class _Work:
    """What one run of the engine works with. Nothing that an earlier run still does is stored once this one has claimed it."""

    def __init__(
        self,
        holder: str,
        *,
        book: BroadcastRepository,
        letters: BroadcastLettersPort,
        contacts: ContactStore,
        clock: Clock,
        events: Events,
    ) -> None:
        self.pen = pen = FencedUpdate(book, holder=holder, clock=clock, events=events)
        self.handing = handing = BroadcastDispatch(book=book, pen=pen, letters=letters, clock=clock)
        self.gathering = BroadcastResults(book=book, pen=pen, letters=letters, clock=clock)
        self.sending = SendingStep(book=book, pen=pen, handing=handing, letters=letters, clock=clock)
        self.ending = BroadcastEnding(book=book, pen=pen, handing=handing, letters=letters, clock=clock)
        self.snapshot = Snapshot(book=book, pen=pen, letters=letters, contacts=contacts)


def _is_old(one: Broadcast, now_ms: int, keep_ms: int) -> bool:
    return one.phase.is_final and now_ms - (one.ended_at_ms or now_ms) > keep_ms
