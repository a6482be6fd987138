"""Webhooks: setting them, and the plan of what is pushed when (docs/telegram.md, Webhook delivery)."""

import random

import pytest

from peik.testing import Answer, Push, PushResult, Telegram
from peik.testing.updates import Deliveries, UpdateQueue
from tests.sim.conftest import TOKEN, Clock

URL = "https://bot.example/hook"
OK = PushResult(status=200, keeps_connection=True)
BROKEN = PushResult(status=500, keeps_connection=True)


def call(telegram: Telegram, method: str, **params: object) -> Answer:
    answer = telegram.call(TOKEN, method, params)
    assert isinstance(answer, Answer)
    return answer


def info(telegram: Telegram) -> dict:
    return call(telegram, "getWebhookInfo").result


def only(pushes: list[Push]) -> Push:
    (push,) = pushes
    return push


def test_a_webhook_is_set_shown_kept_and_deleted(telegram: Telegram, clock: Clock):
    answer = call(telegram, "setWebhook", url=URL, max_connections=500)
    assert answer.json() == {"ok": True, "result": True, "description": "Webhook was set"}
    assert info(telegram)["url"] == URL
    assert info(telegram)["max_connections"] == 100
    clock.pass_s(1)
    assert call(telegram, "setWebhook", url=URL, max_connections=100).description == "Webhook is already set"
    assert call(telegram, "deleteWebhook").description == "Webhook was deleted"
    assert call(telegram, "deleteWebhook").description == "Webhook is already deleted"
    assert info(telegram)["url"] == ""


def test_only_one_setting_a_second(telegram: Telegram, clock: Clock):
    call(telegram, "setWebhook", url=URL)
    assert call(telegram, "setWebhook", url=URL).json()["parameters"] == {"retry_after": 1}
    clock.pass_s(1)
    assert call(telegram, "setWebhook", url=URL).ok


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"url": "http://bot.example/"}, "bad webhook: An HTTPS URL must be provided for webhook"),
        ({"url": "https://bot.example:8080/"}, "bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443"),
        ({"url": "https://127.0.0.1/"}, "bad webhook: IP address 127.0.0.1 is reserved"),
        ({"url": "https://10.1.2.3:8443/"}, "bad webhook: IP address 10.1.2.3 is reserved"),
        ({"url": "https://[2a00::1]/"}, "bad webhook: IPv6-only addresses are not allowed"),
        ({"url": "https://bot.example:port/"}, "invalid webhook URL specified"),
        ({"url": URL, "secret_token": "no spaces"}, "secret token contains unallowed characters"),
        ({"url": URL, "secret_token": "x" * 257}, "secret token is too long"),
    ],
)
def test_a_wrong_webhook_is_refused_in_the_cloud(telegram: Telegram, params: dict, text: str):
    assert call(telegram, "setWebhook", **params).description == f"Bad Request: {text}"


def test_a_local_server_takes_any_address(telegram: Telegram):
    telegram.options.change({"mode": "local"})
    assert call(telegram, "setWebhook", url="http://127.0.0.1:9999/x").ok
    assert info(telegram)["max_connections"] == 100


def test_updates_that_wait_go_to_the_webhook_unless_dropped(telegram: Telegram, clock: Clock):
    telegram.write(TOKEN, 7, "early")
    call(telegram, "setWebhook", url=URL, secret_token="s3")
    push = only(telegram.pushes_due())
    assert b'"early"' in push.body
    assert push.headers()["X-Telegram-Bot-Api-Secret-Token"] == "s3"
    telegram.push_done(push, OK)
    assert info(telegram)["pending_update_count"] == 0
    telegram.write(TOKEN, 7, "dropped")
    clock.pass_s(1)
    call(telegram, "setWebhook", url=URL + "2", drop_pending_updates=True)
    assert telegram.pushes_due() == []


def test_an_update_in_flight_when_the_webhook_goes_is_seen_again_by_polling(telegram: Telegram):
    call(telegram, "setWebhook", url=URL)
    telegram.write(TOKEN, 7, "x")
    push = only(telegram.pushes_due())
    call(telegram, "deleteWebhook")
    assert len(call(telegram, "getUpdates").result) == 1
    assert telegram.push_done(push, BROKEN) is None


def test_retries_come_at_once_and_then_ever_later(telegram: Telegram, clock: Clock):
    call(telegram, "setWebhook", url=URL)
    telegram.write(TOKEN, 7, "x")
    waits = []
    for _ in range(12):
        telegram.push_done(only(telegram.pushes_due()), BROKEN)
        wait_s = telegram.next_push_at() - clock.now
        waits.append(wait_s)
        clock.pass_s(wait_s)
    assert waits[:6] == [0, 2, 4, 8, 16, 32]
    assert 60 <= waits[6] <= 64
    assert all(60 <= wait_s <= 120 for wait_s in waits[7:])
    assert info(telegram)["last_error_message"] == "Wrong response from the webhook: 500 Internal Server Error"


