"""Two real nodes on one PostgreSQL or one Redis: each alert is told once, not by both, whoever of them lives."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from peik.alerts.rules import CALM_S
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.clock import SystemClock
from peik.core import events
from peik.outbox.store import LetterFilter
from peik.settings.config import load
from peik.testing import Telegram
from peik.testing.virtual import SimCarrier
from tests.alerts.alarm import ADMIN, RAISED, Pager, paging
from tests.outbox.story import BOT, TOKEN, call
from tests.patience import PATIENCE_S
from tests.storage.redis_server import RedisServer, needed
from tests.storage.shared_places import SHARED, SharedPlace

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Apprise's plugins, not ours


@pytest.fixture(params=SHARED, ids=lambda kind: kind.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SharedPlace:
    made: SharedPlace = request.param(tmp_path)
    return made


class Hasty(SystemClock):
    """Real time, and a wall that can be set: alerts keep time by it, leases do not."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


class Town:
    """A store, a Telegram and a pager; nodes come and go."""

    def __init__(self, url: str, folder: Path, pager: Pager) -> None:
        self.url = url
        self.folder = folder
        self.pager = pager
        self.clock = Hasty()
        self.telegram = Telegram(now=time.time, chance=random.Random(7))
        self.telegram.bot(TOKEN)
        self.telegram.user(ADMIN, "Admin")
        self.told: list[events.Event] = []

    @asynccontextmanager
    async def node(self, name: str) -> AsyncIterator[Runtime]:
        (self.folder / name).mkdir()
        flags = {
            "store": self.url, "bot_tokens": TOKEN, "inbound": "off", "lease": "2s", "grace": "1s", "admin_chats": str(ADMIN),
            "alert_urls": self.pager.url, "alert_dead": "2", "alert_disk": "0%", "alert_memory": "100%",
        }  # fmt: skip
        told = events.Events()
        told.listen(self.told.extend)
        config = load(flags, environment={}, folder=self.folder / name)
        carrier = SimCarrier(self.telegram)
        async with running(config, events=told, clock=self.clock, carrier=carrier) as runtime:
            yield runtime

    def said(self, rule: str) -> Counter[str]:
        """What the pager heard of a rule: its beginnings, by text."""
        return Counter(text for text in self.pager.texts if text.endswith(f"#{rule}."))

    def ends(self, words: str) -> list[str]:
        return [text for text in self.pager.texts if text.startswith("Peik: over") and words in text]

    async def begins(self, rule: str) -> str:
        await until(lambda: self.said(rule) or None)
        ((text, count),) = self.said(rule).items()
        await until(lambda: text in self.telegram.sent.texts(ADMIN) or None)
        assert (count, self.telegram.sent.texts(ADMIN).count(text)) == (1, 1)
        RAISED.add(rule)
        return text


async def until(is_so: Callable[[], object], do: Callable[[], Awaitable[object]] | None = None) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            if do is not None:
                await do()
            await asyncio.sleep(0.05)


def play(story: Callable[[Town], Coroutine[Any, Any, None]], url: str, folder: Path) -> None:
    with paging() as pager:
        asyncio.run(story(Town(url, folder, pager)))


def test_dead_letters_are_told_by_one_of_two_nodes_and_the_other_goes_on_with_them(
    place: SharedPlace, tmp_path: Path
) -> None:
    async def story(town: Town) -> None:
        async with town.node("one") as one:
            town.telegram.user(5, "Sara")
            town.telegram.block(BOT, 5)
            async with town.node("two") as two:
                nodes = (one, two)
                await until(lambda: any(runtime.outbox.leases.holds(0) for runtime in nodes))
                await two.outbox.service.accept([call(params={"chat_id": 5, "text": "hello"}) for _ in range(3)])

                async def look() -> None:
                    for runtime in nodes:
                        await runtime.watch.rounds.look()

                await until(lambda: town.said("dead-letters") or None, look)
                assert "there are 3 dead letters" in await town.begins("dead-letters")
                for _ in range(3):
                    await look()
                assert sum(town.said("dead-letters").values()) == 1
            await until(lambda: one.outbox.leases.holds(0))  # the other one is gone; this one looks now
            for _ in range(3):
                await one.watch.rounds.look()
                await asyncio.sleep(0.05)
            await until(
                lambda: "dead-letters" in {each.name for each in one.watch.alerts.ongoing()}, one.watch.rounds.look
            )
            assert sum(town.said("dead-letters").values()) == 1
            await one.outbox.service.clear_dead(LetterFilter())
            await one.watch.rounds.look()
            town.clock.ahead_ms += int(CALM_S * 1000) + 20_000

            async def again() -> None:
                one.watch.alerts.look_again()

            await until(lambda: town.ends("dead letters"), again)
            assert len(town.ends("dead letters")) == 1

    play(story, place.url, tmp_path)


@pytest.mark.raises_alert("leases-lost")
def test_a_node_that_was_away_for_longer_than_its_leases_is_told_of_once(place: SharedPlace, tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        async with town.node("one"), town.node("two"):

            async def stall() -> None:
                """As if both had been frozen: whoever comes back first takes what the other had."""
                place.season()
                place.expire_leases()
                place.free_for_long()
                await asyncio.sleep(0.3)

            await until(lambda: [one for one in town.told if isinstance(one, events.LeasesLost)], stall)
            assert "leases" in await town.begins("leases-lost")

    play(story, place.url, tmp_path)


@needed
@pytest.mark.raises_alert("store-weak")
def test_a_redis_that_does_not_write_to_its_disk_is_told_by_one_of_two_nodes_until_it_does(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, appendonly="no").start()

    async def story(town: Town) -> None:
        async with town.node("one") as one, town.node("two") as two:

            async def look() -> None:
                for runtime in (one, two):
                    for seldom in runtime.watch.rounds._seldom:
                        seldom._look_at = 0.0
                    await runtime.watch.rounds.look()

            await until(lambda: town.said("store-weak") or None, look)
            assert "outlives a power cut" in await town.begins("store-weak")
            with server.client() as client:
                client.config_set("appendonly", "yes")
                client.config_set("appendfsync", "always")
            await look()
            town.clock.ahead_ms += int(CALM_S * 1000) + 1000

            async def again() -> None:
                await look()
                for runtime in (one, two):
                    runtime.watch.alerts.look_again()

            await until(lambda: town.ends("power cut"), again)
            assert len(town.ends("power cut")) == 1

    try:
        play(story, server.url, tmp_path)
    finally:
        server.kill()


@pytest.mark.gate  # waits until a dead server is given up
def test_a_redis_that_is_killed_is_told_by_the_pager_and_when_it_is_back_in_the_chat(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, appendonly="yes", appendfsync="always").start()

    async def story(town: Town) -> None:
        async with town.node("one"):
            server.kill()
            await until(lambda: town.said("store") or None)
            assert not [text for text in town.telegram.sent.texts(ADMIN) if text.endswith("#store.")]
            server.start()
            await town.begins("store")

    try:
        play(story, server.url, tmp_path)
    finally:
        server.kill()
