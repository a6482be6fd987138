"""What questions about jobs cost when many wait: none of them reads more than it answers, by plans made when nobody waited, and
by those made after PostgreSQL has counted the tables, which it does by itself at any time."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import asyncpg
import pytest

from peik.jobs.store import STANDING_COUNTED_MAX
from peik.storage.postgres import jobs
from peik.storage.postgres.queries import NamedQuery, load
from peik.storage.postgres.session import read_address, settings_of
from tests.storage.acts import NOW
from tests.storage.job_acts import KIND, a_job, queue, take, terms
from tests.storage.postgres_place import PostgresPlace

WAITING, USERS, RUNNING = 20_000, 5000, 32
_SQL = load("jobs.sql")

# Of each question: with what it is asked, and how many rows it may look at.
TAKING: Mapping[str, tuple[NamedQuery, tuple[str, ...], int]] = {
    "lock": (_SQL["lock_kinds"], (f"'{{{KIND}}}'",), 1),
    "kinds_of": (_SQL["kinds_of"], ("'{40,41}'",), 2),
    "worth": (_SQL["is_worth_taking"], (f"'{KIND}'", f"{NOW}", "99"), 2),
    "due": (_SQL["due"], (f"'{KIND}'", f"{NOW}", "100"), 1),
    "join_due": (_SQL["join_due"], ("'{40,41}'", "'{1,2}'"), 2),
    "running": (_SQL["running"], (f"'{KIND}'",), RUNNING),
    "lines": (_SQL["lines"], (f"'{KIND}'", "'{u32,u33}'", "128"), 130),
    "heads": (_SQL["heads"], ("'{2,2}'", "'{u50,u51}'", "'{2,1}'", f"'{KIND}'"), 4),
    "begin": (jobs.BEGIN, ("'n'", "5", f"{NOW}", "'{50,51}'"), 2),
    "leave": (_SQL["leave_lines"], (f"'{{{KIND}}}'", "'{2}'", "'{u50}'", "'{7}'", "'{1}'"), 2),
}
RUNS: Mapping[str, tuple[NamedQuery, tuple[str, ...], int]] = {
    "beat": (_SQL["beat"], ("5", "'{1,2}'", "'{1,1}'", "'{NULL,0.5}'", "'{a,b}'", "'{a,b}'"), 2),
    "those": (jobs.THOSE, ("'{1,2}'",), 2),
    "put": (_SQL["put"], ("'{1}'", "'{1}'", "'{active}'", "'{failed}'", *("'{1}'",) * 14), 1),
    "lost": (_SQL["lost"], ("100",), RUNNING),
    "still_lost": (jobs.STILL_LOST, ("'{1,2}'",), 2),
    "keys": (_SQL["find_keys"], (f"'{{{KIND}}}'", "'{k}'"), 1),
    "used": (_SQL["used"], (f"'{{{KIND}}}'", "'{u5}'", f"{NOW // 86_400_000}"), 1),
    "next_due": (_SQL["next_due"], (f"'{{{KIND}}}'",), RUNNING),
    "active": (jobs.ACTIVE, ("NULL",), RUNNING),
    "over": (_SQL["over"], (f"{NOW}", "100", f"{NOW}"), 1),
    "drop": (_SQL["drop"], ("'{1,2}'", f"{NOW}", f"{NOW}"), 2),
}
PEOPLE: Mapping[str, tuple[NamedQuery, tuple[str, ...], int]] = {
    "standing": (_SQL["standing"], (f"{STANDING_COUNTED_MAX}", f"{WAITING - 1}"), USERS + 10),
    "of_user": (jobs.filled_with_job(_SQL["find"], where="j.user_id = :user"), ("'u77'", "100"), 4),
    "of_state": (jobs.filled_with_job(_SQL["find"], where=jobs.OF_STATE), ("'failed'", "100"), 1),
}
BOOK = {**TAKING, **RUNS, **PEOPLE}


@pytest.mark.parametrize("is_counted", [False, True], ids=["not counted", "counted"])
async def test_nothing_reads_more_than_it_answers_while_many_wait(place: PostgresPlace, is_counted: bool) -> None:
    async with place.open() as store:
        asker = await _asker(place)
        for name, (query, _, _) in BOOK.items():
            await asker.execute(f"PREPARE {name} AS {query.text}")
            await _explain(asker, name)  # from now on its plan is kept
        for first in range(0, WAITING, 1000):
            await queue(store.jobs, *(a_job(f"u{n % USERS}") for n in range(first, first + 1000)))
        await take(store.jobs, RUNNING, within=terms(RUNNING, 2))
        if is_counted:
            await asker.execute("ANALYZE")
        read = {name: sum(map(_rows, _scans(await _explain(asker, name)))) for name in BOOK}
        await asker.close()
    assert {name: count for name, count in read.items() if count > BOOK[name][2]} == {}
    # The counting itself must be able to say otherwise.
    assert (read["lines"], read["running"], read["standing"] > USERS // 2) == (130, RUNNING, True)


async def _asker(place: PostgresPlace) -> asyncpg.Connection:
    """A connection with the settings of the store's own, which keeps the first plan of each question."""
    settings = {**settings_of(read_address(place.url)), "plan_cache_mode": "force_generic_plan"}
    asker = await asyncpg.connect(place.server.url, server_settings=settings)
    await asker.fetch(_SQL["seek"].text, False)
    return asker


async def _explain(asker: asyncpg.Connection, name: str) -> dict[str, Any]:
    """The plan with what each of its steps did. Nothing of it stays."""
    asked = asker.transaction()
    await asked.start()
    told = await asker.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {name} ({', '.join(BOOK[name][1])})")
    await asked.rollback()
    plan: dict[str, Any] = json.loads(told)[0]["Plan"]
    return plan


def _scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The steps that read tables."""
    if "Relation Name" in plan and "Scan" in plan["Node Type"]:
        yield plan
    for part in plan.get("Plans", ()):
        yield from _scans(part)


def _rows(scan: dict[str, Any]) -> float:
    refused = scan.get("Rows Removed by Filter", 0) + scan.get("Rows Removed by Index Recheck", 0)
    return float(scan["Actual Loops"] * (scan["Actual Rows"] + refused))
