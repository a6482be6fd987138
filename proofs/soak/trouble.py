"""What goes wrong meanwhile: at Telegram, on the way there, and to the server itself."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from peik.load.plan import Sample
from peik.load.run import process_look
from proofs.soak.plan import Plan
from proofs.soak.traffic import FIRST_CHAT
from tests.processes.programs import Server, Sim
from tests.telegram.proxies import LittleProxy

SAMPLE_S = 1.0


class Life(msgspec.Struct, kw_only=True):
    """One process of the server. Samples are by its age."""

    began_s: float
    memory: list[Sample] = msgspec.field(default_factory=list)
    handles: list[Sample] = msgspec.field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.memory[-1][0] if self.memory else 0.0


class Trouble:
    def __init__(self, server: Server, sim: Sim, proxy: LittleProxy, plan: Plan, say: Callable[[str], None]) -> None:
        self._server, self._sim, self._proxy, self._plan, self._say = server, sim, proxy, plan, say
        self._chance = random.Random(f"trouble {plan.seed}")
        self._began = time.monotonic()
        self.done: Counter[str] = Counter()
        self.marks: list[tuple[float, str]] = []
        self.lives = [Life(began_s=0.0)]
        self.waiting: list[Sample] = []
        self.is_up = True
        self._rebirth: asyncio.Task[None] | None = None
        # The first chat of each bot is written to by REST.
        self._hang_at: dict[str, object] = {} if plan.timeout_s is None else {"chat": FIRST_CHAT}

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began

    async def run(self, stop: asyncio.Event) -> None:
        """Faults and kills until the plan's time is over; once the server is up again, `stop` is set. The proxy may stay dead:
        there is a way without it."""
        try:
            async with asyncio.timeout(self._plan.for_s), asyncio.TaskGroup() as group:
                group.create_task(self._faults())
                group.create_task(self._outages())
                group.create_task(self._proxy_dies())
                group.create_task(self._kills())
        except TimeoutError:
            pass
        if self._rebirth is not None:
            await self._rebirth
        stop.set()

    async def watch(self) -> None:
        """Samples of the server, life by life, until cancelled."""
        while True:
            life = self.lives[-1]
            look = process_look(self._server.pid) if self.is_up else None
            if look is not None:
                age_s = self.now_s - life.began_s
                life.memory.append((age_s, float(look[0])))
                life.handles.append((age_s, float(look[1])))
            await asyncio.sleep(SAMPLE_S)

    # ---- at Telegram ----

    async def _faults(self) -> None:
        """One kind after the other, in an order of chance, each for a while and for some of the requests."""
        kinds: list[tuple[str, dict[str, object]]] = [
            ("flood", {"probability": 0.05, "retry_after": 1}),
            ("error", {"probability": 0.1, "status": 502}),
            ("error", {"probability": 0.05, "status": 500, "after": True}),
            ("error", {"probability": 0.1, "status": 502, "html": True}),
            ("lose_before", {"probability": 0.1}),
            ("lose_after", {"probability": 0.05}),
            ("truncate", {"probability": 0.03}),
            ("garbage", {"probability": 0.03}),
            ("slow", {"probability": 0.5, "least_s": 0.05, "most_s": 0.5}),
            ("late", {"probability": 0.03, "least_s": 0.1, "most_s": 1.0}),
            ("stale", {"requests": 20, "probability": 0.2}),
            ("close_idle", {"idle_s": 0.5}),
            ("hang", {"method": "sendMessage", "count": 2, **self._hang_at}),
        ]
        while True:
            self._chance.shuffle(kinds)
            for kind, details in kinds:
                await self._order(kind, self._plan.trouble_every_s * self._chance.uniform(0.4, 0.9), **details)
                await asyncio.sleep(self._plan.trouble_every_s)

    async def _outages(self) -> None:
        while True:
            await asyncio.sleep(self._plan.trouble_every_s * self._chance.uniform(5, 10))
            seconds = self._chance.uniform(*self._plan.outage_s)
            self._mark("outage")
            await self._order("dark", seconds)

    async def _order(self, kind: str, seconds: float, **details: object) -> None:
        self.done[kind] += 1
        await self._sim.post("faults", kind=kind, seconds=seconds, **details)

    # ---- on the way, and to the server ----

    async def _proxy_dies(self) -> None:
        """The first route goes through a proxy. While it is dead, Peik finds the direct way."""
        while True:
            await asyncio.sleep(self._plan.trouble_every_s * self._chance.uniform(3, 6))
            self.done["proxy dies"] += 1
            await self._proxy.kill()
            await asyncio.sleep(self._chance.uniform(*self._plan.outage_s))
            await self._proxy.revive()

    async def _kills(self) -> None:
        for at_s in self._plan.kill_times_s:
            await asyncio.sleep(max(0.0, at_s - self.now_s))
            # Never left half done when the time is over: a process that is just being started would be nobody's.
            self._rebirth = asyncio.create_task(self._kill())
            await asyncio.shield(self._rebirth)
        await asyncio.Event().wait()  # the rest is one life

    async def _kill(self) -> None:
        self.done["kill -9"] += 1
        self._mark("kill -9")
        self.is_up = False
        await self._server.program.kill()
        await self._server.start()
        self.lives.append(Life(began_s=self.now_s))
        self.is_up = True
        self._say(f"the server lives again, for the {len(self.lives)}. time")

    def _mark(self, what: str) -> None:
        self.marks.append((self.now_s, what))
        self._say(what)
