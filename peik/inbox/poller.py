"""One bot's long polling: fetch, commit, and only then confirm, by the offset of the next poll.

It never sends an offset that it has not received and committed, and it never repeats a poll at once: whatever fails is
tried again after a wait that is bounded at both ends.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from peik.clock import Clock
from peik.core.arrival import (
    SHORTEST_LIFE_S,
    UPDATE_TYPES,
    Continuous,
    Gap,
    IdsReset,
    Reading,
    Unclear,
    Update,
    is_over_a_day,
    read_ids,
    read_updates,
)
from peik.core.events import (
    Events,
    InboxRecovered,
    Intruder,
    NumberingReset,
    OfflineTooLong,
    StoreFailed,
    StoreRecovered,
    Surprise,
    UpdatesExpired,
)
from peik.core.outcome import Delivered, Limited, Refused
from peik.errors import BadInput, StoreUnavailable, Unavailable
from peik.inbox.intake import Intake
from peik.inbox.outages import SOURCE, OutagePort
from peik.inbox.service import Recovery
from peik.inbox.source import Conflicts, SourceHealth, SourceStatus, ask, words_of
from peik.inbox.store import InboxStore, TakenIn
from peik.outbox.store import BotRecord
from peik.telegram.routes import Routes
from peik.wakeup import Wakeup

# One pass over everything that Telegram has kept for a bot: what it counts, and who is told that it is over.


class Pass:
    """Counts from the first page to the empty one. `away_ms` is how long nobody had asked before; None: it is not known."""

    def __init__(self, bot_id: int, *, away_ms: int | None, clock: Clock) -> None:
        self._bot_id = bot_id
        self._away_ms = away_ms
        self._clock = clock
        self._began_at = clock.mono()
        self._found = 0
        self._stored = 0
        self._expired = 0
        self._is_clear = True

    def add(self, taken: TakenIn, *, found: int, expired: int, is_clear: bool) -> None:
        self._found += found
        self._stored += taken.stored
        self._expired += expired
        self._is_clear = self._is_clear and is_clear

    def report(self) -> Recovery:
        return Recovery(
            bot_id=self._bot_id,
            found=self._found,
            stored=self._stored,
            duplicates=self._found - self._stored,
            expired=self._expired if self._is_clear else None,
            took_s=self._clock.mono() - self._began_at,
        )

    def tell(self, events: Events) -> None:
        report = self.report()
        away_s = None if self._away_ms is None else self._away_ms / 1000
        if self._away_ms is not None and away_s is not None and is_over_a_day(self._away_ms):
            events.tell(OfflineTooLong(bot_id=self._bot_id, away_s=away_s, expired=report.expired))
        events.tell(
            InboxRecovered(
                bot_id=self._bot_id,
                found=report.found,
                stored=report.stored,
                duplicates=report.duplicates,
                expired=report.expired,
                took_s=report.took_s,
                away_s=away_s,
            )
        )


PAGE = 100
FETCH_S_MAX = 50.0  # a longer poll is answered after 50 s all the same (docs/telegram.md, Polling)
MARGIN_S = 15.0  # beyond the poll's own time, before it counts as lost
BACKOFF_S_MAX = 15.0
REFUSED_S = 60.0  # a token that Telegram does not know: somebody must act
STORE_S_FIRST = 0.5  # asked again sooner than this, Telegram gives one update at a time
STORE_S_MAX = 5.0
# Every empty answer to a long poll is noted. What is noted less often than a message may wait makes an outage of every
# restart in a quiet hour.
NOTE_S = 30.0
KEPT_S = 60.0  # between two looks at how old updates grow while the store takes nothing
ONCE_TRIES = 5
# A page is cut at about 4 MiB, and the update that did not fit has half a MiB at most.
WHOLE_BYTES_MAX = 3 << 20
REPEAT_S = 1.0  # who asks the same again within half a second gets one update; some of it is the way there
SHORT_PAGES = 2  # in a row: everything that was there is fetched


class PollTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How a poller works: from the settings. `server` is whose numbering the ids are."""

    server: str
    timeout_s: float
    update_types: tuple[str, ...] = ()
    public_url: str | None = None
    missed_after_s: float = 60.0


