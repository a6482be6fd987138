"""The two files that a SQLite writer stands on: whether they are still where they were opened, and room in the log ahead of it.

A sync that makes a file longer has to store its new length and where its blocks lie as well, which on a journalling file
system takes as long again as the bytes themselves. SQLite's log gets its full length only by and by after every start, one
commit at a time. So zeros are written ahead, step by step, and commits go into room that the file has already. Zeros are no
frames to SQLite: it stops reading its log there, as it does at what is left of an older round.
"""

import os
from pathlib import Path

import apsw

LOG_PAGES = 4096  # 16 MiB of log between checkpoints
# Pages with their headers, and what the commit before a checkpoint may add.
_LOG_BYTES = LOG_PAGES * (4096 + 24) + (1 << 20)
_STEP_BYTES_MIN, _STEP_BYTES_MAX = (
    1 << 18,
    1 << 20,
)  # a card that writes 10 MB a second holds a commit up for a tenth of one
_PIECE = bytes(1 << 16)  # SQLite's own functions write less than 128 KiB at once


class Footing:
    """Of one connection, for its writer. `check` is asked in every transaction, before its commit."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._names = (connection.filename, connection.filename_wal)
        self._places, self._log_bytes = self._look()
        self._has_room = True  # on the disk, as far as we know

    def check(self) -> None:
        """Raises CantOpenError unless the files stand where they stood. The write lock is held: nobody else writes the log.

        An open file lives on after it was moved, removed or replaced, and SQLite does not look in WAL mode.
        """
        places, log_bytes = self._look()
        if places != self._places:
            raise apsw.CantOpenError("the file was replaced while it was open: put it back, or start Peik anew")
        # It has become longer since: who commits only once, as a command does, shall not pay for room.
        if self._log_bytes < log_bytes < _LOG_BYTES and self._has_room:
            log_bytes = self._make_room(log_bytes)
        self._log_bytes = log_bytes

    def _look(self) -> tuple[list[tuple[int, int]], int]:
        """Which files stand there, and how long the log is. Raises CantOpenError if one is gone."""
        try:
            stats = [os.stat(name) for name in self._names]  # noqa: PTH116  on every commit
        except OSError as error:
            raise apsw.CantOpenError(f"{Path(error.filename).name} is gone: put it back, or start Peik anew") from error
        return [(stat.st_dev, stat.st_ino) for stat in stats], stats[1].st_size

    def _make_room(self, log_bytes: int) -> int:
        """Longer by a step, up to what a log needs; no step keeps a commit waiting for long. Its length then."""
        step = min(max(log_bytes, _STEP_BYTES_MIN), _STEP_BYTES_MAX)
        wanted = min(log_bytes + step, _LOG_BYTES)
        made = log_bytes
        try:
            # Through SQLite's own functions, so that whatever stands below them stands below this too.
            log = apsw.VFSFile("", self._names[1], [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL, 0])
            try:
                while made < wanted:
                    log.xWrite(_PIECE, made)
                    made += len(_PIECE)
            except apsw.Error:
                log.xTruncate(log_bytes)
                raise
            finally:
                log.xClose()
        except apsw.Error:
            self._has_room = False  # a disk that is full, or fails, tells so to the commit itself
            return log_bytes
        return made
