"""getUpdates: parking, conflicts, the rules against busy loops, and allowed_updates (docs/telegram.md, Polling)."""

from peik.testing import Answer, Pending, Telegram
from tests.sim.conftest import TOKEN, Clock


def poll(telegram: Telegram, **params: object) -> Answer | Pending:
    return telegram.call(TOKEN, "getUpdates", params)


def texts(answer: object) -> list[str]:
    assert isinstance(answer, Answer)
    return [update["message"]["text"] for update in answer.result]


def test_a_poll_finds_what_was_written(telegram: Telegram):
    telegram.write(TOKEN, 7, "one")
    telegram.write(TOKEN, 8, "two")
    assert texts(poll(telegram)) == ["one", "two"]
    assert texts(poll(telegram, limit=1)) == ["one"]


def test_a_poll_that_finds_nothing_parks_until_its_timeout(telegram: Telegram, clock: Clock):
    parked = poll(telegram, timeout=30)
    assert isinstance(parked, Pending)
    clock.pass_s(29)
    assert telegram.ripe(parked) is None
    clock.pass_s(1)
    assert texts(telegram.ripe(parked)) == []


def test_a_parked_poll_never_waits_longer_than_fifty_seconds(telegram: Telegram, clock: Clock):
    parked = poll(telegram, timeout=3600)
    assert parked.due_at == clock.now + 50


def test_an_update_wakes_a_parked_poll_and_the_next_ones_ride_along(telegram: Telegram, clock: Clock):
    parked = poll(telegram, timeout=30)
    moves = []
    parked.moved = lambda: moves.append(parked.due_at)
    telegram.write(TOKEN, 7, "one")
    telegram.write(TOKEN, 7, "two")
    assert moves == [clock.now + 0.001]
    clock.pass_s(0.001)
    assert texts(telegram.ripe(parked)) == ["one", "two"]


def test_the_newest_parked_poll_wins_and_the_older_gets_the_409(telegram: Telegram, clock: Clock):
    older = poll(telegram, timeout=30)
    clock.pass_s(5)
    newer = poll(telegram, timeout=30)
    refused = telegram.ripe(older)
    assert refused.status == 409
    assert refused.description == (
        "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
    )
    assert telegram.ripe(newer) is None


def test_a_second_poll_that_finds_updates_throws_nobody_out(telegram: Telegram, clock: Clock):
    older = poll(telegram, timeout=30)
    telegram.write(TOKEN, 7, "one")
    assert texts(poll(telegram)) == ["one"]
    clock.pass_s(1)
    assert texts(telegram.ripe(older)) == ["one"]


def test_the_first_conflict_is_told_at_once_and_the_following_after_three_seconds(telegram: Telegram, clock: Clock):
    first = poll(telegram, timeout=30)
    second = poll(telegram, timeout=30)
    poll(telegram, timeout=30)
    assert telegram.ripe(first).status == 409
    assert telegram.ripe(second) is None
    clock.pass_s(3)
    assert telegram.ripe(second).status == 409


def test_a_poll_beside_a_webhook_is_refused(telegram: Telegram, clock: Clock):
    telegram.call(TOKEN, "setWebhook", {"url": "https://bot.example/hook"})
    refused = poll(telegram)
    assert refused.status == 409
    assert refused.description.startswith("Conflict: can't use getUpdates method while webhook is active")
    held_back = poll(telegram)
    assert isinstance(held_back, Pending)
    clock.pass_s(3)
    assert telegram.ripe(held_back).status == 409


def test_setting_a_webhook_ends_a_parked_poll(telegram: Telegram):
    parked = poll(telegram, timeout=30)
    telegram.call(TOKEN, "setWebhook", {"url": "https://bot.example/hook"})
    assert telegram.ripe(parked).description == "Conflict: terminated by setWebhook request"


def test_asking_again_with_the_same_offset_at_once_gives_one_update(telegram: Telegram, clock: Clock):
    for text in "abc":
        telegram.write(TOKEN, 7, text)
    assert len(texts(poll(telegram))) == 3
    clock.pass_s(0.4)
    assert len(texts(poll(telegram))) == 1
    clock.pass_s(0.6)
    assert len(texts(poll(telegram))) == 3


def test_asking_an_empty_queue_again_within_three_seconds_parks(telegram: Telegram, clock: Clock):
    assert texts(poll(telegram, offset=5)) == []
    clock.pass_s(2)
    parked = poll(telegram, offset=5)
    assert isinstance(parked, Pending)
    assert parked.due_at == clock.now + 3
    clock.pass_s(3)
    assert isinstance(poll(telegram, offset=5), Answer)


def test_the_limit_is_clamped(telegram: Telegram, clock: Clock):
    for number in range(120):
        telegram.write(TOKEN, 7, str(number))
    sizes = []
    for limit in (0, -3, 1000, "100", "what"):
        clock.pass_s(1)
        sizes.append(len(texts(poll(telegram, limit=limit))))
    assert sizes == [1, 1, 100, 100, 100]


def test_allowed_updates_are_filtered_before_they_get_an_id(telegram: Telegram, clock: Clock):
    poll(telegram, allowed_updates='["callback_query"]', offset=1)
    telegram.write(TOKEN, 7, "lost for ever")
    clock.pass_s(5)
    poll(telegram, allowed_updates=["message"], offset=2)
    telegram.write(TOKEN, 7, "kept")
    assert texts(poll(telegram)) == ["kept"]
    assert telegram.counters.updates_filtered == 1


def test_allowed_updates_stay_when_left_out_or_unreadable_and_reset_when_empty(telegram: Telegram, clock: Clock):
    def allowed() -> object:
        return telegram.call(TOKEN, "getWebhookInfo", {}).result.get("allowed_updates")

    cases = [
        (["message", "no_such_type"], ["message"]),
        (None, ["message"]),
        ("[broken", ["message"]),
        ([], None),
        (["chat_member", "message"], ["message", "chat_member"]),
        (["no_such_type"], None),
    ]
    for offset, (given, expected) in enumerate(cases, start=1):
        poll(telegram, offset=offset, **({} if given is None else {"allowed_updates": given}))
        assert allowed() == expected


def test_members_and_reactions_are_off_unless_asked_for(telegram: Telegram):
    person = {"id": 7, "is_bot": False, "first_name": "Ann"}
    assert telegram.update(TOKEN, "chat_member", {"from": person, "chat": {"id": -5}}) is None
    assert telegram.update(TOKEN, "poll", {"id": "5"}) is not None


def test_a_message_already_a_day_old_never_becomes_an_update(telegram: Telegram, clock: Clock):
    telegram.write(TOKEN, 7, "old", date=clock.now - 86_400)
    telegram.write(TOKEN, 7, "young", date=clock.now - 86_000)
    assert texts(poll(telegram)) == ["young"]
