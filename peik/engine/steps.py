"""What one turn of a sender gives to the store together, and what is told of each letter once it is stored. Values only."""

from collections.abc import Sequence

import msgspec

from peik.core.letter import Letter
from peik.core.lifecycle import DELIVER, Settlement, settle
from peik.core.outcome import Delivered, Outcome
from peik.core.trace import message_ids_in
from peik.events import Settled

Settling = tuple[Settlement, Letter, Settled]  # and what is told once it is stored


class Step(msgspec.Struct, frozen=True):
    """What one turn gave to the store together."""

    settlements: Sequence[Settling]
    marks: Sequence[Letter]
    taken_at: float  # when the pace allowed the tries
    reclaimed: Sequence[Letter] = ()


def going_on(step: Step) -> list[int]:
    """The letters of a step that wait on."""
    return [
        letter.id
        for settlement, letter, _ in step.settlements
        if settlement.move is not DELIVER and not settlement.state.is_final
    ]


def settling(letter: Letter, outcome: Outcome, at_ms: int) -> Settling:
    settlement = settle(letter, outcome, at_ms=at_ms)
    return settlement, letter, settled(settlement, letter, outcome)


def settled(
    settlement: Settlement,
    letter: Letter,
    outcome: Outcome | None = None,
    took_s: float | None = None,
    waited_s: float | None = None,
) -> Settled:
    if letter.trace is None and outcome is not None and settlement.move is DELIVER:
        # Nearly all of them. A field that is named costs, so that what is as usual is left out.
        return Settled(
            bot_id=letter.bot_id,
            letter_id=letter.id,
            method=letter.method,
            chat=letter.chat,
            move=DELIVER,
            state=settlement.state,
            uncertain_tries=settlement.uncertain_tries,
            outcome=outcome,
            took_s=took_s,
            waited_s=waited_s,
        )
    return Settled(
        bot_id=letter.bot_id,
        letter_id=letter.id,
        method=letter.method,
        chat=letter.chat,
        move=settlement.move,
        state=settlement.state,
        reason=settlement.failed_reason,
        uncertain_tries=settlement.uncertain_tries,
        outcome=outcome,
        took_s=took_s,
        waited_s=waited_s,
        trace=letter.trace,
        message_ids=_message_ids(letter, outcome),
    )


def _message_ids(letter: Letter, outcome: Outcome | None) -> tuple[int, ...]:
    """Only of what somebody may want to follow: the rest of the letters shall not pay for it."""
    if letter.trace is None or not isinstance(outcome, Delivered):
        return ()
    return message_ids_in(outcome.result)
