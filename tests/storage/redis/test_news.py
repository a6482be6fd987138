"""The channel on which nodes hear of each other: what is not worth a message, and what becomes of one that is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from peik.core.nodes import News
from peik.outbox.store import Retention
from peik.storage.news import NodeNews
from peik.storage.redis import RedisStore
from tests.storage.acts import NOW, accept, draft
from tests.storage.inbox_acts import KEEP
from tests.storage.places import BOT
from tests.storage.redis_place import RedisPlace

Act = Callable[[RedisStore], Awaitable[Any]]
END = -1  # a bot that nobody has: when it is named, all before it has been heard


async def all_heard(speaker: RedisStore, hearer: RedisStore) -> News:
    """Everything that was said until now. The channel keeps the order, so that the end is heard last."""
    speaker._bell.tell(lambda telling: telling.lanes.add(END))
    heard = NodeNews()
    while True:
        news = await hearer.nodes.news()
        for bot_id, first, last in news.accepted:
            heard.accepted(bot_id, first, last)
        for bot_id, ended in news.ended.items():
            heard.ended(bot_id, ended)
        for name in ("lanes", "chats", "arrivals"):
            for bot_id in getattr(news, name) - {END}:
                getattr(heard, name)(bot_id)
        for flag, say in (
            ("is_all", "everything"),
            ("is_consumers", "consumers"),
            ("is_records", "records"),
            ("is_leases", "leases"),
            ("is_jobs", "jobs"),
        ):
            if getattr(news, flag):
                getattr(heard, say)()
        heard.due(news.due_at_ms)
        if END in news.lanes:
            return heard.news()


async def heard_of(place: RedisPlace, before: Act, act: Act) -> tuple[Any, Any, News]:
    async with place.open() as speaker, place.open(is_owner=False) as hearer:
        given = await before(speaker)
        await all_heard(speaker, hearer)
        return given, await act(speaker), await all_heard(speaker, hearer)


async def nothing(store: RedisStore) -> None:
    pass


async def test_a_repeat_is_no_news(place: RedisPlace) -> None:
    async def act(store: RedisStore) -> None:
        await accept(store, draft(1, idempotency_key="k", digest="d"))

    _, _, news = await heard_of(place, act, act)
    assert news == News()


async def test_upkeep_that_found_nothing_is_no_news(place: RedisPlace) -> None:
    async def act(store: RedisStore) -> None:
        await store.join_due(at_ms=1, limit=9)
        await store.expire(at_ms=1, limit=9)
        await store.clean(Retention(completed_ms=1, dead_ms=1, log_ms=1), at_ms=NOW, limit=9)
        await store.inbox.touch_consumers({})
        await store.inbox.note_seen(BOT, at_ms=1)
        await store.inbox.clean_arrivals(KEEP, at_ms=NOW, limit=9)
        await store.nodes.beat()
        await store.note_key_use({})

    _, _, news = await heard_of(place, nothing, act)
    assert news == News()


async def test_who_has_lost_the_connection_hears_once_that_all_may_have_changed(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        await one.nodes.release([BOT])  # letters of what it holds would concern nobody else
        await all_heard(one, two)
        with place.server.client() as client:
            client.client_kill_filter(_type="pubsub")
        assert await two.nodes.news() == News(is_all=True)
        await accept(one, draft(1))
        assert (await all_heard(one, two)).accepted == ((BOT, 1, 1),)


async def test_many_commits_while_nobody_asks_are_remembered_as_one_word(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        await all_heard(one, two)
        line = NodeNews()
        line.lanes.add(BOT)
        for _ in range(2500):
            two._bell._note(line.line("another").encode())
        assert (await two.nodes.news()).is_all


async def test_a_commit_is_made_whatever_becomes_of_its_news_and_the_next_message_says_all(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        await one.nodes.release([BOT])  # letters of what it holds would concern nobody else
        await all_heard(one, two)
        with place.server.client() as client:
            client.execute_command("ACL", "SETUSER", "default", "-publish")
            try:
                await accept(one, draft(1))
                saying = one._bell._saying
                assert saying is not None
                await asyncio.wait([saying])
            finally:
                client.execute_command("ACL", "SETUSER", "default", "+publish")
        assert (await all_heard(one, two)).is_all
