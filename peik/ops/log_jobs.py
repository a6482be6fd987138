"""Lines of the log about jobs, and what they need."""

from peik import events, job_events
from peik.core.job import End
from peik.core.letter import State
from peik.ops.log_pen import GLYPH, Pen


def write_job(pen: Pen, event: events.Event) -> None:
    match event:
        case job_events.JobsQueued(kind=kind, count=count):
            if pen.shows_all:
                pen.book.debug("+ jobs queued", kind=kind, count=count)
        case job_events.JobBegan(job_id=job_id, kind=kind, run=run, waited_s=waited_s):
            if pen.shows_all:
                pen.book.debug("-> job begins", job=job_id, kind=kind, run=run, waited_s=round(waited_s, 1))
        case job_events.JobRan():
            _run(pen, event)
        case job_events.JobSaid(job_id=job_id, line=line):
            pen.book.info("| job", job=job_id, line=line)
        case job_events.JobCancelled(job_id=job_id, kind=kind):
            if pen.shows_all:
                pen.book.debug("x job cancelled", job=job_id, kind=kind)
        case job_events.FolderLeft(job_id=job_id, why=why, tries=tries):
            if pen.is_news(job_events.FolderLeft, job_id):
                pen.book.warning("! a work folder cannot be removed yet", job=job_id, tries=tries, why=why)
        case job_events.DiskShort(why=why):
            pen.book.error("# no room for work; jobs wait", why=why)
        case job_events.DiskBack():
            pen.book.info("-> there is room for work again")
        case job_events.HostOpened(host=host, why=why):
            pen.book.warning("! a host fails; jobs wait for it", host=host, why=why)
        case job_events.HostClosed(host=host, after_s=after_s):
            pen.book.info("-> the host answers again", host=host, after_s=round(after_s, 1))


def _run(pen: Pen, event: job_events.JobRan) -> None:
    fields = {"job": event.job_id, "kind": event.kind, "run": event.run, "run_s": round(event.run_s, 1)}
    if event.state is State.FAILED:
        pen.book.warning("! dead job", **fields, end=event.end.value, reason=event.reason)
    elif event.end in (End.FAILED, End.LATE, End.LOST):
        pen.book.info("~ job is tried again", **fields, end=event.end.value, reason=event.reason)
    elif pen.shows_all:
        pen.book.debug(f"{GLYPH[event.state]} job {event.end.value}", **fields, reason=event.reason)
