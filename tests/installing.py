"""Makes .venv, installs into it what a target of the Makefile needs, and tells every few seconds how far that is.

python tests/installing.py peik | demo | ready. It runs before anything is installed: nothing but the standard library here.
"""

import subprocess
import sys
import threading
import time
from pathlib import Path

EVERY_S = 3.0
VENV = Path(".venv")
PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off", "--editable")
# One .venv, which grows: what to install, in words, how much it is, and what is in it besides.
KINDS = {
    "peik": (".", "Peik: about 35 packages, 90 MB, half a minute", ()),
    "demo": (".[demo]", "Peik and its demo: about 50 packages, 120 MB, half a minute", ("peik",)),
    "ready": (".[dev]", "Peik and the tools of its tests: about 110 packages, 650 MB, two minutes", ("peik", "demo")),
}


def main(kind: str) -> None:
    what, words, within = KINDS[kind]
    _tell(f"Installing {words}, into {VENV}.")
    progress = Progress()
    teller = threading.Thread(target=progress.tell, daemon=True)
    teller.start()
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    progress.before = _packages()
    # pip's warnings and errors go where ours go.
    command = [str(VENV / "bin" / "python"), *PIP, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            progress.heard(line.strip())
    progress.is_over.set()
    teller.join()
    if pip.returncode:
        sys.exit(pip.returncode)
    for done in (kind, *within):
        (VENV / f".{done}").touch()
    _tell(f"{_packages()} packages are there, after {progress.took_s:.0f} s.")


class Progress:
    def __init__(self) -> None:
        self._began = time.monotonic()
        self._at = "making the virtual environment"
        self.before = 0  # packages that were there
        self._asked = 0
        self._new = 0  # packages to be installed, once pip has found out
        self.is_over = threading.Event()

    @property
    def took_s(self) -> float:
        return time.monotonic() - self._began

    def heard(self, line: str) -> None:
        """pip says "Collecting x", "Downloading x (n MB)", and at last the names of all that it will install."""
        first, _, rest = line.partition(" ")
        if first == "Collecting":
            self._asked += 1
            self._at = f"asking for {rest.split(' (from')[0]} ({self._asked} so far)"
        elif first in ("Downloading", "Using", "Building"):
            self._at = line
        elif line.startswith("Installing collected packages:"):
            self._new = line.count(",") + 1

    def tell(self) -> None:
        while not self.is_over.wait(EVERY_S):
            _tell(f"  {self.took_s:3.0f} s  {self.at(_packages())}")

    def at(self, packages: int) -> str:
        """In words, while so many packages are there."""
        return f"unpacking, {max(0, packages - self.before)} of {self._new}" if self._new else self._at


def _packages() -> int:
    return len(list(VENV.glob("lib/python*/site-packages/*.dist-info")))


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
