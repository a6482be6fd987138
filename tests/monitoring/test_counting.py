"""What this node counts: few labels, however many names callers think of."""

from peik.broadcasts import model as broadcast_events
from peik.core import events
from peik.core.catalogue import Scope
from peik.core.letter import State
from peik.core.lifecycle import EXPIRED, UNCERTAIN, Move
from peik.core.outcome import Delivered, Limited, Outcome, Refused, Uncertain, Unsent
from peik.jobs import events as job_events
from peik.jobs.model import JobEnd
from peik.monitoring import values
from peik.monitoring.counts import LABELS_MAX, OTHER, Counting

REFUSED = Refused(code=400, words="Bad Request: no", advice="", scope=Scope.MESSAGE)


def settled(
    move: Move,
    state: State,
    outcome: Outcome | None = None,
    *,
    method: str = "sendMessage",
    reason: str | None = None,
    took_s: float | None = 0.2,
) -> events.Settled:
    return events.Settled(
        bot_id=5,
        letter_id=1,
        method=method,
        chat=1,
        move=move,
        state=state,
        outcome=outcome,
        reason=reason,
        took_s=None if outcome is None else took_s,
        waited_s=None if outcome is None else 1.0,
    )


def counted(*told: events.Event) -> Counting:
    counting = Counting()
    counting(told)
    return counting


def test_each_outcome_is_one_try() -> None:
    found = counted(
        settled(Move.DELIVER, State.COMPLETED, Delivered(result=b"true")),
        settled(Move.RETURN, State.WAITING, Limited(retry_after_s=3.0)),
        settled(Move.BACK_OFF, State.DELAYED, Limited(retry_after_s=3.0, may_have_arrived=True)),
        settled(Move.RETURN, State.WAITING, Unsent(why="refused")),
        settled(Move.BACK_OFF, State.DELAYED, Uncertain(why="HTTP 502", code=502)),
        settled(Move.BACK_OFF, State.DELAYED, Uncertain(why="reset")),
        settled(Move.GIVE_UP, State.FAILED, REFUSED, reason="Bad Request: no"),
    )
    assert {key[1:]: count for key, count in found.sent.items()} == {
        ("delivered", ""): 1,
        ("limited", "429"): 2,
        ("unsent", ""): 1,
        ("uncertain", "502"): 1,
        ("uncertain", "none"): 1,
        ("refused", "400"): 1,
    }
    counts = found.whole.counts
    assert (counts[values.DELIVERED], counts[values.FAILED], counts[values.UNCERTAIN], counts[values.RETRIED]) == (
        1,
        1,
        3,
        3,
    )
    assert found.whole.tries.count == 6  # what never left took no time
    assert found.whole.end_to_end.count == 1


def test_dead_letters_have_few_reasons() -> None:
    found = counted(
        settled(Move.GIVE_UP, State.FAILED, REFUSED, reason="Bad Request: message 17 is too long"),
        settled(Move.GIVE_UP, State.FAILED, Uncertain(why="reset"), reason=UNCERTAIN),
        settled(Move.EXPIRE, State.FAILED, reason=EXPIRED),
        settled(Move.SHUT_OUT, State.FAILED, reason="Forbidden: bot was blocked by the user"),
        settled(Move.ORPHAN, State.FAILED, reason="letter 5 was never sent"),
        settled(Move.CANCEL, State.CANCELLED),
        settled(Move.MERGE, State.DELAYED),
        settled(Move.FOLLOW, State.COMPLETED),
        settled(Move.RESOLVE, State.COMPLETED),
    )
    reasons = {key[1]: count for key, count in found.labelled.items() if key[0] == "letters_failed"}
    assert reasons == dict.fromkeys(("refused", "uncertain", "expired", "unreachable", "orphaned"), 1)
    assert (found.labelled["letters_cancelled",], found.labelled["letters_merged",]) == (1, 1)
    assert found.whole.counts[values.DELIVERED] == 0


def test_names_that_callers_make_up_fill_no_memory() -> None:
    found = counted(
        *(
            settled(Move.DELIVER, State.COMPLETED, Delivered(result=b"1"), method=f"send{number}")
            for number in range(3 * LABELS_MAX)
        )
    )
    assert len(found.sent) == LABELS_MAX + 1
    assert found.sent[OTHER, "delivered", ""] == 2 * LABELS_MAX


def test_broadcasts_that_go_on_are_known_and_others_forgotten() -> None:
    advanced = broadcast_events.BroadcastAdvanced
    found = counted(
        advanced(bot_id=5, broadcast_id="1", total=10, done=4),
        advanced(bot_id=5, broadcast_id="2", total=5, done=5),
        advanced(bot_id=5, broadcast_id="3", total=7, done=1),
        broadcast_events.BroadcastMoved(bot_id=5, broadcast_id="3", state="cancelled"),
    )
    assert found.broadcasts == {"1": (10, 4)}


def test_jobs_are_counted_by_their_end() -> None:
    def ran(end: JobEnd, state: State) -> events.Event:
        return job_events.JobRan(job_id=1, kind="film", user="", run=1, end=end, state=state, reason=None, run_s=2.5)

    found = counted(
        ran(JobEnd.DONE, State.COMPLETED), ran(JobEnd.HOPELESS, State.FAILED), ran(JobEnd.LOST, State.WAITING)
    )
    assert found.whole.counts[values.JOBS_DONE : values.JOBS_FAILED + 1] == [1, 1]
    assert found.labelled["job_run_ms", "film"] == 7500


def test_it_rings_once_when_something_happens_again() -> None:
    counting, rung = Counting(), []
    counting.when_next(lambda: rung.append(1))
    counting([events.Accepted(count=1)])
    counting([events.Accepted(count=1)])
    assert rung == [1]
