"""Where the load goes: a Peik and the simulated Telegram behind it, both started here in a folder of their own, or both
already running. Anyone who opens a place closes it, and nothing of ours stays."""

import asyncio
import contextlib
import json
import re
import secrets
import ssl
import tempfile
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from peik.core.outcome import NetworkFault, Reply
from peik.demo.stage import Child, plain_environment
from peik.errors import BadInput, Problem, StartError, Unavailable
from peik.settings.table import SETTINGS
from peik.telegram.connect import detail_of, direct, fault_of
from peik.telegram.push import ConnectionPool, PoolRequest

# HTTP to one server for many callers at once: warm connections, one request at a time on each. It repeats nothing.


ANSWER_S = 30.0
ANSWER_BYTES_MAX = 1 << 28  # pages of what was counted are long


class LoadClient:
    """Made inside the running loop. What goes wrong on the way is in the reply, as a fault."""

    def __init__(self, url: str, *, key: str = "") -> None:
        """Raises BadInput if this is not the URL of a server."""
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or parts.scheme not in ("http", "https"):
            raise BadInput(code="bad_url", detail=f"{url!r} is no address; one looks like http://127.0.0.1:8081.")
        is_tls = parts.scheme == "https"
        self.url = url.rstrip("/")
        self._loop = asyncio.get_running_loop()
        context = ssl.create_default_context() if is_tls else None
        self._warm = ConnectionPool(
            direct(host=host, port=port or (443 if is_tls else 80), ssl_context=context),
            answer_bytes_max=ANSWER_BYTES_MAX,
        )
        self._path = parts.path.rstrip("/")
        self._head = f"Host: {parts.netloc}\r\n" + (f"Authorization: Bearer {key}\r\n" if key else "")

    async def ask(self, verb: str, path: str, body: object = None, *, timeout_s: float = ANSWER_S) -> Reply:
        """What was answered, whatever its status."""
        payload = b"" if body is None else msgspec.json.encode(body)
        kind = "Content-Type: application/json\r\n" if payload else ""
        head = f"{verb} {self._path}{path} HTTP/1.1\r\n{self._head}{kind}Content-Length: {len(payload)}\r\n\r\n"
        asked = PoolRequest(head.encode() + payload, self._loop)
        try:
            connection = await self._warm.begin(asked)
        except (OSError, UnicodeError) as error:
            return Reply(fault=fault_of(error), left=False, detail=detail_of(error))
        try:
            async with asyncio.timeout(timeout_s):
                return await asked.answered
        except TimeoutError:
            return Reply(fault=NetworkFault.TIMEOUT, left=True, detail=f"no answer within {timeout_s:g} s")
        finally:
            self._warm.leave(connection, asked)

    async def close(self) -> None:
        """Once no connection is left."""
        await self._warm.close()


FIRST_BOT = 7_100_000_001
_SIM_LISTENS = re.compile(r"^(\{.*\})")
_PEIK_LISTENS = re.compile(r"listens on (http://\S+)")
_REMOVALS, _REMOVE_AGAIN_S = 50, 0.1
_LOG = "logs/peik.log"

T = TypeVar("T")


class LoadDeclined(Problem):
    """It answered, and said no: with its own code and words, if it is a Peik."""

    def __init__(self, reply: Reply, who: str) -> None:
        self.status = reply.status
        try:
            told = msgspec.json.decode(reply.body, type=_Told)
        except msgspec.DecodeError:
            told = _Told(detail=reply.body.decode(errors="replace")[:300])
        super().__init__(code=told.code, detail=f"{who} answered {reply.status}: {told.detail}")


class _Told(msgspec.Struct):
    code: str = "declined"
    detail: str = ""


class LoadPlace(msgspec.Struct, kw_only=True):
    """`pid` and `folder` are those of a Peik that was started here. `ahead_s`: how far Telegram's clock is before ours."""

    peik: LoadClient
    sim: LoadClient
    tokens: list[str]
    store: str
    pid: int | None = None
    folder: Path | None = None
    ahead_s: float = 0.0

    def sizes(self) -> dict[str, int]:
        """Bytes by what they are for: the database with its journals, logs, and every other file and folder beside them."""
        return {} if self.folder is None else sizes_of(self.folder)


