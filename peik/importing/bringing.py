"""Brings what a source has to Peik: in batches, each row under a key of its own.

The source is only read. How far it is stands in Peik. Whatever dies in the middle, the same command again goes on: a row has the
same key each time, so that what is there already is known.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from peik.errors import Problem
from peik.importing.looking import Part, Plan, Wanted, made_of
from peik.importing.making import Document
from peik.importing.shapes import Kind
from peik.importing.sources import Row, Source

BATCH = 500
BATCH_BYTES = 4 << 20
KEYS_KEPT_MS = 47 * 3600 * 1000  # a key is kept for 48 hours; an hour is for a clock that is wrong
_REFUSED = frozenset({409, 413, 422})  # about one of the letters, not about Peik


class Taker(Protocol):
    """Peik, as it is reached: over REST, or its store."""

    def newest_id(self) -> int:
        """Of all letters: what is accepted from now on has a higher one."""

    def accept(self, letters: Sequence[Document]) -> list[int]:
        """All in one commit, or none. Their ids."""

    def add_people(self, people: Sequence[Document]) -> int:
        """How many were not known."""

    def set_last_update(self, last_update_id: int) -> str:
        """What became of it, in a sentence."""

    def note(self, name: str, table: str) -> Document | None:
        """How far an import was."""

    def keep_note(self, note: Document) -> None: ...


def bring(
    source: Source, plan: Plan, wanted: Wanted, taker: Taker, step: Callable[[int], None] = lambda done: None
) -> list[str]:
    """Hand it over. What became of the offset, and of rows that were brought too long ago to be known again, in sentences."""
    told: list[str] = []
    if plan.last_update_id is not None:
        told.append(taker.set_last_update(plan.last_update_id))
    highest = taker.newest_id()
    for part in plan.parts:
        part.troubles, part.troubled = [], 0
        if part.shape.kind is Kind.PEOPLE:
            for batch in _batches(made_of(source, part, wanted, plan.name)):
                new = _add(taker, part, batch)
                part.brought += new
                step(len(batch))
        else:
            told.extend(_bring_letters(source, part, plan.name, wanted, taker, highest=highest, step=step))
    return told


def _bring_letters(
    source: Source, part: Part, name: str, wanted: Wanted, taker: Taker, *, highest: int, step: Callable[[int], None]
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


def _batches(made: Iterator[tuple[Row, Document]]) -> Iterator[list[tuple[Row, Document]]]:
    batch: list[tuple[Row, Document]] = []
    size = 0
    for one in made:
        batch.append(one)
        size += len(msgspec.json.encode(one[1]))
        if len(batch) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _accept(taker: Taker, part: Part, batch: Sequence[tuple[Row, Document]]) -> list[int]:
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


def _add(taker: Taker, part: Part, batch: Sequence[tuple[Row, Document]]) -> int:
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
