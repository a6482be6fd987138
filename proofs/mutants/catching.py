"""Whether anybody notices a mutant: the world first, then the suites. Each catch is tried on the clean source as well."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from proofs.mutants.lives import Played
from proofs.mutants.planting import Mutant, copy_source, plant
from proofs.mutants.report import Row
from simulation.drawing import Kind

LIFE_S = 4.0  # what a life may take on a busy machine, on average
START_S = 120.0
SUITE_S = 300.0
WORDS_MAX = 160
_FAILED = re.compile(r"^FAILED (\S+?::\S+)(?: - (.*))?$", re.MULTILINE)


class Broken(Exception):
    """Not the mutant is wrong, but what should catch it, or the mutant is none."""


class Catch(msgspec.Struct, frozen=True, kw_only=True):
    """Who noticed a mutant. `where` is a seed or a test, `words` what it said."""

    by: Literal["world", "test", "nobody"]
    where: str
    words: str


def caught(mutant: Mutant, clean: Path) -> Row:
    """Plant it in a copy of its own and see. `clean` is one without any. Raises Broken, NotPlanted."""
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="peik-mutant-") as folder:
        tree = Path(folder) / "tree"
        copy_source(tree, source=clean)  # not the source itself, which somebody may be writing just now
        plant(mutant, tree)
        played = _play(tree, seeds=mutant.seeds, kind=mutant.kind)
        catch = _by_world(played, clean, mutant.kind) if played.wrong else _by_suites(mutant, tree, clean)
    return Row(
        name=mutant.name,
        promise=mutant.promise,
        file=mutant.file,
        caught_by=catch.by,
        where=catch.where,
        words=catch.words,
        seeds=played.seeds,
        seconds=round(time.monotonic() - began_at, 1),
        beyond=mutant.beyond,
    )


def check_clean(clean: Path, *, seeds: int) -> None:
    """The clean source keeps its promises here, or no catch means anything. Raises Broken."""
    for kind in Kind:
        played = _play(clean, seeds=seeds, kind=kind)
        if played.wrong:
            raise Broken(f"the clean source: {kind} seed {played.seed} goes wrong: {_short(played.wrong)}")


# ---- the world ----


def _by_world(played: Played, clean: Path, kind: Kind) -> Catch:
    if played.seed is None:
        # A bug that lets nothing start is found by everybody, and proves nothing.
        raise Broken(f"even a quiet life goes wrong: {_short(played.wrong)}")
    control = _play(clean, seeds=1, first=played.seed, kind=kind)
    if control.wrong:
        raise Broken(f"seed {played.seed} goes wrong without it, too: {_short(control.wrong)}")
    where = f"seed {played.seed}" if kind is Kind.FILE else f"{kind} seed {played.seed}"
    return Catch(by="world", where=where, words=_short(played.wrong))


def _play(tree: Path, *, seeds: int, first: int = 0, kind: Kind) -> Played:
    with tempfile.TemporaryDirectory(prefix="peik-lives-", dir=_fast_folder()) as folder:
        arguments = ["-m", "proofs.mutants.lives", "--seeds", str(seeds), "--first", str(first), "--folder", folder]
        arguments += ["--kind", kind]
        code, output = _run(tree, arguments, START_S + seeds * LIFE_S)
    said = [line for line in output.splitlines() if line.startswith('{"seeds":')]
    if code != 0 or not said:
        raise Broken(f"the world itself fails: {_short(output.splitlines()[-3:])}")
    return msgspec.json.decode(said[-1], type=Played)


def _fast_folder() -> Path | None:
    """The world's disk is simulated; the real one below it need not be slow."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None


# ---- the suites ----


def _by_suites(mutant: Mutant, tree: Path, clean: Path) -> Catch:
    if not mutant.suites:
        return Catch(by="nobody", where="", words="")
    code, output = _test(tree, mutant.suites)
    if code == 0:
        return Catch(by="nobody", where="", words="")
    found = _FAILED.search(output)
    if found is None:
        raise Broken(f"the suites fail without a failed test: {_short(output.splitlines()[-3:])}")
    code, output = _test(clean, [found[1]])
    if code != 0:
        raise Broken(f"{found[1]} fails without the mutant, too: {_short(output.splitlines()[-3:])}")
    return Catch(by="test", where=found[1], words=_short([found[2] or ""]))


def _test(tree: Path, wanted: Sequence[str]) -> tuple[int, str]:
    return _run(tree, ["-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *wanted], SUITE_S)


# ---- processes ----


def _run(tree: Path, arguments: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """Run Python on a copy of the source; its code and all that it wrote. What it started ends with it."""
    environment = os.environ | {"PYTHONPATH": str(tree), "COLUMNS": "400"}  # wide: pytest cuts the words of a failure
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Broken(f"no end within {timeout_s:g} s: {' '.join(arguments)}") from None
    return process.returncode, output


def _short(words: Sequence[str]) -> str:
    """One line, without what differs from machine to machine."""
    text = " ".join("; ".join(words).split())
    return text if len(text) <= WORDS_MAX else text[: WORDS_MAX - 1].rpartition(" ")[0] + "…"