@contextlib.asynccontextmanager
async def own_place(*, bots: int, store: str | None, is_unpaced: bool, seed: int) -> AsyncIterator[LoadPlace]:
    """Default settings, but for a log file to see it grow, and for the pace where the machine itself is to be measured."""
    tokens = [f"{FIRST_BOT + number}:load-{secrets.token_hex(8)}" for number in range(bots)]
    settings = {
        "PEIK_ADMIN_KEY": f"load-{secrets.token_hex(16)}",
        "PEIK_PORT": "0",
        "PEIK_LOG_FORMAT": "json",
        "PEIK_LOG_FILE": _LOG,
        "PEIK_BOT_TOKENS": ",".join(tokens),
    }
    if store is not None:
        settings["PEIK_STORE"] = store
    if is_unpaced:
        settings["PEIK_PACE"] = "off"
    options = json.dumps({"limits": {"on": not is_unpaced}, "ledger_max": None})
    sim = Child("-m", "peik.testing", "--port", "0", "--seed", str(seed), "--config", options)
    peik = Child("-m", "peik", "serve")
    with tempfile.TemporaryDirectory(prefix="peik-load-") as name:
        folder = Path(name)
        try:
            listens = await sim.start(_SIM_LISTENS, folder=folder, environment=plain_environment())
            places = json.loads(listens[1])
            environment = plain_environment() | settings | {"PEIK_API_ROOT": places["url"]}
            listens = await peik.start(_PEIK_LISTENS, folder=folder, environment=environment)
            async with (
                _client(listens[1], key=settings["PEIK_ADMIN_KEY"]) as door,
                _client(places["control_url"]) as control,
            ):
                for token in tokens:  # people may write before Peik has asked about its bots
                    decoded(await control.ask("POST", "/sim/bots", {"token": token}), object, "The simulated Telegram")
                yield LoadPlace(peik=door, sim=control, tokens=tokens, store=_kind(store), pid=peik.pid, folder=folder)
        finally:
            try:
                await peik.end()
            finally:
                await sim.end()


@contextlib.asynccontextmanager
async def running_place(
    url: str, *, key: str, sim: str, bots: int, note: Callable[[str], None] = lambda words: None
) -> AsyncIterator[LoadPlace]:
    """Bots of no value are added there, and removed in the end. Raises BadInput unless it is the simulated Telegram that
    knows them: nothing of a load may reach people."""
    first = secrets.randbelow(10**9) + 8 * 10**9
    tokens = [f"{first + number}:load-{secrets.token_hex(8)}" for number in range(bots)]
    async with _client(url, key=key) as door, _client(sim) as control:
        before_s = time.time()
        now = decoded(await control.ask("GET", "/sim/health"), _Health, "The simulated Telegram").result.now
        ahead_s = now - (before_s + time.time()) / 2
        added = []
        try:
            for token in tokens:
                decoded(await door.ask("POST", "/v1/bots", {"token": token, "inbound": "polling"}), object, "Peik")
                added.append(token)
                # A read goes straight through, to whichever Telegram it is. The real one does not know this bot.
                await door.ask("POST", f"/bot{token}/getMe")
            known = decoded(await control.ask("GET", "/sim/bots"), _Bots, "The simulated Telegram").result
            if not {bot_of(token) for token in tokens} <= {one.id for one in known}:
                raise BadInput(
                    code="not_simulated",
                    detail=f"Peik at {url} does not talk to the simulated Telegram at {sim}: it was never asked about "
                    "the bots of this load. Nothing was sent.",
                )
            yield LoadPlace(peik=door, sim=control, tokens=tokens, store="of the running Peik", ahead_s=ahead_s)
        finally:
            kept = [str(bot_of(token)) for token in added if not await _removed(door, bot_of(token))]
            if kept:
                note(f"Peik still has bots of this load: {', '.join(kept)}. Remove them: peik bots remove")


async def _removed(door: LoadClient, bot_id: int) -> bool:
    """Whether the bot is gone. A run that was broken off leaves letters, and a bot with letters stays: they are cancelled."""
    for _ in range(_REMOVALS):
        if (await door.ask("DELETE", f"/v1/bots/{bot_id}")).status in (200, 204, 404):
            return True
        await door.ask("POST", "/v1/letters/cancel", {"bot_id": str(bot_id)})
        await asyncio.sleep(_REMOVE_AGAIN_S)  # what is under way ends by itself
    return False


def bot_of(token: str) -> int:
    return int(token.partition(":")[0])


def decoded(reply: Reply, kind: type[T], who: str) -> T:
    """What a good answer says. Raises Unavailable if there was none, and Declined if it was a no."""
    if reply.fault is not None:
        raise Unavailable(code="unreachable", detail=f"{who} does not answer: {reply.detail}.")
    if reply.status >= 300:
        raise LoadDeclined(reply, who)
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except msgspec.DecodeError as error:
        raise StartError(f"{who} answered something else than was asked for: {error}") from None


def sizes_of(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # it went meanwhile
            if path.is_file():
                name = path.relative_to(folder).parts[0]
                name = "database" if re.fullmatch(r"peik\.db(-wal|-shm|-journal)?", name) else name
                found[name] = found.get(name, 0) + path.stat().st_size
    return found


class _Health(msgspec.Struct):
    class Result(msgspec.Struct):
        now: float

    result: Result


class _Bots(msgspec.Struct):
    class Bot(msgspec.Struct):
        id: int

    result: list[Bot]


def _kind(store: str | None) -> str:
    usual = next(str(one.default) for one in SETTINGS if one.name == "store")
    return (store or usual).partition(":")[0]


@contextlib.asynccontextmanager
async def _client(url: str, *, key: str = "") -> AsyncIterator[LoadClient]:
    client = LoadClient(url, key=key)
    try:
        yield client
    finally:
        await client.close()
