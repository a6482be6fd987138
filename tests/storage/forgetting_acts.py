"""Somebody of whom every place of a store holds something, and what is left of them there."""

import re
from typing import Any

import msgspec
from redis import Redis

from peik.broadcasts.model import Broadcast, Recipient, RecipientState, key_of, ledger_of, written
from peik.core.documents import Contact, Filing
from peik.core.events import Events
from peik.erasure.service import Eraser
from peik.erasure.wiring import eraser_of
from peik.inbox.store import Burial, Deferral
from peik.jobs.model import JobEnd
from peik.notifications.model import (
    CODES,
    NOTICES,
    RATES,
    TRIES,
    USERS,
    WAITING,
    Code,
    Notice,
    NotifyRequest,
    Rates,
    RenderedText,
    Tries,
    User,
    UserLink,
    collection_of,
    filed,
    waiting_key,
)
from peik.outbox.store import HookDeferred, LetterFilter, Retention
from peik.schedules.model import BroadcastWork, JobWork, LetterWork, Schedule, ScheduleRun, ScheduleRunState, Terms
from peik.schedules.service import ScheduleBook, edit_filing, run_filing
from peik.settings.config import load
from peik.storage.open import AnyStore
from peik.storage.redis.documents import name_of
from tests.storage import inbox_acts, job_acts
from tests.storage.acts import HOUR, NEVER, NOW, SENT, accept, attempt, draft, enclosed, find
from tests.storage.moving.filling import URL, hooks, records
from tests.storage.places import BOT, Place, SqlitePlace

PERSON = 912345678
NAME = "mehrnaz@shop"  # what the shop calls them
MARKER = "saffron-and-rosewater"  # what only they said, and what was said to them
GROUP = -1009123456780
BLOB = "c0ffee" + "0" * 26


