"""A run: rounds in which every task is a fresh process on a fresh folder, and the figures that they print.

Rows follow each other in an order that is rotated from round to round, and a row's tasks go forwards and backwards by turns, so
that a noisy minute, or what gets slower by itself, does not fall on one of them alone.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console

from bench.contest import Task
from bench.ground import Ground
from bench.servers import Servers, running_servers
from bench.stub import running_stub

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
PATIENCE_S = 900.0

Rounds = dict[str, list[float]]


class Run(msgspec.Struct, kw_only=True):
    """What was found, and what failed: a figure that is missing says why."""

    rounds: Rounds
    failures: dict[str, str]
    rounds_done: int = 0
    taken_s: float = 0.0
    letters: int = 0
    load_before: float = 0.0
    load_after: float = 0.0
    cores: int = 0


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    rounds: int
    letters: int
    seconds_max: float = float("inf")  # no round begins that would probably take longer
    with_servers: bool = True


def run_rows(rows: Mapping[str, Sequence[Task]], terms: Terms, console: Console) -> Run:
    RESULTS.mkdir(exist_ok=True)
    found: Rounds = defaultdict(list)
    result = Run(rounds=found, failures={}, letters=terms.letters, cores=os.cpu_count() or 0)
    result.load_before = os.getloadavg()[0]
    began = time.monotonic()
    with running_stub() as stub, _servers(terms) as servers, console.status("…") as status:
        common = {"stub_port": stub.port, "letters": terms.letters, **msgspec.structs.asdict(servers)}
        for number in range(terms.rounds):
            spent_s = time.monotonic() - began
            if number and spent_s * (number + 1) / number > terms.seconds_max:
                break
            for task in in_turn(rows, number, terms.rounds):
                status.update(f"round {number + 1} of {terms.rounds}: {task.name}")
                with folder() as own:
                    _take(task, Ground(folder=str(own), **common), result)
            result.rounds_done = number + 1
    result.taken_s = time.monotonic() - began
    result.load_after = os.getloadavg()[0]
    return result


@contextmanager
def _servers(terms: Terms) -> Iterator[Servers]:
    if not terms.with_servers:
        yield Servers()
        return
    with folder() as place, running_servers(place) as servers:
        yield servers


def in_turn(rows: Mapping[str, Sequence[Task]], number: int, rounds: int) -> Iterator[Task]:
    """The tasks of round `number`, counted from 0."""
    names = list(rows)
    start = number * len(names) // rounds
    for name in (*names[start:], *names[:start]):
        tasks = rows[name] if number % 2 == 0 else tuple(reversed(rows[name]))
        yield from (task for task in tasks if number == 0 or not task.is_once)


def _take(task: Task, ground: Ground, result: Run) -> None:
    if not task.can_run(ground):
        result.failures[task.name] = "This machine lacks the server or the program that it needs."
        return
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as heard:
        try:
            ended = subprocess.run(
                task.command(ground),
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=heard,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            result.failures[task.name] = f"It did not end within {PATIENCE_S:.0f} s."
            return
        figures = figures_of(ended.stdout) if ended.returncode == 0 else None
        if figures is None:
            heard.seek(0)
            result.failures[task.name] = heard.read()[-2000:] or f"It ended with {ended.returncode} and no figures."
            return
    for name, value in figures.items():
        result.rounds[f"{task.prefix}{name}"].append(value)


def figures_of(said: str) -> dict[str, float] | None:
    """From the last line; None if there are none: half an hour of others' figures must not be lost with them."""
    try:
        return msgspec.json.decode(said.splitlines()[-1], type=dict[str, float])
    except (IndexError, msgspec.DecodeError):
        return None


@contextmanager
def folder() -> Iterator[Path]:
    """On the disk of the checkout unless TMPDIR says otherwise: /tmp is often memory, where a sync costs nothing."""
    RESULTS.mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="peik-bench-", dir=os.environ.get("TMPDIR") or RESULTS)).resolve()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
