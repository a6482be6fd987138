"""What the demo plays on: a simulated Telegram and `peik serve`, in a folder of their own that goes with them. And what it asks
of both: one small HTTP request each, narrowed as it comes in."""

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
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from peik.errors import StartError
from peik.settings.table import SETTINGS
from peik.telegram.http import AnswerReader, GarbledAnswer

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
        self.reminders = 0  # letters for another day, which nobody waits for
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
        self.peik = PeikCalls(listens[1], self._settings["PEIK_ADMIN_KEY"], stage=self)

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


# ---- what is asked of both ----


T = TypeVar("T")
_ASK_S = 10.0
_RETRY_S = 0.1


class Unanswered(Exception):
    """Nobody answered: the other side is down, or it went away in the middle."""


class DemoDeclined(Exception):
    """It answered, and said no."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status} {body.decode(errors='replace')[:300]}")
        self.status = status


async def ask(
    url: str, verb: str, path: str, body: object = None, *, key: str = "", timeout_s: float = _ASK_S
) -> bytes:
    """The body of a 2xx answer. A connection for each request: there are few, and none of them is ever stale."""
    place = urlsplit(url)
    payload = b"" if body is None else msgspec.json.encode(body)
    head = [f"{verb} {path} HTTP/1.1", f"Host: {place.netloc}", f"Content-Length: {len(payload)}"]
    head += ["Content-Type: application/json"] if payload else []
    head += [f"Authorization: Bearer {key}"] if key else []
    try:
        async with asyncio.timeout(timeout_s):
            return await _exchange(place.hostname or "", place.port or 80, "\r\n".join(head).encode(), payload)
    except (OSError, TimeoutError, GarbledAnswer) as error:
        raise Unanswered(f"{verb} {path}: {error}") from None


async def _exchange(host: str, port: int, head: bytes, payload: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(head + b"\r\n\r\n" + payload)
        answers = AnswerReader()
        while data := await reader.read(65536):
            reply = answers.feed(data)
            if reply is not None:
                if reply.status >= 300:
                    raise DemoDeclined(reply.status, reply.body)
                return reply.body
        raise ConnectionResetError("it went away before it answered")
    finally:
        writer.close()


# ---- what bots get ----


class DemoPerson(msgspec.Struct):
    id: int
    first_name: str = ""


class DemoMessage(msgspec.Struct, rename={"sender": "from"}):
    chat: DemoPerson
    sender: DemoPerson | None = None
    text: str = ""


class DemoUpdate(msgspec.Struct):
    update_id: int
    message: DemoMessage | None = None


class _Result(msgspec.Struct):
    result: msgspec.Raw


# ---- Peik ----


class DemoStats(msgspec.Struct):
    waiting: int
    active: int
    completed: int
    failed: int
    delayed: int

    @property
    def unfinished(self) -> int:
        return self.waiting + self.active + self.delayed


class _Open(msgspec.Struct):
    open: int


class _Inboxes(msgspec.Struct):
    inbox: _Open


class DemoTry(msgspec.Struct):
    outcome: str
    words: str = ""


class DemoFate(msgspec.Struct):
    """What Peik says has become of a letter."""

    id: str
    state: str
    attempts_made: int
    uncertain_tries: int
    failed_reason: str | None
    history: list[DemoTry]

    @property
    def is_final(self) -> bool:
        return self.state in ("completed", "failed", "cancelled")


class _TelegramPart(msgspec.Struct):
    status: str


class _Parts(msgspec.Struct):
    telegram: _TelegramPart


class _Health(msgspec.Struct):
    parts: _Parts


class _Receipt(msgspec.Struct):
    id: str


class PeikCalls:
    def __init__(self, url: str, key: str, *, stage: DemoStage) -> None:
        self.url = url
        self.key = key
        self._stage = stage

    async def send(self, params: dict[str, object], *, key: str, **terms: object) -> str:
        """The letter's id, once Peik has promised it. Asks again until it is answered; the idempotency key makes that safe."""
        letter = {"method": "sendMessage", "params": params, "idempotency_key": key, **terms}
        while True:
            try:
                return msgspec.json.decode(await self._ask("POST", "/v1/letters", letter), type=_Receipt).id
            except Unanswered:
                pass
            except DemoDeclined as refusal:
                if refusal.status != 503:
                    raise
            await asyncio.sleep(_RETRY_S)

    async def stats(self) -> DemoStats:
        stats = msgspec.json.decode(await self._ask("GET", "/v1/stats"), type=DemoStats)
        stats.delayed -= self._stage.reminders
        return stats

    async def updates_waiting(self) -> int:
        """How many updates wait for the bot."""
        return msgspec.json.decode(await self._ask("GET", "/v1/stats"), type=_Inboxes).inbox.open

    async def is_route_open(self) -> bool:
        """Open as a breaker is open: Peik has found that Telegram cannot be reached."""
        health = msgspec.json.decode(await self._ask("GET", "/health"), type=_Health)
        return health.parts.telegram.status != "ok"

    async def fate(self, letter_id: str, *, wait: str = "") -> DemoFate:
        query = f"?wait={wait}" if wait else ""
        body = await self._ask("GET", f"/v1/letters/{letter_id}{query}", timeout_s=60.0)
        return msgspec.json.decode(body, type=DemoFate)

    async def updates(self, token: str, *, offset: int, timeout_s: int) -> list[DemoUpdate]:
        """A long poll, as any bot does it whose API root is Peik. It keeps asking while Peik is down."""
        asked = {"offset": offset, "timeout": timeout_s}
        while True:
            try:
                body = await ask(self.url, "POST", f"/bot{token}/getUpdates", asked, timeout_s=timeout_s + _ASK_S)
                return _result(body, list[DemoUpdate])
            except Unanswered:
                pass
            except DemoDeclined as refusal:
                if refusal.status < 500:
                    raise
            await asyncio.sleep(_RETRY_S)

    async def _ask(self, verb: str, path: str, body: object = None, timeout_s: float = _ASK_S) -> bytes:
        return await ask(self.url, verb, path, body, key=self.key, timeout_s=timeout_s)


# ---- the simulated Telegram ----


class DemoArrival(msgspec.Struct):
    """A message that a chat really got: a line of the ledger."""

    number: int
    at: float
    chat_id: int
    text: str


class DemoArrivals(msgspec.Struct):
    deliveries: list[DemoArrival]


class DemoCounters(msgspec.Struct):
    limited: int
    faults: dict[str, int]


class SimCalls:
    """`url` is Telegram as bots see it, and may be dark; `control_url` always answers."""

    def __init__(self, url: str, control_url: str) -> None:
        self.url = url
        self.control_url = control_url

    async def order(self, name: str, **details: object) -> None:
        """A deed of the world: dark, faults, write, block …"""
        await ask(self.control_url, "POST", f"/sim/{name}", details)

    async def end_faults(self) -> None:
        await ask(self.control_url, "DELETE", "/sim/faults")

    async def arrivals(self, after: int) -> list[DemoArrival]:
        query = urlencode({"after": after, "limit": 2000})
        return _result(await ask(self.control_url, "GET", f"/sim/sent?{query}"), DemoArrivals).deliveries

    async def counters(self) -> DemoCounters:
        return _result(await ask(self.control_url, "GET", "/sim/counters"), DemoCounters)


def _result(body: bytes, kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.decode(body, type=_Result).result, type=kind)
