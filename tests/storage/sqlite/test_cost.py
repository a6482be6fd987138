"""What the store's queries cost, counted in SQLite's own steps and plans and never in time."""

import asyncio
import re
from typing import Any

import apsw

from peik.core.letter import LaneKey, State
from peik.core.lifecycle import settle
from peik.outbox.store import LetterFilter
from peik.storage.sqlite import reads
from peik.storage.sqlite.statements import load
from peik.storage.sqlite.store import SqliteStore
from tests.storage.acts import HOUR, LATER, NOW, accept, advance, draft, mark
from tests.storage.places import BOT, OTHER_BOT, SqlitePlace

# Every query that looks at each row of a table, and why it may. All others must find their rows by an index.
MAY_SCAN = {
    "left_in_flight": "marks hold what is in flight: 64 per bot",
    "adopt_marks": "the same, at start",
    "in_flight": "the same, for people",
    "tallies": "one row per bot",
    "bots": "one row per bot",
}
WIDTHS = {
    "number": 4,
    "accept_plain": 11,
    "accept_traced": 12,
    "accept_full": 26,
    "find_aliases": 2,
    "find_keys": 3,
    "keep_keys": 5,
    "settle": 9,
    "end_unsent": 5,
    "mark": 7,
    "tally": 6,
    "keep_results": 2,
    "join": 2,
    "follow": 2,
    "share_results": 2,
}
WHOLE = {
    "sweep": reads.SWEEP,
    "fronts": reads.FRONTS,
    "letters": reads.LETTERS,
    "left_in_flight": reads.LEFT_IN_FLIGHT,
}


async def test_only_these_queries_look_at_every_row(place: SqlitePlace) -> None:
    async with place.open() as store:
        plans = {name: _plan(store._connection, name) for name in load("sqlite.sql") if name != "front"}
    scanning = {name for name, steps in plans.items() if any(map(_is_scan, steps))}
    assert scanning == set(MAY_SCAN)


def _plan(connection: apsw.Connection, name: str) -> list[str]:
    one = f"({','.join('?' * WIDTHS.get(name, 1))})"
    sql = WHOLE.get(name, load("sqlite.sql")[name]).replace("{rows}", f"{one}, {one}, {one}")
    named = dict.fromkeys(re.findall(r":(\w+)", sql))
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", named or [None] * sql.count("?"))]


_OURS = r"\d+-ROW|(\d+ )?CONSTANT ROW|\w+ VIRTUAL|\(subquery|(lane|other|gave_way|v|asked|o|ended)\b"


def _is_scan(step: str) -> bool:
    """Not of rows that we bring along, of no table, of our own recursive tables, or of a subquery that has its own line."""
    return re.match(rf"SCAN (?!{_OURS})", step) is not None


# ---- steps of SQLite's machine ----


class Meter:
    """How many steps a connection has taken since it was last asked."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._steps: dict[str, int] = {}
        self._read = 0
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note)

    def _note(self, event: dict[str, Any]) -> None:
        # SQLite counts per prepared statement, and those are kept for the next time.
        self._steps[event["sql"]] = event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def steps(self) -> int:
        before, self._read = self._read, sum(self._steps.values())
        return self._read - before


async def sweep_steps(store: SqliteStore, meter: Meter, after: LaneKey | None) -> int:
    found = await store.sweep(BOT, 2, after, lanes=8, letters=16)
    assert len(found.lanes) == 8
    return meter.steps()


async def test_a_lane_of_5000_letters_costs_a_sweep_no_more_than_one_of_50(place: SqlitePlace) -> None:
    async with place.open() as store:
        meter = Meter(store._reader)
        await accept(store, *(draft(chat) for chat in range(1, 10)), *(draft(5) for _ in range(50)))
        before = [await sweep_steps(store, meter, after) for after in (None, (1, 0))]
        await accept(store, *(draft(5) for _ in range(5000)), *(draft(5, bot_id=OTHER_BOT) for _ in range(500)))
        after = [await sweep_steps(store, meter, after) for after in (None, (1, 0))]
        assert all(abs(now - then) < 10 for now, then in zip(after, before, strict=True)), (before, after)


async def test_a_sweep_costs_the_same_wherever_its_cursor_stands(place: SqlitePlace) -> None:
    async with place.open() as store:
        meter = Meter(store._reader)
        await accept(store, *(draft(chat) for chat in range(1, 3001)))
        first = await sweep_steps(store, meter, None)
        assert abs(await sweep_steps(store, meter, (2900, 0)) - first) < 50


async def test_looking_for_due_letters_does_not_walk_over_those_that_back_off(place: SqlitePlace) -> None:
    async with place.open() as store:
        ids = await accept(store, *(draft(chat) for chat in range(1, 501)), draft(1, send_at_ms=NOW + 5))
        letters = [
            one
            for lane in (await store.sweep(BOT, 2, None, lanes=500, letters=1)).lanes.values()
            for one in lane.letters
        ]
        await mark(store, *letters)
        await advance(store, [settle(one, LATER, at_ms=NOW - HOUR) for one in letters], [])
        meter = Meter(store._connection)
        assert await store.join_due(at_ms=NOW + 4, limit=100) == (0, NOW + 5)
        assert meter.steps() < len(ids)


# ---- keys and hooks ----


async def test_keys_and_hooks_are_found_by_an_index_but_for_keys_which_are_read_whole(place: SqlitePlace) -> None:
    async with place.open() as store:
        scanning = set()
        for file in ("sqlite_keys.sql", "sqlite_hooks.sql"):
            widths = {"note_use": 2, "defer": 4}
            for name, sql in load(file).items():
                one = f"({','.join('?' * widths.get(name, 1))})"
                asked = sql.replace("{rows}", f"{one}, {one}")
                names = set(re.findall(r":([a-z]\w*)", asked))
                bound = [None] * (asked.count("?") + len(names))
                rows = store._connection.execute(f"EXPLAIN QUERY PLAN {asked}", bound)
                if any(_is_scan(row[3]) and "COVERING INDEX hooks_endpoint" not in row[3] for row in rows):
                    scanning.add(name)
    assert scanning == {"keys", "count"}


async def test_no_statement_is_prepared_anew_for_other_values(place: SqlitePlace) -> None:
    """SQLite does so for what is bound to a LIMIT, unless it is told not to; it takes ten times as long as the sweep itself."""
    prepared: dict[str, int] = {}

    def note(event: dict[str, Any]) -> None:
        prepared[event["sql"]] = event["stmt_status"]["SQLITE_STMTSTATUS_REPREPARE"]

    async with place.open() as store:
        await accept(store, *(draft(chat) for chat in range(1, 10)))
        store._reader.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
        for lanes in (2, 3, 4):
            await store.sweep(BOT, 2, None, lanes=lanes, letters=lanes)
            await store.fronts(BOT, [(1, 0)], letters=lanes)
            await store.page(LetterFilter(state=State.WAITING), before=None, limit=lanes)
        store._reader.trace_v2(0, None)
    assert prepared
    assert set(prepared.values()) == {0}


async def test_a_hundred_senders_that_begin_look_through_the_last_minute_few_times(place: SqlitePlace) -> None:
    """Once for the first, and once for all who have asked meanwhile."""
    async with place.open() as store:
        said: list[str] = []
        store._reader.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: said.append(event["sql"]))
        await asyncio.gather(*(store.recent_tries(bot, since_ms=NOW) for bot in range(1, 101)))
        store._reader.trace_v2(0, None)
    assert 1 <= sum("letters_done" in sql for sql in said) < 100
