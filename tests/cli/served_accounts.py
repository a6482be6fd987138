"""Commands about accounts against a real Peik on the simulated Telegram of accounts, and a terminal to talk in."""

import asyncio
import os
import select
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from tests.cli.shell import CTRL_C, Ran, Shell
from tests.patience import PATIENCE_S
from tests.web.accounts import KEY, House, house

Step = tuple[str, Callable[[], str]]  # when it has shown these words, this is typed


class Talking(Shell):
    """A shell in which a command asks several times."""

    def talk(self, *arguments: str, steps: Sequence[Step]) -> tuple[int, str]:
        """Exit code, and all that was shown."""
        self._steps = list(steps)
        return self.in_terminal(*arguments)

    def _converse(self, process: "subprocess.Popen[bytes]", terminal: int, when: bytes, then: bytes) -> bytes:
        shown, seen = b"", 0
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and select.select([terminal], [], [], PATIENCE_S)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # how a terminal says that nobody writes any more
                return shown
            while self._steps and (found := shown.find(self._steps[0][0].encode(), seen)) >= 0:
                words, typed = self._steps.pop(0)
                seen = found + len(words.encode())
                answer = typed().encode()
                if answer == CTRL_C:
                    process.send_signal(signal.SIGINT)
                elif answer:
                    os.write(terminal, answer + b"\n")
        raise AssertionError(f"it neither ended nor said more than this: {shown!r}")


class Place:
    """A running Peik with accounts, and commands that ask it."""

    def __init__(self, built: House) -> None:
        self.house = built
        self.telegram = built.telegram
        self.shell = Talking(built.folder, PEIK_URL=built.url, PEIK_KEY=KEY)

    async def peik(self, *arguments: str, stdin: str = "") -> Ran:
        return await asyncio.to_thread(self.shell.peik, *arguments, stdin=stdin)

    async def asked(self, *arguments: str, stdin: str = "") -> Any:
        return await asyncio.to_thread(self.shell.asked, *arguments, stdin=stdin)

    async def talk(self, *arguments: str, steps: Sequence[Step]) -> tuple[int, str]:
        return await asyncio.to_thread(self.shell.talk, *arguments, steps=steps)


def play_place(folder: Path, story: Callable[[Place], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with house(folder) as built:
            await story(Place(built))

    asyncio.run(whole())
