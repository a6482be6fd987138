"""What a run costs a job: the table, its edges, and the history that is left."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.core.letter import Backoff, State
from peik.jobs.model import HISTORY_MAX, REASON_CHARS_MAX, JobEnd, JobRecord, Ran, cut, judged, with_line

NOW = 1_800_000_000_000


def a_job(**terms: Any) -> JobRecord:
    plain = JobRecord(
        id=1,
        kind="download",
        user="ann",
        params="{}",
        rank=2,
        state=State.ACTIVE,
        attempts=3,
        backoff_ms=1000,
        run=1,
        created_at_ms=NOW,
    )
    return msgspec.structs.replace(plain, **terms)


def a_run(end: JobEnd, **terms: Any) -> Ran:
    return Ran(job_id=1, run=1, end=end, **terms)


@pytest.mark.parametrize(
    ("end", "made", "state", "after", "wait_ms"),
    [
        (JobEnd.DONE, 0, State.COMPLETED, 1, None),
        (JobEnd.DONE, 2, State.COMPLETED, 3, None),
        (JobEnd.FAILED, 0, State.DELAYED, 1, 1000),
        (JobEnd.FAILED, 1, State.DELAYED, 2, 2000),
        (JobEnd.FAILED, 2, State.FAILED, 3, None),
        (JobEnd.LATE, 0, State.DELAYED, 1, 1000),
        (JobEnd.LATE, 2, State.FAILED, 3, None),
        (JobEnd.LOST, 0, State.DELAYED, 1, 0),  # it was not the host's fault: at once
        (JobEnd.LOST, 1, State.DELAYED, 2, 0),
        (JobEnd.LOST, 2, State.FAILED, 3, None),
        (JobEnd.HOPELESS, 0, State.FAILED, 1, None),
        (JobEnd.PUT_OFF, 0, State.DELAYED, 0, 0),
        (JobEnd.PUT_OFF, 2, State.DELAYED, 2, 0),
        (JobEnd.CANCELLED, 0, State.CANCELLED, 0, None),
    ],
)
def test_what_a_run_costs(end: JobEnd, made: int, state: State, after: int, wait_ms: int | None) -> None:
    verdict = judged(a_job(attempts_made=made), a_run(end, reason="why"), at_ms=NOW)
    assert (verdict.state, verdict.attempts_made) == (state, after)
    assert verdict.due_at_ms == (None if wait_ms is None else NOW + wait_ms)
    assert verdict.reason == (None if end is JobEnd.DONE else "why")


@pytest.mark.parametrize(
    ("end", "state", "after"),
    [
        (JobEnd.DONE, State.COMPLETED, 1),  # it was quicker than who wanted it to end
        (JobEnd.FAILED, State.CANCELLED, 1),
        (JobEnd.LATE, State.CANCELLED, 1),
        (JobEnd.LOST, State.CANCELLED, 1),
        (JobEnd.HOPELESS, State.FAILED, 1),
        (JobEnd.PUT_OFF, State.CANCELLED, 0),
        (JobEnd.CANCELLED, State.CANCELLED, 0),
    ],
)
def test_a_job_that_is_to_end_does_not_run_again(end: JobEnd, state: State, after: int) -> None:
    verdict = judged(a_job(is_cancelling=True), a_run(end, due_at_ms=NOW + 5), at_ms=NOW)
    assert (verdict.state, verdict.attempts_made, verdict.due_at_ms) == (state, after, None)


@pytest.mark.parametrize("end", [JobEnd.FAILED, JobEnd.LATE, JobEnd.LOST, JobEnd.PUT_OFF])
def test_a_run_may_say_when_the_next_one_is_due(end: JobEnd) -> None:
    verdict = judged(a_job(), a_run(end, due_at_ms=NOW + 77), at_ms=NOW)
    assert (verdict.state, verdict.due_at_ms) == (State.DELAYED, NOW + 77)


def test_a_wish_for_another_run_gives_no_more_attempts() -> None:
    verdict = judged(a_job(attempts=1), a_run(JobEnd.FAILED, due_at_ms=NOW + 77), at_ms=NOW)
    assert (verdict.state, verdict.due_at_ms) == (State.FAILED, None)


@given(
    st.sampled_from(JobEnd),
    st.integers(1, 5),
    st.integers(0, 10),
    st.booleans(),
    st.sampled_from(Backoff),
    st.one_of(st.none(), st.integers(NOW - 1000, NOW + 10**9)),
)
def test_every_run_ends_in_a_state_that_is_whole(
    end: JobEnd, attempts: int, made: int, is_cancelling: bool, backoff: Backoff, due_at_ms: int | None
) -> None:
    job = a_job(attempts=attempts, attempts_made=made, is_cancelling=is_cancelling, backoff=backoff)
    verdict = judged(job, a_run(end, due_at_ms=due_at_ms), at_ms=NOW)
    assert verdict.attempts_made - made in (0, 1)
    assert (verdict.due_at_ms is not None) == (verdict.state is State.DELAYED)
    assert verdict.state.is_final or verdict.state is State.DELAYED
    if verdict.state is State.DELAYED:
        assert not is_cancelling
        assert end is JobEnd.PUT_OFF or verdict.attempts_made < attempts


# ---- history ----


def _lines(history: str) -> list[dict[str, Any]]:
    return msgspec.json.decode(history)


def test_a_run_leaves_a_line_with_what_is_known_of_it() -> None:
    history = with_line("[]", a_run(JobEnd.FAILED, reason="no route"), node="n1", at_ms=NOW)
    history = with_line(history, Ran(job_id=1, run=2, end=JobEnd.DONE), node=None, at_ms=NOW + 1)
    assert _lines(history) == [
        {"at": NOW, "end": "failed", "run": 1, "reason": "no route", "node": "n1"},
        {"at": NOW + 1, "end": "done", "run": 2},
    ]


def test_of_many_lines_the_first_and_the_last_are_kept() -> None:
    history = "[]"
    for run in range(1, 201):
        history = with_line(history, Ran(job_id=1, run=run, end=JobEnd.PUT_OFF), node="n1", at_ms=NOW + run)
    half = HISTORY_MAX // 2
    assert [line["run"] for line in _lines(history)] == [*range(1, half + 1), *range(201 - half, 201)]


@pytest.mark.parametrize("length", [0, REASON_CHARS_MAX, REASON_CHARS_MAX + 1, 10 * REASON_CHARS_MAX])
def test_a_long_reason_is_cut_and_shows_it(length: int) -> None:
    reason = "ж" * length
    kept = cut(reason)
    assert kept is not None
    assert len(kept) == min(length, REASON_CHARS_MAX)
    assert kept.endswith("…") == (length > REASON_CHARS_MAX)
    (line,) = _lines(with_line("[]", a_run(JobEnd.FAILED, reason=reason), node=None, at_ms=NOW))
    assert line["reason"] == kept
    assert cut(None) is None
