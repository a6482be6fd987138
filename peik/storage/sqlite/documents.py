"""Papers in the SQLite store: what is asked goes into the store's own commits and reads."""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import apsw
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
from peik.errors import Conflict
from peik.storage.sqlite import consumers
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.statements import Row, Value, load, run_many
from peik.storage.sqlite.writer import SqliteWays

_SQL = load("sqlite_papers.sql")


class SqliteDocuments:
    """See `peik.core.documents.DocumentStore`. Made by the store when it is opened."""

    def __init__(self, ways: SqliteWays) -> None:
        self._collect, self._read = ways.collect, ways.read

    async def file(self, filings: Sequence[Filing]) -> None:
        changes = documents.changes_of(filings)
        if not changes:
            return

        def add(batch: SqliteBatch) -> Callable[[], Conflict | None]:
            refused = _file(batch.connection, changes)
            return lambda: refused

        # A refusal is an answer like any other: whoever shares the commit need not be done again.
        refused = await self._collect(add, weight=len(changes))
        if refused is not None:
            raise refused

    async def paper(self, shelf: str, key: str) -> StoredDocument | None:
        rows = await self._read(lambda one: list(one.execute(_SQL["paper"], (shelf, key))))
        return next(map(_paper, rows), None)

    async def those(self, shelf: str, keys: Sequence[str]) -> dict[str, StoredDocument]:
        names: list[Row] = [(shelf, key) for key in dict.fromkeys(keys)]
        rows = await self._read(lambda one: run_many(one, _SQL["those"], names))
        return {paper.key: paper for paper in map(_paper, rows)}

    async def papers(
        self, shelf: str, *, after: str | None = None, until: str | None = None, limit: int, is_backwards: bool = False
    ) -> list[StoredDocument]:
        above, below = (until, after) if is_backwards else (after, until)
        where, bound = _range(shelf, above=above, below=below)
        order = "DESC" if is_backwards else "ASC"
        sql = _SQL["page"].replace("{where}", where).replace("{order}", order)
        rows = await self._read(lambda one: list(one.execute(sql, bound | {"limit": limit})))
        return [_paper(row) for row in rows]

    async def count_papers(self, shelf: str) -> int:
        rows = await self._read(lambda one: list(one.execute(_SQL["count"], (shelf,))))
        return int(rows[0][0]) if rows else 0

    async def shelves(self, prefix: str) -> list[str]:
        bound = {"first": prefix, "end": prefix + documents.AFTER_ALL_ASCII}
        return await self._read(lambda one: [str(row[0]) for row in one.execute(_SQL["shelves"], bound)])

    async def clear_shelf(self, shelf: str, *, until: str | None = None, limit: int) -> int:
        where, bound = _range(shelf, above=None, below=until)
        sql = _SQL["clear"].replace("{where}", where)

        def add(batch: SqliteBatch) -> Callable[[], int]:
            batch.connection.execute(sql, bound | {"limit": limit})
            gone = batch.connection.changes()
            return lambda: gone

        return await self._collect(add, weight=limit)


def _file(connection: apsw.Connection, changes: Sequence[DocumentChange]) -> Conflict | None:
    """Nothing is written if one is refused."""
    expecting: list[Row] = [change.name for change in changes if change.expected is not None]
    versions: dict[Name, int] = {}
    for shelf, key, version in run_many(connection, _SQL["versions"], expecting):
        assert isinstance(version, int)
        versions[str(shelf), str(key)] = version
    try:
        documents.check_expected(changes, versions)
    except Conflict as conflict:
        return conflict
    kept: list[Row] = [(*change.name, change.body) for change in changes if change.body is not None]
    run_many(connection, _SQL["keep"], kept)
    gone: list[Row] = [change.name for change in changes if change.body is None]
    run_many(connection, _SQL["take_away"], gone)
    return None


def _range(shelf: str, *, above: str | None, below: str | None) -> tuple[str, dict[str, Value]]:
    """Between two keys, which are left out. One that is None is no bound, and is not in the query: a walk seeks by the rest."""
    conditions = [sql for key, sql in ((above, "p.key > :above"), (below, "p.key < :below")) if key is not None]
    return " AND ".join(conditions) or "true", {"shelf": shelf, "above": above, "below": below}


