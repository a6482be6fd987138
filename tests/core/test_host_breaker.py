"""The breaker of an outside host, as a table of what happens and how it stands then."""

from hypothesis import given
from hypothesis import strategies as st

from peik.jobs.hosts import (
    PROBE_LOOK_S,
    PROBE_PATIENCE_S,
    PROBE_S_MAX,
    HostBreaker,
    HostState,
    after_failure,
    after_nothing,
    after_success,
    begun,
    wait_s,
)


def failed(breaker: HostBreaker, *jobs: int, is_connect: bool = False, now: float = 100.0) -> HostBreaker:
    for job_id in jobs:
        breaker = after_failure(
            breaker, era=breaker.era, job_id=job_id, is_connect=is_connect, now=now, chance=0.0, why="cut"
        )
    return breaker


def opened(now: float = 100.0) -> HostBreaker:
    return failed(HostBreaker(), 1, 2, 3, is_connect=True, now=now)


def test_five_failures_in_a_row_over_two_jobs_open_it_and_four_do_not() -> None:
    assert failed(HostBreaker(), 1, 2, 1, 2).state is HostState.CLOSED
    breaker = failed(HostBreaker(), 1, 2, 1, 2, 1)
    assert (breaker.state, breaker.why, breaker.opened_at) == (HostState.OPEN, "cut", 100.0)


def test_one_job_alone_does_not_shut_a_host_that_answers() -> None:
    breaker = failed(HostBreaker(), *[1] * 50)
    assert breaker.state is HostState.CLOSED
    assert failed(breaker, 2).state is HostState.OPEN


def test_three_connections_that_cannot_be_made_open_it_whoever_tried() -> None:
    assert failed(HostBreaker(), 1, 1, is_connect=True).state is HostState.CLOSED
    assert failed(HostBreaker(), 1, 1, 1, is_connect=True).state is HostState.OPEN


def test_a_failure_of_another_sort_interrupts_the_row_of_connections() -> None:
    breaker = failed(failed(HostBreaker(), 1, 1, is_connect=True), 1)
    assert failed(breaker, 1, is_connect=True).state is HostState.CLOSED


def test_a_success_begins_the_count_anew() -> None:
    breaker = after_success(failed(HostBreaker(), 1, 2, 1, 2), era=0)
    assert breaker == HostBreaker()
    assert failed(breaker, 1, 2, 1, 2).state is HostState.CLOSED


def test_probes_come_after_5_10_20_40_and_then_every_60_seconds() -> None:
    breaker, waits = opened(), []
    for _ in range(7):
        left_s = wait_s(breaker, now=100.0)
        assert left_s is not None
        waits.append(left_s)
        breaker = failed(begun(breaker, now=breaker.probe_at), 9)
        assert breaker.state is HostState.OPEN
    assert waits == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0]


def test_one_job_probes_and_the_others_wait_for_it() -> None:
    breaker = opened()
    assert wait_s(breaker, now=104.0) == 1.0
    assert wait_s(breaker, now=105.0) is None
    breaker = begun(breaker, now=105.0)
    assert breaker.state is HostState.PROBING
    assert wait_s(breaker, now=105.0) == PROBE_LOOK_S
    closed = after_success(breaker, era=breaker.era)
    assert (closed.state, closed.failures, wait_s(closed, now=105.0)) == (HostState.CLOSED, 0, None)


def test_a_probe_that_takes_long_does_not_keep_all_others_waiting() -> None:
    breaker = begun(opened(), now=105.0)
    assert wait_s(breaker, now=105.0 + PROBE_PATIENCE_S - 1) == 1.0
    assert wait_s(breaker, now=105.0 + PROBE_PATIENCE_S) is None


def test_a_probe_that_says_nothing_makes_room_for_the_next() -> None:
    breaker = after_nothing(begun(opened(), now=105.0), era=1, now=107.0)
    assert (breaker.state, wait_s(breaker, now=107.0)) == (HostState.OPEN, None)


def test_what_began_before_it_opened_neither_closes_it_nor_counts_against_a_probe() -> None:
    breaker = opened()
    assert after_success(breaker, era=0) == breaker
    assert after_nothing(begun(breaker, now=105.0), era=0, now=106.0).state is HostState.PROBING
    late = after_failure(breaker, era=0, job_id=9, is_connect=True, now=101.0, chance=0.0, why="late")
    assert late == breaker
    closed = after_success(breaker, era=breaker.era)
    assert failed(closed, 1) == after_failure(
        failed(closed, 1), era=breaker.era, job_id=2, is_connect=True, now=1.0, chance=0.0, why="of the time before"
    )


_STEP = st.tuples(
    st.sampled_from(["ask", "fail", "connect", "succeed", "nothing"]),
    st.integers(0, 3),
    st.floats(0, 40),
    st.floats(0, 1, exclude_max=True),
)


@given(st.lists(_STEP, max_size=60))
def test_it_never_shuts_anybody_out_for_more_than_a_minute(steps: list[tuple[str, int, float, float]]) -> None:
    breaker, now, eras = HostBreaker(), 0.0, [0]
    for what, job_id, passes_s, chance in steps:
        now += passes_s
        left_s = wait_s(breaker, now=now)
        assert left_s is None or 0 < left_s <= PROBE_S_MAX
        era = eras[job_id % len(eras)]
        match what:
            case "ask" if left_s is None:
                breaker = begun(breaker, now=now)
                eras.append(breaker.era)
            case "succeed":
                breaker = after_success(breaker, era=era)
            case "nothing":
                breaker = after_nothing(breaker, era=era, now=now)
            case "fail" | "connect":
                breaker = after_failure(
                    breaker, era=era, job_id=job_id, is_connect=what == "connect", now=now, chance=chance, why="x"
                )
        assert breaker.era >= max(eras[0], era)
