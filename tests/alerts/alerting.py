"""Alerts on a real store in virtual time, with somebody who hears them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from peik.alerts.matters import AlertDocuments
from peik.alerts.service import AlertService
from peik.alerts.ways import AlertText
from peik.core.documents import DocumentStore
from peik.errors import StoreUnavailable
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.store import SqliteStore
from peik.testing.virtual import VirtualClock, run_virtual


class Ear:
    """A way by which everything arrives; or nothing, while `is_blocked`."""

    name = "ear"

    def __init__(self) -> None:
        self.said: list[AlertText] = []
        self.is_blocked = False

    async def tell(self, waiting: Sequence[AlertText]) -> int:
        if self.is_blocked:
            await asyncio.get_running_loop().create_future()
        self.said.append(waiting[0])
        return 1

    async def test(self, text: str, key: str) -> str | None:
        return "It is blocked." if self.is_blocked else None

    @property
    def kinds(self) -> list[str]:
        return [str(one.kind) for one in self.said]


class House:
    """One store; nodes come and go."""

    def __init__(self, clock: VirtualClock, documents: DocumentStore) -> None:
        self.clock = clock
        self.documents = documents
        self.letters: dict[str, str] = {}  # by their key: an outbox takes each once
        self.is_down = False

    async def send(self, chat: str, text: str, key: str) -> None:
        if self.is_down:
            raise StoreUnavailable(code="store_failed", detail="It is down.")
        self.letters.setdefault(key, text)

    @asynccontextmanager
    async def node(
        self, name: str = "a", *, machine: str = "here", ear: Ear | None = None, **more: Any
    ) -> AsyncIterator[tuple[AlertService, Ear]]:
        ear = ear or Ear()
        alerts = AlertService(
            chats=("1",),
            clock=self.clock,
            send=self.send,
            more_ways=[ear],
            documents=AlertDocuments(self.documents, node=name),
            machine=machine,
            **more,
        )
        running = asyncio.create_task(alerts.run())
        try:
            yield alerts, ear
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def play_alerts(story: Callable[[House], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        store = SqliteStore(folder / "peik.db", clock=clock, is_owner=True, executor=lambda name: InlineExecutor())
        await store.open()
        await story(House(clock, store.documents))
        await store.close()

    run_virtual(main)
