"""The libraries of the machine that these tests hurt Peik with: finds them, and installs them where it may.

`make unit` runs this. libfiu lets a disk fail on command, libfaketime moves the wall clock; both are loaded into one child
process each, and the machine stays as it is.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("libfiu0", "fiu-utils", "libfaketime")
HINT = f"Install it with: sudo apt-get install {' '.join(PACKAGES)} (or run `make unit` as root, which does that)."
_FOLDERS = ("/usr/lib", "/usr/lib/*", "/usr/lib64", "/usr/local/lib")


def fiu() -> tuple[Path, Path] | None:
    """The two libraries of libfiu that are loaded before a program: the one that is told what fails, and the one that fails."""
    run, posix = _library("fiu/fiu_run_preload.so"), _library("fiu/fiu_posix_preload.so")
    if run is None or posix is None or shutil.which("fiu-ctrl") is None:
        return None
    return run, posix


def faketime() -> Path | None:
    return _library("faketime/libfaketime.so.1")


def _library(name: str) -> Path | None:
    for folder in _FOLDERS:
        found = sorted(Path("/").glob(f"{folder[1:]}/{name}"))
        if found:
            return found[0]
    return None


def main() -> None:
    """Never fails: without a library the tests that need it say what to do."""
    if fiu() is not None and faketime() is not None:
        return
    install = ["apt-get", "install", "--yes", "--quiet=2", "--no-install-recommends", *PACKAGES]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.stderr.write(f"Some tests of faults need libfiu and libfaketime. {HINT}\n")
        return
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run(install, env=quiet, capture_output=True, check=False).returncode:
        subprocess.run(["apt-get", "update", "--quiet=2"], env=quiet, capture_output=True, check=False)
        subprocess.run(install, env=quiet, stdout=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    main()
