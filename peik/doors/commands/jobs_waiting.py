"""Waiting for a job with its progress in sight. Ctrl-C ends the waiting at once, and never the job."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import typer

from peik.core.letter import State
from peik.doors.commands.counter import Document
from peik.doors.commands.exits import Exit
from peik.doors.commands.letters import noted_within, noting_ctrl_c
from peik.doors.commands.visit import Visit

LOOK_S = 0.5  # how often it is looked at, if it does not end before
_NAP_S = 0.05  # at least, between two looks


def wait_for_end(visit: Visit, job_id: str, wait_s: float) -> Document:
    """The job once it has ended, or as it stands when the time is over."""
    try:
        ended = _looked_at(visit, job_id, wait_s)
    except KeyboardInterrupt:  # the second one, in the middle of a look
        ended = None
    if ended is None:
        visit.note(f"Job {job_id} goes on without being waited for.")
        raise typer.Exit(Exit.INTERRUPTED)
    return ended


def _looked_at(visit: Visit, job_id: str, wait_s: float) -> Document | None:
    deadline = time.monotonic() + wait_s
    with noting_ctrl_c() as is_noted, _bar(visit) as draw:
        while True:
            left_s = deadline - time.monotonic()
            job = visit.counter.jobs.job(job_id, max(min(LOOK_S, left_s), 0.0))
            if job["ended_at"] is not None or left_s <= 0:
                return job
            draw(job)
            if noted_within(_NAP_S, is_noted):
                return None


@contextlib.contextmanager
def _bar(visit: Visit) -> Iterator[Callable[[Document], None]]:
    """A bar that shows how far a job is, in a terminal only. It is drawn at each look and by no thread of its own."""
    if visit.is_json or not sys.stderr.isatty():
        yield lambda job: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from peik.doors.commands.printing import console, plain

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
    )
    with Progress(*columns, console=console(stderr=True), auto_refresh=False, transient=True) as bars:
        task = bars.add_task("", total=None, doing="")

        def draw(job: Document) -> None:
            done = job["progress"] if job["state"] == State.ACTIVE else None
            words, doing = f"Job {job['id']} {standing(job)}", plain(job["progress_text"] or "").plain
            if isinstance(done, int | float):
                bars.update(task, total=1.0, completed=done, description=words, doing=doing, refresh=True)
            else:
                bars.update(task, total=None, completed=0, description=words, doing=doing, refresh=True)

        yield draw


def standing(job: Document) -> str:
    """How a job stands, to go on with after its name."""
    match job["state"]:
        case State.ACTIVE:
            return "was told to end" if job["is_cancelling"] else "runs"
        case State.WAITING if isinstance(job.get("position"), int):
            eta_s = job.get("eta_s")
            about = f", about {eta_s:.0f} s" if isinstance(eta_s, int | float) else ""
            return f"waits, number {job['position']} in line{about}"
        case State.WAITING:
            return "waits"
        case State.DELAYED:
            return "is put off"
        case other:
            return f"is {other}"
