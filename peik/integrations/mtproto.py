"""What the adapters of MTProto clients share: whose notes go where, and one recovery from the first page to the last end.

It knows no client library. An adapter brings `MtprotoHandlers`, which run a client's own handlers.
"""

import asyncio
import itertools
from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec

from peik.app.runtime import Runtime
from peik.client.local import LocalTransport
from peik.client.peik import Peik
from peik.core.arrival import DEFAULT_CONSUMER, UPDATE_TYPES, Arrival
from peik.core.documents import Filing
from peik.core.events import ArrivalDeferred, ArrivalSettled, ConsumerWaits, Event, OutageSettled
from peik.core.letter import State
from peik.core.missed import Policy
from peik.core.token import Token
from peik.core.units import rfc3339
from peik.errors import BadInput, Conflict, NotFound, Problem, Unavailable
from peik.importing.service import import_service_of
from peik.inbox.answers import NotedAnswer
from peik.inbox.api import ArrivalApi, SeenBody, SeenMessage
from peik.inbox.consumers import Handling
from peik.inbox.store import ArrivalFilter
from peik.integrations.tl import TRANSLATED, Json
from peik.monitoring.log_file import plain_log
from peik.settings.config import DEFAULT, find
from peik.wakeup import Wakeup

# What an MTProto client has handled: kept in memory so that nothing is handled twice in one life, and written to Peik
# so that it is not handed over in the next. Writing fails quietly towards the bot: the worst that follows is a
# message twice.


BATCH = 100
PENDING_MAX = 10_000  # beyond this the oldest notes are dropped: their messages may be handed over again
REMEMBERED = 10_000  # handled messages that this process still knows
RETRY_S = 1.0
FLUSH_S = 5.0

Message = tuple[int, int]  # chat id as in the Bot API, message id; 0 and its query id for a press
_PRESS = 0
PRESS_S = 600.0  # a press is kept by the Bot API for 150 s; the rest is for clocks that differ
PRESSES_MAX = 2_000


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
        self._remember(item, is_recovered=hold.is_recovered)
        if not hold.is_recovered:
            self._notes.add((_PRESS, item.query_id) if item.query_id else (item.chat, item.message_id))

    def knows(self, item: Item) -> bool:
        """Whether the client is at work on it, or done."""
        return item in self._done or item in self._at_work

    def remember(self, items: Sequence[Item]) -> None:
        """What the client handled in an earlier life."""
        for item in items:
            if item not in self._done:
                self._remember(item, is_recovered=False)

    def _remember(self, item: Item, *, is_recovered: bool) -> None:
        self._done[item] = is_recovered
        if len(self._done) > REMEMBERED:
            self._done.popitem(last=False)

    def _hold(self, item: Item, *, is_recovered: bool) -> Hold:
        hold = Hold(item, is_recovered=is_recovered)
        self._at_work.setdefault(item, hold)
        return hold

    async def settle(self) -> None:
        await self._notes.settle()

    async def flush(self) -> None:
        await self._notes.flush()


PRESSES = "mtproto_presses"  # a document per bot: what was pressed and handled lately
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
        ours = {"handler_timeout": HANDLER_TIMEOUT, **_as_called_by_hand(settings), **settings}
        bridge.use_own(lambda: Peik.open(store, token=bot_token, **ours))
    async with bridge.recovering:
        return await _run(bridge, await bridge.runtime(), token, policy=policy)


