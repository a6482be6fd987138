"""What waited through an outage, what each policy does with each type, and who is told."""

from typing import Any

import msgspec
import pytest

from peik.core.arrival import Arrival, read_update
from peik.core.missed import Absence, MissedLedger, MissedVerdict, Policy, is_missed

BOT = 7000001
MINUTE = 60_000
BEGAN = 1_000 * MINUTE
ENDED = BEGAN + 180 * MINUTE
ABSENCE = Absence(began_at_ms=BEGAN, ended_at_ms=ENDED, recovered_from_ms=ENDED, missed_after_ms=MINUTE)
DURING = BEGAN // 1000 + 60
SARA = {"id": 5, "is_bot": False, "first_name": "Sara", "language_code": "fa"}
PRIVATE = {"id": 5, "type": "private"}
GROUP = {"id": -9, "type": "supergroup"}


def arrival(number: int, kind: str, body: dict[str, Any], *, received_at_ms: int = ENDED, **more: Any) -> Arrival:
    update = read_update(msgspec.json.encode({"update_id": number, kind: body}))
    return Arrival(
        id=number,
        bot_id=BOT,
        number=number,
        epoch=1,
        update_id=number,
        type=update.type,
        lane=update.lane,
        user_id=update.user_id,
        message_id=update.message_id,
        sent_at_ms=update.sent_at_ms,
        received_at_ms=received_at_ms,
        payload=update.payload,
        **more,
    )


def message(number: int, text: str | None = "hi", *, date: int = DURING, **more: Any) -> Arrival:
    content = {} if text is None else {"text": text}
    body = {"message_id": number, "from": SARA, "chat": PRIVATE, "date": date, **content, **more}
    return arrival(number, "message", body)


def press(number: int, *, chat: dict[str, Any] | None = PRIVATE, received_at_ms: int = ENDED) -> Arrival:
    under = {} if chat is None else {"message": {"message_id": 3, "date": 1, "chat": chat}}
    return arrival(
        number,
        "callback_query",
        {"id": f"q{number}", "from": SARA, "data": "x", **under},
        received_at_ms=received_at_ms,
    )


def judged(policy: Policy, *arrivals: Arrival, answered: set[int] | None = None, **more: Any) -> MissedVerdict:
    ledger = MissedLedger(policy, ABSENCE, bot_id=BOT, **more)
    for one in arrivals:
        ledger.add(one)
    return ledger.close(answered or set())


@pytest.mark.parametrize(
    ("sent_at_ms", "received_at_ms", "expected"),
    [
        (BEGAN, ENDED, True),
        (BEGAN - 900 * MINUTE, ENDED, True),  # older than the outage, and waited through all of it
        (ENDED - MINUTE - 1, ENDED, True),
        (ENDED - MINUTE, ENDED, False),  # a minute is not over a minute
        (None, ENDED, True),  # fetched after the absence: nobody knows when it was pressed
        (None, BEGAN + 1, True),  # came in while the consumer was away
        (None, ENDED - MINUTE, False),
    ],
)
def test_missed_is_what_waited_over_a_minute_of_the_outage(
    sent_at_ms: int | None, received_at_ms: int, expected: bool
) -> None:
    one = msgspec.structs.replace(message(1), sent_at_ms=sent_at_ms, received_at_ms=received_at_ms)
    assert is_missed(one, ABSENCE) is expected


def test_a_press_of_a_short_absence_is_not_missed_and_a_replay_never_is() -> None:
    short = msgspec.structs.replace(ABSENCE, began_at_ms=ENDED - MINUTE)
    assert not is_missed(press(1), short)
    assert not is_missed(msgspec.structs.replace(message(1), replay_of=7), ABSENCE)


def query(number: int, kind: str) -> Arrival:
    return arrival(number, kind, {"id": "1", "from": SARA, "query": ""})


def change(number: int, status: str, chat: dict[str, Any] = PRIVATE) -> Arrival:
    body = {"chat": chat, "from": SARA, "date": DURING, "new_chat_member": {"status": status}}
    return arrival(number, "my_chat_member", body)


_FACTS = [
    arrival(10, "poll_answer", {"poll_id": "1", "user": SARA, "option_ids": []}),
    change(11, "member"),
    arrival(
        12, "channel_post", {"message_id": 1, "chat": {"id": -8, "type": "channel"}, "date": DURING, "text": "news"}
    ),
    arrival(13, "business_message", {"message_id": 1, "from": SARA, "chat": PRIVATE, "date": DURING, "text": "x"}),
    message(14, None, successful_payment={"currency": "XTR", "total_amount": 1}),
    message(15, None, new_chat_members=[SARA]),
    arrival(16, "something_new", {"from": SARA}),
]
_QUERIES = [query(20, "inline_query"), query(21, "shipping_query"), query(22, "pre_checkout_query")]


@pytest.mark.parametrize(
    ("policy", "over", "told"),
    [
        (Policy.PROCESS, {20, 21, 22}, 0),
        (Policy.NOTIFY, {1, 2, 20, 21, 22}, 1),
        (Policy.BOTH, {20, 21, 22}, 1),
        (Policy.DROP, {1, 2, 20, 21, 22}, 0),
    ],
)
def test_each_policy_does_what_its_row_says(policy: Policy, over: set[int], told: int) -> None:
    arrivals = [message(1), press(2), *_FACTS, *_QUERIES]
    verdict = judged(policy, *arrivals)
    assert {number for first, last in verdict.over for number in range(first, last + 1)} == over
    assert len(verdict.notices) == told
    assert (verdict.missed, verdict.handed) == (len(arrivals), len(arrivals) - len(over))


