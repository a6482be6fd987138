"""Each row of the bench at a tiny size, for Peik and its ceilings: that it runs, and that its own checks hold."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import growth_point, instructions
from bench.budget import CEILINGS, LINES
from bench.ground import Ground
from bench.one import MEASURES
from bench.stub import Stub, running_stub

# Peers and servers are for `make bench`; serve_million is serve_backlog with more.
ELSEWHERE = {"postgres_ceiling", "postgres_accept", "redis_ceiling", "redis_accept", "aiogram_loop", "serve_million"}
# Those that start a server or two of their own: seconds each, so one of a kind.
COSTLY = {"serve_backlog", "rest_single", "gateway_reads", "gateway_edits", "bare_webhooks", "answers"}


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    before = sys.getswitchinterval()
    with running_stub() as one:
        yield one
    sys.setswitchinterval(before)


@pytest.mark.parametrize("name", sorted(MEASURES.keys() - ELSEWHERE - COSTLY))
def test_a_measurement_finds_its_figures(name: str, stub: Stub, tmp_path: Path) -> None:
    found = MEASURES[name](Ground(folder=str(tmp_path), stub_port=stub.port, letters=200))
    known = {line.name for line in (*LINES, *CEILINGS)} | {"lossy_doubled", "lossy_uncertain"}
    assert found.keys() <= known
    assert found
    for figure, value in found.items():
        assert value > 0 or "added" in figure or "lossy" in figure, (figure, value)


@pytest.mark.parametrize("name", sorted(instructions.WORKS))
def test_work_whose_instructions_are_counted_is_done(name: str, tmp_path: Path) -> None:
    instructions.do(name, 100, tmp_path)


@pytest.mark.parametrize(
    "contents", [{"letters": 300, "bots": 3, "chats": 7}, {"arrivals": 200}], ids=["letters", "arrivals"]
)
def test_a_point_of_a_growth_line_is_filled_and_measured(contents: dict[str, int], stub: Stub, tmp_path: Path) -> None:
    point = growth_point.Point(folder=str(tmp_path), stub_port=stub.port, measured=200, **contents)
    growth_point.fill(point)
    found = growth_point.measure(point) | (growth_point.drain(point) if "letters" in contents else {})
    assert all(value > 0 for name, value in found.items() if name != "left")
    assert ("drain_us" in found) is ("letters" in contents)
