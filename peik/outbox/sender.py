"""One bot's sender: take, mark, send, judge, settle, tell. It acts in turns; a turn handles all that came since the last."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial

import msgspec

from peik.clock import Clock
from peik.core.arrival import Ages
from peik.core.events import Event, Events, StoreFailed, StoreRecovered
from peik.core.lanes import Lanes, Room
from peik.core.letter import EDITS_TURN, INTERACTIVE_RANK_MAX, RANKS, Chat, Draft, LaneKey, Letter, is_edit
from peik.core.lifecycle import BACKOFF_MS_MAX, DELIVER, EXPIRED, Move, carried_on, end_unsent, settle
from peik.core.outcome import Delivered, NetworkFault, Refused, Reply, Unsent, judge
from peik.core.pace import NO_LIMITS, Pace, PaceLimits
from peik.errors import StoreUnavailable
from peik.outbox.attachments import Attachments
from peik.outbox.effects import SERVER_ERROR_S, ChatBook, LetterEffects
from peik.outbox.leases import Lease
from peik.outbox.recovery import STORE_RETRY_S, OutboxRecovery, Settling, TurnStep, going_on, settled
from peik.outbox.store import BotRecord, LetterView, Marked, Store
from peik.outbox.window import Orphaned, Parked, Windows, resolve, why
from peik.storage.spool import SpoolPort
from peik.telegram.port import Enclosure, Request
from peik.telegram.routes import Route, Routes
from peik.wakeup import Wakeup

LATE_S = 0.5  # a store that takes longer than this must not make sends come closer together than the pace wants
ENDED_PER_TURN_MAX = 512  # letters of a shut chat that may end in one turn, so that others are not kept waiting
FLYING_S = 0.5
STORING_S = 0.02
STORE_TOLD_S = (
    60.0  # while a failure lasts: on a disk that is nearly full all others may succeed, and nobody else would tell
)
GAP_S = 0.1  # news of what another node accepted take a few milliseconds, and `NewsPause` more when it is busy
AHEAD_MAX = 1000  # letters that wait for such news, then the store is read instead
_RANKS = tuple(range(RANKS))
_INTERACTIVE = tuple(rank for rank in _RANKS if rank <= INTERACTIVE_RANK_MAX)
_BULK = tuple(rank for rank in _RANKS if rank > INTERACTIVE_RANK_MAX)
_EDITS = (EDITS_TURN,)
_STOPPING = Reply(
    fault=NetworkFault.NOT_TRIED, left=False, detail="this Peik is about to stop, or to leave the bot to another"
)
_NEVER_LEFT = Unsent(why="the store did not say that it was marked")


class SenderTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How senders work; the same for all bots, except that a bot may have limits of its own."""

    in_flight_max: int = 64
    timeout_s: float = 75.0  # a healthy send can take 10 s and more (docs/telegram.md, Slow sends)
    upload_timeout_s: float = 500.0
    is_paced: bool = True
    room: Room = Room()


