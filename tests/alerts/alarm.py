"""Alerts by their real causes: a whole Peik in virtual time, an admin chat at the simulated Telegram, and a pager that the real
Apprise calls over HTTP.

A story brings about the cause, and says `begins`, `goes_on` and `is_over`. Each time both ways are looked at: that they say the
same, that nothing was said twice, and that it is said what to do.
"""

import asyncio
import http.server
import json
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from peik.alerts.matters import SentAlert
from peik.alerts.rules import BY_NAME
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.core import events
from peik.jobs.store import JobKinds
from peik.storage.executor import InlineExecutor
from peik.storage.open import AnyStore, store_of
from peik.storage.sqlite.store import SqliteStore
from peik.testing import Options
from peik.testing.virtual import SimCarrier
from tests.outbox.story import Stage, play_closed

ADMIN = 99
DEADLINE_S = 14 * 86_400.0
RAISED: set[str] = set()  # rules that began in the test that runs; see conftest.py


class Pager:
    """Takes what Apprise posts."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        pager = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                pager.taken.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["message"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.server.server_port}/alerts?cto=60&rto=60"

    @property
    def texts(self) -> list[str]:
        """What waited through a failure came as one message."""
        return [text for message in self.taken for text in message.split("\n\n")]


@contextmanager
def paging() -> Iterator[Pager]:
    pager = Pager()
    thread = threading.Thread(target=pager.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield pager
    finally:
        pager.server.shutdown()
        thread.join()
        pager.server.server_close()


class Hearing:
    """What people were told, by a chat and by a pager, of a Peik in virtual time."""

    def __init__(self, pager: Pager, runtime: Callable[[], Runtime], chat: Callable[[], list[str]]) -> None:
        self.pager = pager
        self._runtime = runtime
        self._chat = chat

    async def told(self, rule: str) -> list[SentAlert]:
        """The oldest first."""
        return [one for one in reversed(await self._runtime().watch.alerts.last()) if one.rule == rule]

    async def begins(self, rule: str, *, within_s: float = DEADLINE_S, times: int = 1) -> str:
        """It is told by the pager within that time; once for each of its matters, if there are several. The text."""
        texts = await self._heard(rule, "began", times, within_s)
        assert all(f"\nTo do: {BY_NAME[rule].todo} See docs/runbook.md#{rule}." in text for text in texts), texts
        assert rule in {one.name for one in self._runtime().watch.alerts.ongoing()}
        RAISED.add(rule)
        return texts[-1]

    async def goes_on(
        self, rule: str, *, cause: Callable[[], Coroutine[Any, Any, None]] | None = None, every_s: float = 60.0
    ) -> None:
        """Nothing more is said before its interval is over, and then once more. `cause`: what keeps it going, every so long."""
        repeat_s = BY_NAME[rule].repeat_s
        (began, *_) = await self.told(rule)
        kind_before = Counter(one.kind for one in await self.told(rule))
        assert kind_before["again"] == 0
        clock = self._runtime().clock
        while clock.wall_ms() < began.at_ms + repeat_s * 1000 - (every_s + 1) * 1000:
            if cause is not None:
                await cause()
            await asyncio.sleep(every_s)
        assert Counter(one.kind for one in await self.told(rule)) == kind_before, "too soon"
        if cause is not None:
            await cause()
        await self._heard(rule, "again", 1, every_s + 300.0)

    async def is_over(self, rule: str, *, within_s: float = 3600.0, times: int = 1) -> None:
        """It is told that it is over, and nothing goes on; then nothing was told twice or to one way only."""
        texts = await self._heard(rule, "over", times, within_s)
        assert all(text.startswith("Peik: over, after ") for text in texts)
        assert rule not in {one.name for one in self._runtime().watch.alerts.ongoing()}
        await self.agree(rule)

    async def ends_in_silence(self, rule: str) -> None:
        """It happened, and is past: nobody is told again, or that it is over."""
        assert BY_NAME[rule].is_moment
        await asyncio.sleep(900.0)
        assert "over" not in {one.kind for one in await self.told(rule)}
        await self.agree(rule)

    async def agree(self, rule: str) -> None:
        """The chat has heard what the pager has, each once. It may have had to wait for Telegram."""
        wanted = Counter(one.text for one in await self.told(rule))
        assert Counter(text for text in self.pager.texts if text in wanted) == wanted
        await self._until(lambda: set(wanted) <= set(self._chat()), 3600.0, f"the chat hears of {rule}")
        assert Counter(text for text in self._chat() if text in wanted) == wanted

    async def _heard(self, rule: str, kind: str, times: int, within_s: float) -> list[str]:
        """Looks at the pager: it works whether or not Telegram and the store do. Whose text it is, the store says afterwards."""
        clock = self._runtime().clock
        deadline = clock.mono() + within_s
        while True:
            if kind == "over":
                found = [text for text in self.pager.texts if text.startswith("Peik: over")]
                ours = {one.text for one in await self.told(rule) if one.kind == kind}
                found = [text for text in found if text in ours]
            else:
                start = "Peik, still" if kind == "again" and not BY_NAME[rule].is_moment else "Peik: "
                found = [text for text in self.pager.texts if text.endswith(f"#{rule}.") and text.startswith(start)]
                if kind == "again" and BY_NAME[rule].is_moment:
                    found = found[1:]
            if len(found) >= times:
                assert len(found) == times, found
                return found
            assert clock.mono() < deadline, f"{rule}: no {kind}; {self.pager.texts}"
            await asyncio.sleep(1.0)

    async def _until(self, is_so: Callable[[], bool], within_s: float, what: str) -> None:
        clock = self._runtime().clock
        deadline = clock.mono() + within_s
        while not is_so():
            assert clock.mono() < deadline, f"it never came to that: {what}"
            await asyncio.sleep(1.0)


class Alarm(Stage):
    """A stage whose alerts are heard."""

    hearing: Hearing
    kinds: JobKinds | None = None
    patience_ms: int | None = None  # with a database that somebody else has locked
    is_looking = False  # looks cost the most of a virtual day: only rules that are found by them need any

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
            job_kinds=self.kinds,
            make_store=self._store,
            is_alone=True,  # nobody looks twice a second for the writes of other processes
        ) as self.peik:
            looking = asyncio.create_task(self._look())
            try:
                yield
            finally:
                looking.cancel()
                await asyncio.wait([looking])

    def _store(self, *settings: Any, **parts: Any) -> AnyStore:
        store = store_of(*settings, **parts)
        if self.patience_ms is not None:
            assert isinstance(store, SqliteStore)
            store._busy_ms = self.patience_ms
        return store

    async def _look(self) -> None:
        if self.is_looking:
            await self.peik.watch.rounds.run()


Story = Callable[[Alarm, Hearing], Coroutine[Any, Any, None]]


def alarm_closed(
    story: Story, *, looks: bool = False, options: Options | None = None, home: Path | None = None, **settings: str
) -> None:
    """With Peik still closed: the story opens it itself. `home`: where it has its store."""
    with paging() as pager:

        async def main(stage: Stage) -> None:
            alarm = Alarm(stage.clock, home or stage._folder, stage.telegram, stage._settings)
            alarm.is_looking = looks
            alarm.telegram.user(ADMIN, "Admin")
            await story(alarm, Hearing(pager, lambda: alarm.peik, lambda: alarm.texts(ADMIN)))

        quiet = {"alert_disk": "0%", "alert_memory": "100%"}  # the machine that runs the tests may be full
        named = {"admin_chats": str(ADMIN), "alert_urls": pager.url, **quiet, **settings}
        play_closed(main, options=options, **named)


def alarm(story: Story, *, looks: bool = False, options: Options | None = None, **settings: str) -> None:
    """With Peik open from the first line of the story to its last."""

    async def opened(stage: Alarm, hearing: Hearing) -> None:
        async with stage.open():
            await story(stage, hearing)

    alarm_closed(opened, looks=looks, options=options, **settings)
