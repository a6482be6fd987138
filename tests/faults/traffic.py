"""Letters and updates that keep coming while a server is hurt, and the judgement afterwards.

Senders repeat what was not acknowledged, with the same Idempotency-Key, as a careful client does. So every text that they
were done with must have become one letter, and that letter must have arrived.
"""

import asyncio
import random
from collections import Counter, defaultdict
from typing import Any, Self

import aiohttp

from tests.faults.hurting import HurtServer, is_confirmed, until, write
from tests.patience import PATIENCE_S
from tests.processes.programs import Sim

_GONE = (aiohttp.ClientError, ConnectionError, TimeoutError)
RETRY_S = 0.05
CLIENT_S = 3.0  # how long a client waits for an answer before it asks again
READER = "@reader"


class Sender:
    """Sends to one chat, one text after the other, by REST or through the gateway."""

    def __init__(self, chat_id: int, *, by_gateway: bool) -> None:
        self.chat_id = chat_id
        self.texts: list[str] = []  # acknowledged, in order
        self.refusals: Counter[str] = Counter()
        self._by_gateway = by_gateway

    async def run(self, server: HurtServer, stop: asyncio.Event, chance: random.Random) -> None:
        while not stop.is_set():
            text = f"{self.chat_id}/{len(self.texts)}"
            while not await self._is_taken(server, text):  # noqa: ASYNC110  another process is waited for
                await asyncio.sleep(RETRY_S)
            self.texts.append(text)
            await asyncio.sleep(chance.uniform(0, 0.05))

    async def _is_taken(self, server: HurtServer, text: str) -> bool:
        headers = {"Idempotency-Key": text}
        try:
            async with asyncio.timeout(CLIENT_S):
                if self._by_gateway:
                    status, answer = await server.ask("sendMessage", headers=headers, chat_id=self.chat_id, text=text)
                else:
                    status, answer = await server.post(self.chat_id, text, idempotency_key=text)
        except _GONE:
            return False
        if status == 503:
            self.refusals[answer.get("code") or answer["description"]] += 1
            return False
        assert status in (200, 202), answer
        return True


class Person:
    """Writes to the bot. Telegram is always there, so that everything written counts."""

    def __init__(self, user: int) -> None:
        self.user = user
        self.texts: list[str] = []

    async def run(self, sim: Sim, stop: asyncio.Event, chance: random.Random) -> None:
        while not stop.is_set():
            text = f"u{self.user}/{len(self.texts)}"
            await write(sim, self.user, text)
            self.texts.append(text)
            await asyncio.sleep(chance.uniform(0, 0.15))


class Reader:
    """A bot that polls the gateway. What it got it has, whatever becomes of its acknowledgement."""

    def __init__(self) -> None:
        self.got: dict[int, tuple[int, str]] = {}  # by update_id: who wrote what
        self._offset = 0

    async def run(self, server: HurtServer, wanted: asyncio.Future[int]) -> None:
        """Until as many updates were got as `wanted` says, once it is known."""
        while not wanted.done() or len(self.got) < wanted.result():
            try:
                async with asyncio.timeout(CLIENT_S):
                    status, answer = await server.ask(
                        "getUpdates", consumer=READER, offset=self._offset, timeout=1, limit=20
                    )
            except _GONE:
                status = 0
            if status != 200:
                await asyncio.sleep(RETRY_S)
                continue
            for update in answer["result"]:
                message = update["message"]
                known = self.got.setdefault(update["update_id"], (message["from"]["id"], message["text"]))
                assert known[1] == message["text"], "a number stands for one update for ever"
                self._offset = update["update_id"] + 1


class Traffic:
    """Both directions at once."""

    def __init__(
        self, server: HurtServer, sim: Sim, chance: random.Random, *, senders: int = 6, people: int = 4
    ) -> None:
        self._server = server
        self._sim = sim
        self._chance = chance
        self.senders = [Sender(chat_id, by_gateway=chat_id % 2 == 0) for chat_id in range(1, senders + 1)]
        self._people = [Person(1000 + number) for number in range(people)]
        self._reader = Reader()

    async def __aenter__(self) -> Self:
        self._stop = asyncio.Event()
        self._wanted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tasks = [
            *(asyncio.create_task(one.run(self._server, self._stop, self._chance)) for one in self.senders),
            *(asyncio.create_task(one.run(self._sim, self._stop, self._chance)) for one in self._people),
        ]
        self._reading = asyncio.create_task(self._reader.run(self._server, self._wanted))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (*self._tasks, self._reading):
            task.cancel()
        await asyncio.gather(*self._tasks, self._reading, return_exceptions=True)

    @property
    def refusals(self) -> Counter[str]:
        return sum((one.refusals for one in self.senders), Counter())

    async def end(self) -> None:
        """Nobody begins anything new; what was begun is brought to its end. The server must be well by now. On a slow machine
        somebody may not have come to a second letter yet: that is waited for, since one is no order."""
        async with asyncio.timeout(PATIENCE_S):
            while not all(len(sender.texts) > 1 for sender in self.senders):  # noqa: ASYNC110  it is a list
                await asyncio.sleep(0.05)
        self._stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)
        self._wanted.set_result(sum(len(person.texts) for person in self._people))
        async with asyncio.timeout(PATIENCE_S):
            await self._reading

    async def judge(self) -> int:
        """Hold the server to every promise of both directions; how many tries were uncertain."""
        await self._server.quiet()
        await self._judge_arrivals()
        return await self._judge_letters()

    async def _judge_arrivals(self) -> None:
        await until(lambda: is_confirmed(self._sim))
        stored = await self._server.arrivals()
        ids = [one["telegram_update_id"] for one in stored]
        assert len(set(ids)) == len(ids), "each update is stored once"
        for person in self._people:
            assert [one["text"] for one in stored if one["user_id"] == str(person.user)] == person.texts
            got = [text for _, (user, text) in sorted(self._reader.got.items()) if user == person.user]
            assert got == person.texts

    async def _judge_letters(self) -> int:
        arrived: dict[int, list[str]] = defaultdict(list)
        for one in (await self._sim.get("sent", limit=50_000))["deliveries"]:
            arrived[one["chat_id"]].append(one["text"])
        letters: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for letter in await self._server.letters():
            letters[letter["params"]["text"]].append(letter)
        repeats = uncertain = 0
        for sender in self.senders:
            seen = Counter(arrived[sender.chat_id])
            assert list(dict.fromkeys(arrived[sender.chat_id])) == sender.texts, "all of them, in order, and no other"
            for text in sender.texts:
                (letter,) = letters[text]  # a key makes one letter, however often it was sent
                assert letter["state"] == "completed", letter
                assert seen[text] <= 1 + letter["uncertain_tries"], letter
                repeats += seen[text] - 1
                uncertain += letter["uncertain_tries"]
        assert repeats <= uncertain
        assert all(len(sender.texts) > 1 for sender in self.senders), "each of them was heard"
        return uncertain
