"""A backup that is taken while letters and updates flow: what was acknowledged before it is in it, once and in order, and the
store that comes of it goes on as any other."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.backups.model import BackupWatch
from peik.core.events import Events, Surprise
from peik.core.letter import State
from peik.inbox.store import ArrivalFilter
from peik.outbox.store import LetterFilter, LetterView
from peik.settings.config import load
from peik.testing import Options, Telegram
from peik.testing.faults import Limits
from peik.testing.virtual import SimCarrier
from tests.backups.test_stores import gone
from tests.backups.trips import backups_in
from tests.outbox.story import BOT, TOKEN, call
from tests.patience import PATIENCE_S
from tests.storage.all_places import PLACES
from tests.storage.moving.filling import url_of
from tests.storage.places import Place

pytestmark = pytest.mark.gate  # backups under load

CHATS = (5, 6, 7)


class Life:
    """One Peik on the store of a place, at a simulated Telegram of its own."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.folder = folder
        self.telegram = Telegram(now=time.time, chance=random.Random(7), options=Options(limits=Limits(on=False)))
        self.telegram.bot(TOKEN)
        for chat in CHATS:
            self.telegram.user(chat, f"User {chat}")
        self.surprises: list[object] = []
        self.accepted: dict[int, str] = {}  # acknowledged letters: what they say
        self.written = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Runtime]:
        self.folder.mkdir(exist_ok=True)
        flags = {"store": url_of(self.place), "bot_tokens": TOKEN, "inbound": "polling", "pace": "off", "lease": "2s"}
        told = Events()
        told.listen(lambda events: self.surprises.extend(one for one in events if isinstance(one, Surprise)))
        config = load({**flags, "grace": "2s"}, environment={}, folder=self.folder)
        async with running(config, events=told, carrier=SimCarrier(self.telegram)) as runtime:
            yield runtime

    async def send(self, runtime: Runtime, chat: int) -> None:
        """One caller: the next letter when the last one is acknowledged."""
        for number in range(1_000_000):
            text = f"{number:06}"
            (one,) = await runtime.outbox.service.accept([call(params={"chat_id": chat, "text": text})])
            self.accepted[one.letter_id] = f"{chat} {text}"
            await asyncio.sleep(0.005)

    async def write(self) -> None:
        """Users, who write to the bot."""
        while True:
            self.written += 1
            self.telegram.write(TOKEN, random.choice(CHATS), f"{self.written}")
            await asyncio.sleep(0.01)


async def all_letters(runtime: Runtime) -> list[LetterView]:
    found: list[LetterView] = []
    before = None
    while page := await runtime.outbox.service.find(LetterFilter(bot_id=BOT), before=before, limit=500):
        found += page
        before = page[-1].id
    return found[::-1]


async def until_quiet(runtime: Runtime) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            tally = (await runtime.outbox.service.tallies()).get(BOT)
            if tally is not None and not (tally.waiting or tally.active or tally.delayed):
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
async def test_a_backup_taken_while_everything_flows_is_of_one_moment_and_goes_on(
    kind: type[Place], tmp_path: Path
) -> None:
    place = kind(tmp_path)
    life = Life(place, tmp_path / "life")
    backups = backups_in(tmp_path, place)
    async with life.open() as runtime:
        flow = [asyncio.create_task(life.send(runtime, chat)) for chat in CHATS] + [asyncio.create_task(life.write())]
        async with asyncio.timeout(PATIENCE_S):
            while len(life.accepted) < 100 or not await runtime.store.inbox.count_arrivals(ArrivalFilter(bot_id=BOT)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        before = dict(life.accepted)
        arrived = await runtime.store.inbox.count_arrivals(ArrivalFilter(bot_id=BOT))
        made = await backups.create(BackupWatch())
        after = dict(life.accepted)
        assert len(after) > len(before), "it was taken while letters came"
        for task in flow:
            task.cancel()
        await asyncio.wait(flow)
    assert (await backups.verify(made.path, BackupWatch())).manifest == made.manifest
    await gone(place)
    await backups.restore(made.path, BackupWatch())
    await gone(place)

    second = Life(place, tmp_path / "second")
    async with second.open() as runtime:
        letters = await all_letters(runtime)
        ids = {one.id for one in letters}
        assert set(before) <= ids, "what was acknowledged before it is in it"
        assert len(ids) == len(letters)
        was_sent = {one.id for one in letters if one.state is State.COMPLETED}
        assert await runtime.store.inbox.count_arrivals(ArrivalFilter(bot_id=BOT)) >= arrived
        await until_quiet(runtime)
        ended = await all_letters(runtime)
        assert {one.state for one in ended} == {State.COMPLETED}
        lanes = defaultdict(list)
        for one in second.telegram.sent:
            lanes[one.chat_id].append(one.text)
        for chat, texts in lanes.items():
            firsts = list(dict.fromkeys(texts))
            assert firsts == sorted(firsts), f"the lane of {chat} is in order"
        doubled = sum(len(texts) - len(set(texts)) for texts in lanes.values())
        assert doubled <= sum(one.uncertain_tries for one in ended)
        unsent = ids - was_sent
        wanted = {life.accepted[one] for one in unsent if one in life.accepted}
        assert wanted <= {f"{chat} {text}" for chat, texts in lanes.items() for text in texts}, "none of them is lost"
        (fresh,) = await runtime.outbox.service.accept([call(params={"chat_id": 5, "text": "new"})])
        assert fresh.letter_id not in ids, "its numbers go on"
        assert (await runtime.outbox.service.wait(fresh.letter_id, 60)).state is State.COMPLETED
    assert not life.surprises + second.surprises
