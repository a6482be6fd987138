"""What one turn of a sender gives to the store together, and what is told of each letter once it is stored. Values only."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from peik.clock import Clock
from peik.core.events import Events, Recovered, Settled, StoreFailed
from peik.core.letter import Letter
from peik.core.lifecycle import DELIVER, Settlement, settle
from peik.core.outcome import Delivered, Outcome, Uncertain
from peik.core.pace import Pace
from peik.core.trace import message_ids_in
from peik.errors import StoreUnavailable
from peik.outbox.effects import ChatBook
from peik.outbox.leases import Lease
from peik.outbox.store import Marked, Store

Settling = tuple[Settlement, Letter, Settled]  # and what is told once it is stored


class TurnStep(msgspec.Struct, frozen=True):
    """What one turn gave to the store together."""

    settlements: Sequence[Settling]
    marks: Sequence[Letter]
    taken_at: float  # when the pace allowed the tries
    reclaimed: Sequence[Letter] = ()


def going_on(step: TurnStep) -> list[int]:
    """The letters of a step that wait on."""
    return [
        letter.id
        for settlement, letter, _ in step.settlements
        if settlement.move is not DELIVER and not settlement.state.is_final
    ]


def settling(letter: Letter, outcome: Outcome, at_ms: int) -> Settling:
    settlement = settle(letter, outcome, at_ms=at_ms)
    return settlement, letter, settled(settlement, letter, outcome)


def settled(
    settlement: Settlement,
    letter: Letter,
    outcome: Outcome | None = None,
    took_s: float | None = None,
    waited_s: float | None = None,
) -> Settled:
    if letter.trace is None and outcome is not None and settlement.move is DELIVER:
        # Nearly all of them. A field that is named costs, so that what is as usual is left out.
        return Settled(
            bot_id=letter.bot_id,
            letter_id=letter.id,
            method=letter.method,
            chat=letter.chat,
            move=DELIVER,
            state=settlement.state,
            uncertain_tries=settlement.uncertain_tries,
            outcome=outcome,
            took_s=took_s,
            waited_s=waited_s,
        )
    return Settled(
        bot_id=letter.bot_id,
        letter_id=letter.id,
        method=letter.method,
        chat=letter.chat,
        move=settlement.move,
        state=settlement.state,
        reason=settlement.failed_reason,
        uncertain_tries=settlement.uncertain_tries,
        outcome=outcome,
        took_s=took_s,
        waited_s=waited_s,
        trace=letter.trace,
        message_ids=_message_ids(letter, outcome),
    )


def _message_ids(letter: Letter, outcome: Outcome | None) -> tuple[int, ...]:
    """Only of what somebody may want to follow: the rest of the letters shall not pay for it."""
    if letter.trace is None or not isinstance(outcome, Delivered):
        return ()
    return message_ids_in(outcome.result)


# Taking up what an owner before us left behind: holds, the last minute's sends, and what was in flight.


STORE_RETRY_S = 1.0
_CRASHED = Uncertain(why="Peik ended while it was in flight")


class OutboxRecovery:
    """What a sender does first, before it reads a lane."""

    def __init__(
        self,
        bot_id: int,
        lease: Lease,
        *,
        store: Store,
        clock: Clock,
        events: Events,
        chats: ChatBook,
        pace: Callable[[], Pace],  # the bot may be given other limits meanwhile
    ) -> None:
        self._bot_id = bot_id
        self._lease = lease
        self._store = store
        self._clock = clock
        self._events = events
        self._chats = chats
        self._pace = pace

    async def run(self) -> None:
        """Take up what an owner before us left behind. A store that fails just now is asked until it answers."""
        while True:
            try:
                await self._take_up()
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(bot_id=self._bot_id, what="what was left behind", why=error.detail))
                await asyncio.sleep(STORE_RETRY_S)
            else:
                return

    async def _take_up(self) -> None:
        """Holds, the last minute's sends, and what was in flight. All is read before any of it counts."""
        await self._chats.load()
        bot_held_until = await self._store.bot_held_until(self._bot_id)
        recent = await self._store.recent_tries(self._bot_id, since_ms=self._clock.wall_ms() - 60_000)
        left = await self._store.left_in_flight(self._bot_id, epoch=self._lease.epoch)
        pace, now, at_ms = self._pace(), self._clock.mono(), self._clock.wall_ms()
        self._chats.hold(pace, now, at_ms)
        pace.hold_bot(now + (bot_held_until - at_ms) / 1000)
        for sent in recent:
            # A clock that was put back shows sends of the future: they count as of now, and never hold a chat for longer.
            ago_s = max(0.0, (at_ms - sent.at_ms) / 1000)
            pace.remember(sent.chat, now - ago_s, weight=sent.weight, is_edit=sent.is_edit)
        for letter in left:
            pace.remember(letter.chat, now, weight=letter.weight, is_edit=letter.is_edit)
        if left:
            # Marked and never settled: it may have arrived. Lanes are read only after this is stored.
            await self._store_surely([settling(letter, _CRASHED, at_ms) for letter in left])
            self._events.tell(Recovered(bot_id=self._bot_id, count=len(left)))

    async def _store_surely(self, settlements: Sequence[Settling]) -> None:
        while True:
            error = (await self._settled_now([settlement for settlement, _, _ in settlements])).error
            if error is None:
                self._events.tell_all([told for _, _, told in settlements])
                return
            if not isinstance(error, StoreUnavailable):
                raise error
            self._events.tell(StoreFailed(bot_id=self._bot_id, what="what was in flight", why=error.detail))
            await asyncio.sleep(STORE_RETRY_S)

    async def _settled_now(self, settlements: Sequence[Settlement]) -> Marked:
        stored: asyncio.Future[Marked] = asyncio.get_running_loop().create_future()

        def done(marked: Marked) -> None:
            if not stored.done():  # the lease was lost meanwhile, and nobody is here to hear it
                stored.set_result(marked)

        self._store.advance(settlements, [], epoch=self._lease.epoch, at_ms=self._clock.wall_ms(), done=done)
        return await stored