def message(update_id: int, chat: int, *, writer: int = PERSON, **more: Any) -> Any:
    """An update as strict readers want it."""
    name = MARKER if writer == PERSON else "Omid"
    user = {"id": writer, "is_bot": False, "first_name": name, "username": name}
    kind = {"type": "private", "first_name": name} if chat > 0 else {"type": "supergroup", "title": "Friends"}
    body = {"message_id": update_id, "date": NOW // 1000, "chat": {"id": chat, **kind}, "from": user, "text": name}
    return inbox_acts.raw(update_id, {"message": body | more})


def quoting(update_id: int) -> Any:
    """Somebody else's answer in a group, which quotes them."""
    theirs = {
        "message_id": 5, "date": 1, "chat": {"id": GROUP, "type": "supergroup"}, "text": MARKER,
        "from": {"id": PERSON, "is_bot": False, "first_name": MARKER},
    }  # fmt: skip
    more = {"text": "I agree", "reply_to_message": theirs}
    other = message(update_id, GROUP, writer=4321)
    whole = msgspec.json.decode(other.payload)
    whole["message"] |= more
    return inbox_acts.raw(update_id, whole)


async def live_through(store: AnyStore) -> None:
    """Everything that can happen to somebody here."""
    await _letters(store)
    await _arrivals(store)
    await _jobs(store)
    await _documents(store)
    await store.contacts.save_contacts(
        BOT,
        [
            Contact(
                bot_id=BOT, chat_id=PERSON, type="private", name=MARKER, username=MARKER, language="fa",
                first_seen_ms=NOW, last_seen_ms=NOW, campaign=MARKER,
            )
        ],
        place=10**6,
    )  # fmt: skip
    await store.shut_chat(BOT, PERSON, "Forbidden: bot was blocked by the user", at_ms=NOW)
    await store.readdress(BOT, f"@{MARKER}", PERSON)
    await store.keep_file_id(BOT, "d", "photo", "AgAC-theirs", at_ms=NOW)
    await store.inbox.note_handled(BOT, [(PERSON, 77)], at_ms=NOW)


async def _letters(store: AnyStore) -> None:
    sent, dead, old, group, *_ = await accept(
        store,
        draft(PERSON, text=MARKER, hook=URL, idempotency_key=f"{MARKER}-1", digest="x"),
        draft(PERSON, text=MARKER, enclosed=(enclosed(BLOB),), user_id=NAME, metadata=f'{{"user_id":"{NAME}"}}'),
        draft(PERSON, text=MARKER),
        draft(GROUP, text=MARKER, message_type="reply"),
        draft(PERSON, text=MARKER),  # waits
        draft(PERSON, text=MARKER, send_at_ms=NOW + HOUR),  # is delayed
        draft(f"user:{PERSON}", text=MARKER),
        draft(GROUP, text=MARKER, user_id=NAME),  # waits in a group, for them
    )
    await attempt(store, await find(store, old), SENT, at_ms=NOW - 100 * HOUR)
    await store.clean(Retention(completed_ms=50 * HOUR, dead_ms=500 * HOUR, log_ms=1000 * HOUR), at_ms=NOW, limit=100)
    await attempt(store, await find(store, sent), SENT)
    (told,) = [one for one in await hooks(store) if one.letter_id == sent]
    body = f'{{"chat_id":{PERSON},"text":"{MARKER}"}}'
    await store.settle_hooks([], [HookDeferred(hook_id=told.id, due_at_ms=NOW, tries=1, body=body)])
    await attempt(store, await find(store, dead), NEVER)
    quoted = f'{{"message_id":9,"reply_to_message":{{"from":{{"id":{PERSON}}},"text":"{MARKER}"}}}}'
    await attempt(store, await find(store, group), msgspec.structs.replace(SENT, result=quoted.encode()))


async def _arrivals(store: AnyStore) -> None:
    inbox = store.inbox
    first = 90_001
    default = await inbox_acts.named(inbox, "default")
    updates = [message(first + n, PERSON if n % 2 else GROUP) for n in range(6)]
    await inbox_acts.take(inbox, *updates, quoting(first + 6), message(first + 7, 4322, writer=4322, text="mine"))
    last = (await inbox.inbox(BOT)).last_number
    line = f'{{"words":"KeyError: {MARKER} of {PERSON}"}}'
    await inbox.settle_arrivals(
        default.id,
        deferred=[Deferral(number=last - 7, tries=1, due_at_ms=NOW, entry=line)],
        dead=[Burial(number=last - 6, tries=5, reason=f"KeyError: {MARKER}", entry=line)],
        at_ms=NOW,
    )


async def _jobs(store: AnyStore) -> None:
    params = f'{{"chat_id":{PERSON},"text":"{MARKER}"}}'
    done, *_ = await job_acts.queue(
        store.jobs,
        job_acts.a_job(str(PERSON), kind="theirs", params=params),
        job_acts.a_job(NAME, kind="theirs", params=params),
        job_acts.a_job(str(PERSON), kind="theirs", params=params, key=MARKER, digest="y"),
    )
    taken = {one.id: one for one in await job_acts.take(store.jobs, 1, kind="theirs")}
    await job_acts.end(store.jobs, taken[done], JobEnd.HOPELESS, reason=f"{MARKER} failed", bytes_used=5)


async def _documents(store: AnyStore) -> None:
    request = NotifyRequest(type="order", message=MARKER, user_id=NAME, bot_id=BOT)
    notice = Notice(
        id="n1", request=request, said=RenderedText(title="", message=MARKER), created_at_ms=NOW, due_at_ms=NOW + HOUR
    )
    link = UserLink(bot_id=BOT, chat_id=PERSON, since_ms=NOW)
    given = Broadcast(id="b1", bot_id=BOT, method="sendMessage", params="{}", created_at_ms=NOW, total=2)
    lines = [
        Recipient(chat=PERSON, values={"name": MARKER}, state=RecipientState.DELIVERED, messages=(4,)),
        Recipient(chat=PERSON, values={"name": MARKER}),
        Recipient(chat=4321, values={"name": "Omid"}),
    ]
    audit = {"id": "0", "who": "admin", "action": "setChat", "target": f"{BOT}/{PERSON}", "detail": f"chat {PERSON}"}
    await store.documents.file(
        [
            filed(USERS, NAME, User(user_id=NAME, link=link)),
            filed(CODES, "c0de", Code(user_id=NAME, bot_id=BOT, expires_at_ms=NOW, used_by=PERSON)),
            filed(TRIES, f"{BOT}/{PERSON}", Tries(shown=((1, NOW),))),
            filed(RATES, f"u/{NAME}", Rates(sent_ms=(NOW,))),
            filed(NOTICES, notice.id, notice),
            filed(WAITING, waiting_key(notice), {}),
            filed(collection_of(f"u/{NAME}"), notice.id, {}),
            Filing(collection="broadcasts", key="b1", body=written(given)),
            *(
                Filing(collection=ledger_of("b1"), key=key_of(number), body=written(line))
                for number, line in enumerate(lines, start=1)
            ),
            filed("audit", "00000000000001-aa", audit),
            filed("alerts", f"bot_blocked/{PERSON}", {"text": "of one chat"}),
            filed("minutes", "00001", {"delivered": 7, "error": f"chat {PERSON} is gone"}),
        ]
    )
    await _schedules(store)


async def _schedules(store: AnyStore) -> None:
    book = ScheduleBook(store.documents)
    theirs = Terms(cron="@daily", bot_id=BOT, letter=LetterWork(params={"chat_id": PERSON, "text": MARKER}))
    job = Terms(cron="@daily", job=JobWork(kind="theirs", params={"chat": PERSON}, user=NAME))
    text = f"ask {PERSON}"
    several = Terms(
        cron="@daily", bot_id=BOT, broadcast=BroadcastWork(params={"text": text}, chat_ids=[4321, str(PERSON)])
    )
    for name, terms in (("theirs", theirs), ("job", job), ("several", several), (f"to-{PERSON}", several)):
        await book.add(Schedule(name=name, terms=terms, created_at_ms=NOW, decided_ms=NOW, next_at_ms=NOW))
    refused = ScheduleRun(due_at_ms=NOW, state=ScheduleRunState.REFUSED, at_ms=NOW, reason=f"chat {PERSON} not found")
    one, _ = await book.get("several")
    await store.documents.file([run_filing("several", refused), edit_filing(one, by=NAME, at_ms=NOW)])


class StoredLetters:
    """What erasing asks of the service of letters, without one."""

    def __init__(self, store: AnyStore) -> None:
        self._store = store

    async def cancel(self, letter_id: int) -> None:
        await self._store.cancel(letter_id, at_ms=NOW)

    async def cancel_all(self, wanted: LetterFilter) -> int:
        return len(await self._store.cancel_all(wanted, at_ms=NOW, limit=1000))


def forgetter(place: Place, store: AnyStore, *, is_live: bool = False, **flags: str) -> Eraser:
    flags.setdefault("backups", "/nonexistent")
    return eraser_of(
        load(flags, environment={}),
        clock=place.clock,
        settled=place.clock,
        events=Events(),
        letters=StoredLetters(store),  # type: ignore[arg-type]  it is asked for nothing else
        bots=lambda: [BOT],
        store=store,
        archive=None,
        is_live=is_live,
    )


async def remains(place: Place) -> list[str]:
    """Every record that still names them, in whichever place; and on Redis every key as well."""
    found = [
        f"{kind}: {shown}"
        for kind, some in (await records(place)).items()
        for shown in (msgspec.json.encode(one).decode() for one in some)
        if _WORDS.search(shown)
    ]
    if not isinstance(place, SqlitePlace) and str(place.url).startswith(("redis", "unix")):
        found += _keys(place)
    return found


_WORDS = re.compile(rf"{MARKER}|{NAME}|(?<!\d){PERSON}(?!\d)|{name_of(PERSON)}")


def _keys(place: Any) -> list[str]:
    found = []
    with Redis.from_url(str(place.url).partition("?")[0]) as redis:
        for key in redis.scan_iter(match=f"{place.prefix}*", count=1000):
            dump = b"" if key.endswith(b"}:nodes") else _whole(redis, key)
            if _WORDS.search(key.decode("latin-1")) or _WORDS.search(dump.decode("latin-1")):
                found.append(f"{key!r}: {dump!r}")
    return found


def _whole(redis: Any, key: bytes) -> bytes:
    match redis.type(key):
        case b"string":
            return bytes(redis.get(key))
        case b"hash":
            return b"\n".join(part for pair in redis.hgetall(key).items() for part in pair)
        case b"zset":
            return b"\n".join(redis.zrange(key, 0, -1))
        case b"set":
            return b"\n".join(redis.smembers(key))
    return b""
