"""A program of the nursery as asyncio shows one: what `asyncio.subprocess.Process` can do, as far as tests need it."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.processes import nursery


async def copy_of(module: str, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> "Copy":
    """As `create_subprocess_exec` with a pipe for all that it writes, and nothing to read for it."""
    ours, theirs = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        started = asyncio.to_thread(
            nursery.start,
            module,
            arguments,
            folder=folder,
            environment=environment,
            streams=[nothing, theirs, theirs],
        )
        child = await started
    finally:
        os.close(nothing)
        os.close(theirs)
    loop = asyncio.get_running_loop()
    stdout = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(ours, "rb", buffering=0))
    return Copy(child, stdout)


class Copy:
    def __init__(self, child: nursery.Child, stdout: asyncio.StreamReader) -> None:
        self._child = child
        self.pid = child.pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._ending = asyncio.create_task(self._end())

    async def _end(self) -> int:
        """Its exit code is known as soon as it has one, asked for or not."""
        with self._child as child:
            child.ending.setblocking(False)
            self.returncode = nursery.code_of(await asyncio.get_running_loop().sock_recv(child.ending, 64))
            return self.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._ending)

    def send_signal(self, number: int) -> None:
        """Raises ProcessLookupError if it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        self._child.send_signal(number)

    def kill(self) -> None:
        self.send_signal(9)