class Sender:
    def __init__(
        self,
        bot: BotRecord,
        lease: Lease,
        *,
        store: Store,
        routes: Routes,
        spool: SpoolPort,
        clock: Clock,
        events: Events,
        terms: SenderTerms,
    ) -> None:
        self.lease = lease
        self._bot_id = bot.bot_id
        self._store = store
        self._routes = routes
        self._clock = clock
        self._events = events
        self._terms = terms
        self._bell = Wakeup()
        self._lanes = Lanes(terms.room)
        self.chats = ChatBook(bot.bot_id, store)
        self._enclosing = Attachments(bot.bot_id, store, spool, clock)
        self._windows = Windows(bot.bot_id, self._lanes, store, terms.room, clock=clock, ring=self._bell.ring)
        self._consequences = LetterEffects(
            bot,
            store=store,
            routes=routes,
            clock=clock,
            events=events,
            lanes=self._lanes,
            pace=Pace(self._limits(bot), now=clock.mono(), has_free_edits=not bot.token.is_account),
            chats=self.chats,
            enclosing=self._enclosing,
            ring=self._bell.ring,
        )
        self._flying: dict[int, Letter] = {}
        self._eager: dict[int, Callable[[bytes], None]] = {}  # by letter: who wants Telegram's yes at once
        self._flying_bulk = 0
        self._reserved = 0  # places of letters that are not durable yet
        self.is_over = False
        self._replies: list[tuple[Letter, Reply, Route, float]] = []  # by which route, begun when
        self._stored: list[tuple[TurnStep, Marked]] = []
        self._settlements: list[Settling] = []
        self._refused: list[Letter] = []  # whose marks did not take
        self._surprise: Exception | None = None  # what went wrong outside of a turn
        self._unstored = 0
        self._storing: Counter[int] = Counter()  # letters that wait on, and the store has not said so yet
        self._store_retry_at = 0.0
        self._store_told_at = 0.0
        self._next_number: int | None = None
        # By number, those that came before one that another node accepted, of which the news is on its way; and the numbers of
        # letters that were found in the store before any news of them.
        self._ahead: dict[int, Letter] = {}
        self._found: set[int] = set()
        self._gap_until = 0.0
        self._ages = Ages()
        self._is_draining = False
        self._is_idle = asyncio.Event()
        routes.when_back(self._bell.ring)

    @property
    def bot(self) -> BotRecord:
        return self._consequences.bot

    @property
    def _pace(self) -> Pace:
        return self._consequences.pace

    # ---- from others, in the event loop ----

    def offer(self, letters: Sequence[Letter]) -> None:
        """Letters of this bot that have just become durable, in the order of their numbers: accepted here, or heard of."""
        for letter in letters:
            if letter.number == self._next_number:
                if self._ahead or self._found:
                    self._ahead[letter.number] = letter
                    self._go_on(letter.number)
                else:
                    self._next_number = letter.number + 1
                    self._lanes.offer(letter)
            elif self._next_number is None:
                self._note(letter)
                self._lanes.offer(letter)
            elif letter.number > self._next_number:
                self._wait_for_news(letter)
            # Else a later one came first, and what went before that is read from the store.
        if letters:
            self._ages.came(letters[0].number, letters[-1].number, self._clock.mono())
        self._ring_unless_paused()

    def _ring_unless_paused(self) -> None:
        """For letters that came. Nothing of a bot that is paused is looked at before it goes on, which rings."""
        if not self.bot.paused:
            self._bell.ring()

    def _go_on(self, number: int) -> None:
        """Offer to the lanes what comes next, from this number on, as far as it is known."""
        while number in self._ahead or number in self._found:
            letter = self._ahead.pop(number, None)
            if number in self._found:
                self._found.remove(number)
            elif letter is not None and self.chats.same_as(letter.chat) == letter.chat:
                self._lanes.offer(letter)
            else:
                self._lanes.forget_all()  # its chat has moved since
            number += 1
        self._next_number = number

    def _wait_for_news(self, letter: Letter) -> None:
        """Another node accepted what goes before this one. To read all lanes anew for it would cost more than all else."""
        if not self._ahead:
            self._gap_until = self._clock.mono() + GAP_S
        self._ahead[letter.number] = letter
        if len(self._ahead) > AHEAD_MAX:
            self._read_the_gap()

    def _read_the_gap(self) -> None:
        """The news did not come, or what is kept here may be out of date: all of it is in the store."""
        if self._ahead:
            ahead = [self._ahead[number] for number in sorted(self._ahead)]
            self._forget_all()
            self._next_number = ahead[-1].number + 1
            for letter in ahead:
                self._lanes.offer(letter)  # their lanes are read first

    def _note(self, letter: Letter) -> None:
        if letter.number != self._next_number:
            # The first one, or another process wrote in between: what it wrote goes first, so memory is read anew.
            self._forget_all()
        self._next_number = max(self._next_number or 0, letter.number + 1)

    def _forget_all(self) -> None:
        self._ahead.clear()
        self._found.clear()
        self._lanes.forget_all()

    def reserve(self, draft: Draft) -> float | None:
        """Keep a place for a letter that is about to be accepted, so that one commit accepts and marks it. None: there is
        somebody before it, or it cannot go now. When it may go, for `express`."""
        key, is_interactive = (draft.chat, draft.thread), draft.rank <= INTERACTIVE_RANK_MAX
        if self.is_over or self._next_number is None or self._ahead or not self._lanes.is_free(key, draft.rank):
            return None  # first, because under load it is the answer to nearly all
        now, at_ms = self._clock.mono(), self._clock.wall_ms()
        can_go = (
            self._can_send(now)
            and self._has_slot(_INTERACTIVE if is_interactive else _BULK)
            and not self.chats.is_moving(draft.chat)
            and not self.chats.is_shut(draft.chat, at_ms)
            and self._pace.bot_ready_at(now, interactive=is_interactive) <= now
            and self._pace.chat_ready_at(draft.chat, now, weight=draft.weight, is_edit=is_edit(draft.method)) <= now
        )
        if not can_go:
            return None
        self._lanes.reserve(key, draft.rank)
        self._pace.spend(
            draft.chat, now, weight=draft.weight, interactive=is_interactive, is_edit=is_edit(draft.method)
        )
        self._reserved += 1
        self._flying_bulk += not is_interactive
        return now

    def give_up(self, draft: Draft) -> None:
        """What a place was kept for does not come."""
        self._reserved -= 1
        self._flying_bulk -= draft.rank > INTERACTIVE_RANK_MAX
        self._lanes.leave((draft.chat, draft.thread))
        self._bell.ring()

    def express(self, letter: Letter, reserved_at: float) -> None:
        """It came, and is marked: it goes."""
        self._reserved -= 1
        self._flying[letter.id] = letter
        self._note(letter)
        self._ages.came(letter.number, letter.number, self._clock.mono())
        # At once: a turn of its own would come a round of the loop later. But it is the store that calls: what goes wrong
        # here must end this sender, as in a turn, so that the next one takes up what is marked.
        try:
            self._send_marked(TurnStep((), (letter,), reserved_at), None, self._clock.mono())
        except Exception as error:  # noqa: BLE001  it is raised by the next turn
            self._surprise = error
            self._bell.ring()

    def remove(self, key: LaneKey, letter_id: int) -> None:
        """Somebody ended this letter; it must not be tried from memory."""
        self._lanes.remove(key, letter_id)
        for letter in self._ahead.values():
            if letter.id == letter_id:
                self._found.add(letter.number)

    def reread(self, key: LaneKey) -> None:
        """A letter came into this lane at an older place."""
        self._read_the_gap()
        self._lanes.forget(key)
        self._bell.ring()

    def reread_all(self) -> None:
        """Another process wrote to the store: what memory knows may be out of date."""
        if self._next_number is not None or not self.bot.paused:  # else all is forgotten, and nothing was read since
            self._next_number = None  # nobody says what was written: the next one is the first again
            self._forget_all()
        self._ring_unless_paused()

    def catch_up(self, number: int) -> None:
        """The newest letter of this bot has this number; if it is unknown here, another node accepted it."""
        if self._next_number is None or number >= self._next_number:
            ahead = {one: letter for one, letter in self._ahead.items() if one > number}
            self.reread_all()
            self._ahead = ahead
            self._go_on(number + 1)

    async def reread_chats(self) -> None:
        """Another node held, shut or opened chats."""
        await self.chats.load()
        self.chats.hold(self._pace, self._clock.mono(), self._clock.wall_ms())
        self._read_the_gap()
        self._lanes.forget_all()
        self._bell.ring()

    def wake(self) -> None:
        self._bell.ring()

    def why(self, view: LetterView, head: int | None) -> str:
        """Why a letter of this bot is still waiting, as a sentence."""
        return why(
            view,
            bot=self.bot,
            chats=self.chats,
            pace=self._pace,
            route_why=self._routes.in_use.status().why if self._routes.is_open else None,
            head=head,
            now=self._clock.mono(),
            at_ms=self._clock.wall_ms(),
        )

    def watch(self, letter_id: int, tell: Callable[[bytes], None] | None) -> None:
        """Tell Telegram's yes to a letter as it comes in, before it is stored; None ends that. See `OutboxService.answer`."""
        if tell is None:
            self._eager.pop(letter_id, None)
        else:
            self._eager[letter_id] = tell

    def open_chat(self, chat: Chat) -> None:
        """A person says that the chat can be reached again."""
        self.chats.open(chat)
        self._bell.ring()

    def hold_chat(self, chat: Chat, until_ms: int) -> None:
        """A person wants nothing sent to the chat until then."""
        now = self._clock.mono()
        self._pace.hold_chat(chat, now, now + (until_ms - self._clock.wall_ms()) / 1000)
        self._lanes.recheck(chat)
        self._bell.ring()

    def update(self, bot: BotRecord) -> None:
        """The bot's record has changed: its token, its limits, or whether it is paused."""
        if bot.limits != self.bot.limits:
            self._pace.change(self._limits(bot), self._clock.mono())
            self._lanes.recheck()
        self._consequences.update(bot)
        self._bell.ring()

    async def drain(self) -> None:
        """Take nothing more; returns when nothing is in flight and everything is settled."""
        self._is_draining = True
        self._bell.ring()
        await self._is_idle.wait()

    def _limits(self, bot: BotRecord) -> PaceLimits:
        return (bot.limits or bot.usual_limits) if self._terms.is_paced else NO_LIMITS

    # ---- the loop ----

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            self.is_over = True
            self._is_idle.set()  # nobody shall wait for one that has ended

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._consequences.begin(group)
            await OutboxRecovery(
                self._bot_id,
                self.lease,
                store=self._store,
                clock=self._clock,
                events=self._events,
                chats=self.chats,
                pace=lambda: self._pace,
            ).run()
            while True:
                # One look at the clock for both: an instant that passed in between would be neither acted on nor waited for.
                now = self._clock.mono()
                self._turn(now)
                if self._is_draining and not (self._flying or self._reserved or self._settlements or self._unstored):
                    self._is_idle.set()
                await self._bell.wait(self._wake_at(now))

    def _turn(self, now: float) -> None:
        if self._surprise is not None:
            raise self._surprise
        self._take_in_stored(now)
        self._take_in_replies(now)
        if self._ahead and now >= self._gap_until:
            self._read_the_gap()
        self._lanes.wake(now)
        self._flush(self._take(now), now)
        if not self._is_draining and not self.bot.paused:  # what nobody may send needs not be read
            self._windows.read(now, self._group)

    def _wake_at(self, now: float) -> float | None:
        if self._store_retry_at > now:
            return self._store_retry_at
        times = [self._gap_until] if self._ahead else []
        if self._can_send(now):
            times += [at for at in (self._lanes.next_timer(), self._windows.next_at(now)) if at is not None]
            times += [
                self._pace.bot_ready_at(now, interactive=ranks is _INTERACTIVE)
                for ranks in (_INTERACTIVE, _BULK)
                if self._lanes.has_ready(ranks) and self._has_slot(ranks)
            ]
            if self._lanes.has_ready(_EDITS) and self._has_slot(_INTERACTIVE):
                times.append(self._pace.edits_ready_at(now))
        return min(times) if times else None

    # ---- take ----

    def _can_send(self, now: float) -> bool:
        is_kept = self._is_draining or self.bot.paused or self._routes.is_open
        return not is_kept and self._store_retry_at <= now < self.lease.ends_at

    def _has_slot(self, ranks: Sequence[int]) -> bool:
        """Bulk leaves an eighth of the places to what people wait for."""
        limit = self._terms.in_flight_max
        if len(self._flying) + self._reserved >= limit:
            return False
        return ranks is _INTERACTIVE or self._flying_bulk < limit - limit // 8

    def _open_turns(self, now: float) -> tuple[tuple[int, ...], int]:
        """The turns of which a letter may go now, and after how many this has to be asked again."""
        limit, pace = self._terms.in_flight_max, self._consequences.pace
        places = limit - len(self._flying) - self._reserved
        if places <= 0:
            return (), 1
        bulk_places = limit - limit // 8 - self._flying_bulk
        edits = _EDITS if self._lanes.has_ready(_EDITS) and pace.edits_ready_at(now) <= now else ()
        is_interactive = pace.bot_ready_at(now, interactive=True) <= now
        if bulk_places > 0 and pace.bot_ready_at(now, interactive=False) <= now:
            ranks = _RANKS if is_interactive else _BULK
            return ranks + edits, 1 if pace.is_on else min(places, bulk_places)
        return (_INTERACTIVE if is_interactive else ()) + edits, 1 if pace.is_on else places

    def _take(self, now: float) -> list[Letter]:
        """As many letters as lanes, pace and places allow. What must end without a try is settled on the way."""
        marks: list[Letter] = []
        if not self._can_send(now):
            return marks
        at_ms = self._clock.wall_ms()
        ended = 0
        pace, flying, shut = self._consequences.pace, self._flying, self.chats.shut_chats
        is_paced = pace.is_on
        take, ready_at = self._lanes.take, partial(self._ready_at, now, at_ms)
        turns, unasked = self._open_turns(now)
        while ended < ENDED_PER_TURN_MAX and turns:
            letter = take(now, turns=turns, ready_at=ready_at)
            if letter is None:
                break
            if (letter.expires_at_ms or letter.chat in shut) and self._end_early(letter, at_ms):
                ended += 1
                continue
            is_interactive = letter.rank <= INTERACTIVE_RANK_MAX
            if is_paced:
                pace.spend(
                    letter.chat, now, weight=letter.weight, interactive=is_interactive, is_edit=is_edit(letter.method)
                )
            flying[letter.id] = letter
            self._flying_bulk += not is_interactive
            if self._next_number is not None and letter.number >= self._next_number:
                self._found.add(letter.number)
            if letter.awaits is not None or letter.enclosed:
                self._group.create_task(self._prepare(letter, now))
            else:
                marks.append(letter)
            unasked -= 1
            if not unasked:
                turns, unasked = self._open_turns(now)
        if ended:
            self._bell.ring()
        return marks

    def _ready_at(self, now: float, at_ms: int, letter: Letter) -> float:
        if letter.expires_at_ms and letter.expires_at_ms <= at_ms:
            return now
        chats, chat = self.chats, letter.chat
        if chat in chats.moving_chats:
            return float("inf")  # until the move is stored and the lane is read anew
        if chat in chats.shut_chats and chats.is_shut(chat, at_ms):
            return now
        if letter.id in self._flying:
            return now + FLYING_S  # its chat moved while it was in flight: it stands in two lanes until it lands
        if letter.id in self._storing:
            # If the answer is lost, what became of the last try is stored again: never over the mark of the next one.
            return now + STORING_S
        pace = self._consequences.pace
        chat_at = pace.chat_ready_at(chat, now, weight=letter.weight, is_edit=is_edit(letter.method))
        if letter.due_at_ms > at_ms:
            ahead_ms = letter.due_at_ms - at_ms
            # No backoff is longer than this. What seems to be was set before the wall clock was put back, and is due.
            if ahead_ms <= max(BACKOFF_MS_MAX, letter.backoff_ms):
                return max(chat_at, now + ahead_ms / 1000)
        return chat_at

    def _end_early(self, letter: Letter, at_ms: int) -> bool:
        if letter.expires_at_ms and letter.expires_at_ms <= at_ms:
            self._end(letter, Move.EXPIRE, EXPIRED, at_ms)
            return True
        reason = self.chats.shut_reason(letter.chat, at_ms)
        if reason is not None:
            self._end(letter, Move.SHUT_OUT, reason, at_ms)
            return True
        return False

    def _end(self, letter: Letter, move: Move, reason: str, at_ms: int) -> None:
        settlement = end_unsent(letter, move, reason, at_ms=at_ms)
        self._settlements.append((settlement, letter, settled(settlement, letter)))
        self._lanes.leave_settling(letter.lane)

    async def _prepare(self, letter: Letter, taken_at: float) -> None:
        """What cannot be done at once: find the message id that a letter refers to, or the id of a file of its."""
        try:
            ready = await self._prepared(letter)
        except StoreUnavailable:
            self._land(letter)
            self._lanes.put_back(letter)
            self._store_retry_at = self._clock.mono() + STORE_RETRY_S
            ready = None
        if ready is not None:
            self._flying[ready.id] = ready
            self._write(TurnStep([], [ready], taken_at))
        self._bell.ring()

    async def _prepared(self, letter: Letter) -> Letter | None:
        ready = letter
        if letter.awaits is not None:
            match await resolve(letter, self._store):
                case Letter() as filled:
                    ready = filled
                case Orphaned(reason=reason):
                    self._land(letter)
                    self._end(letter, Move.ORPHAN, reason, self._clock.wall_ms())
                    return None
                case Parked(letter_id=other):
                    await self._store.park(msgspec.structs.replace(letter, awaits=other))
                    self._skip(letter)
                    return None
        if ready.enclosed:
            await self._enclosing.prepare(ready)
        return ready

    def _land(self, letter: Letter) -> None:
        del self._flying[letter.id]
        self._flying_bulk -= letter.rank > INTERACTIVE_RANK_MAX

    def _skip(self, letter: Letter) -> None:
        """The letter does not wait any more as we knew it. Read its lane anew."""
        self._land(letter)
        self._lanes.forget(letter.lane)
        self._lanes.leave(letter.lane)

    # ---- mark and settle ----

    def _flush(self, marks: Sequence[Letter], now: float) -> None:
        settlements: Sequence[Settling] = ()
        reclaimed: Sequence[Letter] = ()
        if now >= self._store_retry_at:
            settlements, self._settlements = self._settlements, []
            reclaimed, self._refused = self._refused, []
        if settlements or marks or reclaimed:
            self._write(TurnStep(settlements, marks, now, reclaimed))

    def _write(self, step: TurnStep) -> None:
        self._unstored += 1
        self._storing.update(going_on(step))

        def stored(marked: Marked) -> None:
            self._stored.append((step, marked))
            self._bell.ring()

        at_ms = self._clock.wall_ms()
        settlements = [settlement for settlement, _, _ in step.settlements]
        # A mark that did not take may be our own, of a commit whose answer was lost: nothing has left under it, and it goes.
        # If the letter was ended by somebody, there is no mark of ours, and this changes nothing.
        settlements += [settle(letter, _NEVER_LEFT, at_ms=at_ms) for letter in step.reclaimed]
        self._store.advance(settlements, step.marks, epoch=self.lease.epoch, at_ms=at_ms, done=stored)

    def _take_in_stored(self, now: float) -> None:
        stored, self._stored = self._stored, []
        told: list[Event] = []
        for step, marked in stored:
            self._unstored -= 1
            if self._storing:
                self._storing.subtract(going_on(step))
                self._storing = +self._storing  # those that are stored are forgotten
            if marked.error is not None:
                self._store_failed(step, marked.error, now)
                continue
            if self._store_retry_at:
                self._store_retry_at = 0.0
                told.append(StoreRecovered(bot_id=self._bot_id))
            for _, letter, event in step.settlements:
                self._lanes.settled((letter.chat, letter.thread))
                told.append(event)
            self._send_marked(step, marked.taken, now)
            for letter in step.reclaimed:
                self._skip(letter)
        if told:
            self._events.tell_all(told)

    def _store_failed(self, step: TurnStep, error: BaseException, now: float) -> None:
        """Nothing of the step is stored: keep the settlements to store them later, and try no letter meanwhile."""
        if not isinstance(error, StoreUnavailable):
            raise error
        if not self._store_retry_at or now - self._store_told_at >= STORE_TOLD_S:
            self._store_told_at = now
            self._events.tell(StoreFailed(bot_id=self._bot_id, what="a step", why=error.detail))
        self._store_retry_at = now + STORE_RETRY_S
        self._settlements[:0] = step.settlements
        self._refused[:0] = step.reclaimed
        for letter in step.marks:
            self._land(letter)
            self._lanes.put_back(letter)

    # ---- send ----

    def _send_marked(self, step: TurnStep, taken: Collection[int] | None, now: float) -> None:
        is_late, is_paced = now - step.taken_at > LATE_S, self._pace.is_on
        for letter in step.marks:
            if taken is not None and letter.id not in taken:
                self._refused.append(letter)  # its lane waits: what comes after it must not overtake it
                continue
            if is_paced and is_late:
                self._pace.left_late(
                    letter.chat, now, spent_at=step.taken_at, weight=letter.weight, is_edit=is_edit(letter.method)
                )
            if is_paced and letter.rank > INTERACTIVE_RANK_MAX:
                leaves_at = self._pace.leaves_at(now, weight=letter.weight, is_edit=is_edit(letter.method))
                if leaves_at > now:
                    self._group.create_task(self._send_later(letter, leaves_at - now))
                    continue
            self._send(letter)

    async def _send_later(self, letter: Letter, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        self._send(letter)

    def _send(self, letter: Letter) -> None:
        route, began_at = self._routes.in_use, self._clock.mono()

        def replied(reply: Reply) -> None:
            replies = self._replies
            if not replies:  # else it has been rung since the last turn took all of them
                self._bell.ring()
            replies.append((letter, reply, route, began_at))

        if self._is_draining or began_at >= self.lease.ends_at:
            replied(_STOPPING)
            return
        params: str = letter.params
        enclosures: Sequence[Enclosure] = ()
        if letter.enclosed:
            spoiled = self._enclosing.spoiled(letter)
            if spoiled is not None:
                replied(Reply(fault=NetworkFault.SPOILED, left=False, detail=spoiled))
                return
            params, enclosures = self._enclosing.fill(letter)
        own_s = letter.timeout_ms / 1000
        request = Request(
            token=self._consequences.bot.token,
            method=letter.method,
            params=self.chats.readdressed(letter, params) if letter.is_moved else params.encode(),
            enclosures=enclosures,
            letter=(letter.id, letter.number),
            timeout_s=own_s or (self._terms.upload_timeout_s if enclosures else self._terms.timeout_s),
        )
        route.start(request, replied)

    # ---- judge and settle ----

    def _take_in_replies(self, now: float) -> None:
        replies, self._replies = self._replies, []
        at_ms = self._clock.wall_ms()
        consequences, came_when = self._consequences, self._ages.at
        for letter, reply, route, began_at in replies:
            outcome = judge(
                reply,
                method=letter.method,
                was_uncertain=letter.uncertain_tries > 0,
                had_server_error=now - consequences.server_error_at < SERVER_ERROR_S,
            )
            route.observe(letter.id, outcome, reply, began_at=began_at)
            outcome = consequences.apply(letter, outcome, now, at_ms)
            if letter.enclosed:
                self._enclosing.landed(letter)
            if letter.id in self._eager:
                if isinstance(outcome, Delivered):
                    self._eager.pop(letter.id)(outcome.result)
                elif isinstance(outcome, Refused) and outcome.may_be_mended:
                    # Who waits hears it now and sends in another way; tried again, the letter might arrive beside that.
                    outcome = msgspec.structs.replace(outcome, is_passing=False)
            came_at = came_when(letter.number)
            waited_s = None if came_at is None else now - came_at
            settlement = settle(letter, outcome, at_ms=at_ms)
            event = settled(settlement, letter, outcome, now - began_at, waited_s)
            self._settle(letter, (settlement, letter, event))

    def _settle(self, letter: Letter, settled_as: Settling) -> None:
        settlement, lane = settled_as[0], (letter.chat, letter.thread)
        self._land(letter)
        self._settlements.append(settled_as)
        if settlement.move is DELIVER or settlement.state.is_final:
            self._lanes.leave_settling(lane)
        else:
            self._lanes.settling(lane)
            self._lanes.put_back(carried_on(letter, settlement))


# An express: a letter that is marked in the very commit that accepts it, since its lane is free and its sender may
# send.
#
# What a person waits for goes out one commit sooner. Whoever comes to the same lane meanwhile waits behind it. Only SQLite does
# it: a server may make a commit whose answer is lost, and nobody would send under that mark.


class Expressed:
    """A kept place, until the letter that it is for goes, waits like any other, or does not come.

    A sender that has ended meanwhile is followed by one that takes up what is marked: the commit was asked for before that
    one asks what was left in flight.
    """

    def __init__(self, sender: Sender, draft: Draft, reserved_at: float) -> None:
        self.epoch = sender.lease.epoch
        self._sender = sender
        self._draft = draft
        self._reserved_at = reserved_at

    def stored(self, letter: Letter, *, is_marked: bool) -> None:
        if self._sender.is_over:
            return
        if is_marked:
            self._sender.express(letter, self._reserved_at)
        else:
            # Somebody is before it whom this process does not know yet: read them first.
            self._sender.give_up(self._draft)
            self._sender.catch_up(letter.number)

    def failed(self) -> None:
        if not self._sender.is_over:
            self._sender.give_up(self._draft)


def express_of(sender: Sender | None, draft: Draft) -> Expressed | None:
    """A place for this draft, if it may go at once."""
    if sender is None or not draft.may_go_at_once:
        return None
    reserved_at = sender.reserve(draft)
    return None if reserved_at is None else Expressed(sender, draft, reserved_at)
