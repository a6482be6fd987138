"""What a store tells of one commit: letters of several bots come together, and one bot's trouble is none of the others'."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from peik.core.letter import Letter, letter_of_draft
from peik.outbox.courier import Courier
from tests.storage.acts import draft


class Hearing:
    """Stands where a sender does."""

    def __init__(self, error: Exception | None = None) -> None:
        self.offered: list[int] = []
        self._error = error

    def offer(self, letters: Sequence[Letter]) -> None:
        if self._error is not None:
            raise self._error
        self.offered += [letter.id for letter in letters]


def courier_of(senders: dict[int, Hearing]) -> Courier:
    nobody = cast(Any, None)
    courier = Courier(clock=nobody, events=nobody, lease_of=nobody, make_sender=nobody, routes=nobody)
    courier.senders = cast(Any, senders)
    return courier


def letter(number: int, bot_id: int) -> Letter:
    return letter_of_draft(draft(1, bot_id=bot_id), letter_id=number, number=number)


def test_a_bot_whose_sender_fails_keeps_no_letters_from_the_others() -> None:
    senders = {1: Hearing(ZeroDivisionError()), 2: Hearing(), 3: Hearing()}
    with pytest.raises(ZeroDivisionError):  # the store tells it to whoever watches
        courier_of(senders).on_accepted([letter(1, 2), letter(2, 1), letter(3, 3), letter(4, 2)])
    assert (senders[2].offered, senders[3].offered) == ([1, 4], [3])
