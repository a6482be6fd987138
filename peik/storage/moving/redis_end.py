"""The end of a move that is a prefix of a Redis or Valkey server."""

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from redis import exceptions

from peik.errors import Conflict, NotFound
from peik.storage.moving import ends as progresses
from peik.storage.moving import redis_rows
from peik.storage.moving import redis_rows as inbox_rows
from peik.storage.moving import redis_rows as rows
from peik.storage.moving.ends import KEY, MOVED, MoveProgress, RecordPage
from peik.storage.moving.records import (
    KINDS,
    NUMBERED,
    PHASE_APART,
    PHASE_IN_LANE,
    BotHold,
    Checkpoint,
    FileId,
    Handled,
    IdempotencyKey,
    KnownChat,
    MovedAbsence,
    MovedInbox,
    MovedReader,
    MovedTally,
    Record,
    Secret,
)
from peik.storage.moving.records import Sequence as LastId
from peik.storage.moving.redis_rows import RedisBatch
from peik.storage.moving.redis_writes import COUNTER_OF, RedisDocumentReading, RedisJobReading, Surroundings, write
from peik.storage.redis import letters
from peik.storage.redis.client import RedisClient, translate
from peik.storage.redis.nodes import RedisFiles
from peik.storage.redis.records import chat_of

# Records out of a Redis store, page by page.
#
# Letters, arrivals and jobs are walked by their ids, which are counted in blocks; what has an index is walked along
# it; the rest is little, and read whole.


# Records out of a Redis store of which there are few: each kind is read whole.


_INBOX = (
    "epoch", "epoch_at", "server", "last_update_id", "started_at", "seen_at", "received_at", "next_number", "expired",
)  # fmt: skip
_TALLY = ("numbers", "in_lane", "apart", "completed", "failed", "cancelled")
_PER_BOT = ("tally", "chat_index", "files")


