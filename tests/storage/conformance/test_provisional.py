"""Ids of messages that are not sent yet, on every store: given once, known to all nodes, kept as long as the log, forgotten with
a person."""

import asyncio

import msgspec
import pytest

from peik.core.arrival import Arrival
from peik.core.documents import Filing
from peik.core.letter import LetterCall
from peik.core.outcome import Delivered
from peik.core.provisional import FIRST_ID, IDS
from peik.erasure.model import ErasedPerson
from peik.erasure.parts import DocumentsPart
from peik.errors import BadInput
from peik.outbox.provisional import LOOK_S, ProvisionalIds
from peik.outbox.store import LetterView
from peik.storage.open import AnyStore as Store
from tests.storage.acts import accept, attempt, draft, find
from tests.storage.places import Place

BOT, ANN = 7, 912345678


def node(store: Store, place: Place) -> ProvisionalIds:
    """As one of several processes has it."""
    return ProvisionalIds(store=store, documents=store.documents, clock=place.clock)


async def view(store: Store, letter_id: int) -> LetterView:
    found = await store.letter(letter_id)
    assert found is not None
    return found


async def sent(store: Store, letter_id: int, *message_ids: int, chat: int = ANN) -> None:
    made = [{"message_id": one, "chat": {"id": chat, "type": "private"}} for one in message_ids]
    result = msgspec.json.encode(made[0] if len(made) == 1 else made)
    await attempt(store, await find(store, letter_id), Delivered(result=result))


def press(message_id: int, *, chat: int = ANN) -> Arrival:
    message = {"message_id": message_id, "chat": {"id": chat, "type": "private"}, "date": 1}
    payload = msgspec.json.encode({"callback_query": {"id": "1", "message": message, "data": "a"}}).decode()
    return Arrival(
        id=1,
        bot_id=BOT,
        number=1,
        epoch=1,
        update_id=1,
        type="callback_query",
        lane=chat,
        received_at_ms=1,
        payload=payload,
    )


async def shown(ids: ProvisionalIds, message_id: int) -> int:
    (told,) = await ids.arrivals(BOT, [press(message_id)])
    number: int = msgspec.json.decode(told.payload)["callback_query"]["message"]["message_id"]
    return number


async def called(ids: ProvisionalIds, method: str, **params: object) -> dict[str, object]:
    call = LetterCall(method=method, params=msgspec.json.encode({"chat_id": ANN, **params}))
    after = await ids.apply(call, BOT, cancel=None)
    assert isinstance(after, LetterCall)
    found: dict[str, object] = msgspec.json.decode(after.params)
    return found


async def test_ids_are_given_once_over_nodes_and_restarts(place: Place) -> None:
    async with place.open() as store:
        one, other = node(store, place), node(store, place)
        letters = await accept(store, *(draft(ANN) for _ in range(6)))
        views = [await view(store, letter) for letter in letters]
        given = await asyncio.gather(*((one, other)[n % 2].give(each, 1 + n % 3) for n, each in enumerate(views)))
        firsts = [first for _, first in given]
        assert None not in firsts
        taken = [(first or 0) + item for n, first in enumerate(firsts) for item in range(1 + n % 3)]
        assert len(set(taken)) == len(taken) == 12
        assert all(FIRST_ID <= each < FIRST_ID + IDS for each in taken)
        again = [(await node(store, place).give(each, 1))[1] for each in views]
        assert again == firsts, "the same letter is always told the same"


