"""What the adapters of MTProto clients share: whose notes go where, and one recovery from the first page to the last end.

It knows no client library. An adapter brings `MtprotoHandlers`, which run a client's own handlers.
"""

import asyncio
from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from peik.app.runtime import Runtime
from peik.client.local import LocalTransport
from peik.client.peik import Peik
from peik.core.arrival import DEFAULT_CONSUMER, UPDATE_TYPES, Arrival
from peik.core.events import ArrivalDeferred, ArrivalSettled, ConsumerWaits, Event, OutageSettled
from peik.core.letter import State
from peik.core.token import Token
from peik.errors import BadInput, Conflict, Problem, Unavailable
from peik.inbox.answers import NotedAnswer
from peik.inbox.api import ArrivalApi, SeenBody, SeenMessage
from peik.inbox.consumers import Handling
from peik.inbox.store import ArrivalFilter
from peik.integrations.tl import TRANSLATED, Json
from peik.monitoring.log_file import plain_log
from peik.wakeup import Wakeup

# What an MTProto client has handled: kept in memory so that nothing is handled twice in one life, and written to Peik
# so that it is not handed over in the next. Writing fails quietly towards the bot: the worst that follows is a
# message twice.


BATCH = 100
PENDING_MAX = 10_000  # beyond this the oldest notes are dropped: their messages may be handed over again
REMEMBERED = 10_000  # handled messages that this process still knows
RETRY_S = 1.0
FLUSH_S = 5.0

Message = tuple[int, int]  # chat id as in the Bot API, message id


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a client handles, the same by both ways to it: a message, an edit of one, or a press of a button."""

    chat: int = 0
    message_id: int = 0
    edited_at: int = 0  # in seconds; 0: the message as it was first sent
    query_id: int = 0  # of a press


class Notes:
    """Writes as soon as it can, everything that waits at that moment, so that a killed bot has little left to forget."""

    def __init__(self, write: Callable[[Sequence[Message]], Awaitable[object]]) -> None:
        self._write = write
        self._pending: list[Message] = []
        self._writing: asyncio.Task[None] | None = None
        self._log = plain_log()

    def add(self, message: Message) -> None:
        self._pending.append(message)
        if len(self._pending) > PENDING_MAX:
            dropped = len(self._pending) - PENDING_MAX
            del self._pending[:dropped]
            self._log.warning("! notes dropped; these messages may be handed over again", count=dropped)
        if self._writing is None or self._writing.done():
            # Awaited by `flush`; it never raises.
            self._writing = asyncio.get_running_loop().create_task(self._write_all())

    async def settle(self) -> None:
        """Returns when everything is written, or the time is over."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing], timeout=FLUSH_S)

    async def flush(self) -> None:
        """The same, and the end: what is not written by then is named in the log and forgotten."""
        await self.settle()
        if self._writing is not None and not self._writing.done():
            self._writing.cancel()
            await asyncio.wait([self._writing])
        if self._pending:
            self._log.warning("! not noted; these messages may be handed over again", count=len(self._pending))
            self._pending.clear()

    async def _write_all(self) -> None:
        is_told = False
        while self._pending:
            batch = self._pending[:BATCH]
            try:
                await self._write(batch)
            except Unavailable as error:
                if not is_told:
                    self._log.warning("~ handled messages cannot be noted; trying on", why=error.detail)
                is_told = True
                await asyncio.sleep(RETRY_S)
                continue
            except Exception as error:  # noqa: BLE001  a bot goes on, whatever is wrong with its notes
                self._log.error(
                    "! not noted; these messages may be handed over again", count=len(batch), why=repr(error)
                )
            del self._pending[: len(batch)]


