"""A job: long work that Peik promised to have done. Values, and what may happen to one. Pure."""

import enum
import math
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from peik.core.call import chat_key
from peik.core.letter import Backoff, Priority, State
from peik.core.lifecycle import backoff_ms
from peik.core.notice import FSI, PDI, NoticeWords, away_words, beginning, counted, directed, one_line, put_in
from peik.core.trace import read_trace, under
from peik.core.units import Rate, parse_rate
from peik.errors import BadInput

REASON_CHARS_MAX = 500
HISTORY_MAX = 50  # lines; of more, the first and the last ones are kept
TRACES_MAX = 3  # the last ones: they are long, and mostly alike


class JobEnd(enum.StrEnum):
    """How one run of a job ended."""

    DONE = "done"
    FAILED = "failed"  # a fault that may pass: one of its attempts
    HOPELESS = "hopeless"  # trying again cannot help
    LOST = "lost"  # its worker died or was cut off: one of its attempts
    LATE = "late"  # over its time limit, and killed: one of its attempts
    CANCELLED = "cancelled"
    PUT_OFF = "put_off"  # it was not its fault (a host is down, the disk is full, Peik ends): it costs nothing


# ---- what is asked for ----

PARAMS_BYTES_MAX = 64 * 1024
METADATA_BYTES_MAX = 8 * 1024
KEY_CHARS_MAX = 255
USER_CHARS_MAX = 128
ATTEMPTS_MAX = 100
BACKOFF_MS_MAX = 86_400_000
TIMEOUT_S_MAX = 7 * 86_400.0
AHEAD_MS_MAX = 366 * 86_400_000  # so far a job may be put into the future
KIND_PATTERN = "^[A-Za-z0-9_.-]{1,64}$"
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A job as somebody asks for it. What is None is as its kind says."""

    kind: str
    params: Mapping[str, Any] = {}
    user: str = ""
    priority: int = Priority.NORMAL
    attempts: int | None = None
    backoff_ms: int | None = None
    backoff: Backoff | None = None
    timeout_s: float | None = None
    run_at_ms: int | None = None
    key: str | None = None  # of idempotency, within its kind
    notice: Mapping[str, Any] | None = None  # whom to tell how it goes: see JobNotice
    metadata: Mapping[str, Any] | None = None


def check_kind(name: str) -> None:
    """Raises BadInput."""
    if re.fullmatch(KIND_PATTERN, name) is None:
        raise BadInput(code="bad_kind", detail="A kind of jobs is named by 1 to 64 letters, digits and . _ - only.")


def check_user(user: str) -> None:
    """Raises BadInput."""
    if len(user) > USER_CHARS_MAX or UNSEEN.search(user):
        raise BadInput(
            code="bad_user", detail=f"user has at most {USER_CHARS_MAX} characters, and none that is unseen."
        )


RATE_PER_S_MAX = 1000.0


def kind_rate(text: str) -> Rate | None:
    """The rate of "30/m", "2/s burst 10"; None of "off". Without a burst they begin evenly, one after the other, or as many
    at once as a second allows. Raises BadInput."""
    try:
        rate = parse_rate(text)
    except ValueError as error:
        raise BadInput(code="bad_rate", detail=f"rate: {error}.", field="rate") from None
    if rate is not None and rate.per_s > RATE_PER_S_MAX:
        raise BadInput(code="bad_rate", detail=f"rate: at most {RATE_PER_S_MAX:g}/s; off is no limit.", field="rate")
    if rate is None or "burst" in text.lower():
        return rate
    return Rate(per_s=rate.per_s, burst=max(1, math.ceil(rate.per_s)))


# ---- what is kept of it ----


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
    notice: str | None = None  # whom to tell how it goes, as JSON: see peik.jobs.model
    metadata: str | None = None
    bytes_max: int = 0  # what its folder may hold; 0: no folder is set aside


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
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


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are looked for. Every field but the time is compared with the job's own of that name; None: any."""

    kind: str | None = None
    user: str | None = None
    state: State | None = None
    since_ms: int | None = None


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """One run that is over, as its worker tells it."""

    job_id: int
    run: int
    end: JobEnd
    reason: str | None = None  # as a sentence
    trace: str | None = None  # where in the work an error was raised, for its author
    result: str | None = None
    bytes_used: int = 0
    due_at_ms: int | None = None  # of one that was put off; or what the job itself asked for


class RunVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a job after a run."""

    state: State
    attempts_made: int
    due_at_ms: int | None = None
    reason: str | None = None


def judged(job: JobRecord, ran: Ran, *, at_ms: int) -> RunVerdict:
    """The one table of what a run costs a job."""
    made = job.attempts_made
    match ran.end:
        case JobEnd.DONE:
            return RunVerdict(state=State.COMPLETED, attempts_made=made + 1)
        case JobEnd.CANCELLED:
            return RunVerdict(state=State.CANCELLED, attempts_made=made, reason=ran.reason)
        case JobEnd.HOPELESS:
            return RunVerdict(state=State.FAILED, attempts_made=made + 1, reason=ran.reason)
        case JobEnd.PUT_OFF if job.is_cancelling:
            return RunVerdict(state=State.CANCELLED, attempts_made=made, reason=ran.reason)
        case JobEnd.PUT_OFF:
            return RunVerdict(
                state=State.DELAYED, attempts_made=made, due_at_ms=ran.due_at_ms or at_ms, reason=ran.reason
            )
        case JobEnd.FAILED | JobEnd.LOST | JobEnd.LATE:
            if job.is_cancelling:
                return RunVerdict(state=State.CANCELLED, attempts_made=made + 1, reason=ran.reason)
            if made + 1 >= job.attempts:
                return RunVerdict(state=State.FAILED, attempts_made=made + 1, reason=ran.reason)
            wait_ms = backoff_ms(failures=made + 1, first_ms=job.backoff_ms, kind=job.backoff)
            due_at_ms = ran.due_at_ms or at_ms + (0 if ran.end is JobEnd.LOST else wait_ms)
            return RunVerdict(state=State.DELAYED, attempts_made=made + 1, due_at_ms=due_at_ms, reason=ran.reason)


class _Line(msgspec.Struct, omit_defaults=True):
    at: int
    end: JobEnd
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


# Whom to tell how a job goes, and what: the notice of a job, and the text of its one message at any moment. Pure.


LABEL_CHARS_MAX = 100  # as people count them
TEXT_CHARS_MAX = 100
WHY_CHARS_MAX = 300
BAR_CELLS = 10
LATER_S_MIN = 5.0  # of shorter waits nobody needs to hear
_ID_MAX = 2**53


class OnDone(enum.StrEnum):
    """What becomes of the message when the job is done. That it failed or was cancelled is always told."""

    EDIT = "edit"  # it says so
    DELETE = "delete"
    LEAVE = "leave"  # it stays as it is: the job's own letters say enough


class JobNotice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A chat in which a job is told of."""

    chat_id: int | str
    bot_id: int = 0  # 0: the only bot, or the usual one
    thread_id: int | None = None
    reply_to: int | None = None  # a message
    language: str | None = None  # as Telegram writes them; None: the usual one
    has_progress: bool = True  # else only that it was queued, and its end
    on_done: OnDone = OnDone.EDIT
    label: str | None = None  # what the job is to the user: stands above all that is told


class StatusTold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was told of a job, as its notice_state keeps it."""

    letter: int | None = None  # that is, or becomes, the message
    over: int | None = None  # when it ended (ms), if that was told
    is_gone: bool = False  # the chat or the message cannot be had: nothing more is told


def noted(given: Mapping[str, Any]) -> str:
    """A notice as somebody gives it, checked, as JSON. Raises BadInput."""
    try:
        notice = msgspec.convert({name: value for name, value in given.items() if value is not None}, JobNotice)
    except msgspec.ValidationError as error:
        raise BadInput(code="bad_notice", detail=f"notice: {error}.") from None
    chat_key(notice.chat_id)
    for name, value in (("bot_id", notice.bot_id), ("thread_id", notice.thread_id), ("reply_to", notice.reply_to)):
        if value is not None and not 0 <= value < _ID_MAX:
            raise BadInput(code="bad_notice", detail=f"notice: {name} is no number that Telegram gives.")
    label = None if notice.label is None else beginning(one_line(notice.label), LABEL_CHARS_MAX) or None
    language = None if notice.language is None else notice.language[:35]
    try:
        return msgspec.json.encode(msgspec.structs.replace(notice, label=label, language=language)).decode()
    except UnicodeEncodeError:
        raise BadInput(code="bad_notice", detail="notice: it holds half a character (a lone surrogate).") from None


_read_notice = msgspec.json.Decoder(JobNotice).decode
_read_told = msgspec.json.Decoder(StatusTold).decode


def read_notice(notice: str | None) -> JobNotice | None:
    """None: nobody is to be told (or nobody can be: it is not as it should be)."""
    try:
        return None if notice is None else _read_notice(notice)
    except msgspec.DecodeError:
        return None


def read_told(notice_state: str | None) -> StatusTold:
    """What cannot be read was written by a newer Peik, or is none: then nothing was told."""
    try:
        return StatusTold() if notice_state is None else _read_told(notice_state)
    except msgspec.DecodeError:
        return StatusTold()


def written(told: StatusTold) -> str:
    return msgspec.json.encode(told).decode()


# ---- what is told ----


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job stands that waits."""

    count: int
    wait_s: float | None = None