def _paper(row: tuple[Value, ...]) -> StoredDocument:
    shelf, key, body, version = row
    assert isinstance(version, int)
    return StoredDocument(shelf=str(shelf), key=str(key), body=str(body), version=version)


# Known chats in the SQLite store: what is asked goes into the store's own commits and reads.


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
_CONTACTS_SQL = {name: sql.replace("{contact}", _CONTACT) for name, sql in load("sqlite_contacts.sql").items()}

CAMPAIGNS_STEP = 50_000  # chats that one look counts: others have their turn in between

_BEFORE = "(c.last_seen, c.chat_id) < (:seen, :chat)"
_FROM_EDGE = "(c.last_seen, c.chat_id) >= (:edge_seen, :edge_chat)"
_SEEN = {"since": "c.last_seen >= :since", "until": "c.last_seen < :until"}
_LANGUAGES = (
    "EXISTS (SELECT 1 FROM json_each(:languages) AS l WHERE lower(coalesce(c.language, '')) = l.value"
    " OR substr(lower(c.language), 1, length(l.value) + 1) = l.value || '-')"
)


class SqliteContacts:
    """See `peik.core.documents.ContactStore`. Made by the store when it is opened."""

    def __init__(self, ways: SqliteWays) -> None:
        self._collect, self._read = ways.collect, ways.read

    async def contacts_place(self, bot_id: int) -> int:
        return await self._read(lambda one: _place(one, bot_id))

    async def save_contacts(self, bot_id: int, contacts: Sequence[Contact], *, place: int) -> None:
        fresh = model.folded(contacts)

        def add(batch: SqliteBatch) -> Callable[[], None]:
            _save(batch.connection, bot_id, fresh, place)
            return lambda: None

        await self._collect(add, weight=len(fresh) + 1)

    async def contact(self, bot_id: int, chat_id: int) -> Contact | None:
        rows = await self._read(lambda one: run_many(one, _CONTACTS_SQL["those"], [(bot_id, chat_id)]))
        return next(map(contact_from_row, rows), None)

    async def contacts(self, bot_id: int, wanted: ContactFilter, *, after: int | None, limit: int) -> list[Contact]:
        where, bound = _conditions(bot_id, wanted)
        if after is not None:
            where, bound = f"c.chat_id > :after AND {where}", bound | {"after": after}
        return await self._find("page", where, bound | {"limit": limit})

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
        asked = bound | {"limit": limit}
        return await self._read(lambda one: _newest(one, where, within, asked, looked_max))

    async def count_contacts(self, bot_id: int, wanted: ContactFilter) -> int:
        where, bound = _conditions(bot_id, wanted)
        sql = _CONTACTS_SQL["count_tallied" if model.is_tallied(wanted) else "count"].replace("{where}", where)
        return await self._read(lambda one: _number(one, sql, bound))

    async def count_campaigns(self, bot_id: int, *, since_ms: int) -> dict[str, int]:
        found: Counter[str] = Counter()
        since: int | None = since_ms
        while since is not None:
            counts, since = await self._read(functools.partial(_campaigns, bot_id=bot_id, since=since))
            found.update(counts)
        return dict(found)

    async def _find(self, name: str, where: str, bound: dict[str, Value]) -> list[Contact]:
        sql = _CONTACTS_SQL[name].replace("{where}", where)
        return await self._read(lambda one: [contact_from_row(row) for row in one.execute(sql, bound)])


def forget_bot(connection: apsw.Connection, bot_id: int) -> None:
    """Whoever wrote to a bot is forgotten with it: its arrivals are, too, and are numbered anew if it comes back."""
    for name in ("forget_contacts", "forget_tallies", "forget_place"):
        connection.execute(_CONTACTS_SQL[name], (bot_id,))


def row_of(contact: Contact) -> Row:
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


