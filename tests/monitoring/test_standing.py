"""What each node alone knows is seen by the others, and goes with the node."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from peik.monitoring.pulse import COLLECTION, NodeStanding, NodeStandings
from peik.monitoring.values import Ongoing
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.store import SqliteStore
from peik.testing.virtual import VirtualClock, run_virtual

TROUBLE = Ongoing(name="BotPaused", bot_id=5, text="paused", since_ms=1, last_ms=1, count=1)


class Nodes:
    def __init__(self, clock: VirtualClock, store: SqliteStore, group: asyncio.TaskGroup) -> None:
        self.documents = store.documents
        self.alerts: dict[str, tuple[Ongoing, ...]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._clock = clock
        self._group = group

    def node(self, name: str, *, is_shared: bool = True) -> NodeStandings:
        def own() -> NodeStanding:
            return NodeStanding(node=name, alerts=self.alerts.get(name, ()))

        made = NodeStandings(documents=self.documents, node=name, own=own, is_shared=is_shared, clock=self._clock)
        self.tasks[name] = self._group.create_task(made.run())
        return made


def play_nodes(story: Callable[[Nodes], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        store = SqliteStore(folder / "peik.db", clock=clock, is_owner=True, executor=lambda name: InlineExecutor())
        await store.open()
        async with asyncio.TaskGroup() as group:
            nodes = Nodes(clock, store, group)
            await story(nodes)
            for task in nodes.tasks.values():
                task.cancel()
        await store.close()

    run_virtual(main)


def test_a_trouble_of_one_node_is_seen_by_another_until_it_is_over(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        one, other = nodes.node("a"), nodes.node("b")
        nodes.alerts["a"] = (TROUBLE,)
        await asyncio.sleep(15)
        assert [standing.alerts for standing in await other.others(["a", "b"])] == [(TROUBLE,)]
        assert [standing.node for standing in await one.others(["a", "b"])] == ["b"]
        nodes.alerts.clear()
        await asyncio.sleep(15)
        assert [standing.alerts for standing in await other.others(["a", "b"])] == [()]

    play_nodes(story, tmp_path)


def test_a_node_that_is_gone_is_not_shown_and_its_paper_goes(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        ended, died, other = nodes.node("a"), nodes.node("c"), nodes.node("b")
        await asyncio.sleep(1)
        nodes.tasks.pop("a").cancel()
        await ended.close()
        nodes.tasks.pop("c").cancel()
        assert await nodes.documents.count_documents(COLLECTION) == 2
        assert [standing.node for standing in await other.others(["b"])] == []
        await asyncio.sleep(700)
        await other.others(["b"])
        assert await nodes.documents.count_documents(COLLECTION) == 1
        assert died is not None

    play_nodes(story, tmp_path)


def test_where_one_process_holds_the_whole_nothing_is_filed(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        alone = nodes.node("a", is_shared=False)
        await asyncio.sleep(100)
        assert await nodes.documents.count_documents(COLLECTION) == 0
        assert list(await alone.others(["a"])) == []
        await alone.close()

    play_nodes(story, tmp_path)
