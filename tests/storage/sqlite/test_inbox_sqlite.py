"""What is SQLite's own of the inbox: views for other programs, what queries cost, faults, several processes on one file."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import apsw
import msgspec
import pytest

from peik.core.arrival import ConsumerProgress
from peik.core.letter import State
from peik.errors import StoreUnavailable
from peik.inbox.store import ArrivalFilter, ArrivalRetention, Burial, Consumer, InboxStore
from peik.storage.inbox import over_for
from peik.storage.sqlite import inbox as inbox_upkeep
from peik.storage.sqlite.rows import ARRIVAL
from peik.storage.sqlite.statements import load
from peik.storage.sqlite.store import SqliteStore
from tests.storage.inbox_acts import (
    FIRST,
    HOUR,
    NOW,
    bury,
    found,
    message,
    messages,
    named,
    numbers,
    open_inbox,
    press,
    put_off,
    raw,
    settle,
    take,
)
from tests.storage.places import BOT, OTHER_BOT, SqlitePlace
from tests.storage.sqlite.older import rewind
from tests.storage.sqlite.test_cost import Meter


def ask(path: Path, query: str) -> list[dict[str, object]]:
    """As any program would, with the standard library's sqlite3. In a process of its own: the store is open in this one, and two
    SQLite libraries in a process take each other's locks away."""
    program = (
        "import json, sqlite3, sys; db = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True);"
        "db.row_factory = sqlite3.Row; print(json.dumps([dict(row) for row in db.execute(sys.argv[2])]))"
    )
    said = subprocess.run([sys.executable, "-c", program, str(path), query], capture_output=True, check=True)
    rows: list[dict[str, object]] = json.loads(said.stdout)
    return rows


# ---- the views bot_state and pending_messages (docs/inbox.md) ----


async def test_bot_state_answers_as_the_document_asks(place: SqlitePlace) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        assert ask(place.path, "SELECT last_update_id, last_seen FROM bot_state") == [
            {"last_update_id": None, "last_seen": None}
        ]
        await take(store.inbox, *messages(3), at_ms=NOW + 1)
        await store.inbox.note_seen(BOT, at_ms=NOW + 2)
        assert ask(place.path, "SELECT * FROM bot_state WHERE bot_id = 7") == [
            {
                "bot_id": BOT,
                "last_update_id": FIRST + 2,
                "epoch": 1,
                "last_startup": "2027-01-15T08:00:00.000Z",
                "last_seen": "2027-01-15T08:00:00.002Z",
                "updated_at": "2027-01-15T08:00:00.002Z",
                "id": 1,
            }
        ]
        await open_inbox(store.inbox, OTHER_BOT)
        assert ask(place.path, "SELECT last_update_id FROM bot_state WHERE id = 1") == [{"last_update_id": FIRST + 2}]
        assert [row["id"] for row in ask(place.path, "SELECT id FROM bot_state ORDER BY id")] == [1, 2]


async def test_settings_name_the_bots_and_give_no_token_out(place: SqlitePlace) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        (row,) = ask(place.path, "SELECT setting_key, bot_token, created_at FROM telegram_settings WHERE bot_id = 7")
        assert (row["setting_key"], row["bot_token"]) == ("bot_token:7", "7:…")
        assert row["created_at"].endswith("Z")


