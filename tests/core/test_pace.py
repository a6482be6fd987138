"""Telegram's limits in virtual time: never above a figure, never idle below it, and blame on the smallest scope."""

import itertools
from collections.abc import Iterable

import pytest

from peik.core.catalogue import Scope
from peik.core.letter import Chat
from peik.core.pace import (
    ACCOUNT_LIMITS,
    CHATS_REMEMBERED_MAX,
    NO_LIMITS,
    RECOVERY_S,
    Pace,
    PaceLimits,
    has_chat_pace,
    is_group,
)

GROUP = -1001
PERSON = 77
START = 1000.0


def busiest(times: Iterable[float], window_s: float) -> int:
    """The most messages in any window, open at its end."""
    ordered = sorted(times)
    most = first = 0
    for last, at in enumerate(ordered):
        while at - ordered[first] >= window_s:
            first += 1
        most = max(most, last - first + 1)
    return most


def run(pace: Pace, chats: list[Chat], seconds: float, *, interactive: bool = False, weight: int = 1) -> list[float]:
    """Send as fast as the pace allows, to the chats in turn, for so long. When each message went."""
    now, went, turn = START, [], 0
    while now < START + seconds:
        chat = chats[turn % len(chats)]
        ready_at = max(pace.bot_ready_at(now, interactive=interactive), pace.chat_ready_at(chat, now, weight=weight))
        if ready_at > now:
            now = ready_at
            continue
        pace.spend(chat, now, weight=weight, interactive=interactive)
        went += [now] * weight
        turn += 1
    return went


def new_pace(limits: PaceLimits | None = None) -> Pace:
    return Pace(limits or PaceLimits(), now=START)


def test_bulk_never_passes_30_in_any_second_and_uses_nearly_all_of_it() -> None:
    went = run(new_pace(), list(range(1, 5000)), 120)
    assert busiest(went, 1.0) <= 30
    assert len(went) >= 120 * 29


def test_a_person_gets_a_short_burst_and_then_one_message_a_second() -> None:
    went = run(new_pace(), [PERSON], 180)
    assert went[2] < START + 0.1
    assert busiest(went[3:], 1.0) == 1
    assert busiest(went, 60.0) <= 62
    assert len(went) >= 170


def test_a_group_never_gets_more_than_20_in_any_minute() -> None:
    went = run(new_pace(), [GROUP], 600)
    assert busiest(went, 60.0) == 20
    assert len(went) >= 195


