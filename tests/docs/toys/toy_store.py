"""In the copy: a whole Peik on the new store."""

import asyncio
from pathlib import Path

from peik.storage.toy.store import ToyStore
from tests.dashboard.visiting import house
from tests.outbox.story import call


def test_a_letter_is_delivered_from_it(tmp_path: Path) -> None:
    async def story() -> None:
        where = {"store": f"toy:///{tmp_path / 'toy.db'}", "home": str(tmp_path)}
        async with house(tmp_path, **where) as home:
            assert isinstance(home.peik.store, ToyStore)
            accepted = await home.peik.desk.accept([call(params={"chat_id": 5, "text": "hello"})])
            view = await home.peik.desk.wait(accepted[0].letter_id, 60)
            assert view.state == "completed"

    asyncio.run(story())
