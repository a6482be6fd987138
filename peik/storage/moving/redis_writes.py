"""Records into a Redis store: each with every index that the scripts of that store would have made for it."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from peik.core.letter import State, is_edit
from peik.jobs.model import JobRecord
from peik.storage.documents import contact_from_row
from peik.storage.moving import redis_rows as inbox_rows
from peik.storage.moving import redis_rows as rows
from peik.storage.moving.ends import RecordPage
from peik.storage.moving.records import (
    JOB_LEASE_MS,
    PHASE_APART,
    PHASE_COMPLETED,
    PHASE_FAILED,
    PHASE_IN_LANE,
    ApiKey,
    BotHold,
    Checkpoint,
    ContactPlace,
    DocumentRecord,
    FileId,
    Handled,
    IdempotencyKey,
    JobDay,
    JobMean,
    KnownChat,
    MovedAbsence,
    MovedArrival,
    MovedBot,
    MovedInbox,
    MovedJobLine,
    MovedLetter,
    MovedLogLine,
    MovedReader,
    MovedTally,
    Record,
    Secret,
    StoredContact,
    StoredJob,
    Story,
    WaitingHook,
    is_merged,
    lines_of,
)
from peik.storage.moving.records import Sequence as LastId
from peik.storage.moving.redis_rows import RedisBatch
from peik.storage.redis.documents import contact_of, document_of, name_of
from peik.storage.redis.documents import record_of as contact_record
from peik.storage.redis.jobs import JobState, held_of, record_of, state_of
from peik.storage.redis.records import chat_key, encode

_BLOCK = 1000  # ids per counter of what is still here
_PUT_OFF, _DEAD = 0, 3
COUNTER_OF = {
    "letters": "ids",
    "keys": "key_ids",
    "hooks": "hook_ids",
    "arrivals": "arrival_ids",
    "consumers": "consumer_ids",
    "outages": "outage_ids",
    "jobs": "job_ids",
    "job_numbers": "job_numbers",
}


class Surroundings(msgspec.Struct, frozen=True):
    """What has to be known besides a record to write it."""

    tries_since_ms: int  # older tries do not concern the pace any more
    epochs: dict[int, int]  # of the inboxes


def write(batch: RedisBatch, records: Sequence[Record], known: Surroundings) -> None:
    for record in records:
        if isinstance(record, OF_JOBS):
            write_job(batch, record)
        elif isinstance(record, OF_DOCUMENTS):
            write_document(batch, record)
        else:
            _WRITE[type(record)](batch, record, known)


def _letter(batch: RedisBatch, one: MovedLetter, known: Surroundings) -> None:
    bot, row, state = one.bot_id, rows.letter_row(one), rows.letter_state(one)
    batch.field("letters", one.id, encode(row))
    batch.count("blocks", one.id // _BLOCK)
    if state != rows.UNTOUCHED:
        batch.field("state", one.id, encode(state))
    if one.phase == PHASE_IN_LANE:
        _in_lane(batch, one, row.chat)
    elif is_merged(one):
        batch.listed("merged", one.merged_into or 0, one.id)
    elif one.phase == PHASE_APART:
        if one.awaits is not None:
            batch.listed("awaits", one.awaits, one.id)
        if one.due_at is not None:
            batch.member("due", _padded(one.id), one.due_at)
    else:
        batch.member("dead" if one.phase == PHASE_FAILED else "done", one.id, one.settled_at or 0)
    if one.expires_at is not None and one.phase < PHASE_COMPLETED and not is_merged(one):
        batch.member("expiry", one.id, one.expires_at)
    if one.enclosed is not None and one.phase in (PHASE_IN_LANE, PHASE_APART, PHASE_FAILED):
        batch.field("blobs", one.id, encode(rows.blobs_of(one)))
    if one.marked_at is not None:
        # Under nobody's epoch: the next holder of the lease finds it as that of one who died.
        batch.field(f"marks:{bot}", one.id, f"0:{one.marked_at}")
    for at_ms in _tries(one, known.tries_since_ms):
        weight = -one.weight if is_edit(one.method) else one.weight
        batch.member(f"recent:{bot}", f"{at_ms} {one.id} {weight} {row.chat}", at_ms)


def _in_lane(batch: RedisBatch, one: MovedLetter, chat: str) -> None:
    bot, lane = one.bot_id, f"{chat}|{one.thread}"
    batch.member(f"lane:{bot}:{lane}", one.id, one.rank * rows.RANK_STEP + one.number)
    batch.member(f"lanes:{bot}:{one.rank}", lane, 0)
    if one.target is not None:
        batch.listed(f"targets:{bot}", one.target, one.id)
    if one.due_at is not None:
        batch.member(f"backoff:{bot}", one.id, one.due_at)


class _Try(msgspec.Struct):
    at: int = 0
    outcome: str = ""


def _tries(one: MovedLetter, since_ms: int) -> list[int]:
    """When it may have arrived, as the other stores find it out from the letter itself."""
    found = []
    if one.phase == PHASE_COMPLETED and one.merged_into is None and (one.settled_at or 0) >= since_ms:
        found.append(one.settled_at or 0)
    is_late = one.phase < PHASE_COMPLETED or (one.settled_at or 0) >= since_ms
    if one.history is not None and is_late:
        tries = [msgspec.json.decode(line, type=_Try) for line in lines_of(one.history)]
        found += [line.at for line in tries if line.outcome == "uncertain" and line.at >= since_ms]
    return found


def _tally(batch: RedisBatch, one: MovedTally, known: Surroundings) -> None:
    counts = {"in_lane": one.in_lane, "apart": one.apart, "completed": one.completed, "failed": one.failed}
    for field, count in {**counts, "cancelled": one.cancelled, "numbers": one.next_number - 1}.items():
        batch.field(f"tally:{one.bot_id}", field, count)


def _bot(batch: RedisBatch, one: MovedBot, known: Surroundings) -> None:
    batch.field("bots", one.bot_id, rows.bot_row(one))


def _secret(batch: RedisBatch, one: Secret, known: Surroundings) -> None:
    batch.field("secrets", one.name, one.value)


def _key(batch: RedisBatch, one: ApiKey, known: Surroundings) -> None:
    batch.field("keys", one.id, rows.key_row(one))
    batch.text("keys_generation", one.id)  # a bell for nodes that run: it only has to be another one
    if one.revoked_at is None:
        batch.element("keys_live", one.id)
    if one.last_used_at is not None:
        batch.field("keys_used", one.id, one.last_used_at)


def _bot_hold(batch: RedisBatch, one: BotHold, known: Surroundings) -> None:
    batch.field("holds", one.bot_id, one.held_until)


def _chat(batch: RedisBatch, one: KnownChat, known: Surroundings) -> None:
    name = chat_key(one.chat)
    batch.member(f"chat_index:{one.bot_id}", name, 0)
    if one.same_as is not None:
        last = chat_key(one.same_as)
        batch.field(f"alias:{one.bot_id}", name, last)
        batch.element(f"alias_of:{one.bot_id}:{last}", name)
    row = rows.KnownRow(r=one.shut_reason, t=one.shut_at, h=one.held_until)
    if row != rows.KnownRow():
        batch.field(f"chats:{one.bot_id}", name, encode(row))


def _file_id(batch: RedisBatch, one: FileId, known: Surroundings) -> None:
    batch.field(f"files:{one.bot_id}", f"{one.digest} {one.kind}", one.file_id)


def _idempotency(batch: RedisBatch, one: IdempotencyKey, known: Surroundings) -> None:
    field = f"{one.bot_id}:{one.name}"
    batch.field("idempotency", field, encode([one.digest, str(one.letter_id), one.expires_at]))
    batch.member("idempotency_age", field, one.expires_at)


def _log(batch: RedisBatch, one: MovedLogLine, known: Surroundings) -> None:
    batch.field("log", one.id, rows.log_row(one))
    batch.member("log_age", one.id, one.created_at)


def _hook(batch: RedisBatch, one: WaitingHook, known: Surroundings) -> None:
    batch.field("hooks", one.id, rows.hook_row(one))
    batch.member(f"hooks:{one.endpoint}", _padded(one.id), one.due_at)
    batch.member("hooks_due", one.id, one.due_at)
    batch.member("endpoints", one.endpoint, 0)
    if one.body is not None:
        batch.field("hook_bodies", one.id, one.body)


def _inbox(batch: RedisBatch, one: MovedInbox, known: Surroundings) -> None:
    batch.element("inboxes", one.bot_id)
    for field in (
        "epoch",
        "epoch_at",
        "server",
        "last_update_id",
        "started_at",
        "seen_at",
        "received_at",
        "next_number",
        "expired",
    ):
        value = getattr(one, field)
        if value is not None:
            batch.field(f"inbox:{one.bot_id}", field, value)


def _reader(batch: RedisBatch, one: MovedReader, known: Surroundings) -> None:
    row = inbox_rows.ReaderRow(
        bot=str(one.bot_id),
        name=one.name,
        kind=one.kind,
        connections=one.connections_max,
        at=one.created_at,
        url=one.url,
        secret=one.secret,
        allowed=one.allowed,
    )
    batch.field("consumers", one.id, encode(row))
    batch.field(f"consumers:{one.bot_id}", one.name, one.id)
    batch.field("progress", one.id, encode([one.watermark, one.spans]))
    if one.seen_at is not None:
        batch.field("consumers_seen", one.id, one.seen_at)


def _checkpoint(batch: RedisBatch, one: Checkpoint, known: Surroundings) -> None:
    batch.member(f"watermarks:{one.consumer_id}", f"{one.at}:{one.watermark}", one.at)


def _arrival(batch: RedisBatch, one: MovedArrival, known: Surroundings) -> None:
    bot = one.bot_id
    batch.field("arrivals", one.id, inbox_rows.arrival_row(one))
    batch.count("arrival_blocks", one.id // _BLOCK)
    batch.member(f"order:{bot}:{one.only_for}", one.id, one.number)
    batch.member(f"arrivals:{bot}:{chat_key(one.lane)}", one.id, one.id)
    if one.only_for:
        batch.element(f"owners:{bot}", one.only_for)
    # Telegram may bring once more only what is of its numbering of today.
    if one.replay_of is None and known.epochs.get(bot) == one.epoch:
        batch.field(f"updates:{bot}:{one.epoch}", one.update_id, one.id)
        batch.at_least(f"inbox:{bot}", "newest", one.update_id)


def _story(batch: RedisBatch, one: Story, known: Surroundings) -> None:
    batch.field(f"stories:{one.consumer_id}", one.number, inbox_rows.story_row(one))
    if one.phase == _PUT_OFF:
        batch.member(f"put_off:{one.consumer_id}", one.number, one.due_at or 0)
    elif one.phase == _DEAD:
        batch.member(f"given_up:{one.consumer_id}", one.number, one.number)


def _handled(batch: RedisBatch, one: Handled, known: Surroundings) -> None:
    field = f"{chat_key(one.chat)}|{one.message_id}"
    batch.field(f"handled:{one.bot_id}", field, one.at)
    batch.member("handled_age", f"{one.bot_id} {field}", one.at)


def _outage(batch: RedisBatch, one: MovedAbsence, known: Surroundings) -> None:
    row = inbox_rows.OutageRow(str(one.bot_id), one.began_at, one.ended_at, one.last_number, one.settled_at)
    batch.field("outages", one.id, encode(row))
    batch.member(f"outages:{one.bot_id}", one.id, one.id)
    if one.settled_at is None:
        batch.member(f"outages_open:{one.bot_id}", one.id, one.id)


def _last_id(batch: RedisBatch, one: LastId, known: Surroundings) -> None:
    batch.text(COUNTER_OF[one.name], one.last)


def _padded(number: int) -> str:
    """Ids of one width stand in their order where scores are the same; as `padded` in prelude.lua."""
    return f"{number:016d}"


_WRITE: dict[type[Record], Callable[[RedisBatch, Any, Surroundings], None]] = {
    MovedTally: _tally,
    MovedBot: _bot,
    Secret: _secret,
    ApiKey: _key,
    BotHold: _bot_hold,
    KnownChat: _chat,
    FileId: _file_id,
    MovedLetter: _letter,
    IdempotencyKey: _idempotency,
    MovedLogLine: _log,
    WaitingHook: _hook,
    MovedInbox: _inbox,
    MovedReader: _reader,
    Checkpoint: _checkpoint,
    MovedArrival: _arrival,
    Story: _story,
    Handled: _handled,
    MovedAbsence: _outage,
    LastId: _last_id,
}


# Documents and known chats into a Redis store and out of it: what stands where is told in
# peik/storage/redis/documents.py.


OF_DOCUMENTS = (DocumentRecord, StoredContact, ContactPlace)


# ---- writing ----


def write_document(batch: RedisBatch, record: Record) -> None:
    match record:
        case DocumentRecord():
            batch.field(f"papers:{record.shelf}", record.paper_key, f"{record.version} {record.body}")
            batch.member(f"paper_order:{record.shelf}", record.paper_key, 0)
            batch.member("shelves", record.shelf, 0)
        case StoredContact():
            _contact(batch, record)
        case ContactPlace():
            batch.field("contact_places", record.bot_id, record.place)


def _contact(batch: RedisBatch, one: StoredContact) -> None:
    """As `contact_save` in contacts.lua."""
    name = name_of(one.chat_id)
    batch.field(f"contacts:{one.bot_id}", name, encode(contact_record(contact_from_row(msgspec.structs.astuple(one)))))
    batch.member(f"contact_order:{one.bot_id}", name, 0)
    batch.member(f"contact_seen:{one.bot_id}", name, one.last_seen)
    batch.member(f"contact_first:{one.bot_id}", name + (one.campaign or ""), one.first_seen)
    batch.count(f"contact_tally:{one.bot_id}", f"{one.type}:{int(one.is_gone)}:{one.language or ''}")


# ---- reading ----


class RedisDocumentReading:
    """Collection by collection and bot by bot, each along its own order."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def _key(self, name: str) -> str:
        return self._prefix + name

    async def documents(self, cursor: str | None, limit: int) -> RecordPage:
        return await self._walk(await self._collections(), self._documents_on, cursor, limit)

    async def contacts(self, cursor: str | None, limit: int) -> RecordPage:
        return await self._walk(await self._bots(), self._contacts_of, cursor, limit)

    async def places(self) -> list[Record]:
        found = await self._redis.hgetall(self._key("contact_places"))
        places = sorted((int(bot), int(place)) for bot, place in found.items())
        return [ContactPlace(bot, place) for bot, place in places if place > 0]

    async def count_documents(self) -> int:
        return sum([await self._redis.hlen(self._key(f"papers:{shelf}")) for shelf in await self._collections()])

    async def count_contacts(self) -> int:
        return sum([await self._redis.hlen(self._key(f"contacts:{bot}")) for bot in await self._bots()])

    async def _collections(self) -> list[str]:
        return [shelf.decode() for shelf in await self._redis.zrange(self._key("shelves"), 0, -1)]

    async def _bots(self) -> list[str]:
        """Whose chats can be here: they are forgotten with their bot."""
        return [str(bot) for bot in sorted(int(bot) for bot in await self._redis.hkeys(self._key("bots")))]

    async def _walk(
        self,
        parts: Sequence[str],
        read: Callable[[str, str | None, int], Awaitable[tuple[list[Record], str | None]]],
        cursor: str | None,
        limit: int,
    ) -> RecordPage:
        """One part after the other; the cursor says in which one, and behind which member."""
        records: list[Record] = []
        at, behind = msgspec.json.decode(cursor, type=tuple[str, str | None]) if cursor else (None, None)
        ahead = parts if at is None else parts[parts.index(at) :] if at in parts else []
        for part in ahead:
            some, last = await read(part, behind if part == at else None, limit - len(records))
            records += some
            if len(records) >= limit:
                return RecordPage(records, msgspec.json.encode((part, last)).decode())
        return RecordPage(records, None)

    async def _members(self, order: str, behind: str | None, limit: int) -> list[bytes]:
        first = "-" if behind is None else f"({behind}"
        found: list[bytes] = await self._redis.zrangebylex(self._key(order), first, "+", start=0, num=limit)
        return found

    async def _documents_on(self, shelf: str, behind: str | None, limit: int) -> tuple[list[Record], str | None]:
        keys = [key.decode() for key in await self._members(f"paper_order:{shelf}", behind, limit)]
        found = await self._redis.hmget(self._key(f"papers:{shelf}"), keys) if keys else []
        documents = [document_of(shelf, key, raw) for key, raw in zip(keys, found, strict=True) if raw is not None]
        return [DocumentRecord(one.collection, one.key, one.body, one.version) for one in documents], keys[
            -1
        ] if keys else behind

    async def _contacts_of(self, bot: str, behind: str | None, limit: int) -> tuple[list[Record], str | None]:
        names = [name.decode() for name in await self._members(f"contact_order:{bot}", behind, limit)]
        found = await self._redis.hmget(self._key(f"contacts:{bot}"), names) if names else []
        make: Callable[..., Record] = StoredContact
        records = [
            make(*msgspec.structs.astuple(contact_of(int(bot), name, raw)))
            for name, raw in zip(names, found, strict=True)
            if raw is not None
        ]
        return records, names[-1] if names else behind