@pytest.mark.parametrize("weight", [2, 7, 10])
def test_albums_count_as_their_items_in_a_groups_minute(weight: int) -> None:
    went = run(new_pace(), [GROUP], 600, weight=weight)
    assert busiest(went, 60.0) <= 20
    assert len(went) >= 9 * (20 // weight) * weight


def test_an_album_larger_than_a_minutes_worth_still_goes_into_an_empty_minute() -> None:
    went = run(new_pace(PaceLimits(group_per_min=5)), [GROUP], 200, weight=10)
    assert busiest(went, 60.0) == 10
    assert len(went) >= 30


def test_an_album_of_ten_makes_bulk_wait_for_ten() -> None:
    pace = new_pace()
    pace.spend(PERSON, START, weight=10, interactive=False)
    assert pace.bot_ready_at(START, interactive=False) == pytest.approx(START + 10 * 1.02 / 30)


def test_an_album_to_a_person_waits_for_the_burst_to_be_over() -> None:
    pace = new_pace()
    pace.spend(PERSON, START, weight=1, interactive=False)
    assert pace.chat_ready_at(PERSON, START) <= START
    assert pace.chat_ready_at(PERSON, START, weight=10) == pytest.approx(START + 1.02)


def test_what_makes_no_message_is_free() -> None:
    pace = new_pace()
    for _ in range(1000):
        pace.spend(GROUP, START, weight=0, interactive=False)
    assert pace.bot_ready_at(START, interactive=False) <= START
    assert pace.chat_ready_at(GROUP, START) <= START


# ---- bulk and people ----


def test_bulk_does_not_slow_what_people_wait_for() -> None:
    pace = new_pace()
    run(pace, list(range(1, 1000)), 30)
    assert pace.bot_ready_at(START + 30, interactive=True) <= START + 30


def test_people_are_answered_far_faster_than_bulk_goes_and_faster_still_while_telegram_takes_it() -> None:
    went = run(new_pace(), list(range(1, 8000)), 20, interactive=True)
    per_second = [sum(begin <= at - 1000.0 < begin + 1 for at in went) for begin in range(20)]
    assert 119 <= per_second[0] <= 120 + 31 + 7
    assert per_second[1:] == sorted(per_second[1:])
    assert per_second[1] < per_second[-1] <= 1000


def test_what_people_get_is_taken_from_bulk() -> None:
    pace = new_pace()
    for chat in range(1, 21):
        pace.spend(chat, START, weight=1, interactive=True)
    bulk = 0
    now = START
    while now < START + 1.0:
        now = max(now, pace.bot_ready_at(now, interactive=False))
        if now < START + 1.0:
            pace.spend(1000 + bulk, now, weight=1, interactive=False)
            bulk += 1
    assert 1 <= bulk <= 13


def test_bulk_does_not_starve_however_busy_people_keep_the_bot() -> None:
    pace = new_pace()
    now, bulk = START, []
    while now < START + 60:
        if pace.bot_ready_at(now, interactive=True) <= now:
            pace.spend(int(now * 1000), now, weight=1, interactive=True)
        if pace.bot_ready_at(now, interactive=False) <= now:
            pace.spend(int(now * 1000) + 1, now, weight=1, interactive=False)
            bulk.append(now)
        now += 0.005
    assert 60 * 2 <= len(bulk) <= 60 * 4
    assert max(later - sooner for sooner, later in itertools.pairwise(bulk)) < 0.5
    assert pace.bot_ready_at(now, interactive=False) <= now + 1.0  # and when they are quiet it goes on soon


# ---- learning ----


def refuse_the_bot(pace: Pace, now: float) -> None:
    """Two idle chats are refused, one after the other."""
    pace.limited(900_001, now, retry_after_s=3.0)
    assert pace.limited(900_002, now, retry_after_s=3.0) is Scope.BOT


def test_a_429_slows_the_bot_down_and_time_heals_it() -> None:
    pace = new_pace()
    refuse_the_bot(pace, START)
    assert pace.rates(START)["bulk_per_s"] == pytest.approx(21.0)
    assert 21.0 < pace.rates(START + 20)["bulk_per_s"] < 30.0
    assert pace.rates(START + RECOVERY_S)["bulk_per_s"] == 30.0


def test_many_answers_to_one_flood_are_one_lesson() -> None:
    pace = new_pace()
    for chat in range(50):
        pace.limited(900_000 + chat, START, retry_after_s=3.0)
    assert pace.rates(START)["bulk_per_s"] == pytest.approx(21.0)


def test_lessons_add_up_to_a_floor_and_never_stop_the_bot() -> None:
    pace = new_pace()
    for lesson in range(100):
        refuse_the_bot(pace, START + 10 * lesson)
    assert pace.rates(START + 1000)["bulk_per_s"] >= 1.0


def test_a_chat_that_was_refused_goes_slower_and_recovers() -> None:
    pace = new_pace()
    pace.limited(PERSON, START, retry_after_s=1.0)
    for _ in range(3):
        pace.spend(PERSON, START + 2, weight=1, interactive=False)
    soon = pace.chat_ready_at(PERSON, START + 2) - START - 2
    later = START + 10 * RECOVERY_S
    for _ in range(3):
        pace.spend(PERSON, later, weight=1, interactive=False)
    assert soon > 1.5
    assert pace.chat_ready_at(PERSON, later) - later == pytest.approx(1.02)


# ---- blame ----


def test_the_first_429_holds_its_chat_alone() -> None:
    pace = new_pace()
    assert pace.limited(PERSON, START, retry_after_s=30.0) is Scope.CHAT
    assert pace.chat_ready_at(PERSON, START) == pace.chat_held_until(PERSON) == START + 30
    assert pace.chat_ready_at(PERSON + 1, START) <= START
    assert pace.bot_ready_at(START, interactive=False) <= START


def test_a_second_idle_chat_refused_in_the_window_holds_the_bot() -> None:
    pace = new_pace()
    for chat in (1, 2):
        pace.spend(chat, START, weight=1, interactive=False)  # one message each, refused at once
    assert pace.limited(1, START, retry_after_s=30.0) is Scope.CHAT
    assert pace.limited(2, START + 2, retry_after_s=30.0) is Scope.BOT
    for interactive in (True, False):
        assert pace.bot_ready_at(START + 3, interactive=interactive) == pace.bot_held_until == START + 32


def test_the_same_chat_again_or_another_one_much_later_is_no_reason_to_hold_the_bot() -> None:
    pace = new_pace()
    pace.limited(1, START, retry_after_s=1.0)
    assert pace.limited(1, START + 1, retry_after_s=1.0) is Scope.CHAT
    assert pace.limited(2, START + 60, retry_after_s=1.0) is Scope.CHAT


def test_busy_chats_explain_their_429s_themselves() -> None:
    pace = new_pace()
    for chat in (1, 2, -3):
        for _ in range(3):
            pace.spend(chat, START, weight=1, interactive=False)
        assert pace.limited(chat, START + 0.1, retry_after_s=5.0) is Scope.CHAT
    for sent in range(18):
        pace.spend(GROUP, START + 3 * sent, weight=1, interactive=False)
    assert pace.limited(GROUP, START + 54, retry_after_s=5.0) is Scope.CHAT


def test_a_flood_of_the_bots_own_profile_does_not_stop_its_letters() -> None:
    pace = new_pace()
    assert pace.limited("bot", START, retry_after_s=86400.0) is Scope.CHAT
    assert pace.chat_ready_at("bot", START) == START + 86400
    assert pace.bot_ready_at(START, interactive=False) <= START


def test_holds_are_kept_with_the_pace_off() -> None:
    pace = new_pace(NO_LIMITS)
    for chat in range(1000):
        pace.spend(GROUP, START, weight=10, interactive=False)
        assert pace.chat_ready_at(chat, START) <= START
    assert pace.bot_ready_at(START, interactive=False) <= START
    pace.limited(GROUP, START, retry_after_s=9.0)
    assert pace.chat_ready_at(GROUP, START) == START + 9


# ---- restarts, moves, memory ----


def test_a_groups_minute_goes_on_after_a_restart() -> None:
    pace = new_pace()
    for second in range(20):
        pace.remember(GROUP, START - 20 + second, weight=1)
    assert pace.chat_ready_at(GROUP, START) == pytest.approx(START - 20 + 61.2)
    pace.hold_chat(PERSON, START, START + 50)
    pace.hold_bot(START + 40)
    assert pace.chat_ready_at(PERSON, START) == START + 50
    assert pace.bot_ready_at(START, interactive=True) == START + 40


def test_a_chat_known_under_two_names_has_one_minute() -> None:
    pace = new_pace()
    for name in ("@news", GROUP):
        for sent in range(10):
            pace.spend(name, START + sent, weight=1, interactive=False)
    pace.hold_chat(GROUP, START, START + 35)
    pace.move("@news", GROUP)
    assert pace.chat_held_until(GROUP) == START + 35
    assert pace.chat_ready_at(GROUP, START + 36) == pytest.approx(START + 61.2)


def test_a_hundred_thousand_chats_are_forgotten_when_they_are_idle() -> None:
    pace = new_pace(PaceLimits(bulk_per_s=1000.0))
    for chat in range(100_000):
        pace.spend(-chat - 1, START + chat / 100, weight=1, interactive=False)
        if chat % 2 == 0:
            pace.limited(-chat - 1, START + chat / 100, retry_after_s=1.0)
    assert len(pace._chats) <= 2 * CHATS_REMEMBERED_MAX
    quiet = START + 10_000
    for chat in range(1, 2 * CHATS_REMEMBERED_MAX):
        pace.spend(chat, quiet + chat, weight=1, interactive=False)
    assert len(pace._chats) <= CHATS_REMEMBERED_MAX + 1


@pytest.mark.parametrize(
    ("chat", "grouped", "paced"),
    [(5, False, True), (-5, True, True), ("@news", True, True), ("user:5", False, False), ("bot", False, False)],
)
def test_which_chats_have_a_pace_of_their_own(chat: Chat, grouped: bool, paced: bool) -> None:
    assert is_group(chat) is grouped
    assert has_chat_pace(chat) is paced


def test_a_restart_does_not_give_a_private_chat_a_second_burst() -> None:
    pace = new_pace()
    for _ in range(3):
        pace.remember(7, START - 0.1, weight=1)
    assert pace.chat_ready_at(7, START) > START + 0.5


def test_a_try_that_is_made_late_counts_from_then_on() -> None:
    """A slow disk stands between the pace and the wire: sends must not come closer together than the pace wants."""
    pace = new_pace()
    for _ in range(20):
        pace.spend(GROUP, START, weight=1, interactive=False)
    pace.left_late(GROUP, START + 9, spent_at=START, weight=1)
    assert pace.chat_ready_at(GROUP, START + 9) == pytest.approx(START + 61.2)
    for _ in range(19):
        pace.left_late(GROUP, START + 9, spent_at=START, weight=1)
    assert pace.chat_ready_at(GROUP, START + 9) == pytest.approx(START + 9 + 61.2)


def test_a_person_does_not_get_two_at_once_because_the_first_was_late() -> None:
    pace = new_pace(PaceLimits(private_burst=1))
    pace.spend(PERSON, START, weight=1, interactive=True)
    pace.left_late(PERSON, START + 5, spent_at=START, weight=1)
    assert pace.chat_ready_at(PERSON, START + 5) == pytest.approx(START + 5 + 1.02)


def test_other_limits_forget_neither_holds_nor_what_was_spent_or_learned() -> None:
    pace = new_pace(PaceLimits(bulk_per_s=30.0))
    for _ in range(20):
        pace.spend(GROUP, START, weight=1, interactive=False)
    pace.limited(PERSON, START, retry_after_s=600)
    pace.limited(PERSON + 1, START + 1, retry_after_s=600)
    learned = pace.rates(START + 2)["bulk_per_s"] / 30
    pace.change(PaceLimits(bulk_per_s=10.0), START + 2)
    assert (pace.bot_held_until, pace.chat_held_until(PERSON)) == (START + 601, START + 600)
    assert pace.chat_ready_at(GROUP, START + 2) > START + 50, "the minute of the group is used up"
    assert pace.rates(START + 2)["bulk_per_s"] == pytest.approx(10 * learned)
    assert learned < 1


def test_a_pace_that_is_turned_on_begins_with_an_empty_burst() -> None:
    pace = new_pace(PaceLimits(is_on=False))
    pace.change(PaceLimits(interactive_per_s=4.0), START + 100)
    pace.spend(PERSON, START + 100, weight=1, interactive=True)
    assert pace.bot_ready_at(START + 100, interactive=True) > START + 100


# ---- edits ----


def edits(pace: Pace, chat: Chat, count: int) -> list[float]:
    """So many edits as fast as the pace allows. When each went."""
    now, went = START, []
    while len(went) < count:
        bot_at = pace.bot_ready_at(now, interactive=True) if is_group(chat) else pace.edits_ready_at(now)
        ready_at = max(bot_at, pace.chat_ready_at(chat, now, is_edit=True))
        now = max(now, ready_at)
        if ready_at <= now:
            pace.spend(chat, now, weight=1, interactive=True, is_edit=True)
            went.append(now)
    return went


def test_edits_in_a_private_chat_are_free_and_count() -> None:
    pace = new_pace()
    assert edits(pace, PERSON, 1000)[-1] == START
    # What others send pays for it, as for answers: bulk with the second ahead, down to its tenth. Answers lose their burst.
    pace.spend(PERSON + 1, START, weight=1, interactive=False)
    assert START + 0.3 < pace.bot_ready_at(START, interactive=False) < START + 0.4
    assert pace.bot_ready_at(START, interactive=True) <= START + 1 / 120
    went = run(pace, [PERSON + 1 + number for number in range(500)], 2.0, interactive=True)
    assert len(went) >= 200


def test_private_edits_wait_for_the_bots_rate_once_it_was_refused() -> None:
    pace = new_pace()
    refuse_the_bot(pace, START)
    held_until = pace.bot_held_until
    assert pace.edits_ready_at(START) == held_until > START
    pace.spend(PERSON, held_until, weight=1, interactive=False, is_edit=True)
    ready_at = pace.edits_ready_at(held_until)
    for _ in range(60):
        pace.spend(PERSON, held_until, weight=1, interactive=False, is_edit=True)
    assert pace.edits_ready_at(held_until) >= ready_at
    later = held_until + 2 * RECOVERY_S
    assert pace.edits_ready_at(later) < later


def test_edits_do_not_delay_sends_of_a_chat_nor_sends_edits() -> None:
    pace = new_pace()
    edits(pace, PERSON, 20)
    assert pace.chat_ready_at(PERSON, START) <= START
    run(pace, [PERSON], 2)
    assert pace.chat_ready_at(PERSON, START, is_edit=True) <= START


def test_edits_in_a_group_have_a_minute_of_their_own() -> None:
    pace = new_pace()
    for _ in range(20):
        pace.spend(GROUP, START, weight=1, interactive=True)
    went = edits(pace, GROUP, 60)
    assert went[19] < START + 1
    assert busiest(went, 60.0) == 20


def test_private_edits_learn_from_a_429_and_are_free_again_later() -> None:
    pace = new_pace()
    went = edits(pace, PERSON, 20)
    assert pace.limited(PERSON, went[-1], retry_after_s=3, is_edit=True) is Scope.CHAT
    then = went[-1] + 3
    assert pace.chat_ready_at(PERSON, then, is_edit=True) <= then
    pace.spend(PERSON, then, weight=1, interactive=True, is_edit=True)
    assert pace.chat_ready_at(PERSON, then, is_edit=True) > then + 0.9
    later = then + 5 * RECOVERY_S
    pace.spend(PERSON, later, weight=1, interactive=True, is_edit=True)
    assert pace.chat_ready_at(PERSON, later, is_edit=True) <= later
    assert pace.chat_ready_at(PERSON, later) <= later


def test_edits_before_a_restart_count_in_a_groups_minute() -> None:
    pace = new_pace()
    for _ in range(20):
        pace.remember(GROUP, START - 10, weight=1, is_edit=True)
    assert pace.chat_ready_at(GROUP, START, is_edit=True) > START + 49
    assert pace.chat_ready_at(GROUP, START) <= START


def test_the_edits_of_an_account_count_as_what_it_sends() -> None:
    pace = Pace(ACCOUNT_LIMITS, now=START, has_free_edits=False)
    for _ in range(3):
        pace.spend(PERSON, START, weight=1, interactive=True, is_edit=True)
    assert pace.chat_ready_at(PERSON, START, is_edit=True) > START
    pace.spend(PERSON, START, weight=1, interactive=False, is_edit=True)
    assert pace.edits_ready_at(START) > START
