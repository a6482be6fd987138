"""Papers in the PostgreSQL store: what is asked goes into the commits of a writer of their own."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

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
from peik.errors import Problem
from peik.storage.executor import Finished
from peik.storage.news import answer, fail
from peik.storage.postgres import consumers
from peik.storage.postgres.commit import PostgresBatch
from peik.storage.postgres.errors import translate
from peik.storage.postgres.jobs import seek
from peik.storage.postgres.queries import NamedQuery, filled, load
from peik.storage.postgres.session import PostgresSession, Row
from peik.storage.postgres.writer import PostgresOperation, PostgresWays, PostgresWriter
from peik.storage.sqlite.documents import COLUMNS, contact_from_row, row_of

# The writer of papers and known chats: in commits of its own, so that no letter ever waits for the lock of a shelf.


T = TypeVar("T")

_PAPERS = load("papers.sql")
_CONTACTS = load("contacts.sql")


class DocumentOperation(PostgresOperation[T]):
    """`shelves`: whose papers it writes; `bots`: whose chats. All of them are locked before."""

    __slots__ = ("bots", "shelves")

    def __init__(
        self,
        prepare: Callable[[PostgresBatch], Awaitable[Callable[[], T]]],
        done: Callable[[Finished[T]], None],
        *,
        shelves: Iterable[str],
        bots: Iterable[int],
        weight: int,
    ) -> None:
        super().__init__(prepare, done, weight=weight)
        self.shelves = frozenset(shelves)
        self.bots = frozenset(bots)


class DocumentWriter(PostgresWriter):
    """Takes `DocumentOperation` only. It has no connection before the first."""

    async def run(
        self,
        work: Callable[[PostgresSession], Awaitable[T]],
        *,
        shelves: Iterable[str] = (),
        bots: Iterable[int] = (),
        weight: int = 1,
    ) -> T:
        """Run something in the next commit, with these shelves and the chats of these bots locked; its answer, once that is
        durable. What it refuses it refuses before it writes, so that the others of its commit need not be done again."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def prepare(batch: PostgresBatch) -> Callable[[], Finished[T]]:
            try:
                ended: Finished[T] = Finished(await work(batch.session), None)
            except Problem as problem:
                ended = Finished(None, problem)
            return lambda: ended

        def done(committed: Finished[Finished[T]]) -> None:
            error = committed.error if committed.error is not None else committed.value().error
            if error is not None:
                fail(future, translate(error))
            else:
                answer(future, committed.value().value())

        self.submit(DocumentOperation(prepare, done, shelves=shelves, bots=bots, weight=weight))
        return await future

    async def _transaction(self, operations: list[PostgresOperation[object]]) -> list[object]:
        """All are locked together, in one order: two nodes with the same shelves never wait in a circle."""
        asked = [one for one in operations if isinstance(one, DocumentOperation)]
        shelves = frozenset[str]().union(*(one.shelves for one in asked))
        bots = frozenset[int]().union(*(one.bots for one in asked))

        async def lock(batch: PostgresBatch) -> Callable[[], object]:
            await _lock(batch.session, shelves=sorted(shelves), bots=sorted(bots))
            return lambda: None

        first: PostgresOperation[object] = PostgresOperation(lock, lambda ended: None)
        return (await super()._transaction([first, *operations]))[1:]


async def _lock(session: PostgresSession, *, shelves: list[str], bots: list[int]) -> None:
    if shelves:
        await session.run(_PAPERS["keep_shelves"], shelves=shelves)
        await session.rows(_PAPERS["lock_shelves"], shelves=shelves)
    known = [row[0] for row in await session.rows(_CONTACTS["known_bots"], bots=bots)] if bots else []
    if known:
        await session.run(_CONTACTS["keep_places"], bots=known)
        await session.rows(_CONTACTS["lock_places"], bots=known)


_SQL = load("papers.sql")


