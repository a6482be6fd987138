"""Who makes the traffic: people who write, a small bot that answers them, a shop that sends news. All send through Peik."""

import itertools
import random
import time

from peik.demo import narration
from peik.demo.book import Book, Promise
from peik.demo.calls import Message, Person
from peik.demo.stage import TOKEN, Stage

GROUP = -1001000000001
_POLL_S = 20
_ANSWERED_FIRST = 1  # priority high: somebody waits for it


class Town:
    def __init__(self, stage: Stage, book: Book, *, chance: random.Random) -> None:
        self._stage = stage
        self._book = book
        self._chance = chance
        self._numbers = itertools.count(1)
        self._answers: dict[tuple[int, str], str] = {}  # by person and question
        self.people = [Person(1001 + place, name) for place, name in enumerate(narration.PEOPLE)]
        self.leaver = Person(1099, narration.LEAVER)

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

    async def tell_of_an_order(self, person: Person | None = None) -> Promise:
        somebody = person or self._chance.choice(self.people)
        return await self.send(somebody.id, self._chance.choice(narration.ORDERS))

    # ---- people ----

    async def ask(self, person: Person, question: str) -> None:
        await self._stage.sim.order("write", bot=TOKEN, user=person.id, text=question)

    def answer(self, person: Person, question: str) -> str | None:
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

    async def _reply(self, message: Message) -> None:
        if message.sender is None or not message.text:
            return
        text = narration.ANSWER.format(name=message.sender.first_name)
        promise = await self.send(message.chat.id, text, priority=_ANSWERED_FIRST)
        self._answers[message.sender.id, message.text] = promise.text
