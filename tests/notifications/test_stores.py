"""The same on every store: notices are filed, packed, let go and listed; two at once hand over each of them once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.contacts.model import Sighting
from peik.core.arrival import Arrival
from peik.core.events import Events
from peik.errors import BadInput, Forbidden, NotFound, StoreUnavailable
from peik.notifications.links import Links, Redeeming
from peik.notifications.model import NotifyRequest, Parcel
from peik.notifications.queue import NotificationDispatch, Packing, Releasing
from peik.notifications.service import Checking, NotificationService
from peik.notifications.templates import Templates, load_outreach
from peik.notifications.upkeep import Cleaning
from peik.outbox.store import LetterView
from tests.storage.all_places import PLACES
from tests.storage.places import BOT, OTHER_BOT, ManualClock


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


class SomeBots:
    """BOT, and as many others as somebody names."""

    is_alone = True

    def are_several(self) -> bool:
        return not self.is_alone

    def receiving(self, bot_id: int | None) -> int:
        return bot_id or BOT

    named = receiving

    async def username(self, bot_id: int) -> str | None:
        return "some_bot"


class Parts:
    def __init__(self, store: Any, clock: ManualClock, outbox: Outbox) -> None:
        self.documents = documents = store.documents
        events, self.bots = Events(), SomeBots()
        templates, packing, handing = (
            Templates(documents),
            Packing(documents, rate_max=5),
            NotificationDispatch(documents, outbox),
        )
        self.links = Links(documents=documents, bots=self.bots, clock=clock, events=events)
        self.releasing = Releasing(
            documents=documents,
            packing=packing,
            handing=handing,
            cleaning=Cleaning(documents, clock=clock, keep_ms=86_400_000),
            clock=clock,
            events=events,
        )
        self.service = NotificationService(
            documents=documents,
            letters=outbox,
            links=self.links,
            templates=templates,
            checking=Checking(documents=documents, bots=self.bots, templates=templates, quiet=None),
            packing=packing,
            handing=handing,
            releasing=self.releasing,
            clock=clock,
            events=events,
        )
        self.redeeming = Redeeming(
            documents=documents, letters=outbox, templates=templates, texts=load_outreach(), events=events
        )


def shown(number: int, chat: int, code: str, at_ms: int, bot_id: int = BOT) -> tuple[Arrival, Sighting]:
    arrival = Arrival(
        id=number, bot_id=bot_id, number=number, epoch=1, update_id=number, type="message", lane=chat,
        received_at_ms=at_ms, payload="{}",
    )  # fmt: skip
    return arrival, Sighting(chat_id=chat, type="private", language="fa", at_ms=at_ms, start=code)


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("was", ["unlinked", "never known"])
def test_a_key_of_one_bot_cannot_claim_a_name_of_anothers_users(kind: Any, was: str, tmp_path: Path) -> None:
    """The names of a company are numbers often enough: whoever may link users of his own bot can guess them."""

    async def main() -> None:
        place = kind(tmp_path)
        outbox, thief, own = Outbox(), 666, frozenset({OTHER_BOT})
        async with place.open() as store:
            part = Parts(store, place.clock, outbox)
            part.bots.is_alone = False
            ask = NotifyRequest(user_id="lena", type="t", message="your code is 1234")
            if was == "unlinked":
                await part.links.new_code("lena", bot_id=BOT)
                await part.links.unlink("lena")
                with pytest.raises(Forbidden):
                    await part.links.new_code("lena", bot_id=OTHER_BOT, bot_ids=own)
            else:
                code = (await part.links.new_code("lena", bot_id=OTHER_BOT, bot_ids=own)).code
                await part.redeeming.see(*shown(1, thief, code, place.clock.now_ms, OTHER_BOT))
                with pytest.raises(BadInput, match="bot_id"):  # for a key of all bots it is nobody that it knows
                    await part.service.notify([ask])
                mine = msgspec.structs.replace(ask, bot_ids=own)
                assert await part.service.notify([mine]), "to his own users he may write"
                with pytest.raises(Forbidden):
                    await part.links.new_code("lena", bot_id=BOT, bot_ids=frozenset({BOT}))

            made = await part.links.new_code("lena", bot_id=BOT)
            with pytest.raises(NotFound, match="linked no chat"):
                await part.service.notify([ask])
            await part.redeeming.see(*shown(2, 5, made.code, place.clock.now_ms))
            (notice,) = await part.service.notify([ask])
            assert notice.request.bot_id == BOT
            everybody = await part.links.users(after=None, limit=100)
            assert await part.links.seen(everybody, own) == []
            with pytest.raises(Forbidden):
                await part.links.new_code("lena", bot_id=OTHER_BOT, bot_ids=own)

    asyncio.run(main())


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
            both = await asyncio.gather(*(part.service.notify([wish]) for wish in asked for part in (one, two)))
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
            views = await one.service.recent(user_id="lena|1", limit=50)
            assert {view.notice.id for view in views} == ids
            assert all(view.notice.letter_ids for view in views)
            assert len({view.notice.letter_ids for view in views}) == 6  # five alone, seven together
            place.clock.pass_ms(3 * 86_400_000)
            await Cleaning(store.documents, clock=place.clock, keep_ms=86_400_000).look()
            assert await one.service.recent(limit=5) == []
            assert await store.documents.collections("notices") == []

    asyncio.run(main())
