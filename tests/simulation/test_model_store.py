"""The model of a server is a store like PostgreSQL's and Redis's: the stories of the conformance suite are told on it, too."""

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from peik.core.lifecycle import settle
from peik.errors import InDoubt, StoreUnavailable
from peik.outbox.store import Marked, Store
from simulation import processes
from simulation.model_store import ModelStore
from simulation.processes import Process, WorldLoop, run_world
from simulation.server import Server
from simulation.wire import Link
from tests.storage.acts import BROKE_OFF, NOW, SENT, accept, draft, find, state
from tests.storage.conformance import test_news, test_nodes
from tests.storage.places import BOT, StorePlace, take_leases

STORY_S_MAX = 300.0  # of virtual time
Story = Callable[..., Coroutine[Any, Any, None]]

# They make a store of their own from an address, or end one as a server's client is ended.
OTHERS = {
    "test_leases_end_by_themselves_when_no_beat_comes",
    "test_a_node_is_shown_with_what_it_holds",
    "test_a_node_that_dies_again_and_again_takes_no_bot_out_of_service",
}


class ModelPlace(StorePlace[ModelStore]):
    """One server without faults, unless a story brings some to its `link`."""

    def __init__(self, loop: WorldLoop, folder: Path) -> None:
        super().__init__()
        self._loop = loop
        self.link = Link()
        self.server = Server(loop, folder / "peik.db", note=print, granted=lambda *_: None, began_ms=NOW)
        self.server.start()
        self._made = 0

    def make(self, *, is_owner: bool) -> ModelStore:
        self._made += 1
        return ModelStore(
            self.server,
            process=Process(f"node{self._made}", self._loop),
            link=self.link,
            chance=random.Random(self._made),
            node=f"node{self._made}/1",
            clock=self.clock,
            lease_s=10.0,
            address=None,
            on_blobs_freed=self.freed.extend,
        )

    @asynccontextmanager
    async def open(self, *, is_owner: bool = True) -> AsyncIterator[ModelStore]:
        async with super().open(is_owner=is_owner) as store:
            if is_owner:
                await take_leases(store)
                store.epoch = (await store.nodes.beat()).leases.get(BOT, 0)  # under which the stories act for the bot
            yield store

    async def crash(self, store: Store) -> None:
        self._crashed.add(id(store))
        self.expire_leases()

    def expire_leases(self) -> None:
        for table in ("model_nodes", "model_locks"):
            self.server.session.execute(f"UPDATE {table} SET ends_at = 0")

    unseat = expire_leases

    def season(self) -> None:
        self.server.session.execute("UPDATE model_nodes SET started_at = 0")

    def free_for_long(self) -> None:
        self.server.session.execute("UPDATE model_leases SET free_since = 0 WHERE free_since IS NOT NULL")


def stories() -> Iterator[Story]:
    for module in (test_nodes, test_news):
        for name, story in vars(module).items():
            is_plain = inspect.iscoroutinefunction(story) and list(inspect.signature(story).parameters) == ["place"]
            if name.startswith("test_") and is_plain and name not in OTHERS:
                yield story


def tell(story: Story, folder: Path) -> None:
    async def told(loop: WorldLoop, _: object) -> None:
        loud: list[object] = []
        loop.set_exception_handler(lambda _, context: loud.append(context))
        with processes.watched():
            place = ModelPlace(loop, folder)
            async with asyncio.timeout(STORY_S_MAX):
                await story(place)
            process = place.server.process
            assert process is not None
            place.server.died(process)
            await asyncio.sleep(0)
        assert loud == []

    run_world(told)


@pytest.mark.parametrize("story", list(stories()), ids=lambda story: story.__name__)
def test_what_every_store_does_it_does(story: Story, tmp_path: Path) -> None:
    tell(story, tmp_path)


# ---- what only a network can do ----


async def step(store: ModelStore, epoch: int, **how: Any) -> Marked:
    answered: asyncio.Future[Marked] = asyncio.get_running_loop().create_future()
    store.advance(how.get("settled", ()), how.get("marks", ()), epoch=epoch, at_ms=NOW, done=answered.set_result)
    return await answered


def test_what_is_lost_on_the_way_is_not_done(tmp_path: Path) -> None:
    async def story(place: ModelPlace) -> None:
        async with place.open() as store:
            place.link.lost_before = 1.0
            with pytest.raises(InDoubt):
                await accept(store, draft(1))
            place.link.clear()
            assert (await store.tallies(at_ms=NOW))[BOT].waiting == 0

    tell(story, tmp_path)


def test_what_is_lost_on_the_way_back_is_done_and_looked_for(tmp_path: Path) -> None:
    async def story(place: ModelPlace) -> None:
        async with place.open() as store:
            place.link.lost_after = 1.0
            with pytest.raises(InDoubt):
                await accept(store, draft(1))
            place.link.clear()
            assert (await store.nodes.news()).is_all
            assert (await store.tallies(at_ms=NOW))[BOT].waiting == 1

    tell(story, tmp_path)


@pytest.mark.parametrize("is_done", [True, False])
def test_a_mark_in_doubt_is_not_believed_and_gone_with_the_next_commit(tmp_path: Path, is_done: bool) -> None:
    async def story(place: ModelPlace) -> None:
        async with place.open() as store:
            letter = await find(store, (await accept(store, draft(1)))[0])
            place.link.lost_after, place.link.lost_before = (1.0, 0.0) if is_done else (0.0, 1.0)
            assert isinstance((await step(store, store.epoch, marks=[letter])).error, StoreUnavailable)
            place.link.clear()
            assert await state(store, letter.id) == ("active" if is_done else "waiting")
            await accept(store, draft(2))
            assert await state(store, letter.id) == "waiting"

    tell(story, tmp_path)


def test_a_settlement_in_doubt_that_was_not_made_keeps_its_mark(tmp_path: Path) -> None:
    """The commit that would have settled a try and marked the next one never came: the first mark stands for its try."""

    async def story(place: ModelPlace) -> None:
        async with place.open() as store:
            letter = await find(store, (await accept(store, draft(1)))[0])
            await step(store, store.epoch, marks=[letter])
            place.link.lost_before = 1.0
            await step(store, store.epoch, settled=[settle(letter, BROKE_OFF, at_ms=NOW)], marks=[letter])
            place.link.clear()
            await accept(store, draft(2))
            assert await state(store, letter.id) == "active"
            await step(store, store.epoch, settled=[settle(letter, SENT, at_ms=NOW)])
            assert await state(store, letter.id) == "completed"

    tell(story, tmp_path)


def test_a_server_that_was_killed_has_what_it_said_to_have(tmp_path: Path) -> None:
    async def story(place: ModelPlace) -> None:
        async with place.open() as store:
            (letter_id,) = await accept(store, draft(1))
            epoch = store.epoch
            process = place.server.process
            assert process is not None
            place.server.died(process)
            with pytest.raises(StoreUnavailable):
                await store.letter(letter_id)
            place.server.start()
            assert await state(store, letter_id) == "waiting"
            assert (await store.nodes.beat()).leases[BOT] == epoch
            assert (await step(store, epoch, marks=[await find(store, letter_id)])).taken is None

    tell(story, tmp_path)