# Jobs into a Redis store and out of it: what stands where is told in peik/storage/redis/jobs.py and lua/job_places.lua.


OF_JOBS = (StoredJob, MovedJobLine, JobDay, JobMean)


_UNTOUCHED = JobState()


def _whose(kind: str, user: str) -> str:
    """Kinds and users may hold the sign that parts them; as `whose` in job_names.lua, which counts bytes."""
    return f"{len(kind.encode())}:{kind}:{user}"


def _parted(whose: bytes) -> tuple[str, str]:
    size, _, rest = whose.partition(b":")
    end = int(size)
    return rest[:end].decode(), rest[end + 1 :].decode()


def _line_key(job: JobRecord) -> str:
    return f"job_line:{job.rank}:{_whose(job.kind, job.user)}"


# ---- writing ----


def write_job(batch: RedisBatch, record: Record) -> None:
    match record:
        case StoredJob():
            _job(batch, record)
        case MovedJobLine():
            batch.member(f"job_lines:{record.rank}:{record.kind}", record.user_id, record.ticket)
        case JobDay():
            _day(batch, record)
        case JobMean():
            batch.element("job_kinds", record.kind)
            batch.field("job_means", record.kind, record.mean_run_ms)


def _job(batch: RedisBatch, one: StoredJob) -> None:
    job = one.job
    state = state_of(job)
    batch.field("jobs", job.id, record_of(job, job.created_at_ms))
    batch.count("job_blocks", job.id // _BLOCK)
    batch.element("job_kinds", job.kind)
    if state != _UNTOUCHED:
        batch.field("job_state", job.id, encode(state))
    progress = {name: value for name, value in (("g", job.progress), ("t", job.progress_text)) if value is not None}
    if progress:
        batch.field("job_progress", job.id, encode(progress))
    if job.notice_state is not None:
        batch.field("job_notices", job.id, job.notice_state)
    if job.user:  # nobody's are found among all
        batch.element(f"job_of:{job.user}", job.id)
    if job.key is not None:
        batch.field("job_keys", _whose(job.kind, job.key), f"{job.id} {one.digest}")
    _place(batch, job, one.place)


def _place(batch: RedisBatch, job: JobRecord, place: int | None) -> None:
    """As `enter_place` in job_places.lua, and `begin` in job_runs.lua."""
    match job.state:
        case State.WAITING:
            batch.member(_line_key(job), job.id, place or 0)
            batch.count(f"job_waiting:{job.kind}", job.rank)
        case State.DELAYED:
            batch.member(f"job_due:{job.kind}", f"{job.id:016d}", job.due_at_ms or 0)
        case State.ACTIVE:
            batch.member(f"job_leases:{job.kind}", job.id, job.ends_at_ms or 0)
            batch.count(f"job_running:{job.kind}", job.user)
            batch.text("job_lease_ms", JOB_LEASE_MS)
        case _:
            batch.member("job_dead" if job.state is State.FAILED else "job_done", job.id, job.ended_at_ms or 0)
    batch.count(f"job_tally:{job.kind}", job.state)


def _day(batch: RedisBatch, one: JobDay) -> None:
    batch.member("job_days", one.day, one.day)
    for name, count in (("jobs", one.jobs), ("bytes", one.bytes)):
        if count:
            batch.field(f"job_day_{name}:{one.day}", _whose(one.kind, one.user_id), count)


# ---- reading ----


class RedisJobReading:
    """Jobs by their ids, and what is read whole."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def _key(self, name: str) -> str:
        return self._prefix + name

    async def _kinds(self) -> list[str]:
        return sorted(kind.decode() for kind in await self._redis.smembers(self._key("job_kinds")))

    async def states(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for kind in await self._kinds():
            for state, count in (await self._redis.hgetall(self._key(f"job_tally:{kind}"))).items():
                found[state.decode()] += int(count)
        return dict(found)

    async def jobs(self, ids: Sequence[int]) -> list[Record]:
        """Those of these ids that are here."""
        if not ids:
            return []
        pipe = self._redis.pipeline(transaction=False)
        for name in ("jobs", "job_state", "job_progress", "job_notices"):
            pipe.hmget(self._key(name), ids)
        columns = await pipe.execute()
        rows = [(one, *row, None) for one, *row in zip(ids, *columns, strict=True) if row[0] is not None]
        jobs = [held_of(row).job for row in rows]
        leases = await self._scores({job.id: f"job_leases:{job.kind}" for job in jobs if job.state is State.ACTIVE})
        places = await self._scores({job.id: _line_key(job) for job in jobs if job.state is State.WAITING})
        digests = await self._digests(jobs)
        whole = [msgspec.structs.replace(job, ends_at_ms=leases.get(job.id)) for job in jobs]
        return [StoredJob(job, digests.get(job.id, ""), places.get(job.id)) for job in whole]

    async def _scores(self, key_of: dict[int, str]) -> dict[int, int]:
        """Of members by the sorted sets in which they are. One that has left since its state was read has 0."""
        members: dict[str, list[int]] = defaultdict(list)
        for one, key in key_of.items():
            members[key].append(one)
        pipe = self._redis.pipeline(transaction=False)
        for key, some in members.items():
            pipe.zmscore(self._key(key), some)
        found = await pipe.execute() if members else []
        return {
            one: int(score or 0)
            for some, scores in zip(members.values(), found, strict=True)
            for one, score in zip(some, scores, strict=True)
        }

    async def _digests(self, jobs: Sequence[JobRecord]) -> dict[int, str]:
        keyed = {job.id: _whose(job.kind, job.key) for job in jobs if job.key is not None}
        found = await self._redis.hmget(self._key("job_keys"), list(keyed.values())) if keyed else []
        return {one: raw.decode().partition(" ")[2] for one, raw in zip(keyed, found, strict=True) if raw is not None}

    async def lines(self) -> list[Record]:
        records: list[Record] = []
        for kind in await self._kinds():
            ranks = sorted(int(rank) for rank in await self._redis.hkeys(self._key(f"job_waiting:{kind}")))
            for rank in ranks:
                users = await self._redis.zrange(self._key(f"job_lines:{rank}:{kind}"), 0, -1, withscores=True)
                records += [MovedJobLine(kind, rank, int(ticket), user.decode()) for user, ticket in users]
        return records

    async def days(self) -> list[Record]:
        records: list[Record] = []
        for day in await self._redis.zrange(self._key("job_days"), 0, -1):
            number = int(day)
            jobs = await self._redis.hgetall(self._key(f"job_day_jobs:{number}"))
            used = await self._redis.hgetall(self._key(f"job_day_bytes:{number}"))
            records += [
                JobDay(number, *_parted(whose), int(jobs.get(whose, 0)), int(used.get(whose, 0)))
                for whose in sorted({*jobs, *used})
            ]
        return records

    async def means(self) -> list[Record]:
        found = await self._redis.hgetall(self._key("job_means"))
        return [JobMean(kind.decode(), int(mean)) for kind, mean in sorted(found.items())]
