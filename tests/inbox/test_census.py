"""The census: every chat that updates show is known, whence it came and whether it is still there; through failures too."""

import asyncio
from typing import Any

import msgspec
import pytest

from peik.contacts.engine import ContactCollector, _again, _first
from peik.contacts.model import Sighting, read_sighting
from peik.core.arrival import Arrival
from peik.core.documents import Contact, ContactFilter
from peik.core.events import Surprise
from peik.errors import StoreUnavailable
from tests.inbox.handing import written
from tests.outbox.story import BOT, TOKEN, Stage, play

POLLED = {"inbound": "polling"}


class Counted:
    """A store of contacts that obeys its port, and says no a few times."""

    def __init__(self, contacts: Any, refuses: int = 0) -> None:
        self._contacts = contacts
        self.refuses = refuses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._contacts, name)

    async def save_contacts(self, *arguments: Any, **more: Any) -> None:
        if self.refuses:
            self.refuses -= 1
            raise StoreUnavailable(code="store_full", detail="The disk is full.")
        await self._contacts.save_contacts(*arguments, **more)


async def counted(stage: Stage, *, refuses: int = 0, witness: Any = None) -> ContactCollector:
    runtime = stage.peik
    own = runtime.notifications.contacts
    if own is not None:
        own.stop()
    return ContactCollector(
        store=runtime.store.inbox,
        contacts=Counted(runtime.store.contacts, refuses),
        events=runtime.events,
        served=lambda: [BOT],
        witnesses=[] if witness is None else [witness],
    )


async def run(stage: Stage, census: ContactCollector) -> None:
    """Until it has seen all that is here now."""
    async with asyncio.TaskGroup() as group:
        census.start(group)
        census.look()
        state = await stage.peik.store.inbox.inbox(BOT)
        assert state is not None
        async with asyncio.timeout(3600):
            while await stage.peik.store.contacts.contacts_place(BOT) < state.last_number:  # noqa: ASYNC110  virtual time
                await asyncio.sleep(0.1)
        census.stop()


async def known(stage: Stage, chat_id: int) -> Contact:
    found = await stage.peik.store.contacts.contact(BOT, chat_id)
    assert found is not None
    return found


async def arrived(stage: Stage, count: int) -> None:
    async with asyncio.timeout(3600):
        while len(await stage.peik.store.inbox.arrivals_from(BOT, 0, limit=1000)) < count:  # noqa: ASYNC110  the same
            await asyncio.sleep(0.1)


def test_chats_are_known_by_what_they_show() -> None:
    async def story(stage: Stage) -> None:
        telegram = stage.telegram
        telegram.user(5, "Parisa", "fa", "parisa")
        group = telegram.chat("supergroup", "Shift", bots=[BOT])
        telegram.write(TOKEN, 5, "/start spring-sale")
        telegram.write(TOKEN, 5, "/start autumn-sale")
        telegram.write(TOKEN, 5, "hello all", chat=group)
        telegram.user(6, "Reza", "en")
        telegram.write(TOKEN, 6, "/start")
        telegram.block(TOKEN, 6)
        await arrived(stage, 5)
        await run(stage, await counted(stage))
        parisa = await known(stage, 5)
        assert (parisa.type, parisa.name, parisa.username) == ("private", "Parisa", "parisa")
        assert (parisa.language, parisa.campaign, parisa.is_gone) == ("fa", "spring-sale", False)
        assert (await known(stage, group.id)).name == "Shift"
        assert (await known(stage, 6)).is_gone
        telegram.unblock(TOKEN, 6)
        telegram.write(TOKEN, 6, "back")
        await arrived(stage, 7)
        await run(stage, await counted(stage))
        reza = await known(stage, 6)
        assert (reza.is_gone, reza.campaign) == (False, None)
        assert reza.last_seen_ms >= reza.first_seen_ms
        campaigns = await stage.peik.store.contacts.count_campaigns(BOT, since_ms=0)
        assert campaigns["spring-sale"] == 1
        assert await stage.peik.store.contacts.count_contacts(BOT, ContactFilter(types=frozenset({"private"}))) == 2

    play(story, **POLLED)


@pytest.mark.parametrize("is_one_page", [True, False])
def test_the_first_message_says_by_which_campaign_somebody_came(is_one_page: bool) -> None:
    async def story(stage: Stage) -> None:
        census = await counted(stage)
        await written(stage, "/start", chat=5)
        if not is_one_page:
            await run(stage, census)
        await written(stage, "/start spring-sale", chat=5)
        await run(stage, census)
        assert (await known(stage, 5)).campaign is None

    play(story)


