"""Work in processes of its own: real ones, and none of them left."""

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from peik.errors import BadInput, StoreUnavailable
from peik.jobs import processes
from peik.jobs.messages import Message
from peik.jobs.outcome import HostShut, JobHopeless, JobLater, WorkFailed
from peik.jobs.processes import check_work, named_work, run_in_process
from tests.jobs import process_work as works
from tests.jobs.witness import Witness

T = TypeVar("T")


class Hearing:
    """Peik's side: takes everything, and remembers what was sent."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.progress: list[tuple[float | None, str | None]] = []
        self.lines: list[str] = []
        self._news = asyncio.Event()

    async def answer(self, message: Message) -> Message:
        if message["do"] == "progress":
            self.progress.append((message["done"], message["text"]))
            return {}
        text = message["params"]["text"]
        if text == "refused":
            return {"error": {"type": "StoreUnavailable", "code": "store_down", "detail": "The store is away."}}
        self.texts.append(text)
        self._news.set()
        return {"letter": len(self.texts)}

    def line(self, job_id: int, line: str) -> None:
        assert job_id == 5
        self.lines.append(line)

    async def ready(self) -> None:
        while not self.texts:
            self._news.clear()
            await self._news.wait()


def run(
    tmp_path: Path, work: Callable[..., Any], hearing: Hearing, params: Message | None = None
) -> Coroutine[Any, Any, object]:
    folder = tmp_path / "folder"
    folder.mkdir(exist_ok=True)
    facts = {
        "id": 5,
        "kind": "k",
        "user": "u",
        "params": params or {},
        "attempt": 2,
        "metadata": {},
        "folder": str(folder),
    }
    return run_in_process(work, facts, folder=folder, on_message=hearing.answer, on_line=hearing.line)


async def play(tmp_path: Path, work: Callable[..., Any], params: Message | None = None) -> tuple[object, Hearing]:
    hearing = Hearing()
    return await run(tmp_path, work, hearing, params), hearing


def done(tmp_path: Path, work: Callable[..., Any], params: Message | None = None) -> tuple[Any, Hearing]:
    return run_loop(play(tmp_path, work, params))


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(autouse=True, params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """`peik serve` runs on uvloop, the library on whatever its program has."""
    _loops.append(LOOPS[request.param])
    yield
    _loops.pop()


_loops: list[Callable[[], asyncio.AbstractEventLoop]] = []


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_loops[-1]) as runner:
        return runner.run(main)


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    witness = Witness(tmp_path / "witness")
    yield witness
    witness.close()


def test_a_function_gets_its_job_and_answers(tmp_path: Path) -> None:
    result, hearing = done(tmp_path, works.echo, {"url": "سلام"})
    assert result.pop("pid") != os.getpid()
    assert result == {"params": {"url": "سلام"}, "attempt": 2, "letter": 1, "folder": str(tmp_path / "folder")}
    assert hearing.progress == [(0.5, "half")]
    assert hearing.texts == ["hello u"]


def test_nothing_is_a_result(tmp_path: Path) -> None:
    assert done(tmp_path, works.nothing)[0] is None


def test_its_files_are_in_its_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "folder")
    assert done(tmp_path, works.where)[0] == {"cwd": folder, "temporary": folder}


def test_if_memory_runs_out_it_goes_before_peik(tmp_path: Path) -> None:
    assert done(tmp_path, works.first_to_go)[0] > int(Path("/proc/self/oom_score_adj").read_text())


@pytest.mark.parametrize(
    ("what", "error", "text"),
    [
        ("hopeless", JobHopeless, "There is no such video."),
        ("later", JobLater, "The site asks to wait."),
        ("shut", HostShut, "example.com does not answer; it is tried again in 12 s."),
        ("full", OSError, "[Errno 28] No space left on device"),
        ("store", StoreUnavailable, "The store is away."),
        ("exit", WorkFailed, "It called sys.exit(3)."),
        ("other", WorkFailed, "LookupError: nothing of that name"),
    ],
)
def test_what_it_raises_comes_over(tmp_path: Path, what: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        done(tmp_path, works.raises, {"what": what})
    assert type(caught.value) is error
    assert str(caught.value) == text
    if isinstance(caught.value, JobLater):
        assert caught.value.after_s == 90
    if isinstance(caught.value, HostShut):
        assert (caught.value.host, caught.value.retry_s) == ("example.com", 12.0)


def test_an_error_may_say_anything(tmp_path: Path) -> None:
    with pytest.raises(WorkFailed, match=r"^ValueError: caf\? x{3000,4000}$"):
        done(tmp_path, works.raises, {"what": "odd"})


def test_an_answer_may_be_an_error(tmp_path: Path) -> None:
    assert done(tmp_path, works.asks_wrongly)[0] == "store_down: The store is away."


def test_all_its_threads_may_ask(tmp_path: Path) -> None:
    result, hearing = done(tmp_path, works.many_threads)
    assert result == list(range(1, 21))
    assert sorted(hearing.texts, key=int) == [str(number) for number in range(20)]


def test_what_it_forks_cannot_speak_for_it(tmp_path: Path) -> None:
    result, hearing = done(tmp_path, works.forks)
    assert (result, hearing.progress) == (11, [])


def test_long_results_are_refused(tmp_path: Path) -> None:
    assert done(tmp_path, works.long_result, {"chars": 65_000})[0] == "x" * 65_000
    with pytest.raises(JobHopeless, match="more than 65536 bytes"):
        done(tmp_path, works.long_result, {"chars": 50_000_000})
    with pytest.raises(JobHopeless, match="not JSON"):
        done(tmp_path, works.no_json)


def test_long_questions_are_refused(tmp_path: Path) -> None:
    result, hearing = done(tmp_path, works.long_question)
    assert "too long" in result
    assert hearing.texts == []


def test_it_may_print_as_much_as_it_likes(tmp_path: Path) -> None:
    result, hearing = done(tmp_path, works.talkative)
    assert result == "said"
    assert len(hearing.lines) == processes.LINES_MAX
    assert hearing.lines[0].startswith("line 0 ")
    assert "left out" in hearing.lines[-1]


def test_an_end_without_a_word_is_told_with_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(WorkFailed, match=r"^Its process ended with code 7, .* Its last words: I have had enough$"):
        done(tmp_path, works.ends)
    with pytest.raises(WorkFailed, match=r"^Its process was killed by SIGKILL \(perhaps for want of memory\)\.$"):
        done(tmp_path, works.killed)
    with pytest.raises(WorkFailed, match=r"(?s)^Its process was killed by SIGSEGV\. Its last words: .*crashes"):
        done(tmp_path, works.crashes)


def test_one_that_scribbles_over_its_pipe_is_ended(tmp_path: Path) -> None:
    with pytest.raises(WorkFailed, match="only Peik may use"):
        done(tmp_path, works.scribbles)


def test_a_result_counts_though_the_process_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "END_S", 0.1)
    assert done(tmp_path, works.hangs_after)[0] == "done"


async def cancelled(tmp_path: Path, work: Callable[..., Any], witness: Witness, *, sees: int) -> None:
    hearing = Hearing()
    task = asyncio.ensure_future(run(tmp_path, work, hearing, {"pipe": str(witness.path), "waits": True}))
    await hearing.ready()
    witness.see(sees)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # whoever is impatient does not get away sooner
    with pytest.raises(asyncio.CancelledError):
        await task
    assert witness.is_alone()


def test_one_that_ignores_every_plea_is_killed(tmp_path: Path, witness: Witness) -> None:
    run_loop(cancelled(tmp_path, works.deaf, witness, sees=1))


def test_its_whole_family_is_killed_with_it(tmp_path: Path, witness: Witness) -> None:
    run_loop(cancelled(tmp_path, works.family, witness, sees=3))


def test_processes_that_change_all_the_time_are_killed(tmp_path: Path, witness: Witness) -> None:
    run_loop(cancelled(tmp_path, works.restless, witness, sees=1))


def test_what_it_leaves_behind_is_killed_after_it(tmp_path: Path, witness: Witness) -> None:
    assert done(tmp_path, works.family, {"pipe": str(witness.path), "waits": False})[0] == "done"
    assert os.read(witness.number, 10) == b"..."
    assert witness.is_alone()


def test_without_its_guardian_it_dies_too(tmp_path: Path, witness: Witness) -> None:
    with pytest.raises(WorkFailed, match="Its process was killed"):
        done(tmp_path, works.lonely, {"pipe": str(witness.path)})
    witness.await_end()


def test_one_that_is_cancelled_before_it_began_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        for turns in range(12):  # of the loop: at each step of its beginning
            task = asyncio.ensure_future(run(tmp_path, works.nothing, Hearing()))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run_loop(story())  # uvloop keeps some of its own from its first time on
    before = len(list(Path("/proc/self/fd").iterdir()))
    run_loop(story())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_many_at_once(tmp_path: Path) -> None:
    async def story() -> list[object]:
        return await asyncio.gather(*(run(tmp_path, works.long_result, Hearing(), {"chars": n}) for n in range(8)))

    assert run_loop(story()) == ["x" * n for n in range(8)]


# ---- by what name a function is found ----


def test_functions_have_names() -> None:
    assert named_work(works.echo)["inside"] == 0
    assert named_work(works.Works.still)["name"] == "Works.still"


@pytest.mark.parametrize(
    "work",
    [lambda job: None, works.outer_of(), functools.partial(works.echo), works.asynchronous],
    ids=["a lambda", "a local", "a partial", "an async one"],
)
def test_what_cannot_be_found_is_refused_at_once(work: Callable[..., Any]) -> None:
    with pytest.raises(BadInput, match="process of its own"):
        check_work(work)


def test_what_is_not_under_its_name_is_hopeless(tmp_path: Path) -> None:
    with pytest.raises(JobHopeless, match="another process could not find it"):
        done(tmp_path, works.Works().bound)


def test_a_decorator_is_taken_off_if_it_was_not_meant(tmp_path: Path) -> None:
    assert done(tmp_path, works.inner)[0] == "the decorator"
    within = works.inner.__wrapped__  # type: ignore[attr-defined]
    assert done(tmp_path, within)[0] == "the function itself"
    assert done(tmp_path, works.Works.still)[0] == "a static method"
