"""The tutorial, and what the README shows of REST, done as a stranger would: every command of the page, in one shell, with
nothing changed but the ports. What the page says that they print, they print."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.patience import PATIENCE_S
from tests.processes.programs import Port

TUTORIAL = "docs/tutorial.md"
INSTALLING, *STEPS = blocks(TUTORIAL, "sh")
(ECHO_BOT,) = blocks(TUTORIAL, "python")
PRINTED = blocks(TUTORIAL, "text")
(CURL,) = (block for block in blocks("README.md", "sh") if "curl" in block)


def test_installing_is_what_make_does_before_any_test() -> None:
    assert INSTALLING == "make setup\n. .venv/bin/activate\n"


@pytest.mark.gate  # a dozen programs, one after the other
def test_every_step_does_what_the_page_says(tmp_path: Path) -> None:
    *steps, cleaning = STEPS
    rest = f"KEY=$(cat peik.db.key)\n{CURL}\npeik letters --json --limit 1\n"
    ports = {number: Port() for number in ("8081", "8082", "8083")}  # held until the end: nobody else is given them

    def moved(text: str) -> str:
        return re.sub(r"\b808[123]\b", lambda found: str(ports[found[0]].number), text)

    (tmp_path / "echo.py").write_text(moved(ECHO_BOT), encoding="utf-8")
    # Job control as in a terminal, so that `kill %2` means the second program.
    script = moved("set -m\n" + "\n".join([*steps, rest, "echo ALL IS DONE", cleaning, "ls"]))
    said = shell(script, tmp_path, port=str(ports["8081"].number))

    assert "ALL IS DONE" in said, said
    place = 0
    for line in "".join(PRINTED).splitlines():
        for piece in line.split("…"):
            assert piece in said[place:], (
                f"{piece!r} is not in what follows {said[max(0, place - 200) : place]!r}:\n{said}"
            )
            place = said.index(piece, place)
    after = said[said.index("ALL IS DONE") :].split()
    assert "echo.py" in after
    assert not [name for name in after if name.startswith("peik.db")], "cleaning up left something behind"
    letter = said[said.index('"id"', said.index("You said:")) :]
    assert '"text": "Hello"' in letter, letter
    assert '"state": "failed"' not in letter, letter


def shell(script: str, folder: Path, *, port: str) -> str:
    """What a script says, in a shell that ends with all that it started."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PEIK_", "BOT_"))}
    programs = folder / "programs"
    programs.mkdir()
    for name, start in {"peik": "-m peik", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {start} "$@"\n')
        (programs / name).chmod(0o755)
    environment = clean | {"PATH": f"{programs}:{clean['PATH']}", "PEIK_PORT": port, "PYTHONPATH": str(ROOT)}
    output = folder / "output.log"
    with output.open("wb") as said:
        running = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            running.wait(timeout=PATIENCE_S)
        finally:
            for group in groups_of(running.pid):
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.killpg(group, signal.SIGKILL)
            running.wait()
    return output.read_text(encoding="utf-8")


def groups_of(session: int) -> set[int]:
    """The groups of processes that are left of a session; with job control each program has its own."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.add(int(fields[2]))
    return found
