"""Whole programs that have jobs in processes of their own, and what lives on when such a program is killed: nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.witness import Witness

_PROGRAM = """
import asyncio, os, sys, time
from pathlib import Path
from peik.jobs import child
from peik.jobs.processes import run_in_process
from tests.jobs import process_work as works

NAME = [__name__, child.is_preparing]

def here(job):
    return [NAME, child.is_preparing, os.getpid() != int(job.params["parent"]), job.send_text("hello")]

came = asyncio.Event()

async def answer(message):
    print(message["params"]["text"], flush=True)
    came.set()
    return {"letter": 1}

async def main():
    work = here if sys.argv[1] == "here" else getattr(works, sys.argv[1])
    params = {"pipe": sys.argv[3], "waits": True, "parent": os.getpid()}
    facts = {"id": 5, "kind": "k", "user": "u", "params": params, "attempt": 1, "metadata": {}, "folder": sys.argv[2]}
    running = asyncio.create_task(run_in_process(work, facts, folder=Path(sys.argv[2]), on_message=answer))
    await came.wait()
    if len(sys.argv) > 4 and os.fork() == 0:
        print("fork", os.getpid(), flush=True)
        time.sleep(600)  # a fork of Peik that holds everything open
    print(await running, flush=True)

if __name__ == "__main__":
    asyncio.run(main())
"""


def program(tmp_path: Path, *words: str) -> "subprocess.Popen[str]":
    script = tmp_path / "my bot.py"
    script.write_text(_PROGRAM)
    (tmp_path / "folder").mkdir()
    command = [sys.executable, str(script), words[0], str(tmp_path / "folder"), str(tmp_path / "witness"), *words[1:]]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path)


def test_a_function_of_a_script_is_found(tmp_path: Path) -> None:
    said, _ = program(tmp_path, "here").communicate()
    assert said.splitlines() == ["hello", "[['__mp_main__', True], False, True, 1]"]


@pytest.mark.parametrize("also", [[], ["fork"]], ids=["alone", "with a fork of it that lives on"])
def test_if_peik_is_killed_nothing_lives_on(tmp_path: Path, also: list[str]) -> None:
    witness = Witness(tmp_path / "witness")
    peik = program(tmp_path, "family", *also)
    assert peik.stdout is not None
    said = [peik.stdout.readline().split() for _ in range(1 + len(also))]
    forks = [int(words[1]) for words in said if words[0] == "fork"]
    try:
        witness.see(3)
        peik.kill()
        peik.wait()
        peik.stdout.close()
        witness.await_end()
    finally:
        for pid in forks:
            os.kill(pid, signal.SIGKILL)
    witness.close()
