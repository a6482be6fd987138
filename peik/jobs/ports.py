"""Where the pieces of jobs meet."""

from pathlib import Path
from typing import Protocol

from peik.core.job import Job as Record


class NoRoom(Exception):
    """The disk, or what is set aside for work, has no room for a folder now. Says why, as a sentence."""


class FolderOver(Exception):
    """A job keeps more in its folder than it may."""


class WorkFolders(Protocol):
    """A folder of its own for each run of a job."""

    async def begin(self, job: Record, bytes_max: int) -> Path:
        """An empty folder that nobody else has. Raises NoRoom, and FolderOver if there can never be room for it."""

    async def size(self, job: Record) -> int:
        """How many bytes lie there now."""

    async def end(self, job: Record) -> None:
        """It is removed: now, or (told as an event) as soon as it can be. Never raises."""


class HostShut(Exception):
    """An outside host fails, and is left alone for a while."""

    def __init__(self, host: str, retry_s: float) -> None:
        super().__init__(f"{host} does not answer; it is tried again in {retry_s:.0f} s.")
        self.host = host
        self.retry_s = retry_s


class Teller(Protocol):
    """Tells people in their chat how their job goes, in one message. Never raises, and never holds up the work."""

    def queued(self, job: Record) -> None: ...

    def began(self, job: Record) -> None: ...

    def progressed(self, job: Record, progress: float | None, text: str | None) -> None: ...

    def ended(self, job: Record) -> None:
        """Completed, failed, cancelled, or put off: its state says which."""
