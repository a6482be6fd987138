"""`python -m simulation` as people and CI run it: exit codes, counts, the short story, and the way to see it again."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.play import play

pytestmark = pytest.mark.gate  # whole lives

ROOT = Path(__file__).parents[2]
BROKEN_SEED = 1  # it sends letters, as nearly all do, and one of its deeds sends a single one

# Python imports this file by itself at its start, in every process of the command. What it says is wrong is well.
PLANTED = """
from simulation import judge

def left(self, one):
    promise = real(self, one)
    if (promise is not None) is {is_letter}:
        self.note(f"{{one.request.method}} was sent [on purpose]")
    return promise

real, judge.Judge.left = judge.Judge.left, left
"""


def run(*words: str, planted: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own, with or without a planted bug."""
    path = [str(ROOT)] if planted is None else [str(planted), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "COLUMNS": "80"}
    command = [sys.executable, "-m", "simulation", *words]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def plant(folder: Path, *, is_letter: bool) -> Path:
    """From now on it is wrong to send a letter, or to send anything else."""
    (folder / "sitecustomize.py").write_text(PLANTED.format(is_letter=is_letter))
    return folder


def wrong_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("WRONG: ")]


def test_lives_that_go_well_are_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = run("--seeds", "4", "--jobs", "2", "--report", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "4 seeds, 0 wrong"
    assert "Traceback" not in done.stderr
    document = json.loads(report.read_text())
    assert {name: document[name] for name in ("seeds", "first", "deeds", "wrong")} == {
        "seeds": 4,
        "first": 0,
        "deeds": 30,
        "wrong": 0,
    }
    rows = {line.rsplit(maxsplit=2)[0].strip(): line.split()[-2:] for line in done.stdout.splitlines()[1:-1]}
    assert set(rows) == set(document["counts"])
    letters = document["counts"]["letters"]
    assert letters > 0
    assert rows["letters"] == [f"{letters:,}", f"{letters / 4:.1f}"]


def test_a_life_that_goes_wrong_is_told_and_its_command_shows_it_again(tmp_path: Path) -> None:
    planted = plant(tmp_path, is_letter=True)
    report = planted / "report.json"
    seed = ("--first", str(BROKEN_SEED), "--seeds", "1", "--kind", "file")
    done = run(*seed, "--jobs", "1", "--report", str(report), planted=planted)
    assert done.returncode == 1, done.stdout + done.stderr
    said = wrong_lines(done.stdout)
    assert said
    assert all(one.endswith("was sent [on purpose]") for one in said)
    lines = done.stdout.splitlines()
    assert lines[-1] == "1 seeds, 1 wrong"
    assert json.loads(report.read_text())["wrong"] == 1

    command = shlex.split(lines[lines.index("again:") + 1])
    assert command[:3] == ["python", "-m", "simulation"]
    places = command[command.index("--only") + 1].split(",")
    story = lines[lines.index(said[0]) + len(said) : lines.index("the end of its log:")]
    assert [line.split()[1] for line in story] == places
    assert len(places) == 1, "one deed is enough to send a letter"

    again = run(*command[3:], planted=planted)
    assert again.returncode == 1
    assert wrong_lines(again.stdout) == said
    log = again.stdout.splitlines()[: -len(said)]
    end = lines[lines.index("the end of its log:") + 1 : lines.index("again:")]
    assert log[-len(end) :] == end


def test_a_world_that_is_wrong_before_any_deed_can_be_shown_again(tmp_path: Path) -> None:
    planted = plant(tmp_path, is_letter=False)
    done = run("--first", str(BROKEN_SEED), "--seeds", "1", "--jobs", "1", planted=planted)
    lines = done.stdout.splitlines()
    command = shlex.split(lines[lines.index("again:") + 1])
    again = run(*command[3:], planted=planted)
    assert (done.returncode, again.returncode) == (1, 1)
    assert wrong_lines(again.stdout) == wrong_lines(done.stdout) != []
    assert not any("* " in line and "* calm" not in line for line in again.stdout.splitlines()), "no deed was needed"


def test_the_log_of_one_life_is_printed_whole() -> None:
    """The very log that is played here, with what was played here before."""
    done = run("--first", "7", "--log")
    assert (done.returncode, done.stdout.splitlines()) == (0, play(7).log)


def test_of_one_life_just_some_deeds_are_played_and_told() -> None:
    done = run("--first", "7", "--only", "0,2")
    assert done.returncode == 0
    assert done.stdout.splitlines() == play(7, only=[0, 2]).story
