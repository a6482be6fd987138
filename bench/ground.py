"""What a measurement stands on: a folder on a real disk, a stub of Telegram, servers, and how much work there is.

It travels as JSON on a command line, because each measurement is a process of its own, Peik's like its peers'.
"""

from pathlib import Path

import msgspec

LETTERS = 20_000


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    stub_port: int
    letters: int = LETTERS  # the work of one measurement; all other sizes follow from it
    redis_always: str | None = None  # appendfsync always: as durable as Peik
    redis_everysec: str | None = None  # may lose a second of what it accepted
    postgres: str | None = None  # fsync and synchronous_commit on

    @property
    def path(self) -> Path:
        return Path(self.folder)

    @property
    def stub(self) -> str:
        """The API root of the stub."""
        return f"http://127.0.0.1:{self.stub_port}"

    def share(self, of: int) -> int:
        """So many at 20,000 letters, and as much fewer when there are fewer, but enough for percentiles."""
        return max(20, of * self.letters // LETTERS)
