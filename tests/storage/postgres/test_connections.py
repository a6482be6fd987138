"""Connections that are lost, servers that go and come back: what was acknowledged stays, what was not is not believed."""

import asyncio
from math import inf
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from peik.core.lifecycle import settle
from peik.core.nodes import News
from peik.errors import InDoubt, StoreUnavailable
from peik.outbox.store import Tally
from peik.storage.postgres.store import PostgresStore
from tests.storage.acts import (
    NO_NETWORK,
    NOW,
    SENT,
    accept,
    advance,
    conclude,
    draft,
    edit,
    find,
    left_in_flight,
    mark,
    state,
    tally,
)
from tests.storage.places import BOT
from tests.storage.postgres.facts import locked_out, until, waiting_pids
from tests.storage.postgres.proxy import Break, Proxy
from tests.storage.postgres_place import PostgresPlace
from tests.storage.servers import PostgresServer

END_ALL = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'peik' AND pid <> pg_backend_pid()
"""


async def test_connections_that_were_ended_are_made_anew_and_nobody_notices(place: PostgresPlace) -> None:
    place.surely_there_s = 0.0  # amid much work there is doubt, see below
    async with place.open() as store:
        await accept(store, draft(1))
        for _ in range(3):
            await place.run(END_ALL)
            await accept(store, draft(1))
            await place.run(END_ALL)
            await tally(store)
        assert await tally(store) == Tally(waiting=4)
        held = (await store.nodes.beat()).leases
        await place.run(END_ALL)
        (letter,) = (await store.fronts(BOT, [(1, 0)], letters=1))[1, 0].letters
        assert await mark(store, letter) == [letter.id]
        assert (await store.nodes.beat()).leases == held


async def test_who_could_not_listen_for_a_moment_hears_that_anything_may_have_happened_and_then_goes_on(
    place: PostgresPlace,
) -> None:
    place.surely_there_s = 0.0
    async with place.open() as store, place.open(is_owner=False) as other:
        for _ in range(3):
            await place.run(END_ALL)
            while not (await store.nodes.news()).is_all:
                pass
            (letter_id,) = await accept(other, draft(1))
            heard = [await store.nodes.news()]
            while (BOT, letter_id, letter_id) not in heard[-1].accepted:
                heard.append(await store.nodes.news())
            assert not any(news.is_all for news in heard)


async def test_news_that_nobody_asks_for_are_forgotten_but_for_that_there_were_some(place: PostgresPlace) -> None:
    async with place.open() as store:
        lines = "SELECT pg_notify($1, format('[\"else\",[[7,%1$s,%1$s]]]', 3 * n)) FROM generate_series(1, 1100) AS n"
        await place.run(lines, f"peik_{place.schema}")
        await until(lambda: _has_heard(store, 1100))
        assert await store.nodes.news() == News(is_all=True)


async def _has_heard(store: PostgresStore, lines: int) -> bool:
    return store._neighbourhood._lines >= lines


async def test_what_was_written_while_nobody_could_be_told_is_told_later(place: PostgresPlace) -> None:
    async with Proxy(place.server.port).running() as proxy:
        way = place.url.replace(f":{place.server.port}/", f":{proxy.port}/")
        async with place.open() as store:
            teller = PostgresStore(way, clock=place.clock)
            await teller.open()
            await accept(teller, draft(1))
            proxy.is_deaf = True
            # The writer's connection stands; the one to the neighbours is gone and cannot be made anew.
            teller._neighbourhood._drop()
            (letter_id,) = await accept(teller, draft(1))
            await until(lambda: _gave_up_telling(teller))
            proxy.is_deaf = False
            await teller.nodes.is_locked("anything")  # whatever it asks next makes the connection
            while not any(first <= letter_id <= last for _, first, last in (await store.nodes.news()).accepted):
                pass
            await teller.close()


async def _gave_up_telling(store: PostgresStore) -> bool:
    return bool(store._neighbourhood._untold) and store._neighbourhood._telling is None


async def test_what_was_asked_on_a_connection_that_ends_in_the_middle_is_asked_again(place: PostgresPlace) -> None:
    place.surely_there_s = 0.0
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(1))
        rival = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema})
        await rival.execute("BEGIN; LOCK TABLE letters IN ACCESS EXCLUSIVE MODE")
        both = asyncio.gather(store.letter(letter_id), accept(store, draft(1)))
        await until(lambda: locked_out(place, 2))
        ended = await waiting_pids(place)
        await place.run("SELECT pg_terminate_backend(pid) FROM unnest($1::integer[]) AS pid", ended)
        await until(lambda: _came_again(place, ended, both))
        await rival.execute("COMMIT")
        await rival.close()
        view, _ = await both
        assert view is not None
        assert await tally(store) == Tally(waiting=2)


async def test_nobody_knows_what_became_of_letters_whose_one_call_was_broken_off(place: PostgresPlace) -> None:
    place.surely_there_s = inf
    async with place.open() as store:
        await accept(store, draft(1))
        rival = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema})
        for end in ("pg_terminate_backend", "pg_cancel_backend"):
            await rival.execute("BEGIN; LOCK TABLE letters IN ACCESS EXCLUSIVE MODE")
            accepting = asyncio.create_task(accept(store, draft(1)))
            await until(lambda: locked_out(place, 1))
            await place.run(f"SELECT {end}(pid) FROM unnest($1::integer[]) AS pid", await waiting_pids(place))
            with pytest.raises(InDoubt):
                await accepting
            await rival.execute("ROLLBACK")
            await accept(store, draft(1))
        await rival.close()
        assert await tally(store) == Tally(waiting=3)


async def test_a_key_makes_one_letter_however_sure_the_connection_is(place: PostgresPlace) -> None:
    place.surely_there_s = inf
    async with place.open() as store:
        await accept(store, draft(1))
        call = draft(1, idempotency_key="k", digest="d")
        (first,) = await store.accept([call], at_ms=NOW)
        (again,) = await store.accept([call], at_ms=NOW)
        assert (first.is_repeat, again.is_repeat, again.letter_id) == (False, True, first.letter_id)
        assert await tally(store) == Tally(waiting=2)


async def test_a_newer_edit_replaces_the_one_that_waits_however_sure_the_connection_is(place: PostgresPlace) -> None:
    place.surely_there_s = inf
    async with place.open() as store:
        await accept(store, draft(1))
        older, newer = [(await accept(store, edit()))[0] for _ in range(2)]
        assert [await state(store, one) for one in (older, newer)] == ["delayed", "waiting"]


async def test_letters_do_not_wash_away_a_doubt_about_marks(place: PostgresPlace) -> None:
    """They come first on the new connection, and could go in one call; the mark that may be there has to go with them."""
    place.surely_there_s = inf
    async with Proxy(place.server.port).running() as proxy:
        place.url = place.url.replace(f":{place.server.port}/", f":{proxy.port}/")
        async with place.open() as store:
            letter = await find(store, (await accept(store, draft(1)))[0])
            proxy.breaks = Break.AFTER
            assert (await advance(store, [], [letter])).error is not None
            assert await state(store, letter.id) == "active"
            await accept(store, draft(2))
            assert await state(store, letter.id) == "waiting"


async def test_letters_are_on_the_disk_when_they_are_accepted_whatever_the_commit_waited_for(
    place: PostgresPlace,
) -> None:
    place.surely_there_s = inf
    async with place.open() as store:
        flushed = 0
        for _ in range(20):
            await accept(store, draft(1))
            (row,) = await place.run("SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn() AS is_flushed")
            flushed += row["is_flushed"]
        assert flushed >= 18  # the server may write for itself in between


async def test_queries_outlive_a_change_of_their_tables(place: PostgresPlace) -> None:
    """Another node runs a newer Peik, whose migration adds what this one does not know of."""
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(1))
        letter = await find(store, letter_id)
        await mark(store, letter)
        assert await left_in_flight(store) == [letter]
        await place.run("ALTER TABLE letters ADD COLUMN news text")
        await place.run("ALTER TABLE letters ALTER COLUMN weight TYPE bigint")
        assert await left_in_flight(store) == [letter]
        await accept(store, draft(1))
        assert await state(store, letter_id) == "active"
        assert len((await store.fronts(BOT, [(1, 0)], letters=9))[1, 0].letters) == 2


async def test_who_is_cancelled_while_it_gives_up_a_look_leaves_no_transaction_to_the_next(
    place: PostgresPlace,
) -> None:
    """asyncpg has to end it then, and calls that a surprise: the story's own end looks for those."""
    async with place.open() as store:
        await store.keys()
        rival = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema})
        await rival.execute("BEGIN; LOCK TABLE keys IN ACCESS EXCLUSIVE MODE")
        looking = asyncio.create_task(store.keys())
        await until(lambda: locked_out(place, 1))
        while not looking.done():
            looking.cancel()
            await asyncio.sleep(0)
        await rival.close()
        assert looking.cancelled()
        assert await store.keys() == (0, [])