def test_a_store_that_fails_makes_witnesses_see_again_and_loses_nobody() -> None:
    async def story(stage: Stage) -> None:
        for chat in range(1, 41):
            await written(stage, "hello", chat=chat)
        seen: list[int] = []

        async def witness(arrival: Arrival, sighting: Sighting) -> None:
            seen.append(sighting.chat_id)

        await run(stage, await counted(stage, refuses=2, witness=witness))
        assert seen == list(range(1, 41)) * 3
        assert await stage.peik.store.contacts.count_contacts(BOT, ContactFilter()) == 40

    play(story)


def test_a_witness_that_stumbles_holds_up_nobody() -> None:
    async def story(stage: Stage) -> None:
        await written(stage, "one", "two", "three")

        async def witness(arrival: Arrival, sighting: Sighting) -> None:
            if sighting.text == "two":
                raise ValueError("unforeseen")

        await run(stage, await counted(stage, witness=witness))
        assert len([event for event in stage.events_of(Surprise) if "unforeseen" in event.error]) == 1

    play(story)


def test_updates_come_in_while_it_looks() -> None:
    async def story(stage: Stage) -> None:
        census = await counted(stage)
        async with asyncio.TaskGroup() as group:
            census.start(group)
            for round_ in range(20):
                await written(stage, *(f"n{round_}.{at}" for at in range(60)), chat=100 + round_)
            async with asyncio.timeout(3600):
                while await stage.peik.store.contacts.count_contacts(BOT, ContactFilter()) < 20:  # noqa: ASYNC110  virtual
                    await asyncio.sleep(0.1)
            census.stop()

    play(story)


def arrival(kind: str, body: object) -> Arrival:
    payload = msgspec.json.encode({kind: body}).decode()
    return Arrival(
        id=1, bot_id=BOT, number=1, epoch=1, update_id=1, type=kind, lane=5, received_at_ms=1000, payload=payload
    )


def test_what_shows_no_chat_of_the_bots_own_shows_none() -> None:
    person = {"id": 5, "is_bot": False, "first_name": "P"}
    private = {"id": 5, "type": "private", "first_name": "P"}
    for kind, body in (
        ("inline_query", {"id": "1", "from": person, "query": ""}),
        ("callback_query", {"id": "1", "from": person, "inline_message_id": "x"}),
        ("business_message", {"chat": private, "from": person}),
        ("message", {"chat": "broken"}),
        ("message", {"chat": {"id": 5, "type": "sender"}}),
        ("message", {"chat": {"id": 2**63, "type": "private"}}),  # no store could keep it, nor whatever comes after it
        ("poll", {"id": "1"}),
    ):
        assert read_sighting(arrival(kind, body)) is None, kind


def test_codes_are_read_behind_start_or_alone_and_never_from_edits_groups_or_others() -> None:
    person = {"id": 5, "is_bot": False}
    private = {"id": 5, "type": "private"}
    code = "peik-" + "a" * 22

    def seen(text: str, kind: str = "message", chat: dict[str, Any] | None = None) -> Sighting:
        found = read_sighting(arrival(kind, {"chat": chat or private, "from": person, "text": text}))
        assert found is not None
        return found

    assert seen(f"/start {code}").code == seen(f"/start@some_bot {code}").code == seen(f" {code} ").code == code
    assert seen("/start peik-nonsense").code == "peik-nonsense"
    assert seen(f"/start {code}").campaign is None
    assert seen("/start sale").campaign == "sale"
    assert seen("/start sale").code is seen("hello").code is seen(f"see {code}").code is None
    assert seen(f"/start {code}", "edited_message").code is None
    assert seen(f"/start {code}", chat={"id": -5, "type": "group", "title": "G"}).code is None
    moved = read_sighting(
        arrival("message", {"chat": {"id": -5, "type": "group", "title": "G"}, "migrate_to_chat_id": -100})
    )
    assert moved is not None
    assert moved.is_gone


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_group_that_threw_the_bot_out_is_gone_in_whichever_order_it_is_heard(order: tuple[int, int]) -> None:
    """Telegram tells it twice: as a change of the bot's standing, and as a message in the group."""
    group = {"id": -5, "type": "group", "title": "G"}
    admin, bot = {"id": 6, "is_bot": False}, {"id": BOT, "is_bot": True}
    standing = {"chat": group, "from": admin, "new_chat_member": {"status": "kicked"}}
    told = [
        arrival("my_chat_member", standing),
        arrival("message", {"chat": group, "from": admin, "left_chat_member": bot}),
    ]
    contact: Contact | None = None
    for at in order:
        seen = read_sighting(told[at])
        assert seen is not None
        contact = _first(BOT, seen) if contact is None else _again(contact, seen)
    assert contact is not None
    assert contact.is_gone
    somebody = read_sighting(arrival("message", {"chat": group, "from": admin, "left_chat_member": admin}))
    assert somebody is not None
    assert not somebody.is_gone
