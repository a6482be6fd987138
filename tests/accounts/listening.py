"""A listener that keeps what it hears in memory, and can be slow or fail."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from peik.accounts.client import ClientError, HistoryGap
from peik.archive.store import Happening, Message


class Notebook:
    def __init__(self) -> None:
        self.heard: list[Any] = []  # everything, in order
        self.messages: list[Message] = []
        self.deleted: list[tuple[int | None, tuple[int, ...]]] = []
        self.happenings: list[Happening] = []
        self.gaps: list[HistoryGap] = []
        self.states: list[bytes] = []
        self.lost: list[ClientError] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.messages]

    @property
    def state(self) -> bytes | None:
        return self.states[-1] if self.states else None

    async def on_messages(self, messages: Sequence[Message]) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.messages.extend(messages)
        self.heard.extend(messages)

    async def on_deleted(self, chat_id: int | None, message_ids: Sequence[int]) -> None:
        self.deleted.append((chat_id, tuple(message_ids)))
        self.heard.append(self.deleted[-1])

    async def on_happenings(self, happenings: Sequence[Happening]) -> None:
        self.happenings.extend(happenings)
        self.heard.extend(happenings)

    async def on_gap(self, gap: HistoryGap) -> None:
        self.gaps.append(gap)
        self.heard.append(gap)

    async def on_state(self, state: bytes) -> None:
        self.states.append(state)
        self.heard.append(state)

    def on_lost(self, error: ClientError) -> None:
        self.lost.append(error)


async def until(fact: Callable[[], object], *, within_s: float = 30.0) -> None:
    """Wait for a fact, with a deadline. In virtual time it costs nothing."""
    async with asyncio.timeout(within_s):
        while not fact():  # noqa: ASYNC110  the fact has no bell
            await asyncio.sleep(0.01)
