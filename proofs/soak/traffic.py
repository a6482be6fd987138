"""Those who use Peik: back-ends and bots that send by every door, people who write, bots that answer them.

Each of them is careful: what was not acknowledged is asked again under the same key, and only then the next thing follows. So
every text that somebody was done with must have become one letter, in the order of its lane.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from peik import Peik
from peik.errors import Unavailable
from proofs.soak.plan import Plan
from tests.processes.programs import KEY, Server, Sim

FIRST_BOT = 7_200_000_001
FIRST_CHAT, FIRST_PERSON = 1_000, 9_000
BATCH = 3
AGAIN_S = 0.2
CLIENT_S = 20.0
POLL_S = 5
_GONE = (aiohttp.ClientError, ConnectionError, TimeoutError)
_LATER = frozenset({500, 502, 503, 504})

Lane = tuple[int, int]  # bot and chat


def token_of(bot: int) -> str:
    return f"{bot}:AAsoak"


class Traffic:
    """`lanes` is what was acknowledged, in order; `written` and `got` are updates by their text."""

    def __init__(self, server: Server, sim: Sim, http: aiohttp.ClientSession, library: Peik, plan: Plan) -> None:
        self._server, self._sim, self._http, self._library, self._plan = server, sim, http, library, plan
        self.bots = [FIRST_BOT + number for number in range(plan.bots)]
        self.lanes: dict[Lane, list[str]] = {}
        self.by_door: Counter[str] = Counter()
        self.asked_again = 0
        self.refused: list[str] = []
        self.written: list[str] = []
        self.got: Counter[str] = Counter()
        self._answers: dict[Lane, asyncio.Queue[str]] = {}
        self._chance = random.Random(plan.seed)

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop, and then until all that was begun is done: every update is got, every answer accepted."""
        doors = (self._by_rest, self._by_batch, self._by_gateway, self._by_library)
        reading: list[asyncio.Task[None]] = []
        async with asyncio.TaskGroup() as group:
            for bot in self.bots:
                for number in range(self._plan.lanes):
                    lane = bot, FIRST_CHAT + number
                    group.create_task(self._send(lane, doors[number % len(doors)], stop))
                for number in range(self._plan.people):
                    lane = bot, FIRST_PERSON + number
                    self._answers[lane] = asyncio.Queue()
                    group.create_task(self._person(bot, FIRST_PERSON + number, stop))
                    reading.append(asyncio.create_task(self._answer(lane)))
                reading.append(asyncio.create_task(self._bot(bot)))
            ending = group.create_task(self._all_answered(stop))
            await asyncio.wait([ending, *reading], return_when=asyncio.FIRST_COMPLETED)
            for task in reading:
                if task.done():
                    task.result()  # raises what ended it
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    async def _all_answered(self, stop: asyncio.Event) -> None:
        await stop.wait()
        while len(self.got) < len(set(self.written)):  # noqa: ASYNC110  another process is waited for
            await asyncio.sleep(AGAIN_S)
        for queue in self._answers.values():
            await queue.join()

    # ---- letters ----

    async def _send(
        self, lane: Lane, door: "Callable[[Lane, list[str]], Awaitable[bool]]", stop: asyncio.Event
    ) -> None:
        chance = random.Random(f"{self._plan.seed} {lane}")
        done = self.lanes.setdefault(lane, [])
        gap_s = self._plan.gap_s
        while not stop.is_set():
            count = BATCH if door == self._by_batch else 1
            await _pause(stop, chance.expovariate(1 / (gap_s * count)))
            if stop.is_set():
                return
            texts = [f"{lane[0]}/{lane[1]}/{len(done) + number}" for number in range(count)]
            await self._insist(lambda texts=texts: door(lane, texts))  # type: ignore[misc]
            done += texts
            self.by_door[door.__name__.removeprefix("_by_")] += count

    async def _insist(self, attempt: Callable[[], Awaitable[bool]]) -> None:
        while True:
            try:
                async with asyncio.timeout(CLIENT_S):
                    if await attempt():
                        return
            except (*_GONE, Unavailable):
                pass
            self.asked_again += 1
            await asyncio.sleep(AGAIN_S)

    async def _by_rest(self, lane: Lane, texts: list[str]) -> bool:
        status, answer = await self._server.call("POST", "/v1/letters", json=self._letter(lane, texts[0]))
        return self._is_taken(status, answer)

    async def _by_batch(self, lane: Lane, texts: list[str]) -> bool:
        body = {"letters": [self._letter(lane, text) for text in texts]}
        status, answer = await self._server.call("POST", "/v1/letters/batch", json=body)
        return self._is_taken(status, answer)

    async def _by_gateway(self, lane: Lane, texts: list[str]) -> bool:
        url = f"{self._server.url}/bot{token_of(lane[0])}/sendMessage"
        params = {"chat_id": lane[1], "text": texts[0]}
        async with self._http.post(url, json=params, headers={"Idempotency-Key": texts[0]}) as response:
            return self._is_taken(response.status, await response.json())

    async def _by_library(self, lane: Lane, texts: list[str]) -> bool:
        await self._library.send_text(lane[1], texts[0], bot_id=lane[0], idempotency_key=texts[0])
        return True

    def _letter(self, lane: Lane, text: str) -> dict[str, Any]:
        params = {"chat_id": lane[1], "text": text}
        letter = {"bot_id": str(lane[0]), "method": "sendMessage", "params": params, "idempotency_key": text}
        return letter if self._plan.timeout_s is None else letter | {"timeout_ms": round(self._plan.timeout_s * 1000)}

    def _is_taken(self, status: int, answer: Any) -> bool:
        if status not in (200, 202) and status not in _LATER:
            self.refused.append(f"{status} {answer}")
            raise AssertionError(self.refused[-1])  # a definite no to a good letter ends the soak
        return status in (200, 202)

    # ---- updates ----

    async def _person(self, bot: int, person: int, stop: asyncio.Event) -> None:
        """Telegram's own door for people is always open."""
        chance = random.Random(f"{self._plan.seed} {bot} {person}")
        number = 0
        while not stop.is_set():
            await _pause(stop, chance.expovariate(1 / self._plan.written_gap_s))
            text = f"u/{bot}/{person}/{number}"
            self.written.append(text)
            await self._sim.post("write", bot=bot, user=person, text=text)
            number += 1

    async def _bot(self, bot: int) -> None:
        offset = 0
        url = f"/bot{token_of(bot)}/getUpdates"
        while True:
            try:
                async with asyncio.timeout(POLL_S + CLIENT_S):
                    params = {"offset": offset, "timeout": POLL_S}
                    async with self._http.post(f"{self._server.url}{url}", json=params) as response:
                        answer = await response.json()
            except (*_GONE, ValueError):
                await asyncio.sleep(AGAIN_S)
                continue
            if not answer.get("ok"):
                await asyncio.sleep(AGAIN_S)
                continue
            for update in answer["result"]:
                offset = update["update_id"] + 1
                text = update["message"]["text"]
                self.got[text] += 1
                if self.got[text] == 1:
                    self._answers[bot, update["message"]["chat"]["id"]].put_nowait(text)

    async def _answer(self, lane: Lane) -> None:
        """One after the other in a chat, through the gateway, as a bot does."""
        done = self.lanes.setdefault(lane, [])
        queue = self._answers[lane]
        while True:
            text = f"to {await queue.get()}"
            await self._insist(lambda text=text: self._by_gateway(lane, [text]))  # type: ignore[misc]
            done.append(text)
            self.by_door["answer"] += 1
            queue.task_done()


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


def library_of(server: Server) -> Peik:
    return Peik.connect(server.url, key=KEY)
