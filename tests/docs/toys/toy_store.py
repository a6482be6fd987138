"""In the copy: a whole Peik on the new store."""

import asyncio
from pathlib import Path

import pytest

from peik.backups.wiring import backups_of
from peik.clock import SystemClock
from peik.errors import StartError
from peik.settings.config import load
from peik.storage.toy.store import ToyStore
from tests.dashboard.visiting import house
from tests.outbox.story import call
from tests.storage.all_places import PLACES
from tests.storage.toy_place import ToyPlace


def test_a_letter_is_delivered_from_it(tmp_path: Path) -> None:
    async def story() -> None:
        where = {"store": f"toy:///{tmp_path / 'toy.db'}", "home": str(tmp_path)}
        async with house(tmp_path, **where) as home:
            assert isinstance(home.peik.store, ToyStore)
            accepted = await home.peik.outbox.service.accept([call(params={"chat_id": 5, "text": "hello"})])
            view = await home.peik.outbox.service.wait(accepted[0].letter_id, 60)
            assert view.state == "completed"

    asyncio.run(story())


def test_it_is_in_the_conformance_suite_and_known_to_backups(tmp_path: Path) -> None:
    assert ToyPlace in PLACES
    config = load(environment={"PEIK_STORE": f"toy:///{tmp_path}/toy.db"}, folder=tmp_path)
    with pytest.raises(StartError, match="toy store"):
        backups_of(config, clock=SystemClock())
