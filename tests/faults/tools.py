"""The libraries of the machine that these tests hurt Peik with. `tests.machine` brings them.

libfiu lets a disk fail on command, libfaketime moves the wall clock; both are loaded into one child process each, and the
machine stays as it is.
"""

import shutil
from pathlib import Path

PACKAGES = ("libfiu0", "fiu-utils", "libfaketime")
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
