"""Settles one outage: reads what waited through it, answers presses, tells people, and takes away what is not handed on.

Notices are durable before anything is taken away, and each has a key of its chat and outage. A crash on any line is
followed by the same settlement once more, which tells nobody twice.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from peik.clock import Clock
from peik.core.arrival import DEFAULT_CONSUMER, is_wanted
from peik.core.missed import Absence, Ledger, Notice, Policy
from peik.core.notice import Texts, alert_text, notice_text
from peik.core.spans import Span
from peik.core.wish import Wish
from peik.errors import Conflict
from peik.inbox_ports import Consumer, InboxStore, Outgoing
from peik.ports import BotRecord

PAGE = 500
CHATS_MAX = 50_000  # told in one go: what is known of each is held in memory meanwhile
RANGE_MAX = 200_000  # arrivals looked at in one go
BATCH = 500
SPANS_MAX = 5_000  # in one commit
ANSWERS_MAX = 8  # at once
ANSWERS_S_MAX = 30.0  # for all of them; the others join the notices
PRESS_S_MAX = 150.0  # an older press cannot be answered, and need not be tried

Accept = Callable[[int, Sequence[Outgoing]], Awaitable[None]]
Answer = Callable[[int, str, bytes], Awaitable[bool]]


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an outage."""

    missed: int = 0
    handed: int = 0
    notices: int = 0

    def and_also(self, other: "Settled") -> "Settled":
        return Settled(
            missed=self.missed + other.missed,
            handed=self.handed + other.handed,
            notices=self.notices + other.notices,
        )


class Settling:
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
        self, bot: BotRecord, outage_id: int, policy: Policy, absence: Absence, earlier: Sequence[Absence]
    ) -> Settled:
        """Deal with everything that is here now. Raises StoreUnavailable; then it is to be called again."""
        state = await self._store.inbox(bot.bot_id)
        last = 0 if state is None else state.last_number
        consumer = await self._store.ensure_consumer(bot.bot_id, DEFAULT_CONSUMER, at_ms=self._clock.wall_ms())
        after = consumer.progress.watermark
        whole = Settled()
        while after < last:
            ledger = Ledger(policy, absence, bot_id=bot.bot_id, username=bot.username, earlier=earlier)
            after = await self._read(consumer, ledger, after=after, last=last)
            away_s = (absence.ended_at_ms - absence.began_at_ms) / 1000
            done = await self._deal(bot.bot_id, consumer, ledger, f"missed:{outage_id}", policy, away_s)
            whole = whole.and_also(done)
        return whole

    async def _read(self, consumer: Consumer, ledger: Ledger, *, after: int, last: int) -> int:
        """Fill the ledger with open arrivals; the number up to which it got."""
        seen = 0
        while after < last and seen < RANGE_MAX and ledger.chats < self._chats_max:
            page = await self._store.arrivals_after(consumer.id, after, limit=PAGE)
            for arrival in page:
                if arrival.number > last:
                    return last
                if is_wanted(arrival.type, consumer.allowed) and not consumer.progress.is_over(arrival.number):
                    ledger.add(arrival)
            if not page:
                return last
            after = page[-1].number
            seen += len(page)
            await asyncio.sleep(0)  # a long backlog must not keep others from the loop
        return after

    async def _deal(
        self, bot_id: int, consumer: Consumer, ledger: Ledger, key: str, policy: Policy, away_s: float
    ) -> Settled:
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
        return Settled(missed=verdict.missed, handed=verdict.handed, notices=told)

    async def _over(self, consumer: Consumer, spans: Sequence[Span]) -> None:
        for start in range(0, len(spans), SPANS_MAX):
            await self._store.settle_arrivals(
                consumer.id, over=spans[start : start + SPANS_MAX], at_ms=self._clock.wall_ms()
            )

    # ---- notices ----

    def _letter(self, notice: Notice, key: str, *, is_handled: bool, away_s: float) -> Outgoing:
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
        return Outgoing(
            method="sendMessage",
            params=msgspec.json.encode(params),
            idempotency_key=f"{key}:{first.chat}",
            metadata=_METADATA,
        )

    async def _accept_all(self, bot_id: int, letters: Sequence[Outgoing]) -> int:
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
        self, bot_id: int, presses: Sequence[Wish], *, is_handled: bool, away_s: float
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
