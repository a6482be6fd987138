"""Records out of a Redis store of which there are few: each kind is read whole."""

from collections.abc import Callable, Iterable
from typing import Any

from peik.store.moving import redis_inbox_rows as inbox_rows
from peik.store.moving import redis_rows as rows
from peik.store.moving.records import (
    NUMBERED,
    Absence,
    BotHold,
    Checkpoint,
    FileId,
    Inbox,
    Reader,
    Record,
    Secret,
    Tally,
)
from peik.store.moving.records import Sequence as LastId
from peik.store.moving.redis_writing import COUNTER_OF

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
                records.append(Tally(bot, last + 1, *counts))
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

    async def inbox_records(self) -> list[Inbox]:
        bots = sorted(int(bot) for bot in await self._redis.smembers(self._key("inboxes")))
        records = []
        for bot in bots:
            row = dict(zip(_INBOX, await self._redis.hmget(self._key(f"inbox:{bot}"), _INBOX), strict=True))
            server = row.pop("server")
            numbers = {field: None if cell is None else int(cell) for field, cell in row.items()}
            expired = numbers.pop("expired") or 0
            make: Callable[..., Inbox] = Inbox
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
                Reader(
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
            records.append(Absence(one, int(row.bot), row.began, row.ended, row.last, row.settled))
        return records

    async def last_ids(self) -> list[Record]:
        found = await self._redis.mget([self._key(COUNTER_OF[name]) for name in NUMBERED])
        given = sorted((name, int(last)) for name, last in zip(NUMBERED, found, strict=True) if last)
        return [LastId(name, last) for name, last in given]


def _escaped(prefix: str) -> str:
    """A prefix may hold no sign that stands for others, but its hash tag is in braces."""
    return "".join(f"\\{sign}" if sign in "*?[]\\{}" else sign for sign in prefix)
