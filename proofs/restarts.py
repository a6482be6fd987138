"""`make restart-proof`: a Peik that is restarted again and again under load, and what its clients notice of it.

By `socket` the listening socket stays with a parent, as with systemd, and each Peik is ended with SIGTERM before the next one
starts. By `replace` each next one takes over from the one that runs. Callers on kept-alive connections, on new ones and on ones
that they seldom use, a reader of the event stream, and an aiogram bot that polls: nobody tries a call again. Prints what it
found, and ends with 1 if a connection was refused, an answer was lost, or a message did not arrive exactly once.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import random
import re
import socket
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.types import Message

from peik.core.provisional import FIRST_ID
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, KEY, TOKEN, Copied, Port, Program, Sim, simulated

LISTENS = re.compile(r"listens on (https?://\S+)")
ECHO = 7000002
ECHO_TOKEN = f"{ECHO}:AAecho"
CALLERS = {"kept alive": 6, "new": 3, "seldom": 6}
PEOPLE = 4
LIMITS = {"on": False}  # how fast a bot may send is not what is tried here
PAUSE_S = (0.01, 0.05)
SELDOM_S = (0.2, 3.0)
LIFE_S = (0.5, 2.0)  # of a Peik, from when it serves
LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


class Activated(Program):
    """`peik …` with a listening socket as its third handle, as systemd would start it."""

    def __init__(self, handle: int, *arguments: str, folder: Path, **environment: str) -> None:
        self._handle = handle
        super().__init__(*arguments, folder=folder, LISTEN_FDS="1", LISTEN_FDNAMES="peik.socket", **environment)

    async def _begin(self, environment: dict[str, str]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", LAUNCH, str(self._handle), *self._arguments),
            cwd=self._folder,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=[self._handle],
        )


class Lives:
    """Peik on one address, in one life after the other. A `socket` is kept for all of them; without one they hand theirs on."""

    def __init__(self, folder: Path, *, handle: int | None, **environment: str) -> None:
        self._folder = folder
        self._handle = handle
        self._environment = {"PEIK_ADMIN_KEY": KEY, **environment}
        self.output: list[str] = []
        self.programs: list[Program] = []
        self.url = ""

    @property
    def program(self) -> Program:
        return self.programs[-1]

    async def start(self, *more: str) -> None:
        command = ("-m", "peik", "serve", *more)
        program = (
            Copied(*command, folder=self._folder, **self._environment)
            if self._handle is None
            else Activated(self._handle, *command, folder=self._folder, **self._environment)
        )
        program.output = self.output
        self.programs.append(program)
        self.url = (await program.start(LISTENS))[1]

    async def next(self) -> None:
        """Another one in the place of the one that runs, which ends."""
        before = self.program
        if self._handle is None:
            await self.start("--replace")
            assert await before.ended() == 0
        else:
            assert await before.terminate() == 0
            await self.start()

    async def end(self) -> None:
        for program in self.programs:
            if program.process.returncode is None:
                await program.kill()


@contextlib.asynccontextmanager
async def lives(folder: Path, how: str, api_root: str, **settings: str) -> AsyncIterator[Lives]:
    """The first of them serves. `how`: socket or replace."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as parent:
        port = Port()  # ours for as long as it is held
        address = {"PEIK_PORT": str(port.number)} if how == "replace" else {}
        chain = Lives(
            folder,
            handle=parent.fileno() if how == "socket" else None,
            PEIK_API_ROOT=api_root,
            **address,
            **{f"PEIK_{name.upper()}": value for name, value in settings.items()},
        )
        try:
            await chain.start()
            yield chain
        finally:
            await chain.end()


