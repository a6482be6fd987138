"""What those who were away say of it, and ask before they go on. Who settles it is in `outages`."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from peik.clock import Clock
from peik.core.arrival import DEFAULT_CONSUMER, Arrival, Span, is_wanted
from peik.core.events import Events, OutageSettled, StoreFailed, Surprise
from peik.core.missed import Absence, MissedLedger, MissedMessage, MissedNotice, Policy
from peik.core.notice import Texts, alert_text, notice_text
from peik.errors import Conflict, NotFound, StoreUnavailable
from peik.inbox.store import Consumer, InboxStore, OutageRecord, OutgoingPush
from peik.outbox.store import BotRecord
from peik.wakeup import Wakeup

SOURCE = "source"  # who was away


class OutagePort(Protocol):
    """Who settles what waited while a source or the default consumer was away."""

    def expect(self, bot_id: int, who: str, since_ms: int, /) -> None:
        """It was away since then, and begins to catch up."""

    async def kept(self, bot_id: int, /) -> None:
        """Returns when that is durable. A source asks before anything is confirmed to Telegram."""

    def over(self, bot_id: int, who: str, /) -> None:
        """It has caught up."""

    def forget(self, bot_id: int, /) -> None:
        """It will never catch up: the bot was removed, or its updates are turned off."""

    def holds(self, bot_id: int, /) -> bool:
        """Whether the default consumer has to wait: what it would get may not be meant for it."""

    def when_released(self, ring: Callable[[int], None], /) -> None:
        """`ring` is called with a bot's id when its arrivals are not held any more."""


class NoOutages:
    """Nobody settles anything: everything is handed on."""

    def expect(self, bot_id: int, who: str, since_ms: int, /) -> None: ...

    async def kept(self, bot_id: int, /) -> None: ...

    def over(self, bot_id: int, who: str, /) -> None: ...

    def forget(self, bot_id: int, /) -> None: ...

    def holds(self, bot_id: int, /) -> bool:
        return False

    def when_released(self, ring: Callable[[int], None], /) -> None: ...


# Settles one outage: reads what waited through it, answers presses, tells people, and takes away what is not handed
# on.
#
# Notices are durable before anything is taken away, and each has a key of its chat and outage. A crash on any line is
# followed by the same settlement once more, which tells nobody twice.


PAGE = 500
CHATS_MAX = 50_000  # told in one go: what is known of each is held in memory meanwhile
RANGE_MAX = 200_000  # arrivals looked at in one go
BATCH = 500
SPANS_MAX = 5_000  # in one commit
ANSWERS_MAX = 8  # at once
ANSWERS_S_MAX = 30.0  # for all of them; the others join the notices
PRESS_S_MAX = 150.0  # an older press cannot be answered, and need not be tried

Accept = Callable[[int, Sequence[OutgoingPush]], Awaitable[None]]
Answer = Callable[[int, str, bytes], Awaitable[bool]]
Knows = Callable[[Arrival], bool]


def knows_none(_: Arrival) -> bool:
    return False