class RedisRest:
    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._bots: dict[str, list[int]] | None = None

    def _key(self, name: str) -> str:
        return self._prefix + name

    async def bots_of(self, family: str) -> list[int]:
        """Bots that have a key of this family, those that were removed too. One walk through all keys finds all of them."""
        if self._bots is None:
            found: dict[str, set[int]] = {family: set() for family in _PER_BOT}
            async for key in self._redis.scan_iter(match=_escaped(self._prefix) + "*", count=5000):
                name, _, bot = key.decode(errors="replace").removeprefix(self._prefix).partition(":")
                if name in found and bot.isdigit():
                    found[name].add(int(bot))
            self._bots = {name: sorted(bots) for name, bots in found.items()}
        return self._bots[family]

    async def _hash(self, key: str) -> list[tuple[int, bytes]]:
        """A hash by ids, in their order."""
        found = await self._redis.hgetall(self._key(key))
        return sorted((int(one), value) for one, value in found.items())

    async def tallies(self) -> list[Record]:
        records: list[Record] = []
        for bot in await self.bots_of("tally"):
            last, *counts = (int(cell or 0) for cell in await self._redis.hmget(self._key(f"tally:{bot}"), _TALLY))
            if last or any(counts):
                records.append(MovedTally(bot, last + 1, *counts))
        return records

    async def all_bots(self) -> list[Record]:
        return [rows.bot_of(bot, raw) for bot, raw in await self._hash("bots")]

    async def secrets(self) -> list[Record]:
        found = await self._redis.hgetall(self._key("secrets"))
        return [Secret(name.decode(), value.decode()) for name, value in sorted(found.items())]

    async def keys(self) -> list[Record]:
        live = {int(one) for one in await self._redis.smembers(self._key("keys_live"))}
        used = dict(await self._hash("keys_used"))
        return [
            rows.key_of(one, raw, is_live=one in live, used_at=int(used[one]) if one in used else None)
            for one, raw in await self._hash("keys")
        ]

    async def holds(self) -> list[Record]:
        return [BotHold(bot, int(until)) for bot, until in await self._hash("holds")]

    async def file_ids(self) -> list[Record]:
        records: list[Record] = []
        for bot in await self.bots_of("files"):
            found = await self._redis.hgetall(self._key(f"files:{bot}"))
            for field, file_id in sorted(found.items()):
                digest, _, kind = field.decode().partition(" ")
                records.append(FileId(bot, digest, kind, file_id.decode(), 0))
        return records

    async def hooks(self) -> list[Record]:
        due = {
            int(one): int(at) for one, at in await self._redis.zrange(self._key("hooks_due"), 0, -1, withscores=True)
        }
        bodies = dict(await self._hash("hook_bodies"))
        return [
            rows.hook_of(one, raw, due_at=due.get(one, 0), body=bodies[one].decode() if one in bodies else None)
            for one, raw in await self._hash("hooks")
        ]

    async def inbox_records(self) -> list[MovedInbox]:
        bots = sorted(int(bot) for bot in await self._redis.smembers(self._key("inboxes")))
        records = []
        for bot in bots:
            row = dict(zip(_INBOX, await self._redis.hmget(self._key(f"inbox:{bot}"), _INBOX), strict=True))
            server = row.pop("server")
            numbers = {field: None if cell is None else int(cell) for field, cell in row.items()}
            expired = numbers.pop("expired") or 0
            make: Callable[..., MovedInbox] = MovedInbox
            records.append(make(bot_id=bot, server=server.decode(), expired=expired, updated_at=None, **numbers))
        return records

    async def inboxes(self) -> list[Record]:
        return list(await self.inbox_records())

    async def consumers(self) -> list[Record]:
        seen = dict(await self._hash("consumers_seen"))
        progress = dict(await self._hash("progress"))
        records: list[Record] = []
        for one, raw in await self._hash("consumers"):
            row = inbox_rows.decode_reader(raw)
            watermark, spans = inbox_rows.decode_progress(progress[one]) if one in progress else (0, ())
            records.append(
                MovedReader(
                    id=one,
                    bot_id=int(row.bot),
                    name=row.name,
                    kind=row.kind,
                    url=row.url,
                    secret=row.secret,
                    allowed=row.allowed,
                    connections_max=row.connections,
                    watermark=watermark,
                    seen_at=int(seen[one]) if one in seen else None,
                    created_at=row.at,
                    spans=spans,
                )
            )
        return records

    async def _consumer_ids(self) -> Iterable[int]:
        return [one for one, _ in await self._hash("consumers")]

    async def checkpoints(self) -> list[Record]:
        records: list[Record] = []
        for one in await self._consumer_ids():
            for member, at in await self._redis.zrange(self._key(f"watermarks:{one}"), 0, -1, withscores=True):
                records.append(Checkpoint(one, int(at), int(member.partition(b":")[2])))
        return records

    async def stories(self) -> list[Record]:
        return [
            inbox_rows.story_of(one, number, raw)
            for one in await self._consumer_ids()
            for number, raw in await self._hash(f"stories:{one}")
        ]

    async def outages(self) -> list[Record]:
        records: list[Record] = []
        for one, raw in await self._hash("outages"):
            row = inbox_rows.decode_outage(raw)
            records.append(MovedAbsence(one, int(row.bot), row.began, row.ended, row.last, row.settled))
        return records

    async def last_ids(self) -> list[Record]:
        found = await self._redis.mget([self._key(COUNTER_OF[name]) for name in NUMBERED])
        given = sorted((name, int(last)) for name, last in zip(NUMBERED, found, strict=True) if last)
        return [LastId(name, last) for name, last in given]


def _escaped(prefix: str) -> str:
    """A prefix may hold no sign that stands for others, but its hash tag is in braces."""
    return "".join(f"\\{sign}" if sign in "*?[]\\{}" else sign for sign in prefix)


_BLOCK = 1000


