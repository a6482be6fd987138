"""Lines of a feed as they come, until Ctrl-C."""

import os
import sys
from collections.abc import Callable, Mapping

import msgspec
import typer

from peik.doors.commands.counter import Document
from peik.doors.commands.exits import Exit
from peik.doors.commands.visit import Visit


def follow_lines(visit: Visit, what: str, wanted: Mapping[str, str], words: Callable[[str, Document], str]) -> None:
    """`what`: messages or events. A line is asked for only after the one before was written."""
    try:
        for kind, body in visit.accounts.follow(what, wanted, on_lost=visit.note):
            line: Document = msgspec.json.decode(body, type=dict[str, object])
            shown = msgspec.json.encode({"line": kind, **line}).decode() if visit.is_json else words(kind, line)
            sys.stdout.write(shown + "\n")
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        leave_stdout()
        raise typer.Exit(Exit.SUCCESS) from None


def leave_stdout() -> None:
    """Whoever read it has seen enough: what Python still wants to write at its end goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
