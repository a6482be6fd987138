"""A store with something of everything, and how a move looks from outside."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from peik.admin.model import Key, digest_of
from peik.core.documents import Contact, Filing
from peik.core.letter import Backoff, OnUncertain
from peik.core.pace import PaceLimits
from peik.core.token import Token
from peik.inbox.store import ArrivalFilter, ConsumerKind
from peik.jobs.model import JobEnd as Ended
from peik.jobs.store import JobRetention, JobStore, RunNews
from peik.outbox.store import BotRecord, HookDeferred, Retention, Store
from peik.storage.moving.ends import MoveEnd
from peik.storage.moving.move import Ends, MovedStore, MoveWatch, end_of, move, take_back
from peik.storage.moving.records import KINDS, Record
from peik.storage.open import AnyStore
from tests.storage import inbox_acts, job_acts
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
)
from tests.storage.places import BOT, OTHER_BOT, Place, SqlitePlace

URL = "https://shop.example/hook?order=5"
BLOB = "0123456789abcdef0123456789abcdef"
KEY = "peik-key-of-a-shop"
ODD_KIND = "größer:als"


def url_of(place: Place) -> str:
    return f"sqlite:///{place.path}" if isinstance(place, SqlitePlace) else str(place.url)


async def moved(origin: Place, target: Place, **more: object) -> MovedStore:
    ends = Ends(origin=end_of(url_of(origin)), target=end_of(url_of(target)))
    return await move(ends, clock=target.clock, watch=MoveWatch(), **more)


async def taken_back(place: Place) -> Place:
    """A store that was moved away, to be looked at once more."""
    await take_back(end_of(url_of(place)))
    return place


async def records(place: Place, *, limit: int = 3) -> dict[str, list[Record]]:
    """All that a store holds, in the neutral form and in the order of keys; read in many pages."""
    end = end_of(url_of(place))
    await end.open(is_target=False)
    try:
        return {kind: await _all(end, kind, limit) for kind in KINDS}
    finally:
        await end.close()


async def _all(end: MoveEnd, kind: str, limit: int) -> list[Record]:
    found: list[Record] = []
    page = await end.page(kind, None, limit)
    found += page.records
    while page.cursor is not None:
        page = await end.page(kind, page.cursor, limit)
        found += page.records
    return sorted(found, key=lambda one: [str(getattr(one, field)) for field in one.key])


def fitted(held: dict[str, list[Record]], *fits: Callable[[Record], Record]) -> dict[str, list[bytes]]:
    """What is left of it after a way through these stores; encoded, so that a failing test shows where they part."""
    shown: dict[str, list[bytes]] = {}
    for kind, some in held.items():
        for fit in fits:
            some = [fit(one) for one in some]
        shown[kind] = [msgspec.json.encode(one) for one in some]
    return shown


async def keep_file(place: Place, content: bytes) -> None:
    """The file of a letter, where this store has its files."""
    end = end_of(url_of(place))
    await end.open(is_target=False)
    try:
        await end.files.keep_part(BLOB, 0, content)
        if isinstance(place, SqlitePlace):
            await end.files.finish(BLOB)
    finally:
        await end.close()


async def file_in(place: Place) -> bytes | None:
    end = end_of(url_of(place))
    await end.open(is_target=False)
    try:
        return await end.files.part(BLOB, 0)
    finally:
        await end.close()


async def fill(store: AnyStore) -> None:
    await _people(store)
    await _letters(store)
    await _ended(store)
    await _inbox(store)
    await _jobs(store.jobs)
    await _documents(store)


async def _people(store: Store) -> None:
    """Bots, chats, keys and secrets."""
    await store.save_bot(
        BotRecord(
            bot_id=OTHER_BOT,
            token=Token(f"{OTHER_BOT}:other-secret"),
            username="other",
            inbound="polling",
            paused="by hand",
            limits=PaceLimits(),
            missed="notify",
            me='{"id":8,"first_name":"O"}',
            created_at_ms=NOW,
        )
    )
    await store.save_bot(BotRecord(bot_id=9, token=Token("9:gone")))
    await accept(store, draft(bot_id=9))
    await store.cancel(1, at_ms=NOW)
    await store.remove_bot(9)  # its ended letter and its tally stay
    await store.readdress(BOT, "@shop", -100500)
    await store.shut_chat(BOT, 77, "Forbidden: bot was blocked by the user", at_ms=NOW)
    await store.shut_chat(BOT, 78, "Forbidden", at_ms=NOW)
    await store.shut_chat(BOT, 78, None, at_ms=NOW)
    await store.hold(BOT, 79, NOW + HOUR)
    await store.hold(BOT, None, NOW + HOUR)
    await store.keep_file_id(BOT, "d1", "photo", "AgAC-1", at_ms=NOW)
    for name in ("shop", "old"):
        key = Key(
            id=0,
            name=name,
            digest=digest_of(KEY if name == "shop" else "old"),
            scopes=("send",),
            bot_ids=frozenset({OTHER_BOT, BOT}),
            created_at_ms=NOW,
            expires_at_ms=NOW + 100 * HOUR,
            webhook_url="https://shop.example/ends",
        )
        await store.add_key(key, webhook_secret="whsec_1")
    await store.revoke_key(2, at_ms=NOW)
    await store.note_key_use({1: NOW + 5})
    await store.secret("webhook", "made up once")


async def _letters(store: Store) -> None:
    """Letters that still wait, in every way in which one can."""
    first, _, _, backing, shy, flying = await accept(
        store,
        draft(5, text="one"),
        draft(5, text="two", rank=1, trace="u7.3"),
        draft(5, text="سه", thread=4, rank=3, metadata='{"order":3}', user_id="u1", message_type="order"),
        draft(6, text="backs off"),
        draft(7, text="in doubt", attempts=9, backoff=Backoff.FIXED, backoff_ms=5000, timeout_ms=7000),
        draft(8, text="in flight", on_uncertain=OnUncertain.HOLD, trace="~u7.4"),
    )
    (parked,) = await accept(store, draft(5, text="refers", awaits=first))
    await attempt(store, await find(store, backing), LATER)
    await attempt(store, await find(store, shy), BROKE_OFF)
    await mark(store, await find(store, flying), at_ms=NOW + 3)
    await store.park(await find(store, parked))
    await accept(
        store,
        draft(5, text="later", send_at_ms=NOW + HOUR),
        draft(5, text="later, and refers", send_at_ms=NOW + HOUR, awaits=first),
        draft("@shop", text="readdressed", expires_at_ms=NOW + 2 * HOUR, idempotency_key="order-1", digest="abc"),
        draft("12345", text="a name of digits", enclosed=(enclosed(BLOB),), hook=1),
        edit("m5", text="older", expires_at_ms=NOW + HOUR),
        draft(1, text="it's mine", bot_id=OTHER_BOT, rank=0, idempotency_key="a:b c", digest="x"),
    )
    await accept(store, edit("m5", text="newer"))


async def _ended(store: Store) -> None:
    sent, dead, doubtful, cancelled, old, told, retried = await accept(
        store,
        draft(20, text="sent", hook=URL),
        draft(21, text="dead", enclosed=(enclosed("f" * 32),), hook=1),
        draft(22, text="doubtful", on_uncertain=OnUncertain.HOLD),
        draft(23, text="cancelled"),
        draft(24, text="old"),
        draft(25, text="told", hook=URL),
        draft(26, text="dead, then again"),
    )
    await attempt(store, await find(store, sent), SENT, at_ms=NOW + 1)
    await attempt(store, await find(store, dead), NEVER, at_ms=NOW + 2)
    await attempt(store, await find(store, doubtful), BROKE_OFF, at_ms=NOW + 3)
    await store.cancel(cancelled, at_ms=NOW + 4)
    await attempt(store, await find(store, told), SENT, at_ms=NOW + 5)
    await attempt(store, await find(store, retried), NEVER, at_ms=NOW + 5)
    await store.retry(retried, at_ms=NOW + 6)
    (hook,) = [one for one in (await hooks(store)) if one.letter_id == told]
    await store.settle_hooks([], [HookDeferred(hook_id=hook.id, due_at_ms=NOW + HOUR, tries=2, body='{"n":1}')])
    await attempt(store, await find(store, old), SENT, at_ms=NOW - 100 * HOUR)
    keep = Retention(completed_ms=50 * HOUR, dead_ms=500 * HOUR, log_ms=1000 * HOUR)
    await store.clean(keep, at_ms=NOW, limit=100)  # only its line in the log stays
    assert await store.letter(old) is None


async def hooks(store: Store) -> list:
    return (await store.hooks_due(at_ms=NOW + 2 * HOUR, after="", endpoints=10, each=10)).hooks


async def _inbox(store: Store) -> None:
    inbox = store.inbox
    default = await inbox_acts.open_inbox(inbox)
    other = await inbox.ensure_consumer(BOT, "stats", at_ms=NOW)
    pushed = msgspec.structs.replace(
        other, kind=ConsumerKind.PUSH, url=URL, secret="s", allowed=frozenset({"message", "poll"}), connections_max=3
    )
    await inbox.save_consumer(pushed)
    await inbox.touch_consumers({other.id: NOW + 9})
    await inbox_acts.take(inbox, *inbox_acts.messages(10))
    await inbox.note_handled(BOT, [(1, 5010), (1, 99999)], at_ms=NOW)
    await inbox_acts.settle(inbox, default, 502, 505)
    await inbox_acts.put_off(inbox, default, 506)
    await inbox_acts.put_off(inbox, default, 507)
    await inbox_acts.settle(inbox, default, 507)
    await inbox_acts.bury(inbox, default, 508)
    once_more = ArrivalFilter(bot_id=BOT, first_number=509, last_number=509)
    await inbox.replay(once_more, default.id, after=0, up_to=100, limit=5, at_ms=NOW)
    await inbox.clean_arrivals(inbox_acts.KEEP, at_ms=NOW, limit=100)
    await inbox_acts.take(inbox, inbox_acts.message(4, text="a new numbering"), is_new_epoch=True, expired=3)
    open_outage = await inbox.open_outage(BOT, began_at_ms=NOW - HOUR, ended_at_ms=NOW, last_number=505)
    over = await inbox.open_outage(BOT, began_at_ms=NOW - HOUR, ended_at_ms=NOW, last_number=506)
    await inbox.settle_outage(over.id, at_ms=NOW + 1)
    assert open_outage.id != over.id


FULL = {
    "params": '{"url":"https://a.example/ü"}',
    "rank": 1,
    "attempts": 7,
    "backoff_ms": 700,
    "backoff": Backoff.FIXED,
    "timeout_ms": 60_000,
    "notice": '{"chat_id":5}',
    "metadata": '{"order":9}',
    "bytes_max": 10**9,
}


async def _jobs(jobs: JobStore) -> None:
    """Jobs in every state, lines whose tickets have gone round, and two kinds, of which one's name parts like a field."""
    await _ended_jobs(jobs)
    for user in ("ann", "bob", "", "زهرا"):
        await job_acts.queue(jobs, *(job_acts.a_job(user) for _ in range(4)))
    await job_acts.queue(jobs, job_acts.a_job("ann", key="k:1", digest="same as", **FULL), at_ms=NOW + 1)
    await job_acts.queue(jobs, job_acts.a_job("a:b", kind=ODD_KIND), job_acts.a_job("late", run_at_ms=NOW + HOUR))
    # The lines have had their turns: tickets are not in the order of places any more, and a job went back to the end.
    dead, told, back, off = await job_acts.take(jobs, 4, within=job_acts.terms(per_user=2), lease_ms=HOUR)
    put_off = job_acts.ran(back, Ended.PUT_OFF, reason="the host is down")
    put_away = job_acts.ran(off, Ended.PUT_OFF, due_at_ms=NOW + 2 * HOUR)
    await job_acts.settle(jobs, put_off, put_away)
    beat = RunNews(job_id=told.id, run=told.run, progress=0.25, progress_text="¼", notice_state='{"message_id":4}')
    await jobs.beat([beat], lease_ms=HOUR)
    await jobs.cancel(told.id, reason="no longer", at_ms=NOW + 2)
    await jobs.beat([RunNews(job_id=dead.id, run=dead.run)], lease_ms=job_acts.SHORT_MS)
    # The last id is that of a job that is not here any more.
    (gone,) = await job_acts.queue(jobs, job_acts.a_job("eve", kind=ODD_KIND))
    await jobs.cancel(gone, reason="by hand", at_ms=NOW - 500 * HOUR)
    assert await jobs.clean(JobRetention(completed_ms=HOUR, failed_ms=HOUR), at_ms=NOW, limit=10) == 1


