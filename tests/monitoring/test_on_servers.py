"""Figures and standings on every store that there is: what one node files, another one reads."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from peik.core import events
from peik.core.documents import DocumentStore
from peik.core.letter import State
from peik.core.lifecycle import Move
from peik.core.outcome import Delivered, Outcome
from peik.monitoring.counts import Counting
from peik.monitoring.figures import COLLECTION, SPANS, Figures
from peik.monitoring.pulse import COLLECTION as STANDINGS
from peik.monitoring.pulse import LEFT_MS, NodeStanding, NodeStandings
from peik.monitoring.values import Ongoing
from tests.storage.acts import NEVER, NOW, SENT, accept, attempt, draft, front
from tests.storage.all_places import PLACES
from tests.storage.places import BOT, Place

Story = Callable[[Place, Any], Coroutine[Any, Any, None]]
TROUBLE = Ongoing(name="BotPaused", bot_id=5, text="paused", since_ms=1, last_ms=1, count=1)


@pytest.fixture(params=PLACES, ids=lambda kind: kind.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made: Place = request.param(tmp_path)
    return made


def play(place: Place, story: Story) -> None:
    async def main() -> None:
        async with place.open() as store:  # type: ignore[attr-defined]
            await story(place, store)

    asyncio.run(main())


async def files(standings: NodeStandings, documents: DocumentStore, is_so: Callable[[list[str]], bool]) -> None:
    """Let it run until its collection is as it should be."""
    task = asyncio.create_task(standings.run())
    async with asyncio.timeout(60):
        while not is_so([document.body for document in await documents.documents(STANDINGS, limit=10)]):  # noqa: ASYNC110  another store
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


def test_bots_and_methods_of_all_nodes_are_told_apart_on_every_store_also_after_their_end(place: Place) -> None:
    async def story(place: Place, store: Any) -> None:
        clock = place.clock

        def node(name: str) -> Figures:
            return Figures(counting=Counting(), documents=store.documents, node=name, clock=clock, settled=clock)

        for name, bot_id in (("a", 5), ("b", 6), ("a", 5)):  # the last is the first one, started anew
            one = node(name)
            told = events.Settled(
                bot_id=bot_id, letter_id=1, method="sendMessage", chat=1, move=Move.DELIVER, state=State.COMPLETED,
                outcome=Delivered(result=b"true"), took_s=0.1, waited_s=0.2,
            )  # fmt: skip
            one.counting([told])
            await one.close()
            clock.pass_ms(1000)
        for span in SPANS:
            seen = await node("c").breakdown.seen(span)
            assert {row.name: row.total.done for row in seen.rows("bot")} == {"5": 2, "6": 1}
            assert {row.name: row.total.done for row in seen.rows("method")} == {"sendMessage": 3}

    play(place, story)


def test_what_one_node_counted_is_shown_by_another_also_after_its_end(place: Place) -> None:
    async def story(place: Place, store: Any) -> None:
        clock = place.clock

        def node(name: str) -> Figures:
            return Figures(counting=Counting(), documents=store.documents, node=name, clock=clock, settled=clock)

        one = node("a")
        one.counting([events.Accepted(count=3)])
        await one.close()
        clock.pass_ms(60_000)
        other = node("b")
        other.counting([events.Accepted(count=4)])
        assert sum(point.accepted for point in await other.last(1, 60)) == 7
        await other.close()
        clock.pass_ms(60_000)
        assert [point.accepted for point in await node("c").last(1, 60) if point.accepted] == [3, 4]
        assert await store.documents.count_documents(COLLECTION) == 2

    play(place, story)


def test_what_a_killed_life_had_not_filed_is_found_in_its_letters(place: Place) -> None:
    async def story(place: Place, store: Any) -> None:
        clock = place.clock
        clock.now_ms = NOW

        def node(name: str) -> Figures:
            return Figures(counting=Counting(), documents=store.documents, node=name, clock=clock, settled=clock)

        async def ended(since_ms: int, until_ms: int) -> dict[int, tuple[int, int]]:
            return dict(await store.ended_by_minute(since_ms=since_ms, until_ms=until_ms))

        async def send(figures: Figures, chat: int, outcome: Outcome) -> None:
            await accept(store, draft(chat))
            (letter,) = await front(store, chat)
            await attempt(store, letter, outcome, at_ms=clock.now_ms)
            state = State.COMPLETED if outcome is SENT else State.FAILED
            figures.counting([settled(state, outcome)])

        first = node("a")
        await send(first, 1, SENT)
        await first.close()  # that minute is filed
        clock.pass_ms(60_000)
        await send(first, 2, SENT)
        await send(first, 3, NEVER)  # and then it is killed
        clock.pass_ms(120_000)
        for name in ("b", "c"):  # the second finds nothing more to mend
            figures = node(name)
            await figures.mend(ended)
            hour = figures.series(1, 60)[1]
            assert (hour.delivered, hour.failed) == (2, 1), name
            await figures.close()
            clock.pass_ms(60_000)

    play(place, story)


def settled(state: State, outcome: Outcome) -> events.Settled:
    return events.Settled(
        bot_id=BOT, letter_id=1, method="sendMessage", chat=1, move=Move.DELIVER, state=state, outcome=outcome
    )


def test_what_a_node_knows_is_seen_until_it_is_gone_and_again_when_it_is_back(place: Place) -> None:
    async def story(place: Place, store: Any) -> None:
        documents, clock = store.documents, place.clock

        def node(name: str, *alerts: Ongoing) -> NodeStandings:
            own = NodeStanding(node=name, alerts=alerts)
            return NodeStandings(documents=documents, node=name, own=lambda: own, is_shared=True, clock=clock)

        one, other = node("a", TROUBLE), node("b")
        await files(one, documents, lambda bodies: len(bodies) == 1)
        assert [standing.alerts for standing in await other.others(["a", "b"])] == [(TROUBLE,)]
        clock.pass_ms(LEFT_MS + 1)
        assert not await other.others(["b"]), "it does not beat, and is taken for gone"
        assert await documents.count_documents(STANDINGS) == 0
        await files(one, documents, lambda bodies: len(bodies) == 1)
        assert [standing.node for standing in await other.others(["a", "b"])] == ["a"]
        await one.close()
        assert await documents.count_documents(STANDINGS) == 0

    play(place, story)
