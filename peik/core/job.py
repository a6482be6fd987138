"""A job: long work that Peik promised to have done. Values, and what may happen to one. Pure."""

import enum

import msgspec

from peik.core.letter import Backoff, Priority, State
from peik.core.retry import backoff_ms

REASON_CHARS_MAX = 500
HISTORY_MAX = 50  # lines; of more, the first and the last ones are kept
TRACES_MAX = 3  # the last ones: they are long, and mostly alike


class End(enum.StrEnum):
    """How one run of a job ended."""

    DONE = "done"
    FAILED = "failed"  # a fault that may pass: one of its attempts
    HOPELESS = "hopeless"  # trying again cannot help
    LOST = "lost"  # its worker died or was cut off: one of its attempts
    LATE = "late"  # over its time limit, and killed: one of its attempts
    CANCELLED = "cancelled"
    PUT_OFF = "put_off"  # it was not its fault (a host is down, the disk is full, Peik ends): it costs nothing


class JobDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A job about to become durable."""

    kind: str
    user: str  # whose it is: turns and limits go by it; "" is nobody's in particular, and one user like any other
    params: str = "{}"  # a JSON object
    rank: int = Priority.NORMAL.rank
    attempts: int = 3
    backoff_ms: int = 5000
    backoff: Backoff = Backoff.EXPONENTIAL
    timeout_ms: int | None = None  # of one run; None: none
    run_at_ms: int | None = None
    key: str | None = None  # of idempotency, within its kind
    digest: str = ""  # of what the key stands for
    notice: str | None = None  # whom to tell how it goes, as JSON: see peik.core.job_notice
    metadata: str | None = None
    bytes_max: int = 0  # what its folder may hold; 0: no folder is set aside


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands."""

    id: int
    kind: str
    user: str
    params: str
    rank: int
    state: State
    attempts: int
    attempts_made: int = 0
    backoff_ms: int = 5000
    backoff: Backoff = Backoff.EXPONENTIAL
    timeout_ms: int | None = None
    due_at_ms: int | None = None  # while it is delayed
    run: int = 0  # rises with each run: a worker that was given up cannot write any more
    node: str | None = None  # who runs it
    ends_at_ms: int | None = None  # of its lease, by the store's clock
    is_cancelling: bool = False  # somebody wants the run to end
    progress: float | None = None  # 0 to 1; None: not known
    progress_text: str | None = None
    result: str | None = None  # as JSON
    failed_reason: str | None = None
    history: str = "[]"  # of its runs, as JSON
    key: str | None = None
    notice: str | None = None
    notice_state: str | None = None  # what was told last, as JSON: written by who tells
    metadata: str | None = None
    bytes_max: int = 0
    bytes_used: int = 0  # by what it did: it counts for its user's day
    created_at_ms: int
    started_at_ms: int | None = None  # of its last run
    ended_at_ms: int | None = None


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """One run that is over, as its worker tells it."""

    job_id: int
    run: int
    end: End
    reason: str | None = None  # as a sentence
    trace: str | None = None  # where in the work an error was raised, for whoever wrote it
    result: str | None = None
    bytes_used: int = 0
    due_at_ms: int | None = None  # of one that was put off; or what the job itself asked for


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a job after a run."""

    state: State
    attempts_made: int
    due_at_ms: int | None = None
    reason: str | None = None


def judged(job: Job, ran: Ran, *, at_ms: int) -> Verdict:
    """The one table of what a run costs a job."""
    made = job.attempts_made
    match ran.end:
        case End.DONE:
            return Verdict(state=State.COMPLETED, attempts_made=made + 1)
        case End.CANCELLED:
            return Verdict(state=State.CANCELLED, attempts_made=made, reason=ran.reason)
        case End.HOPELESS:
            return Verdict(state=State.FAILED, attempts_made=made + 1, reason=ran.reason)
        case End.PUT_OFF if job.is_cancelling:
            return Verdict(state=State.CANCELLED, attempts_made=made, reason=ran.reason)
        case End.PUT_OFF:
            return Verdict(state=State.DELAYED, attempts_made=made, due_at_ms=ran.due_at_ms or at_ms, reason=ran.reason)
        case End.FAILED | End.LOST | End.LATE:
            if job.is_cancelling:
                return Verdict(state=State.CANCELLED, attempts_made=made + 1, reason=ran.reason)
            if made + 1 >= job.attempts:
                return Verdict(state=State.FAILED, attempts_made=made + 1, reason=ran.reason)
            wait_ms = backoff_ms(failures=made + 1, first_ms=job.backoff_ms, kind=job.backoff)
            due_at_ms = ran.due_at_ms or at_ms + (0 if ran.end is End.LOST else wait_ms)
            return Verdict(state=State.DELAYED, attempts_made=made + 1, due_at_ms=due_at_ms, reason=ran.reason)


class _Line(msgspec.Struct, omit_defaults=True):
    at: int
    end: End
    run: int
    reason: str | None = None
    node: str | None = None
    trace: str | None = None


_read = msgspec.json.Decoder(list[_Line]).decode


def with_line(history: str, ran: Ran, *, node: str | None, at_ms: int) -> str:
    """The history with one more run, cut in the middle if it grows too long."""
    lines = _read(history)
    lines.append(_Line(at=at_ms, end=ran.end, run=ran.run, reason=cut(ran.reason), node=node, trace=ran.trace))
    for old in [line for line in lines if line.trace is not None][:-TRACES_MAX]:
        old.trace = None
    if len(lines) > HISTORY_MAX:
        del lines[HISTORY_MAX // 2]
    return msgspec.json.encode(lines).decode()


def cut(reason: str | None) -> str | None:
    """A reason as it is kept: an error can be a book."""
    if reason is None or len(reason) <= REASON_CHARS_MAX:
        return reason
    return f"{reason[: REASON_CHARS_MAX - 1]}…"