async def test_pending_messages_answers_as_the_document_asks(place: SqlitePlace) -> None:
    query = "SELECT * FROM pending_messages WHERE status = 'pending' ORDER BY created_at"
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        photo = raw(3, {"message": {"message_id": 30, "date": NOW // 1000 + 9, "chat": {"id": -5}, "caption": "a cat"}})
        await take(store.inbox, message(1), message(2, chat=4, user=40, text="سلام"), photo, at_ms=NOW + HOUR)
        await take(store.inbox, press(4, message_id=1), message(5, text="dead"), message(6, text="done"), at_ms=NOW)
        await settle(store.inbox, default, 1, 6)
        await bury(store.inbox, default, 5)
        await put_off(store.inbox, default, 2)
        rows = ask(place.path, query)
        assert [(row["update_id"], row["text"]) for row in rows] == [(2, "سلام"), (4, "yes"), (3, "a cat")]
        assert rows[0] == {
            "id": 2,
            "bot_id": BOT,
            "update_id": 2,
            "user_id": 40,
            "chat_id": 4,
            "message_id": 20,
            "text": "سلام",
            "message_type": "message",
            "status": "pending",
            "created_at": "2027-01-15T08:00:00.000Z",
            "received_at": "2027-01-15T09:00:00.000Z",
            "message_text": "سلام",
        }
        told = {row["update_id"]: row["status"] for row in ask(place.path, "SELECT * FROM pending_messages")}
        assert told == {1: "completed", 2: "pending", 3: "pending", 4: "pending", 5: "failed", 6: "completed"}


async def test_types_that_nobody_knows_do_not_spoil_the_view(place: SqlitePlace) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        strange = ['a"b', "a.b", "$[0]", "new_thing2", ""]
        updates = [raw(index, {kind: {"text": "x"}}) for index, kind in enumerate(strange, start=1)]
        await take(
            store.inbox,
            *(msgspec.structs.replace(update, type=kind) for update, kind in zip(updates, strange, strict=True)),
            msgspec.structs.replace(raw(6, {}), payload="[" * 2000),
            raw(7, {"message": 5}),
            message(8),
        )
        rows = ask(place.path, "SELECT message_type, text FROM pending_messages ORDER BY id")
        assert [row["text"] for row in rows] == [None, None, None, "x", None, None, None, "hi"]


async def test_replays_for_others_are_no_pending_messages(place: SqlitePlace) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await take(store.inbox, message(1))
        await store.inbox.replay(ArrivalFilter(), other.id, after=0, up_to=9, limit=9, at_ms=NOW)
        assert [row["id"] for row in ask(place.path, "SELECT id FROM pending_messages")] == [1]


# ---- what queries cost ----

MAY_SCAN = {
    "find_any": "walks the primary key from a cursor until a page is full",
    "consumers": "a few rows per bot",
    "filtered_consumers": "the same",
    "filtered_bots": "one row per bot",
    "inboxes": "the same",
    "idle_consumers": "a few rows per bot, once an hour",
    "checkpoint": "the same",
    "floors": "the same",
    "forget_checkpoints": "a week of hours per consumer, once an hour",
}
WIDTHS = {
    "take_in": 12,
    "taken_in": 8,
    "find_updates": 3,
    "find_digests": 6,
    "find_handled": 3,
    "note_handled": 4,
    "handled_here": 6,
    "touch_consumers": 2,
    "keep_spans": 3,
    "defer": 5,
    "bury": 6,
}
PARTS = {"is_over", "ids", "count", "of_bot", "of_bots"}  # put into or around others
SORTS = {"deliveries": "one page of arrivals, and the consumers of a bot"}


async def test_only_these_queries_of_the_inbox_look_at_every_row_or_sort(place: SqlitePlace) -> None:
    async with place.open() as store:
        plans = {
            name: _plan(store._connection, name, sql)
            for file in ("sqlite_inbox.sql", "sqlite_arrivals.sql")
            for name, sql in load(file).items()
            if name not in PARTS
        }
    scanned = re.compile(r"SCAN (?!\d+-ROW|CONSTANT|\w+ VIRTUAL|\(subquery|p\b|owner\b)")
    assert {name for name, steps in plans.items() if any(map(scanned.match, steps))} == set(MAY_SCAN)
    assert {name for name, steps in plans.items() if any("TEMP B-TREE" in step for step in steps)} == set(SORTS)


def _plan(connection: apsw.Connection, name: str, sql: str) -> list[str]:
    one = f"({','.join('?' * WIDTHS.get(name, 1))})"
    fills = {
        "{is_over}": over_for(inbox_upkeep.SqliteInbox.sql),
        "{rows}": f"{one}, {one}, {one}",
        "{arrival}": ARRIVAL,
        "{where}": "true",
        "{order}": "DESC",
    }
    for mark, text in fills.items():
        sql = sql.replace(mark, text)
    bound = dict.fromkeys(re.findall(r":(\w+)", sql)) or [None] * sql.count("?")
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bound)]


async def page_steps(inbox: InboxStore, meter: Meter, consumer: Consumer, after: int, **more: object) -> int:
    assert len(await inbox.arrivals_after(consumer.id, after, limit=50, **more)) == 50  # type: ignore[arg-type]
    return meter.steps()


async def test_a_page_costs_the_same_at_any_depth_and_however_many_are_stored(place: SqlitePlace) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        await open_inbox(store.inbox, OTHER_BOT)
        meter = Meter(store._reader)
        await take(store.inbox, *messages(200, first=1, lanes=2))
        few = [await page_steps(store.inbox, meter, default, after) for after in (0, 120)]
        await page_steps(store.inbox, meter, default, 50, lane=2)  # the meter forgets some statements' first steps
        few_of_lane = await page_steps(store.inbox, meter, default, 50, lane=2)
        for first in range(201, 20_201, 2000):
            await take(store.inbox, *messages(2000, first=first, lanes=2))
            await take(store.inbox, *messages(2000, first=first, lanes=2), bot_id=OTHER_BOT)
        many = [await page_steps(store.inbox, meter, default, after) for after in (0, 120, 10_000, 20_000)]
        assert max(few + many) - min(few + many) < 10, (few, many)
        many_of_lane = [await page_steps(store.inbox, meter, default, after, lane=2) for after in (50, 20_000)]
        assert max(abs(one - few_of_lane) for one in many_of_lane) < 10, (few_of_lane, many_of_lane)


async def test_a_lane_is_looked_through_over_many_stretches_of_numbers(place: SqlitePlace) -> None:
    """Its first arrival and its last stand in other stretches than all that came between, and in the stretch of a replay."""
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        for first in range(1, 12_001, 4000):
            await take(store.inbox, message(first, chat=9, text=f"the {first}."))
            await take(store.inbox, *messages(3999, first=first + 1, lanes=3))
        asked = ArrivalFilter(chat=9)
        await store.inbox.replay(asked, default.id, after=0, up_to=1, limit=1, at_ms=NOW)
        of_lane = await store.inbox.arrivals_after(default.id, 0, limit=10, lane=9)
        assert [one.number for one in of_lane] == [1, 4001, 8001, 12_001]
        two = await store.inbox.arrivals_after(default.id, 1, limit=2, lane=9)
        assert [one.number for one in two] == [4001, 8001]
        brief = await store.inbox.arrivals_after(default.id, 1, limit=9, lane=9, bytes_max=len(two[0].payload))
        assert [one.number for one in brief] == [4001]
        assert await found(store.inbox, chat=9) == [12_001, 8001, 4001, 1]
        assert await found(store.inbox, chat=9, limit=2) == [12_001, 8001]
        assert await found(store.inbox, chat=9, first_number=2, last_number=8001) == [8001, 4001]
        assert await store.inbox.count_arrivals(asked) == 4


async def test_under_a_new_epoch_only_the_stretches_of_those_before_are_looked_through(place: SqlitePlace) -> None:
    """For two days each update is looked for among the earlier ones of its lane, and what came since is none of them."""
    async with place.open() as store:
        await open_inbox(store.inbox)
        await take(store.inbox, message(1, chat=9, message_id=1, text="at first"))
        await take(store.inbox, *messages(5000, first=2, lanes=3))
        await take(store.inbox, message(5002, chat=9, message_id=1, text="at last"))
        looked: list[str] = []

        async def taken(number: int, text: str, *, is_new_epoch: bool = False) -> tuple[int, int]:
            """How many of it are news, and in how many stretches it was looked for."""
            looked.clear()
            store._connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: looked.append(event["sql"]))
            again = message(number, chat=9, message_id=1, text=text)
            came = await take(store.inbox, again, is_new_epoch=is_new_epoch)
            store._connection.trace_v2(0, None)
            return came.stored, sum(sql.count("?") // 6 for sql in looked if "INDEXED BY arrivals_lane" in sql)

        assert await taken(10_001, "at first", is_new_epoch=True) == (0, 2)
        await take(store.inbox, *messages(10_000, first=10_002, lanes=3))
        assert await taken(30_001, "at last") == (0, 2)
        assert await taken(30_002, "news") == (1, 2)
        assert await taken(30_003, "news") == (1, 2)
        assert await taken(7, "news", is_new_epoch=True) == (0, 4)


async def test_lanes_of_an_older_file_are_found_once_it_is_opened(place: SqlitePlace) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        await take(store.inbox, *messages(30, first=1, lanes=3))
    rewind(place.path, 8)
    async with place.open() as store:
        ((index,),) = store._reader.execute("SELECT sql FROM sqlite_schema WHERE name = 'arrivals_lane'")
        assert "number >> 12" in str(index)
        of_lane = await store.inbox.arrivals_after(default.id, 20, limit=10, lane=2)
        assert [one.number for one in of_lane] == sorted(one for one in await found(store.inbox, chat=2) if one > 20)
        assert len(of_lane) == 3


async def test_an_update_touches_no_more_pages_than_its_stretch_has(place: SqlitePlace) -> None:
    """However many chats it may come from. Ordered by chat alone, each of these had a page of its own to write."""
    chats, page = 1000, 50
    async with place.open() as store:
        await open_inbox(store.inbox)
        for first in range(1, 60_001, 6000):
            await take(store.inbox, *(message(one, chat=one % chats + 1) for one in range(first, first + 6000)))
        written = store._connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]
        await take(store.inbox, *(message(one, chat=one * 20 % chats + 1) for one in range(60_001, 60_001 + page)))
        assert store._connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0] - written < page