class PostgresDocuments:
    """See `peik.core.documents.DocumentStore`. Made by the store when it is opened."""

    def __init__(self, ways: PostgresWays, writer: DocumentWriter) -> None:
        self._writer = writer
        self._read = ways.read

    async def file(self, filings: Sequence[Filing]) -> None:
        changes = documents.changes_of(filings)
        if changes:
            shelves = {change.shelf for change in changes}
            await self._writer.run(lambda one: _file(one, changes), shelves=shelves, weight=len(changes))

    async def paper(self, shelf: str, key: str) -> StoredDocument | None:
        return (await self.those(shelf, [key])).get(key)

    async def those(self, shelf: str, keys: Sequence[str]) -> dict[str, StoredDocument]:
        rows = await self._read(lambda one: one.rows(_SQL["those"], shelf=shelf, keys=list(keys)))
        return {paper.key: paper for paper in map(_paper, rows)}

    async def papers(
        self, shelf: str, *, after: str | None = None, until: str | None = None, limit: int, is_backwards: bool = False
    ) -> list[StoredDocument]:
        above, below = (until, after) if is_backwards else (after, until)
        query = _ranged(_SQL["page"], above=above, below=below, order="DESC" if is_backwards else "ASC")
        bound = {"shelf": shelf, "above": above, "below": below, "limit": limit}
        rows = await self._read(lambda one: seek(one, lambda seeker: seeker.rows(query, **bound)))
        return [_paper(row) for row in rows]

    async def count_papers(self, shelf: str) -> int:
        return await self._read(lambda one: one.number(_SQL["count"], shelf=shelf))

    async def shelves(self, prefix: str) -> list[str]:
        bound = {"first": prefix, "end": prefix + documents.AFTER_ALL_ASCII}
        rows = await self._read(lambda one: one.rows(_SQL["shelves"], **bound))
        return [row[0] for row in rows]

    async def clear_shelf(self, shelf: str, *, until: str | None = None, limit: int) -> int:
        query = _ranged(_SQL["clear"], above=None, below=until, order="")
        bound = {"shelf": shelf, "below": until, "limit": limit}
        return await self._writer.run(lambda one: one.run(query, **bound), shelves=[shelf], weight=limit)


async def _file(session: PostgresSession, changes: Sequence[DocumentChange]) -> None:
    """Raises Conflict before it writes anything."""
    expecting = [change.name for change in changes if change.expected is not None]
    versions: dict[Name, int] = {}
    if expecting:
        shelves, keys = zip(*expecting, strict=True)
        rows = await session.rows(_SQL["versions"], shelves=shelves, keys=keys)
        versions = {(row[0], row[1]): row[2] for row in rows}
    documents.check_expected(changes, versions)
    kept = [(*change.name, change.body) for change in changes if change.body is not None]
    if kept:
        shelves, keys, bodies = zip(*kept, strict=True)
        await session.run(_SQL["keep"], shelves=shelves, keys=keys, bodies=bodies)
    gone = [change.name for change in changes if change.body is None]
    if gone:
        shelves, keys = zip(*gone, strict=True)
        await session.run(_SQL["take_away"], shelves=shelves, keys=keys)


def _ranged(query: NamedQuery, *, above: str | None, below: str | None, order: str) -> NamedQuery:
    """Between two keys, which are left out. One that is None is no bound, and is not in the query: a walk seeks by the rest."""
    conditions = [sql for key, sql in ((above, "p.key > :above"), (below, "p.key < :below")) if key is not None]
    return filled(query, where=" AND ".join(conditions) or "true", order=order)


def _paper(row: Row) -> StoredDocument:
    shelf, key, body, version = row
    return StoredDocument(shelf=shelf, key=key, body=body, version=version)


# Known chats in the PostgreSQL store: what is asked goes into the commits that papers go into.


_CONTACT = ", ".join(f"c.{column}" for column in COLUMNS)
_CONTACTS_SQL = load("contacts.sql")
THOSE = filled(_CONTACTS_SQL["those"], contact=_CONTACT)

_BEFORE = "(c.last_seen, c.chat_id) < (:seen, :chat)"
_FROM_EDGE = "(c.last_seen, c.chat_id) >= (:edge_seen, :edge_chat)"
_SEEN = {"since": "c.last_seen >= :since", "until": "c.last_seen < :until"}
_LANGUAGES = (
    "EXISTS (SELECT 1 FROM unnest(:languages::text[]) AS l (value) WHERE lower(coalesce(c.language, '')) = l.value"
    " OR starts_with(lower(c.language), l.value || '-'))"
)


