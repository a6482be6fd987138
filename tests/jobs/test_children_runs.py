"""Runs of jobs in processes, with folders on a real disk: nothing is left of them, whatever their end."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.clock import SystemClock
from peik.core.events import Event, Events
from peik.core.letter import State
from peik.jobs.folders import Folders
from peik.jobs.model import JobEnd, JobRecord, Ran
from peik.jobs.outcome import Stop
from peik.jobs.processes import run_in_process
from peik.jobs.run import Run, RunTools
from peik.jobs.store import JobKind, KindTerms, Where
from tests.jobs import process_work as works
from tests.jobs.test_children import loop, run_loop, witness
from tests.jobs.witness import Witness

__all__ = ["loop", "witness"]  # fixtures


class Chat:
    """Takes everything."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.has_some = asyncio.Event()

    async def send(self, job: JobRecord, method: str, params: Any, *, files: Any, idempotency_key: str) -> int:
        self.texts.append(params["text"])
        self.has_some.set()
        return len(self.texts)


class Teller:
    def changed(self, job: JobRecord) -> None: ...

    def progressed(self, job: JobRecord, progress: float | None, text: str | None) -> None: ...


async def play(
    base: Path,
    work: Callable[..., Any],
    stop: Callable[[Run], None] | None = None,
    *,
    pipe: Path | None = None,
    timeout_ms: int | None = None,
) -> tuple[Ran | None, Chat, list[Event]]:
    """One run to its end, stopped once its process has sent something."""
    told: list[Event] = []
    events, clock, chat = Events(), SystemClock(), Chat()
    events.listen(told.extend)
    folders = Folders(base, events=events, clock=clock, free_min=0)
    tools = RunTools(
        folders=folders,
        chat=chat,
        hosts=None,  # type: ignore[arg-type]  nobody asks for one
        teller=Teller(),
        processes=run_in_process,
        clock=clock,
        events=events,
        folder_bytes=1000,
    )
    record = JobRecord(
        id=5,
        kind="k",
        user="u",
        params=msgspec.json.encode({"pipe": str(pipe)}).decode(),
        rank=2,
        state=State.ACTIVE,
        attempts=3,
        run=1,
        created_at_ms=0,
        timeout_ms=timeout_ms,
    )
    kind = JobKind(name="k", work=work, where=Where.PROCESS, terms=KindTerms(concurrency=1, per_user=1))
    run = Run(record, kind, tools, ends_at=clock.mono() + 1000)
    await folders.open()
    playing = asyncio.create_task(run.play())
    if stop is not None:
        await chat.has_some.wait()
        stop(run)
    ran = await playing
    await folders.close()
    return ran, chat, told


def left(base: Path) -> list[Path]:
    return list(base.iterdir())


def test_a_run_that_is_done(tmp_path: Path) -> None:
    ran, chat, told = run_loop(play(tmp_path / "base", works.echo))
    assert ran is not None
    assert (ran.end, chat.texts, told) == (JobEnd.DONE, ["hello u"], [])
    assert left(tmp_path / "base") == []


@pytest.mark.parametrize(
    ("why", "end"),
    [
        (Stop.CANCELLED, JobEnd.CANCELLED),
        (Stop.HANDED_ON, JobEnd.PUT_OFF),
        (Stop.OVER, JobEnd.HOPELESS),
        (Stop.LOST, None),
    ],
)
def test_a_run_that_is_stopped(tmp_path: Path, witness: Witness, why: Stop, end: JobEnd | None) -> None:
    def stop(run: Run) -> None:
        witness.see(1)
        run.stop(why)

    ran, _, told = run_loop(play(tmp_path / "base", works.deaf, stop, pipe=witness.path))
    assert (None if ran is None else ran.end, told) == (end, [])
    assert witness.is_alone()
    assert left(tmp_path / "base") == []


def test_a_run_that_is_late(tmp_path: Path) -> None:
    ran, _, told = run_loop(play(tmp_path / "base", works.sleeps, timeout_ms=100))
    assert ran is not None
    assert (ran.end, told, left(tmp_path / "base")) == (JobEnd.LATE, [], [])


def test_a_run_that_crashes_after_filling_its_folder(tmp_path: Path) -> None:
    ran, _, told = run_loop(play(tmp_path / "base", works.fills_and_crashes))
    assert ran is not None
    assert (ran.end, ran.bytes_used, told, left(tmp_path / "base")) == (JobEnd.FAILED, 500, [], [])
    assert "SIGSEGV" in (ran.reason or "")
