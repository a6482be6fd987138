"""`make package`: build the sdist and from it the wheel, install the wheel in an empty environment on every Python that is here,
and use it there as a stranger would. Needs the package index; nothing of the checkout is in reach of what is tried."""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

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
    print(f"Built {wheel.name} and its sdist into {out}; installed and tried on {len(pythons)} Python(s).")
    return 0


def _usable(name: str) -> str | None:
    """The path of a Python, unless it is missing or too old. A name may be a shim with nothing behind it, so it is run."""
    path = shutil.which(name)
    if path is None:
        return None
    look = "import sys; sys.exit(sys.version_info < (3, 11))"
    return path if subprocess.run([path, "-c", look], capture_output=True).returncode == 0 else None


def _build(folder: Path, out: Path) -> Path:
    _run(sys.executable, "-m", "venv", folder / "builder")
    _run(folder / "builder/bin/python", "-m", "pip", "install", "--quiet", "build")
    _run(folder / "builder/bin/python", "-m", "build", "--outdir", folder / "dist", ROOT)
    out.mkdir(exist_ok=True)
    for file in (folder / "dist").iterdir():
        shutil.copy(file, out)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def _try(python: str, wheel: Path, folder: Path) -> None:
    home = folder / f"try-{Path(python).name}-{abs(hash(python))}"
    place = home / "here"
    place.mkdir(parents=True)
    _run(python, "-m", "venv", home / "venv")
    _run(home / "venv/bin/python", "-m", "pip", "install", "--quiet", wheel)
    for step in STEPS:
        said = _run(home / "venv/bin/peik", *step, cwd=place, given=TOKEN)
        print(f"  {Path(python).name}: peik {' '.join(step)}: {said.strip().splitlines()[-1][:100]}", flush=True)
    # What each extra names exists for this Python, and fits with the rest.
    for extra in _extras():
        asked = f"{wheel}[{extra}]"
        _run(home / "venv/bin/python", "-m", "pip", "install", "--quiet", "--dry-run", asked)
    print(f"  {Path(python).name}: extras {', '.join(_extras())} can be installed", flush=True)


def _extras() -> list[str]:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [one for one in told["project"]["optional-dependencies"] if one not in ("dev", "bench")]


def _run(*command: str | Path, cwd: Path | None = None, given: str = "") -> str:
    """What it said. Ends the program with all that was said if it failed."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PEIK_", "BOT_"))}
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=outside,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
    )
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {ran.returncode}:\n{ran.stdout}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
