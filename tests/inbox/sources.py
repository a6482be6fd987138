"""What tests of sources need: what a bot's inbox holds, a second program on the same token, and a store that says no."""

import asyncio
import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from peik.backups.model import restored_at_ms
from peik.core import events
from peik.core.arrival import Arrival
from peik.core.token import Token
from peik.errors import StoreUnavailable
from peik.inbox.intake import Intake
from peik.inbox.outages import NoOutages, OutagePort
from peik.inbox.poller import Poller, PollTerms
from peik.inbox.store import ArrivalFilter, InboxState
from peik.outbox.store import BotRecord
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.store import SqliteStore
from peik.telegram.port import Request
from peik.testing.virtual import SimCarrier
from tests.outbox.story import BOT, TOKEN, Stage

SOON_S = 3.0  # in virtual time: more than a poll's way there and back


async def arrivals(stage: Stage) -> list[Arrival]:
    """Everything that is stored, the oldest first."""
    return await stored_in(stage.peik.store)


async def stored_in(store: SqliteStore) -> list[Arrival]:
    found: list[Arrival] = []
    before = None
    while page := await store.inbox.find_arrivals(ArrivalFilter(bot_id=BOT), before=before, limit=500):
        found += [view.arrival for view in page]
        before = page[-1].arrival.id
    return sorted(found, key=lambda arrival: arrival.number)


async def texts(stage: Stage) -> list[str]:
    return [text_of(arrival) for arrival in await arrivals(stage)]


def text_of(arrival: Arrival) -> str:
    return str(json.loads(arrival.payload)[arrival.type].get("text"))


async def state(stage: Stage) -> InboxState:
    found = await stage.peik.store.inbox.inbox(BOT)
    assert found is not None
    return found


def write(stage: Stage, first: int, count: int, *, user: int = 5) -> None:
    """A user writes n<first>, n<first + 1> …"""
    for number in range(first, first + count):
        stage.telegram.write(TOKEN, user, f"n{number}")


def numbered(first: int, count: int) -> list[str]:
    return [f"n{number}" for number in range(first, first + count)]


def waiting(stage: Stage) -> int:
    """How many updates Telegram still keeps: those that were not confirmed."""
    return stage.telegram.bots[BOT].queue.size


def number_from(stage: Stage, update_id: int) -> None:
    """Telegram gives the next update this id, and goes on from there, week of silence or not."""
    queue = stage.telegram.bots[BOT].queue
    queue._jumps, queue._tail_id = False, update_id


class OtherProgram:
    """Somebody else with the same token."""

    def __init__(self, stage: Stage) -> None:
        self._carrier = SimCarrier(stage.telegram)
        self.offset = 0
        self.took = 0

    async def call(self, method: str, **params: Any) -> Any:
        request = Request(token=Token(TOKEN), method=method, params=msgspec.json.encode(params), timeout_s=60.0)
        reply = await self._carrier.carry(request)
        return json.loads(reply.body)

    async def poll(self, timeout: int = 0) -> bool:
        """One poll as a bot makes it; whether it was not thrown out."""
        answer = await self.call("getUpdates", offset=self.offset, timeout=timeout)
        if answer["ok"] and answer["result"]:
            self.offset = answer["result"][-1]["update_id"] + 1
            self.took += len(answer["result"])
        return bool(answer["ok"])


class Unsure:
    """A store that obeys its port, but says no to some commits: before them, or after them as a process that dies does."""

    def __init__(self, store: SqliteStore) -> None:
        self._inbox = store.inbox
        self.refuses = 0
        self.dies_after_commit = False
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inbox, name)

    async def take_in(self, *arguments: Any, **more: Any) -> Any:
        if self.refuses:
            self.refuses -= 1
            raise StoreUnavailable(code="store_full", detail="The disk is full.")
        taken = await self._inbox.take_in(*arguments, **more)
        self.commits += 1
        if self.dies_after_commit:
            raise Died
        return taken


class Died(BaseException):
    pass


class _Way(SimCarrier):
    """A carrier is a way with no breaker."""

    asked: list[dict[str, Any]]
    on_poll: Callable[[], None]

    def start(self, request: Request, done: Any) -> None:
        if request.method == "getUpdates":
            self.asked.append(json.loads(request.params))
            self.on_poll()
        super().start(request, done)

    def when_back(self, ring: Any) -> None: ...


class Bench:
    """One poller with nothing around it but a real store, a simulated Telegram, and the store's moods."""

    def __init__(self, stage: Stage, store: SqliteStore) -> None:
        self._stage = stage
        self.store = store
        self.unsure = Unsure(store)
        self.outages: OutagePort = NoOutages()
        self.way = _Way(stage.telegram)
        self.way.asked = []
        self.way.on_poll = lambda: self.on_poll()
        self.on_poll: Callable[[], None] = lambda: None
        self.told: list[events.Event] = []

    @classmethod
    async def open(cls, stage: Stage) -> "Bench":
        path = stage.config().sqlite_path
        store = SqliteStore(path, clock=stage.clock, is_owner=True, executor=lambda name: InlineExecutor())
        await store.open()
        await store.save_bot(_record())
        return cls(stage, store)

    def poller(self) -> Poller:
        told = events.Events()
        told.listen(self.told.extend)
        intake = Intake(store=self.unsure, clock=self._stage.clock, events=told, spoke=_nobody)  # type: ignore[arg-type]
        return Poller(
            _record(),
            way=self.way,
            store=self.unsure,  # type: ignore[arg-type]
            intake=intake,
            outages=self.outages,
            clock=self._stage.clock,
            events=told,
            chance=random.Random(3),
            terms=PollTerms(server="https://api.telegram.org", timeout_s=50.0),
            restored_at=partial(restored_at_ms, self.store.documents),
        )

    async def run_for(self, seconds: float) -> None:
        running = asyncio.ensure_future(self.poller().run())
        done, _ = await asyncio.wait([running], timeout=seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for ended in done:
            ended.result()

    def events_of(self, kind: type[events.Event]) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]


async def _nobody(bot_id: int, chats: object) -> None: ...


def _record() -> BotRecord:
    return BotRecord(bot_id=BOT, token=Token(TOKEN), inbound="polling")
