"""What happens to letters in the stories, in few words."""

import asyncio
from collections.abc import Sequence
from typing import Any

from peik.core.catalogue import Scope
from peik.core.letter import RANKS, Draft, Enclosed, LaneKey, Letter
from peik.core.lifecycle import Settlement, settle
from peik.core.outcome import Delivered, Outcome, Refused, Uncertain, Unsent
from peik.outbox.store import FoundInFlight, Marked, Store, Tally
from tests.storage.places import BOT, epoch_of

NOW = 1_800_000_000_000
HOUR = 3_600_000

SENT = Delivered(result=b'{"message_id":11}')
NO_NETWORK = Unsent(why="no route")
BROKE_OFF = Uncertain(why="connection reset")
LATER = Refused(code=500, words="Internal", advice="", scope=Scope.MESSAGE, is_passing=True)
NEVER = Refused(code=400, words="Bad Request: wrong", advice="", scope=Scope.MESSAGE)


def draft(chat: int | str = 1, *, text: str = "hi", **terms: Any) -> Draft:
    terms.setdefault("bot_id", BOT)
    terms.setdefault("method", "sendMessage")
    return Draft(chat=chat, params=f'{{"text":"{text}"}}', **terms)


def edit(target: str = "m5", **terms: Any) -> Draft:
    return draft(method="editMessageText", target=target, **terms)


def enclosed(blob: str) -> Enclosed:
    return Enclosed(field="photo", blob=blob, filename="a.png", content_type="image/png", size_bytes=3, digest="d")


async def accept(store: Store, *drafts: Draft, at_ms: int = NOW) -> list[int]:
    return [one.letter_id for one in await store.accept(drafts, at_ms=at_ms)]


async def advance(store: Store, settlements: Sequence[Settlement], marks: Sequence[Letter], at_ms: int = NOW) -> Marked:
    """A step of one bot's sender, under the lease that the store was opened with."""
    (bot_id,) = {one.bot_id for one in (*settlements, *marks)}
    answered: asyncio.Future[Marked] = asyncio.get_running_loop().create_future()
    store.advance(settlements, marks, epoch=epoch_of(store, bot_id), at_ms=at_ms, done=answered.set_result)
    return await answered


async def left_in_flight(store: Store, bot_id: int = BOT) -> list[Letter]:
    return await store.left_in_flight(bot_id, epoch=epoch_of(store, bot_id))


async def mark(store: Store, *letters: Letter, at_ms: int = NOW) -> list[int]:
    """The ids of those whose marks took."""
    taken: set[int] = set()
    for bot_id in {one.bot_id for one in letters}:
        own = [one for one in letters if one.bot_id == bot_id]
        marked = await advance(store, [], own, at_ms)
        assert marked.error is None
        taken |= {one.id for one in own} if marked.taken is None else marked.taken
    return [one.id for one in letters if one.id in taken]


async def conclude(store: Store, letter: Letter, outcome: Outcome, at_ms: int = NOW) -> None:
    """Settle a try that was marked before."""
    marked = await advance(store, [settle(letter, outcome, at_ms=at_ms)], [], at_ms)
    assert marked.error is None


async def attempt(store: Store, letter: Letter, outcome: Outcome, at_ms: int = NOW) -> None:
    assert await mark(store, letter, at_ms=at_ms) == [letter.id]
    await conclude(store, letter, outcome, at_ms)


async def front(store: Store, chat: int | str = 1, thread: int = 0, *, letters: int = 100) -> list[Letter]:
    found = await store.fronts(BOT, [(chat, thread)], letters=letters)
    return found[chat, thread].letters


async def find(store: Store, letter_id: int) -> Letter:
    """A waiting letter as the sender would read it."""
    view = await store.letter(letter_id)
    assert view is not None
    found = await store.fronts(view.bot_id, [(view.chat, view.thread)], letters=10_000)
    return next(one for one in found[view.chat, view.thread].letters if one.id == letter_id)


async def sweep_all(store: Store, rank: int, *, lanes: int, letters: int = 16) -> list[tuple[LaneKey, FoundInFlight]]:
    """Every lane that the cursor passes on its way around."""
    seen: list[tuple[LaneKey, FoundInFlight]] = []
    after: LaneKey | None = None
    while True:
        found = await store.sweep(BOT, rank, after, lanes=lanes, letters=letters)
        assert len(found.lanes) <= lanes
        seen.extend(found.lanes.items())
        if found.last is None:
            return seen
        after = found.last


async def all_lanes(store: Store) -> dict[LaneKey, list[int]]:
    """Every waiting letter of the bot, by lane, in order."""
    return {
        key: [one.id for one in found.letters]
        for rank in range(RANKS)
        for key, found in await sweep_all(store, rank, lanes=3, letters=1000)
    }


async def tally(store: Store, at_ms: int = NOW, bot_id: int = BOT) -> Tally:
    return (await store.tallies(at_ms=at_ms))[bot_id]


async def state(store: Store, letter_id: int) -> str:
    view = await store.letter(letter_id)
    return "gone" if view is None else str(view.state)