def _as_called_by_hand(settings: Settings) -> dict[str, str]:
    """Who asks for what was missed by a call of his own wants every absence counted, and people told, unless a setting says
    otherwise. As settings, so that the same holds when an outage that was broken off is taken up at the opening."""
    found = find({name: str(value) for name, value in settings.items()})
    wanted = {"missed": str(Policy.BOTH), "missed_after": "0s"}
    return {name: value for name, value in wanted.items() if found[name].source == DEFAULT}


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
        self._presses: dict[int, int] = {}  # query ids, and when they were handled
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
            await self._take_up_presses(runtime)
        return runtime

    def is_unset(self, *names: str) -> set[str]:
        """Which of these settings nobody has given to the Peik in use."""
        assert self._peik is not None
        found = find(_transport(self._peik).settings)
        return {name for name in names if found[name].source == DEFAULT}

    def knows(self, arrival: Arrival) -> bool:
        """Whether the client had it, or has it in hand, by its own way: then nobody missed it."""
        if arrival.type not in TRANSLATED:
            return False
        body = _decode(arrival.payload)[arrival.type]
        if arrival.type == "callback_query":
            press = str(body.get("id"))
            return press.isdecimal() and self.watch.knows(Item(query_id=int(press)))
        if arrival.message_id is None or not isinstance(arrival.lane, int):
            return False
        edited_at = body.get("edit_date") or 0
        return self.watch.knows(Item(chat=arrival.lane, message_id=arrival.message_id, edited_at=edited_at))

    async def _take_up_presses(self, runtime: Runtime) -> None:
        kept = await runtime.store.documents.document(PRESSES, str(self.bot_id))
        if kept is not None:
            self._presses |= msgspec.json.decode(kept.body, type=dict[int, int])
            self.watch.remember([Item(query_id=query_id) for query_id in self._presses])

    async def _keep_presses(self, runtime: Runtime, bot_id: int, query_ids: Sequence[int]) -> None:
        now_ms = runtime.clock.wall_ms()
        self._presses |= dict.fromkeys(query_ids, now_ms)
        kept = [(one, at) for one, at in self._presses.items() if now_ms - at < PRESS_S * 1000][-PRESSES_MAX:]
        self._presses = dict(kept)
        body = msgspec.json.encode(self._presses).decode()
        await runtime.store.documents.file([Filing(collection=PRESSES, key=str(bot_id), body=body)])

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
        transport = _transport(await self.peik())
        seen = [SeenMessage(chat_id=chat_id, message_id=number) for chat_id, number in messages if chat_id != _PRESS]
        if seen:
            await transport.ask(ArrivalApi.seen, into=NotedAnswer, body=SeenBody(bot_id=bot_id, messages=seen))
        presses = [number for chat_id, number in messages if chat_id == _PRESS]
        if presses and isinstance(transport, LocalTransport):
            await self._keep_presses(transport.runtime, bot_id, presses)

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
    _newest.bridge = bridge
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
        self.told = 0  # of those
        self.heard = 0  # events: if there are none for a while, nothing goes on
        self.is_elsewhere = False

    def hear(self, event: Event) -> None:
        if event.bot_id != self._bot_id:
            return
        match event:
            case OutageSettled(missed=missed, handed=handed, told=told):
                self.settled += missed - handed
                self.told += told
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
    unset = bridge.is_unset("missed", "missed_after")
    runtime.inbox.outages.look_closely(
        bot_id,
        counts_all="missed_after" in unset,
        policy=Policy.BOTH if "missed" in unset else None,
        knows=bridge.knows,
    )
    try:
        trouble = await _fetch(runtime, bot_id, count, counts_all="missed_after" in unset)
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
    return count.processed + count.told


