"""A person is forgotten in every place of a store, and everything else stays as it was."""

import msgspec
import pytest

from peik.broadcasts.repository import BroadcastRepository
from peik.core.arrival import FORGOTTEN_LANE
from peik.core.documents import Filing
from peik.core.letter import State
from peik.erasure.model import ErasedPerson, Found
from peik.errors import StoreUnavailable
from peik.inbox.store import ArrivalFilter, InboxStore
from peik.outbox.store import Tally
from tests.storage import inbox_acts
from tests.storage.acts import NOW, SENT, accept, conclude, draft, find, mark
from tests.storage.forgetting_acts import GROUP, MARKER, NAME, PERSON, forgetter, live_through, message, remains
from tests.storage.moving.filling import fill, records
from tests.storage.places import BOT, OTHER_BOT, Place

KEPT = (
    "letters",
    "idempotency",
    "message_log",
    "hooks",
    "chats",
    "jobs",
    "job_days",
    "contacts",
    "deliveries",
    "arrivals",
)


async def test_nothing_is_left_of_them_and_all_else_is(place: Place) -> None:
    async with place.open() as store:
        await fill(store)
    before = await records(place)
    async with place.open() as store:
        await live_through(store)
        assert await remains(place), "something of them was there"
        whole = forgetter(place, store)
        person = await whole.person(user_id=PERSON)
        assert person.names == {NAME}
        looked = await whole.look(person)
        done = await whole.forget(person, who="a test")
        assert done.is_over
        assert {name: gone.removed + gone.blanked for name, gone in done.found.items()} == {
            name: gone.removed + gone.blanked for name, gone in looked.found.items()
        }
        again = await whole.forget(await whole.person(user_id=PERSON), who="a test")
        assert again.count == 0
        assert again.mark == done.mark
    assert await remains(place) == []
    after = await records(place)
    for kind in KEPT:
        shown = [msgspec.json.encode(one) for one in after[kind]]
        assert [one for one in map(msgspec.json.encode, before[kind]) if one not in shown] == [], kind
    assert len(after["letters"]) == len(before["letters"])


async def test_what_is_in_flight_goes_when_it_has_ended(place: Place) -> None:
    async with place.open() as store:
        (flying,) = await accept(store, draft(PERSON, text=MARKER))
        (other,) = await accept(store, draft(GROUP, text=f"ask {PERSON}"))  # somebody else waits for it
        await mark(store, letter := await find(store, flying))
        whole = forgetter(place, store)
        done = await whole.forget(await whole.person(user_id=PERSON), who="a test")
        assert not done.is_over
        assert done.found["letters"].left == 2
        assert (await store.letter(flying)).state is State.ACTIVE
        await conclude(store, letter, SENT)
        await store.cancel(other, at_ms=NOW)
        assert await whole.go_on(), "it is not time yet"
        place.clock.pass_ms(60_000)
        assert not await whole.go_on()
        assert await store.letters([flying, other]) == []
        assert (await store.tallies(at_ms=NOW))[BOT] == Tally()
    assert await remains(place) == []


async def test_an_act_that_was_cut_off_is_ended_by_the_next_start(place: Place) -> None:
    async with place.open() as store:
        await inbox_acts.open_inbox(store.inbox)
        await live_through(store)
        whole = forgetter(place, store)
        person = await whole.person(user_id=PERSON)
        whole._of_all = {**whole._of_all, "a disk": Failing()}
        with pytest.raises(StoreUnavailable):
            await whole.forget(person, who="a test")
        await place.crash(store)
    assert await remains(place)
    async with place.open() as store:
        assert not await forgetter(place, store).go_on()
    assert await remains(place) == []


class Failing:
    """A part whose store is gone."""

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        raise StoreUnavailable(code="gone", detail="It is gone.")


async def test_on_a_running_peik_there_is_a_last_look(place: Place) -> None:
    async with place.open() as store:
        await accept(store, draft(PERSON, text=MARKER))
        whole = forgetter(place, store, is_live=True)
        done = await whole.forget(await whole.person(user_id=PERSON), who="a test")
        assert not done.is_over
        assert done.count == 1
        (late,) = await accept(store, draft(PERSON, text="from somebody's hands"))
        for _ in range(2):  # it finds something, so that it looks once more
            place.clock.pass_ms(600_000)
            await whole.go_on()
        assert await store.letter(late) is None
        assert not await whole.go_on()
    assert await remains(place) == []


async def test_arrivals_keep_their_places_and_are_handed_to_nobody(place: Place) -> None:
    async with place.open() as store:
        inbox = store.inbox
        await inbox_acts.open_inbox(inbox)
        await inbox_acts.take(inbox, message(501, PERSON), message(502, 4321, writer=4321), message(503, GROUP))
        whole = forgetter(place, store)
        await whole.forget(await whole.person(user_id=PERSON), who="a test")
        views = await inbox.find_arrivals(ArrivalFilter(), before=None, limit=9)
        assert [(one.arrival.number, one.deliveries[0].state) for one in views] == [
            (503, State.COMPLETED),
            (502, State.WAITING),
            (501, State.COMPLETED),
        ]
        assert [one.arrival.lane for one in views] == [FORGOTTEN_LANE, 4321, FORGOTTEN_LANE]
        assert msgspec.json.decode(views[0].arrival.payload)["message"]["text"] == ""
        assert await _open(inbox) == [502]
        # Telegram's second copy is none; the person's next message is the first that is known of them.
        again = await inbox_acts.take(inbox, message(501, PERSON), message(503, GROUP), message(504, PERSON))
        assert (again.stored, again.duplicates, again.epoch) == (1, 2, 1)
        assert await _open(inbox) == [502, 504]


async def _open(inbox: InboxStore) -> list[int]:
    return [number for number, state in sorted((await inbox_acts.states(inbox)).items()) if state is State.WAITING]


async def test_who_waits_for_a_broadcast_is_passed_over(place: Place) -> None:
    async with place.open() as store:
        await inbox_acts.open_inbox(store.inbox)
        await live_through(store)
        whole = forgetter(place, store)
        await whole.forget(await whole.person(user_id=PERSON), who="a test")
        book = BroadcastRepository(store.documents)
        lines = dict(await book.lines("b1", first=1, limit=9))
        assert [line.state for line in lines.values()] == ["delivered", "suppressed", "pending"]
        assert [line.chat for line in lines.values()] == [0, 0, 4321]
        assert (await book.get("b1")).counts.suppressed == 1


async def test_one_bot_forgets_and_the_others_do_not(place: Place) -> None:
    async with place.open() as store:
        ours, theirs = await accept(store, draft(PERSON), draft(PERSON, bot_id=OTHER_BOT))
        await store.documents.file([Filing(collection="audit", key="1", body=f'{{"target":"{PERSON}"}}')])
        whole = forgetter(place, store)
        done = await whole.forget(await whole.person(user_id=PERSON, bot_id=BOT), who="a test")
        assert done.count == 1
        assert [one.id for one in await store.letters([ours, theirs])] == [theirs]
        assert str(PERSON) in (await store.documents.document("audit", "1")).body


async def test_a_dry_run_changes_nothing(place: Place) -> None:
    async with place.open() as store:
        await inbox_acts.open_inbox(store.inbox)
        await live_through(store)
    before = await records(place)
    async with place.open() as store:
        whole = forgetter(place, store)
        assert (await whole.look(await whole.person(user_id=PERSON))).count > 20
    after = await records(place)
    kinds = [kind for kind in before if kind not in ("secrets", "sequences")]
    assert [kind for kind in kinds if after[kind] != before[kind]] == []
