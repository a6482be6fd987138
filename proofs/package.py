"""`make package`: build the sdist and from it the wheel, install the wheel in an empty environment on every Python that is here,
and use it there as a stranger would; then type every install line of every page in an empty environment. Needs the package
index; nothing of the checkout is in reach of what is tried."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from docs.pages.install import commands, pages

ROOT = Path(__file__).parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
WITHIN_S = 600
# Typed in an empty folder. The demo starts a server, kills it and counts; then what a first look at one's own Peik needs.
STEPS = (
    ("--version",),
    ("--show-completion", "bash"),
    ("config", "show"),
    ("demo", "--once", "--quick"),
    ("bots", "add", "-"),
    ("stats", "--json"),
    ("backup", "create"),
    ("backup", "verify"),
)
TOKEN = "7000001:AA-of-a-bot-that-there-is-not"


def main(named: Sequence[str]) -> int:
    pythons = [found for one in named or PYTHONS if (found := _usable(one)) is not None]
    if not pythons:
        print("No Python that Peik can run on was found. Name one: make package PYTHONS=/path/to/python3.12")
        return 1
    out = ROOT / "dist"
    with tempfile.TemporaryDirectory(prefix="peik-package-") as folder:
        wheel = _build(Path(folder), out)
        for python in pythons:
            _try(python, wheel, Path(folder))
        count = _type_lines(pythons[0], Path(folder))
    print(
        f"Built {wheel.name} and its sdist into {out}; installed and tried on {len(pythons)} Python(s). "
        f"{count} different install lines of the pages were typed, each in an empty environment."
    )
    return 0


# ---- what the pages tell to type ----

# Printed by the Python that a line installed into: all that the extras ask for is there, and nothing is missing or at odds.
_LOOK = """
import sys
from importlib.metadata import requires, version
from pip._vendor.packaging.requirements import Requirement
extras = sys.argv[1:] or [""]
wanted = [Requirement(one) for one in requires("peik")]
needed = [one.name for one in wanted if not one.marker or any(one.marker.evaluate({"extra": name}) for name in extras)]
print(len(needed), "requirements are there:", ", ".join(f"{name} {version(name)}" for name in needed[-3:]))
"""


def _type_lines(python: str, folder: Path) -> int:
    """Each different line once, in a clone of what is committed. How many there were."""
    run("git", "clone", "--quiet", ROOT, folder / "clone")
    found = {
        (program.rsplit("/", 1)[-1], what) for page in pages() for program, what in commands(page.read_text("utf-8"))
    }
    for number, (program, what) in enumerate(sorted(found)):
        home = folder / f"line-{number}"
        run(python, "-m", "venv", home)
        words = [*program.split()[1:], *shlex.split(what)]
        if program.startswith("pipx"):
            said = _by_pipx(home, words, folder / "clone")
        else:
            run(home / "bin/python", "-m", "pip", "-q", *words, cwd=folder / "clone")
            said = _installed(home, what)
        print(f"  {program} {what}: {said.strip().splitlines()[-1][:120]}", flush=True)
        shutil.rmtree(home)
    return len(found)


def _by_pipx(home: Path, words: list[str], clone: Path) -> str:
    run(home / "bin/python", "-m", "pip", "-q", "install", "pipx")
    places = {
        "PIPX_HOME": str(home / "pipx"),
        "PIPX_BIN_DIR": str(home / "programs"),
        "PIPX_MAN_DIR": str(home / "man"),
    }
    run(home / "bin/python", "-m", "pipx", *words, cwd=clone, also=places)
    return run(home / "programs/peik", "--version")


def _installed(home: Path, what: str) -> str:
    checked = run(home / "bin/python", "-m", "pip", "check")
    if not (home / "bin/peik").exists():  # a package of others
        return checked
    run(home / "bin/peik", "--version")
    extras = what.partition("[")[2].rstrip("]'")
    return run(home / "bin/python", "-c", _LOOK, *(one for one in extras.split(",") if one))


def _usable(name: str) -> str | None:
    """The path of a Python, unless it is missing or too old. A name may be a shim with nothing behind it, so it is run."""
    path = shutil.which(name)
    if path is None:
        return None
    look = "import sys; sys.exit(sys.version_info < (3, 11))"
    return path if subprocess.run([path, "-c", look], capture_output=True).returncode == 0 else None


def _build(folder: Path, out: Path) -> Path:
    run(sys.executable, "-m", "venv", folder / "builder")
    run(folder / "builder/bin/python", "-m", "pip", "install", "--quiet", "build")
    run(folder / "builder/bin/python", "-m", "build", "--outdir", folder / "dist", ROOT)
    out.mkdir(exist_ok=True)
    for file in (folder / "dist").iterdir():
        shutil.copy(file, out)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def _try(python: str, wheel: Path, folder: Path) -> None:
    home = folder / f"try-{Path(python).name}-{abs(hash(python))}"
    place = home / "here"
    place.mkdir(parents=True)
    run(python, "-m", "venv", home / "venv")
    run(home / "venv/bin/python", "-m", "pip", "install", "--quiet", wheel)
    try_program(home / "venv/bin/peik", place=place, name=Path(python).name)
    # What each extra names exists for this Python, and fits with the rest.
    for extra in _extras():
        asked = f"{wheel}[{extra}]"
        run(home / "venv/bin/python", "-m", "pip", "install", "--quiet", "--dry-run", asked)
    print(f"  {Path(python).name}: extras {', '.join(_extras())} can be installed", flush=True)


def try_program(*program: str | Path, place: Path, name: str, also: Mapping[str, str] | None = None) -> None:
    for step in STEPS:
        said = run(*program, *step, cwd=place, given=TOKEN, also=also)
        print(f"  {name}: peik {' '.join(step)}: {said.strip().splitlines()[-1][:100]}", flush=True)


def _extras() -> list[str]:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [one for one in told["project"]["optional-dependencies"] if one not in ("dev", "bench")]


def run(
    *command: str | Path,
    cwd: Path | None = None,
    given: str = "",
    also: Mapping[str, str] | None = None,
    within_s: float | None = WITHIN_S,
) -> str:
    """What it said. Ends the program with all that was said if it failed."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PEIK_", "BOT_"))}
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=outside | dict(also or {}),
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within_s,
    )
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {ran.returncode}:\n{ran.stdout}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