def test_retry_after_replaces_the_back_off_and_does_not_advance_it(telegram: Telegram, clock: Clock):
    call(telegram, "setWebhook", url=URL)
    telegram.write(TOKEN, 7, "x")
    telegram.push_done(only(telegram.pushes_due()), BROKEN)
    busy = PushResult(status=503, retry_after_s=17, keeps_connection=True)
    for result, expected in [(busy, 17), (busy, 17), (BROKEN, 2), (PushResult(status=503, retry_after_s=9e9), 3600)]:
        telegram.push_done(only(telegram.pushes_due()), result)
        assert telegram.next_push_at() == clock.now + expected
        clock.pass_s(expected)


def test_an_update_is_given_up_when_its_life_ends(telegram: Telegram, clock: Clock):
    call(telegram, "setWebhook", url=URL)
    telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "x"})
    telegram.press(TOKEN, 7, 1, "yes")
    pushes = 0
    while info(telegram)["pending_update_count"]:
        telegram.push_done(only(telegram.pushes_due()), BROKEN)
        pushes += 1
        clock.now = telegram.next_push_at() or clock.now
    assert pushes == 8  # 0+2+4+8+16+32+~62 s: the ninth would come after 150 s


def test_a_failing_head_blocks_its_chat_and_no_other(telegram: Telegram):
    call(telegram, "setWebhook", url=URL)
    for chat, text in [(7, "first"), (7, "second"), (8, "other")]:
        telegram.write(TOKEN, chat, text)
    head = only(telegram.pushes_due())  # one connection until something has succeeded
    telegram.push_done(head, OK)
    second, other = telegram.pushes_due()
    assert (b"second" in second.body, b"other" in other.body) == (True, True)
    telegram.write(TOKEN, 7, "third")
    telegram.push_done(second, BROKEN)
    again = only(telegram.pushes_due())
    assert again.event is second.event
    assert telegram.pushes_due() == []


def test_a_message_and_a_press_of_one_person_go_side_by_side(telegram: Telegram):
    call(telegram, "setWebhook", url=URL)
    telegram.write(TOKEN, 7, "warm up")
    telegram.push_done(only(telegram.pushes_due()), OK)
    telegram.write(TOKEN, 7, "a")
    telegram.press(TOKEN, 7, 1, "b")
    assert {push.event.type for push in telegram.pushes_due()} == {"message", "callback_query"}


def test_connections_open_slowly_without_success_and_quickly_with_it():
    queue = UpdateQueue(random.Random(1))
    plan = Deliveries(queue, connections_max=40, chance=random.Random(1))
    events = [queue.push("message", b"{}", now=0, expires_at=9e9, queue_id=None) for _ in range(60)]
    for event in events:
        plan.offer(event)
    (first,) = plan.take(100.0)
    plan.done(first, PushResult(error="Connection refused"), now=100.0)
    assert plan.take(101.0) == []  # struggling: a new connection only every 2 s
    assert plan.next_at(101.0) == 102.0
    (again,) = plan.take(102.0)
    plan.done(again, OK, now=102.0)
    sizes = [len(plan.take(102.0 + tick * 0.5)) for tick in range(1, 7)]
    assert sizes == [1 + 10, 10, 10, 9, 0, 0]  # the open one, then ten new each half second, up to forty
    assert plan.take(110.0) == []


def test_stuck_chats_stall_the_whole_bot():
    queue = UpdateQueue(random.Random(1))
    plan = Deliveries(queue, connections_max=2, chance=random.Random(1))
    for number in range(6):
        plan.offer(queue.push("message", b"{}", now=0, expires_at=9e9, queue_id=("message", number)))
    now, seen = 0.0, set()
    for _ in range(40):
        now = plan.next_at(now) or now
        for event in plan.take(now):
            seen.add(event.queue_id[1])
            plan.done(event, BROKEN, now=now)
    assert seen == {0, 1, 2, 3}  # 2 x max_connections lines are loaded, and no more


def test_410_for_a_day_deletes_the_webhook(telegram: Telegram, clock: Clock):
    call(telegram, "setWebhook", url=URL)
    gone = PushResult(status=410, keeps_connection=True)
    while info(telegram)["url"]:
        telegram.write(TOKEN, 7, "x") if not telegram.bot(TOKEN).queue.size else None
        telegram.push_done(telegram.pushes_due()[0], gone)
        clock.now = max(clock.now, telegram.next_push_at() or clock.now)
    assert clock.now - 1_700_000_000 == pytest.approx(23 * 3600, abs=200)


def test_a_method_in_the_answer_is_carried_out_and_its_result_thrown_away(telegram: Telegram):
    call(telegram, "setWebhook", url=URL)
    bodies = [
        ("application/json", b'{"method":"sendMessage","chat_id":7,"text":"json"}'),
        ("application/x-www-form-urlencoded", b"method=sendMessage&chat_id=7&text=form"),
        ("application/json", b'{"method":"deleteWebhook"}'),
        ("application/json", b'{"method":"getMe"}'),
        ("application/json", b"ok"),
        ("text/html", b"<html>"),
    ]
    for kind, body in bodies:
        telegram.write(TOKEN, 7, "x")
        telegram.push_done(
            only(telegram.pushes_due()), PushResult(status=200, body=body, content_type=kind, keeps_connection=True)
        )
    assert telegram.sent.texts(7) == ["json", "form"]
    assert info(telegram)["url"] == URL
    assert telegram.counters.requests["getMe"] == 0
