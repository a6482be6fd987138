"""The demo's processes: a simulated Telegram and `peik serve`, in a folder of their own that goes with them."""

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import sys
from collections import deque
from pathlib import Path

from peik.demo.calls import PeikCalls, SimCalls
from peik.errors import StartError
from peik.settings.table import SETTINGS

TOKEN = "7000001:demo-token-of-no-value"  # noqa: S105  the simulated Telegram takes any
_START_S = 30.0
_END_S = 3.0  # after SIGTERM; then SIGKILL
_LINES_KEPT = 200
_SIM_LISTENS = re.compile(r"^(\{.*\})")
_PEIK_LISTENS = re.compile(r"listens on (http://\S+)")


class DemoStage:
    """Opens and closes what the story plays on. `close` leaves no process behind, whatever happened."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        self._sim = Child("-m", "peik.testing", "--port", "0", "--seed", str(seed))
        self._peik = Child("-m", "peik", "serve")
        self._settings = {
            "PEIK_ADMIN_KEY": f"demo-{secrets.token_hex(8)}",
            "PEIK_PORT": "0",
            "PEIK_GRACE": "2s",
            "PEIK_LOG_FORMAT": "json",
            "BOT_TOKEN": TOKEN,
        }

    async def open(self) -> None:
        listens = await self._sim.start(_SIM_LISTENS, folder=self._folder, environment=plain_environment())
        places = json.loads(listens[1])
        self.sim = SimCalls(places["url"], places["control_url"])
        self._settings["PEIK_API_ROOT"] = self.sim.url
        await self.start_peik()
        # From now on the same port, as a service would have it.
        self._settings["PEIK_PORT"] = self.peik.url.rsplit(":", 1)[1]

    async def start_peik(self) -> None:
        environment = {**plain_environment(), **self._settings}
        listens = await self._peik.start(_PEIK_LISTENS, folder=self._folder, environment=environment)
        self.peik = PeikCalls(listens[1], self._settings["PEIK_ADMIN_KEY"])

    async def kill_peik(self) -> None:
        """SIGKILL: no warning, no goodbye."""
        await self._peik.kill()

    @property
    def peik_pid(self) -> int:
        return self._peik.pid

    @property
    def is_peik_up(self) -> bool:
        return self._peik.is_running

    def peik_log(self) -> list[str]:
        return list(self._peik.lines)

    async def close(self) -> None:
        try:
            await self._peik.end()  # first, while it can still hand over what is in flight
        finally:
            await self._sim.end()


class Child:
    """One process of ours, which may be started again after its end. `lines` is the last of what it wrote."""

    def __init__(self, *arguments: str, program: str = sys.executable) -> None:
        self._program = program
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.lines: deque[str] = deque(maxlen=_LINES_KEPT)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, ready: re.Pattern[str], *, folder: Path, environment: dict[str, str]) -> re.Match[str]:
        """Returns once it says that it is ready. Raises StartError with what it said instead."""
        assert not self.is_running
        self._process = await asyncio.create_subprocess_exec(
            self._program,
            *self._arguments,
            cwd=folder,  # whatever .env or peik.toml lies where the demo was started is not ours
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the demo, which ends its processes in order
        )
        found: asyncio.Future[re.Match[str]] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(self._process, ready, found))
        try:
            async with asyncio.timeout(_START_S):
                return await found
        except (TimeoutError, EOFError):
            said = "\n".join(self.lines)
            raise StartError(f"Could not start `{' '.join(self._arguments)}`. It said:\n{said}") from None

    async def _read(
        self, process: asyncio.subprocess.Process, ready: re.Pattern[str], found: asyncio.Future[re.Match[str]]
    ) -> None:
        assert process.stdout is not None
        async for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            self.lines.append(line)
            match = ready.search(line)
            if match is not None and not found.done():
                found.set_result(match)
        if not found.done():
            found.set_exception(EOFError())

    async def end(self) -> None:
        """In good order if it can, by force if it must."""
        if self._process is not None and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await self._process.wait()
        await self.kill()

    async def kill(self) -> None:
        if self._process is not None and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        if self._reading is not None:
            await self._reading
            self._reading = None


def plain_environment() -> dict[str, str]:
    """The environment without any setting of Peik: neither demo nor load may ever find a real token."""
    names = {name for setting in SETTINGS for name in setting.also}
    names |= {f"{name}_FILE" for name in names}
    return {name: value for name, value in os.environ.items() if name not in names and not name.startswith("PEIK_")}
