"""The seeded world put together: one Telegram, people, bots, back-ends, and one machine with Peik on it."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from peik.app.runtime import Runtime
from peik.core import events
from peik.inbox.store import PushAnswer
from peik.outbox.store import Posted
from peik.settings.config import Config, load
from peik.testing.faults import Options
from peik.testing.telegram import Telegram
from peik.testing.updates import PushResult
from peik.testing.virtual import VirtualClock
from peik.testing.world import Push
from simulation import processes
from simulation.clients import Backend, Draft, Program
from simulation.disk import Disk
from simulation.judge import Judge, WatchedLedger, WatchedQueue, not_handed
from simulation.network import LATENCY_S, Answered, Doors, Lost, Tally, Try, Weather
from simulation.node import Node
from simulation.processes import OUTSIDE, Process, WorldLoop
from simulation.promises import Promise, Promises, Witness

PUBLIC = "https://peik.example.com"
GROUP = -1_000_000_000_777
FORUM = -1_000_000_000_888
OLD_GROUP = -4242  # until it becomes a supergroup
SERVERS = ("http://telegram.example", "http://local.example")


class World:
    """A life with one machine, one file and one or two processes on it. See `ServerWorld` for the other kind."""

    bots = 2
    is_balanced = False  # polls of one program go to several nodes in turn
    is_refusal_doubtful = False  # on a file, what is answered with 503 was not accepted
    calm_s = 8 * 3600.0  # with all faults off, everything has ended by then
    jump_s_max = 86_400.0  # how far the wall clock is ever ahead

    def __init__(self, loop: WorldLoop, clock: VirtualClock, folder: Path, seed: int) -> None:
        self.loop = loop
        self.clock = clock
        self.folder = folder
        self.seed = seed
        self.log: list[str] = []
        self.story: list[str] = []  # the deeds by name and time,
        self.deeds: list[int] = []  # and by their places
        self.counts: Counter[str] = Counter()
        self.key = "the-admin-key"
        self._steps = 0
        self._names = 0
        chance = self.chance_for("world")
        self.settings = {"missed": chance.choice(["process", "process", "notify", "both", "drop"])}
        self.api_root = SERVERS[0]
        self.inbound = chance.choice(["polling", "polling", "webhook"])

        self.weather = Weather()
        self.tally = Tally()
        self.doors = Doors(self.weather, chance=self.chance_for("doors"), tally=self.tally)
        self.witness = Witness(self.data / "peik.db")
        self.promises = Promises()
        self.judge = Judge(self.promises, self.witness, now=clock.mono, step=self.step, wall_ms=clock.wall_ms)
        self.disk = Disk(self.data, self.chance_for("disk"), who=processes.who)
        self.telegram = self._make_telegram()
        self.tokens = {
            7000001 + place: f"{7000001 + place}:AA{'secret'[place:]}seed{seed}" for place in range(self.bots)
        }
        self.queues = {bot_id: self._make_bot(bot_id) for bot_id in self.tokens}
        kinds = ["poll", "poll", "push", "handlers"]
        self.programs = [Program(self, bot_id, chance.choice(kinds)) for bot_id in self.tokens]  # type: ignore[arg-type]
        self.backends = [Backend(self, f"backend{number}") for number in range(3)]
        self.drafts: list[Draft] = []
        self.nodes = [self.make_node(f"node{number}") for number in range(self.size(chance))]
        self.dead: list[Process] = []  # and not buried yet
        self._tasks: list[asyncio.Task[None]] = []
        self._pushes_bell = asyncio.Event()
        self.telegram.updated = lambda bot: self._pushes_bell.set()

    # ---- making ----

    @property
    def data(self) -> Path:
        """Where the machine with the store keeps its files: on the simulated disk."""
        return self.folder

    def size(self, chance: random.Random) -> int:
        """How many nodes there are from the start."""
        return chance.choice([1, 1, 1, 2])

    def make_node(self, name: str) -> Node:
        return Node(self, name)

    @property
    def is_alone(self) -> bool:
        """Whether nobody else will ever have the store."""
        return len(self.nodes) == 1

    def has_handlers(self, node: Node) -> bool:
        """Whether the programs' handlers run in this node."""
        return True

    def chance_for(self, what: str) -> random.Random:
        """A stream of chance of its own, so that one thing more or less in the world leaves the others as they were."""
        return random.Random(f"{self.seed} {what}")

    def _make_telegram(self) -> Telegram:
        began_s = self.clock.wall_s() - self.clock.mono()
        # Telegram's clock goes its own way: ours may jump.
        options = Options(accept_any_token=False)
        telegram = Telegram(
            now=lambda: began_s + self.clock.mono(), chance=self.chance_for("telegram"), options=options
        )
        telegram.sent = WatchedLedger(self.delivered)
        telegram.applied = WatchedLedger(self.delivered)
        return telegram

    def _make_bot(self, bot_id: int) -> WatchedQueue:
        bot = self.telegram.add_bot(self.tokens[bot_id])
        queue = WatchedQueue(
            self.chance_for(f"queue {bot_id}"), lambda event: self.witness.has(bot_id, event), self.judge.note
        )
        bot.queue = queue
        for chat_id, is_forum in ((GROUP, False), (FORUM, True)):
            if chat_id not in self.telegram.chats:
                self.telegram.chat("supergroup", chat_id=chat_id, is_forum=is_forum)
            self.telegram.chats[chat_id].is_lenient = True
        if OLD_GROUP not in self.telegram.chats:
            self.telegram.chat("group", chat_id=OLD_GROUP)
        self.telegram.chats[OLD_GROUP].is_lenient = True
        return queue

    def config(self, node: Node) -> Config:
        flags = {
            **self.places(node),
            "bot_tokens": ",".join(self.tokens.values()),
            "public_url": PUBLIC,
            "grace": "1s",
            "inbound": self.inbound,
            "api_root": self.api_root,
            **self.settings,
        }
        return load(flags, environment={}, folder=self.folder)

    def places(self, node: Node) -> dict[str, str]:
        """The settings that say where this node keeps what."""
        return {"store": f"sqlite:///{self.folder}/peik.db"}

    async def start(self) -> None:
        for node in self.nodes:
            node.start()

    # ---- time and the log ----

    def step(self) -> int:
        """The next instant: what came before what."""
        self._steps += 1
        return self._steps

    def note(self, what: str) -> None:
        line = f"{self.clock.mono():12.3f} {what}".replace(str(self.folder), "")  # it has another name each time
        for token in self.tokens.values():
            if token in line:
                self.judge.note(f"a token is in the log: {line.replace(token, '***')}")
        self.log.append(line)

    def heard(self, process: object, told: Sequence[events.Event]) -> None:
        for event in told:
            self.counts[type(event).__name__] += 1
            if isinstance(event, events.Surprise):
                self.judge.note(f"a surprise in {process}: {event.where}: {event.error}")

    # ---- what goes over the wire ----

    def left(self, one: Try) -> None:
        promise = self.judge.left(one)
        what = "" if promise is None else f" {promise.name}"
        self.note(f"{one.process} -> {one.request.method}{what}")

    def delivered(self, delivery: Any) -> None:
        self.note(f"telegram <- {delivery.bot_id} {delivery.chat_id} {delivery.message_id} {delivery.text[:40]!r}")
        self.judge.delivered(delivery)

    def outside(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with something outside of the process that began it."""
        self.loop.call_soon(lambda: self._tasks.append(self.loop.create_task(work)), context=OUTSIDE)

    async def ask(self, verb: str, path: str, *, is_anywhere: bool = False, **how: Any) -> Answered:
        """One request to the server of the store, or `is_anywhere`: to any process that has it open.

        On one file there is one server; the others are programs that accept and read, and take over when it dies.
        """
        node = self.balanced(self.chance_for(f"balancer {self.step()}"), is_anywhere=is_anywhere)
        return await self.doors.ask(node.process, node.app, verb, path, **how)

    def balanced(self, chance: random.Random, *, is_anywhere: bool) -> Node:
        """Which node a request goes to."""
        return chance.choice(self.nodes if is_anywhere else self.nodes[:1])

    async def gateway(
        self, bot_id: int, method: str, params: dict[str, Any], *, reader: str = "", timeout_s: float = 75.0
    ) -> Answered:
        """`reader`: as whom the bot is read by the one who calls; nothing: the default consumer."""
        headers = {"content-type": "application/json"}
        path = f"/bot{self.tokens[bot_id]}{reader and '@' + reader}/{method}"
        return await self.ask("POST", path, headers=headers, body=msgspec.json.encode(params), timeout_s=timeout_s)

    async def upload(self, bot_id: int, method: str, params: dict[str, Any], content: bytes) -> Answered:
        """The same with a file, as a form."""
        head = b'--seam\r\nContent-Disposition: form-data; name="%b"'
        parts = [head % name.encode() + b"\r\n\r\n" + str(value).encode() for name, value in params.items()]
        parts.append(head % b"document" + b'; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n' + content)
        body = b"\r\n".join(parts) + b"\r\n--seam--\r\n"
        headers = {"content-type": "multipart/form-data; boundary=seam"}
        return await self.ask(
            "POST", f"/bot{self.tokens[bot_id]}@backend/{method}", headers=headers, body=body, timeout_s=75.0
        )

    async def take_push(self, url: str, body: bytes, tell: Callable[[PushAnswer], None]) -> None:
        """Peik pushes an update to a bot's webhook."""
        if not await self._goes_through():
            return
        program = next(one for one in self.programs if one.url == url)
        answer = PushAnswer(status=await program.take_push(body))
        if await self._goes_through():
            tell(answer)

    async def take_post(self, url: str, body: bytes, tell: Callable[[Posted], None]) -> None:
        """Peik tells a back-end how a letter ended."""
        if await self._goes_through():
            self.promises.by_name[url.rpartition("/")[2]].heard += 1
            if await self._goes_through():
                tell(Posted(status=200))

    async def _goes_through(self) -> bool:
        await asyncio.sleep(LATENCY_S)
        chance = self.chance_for(f"push {self.step()}")
        return not self.weather.is_cut and chance.random() >= self.weather.lost_before

    # ---- Telegram pushes to us ----

    async def push_all(self) -> None:
        while True:
            for push in self.telegram.pushes_due():
                self.outside(self._push(push))
            next_at = self.telegram.next_push_at()
            wait_s = None if next_at is None else max(0.001, next_at - self.telegram.now())
            self._pushes_bell.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._pushes_bell.wait()

    async def _push(self, push: Push) -> None:
        try:
            path = push.url.removeprefix(PUBLIC)
            answer = await self.ask("POST", path, headers=push.headers(), body=push.body, timeout_s=60.0)
        except Lost as lost:
            result = PushResult(error=str(lost))
        else:
            wait = answer.headers.get("retry-after")
            result = PushResult(status=answer.status, retry_after_s=None if wait is None else float(wait))
        if not result.is_ok:
            self.note(f"telegram pushes {push.event.id} in vain: {result.error or result.status}")
        if result.is_ok and not self.witness.has(push.bot_id, push.event):
            self.judge.note(f"update {push.event.id} was answered with 200, and is not stored")
        self.telegram.push_done(push, result)
        self._pushes_bell.set()

    # ---- promises ----

    def promise(self, *, name: str | None = None, **details: Any) -> Promise | None:
        """A letter that somebody is about to ask for; None if it was asked for before."""
        if name is None:
            self._names += 1
            name = f"L{self._names}"
        if name in self.promises.by_name:
            return None
        promise = Promise(name=name, **details)
        self.promises.add(promise)
        return promise

    def draft(self, *, bot_id: int, chat: int) -> Draft:
        """A message that a bot is about to use. Its name is no letter's, so that it is judged by itself."""
        draft = Draft(bot_id=bot_id, chat=chat, name=f"D{len(self.drafts) + 1}")
        self.drafts.append(draft)
        return draft

    # ---- the machine ----

    def cut_power(self) -> None:
        """All processes are dead. What they had not synced may be gone."""
        for process in self.dead:
            process.bury()
        self.dead.clear()
        self.witness.close()
        self.note("the power is cut")
        self.disk.cut_power()

    @property
    def is_disk_well(self) -> bool:
        return not self.disk.fails and self.disk.room_bytes is None

    def heal_disk(self) -> None:
        self.disk.fails = self.disk.reads_fail = 0.0
        self.disk.reading_fuse = 0
        self.disk.room_bytes = None
        self.disk.is_read_only = False

    def look(self) -> None:
        """What must be so at any time."""
        self.judge.look()
        self.look_at_owners()

    def look_at_owners(self) -> None:
        owners = [node.name for node in self.nodes if node.runtime is not None and node.runtime.outbox.leases.is_whole]
        if len(owners) > 1:
            self.judge.note(f"{' and '.join(owners)} both own the store")

    def holder(self, bot_id: int) -> Runtime | None:
        """Who acts for a bot now."""
        return next(
            (one.runtime for one in self.nodes if one.runtime is not None and one.runtime.outbox.leases.holds(bot_id)),
            None,
        )

    @property
    def deaths(self) -> int:
        """How often somebody may have lost tries that he had in hand. A process that ends cleanly leaves one in doubt
        only if no answer came in its grace; that one was sent."""
        return self.counts["crashes"] + self.counts["power cuts"] + self.counts["ends that could not be stored"]

    # ---- the end ----

    def calm(self) -> None:
        """Every fault is over."""
        self.telegram.faults.clear()
        self.weather.clear()
        self.heal_disk()
        for program in self.programs:
            program.up(True)  # noqa: FBT003
        for node in self.nodes:
            if node.process is None:
                node.start()

    async def mend(self) -> None:
        """What people would set right: a token that Peik has not heard of, a bot that receives nothing."""
        for node in self.nodes:
            await node.up()
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        for bot_id, token in self.tokens.items():
            runtime = next(node.runtime for node in self.nodes if node.runtime is not None)
            change: dict[str, str] = {}
            if runtime.outbox.service.bot(bot_id).token.reveal() != token:
                change["token"] = token
            if runtime.outbox.service.bot(bot_id).inbound == "off":
                change["inbound"] = "polling"
            if change:
                body = msgspec.json.encode(change)
                answer = await self.ask("PATCH", f"/v1/bots/{bot_id}", headers=headers, body=body)
                if answer.status != 200:
                    self.judge.note(f"bot {bot_id} could not be changed: {answer.status} {answer.body[:200]!r}")

    def owed(self) -> Iterator[str]:
        """What has not come to its end yet."""
        yield from (f"{backend.name} still sends" for backend in self.backends if not backend.is_idle)
        for row in self.witness.look("SELECT id, phase FROM letters WHERE phase < 2"):
            yield f"letter {row[0]} is in phase {row[1]}"
        for row in self.witness.look("SELECT letter_id FROM hooks"):
            yield f"letter {row[0]} is still to be told of"
        for bot_id, queue in self.queues.items():
            if queue.size:
                yield f"{queue.size} updates of {bot_id} are still at Telegram"
        if self.witness.look("SELECT id FROM outages WHERE settled_at IS NULL"):
            yield "an outage is not settled"
        for program in self.programs:
            owner = self.holder(program.bot_id)
            if owner is None:
                yield f"nobody acts for {program.bot_id}"
                continue
            status = owner.inbox.receiver.status(program.bot_id)
            if not status.is_well:
                yield f"the source of {program.bot_id} is not well: {status.why}"
            if owner.inbox.outages.holds(program.bot_id):
                yield f"arrivals of {program.bot_id} are held"
            if self.settings["missed"] == "process":
                rows = self.witness.look("SELECT number, type FROM arrivals WHERE bot_id = ?", program.bot_id)
                if not_handed(program, rows):
                    yield f"the program of {program.bot_id} has not got everything"

    # ---- running ----

    def end(self) -> None:
        """Nobody lives on."""
        for node in self.nodes:
            node.kill()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        loud: list[str] = []
        self.loop.set_exception_handler(lambda loop, context: loud.append(_said(context)))
        try:
            with self.disk, processes.watched():
                for backend in self.backends:
                    self.outside(backend.run())
                for program in self.programs:
                    self.outside(program.run())
                self.outside(self.push_all())
                yield
        finally:
            self.judge.wrong += loud
            for task in self._tasks:
                task.cancel()
            self.end()
            for process in self.dead:
                process.bury()
            self.witness.close()


def _said(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return f"{context.get('message')}: {error!r}" if error is not None else str(context.get("message"))
