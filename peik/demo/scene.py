"""Who makes the traffic: people who write, a small bot that answers them, a shop that sends news. All send through Peik."""

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from peik.demo import narration
from peik.demo.book import DemoBook, DemoWatch, Promise
from peik.demo.calls import DemoDeclined, DemoFate, DemoMessage, DemoPerson
from peik.demo.screen import Screen
from peik.demo.stage import TOKEN, DemoStage

GROUP = -1001000000001
_POLL_S = 20
_ANSWERED_FIRST = 1  # priority high: somebody waits for it


class Town:
    def __init__(self, stage: DemoStage, book: DemoBook, *, chance: random.Random) -> None:
        self._stage = stage
        self._book = book
        self._chance = chance
        self._numbers = itertools.count(1)
        self._answers: dict[tuple[int, str], str] = {}  # by person and question
        self.people = [DemoPerson(1001 + place, name) for place, name in enumerate(narration.PEOPLE)]
        self.leaver = DemoPerson(1099, narration.LEAVER)

    async def settle_in(self) -> None:
        sim = self._stage.sim
        await sim.order("bots", token=TOKEN, first_name="Courier", username="courier_demo_bot")
        for person in [*self.people, self.leaver]:
            await sim.order("users", id=person.id, first_name=person.first_name)
        await sim.order("chats", type="supergroup", title="Friends of the shop", id=GROUP, bots=[TOKEN])

    # ---- the shop ----

    async def send(self, chat_id: int, text: str, *, priority: int = 0, **terms: object) -> Promise:
        """Returns once Peik has promised the letter. Each text gets a number, so that the ledger can be matched by it."""
        number = next(self._numbers)
        params: dict[str, object] = {"chat_id": chat_id, "text": f"{text} · {number}"}
        letter_id = await self._stage.peik.send(params, key=f"demo-{number}", priority=priority, **terms)
        promise = Promise(
            letter_id=letter_id,
            chat_id=chat_id,
            text=f"{text} · {number}",
            is_plain=priority == 0,
            promised_at=time.monotonic(),
        )
        self._book.promised(promise)
        return promise

    async def tell_of_an_order(self, person: DemoPerson | None = None) -> Promise:
        somebody = person or self._chance.choice(self.people)
        return await self.send(somebody.id, self._chance.choice(narration.ORDERS))

    # ---- people ----

    async def ask(self, person: DemoPerson, question: str) -> None:
        await self._stage.sim.order("write", bot=TOKEN, user=person.id, text=question)

    def answer(self, person: DemoPerson, question: str) -> str | None:
        """The bot's answer, once Peik has promised it."""
        return self._answers.get((person.id, question))

    def some_question(self) -> str:
        return self._chance.choice(narration.QUESTIONS)

    # ---- the bot ----

    async def run_bot(self) -> None:
        """A long poll at Peik, as any bot does that has Peik as its API root; the answers go through it as well."""
        offset = 0
        while True:
            updates = await self._stage.peik.updates(TOKEN, offset=offset, timeout_s=_POLL_S)
            for update in updates:
                offset = update.update_id + 1
                if update.message is not None:
                    await self._reply(update.message)

    async def _reply(self, message: DemoMessage) -> None:
        if message.sender is None or not message.text:
            return
        text = narration.ANSWER.format(name=message.sender.first_name)
        promise = await self.send(message.chat.id, text, priority=_ANSWERED_FIRST)
        self._answers[message.sender.id, message.text] = promise.text


# What every chapter has at hand: the processes, the town, the book, the screen, and the small steps that chapters
# share.


T = TypeVar("T")
R = TypeVar("R")
_AT_ONCE = 20  # requests of the demo to Peik at one time
CHAPTERS = 7


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    beat_s: float  # the time to read a sentence
    orders: int  # per person, in the dark
    queue: int  # letters going out at the crash
    crowd: int  # people in the flood
    group: int  # letters to one group in the flood


FULL = Scale(beat_s=1.0, orders=4, queue=40, crowd=120, group=6)
QUICK = Scale(beat_s=0.0, orders=2, queue=20, crowd=30, group=4)


class DemoScene:
    def __init__(self, stage: DemoStage, screen: Screen, *, scale: Scale, seed: int) -> None:
        self.stage = stage
        self.screen = screen
        self.scale = scale
        self.chance = random.Random(seed)
        self.book = DemoBook()
        self.town = Town(stage, self.book, chance=self.chance)
        self.watch = DemoWatch(stage, self.book, show=screen.show)

    def begin(self, number: int, title: str, lead: str, **values: object) -> None:
        self.watch.now.chapter = f"{number} of {CHAPTERS} · {title}"
        self.screen.chapter(f"{number}. {title}", lead, **values)

    async def end(self) -> None:
        await self.watch.until(lambda: True, what="for a look")
        self.screen.counters()
        await self.beat()

    async def beat(self, times: float = 1.0) -> None:
        await asyncio.sleep(self.scale.beat_s * times)

    async def dark(self, *, is_dark: bool) -> None:
        await self.stage.sim.order("dark", on=is_dark)
        self.watch.now.is_dark = is_dark

    async def kill_and_restart(self, *, meanwhile: float = 0.0) -> float:
        """How long it took Peik to come back, in seconds."""
        await self.stage.kill_peik()
        await self.watch.until(lambda: not self.watch.now.is_peik_up, what="for Peik to be seen dead")
        await self.beat(meanwhile)
        began = time.monotonic()
        await self.stage.start_peik()
        return time.monotonic() - began

    async def talk(self, person: DemoPerson, question: str) -> tuple[str, float]:
        """A person writes and gets an answer: its words, and the seconds between the two by Telegram's ledger."""
        asked_at = time.time()
        await self.town.ask(person, question)
        await self.watch.until(lambda: self.answered_at(person, question) > asked_at, what="for the bot to answer")
        answer = self.town.answer(person, question)
        assert answer is not None
        return answer, self.answered_at(person, question) - asked_at

    def answered_at(self, person: DemoPerson, question: str) -> float:
        """When the newest answer to this question arrived; 0 while it has not."""
        answer = self.town.answer(person, question)
        arrival = self.book.arrival(answer) if answer is not None else None
        return 0.0 if arrival is None else arrival.at

    def last_arrival_at(self, promises: Iterable[Promise]) -> float:
        return max((one.at for promise in promises if (one := self.book.arrival(promise.text))), default=0.0)

    async def fates(self, promises: Sequence[Promise]) -> list[DemoFate]:
        """What Peik says of each of these letters."""
        return await at_once(lambda promise: self.stage.peik.fate(promise.letter_id), promises)

    async def audit(self) -> None:
        """Write into the book what Peik says of every letter that had not ended when it was last asked."""
        promises = self.book.open_promises()

        async def ask(promise: Promise) -> None:
            try:
                promise.fate = await self.stage.peik.fate(promise.letter_id)
            except DemoDeclined as refusal:
                if refusal.status != 404:  # a letter that Peik does not know any more is left without a fate
                    raise

        await at_once(ask, promises)
        self.book.fold(time.monotonic())


async def at_once(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """The results in order, some at a time."""
    results: list[R] = []
    for start in range(0, len(items), _AT_ONCE):
        results += await asyncio.gather(*(work(item) for item in items[start : start + _AT_ONCE]))
    return results
