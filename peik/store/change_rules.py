"""What becomes of a letter that somebody changes while it waits: decided here for all stores."""

import msgspec

from peik.core.letter import Letter, Priority, State
from peik.core.lifecycle import Move, Try
from peik.errors import Conflict
from peik.ports import LetterView, Stub
from peik.store.rows import PHASE_APART, PHASE_IN_LANE


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Where the letter stands from now on. `joins`: it takes the next number of its bot's order."""

    phase: int
    due_at_ms: int | None
    joins: bool = False


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What a change did to the letter's lane: it left, it stands there otherwise, or it came to its end. At most one of them."""

    left: Stub | None = None
    stands: Stub | None = None
    came: Letter | None = None


def must_be_open(view: LetterView) -> None:
    """Raises Conflict for a letter that is in flight or has ended."""
    if view.state is State.ACTIVE:
        detail = f"Letter {view.id} is being sent right now; it cannot be taken back or changed."
        raise Conflict(code="in_flight", detail=detail)
    if view.state.is_final:
        raise Conflict(code="already_ended", detail=f"Letter {view.id} has ended already: it is {view.state}.")


def must_be_changeable(view: LetterView) -> None:
    """The same for one that gave way to a newer edit: it has no place that could be changed."""
    must_be_open(view)
    if view.merged_into is not None:
        raise Conflict(
            code="merged", detail=f"Letter {view.id} gave way to letter {view.merged_into}: change that one instead."
        )


def planned(*, phase: int, was_due_at_ms: int | None, due_at_ms: int | None, at_ms: int) -> Plan:
    """For a letter in `phase`; `due_at_ms` None: its time stays. What waits for another letter goes on doing so."""
    if due_at_ms is None:
        return Plan(phase=phase, due_at_ms=was_due_at_ms)
    if due_at_ms > at_ms:
        return Plan(phase=PHASE_APART, due_at_ms=due_at_ms)
    if phase == PHASE_APART and was_due_at_ms is None:
        return Plan(phase=PHASE_APART, due_at_ms=None)
    return Plan(phase=PHASE_IN_LANE, due_at_ms=None, joins=phase == PHASE_APART)


def line_of(*, rank: int | None, due_at_ms: int | None, at_ms: int) -> str:
    """The line of the letter's history that tells of it."""
    outcome = "change"
    if due_at_ms is not None:
        outcome = str(Move.DEFER if due_at_ms > at_ms else Move.JOIN)
    words = "by hand" if rank is None else f"by hand, priority {Priority.CRITICAL - rank}"
    return msgspec.json.encode(Try(at=at_ms, outcome=outcome, words=words)).decode()


def changed(view: LetterView, plan: Plan, *, phase: int, came: Letter | None = None) -> Changed:
    """What the engines must hear, for a letter that stood in `phase` before."""
    if came is not None:
        return Changed(came=came)
    stub = Stub(letter_id=view.id, bot_id=view.bot_id, lane=(view.chat, view.thread))
    if phase == PHASE_IN_LANE:
        return Changed(left=stub) if plan.phase == PHASE_APART else Changed(stands=stub)
    return Changed()
