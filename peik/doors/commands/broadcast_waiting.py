"""Waiting for a broadcast with its progress in sight. Ctrl-C ends the waiting at once, and never the broadcast."""

import time
from collections.abc import Callable

import typer

from peik.core.broadcast import Phase
from peik.doors.commands.counter import Document
from peik.doors.commands.exits import Exit
from peik.doors.commands.letters import noted_within, noting_ctrl_c
from peik.doors.commands.visit import Visit

LOOK_S = 0.5
_HALTED = (Phase.DRAFT, Phase.PAUSED, Phase.STOPPED)


def see_through(visit: Visit, look: Callable[[], Document], wait_s: float) -> Document:
    """The broadcast once it has ended or halted, or as it stands when the time is over."""
    deadline = time.monotonic() + wait_s
    found = look()
    shown = 0
    with noting_ctrl_c() as is_noted, visit.progress("Recipients", _total(found), is_bytes=False) as grow:
        while not _is_over(found) and time.monotonic() < deadline:
            if noted_within(LOOK_S, is_noted):
                visit.note(f"Broadcast {found['id']} goes on without being waited for.")
                raise typer.Exit(Exit.INTERRUPTED)
            found = look()
            grow(_done(found) - shown)
            shown = _done(found)
    return found


def _is_over(found: Document) -> bool:
    phase = Phase(str(found["state"]))
    return phase.is_final or phase in _HALTED


def _total(found: Document) -> int:
    total = found["total"]
    return total if isinstance(total, int) else 0


def _done(found: Document) -> int:
    progress = found["progress"]
    return round(progress * _total(found)) if isinstance(progress, int | float) else 0