async def test_what_one_node_gave_another_understands_and_tells(place: Place) -> None:
    async with place.open() as store:
        one, other = node(store, place), node(store, place)
        (album,) = await accept(store, draft(ANN))
        assert await shown(other, 41) == 41
        _, first = await one.give(await view(store, album), 2)
        assert first is not None
        waits = await called(other, "editMessageCaption", message_id=first + 1)
        assert waits["message_id"] == {"letter": str(album), "item": 1, "id": first + 1}
        await sent(store, album, 40, 41)
        place.clock.pass_ms(int(1000 * (LOOK_S + 1)))
        assert [await shown(ids, 41) for ids in (one, other)] == [first + 1] * 2
        assert await shown(other, 42) == 42
        assert (await called(other, "editMessageCaption", message_id=first + 1))["message_id"] == 41
        many = await called(one, "deleteMessages", message_ids=[first + 1, 7, first])
        assert many["message_ids"] == [7, 40, 41], "in the order that Telegram wants"
        assert await other.ids_of(await view(store, album)) == [first, first + 1]


async def test_the_mapping_goes_when_the_log_does_and_ids_go_on(place: Place) -> None:
    async with place.open() as store:
        ids = node(store, place)
        old, young = await accept(store, draft(ANN), draft(ANN))
        _, first = await ids.give(await view(store, old), 1)
        await sent(store, old, 40)
        place.clock.pass_ms(1000 * (3600))
        _, second = await ids.give(await view(store, young), 1)
        assert first is not None
        assert second == first + 1
        await ids.tidy(before_ms=place.clock.wall_ms() - 1000)
        assert await ids.told(BOT, first) is None
        assert await ids.told(BOT, second) is not None
        assert (await called(ids, "pinChatMessage", message_id=first))["message_id"] == first, (
            "nobody knows it: as it is"
        )
        assert await shown(ids, 40) == 40


async def test_nothing_of_a_person_who_is_forgotten_is_left_in_it(place: Place) -> None:
    async with place.open() as store:
        ids, documents = node(store, place), store.documents
        here, waiting, others = await accept(store, draft(ANN), draft(ANN), draft(5))
        for letter_id in (here, waiting, others):
            await ids.give(await view(store, letter_id), 1)
        await sent(store, here, 40)
        assert await shown(ids, 40) >= FIRST_ID
        await DocumentsPart(documents, owned=[]).forget(ErasedPerson(user_id=ANN), is_dry=False)
        left = [
            (one.key, one.body)
            for name in await documents.collections("provisional:")
            for one in await documents.documents(name, limit=99)
        ]
        assert not [one for one in left if str(ANN) in "".join(one)], left
        _, known = await ids.give(await view(store, others), 1)
        assert known is not None
        assert await ids.told(BOT, known) is not None


async def test_a_call_that_names_what_died_is_refused_and_one_of_many_is_left_out(place: Place) -> None:
    async with place.open() as store:
        ids = node(store, place)
        dead, well = await accept(store, draft(ANN), draft(ANN))
        firsts = [(await ids.give(await view(store, one), 1))[1] for one in (dead, well)]
        await store.cancel(dead, at_ms=1)
        await sent(store, well, 41)
        with pytest.raises(BadInput, match="message to edit not found"):
            await called(ids, "editMessageText", message_id=firsts[0], text="a")
        assert (await called(ids, "deleteMessages", message_ids=firsts))["message_ids"] == [41]
        with pytest.raises(BadInput, match="message to copy not found"):
            await called(ids, "copyMessages", from_chat_id=ANN, message_ids=firsts[:1])


async def test_after_the_last_id_they_begin_anew_and_mean_the_newest(place: Place) -> None:
    async with place.open() as store:
        ids = node(store, place)
        old, new, album = await accept(store, draft(ANN), draft(ANN), draft(ANN))
        _, first = await ids.give(await view(store, old), 1)
        assert first == FIRST_ID
        await store.documents.file([Filing(collection="provisional:next", key=str(BOT), body=str(IDS - 2))])
        ids = node(store, place)
        assert (await ids.give(await view(store, album), 10))[1] == FIRST_ID, "ten in a row have no room at the end"
        told = await ids.told(BOT, FIRST_ID)
        assert told is not None
        assert told.block.letter == album
        assert (await ids.give(await view(store, new), 1))[1] == FIRST_ID + 10