class Found(msgspec.Struct):
    """What the clients have seen. All that counts is that the first four are 0."""

    refused: int = 0
    lost: int = 0
    missing: int = 0
    doubled: int = 0
    answered: int = 0
    late: int = 0  # answered with a provisional id: the letter goes on
    echoed: int = 0
    streamed: int = 0
    slowest_s: float = 0.0
    why: list[str] = msgspec.field(default_factory=list)

    def is_good(self) -> bool:
        return not (self.refused or self.lost or self.missing or self.doubled)

    def fail(self, error: object) -> None:
        if isinstance(error, aiohttp.ClientConnectorError):
            self.refused += 1
        else:
            self.lost += 1
        self.why.append(f"{type(error).__name__}: {error}")


class Crowd:
    """Clients that know nothing of restarts."""

    def __init__(self, chain: Lives, sim: Sim, found: Found, chance: random.Random) -> None:
        self._chain = chain
        self._sim = sim
        self._found = found
        self._chance = chance
        self._is_over = False
        self.sent: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.streamed: Counter[int] = Counter()

    async def run(self, restarts: Any) -> None:
        """For as long as `restarts` takes."""
        echo = Echo(self._chain.url, self._found)
        await echo.begin()
        streaming = asyncio.create_task(self._stream())
        work = [
            asyncio.create_task(self._call(kind, 1000 * (place + 1) + number))
            for place, (kind, count) in enumerate(CALLERS.items())
            for number in range(count)
        ]
        work += [asyncio.create_task(self._write(10 + number)) for number in range(PEOPLE)]
        try:
            await restarts
        finally:
            self._is_over = True
            await asyncio.gather(*work)
            await self._settled()
            streaming.cancel()
            await echo.end()

    async def _call(self, kind: str, chat: int) -> None:
        connector = aiohttp.TCPConnector(limit=1, force_close=kind == "new")
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
            number = 0
            while not self._is_over:
                text, number = f"{chat}-{number}", number + 1
                began = time.monotonic()
                try:
                    body = {"chat_id": chat, "text": text}
                    async with http.post(f"{self._chain.url}/bot{TOKEN}/sendMessage", json=body) as response:
                        answer = await response.json()
                        if response.status != 200 or not answer["ok"]:
                            raise ValueError(f"{response.status} {answer}")
                except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                    self._found.fail(error)
                else:
                    self.sent[text] += 1
                    self._found.answered += 1
                    self._found.late += answer["result"]["message_id"] >= FIRST_ID
                self._found.slowest_s = max(self._found.slowest_s, time.monotonic() - began)
                await asyncio.sleep(self._chance.uniform(*(SELDOM_S if kind == "seldom" else PAUSE_S)))

    async def _write(self, user: int) -> None:
        """A person, who writes to the bot and wants one answer to each message."""
        number = 0
        while not self._is_over:
            text, number = f"{user}-{number}", number + 1
            await self._sim.post("write", bot=ECHO_TOKEN, user=user, text=text)
            self.written[text] += 1
            await asyncio.sleep(self._chance.uniform(0.1, 0.4))

    async def _stream(self) -> None:
        """A reader of the event stream, who comes back at the last event that he saw, as browsers do."""
        last: dict[str, str] = {}
        headers = {"Authorization": f"Bearer {KEY}"}
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
            while True:
                query = {"bot_id": str(ECHO), "consumer": "reader"}
                url = f"{self._chain.url}/v1/arrivals/stream"
                try:
                    async with http.get(url, params=query, headers=headers | last) as answer:
                        if answer.status != 200:
                            raise ValueError(f"stream: {answer.status} {await answer.text()}")
                        async for line in answer.content:
                            if line.startswith(b"id:"):
                                last = {"Last-Event-ID": line[3:].strip().decode()}
                                self.streamed[int(last["Last-Event-ID"])] += 1
                except (aiohttp.ClientError, OSError, ValueError) as error:
                    self._found.fail(error)

    async def _settled(self) -> None:
        """Until all that was accepted has arrived, and everybody has his answer."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                calls, echoes = await self._arrived(BOT), await self._arrived(ECHO)
                if not (self.sent - calls or self.written - echoes or len(self.streamed) < self.written.total()):
                    break
                await asyncio.sleep(0.1)
        found = self._found
        found.missing = (self.sent - calls).total() + (self.written - echoes).total()
        found.doubled = (calls - self.sent).total() + (echoes - self.written).total()
        found.doubled += sum(count - 1 for count in self.streamed.values())
        found.echoed, found.streamed = echoes.total(), self.streamed.total()

    async def _arrived(self, bot: int) -> Counter[str]:
        sent = await self._sim.get("sent", bot=bot, limit=100_000)
        return Counter(str(one["text"]) for one in sent["deliveries"])


class Echo(logging.Handler):
    """A bot on aiogram as its users write it. What it cannot fetch or answer is told by its log."""

    def __init__(self, url: str, found: Found) -> None:
        super().__init__(logging.WARNING)
        self._found = found
        session = AiohttpSession(api=TelegramAPIServer.from_base(url))
        self._bot = Bot(ECHO_TOKEN, session=session)
        self._dispatcher = Dispatcher()
        self._dispatcher.message.register(self._answer)

    async def _answer(self, message: Message) -> None:
        await message.answer(str(message.text))

    def emit(self, record: logging.LogRecord) -> None:
        self._found.fail(ValueError(f"aiogram: {record.getMessage()}"))

    async def begin(self) -> None:
        logging.getLogger("aiogram").addHandler(self)
        self._polling = asyncio.create_task(
            self._dispatcher.start_polling(self._bot, handle_signals=False, polling_timeout=20)
        )

    async def end(self) -> None:
        await self._dispatcher.stop_polling()
        await self._polling
        logging.getLogger("aiogram").removeHandler(self)
        await self._bot.session.close()


async def restarted(folder: Path, how: str, *, rounds: int, seed: int, **settings: str) -> Found:
    """So many restarts under load."""
    chance = random.Random(seed)
    found = Found()
    tokens = {"bot_tokens": f"{TOKEN},{ECHO_TOKEN}", "pace": "off", "inbound": "polling"}
    async with (
        simulated(folder, limits=LIMITS) as (sim, _),
        lives(folder, how, sim.url, **tokens, **settings) as chain,
    ):
        for user in range(10, 10 + PEOPLE):
            await sim.post("users", id=user)

        async def restarts() -> None:
            for number in range(rounds):
                await asyncio.sleep(chance.uniform(*LIFE_S))
                began = time.monotonic()
                await chain.next()
                print(f"  {how} {number + 1}: {time.monotonic() - began:.1f} s, {found.answered} answers", flush=True)

        try:
            await Crowd(chain, sim, found, chance).run(restarts())
        finally:
            surprises = [line for line in chain.output if "surprise" in line or "Traceback" in line]
            if surprises or not found.is_good():
                print("".join(chain.output[-100:]))
    found.why += surprises
    return found


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=("socket", "replace"), required=True)
    parser.add_argument("--store", choices=("sqlite", "postgres", "redis"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peik-restarts-") as folder:
        settings = {} if given.store == "sqlite" else {"store": a_store(given.store)}
        found = await restarted(Path(folder), given.how, rounds=given.rounds, seed=given.seed, **settings)
    figures = {"restarts": given.rounds} | msgspec.to_builtins(found)
    print(json.dumps({"how": given.how, "store": given.store} | figures))
    keep(given.write, f"{given.how} {given.store}", figures)
    return 0 if found.is_good() and not found.why else 1


def keep(path: Path | None, name: str, figures: object) -> None:
    """Write figures under a name, beside what stands in that file already."""
    if path is not None:
        held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(held | {name: figures}, indent=1) + "\n", encoding="utf-8")


def a_store(kind: str) -> str:
    from tests.storage.redis_server import shared
    from tests.storage.servers import postgres

    own = f"restarts_{uuid.uuid4().hex[:12]}"
    return f"{postgres().url}?schema={own}" if kind == "postgres" else f"{shared().url}?prefix={own}"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
