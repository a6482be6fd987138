"""Records into a Redis store: each with every index that the scripts of that store would have made for it."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from peik.storage.moving import redis_documents, redis_jobs
from peik.storage.moving import redis_rows as inbox_rows
from peik.storage.moving import redis_rows as rows
from peik.storage.moving.records import (
    PHASE_APART,
    PHASE_COMPLETED,
    PHASE_FAILED,
    PHASE_IN_LANE,
    ApiKey,
    BotHold,
    Checkpoint,
    FileId,
    Handled,
    IdempotencyKey,
    KnownChat,
    MovedAbsence,
    MovedArrival,
    MovedBot,
    MovedInbox,
    MovedLetter,
    MovedLogLine,
    MovedReader,
    MovedTally,
    Record,
    Secret,
    Story,
    WaitingHook,
    is_merged,
    lines_of,
)
from peik.storage.moving.records import Sequence as LastId
from peik.storage.moving.redis_rows import RedisBatch
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
        if isinstance(record, redis_jobs.OF_JOBS):
            redis_jobs.write(batch, record)
        elif isinstance(record, redis_documents.OF_PAPERS):
            redis_documents.write(batch, record)
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
        batch.member(f"recent:{bot}", f"{at_ms} {one.id} {one.weight} {row.chat}", at_ms)


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