async def _came_again(place: PostgresPlace, ended: set[int], work: "asyncio.Future[Any]") -> bool:
    return work.done() or len(await waiting_pids(place) - ended) == len(ended)


@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_a_server_that_goes_and_comes_back_has_all_that_was_acknowledged(
    own_server: PostgresServer, tmp_path: Path, how: str
) -> None:
    place = PostgresPlace(tmp_path, own_server)
    acknowledged: list[int] = []
    refused: list[str] = []
    is_over = asyncio.Event()

    async def caller(store: PostgresStore, chat: int) -> None:
        while not is_over.is_set():
            try:
                acknowledged.extend(await accept(store, draft(chat)))
            except StoreUnavailable as error:
                refused.append(error.code)
                await asyncio.sleep(0.02)

    async with place.open() as store:
        async with asyncio.TaskGroup() as group:
            for chat in range(10):
                group.create_task(caller(store, chat))
            await until(lambda: _more_than(acknowledged, 100))
            await asyncio.to_thread(getattr(own_server, how))
            await until(lambda: _more_than(refused, 20))
            assert store.trouble() is not None
            await asyncio.to_thread(own_server.start)
            so_far = len(acknowledged)
            await until(lambda: _more_than(acknowledged, so_far + 100))
            is_over.set()
        assert store.trouble() is None
        rows = await place.run("SELECT id, number FROM letters ORDER BY number")
        assert set(acknowledged) <= {row["id"] for row in rows}
        assert len(set(acknowledged)) == len(acknowledged)
        assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
        assert set(refused) <= {"store_gone", "store_in_doubt"}  # the second: it broke at the commit itself


