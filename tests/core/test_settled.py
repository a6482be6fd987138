"""Settled time: the wall's for as long as it agrees with time that passed, and behind it after a jump until that has held."""

import msgspec
import pytest

from peik.clock import JUMP_MS, START_MS, KeptTime, SettledTime, begin, keep, look

HOUR_S = 3600.0
DAY_MS = 86_400_000
NOW = 1_794_700_000_000


def seen(*looks: tuple[float, int]) -> list[int]:
    """How far settled time is from true time at each look: (true seconds since the start, how far the wall is off)."""
    state, found = begin(None, steady_s=0.0, wall_ms=NOW), []
    for at_s, off_ms in looks:
        state = look(state, steady_s=at_s, wall_ms=NOW + int(at_s * 1000) + off_ms, settles_s=HOUR_S)
        found.append(state.at(at_s) - NOW - int(at_s * 1000))
    return found


@pytest.mark.parametrize(
    ("looks", "settled"),
    [
        pytest.param([(60, 0), (7200, 0)], [0, 0], id="a clock that goes on"),
        pytest.param(
            [(300, 200), (600, 400), (900, 600)], [200, 400, 600], id="one that is corrected little by little"
        ),
        pytest.param([(300, JUMP_MS)], [JUMP_MS], id="a small step"),
        pytest.param([(300, 31 * DAY_MS), (3899, 31 * DAY_MS)], [0, 0], id="a month ahead, and not believed"),
        pytest.param([(300, 31 * DAY_MS), (3900, 31 * DAY_MS)], [0, 31 * DAY_MS], id="believed when it has held"),
        pytest.param([(300, 31 * DAY_MS), (600, 0), (9000, 0)], [0, 0, 0], id="it came back"),
        pytest.param(
            [(0, DAY_MS), (3000, 2 * DAY_MS), (6500, 2 * DAY_MS), (6600, 2 * DAY_MS)],
            [0, 0, 0, 2 * DAY_MS],
            id="a second jump begins anew",
        ),
        pytest.param([(300, -31 * DAY_MS)], [-31 * DAY_MS], id="set back is believed: nothing is too old by it"),
        pytest.param([(300, -DAY_MS), (600, 0), (4200, 0)], [-DAY_MS, -DAY_MS, 0], id="back, and forth again"),
    ],
)
def test_what_time_may_destroy(looks: list[tuple[float, int]], settled: list[int]) -> None:
    assert seen(*looks) == settled


def test_settled_time_never_runs_ahead_of_the_wall() -> None:
    ahead = SettledTime(offset_ms=0, doubted_ms=31 * DAY_MS, since_s=0.0)
    for off_ms in (0, JUMP_MS, DAY_MS, 400 * DAY_MS):
        assert look(ahead, steady_s=10.0, wall_ms=10_000 + off_ms, settles_s=HOUR_S).at(10.0) <= 10_000 + off_ms


# ---- over a restart ----


@pytest.mark.parametrize(
    ("kept", "behind_ms", "held_s"),
    [
        pytest.param(None, 0, 0, id="a store that knows nothing"),
        pytest.param(KeptTime(settled_ms=NOW - START_MS, wall_ms=NOW - START_MS), 0, 0, id="off for a while"),
        pytest.param(KeptTime(settled_ms=NOW + DAY_MS, wall_ms=NOW + DAY_MS), 0, 0, id="the clock was ahead before"),
        pytest.param(
            KeptTime(settled_ms=NOW - DAY_MS, wall_ms=NOW - DAY_MS), DAY_MS, 0, id="off for a day, or set ahead"
        ),
        pytest.param(
            KeptTime(settled_ms=NOW - DAY_MS, wall_ms=NOW - 1000, held_s=1800.0), DAY_MS, 1800, id="it has held before"
        ),
        pytest.param(
            KeptTime(settled_ms=NOW - 9 * DAY_MS, wall_ms=NOW - 8 * DAY_MS, held_s=1800.0),
            9 * DAY_MS,
            0,
            id="another jump",
        ),
    ],
)
def test_a_start_far_ahead_of_the_last_known_time_has_to_hold(
    kept: KeptTime | None, behind_ms: int, held_s: float
) -> None:
    state = begin(kept, steady_s=500.0, wall_ms=NOW)
    assert NOW - state.at(500.0) == behind_ms == state.ahead_ms
    if behind_ms:
        left_s = HOUR_S - held_s
        early = look(state, steady_s=499.0 + left_s, wall_ms=NOW + int(left_s - 1) * 1000, settles_s=HOUR_S)
        assert early.ahead_ms == behind_ms
        late = look(state, steady_s=500.0 + left_s, wall_ms=NOW + int(left_s) * 1000, settles_s=HOUR_S)
        assert late.ahead_ms == 0


def test_what_is_kept_says_how_long_it_has_held() -> None:
    state = begin(None, steady_s=0.0, wall_ms=NOW)
    assert keep(state, steady_s=60.0) == KeptTime(settled_ms=NOW + 60_000, wall_ms=NOW + 60_000)
    ahead = look(state, steady_s=60.0, wall_ms=NOW + 60_000 + DAY_MS, settles_s=HOUR_S)
    kept = keep(ahead, steady_s=90.0)
    assert kept == KeptTime(settled_ms=NOW + 90_000, wall_ms=NOW + 90_000 + DAY_MS, held_s=30.0)
    assert msgspec.json.decode(msgspec.json.encode(kept), type=KeptTime) == kept
