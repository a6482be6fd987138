"""The same on every store: notices are filed, packed, let go and listed; two at once hand over each of them once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from peik.core.arrival import Arrival
from peik.core.sighting import Sighting
from peik.errors import StoreUnavailable
from peik.events import Events
from peik.notifications.checking import Checking
from peik.notifications.cleaning import Cleaning
from peik.notifications.desk import NotificationsDesk
from peik.notifications.handing import Handing
from peik.notifications.links import Links
from peik.notifications.packing import Packing
from peik.notifications.redeeming import Redeeming
from peik.notifications.releasing import Releasing
from peik.notifications.templates import Templates
from peik.notifications.texts import load_outreach
from peik.notifications.values import NotifyRequest, Parcel
from peik.ports import LetterView
from tests.store.all_places import PLACES
from tests.store.places import BOT, ManualClock


class Outbox:
    """Letters by their keys, as the outbox keeps them; now and then it is away."""

    def __init__(self) -> None:
        self.parcels: dict[str, list[int]] = {}
        self.answers: dict[str, str] = {}
        self.is_away = False

    async def accept(self, parcels: Sequence[Parcel]) -> list[list[int]]:
        if self.is_away:
            raise StoreUnavailable(code="away", detail="The outbox is away.")
        await asyncio.sleep(0)
        for parcel in parcels:
            self.parcels.setdefault(parcel.id, [len(self.parcels) + 1])
        return [self.parcels[parcel.id] for parcel in parcels]

    async def answer(self, bot_id: int, chat_id: int, text: str, *, idempotency_key: str) -> None:
        self.answers.setdefault(idempotency_key, text)

    async def letters(self, letter_ids: Sequence[int]) -> list[LetterView]:
        return []


class OneBot:
    def receiving(self, bot_id: int | None) -> int:
        return BOT

    named = receiving

    async def username(self, bot_id: int) -> str | None:
        return "some_bot"


class Parts:
    def __init__(self, store: Any, clock: ManualClock, outbox: Outbox) -> None:
        self.papers = papers = store.papers
        events = Events()
        templates, packing, handing = Templates(papers), Packing(papers, rate_max=5), Handing(papers, outbox)
        self.links = Links(papers=papers, bots=OneBot(), clock=clock, events=events)
        self.releasing = Releasing(
            papers=papers,
            packing=packing,
            handing=handing,
            cleaning=Cleaning(papers, clock=clock, keep_ms=86_400_000),
            clock=clock,
            events=events,
        )
        self.desk = NotificationsDesk(
            papers=papers,
            letters=outbox,
            links=self.links,
            templates=templates,
            checking=Checking(papers=papers, bots=OneBot(), templates=templates, quiet=None),
            packing=packing,
            handing=handing,
            releasing=self.releasing,
            clock=clock,
            events=events,
        )
        self.redeeming = Redeeming(
            papers=papers, letters=outbox, templates=templates, texts=load_outreach(), events=events
        )


def shown(number: int, chat: int, code: str, at_ms: int) -> tuple[Arrival, Sighting]:
    arrival = Arrival(
        id=number, bot_id=BOT, number=number, epoch=1, update_id=number, type="message", lane=chat,
        received_at_ms=at_ms, payload="{}",
    )  # fmt: skip
    return arrival, Sighting(chat_id=chat, type="private", language="fa", at_ms=at_ms, start=code)


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
def test_links_and_notices_on_every_store(kind: Any, tmp_path: Path) -> None:
    async def main() -> None:
        place = kind(tmp_path)
        outbox = Outbox()
        async with place.open() as store:
            one, two = (Parts(store, place.clock, outbox) for _ in range(2))
            code = (await one.links.new_code("lena|1")).code
            chats = [shown(number, number, code, place.clock.now_ms) for number in range(1, 7)]
            await asyncio.gather(*(part.redeeming.see(*seen) for seen in chats for part in (one, two)))
            user = await one.links.user("lena|1")
            assert user is not None
            assert user.link is not None
            assert list(outbox.answers.values()).count(load_outreach()["fa"]["linked"]) == 1

            asked = [
                NotifyRequest(user_id="lena|1", type="t", message=f"n{at}", idempotency_key=f"k{at}")
                for at in range(12)
            ]
            both = await asyncio.gather(*(part.desk.notify([wish]) for wish in asked for part in (one, two)))
            ids = {notices[0].id for notices in both}
            assert len(ids) == 12
            assert len(outbox.parcels) == 5  # the rate of an hour, whoever asked
            outbox.is_away = True
            place.clock.pass_ms(3_700_000)
            with pytest.raises(StoreUnavailable):
                await one.releasing.release()  # packed, and not handed over
            outbox.is_away = False
            place.clock.pass_ms(60_000)
            await asyncio.gather(one.releasing.release(), two.releasing.release())
            views = await one.desk.recent(user_id="lena|1", limit=50)
            assert {view.notice.id for view in views} == ids
            assert all(view.notice.letter_ids for view in views)
            assert len({view.notice.letter_ids for view in views}) == 6  # five alone, seven together
            place.clock.pass_ms(3 * 86_400_000)
            await Cleaning(store.papers, clock=place.clock, keep_ms=86_400_000).look()
            assert await one.desk.recent(limit=5) == []
            assert await store.papers.shelves("notices") == []

    asyncio.run(main())