class Hold:
    """One item in the hands of the client's handlers."""

    __slots__ = ("ended", "is_recovered", "item")

    def __init__(self, item: Item, *, is_recovered: bool) -> None:
        self.item = item
        self.is_recovered = is_recovered
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class HandledWatch:
    """Which items the client is at work on or done with, whichever way they came. The first way to an item has it."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._at_work: dict[Item, Hold] = {}
        self._done: OrderedDict[Item, bool] = OrderedDict()  # whether the recovery had it

    def begin(self, item: Item) -> Hold | None:
        """Over MTProto. None: the recovery had it, or has it just now, and its handlers are not to run again.

        What comes twice over MTProto is the client's own affair; so is an edit, since two of one second look the same.
        """
        running = self._at_work.get(item)
        is_recovered = self._done.get(item, False) if running is None else running.is_recovered
        if is_recovered and not item.edited_at:
            return None
        return self._hold(item, is_recovered=False)

    async def begin_recovered(self, item: Item) -> Hold | None:
        """Out of the inbox. None: the client had it. Waits for handlers that run already, in case they fail."""
        while (running := self._at_work.get(item)) is not None:
            await asyncio.shield(running.ended)
        return None if item in self._done else self._hold(item, is_recovered=True)

    def end(self, hold: Hold, *, is_handled: bool) -> None:
        """The handlers have ended. What came over MTProto is noted; what was recovered is settled by who hands it on."""
        item = hold.item
        hold.ended.set_result(None)
        if self._at_work.get(item) is hold:
            del self._at_work[item]
        if not is_handled:
            return
        self._done[item] = hold.is_recovered
        if len(self._done) > REMEMBERED:
            self._done.popitem(last=False)
        if not hold.is_recovered and not item.query_id:
            self._notes.add((item.chat, item.message_id))

    def _hold(self, item: Item, *, is_recovered: bool) -> Hold:
        hold = Hold(item, is_recovered=is_recovered)
        self._at_work.setdefault(item, hold)
        return hold

    async def settle(self) -> None:
        await self._notes.settle()

    async def flush(self) -> None:
        await self._notes.flush()


HANDOVER_S = 3.0  # for the run before us to end, if it has not quite
OWNER_LOOK_S = 0.1
LOOK_S = 1.0  # between two looks at what is left, if nothing rings before
HANDLER_TIMEOUT = "1h"  # a client sets its handlers no limit; a download may take its time here too

Settings = Mapping[str, str | float | bool]


class MtprotoHandlers(Protocol):
    """The handlers of one client."""

    @property
    def bot_id(self) -> int | None:
        """Whose they are, if the client knows by now."""

    async def prepare(self) -> None:
        """Before a recovery: let the client catch up by itself as far as it can."""

    async def hand(self, kind: str, body: Json, bot_id: int) -> bool:
        """Run them for one update of the Bot API. False: they had it. Raises what they raise, BadInput if it cannot be
        translated, Absent if the client does not run."""


Attach = Callable[[Any, HandledWatch, Callable[[], Awaitable[None]]], MtprotoHandlers]


def attach(client: Any, make: Attach, *, peik: Peik, bot_id: int | None) -> None:
    """Note what this client handles in `peik`, from now on."""
    bridge = _bridge_of(client, make)
    bridge.bot_id = bot_id or bridge.bot_id
    bridge.use(peik)


async def recover(
    client: Any,
    make: Attach,
    bot_token: str,
    *,
    store: str | None,
    policy: str | None,
    peik: Peik | None,
    settings: Settings,
) -> int:
    """See `recover_missed_messages` of the adapters."""
    token = Token(bot_token)
    bridge = _bridge_of(client, make)
    bridge.bot_id = token.bot_id
    if peik is not None:
        bridge.use(peik)
    elif not bridge.has_peik:
        bridge.use_own(lambda: Peik.open(store, token=bot_token, **{"handler_timeout": HANDLER_TIMEOUT, **settings}))
    async with bridge.recovering:
        return await _run(bridge, await bridge.runtime(), token, policy=policy)


# ---- one client and its Peik ----


class _Bridge:
    def __init__(self) -> None:
        self.hands: MtprotoHandlers
        self.bot_id: int | None = None
        self.recovering = asyncio.Lock()
        self.count: _Count | None = None  # of the recovery that goes on
        self._peik: Peik | None = None
        self._open_own: Callable[[], Peik] | None = None
        self._opening = asyncio.Lock()
        self._heard: Runtime | None = None
        self.watch = HandledWatch(Notes(self._write))

    @property
    def has_peik(self) -> bool:
        return self._peik is not None or self._open_own is not None

    def use(self, peik: Peik) -> None:
        """One that somebody else opens and closes."""
        self._peik, self._open_own = peik, None

    def use_own(self, open_own: Callable[[], Peik]) -> None:
        self._open_own = open_own

    async def peik(self) -> Peik:
        """Ours is opened when it is first needed, and again if the client was stopped and started meanwhile."""
        async with self._opening:
            if self._peik is None:
                assert self._open_own is not None
                self._peik = await self._open_own().__aenter__()
            return self._peik

    async def runtime(self) -> Runtime:
        transport = _transport(await self.peik())
        if not isinstance(transport, LocalTransport):
            raise BadInput(
                code="not_here",
                detail="What was missed can be handed over by a Peik in this process only: use Peik.open, or give store=. "
                "With Peik.connect, note_handled works, and the gateway's getUpdates gives what was missed.",
            )
        runtime = transport.runtime
        if self._heard is not runtime:
            self._heard = runtime
            runtime.events.listen(self._listen)
        return runtime

    def _listen(self, events: Sequence[Event]) -> None:
        if self.count is not None:
            for event in events:
                self.count.hear(event)

    async def handle(self, arrival: Arrival, _: int) -> None:
        """One arrival, at the client's handlers; also when it is tried again after the recovery is over."""
        assert self.bot_id is not None
        count = self.count or _Count(self.bot_id)
        try:
            if arrival.type not in TRANSLATED:
                raise BadInput(code="not_translated", detail=f"Updates of type {arrival.type} are not handed over.")
            body = _decode(arrival.payload)[arrival.type]
            is_new = await self.hands.hand(arrival.type, body, self.bot_id)
        except BadInput:
            count.left[arrival.type] += 1
        except Exception:
            count.failed.add(arrival.number)
            raise
        else:
            count.failed.discard(arrival.number)
            count.processed += is_new

    async def _write(self, messages: Sequence[Message]) -> None:
        bot_id = self.bot_id or self.hands.bot_id
        if bot_id is None:
            raise BadInput(code="which_bot", detail="Whose messages are these? Give note_handled a bot_id.")
        seen = [SeenMessage(chat_id=chat_id, message_id=message_id) for chat_id, message_id in messages]
        body = SeenBody(bot_id=bot_id, messages=seen)
        await _transport(await self.peik()).ask(ArrivalApi.seen, into=NotedAnswer, body=body)

    async def stop(self) -> None:
        """The client has stopped: the last notes, and the end of our own Peik."""
        await self.watch.flush()
        if self._open_own is not None and self._peik is not None:
            peik, self._peik = self._peik, None
            await peik.close()