def first_text(notice: JobNotice, words: NoticeWords) -> str:
    """The text with which the message is sent. It depends on the notice alone: anyone who sends it sends the same, so that its
    key makes it one message, however many nodes and lives try."""
    return _told(words.jobs.queued, notice, words)


def waiting_text(notice: JobNotice, words: NoticeWords, ahead: Ahead) -> str:
    if ahead.count <= 0:
        return _told(words.jobs.next, notice, words)
    others = counted(ahead.count, words.jobs.others, words)
    if ahead.wait_s is None:
        return _told(words.jobs.ahead, notice, words, ahead=others)
    return _told(words.jobs.ahead_about, notice, words, ahead=others, wait=away_words(ahead.wait_s, words))


def later_text(notice: JobNotice, words: NoticeWords, wait_s: float) -> str | None:
    """None: it is so soon that nothing need be said."""
    if wait_s < LATER_S_MIN:
        return None
    return _told(words.jobs.later, notice, words, wait=away_words(wait_s, words))


def working_text(notice: JobNotice, words: NoticeWords, *, progress: float | None, text: str | None) -> str:
    """With whole percents: what is smaller does not show."""
    if progress is None:
        said = _told(words.jobs.working, notice, words)
    else:
        percent = int(min(max(progress, 0.0), 1.0) * 100 + 1e-9)
        full = percent * BAR_CELLS // 100
        bar = "▰" * full + "▱" * (BAR_CELLS - full)
        shown = counted(percent, (words.jobs.percent,), words)
        said = _told(words.jobs.progress, notice, words, bar=bar, percent=shown)
    doing = beginning(one_line(text or ""), TEXT_CHARS_MAX)
    return f"{said}\n{directed(FSI + doing + PDI, words)}" if doing else said


def end_text(notice: JobNotice, words: NoticeWords, job: JobRecord) -> str | None:
    """None: the message is to be deleted, or left as it is."""
    if job.state is State.COMPLETED:
        return _told(words.jobs.done, notice, words) if notice.on_done is OnDone.EDIT else None
    if job.state is State.CANCELLED:
        return _told(words.jobs.cancelled, notice, words)
    why = beginning(one_line(job.failed_reason or ""), WHY_CHARS_MAX) if _is_for_people(job) else ""
    if not why:
        return _told(words.jobs.failed, notice, words)
    return _told(words.jobs.failed_why, notice, words, why=FSI + why + PDI)


class _NoticeLine(msgspec.Struct):
    end: str


_read_lines = msgspec.json.Decoder(list[_NoticeLine]).decode


def _is_for_people(job: JobRecord) -> bool:
    """What the job's function said when it gave up is meant for people; what it happened to raise is not."""
    lines = _read_lines(job.history)
    return bool(lines) and lines[-1].end == JobEnd.HOPELESS


def _told(template: str, notice: JobNotice, words: NoticeWords, **values: str) -> str:
    said = directed(put_in(template, values).strip(), words)
    return said if notice.label is None else f"{directed(FSI + notice.label + PDI, words)}\n{said}"


# What a job answers: the update whose handler queued it. Kept in the job's metadata, and set while it works and is
# told of.


FIELD = "peik_trace"


def traced(draft: JobDraft, trace: str | None) -> JobDraft:
    """The draft with its trace. One that its sender put there himself stays."""
    if trace is None:
        return draft
    metadata = {} if draft.metadata is None else msgspec.json.decode(draft.metadata, type=dict[str, msgspec.Raw])
    metadata.setdefault(FIELD, msgspec.Raw(msgspec.json.encode(trace)))
    return msgspec.structs.replace(draft, metadata=msgspec.json.encode(metadata).decode())


def trace_in(job: JobRecord) -> str | None:
    if job.metadata is None:
        return None
    found = msgspec.json.decode(job.metadata, type=dict[str, object]).get(FIELD)
    try:
        return read_trace(found) if isinstance(found, str) else None
    except BadInput:
        return None  # metadata is its sender's, who may have put anything there


def under_trace_of(job: JobRecord) -> AbstractContextManager[None]:
    """Letters that are accepted inside answer what the job answers."""
    return under(trace_in(job))
