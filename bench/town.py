"""A store as it looks after years: what `bench.pages` walks through. Made once, by plain SQL and by the store's own hands.

All bots are paused and nobody polls for them, so that nothing of it changes while it is looked at.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.board import BOTS, CHATS, REASONS, fill
from peik.admin import audit
from peik.admin.audit import AuditLine
from peik.broadcasts.model import Broadcast, Phase, Recipient, RecipientCounts, RecipientState
from peik.broadcasts.repository import BroadcastRepository
from peik.clock import SystemClock
from peik.core.arrival import Update, read_update
from peik.core.documents import Contact, ContactFilter, Filing
from peik.core.token import Token
from peik.inbox.store import Burial
from peik.jobs.model import JobDraft, JobEnd, Ran
from peik.jobs.store import KindTerms
from peik.monitoring.figures import COLLECTION as MINUTES
from peik.monitoring.figures import MINUTE_MS, SHOWN_MINUTES
from peik.monitoring.values import ACCEPTED, DELIVERED, Sums
from peik.notifications.model import TEMPLATES, USERS, Template, User, UserLink, filed
from peik.outbox.store import BotRecord
from peik.storage.sqlite.store import SqliteStore

ARRIVALS = 200_000
READ = 0.9  # of each bot's arrivals, by its default consumer
DEAD_ARRIVALS = 500
CONTACTS = 100_000
RECIPIENTS = 100_000
JOBS = 5_000
ENDED_JOBS = 4_000
AUDITED = 2_000
SHUT = 5_000
USERS_LINKED = 5_000
TEMPLATES_KEPT = 40
FIRST_UPDATE = 500_000_000
SENT, DRAFT = "171234567800000001", "171234567800000002"  # ids of broadcasts
_STEP = 2_000
_DAY_MS = 86_400_000
_FAR_MS = 3_600_000
_encode = msgspec.json.Encoder().encode


def build(path: Path, *, letters: int) -> None:
    """Raises FileExistsError for a file that is there."""
    if path.exists():
        raise FileExistsError(path)
    asyncio.run(_build(path, letters))


async def _build(path: Path, letters: int) -> None:
    now_ms = int(time.time() * 1000)
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    try:
        for bot_id in BOTS:
            bot = BotRecord(
                bot_id=bot_id,
                token=Token.stored(f"{bot_id}:AAtest"),
                username=f"bench_{bot_id}_bot",
                paused="a measurement",
            )
            await store.save_bot(bot)
        fill(path, letters, now_ms=now_ms)
        numbers = await _arrivals(store, now_ms)
        await _contacts(store, now_ms, numbers)
        await _shut_chats(store, now_ms)
        await _broadcasts(store, now_ms)
        await _jobs(store, now_ms)
        await _documents(store, now_ms)
    finally:
        await store.close()


async def _arrivals(store: SqliteStore, now_ms: int) -> dict[int, int]:
    """The last number of each bot."""
    last = {}
    each = ARRIVALS // len(BOTS)
    for bot_id in BOTS:
        await store.inbox.open_inbox(bot_id, server="https://api.telegram.org", at_ms=now_ms)
        for start in range(0, each, _STEP):
            updates = [_update(number) for number in range(start, min(start + _STEP, each))]
            at_ms = now_ms - (each - start) * 300
            taken = await store.inbox.take_in(
                bot_id, updates, at_ms=at_ms, last_update_id=FIRST_UPDATE + start + len(updates) - 1
            )
        last[bot_id] = taken.last_number
        (consumer,) = await store.inbox.consumers(bot_id)
        first = taken.last_number - each + 1
        read = first + int(each * READ)
        buried = [
            Burial(
                number=read + number,
                tries=5,
                reason=f"HTTP 50{number % 4}",
                entry=f'{{"at":{now_ms},"outcome":"failed"}}',
            )
            for number in range(DEAD_ARRIVALS)
        ]
        await store.inbox.settle_arrivals(consumer.id, over=[(first, read - 1)], dead=buried, at_ms=now_ms)
    return last


def _update(number: int) -> Update:
    user = {"id": number % CHATS + 1, "is_bot": False, "first_name": f"Person {number % CHATS}", "language_code": "fa"}
    chat = {"id": number % CHATS + 1, "type": "private", "first_name": user["first_name"]}
    message = {
        "message_id": number,
        "from": user,
        "chat": chat,
        "date": 1_763_200_000,
        "text": f"hello for the {number}th time",
    }
    if number % 10:
        return read_update(_encode({"update_id": FIRST_UPDATE + number, "message": message}))
    press = {"id": str(number), "from": user, "message": message, "data": f"buy:{number}"}
    return read_update(_encode({"update_id": FIRST_UPDATE + number, "callback_query": press}))


async def _contacts(store: SqliteStore, now_ms: int, numbers: dict[int, int]) -> None:
    """All of them know the first bot, a tenth of them each other one. What came is looked through already."""
    for bot_id in BOTS:
        many = CONTACTS if bot_id == BOTS[0] else CONTACTS // 10
        for start in range(0, many, _STEP):
            page = [_contact(bot_id, number, now_ms) for number in range(start, min(start + _STEP, many))]
            await store.contacts.save_contacts(bot_id, page, place=numbers[bot_id])


def _contact(bot_id: int, number: int, now_ms: int) -> Contact:
    seen_ms = now_ms - (number * 7_919 % CONTACTS) * 600
    return Contact(
        bot_id=bot_id,
        chat_id=number + 1,
        type="private" if number % 50 else "supergroup",
        name=f"Person {number}",
        username=f"person_{number}" if number % 3 else None,
        language=("fa", "en", "de", None)[number % 4],
        first_seen_ms=seen_ms - number % 100 * _DAY_MS,
        last_seen_ms=seen_ms,
        is_gone=number % 20 == 0,
        campaign=f"spring_{number % 30}" if number % 5 == 0 else None,
    )


async def _shut_chats(store: SqliteStore, now_ms: int) -> None:
    shut = [store.shut_chat(BOTS[0], number * 3, REASONS[1], at_ms=now_ms) for number in range(1, SHUT + 1)]
    for start in range(0, SHUT, 500):
        await asyncio.gather(*shut[start : start + 500])


async def _broadcasts(store: SqliteStore, now_ms: int) -> None:
    """One that rests half way, and one for all known chats that nobody has started."""
    book = BroadcastRepository(store.documents)
    half = RECIPIENTS // 2
    common = {
        "bot_id": BOTS[0],
        "method": "sendMessage",
        "params": '{"text":"Spring is here"}',
        "created_at_ms": now_ms,
    }
    counts = RecipientCounts(delivered=half - half // 10, blocked=half // 10)
    sent = Broadcast(
        id=SENT, name="spring", phase=Phase.PAUSED, total=RECIPIENTS, counts=counts, next=half + 1, **common
    )
    await book.add(sent)
    await book.add(Broadcast(id=DRAFT, name="summer", wanted=ContactFilter(languages=frozenset({"fa"})), **common))
    for start in range(1, RECIPIENTS + 1, _STEP):
        await book.write(SENT, [(number, _recipient(number, half, now_ms)) for number in range(start, start + _STEP)])


def _recipient(number: int, half: int, now_ms: int) -> Recipient:
    if number > half:
        return Recipient(chat=number)
    state = RecipientState.BLOCKED if number % 10 == 0 else RecipientState.DELIVERED
    error = REASONS[1] if state is RecipientState.BLOCKED else None
    return Recipient(chat=number, state=state, letter_id=number, messages=(number,), error=error, ended_at_ms=now_ms)


async def _jobs(store: SqliteStore, now_ms: int) -> None:
    drafts = [JobDraft(kind=("fetch", "report")[number % 2], user=f"u{number % 300}") for number in range(JOBS)]
    await store.jobs.queue(drafts, quotas={}, at_ms=now_ms - _FAR_MS)
    terms = KindTerms(concurrency=JOBS, per_user=JOBS)
    for kind in ("fetch", "report"):
        taken = await store.jobs.take(kind, terms, limit=ENDED_JOBS // 2, lease_ms=_FAR_MS, at_ms=now_ms - _FAR_MS)
        ran = [_ran(job.id, job.run) for job in taken]
        await store.jobs.settle(ran, at_ms=now_ms)


def _ran(job_id: int, run: int) -> Ran:
    if job_id % 10:
        return Ran(job_id=job_id, run=run, end=JobEnd.DONE, result='{"files":1}')
    return Ran(job_id=job_id, run=run, end=JobEnd.HOPELESS, reason=f"The site answered 40{job_id % 4}.")


async def _documents(store: SqliteStore, now_ms: int) -> None:
    filings = [*_audited(now_ms), *_users(now_ms), *_templates(), *_minutes(now_ms)]
    for start in range(0, len(filings), _STEP):
        await store.documents.file(filings[start : start + _STEP])


def _audited(now_ms: int) -> Iterator[Filing]:
    for number in range(AUDITED):
        at_ms = now_ms - number * 60_000
        line = AuditLine(
            id=f"{at_ms:014d}-{number:08x}",
            at_ms=at_ms,
            who=f"person{number % 7}",
            action=("letters.bulk", "bots.pause", "sign_in")[number % 3],
            target=str(number),
            outcome=audit.Outcome.DONE,
            address="127.0.0.1",
        )
        yield Filing(collection=audit.COLLECTION, key=line.id, body=_encode(line).decode())


def _users(now_ms: int) -> Iterator[Filing]:
    for number in range(USERS_LINKED):
        user = User(user_id=f"user-{number}", link=UserLink(bot_id=BOTS[0], chat_id=number + 1, since_ms=now_ms))
        yield filed(USERS, user.user_id, user)


def _templates() -> Iterator[Filing]:
    for number in range(TEMPLATES_KEPT):
        template = Template(type=f"order.step{number}", language="fa", text="{title}\n{message}")
        yield filed(TEMPLATES, f"{template.type}/{template.language}", template)


def _minutes(now_ms: int) -> Iterator[Filing]:
    """A day of figures, as another node has filed them."""
    for minute in range(now_ms // MINUTE_MS - SHOWN_MINUTES, now_ms // MINUTE_MS):
        sums = Sums()
        sums.counts[ACCEPTED] = sums.counts[DELIVERED] = 600
        for tenths in range(1, 40):
            sums.end_to_end.add(tenths / 10)
            sums.tries.add(tenths / 20)
        yield Filing(collection=MINUTES, key=f"{minute:010d}:another:1", body=sums.as_document())
