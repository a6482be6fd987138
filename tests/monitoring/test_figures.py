"""Figures: minute by minute, over nodes and restarts, and in nobody's way."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.core import events
from peik.core.catalogue import Scope
from peik.core.documents import BODY_BYTES_MAX, DocumentStore, Filing
from peik.core.letter import State
from peik.core.lifecycle import Move
from peik.core.outcome import Delivered, Refused, Uncertain
from peik.errors import StoreUnavailable
from peik.jobs.events import JobEnd, JobRan
from peik.monitoring.counts import Counting
from peik.monitoring.figures import COLLECTION, PARTS_FRESH_S, PARTS_MAX, PARTS_UNFILED_MAX, SPANS, Figures
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.store import SqliteStore
from peik.testing.virtual import VirtualClock, run_virtual
from tests.outbox.story import BOT, Stage, play


def delivered(*, waited_s: float | None = 2.0, method: str = "sendMessage") -> events.Settled:
    return events.Settled(
        bot_id=5, letter_id=1, method=method, chat=1, move=Move.DELIVER, state=State.COMPLETED,
        outcome=Delivered(result=b"true"), took_s=0.1, waited_s=waited_s,
    )  # fmt: skip


def doubted() -> events.Settled:
    return events.Settled(
        bot_id=5, letter_id=1, method="sendMessage", chat=1, move=Move.BACK_OFF, state=State.DELAYED,
        outcome=Uncertain(why="gone"), took_s=75.0,
    )  # fmt: skip


class Weather:
    """Documents that cannot be filed for a while."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents
        self.is_bad = False

    def __getattr__(self, name: str) -> Any:
        if self.is_bad:
            raise StoreUnavailable(code="store_full", detail="The disk is full.")
        return getattr(self._documents, name)


class House:
    """One store, and as many nodes as a story needs."""

    def __init__(self, clock: VirtualClock, store: SqliteStore, group: asyncio.TaskGroup) -> None:
        self.clock = clock
        self.documents = Weather(store.documents)
        self._group = group
        self._running: dict[Figures, asyncio.Task[None]] = {}

    def node(self, name: str = "a") -> Figures:
        figures = Figures(
            counting=Counting(),
            documents=self.documents,  # type: ignore[arg-type]
            node=name,
            clock=self.clock,
            settled=self.clock,
        )
        self._running[figures] = self._group.create_task(figures.run())
        return figures

    def kill(self, figures: Figures) -> None:
        self._running.pop(figures).cancel()

    def end(self) -> None:
        for one in list(self._running):
            self.kill(one)


