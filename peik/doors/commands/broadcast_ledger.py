"""The ledger of a broadcast, written to a file or to standard output, page by page."""

import contextlib
import enum
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
import typer

from peik.broadcasts.shown import COLUMNS, csv_of
from peik.doors.commands.counter import Document

PAGE = 1000


class Format(enum.StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


def write_ledger(
    ask: Callable[[Mapping[str, str]], Document],
    wanted: Format | None,
    output: Path | None,
    *,
    on_lines: Callable[[int], None],
) -> None:
    """`ask` gives one page. Without a format the name of the file decides."""
    kind = wanted or (Format.CSV if output is not None and output.suffix == ".csv" else Format.JSONL)
    with _opened(output) as file:
        if kind is Format.CSV:
            file.write(",".join(COLUMNS) + "\r\n")
        cursor: object = None
        while True:
            page = ask({"limit": str(PAGE)} if cursor is None else {"limit": str(PAGE), "cursor": str(cursor)})
            lines: Any = page["recipients"]
            file.write(csv_of(lines) if kind is Format.CSV else _jsonl(lines))
            on_lines(len(lines))
            cursor = page["next_cursor"]
            if cursor is None:
                return


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[IO[str]]:
    if output is None:
        yield sys.stdout
        return
    try:
        file = output.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise typer.BadParameter(f"{output} cannot be written: {error.strerror}.", param_hint="--output") from None
    with file:
        yield file


def _jsonl(lines: list[Any]) -> str:
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)
