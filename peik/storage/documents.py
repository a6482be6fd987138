"""Documents and known chats as every SQL store keeps them: what is asked goes into its commits and reads."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import msgspec

from peik.contacts import model
from peik.core import documents
from peik.core.documents import (
    CONTACTS_LOOKED_MAX,
    Contact,
    ContactFilter,
    ContactPage,
    DocumentChange,
    Filing,
    Name,
    StoredDocument,
)
from peik.storage.consumers import check_bot
from peik.storage.sql import NamedQuery, Row, SqlSession, filled

T = TypeVar("T")


class SqlDocuments(ABC):
    """See `peik.core.documents.DocumentStore`. Made by the store when it is opened."""

    sql: ClassVar[dict[str, NamedQuery]]

    @abstractmethod
    async def _read(self, work: Callable[[SqlSession], Awaitable[T]], *, is_walk: bool = False) -> T:
        """`is_walk`: it goes along an index, whatever the planner thinks of that."""

    @abstractmethod
    async def _change(
        self, work: Callable[[SqlSession], Awaitable[T]], *, collections: Collection[str], weight: int
    ) -> T:
        """Run something in the next commit; its answer, once that is durable. What it refuses it refuses before it writes, so
        that the others of its commit need not be done again."""

    async def file(self, filings: Sequence[Filing]) -> None:
        changes = documents.changes_of(filings)
        if changes:
            collections = {change.collection for change in changes}
            await self._change(lambda one: self._file(one, changes), collections=collections, weight=len(changes))

    async def _file(self, one: SqlSession, changes: Sequence[DocumentChange]) -> None:
        expecting = [change.name for change in changes if change.expected is not None]
        versions: dict[Name, int] = {
            (row[0], row[1]): row[2] for row in await one.read_many(self.sql["versions"], expecting)
        }
        documents.check_expected(changes, versions)
        kept = [(*change.name, change.body) for change in changes if change.body is not None]
        await one.write_many(self.sql["keep"], kept)
        await one.write_many(self.sql["take_away"], [change.name for change in changes if change.body is None])

    async def document(self, collection: str, key: str) -> StoredDocument | None:
        return (await self.those(collection, [key])).get(key)

    async def those(self, collection: str, keys: Sequence[str]) -> dict[str, StoredDocument]:
        rows = await self._read(lambda one: one.rows(self.sql["those"], collection=collection, keys=list(keys)))
        return {document.key: document for document in map(_document, rows)}

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
        query = _ranged(self.sql["page"], above=above, below=below, order="DESC" if is_backwards else "ASC")
        bound = {"collection": collection, "above": above, "below": below, "limit": limit}
        return [_document(row) for row in await self._read(lambda one: one.rows(query, **bound), is_walk=True)]

    async def count_documents(self, collection: str) -> int:
        return await self._read(lambda one: one.number(self.sql["count"], collection=collection))

    async def collections(self, prefix: str) -> list[str]:
        bound = {"first": prefix, "end": prefix + documents.AFTER_ALL_ASCII}
        return [row[0] for row in await self._read(lambda one: one.rows(self.sql["shelves"], **bound))]

    async def clear_collection(self, collection: str, *, until: str | None = None, limit: int) -> int:
        query = _ranged(self.sql["clear"], above=None, below=until, order="")
        bound = {"collection": collection, "below": until, "limit": limit}
        return await self._change(lambda one: one.run(query, **bound), collections=[collection], weight=limit)


def _ranged(query: NamedQuery, *, above: str | None, below: str | None, order: str) -> NamedQuery:
    """Between two keys, which are left out. One that is None is no bound, and is not in the query: a walk seeks by the rest."""
    conditions = [sql for key, sql in ((above, "p.key > :above"), (below, "p.key < :below")) if key is not None]
    return filled(query, where=" AND ".join(conditions) or "true", order=order)


def _document(row: Row) -> StoredDocument:
    collection, key, body, version = row
    return StoredDocument(collection=collection, key=key, body=body, version=version)


COLUMNS = (
    "bot_id",
    "chat_id",
    "type",
    "name",
    "username",
    "language",
    "first_seen",
    "last_seen",
    "is_gone",
    "campaign",
)
_CONTACT = ", ".join(f"c.{column}" for column in COLUMNS)

CAMPAIGNS_STEP = 50_000  # chats that one look counts: others have their turn in between

_BEFORE = "(c.last_seen, c.chat_id) < (:seen, :chat)"
_FROM_EDGE = "(c.last_seen, c.chat_id) >= (:edge_seen, :edge_chat)"
_SEEN = {"since": "c.last_seen >= :since", "until": "c.last_seen < :until"}


class SqlContacts(ABC):
    """See `peik.core.documents.ContactStore`. Made by the store when it is opened."""

    sql: ClassVar[dict[str, NamedQuery]]
    known_bot: ClassVar[NamedQuery]

    @abstractmethod
    async def _read(self, work: Callable[[SqlSession], Awaitable[T]], *, is_walk: bool = False) -> T: ...

    @abstractmethod
    async def _change(self, work: Callable[[SqlSession], Awaitable[T]], *, bots: Collection[int], weight: int) -> T: ...

    async def contacts_place(self, bot_id: int) -> int:
        return await self._read(lambda one: one.number(self.sql["place"], bot=bot_id))

    async def save_contacts(self, bot_id: int, contacts: Sequence[Contact], *, place: int) -> None:
        fresh = model.folded(contacts)
        await self._change(lambda one: self._save(one, bot_id, fresh, place), bots=[bot_id], weight=len(fresh) + 1)

    async def _save(self, one: SqlSession, bot_id: int, fresh: Sequence[Contact], place: int) -> None:
        await check_bot(one, self.known_bot, bot_id)
        if place < await one.number(self.sql["place"], bot=bot_id):
            return
        if fresh:
            known = {each.chat_id: each for each in await self._those(one, bot_id, [met.chat_id for met in fresh])}
            rows: list[tuple[object, ...]] = []
            for contact in fresh:
                before = known.get(contact.chat_id)
                rows.append(row_of(contact if before is None else model.met_again(before, contact)))
            await one.write_many(self.sql["save"], rows)
        await one.run(self.sql["move_place"], bot=bot_id, place=place)

    async def _those(self, one: SqlSession, bot_id: int, chats: list[int]) -> list[Contact]:
        rows = await one.rows(filled(self.sql["those"], contact=_CONTACT), bot=bot_id, chats=chats)
        return [contact_from_row(tuple(row)) for row in rows]

    async def contact(self, bot_id: int, chat_id: int) -> Contact | None:
        return next(iter(await self._read(lambda one: self._those(one, bot_id, [chat_id]))), None)

    async def contacts(self, bot_id: int, wanted: ContactFilter, *, after: int | None, limit: int) -> list[Contact]:
        where, bound = self._conditions(bot_id, wanted)
        if after is not None:
            where, bound = f"c.chat_id > :after AND {where}", bound | {"after": after}
        query = filled(self.sql["page"], contact=_CONTACT, where=where)
        rows = await self._read(lambda one: one.rows(query, **bound, limit=limit), is_walk=True)
        return [contact_from_row(tuple(row)) for row in rows]

    async def newest_contacts(
        self,
        bot_id: int,
        wanted: ContactFilter,
        *,
        before: tuple[int, int] | None,
        limit: int,
        looked_max: int = CONTACTS_LOOKED_MAX,
    ) -> ContactPage:
        where, bound = self._conditions(bot_id, wanted)
        within = " AND ".join(sql for name, sql in _SEEN.items() if name in bound) or "true"
        if before is not None:
            within, bound = f"{_BEFORE} AND {within}", bound | {"seen": before[0], "chat": before[1]}
        asked = bound | {"limit": limit}
        return await self._read(lambda one: self._newest(one, where, within, asked, looked_max), is_walk=True)

    async def _newest(
        self, one: SqlSession, where: str, within: str, bound: dict[str, Any], looked_max: int
    ) -> ContactPage:
        found: list[Contact] = []
        edge: tuple[int, int] | None = None  # the last chat that is looked at; None: there are fewer
        for most in (min(model.LOOKED_FIRST, looked_max), looked_max):
            edges = await one.rows(filled(self.sql["edge"], within=within), **bound, behind=most - 1)
            edge = (int(edges[0][0]), int(edges[0][1])) if edges else None
            whole, asked = f"{within} AND {where}", bound
            if edge is not None:
                whole, asked = f"{_FROM_EDGE} AND {whole}", bound | {"edge_seen": edge[0], "edge_chat": edge[1]}
            rows = await one.rows(filled(self.sql["newest"], contact=_CONTACT, where=whole), **asked)
            found = [contact_from_row(tuple(row)) for row in rows]
            if len(found) >= bound["limit"] or edge is None:
                break
        return model.turned(found, limit=bound["limit"], edge=edge)

    async def count_contacts(self, bot_id: int, wanted: ContactFilter) -> int:
        where, bound = self._conditions(bot_id, wanted)
        query = filled(self.sql["count_tallied" if model.is_tallied(wanted) else "count"], where=where)
        return await self._read(lambda one: one.number(query, **bound))

    async def count_campaigns(self, bot_id: int, *, since_ms: int) -> dict[str, int]:
        found: Counter[str] = Counter()
        since: int | None = since_ms
        while since is not None:
            counts, since = await self._read(partial(self._campaigns, bot_id=bot_id, since=since), is_walk=True)
            found.update(counts)
        return dict(found)

    async def _campaigns(self, one: SqlSession, *, bot_id: int, since: int) -> tuple[dict[str, int], int | None]:
        """How many came by each from then on, and up to when they were counted; None: to the end."""
        edge = await one.number(self.sql["campaigns_edge"], bot=bot_id, since=since, step=CAMPAIGNS_STEP)
        until = max(edge, since + 1) if edge else None
        rows = await one.rows(self.sql["count_campaigns"], bot=bot_id, since=since, until=until)
        return {row[0]: row[1] for row in rows}, until

    def _conditions(self, bot_id: int, wanted: ContactFilter) -> tuple[str, dict[str, Any]]:
        """What a filter asks for in SQL, and the values that are bound to it. Of kinds alone it also fits the tallies."""
        languages = model.languages_of(wanted)
        values: dict[str, Any] = {
            "types": None if wanted.types is None else sorted(wanted.types),
            "languages": None if languages is None else sorted(languages),
            "since": wanted.seen_since_ms,
            "until": wanted.seen_before_ms,
            "is_gone": wanted.is_gone,
            "text": None if wanted.text is None else wanted.text.casefold(),
            "campaign": wanted.campaign,
        }
        given = {name: value for name, value in values.items() if value is not None}
        where = " AND ".join(_SEEN.get(name) or self.sql[f"with_{name}"].written for name in given) or "true"
        return where, {"bot": bot_id} | given


async def forget_bot(one: SqlSession, sql: dict[str, NamedQuery], bot_id: int) -> None:
    """Anyone who wrote to a bot is forgotten with it: its arrivals are, too, and are numbered again if it comes back."""
    for name in ("forget_contacts", "forget_tallies", "forget_place"):
        await one.run(sql[name], bot=bot_id)


def row_of(contact: Contact) -> tuple[object, ...]:
    """In the order of the columns, and the words that are searched."""
    return (*msgspec.structs.astuple(contact), model.words_of(contact.name, contact.username))


def contact_from_row(row: Sequence[Any]) -> Contact:
    bot_id, chat_id, type_, name, username, language, first_seen, last_seen, is_gone, campaign = row
    # By hand: every update of a busy bot comes by here, and a conversion that checks types takes five times as long.
    return Contact(
        bot_id=bot_id,
        chat_id=chat_id,
        type=type_,
        name=name,
        username=username,
        language=language,
        first_seen_ms=first_seen,
        last_seen_ms=last_seen,
        is_gone=bool(is_gone),
        campaign=campaign,
    )
