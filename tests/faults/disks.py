"""Disks that fill up: a really small one where we may mount it, else one whose writes fail on command."""

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tests.faults import tools
from tests.faults.hurting import FailingCalls, HurtServer

_SIZE = "4m"
_BLOCK = b"\0" * 4096


class Disk(Protocol):
    """Where a server has its database."""

    folder: Path

    def under(self, server: HurtServer) -> None:
        """Prepare a server that has not started yet."""

    async def fill(self) -> None: ...

    async def make_room(self) -> None: ...


class SmallDisk:
    """A tmpfs of a few MiB, full to its last block by a file that nobody needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def under(self, server: HurtServer) -> None:
        pass

    async def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(_BLOCK):
                pass

    async def make_room(self) -> None:
        self._ballast.unlink()


class FailingDisk:
    """A folder of the machine, with a server to which every write says that there is no room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def under(self, server: HurtServer) -> None:
        self._calls = FailingCalls(server, self.folder)

    async def fill(self) -> None:
        await self._calls.fail("posix/io/rw/pwrite", errno=errno.ENOSPC)

    async def make_room(self) -> None:
        await self._calls.work("posix/io/rw/pwrite")


def can_mount() -> bool:
    """Root may not always: many containers are kept from it."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    folder = Path(tempfile.mkdtemp(prefix="peik-mount-"))
    try:
        if _mount(folder):
            _unmount(folder)
            return True
        return False
    finally:
        folder.rmdir()


def ways_to_fill() -> list[str]:
    """Those that this machine has; "none" is a way that skips its test with what to install."""
    ways = ["small"] * can_mount() + ["failing"] * (tools.fiu() is not None)
    return ways or ["none"]


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """A disk of its own, gone with all that is on it afterwards."""
    folder.mkdir()
    assert _mount(folder)
    try:
        yield folder
    finally:
        _unmount(folder)


@contextlib.contextmanager
def disk_of(way: str, folder: Path) -> Iterator[Disk]:
    match way:
        case "small":
            with mounted(folder / "disk") as place:
                yield SmallDisk(place)
        case _:
            (folder / "disk").mkdir()
            yield FailingDisk(folder / "disk")


def _mount(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "peik-test", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _unmount(folder: Path) -> None:
    # Lazily: a server that was killed a moment ago may not have let go of its files yet.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
