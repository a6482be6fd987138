"""`peik messages export`: page by page to standard output or into a file.

While it goes on, the file is named FILE.part, and FILE.part.place says up to where it is whole and where the next page begins.
Both are synced page by page, so that an export goes on exactly there, whatever ended it.
"""

import csv
import io
import os
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import typer

from peik.archive.cli import api, leave_stdout
from peik.cli.bulk import counted
from peik.cli.client import Filters, page_of
from peik.cli.command import Exit, Visit
from peik.errors import BadInput, Conflict, Problem

PAGE = 1000


class ExportPage(NamedTuple):
    data: bytes
    cursor: str | None  # where the next one begins; None: this was the last


def page_at(visit: Visit, wanted: Filters, form: str, cursor: str | None) -> ExportPage:
    from peik.archive.api import NEXT_CURSOR

    query = {**wanted, "format": form, **page_of(cursor, PAGE)}
    with visit.accounts.stream(api().export, query=query) as answer:
        return ExportPage(b"".join(answer.chunks), answer.headers.get(NEXT_CURSOR.lower()))


class ExportPlace(msgspec.Struct, kw_only=True):
    """How far an export is, and what it is an export of."""

    filters: dict[str, str]
    form: str
    size_bytes: int = 0
    count: int = 0
    cursor: str | None = None


def export_to_stdout(visit: Visit, wanted: dict[str, str], form: str) -> None:
    cursor: str | None = None
    out = sys.stdout.buffer
    try:
        with visit.progress("Exporting", _total(visit, wanted), is_bytes=False) as advance:
            while True:
                page = page_at(visit, wanted, form, cursor)
                out.write(page.data)
                out.flush()
                advance(_records(page, form, is_first=cursor is None))
                cursor = page.cursor
                if cursor is None:
                    return
    except BrokenPipeError:
        leave_stdout()
        raise typer.Exit(Exit.PROBLEM) from None


def export_to_file(
    visit: Visit, file: Path, wanted: dict[str, str], form: str, *, is_resumed: bool, may_overwrite: bool
) -> None:
    part, kept = file.with_name(file.name + ".part"), file.with_name(file.name + ".part.place")
    try:
        place = _begun(file, part, kept, wanted, form, is_resumed=is_resumed, may_overwrite=may_overwrite)
        was_at = place.count
        _export(visit, part, kept, place)
        part.replace(file)
        kept.unlink(missing_ok=True)
    except OSError as error:
        raise Problem(code="cannot_write", detail=f"{part} cannot be written: {error.strerror}.") from None
    except KeyboardInterrupt:
        visit.note("What was exported so far is kept. Go on with --resume.")
        raise typer.Exit(Exit.INTERRUPTED) from None
    document = {
        "file": str(file),
        "format": form,
        "count": place.count,
        "resumed_at": was_at,
        "bytes": place.size_bytes,
    }
    visit.say(document, f"{counted(place.count, 'message')} exported to {file}.")


def _begun(
    file: Path, part: Path, kept: Path, wanted: dict[str, str], form: str, *, is_resumed: bool, may_overwrite: bool
) -> ExportPlace:
    if is_resumed and kept.exists():
        return _kept(kept, part, wanted, form)
    if is_resumed:
        raise BadInput(code="nothing_to_resume", detail=f"No export to {file} was interrupted. Leave --resume out.")
    for path in (file, part):
        if path.exists() and not may_overwrite:
            hint = "--resume goes on with it, --overwrite begins anew" if path == part else "--overwrite replaces it"
            raise Conflict(code="file_exists", detail=f"{path} is there already: {hint}.")
    part.write_bytes(b"")
    return ExportPlace(filters=wanted, form=form)


def _kept(kept: Path, part: Path, wanted: dict[str, str], form: str) -> ExportPlace:
    """Of an export of the same. Times that were meant from now on (an hour ago) stay those of the beginning."""
    try:
        place = msgspec.json.decode(kept.read_bytes(), type=ExportPlace)
    except msgspec.DecodeError:
        raise Conflict(code="bad_place", detail=f"{kept} cannot be read. --overwrite begins anew.") from None
    if not part.exists() or part.stat().st_size < place.size_bytes:
        raise Conflict(code="bad_place", detail=f"{part} is not what {kept} says. --overwrite begins anew.")
    if _without_times(place.filters) != _without_times(wanted) or place.form != form:
        raise Conflict(
            code="other_export", detail=f"{part} is an export of something else. Say the same filters, or --overwrite."
        )
    return place


def _without_times(filters: dict[str, str]) -> dict[str, str]:
    """An hour ago is another time now: only whether one was given is compared."""
    return {name: "" if name in ("since", "until") else value for name, value in filters.items()}


def _export(visit: Visit, part: Path, kept: Path, place: ExportPlace) -> None:
    with (
        part.open("r+b") as out,
        visit.progress("Exporting", _total(visit, place.filters), is_bytes=False) as advance,
    ):
        out.truncate(place.size_bytes)  # what came after is of a page that was not whole
        out.seek(place.size_bytes)
        advance(place.count)
        while True:
            is_first = place.cursor is None
            page = page_at(visit, place.filters, place.form, place.cursor)
            out.write(page.data)
            out.flush()
            os.fsync(out.fileno())
            records = _records(page, place.form, is_first=is_first)
            place.size_bytes += len(page.data)
            place.count += records
            place.cursor = page.cursor
            advance(records)
            if page.cursor is None:
                return
            _keep(kept, place)


def _keep(kept: Path, place: ExportPlace) -> None:
    new = kept.with_name(kept.name + ".new")
    with new.open("wb") as file:
        file.write(msgspec.json.encode(place))
        file.flush()
        os.fsync(file.fileno())
    new.replace(kept)


def _total(visit: Visit, wanted: dict[str, str]) -> int:
    """For the bar only: where nobody sees one, nothing is counted."""
    if visit.is_json or not sys.stderr.isatty():
        return 0
    count = visit.accounts.document(api().count_messages, query=wanted, timeout_s=None)["count"]
    assert isinstance(count, int)
    return count


def _records(page: ExportPage, form: str, *, is_first: bool) -> int:
    if form == "jsonl":
        return page.data.count(b"\n")
    return sum(1 for _ in csv.reader(io.StringIO(page.data.decode(), newline=""))) - is_first
