"""What one node writes the others hear, each kind by its name; and nobody hears of what it did itself."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.admin.model import Key
from peik.core.letter import OnUncertain
from peik.core.nodes import News
from peik.core.token import Token
from peik.inbox.store import ArrivalFilter
from peik.outbox.store import BotRecord
from tests.storage.acts import BROKE_OFF, HOUR, LATER, NEVER, NOW, SENT, accept, attempt, draft, edit, find, mark
from tests.storage.inbox_acts import FIRST, bury, messages, open_inbox, take
from tests.storage.places import BOT, OTHER_BOT
from tests.storage.shared_places import SHARED, SharedPlace

FENCE_BOT = 99
THIRDS_FENCE = 98

Act = Callable[[Any], Awaitable[object]]


@pytest.fixture(params=SHARED, ids=lambda place: place.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SharedPlace:
    return request.param(tmp_path)


class Heard:
    """All that a node was told, as one."""

    def __init__(self) -> None:
        self.is_all = self.is_consumers = self.is_records = self.is_leases = self.is_jobs = False
        self.accepted: list[tuple[int, int, int]] = []
        self.lanes: set[int] = set()
        self.ended: dict[int, list[int]] = {}
        self.chats: set[int] = set()
        self.arrivals: set[int] = set()
        self.due_at_ms: int | None = None

    def add(self, news: News) -> None:
        for flag in ("is_all", "is_consumers", "is_records", "is_leases", "is_jobs"):
            setattr(self, flag, getattr(self, flag) or getattr(news, flag))
        self.accepted += news.accepted
        self.lanes |= news.lanes
        for bot_id, letter_ids in news.ended.items():
            self.ended.setdefault(bot_id, []).extend(letter_ids)
        self.chats |= news.chats
        self.arrivals |= news.arrivals
        self.due_at_ms = news.due_at_ms if self.due_at_ms is None else self.due_at_ms

    def names(self, bot_id: int, letter_id: int) -> bool:
        return any(bot == bot_id and first <= letter_id <= last for bot, first, last in self.accepted)

    def what(self) -> dict[str, object]:
        """What was said."""
        said = {**vars(self), "ended": {bot: sorted(ids) for bot, ids in self.ended.items()}}
        return {name: value for name, value in said.items() if value not in (False, None) and value}


async def hear(listener: Any, teller: Any, fence: int = FENCE_BOT) -> Heard:
    """All that the listener hears up to what the teller does now. Each of several listeners has a fence of its own, since all
    of them hear of each."""
    await teller.hold(fence, 1, NOW)
    heard = Heard()
    while fence not in heard.chats:
        heard.add(await listener.nodes.news())
    heard.chats.remove(fence)
    return heard


async def hear_of(place: SharedPlace, act: Act, prepare: Act | None = None) -> tuple[dict[str, object], Any]:
    """What another node hears of an act, and what the preparation was."""
    async with place.open() as one, place.open(is_owner=False) as other:
        await one.save_bot(BotRecord(bot_id=FENCE_BOT, token=Token("99:secret")))
        prepared = None if prepare is None else await prepare(one)
        await hear(other, one)
        await act(one) if prepare is None else await act((one, prepared))
        return (await hear(other, one)).what(), prepared


# ---- letters ----


async def test_accepted_letters_are_told_by_their_ids(place: SharedPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        await one.save_bot(BotRecord(bot_id=FENCE_BOT, token=Token("99:secret")))
        await hear(one, other)
        ids = [letter_id for _ in range(3) for letter_id in await accept(other, draft(1), draft(2))]
        (elsewhere,) = await accept(other, draft(1, bot_id=OTHER_BOT))
        heard = await hear(one, other)
        assert set(heard.what()) == {"accepted"}
        assert all(heard.names(BOT, letter_id) for letter_id in ids)
        assert heard.names(OTHER_BOT, elsewhere)
        found = [
            letter.id
            for bot_id, first, last in heard.accepted
            if bot_id == BOT
            for letter in await one.nodes.new_letters([(bot_id, first, last)])
        ]
        assert sorted(found) == ids


@pytest.mark.parametrize(
    ("terms", "due_at_ms"),
    [
        ({"send_at_ms": NOW + HOUR}, NOW + HOUR),
        ({"expires_at_ms": NOW + 5}, NOW + 5),
        ({"send_at_ms": NOW + HOUR, "expires_at_ms": NOW + 2 * HOUR}, NOW + HOUR),
    ],
)
async def test_the_first_time_that_matters_is_told(
    place: SharedPlace, terms: Mapping[str, int], due_at_ms: int
) -> None:
    heard, _ = await hear_of(place, lambda one: accept(one, draft(1, **terms)))
    assert heard["due_at_ms"] == due_at_ms


async def test_letters_of_a_bot_are_told_to_who_holds_it_and_to_nobody_by_who_does(place: SharedPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other, place.open(is_owner=False) as third:
        await one.save_bot(BotRecord(bot_id=FENCE_BOT, token=Token("99:secret")))
        await one.save_bot(BotRecord(bot_id=THIRDS_FENCE, token=Token("98:secret")))
        await one.nodes.release([OTHER_BOT])
        await third.nodes.beat()  # and takes what is free
        await hear(one, other)
        await hear(third, other, THIRDS_FENCE)
        ours, theirs = (await one.nodes.beat()).leases.keys(), (await third.nodes.beat()).leases.keys()
        assert BOT in ours
        for bot_id in (BOT, OTHER_BOT):
            await accept(other, draft(1, bot_id=bot_id))
        assert {bot_id for bot_id, _, _ in (await hear(one, other)).accepted} == {BOT, OTHER_BOT} & ours
        assert {bot_id for bot_id, _, _ in (await hear(third, other, THIRDS_FENCE)).accepted} == {
            BOT,
            OTHER_BOT,
        } & theirs
        for bot_id in (BOT, OTHER_BOT):
            await accept(one, draft(1, bot_id=bot_id))
        assert {bot_id for bot_id, _, _ in (await hear(other, one)).accepted} == {BOT, OTHER_BOT} - ours


async def _dead(one: Any) -> int:
    (letter_id,) = await accept(one, draft(1, on_uncertain=OnUncertain.HOLD))
    await attempt(one, await find(one, letter_id), BROKE_OFF)
    return letter_id


async def _waiting(one: Any) -> int:
    return (await accept(one, draft(1, expires_at_ms=NOW + 5)))[0]


async def _scheduled(one: Any) -> int:
    return (await accept(one, draft(1, send_at_ms=NOW + 5)))[0]


async def _edit(one: Any) -> int:
    return (await accept(one, edit()))[0]


LANES = {"lanes": {BOT}}


def _ended(letter_id: int) -> dict[str, object]:
    return {"ended": {BOT: [letter_id]}}


@pytest.mark.parametrize(
    ("prepare", "act", "lanes", "ends"),
    [
        (_waiting, lambda one, letter_id: one.cancel(letter_id, at_ms=NOW), True, True),
        (_waiting, lambda one, letter_id: one.expire(at_ms=NOW + 5, limit=9), True, True),
        (_scheduled, lambda one, letter_id: one.join_due(at_ms=NOW + 5, limit=9), True, False),
        (_dead, lambda one, letter_id: one.retry(letter_id, at_ms=NOW), True, False),
        (_dead, lambda one, letter_id: one.resolve(letter_id, arrived=False, at_ms=NOW), True, False),
        (_dead, lambda one, letter_id: one.resolve(letter_id, arrived=True, at_ms=NOW), False, True),
    ],
    ids=["cancel", "expire", "join", "retry", "not arrived", "arrived"],
)
async def test_what_leaves_and_joins_its_lane_and_what_ends_is_told(
    place: SharedPlace, prepare: Act, act: Callable[[Any, int], Awaitable[object]], lanes: bool, ends: bool
) -> None:
    heard, letter_id = await hear_of(place, lambda both: act(*both), prepare)
    assert heard == (LANES if lanes else {}) | (_ended(letter_id) if ends else {})


async def _newer_edit(one: Any) -> int:
    await _edit(one)
    return (await accept(one, edit()))[0]


async def test_a_merged_edit_is_told_as_gone_from_its_lane(place: SharedPlace) -> None:
    heard, _ = await hear_of(place, lambda both: accept(both[0], edit()), _edit)
    assert set(heard) == {"lanes"}  # the new one is this node's own to send
    assert heard["lanes"] == LANES["lanes"]


async def test_the_end_of_a_merged_edit_is_told_with_that_of_the_newer(place: SharedPlace) -> None:
    async def send(both: tuple[Any, int]) -> None:
        await attempt(both[0], await find(*both), SENT)

    heard, newer = await hear_of(place, send, _newer_edit)
    assert heard == {"ended": {BOT: [newer - 1, newer]}}


async def test_an_edit_that_comes_back_is_told_as_in_its_lane(place: SharedPlace) -> None:
    heard, newer = await hear_of(place, lambda both: both[0].cancel(both[1], at_ms=NOW), _newer_edit)
    assert heard == LANES | _ended(newer)


@pytest.mark.parametrize(("outcome", "ends"), [(SENT, True), (NEVER, True), (LATER, False)])
async def test_a_settlement_is_told_if_it_is_the_letters_end(place: SharedPlace, outcome: Any, ends: bool) -> None:
    async def act(both: tuple[Any, int]) -> None:
        one, letter_id = both
        await attempt(one, await find(one, letter_id), outcome)

    heard, letter_id = await hear_of(place, act, _edit)
    assert heard == (_ended(letter_id) if ends else {})


async def test_a_mark_is_no_news(place: SharedPlace) -> None:
    async def act(both: tuple[Any, int]) -> None:
        one, letter_id = both
        assert await mark(one, await find(one, letter_id)) == [letter_id]

    assert (await hear_of(place, act, _edit))[0] == {}


async def test_those_that_waited_for_an_end_are_told_with_it(place: SharedPlace) -> None:
    async def prepare(one: Any) -> int:
        (letter_id,) = await accept(one, draft(1))
        (dependent,) = await accept(one, draft(2, awaits=letter_id))
        await one.park(await find(one, dependent))
        return letter_id

    async def act(both: tuple[Any, int]) -> None:
        one, letter_id = both
        await attempt(one, await find(one, letter_id), SENT)

    heard, letter_id = await hear_of(place, act, prepare)
    assert heard == LANES | _ended(letter_id)


# ---- chats, arrivals, consumers, records, leases ----


@pytest.mark.parametrize(
    "act",
    [
        lambda one: one.shut_chat(BOT, 5, "blocked", at_ms=NOW),
        lambda one: one.shut_chat(BOT, 5, None, at_ms=NOW),
        lambda one: one.hold(BOT, 5, NOW + HOUR),
        lambda one: one.hold(BOT, None, NOW + HOUR),
        lambda one: one.readdress(BOT, 5, 6),
    ],
    ids=["shut", "open", "hold", "hold all", "move"],
)
async def test_what_becomes_of_chats_is_told(place: SharedPlace, act: Act) -> None:
    heard, _ = await hear_of(place, act)
    assert heard["chats"] == {BOT}
    assert set(heard) <= {"chats", "lanes"}


async def _inbox(one: Any) -> Any:
    """With arrivals, one of them dead."""
    default = await open_inbox(one.inbox)
    await take(one.inbox, *messages(3))
    await bury(one.inbox, default, FIRST)
    return default


@pytest.mark.parametrize(
    "act",
    [
        lambda one, default: take(one.inbox, *messages(1, first=FIRST + 9)),
        lambda one, default: one.inbox.replay(ArrivalFilter(), default.id, after=0, up_to=2**40, limit=9, at_ms=NOW),
        lambda one, default: one.inbox.retry_dead_arrivals(ArrivalFilter(), at_ms=NOW, limit=9),
    ],
    ids=["new", "replay", "retry"],
)
async def test_what_comes_and_what_comes_again_is_told(
    place: SharedPlace, act: Callable[[Any, Any], Awaitable[object]]
) -> None:
    heard, _ = await hear_of(place, lambda both: act(*both), _inbox)
    assert heard == {"arrivals": {BOT}}


async def test_updates_that_were_here_already_and_progress_are_no_news(place: SharedPlace) -> None:
    async def act(both: tuple[Any, Any]) -> None:
        one, default = both
        await take(one.inbox, *messages(3))
        await one.inbox.settle_arrivals(default.id, over=[(FIRST + 1, FIRST + 1)], at_ms=NOW)
        await one.inbox.open_inbox(BOT, server="https://api.telegram.org", at_ms=NOW)
        await one.join_due(at_ms=NOW, limit=9)
        await one.expire(at_ms=NOW, limit=9)

    assert (await hear_of(place, act, _inbox))[0] == {}


async def _shop(one: Any) -> Any:
    await open_inbox(one.inbox)
    await one.inbox.open_outage(BOT, began_at_ms=NOW, ended_at_ms=NOW + 1, last_number=0)
    return await one.inbox.ensure_consumer(BOT, "shop", at_ms=NOW)


@pytest.mark.parametrize(
    "act",
    [
        lambda one, shop: one.inbox.ensure_consumer(BOT, "office", at_ms=NOW),
        lambda one, shop: one.inbox.save_consumer(msgspec.structs.replace(shop, connections_max=5)),
        lambda one, shop: one.inbox.remove_consumer(shop.id),
        lambda one, shop: one.inbox.open_outage(BOT, began_at_ms=NOW, ended_at_ms=NOW + 1, last_number=0),
        lambda one, shop: _settle_outage(one),
        lambda one, shop: one.inbox.open_inbox(OTHER_BOT, server="https://api.telegram.org", at_ms=NOW),
    ],
    ids=["make", "save", "remove", "outage", "settle", "inbox"],
)
async def test_who_reads_and_outages_are_told(place: SharedPlace, act: Callable[[Any, Any], Awaitable[object]]) -> None:
    heard, _ = await hear_of(place, lambda both: act(*both), _shop)
    assert heard == {"is_consumers": True}


async def _settle_outage(one: Any) -> None:
    (outage,) = await one.inbox.outages(BOT, is_open=True)
    await one.inbox.settle_outage(outage.id, at_ms=NOW)


async def _key(one: Any) -> int:
    key = Key(id=0, name="shop", digest=b"d" * 32, scopes=("send",))
    return (await one.add_key(key, webhook_secret=None)).id


@pytest.mark.parametrize(
    "act",
    [
        lambda one, key_id: one.save_bot(BotRecord(bot_id=BOT, token=Token("7:secret"), paused="for now")),
        lambda one, key_id: one.remove_bot(OTHER_BOT),
        lambda one, key_id: _key(one),
        lambda one, key_id: one.revoke_key(key_id, at_ms=NOW),
    ],
    ids=["save bot", "remove bot", "add key", "revoke key"],
)
async def test_changes_of_bots_and_keys_are_told(
    place: SharedPlace, act: Callable[[Any, int], Awaitable[object]]
) -> None:
    heard, _ = await hear_of(place, lambda both: act(*both), _key)
    assert heard.pop("is_records") is True
    assert set(heard) <= {"is_consumers"}  # those of a bot go with it


async def _second(place: SharedPlace, *, beats: bool) -> None:
    second: Any = place.make(is_owner=False)
    await second.open()
    if beats:
        await second.nodes.beat()
    await second.close()


@pytest.mark.parametrize(
    "act",
    [
        lambda one: one.nodes.release([BOT]),
        lambda one: one.nodes.drain_node(one.nodes.node, is_draining=True),
        lambda one: one.nodes.beat(is_draining=True),
    ],
    ids=["release", "ask to drain", "drain"],
)
async def test_leases_that_are_let_go_or_will_be_are_told(place: SharedPlace, act: Act) -> None:
    assert (await hear_of(place, act))[0] == {"is_leases": True}


async def test_nodes_that_come_and_go_are_told_but_not_that_they_live_on(place: SharedPlace) -> None:
    assert (await hear_of(place, lambda one: one.nodes.beat()))[0] == {}
    assert (await hear_of(place, lambda one: _second(place, beats=True)))[0] == {"is_leases": True}
    assert (await hear_of(place, lambda one: _second(place, beats=False)))[0] == {}


async def test_a_node_never_hears_of_itself(place: SharedPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        await one.save_bot(BotRecord(bot_id=FENCE_BOT, token=Token("99:secret")))
        await hear(one, other)
        letter_id = await _dead(one)
        await one.retry(letter_id, at_ms=NOW)
        await one.hold(BOT, 5, NOW)
        await _inbox(one)
        await _key(one)
        await one.nodes.release([OTHER_BOT])
        assert {"lanes", "ended", "chats", "arrivals", "is_consumers", "is_records", "is_leases"} <= set(
            (await hear(other, one)).what()
        )
        assert (await hear(one, other)).what() == {}
