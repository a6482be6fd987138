"""Alerts on every store that there is: told once by two nodes, known after a restart, and gone when they are over."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from peik.alerts.matters import COLLECTION, AlertDocuments
from peik.alerts.service import AlertService
from peik.clock import SystemClock
from peik.core import events
from peik.outbox.store import Store
from tests.alerts.alerting import Ear
from tests.storage.all_places import PLACES
from tests.storage.places import Place


@pytest.fixture(params=PLACES, ids=lambda kind: kind.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made: Place = request.param(tmp_path)
    return made


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await is_so():  # noqa: ASYNC110  it is in a store
            await asyncio.sleep(0.01)


def test_two_nodes_tell_it_once_and_the_next_one_ends_it(place: Place) -> None:
    async def nobody(chat: str, text: str, key: str) -> None:
        raise AssertionError("there is no chat")

    def node(store: Store, name: str) -> tuple[AlertService, Ear, asyncio.Task[None]]:
        ear = Ear()
        documents = AlertDocuments(store.documents, node=name)  # type: ignore[attr-defined]
        alerts = AlertService(
            chats=(),
            clock=SystemClock(),
            send=nobody,
            more_ways=[ear],
            documents=documents,
            machine="here",
            off=("route",),
        )
        return alerts, ear, asyncio.create_task(alerts.run())

    async def main() -> None:
        async with place.open() as store:  # type: ignore[attr-defined]
            (one, ear, first), (other, another, second) = node(store, "a"), node(store, "b")
            for alerts in (one, other):
                alerts([events.BotPaused(bot_id=5, reason="Unauthorized")])

            async def is_told() -> bool:
                """And both know it: whoever came second has read the document of the first."""
                (told,) = (await one.last()) or (None,)
                return told is not None and all(
                    matter.told and matter.owed is None and matter.version
                    for alerts in (one, other)
                    for matter in alerts.matters.known.values()
                )

            await until(is_told)
            assert ear.kinds + another.kinds == ["began"]
            for task in (first, second):
                task.cancel()
            await asyncio.wait([first, second])

            later, heir, third = node(store, "c")

            async def is_known() -> bool:
                return [alert.name for alert in later.ongoing()] == ["bot-paused"]

            await until(is_known)
            later([events.BotResumed(bot_id=5)])

            async def is_gone() -> bool:
                return not await store.documents.count_documents(COLLECTION)

            await until(is_gone)
            assert heir.kinds == ["over"]
            assert [line.kind for line in await later.last()] == ["over", "began"]
            third.cancel()
            await asyncio.wait([third])

    asyncio.run(main())
