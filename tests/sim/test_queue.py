"""The queue of updates keeps Telegram's own rules: docs/telegram.md, The update queue."""

import random

import pytest

from peik.testing import updates
from peik.testing.updates import DAY_S, WEEK_S, UpdateQueue, expiry


def filled(count: int, *, size: int = 2, now: float = 0.0) -> UpdateQueue:
    queue = UpdateQueue(random.Random(1))
    for _ in range(count):
        push(queue, b"1" * size, now=now)
    return queue


def push(
    queue: UpdateQueue, payload: bytes = b"{}", *, now: float = 0.0, lives_s: float = DAY_S
) -> updates.UpdateEvent | None:
    return queue.push("message", payload, now=now, expires_at=now + lives_s, queue_id=None)


def ids(queue: UpdateQueue, offset: int = 0, limit: int = 100, now: float = 0.0) -> list[int]:
    return [event.id for event in queue.get(offset=offset, limit=limit, now=now)]


def test_the_first_id_is_random_and_the_following_are_consecutive():
    queue = filled(3)
    first = queue.head_id
    assert 2_000_001 <= first <= 1_000_000_000
    assert ids(queue) == [first, first + 1, first + 2]
    assert UpdateQueue(random.Random(2)).head_id != first


def test_reading_without_an_offset_confirms_nothing():
    queue = filled(3)
    assert ids(queue) == ids(queue)
    assert queue.size == 3


def test_an_offset_deletes_everything_below_it_when_it_is_asked():
    queue = filled(5)
    first = queue.head_id
    assert ids(queue, first + 3, limit=1) == [first + 3]
    assert queue.size == 2  # the answer may be lost; the three are gone all the same
    assert ids(queue) == [first + 3, first + 4]


def test_a_negative_offset_keeps_the_last_and_deletes_the_rest():
    queue = filled(5)
    first = queue.head_id
    assert ids(queue, -2) == [first + 3, first + 4]
    assert queue.size == 2


def test_an_offset_far_in_the_future_is_ignored():
    queue = filled(3)
    assert ids(queue, queue.tail_id + 11) == ids(queue)
    assert queue.size == 3


def test_an_offset_far_in_the_past_is_ignored():
    queue = filled(3)
    assert ids(queue, queue.head_id - 100_001) == ids(queue)
    assert queue.size == 3


def test_an_offset_slightly_in_the_future_skips_updates_that_are_still_to_come():
    queue = filled(3)
    tail = queue.tail_id
    assert ids(queue, tail + 10) == []
    for _ in range(11):
        push(queue)
    assert ids(queue, tail + 10) == [tail + 10]
    assert queue.size == 1


def test_an_answer_stops_at_four_mebibytes_but_never_at_nothing():
    queue = filled(12, size=500_000)
    assert len(ids(queue)) == 8
    assert len(ids(queue, limit=3)) == 3


def test_an_update_over_half_a_mebibyte_is_discarded():
    queue = UpdateQueue(random.Random(1))
    assert push(queue, b"1" * (512 * 1024 + 1)) is None
    assert push(queue, b"1" * 512 * 1024) is not None


def test_at_100000_updates_the_newest_is_the_one_that_is_lost():
    queue = filled(100_000)
    first = queue.head_id
    assert push(queue) is None
    assert queue.head_id == first
    ids(queue, first + 1)
    assert push(queue) is not None


def test_at_128_mebibytes_the_newest_is_the_one_that_is_lost():
    queue = filled(267, size=500_000)
    assert push(queue, b"1" * 500_000) is not None
    assert push(queue, b"1" * 500_000) is None
    assert push(queue, b"1") is not None


@pytest.mark.parametrize(
    ("kind", "lives_s"),
    [
        ("message", 86_400),
        ("my_chat_member", 86_400),
        ("poll", 86_400),
        ("chosen_inline_result", 600),
        ("callback_query", 150),
        ("shipping_query", 150),
        ("pre_checkout_query", 150),
        ("inline_query", 30),
    ],
)
def test_each_kind_lives_its_own_time(kind: str, lives_s: int):
    queue = UpdateQueue(random.Random(1))
    queue.push(kind, b"{}", now=1000.0, expires_at=expiry(kind, now=1000.0, date=None), queue_id=None)
    assert len(ids(queue, now=1000.0 + lives_s)) == 1
    assert ids(queue, now=1000.5 + lives_s) == []
    assert queue.expired == 1


def test_a_message_lives_a_day_from_its_own_date_not_from_its_arrival():
    assert expiry("message", now=5000.0, date=1000.0) == 1000.0 + DAY_S
    assert expiry("callback_query", now=5000.0, date=1000.0) == 5150.0


def test_the_short_lived_go_from_between_the_others_and_leave_a_gap():
    queue = filled(1)
    push(queue, lives_s=30)
    push(queue)
    first = queue.head_id
    assert ids(queue, now=31.0) == [first, first + 2]


def test_after_a_silent_week_the_ids_jump_maybe_down():
    starts = []
    for seed in range(8):
        queue = UpdateQueue(random.Random(seed))
        push(queue)
        last = queue.head_id
        ids(queue, last + 1)
        push(queue, now=WEEK_S)
        starts.append(queue.head_id > last)
        assert queue.head_id != last + 1
    assert set(starts) == {True, False}


def test_a_local_server_goes_on_counting_after_a_silent_week():
    queue = UpdateQueue(random.Random(1), jumps=False)
    push(queue)
    last = queue.head_id
    ids(queue, last + 1)
    push(queue, now=WEEK_S)
    assert queue.head_id == last + 1


def test_when_the_ids_are_used_up_everything_pending_is_wiped():
    queue = filled(2)
    queue._tail_id = updates.ID_MAX
    fresh = push(queue)
    assert fresh is not None
    assert fresh.id <= 1_000_000_000
    assert ids(queue) == [fresh.id]


def test_a_webhooks_acknowledgement_leaves_a_hole():
    queue = filled(3)
    second = list(queue)[1]
    queue.drop(second)
    queue.drop(second)
    assert ids(queue) == [second.id - 1, second.id + 1]
    assert queue.size == 2
