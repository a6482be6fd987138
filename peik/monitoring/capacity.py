"""How many new users a day this Peik can take: what was measured, divided by what a user is assumed to cost.

It is an estimate for bots that fetch something for people: a user makes up to five requests, and a request is one job and four
messages. What a letter, a job and Peik itself take below are assumptions, not measurements.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from peik.monitoring.doctor import Finding, Grade

# What `peik load --find-limit --write` has measured, as a small file that the doctor reads instead of assuming.


SUFFIX = ".load.json"  # beside the database, or in PEIK_HOME: there the doctor looks by itself


class LoadFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Letters a second, answers of bots among them, that this machine kept up with."""

    letters_per_s: float
    store: str
    measured_at: str  # ISO 8601
    machine: str = ""


def write_load_figure(path: Path, figure: LoadFigure) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(figure), indent=1) + b"\n")


def read_load_figure(path: Path) -> LoadFigure | None:
    """None if there is none. Raises ValueError if it is something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LoadFigure)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{path} is no figure of `peik load`: {error}") from None


REQUESTS = 5  # of one new user, at most
PEAK = 0.10 * 3 / 3600  # a tenth of a day comes in its busiest hour, and thrice that in its busiest minute: per second
LETTERS = 4  # of one request: it was taken up, how far it is, that it is done, the file
COMMITS = (
    3 * LETTERS + 5
)  # a letter is accepted, marked, settled; an update comes and is read; a job comes, begins, ends
RUN_S = 20.0  # of a job
RUN_BYTES = 24 * 1024**2  # of memory, while it runs
BASE_BYTES = 400 * 1024**2  # of Peik itself with its caches full
LETTER_BYTES = 1500  # in the store, with its indexes
LOG_BYTES = 500  # of a line of the message log
ARRIVAL_BYTES = 2000
SPARE = 1.5  # green: half as much again as is needed
ROOM_BYTES = 50 * 1024**3


class MeasuredCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What is None could not be measured."""

    commits_per_s: float | None
    letters_per_s: float | None  # of all bots together; None: no pace is kept
    memory_bytes: int | None
    room_bytes: int
    load: LoadFigure | None = None  # of a load test; it says more than commits do


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings keep, and how much room jobs may take."""

    letters_s: float
    arrivals_s: float
    log_s: float
    work_bytes: int


def findings(
    users: int, measured: MeasuredCapacity, keeping: Keeping, *, room_bytes: int = ROOM_BYTES
) -> list[Finding]:
    """`room_bytes`: what must be free in any case."""
    a_second = users * REQUESTS * PEAK
    found = [
        _of_commits(a_second * COMMITS, measured.commits_per_s),
        *([] if measured.load is None else [_of_load(a_second * LETTERS, measured.load)]),
        _of_pace(a_second * LETTERS, measured.letters_per_s),
        _of_memory(BASE_BYTES + a_second * RUN_S * RUN_BYTES, measured.memory_bytes),
        _of_room(max(room_bytes, _stored_bytes(users, keeping) + keeping.work_bytes), measured.room_bytes),
    ]
    return [*found, _of_most(users, most(measured, keeping))]


def most(measured: MeasuredCapacity, keeping: Keeping) -> int:
    """So many new users a day, by whatever is short first."""
    bounds = [(measured.room_bytes - keeping.work_bytes) / _stored_bytes(1, keeping)]
    if measured.load is not None:
        bounds.append(measured.load.letters_per_s / (REQUESTS * PEAK * LETTERS))
    elif measured.commits_per_s is not None:
        bounds.append(measured.commits_per_s / (REQUESTS * PEAK * COMMITS))
    if measured.letters_per_s is not None:
        bounds.append(measured.letters_per_s / (REQUESTS * PEAK * LETTERS))
    if measured.memory_bytes is not None:
        bounds.append((measured.memory_bytes - BASE_BYTES) / (REQUESTS * PEAK * RUN_S * RUN_BYTES))
    return max(0, int(min(bounds)))


def verdict(users: int, found: Iterable[Finding]) -> Finding:
    """Over everything that was found."""
    grades = [one.grade for one in found]
    reds, yellows = grades.count(Grade.RED), grades.count(Grade.YELLOW)
    if reds:
        words = f"Not ready for {users:,} users a day: {reds} red."
        return Finding(name="verdict", grade=Grade.RED, words=words, fix="Mend what is red above, and ask again.")
    if yellows:
        words = f"Ready for {users:,} users a day, with {yellows} yellow."
        return Finding(name="verdict", grade=Grade.YELLOW, words=words, fix="Read what is yellow above.")
    return Finding(name="verdict", grade=Grade.GREEN, words=f"Ready for {users:,} users a day.")


def _stored_bytes(users: int, keeping: Keeping) -> float:
    a_day = (
        LETTERS * (LETTER_BYTES * keeping.letters_s + LOG_BYTES * keeping.log_s) + ARRIVAL_BYTES * keeping.arrivals_s
    )
    return users * REQUESTS * a_day / 86_400


def _of_commits(needed: float, measured: float | None) -> Finding:
    if measured is None:
        fix = "Start `peik serve` once, and ask again."
        return Finding(
            name="commits", grade=Grade.YELLOW, words="There is no store yet to measure commits on.", fix=fix
        )
    words = f"The store makes {measured:.0f} commits a second, one by one; the busiest minute needs {needed:.0f}."
    return _graded("commits", words, measured / needed, "Use a faster disk (an SSD), or a store nearer by.")


def _of_load(needed: float, load: LoadFigure) -> Finding:
    words = (
        f"A load test of {load.measured_at[:10]} kept up with {load.letters_per_s:.0f} letters a second on {load.store}; the "
        f"busiest minute needs {needed:.0f}."
    )
    return _graded(
        "load test", words, load.letters_per_s / needed, "Use a faster machine; measure: peik load --find-limit."
    )


def _of_pace(needed: float, measured: float | None) -> Finding:
    if measured is None:
        return Finding(name="pace", grade=Grade.GREEN, words="No pace is kept: PEIK_PACE is off.")
    words = f"Telegram lets the bots send {measured:.0f} letters a second; the busiest minute needs {needed:.0f}."
    return _graded("pace", words, measured / needed, "Share the users among several bots.")


def _of_memory(needed: float, measured: int | None) -> Finding:
    if measured is None:
        words = "How much memory there is cannot be told here."
        return Finding(name="memory for it", grade=Grade.YELLOW, words=words, fix=f"Have {_gb(needed)} at least.")
    words = f"There are {_gb(measured)} of memory; jobs of the busiest minute and Peik need {_gb(needed)}."
    return _graded("memory for it", words, measured / needed, "Give more memory, or let fewer jobs run: PEIK_JOBS.")


def _of_room(needed: float, free: int) -> Finding:
    words = f"{_gb(free)} of the disk are free; {_gb(needed)} are needed."
    if free >= needed:
        return Finding(name="room for it", grade=Grade.GREEN, words=words)
    fix = "Use a larger disk, keep less (PEIK_KEEP_LOG), or give jobs less (PEIK_WORK_MAX); --disk sets the least."
    return Finding(name="room for it", grade=Grade.RED, words=words, fix=fix)


def _of_most(users: int, can: int) -> Finding:
    words = f"By what was measured, about {float(f'{can:.2g}'):,.0f} new users a day can be served."
    return _graded("capacity", words, can / users, "See above what is short.")


def _graded(name: str, words: str, times: float, fix: str) -> Finding:
    if times >= SPARE:
        return Finding(name=name, grade=Grade.GREEN, words=words)
    return Finding(name=name, grade=Grade.YELLOW if times >= 1 else Grade.RED, words=words, fix=fix)


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1024**3:.1f} GB"