async def _fetch(runtime: Runtime, bot_id: int, count: _Count, *, counts_all: bool) -> Problem | None:
    """One pass. If there can be none now, what is here already is delivered before that is said."""
    if not await _serves(runtime, bot_id):
        plain_log().info("~ another process owns the store, and fetches", bot=bot_id)
        return None
    consumers = await runtime.inbox.service.consumers(bot_id)
    # The client had its updates over MTProto for as long as its handlers were seen: that is no outage.
    served_until_ms = next((one.seen_at_ms for one in consumers if one.name == DEFAULT_CONSUMER), None)
    try:
        report = await runtime.inbox.receiver.recover(
            runtime.outbox.service.bot(bot_id), served_until_ms=served_until_ms, counts_all=counts_all
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


# ---- for programs that kept this in a table of their own ----
#
# They go to the Peik of the client that was given to `note_handled` or `recover_missed_messages` last, to one that is named, or
# to that of the settings, opened for the call. What was saved by hand is a document of its own; only the program deals with it.


class _Newest:
    bridge: _Bridge | None = None


_newest = _Newest()
SAVED = "pending_messages:"  # the view `pending_messages` has these, too
SAVED_DIGITS = 14


class SavedMessage(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: int
    user_id: int
    message_text: str
    message_type: str
    chat_id: int
    created_at_ms: int


async def get_last_update_id(*, peik: Peik | None = None) -> int:
    """The last update that is durable here; 0 if there is none yet."""
    async with _place(peik) as (runtime, bot_id):
        state = await runtime.store.inbox.inbox(bot_id)
        return 0 if state is None else state.last_update_id or 0


async def save_last_update_id(update_id: int, *, peik: Peik | None = None) -> None:
    """Say which update was handled last before Peik. Once Peik has fetched updates it keeps its own place, with every commit,
    and nothing is changed: what is behind that place is here, and is handed on."""
    async with _place(peik) as (runtime, bot_id):
        imports = import_service_of(runtime.config, runtime.store, clock=runtime.clock)
        try:
            await imports.set_last_update(bot_id, update_id, is_received=False)
        except Conflict as problem:
            if problem.code != "inbox_begun":
                raise


async def save_pending_message(
    user_id: int, message_text: str, message_type: str = "text", *, chat_id: int | None = None, peik: Peik | None = None
) -> int:
    """Keep a message until `mark_message_processed` is called with the number that this returns: durable when it does."""
    async with _place(peik) as (runtime, bot_id):
        body = SavedMessage(
            bot_id=bot_id,
            user_id=user_id,
            message_text=message_text,
            message_type=message_type,
            chat_id=user_id if chat_id is None else chat_id,
            created_at_ms=runtime.clock.wall_ms(),
        )
        collection = f"{SAVED}{bot_id}"
        while True:
            last = await runtime.store.documents.documents(collection, limit=1, is_backwards=True)
            # By the clock: a number that was marked once is never given again.
            number = max(runtime.clock.wall_ms(), 1 + (int(last[0].key.partition(":")[0]) if last else 0))
            key = f"{number:0{SAVED_DIGITS}d}:{user_id}"  # whoever forgets the user finds them in it
            filing = Filing(collection=collection, key=key, body=msgspec.json.encode(body).decode(), version=0)
            try:
                await runtime.store.documents.file([filing])
            except Conflict:
                continue  # somebody saved one at the same moment
            return -number


async def get_pending_messages(*, limit: int = 1000, peik: Peik | None = None) -> list[Json]:
    """What nobody has handled yet, the oldest first: updates that wait for the bot's handlers, and what was saved by hand, whose
    `id` is below 0. Each with user_id, chat_id, message_text, message_type, status and created_at."""
    async with _place(peik) as (runtime, bot_id):
        found: list[tuple[int, Json]] = []
        for document in await runtime.store.documents.documents(f"{SAVED}{bot_id}", limit=limit):
            saved = msgspec.json.decode(document.body, type=SavedMessage)
            row = {"id": -int(document.key.partition(":")[0]), **msgspec.structs.asdict(saved), "status": "pending"}
            found.append((row.pop("created_at_ms"), row))
        consumers = await runtime.store.inbox.consumers(bot_id)
        default = next((one for one in consumers if one.name == DEFAULT_CONSUMER), None)
        after = 0 if default is None else default.progress.watermark
        while default is not None and len(found) < limit:
            page = await runtime.store.inbox.arrivals_after(default.id, after, limit=limit)
            found += [_row(one) for one in page if not default.progress.is_over(one.number)]
            if not page:
                break
            after = page[-1].number
        found.sort(key=lambda one: one[0])
        return [{**row, "created_at": rfc3339(at_ms)} for at_ms, row in itertools.islice(found, limit)]


async def mark_message_processed(message_id: int, *, peik: Peik | None = None) -> None:
    """One of `get_pending_messages` is done with, by its `id`: durable when this returns. Raises NotFound."""
    async with _place(peik) as (runtime, bot_id):
        if message_id < 0:
            key = f"{-message_id:0{SAVED_DIGITS}d}:"
            after = f"{-message_id - 1:0{SAVED_DIGITS}d};"
            for document in await runtime.store.documents.documents(f"{SAVED}{bot_id}", after=after, limit=1):
                if document.key.startswith(key):
                    gone = Filing(collection=document.collection, key=document.key, body=None)
                    await runtime.store.documents.file([gone])
                    return
            raise NotFound(code="unknown_arrival", detail=f"There is no message {message_id} here (any more).")
        arrival = (await runtime.inbox.service.arrival(message_id)).arrival
        consumer = await runtime.inbox.service.consumer(arrival.bot_id, DEFAULT_CONSUMER)
        over = [(arrival.number, arrival.number)]
        await runtime.store.inbox.settle_arrivals(consumer.id, over=over, at_ms=runtime.clock.wall_ms())
        runtime.inbox.consumers.look()


def _row(arrival: Arrival) -> tuple[int, Json]:
    body = _decode(arrival.payload).get(arrival.type)
    words = body if isinstance(body, dict) else {}
    row = {
        "id": arrival.id,
        "bot_id": arrival.bot_id,
        "user_id": arrival.user_id,
        "chat_id": arrival.lane,
        "message_text": next((words[name] for name in ("text", "caption", "data") if words.get(name)), None),
        "message_type": arrival.type,
        "status": "pending",
    }
    return arrival.sent_at_ms or arrival.received_at_ms, row


@asynccontextmanager
async def _place(peik: Peik | None) -> AsyncIterator[tuple[Runtime, int]]:
    """The inside of the Peik that is meant, and the bot."""
    bridge = _newest.bridge
    if peik is None and (bridge is None or not bridge.has_peik):
        async with Peik.open() as own, _place(own) as place:
            yield place
        return
    if peik is None:
        assert bridge is not None
        runtime = await bridge.runtime()
        yield runtime, runtime.outbox.service.bot(bridge.bot_id or bridge.hands.bot_id).bot_id
        return
    transport = _transport(peik)
    if not isinstance(transport, LocalTransport):
        raise BadInput(code="not_here", detail="This reads the store itself: use Peik.open, not Peik.connect.")
    yield transport.runtime, transport.runtime.outbox.service.bot(None).bot_id


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def bot_id_of(bot_token: str) -> int:
    return Token(bot_token).bot_id
