"""Every method of the Bot API is imitated by the simulated Telegram, or listed as not."""

import pytest

from docs.pages.imitated import bot_api_methods
from peik.testing.methods import METHODS, NOT_IMITATED, find, truth
from peik.testing.sends import send_anything

ALL = bot_api_methods()


def test_all_methods_are_known() -> None:
    assert len(ALL) > 180


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_method_is_imitated_or_listed_as_not(name: str) -> None:
    assert name in METHODS or name in NOT_IMITATED
    if find(name)[1] in (truth, send_anything):
        assert name in NOT_IMITATED


def test_nothing_is_listed_that_is_no_method() -> None:
    assert NOT_IMITATED.keys() <= ALL.keys()
