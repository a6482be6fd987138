"""Documents on Redis. What stands where:

documents:SHELF        hash    key -> its version, a space, and its body
paper_order:SHELF   zset    of keys, all with the same score, and so in the order of their bytes
collections             zset    of collections with documents on them, in the same order
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import msgspec

from peik.contacts import model
from peik.core import documents
from peik.core.documents import CONTACTS_LOOKED_MAX, Contact, ContactFilter, ContactPage, Filing, StoredDocument
from peik.storage.redis.commits import DocumentWay
from peik.storage.redis.records import decode, pairs

_CLEARED_AT_ONCE = (
    1000  # documents that one call of the server takes away: some milliseconds, in which its other clients wait
)


class RedisDocuments:
    """See `peik.core.documents.DocumentStore`. Made by the store when it is opened."""

    def __init__(self, way: DocumentWay) -> None:
        self._commits = way.commits
        self._ask = way.read

    async def file(self, filings: Sequence[Filing]) -> None:
        changes = documents.changes_of(filings)
        if not changes:
            return

        def build(among: list[bytes]) -> list[object]:
            rows = []
            for change in changes:
                if change.body is not None:
                    among.append(change.body.encode())
                expected = False if change.expected is None else change.expected
                rows.append((change.collection, change.key, expected, change.body is not None and len(among) + 1))
            return ["paper_file", rows]

        refused = await self._commits.submit(build, lambda done: done.value, weight=len(changes))
        if refused:
            raise documents.changed(changes[refused - 1].name)

    async def document(self, collection: str, key: str) -> StoredDocument | None:
        return (await self.those(collection, [key])).get(key)

    async def those(self, collection: str, keys: Sequence[str]) -> dict[str, StoredDocument]:
        (found,) = await self._ask(["paper_those", collection, list(keys)])
        return {key: document_of(collection, key, raw) for key, raw in zip(keys, found, strict=True) if raw is not None}

    async def documents(
        self,
        collection: str,
        *,
        after: str | None = None,
        until: str | None = None,
        limit: int,
        is_backwards: bool = False,
    ) -> list[StoredDocument]:
        above, below = (until, after) if is_backwards else (after, until)
        bounds = [False if key is None else key for key in (above, below)]
        ((keys, found),) = await self._ask(["paper_page", collection, *bounds, limit, is_backwards])
        return [document_of(collection, key.decode(), raw) for key, raw in zip(keys, found, strict=True)]

    async def count_documents(self, collection: str) -> int:
        (found,) = await self._ask(["paper_count", collection])
        return int(found)

    async def collections(self, prefix: str) -> list[str]:
        (found,) = await self._ask(["paper_shelves", prefix, prefix + documents.AFTER_ALL_ASCII])
        return [collection.decode() for collection in found]

    async def clear_collection(self, collection: str, *, until: str | None = None, limit: int) -> int:
        gone = 0
        while gone < limit:
            some = min(limit - gone, _CLEARED_AT_ONCE)
            went = await self._commits.write("paper_clear", collection, False if until is None else until, some)
            gone += went
            if went < some:
                break
        return gone


def document_of(collection: str, key: str, raw: bytes) -> StoredDocument:
    version, _, body = raw.partition(b" ")
    return StoredDocument(collection=collection, key=key, body=body.decode(), version=int(version))


# Known chats on Redis. What stands where:
#
#     contacts:BOT        hash    name of a chat -> its record (lua/contacts.lua)
#     contact_order:BOT   zset    of names, all with the same score: in the order of chat ids
#     contact_seen:BOT    zset    of names by when they were last seen
#     contact_first:BOT   zset    of names, with the campaign behind each, by when they were first seen; neither ever changes
#     contact_tally:BOT   hash    type:is it gone:language -> how many
#     contact_places      hash    bot -> the number of the last arrival that was looked at
#
# A name is the chat's id, raised above zero and padded, so that names stand in the order of ids. What a filter wants
# is judged here, page by page: no question keeps the server from its other clients.


_PAGE = 1000  # chats that one call reads: a millisecond or two, in which the server's other clients wait
_FIRST_PAGE = 5000  # of these only names are read
_NAME_CHARS = 17
_RAISED_BY = 2**53  # Telegram's ids have at most 52 bits, and a sign

_PLACE_TYPE, _PLACE_GONE, _PLACE_LANGUAGE = range(3)


class RedisContacts:
    """See `peik.core.documents.ContactStore`. Made by the store when it is opened."""

    def __init__(self, way: DocumentWay) -> None:
        self._commits = way.commits
        self._ask = way.read

    async def contacts_place(self, bot_id: int) -> int:
        (place,) = await self._ask(["contact_place", str(bot_id)])
        return int(place)

    async def save_contacts(self, bot_id: int, contacts: Sequence[Contact], *, place: int) -> None:
        rows = [(name_of(contact.chat_id), record_of(contact)) for contact in model.folded(contacts)]
        await self._commits.submit(
            lambda among: ["contact_save", str(bot_id), rows, place], lambda done: None, weight=len(rows) + 1
        )

    async def forget(self, bot_id: int, name: str) -> int:
        """Whether it was known."""
        return int(await self._commits.write("contact_forget", str(bot_id), name))

    async def contact(self, bot_id: int, chat_id: int) -> Contact | None:
        (found,) = await self._ask(["contact_those", str(bot_id), [name_of(chat_id)]])
        return next(iter(_contacts(bot_id, found)), None)

    async def contacts(self, bot_id: int, wanted: ContactFilter, *, after: int | None, limit: int) -> list[Contact]:
        return await _first(self._by_id(bot_id, after, size=limit), wanted, limit)

    async def newest_contacts(
        self,
        bot_id: int,
        wanted: ContactFilter,
        *,
        before: tuple[int, int] | None,
        limit: int,
        looked_max: int = CONTACTS_LOOKED_MAX,
    ) -> ContactPage:
        found: list[Contact] = []
        edge: tuple[int, int] | None = None
        looked = 0
        async for page in self._newest(bot_id, wanted, before, size=min(limit, looked_max)):
            found += [contact for contact in page if model.is_wanted(contact, wanted)]
            looked += len(page)
            if len(found) >= limit:
                break
            if looked >= looked_max and page:
                edge = page[-1].last_seen_ms, page[-1].chat_id
                break
        return model.turned(found[:limit], limit=limit, edge=edge)

    async def count_contacts(self, bot_id: int, wanted: ContactFilter) -> int:
        if model.is_tallied(wanted):
            (flat,) = await self._ask(["contact_counts", str(bot_id)])
            return sum(int(count) for kind, count in pairs(flat).items() if _is_of_kind(kind, wanted))
        since, before = wanted.seen_since_ms, wanted.seen_before_ms
        if wanted == ContactFilter(seen_since_ms=since, seen_before_ms=before):
            bounds = [False if one is None else one for one in (since, before)]
            (count,) = await self._ask(["contact_seen", str(bot_id), *bounds])
            return int(count)
        is_recent = since is not None or before is not None
        walk = self._newest(bot_id, wanted, None) if is_recent else self._by_id(bot_id, None)
        return sum([sum(model.is_wanted(one, wanted) for one in page) async for page in walk])

    async def count_campaigns(self, bot_id: int, *, since_ms: int) -> dict[str, int]:
        found: Counter[str] = Counter()
        cursor: Sequence[object] = (False, False)
        while True:
            (packed,) = await self._ask(["contact_first", str(bot_id), since_ms, *cursor, _FIRST_PAGE])
            counts, following = decode(packed)
            found.update(dict(counts))
            if not following:
                return dict(found)
            cursor = following

    # ---- walks, page by page; the first one has the size that is asked for, since most filters find many ----

    async def _by_id(self, bot_id: int, after: int | None, *, size: int = _PAGE) -> AsyncIterator[list[Contact]]:
        cursor: object = False if after is None else name_of(after)
        size = min(size, _PAGE)
        while True:
            (packed,) = await self._ask(["contact_page", str(bot_id), cursor, size])
            page = _contacts(bot_id, packed)
            yield page
            if len(page) < size:
                return
            cursor, size = name_of(page[-1].chat_id), _PAGE

    async def _newest(
        self, bot_id: int, wanted: ContactFilter, before: tuple[int, int] | None, *, size: int = _PAGE
    ) -> AsyncIterator[list[Contact]]:
        """From where the filter begins to where it ends, as far as that is a time."""
        cursor: tuple[object, object] = (False, False) if before is None else (before[0], name_of(before[1]))
        if wanted.seen_before_ms is not None and (before is None or before[0] >= wanted.seen_before_ms):
            cursor = wanted.seen_before_ms, ""  # before every name
        size = min(size, _PAGE)
        while True:
            (packed,) = await self._ask(["contact_newest", str(bot_id), *cursor, size])
            page = _contacts(bot_id, packed)
            yield page
            is_past = wanted.seen_since_ms is not None and page and page[-1].last_seen_ms < wanted.seen_since_ms
            if len(page) < size or is_past:
                return
            cursor, size = (page[-1].last_seen_ms, name_of(page[-1].chat_id)), _PAGE


async def _first(walk: AsyncIterator[list[Contact]], wanted: ContactFilter, limit: int) -> list[Contact]:
    found: list[Contact] = []
    async for page in walk:
        found += [contact for contact in page if model.is_wanted(contact, wanted)]
        if len(found) >= limit:
            break
    return found[:limit]


def _is_of_kind(kind: str, wanted: ContactFilter) -> bool:
    parts = kind.split(":", 2)
    one = Contact(
        bot_id=0,
        chat_id=0,
        type=parts[_PLACE_TYPE],
        language=parts[_PLACE_LANGUAGE],
        is_gone=parts[_PLACE_GONE] == "1",
        first_seen_ms=0,
        last_seen_ms=0,
    )
    return model.is_wanted(one, wanted)


# ---- records ----


def name_of(chat_id: int) -> str:
    return f"{chat_id + _RAISED_BY:0{_NAME_CHARS}d}"


def record_of(contact: Contact) -> list[object]:
    """False, and not nothing, stands for what is not there: Lua would take an array with gaps for a map."""
    row: tuple[Any, ...] = msgspec.structs.astuple(contact)
    return [False if value is None else value for value in row[2:]]


class _Row(msgspec.Struct, array_like=True, frozen=True):
    """A record behind its name, as a page has it; see lua/contacts.lua."""

    chat: str
    type: str
    name: str | Literal[False]
    username: str | Literal[False]
    language: str | Literal[False]
    first_seen: int
    last_seen: int
    is_gone: bool
    campaign: str | Literal[False]


_decode_rows = msgspec.msgpack.Decoder(list[_Row]).decode


def _contacts(bot_id: int, packed: bytes) -> list[Contact]:
    return [_contact(bot_id, row) for row in _decode_rows(packed)]


def contact_of(bot_id: int, name: str, raw: bytes) -> Contact:
    """From a record as it stands in the hash."""
    return _contact(bot_id, msgspec.convert([name, *decode(raw)], _Row))


def _contact(bot_id: int, row: _Row) -> Contact:
    return Contact(
        bot_id=bot_id,
        chat_id=int(row.chat) - _RAISED_BY,
        type=row.type,
        name=row.name or None,
        username=row.username or None,
        language=row.language or None,
        first_seen_ms=row.first_seen,
        last_seen_ms=row.last_seen,
        is_gone=row.is_gone,
        campaign=row.campaign or None,
    )
