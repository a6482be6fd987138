"""Looks through a source: which tables are what, which rows can be brought, and which stay and why. It changes nothing."""

import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from peik.core.token import Token
from peik.errors import BadInput, Problem
from peik.importing.api import ImportApi
from peik.importing.rows import (
    BadRow,
    Document,
    RowStanding,
    TableKind,
    TableShape,
    as_letters,
    as_people,
    instant_ms_of,
    last_update_of,
    letter_of,
    person_of,
    recognise,
    standing_of,
)
from peik.importing.sources import ImportSource, SourceRow
from peik.outbox.api import LetterApi

if TYPE_CHECKING:
    from peik.cli.client import PeikClient

TROUBLES_MAX = 100  # that are told one by one; all are counted


class ImportWanted(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody has said about it. None: as it looks."""

    name: str | None = None  # of the source, in keys
    table: str | None = None
    people_table: str | None = None
    columns: Mapping[str, str] = msgspec.field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    since_ms: int | None = None
    last_update_id: int | None = None
    bot_id: str | None = None  # whose place it is, where a table has those of several bots
    kinds: frozenset[TableKind] = frozenset(TableKind) - {TableKind.RECEIVED}


class ImportPart(msgspec.Struct, kw_only=True):
    """One table, and what was found in it."""

    shape: TableShape
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

    def trouble(self, row: SourceRow, why: str) -> None:
        self.troubled += 1
        if len(self.troubles) < TROUBLES_MAX:
            self.troubles.append(f"{self.shape.table}, row {row.place}: {why}.")


class ImportPlan(msgspec.Struct, kw_only=True):
    name: str
    parts: list[ImportPart]
    last_update_id: int | None = None
    tokens: list[Token] = msgspec.field(default_factory=list)  # of bots; never shown
    left: list[str] = msgspec.field(default_factory=list)  # tables that stay, each with why, in a sentence


def look(source: ImportSource, wanted: ImportWanted, step: Callable[[int], None] = lambda done: None) -> ImportPlan:
    """Read everything once, and change nothing. Raises BadInput if what was asked for is not there."""
    plan = ImportPlan(name=wanted.name or source.name, parts=[], last_update_id=wanted.last_update_id)
    for shape in _shapes(source, wanted, plan.left):
        if shape.kind is TableKind.OFFSET:
            if plan.last_update_id is None:
                plan.last_update_id = _last_update(source, shape, wanted.bot_id, plan.left)
            continue
        if shape.kind is TableKind.BOTS:
            plan.tokens += _tokens(source, shape, plan.left)
            continue
        part = ImportPart(shape=shape)
        for _ in made_of(source, part, wanted, plan.name):
            part.ready += 1
            step(1)
        plan.parts.append(part)
    return plan


def _shapes(source: ImportSource, wanted: ImportWanted, left: list[str]) -> Iterator[TableShape]:
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
        elif shape.kind is TableKind.RECEIVED:
            left.append(f"{table}: messages that people wrote to the bot. Let the old program finish them.")
            shape = None
        elif shape.kind is TableKind.LETTERS:
            shape = None if wanted.table is not None else as_letters(table, columns, wanted.columns)
        elif shape.kind is TableKind.PEOPLE:
            shape = None if wanted.people_table is not None else as_people(table, columns, wanted.columns)
        if shape is not None and shape.kind in wanted.kinds:
            yield shape


def _tokens(source: ImportSource, shape: TableShape, left: list[str]) -> list[Token]:
    """Of each bot once. What is none is told by its row, without its words."""
    found: dict[int, Token] = {}
    for row in source.rows(shape.table):
        text = str(row.values.get(shape.columns["token"]) or "")
        try:
            token = Token(text)
        except BadInput:
            left.append(f"{shape.table}, row {row.place}: what stands there is no bot token.")
        else:
            found.setdefault(token.bot_id, token)
    return list(found.values())


def _last_update(source: ImportSource, shape: TableShape, bot_id: str | None, left: list[str]) -> int | None:
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


def made_of(
    source: ImportSource, part: ImportPart, wanted: ImportWanted, name: str
) -> Iterator[tuple[SourceRow, Document]]:
    """Every row that can be brought, as Peik takes it. What stays is counted in the part, each time again."""
    part.rows, part.standings, part.words, part.first, part.oldest_ms = 0, {}, {}, None, None
    make = _letter if part.shape.kind is TableKind.LETTERS else _person
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


def _person(row: SourceRow, part: ImportPart, wanted: ImportWanted, name: str) -> Document:
    return person_of(part.shape, row.values)


def _letter(row: SourceRow, part: ImportPart, wanted: ImportWanted, name: str) -> Document | None:
    shape = part.shape
    standing, word = standing_of(shape, row.values, wanted.pending)
    created = shape.columns.get("created_at")
    created_ms = None if created is None else instant_ms_of(row.values.get(created))
    if standing is RowStanding.WAITING and wanted.since_ms is not None and (created_ms or 0) < wanted.since_ms:
        standing = RowStanding.OLD
    if standing is not RowStanding.WAITING:
        part.standings[standing] = part.standings.get(standing, 0) + 1
        if standing is RowStanding.UNKNOWN and (word in part.words or len(part.words) < TROUBLES_MAX):
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


# Brings what a source has to Peik: in batches, each row under a key of its own.
#
# The source is only read. How far it is stands in Peik. Whatever dies in the middle, the same command again goes on:
# a row has the same key each time, so that what is there already is known.


BATCH = 500
BATCH_S = 300.0  # for one on a slow disk
BATCH_BYTES = 4 << 20
KEYS_KEPT_MS = 47 * 3600 * 1000  # a key is kept for 48 hours; an hour is for a clock that is wrong
_REFUSED = frozenset({409, 413, 422})  # about one of the letters, not about Peik


class ImportTarget:
    """A bot of Peik, as an import reaches it."""

    def __init__(self, client: "PeikClient", bot_id: str) -> None:
        self._client = client
        self._bot_id = bot_id

    def newest_id(self) -> int:
        """Of all letters: what is accepted from now on has a higher one."""
        found = self._client.document(LetterApi.list_letters, query={"limit": "1"})["letters"]
        assert isinstance(found, list)
        return int(found[0]["id"]) if found else 0

    def accept(self, letters: Sequence[Document]) -> list[int]:
        """All in one commit, or none. Their ids."""
        body = {"letters": [{**letter, "bot_id": self._bot_id} for letter in letters]}
        ids = self._client.document(LetterApi.accept_batch, body=body, timeout_s=BATCH_S)["ids"]
        assert isinstance(ids, list)
        return [int(one) for one in ids]

    def add_people(self, people: Sequence[Document]) -> int:
        """How many were not known."""
        body = {"bot_id": self._bot_id, "contacts": list(people)}
        return self._client.ask(ImportApi.import_contacts, body=body, timeout_s=BATCH_S).new

    def set_last_update(self, last_update_id: int) -> str:
        """What became of it, in a sentence."""
        body = {"bot_id": self._bot_id, "last_update_id": last_update_id}
        try:
            self._client.document(ImportApi.import_offset, body=body)
        except Problem as problem:  # of the store, or told by REST
            if problem.code != "inbox_begun":
                raise
            return problem.detail
        return f"Peik goes on behind update {last_update_id}: what the bot has handled is not handed on again."

    def note(self, name: str, table: str) -> Document | None:
        """How far an import was."""
        found = self._client.ask(ImportApi.list_imports, query={"bot_id": self._bot_id}).imports
        note = next((one for one in found if (one.name, one.table) == (name, table)), None)
        if note is None:
            return None
        begun_at = datetime.datetime.fromisoformat(note.begun_at)
        return {**msgspec.structs.asdict(note), "begun_at_ms": int(begun_at.timestamp() * 1000)}

    def keep_note(self, note: Document) -> None:
        begun_at_ms = note["begun_at_ms"]
        assert isinstance(begun_at_ms, int)
        body = {name: note[name] for name in ("name", "table", "place", "letters")}
        self._client.document(
            ImportApi.keep_import, body={**body, "bot_id": self._bot_id, "begun_at": begun_at_ms / 1000}
        )


def bring(
    source: ImportSource,
    plan: ImportPlan,
    wanted: ImportWanted,
    taker: ImportTarget,
    step: Callable[[int], None] = lambda done: None,
) -> list[str]:
    """Hand it over. What became of the offset, and of rows that were brought too long ago to be known again, in sentences."""
    told: list[str] = []
    if plan.last_update_id is not None:
        told.append(taker.set_last_update(plan.last_update_id))
    highest = taker.newest_id()
    for part in plan.parts:
        part.troubles, part.troubled = [], 0
        if part.shape.kind is TableKind.PEOPLE:
            for batch in _batches(made_of(source, part, wanted, plan.name)):
                new = _add(taker, part, batch)
                part.brought += new
                step(len(batch))
        else:
            told.extend(_bring_letters(source, part, plan.name, wanted, taker, highest=highest, step=step))
    return told


def _bring_letters(
    source: ImportSource,
    part: ImportPart,
    name: str,
    wanted: ImportWanted,
    taker: ImportTarget,
    *,
    highest: int,
    step: Callable[[int], None],
) -> Iterator[str]:
    table = part.shape.table
    now_ms = time.time_ns() // 1_000_000
    note = taker.note(name, table) or {"name": name, "table": table, "place": None, "begun_at_ms": now_ms, "letters": 0}
    skip_to = _place_to_skip_to(note, now_ms)
    skipped = 0
    for batch in _batches(made_of(source, part, wanted, name)):
        fresh = [(row, letter) for row, letter in batch if skip_to is None or row.place > skip_to]
        skipped += len(batch) - len(fresh)
        ids = _accept(taker, part, fresh)
        new = len({number for number in ids if number > highest})
        highest = max([highest, *ids])  # a row with the key of one before it is not new
        part.brought += new
        part.known += len(ids) - new + len(batch) - len(fresh)
        if fresh:
            place, letters = note["place"], note["letters"]
            assert isinstance(letters, int)
            last = fresh[-1][0].place
            note |= {"place": last if place is None else max(last, _number(place)), "letters": letters + new}
            # After the letters are accepted: if it dies in between, their keys know them. The other way round they would be lost.
            taker.keep_note(note)
        step(len(batch))
    if skipped:
        yield (
            f"{skipped} rows of {table} were brought more than 48 hours ago and are left out: Peik cannot know any more which of "
            "them it had. Give the import another --name to bring all of them again."
        )


def _place_to_skip_to(note: Document, now_ms: int) -> int | None:
    """Rows up to here are left out, since their keys may be forgotten. None: keys still tell."""
    if note["place"] is None or now_ms - _number(note["begun_at_ms"]) < KEYS_KEPT_MS:
        return None
    return _number(note["place"])


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


# ---- handing over ----


def _batches(made: Iterator[tuple[SourceRow, Document]]) -> Iterator[list[tuple[SourceRow, Document]]]:
    batch: list[tuple[SourceRow, Document]] = []
    size = 0
    for one in made:
        batch.append(one)
        size += len(msgspec.json.encode(one[1]))
        if len(batch) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _accept(taker: ImportTarget, part: ImportPart, batch: Sequence[tuple[SourceRow, Document]]) -> list[int]:
    """In halves, if one of them is refused: it is told by its row, and its neighbours go on in their order."""
    if not batch:
        return []
    try:
        return taker.accept([letter for _, letter in batch])
    except Problem as problem:
        if problem.status not in _REFUSED:
            raise
        if len(batch) == 1:
            part.trouble(batch[0][0], problem.detail.rstrip("."))
            return []
    middle = len(batch) // 2
    return _accept(taker, part, batch[:middle]) + _accept(taker, part, batch[middle:])


def _add(taker: ImportTarget, part: ImportPart, batch: Sequence[tuple[SourceRow, Document]]) -> int:
    try:
        new = taker.add_people([person for _, person in batch])
    except Problem as problem:
        if problem.status not in _REFUSED:
            raise
        if len(batch) == 1:
            part.trouble(batch[0][0], problem.detail.rstrip("."))
            return 0
        middle = len(batch) // 2
        return _add(taker, part, batch[:middle]) + _add(taker, part, batch[middle:])
    part.known += len(batch) - new
    return new
