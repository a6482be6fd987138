"""A bot of a real library in its own process, between people in the simulated Telegram and whatever serves its API root."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from peik.testing import Delivery, Options, SimServer
from tests.clients import node
from tests.patience import PATIENCE_S
from tests.processes.programs import Port, Server, served

BOTS = Path(__file__).parent / "bots"
SECRET = "a-secret-of-the-webhook"
END_S = 30.0


MODES = ("polling", "webhook")
ROUTES = ("direct", "peik")


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """One library under test: its name for people, its package, its program in bots/."""

    name: str
    package: str
    program: str

    @property
    def bot_id(self) -> int:
        return 42_000 + LIBRARIES.index(self)

    @property
    def token(self) -> str:
        return f"{self.bot_id}:AA-{self.program.partition('.')[0]}"

    @property
    def is_node(self) -> bool:
        return self.program.endswith(".mjs")

    @property
    def version(self) -> str:
        return node.version_of(self.package) if self.is_node else version(self.package)

    def skip_if_missing(self) -> None:
        """Skips a test where its Node is not."""
        if self.is_node:
            node.wanted(has_packages=True)

    def command(self) -> list[str]:
        if not self.is_node:
            return [sys.executable, str(BOTS / self.program)]
        return [str(node.find()), str(BOTS / self.program)]


LIBRARIES = (
    Library(name="aiogram", package="aiogram", program="aiogram_bot.py"),
    Library(name="python-telegram-bot", package="python-telegram-bot", program="ptb_bot.py"),
    Library(name="pyTelegramBotAPI", package="pyTelegramBotAPI", program="telebot_bot.py"),
    Library(name="grammY", package="grammy", program="grammy_bot.mjs"),
    Library(name="Telegraf", package="telegraf", program="telegraf_bot.mjs"),
    Library(name="node-telegram-bot-api", package="node-telegram-bot-api", program="ntba_bot.mjs"),
)


class BotProcess:
    """The bot's program. It tells one fact per line of JSON; all else it writes is kept for whoever has to find out why."""

    def __init__(self, library: Library, *, api_root: str, port: Port | None = None) -> None:
        self.library = library
        self.output: list[str] = []
        self.facts: list[dict[str, Any]] = []
        self._port = port
        self._environment = {"API_ROOT": api_root, "BOT_TOKEN": library.token}
        if port is not None:
            self._environment |= {"WEBHOOK_PORT": str(port.number), "WEBHOOK_SECRET": SECRET}

    async def start(self) -> None:
        self._told = asyncio.Event()
        self._process = await asyncio.create_subprocess_exec(
            *self.library.command(),
            env=os.environ | self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._reader = asyncio.create_task(self._read())
        await self.until(lambda: any("ready" in fact for fact in self.facts), "the bot is ready")
        if self._port is not None:
            await self._listens(self._port.number)

    async def until(self, fact: Callable[[], bool], what: str) -> None:
        """Wait for something that the bot tells."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not fact():
                    self._told.clear()
                    assert not self._reader.done(), f"The bot has ended before {what}:\n{self.log}"
                    await self._told.wait()
        except TimeoutError:
            raise AssertionError(f"In vain we waited until {what}. The bot wrote:\n{self.log}") from None

    def has_handled(self, user: int) -> bool:
        """Whether the bot has handled an update of that person to its end."""
        return any(fact.get("user") == user for fact in self.facts)

    def unanswered(self) -> list[dict[str, Any]]:
        """The calls that the bot had to make again: nobody was there, or the answer was a 5xx."""
        return [fact for fact in self.facts if "unanswered" in fact]

    @property
    def log(self) -> str:
        return "".join(self.output[-60:])

    async def end(self) -> bool:
        """Ask it to end, as a supervisor would; False if it had to be killed."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
                return True
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            return False
        finally:
            await self._reader

    async def kill(self) -> None:
        """As if the machine had no memory left. What it told is forgotten; `start` begins its next life."""
        self._process.kill()
        await self._process.wait()
        await self._reader
        self.facts = []

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            line = raw.decode(errors="replace")
            self.output.append(line)
            if line.startswith("{"):
                with contextlib.suppress(ValueError):
                    self.facts.append(json.loads(line))
            self._told.set()
        self._told.set()

    async def _listens(self, port: int) -> None:
        """Some libraries set the webhook first and listen then. A push in between is repeated, only later."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    await writer.wait_closed()
                    return


class Stage:
    """One bot and the people who write to it. All that is judged is what the people see."""

    def __init__(self, sim: SimServer, bot: BotProcess, server: Server | None) -> None:
        self.sim = sim
        self.bot = bot
        self.bot_id = bot.library.bot_id
        self.server = server  # Peik, if it stands in between
        self.telegram = sim.telegram

    async def until(self, fact: Callable[[], bool], what: str) -> None:
        try:
            await self.sim.until(fact, timeout=PATIENCE_S)
        except TimeoutError:
            seen = [(row.method, row.chat_id, row.text) for row in self.telegram.sent][-20:]
            log = f"The bot wrote:\n{self.bot.log}\nTelegram delivered: {seen}"
            if self.server is not None:
                log += f"\nPeik wrote:\n{''.join(self.server.output[-40:])}"
            raise AssertionError(f"In vain we waited until {what}. {log}") from None

    def got(self, user: int, method: str | None = None) -> list[Delivery]:
        """What this person has got."""
        return self.telegram.sent.where(chat_id=user, bot_id=self.bot_id, method=method)

    async def gets(self, user: int, method: str, count: int = 1) -> list[Delivery]:
        await self.until(lambda: len(self.got(user, method)) >= count, f"user {user} got {count} by {method}")
        return self.got(user, method)

    async def applied(self, method: str, *, chat_id: int) -> Delivery:
        """The first edit, or answer, of that kind in a chat."""

        def found() -> list[Delivery]:
            return self.telegram.applied.where(bot_id=self.bot_id, chat_id=chat_id, method=method)

        await self.until(lambda: bool(found()), f"{method} took effect in chat {chat_id}")
        return found()[0]

    def writes(self, user: int, text: str) -> None:
        self.telegram.write(self.bot_id, user, text)

    def shown(self, delivery: Delivery) -> dict[str, Any]:
        """The message as the chat shows it now."""
        message = self.telegram.message(self.bot_id, delivery.chat_id, delivery.message_id)
        assert message is not None
        return dict(msgspec.json.decode(msgspec.json.encode(message)))

    def content(self, file_id: str) -> bytes:
        """What lies at Telegram under that id."""
        stored = self.telegram.bot(self.bot_id).files.by_id.get(file_id)
        assert stored is not None
        assert stored.content is not None
        return stored.content


@contextlib.asynccontextmanager
async def staged(
    *libraries: Library, route: str, mode: str, folder: Path, **settings: str
) -> AsyncIterator[list[Stage]]:
    """One stage for each library, with its bot ready. `route` says what the bots' API root is: "direct" is the simulated
    Telegram, "peik" a Peik before it, which has never heard of these bots; but for webhooks: only bots that were added may be
    pushed to on this machine. `mode` is "polling" or "webhook"."""
    # Only a local server pushes to http, and to a port of this machine; Peik goes to the cloud. A bot that ends asks
    # once more with the same offset, and Telegram would let it wait three seconds for that.
    options = Options(mode="local" if route == "direct" else "cloud", anti_busy_loop=False)
    async with contextlib.AsyncExitStack() as stack:
        sim = await stack.enter_async_context(SimServer(options=options, seed=7))
        for library in libraries:
            sim.telegram.bot(library.token)
        server = None
        if route == "peik":
            http = await stack.enter_async_context(aiohttp.ClientSession())
            if mode == "webhook":
                own = {"bot_tokens": ",".join(library.token for library in libraries), "inbound": "off"}
                settings = {**own, **settings}
            server = await stack.enter_async_context(served(folder, sim.url, http, **settings))
        api_root = sim.url if server is None else server.url
        bots = [
            BotProcess(library, api_root=api_root, port=Port() if mode == "webhook" else None) for library in libraries
        ]
        for bot in bots:
            stack.push_async_callback(bot.end)
        await asyncio.gather(*(bot.start() for bot in bots))
        yield [Stage(sim, bot, server) for bot in bots]
