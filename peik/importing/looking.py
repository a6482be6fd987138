"""Looks through a source: which tables are what, which rows can be brought, and which stay and why. It changes nothing."""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from peik.errors import BadInput
from peik.importing.making import (
    BadRow,
    Document,
    Standing,
    instant_ms_of,
    last_update_of,
    letter_of,
    person_of,
    standing_of,
)
from peik.importing.shapes import Kind, Shape, as_letters, as_people, recognise
from peik.importing.sources import Row, Source

TROUBLES_MAX = 100  # that are told one by one; all are counted


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody has said about it. None: as it looks."""

    name: str | None = None  # of the source, in keys
    table: str | None = None
    people_table: str | None = None
    columns: Mapping[str, str] = msgspec.field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    since_ms: int | None = None
    last_update_id: int | None = None
    bot_id: str | None = None  # whose place it is, where a table has those of several bots
    kinds: frozenset[Kind] = frozenset({Kind.LETTERS, Kind.PEOPLE, Kind.OFFSET})


class Part(msgspec.Struct, kw_only=True):
    """One table, and what was found in it."""

    shape: Shape
    rows: int = 0
    ready: int = 0  # to be brought
    standings: dict[str, int] = msgspec.field(default_factory=dict)  # rows that stay, by how they stand
    words: dict[str, int] = msgspec.field(default_factory=dict)  # words that are not known
    troubles: list[str] = msgspec.field(default_factory=list)
    troubled: int = 0
    oldest_ms: int | None = None
    first: str | None = None  # the first one, for people to look at
    brought: int = 0  # that Peik did not have
    known: int = 0  # that it had

    def trouble(self, row: Row, why: str) -> None:
        self.troubled += 1
        if len(self.troubles) < TROUBLES_MAX:
            self.troubles.append(f"{self.shape.table}, row {row.place}: {why}.")


class Plan(msgspec.Struct, kw_only=True):
    name: str
    parts: list[Part]
    last_update_id: int | None = None
    left: list[str] = msgspec.field(default_factory=list)  # tables that stay, each with why, in a sentence


def look(source: Source, wanted: Wanted, step: Callable[[int], None] = lambda done: None) -> Plan:
    """Read everything once, and change nothing. Raises BadInput if what was asked for is not there."""
    plan = Plan(name=wanted.name or source.name, parts=[], last_update_id=wanted.last_update_id)
    for shape in _shapes(source, wanted, plan.left):
        if shape.kind is Kind.OFFSET:
            if plan.last_update_id is None:
                plan.last_update_id = _last_update(source, shape, wanted.bot_id, plan.left)
            continue
        part = Part(shape=shape)
        for _ in made_of(source, part, wanted, plan.name):
            part.ready += 1
            step(1)
        plan.parts.append(part)
    return plan


def _shapes(source: Source, wanted: Wanted, left: list[str]) -> Iterator[Shape]:
    tables = source.tables()
    for asked in (wanted.table, wanted.people_table):
        if asked is not None and asked not in tables:
            raise BadInput(code="no_table", detail=f"There is no table {asked}. There are: {', '.join(tables)}.")
    for table, columns in tables.items():
        shape = recognise(table, columns)
        if table == wanted.table:
            shape = as_letters(table, columns, wanted.columns)
        elif table == wanted.people_table:
            shape = as_people(table, columns, wanted.columns)
        elif shape is None:
            left.append(f"{table}: nothing that Peik knows. If these are messages to send, say --table {table}.")
        elif shape.kind is Kind.RECEIVED:
            left.append(f"{table}: messages that people wrote to the bot. Let the old program finish them.")
            shape = None
        elif shape.kind is Kind.LETTERS:
            shape = None if wanted.table is not None else as_letters(table, columns, wanted.columns)
        elif shape.kind is Kind.PEOPLE:
            shape = None if wanted.people_table is not None else as_people(table, columns, wanted.columns)
        if shape is not None and shape.kind in wanted.kinds:
            yield shape


def _last_update(source: Source, shape: Shape, bot_id: str | None, left: list[str]) -> int | None:
    """The lowest, if a row says one thing and another row another: prefer twice to never."""
    rows = [row.values for row in source.rows(shape.table) if row.trouble is None]
    if "bot" in shape.columns and len(rows) > 1:
        column = shape.columns["bot"]
        if bot_id is None:
            left.append(f"{shape.table}: the places of several bots. Say whose is meant: --bot, or --last-update.")
            return None
        rows = [row for row in rows if str(row.get(column)) == bot_id]
    found = [number for row in rows if (number := last_update_of(shape, row)) is not None]
    return min(found, default=None)


def made_of(source: Source, part: Part, wanted: Wanted, name: str) -> Iterator[tuple[Row, Document]]:
    """Every row that can be brought, as Peik takes it. What stays is counted in the part, each time anew."""
    part.rows, part.standings, part.words, part.first, part.oldest_ms = 0, {}, {}, None, None
    make = _letter if part.shape.kind is Kind.LETTERS else _person
    for row in source.rows(part.shape.table):
        part.rows += 1
        if row.trouble is not None:
            part.trouble(row, row.trouble)
            continue
        try:
            made = make(row, part, wanted, name)
        except BadRow as why:
            part.trouble(row, str(why))
            continue
        if made is not None:
            yield row, made


def _person(row: Row, part: Part, wanted: Wanted, name: str) -> Document:
    return person_of(part.shape, row.values)


def _letter(row: Row, part: Part, wanted: Wanted, name: str) -> Document | None:
    shape = part.shape
    standing, word = standing_of(shape, row.values, wanted.pending)
    created = shape.columns.get("created_at")
    created_ms = None if created is None else instant_ms_of(row.values.get(created))
    if standing is Standing.WAITING and wanted.since_ms is not None and (created_ms or 0) < wanted.since_ms:
        standing = Standing.OLD
    if standing is not Standing.WAITING:
        part.standings[standing] = part.standings.get(standing, 0) + 1
        if standing is Standing.UNKNOWN and (word in part.words or len(part.words) < TROUBLES_MAX):
            part.words[word] = part.words.get(word, 0) + 1
        return None
    letter = letter_of(shape, row.values)
    if created_ms is not None:
        part.oldest_ms = min(created_ms, part.oldest_ms or created_ms)
    params = letter["params"]
    assert isinstance(params, dict)
    if part.first is None:
        words = str(params.get("text") or params.get("caption") or letter["method"])
        part.first = f"to {params['chat_id']}: {words if len(words) <= 60 else words[:59] + '…'}"
    column = shape.columns.get("id")
    number = row.values.get(column) if column is not None else None
    letter["idempotency_key"] = f"{name}:{shape.table}:{row.place if number in (None, '') else number}"
    letter["metadata"] = {"message_type": "imported"}
    return letter