class Poller:
    """`is_visitor`: it comes for one pass to a bot that another program may serve, and repairs nothing there."""

    def __init__(
        self,
        bot: BotRecord,
        *,
        way: Routes,
        store: InboxStore,
        intake: Intake,
        outages: OutagePort,
        clock: Clock,
        events: Events,
        chance: random.Random,
        terms: PollTerms,
        restored_at: Callable[[], Awaitable[int | None]],
        is_visitor: bool = False,
    ) -> None:
        self._bot = bot
        self._bot_id = bot.bot_id
        self._way = way
        self._store = store
        self._intake = intake
        self._outages = outages
        self._clock = clock
        self._events = events
        self._chance = chance
        self._terms = terms
        self._restored_at = restored_at  # when the store was last put back from a backup
        self._restored_at_ms: int | None = None
        self._contact = SourceHealth(bot.bot_id, "polling", clock=clock, events=events)
        self._conflicts = Conflicts(
            bot,
            way=way,
            contact=self._contact,
            clock=clock,
            events=events,
            chance=chance,
            public_url=terms.public_url,
            is_visitor=is_visitor,
        )
        self._bell = Wakeup()
        self._parked: asyncio.Timeout | None = None  # the poll that is under way
        self._allowed = msgspec.json.encode(list(dict.fromkeys([*UPDATE_TYPES, *terms.update_types])))

        self._offset: int | None = None
        self._received_at_ms: int | None = None
        self._pushed_up_to = 0  # ids up to this one may have come by webhook
        self._caught_up_at = float("-inf")  # when Telegram was last known to have nothing more for us
        self._is_contested = False  # since then, another program has used the token
        self._pass: Pass | None = None
        self._short_pages = 0  # in a row
        self._asked: tuple[int | None, float] = (None, float("-inf"))  # with which offset, and when
        self._waiters: list[asyncio.Future[Recovery]] = []
        self._is_open = False
        self._has_ended = False
        self._is_once = False
        self._served_until_ms = 0
        self._missed_after_s = terms.missed_after_s

        self._noted_at = float("-inf")
        self._store_failures = 0

    # ---- for others ----

    def status(self) -> SourceStatus:
        return self._contact.status()

    def wake(self) -> None:
        """There is a way to Telegram again. A poll from before may wait on a connection that is dead."""
        parked, self._parked = self._parked, None
        if parked is not None:
            parked.reschedule(self._clock.mono())
        else:
            self._bell.ring()

    async def recover(self) -> Recovery:
        """A pass now, by the running poller; or the one that is under way. Raises Unavailable if the poller ends."""
        if self._has_ended:
            raise _stopped()
        ended: asyncio.Future[Recovery] = asyncio.get_running_loop().create_future()
        self._waiters.append(ended)
        if self._is_open and self._pass is None:
            self._pass = Pass(self._bot_id, away_ms=None, clock=self._clock)
            self._short_pages = 0
            self.wake()
        return await ended

    async def close(self) -> None:
        """Remember until when we listened. After `run` was cancelled."""
        if self._contact.lasts:
            await self._note_seen()

    # ---- running ----

    async def run(self) -> None:
        try:
            await self._open()
            while True:
                await self._step()
        finally:
            self._has_ended = True
            for ended in self._waiters:
                if not ended.done():
                    ended.set_exception(_stopped())
            self._waiters.clear()

    async def once(self, *, served_until_ms: int | None = None, counts_all: bool = False) -> Recovery:
        """One pass and no more. Raises Unavailable or Conflict if it cannot be made now.

        `served_until_ms`: until then the bot had its updates in another way, and was not away. `counts_all`: since then it was,
        however short that is.
        """
        self._is_once = True
        self._missed_after_s = 0.0 if counts_all else self._missed_after_s
        self._served_until_ms = served_until_ms or 0
        await self._open()
        passing = self._pass
        assert passing is not None, "a start begins with a pass"
        while self._pass is not None:
            await self._step()
            self._check_patience()
        return passing.report()

    async def _open(self) -> None:
        while True:
            try:
                before, state = await self._store.open_inbox(
                    self._bot_id, server=self._terms.server, at_ms=self._clock.wall_ms()
                )
                self._restored_at_ms = await self._restored_at()
                break
            except StoreUnavailable as error:
                await self._on_store_failed(error)
                self._check_patience()
        self._on_store_well()
        last = state.last_update_id
        self._offset = None if last is None else last + 1
        self._pushed_up_to = state.newest_update_id or 0
        self._received_at_ms = state.received_at_ms
        self._contact.begin(before.seen_at_ms)
        away_ms = self._contact.away_ms()
        if away_ms is not None:
            self._caught_up_at = self._clock.mono() - away_ms / 1000
        self._is_open = True
        await self._begin_pass(away_ms)

    def _check_patience(self) -> None:
        if self._is_once and self._contact.failures >= ONCE_TRIES:
            raise Unavailable(code="not_recovered", detail=f"Updates cannot be fetched now: {self._contact.why}")

    async def _begin_pass(self, away_ms: int | None) -> None:
        self._pass = Pass(self._bot_id, away_ms=away_ms, clock=self._clock)
        self._short_pages = 0
        if away_ms is None:
            return
        now_ms = self._clock.wall_ms()
        since_ms = max(now_ms - away_ms, self._served_until_ms)
        if now_ms - since_ms >= self._missed_after_s * 1000:
            self._outages.expect(self._bot_id, SOURCE, since_ms)
            await self._kept()

    async def _kept(self) -> None:
        """Until the outage is durable. While the store does not take it, updates grow old at Telegram all the same."""
        while True:
            try:
                async with asyncio.timeout(KEPT_S):
                    return await self._outages.kept(self._bot_id)
            except TimeoutError:
                self._contact.lost("the store does not answer", wait_s=0.0)
                self._check_patience()

    async def _step(self) -> None:
        asked_at = self._clock.mono()
        is_repeat = self._asked[0] == self._offset and asked_at - self._asked[1] < REPEAT_S
        self._asked = (self._offset, asked_at)
        timeout_s = 0.0 if self._pass is not None else min(self._terms.timeout_s, FETCH_S_MAX)
        try:
            async with asyncio.timeout(None) as self._parked:
                outcome = await ask(
                    self._way,
                    self._bot.token,
                    "getUpdates",
                    self._params(int(timeout_s)),
                    timeout_s=timeout_s + MARGIN_S,
                )
        except TimeoutError:
            return  # woken: ask anew
        finally:
            self._parked = None
        match outcome:
            case Delivered(result=result):
                await self._on_answer(result, asked_at=asked_at, is_repeat=is_repeat)
            case Refused(code=409, words=words):
                self._is_contested = True
                await self._conflicts.heed(words)
            case Limited(retry_after_s=wait_s):
                self._contact.lost(words_of(outcome), wait_s=wait_s)
                await asyncio.sleep(wait_s)
            case Refused():
                await self._on_trouble(words_of(outcome), wait_s=REFUSED_S, is_certain=True)
            case _:
                await self._on_trouble(words_of(outcome))

    def _params(self, timeout_s: int) -> bytes:
        # No offset at all confirms nothing, and starts at the head.
        offset = b"" if self._offset is None else b'"offset":%d,' % self._offset
        return b'{%b"limit":%d,"timeout":%d,"allowed_updates":%b}' % (offset, PAGE, timeout_s, self._allowed)

    # ---- what came: read, commit, go on ----

    async def _on_answer(self, result: bytes, *, asked_at: float, is_repeat: bool) -> None:
        try:
            updates, unreadable = read_updates(result)
        except BadInput as problem:
            await self._on_trouble(problem.detail)
            return
        if unreadable:
            self._events.tell(
                Surprise(bot_id=self._bot_id, where="polling", error=f"{unreadable} things in an answer are no updates")
            )
        away_ms = self._contact.away_ms()
        if not self._contact.is_well and self._pass is None and _is_long(away_ms, self._missed_after_s):
            await self._begin_pass(away_ms)
        self._conflicts.over()
        if updates and not await self._take_in(updates, asked_at=asked_at):
            return  # and the same offset again: nothing is confirmed
        self._contact.made()
        # A short page is all that Telegram had, unless something else made it short.
        is_short = len(updates) < PAGE and len(result) < WHOLE_BYTES_MAX and not is_repeat
        self._short_pages = self._short_pages + 1 if is_short else 0
        if len(updates) < PAGE:
            self._on_caught_up()
        if not updates and self._clock.mono() - self._noted_at >= NOTE_S:
            await self._note_seen()
        # A bot that is written to all the time never gets an empty page. The second short one has confirmed the first;
        # the next poll confirms the second, so who makes no next poll goes on to an empty one.
        if not updates or (self._short_pages >= SHORT_PAGES and not self._is_once):
            self._end_pass()

    async def _take_in(self, updates: Sequence[Update], *, asked_at: float) -> bool:
        """Whether they are stored."""
        now_ms = self._clock.wall_ms()
        reading = read_ids(
            [update.update_id for update in updates],
            expected=self._offset,
            silent_ms=self._silent_ms(now_ms),
            may_have_holes=self._offset is not None and self._offset <= self._pushed_up_to,
        )
        has_aged = not self._is_contested and asked_at - self._caught_up_at >= SHORTEST_LIFE_S
        expired = reading.count if isinstance(reading, Gap) and has_aged else 0
        last = updates[-1].update_id  # never the highest: after a reset it would be confirmed for ever
        try:
            taken = await self._intake.take_in(
                self._bot_id,
                updates,
                last_update_id=last,
                is_new_epoch=isinstance(reading, IdsReset),
                expired=expired,
            )
        except StoreUnavailable as error:
            await self._on_store_failed(error)
            return False
        self._on_store_well()
        self._tell_reading(reading, first=updates[0].update_id, epoch=taken.epoch, expired=expired)
        if self._pass is not None:
            is_clear = isinstance(reading, Continuous | Gap)
            self._pass.add(taken, found=len(updates), expired=expired, is_clear=is_clear)
        self._offset = last + 1
        self._received_at_ms = now_ms
        if isinstance(reading, IdsReset):
            self._pushed_up_to = 0
        self._noted_at = self._clock.mono()
        return True

    def _silent_ms(self, now_ms: int) -> int | None:
        """None: nobody knows. What came between a backup and its restore was this Peik's own, and is not in the store."""
        received = self._received_at_ms
        if received is None or (self._restored_at_ms is not None and received <= self._restored_at_ms):
            return None
        return now_ms - received

    def _tell_reading(self, reading: Reading, *, first: int, epoch: int, expired: int) -> None:
        match reading:
            case Gap(count=count) if expired:
                self._events.tell(UpdatesExpired(bot_id=self._bot_id, count=count))
            case Gap(count=count):
                detail = f"{count} updates were taken by another hand."
                self._events.tell(Intruder(bot_id=self._bot_id, kind="gap", detail=detail))
            case IdsReset():
                self._events.tell(
                    NumberingReset(bot_id=self._bot_id, expected_id=self._offset or 0, first_id=first, epoch=epoch)
                )
            case Continuous() | Unclear():
                pass

    def _on_caught_up(self) -> None:
        self._caught_up_at = self._clock.mono()
        self._is_contested = False

    def _end_pass(self) -> None:
        ended, self._pass = self._pass, None
        if ended is None:
            return
        self._outages.over(self._bot_id, SOURCE)
        ended.tell(self._events)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(ended.report())

    async def _note_seen(self) -> None:
        self._noted_at = self._clock.mono()
        try:
            await self._store.note_seen(self._bot_id, at_ms=self._clock.wall_ms())
        except StoreUnavailable as error:
            self._events.tell(StoreFailed(bot_id=self._bot_id, what="when updates were last seen", why=error.detail))

    # ---- what went wrong: say so once, wait, go on ----

    async def _on_trouble(self, why: str, *, wait_s: float | None = None, is_certain: bool = False) -> None:
        if wait_s is None:
            doubled = min(BACKOFF_S_MAX, float(1 << min(self._contact.failures, 8)))
            wait_s = max(1.0, doubled * (0.75 + self._chance.random() / 4))
        self._contact.lost(why, wait_s=wait_s, is_certain=is_certain)
        if self._is_once and is_certain:
            raise Unavailable(code="not_recovered", detail=f"Updates cannot be fetched: {why}")
        await self._bell.wait(self._clock.mono() + wait_s)

    async def _on_store_failed(self, error: StoreUnavailable) -> None:
        if not self._store_failures:
            self._events.tell(StoreFailed(bot_id=self._bot_id, what="updates", why=error.detail))
        wait_s = min(STORE_S_MAX, STORE_S_FIRST * (1 << min(self._store_failures, 8)))
        self._store_failures += 1
        # Telegram is there, and still nothing comes in: what waits there grows old.
        self._contact.lost(f"updates cannot be stored: {error.detail}", wait_s=wait_s)
        await asyncio.sleep(wait_s)

    def _on_store_well(self) -> None:
        if self._store_failures:
            self._store_failures = 0
            self._events.tell(StoreRecovered(bot_id=self._bot_id))


def _is_long(away_ms: int | None, least_s: float) -> bool:
    return away_ms is not None and away_ms >= least_s * 1000


def _stopped() -> Unavailable:
    return Unavailable(code="source_stopped", detail="The source of this bot's updates was stopped. Ask again.")
