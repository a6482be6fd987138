"""Peik is a guest on the server: all its keys are under its prefix, and nobody else's are touched."""

from pathlib import Path

from peik.outbox.store import LetterFilter, Retention
from tests.storage.acts import HOUR, NEVER, NOW, SENT, accept, attempt, draft, edit, find, front
from tests.storage.inbox_acts import DAY, KEEP, message, open_inbox, settle, take
from tests.storage.places import BOT, OTHER_BOT
from tests.storage.redis_place import RedisPlace

NOBODYS = {b"letters": b"theirs", b"peik": b"theirs", b"lease": b"theirs", b"{peik}:letters": b"theirs"}


async def live(place: RedisPlace) -> None:
    """A bit of everything that writes."""
    async with place.open() as store:
        ids = await accept(
            store, draft(1, idempotency_key="k", digest="d"), draft("@a", hook="https://a/"), edit(), edit()
        )
        await attempt(store, await find(store, ids[0]), SENT)
        await attempt(store, await find(store, ids[1]), NEVER)
        await store.retry_dead(LetterFilter(bot_id=BOT), at_ms=NOW, limit=9)
        await store.readdress(BOT, "@a", 77)
        await store.shut_chat(BOT, 5, "blocked", at_ms=NOW)
        await store.keep_file_id(BOT, "digest", "photo", "id", at_ms=NOW)
        await store.secret("name", "value")
        await store.nodes.take_lock("migration")
        await store.files.keep_part("blob", 0, b"part")
        default = await open_inbox(store.inbox, OTHER_BOT)
        await take(store.inbox, message(1), message(2), bot_id=OTHER_BOT)
        await settle(store.inbox, default, 1)
        await store.inbox.clean_arrivals(KEEP, at_ms=NOW + 40 * DAY, limit=100)
        await store.clean(Retention(completed_ms=1, dead_ms=1, log_ms=1), at_ms=NOW + HOUR, limit=100)
        await store.remove_bot(OTHER_BOT)


async def test_another_applications_keys_are_untouched_and_ours_are_under_our_prefix(place: RedisPlace) -> None:
    with place.server.client() as client:
        theirs = {f"{place.prefix}x".encode()[:-2] + b"y": b"theirs"} | NOBODYS
        before = set(client.scan_iter(count=1000))
        client.mset(theirs)
        await live(place)
        new = set(client.scan_iter(count=1000)) - before - set(theirs)
        tag = place.prefix.rstrip(":")
        assert new
        assert {key for key in new if not key.startswith(f"{place.prefix}{{{tag}}}:".encode())} == set()
        assert client.mget(list(theirs)) == [b"theirs"] * len(theirs)
        client.delete(*theirs)


async def test_two_prefixes_know_nothing_of_each_other(place: RedisPlace, tmp_path: Path) -> None:
    other = RedisPlace(tmp_path / "other")
    async with place.open() as mine, other.open() as theirs:  # two owners, since they own different things
        (letter_id,) = await accept(mine, draft(1))
        assert await front(theirs) == []
        assert [one.number for one in await front(mine)] == [1]
        (own,) = await accept(theirs, draft(1))
        assert (own, (await front(theirs))[0].number) == (letter_id, 1)
        assert [node.name for node in await mine.nodes.nodes()] == [mine.nodes.node]


async def test_nothing_is_left_of_letters_arrivals_and_bots_that_are_gone(place: RedisPlace) -> None:
    """What is forgotten must not go on costing memory: only counters, logs and what was said of chats remain."""
    async with place.open() as store:
        ids = await accept(
            store, *(draft(chat, expires_at_ms=NOW + DAY) for chat in range(1, 30)), edit(hook="https://a/")
        )
        for letter_id in ids:
            await attempt(store, await find(store, letter_id), SENT)
        hooks = (await store.hooks_due(at_ms=NOW, after="", endpoints=9, each=9)).hooks
        await store.settle_hooks([hook.id for hook in hooks], [])
        default = await open_inbox(store.inbox)
        await take(store.inbox, *(message(one, chat=one) for one in range(1, 30)))
        await settle(store.inbox, default, (1, 29))
        await store.files.keep_part("blob", 0, b"part")
        await store.files.drop_files(["blob"])
        await store.nodes.take_lock("migration")
        await store.remove_bot(BOT)
        await store.clean(Retention(completed_ms=1, dead_ms=1, log_ms=1), at_ms=NOW + HOUR, limit=100)
        await store.remove_bot(OTHER_BOT)
    with place.server.client() as client:
        names = {key.decode().rpartition("}:")[2] for key in client.scan_iter(match=f"{place.prefix}*", count=1000)}
    counters = {"ids", "arrival_ids", "consumer_ids", "hook_ids", "gone_ids", "epoch"}
    assert names - counters == {f"tally:{BOT}", f"recent:{BOT}"}
