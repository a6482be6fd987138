"""Whether processes live, told by a pipe that each of them holds open. Their numbers would not do: others soon have the same."""

import fcntl
import os
import select
import struct
import termios
import time
from pathlib import Path


class Witness:
    """The test's end."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self.number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def see(self, count: int) -> None:
        """So many have come, and not all are gone."""
        seen = b""
        while len(seen) < count:
            select.select([self.number], [], [])
            part = os.read(self.number, count - len(seen))
            assert part, "all are gone already"
            seen += part
        assert not self.is_alone()

    def is_alone(self) -> bool:
        try:
            return os.read(self.number, 1) == b""
        except BlockingIOError:
            return False

    def await_end(self) -> None:
        """The test's own time limit ends this, if nothing else does."""
        while select.select([self.number], [], [])[0] and os.read(self.number, 10):
            continue

    def close(self) -> None:
        os.close(self.number)
        self.path.unlink()


def come(path: str) -> int:
    """A process's end: whoever inherits it holds it, too, and should write a byte."""
    pipe = os.open(path, os.O_WRONLY)
    os.write(pipe, b".")
    return pipe


def await_all(pipe: int, count: int) -> None:
    """Until so many have come, in a process."""
    while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0] < count:
        time.sleep(0.01)
