"""How fast a bot may send (docs/telegram.md, Flood limits)."""

import pytest

from peik.testing import Answer, Options, Telegram
from tests.sim.conftest import TOKEN, Clock

GROUP = -1_000_000_000_777


def send(telegram: Telegram, chat_id: int, method: str = "sendMessage", **params: object) -> Answer:
    answer = telegram.call(TOKEN, method, {"chat_id": chat_id, "text": "hello", **params})
    assert isinstance(answer, Answer)
    return answer


def test_a_private_chat_takes_a_short_burst_and_then_one_a_second(telegram: Telegram, clock: Clock):
    assert [send(telegram, 7).status for _ in range(6)] == [200] * 5 + [429]
    clock.pass_s(1)
    assert [send(telegram, 7).status for _ in range(2)] == [200, 429]
    assert telegram.counters.limited == 2
    assert telegram.sent.total == 6


def test_a_429_carries_its_wait_in_body_and_header(telegram: Telegram):
    for _ in range(5):
        send(telegram, 7)
    refused = send(telegram, 7)
    assert refused.description == "Too Many Requests: retry after 1"
    assert refused.json()["parameters"] == {"retry_after": 1}
    assert ("Retry-After", "1") in refused.headers


def test_one_chat_at_its_limit_does_not_hold_up_another(telegram: Telegram):
    for _ in range(6):
        send(telegram, 7)
    assert send(telegram, 8).ok


def test_a_bot_sends_thirty_a_second_in_bulk(telegram: Telegram, clock: Clock):
    assert [send(telegram, chat_id).status for chat_id in range(1, 32)] == [200] * 30 + [429]
    clock.pass_s(1)
    assert [send(telegram, chat_id).status for chat_id in range(101, 132)] == [200] * 30 + [429]


def test_replies_to_active_people_are_not_bulk(telegram: Telegram, clock: Clock):
    for user_id in range(1, 101):
        telegram.write(TOKEN, user_id, "hi")
    assert {send(telegram, user_id).status for user_id in range(1, 101)} == {200}
    clock.pass_s(61)
    assert [send(telegram, user_id).status for user_id in range(1, 32)] == [200] * 30 + [429]


def test_a_press_makes_a_chat_active_too(telegram: Telegram):
    message_id = send(telegram, 500).result["message_id"]
    for chat_id in range(1, 30):
        send(telegram, chat_id)
    assert send(telegram, 501).status == 429
    telegram.press(TOKEN, 500, message_id, "yes")
    assert send(telegram, 500).ok


def test_a_group_takes_twenty_a_minute(telegram: Telegram, clock: Clock):
    assert [send(telegram, GROUP).status for _ in range(20)] == [200] * 20
    clock.pass_s(15)
    assert send(telegram, GROUP).json()["parameters"] == {"retry_after": 45}
    clock.pass_s(45)
    assert send(telegram, GROUP).ok


def test_edits_in_a_group_have_a_minute_of_their_own(telegram: Telegram):
    message_id = [send(telegram, GROUP) for _ in range(20)][-1].result["message_id"]
    answers = [send(telegram, GROUP, "editMessageText", message_id=message_id, text=str(n)) for n in range(21)]
    assert [answer.status for answer in answers] == [200] * 20 + [429]


def test_edits_in_private_chats_are_free(telegram: Telegram):
    message_id = send(telegram, 7).result["message_id"]
    answers = [send(telegram, 7, "editMessageText", message_id=message_id, text=str(n)) for n in range(40)]
    assert {answer.status for answer in answers} == {200}


def test_an_album_counts_as_its_items(telegram: Telegram):
    media = [{"type": "photo", "media": f"https://pictures.example/{n}.jpg"} for n in range(10)]
    assert send(telegram, GROUP, "sendMediaGroup", media=media).ok
    assert send(telegram, GROUP, "sendMediaGroup", media=media).ok
    assert send(telegram, GROUP).status == 429


def test_sending_on_during_a_flood_wait_is_refused_again(telegram: Telegram, clock: Clock):
    for _ in range(20):
        send(telegram, GROUP)
    assert send(telegram, GROUP).json()["parameters"] == {"retry_after": 60}
    clock.pass_s(30)
    assert send(telegram, GROUP).json()["parameters"] == {"retry_after": 30}


def test_sending_on_may_lengthen_the_wait(telegram: Telegram, clock: Clock):
    telegram.options.change({"limits": {"flood_lengthens_s": 10}})
    for _ in range(21):
        send(telegram, GROUP)
    clock.pass_s(30)
    assert send(telegram, GROUP).json()["parameters"] == {"retry_after": 40}


def test_paid_broadcasts_go_faster(telegram: Telegram):
    statuses = {send(telegram, chat_id, allow_paid_broadcast=True).status for chat_id in range(1, 200)}
    assert statuses == {200}


def test_limits_change_while_it_runs(telegram: Telegram):
    telegram.options.change({"limits": {"chat_burst": 1}})
    assert [send(telegram, 7).status for _ in range(2)] == [200, 429]
    telegram.options.change({"limits": {"on": False}})
    assert {send(telegram, 7).status for _ in range(100)} == {200}


def test_a_refused_send_is_not_counted(telegram: Telegram):
    telegram.block(TOKEN, 7)
    for _ in range(50):
        assert send(telegram, 7).status == 403
    telegram.unblock(TOKEN, 7)
    assert send(telegram, 7).ok


def test_an_unknown_option_changes_nothing():
    options = Options()
    for patch in (
        {"limits": {"no_such": 1}, "mode": "local"},
        {"nothing": 1},
        {"mode": "moon"},
        {"limits": {"on": "x"}},
    ):
        with pytest.raises(Exception, match=r"option|Invalid|Expected"):
            options.change(patch)
    assert options == Options()