def play_figures(story: Callable[[House], Coroutine[Any, Any, None]], tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with _opened(clock, tmp_path) as house:
            await story(house)

    run_virtual(main)


@asynccontextmanager
async def _opened(clock: VirtualClock, folder: Path) -> AsyncIterator[House]:
    store = SqliteStore(folder / "peik.db", clock=clock, is_owner=True, executor=lambda name: InlineExecutor())
    await store.open()
    try:
        async with asyncio.TaskGroup() as group:
            house = House(clock, store, group)
            await asyncio.sleep(60 - clock.wall_ms() % 60_000 / 1000)
            yield house
            house.end()
    finally:
        await store.close()


def hear(figures: Figures, *told: events.Event) -> None:
    figures.counting(told)


async def totals(figures: Figures, hours: float = 24) -> int:
    return sum(point.delivered for point in await figures.last(hours, 900))


def test_each_minute_has_its_own_figures(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        figures = house.node()
        hear(figures, events.Accepted(count=3), delivered(waited_s=1.0), doubted())
        await asyncio.sleep(61)
        hear(figures, delivered(waited_s=100.0), events.Held(bot_id=5, chat=None, wait_s=2.5))
        points = await figures.last(1, 60)
        assert len(points) == 60
        before, now = points[-2:]
        assert (before.accepted, before.delivered, before.uncertain, before.retried) == (3, 1, 1, 1)
        assert (now.accepted, now.delivered, now.held, now.held_s) == (0, 1, 1, 2.5)
        assert now.at_ms - before.at_ms == 60_000
        assert before.end_to_end is not None
        assert now.end_to_end is not None
        assert before.end_to_end.p50_s <= 1.5 < 70 < now.end_to_end.p50_s

    play_figures(story, tmp_path)


def test_any_node_shows_the_whole(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        one, other = house.node("a"), house.node("b")
        hear(one, delivered(), delivered())
        hear(other, delivered())
        await asyncio.sleep(70)
        assert await totals(one) == await totals(other) == 3
        hear(other, delivered())
        assert (await totals(one), await totals(other)) == (3, 4)  # what happens just now, each knows of itself
        await asyncio.sleep(70)
        assert await totals(one) == await totals(other) == 4

    play_figures(story, tmp_path)


def test_a_node_that_ends_leaves_what_it_counted(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        one = house.node()
        hear(one, delivered())
        await asyncio.sleep(5)
        house.kill(one)
        await one.close()
        again = house.node()  # of the same name, within the same minute
        hear(again, delivered())
        assert await totals(again) == 2
        await asyncio.sleep(120)
        assert await totals(again) == await totals(house.node("c")) == 2

    play_figures(story, tmp_path)


def test_a_store_that_fails_costs_time_and_nothing_else(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        one = house.node()
        house.documents.is_bad = True
        for _ in range(5):
            hear(one, delivered())
            await asyncio.sleep(60)
        assert await totals(one) == 5
        house.documents.is_bad = False
        await asyncio.sleep(60)
        assert await totals(house.node("b")) == 5
        assert await totals(one) == 5

    play_figures(story, tmp_path)


def test_what_others_file_late_is_seen_later(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        one = house.node()
        hear(one, delivered())
        await asyncio.sleep(60)
        assert await totals(one) == 1
        late = house.clock.wall_ms() // 60_000 - 30
        await house.documents.file(
            [Filing(collection=COLLECTION, key=f"{late:010d}:z:1", body='{"counts": {"delivered": 7}}')]
        )
        await asyncio.sleep(400)
        assert await totals(one) == 8

    play_figures(story, tmp_path)


def test_documents_of_another_version_are_left_out(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        minute = house.clock.wall_ms() // 60_000
        bodies = ["[]", '{"counts": {"delivered": 1, "unheard_of": 5}, "more": {}}', '{"counts": "many"}']
        await house.documents.file(
            [Filing(collection=COLLECTION, key=f"{minute:010d}:z:{at}", body=body) for at, body in enumerate(bodies)]
        )
        assert await totals(house.node()) == 1

    play_figures(story, tmp_path)


def test_two_days_are_kept_and_no_more(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        one = house.node()
        for _ in range(60):
            hear(one, delivered())
            await asyncio.sleep(3600)
        assert 48 <= await house.documents.count_documents(COLLECTION) <= 50
        assert 23 <= await totals(one) <= 25
        assert len(one._minutes) <= 26

    play_figures(story, tmp_path)


def test_nothing_is_filed_while_nothing_happens(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        one = house.node()
        hear(one, delivered())
        await asyncio.sleep(30 * 86400)  # at a look every ten seconds, virtual time would take long for this
        assert await house.documents.count_documents(COLLECTION) == 1
        assert one.now().delivered == 0

    play_figures(story, tmp_path)


def test_a_wall_clock_that_is_put_back_doubles_nothing(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        one, other = house.node(), house.node("b")
        hear(one, delivered())
        await asyncio.sleep(70)
        assert await totals(other) == 1
        house.clock.wall_offset_s -= 120
        hear(one, delivered())
        await asyncio.sleep(70)
        hear(one, delivered())
        await asyncio.sleep(70)
        assert await totals(one) == 3
        await asyncio.sleep(400)
        assert await totals(other) == 3

    play_figures(story, tmp_path)


def test_now_is_the_last_minute(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        one = house.node()
        for _ in range(600):
            hear(one, delivered())
            await asyncio.sleep(0.5)
        now = one.now()
        assert 58 <= now.seconds <= 70
        assert now.delivered / now.seconds == pytest.approx(2.0, rel=0.05)
        await asyncio.sleep(200)
        assert one.now().delivered == 0

    play_figures(story, tmp_path)


# ---- what the sender says of its letters ----


def test_a_delivery_says_how_long_it_took_and_how_long_it_waited() -> None:
    async def story(stage: Stage) -> None:
        for number in range(4):
            await stage.text(1, str(number))
        await stage.quiet()
        told = stage.events_of(events.Settled)
        assert [type(event.outcome) for event in told] == [Delivered] * 4
        assert all(event.took_s is not None and event.took_s >= 0 for event in told)
        waited = [event.waited_s for event in told]
        assert waited == sorted(waited)
        assert waited[-1] >= 1.0  # after a few at once, one a second to one chat
        assert [event.bot_id for event in told] == [BOT] * 4

    play(story)


# ---- by bot, method and kind of jobs ----


def ran(kind: str, state: State, run_s: float = 3.0) -> JobRan:
    end = JobEnd.DONE if state is State.COMPLETED else JobEnd.FAILED
    return JobRan(job_id=1, kind=kind, user="u", run=1, end=end, state=state, reason=None, run_s=run_s)


def dead(bot_id: int = 5) -> events.Settled:
    return events.Settled(
        bot_id=bot_id, letter_id=1, method="sendPhoto", chat=1, move=Move.GIVE_UP, state=State.FAILED,
        outcome=Refused(code=400, words="Bad Request", advice="", scope=Scope.MESSAGE), took_s=0.1,
    )  # fmt: skip


async def parts(figures: Figures, by: str, span: str = "3h") -> dict[str, tuple[int, int, int]]:
    await asyncio.sleep(PARTS_FRESH_S + 1)
    rows = (await figures.breakdown.seen(span)).rows(by)
    return {row.name: (row.total.done, row.total.failed, row.total.retried) for row in rows}


def test_bots_methods_and_kinds_are_told_apart_in_each_span(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        figures = house.node()
        hear(figures, delivered(waited_s=1.0), delivered(method="sendPhoto"), dead(6), doubted())
        hear(figures, ran("film", State.COMPLETED), ran("film", State.DELAYED), ran("film", State.FAILED))
        hear(
            figures,
            events.Arrived(bot_id=7, stored=4, duplicates=0, last_number=4),
            events.Held(bot_id=6, chat=None, wait_s=1),
        )
        await asyncio.sleep(11)
        for span in SPANS:
            assert await parts(figures, "bot", span) == {"5": (2, 0, 1), "6": (0, 1, 0), "7": (0, 0, 0)}
            assert await parts(figures, "method", span) == {"sendMessage": (1, 0, 1), "sendPhoto": (1, 1, 0)}
            assert await parts(figures, "kind", span) == {"film": (1, 1, 1)}
        rows = {row.name: row for row in (await figures.breakdown.seen("day")).rows("bot")}
        assert rows["7"].total.updates == 4
        assert (rows["6"].total.held, rows["5"].total.uncertain) == (1, 1)
        assert rows["5"].total.took is not None
        assert sum(point.done for point in rows["5"].points) == rows["5"].total.done
        assert len(rows["5"].points) == SPANS["day"].steps

    play_figures(story, tmp_path)


def test_a_restart_loses_nothing_of_them_and_a_kill_ten_seconds_at_most(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        first = house.node()
        hear(first, delivered())
        await asyncio.sleep(11)
        hear(first, delivered())
        await asyncio.sleep(3)
        await first.close()  # as Peik ends
        house.kill(first)
        second = house.node()
        assert await parts(second, "bot") == {"5": (2, 0, 0)}
        hear(second, delivered())
        await asyncio.sleep(11)
        hear(second, delivered())
        house.kill(second)  # nobody files the last one
        third = house.node("b")
        assert await parts(third, "bot") == {"5": (3, 0, 0)}
        hear(third, delivered())
        await asyncio.sleep(3600)
        assert await parts(third, "bot", "month") == {"5": (4, 0, 0)}

    play_figures(story, tmp_path)


def test_all_nodes_are_counted_and_each_stretch_by_itself(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        one, two = house.node("a"), house.node("b")
        hear(one, delivered())
        hear(two, delivered(), delivered())
        await asyncio.sleep(600)
        hear(two, delivered())
        await asyncio.sleep(15)
        seen = await one.breakdown.seen("3h")
        assert [point.done for point in seen.row("bot", "5").points if point.done] == [3, 1]
        assert seen.row("bot", "unheard of").total.done == 0

    play_figures(story, tmp_path)


def test_a_store_that_fails_for_a_while_gets_them_later(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        figures = house.node()
        house.documents.is_bad = True
        for _ in range(40):  # over three hours
            hear(figures, delivered())
            await asyncio.sleep(300)
        assert len(figures.breakdown.unfiled) <= PARTS_UNFILED_MAX
        house.documents.is_bad = False
        hear(figures, delivered())
        await asyncio.sleep(20)
        assert not figures.breakdown.unfiled
        house.kill(figures)
        assert (await parts(house.node("b"), "bot", "day"))["5"][0] >= PARTS_UNFILED_MAX // 2

    play_figures(story, tmp_path)


def test_what_is_beyond_the_busiest_is_counted_together_and_a_document_holds_it(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        figures = house.node()
        for bot_id in range(1, 901):
            told = [
                msgspec.structs.replace(delivered(waited_s=float(n)), bot_id=bot_id) for n in (1, 2, 4, 9, 20, 70, 200)
            ]
            hear(figures, *told, *([told[0]] if bot_id <= 499 else []))
        hear(figures, *(delivered(method=f"method{number}") for number in range(2500)))
        await asyncio.sleep(11)
        named = await parts(figures, "bot")
        assert len(named) == PARTS_MAX["bot"] + 1
        assert named["7"] == (8, 0, 0)
        assert sum(done for done, _, _ in named.values()) == 900 * 7 + 499 + 2500
        assert sum(done for done, _, _ in (await parts(figures, "method")).values()) == 900 * 7 + 499 + 2500
        bodies = [one.body for one in await house.documents.documents("figures_1h", limit=10)]
        assert 10_000 < max(map(len, bodies)) < BODY_BYTES_MAX
        assert not figures.breakdown.unfiled

    play_figures(story, tmp_path)


def test_they_go_when_they_are_old_and_nothing_is_written_while_nothing_happens(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        figures = house.node()
        hear(figures, delivered())
        await asyncio.sleep(65)
        for collection in ("figures_5m", "figures_1h"):
            assert await house.documents.count_documents(collection) == 1
        versions = [(one.key, one.version) for one in await house.documents.documents("figures_5m", limit=9)]
        await asyncio.sleep(3600)
        assert [(one.key, one.version) for one in await house.documents.documents("figures_5m", limit=9)] == versions
        await asyncio.sleep(40 * 86_400)
        hear(figures, delivered())
        await asyncio.sleep(65)
        for collection in ("figures_5m", "figures_1h"):
            assert await house.documents.count_documents(collection) == 1
        await house.documents.file([Filing(collection="figures_5m", key="not a minute", body="[]")])
        await house.documents.file([Filing(collection="figures_5m", key="9999999999:x", body='"of a later version"')])
        assert await parts(figures, "bot") == {"5": (1, 0, 0)}

    play_figures(story, tmp_path)
