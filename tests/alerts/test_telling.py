"""Who hears what: all of it, or what is told with a kind that one asked for."""

from collections.abc import Sequence

from peik.core.events import Accepted, BotPaused, Event, Events, Settled
from peik.core.letter import State
from peik.core.lifecycle import Move

SETTLED = Settled(bot_id=1, letter_id=7, method="sendMessage", chat=5, move=Move.DELIVER, state=State.COMPLETED)
ACCEPTED = Accepted(count=1)
PAUSED = BotPaused(bot_id=1, reason="a person said so")


def test_one_hears_everything_or_what_comes_with_a_kind_that_one_wants() -> None:
    events = Events()
    everything: list[Event] = []
    settled: list[Event] = []
    none: list[Event] = []
    events.listen(everything.extend)
    events.listen(settled.extend, Settled)
    events.listen(none.extend, BotPaused)
    events.tell(ACCEPTED)
    events.tell_all([ACCEPTED, SETTLED])
    events.tell_all([])
    assert everything == [ACCEPTED, ACCEPTED, SETTLED]
    assert settled == [ACCEPTED, SETTLED]  # as they were told together
    assert none == []


def test_who_begins_to_listen_later_hears_what_is_told_from_then_on() -> None:
    events = Events()
    heard: list[str] = []

    def first(told: Sequence[Event]) -> None:
        heard.append("first")

    events.listen(first, BotPaused)
    events.tell(PAUSED)
    events.listen(lambda told: heard.append("second"), BotPaused, Settled)
    events.tell(PAUSED)
    assert heard == ["first", "first", "second"]
