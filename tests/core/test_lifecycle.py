"""What a try costs a letter, outcome by outcome, and the moves that there are (docs/reference/states.md)."""

import itertools

import msgspec
import pytest

from peik.core.catalogue import Scope
from peik.core.letter import Backoff, Letter, OnUncertain, State
from peik.core.lifecycle import EXPIRED, MOVES, RESENDS_MAX, Move, Settlement, allows, carried_on, end_unsent, settle
from peik.core.outcome import Delivered, Limited, Moved, Outcome, Refused, Uncertain, Unsent

NOW = 1_000_000
LETTER = Letter(
    id=7, bot_id=42, number=3, method="sendMessage", params="{}", chat=5, attempts_made=1, uncertain_tries=2
)
FRESH = msgspec.structs.replace(LETTER, attempts_made=0, uncertain_tries=0)
LATER = Refused(code=400, words="Bad Request: Group send failed", advice="", scope=Scope.MESSAGE, is_passing=True)
NEVER = Refused(code=403, words="Forbidden: bot was blocked by the user", advice="", scope=Scope.CHAT)
DOUBT = Uncertain(why="reset")
DOUBTFUL_429 = Limited(retry_after_s=8.0, may_have_arrived=True)


def changed(letter: Letter = FRESH, **fields: object) -> Letter:
    return msgspec.structs.replace(letter, **fields)


def live(letter: Letter, *outcomes: Outcome) -> list[Settlement]:
    """Try after try, each as soon as the one before allows it, until it ends or the outcomes do."""
    lived = []
    at_ms = NOW
    for outcome in outcomes:
        settlement = settle(letter, outcome, at_ms=at_ms)
        lived.append(settlement)
        if settlement.state.is_final:
            break
        letter = carried_on(letter, settlement)
        at_ms = max(at_ms, settlement.due_at_ms)
    return lived


# ---- the table ----


@pytest.mark.parametrize("note", ["", "Bad Request: message is not modified"])
def test_delivered_completes_with_telegrams_own_result(note: str) -> None:
    end = settle(LETTER, Delivered(result=b'{"message_id":1}', note=note), at_ms=NOW)
    assert (end.move, end.state, end.result) == (Move.DELIVER, State.COMPLETED, '{"message_id":1}')
    assert (end.failed_reason, end.uncertain_tries) == (None, 2)
    assert (end.entry is None) is (note == "")


@pytest.mark.parametrize("outcome", [Unsent(why="dns"), Limited(retry_after_s=30.0), Moved(to_chat_id=-1005)])
def test_unsent_limited_and_moved_cost_nothing_and_may_go_again_at_once(outcome: Outcome) -> None:
    back = settle(LETTER, outcome, at_ms=NOW)
    assert (back.move, back.state, back.due_at_ms) == (Move.RETURN, State.WAITING, 0)
    assert (back.attempts_made, back.uncertain_tries) == (1, 2)
    assert back.failed_reason is None


@pytest.mark.parametrize("outcome", [Unsent(why="dns"), Limited(retry_after_s=30.0), Moved(to_chat_id=-1005)])
def test_no_number_of_them_kills_a_letter(outcome: Outcome) -> None:
    last = live(FRESH, *[outcome] * 1000, Delivered(result=b"true"))[-1]
    assert (last.state, last.attempts_made) == (State.COMPLETED, 1)


def test_a_passing_refusal_waits_2_4_8_and_16_seconds_and_the_fifth_is_the_end() -> None:
    lived = live(FRESH, *[LATER] * 9)
    assert [one.state for one in lived] == [State.DELAYED] * 4 + [State.FAILED]
    assert [one.due_at_ms - one.at_ms for one in lived[:4]] == [2000, 4000, 8000, 16_000]
    assert [one.attempts_made for one in lived] == [1, 2, 3, 4, 5]
    assert lived[-1].failed_reason == LATER.words


