"""How a run ended, read from what its work raised. What a job's function may raise on purpose is here, too."""

import enum
import errno
import math
import traceback
from typing import Protocol

import msgspec

from peik.core.token import without_tokens
from peik.errors import Unavailable, described
from peik.jobs.model import JobEnd, JobRecord, Ran
from peik.jobs.model import JobRecord as Record

# Where the pieces of jobs meet.


class NoRoom(Exception):
    """The disk, or what is set aside for work, has no room for a folder now. Says why, as a sentence."""


class FolderOver(Exception):
    """A job keeps more in its folder than it may."""


class HostShut(Exception):
    """An outside host fails, and is left alone for a while."""

    def __init__(self, host: str, retry_s: float) -> None:
        super().__init__(f"{host} does not answer; it is tried again in {retry_s:.0f} s.")
        self.host = host
        self.retry_s = retry_s


class Teller(Protocol):
    """Tells people in their chat how their job goes, in one message. Never raises, and never holds up the work."""

    def changed(self, job: Record) -> None:
        """It was queued, began to run, ended or was put off: its state says which."""

    def progressed(self, job: Record, progress: float | None, text: str | None) -> None: ...


NO_ROOM_S = 30.0  # disks are not tidied up in a second
STORE_S = 5.0  # servers come back sooner
LATER_S_MAX = 30 * 86_400.0
RESULT_BYTES_MAX = 64 * 1024
OVER_REASON = "Its folder holds more than it may."
TRACE_CHARS_MAX = 4000  # the end of it, which is where the error is
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class JobHopeless(Exception):
    """Raised by a job's function: trying again cannot help. The reason is what people see."""


class JobLater(Exception):
    """Raised by a job's function: not now. It runs again after `after_s`, and this run costs it nothing."""

    def __init__(self, after_s: float, reason: str = "It asked to be run later.") -> None:
        super().__init__(reason)
        self.after_s = after_s


class WorkFailed(Exception):
    """What the work raised, where the exception itself cannot be had (it was in another process). Says it as a sentence."""

    trace: str | None = None  # of that process


class Stop(enum.Enum):
    """Why we ended a run that would have gone on."""

    CANCELLED = "cancelled"
    LATE = "late"
    HANDED_ON = "handed_on"  # Peik ends here, and another node goes on
    CUT_OFF = "cut_off"  # the store could not be reached for as long as the lease lasts
    LOST = "lost"  # the store says that it is not ours any more
    OVER = "over"  # its folder


def stopped(job: JobRecord, stop: Stop, *, after_s: float, at_ms: int) -> Ran | None:
    """A run that we ended. None: there is nothing to tell, it is not ours."""
    match stop:
        case Stop.LOST:
            return None
        case Stop.CANCELLED:
            return _ran(job, JobEnd.CANCELLED, None)  # who cancelled it said why
        case Stop.LATE:
            return _ran(job, JobEnd.LATE, f"It was not done after {after_s:g} s, and was ended.")
        case Stop.HANDED_ON:
            return _ran(job, JobEnd.PUT_OFF, "Peik ended here while it ran.", due_at_ms=at_ms)
        case Stop.CUT_OFF:
            return _ran(job, JobEnd.PUT_OFF, "The store was away for too long while it ran.", due_at_ms=at_ms)
        case Stop.OVER:
            return _ran(job, JobEnd.HOPELESS, OVER_REASON)


def raised(job: JobRecord, error: BaseException, *, at_ms: int) -> Ran:
    """A run whose work raised. What is not the job's own fault costs it nothing."""
    match error:
        case JobHopeless():
            return _ran(job, JobEnd.HOPELESS, _said(error))
        case FolderOver():
            return _ran(job, JobEnd.HOPELESS, _said(error) if error.args else OVER_REASON)
        case JobLater():
            return _put_off(job, _said(error), error.after_s, at_ms)
        case HostShut():
            return _put_off(job, _said(error), error.retry_s, at_ms)
        case NoRoom():
            return _put_off(job, _said(error), NO_ROOM_S, at_ms)
        case Unavailable():  # a letter of its could not be accepted just now
            return _put_off(job, _said(error), STORE_S, at_ms)
        case OSError() if error.errno in _FULL:
            return _put_off(job, f"There is no room on the disk ({error.strerror}).", NO_ROOM_S, at_ms)
        case BaseExceptionGroup():
            return _raised_many(job, error, at_ms=at_ms)
        case WorkFailed():
            return _ran(job, JobEnd.FAILED, _said(error), trace=error.trace)
        case _:
            return _ran(job, JobEnd.FAILED, described(error), trace=trace_of(error))


def _raised_many(job: JobRecord, error: "BaseExceptionGroup[BaseException]", *, at_ms: int) -> Ran:
    """Work may do several things at once. One of them that is hopeless is enough; if none is its own fault, it waits for
    the one that takes longest."""
    runs = [raised(job, one, at_ms=at_ms) for one in error.exceptions]
    hopeless = [one for one in runs if one.end is JobEnd.HOPELESS]
    if hopeless:
        return hopeless[0]
    if all(one.end is JobEnd.PUT_OFF for one in runs):
        return max(runs, key=lambda one: one.due_at_ms or 0)
    return _ran(job, JobEnd.FAILED, described(error), trace=trace_of(error))


def returned(job: JobRecord, result: object) -> Ran:
    """A run whose work came to its end. A result that cannot be kept is the function's mistake, and would be again."""
    try:
        encoded = msgspec.json.encode(result)
    except (TypeError, ValueError, RecursionError) as error:
        return _ran(job, JobEnd.HOPELESS, f"What it returned is not JSON ({error}).")
    if len(encoded) > RESULT_BYTES_MAX:
        return _ran(job, JobEnd.HOPELESS, f"What it returned has more than {RESULT_BYTES_MAX} bytes of JSON.")
    return Ran(job_id=job.id, run=job.run, end=JobEnd.DONE, result=encoded.decode())


def _put_off(job: JobRecord, reason: str, after_s: float, at_ms: int) -> Ran:
    bounded_s = min(max(after_s, 0.0), LATER_S_MAX) if after_s == after_s else 0.0  # the second: not a number
    return _ran(
        job, JobEnd.PUT_OFF, reason, due_at_ms=at_ms + math.ceil(bounded_s * 1000)
    )  # never a hair before what it waits for


def _ran(
    job: JobRecord, end: JobEnd, reason: str | None, *, due_at_ms: int | None = None, trace: str | None = None
) -> Ran:
    return Ran(job_id=job.id, run=job.run, end=end, reason=reason, due_at_ms=due_at_ms, trace=trace)


def trace_of(error: BaseException) -> str:
    """The traceback, without tokens of bots, and sayable as JSON."""
    text = without_tokens("".join(traceback.format_exception(error)))
    return text[-TRACE_CHARS_MAX:].encode(errors="replace").decode()


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