def _bridge_of(client: Any, make: Attach) -> _Bridge:
    """The one bridge of a client, kept with it: its hooks are set once."""
    bridge: _Bridge | None = vars(client).get("_peik_bridge")
    if bridge is None:
        bridge = _Bridge()
        bridge.hands = make(client, bridge.watch, bridge.stop)
        vars(client)["_peik_bridge"] = bridge
    return bridge


def _transport(peik: Peik) -> Any:
    return peik._open_transport()  # noqa: SLF001  the integrations are a part of Peik


# ---- one recovery ----


class _Count:
    """What one recovery came to, and a bell for who waits for its end."""

    def __init__(self, bot_id: int) -> None:
        self._bot_id = bot_id
        self.bell = Wakeup()
        self.fetched = 0
        self.processed = 0
        self.failed: set[int] = set()  # their numbers; they are tried again
        self.left: Tally[str] = Tally()  # what cannot be handed over, by type
        self.settled = 0  # told or dropped instead, by the bot's policy
        self.heard = 0  # events: if there are none for a while, nothing goes on
        self.is_elsewhere = False

    def hear(self, event: Event) -> None:
        if event.bot_id != self._bot_id:
            return
        match event:
            case OutageSettled(missed=missed, handed=handed):
                self.settled += missed - handed
            case ConsumerWaits(consumer=consumer) if consumer == DEFAULT_CONSUMER:
                self.is_elsewhere = True
            case ArrivalSettled() | ArrivalDeferred():
                pass
            case _:
                return
        self.heard += 1
        self.bell.ring()

    def tell(self) -> None:
        found = self.processed + len(self.failed) + self.settled
        left = {"left": ",".join(f"{kind}:{count}" for kind, count in sorted(self.left.items()))} if self.left else {}
        plain_log().info(
            "<- missed messages recovered",
            bot=self._bot_id,
            found=found,
            processed=self.processed,
            failed=len(self.failed),
            settled_by_policy=self.settled,
            fetched=self.fetched,
            **left,
        )


