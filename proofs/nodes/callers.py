"""Back-ends that send through whichever node answers, and repeat with the same key what was not answered."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from proofs.nodes.cluster import Cluster, Node

TIMEOUT_S = 5.0
AGAIN_S = 0.1
AGAIN_MAX = 600  # a minute of no after no, from any node, is no outage any more
BEHIND_S_MAX = 1.0
SIZES = (1, 1, 1, 5, 20, 50)  # of requests: half of them are single letters


class Load(msgspec.Struct, frozen=True, kw_only=True):
    bots: int
    chats: int
    texts: int
    callers: int
    per_s: float  # of all callers together

    @property
    def letters(self) -> int:
        return self.bots * self.chats * self.texts


class Wanted(msgspec.Struct, frozen=True):
    """One letter as its caller knows it. The text is unlike any other and serves as its key."""

    bot_id: int
    chat_id: int
    number: int

    @property
    def text(self) -> str:
        return f"{self.bot_id}/{self.chat_id}/{self.number}"

    def body(self) -> dict[str, Any]:
        return {
            "bot_id": str(self.bot_id),
            "method": "sendMessage",
            "params": {"chat_id": self.chat_id, "text": self.text},
            "idempotency_key": self.text,
        }


class Callers:
    """Each has lanes of its own, so that it knows in which order the letters of a lane were accepted."""

    def __init__(self, cluster: Cluster, load: Load, chance: random.Random) -> None:
        self._cluster = cluster
        self._load = load
        self._chance = chance
        self.accepted: dict[str, str] = {}  # by text, the id
        self.lanes: dict[tuple[int, int], list[str]] = defaultdict(list)
        self.refused: list[str] = []
        self._failure = ""  # the last one
        self.requests = 0
        self.repeated = 0

    async def run(self) -> None:
        lanes = [(bot, chat) for bot in self._cluster.bots for chat in range(1, self._load.chats + 1)]
        self._chance.shuffle(lanes)
        callers = self._load.callers
        await asyncio.gather(*(self._call(lanes[first::callers]) for first in range(callers)))

    async def _call(self, lanes: Sequence[tuple[int, int]]) -> None:
        """One text to each lane, then the next, evenly over the time."""
        letters = iter([Wanted(bot, chat, number) for number in range(self._load.texts) for bot, chat in lanes])
        next_at = time.monotonic()
        while part := [letter for _, letter in zip(range(self._chance.choice(SIZES)), letters, strict=False)]:
            await self._accept(part)
            # What an outage cost is not made up for: a herd of callers is another story.
            next_at = max(next_at, time.monotonic() - BEHIND_S_MAX) + len(part) * self._load.callers / self._load.per_s
            await asyncio.sleep(next_at - time.monotonic())

    async def _accept(self, letters: Sequence[Wanted]) -> None:
        """Returns when they are accepted: all of them, whoever had to be asked how often."""
        tried: Node | None = None
        ids: list[str] | None = None
        for _ in range(AGAIN_MAX):
            tried = self._cluster.one_up(but=tried) or self._cluster.one_up()
            ids = None if tried is None else await self._ask(tried, letters)
            if ids is not None:
                break
            self.repeated += 1
            await asyncio.sleep(AGAIN_S)
        else:
            self.refused.append(f"{letters[0].text} and {len(letters) - 1} more: {self._failure}")
            ids = []
        for letter, letter_id in zip(letters, ids, strict=bool(ids)):
            self.accepted[letter.text] = letter_id
            self.lanes[letter.bot_id, letter.chat_id].append(letter.text)

    async def _ask(self, node: Node, letters: Sequence[Wanted]) -> list[str] | None:
        self.requests += 1
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            if len(letters) == 1:
                status, answer = await node.call("POST", "/v1/letters", json=letters[0].body(), timeout=timeout)
                ids = [answer["id"]] if status < 300 else []
            else:
                body = {"letters": [letter.body() for letter in letters]}
                status, answer = await node.call("POST", "/v1/letters/batch", json=body, timeout=timeout)
                ids = list(answer["ids"]) if status < 300 else []
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            self._failure = repr(error)
            return None
        if 400 <= status < 500:
            self.refused.append(str(answer))
            return []
        self._failure = str(answer)
        return ids or None


class Waiters:
    """Ask at one node for a letter of a bot that another one serves, and wait for its end."""

    CHAT = 9_000_001
    EVERY_S = 0.5

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self.answered: dict[str, float] = {}  # by text: when the answer came
        self.unanswered = 0

    async def run(self) -> None:
        number = 0
        async with asyncio.TaskGroup() as group:
            while True:
                number += 1
                holders = await self._cluster.holders()
                pairs = [
                    (node, bot)
                    for node in self._cluster.healthy()
                    for bot in self._cluster.bots
                    if holders.get(bot, node.name) != node.name
                ]
                if pairs:
                    node, bot = self._chance.choice(pairs)
                    group.create_task(self._wait(node, Wanted(bot, self.CHAT + number, number)))
                await asyncio.sleep(self.EVERY_S)

    async def _wait(self, node: Node, letter: Wanted) -> None:
        try:
            status, answer = await node.call("POST", "/v1/letters?wait=30s", json=letter.body())
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            self.unanswered += 1  # the node was killed meanwhile
            return
        if status < 300 and answer["state"] == "completed":
            self.answered[letter.text] = time.time()
        else:
            self.unanswered += 1