def _save(connection: apsw.Connection, bot_id: int, fresh: Sequence[Contact], place: int) -> None:
    consumers.check_bot(connection, bot_id)
    if place < _place(connection, bot_id):
        return
    names: list[Row] = [(bot_id, contact.chat_id) for contact in fresh]
    known = {one.chat_id: one for one in map(contact_from_row, run_many(connection, _CONTACTS_SQL["those"], names))}
    rows: list[Row] = []
    for contact in fresh:
        before = known.get(contact.chat_id)
        rows.append(row_of(contact if before is None else model.met_again(before, contact)))
    run_many(connection, _CONTACTS_SQL["save"], rows)
    connection.execute(_CONTACTS_SQL["move_place"], {"bot": bot_id, "place": place})


def _place(connection: apsw.Connection, bot_id: int) -> int:
    return _number(connection, _CONTACTS_SQL["place"], (bot_id,))


def _number(connection: apsw.Connection, sql: str, bound: Row | dict[str, Value]) -> int:
    for row in connection.execute(sql, bound):
        return int(row[0])
    return 0


def _newest(
    connection: apsw.Connection, where: str, within: str, bound: dict[str, Value], looked_max: int
) -> ContactPage:
    found: list[Contact] = []
    edge: tuple[int, int] | None = None
    limit = bound["limit"]
    assert isinstance(limit, int)
    for most in (min(model.LOOKED_FIRST, looked_max), looked_max):
        edge = _edge(connection, within, bound | {"looked": most})
        whole = f"{within} AND {where}"
        asked = bound
        if edge is not None:
            whole, asked = f"{_FROM_EDGE} AND {whole}", bound | {"edge_seen": edge[0], "edge_chat": edge[1]}
        rows = connection.execute(_CONTACTS_SQL["newest"].replace("{where}", whole), asked)
        found = [contact_from_row(row) for row in rows]
        if len(found) >= limit or edge is None:
            break
    return model.turned(found, limit=limit, edge=edge)


def _edge(connection: apsw.Connection, within: str, bound: dict[str, Value]) -> tuple[int, int] | None:
    """The last chat that is looked at; None: there are not so many."""
    for seen, chat in connection.execute(_CONTACTS_SQL["edge"].replace("{within}", within), bound):
        return int(seen), int(chat)
    return None


def _campaigns(connection: apsw.Connection, *, bot_id: int, since: int) -> tuple[dict[str, int], int | None]:
    """How many came by each from then on, and up to when they were counted; None: to the end."""
    bound: dict[str, Value] = {"bot": bot_id, "since": since, "step": CAMPAIGNS_STEP}
    until: int | None = None
    for (first_seen,) in connection.execute(_CONTACTS_SQL["campaigns_edge"], bound):
        until = max(int(first_seen), since + 1)
    return dict(connection.execute(_CONTACTS_SQL["count_campaigns"], bound | {"until": until})), until


def _conditions(bot_id: int, wanted: ContactFilter) -> tuple[str, dict[str, Value]]:
    """What a filter asks for in SQL, and the values that are bound to it. Of kinds alone it also fits the tallies."""
    conditions: tuple[tuple[str, Value, str], ...] = (
        ("types", _listed(wanted.types), "c.type IN (SELECT value FROM json_each(:types))"),
        ("languages", _listed(model.languages_of(wanted)), _LANGUAGES),
        ("since", wanted.seen_since_ms, "c.last_seen >= :since"),
        ("until", wanted.seen_before_ms, "c.last_seen < :until"),
        ("is_gone", wanted.is_gone, "c.is_gone = :is_gone"),
        ("text", None if wanted.text is None else wanted.text.casefold(), "instr(c.words, :text) > 0"),
        ("campaign", wanted.campaign, "coalesce(c.campaign, '') = :campaign"),
    )
    given = [(name, value, sql) for name, value, sql in conditions if value is not None]
    where = " AND ".join(sql for _, _, sql in given) or "true"
    return where, {"bot": bot_id} | {name: value for name, value, _ in given}


def _listed(words: Sequence[str] | frozenset[str] | None) -> str | None:
    return None if words is None else msgspec.json.encode(sorted(words)).decode()
