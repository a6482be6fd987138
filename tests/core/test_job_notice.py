"""What is told of a job, mark by mark, and what a notice may hold."""

# ruff: noqa: RUF001 - Persian and Uzbek are written with their own letters

from typing import Any

import msgspec
import pytest

from peik.core.letter import State
from peik.core.notice import Texts
from peik.errors import BadInput
from peik.inbox.texts import load_texts
from peik.jobs.model import (
    Ahead,
    JobNotice,
    JobRecord,
    OnDone,
    StatusTold,
    end_text,
    first_text,
    later_text,
    noted,
    read_notice,
    read_told,
    waiting_text,
    working_text,
    written,
)

TEXTS: Texts = load_texts(None)
ANN = JobNotice(chat_id=5)


def job(state: State, *, reason: str | None = None, history: str = "[]") -> JobRecord:
    return JobRecord(
        id=1, kind="k", user="", params="{}", rank=2, state=state, attempts=3, failed_reason=reason, history=history,
        created_at_ms=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("language", "count", "wait_s", "expected"),
    [
        ("en", 0, None, "⏳ Queued: yours is next."),
        ("en", 1, None, "⏳ Queued: 1 job before yours."),
        ("en", 3, 130.0, "⏳ Queued: 3 jobs before yours. It begins in about 2 minutes."),
        ("fa", 12, None, "\u200f⏳ در صف: ۱۲ کار جلوتر از شماست."),
        ("fa", 3, 20.0, "\u200f⏳ در صف: ۳ کار جلوتر از شماست. حدود ۱ دقیقه دیگر شروع می‌شود."),
        ("ru", 21, None, "⏳ В очереди: перед вами 21 задача."),
        ("ru", 3, 7200.0, "⏳ В очереди: перед вами 3 задачи. Начнём примерно через 2 часа."),
        ("uz", 5, 60.0, "⏳ Navbatda: sizdan oldin 5 ta ish bor. Taxminan 1 daqiqadan keyin boshlanadi."),
    ],
)
def test_a_place_in_line_in_every_language(language: str, count: int, wait_s: float | None, expected: str) -> None:
    assert waiting_text(ANN, TEXTS.words(language), Ahead(count=count, wait_s=wait_s)) == expected


@pytest.mark.parametrize(
    ("language", "progress", "text", "expected"),
    [
        ("en", None, None, "⚙️ Working on it."),
        ("en", 0.0, None, "⚙️ ▱▱▱▱▱▱▱▱▱▱ 0%"),
        ("en", 0.29, "downloading", "⚙️ ▰▰▱▱▱▱▱▱▱▱ 29%\n\u2068downloading\u2069"),
        ("en", 0.9999, None, "⚙️ ▰▰▰▰▰▰▰▰▰▱ 99%"),
        ("en", 1.0, None, "⚙️ ▰▰▰▰▰▰▰▰▰▰ 100%"),
        ("fa", 0.4, "film.mp4", "\u200f⚙️ ▰▰▰▰▱▱▱▱▱▱ ۴۰٪\n\u200f\u2068film.mp4\u2069"),
        ("ru", 0.5, " a\nb \u202e", "⚙️ ▰▰▰▰▰▱▱▱▱▱ 50\u00a0%\n\u2068a b\u2069"),
    ],
)
def test_progress_in_whole_percents(language: str, progress: float | None, text: str | None, expected: str) -> None:
    assert working_text(ANN, TEXTS.words(language), progress=progress, text=text) == expected


def test_a_label_stands_above_all_that_is_told_and_cannot_reach_beyond_its_line() -> None:
    notice = read_notice(noted({"chat_id": 5, "label": "a\u202e\nb {n}", "language": "fa"}))
    assert notice is not None
    assert first_text(notice, TEXTS.words("fa")) == "\u200f\u2068a b {n}\u2069\n\u200f⏳ در صف قرار گرفت."


def test_the_longest_text_fits_into_a_message() -> None:
    notice = read_notice(noted({"chat_id": 5, "label": "l" * 1000}))
    assert notice is not None
    words = TEXTS.words("en")
    assert len(working_text(notice, words, progress=0.5, text="t" * 5000)) < 400
    hopeless = job(State.FAILED, reason="r" * 5000, history='[{"at":1,"end":"hopeless","run":1}]')
    assert len(end_text(notice, words, hopeless) or "") < 500


@pytest.mark.parametrize(
    ("state", "on_done", "expected"),
    [
        (State.COMPLETED, OnDone.EDIT, "✅ Done."),
        (State.COMPLETED, OnDone.DELETE, None),
        (State.COMPLETED, OnDone.LEAVE, None),
        (State.CANCELLED, OnDone.DELETE, "🚫 Cancelled."),
        (State.FAILED, OnDone.LEAVE, "❌ It did not work."),
    ],
)
def test_ends(state: State, on_done: OnDone, expected: str | None) -> None:
    assert end_text(JobNotice(chat_id=5, on_done=on_done), TEXTS.words("en"), job(state, reason="KeyError")) == expected


def test_only_what_a_job_says_on_giving_up_is_shown() -> None:
    history = '[{"at":1,"end":"failed","run":1},{"at":2,"end":"hopeless","run":2}]'
    shown = end_text(ANN, TEXTS.words("en"), job(State.FAILED, reason="It is private.", history=history))
    assert shown == "❌ It did not work: \u2068It is private.\u2069"
    lost = '[{"at":1,"end":"hopeless","run":1},{"at":2,"end":"lost","run":2}]'
    assert end_text(ANN, TEXTS.words("en"), job(State.FAILED, reason="x", history=lost)) == "❌ It did not work."


def test_a_wait_of_a_moment_is_not_told() -> None:
    assert later_text(ANN, TEXTS.words("en"), 4.9) is None
    assert later_text(ANN, TEXTS.words("uz"), 300.0) == "⏸ Kutilmoqda: taxminan 5 daqiqa qoldi."


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"chat_id": ""},
        {"chat_id": 2**63},
        {"chat_id": "a\nb"},
        {"chat_id": 5, "bot": 1},
        {"chat_id": 5, "bot_id": "7"},
        {"chat_id": 5, "bot_id": -7},
        {"chat_id": 5, "reply_to": 2**60},
        {"chat_id": 5, "on_done": "explode"},
        {"chat_id": 5, "has_progress": 1},
        {"chat_id": 5, "label": "\ud800"},
    ],
)
def test_a_notice_that_cannot_be_right_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        noted(given)


def test_a_notice_is_kept_small_and_without_nulls() -> None:
    assert msgspec.json.decode(noted({"chat_id": "@news", "bot_id": 7, "thread_id": None, "label": "  "})) == {
        "chat_id": "@news",
        "bot_id": 7,
    }


def test_what_was_told_can_be_read_again_and_what_is_none_means_nothing_was() -> None:
    told = StatusTold(letter=5, over=0, is_gone=True)
    assert read_told(written(told)) == told
    assert read_told(None) == read_told("?") == read_told('{"letter":"x"}') == StatusTold()
    assert read_told('{"letter":5,"of_a_newer_peik":1}') == StatusTold(letter=5)
    assert read_notice('{"chat":5}') is read_notice(None) is None