class PostgresContacts:
    """See `peik.core.documents.ContactStore`. Made by the store when it is opened."""

    def __init__(self, ways: PostgresWays, writer: DocumentWriter) -> None:
        self._writer = writer
        self._read = ways.read

    async def contacts_place(self, bot_id: int) -> int:
        return await self._read(lambda one: one.number(_CONTACTS_SQL["place"], bot=bot_id))

    async def save_contacts(self, bot_id: int, contacts: Sequence[Contact], *, place: int) -> None:
        fresh = model.folded(contacts)
        await self._writer.run(lambda one: _save(one, bot_id, fresh, place), bots=[bot_id], weight=len(fresh) + 1)

    async def contact(self, bot_id: int, chat_id: int) -> Contact | None:
        rows = await self._read(lambda one: one.rows(THOSE, bot=bot_id, chats=[chat_id]))
        return next(map(_contact, rows), None)

    async def contacts(self, bot_id: int, wanted: ContactFilter, *, after: int | None, limit: int) -> list[Contact]:
        where, bound = _conditions(bot_id, wanted)
        if after is not None:
            where, bound = f"c.chat_id > :after AND {where}", bound | {"after": after}
        return await self._find(_CONTACTS_SQL["page"], where, bound | {"limit": limit})

    async def newest_contacts(
        self,
        bot_id: int,
        wanted: ContactFilter,
        *,
        before: tuple[int, int] | None,
        limit: int,
        looked_max: int = CONTACTS_LOOKED_MAX,
    ) -> ContactPage:
        where, bound = _conditions(bot_id, wanted)
        within = " AND ".join(sql for name, sql in _SEEN.items() if name in bound) or "true"
        if before is not None:
            within, bound = f"{_BEFORE} AND {within}", bound | {"seen": before[0], "chat": before[1]}
        found, edge = await self._read(
            lambda one: seek(one, lambda seeker: _newest(seeker, where, within, bound, limit, looked_max))
        )
        return model.turned(found, limit=limit, edge=edge)

    async def count_contacts(self, bot_id: int, wanted: ContactFilter) -> int:
        where, bound = _conditions(bot_id, wanted)
        query = filled(_CONTACTS_SQL["count_tallied" if model.is_tallied(wanted) else "count"], where=where)
        return await self._read(lambda one: one.number(query, **bound))

    async def count_campaigns(self, bot_id: int, *, since_ms: int) -> dict[str, int]:
        rows = await self._read(lambda one: one.rows(_CONTACTS_SQL["count_campaigns"], bot=bot_id, since=since_ms))
        return {row[0]: row[1] for row in rows}

    async def _find(self, query: NamedQuery, where: str, bound: dict[str, object]) -> list[Contact]:
        whole = filled(query, contact=_CONTACT, where=where)
        rows = await self._read(lambda one: seek(one, lambda seeker: seeker.rows(whole, **bound)))
        return [_contact(row) for row in rows]


async def forget_bot(session: PostgresSession, bot_id: int) -> None:
    """Whoever wrote to a bot is forgotten with it: its arrivals are, too, and are numbered anew if it comes back."""
    for name in ("forget_contacts", "forget_tallies", "forget_place"):
        await session.run(_CONTACTS_SQL[name], bot=bot_id)


async def _save(session: PostgresSession, bot_id: int, fresh: Sequence[Contact], place: int) -> None:
    await consumers.check_bot(session, bot_id)
    if place < await session.number(_CONTACTS_SQL["place"], bot=bot_id):
        return
    if fresh:
        found = await session.rows(THOSE, bot=bot_id, chats=[contact.chat_id for contact in fresh])
        known = {one.chat_id: one for one in map(_contact, found)}
        rows = []
        for contact in fresh:
            before = known.get(contact.chat_id)
            rows.append(row_of(contact if before is None else model.met_again(before, contact)))
        await session.run(_CONTACTS_SQL["save"], *zip(*rows, strict=True))
    await session.run(_CONTACTS_SQL["move_place"], bot=bot_id, place=place)


async def _newest(
    session: PostgresSession, where: str, within: str, bound: dict[str, object], limit: int, looked_max: int
) -> tuple[list[Contact], tuple[int, int] | None]:
    """What was found, and the last chat that was looked at, if there are more."""
    found: list[Contact] = []
    edge: Row | None = None
    for most in (min(model.LOOKED_FIRST, looked_max), looked_max):
        edge = await session.row(filled(_CONTACTS_SQL["edge"], within=within), **bound, behind=most - 1)
        whole, asked = f"{within} AND {where}", bound | {"limit": limit}
        if edge is not None:
            whole, asked = f"{_FROM_EDGE} AND {whole}", asked | {"edge_seen": edge[0], "edge_chat": edge[1]}
        rows = await session.rows(filled(_CONTACTS_SQL["newest"], contact=_CONTACT, where=whole), **asked)
        found = [_contact(row) for row in rows]
        if len(found) >= limit or edge is None:
            break
    return found, None if edge is None else (edge[0], edge[1])


def _contact(row: Row) -> Contact:
    return contact_from_row(tuple(row))


def _conditions(bot_id: int, wanted: ContactFilter) -> tuple[str, dict[str, object]]:
    """What a filter asks for in SQL, and the values that are bound to it. Of kinds alone it also fits the tallies."""
    types = None if wanted.types is None else sorted(wanted.types)
    conditions: tuple[tuple[str, object, str], ...] = (
        ("types", types, "c.type = ANY (:types::text[])"),
        ("languages", model.languages_of(wanted), _LANGUAGES),
        ("since", wanted.seen_since_ms, "c.last_seen >= :since"),
        ("until", wanted.seen_before_ms, "c.last_seen < :until"),
        ("is_gone", wanted.is_gone, "c.is_gone = :is_gone"),
        ("text", None if wanted.text is None else wanted.text.casefold(), "strpos(c.words, :text) > 0"),
        ("campaign", wanted.campaign, "coalesce(c.campaign, '') = :campaign"),
    )
    given = [(name, value, sql) for name, value, sql in conditions if value is not None]
    where = " AND ".join(sql for _, _, sql in given) or "true"
    return where, {"bot": bot_id} | {name: value for name, value, _ in given}
