"""The search for the limit, on a machine whose limit is known."""

import asyncio

import pytest

from peik.load.count import LoadCounts
from peik.load.plan import LatencyFigures, LoadWork, Trend, TrendVerdict
from peik.load.report import Machine, Result, WorkKind
from peik.load.run import ACCEPTED, FIRST_PER_S, PER_S_MAX, TIMES, find_limit, next_rate

MACHINE = Machine(system="paper", cores=1, python="", peik="", store="sqlite")
SHORT = Trend(verdict=TrendVerdict.TOO_SHORT, unit="", seconds=0)


def outcome(work: LoadWork, *, p99_ms: float = 5.0, lost: int = 0, refused: int = 0, late_ms: float = 0.0) -> Result:
    counts = LoadCounts(
        letters=100, accepted=100 - refused, refused=refused, unknown=0, delivered=100 - refused - lost, waiting=0,
        failed=0, lost=lost, doubled=0, uncertain_tries=0, doubled_by_habit=0, updates=0, updates_lost=0, updates_doubled=0,
    )  # fmt: skip
    figures = LatencyFigures(count=100, p50_ms=1.0, p95_ms=p99_ms, p99_ms=p99_ms, max_ms=p99_ms)
    return Result(
        machine=MACHINE, seconds=work.for_s, letters_per_s=work.letters_per_s, updates_per_s=work.updates_per_s, bots=1,
        chats=1, delivered_per_s=work.letters_per_s + work.updates_per_s,
        kinds=[WorkKind(name=ACCEPTED, figures=figures, bars=[])], counts=counts, refusals={},
        late=LatencyFigures(count=1, p50_ms=0, p95_ms=0, p99_ms=late_ms, max_ms=late_ms), memory=SHORT, handles=SHORT,
        sizes_before={}, sizes_after={}, backlog_max=0, broken=counts.broken(), notes=[], series={},
    )  # fmt: skip


def rate_of(work: LoadWork) -> float:
    return work.letters_per_s + work.updates_per_s


@pytest.mark.parametrize("can", [30.0, 45.0, 300.0, 5000.0])
def test_it_finds_what_the_machine_can_do_within_a_step(can: float) -> None:
    async def run(work: LoadWork) -> Result:
        return outcome(work, p99_ms=5.0 if rate_of(work) <= can else 5000.0)

    found = asyncio.run(find_limit(run, step_s=1, bots=1, chats=1))
    assert can / TIMES <= found.letters_per_s <= can
    assert found.broken == []
    assert "accepting took 5000 ms" in found.ended_by
    assert found.users_a_day > 0


def test_a_machine_without_a_limit_ends_at_ours() -> None:
    async def run(work: LoadWork) -> Result:
        return outcome(work)

    found = asyncio.run(find_limit(run, step_s=1, bots=1, chats=1))
    assert found.letters_per_s == PER_S_MAX
    assert found.ended_by == "the highest rate was reached"


def test_a_program_that_cannot_keep_up_itself_says_so() -> None:
    async def run(work: LoadWork) -> Result:
        return outcome(work, late_ms=900.0 if rate_of(work) > 100 else 0.0)

    found = asyncio.run(find_limit(run, step_s=1, bots=1, chats=1))
    assert "the load program itself" in found.ended_by
    assert found.letters_per_s <= 100


def test_refusals_are_a_limit_and_a_loss_is_a_fault() -> None:
    async def refusing(work: LoadWork) -> Result:
        return outcome(work, refused=5 if rate_of(work) > 100 else 0)

    async def losing(work: LoadWork) -> Result:
        return outcome(work, lost=1 if rate_of(work) > FIRST_PER_S else 0)

    found = asyncio.run(find_limit(refusing, step_s=1, bots=1, chats=1))
    assert found.broken == []
    assert 0 < found.letters_per_s <= 100
    found = asyncio.run(find_limit(losing, step_s=1, bots=1, chats=1))
    assert found.broken == ["1 letters were lost"]
    assert len(found.steps) == 2


def test_rates_go_up_by_a_factor_and_then_between() -> None:
    assert next_rate(100.0, 0.0) == pytest.approx(160.0)
    assert 100.0 < next_rate(100.0, 160.0) < 160.0
    assert 0.0 < next_rate(0.0, 40.0) < 40.0