class SettledOutage(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an outage."""

    missed: int = 0
    handed: int = 0
    told: int = 0
    notices: int = 0

    def and_also(self, other: "SettledOutage") -> "SettledOutage":
        return SettledOutage(
            missed=self.missed + other.missed,
            handed=self.handed + other.handed,
            told=self.told + other.told,
            notices=self.notices + other.notices,
        )


class OutageSettlement:
    """Everything that settling needs of others. It holds no state of its own."""

    def __init__(
        self,
        *,
        store: InboxStore,
        clock: Clock,
        texts: Texts,
        accept: Accept,
        answer: Answer,
        chats_max: int = CHATS_MAX,
    ) -> None:
        self._store = store
        self._clock = clock
        self._texts = texts
        self._accept = accept
        self._answer = answer
        self._chats_max = chats_max

    async def settle(
        self,
        bot: BotRecord,
        outage_id: int,
        policy: Policy,
        absence: Absence,
        earlier: Sequence[Absence],
        knows: Knows = knows_none,
    ) -> SettledOutage:
        """Deal with everything that is here now, but for what `knows` knows. Raises StoreUnavailable; then it is to be
        called again."""
        state = await self._store.inbox(bot.bot_id)
        last = 0 if state is None else state.last_number
        consumer = await self._store.ensure_consumer(bot.bot_id, DEFAULT_CONSUMER, at_ms=self._clock.wall_ms())
        after = consumer.progress.watermark
        whole = SettledOutage()
        while after < last:
            ledger = MissedLedger(policy, absence, bot_id=bot.bot_id, username=bot.username, earlier=earlier)
            after = await self._read(consumer, ledger, knows, after=after, last=last)
            away_s = (absence.ended_at_ms - absence.began_at_ms) / 1000
            done = await self._deal(bot.bot_id, consumer, ledger, f"missed:{outage_id}", policy, away_s)
            whole = whole.and_also(done)
        return whole

    async def _read(self, consumer: Consumer, ledger: MissedLedger, knows: Knows, *, after: int, last: int) -> int:
        """Fill the ledger with open arrivals; the number up to which it got."""
        seen = 0
        while after < last and seen < RANGE_MAX and ledger.chats < self._chats_max:
            page = await self._store.arrivals_after(consumer.id, after, limit=PAGE)
            for arrival in page:
                if arrival.number > last:
                    return last
                is_open = is_wanted(arrival.type, consumer.allowed) and not consumer.progress.is_over(arrival.number)
                if is_open and not knows(arrival):
                    ledger.add(arrival)
            if not page:
                return last
            after = page[-1].number
            seen += len(page)
            await asyncio.sleep(0)  # a long backlog must not keep others from the loop
        return after

    async def _deal(
        self, bot_id: int, consumer: Consumer, ledger: MissedLedger, key: str, policy: Policy, away_s: float
    ) -> SettledOutage:
        is_handled = policy is Policy.BOTH
        answered = await self._answer_all(bot_id, ledger.presses, is_handled=is_handled, away_s=away_s)
        if not is_handled:
            # At once: after a crash Telegram would not take the answer again, and a notice would tell them twice.
            await self._over(consumer, [(number, number) for number in answered])
        verdict = ledger.close(answered)
        letters = [self._letter(notice, key, is_handled=is_handled, away_s=away_s) for notice in verdict.notices]
        told = 0
        for start in range(0, len(letters), BATCH):
            told += await self._accept_all(bot_id, letters[start : start + BATCH])
        await self._over(consumer, verdict.over)
        return SettledOutage(missed=verdict.missed, handed=verdict.handed, told=verdict.told, notices=told)

    async def _over(self, consumer: Consumer, spans: Sequence[Span]) -> None:
        for start in range(0, len(spans), SPANS_MAX):
            await self._store.settle_arrivals(
                consumer.id, over=spans[start : start + SPANS_MAX], at_ms=self._clock.wall_ms()
            )

    # ---- notices ----

    def _letter(self, notice: MissedNotice, key: str, *, is_handled: bool, away_s: float) -> OutgoingPush:
        first = notice.first
        words = self._texts.words(first.language)
        params: dict[str, object] = {
            "chat_id": first.chat,
            "text": notice_text(notice, words, is_handled=is_handled, away_s=away_s),
            "link_preview_options": {"is_disabled": True},  # of a link in the quote
        }
        if first.thread is not None:
            params["message_thread_id"] = first.thread
        if first.message_id is not None:
            params["reply_parameters"] = {"message_id": first.message_id, "allow_sending_without_reply": True}
        return OutgoingPush(
            method="sendMessage",
            params=msgspec.json.encode(params),
            idempotency_key=f"{key}:{first.chat}",
            metadata=_METADATA,
        )

    async def _accept_all(self, bot_id: int, letters: Sequence[OutgoingPush]) -> int:
        """How many of them are accepted now. The others were told before, in slightly other words: before a crash, when
        less time had passed, or in an earlier go through a very long backlog."""
        try:
            await self._accept(bot_id, letters)
            return len(letters)
        except Conflict:
            told = 0
            for letter in letters:
                with contextlib.suppress(Conflict):
                    await self._accept(bot_id, [letter])
                    told += 1
            return told

    # ---- presses ----

    async def _answer_all(
        self, bot_id: int, presses: Sequence[MissedMessage], *, is_handled: bool, away_s: float
    ) -> frozenset[int]:
        """The numbers of those whose sender has seen an alert."""
        oldest_ms = self._clock.wall_ms() - int(PRESS_S_MAX * 1000)
        waiting = iter([press for press in presses if press.received_at_ms >= oldest_ms])
        until = self._clock.mono() + ANSWERS_S_MAX
        answered: set[int] = set()

        async def answer_in_turn() -> None:
            for press in waiting:
                if self._clock.mono() >= until:
                    return
                text = alert_text(self._texts.words(press.language), is_handled=is_handled, away_s=away_s)
                params = {"callback_query_id": press.query_id, "text": text, "show_alert": True}
                if await self._answer(bot_id, "answerCallbackQuery", msgspec.json.encode(params)):
                    answered.add(press.number)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(ANSWERS_MAX, len(presses))):
                group.create_task(answer_in_turn())
        return frozenset(answered)


_METADATA = msgspec.json.encode({"message_type": "missed_notice"})


# Who was away, and since when: outages from the moment somebody comes back until what waited is settled.
#
# It says while that lasts that the default consumer's arrivals are held. What is done about them is below.


ASKED_AT_ONCE = 64  # of a store that may be a pool of connections
RETRY_S = 2.0
OTHERS_S = 60.0  # for another process to settle what it began; it may be dead
OTHERS_LOOK_S = 0.5
_AS_SET: tuple[bool, Policy | None, Knows] = (False, None, knows_none)

T = TypeVar("T")


class _Away:
    """One bot's outage that is not settled yet."""

    def __init__(self, bot_id: int, *, began_at_ms: int, back_at_ms: int) -> None:
        self.bot_id = bot_id
        self.began_at_ms = began_at_ms
        self.back_at_ms = back_at_ms
        self.recovered_from_ms: int | None = None
        self.expected: set[str] = set()
        self.ids: list[int] = []
        self.is_closing = False
        self.task: asyncio.Task[None] | None = None
        self.late: list[Callable[[], None]] = []  # what was said while it was being closed: it is about the next one
        self.kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.bell = Wakeup()


class Outages:
    """`expect` says that somebody is coming back, `over` that he has caught up. When all have, the outage is settled."""

    def __init__(
        self,
        *,
        store: InboxStore,
        clock: Clock,
        events: Events,
        settling: OutageSettlement,
        bot: Callable[[int], BotRecord | None],
        policy: str,
        missed_after_s: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._settling = settling
        self._bot = bot
        self._policy = policy
        self._missed_after_ms = int(missed_after_s * 1000)
        self._aways: dict[int, _Away] = {}
        self._elsewhere: set[int] = set()  # bots whose outage another process settles just now
        self._unheard: set[int] = set()  # bots whose source has not caught up since the start: it was away with us
        self._closely: dict[int, tuple[bool, Policy | None, Knows]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._served: Callable[[], Sequence[BotRecord]] = list
        self._tasks: set[asyncio.Task[None]] = set()
        self._rings: list[Callable[[int], None]] = []

    def look_closely(self, bot_id: int, *, counts_all: bool, policy: Policy | None, knows: Knows) -> None:
        """A program asks by itself for what this bot has missed. From now on any absence counts if `counts_all`, however short;
        `policy` holds where the bot has none of its own; and what `knows` knows was never missed."""
        self._closely[bot_id] = (counts_all, policy, knows)

    def open(self, group: asyncio.TaskGroup, served: Callable[[], Sequence[BotRecord]]) -> None:
        """From now on whoever reads here is looked after; and the sources of the bots that are served here, of which those
        that another process began to settle, and died over, are settled as well."""
        self._group = group
        self._served = served
        self._task(self._look_after(served))

    async def begin(self, bots: Sequence[BotRecord]) -> None:
        """These are served here from now on. Take up what whoever did that before left unsettled, as if its source were
        expected again."""
        for bot in bots:
            self._elsewhere.discard(bot.bot_id)
            if bot.inbound != "off":
                self._unheard.add(bot.bot_id)
        # Many at once: beside a thousand senders that are busy, one answer after the other kept a start waiting for a minute.
        for some in (bots[first : first + ASKED_AT_ONCE] for first in range(0, len(bots), ASKED_AT_ONCE)):
            for bot, left in zip(some, await self._persistently(partial(self._open_ones, some)), strict=True):
                if not left:
                    continue
                away = self._take_up(bot.bot_id, left)
                away.recovered_from_ms = min(outage.ended_at_ms for outage in left)
                if bot.bot_id in self._unheard:
                    away.expected.add(SOURCE)

    async def _open_ones(self, bots: Sequence[BotRecord]) -> list[list[OutageRecord]]:
        return await asyncio.gather(*(self._store.outages(bot.bot_id, is_open=True) for bot in bots))

    def _take_up(self, bot_id: int, left: Sequence[OutageRecord]) -> _Away:
        began_at_ms = min(outage.began_at_ms for outage in left)
        away = self._aways.get(bot_id) or self._begin(bot_id, began_at_ms=began_at_ms)
        away.began_at_ms = min(away.began_at_ms, began_at_ms)
        away.ids = sorted({*away.ids, *(outage.id for outage in left)})
        return away

    def leave(self, bot_id: int) -> None:
        """It is served elsewhere from now on, and what is not settled is taken up there."""
        self._unheard.discard(bot_id)
        away = self._aways.get(bot_id)
        if away is not None and away.task is not None:
            away.late.clear()
            away.task.cancel()

    def _task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        assert self._group is not None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _look_after(self, served: Callable[[], Sequence[BotRecord]]) -> None:
        while True:
            await asyncio.sleep(OTHERS_S)
            for bot in served():
                left = await self._persistently(partial(self._store.outages, bot.bot_id, is_open=True))
                away = self._aways.get(bot.bot_id)
                before_ms = self._clock.wall_ms() - int(OTHERS_S * 1000)
                orphans = [
                    one for one in left if one.ended_at_ms < before_ms and (away is None or one.id not in away.ids)
                ]
                # Who still lives and is slow is not disturbed: nobody is told twice, and an outage is closed once.
                if orphans and not (away is not None and away.is_closing):
                    self._take_up(bot.bot_id, orphans)

    def stop(self) -> None:
        """What is not settled is taken up at the next start."""
        self._group = None
        for task in list(self._tasks):
            task.cancel()

    async def look(self, bot_ids: Collection[int]) -> None:
        """Another process wrote: what it is about to settle for these bots, which are served elsewhere, is held here as
        well."""
        if self._group is None:
            return
        bot_ids = [one for one in bot_ids if self._policy_of(self._bot(one)) is not Policy.PROCESS]
        was_held = {bot_id for bot_id in bot_ids if self.holds(bot_id)}
        for bot_id in bot_ids:
            has_others = await self._others(bot_id)
            # It may have come to be served here while the store was asked: then nobody would ask for it again.
            if has_others and all(bot.bot_id != bot_id for bot in self._served()):
                self._elsewhere.add(bot_id)
            else:
                self._elsewhere.discard(bot_id)
        for bot_id in was_held:
            if not self.holds(bot_id):
                self._ring(bot_id)

    async def _others(self, bot_id: int) -> bool:
        away = self._aways.get(bot_id)
        ours = [] if away is None else away.ids
        return any(outage.id not in ours for outage in await self._store.outages(bot_id, is_open=True))

    # ---- for those who come and go ----

    def expect(self, bot_id: int, who: str, since_ms: int) -> None:
        """Somebody was away since then and begins to catch up. Who comes while an outage is open has a part in it."""
        if self._group is None:
            return  # Peik ends
        away = self._aways.get(bot_id) or self._begin(bot_id, began_at_ms=since_ms)
        if away.is_closing:
            away.late.append(partial(self.expect, bot_id, who, since_ms))
            return
        away.began_at_ms = min(away.began_at_ms, since_ms)
        away.expected.add(who)
        if bot_id in self._unheard:
            # What it fetches waited through the same outage. A consumer that is back sooner does not end it alone.
            away.expected.add(SOURCE)
        if SOURCE in away.expected and away.recovered_from_ms is None:
            away.recovered_from_ms = self._clock.wall_ms()

    async def kept(self, bot_id: int) -> None:
        """Until what was expected is durable, so that a crash from now on forgets no outage. Ask before the first poll."""
        while (away := self._aways.get(bot_id)) is not None:
            if not away.is_closing:
                await asyncio.shield(away.kept)
                return
            await asyncio.shield(away.over)  # what was expected meanwhile belongs to the next one

    def over(self, bot_id: int, who: str) -> None:
        """He has caught up. Who was not expected changes nothing."""
        if who == SOURCE:
            self._unheard.discard(bot_id)
        away = self._aways.get(bot_id)
        if away is None:
            return
        if away.is_closing:
            away.late.append(partial(self.over, bot_id, who))
            return
        away.expected.discard(who)
        away.bell.ring()

    def forget(self, bot_id: int) -> None:
        """Nobody will catch up for this bot any more: it was removed, or its updates are turned off."""
        self._unheard.discard(bot_id)
        away = self._aways.get(bot_id)
        if away is None:
            return
        if away.is_closing:
            away.late.append(partial(self.forget, bot_id))
            return
        away.expected.clear()
        away.bell.ring()

    # ---- for those who hand on ----

    def holds(self, bot_id: int) -> bool:
        """Whether the default consumer has to wait: what it would get may not be meant for it."""
        is_open = bot_id in self._aways or bot_id in self._elsewhere
        return is_open and self._policy_of(self._bot(bot_id)) is not Policy.PROCESS

    def when_released(self, ring: Callable[[int], None]) -> None:
        """`ring` is called with a bot's id when its arrivals are not held any more."""
        self._rings.append(ring)

    # ---- one outage ----

    def _begin(self, bot_id: int, *, began_at_ms: int) -> _Away:
        assert self._group is not None
        away = _Away(bot_id, began_at_ms=began_at_ms, back_at_ms=self._clock.wall_ms())
        self._aways[bot_id] = away
        away.task = self._task(self._see_through(away))
        return away

    async def _see_through(self, away: _Away) -> None:
        settled = SettledOutage()
        try:
            await self._keep(away)
            is_settled = False
            while not is_settled or away.expected:  # somebody may come back while it is being settled
                while away.expected:
                    await away.bell.wait()
                await self._wait_for_others(away)
                settled = await self._persistently(partial(self._settle, away))
                is_settled = True
            away.is_closing = True
            for outage_id in away.ids:
                close = partial(self._store.settle_outage, outage_id, at_ms=self._clock.wall_ms())
                await self._persistently(close)
        except NotFound:
            pass  # the bot was removed, and everything that waited went with it
        except Exception as error:  # noqa: BLE001 - one bot's surprise must not hold its arrivals for ever
            self._events.tell(Surprise(bot_id=away.bot_id, where="outages", error=repr(error)))
        finally:
            del self._aways[away.bot_id]
            if not away.kept.done():
                away.kept.set_result(None)
            for again in away.late:
                again()
            away.over.set_result(None)
        self._release(away, settled)

    async def _keep(self, away: _Away) -> None:
        if not away.ids:
            away.ids = await self._persistently(partial(self._open, away))
        away.kept.set_result(None)

    async def _open(self, away: _Away) -> list[int]:
        # A commit that was said to have failed may have been made all the same.
        for outage in await self._store.outages(away.bot_id, is_open=True):
            if outage.ended_at_ms == away.back_at_ms:
                return [outage.id]
        state = await self._store.inbox(away.bot_id)
        outage = await self._store.open_outage(
            away.bot_id,
            began_at_ms=away.began_at_ms,
            ended_at_ms=away.back_at_ms,
            last_number=0 if state is None else state.last_number,
        )
        return [outage.id]

    async def _wait_for_others(self, away: _Away) -> None:
        """What another process settles was the same absence, most likely: who comes second sees what it told whom."""
        deadline = self._clock.mono() + OTHERS_S
        while self._clock.mono() < deadline and min(await self._open_ids(away)) < min(away.ids):  # noqa: ASYNC110
            await asyncio.sleep(OTHERS_LOOK_S)

    async def _open_ids(self, away: _Away) -> list[int]:
        left = await self._persistently(partial(self._store.outages, away.bot_id, is_open=True))
        return [*away.ids, *(outage.id for outage in left)]

    async def _settle(self, away: _Away) -> SettledOutage:
        bot = self._bot(away.bot_id)
        now = self._clock.wall_ms()
        counts_all, _, knows = self._closely.get(away.bot_id, _AS_SET)
        after_ms = 0 if counts_all else self._missed_after_ms
        if bot is None or now - away.began_at_ms <= after_ms:
            return SettledOutage()
        absence = self._absence(away.began_at_ms, now, away.recovered_from_ms, after_ms)
        before = await self._store.outages(away.bot_id, is_open=False)
        earlier = [
            self._absence(outage.began_at_ms, outage.settled_at_ms, outage.ended_at_ms, after_ms)
            for outage in before
            if outage.settled_at_ms is not None and outage.settled_at_ms > away.began_at_ms
        ]
        return await self._settling.settle(bot, away.ids[0], self._policy_of(bot), absence, earlier, knows)

    def _absence(self, began_at_ms: int, ended_at_ms: int, recovered_from_ms: int | None, after_ms: int) -> Absence:
        return Absence(
            began_at_ms=began_at_ms,
            ended_at_ms=ended_at_ms,
            recovered_from_ms=recovered_from_ms,
            missed_after_ms=after_ms,
        )

    def _release(self, away: _Away, settled: SettledOutage) -> None:
        self._events.tell(
            OutageSettled(
                bot_id=away.bot_id,
                policy=self._policy_of(self._bot(away.bot_id)),
                away_s=(self._clock.wall_ms() - away.began_at_ms) / 1000,
                missed=settled.missed,
                handed=settled.handed,
                told=settled.told,
                notices=settled.notices,
            )
        )
        self._ring(away.bot_id)

    def _ring(self, bot_id: int) -> None:
        for ring in self._rings:
            ring(bot_id)

    def _policy_of(self, bot: BotRecord | None) -> Policy:
        if bot is None:
            return Policy(self._policy)
        return Policy(bot.missed or self._closely.get(bot.bot_id, _AS_SET)[1] or self._policy)

    async def _persistently(self, act: Callable[[], Awaitable[T]]) -> T:
        """Again and again while the store does not answer: what waited goes on waiting."""
        while True:
            try:
                return await act()
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="an outage", why=error.detail))
                await asyncio.sleep(RETRY_S)
