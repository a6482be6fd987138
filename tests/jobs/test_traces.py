"""What a job's work raised is kept with its traceback: for whoever wrote the work, and wherever it ran."""

import msgspec

from peik.core.letter import State
from peik.jobs.messages import heard_error, said_error
from peik.jobs.model import TRACES_MAX, JobEnd, JobRecord, Ran, with_line
from peik.jobs.outcome import JobHopeless, WorkFailed, raised

JOB = JobRecord(id=1, kind="download", user="u", rank=1, params="{}", state=State.ACTIVE, attempts=3, created_at_ms=0)


def caught(words: str = "no film") -> Exception:
    try:
        raise LookupError(words)
    except LookupError as error:
        return error


def test_an_error_of_the_work_comes_with_its_place_and_without_tokens() -> None:
    ran = raised(JOB, caught("https://x/bot7000001:AAEhBOweik9ai2o01ePlvqvVsTPSkqlQ/getMe"), at_ms=0)
    assert ran.end is JobEnd.FAILED
    assert ran.trace is not None
    assert "in caught" in ran.trace
    assert "LookupError" in ran.trace
    assert "7000001:***" in ran.trace
    assert "AAEh" not in ran.trace


def test_the_same_from_a_process_of_its_own() -> None:
    said = msgspec.json.decode(msgspec.json.encode(said_error(caught())))["failed"]
    heard = heard_error(said)
    assert isinstance(heard, WorkFailed)
    ran = raised(JOB, heard, at_ms=0)
    assert ran.trace is not None
    assert "in caught" in ran.trace


def test_what_a_job_says_on_purpose_has_none() -> None:
    assert raised(JOB, JobHopeless("There is no such film."), at_ms=0).trace is None
    assert raised(JOB, ExceptionGroup("both", [caught()]), at_ms=0).trace is not None


def test_the_last_ones_are_kept() -> None:
    history = "[]"
    for run in range(6):
        ran = Ran(job_id=1, run=run, end=JobEnd.FAILED, reason="r", trace=None if run == 4 else f"trace {run}")
        history = with_line(history, ran, node=None, at_ms=run)
    kept = [line.get("trace") for line in msgspec.json.decode(history)]
    assert kept == [None, None, "trace 2", "trace 3", None, "trace 5"]
    assert TRACES_MAX == 3
