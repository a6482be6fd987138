"""Which fault strikes which request: filters, counts, times, chance."""

import random

import pytest

from peik.errors import BadInput
from peik.testing import How, Kind, Telegram
from peik.testing.faults import PLAIN
from tests.sim.conftest import TOKEN, Clock


def fate(telegram: Telegram, method: str = "sendMessage", chat_id: object = 7, token: str = TOKEN) -> How:
    return telegram.exchange(token, method, {"chat_id": chat_id}).how


def test_without_faults_every_exchange_is_plain(telegram: Telegram):
    assert telegram.exchange(TOKEN, "getMe", {}) is PLAIN


def test_a_fault_keeps_to_its_filter(telegram: Telegram):
    telegram.faults.add("hang", method="SendMessage", chat="7", bot=700042)
    assert fate(telegram) is How.HANG
    assert fate(telegram, chat_id="7") is How.HANG
    assert fate(telegram, chat_id=8) is How.ANSWER
    assert fate(telegram, method="sendPhoto") is How.ANSWER
    assert fate(telegram, token="43:other") is How.ANSWER


def test_a_fault_strikes_as_often_as_told(telegram: Telegram):
    telegram.faults.add(Kind.LOSE_BEFORE, count=2)
    assert [fate(telegram) for _ in range(3)] == [How.RESET, How.RESET, How.ANSWER]
    assert telegram.faults.standing == []
    assert telegram.counters.lost_before == 2


def test_a_fault_ends_with_its_time(telegram: Telegram, clock: Clock):
    telegram.faults.add(Kind.LOSE_AFTER, seconds=10)
    clock.pass_s(9.9)
    assert fate(telegram) is How.RESET
    clock.pass_s(0.1)
    assert fate(telegram) is How.ANSWER
    assert telegram.counters.lost_after == 1


def test_chance_comes_from_the_seed(clock: Clock):
    def strikes(seed: int) -> list[How]:
        telegram = Telegram(now=clock, chance=random.Random(seed))
        telegram.faults.add("lose_before", probability=0.3)
        return [fate(telegram) for _ in range(1000)]

    assert strikes(1) == strikes(1) != strikes(2)
    assert 250 < strikes(1).count(How.RESET) < 350


def test_slowness_joins_with_other_faults(telegram: Telegram):
    telegram.faults.add("slow", least_s=2, most_s=3)
    telegram.faults.add("error", status=504, after=True)
    plan = telegram.exchange(TOKEN, "sendMessage", {})
    assert 2 <= plan.slow_s <= 3
    assert (plan.answer.status, plan.processes) == (504, True)


@pytest.mark.parametrize(
    ("kind", "details", "how", "processes"),
    [
        ("hang", {}, How.HANG, False),
        ("hang", {"after": True}, How.HANG, True),
        ("lose_before", {}, How.RESET, False),
        ("lose_before", {"by_end": True}, How.END, False),
        ("lose_after", {}, How.RESET, True),
        ("flood", {"retry_after": 40}, How.ANSWER, False),
        ("error", {}, How.ANSWER, False),
        ("error", {"after": True, "html": True}, How.ANSWER, True),
        ("late", {"least_s": 1, "most_s": 1}, How.ANSWER, True),
        ("truncate", {}, How.CUT, True),
        ("garbage", {}, How.GARBAGE, False),
        ("garbage", {"after": True}, How.GARBAGE, True),
    ],
)
def test_each_kind_says_whether_the_request_takes_effect(telegram, kind, details, how, processes):
    telegram.faults.add(kind, **details)
    plan = telegram.exchange(TOKEN, "sendMessage", {})
    assert (plan.how, plan.processes) == (how, processes)


def test_a_wrong_fault_is_refused_with_what_there_is(telegram: Telegram):
    for kind, details in [("explode", {}), ("hang", {"colour": "red"}), ("hang", {"count": "many"})]:
        with pytest.raises(BadInput):
            telegram.faults.add(kind, **details)
    assert telegram.faults.standing == []


def test_faults_are_ended_by_id_by_kind_or_all(telegram: Telegram):
    first = telegram.faults.add("hang")
    telegram.faults.add("slow")
    telegram.faults.add("slow")
    telegram.faults.clear(first)
    telegram.faults.clear("slow")
    assert telegram.faults.standing == []
    telegram.dark(on=True)
    telegram.dark(on=True)
    assert len(telegram.faults.standing) == 1
    telegram.dark(on=False)
    assert telegram.faults.standing == []
