"""A small stage for engine tests: production service, courier and SQLite store, a simulated Telegram, and virtual time."""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.core import events
from peik.core.letter import LetterCall
from peik.errors import StoreUnavailable
from peik.inbox.store import PushPort
from peik.outbox.store import LetterView, Marked, Poster
from peik.settings.config import Config, load
from peik.storage.executor import InlineExecutor
from peik.storage.open import AnyStore, store_of
from peik.testing import Options, Telegram
from peik.testing.virtual import SimCarrier, VirtualClock, run_virtual

TOKEN = "7000001:AAtest"
BOT = 7000001
_FULL = StoreUnavailable(code="store_full", detail="The disk is full.")


class Stage:
    """One Peik on one file. `reopen` ends it (gracefully or not) and opens another on the same file."""

    def __init__(self, clock: VirtualClock, folder: Path, telegram: Telegram, settings: dict[str, str]) -> None:
        self.clock = clock
        self.telegram = telegram
        self.told: list[events.Event] = []
        self._folder = folder
        self._settings = settings
        self.peik: Runtime
        self._seed = 0
        self.poster: Poster | None = None
        self.pusher: PushPort | None = None
        self.is_alone = True
        self.refusals: Counter[str] = Counter()

    def config(self) -> Config:
        flags = {"store": f"sqlite:///{self._folder}/peik.db", "bot_tokens": TOKEN, "inbound": "off", **self._settings}
        return load(flags, environment={}, folder=self._folder)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        told = events.Events()
        told.listen(self.told.extend)
        self._seed += 1
        self.carrier = SimCarrier(self.telegram)
        async with running(
            self.config(),
            events=told,
            clock=self.clock,
            carrier=self.carrier,
            chance=random.Random(self._seed),
            poster=self.poster,
            pusher=self.pusher,
            executor=lambda name: InlineExecutor(),
            is_alone=self.is_alone,
            make_store=self._make_store,
        ) as self.peik:
            yield

    def refuse(self, method: str, times: int = 1) -> None:
        """The store, as it is opened next, says no to so many calls of a method; or to so many more, if it is open."""
        self.refusals[method] += times

    def _make_store(self, config: Config, **how: Any) -> AnyStore:
        store = store_of(config, **how)
        for method in self.refusals:
            setattr(store, method, self._refusing(method, getattr(store, method)))
        return store

    def _refusing(self, method: str, act: Callable[..., Any]) -> Callable[..., Any]:
        async def refused() -> None:
            raise _FULL

        def asked(*arguments: Any, **more: Any) -> Any:
            if self.refusals[method] <= 0:
                return act(*arguments, **more)
            self.refusals[method] -= 1
            if "done" not in more:
                return refused()
            return asyncio.get_running_loop().call_soon(more["done"], Marked(error=_FULL))

        return asked

    async def accept(self, method: str = "sendMessage", **terms: Any) -> int:
        return (await self.accept_all([call(method, **terms)]))[0]

    async def accept_all(self, calls: list[LetterCall]) -> list[int]:
        return [one.letter_id for one in await self.peik.outbox.service.accept(calls)]

    async def text(self, chat_id: int | str, text: str, **terms: Any) -> int:
        return await self.accept(params={"chat_id": chat_id, "text": text}, **terms)

    async def letter(self, letter_id: int) -> LetterView:
        return await self.peik.outbox.service.letter(letter_id)

    async def ended(self, letter_id: int, timeout_s: float = 86400.0) -> LetterView:
        view = await self.peik.outbox.service.wait(letter_id, timeout_s)
        assert view.state.is_final, f"letter {letter_id} is still {view.state}"
        return view

    async def quiet(self, timeout_s: float = 86400.0) -> None:
        """Until no letter waits any more."""
        deadline = self.clock.mono() + timeout_s
        while True:
            tally = (await self.peik.outbox.service.tallies())[BOT]
            if not (tally.waiting or tally.active or tally.delayed):
                return
            assert self.clock.mono() < deadline, tally
            await asyncio.sleep(0.2)

    def texts(self, chat_id: int) -> list[str]:
        return self.telegram.sent.texts(chat_id)

    def events_of(self, kind: type[events.Event]) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]


def call(method: str = "sendMessage", *, params: dict[str, Any], metadata: Any = None, **terms: Any) -> LetterCall:
    encoded = None if metadata is None else msgspec.json.encode(metadata)
    return LetterCall(method=method, params=msgspec.json.encode(params), metadata=encoded, **terms)


def play(
    story: Callable[[Stage], Coroutine[Any, Any, None]], *, options: Options | None = None, **settings: str
) -> None:
    """Tell a story in virtual time, with Peik open from its first line to its last."""

    async def opened(stage: Stage) -> None:
        async with stage.open():
            await story(stage)

    play_closed(opened, options=options, **settings)


def play_closed(
    story: Callable[[Stage], Coroutine[Any, Any, None]], *, options: Options | None = None, **settings: str
) -> None:
    """The same, with Peik still closed: the story opens it itself, once or several times."""

    async def main(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory(prefix="peik-story-") as folder:
            began_s = clock.wall_s() - clock.mono()  # Telegram's clock goes its own way: ours may jump
            telegram = Telegram(now=lambda: began_s + clock.mono(), chance=random.Random(7), options=options)
            telegram.bot(TOKEN)
            await story(Stage(clock, Path(folder), telegram, settings))

    run_virtual(main)
