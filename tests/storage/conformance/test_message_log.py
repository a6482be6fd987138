"""The message log is one list of letters that are here and lines of those that are gone, on every store."""

from peik.core.letter import State
from peik.outbox.message_log import MessageLog
from peik.outbox.store import LetterFilter, LoggedMessage, Retention, Store
from tests.storage.acts import HOUR, NEVER, NOW, SENT, accept, attempt, draft, find
from tests.storage.places import BOT, OTHER_BOT, Place

KEEP = Retention(completed_ms=HOUR, dead_ms=HOUR, log_ms=90 * HOUR)


async def every(store: Store, limit: int = 2, **wanted: object) -> list[LoggedMessage]:
    log, found, cursor = MessageLog(store), list[LoggedMessage](), None
    while True:
        page = await log.page(LetterFilter(**wanted), cursor=cursor, limit=limit)  # type: ignore[arg-type]
        assert len(page.messages) == limit or page.cursor is None or page.is_cut
        found += page.messages
        cursor = page.cursor
        if cursor is None:
            return found


async def lived(store: Store) -> list[int]:
    """Seven that are gone by now, of which three were accepted at once, and four that are here."""
    gone = await accept(store, *(draft(n, text=f"at once {n}") for n in (1, 2, 3)))
    gone += await accept(store, draft(4, text="one of u1", user_id="u1", message_type="bill"), at_ms=NOW + 1)
    gone += await accept(store, draft(-5, text="died", user_id="u1"), at_ms=NOW + 2)
    gone += await accept(store, draft("@six", bot_id=OTHER_BOT), draft(7), at_ms=NOW + 3)
    for letter_id in gone:
        await attempt(store, await find(store, letter_id), NEVER if letter_id == gone[4] else SENT)
    await store.clean(KEEP, at_ms=NOW + 3 * HOUR, limit=100)
    assert [await store.letter(one) for one in gone] == [None] * 7
    here = await accept(store, *(draft(n, text=f"here {n}", user_id="u1") for n in (1, 2, 3, 4)), at_ms=NOW + 2 * HOUR)
    await attempt(store, await find(store, here[0]), NEVER, at_ms=NOW + 2 * HOUR)
    return gone + here


async def test_it_goes_on_where_letters_end(place: Place) -> None:
    async with place.open() as store:
        ids = await lived(store)
        for limit in (1, 2, 3, 5, 100):
            assert [one.id for one in await every(store, limit)] == list(reversed(ids)), limit
        told = {one.id: one for one in await every(store)}
        dead = told[ids[4]]
        assert (dead.chat, dead.user_id, dead.method, dead.text) == (-5, "u1", "sendMessage", "died")
        assert (dead.state, dead.error, dead.attempts_made) == (State.FAILED, NEVER.words, 1)
        assert (dead.created_at_ms, dead.finished_at_ms, dead.is_here) == (NOW + 2, NOW, False)
        sent = told[ids[3]]
        assert (sent.message_type, sent.state, sent.message_id) == ("bill", State.COMPLETED, 11)
        assert (told[ids[5]].chat, told[ids[5]].bot_id) == ("@six", OTHER_BOT)
        assert (told[ids[7]].text, told[ids[7]].is_here, told[ids[7]].state) == ("here 1", True, State.FAILED)


async def test_it_is_found_by_every_filter(place: Place) -> None:
    async with place.open() as store:
        ids = await lived(store)

        async def found(**wanted: object) -> list[int]:
            return [one.id for one in await every(store, **wanted)]

        assert await found(state=State.FAILED) == [ids[7], ids[4]]
        assert await found(user_id="u1") == [ids[10], ids[9], ids[8], ids[7], ids[4], ids[3]]
        assert await found(message_type="bill") == [ids[3]]
        assert await found(bot_id=OTHER_BOT) == [ids[5]]
        assert await found(bot_ids=frozenset({BOT}), chat=-5) == [ids[4]]
        assert await found(text="AT ONCE") == [ids[2], ids[1], ids[0]]
        assert await found(error="wrong") == [ids[7], ids[4]]
        assert await found(since_ms=NOW + 3, until_ms=NOW + HOUR) == [ids[6], ids[5]]
        assert await found(method="sendPhoto") == []