async def test_replays_for_somebody_else_cost_a_reader_nothing(place: SqlitePlace) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await take(store.inbox, *messages(2000, first=1))
        await settle(store.inbox, default, (1, 1999))
        reading, writing = Meter(store._reader), Meter(store._connection)
        assert await numbers(store.inbox, default, 2000) == []
        before = reading.steps()
        await store.inbox.replay(ArrivalFilter(), other.id, after=0, up_to=2000, limit=2000, at_ms=NOW)
        reading.steps()
        assert await numbers(store.inbox, default, 2000) == []
        assert abs(reading.steps() - before) < 10
        writing.steps()
        assert await settle(store.inbox, default, 2000) == ConsumerProgress(watermark=4000)
        assert writing.steps() < 500


async def test_dead_ones_are_found_without_a_look_at_the_living(place: SqlitePlace) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        await take(store.inbox, *messages(5000, first=1))
        await put_off(store.inbox, default, 3)
        await bury(store.inbox, default, 7)
        await settle(store.inbox, default, (1, 4999))
        meter = Meter(store._reader)
        assert await found(store.inbox, state=State.FAILED) == [7]
        assert await found(store.inbox, state=State.WAITING) == [5000]
        assert await store.inbox.deferrals(default.id) == []
        assert meter.steps() < 2000


