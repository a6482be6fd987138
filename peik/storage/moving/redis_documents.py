"""Papers and known chats into a Redis store and out of it: what stands where is told in
peik/storage/redis/documents.py."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from peik.storage.documents import contact_from_row
from peik.storage.moving.ends import RecordPage
from peik.storage.moving.records import ContactPlace, Record, StoredContact, StoredPaper
from peik.storage.moving.redis_rows import RedisBatch
from peik.storage.redis.documents import contact_of, name_of, paper_of, record_of
from peik.storage.redis.records import encode

OF_PAPERS = (StoredPaper, StoredContact, ContactPlace)


# ---- writing ----


def write(batch: RedisBatch, record: Record) -> None:
    match record:
        case StoredPaper():
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
    batch.field(f"contacts:{one.bot_id}", name, encode(record_of(contact_from_row(msgspec.structs.astuple(one)))))
    batch.member(f"contact_order:{one.bot_id}", name, 0)
    batch.member(f"contact_seen:{one.bot_id}", name, one.last_seen)
    batch.member(f"contact_first:{one.bot_id}", name + (one.campaign or ""), one.first_seen)
    batch.count(f"contact_tally:{one.bot_id}", f"{one.type}:{int(one.is_gone)}:{one.language or ''}")


# ---- reading ----


class RedisPaperReading:
    """Shelf by shelf and bot by bot, each along its own order."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def _key(self, name: str) -> str:
        return self._prefix + name

    async def papers(self, cursor: str | None, limit: int) -> RecordPage:
        return await self._walk(await self._shelves(), self._papers_on, cursor, limit)

    async def contacts(self, cursor: str | None, limit: int) -> RecordPage:
        return await self._walk(await self._bots(), self._contacts_of, cursor, limit)

    async def places(self) -> list[Record]:
        found = await self._redis.hgetall(self._key("contact_places"))
        places = sorted((int(bot), int(place)) for bot, place in found.items())
        return [ContactPlace(bot, place) for bot, place in places if place > 0]

    async def count_papers(self) -> int:
        return sum([await self._redis.hlen(self._key(f"papers:{shelf}")) for shelf in await self._shelves()])

    async def count_contacts(self) -> int:
        return sum([await self._redis.hlen(self._key(f"contacts:{bot}")) for bot in await self._bots()])

    async def _shelves(self) -> list[str]:
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

    async def _papers_on(self, shelf: str, behind: str | None, limit: int) -> tuple[list[Record], str | None]:
        keys = [key.decode() for key in await self._members(f"paper_order:{shelf}", behind, limit)]
        found = await self._redis.hmget(self._key(f"papers:{shelf}"), keys) if keys else []
        papers = [paper_of(shelf, key, raw) for key, raw in zip(keys, found, strict=True) if raw is not None]
        return [StoredPaper(one.shelf, one.key, one.body, one.version) for one in papers], keys[-1] if keys else behind

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
