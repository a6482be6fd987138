"""A `peik serve` that can be hurt: frozen and woken, given a disk that fails on command, or a wall clock that jumps."""

import asyncio
import contextlib
import inspect
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests import wanting
from tests.faults import tools
from tests.faults.stores import SqliteFile
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, TOKEN, Server, Sim


class HurtServer(Server):
    """Also a bot's view of it: the gateway."""

    def freeze(self) -> None:
        """Not a cycle of the processor until `wake`. Its sockets still take connections: the kernel does that."""
        os.kill(self.pid, signal.SIGSTOP)

    async def freeze_between_commits(self, store: SqliteFile) -> None:
        """As above, at a moment at which others can write. A process that sleeps in the middle of a commit keeps SQLite's
        lock until it wakes, and all that others hear then is `store_locked`."""
        self.freeze()
        async with asyncio.timeout(PATIENCE_S):
            while store.is_being_written():
                self.wake()
                await asyncio.sleep(0.01)
                self.freeze()

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def preload(self, *libraries: Path, **environment: str) -> None:
        """Load libraries before the program, from its next start on."""
        self._environment |= {"LD_PRELOAD": " ".join(map(str, libraries)), **environment}

    def is_pushed_to(self) -> None:
        """Telegram finds it where it listens."""
        self._environment["PEIK_PUBLIC_URL"] = f"http://127.0.0.1:{self.port.number}"

    @property
    def is_alive(self) -> bool:
        return self.program.process.returncode is None

    async def post(self, chat_id: int, text: str, **more: object) -> tuple[int, Any]:
        """A letter by REST."""
        body = {"method": "sendMessage", "params": {"chat_id": chat_id, "text": text}, "backoff_ms": 100, **more}
        return await self.call("POST", "/v1/letters", json=body)

    async def ask(
        self, method: str, *, consumer: str = "", headers: dict[str, str] | None = None, **params: Any
    ) -> Any:
        """A call of a bot through the gateway; the status and the envelope."""
        return await self.call(
            "POST",
            f"/bot{TOKEN}{consumer}/{method}",
            key=None,
            headers={"Content-Type": "application/json", **(headers or {})},
            json=params,
        )

    async def letters(self) -> list[dict[str, Any]]:
        """All of them, the oldest first."""
        return (await self._all("/v1/letters", "letters"))[::-1]

    async def arrivals(self) -> list[dict[str, Any]]:
        """All of them, the oldest first."""
        return (await self._all("/v1/arrivals", "arrivals"))[::-1]

    async def _all(self, path: str, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = await self.get(f"{path}?limit=100{cursor}")
            rows += page[name]
            if page["next_cursor"] is None:
                return rows
            cursor = f"&cursor={page['next_cursor']}"

    def said(self, words: str) -> bool:
        """Whether its log has a line with these words."""
        return any(words in line for line in self.output)


@contextlib.asynccontextmanager
async def hurt_server(
    folder: Path, sim: Sim, http: aiohttp.ClientSession, **settings: str
) -> AsyncIterator[HurtServer]:
    """Not started yet, so that a library can be put under it."""
    server = HurtServer(folder, sim.url, http, **settings)
    if settings.get("inbound") == "webhook":
        server.is_pushed_to()
    try:
        yield server
    finally:
        if hasattr(server, "program") and server.is_alive:
            server.wake()
            await server.program.kill()


async def until(is_so: Callable[[], Any]) -> Any:
    """What `is_so` (which may be awaitable) says, once that is something."""
    answer = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = is_so()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return answer
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise TimeoutError(f"In vain we waited for {inspect.getsource(is_so).strip()}, which is {answer!r}") from None


async def write(sim: Sim, user: int, text: str) -> None:
    """A person writes to the bot."""
    await sim.post("write", bot=TOKEN, user=user, text=text)


async def pending(sim: Sim) -> int:
    """How many updates Telegram still keeps: nobody has confirmed them."""
    (bot,) = [bot for bot in await sim.get("bots") if bot["id"] == BOT]
    return int(bot["pending_update_count"])


async def is_confirmed(sim: Sim) -> bool:
    """Whether Telegram keeps nothing any more."""
    return await pending(sim) == 0


async def push_error(sim: Sim) -> str:
    """How the last push that failed has failed, in Telegram's words."""
    async with sim._http.get(f"{sim.url}/bot{TOKEN}/getWebhookInfo") as response:
        return str((await response.json())["result"].get("last_error_message", ""))


async def sent_texts(sim: Sim, chat_id: int) -> list[str]:
    return [one["text"] for one in (await sim.get("sent", chat=chat_id, limit=5000))["deliveries"]]


class FailingCalls:
    """Calls of the C library that fail on command in one server, by libfiu: `pwrite` and `fdatasync` are SQLite's."""

    def __init__(self, server: HurtServer, folder: Path) -> None:
        libraries = tools.fiu()
        if libraries is None:
            wanting.skip("libfiu", wanting.packaged(*tools.PACKAGES))
        self._server = server
        self._pipes = str(folder / "fiu")
        server.preload(*libraries, FIU_CTRL_FIFO=self._pipes, FIU_ENABLE="")

    async def fail(self, *points: str, errno: int) -> None:
        """From now on each of these points ends with this error."""
        await self._tell(*(f"enable name={point},failinfo={errno}" for point in points))

    async def fail_sometimes(self, *points: str, errno: int, probability: float) -> None:
        await self._tell(
            *(f"enable_random name={point},probability={probability},failinfo={errno}" for point in points)
        )

    async def work(self, *points: str) -> None:
        await self._tell(*(f"disable name={point}" for point in points))

    async def _tell(self, *orders: str) -> None:
        words = [word for order in orders for word in ("-c", order)]
        command = ["fiu-ctrl", "-f", self._pipes, *words, str(self._server.pid)]
        told = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        assert not told.stdout, told.stdout  # it complains there, and ends well all the same


class WallClock:
    """The wall clock of one server, which jumps on command, by libfaketime. Monotonic time goes on as ever, as at a machine
    whose clock is set."""

    def __init__(self, server: HurtServer, folder: Path) -> None:
        library = tools.faketime()
        if library is None:
            wanting.skip("libfaketime", wanting.packaged(*tools.PACKAGES))
        self._file = folder / "clock"
        self.set(0)
        server.preload(
            library,
            FAKETIME_TIMESTAMP_FILE=str(self._file),
            FAKETIME_NO_CACHE="1",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
        )

    def set(self, ahead_s: int) -> None:
        """So far ahead of the machine's from now on."""
        self.ahead_s = ahead_s
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{ahead_s:+d}\n")
        fresh.rename(self._file)  # a half written one would be read

    def now(self) -> float:
        return time.time() + self.ahead_s


async def under_way(sim: Sim) -> None:
    """A letter has come to Telegram, and will have no answer."""
    await sim.post("faults", kind="hang", method="sendMessage", count=1)
    await until(lambda: _hangs(sim))


async def _hangs(sim: Sim) -> bool:
    return not any(fault["kind"] == "hang" for fault in await sim.get("faults"))