def test_one_notice_per_chat_quotes_the_first_message_and_counts_the_others() -> None:
    other = {"chat": {"id": 6, "type": "private"}, "from": {**SARA, "id": 6, "language_code": "ru"}}
    arrivals = [press(1), message(2, "first"), message(3, "second"), message(4, "other", **other), message(5)]
    ours, theirs = judged(Policy.NOTIFY, *arrivals).notices
    assert (ours.first.text, ours.first.message_id, ours.first.language, ours.more) == ("first", 2, "fa", 3)
    assert (theirs.first.chat, theirs.first.language, theirs.more) == (6, "ru", 0)


def test_a_press_that_was_answered_is_in_no_notice_and_not_handed_on_if_it_is_to_be_repeated() -> None:
    assert judged(Policy.NOTIFY, press(1), press(2), answered={1, 2}) == MissedVerdict(
        over=[(1, 2)], notices=[], missed=2, handed=0, told=2
    )
    assert judged(Policy.BOTH, press(1), answered={1}).over == []
    (notice,) = judged(Policy.NOTIFY, press(1), press(2), answered={1}).notices
    assert (notice.first.query_id, notice.more) == ("q2", 0)


def test_a_press_under_an_inline_result_has_no_chat_to_tell_and_is_handed_on() -> None:
    assert judged(Policy.NOTIFY, press(1, chat=None)) == MissedVerdict(over=[], notices=[], missed=1, handed=1, told=0)


@pytest.mark.parametrize(
    ("text", "more", "username", "expected"),
    [
        ("/start", {}, None, True),
        ("/start@our_bot now", {}, "our_bot", True),
        ("/start@other_bot", {}, "our_bot", False),
        ("good morning all", {}, "our_bot", False),
        ("what do you say, @Our_Bot?", {}, "our_bot", True),
        ("mail me at sara@our_bot", {}, "our_bot", False),
        ("hey @our_bot", {}, None, False),
        ("yes", {"reply_to_message": {"from": {"id": BOT, "is_bot": True}}}, None, True),
        ("yes", {"reply_to_message": {"from": {"id": 8}}}, None, False),
        ("/start", {"from": {"id": 9, "is_bot": True}}, None, False),
        ("/start", {"sender_chat": {"id": -9, "type": "supergroup"}}, None, False),
    ],
)
def test_in_groups_only_who_addressed_the_bot_is_told_and_the_rest_is_handed_on(
    text: str, more: dict[str, Any], username: str | None, expected: bool
) -> None:
    verdict = judged(Policy.NOTIFY, message(1, text, chat=GROUP, **more), username=username)
    assert len(verdict.notices) == expected
    assert verdict.handed == (not expected)


def test_who_blocked_the_bot_meanwhile_is_not_told_unless_he_came_back() -> None:
    assert judged(Policy.BOTH, message(1), change(2, "kicked")).notices == []
    assert len(judged(Policy.BOTH, message(1), change(2, "kicked"), change(3, "member")).notices) == 1
    assert len(judged(Policy.BOTH, message(1), change(2, "kicked"), message(3)).notices) == 1
    assert len(judged(Policy.BOTH, change(1, "kicked", GROUP), message(2)).notices) == 1


def test_an_edit_shares_the_fate_of_its_message_and_is_a_fact_if_that_was_there_before() -> None:
    body = {"message_id": 1, "from": SARA, "chat": PRIVATE, "edit_date": DURING + 5, "text": "hi!"}
    edit = arrival(2, "edited_message", {**body, "date": DURING})
    verdict = judged(Policy.NOTIFY, message(1), edit)
    assert (verdict.over, verdict.notices[0].more) == ([(1, 2)], 0)
    old = arrival(2, "edited_message", {**body, "date": BEGAN // 1000 - 100})
    assert judged(Policy.NOTIFY, message(1), old).over == [(1, 1)]
    assert judged(Policy.DROP, old).over == []


def test_what_an_earlier_outage_dealt_with_is_not_dealt_with_again() -> None:
    earlier = msgspec.structs.replace(ABSENCE, ended_at_ms=ENDED - 30 * MINUTE, recovered_from_ms=ENDED - 31 * MINUTE)
    told = msgspec.structs.replace(message(1), received_at_ms=ENDED - 31 * MINUTE)
    fresh = msgspec.structs.replace(message(2, "since then"), received_at_ms=ENDED - 20 * MINUTE)
    (notice,) = judged(Policy.BOTH, told, fresh, earlier=[earlier]).notices
    assert (notice.first.text, notice.more) == ("since then", 0)


def test_media_without_text_have_a_name_and_a_caption_is_quoted() -> None:
    notice = judged(Policy.BOTH, message(1, None, animation={}, document={})).notices[0]
    assert (notice.first.content, notice.first.text) == ("animation", None)
    notice = judged(Policy.BOTH, message(1, None, photo=[], caption="look")).notices[0]
    assert (notice.first.content, notice.first.text) == ("photo", "look")


def test_a_topic_is_remembered_and_what_cannot_be_read_is_handed_on() -> None:
    in_topic = message(1, "/go", chat=GROUP, message_thread_id=4, is_topic_message=True)
    assert judged(Policy.BOTH, in_topic).notices[0].first.thread == 4
    strange = msgspec.structs.replace(message(1), payload='{"message":{"text":5}}')
    assert judged(Policy.DROP, strange) == MissedVerdict(over=[], notices=[], missed=1, handed=1, told=0)
