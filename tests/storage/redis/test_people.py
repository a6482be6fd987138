"""What people ask of letters gets the same answers here as on SQLite: one story, told on both."""

from pathlib import Path
from typing import Any

import pytest

from peik.core.letter import OnUncertain, State
from peik.errors import Problem
from peik.outbox.store import LetterFilter, Retention
from tests.storage.acts import (
    BROKE_OFF,
    HOUR,
    LATER,
    NEVER,
    NOW,
    SENT,
    accept,
    attempt,
    draft,
    edit,
    enclosed,
    find,
    mark,
    tally,
)
from tests.storage.places import BOT, OTHER_BOT, Place, SqlitePlace
from tests.storage.redis_place import RedisPlace

FILTERS = (
    *(LetterFilter(state=state) for state in State),
    *(LetterFilter(state=state, bot_id=BOT, chat=4) for state in State),
    LetterFilter(),
    LetterFilter(bot_id=OTHER_BOT),
    LetterFilter(bot_ids=frozenset({BOT})),
    LetterFilter(bot_ids=frozenset()),
    LetterFilter(chat="@a"),
    LetterFilter(chat=500),
    LetterFilter(user_id="u1", message_type="bill"),
    LetterFilter(method="editMessageText"),
    LetterFilter(since_ms=NOW + 1),
    LetterFilter(text="HELLO"),
    LetterFilter(error="bad request"),
    LetterFilter(state=State.FAILED, error="uncertain"),
)


async def outcome(story: Any) -> Any:
    try:
        return await story
    except Problem as problem:
        return (type(problem).__name__, problem.code, problem.detail)


async def begin(store: Any) -> dict[str, int]:
    """A letter in every state, of two bots."""
    names = ("sent", "dead", "doubtful", "flying", "backing", "later", "moved", "labelled", "edited", "newer", "filed")
    drafts = (
        draft(1),
        draft(2, text="hello"),
        draft(3, on_uncertain=OnUncertain.HOLD, expires_at_ms=NOW + HOUR),
        *(draft(4) for _ in range(2)),
        draft(4, send_at_ms=NOW + HOUR),
        draft("@a"),
        draft(7, user_id="u1", message_type="bill", metadata='{"a":1}'),
        edit(),
        edit(),
        draft(9, enclosed=(enclosed("file"),)),
    )
    ids = [letter_id for one in drafts for letter_id in await accept(store, one)]  # one by one: ids in this order
    known = dict(zip(names, ids, strict=True))
    for name, how in (("sent", SENT), ("dead", NEVER), ("doubtful", BROKE_OFF), ("backing", LATER)):
        await attempt(store, await find(store, known[name]), how)
    await mark(store, await find(store, known["flying"]))
    await store.readdress(BOT, "@a", 500)
    (known["theirs"],) = await accept(store, draft(4, bot_id=OTHER_BOT, text="Hello"), at_ms=NOW + 5)
    return known


async def looks(store: Any) -> list[Any]:
    """Everything that can be seen."""
    seen: list[Any] = [await store.find(wanted, before=None, limit=100) for wanted in FILTERS]
    for wanted in (LetterFilter(), LetterFilter(state=State.FAILED)):
        before = None
        while page := await store.find(wanted, before=before, limit=2):
            seen.append(page)
            before = page[-1].id
    seen.append(sorted(await store.lanes(BOT, None, limit=100), key=str))
    seen.append([await store.lanes(BOT, chat, limit=100) for chat in (4, "@a", 500, 99)])
    seen.append([await store.head_of(BOT, (chat, 0)) for chat in (4, 500, 99)])
    seen.append([await store.known_chats(BOT, after=None, limit=9), await store.known_chats(BOT, after="@a", limit=9)])
    seen.append([await tally(store), await tally(store, bot_id=OTHER_BOT), await store.blobs()])
    seen.append((await store.hooks_due(at_ms=NOW, after="", endpoints=9, each=9)).hooks)
    return seen


async def told_on(place: Place) -> list[Any]:
    told: list[Any] = []
    async with place.open() as store:
        known = await begin(store)
        told += await looks(store)
        for name in ("sent", "dead", "flying", "later", "edited", "filed"):
            told.append(await outcome(store.cancel(known[name], at_ms=NOW)))
        for name in ("sent", "flying", "later", "backing"):
            told.append(await outcome(store.retry(known[name], at_ms=NOW + 1)))
            told.append(await outcome(store.resolve(known[name], arrived=True, at_ms=NOW + 1)))
        told += [await outcome(act(9999, at_ms=NOW)) for act in (store.cancel, store.retry)]
        told.append(await outcome(store.resolve(known["doubtful"], arrived=True, at_ms=NOW + 2)))
        told.append(await outcome(store.retry(known["dead"], at_ms=NOW + 3)))
        told += await looks(store)
        await attempt(store, await find(store, known["dead"]), NEVER, at_ms=NOW + 4)
        await attempt(store, await find(store, known["labelled"]), NEVER, at_ms=NOW + 4)
        told.append(await store.retry_dead(LetterFilter(chat=7), at_ms=NOW + 5, limit=9))
        told.append(await store.clear_dead(LetterFilter(bot_id=OTHER_BOT), at_ms=NOW + 5, limit=9))
        told.append(await store.clear_dead(LetterFilter(), at_ms=NOW + 5, limit=9))
        told += await looks(store)
        told.append(await store.clean(Retention(completed_ms=1, dead_ms=1, log_ms=HOUR), at_ms=NOW + 60, limit=100))
        told += await looks(store)
    return [*told, place.heard.accepted, place.heard.removed, place.heard.joined, place.freed]


async def test_the_same_story_is_told_the_same_on_both_stores(tmp_path: Path) -> None:
    here = await told_on(RedisPlace(tmp_path))
    there = await told_on(SqlitePlace(tmp_path))
    assert len(here) == len(there)
    for index, (one, other) in enumerate(zip(here, there, strict=True)):
        assert one == other, index


@pytest.mark.parametrize("arrived", [True, False])
async def test_an_uncertain_letter_is_resolved_either_way(tmp_path: Path, arrived: bool) -> None:
    answers = []
    for place in (RedisPlace(tmp_path), SqlitePlace(tmp_path)):
        async with place.open() as store:
            (letter_id,) = await accept(store, draft(1, on_uncertain=OnUncertain.HOLD, hook="https://a/"))
            await attempt(store, await find(store, letter_id), BROKE_OFF)
            await store.resolve(letter_id, arrived=arrived, at_ms=NOW + 1)
            answers.append((await store.letter(letter_id), await tally(store), place.heard.accepted))
    assert answers[0] == answers[1]