async def _more_than(found: list[object] | list[int] | list[str], count: int) -> bool:
    return len(found) > count


# ---- a commit whose answer never came ----


@pytest.mark.parametrize("breaks", [Break.BEFORE, Break.AFTER])
async def test_a_mark_that_may_be_stored_is_not_believed_and_not_left_behind(
    place: PostgresPlace, breaks: Break
) -> None:
    async with Proxy(place.server.port).running() as proxy:
        place.url = place.url.replace(f":{place.server.port}/", f":{proxy.port}/")
        async with place.open() as store:
            letter = await find(store, (await accept(store, draft(1)))[0])
            proxy.breaks = breaks
            marked = await advance(store, [], [letter])
            assert isinstance(marked.error, StoreUnavailable)
            assert "not known" in marked.error.detail
            assert await state(store, letter.id) == ("active" if breaks is Break.AFTER else "waiting")
            while not (await store.nodes.news()).is_all:  # whoever keeps lanes in memory reads them anew
                pass
            assert await mark(store, letter) == [letter.id]
            await conclude(store, letter, SENT)
            assert await tally(store) == Tally(completed=1)


@pytest.mark.parametrize("breaks", [Break.BEFORE, Break.AFTER])
async def test_a_step_that_may_be_stored_can_be_made_again(place: PostgresPlace, breaks: Break) -> None:
    """A try failed, and the letter was marked again in the same step: its first mark must not go with the second."""
    async with Proxy(place.server.port).running() as proxy:
        place.url = place.url.replace(f":{place.server.port}/", f":{proxy.port}/")
        async with place.open() as store:
            letter = await find(store, (await accept(store, draft(1)))[0])
            assert await mark(store, letter) == [letter.id]
            proxy.breaks = breaks
            step = [settle(letter, NO_NETWORK, at_ms=NOW)], [letter]
            assert (await advance(store, *step)).error is not None
            assert (await advance(store, *step)).taken is None
            view = await store.letter(letter.id)
            assert view is not None
            assert (view.history or "").count("no route") == 1
            assert await tally(store) == Tally(active=1)


@pytest.mark.parametrize("breaks", [Break.BEFORE, Break.AFTER])
async def test_a_letter_that_may_be_stored_is_refused_and_its_key_makes_no_second_one(
    place: PostgresPlace, breaks: Break
) -> None:
    async with Proxy(place.server.port).running() as proxy:
        place.url = place.url.replace(f":{place.server.port}/", f":{proxy.port}/")
        async with place.open() as store:
            call = draft(1, idempotency_key="k", digest="d")
            proxy.breaks = breaks
            with pytest.raises(StoreUnavailable, match="not known"):
                await store.accept([call], at_ms=NOW)
            (again,) = await store.accept([call], at_ms=NOW)
            assert again.is_repeat == (breaks is Break.AFTER)
            assert await tally(store) == Tally(waiting=1)
