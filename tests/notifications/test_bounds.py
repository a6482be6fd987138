"""What is large or cannot be read any more holds up nothing else that waits."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from peik.notifications.model import NOTICES, NotifyRequest, RenderedText, filed
from peik.notifications.queue import FEW
from tests.notifications.test_stores import Outbox, Parts
from tests.storage.places import SqlitePlace


class Counted(Outbox):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def accept(self, parcels: Any) -> list[list[int]]:
        self.sizes.append(len(parcels))
        return await super().accept(parcels)


def play(folder: Path, story: Callable[[Parts, SqlitePlace, Counted], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        place, outbox = SqlitePlace(folder), Counted()
        async with place.open() as store:
            await story(Parts(store, place.clock, outbox), place, outbox)

    asyncio.run(main())


def test_a_night_of_large_notices_goes_out_in_several_commits(tmp_path: Path) -> None:
    async def story(parts: Parts, place: SqlitePlace, outbox: Counted) -> None:
        due_ms = place.clock.now_ms + 3_600_000
        data = {"page": "x" * 60_000}
        for first in range(1, 301, 100):
            await parts.service.notify(
                [
                    NotifyRequest(chat_id=chat, type="t", message="m", data=data, send_at_ms=due_ms)
                    for chat in range(first, first + 100)
                ]
            )
        assert not outbox.parcels
        place.clock.pass_ms(3_600_000)
        await parts.releasing.release()
        assert len(outbox.parcels) == 300
        assert max(outbox.sizes) <= FEW
        assert all(view.notice.letter_ids for view in await parts.service.recent(limit=300))

    play(tmp_path, story)


def test_one_that_cannot_be_written_any_more_fails_alone(tmp_path: Path) -> None:
    async def story(parts: Parts, place: SqlitePlace, outbox: Counted) -> None:
        due_ms = place.clock.now_ms + 60_000
        (good,) = await parts.service.notify([NotifyRequest(chat_id=1, type="t", message="m", send_at_ms=due_ms)])
        (other,) = await parts.service.notify([NotifyRequest(chat_id=2, type="t", message="m", send_at_ms=due_ms)])
        broken = msgspec.structs.replace(other, said=RenderedText(title="", message="m", template="{nobody_gave_it}"))
        await parts.documents.file([filed(NOTICES, broken.id, broken)])
        place.clock.pass_ms(60_000)
        await parts.releasing.release()
        assert list(outbox.parcels) == [good.id]
        failed = (await parts.service.notification(broken.id)).notice
        assert (failed.failed_reason or "").startswith("missing_data: ")
        assert await parts.documents.collections("notices-waiting") == []

    play(tmp_path, story)


def test_many_parcels_that_nobody_handed_over_are_handed_over(tmp_path: Path) -> None:
    async def story(parts: Parts, place: SqlitePlace, outbox: Counted) -> None:
        outbox.is_away = True
        requests = [NotifyRequest(chat_id=chat, type="t", message="m") for chat in range(1, 251)]
        made = await parts.service.notify(requests)
        outbox.is_away = False
        place.clock.pass_ms(60_000)
        await parts.releasing.release()
        assert set(outbox.parcels) == {notice.id for notice in made}
        assert await parts.documents.collections("notices-parcels") == []

    play(tmp_path, story)
