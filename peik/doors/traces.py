"""What doors show of a trace: the letters that answer an arrival, and the arrival that a letter answers."""

from collections.abc import Sequence

import msgspec

from peik.core.arrival import Arrival
from peik.core.trace import arrival_in, certainty, message_ids_in, trace_of
from peik.desk import Desk
from peik.inbox.desk import InboxDesk
from peik.inbox_ports import ArrivalFilter, ArrivalView
from peik.ports import LetterFilter, LetterView
from peik.shown import rfc3339

ANSWERS_MAX = 100
BEFORE_MS_MAX = 7 * 24 * 3600 * 1000  # an answer to another chat is looked for so far back
SKEW_MS = 60_000  # the clock of the node that took the update in may be ahead of the one that took the letter


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The letters that answer an arrival, the oldest first. `is_cut`: there may be more."""

    letters: tuple[LetterView, ...]
    is_cut: bool


def wanted_of(arrival: Arrival) -> LetterFilter:
    """The letters that answer an arrival, for certain or likely. None of them is older than it is."""
    return LetterFilter(
        trace=trace_of(arrival.bot_id, arrival.number), since_ms=max(arrival.received_at_ms - SKEW_MS, 0)
    )


async def answers_to(desk: Desk, wanted: LetterFilter) -> Answers:
    page = await desk.page(wanted, before=None, limit=ANSWERS_MAX)
    return Answers(letters=tuple(reversed(page.letters)), is_cut=page.cursor is not None)


async def arrival_behind(inbox: InboxDesk, letter: LetterView) -> ArrivalView | None:
    """The arrival that a letter answers, if it is (still) here."""
    named = None if letter.trace is None else arrival_in(letter.trace)
    if named is None:
        return None
    bot_id, number = named
    by_number = ArrivalFilter(bot_id=bot_id, first_number=number, last_number=number)
    # Redis has no way by number: it walks a chat, or a time. Most letters go to the chat that they answer.
    of_chat = msgspec.structs.replace(by_number, chat=letter.chat)
    of_week = msgspec.structs.replace(
        by_number, since_ms=letter.created_at_ms - BEFORE_MS_MAX, until_ms=letter.created_at_ms + SKEW_MS
    )
    for wanted in (of_chat, of_week):
        found = await inbox.arrivals(wanted, before=None, limit=1)
        if found:
            return found[0]
    return None


def answers_view(arrival: Arrival, letters: Sequence[LetterView]) -> list[dict[str, object]]:
    return [answer_view(arrival, letter) for letter in letters]


def answer_view(arrival: Arrival, letter: LetterView) -> dict[str, object]:
    return {
        "letter_id": str(letter.id),
        "method": letter.method,
        "chat_id": str(letter.chat),
        "state": letter.state,
        "trace_certainty": None if letter.trace is None else certainty(letter.trace),
        "message_ids": [str(one) for one in message_ids_in(letter.result or "null")],
        "accepted_at": rfc3339(letter.created_at_ms),
        "finished_at": rfc3339(letter.settled_at_ms) if letter.state.is_final else None,
        "accepted_after_ms": after_ms(arrival, letter.created_at_ms),
        "finished_after_ms": ended_after_ms(arrival, letter),
    }


def after_ms(arrival: Arrival, at_ms: int) -> int:
    """How long after the update had come; never less than nothing, whatever clocks say."""
    return max(at_ms - arrival.received_at_ms, 0)


def ended_after_ms(arrival: Arrival, letter: LetterView) -> int | None:
    """The same for the end of a letter; None: it has not ended."""
    is_over = letter.state.is_final and letter.settled_at_ms is not None
    return after_ms(arrival, letter.settled_at_ms or 0) if is_over else None
