"""Real processes for tests: a simulated Telegram and a Peik, started on free ports and ended by their own process id."""

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import socket
import sys
import time
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.patience import PATIENCE_S
from tests.processes import nursery
from tests.processes.copies import Copy, copy_of

KEY = "test-key"
TOKEN = "7000001:AAtest"
BOT = 7000001
STILL_S = 150.0  # so long without a letter that comes or goes
_LISTENS = re.compile(r"listens on (https?://\S+)")


class Port:
    """A port that nobody else is given as long as this object lives, whether a server of ours listens on it or is being
    started again. A port that is merely free now may be somebody else's then."""

    def __init__(self) -> None:
        with socket.socket() as place:
            # Bound and not listening it is in the way of none that says the same of itself, as servers do.
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(("127.0.0.1", 0))
            self.number = int(place.getsockname()[1])
            weakref.finalize(self, os.close, place.detach())


class Program:
    """A child process. `output` is all that it wrote so far."""

    def __init__(self, *arguments: str, folder: Path, **environment: str) -> None:
        self._arguments = arguments
        self._folder = folder
        self._environment = environment
        self.output: list[str] = []

    async def start(self, ready: re.Pattern[str]) -> re.Match[str]:
        """Once it has written such a line. Raises RuntimeError if it ends before, with all that it wrote."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PEIK_", "BOT_"))}
        self.process = await self._begin(clean | self._environment)
        found: asyncio.Future[re.Match[str]] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(ready, found))
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await found
        except TimeoutError:
            await self.kill()
            raise TimeoutError(f"In vain we waited for {ready.pattern!r}. It wrote:\n{''.join(self.output)}") from None

    async def _begin(self, environment: dict[str, str]) -> asyncio.subprocess.Process | Copy:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *self._arguments,
            cwd=self._folder,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def _read(self, ready: re.Pattern[str], found: asyncio.Future[re.Match[str]]) -> None:
        assert self.process.stdout is not None
        async for raw in self.process.stdout:
            line = raw.decode()
            self.output.append(line)
            match = ready.search(line)
            if match and not found.done():
                found.set_result(match)
        if not found.done():
            code = await self.process.wait()
            found.set_exception(RuntimeError(f"It ended with {code}. It wrote:\n{''.join(self.output)}"))

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.ended()

    async def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Its exit code, once it has ended and all that it wrote is read."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.shield(self._reader)
                return await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            raise TimeoutError(f"In vain we waited for its end. It wrote:\n{''.join(self.output[-60:])}") from None


class Copied(Program):
    """One that comes from the nursery if it may: a process as real as any, without a second of imports."""

    async def _begin(self, environment: dict[str, str]) -> asyncio.subprocess.Process | Copy:
        if not nursery.can_run(environment):
            return await super()._begin(environment)
        dash_m, module, *arguments = self._arguments
        assert dash_m == "-m"
        return await copy_of(module, arguments, folder=self._folder, environment=environment)


class Sim:
    """The simulated Telegram in its own process, driven over its control port."""

    def __init__(self, url: str, control_url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self._control = control_url
        self._http = http

    async def post(self, path: str, **body: Any) -> Any:
        async with self._http.post(f"{self._control}/sim/{path}", json=body) as response:
            assert response.status == 200, await response.text()
            return (await response.json())["result"]

    async def delete(self, path: str) -> None:
        async with self._http.delete(f"{self._control}/sim/{path}") as response:
            assert response.status == 200, await response.text()

    async def get(self, path: str, **query: Any) -> Any:
        if "at_least" in query:
            query |= {"timeout": PATIENCE_S}
        async with self._http.get(f"{self._control}/sim/{path}", params=query) as response:
            assert response.status == 200, await response.text()
            return (await response.json())["result"]


class Server:
    """`peik serve` on one file and one port; it can be killed and started again. Where the start of Python itself or its end
    matters it is no copy."""

    def __init__(
        self, folder: Path, api_root: str, http: aiohttp.ClientSession, *, is_copy: bool = True, **settings: str
    ) -> None:
        self._folder = folder
        self._http = http
        self._is_copy = is_copy
        self.port = Port()  # the same for all of its lives, as a service would have it
        self._environment = {
            "PEIK_ADMIN_KEY": KEY,
            "PEIK_API_ROOT": api_root,
            "PEIK_PORT": str(self.port.number),
            "BOT_TOKEN": TOKEN,
            "PEIK_INBOUND": "off",
            **{f"PEIK_{name.upper()}": value for name, value in settings.items()},
        }
        self.url = ""
        self.output: list[str] = []

    async def start(self, *more: str) -> None:
        begun = Copied if self._is_copy else Program
        self.program = begun("-m", "peik", "serve", *more, folder=self._folder, **self._environment)
        self.program.output = self.output  # of all its lives
        self.url = (await self.program.start(_LISTENS))[1]

    async def replace(self) -> None:
        """Another one takes over from the one that runs, which ends."""
        before = self.program
        await self.start("--replace")
        assert await before.ended() == 0

    @property
    def pid(self) -> int:
        return self.program.process.pid

    async def call(self, verb: str, path: str, *, key: str | None = KEY, **more: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        headers |= more.pop("headers", {})
        if "json" in more:  # large bodies as a file, as aiohttp likes them
            more["data"] = io.BytesIO(json.dumps(more.pop("json")).encode())
        async with self._http.request(verb, f"{self.url}{path}", headers=headers, **more) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def get(self, path: str) -> Any:
        status, body = await self.call("GET", path)
        assert status == 200, body
        return body

    def surprises(self) -> list[str]:
        """What Peik's log says that it should never have to say."""
        return [line for line in self.output if "surprise" in line or "Traceback" in line or "Error" in line]

    async def quiet(self) -> dict[str, int]:
        """The counts, once nothing waits any more."""
        before, deadline = None, 0.0
        while True:
            stats = dict(await self.get("/v1/stats"))
            if not (stats["waiting"] or stats["active"] or stats["delayed"]):
                return stats
            if stats != before:
                before, deadline = stats, time.monotonic() + STILL_S
            if time.monotonic() > deadline:
                raise TimeoutError(f"Nothing happens any more: {stats}\n{''.join(self.output[-60:])}")
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def simulated(folder: Path, **options: Any) -> AsyncIterator[tuple[Sim, aiohttp.ClientSession]]:
    """A simulated Telegram process and a client session."""
    config = json.dumps(options)
    program = Copied("-m", "peik.testing", "--port", "0", "--seed", "7", "--config", config, folder=folder)
    match = await program.start(re.compile(r"^(\{.*\})"))
    urls = json.loads(match[1])
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2 * PATIENCE_S)) as http:
        try:
            yield Sim(urls["url"], urls["control_url"], http), http
        finally:
            await program.kill()


@contextlib.asynccontextmanager
async def served(
    folder: Path, api_root: str, http: aiohttp.ClientSession, *, is_copy: bool = True, **settings: str
) -> AsyncIterator[Server]:
    server = Server(folder, api_root, http, is_copy=is_copy, **settings)
    await server.start()
    try:
        yield server
    finally:
        if server.program.process.returncode is None:
            await server.program.kill()
