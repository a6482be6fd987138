"""Acting on many dead things at once: which ones, how many that is, and whether the asker is sure."""

from collections.abc import Callable

import typer

from peik.cli.client import Document
from peik.cli.command import Visit

COUNTED_MAX = 10_000
PAGE = 1000


def refuse_both(wanted: dict[str, str], *, is_all: bool) -> None:
    if wanted and is_all:
        raise typer.BadParameter("--all means all of them; leave it out where you say which.")


def is_confirmed(visit: Visit, question: str, noun: str, count: Callable[[], int], *, is_sure: bool) -> bool:
    """Show how many it is about and ask; False if there are none."""
    if is_sure:
        return True
    found = count()
    if not found:
        return False
    words = f"more than {COUNTED_MAX:,} {noun}s" if found > COUNTED_MAX else counted(found, noun)
    visit.confirm(question.format(words), is_sure=is_sure)
    return True


def count_pages(read: Callable[[str | None], Document], name: str) -> int:
    """How many there are over all pages, counted up to a bound: nobody should wait for the exact number."""
    count, cursor = 0, None
    while count <= COUNTED_MAX:
        page = read(cursor)
        found, more = page[name], page["next_cursor"]
        assert isinstance(found, list)
        count += len(found)
        if more is None:
            break
        cursor = str(more)
    return count


def counted(count: object, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
