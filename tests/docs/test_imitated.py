"""Every method of the Bot API is imitated by the simulated Telegram, or listed as not."""

import re

import pytest

from docs.pages.imitated import bot_api_methods, bot_api_types, imitated_parts, read_by, suites_seen
from peik.testing.methods import METHODS, NOT_IMITATED, find, truth
from peik.testing.sends import send_anything
from proofs.suites import SUITES, WHY, why

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


def test_a_field_counts_as_read_only_where_its_method_is_carried_out() -> None:
    poll, described = read_by("sendPoll", METHODS["sendPoll"]), read_by("setMyDescription", METHODS["setMyDescription"])
    assert {"question", "chat_id", "reply_parameters", "allow_paid_broadcast"} <= poll
    assert "prices" not in poll
    assert "description" in described  # said in the table of methods
    assert "short_description" not in described


def test_every_field_of_every_method_and_object_is_read_or_stands_on_the_page() -> None:
    page = "\n".join(imitated_parts())
    (whole,) = (line for line in page.splitlines() if line.startswith("All fields are looked at of "))
    for name, method in ALL.items():
        rows = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        fields = {field.alias or one for one, field in method.model_fields.items()}
        if name in NOT_IMITATED:
            assert rows
        elif rows:
            assert fields - read_by(name, METHODS[name]) == set(re.findall(r"`(\w+)`", rows[0])[1:]) != set()
        else:
            assert f"`{name}`" in whole
            assert fields <= read_by(name, METHODS[name])
    assert len(bot_api_types()) > 350
    assert "| `ChatFullInfo` |" in page  # which the simulator knows in part


def test_every_suite_ran_both_ways_and_the_gateway_lost_no_test() -> None:
    rows = {(row.suite, row.route): row for row in suites_seen()}
    assert rows.keys() == {(suite.name, route) for suite in SUITES for route in ("straight", "gateway")}
    for suite in SUITES:
        straight, gateway = rows[suite.name, "straight"], rows[suite.name, "gateway"]
        assert straight.passed + len(straight.failed) == straight.of > 40
        assert set(gateway.failed) <= set(straight.failed)


def test_every_failure_of_a_suite_has_its_reason_and_every_reason_its_failure() -> None:
    failed = [(row.suite, name) for row in suites_seen() for name in row.failed]
    assert [one for one in failed if not why(*one)] == []
    reasons = {why(*one) for one in failed}
    assert [row for row in WHY if row[2] not in reasons] == []