async def _run(bridge: _Bridge, runtime: Runtime, token: Token, *, policy: str | None) -> int:
    """Fetch, then deliver, until nothing that was there has not had its turn."""
    bot_id = token.bot_id
    if runtime.outbox.service.known(bot_id) is None:
        await runtime.outbox.service.save_bot(token)
    if policy is not None:
        await runtime.outbox.service.change_bot(bot_id, missed=policy)
    await bridge.hands.prepare()
    await bridge.watch.settle()
    count = bridge.count = _Count(bot_id)
    try:
        trouble = await _fetch(runtime, bot_id, count)
        state = await runtime.store.inbox.inbox(bot_id)
        runtime.inbox.consumers.handle(
            bot_id, DEFAULT_CONSUMER, Handling(handle=bridge.handle, allowed=frozenset(UPDATE_TYPES))
        )
        await _all_had_their_turn(runtime, bot_id, count, last_number=0 if state is None else state.last_number)
    finally:
        bridge.count = None
    count.tell()
    if trouble is not None:
        raise trouble
    return count.processed


async def _fetch(runtime: Runtime, bot_id: int, count: _Count) -> Problem | None:
    """One pass. If there can be none now, what is here already is delivered before that is said."""
    if not await _serves(runtime, bot_id):
        plain_log().info("~ another process owns the store, and fetches", bot=bot_id)
        return None
    consumers = await runtime.inbox.service.consumers(bot_id)
    # The client had its updates over MTProto for as long as its handlers were seen: that is no outage.
    served_until_ms = next((one.seen_at_ms for one in consumers if one.name == DEFAULT_CONSUMER), None)
    try:
        report = await runtime.inbox.receiver.recover(
            runtime.outbox.service.bot(bot_id), served_until_ms=served_until_ms
        )
        count.fetched = report.found
    except (Unavailable, Conflict) as problem:
        return None if problem.code == "pushed" else problem  # what Telegram pushes to Peik comes by itself
    return None


async def _serves(runtime: Runtime, bot_id: int) -> bool:
    """Whether this process acts for the bot, after a moment in which it may come to."""
    until = runtime.clock.mono() + HANDOVER_S
    while not runtime.outbox.leases.holds(bot_id) and runtime.clock.mono() < until:  # noqa: ASYNC110  nobody rings for it
        await asyncio.sleep(OWNER_LOOK_S)
    return runtime.outbox.leases.holds(bot_id)


async def _all_had_their_turn(runtime: Runtime, bot_id: int, count: _Count, *, last_number: int) -> None:
    """Until nothing waits any more, or all that waits stands behind something that failed and is put off."""
    here = ArrivalFilter(bot_id=bot_id, consumer=DEFAULT_CONSUMER, last_number=last_number)
    waiting = msgspec.structs.replace(here, state=State.WAITING)
    put_off = msgspec.structs.replace(here, state=State.DELAYED)
    heard = -1
    patient_until = runtime.clock.mono() + HANDOVER_S
    while await runtime.inbox.service.count(waiting):
        in_hand = runtime.inbox.consumers.in_hand(bot_id, DEFAULT_CONSUMER)
        if count.is_elsewhere and not count.processed and not in_hand and runtime.clock.mono() >= patient_until:
            raise Conflict(
                code="handled_elsewhere",
                detail=f"Another program on this store handles the updates of bot {bot_id}. Stop it first.",
            )
        if heard == count.heard and not in_hand and await runtime.inbox.service.count(put_off):
            return
        heard = count.heard
        await count.bell.wait(runtime.clock.mono() + LOOK_S)


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def bot_id_of(bot_token: str) -> int:
    return Token(bot_token).bot_id
