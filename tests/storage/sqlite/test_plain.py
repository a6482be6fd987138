"""Letters with the usual terms are made the short way. It must never leave out a term that somebody gave."""

from typing import Any

import msgspec
import pytest

from peik.core.letter import Backoff, Draft, OnUncertain, letter_of_draft
from peik.storage.sqlite.commit import Slot, is_plain
from tests.storage.acts import NOW, draft, enclosed

# One unusual value for each term, so that a new one cannot be forgotten here.
UNUSUAL: dict[str, Any] = {
    "bot_id": 77,
    "method": "sendPhoto",
    "params": '{"text":"another"}',
    "chat": "@name",
    "thread": 9,
    "weight": 3,
    "rank": 0,
    "attempts": 9,
    "backoff_ms": 5,
    "backoff": Backoff.FIXED,
    "timeout_ms": 900,
    "on_uncertain": OnUncertain.HOLD,
    "counts_uncertain": True,
    "send_at_ms": NOW + 1,
    "expires_at_ms": NOW + 2,
    "awaits": 4,
    "target": "m5",
    "enclosed": (enclosed("b"),),
    "idempotency_key": "k",
    "digest": "d",
    "is_moved": True,
    "metadata": "{}",
    "user_id": "u",
    "message_type": "t",
    "hook": 3,
    "trace": "x",
    "is_too_late": True,
    "is_judged": True,
}


@pytest.mark.parametrize("term", Draft.__struct_fields__)
def test_the_short_way_makes_the_same_letter(term: str) -> None:
    given = msgspec.structs.replace(draft(), **{term: UNUSUAL[term]})
    slot = Slot(given, NOW)
    slot.is_plain = is_plain(slot)
    assert slot.letter == letter_of_draft(given, letter_id=0, number=0)


def test_a_letter_without_terms_of_its_own_goes_the_short_way() -> None:
    assert is_plain(Slot(draft(), NOW))
