"""Whom to tell how a job goes, and what: the notice of a job, and the text of its one message at any moment. Pure."""

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from peik.core.call import chat_key
from peik.core.job import End, Job
from peik.core.letter import State
from peik.core.notice import FSI, PDI, Words, away_words, beginning, counted, directed, one_line, put_in
from peik.core.problem import BadInput

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


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
_read_told = msgspec.json.Decoder(Told).decode


def read_notice(notice: str | None) -> JobNotice | None:
    """None: nobody is to be told (or nobody can be: it is not as it should be)."""
    try:
        return None if notice is None else _read_notice(notice)
    except msgspec.DecodeError:
        return None


def read_told(notice_state: str | None) -> Told:
    """What cannot be read was written by a newer Peik, or is none: then nothing was told."""
    try:
        return Told() if notice_state is None else _read_told(notice_state)
    except msgspec.DecodeError:
        return Told()


def written(told: Told) -> str:
    return msgspec.json.encode(told).decode()


# ---- what is told ----


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job stands that waits."""

    count: int
    wait_s: float | None = None


def first_text(notice: JobNotice, words: Words) -> str:
    """The text with which the message is sent. It depends on the notice alone: whoever sends it sends the same, so that its
    key makes it one message, however many nodes and lives try."""
    return _told(words.jobs.queued, notice, words)


def waiting_text(notice: JobNotice, words: Words, ahead: Ahead) -> str:
    if ahead.count <= 0:
        return _told(words.jobs.next, notice, words)
    others = counted(ahead.count, words.jobs.others, words)
    if ahead.wait_s is None:
        return _told(words.jobs.ahead, notice, words, ahead=others)
    return _told(words.jobs.ahead_about, notice, words, ahead=others, wait=away_words(ahead.wait_s, words))


def later_text(notice: JobNotice, words: Words, wait_s: float) -> str | None:
    """None: it is so soon that nothing need be said."""
    if wait_s < LATER_S_MIN:
        return None
    return _told(words.jobs.later, notice, words, wait=away_words(wait_s, words))


def working_text(notice: JobNotice, words: Words, *, progress: float | None, text: str | None) -> str:
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


def end_text(notice: JobNotice, words: Words, job: Job) -> str | None:
    """None: the message is to be deleted, or left as it is."""
    if job.state is State.COMPLETED:
        return _told(words.jobs.done, notice, words) if notice.on_done is OnDone.EDIT else None
    if job.state is State.CANCELLED:
        return _told(words.jobs.cancelled, notice, words)
    why = beginning(one_line(job.failed_reason or ""), WHY_CHARS_MAX) if _is_for_people(job) else ""
    if not why:
        return _told(words.jobs.failed, notice, words)
    return _told(words.jobs.failed_why, notice, words, why=FSI + why + PDI)


class _Line(msgspec.Struct):
    end: str


_read_lines = msgspec.json.Decoder(list[_Line]).decode


def _is_for_people(job: Job) -> bool:
    """What the job's function said when it gave up is meant for people; what it happened to raise is not."""
    lines = _read_lines(job.history)
    return bool(lines) and lines[-1].end == End.HOPELESS


def _told(template: str, notice: JobNotice, words: Words, **values: str) -> str:
    said = directed(put_in(template, values).strip(), words)
    return said if notice.label is None else f"{directed(FSI + notice.label + PDI, words)}\n{said}"
