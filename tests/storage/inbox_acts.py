"""What happens to arrivals in the stories, in few words."""

from collections.abc import Iterable
from typing import Any

import msgspec

from peik.core.arrival import ConsumerProgress, Update, read_update
from peik.core.letter import State
from peik.inbox.store import (
    ArrivalDelivery,
    ArrivalFilter,
    ArrivalRetention,
    Burial,
    Consumer,
    Deferral,
    InboxStore,
    TakenIn,
)
from tests.storage.places import BOT

NOW = 1_800_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR
SERVER = "https://api.telegram.org"

FIRST = 501  # the id of the first update in the stories, and so the first number

KEEP = ArrivalRetention(read_ms=7 * DAY, unread_ms=30 * DAY, idle_ms=7 * DAY)


def message(update_id: int, chat: int = 1, *, text: str = "hi", kind: str = "message", **more: Any) -> Update:
    body: dict[str, Any] = {
        "message_id": more.pop("message_id", update_id * 10),
        "date": more.pop("date", NOW // 1000),
        "chat": {"id": chat},
        "from": {"id": more.pop("user", chat)},
        "text": text,
    }
    return raw(update_id, {kind: body | more})


def press(update_id: int, chat: int = 1, *, message_id: int) -> Update:
    held = {"message_id": message_id, "date": 1, "chat": {"id": chat}}
    return raw(update_id, {"callback_query": {"id": "9", "from": {"id": chat}, "message": held, "data": "yes"}})


def raw(update_id: int, top: dict[str, Any]) -> Update:
    return read_update(msgspec.json.encode({"update_id": update_id} | top))


def messages(count: int, *, first: int = FIRST, lanes: int = 3) -> list[Update]:
    return [message(first + index, chat=1 + index % lanes) for index in range(count)]


async def open_inbox(inbox: InboxStore, bot_id: int = BOT) -> Consumer:
    """A bot whose updates come here; its default consumer."""
    await inbox.open_inbox(bot_id, server=SERVER, at_ms=NOW)
    return await named(inbox, "default", bot_id)


async def take(inbox: InboxStore, *updates: Update, at_ms: int = NOW, bot_id: int = BOT, **more: Any) -> TakenIn:
    more.setdefault("last_update_id", updates[-1].update_id if updates else None)
    return await inbox.take_in(bot_id, updates, at_ms=at_ms, **more)


async def named(inbox: InboxStore, name: str, bot_id: int = BOT) -> Consumer:
    return next(one for one in await inbox.consumers(bot_id) if one.name == name)


async def progress(inbox: InboxStore, consumer: Consumer) -> ConsumerProgress:
    return (await named(inbox, consumer.name, consumer.bot_id)).progress


async def numbers(inbox: InboxStore, consumer: Consumer, after: int = 0, **more: Any) -> list[int]:
    """What a consumer sees."""
    more.setdefault("limit", 1000)
    return [one.number for one in await inbox.arrivals_after(consumer.id, after, **more)]


async def settle(
    inbox: InboxStore, consumer: Consumer, *over: tuple[int, int] | int, at_ms: int = NOW
) -> ConsumerProgress:
    spans = [(one, one) if isinstance(one, int) else one for one in over]
    return await inbox.settle_arrivals(consumer.id, over=spans, at_ms=at_ms)


async def put_off(inbox: InboxStore, consumer: Consumer, number: int, *, until_ms: int = NOW + HOUR) -> None:
    deferral = Deferral(number=number, tries=1, due_at_ms=until_ms, entry='{"outcome":"failed once"}')
    await inbox.settle_arrivals(consumer.id, deferred=[deferral], at_ms=NOW)


async def bury(inbox: InboxStore, consumer: Consumer, *dead: int, at_ms: int = NOW) -> ConsumerProgress:
    burials = [Burial(number=one, tries=5, reason="it broke", entry='{"outcome":"gave up"}') for one in dead]
    return await inbox.settle_arrivals(consumer.id, dead=burials, at_ms=at_ms)


async def found(inbox: InboxStore, *, before: int | None = None, limit: int = 100, **wanted: Any) -> list[int]:
    """The numbers of what a filter finds, newest first; it counts as many as it finds."""
    views = await inbox.find_arrivals(ArrivalFilter(**wanted), before=before, limit=limit)
    if before is None and len(views) < limit:
        assert await inbox.count_arrivals(ArrivalFilter(**wanted)) == len(views)
    return [view.arrival.number for view in views]


async def delivery(inbox: InboxStore, number: int, consumer: str = "default") -> ArrivalDelivery:
    wanted = ArrivalFilter(bot_id=BOT, consumer=consumer, first_number=number, last_number=number)
    (view,) = await inbox.find_arrivals(wanted, before=None, limit=2)
    (standing,) = view.deliveries
    return standing


async def states(inbox: InboxStore, consumer: str = "default", bot_id: int = BOT) -> dict[int, State]:
    """How every arrival that a consumer sees stands with it, as the filters say, and as the arrivals themselves say."""
    by_filter: dict[int, State] = {}
    for state in State:
        for number in await found(inbox, bot_id=bot_id, consumer=consumer, state=state, limit=1000):
            assert number not in by_filter
            by_filter[number] = state
    views = await inbox.find_arrivals(ArrivalFilter(bot_id=bot_id, consumer=consumer), before=None, limit=1000)
    assert by_filter == {view.arrival.number: view.deliveries[0].state for view in views}
    return dict(sorted(by_filter.items()))


def span(numbers: Iterable[int]) -> tuple[int, int]:
    return min(numbers), max(numbers)