async def test_a_time_is_found_without_a_look_at_all_that_came_before(place: SqlitePlace) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        for hour in range(50):
            await take(store.inbox, *messages(100, first=1 + 100 * hour), at_ms=NOW + hour * HOUR)
        meter = Meter(store._reader)
        assert len(await found(store.inbox, since_ms=NOW + 49 * HOUR, limit=200)) == 100
        assert len(await found(store.inbox, since_ms=NOW + HOUR, until_ms=NOW + HOUR, limit=200)) == 100
        assert meter.steps() < 30_000


async def test_an_epoch_long_past_costs_nothing_and_a_new_one_only_two_days(place: SqlitePlace) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        await take(store.inbox, *messages(5000, first=1, lanes=1))
        meter = Meter(store._connection)
        await take(store.inbox, message(5001))
        meter.steps()
        await take(store.inbox, message(5002))
        usual = meter.steps()
        later = NOW + 100 * HOUR
        await take(store.inbox, message(1, text="a new beginning"), at_ms=later, is_new_epoch=True)
        assert meter.steps() < 2000
        await take(store.inbox, message(2), at_ms=later + 49 * HOUR)
        assert meter.steps() < usual + 10


# ---- faults ----


async def test_a_locked_database_stores_nothing_and_is_told_in_our_words(place: SqlitePlace) -> None:
    async with place.open() as setup:
        default = await open_inbox(setup.inbox)
    store = SqliteStore(place.path, clock=place.clock, busy_ms=50)
    await store.open()
    blocker = apsw.Connection(str(place.path))
    blocker.execute("BEGIN IMMEDIATE")
    refused = await asyncio.gather(
        *(take(store.inbox, message(one)) for one in range(1, 20)),
        store.inbox.settle_arrivals(default.id, dead=[Burial(number=1, tries=1, reason="", entry="{}")], at_ms=NOW),
        store.inbox.clean_arrivals(ArrivalRetention(read_ms=1, unread_ms=1, idle_ms=1), at_ms=NOW, limit=9),
        return_exceptions=True,
    )
    assert {getattr(one, "code", one) for one in refused} == {"store_locked"}
    assert await numbers(store.inbox, default) == []  # reads go on
    blocker.execute("ROLLBACK")
    blocker.close()
    assert (await take(store.inbox, message(1))).stored == 1
    await store.close()


async def test_a_reader_that_fails_is_told_in_our_words(place: SqlitePlace) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        store._reader.set_progress_handler(lambda: True, 1)  # SQLite gives up at its first step
        for asked in (
            store.inbox.arrivals_after(default.id, 0, limit=1),
            store.inbox.find_arrivals(ArrivalFilter(), before=None, limit=1),
        ):
            with pytest.raises(StoreUnavailable):
                await asked
        store._reader.set_progress_handler(None)
        assert await found(store.inbox) == []


async def test_two_processes_on_one_file_share_one_order(place: SqlitePlace) -> None:
    async with place.open() as owner, place.open(is_owner=False) as guest:
        default = await open_inbox(owner.inbox)
        await asyncio.gather(
            *(take(owner.inbox, message(one)) for one in range(1, 61)),
            *(take(guest.inbox, message(one)) for one in range(40, 101)),
        )
        seen = await guest.inbox.arrivals_after(default.id, 0, limit=1000)
        assert [one.number for one in seen] == list(range(seen[0].number, seen[0].number + 100))
        assert sorted(one.update_id for one in seen) == list(range(1, 101))
        first, last = seen[0].number, seen[-1].number
        await asyncio.gather(
            *(settle(owner.inbox, default, number) for number in range(first, last + 1, 2)),
            *(settle(guest.inbox, default, number) for number in range(first + 1, last + 1, 2)),
        )
        assert (await named(owner.inbox, "default")).progress == ConsumerProgress(watermark=last)