async def _ended_jobs(jobs: JobStore) -> None:
    drafts = [job_acts.a_job("ann", key=f"e{number}", digest=f"d{number}") for number in range(5)]
    done, failed, again, _, _ = await job_acts.queue(jobs, *drafts)
    runs = {one.id: one for one in await job_acts.take(jobs, 3)}
    await jobs.beat([RunNews(job_id=done, run=1, progress=1.0)], lease_ms=HOUR)
    await job_acts.end(jobs, runs[done], result='{"file":"a"}', bytes_used=12_345, at_ms=NOW + 800)
    await job_acts.end(jobs, runs[failed], Ended.HOPELESS, reason="Not found.", bytes_used=7, at_ms=NOW + 900)
    await job_acts.end(jobs, runs[again], Ended.HOPELESS, reason="Not found.", at_ms=NOW + 900)
    await jobs.note(failed, '{"message_id":6}')
    await jobs.retry(again, at_ms=NOW + 950)
    for job_id in (again + 1, again + 2):
        await jobs.cancel(job_id, reason="by hand", at_ms=NOW + 960)
    await jobs.retry(again + 2, at_ms=NOW + 970)


async def _documents(store: AnyStore) -> None:
    """Collections with several documents and versions, one that got empty, and chats of two bots, of which one was seen again."""
    documents, contacts = store.documents, store.contacts
    await documents.file(
        [Filing(collection=collection, key=key, body='"é"') for collection in ("audit", "b:1", "b:2") for key in "aBc~"]
    )
    await documents.file(
        [Filing(collection="audit", key="B", body='{"n": 2}'), Filing(collection="b:1", key="c", body=None)]
    )
    await documents.clear_collection("b:2", limit=10)
    for bot_id in (BOT, OTHER_BOT):
        seen = Contact(bot_id=bot_id, chat_id=5, type="private", first_seen_ms=NOW, last_seen_ms=NOW)
        replace = msgspec.structs.replace
        named = replace(seen, name="Жanna", username="zh", language="ru-RU", campaign="a:b", first_seen_ms=NOW - 7)
        group = replace(seen, chat_id=-1001234567890, type="supergroup", is_gone=True)
        await contacts.save_contacts(bot_id, [named, group, replace(seen, chat_id=6)], place=503)
        await contacts.save_contacts(bot_id, [replace(seen, last_seen_ms=NOW + 9, is_gone=True)], place=505)


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    return made