class RedisReading:
    """One walk through a store. What does not change while nobody writes is read once."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._blocks: dict[str, list[int]] = {}
        self._small: dict[str, list[Record]] = {}
        self._gone: set[int] | None = None
        self._job_reading = RedisJobReading(redis, prefix)
        self.job_states = self._job_reading.states
        self._document_reading = RedisDocumentReading(redis, prefix)
        self._rest = RedisRest(redis, prefix)
        self._walks: dict[str, Callable[[str | None, int], Awaitable[RecordPage]]] = {
            "letters": self._letters,
            "arrivals": self._arrivals,
            "jobs": self._jobs,
            "papers": self._document_reading.documents,
            "contacts": self._document_reading.contacts,
            "chats": self._chats,
            "idempotency": self._idempotency,
            "message_log": self._log,
            "handled": self._handled,
        }
        self._whole: dict[str, Callable[[], Awaitable[list[Record]]]] = {
            "tallies": self._rest.tallies,
            "bots": self._rest.all_bots,
            "secrets": self._rest.secrets,
            "keys": self._rest.keys,
            "bot_holds": self._rest.holds,
            "file_ids": self._rest.file_ids,
            "hooks": self._rest.hooks,
            "inboxes": self._rest.inboxes,
            "consumers": self._rest.consumers,
            "watermarks": self._rest.checkpoints,
            "deliveries": self._rest.stories,
            "outages": self._rest.outages,
            "job_lines": self._job_reading.lines,
            "job_days": self._job_reading.days,
            "job_means": self._job_reading.means,
            "contact_places": self._document_reading.places,
            "sequences": self._rest.last_ids,
        }

    async def page(self, kind: str, cursor: str | None, limit: int) -> RecordPage:
        walk = self._walks.get(kind)
        if walk is not None:
            return await walk(cursor, limit)
        if kind not in self._small:
            self._small = {kind: await self._whole[kind]()}
        start = int(cursor or 0)
        records = self._small[kind]
        end = start + limit
        return RecordPage(records[start:end], str(end) if end < len(records) else None)

    async def counts(self) -> dict[str, int]:
        found = {kind: len(await read()) for kind, read in self._whole.items()}
        bots = await self._rest.bots_of("chat_index")
        found["chats"] = sum([await self._redis.zcard(self._key(f"chat_index:{bot}")) for bot in bots])
        found["letters"] = await self._redis.hlen(self._key("letters"))
        found["arrivals"] = await self._redis.hlen(self._key("arrivals")) - len(await self._gone_ids())
        found["jobs"] = await self._redis.hlen(self._key("jobs"))
        found["papers"] = await self._document_reading.count_documents()
        found["contacts"] = await self._document_reading.count_contacts()
        found["idempotency"] = await self._redis.hlen(self._key("idempotency"))
        found["message_log"] = await self._redis.hlen(self._key("log"))
        found["handled"] = sum(
            [await self._redis.hlen(self._key(f"handled:{one.bot_id}")) for one in await self._rest.inbox_records()]
        )
        return found

    def _key(self, name: str) -> str:
        return self._prefix + name

    # ---- letters and arrivals ----

    async def _ids(self, key: str, cursor: str | None, limit: int) -> tuple[list[int], str | None]:
        """Ids that may be there, of whole blocks, and where to go on."""
        if key not in self._blocks:
            self._blocks[key] = sorted(int(block) for block in await self._redis.hkeys(self._key(key)))
        start = int(cursor or 0)
        ahead = [block for block in self._blocks[key] if block >= start]
        counts = await self._redis.hmget(self._key(key), ahead[:50]) if ahead else []
        taken, here = 0, 0
        for count in counts:
            if here and here + int(count or 0) > limit:
                break
            taken, here = taken + 1, here + int(count or 0)
        ids = [one for block in ahead[:taken] for one in range(block * _BLOCK, (block + 1) * _BLOCK)]
        return ids, str(ahead[taken]) if taken < len(ahead) else None

    async def _letters(self, cursor: str | None, limit: int) -> RecordPage:
        ids, next_cursor = await self._ids("blocks", cursor, limit)
        if not ids:
            return RecordPage([], None)
        found, states = await self._both("letters", "state", ids)
        known = [
            (one, rows.decode_letter(raw), rows.UNTOUCHED if state is None else rows.decode_state(state))
            for one, raw, state in zip(ids, found, states, strict=True)
            if raw is not None
        ]
        numbers = await self._places(known)
        marks = await self._marks(known)
        records: list[Record] = []
        for one, row, state in known:
            waits_aside = state.p == PHASE_APART and state.d is None  # it goes back to its old place
            number = numbers.get(one, 0) if state.p == PHASE_IN_LANE else (state.n or 0) if waits_aside else 0
            records.append(rows.letter_of(one, row, state, number=number, marked_at=marks.get(one)))
        return RecordPage(records, next_cursor)

    async def _both(self, first: str, second: str, ids: list[int]) -> tuple[list[Any], list[Any]]:
        pipe = self._redis.pipeline(transaction=False)
        pipe.hmget(self._key(first), ids)
        pipe.hmget(self._key(second), ids)
        return tuple(await pipe.execute())

    async def _places(self, known: "list[tuple[int, rows.LetterRow, rows.LetterState]]") -> dict[int, int]:
        """Numbers of letters in their lanes: what their places there say."""
        lanes: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for one, row, state in known:
            if state.p == PHASE_IN_LANE:
                lanes[f"lane:{row.bot}:{state.c or row.chat}|{row.thread}"].append((one, row.rank))
        pipe = self._redis.pipeline(transaction=False)
        for lane, members in lanes.items():
            pipe.zmscore(self._key(lane), [one for one, _ in members])
        scores = await pipe.execute() if lanes else []
        return {
            one: int(score) - rank * rows.RANK_STEP
            for members, found in zip(lanes.values(), scores, strict=True)
            for (one, rank), score in zip(members, found, strict=True)
            if score is not None
        }

    async def _marks(self, known: "list[tuple[int, rows.LetterRow, rows.LetterState]]") -> dict[int, int]:
        bots: dict[str, list[int]] = defaultdict(list)
        for one, row, state in known:
            if state.p == PHASE_IN_LANE:
                bots[row.bot].append(one)
        found: dict[int, int] = {}
        for bot, ids in bots.items():
            marks = await self._redis.hmget(self._key(f"marks:{bot}"), ids)
            found.update((one, int(mark.partition(b":")[2])) for one, mark in zip(ids, marks, strict=True) if mark)
        return found

    async def _arrivals(self, cursor: str | None, limit: int) -> RecordPage:
        ids, next_cursor = await self._ids("arrival_blocks", cursor, limit)
        if not ids:
            return RecordPage([], None)
        gone = await self._gone_ids()
        found = await self._redis.hmget(self._key("arrivals"), ids)
        records: list[Record] = [
            inbox_rows.arrival_of(one, raw)
            for one, raw in zip(ids, found, strict=True)
            if raw is not None and one not in gone
        ]
        return RecordPage(records, next_cursor)

    async def _jobs(self, cursor: str | None, limit: int) -> RecordPage:
        ids, next_cursor = await self._ids("job_blocks", cursor, limit)
        return RecordPage(await self._job_reading.jobs(ids), next_cursor)

    async def _gone_ids(self) -> set[int]:
        """Arrivals of bots that were removed, and that nobody has cleared away yet."""
        if self._gone is None:
            asides = await self._redis.smembers(self._key("gone"))
            self._gone = {int(one) for aside in asides for one in await self._redis.zrange(aside, 0, -1)}
        return self._gone

    # ---- along an index ----

    async def _along(self, index: str, cursor: str | None, limit: int) -> tuple[list[tuple[str, int]], str | None]:
        """The next members of a sorted set with their scores."""
        start = int(cursor or 0)
        found = await self._redis.zrange(self._key(index), start, start + limit - 1, withscores=True)
        return [(one.decode(), int(score)) for one, score in found], str(start + limit) if len(found) == limit else None

    async def _many(self, key: str, fields: list[str]) -> list[Any]:
        return await self._redis.hmget(self._key(key), fields) if fields else []

    async def _idempotency(self, cursor: str | None, limit: int) -> RecordPage:
        members, next_cursor = await self._along("idempotency_age", cursor, limit)
        records: list[Record] = []
        for (field, _), raw in zip(
            members, await self._many("idempotency", [field for field, _ in members]), strict=True
        ):
            if raw is not None:
                bot, _, name = field.partition(":")
                digest, letter, expires_at = msgspec.msgpack.decode(raw)
                records.append(IdempotencyKey(int(bot), name, digest, int(letter), int(expires_at)))
        return RecordPage(records, next_cursor)

    async def _log(self, cursor: str | None, limit: int) -> RecordPage:
        members, next_cursor = await self._along("log_age", cursor, limit)
        found = await self._many("log", [one for one, _ in members])
        records: list[Record] = [
            rows.log_of(int(one), raw) for (one, _), raw in zip(members, found, strict=True) if raw is not None
        ]
        return RecordPage(records, next_cursor)

    async def _handled(self, cursor: str | None, limit: int) -> RecordPage:
        members, next_cursor = await self._along("handled_age", cursor, limit)
        by_bot: dict[str, list[str]] = defaultdict(list)
        for member, _ in members:
            bot, _, field = member.partition(" ")
            by_bot[bot].append(field)
        records: list[Record] = []
        for bot, fields in by_bot.items():
            for field, at in zip(fields, await self._many(f"handled:{bot}", fields), strict=True):
                if at is not None:  # it went with its bot
                    chat, _, message_id = field.rpartition("|")
                    records.append(Handled(int(bot), int(chat[1:]), int(message_id), int(at)))
        return RecordPage(records, next_cursor)

    async def _chats(self, cursor: str | None, limit: int) -> RecordPage:
        bots = await self._rest.bots_of("chat_index")
        if not bots:
            return RecordPage([], None)
        bot, start = msgspec.json.decode(cursor, type=tuple[int, int]) if cursor else (bots[0], 0)
        members, rest = await self._along(f"chat_index:{bot}", str(start), limit)
        names = [name for name, _ in members]
        aliases = await self._many(f"alias:{bot}", names)
        known = await self._many(f"chats:{bot}", names)
        records: list[Record] = []
        for name, alias, raw in zip(names, aliases, known, strict=True):
            row = rows.KnownRow() if raw is None else rows.decode_known(raw)
            same_as = None if alias is None else int(alias[1:])
            records.append(KnownChat(bot, chat_of(name), same_as, row.r, row.t, row.h))
        following = (bot, int(rest)) if rest else next(((one, 0) for one in bots if one > bot), None)
        return RecordPage(records, None if following is None else msgspec.json.encode(following).decode())


_RECENT_MS = 120_000  # as RECENT_MS in moving.lua


class RedisEnd:
    """See `MoveEnd`. A server has no snapshot for a walk of minutes: an origin in use may be read half old and half new."""

    def __init__(self, url: str) -> None:
        self._client = RedisClient(url)
        self._tries_since_ms = int(time.time() * 1000) - _RECENT_MS
        self._epochs: dict[int, int] = {}
        prefix = self._client.prefix.partition("{")[0]
        self.shown = f"{self._client.shown}?prefix={prefix}"
        self.files = RedisFiles(self._client)

    async def open(self, *, is_target: bool) -> None:
        await self._client.open()
        self._reading = RedisReading(self._client.redis, self._client.prefix)
        if not is_target and not await self._client.redis.exists(
            *map(self._key, ("bots", "ids", "arrival_ids", "job_ids", "shelves"))
        ):
            raise NotFound(code="no_store", detail=f"There is no store of Peik's at {self.shown}. Look at --from.")

    async def close(self) -> None:
        await self._client.close()

    def _key(self, name: str) -> str:
        return self._client.prefix + name

    async def used_by(self) -> str | None:
        seconds, micros = await self._client.redis.time()
        now_ms = seconds * 1000 + micros // 1000
        alive: list[Any] = await self._client.redis.zrangebyscore(
            self._key("alive"), f"({now_ms}", "+inf", start=0, num=1
        )
        return f"{self.shown} is in use: the node {alive[0].decode()} runs on it" if alive else None

    async def lives(self) -> int:
        return int(await self._client.redis.get(self._key("epoch")) or 0)

    async def look_again(self) -> None:
        self._reading = RedisReading(self._client.redis, self._client.prefix)

    async def counts(self) -> dict[str, int]:
        found = await self._reading.counts()
        return {kind: found[kind] for kind in KINDS}

    async def page(self, kind: str, cursor: str | None, limit: int) -> RecordPage:
        return await self._reading.page(kind, cursor, limit)

    async def job_states(self) -> dict[str, int]:
        return await self._reading.job_states()

    async def blobs(self) -> list[str]:
        return sorted(await letters.blobs(self._client))

    async def progress(self) -> MoveProgress | None:
        found = await self._client.redis.get(self._key(KEY))
        return None if found is None else progresses.decode(found)

    async def moved_to(self) -> str | None:
        found = await self._client.redis.get(self._key(MOVED))
        return found.decode() if isinstance(found, bytes) else found

    async def note_moved(self, target: str | None) -> None:
        if target is None:
            await self._client.redis.delete(self._key(MOVED))
        else:
            await self._client.redis.set(self._key(MOVED), target)

    async def begin(self, progress: MoveProgress) -> None:
        await self._client.redis.set(self._key(KEY), progresses.encode(progress))

    async def write(self, kind: str, records: Sequence[Record], progress: MoveProgress) -> None:
        batch = RedisBatch(self._client.prefix)
        if kind == "arrivals" and not self._epochs:
            inboxes = (await self._reading.page("inboxes", None, 10**9)).records
            self._epochs = {one.bot_id: one.epoch for one in inboxes if isinstance(one, MovedInbox)}
        write(batch, records, Surroundings(tries_since_ms=self._tries_since_ms, epochs=self._epochs))
        batch.text(KEY, progresses.encode(progress))
        pipe: Any
        async with self._client.redis.pipeline(transaction=True) as pipe:
            # A process that takes the move over writes here, and then this transaction does not happen.
            await pipe.watch(self._key(KEY))
            before = await pipe.get(self._key(KEY))
            if before is None or progresses.decode(before).run != progress.run:
                raise Conflict(code="replaced", detail="Another `peik migrate` has taken this move over.")
            await batch.prepare(pipe)
            pipe.multi()
            batch.put(pipe)
            await pipe.execute()

    fit = staticmethod(redis_rows.fit)

    def explain(self, error: BaseException) -> BaseException:
        return translate(error) if isinstance(error, exceptions.RedisError) else error
