"""Bots behind addresses in virtual time. They obey the port of the real pusher and note what they get."""

import asyncio
import json
from collections.abc import Callable, Mapping

from peik.core.address import AddressReach
from peik.inbox.store import PushAnswer
from peik.testing.virtual import VirtualClock


class Got:
    """One push as it came in."""

    def __init__(self, at_s: float, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.at_s = at_s
        self.url = url
        self.headers = dict(headers)
        self.update = json.loads(body)

    @property
    def text(self) -> str:
        return str(self.update["message"]["text"])

    @property
    def chat(self) -> int:
        return int(self.update["message"]["chat"]["id"])


HANGS = PushAnswer(why="hangs")  # no answer, ever


def ok(got: Got) -> PushAnswer:
    return PushAnswer(status=200)


class Bots:
    """A `Pusher`. `answer` says what comes back."""

    def __init__(self, clock: VirtualClock, answer: Callable[[Got], PushAnswer] = ok, *, takes_s: float = 0.05) -> None:
        self._clock = clock
        self.answer = answer
        self._takes_s = takes_s
        self.got: list[Got] = []
        self.at_once: list[tuple[str, int]] = []  # addresses and chats
        self.at_once_max = 0

    async def push(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, reach: AddressReach
    ) -> PushAnswer:
        got = Got(self._clock.mono(), url, headers, body)
        self.got.append(got)
        assert (url, got.chat) not in self.at_once, "two of a chat at once"
        self.at_once.append((url, got.chat))
        self.at_once_max = max(self.at_once_max, len(self.at_once))
        try:
            answer = self.answer(got)
            await asyncio.sleep(timeout_s if answer is HANGS else self._takes_s)
        finally:
            self.at_once.remove((url, got.chat))
        return PushAnswer(why=f"no answer within {timeout_s:g} s") if answer is HANGS else answer

    async def close(self) -> None: ...

    @property
    def texts(self) -> list[str]:
        return [got.text for got in self.got]
