"""A whole Peik with accounts, in virtual time: production code, the simulated Telegram of bots and that of accounts."""

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from peik.accounts.service import AccountService
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.archive.store import FeedRecord, Message, MessageFilter, Session
from peik.core import events
from peik.core.letter import LetterCall
from peik.errors import StartError
from peik.outbox.store import LetterView, Poster
from peik.settings.config import Config, load
from peik.storage.executor import Executor, InlineExecutor
from peik.testing import Telegram
from peik.testing.accounts import Accounts, Person, SimClient
from peik.testing.virtual import SimCarrier, VirtualClock, run_virtual
from simulation.processes import Process
from tests.accounts.inline_archive import InlineArchive

KEY = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="
TOKEN = "7000001:AAtest"
T = TypeVar("T")


class LateArchive(InlineArchive):
    """One that cannot be opened before a given time."""

    def __init__(self, path: Path, clock: VirtualClock, back_at: float) -> None:
        super().__init__(path)
        self._clock = clock
        self._back_at = back_at

    async def open(self) -> None:
        if self._clock.mono() < self._back_at:
            raise StartError("No way there.")
        await super().open()


class House:
    """Ali has an account that nobody signed in yet; Sara writes to him. `open` opens Peik, once or several times."""

    peik: Runtime

    def __init__(self, clock: VirtualClock, folder: Path, *, seed: int = 1, **settings: str) -> None:
        self.clock = clock
        self.folder = folder
        self.accounts = Accounts(clock, seed=seed)
        self.bots = Telegram(now=clock.wall_s, chance=random.Random(seed))
        self.bots.bot(TOKEN)
        self.told: list[events.Event] = []
        self.poster: Poster | None = None
        self.archives: list[InlineArchive] = []
        self.archive_back_at = float("-inf")
        self.executor: Callable[[str], Executor] = lambda name: InlineExecutor()
        self.clients: list[SimClient] = []  # all that were ever made
        self._settings = settings
        self._seed = seed
        self.ali = self.accounts.register("+998900000001", first_name="Ali")
        self.sara = self.accounts.register("+998900000002", first_name="Sara")
        self.private = self.accounts.private(self.ali, self.sara)
        self.team = self.accounts.channel("Team", self.sara, self.ali)

    def config(self) -> Config:
        flags = {
            "store": f"sqlite:///{self.folder}/peik.db",
            "bot_tokens": TOKEN,
            "inbound": "off",
            "secret_key": KEY,
            **self._settings,
        }
        return load(flags, environment={}, folder=self.folder)

    def _archive(self, _: Config) -> InlineArchive:
        self.archives.append(LateArchive(self.folder / "peik.db.archive", self.clock, self.archive_back_at))
        return self.archives[-1]

    def _client(self, **wanted: Any) -> SimClient:
        self.clients.append(self.accounts.clients(**wanted))
        return self.clients[-1]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        told = events.Events()
        told.listen(self.told.extend)
        self._seed += 1
        async with running(
            self.config(),
            events=told,
            clock=self.clock,
            carrier=SimCarrier(self.bots),
            chance=random.Random(self._seed),
            poster=self.poster,
            executor=self.executor,
            is_alone=True,
            make_clients=lambda config, clock: self._client,
            make_archive=self._archive,
        ) as self.peik:
            while self.service.trouble() is not None and self.clock.mono() > self.archive_back_at:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            yield

    @property
    def service(self) -> AccountService:
        assert self.peik.accounts is not None
        return self.peik.accounts

    @property
    def archive(self) -> InlineArchive:
        return self.archives[-1]

    async def sign_in(self, person: Person, *, agent_id: str = "a", session_id: str | None = None) -> Session:
        made = await self.service.create_session(agent_id, phone=person.phone, session_id=session_id)
        await self.service.signing_in.begin(made.session_id)
        return await self.service.signing_in.give_code(made.session_id, self.accounts.code_of(person.phone))

    async def connected(self, person: Person) -> None:
        await self.until(lambda: self.service.line_of(person.user_id))

    async def until(self, is_so: Callable[[], object], *, within_s: float = 300.0) -> None:
        deadline = self.clock.mono() + within_s
        while not is_so():
            assert self.clock.mono() < deadline, "it never came to that"
            await asyncio.sleep(0.05)

    async def kept(self, session_id: str) -> list[Message]:
        found, cursor = await self.archive.messages(MessageFilter(session_id=session_id), cursor=None, limit=1000)
        assert cursor is None
        return found

    async def lines(self, session_id: str) -> list[FeedRecord]:
        return await self.archive.fed(session_id, after=0, limit=10_000)

    async def send_as(self, person: Person, chat_id: int, text: str, **terms: Any) -> int:
        params = msgspec.json.encode({"chat_id": chat_id, "text": text})
        call = LetterCall(bot_id=person.user_id, method="sendMessage", params=params, **terms)
        return (await self.peik.outbox.service.accept([call]))[0].letter_id

    async def ended(self, letter_id: int, timeout_s: float = 86400.0) -> LetterView:
        view = await self.peik.outbox.service.wait(letter_id, timeout_s)
        assert view.state.is_final, f"letter {letter_id} is still {view.state}"
        return view

    def told_of(self, kind: type[events.Event]) -> list[Any]:
        return [one for one in self.told if isinstance(one, kind)]


class Died(Exception):
    """The process that was asked is dead, or does not answer."""


async def answered(process: Process, work: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
    """What a simulated process does, from outside. Raises Died."""
    return await outlived(process, process.start(work), timeout_s=timeout_s)


async def outlived(process: Process, task: "asyncio.Task[T]", *, timeout_s: float | None = None) -> T:
    dead: asyncio.Future[None] = process.loop.create_future()
    forget = process.when_dead(lambda: dead.set_result(None))
    try:
        await asyncio.wait([task, dead], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        forget()
    if not task.done():
        raise Died(f"{process} has not answered")
    return task.result()


def play(story: Callable[[House], Coroutine[Any, Any, None]], *, seed: int = 1, **settings: str) -> None:
    """With Peik open from the first line to the last."""

    async def opened(house: House) -> None:
        async with house.open():
            await story(house)

    play_closed(opened, seed=seed, **settings)


def play_closed(story: Callable[[House], Coroutine[Any, Any, None]], *, seed: int = 1, **settings: str) -> None:
    async def main(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory(prefix="peik-house-") as folder:
            await story(House(clock, Path(folder), seed=seed, **settings))

    run_virtual(main)