def test_attempts_and_backoff_are_the_letters_own() -> None:
    lived = live(changed(attempts=3, backoff_ms=100, backoff=Backoff.FIXED), *[LATER] * 9)
    assert [one.state for one in lived] == [State.DELAYED] * 2 + [State.FAILED]
    assert [one.due_at_ms - one.at_ms for one in lived[:2]] == [100, 100]


@pytest.mark.parametrize(("attempts", "tries"), [(5, 3), (2, 2)])
def test_the_catalogue_may_allow_fewer_attempts_and_never_more(attempts: int, tries: int) -> None:
    few = msgspec.structs.replace(LATER, attempts_max=3)
    assert len(live(changed(attempts=attempts), *[few] * 9)) == tries


def test_a_final_refusal_fails_at_once_with_telegrams_words() -> None:
    end = settle(FRESH, NEVER, at_ms=NOW)
    assert (end.move, end.state, end.failed_reason) == (Move.GIVE_UP, State.FAILED, NEVER.words)
    assert (end.attempts_made, end.uncertain_tries) == (1, 0)


def test_a_multi_send_that_broke_off_fails_at_once_and_counts_as_a_doubt() -> None:
    end = settle(FRESH, msgspec.structs.replace(NEVER, may_have_arrived=True), at_ms=NOW)
    assert (end.state, end.uncertain_tries) == (State.FAILED, 1)


@pytest.mark.parametrize("doubt", [DOUBT, DOUBTFUL_429, Uncertain(why="Bad Gateway", code=502)])
def test_a_doubt_is_resent_ten_times_and_the_eleventh_is_the_end(doubt: Outcome) -> None:
    lived = live(FRESH, *[doubt] * 20)
    assert [one.state for one in lived] == [State.DELAYED] * RESENDS_MAX + [State.FAILED]
    waits = [(one.due_at_ms - one.at_ms) // 1000 for one in lived[:-1]]
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60, 60, 60]
    assert [one.uncertain_tries for one in lived] == list(range(1, RESENDS_MAX + 2))
    assert [one.attempts_made for one in lived] == list(range(1, RESENDS_MAX + 2))
    assert lived[-1].failed_reason == "uncertain"


@pytest.mark.parametrize("doubt", [DOUBT, DOUBTFUL_429])
def test_attempts_that_somebody_set_bound_doubts_too(doubt: Outcome) -> None:
    lived = live(changed(attempts=5, counts_uncertain=True), *[doubt] * 20)
    assert [one.state for one in lived] == [State.DELAYED] * 4 + [State.FAILED]
    assert [one.due_at_ms - one.at_ms for one in lived[:4]] == [2000, 4000, 8000, 16_000]
    assert (lived[-1].failed_reason, lived[-1].attempts_made, lived[-1].uncertain_tries) == ("uncertain", 5, 5)


def test_attempts_that_somebody_set_count_refusals_and_doubts_together() -> None:
    lived = live(changed(attempts=4, counts_uncertain=True), DOUBT, LATER, Unsent(why="dns"), DOUBT, LATER, LATER)
    assert [one.state for one in lived] == [
        State.DELAYED, State.DELAYED, State.WAITING, State.DELAYED, State.FAILED
    ]  # fmt: skip
    assert (lived[-1].failed_reason, lived[-1].attempts_made, lived[-1].uncertain_tries) == (LATER.words, 4, 2)


def test_doubts_use_up_no_attempts_that_nobody_set() -> None:
    lived = live(FRESH, *[DOUBT] * 6, *[LATER] * 9)
    assert [one.state for one in lived[-5:]] == [State.DELAYED] * 4 + [State.FAILED]
    assert lived[-1].attempts_made == 11


@pytest.mark.parametrize("doubt", [DOUBT, DOUBTFUL_429])
def test_a_doubt_about_a_letter_that_is_held_ends_it_at_once(doubt: Outcome) -> None:
    end = settle(changed(on_uncertain=OnUncertain.HOLD), doubt, at_ms=NOW)
    assert (end.state, end.failed_reason, end.uncertain_tries) == (State.FAILED, "uncertain", 1)


