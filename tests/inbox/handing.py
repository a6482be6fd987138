"""What tests of handing on need: updates that come in, a program with handlers, and a look at what is over for whom."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from peik.core.arrival import DEFAULT_CONSUMER, Arrival, Update, read_update
from peik.core.events import Arrived, Event
from peik.core.letter import LetterCall
from peik.errors import StoreUnavailable
from peik.inbox.consumers import ConsumerLimits, Consumers, Handling
from peik.inbox.service import anywhere
from peik.inbox.store import ArrivalFilter, ArrivalView, Consumer, PushPort
from peik.storage.sqlite.inbox import SqliteInbox
from tests.inbox.bots import Bots
from tests.outbox.story import BOT, Stage

FIRST = 1001


def message(
    update_id: int, text: str, *, chat: int = 5, kind: str = "message", sent_at_s: float | None = None
) -> Update:
    body: dict[str, Any] = {"message_id": update_id, "chat": {"id": chat, "type": "private"}}
    body |= {"from": {"id": chat, "is_bot": False}, "text": text}
    if sent_at_s is not None:
        body["date"] = int(sent_at_s)
    return read_update(msgspec.json.encode({"update_id": update_id, kind: body}))


async def arrive(stage: Stage, *updates: Update) -> None:
    """As a source brings them in: stored, then told."""
    store, now = stage.peik.store.inbox, stage.clock.wall_ms()
    if await store.inbox(BOT) is None:
        await store.open_inbox(BOT, server="telegram", at_ms=now)
    taken = await store.take_in(BOT, updates, at_ms=now, last_update_id=updates[-1].update_id)
    arrived = Arrived(bot_id=BOT, stored=taken.stored, duplicates=taken.duplicates, last_number=taken.last_number)
    stage.peik.events.tell(arrived)


async def written(stage: Stage, *texts: str, chat: int = 5) -> None:
    """A user writes these, right now."""
    state = await stage.peik.store.inbox.inbox(BOT)
    first = FIRST if state is None or not state.last_number else state.last_number + 1
    now_s = stage.clock.wall_s()
    updates = [message(first + at, text, chat=chat, sent_at_s=now_s) for at, text in enumerate(texts)]
    await arrive(stage, *updates)


def text_of(arrival: Arrival) -> str:
    return str(json.loads(arrival.payload)[arrival.type]["text"])


Act = Callable[[str, Arrival], Awaitable[None]]


async def nothing(text: str, arrival: Arrival) -> None: ...


class Program:
    """A program with one handler. It notes what it was given and what it finished, with the virtual time."""

    def __init__(self, stage: Stage, act: Act = nothing) -> None:
        self._stage = stage
        self._act = act
        self.given: list[tuple[float, str]] = []
        self.finished: list[str] = []
        self.tries: list[int] = []
        self.at_once = self.at_once_max = 0

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.given]

    def run(
        self,
        name: str = DEFAULT_CONSUMER,
        *,
        allowed: frozenset[str] | None = None,
        consumers: Consumers | None = None,
    ) -> None:
        (consumers or self._stage.peik.inbox.consumers).handle(
            BOT, name, Handling(handle=self._handle, allowed=allowed)
        )

    async def _handle(self, arrival: Arrival, tries: int) -> None:
        text = text_of(arrival)
        self.given.append((self._stage.clock.mono(), text))
        self.tries.append(tries)
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            await self._act(text, arrival)
        finally:
            self.at_once -= 1
        self.finished.append(text)


async def until(stage: Stage, is_so: Callable[[], bool], timeout_s: float = 86_400.0) -> None:
    """Wait for a fact, in virtual time: asked after every event, and once a second."""
    something = asyncio.Event()
    stage.peik.events.listen(lambda events: something.set())
    async with asyncio.timeout(timeout_s):
        while not is_so():
            something.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(something.wait(), 1.0)


async def told(stage: Stage, kind: type[Event], count: int = 1, timeout_s: float = 86_400.0) -> list[Any]:
    await until(stage, lambda: len(stage.events_of(kind)) >= count, timeout_s)
    return stage.events_of(kind)


async def consumer(stage: Stage, name: str = DEFAULT_CONSUMER) -> Consumer:
    (found,) = [one for one in await stage.peik.store.inbox.consumers(BOT) if one.name == name]
    return found


async def all_over(stage: Stage, name: str = DEFAULT_CONSUMER, timeout_s: float = 86_400.0) -> None:
    """Until the consumer has everything behind it."""
    something = asyncio.Event()
    stage.peik.events.listen(lambda events: something.set())
    async with asyncio.timeout(timeout_s):
        while True:
            something.clear()
            state = await stage.peik.store.inbox.inbox(BOT)
            assert state is not None
            if (await consumer(stage, name)).progress.watermark >= state.last_number:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(something.wait(), 1.0)


async def views(stage: Stage) -> dict[str, ArrivalView]:
    """Arrivals by their texts."""
    found = await stage.peik.inbox.service.arrivals(ArrivalFilter(bot_id=BOT), before=None, limit=500)
    return {text_of(view.arrival): view for view in found}


class Unsure:
    """A store that obeys its port, and says no: to settlements while it is full, and to so many calls of other methods."""

    def __init__(self, inbox: SqliteInbox) -> None:
        self._inbox = inbox
        self.is_full = False
        self.refusals: Counter[str] = Counter()
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        if self.refusals[name] <= 0:
            return getattr(self._inbox, name)
        self.refusals[name] -= 1
        return self._refused

    async def _refused(self, *arguments: Any, **more: Any) -> None:
        raise StoreUnavailable(code="store_full", detail="The disk is full.")

    async def settle_arrivals(self, *arguments: Any, **more: Any) -> Any:
        if self.is_full:
            await self._refused()
        self.commits += 1
        return await self._inbox.settle_arrivals(*arguments, **more)


class NoLocks:
    async def take_lock(self, name: str) -> bool:
        return True

    async def drop_lock(self, name: str) -> None: ...

    async def is_locked(self, name: str) -> bool:
        return False


@contextlib.asynccontextmanager
async def on_unsure_store(stage: Stage, pusher: PushPort | None = None) -> AsyncIterator[tuple[Consumers, Unsure]]:
    """The consumers of the stage's bot on such a store."""

    async def accept(bot_id: int, method: str, params: bytes, idempotency_key: str) -> None:
        call = LetterCall(bot_id=bot_id, method=method, params=params, idempotency_key=idempotency_key)
        await stage.peik.outbox.service.accept([call])

    store = Unsure(stage.peik.store.inbox)
    consumers = Consumers(
        store=store,  # type: ignore[arg-type]  it is the inbox but for one method
        clock=stage.clock,
        events=stage.peik.events,
        limits=ConsumerLimits(
            handlers=32,
            handler_timeout_s=60.0,
            handler_attempts=5,
            user_rate=0.0,
            catch_up_rate=50.0,
            missed_after_s=60.0,
        ),
        pusher=pusher or Bots(stage.clock),
        reach_of=anywhere,
        accept=accept,
        locks=NoLocks(),  # type: ignore[arg-type]  it is asked for nothing else
    )
    async with asyncio.TaskGroup() as group:
        consumers.start(group)
        try:
            yield consumers, store
        finally:
            await consumers.drain(1.0)
            consumers.stop()