def test_a_plain_429_does_not_end_a_letter_that_is_held() -> None:
    assert settle(changed(on_uncertain=OnUncertain.HOLD), Limited(retry_after_s=5.0), at_ms=NOW).state is State.WAITING


@pytest.mark.parametrize(
    ("method", "on_uncertain", "may"),
    [
        ("sendMessage", OnUncertain.RESEND, True),
        ("sendMessage", OnUncertain.HOLD, False),
        ("sendGift", OnUncertain.HOLD, False),
        ("createForumTopic", OnUncertain.HOLD, False),
        ("editMessageText", OnUncertain.RESEND, True),
        ("editMessageText", OnUncertain.HOLD, False),
        ("deleteMessage", OnUncertain.HOLD, False),
    ],
)
def test_a_letter_is_repeated_as_it_says_also_a_write_that_could_be(
    method: str, on_uncertain: OnUncertain, may: bool
) -> None:
    letter = changed(method=method, on_uncertain=on_uncertain)
    assert (settle(letter, DOUBT, at_ms=NOW).state is State.DELAYED) is may


def test_refusals_and_doubts_share_one_backoff_and_keep_their_own_counts() -> None:
    lived = live(FRESH, LATER, DOUBT, LATER, Delivered(result=b"true"))
    assert [one.due_at_ms - one.at_ms for one in lived[:3]] == [2000, 4000, 8000]
    assert (lived[-1].attempts_made, lived[-1].uncertain_tries) == (4, 1)


def test_a_settlement_tells_its_story_in_one_line_of_history() -> None:
    end = settle(FRESH, NEVER, at_ms=NOW)
    assert end.entry is not None
    line = msgspec.json.decode(end.entry)
    assert (line["at"], line["outcome"], line["code"], line["words"]) == (NOW, "refused", 403, NEVER.words)


@pytest.mark.parametrize("move", [Move.EXPIRE, Move.SHUT_OUT, Move.ORPHAN])
def test_a_letter_that_ends_without_a_try_keeps_its_counts(move: Move) -> None:
    end = end_unsent(LETTER, move, EXPIRED, at_ms=NOW)
    assert (end.move, end.state, end.failed_reason) == (move, State.FAILED, EXPIRED)
    assert (end.attempts_made, end.uncertain_tries) == (1, 2)


# ---- the moves ----

ALLOWED = {(move, source): target for move, sources, target, _ in MOVES for source in sources}


@pytest.mark.parametrize(("move", "state"), list(itertools.product(Move, State)))
def test_only_the_moves_of_the_table_can_be_made(move: Move, state: State) -> None:
    assert allows(move, state) is ((move, state) in ALLOWED)


def test_every_move_is_in_the_table_once_and_says_when() -> None:
    assert sorted(move for move, _, _, _ in MOVES) == sorted(Move)
    assert all(when for _, _, _, when in MOVES)


def test_completed_and_cancelled_are_for_good_and_only_people_revive_the_dead() -> None:
    leaving_an_end = {move for move, source in ALLOWED if source.is_final}
    assert leaving_an_end == {Move.RETRY, Move.RESOLVE}
    assert {source for _, source in ALLOWED if source.is_final} == {State.FAILED}


def test_a_letter_in_flight_cannot_be_cancelled_merged_or_expired() -> None:
    assert {move for move in Move if allows(move, State.ACTIVE)} == {
        Move.DELIVER,
        Move.RETURN,
        Move.BACK_OFF,
        Move.GIVE_UP,
    }


def test_every_state_can_reach_an_end() -> None:
    reaching = {state for state in State if state.is_final}
    for _ in State:
        reaching |= {source for (_, source), target in ALLOWED.items() if target in reaching}
    assert reaching == set(State)
    assert {state for state in State if state.is_final} == {State.COMPLETED, State.FAILED, State.CANCELLED}
