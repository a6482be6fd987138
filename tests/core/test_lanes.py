"""Who goes next: order, alone in its lane, nothing lost, nobody starved, memory bounded."""

from collections import Counter

import msgspec
import pytest

from peik.core.lanes import WEIGHTS, Lanes, Room
from peik.core.letter import EDITS_TURN, RANKS, UNASKED_RANK, Letter, Priority
from tests.core.lane_world import World

CRITICAL, HIGH, NORMAL, BULK = (priority.rank for priority in sorted(Priority, reverse=True))
ALL = tuple(range(RANKS))


def letter(
    number: int, chat: int | str = 1, *, rank: int = NORMAL, thread: int = 0, method: str = "sendMessage"
) -> Letter:
    return Letter(id=number, bot_id=1, number=number, method=method, params="{}", chat=chat, thread=thread, rank=rank)


def at_once(_: Letter) -> float:
    return 0.0


def empty_lanes(room: Room | None = None) -> Lanes:
    """Lanes that know that the store holds nothing."""
    lanes = Lanes(room or Room())
    for rank in ALL:
        lanes.sweep_begins()
        lanes.swept(rank, {}, is_whole=True)
    return lanes


def take(lanes: Lanes, now: float = 0.0) -> int | None:
    taken = lanes.take(now, turns=ALL, ready_at=at_once)
    return None if taken is None else taken.number


@pytest.mark.parametrize("seed", range(80))
def test_whatever_comes_in_whatever_order_lanes_keep_their_promises(seed: int) -> None:
    world = World(seed)
    chats = world.chance.choice((2, 8, 40))
    for _ in range(250):
        fate = world.chance.random()
        chat = world.chance.randrange(chats)
        rank = world.chance.choice((BULK, BULK, NORMAL, HIGH, CRITICAL))
        if fate < 0.25:
            world.accept(chat, rank=rank, thread=world.chance.choice((0, 0, 0, 7)))
        elif fate < 0.28:
            world.accept(chat, rank=rank, is_foreign=True)
        elif fate < 0.30:
            world.express(chat, rank=rank)
        elif fate < 0.32:
            world.cancel()
        elif fate < 0.33:
            world.move_in(chat, world.chance.randrange(chats))
        elif fate < 0.35:
            world.holds[chat] = world.now + world.chance.choice((0.2, 3.0, 100.0))
        elif fate < 0.55:
            world.take()
        elif fate < 0.90:
            world.let_others_act()
        else:
            world.now += world.chance.choice((0.1, 1.0))
        world.read()
        world.check_memory()

    world.accept(0, rank=NORMAL)  # tells this node of all that others wrote
    world.run_dry()

    assert len(world.ended) == world.accepted
    assert len({one.id for one in world.ended}) == world.accepted


def test_letters_of_one_lane_go_one_by_one_in_the_order_of_their_numbers() -> None:
    lanes = empty_lanes()
    for number in (1, 2, 3):
        lanes.offer(letter(number))

    assert take(lanes) == 1
    assert take(lanes) is None
    lanes.leave((1, 0))
    assert take(lanes) == 2


def test_threads_of_a_chat_are_lanes_of_their_own() -> None:
    lanes = empty_lanes()
    lanes.offer(letter(1, thread=10))
    lanes.offer(letter(2, thread=20))

    assert (take(lanes), take(lanes)) == (1, 2)


def test_a_higher_priority_goes_before_a_letter_that_backs_off() -> None:
    lanes = empty_lanes()
    lanes.offer(letter(1))
    assert take(lanes) == 1
    lanes.put_back(msgspec.structs.replace(letter(1), due_at_ms=60_000))
    lanes.offer(letter(2, rank=HIGH))

    taken = lanes.take(0.0, turns=ALL, ready_at=lambda one: one.due_at_ms / 1000)

    assert taken is not None
    assert taken.number == 2


def test_a_critical_letter_lifts_its_lane_out_of_the_queue_of_bulk() -> None:
    lanes = empty_lanes()
    for number in range(1, 100):
        lanes.offer(letter(number, chat=number, rank=BULK))
    lanes.offer(letter(100, chat=99, rank=CRITICAL))

    taken = lanes.take(0.0, turns=(CRITICAL, HIGH), ready_at=at_once)

    assert taken is not None
    assert taken.number == 100


def test_a_letter_that_comes_while_the_head_flies_over_an_unread_lane_does_not_go_with_it() -> None:
    lanes = empty_lanes(Room(lanes_per_rank=4, letters_per_lane=1))
    for number in (1, 2):
        lanes.offer(letter(number))
    assert take(lanes) == 1

    lanes.offer(letter(3))

    assert lanes.loads() == []  # the head is still in the store: reading now would bring it back
    assert take(lanes) is None
    lanes.leave((1, 0))
    assert lanes.loads() == [(1, 0)]


def test_a_higher_priority_that_comes_while_the_head_flies_over_an_unread_lane_goes_before_its_return() -> None:
    lanes = empty_lanes(Room(lanes_per_rank=4, letters_per_lane=1))
    for number in (1, 2):
        lanes.offer(letter(number))
    assert take(lanes) == 1
    lanes.offer(letter(3, rank=HIGH))

    lanes.put_back(letter(1))

    assert lanes.loads() == [(1, 0)]
    lanes.loaded((1, 0), [letter(3, rank=HIGH)], more=True)
    assert take(lanes) == 3


def test_letters_that_come_while_a_front_is_read_need_no_second_read() -> None:
    lanes = Lanes(Room())
    lanes.offer(letter(1))
    assert lanes.loads() == [(1, 0)]
    lanes.offer(letter(2))  # the read saw it
    lanes.offer(letter(3))  # and missed these
    lanes.offer(letter(4, rank=HIGH))
    lanes.loaded((1, 0), [letter(1), letter(2)], more=False)
    gone = []
    while (number := take(lanes)) is not None:
        gone.append(number)
        lanes.leave((1, 0))
    assert gone == [4, 1, 2, 3]
    assert lanes.loads() == []


def test_what_comes_behind_a_front_that_is_read_waits_for_those_before_it() -> None:
    lanes = Lanes(Room(letters_per_lane=2))
    lanes.offer(letter(1))
    lanes.loads()
    lanes.offer(letter(4))
    lanes.loaded((1, 0), [letter(1), letter(2)], more=True)  # and 3, which is only in the store
    for number in (1, 2):
        assert take(lanes) == number
        lanes.leave((1, 0))
    assert take(lanes) is None
    assert lanes.loads() == [(1, 0)]


def test_more_letters_than_a_window_holds_may_come_while_a_front_is_read() -> None:
    lanes = Lanes(Room(letters_per_lane=2))
    lanes.offer(letter(1))
    lanes.loads()
    for number in (2, 3, 4):
        lanes.offer(letter(number))
    lanes.loaded((1, 0), [], more=False)  # somebody ended the first one; the read missed the others
    for number in (2, 3):
        assert take(lanes) == number
        lanes.leave((1, 0))
    assert lanes.loads() == [(1, 0)], "the fourth is in the store"


def test_a_lane_that_waits_for_its_time_does_not_delay_another() -> None:
    lanes = empty_lanes()
    lanes.offer(letter(1, chat=1))
    lanes.offer(letter(2, chat=2))

    def first_is_held(one: Letter) -> float:
        return 30.0 if one.chat == 1 else 0.0

    taken = lanes.take(0.0, turns=ALL, ready_at=first_is_held)

    assert taken is not None
    assert taken.number == 2
    assert lanes.next_timer() == 30.0
    assert take(lanes, now=30.0) == 1


def test_when_all_ranks_are_busy_each_gets_its_share() -> None:
    lanes = empty_lanes()
    for number in range(1, 401):
        lanes.offer(letter(number, chat=number, rank=number % RANKS))
    went: Counter[int] = Counter()
    for _ in range(sum(WEIGHTS[:RANKS]) * 5):
        taken = lanes.take(0.0, turns=ALL, ready_at=at_once)
        assert taken is not None
        went[taken.rank] += 1
        lanes.put_back(taken)

    for rank, weight in enumerate(WEIGHTS[:RANKS]):
        assert abs(went[rank] - 5 * weight) <= 5


def test_lanes_of_one_rank_take_turns() -> None:
    lanes = empty_lanes()
    for number in range(1, 31):
        lanes.offer(letter(number, chat=number % 3))
    order = []
    for _ in range(30):
        taken = lanes.take(0.0, turns=ALL, ready_at=at_once)
        assert taken is not None
        order.append(taken.chat)
        lanes.leave(taken.lane)

    assert order == [1, 2, 0] * 10


def test_a_sweep_that_began_before_another_process_wrote_does_not_end_the_search() -> None:
    lanes = Lanes(Room())
    lanes.sweep_begins()
    lanes.forget_all()  # somebody wrote, and no lane is in memory

    lanes.swept(NORMAL, {}, is_whole=True)

    assert lanes.may_be_beyond(NORMAL)


def test_a_lane_that_gave_up_its_place_is_found_again_when_its_head_is_cancelled() -> None:
    lanes = empty_lanes(Room(lanes_per_rank=1, letters_per_lane=4))
    lanes.offer(letter(1, chat=1, rank=HIGH))
    lanes.offer(letter(2, chat=1, rank=BULK))
    lanes.offer(letter(3, chat=2, rank=HIGH))  # no room: it stays in the store
    assert lanes.take(0.0, turns=ALL, ready_at=lambda _: 60.0) is None
    assert lanes.is_hungry(HIGH, 0.0)  # lane 1 cannot go soon and is given up

    lanes.remove((1, 0), 1)

    assert lanes.may_be_beyond(BULK)


def test_memory_stays_bounded_when_lanes_rise_in_rank_during_an_outage() -> None:
    room = Room(lanes_per_rank=8, letters_per_lane=2)
    lanes = empty_lanes(room)
    for number in range(1, 2001, 2):
        lanes.offer(letter(number, chat=number, rank=BULK))
        lanes.offer(letter(number + 1, chat=number, rank=HIGH))

    assert len(lanes) <= RANKS * room.lanes_per_rank


def test_memory_stays_bounded_when_a_sweep_finds_lanes_of_another_rank() -> None:
    room = Room(lanes_per_rank=8, letters_per_lane=2)
    lanes = Lanes(room)
    for start in range(0, 2000, 64):
        lanes.sweep_begins()
        found = {
            (chat, 0): ([letter(chat, chat=chat, rank=HIGH), letter(chat + 9000, chat=chat, rank=BULK)], False)
            for chat in range(start + 1, start + 65)
        }
        lanes.swept(BULK, found, is_whole=False)

    assert len(lanes) <= RANKS * room.lanes_per_rank


def test_cancelling_and_rereading_during_an_outage_leaves_nothing_behind() -> None:
    lanes = empty_lanes()
    lanes.offer(letter(1))
    for number in range(2, 2000):
        lanes.remove((1, 0), number)
        lanes.forget((1, 0))
        lanes.loads()
        lanes.loaded((1, 0), [letter(1)], more=False)
        lanes.offer(letter(number, chat=2))
        lanes.remove((2, 0), number)

    assert sum(map(len, lanes._ready)) == 1


def test_rereading_a_held_lane_again_and_again_keeps_few_timers() -> None:
    lanes = empty_lanes()
    lanes.offer(letter(1))
    for _ in range(2000):
        assert lanes.take(0.0, turns=ALL, ready_at=lambda _: 3600.0) is None
        lanes.forget((1, 0))
        lanes.loads()
        lanes.loaded((1, 0), [letter(1)], more=False)

    assert len(lanes._timers) < 100


def test_a_lane_that_has_no_room_gets_its_turn_long_before_the_others_are_drained() -> None:
    # Eight deep lanes, room for four, and nothing that ever makes one of them wait.
    world = World(1, room=Room(lanes_per_rank=4, letters_per_lane=8))
    for number in range(1, 321):
        world.store[number] = letter(number, chat=number % 8)
    order = []
    while world.store:
        world.read()
        while world.later:
            world.later.pop(0)()
        taken = world.lanes.take(world.now, turns=ALL, ready_at=lambda _: 0.0)
        if taken is None:
            continue
        order.append(taken.chat)
        world.lanes.settling(taken.lane)
        world.lanes.leave(taken.lane)
        del world.store[taken.id]
        world.lanes.settled(taken.lane)
    assert max(order.index(chat) for chat in range(8)) < 40


def test_a_sweep_sees_that_all_lanes_are_here_though_they_were_before_it_began() -> None:
    # Lanes that came before the store was read once: most places are taken when the sweep begins.
    lanes = Lanes(Room(lanes_per_rank=200, letters_per_lane=4))
    front = {(chat, 0): ([letter(chat + 1, chat)], False) for chat in range(150)}
    for chat in range(150):
        lanes.offer(letter(chat + 1, chat))
    for key in lanes.loads():
        lanes.loaded(key, *front[key][:1], more=False)
    for rank in ALL:
        lanes.sweep_begins()
        assert lanes.sweep_room(rank) > len(front)
        lanes.swept(rank, front if rank == NORMAL else {}, is_whole=True)

    assert not any(lanes.may_be_beyond(rank) for rank in ALL)
    assert lanes.sweep_letters(BULK) == 4


def test_a_sweep_that_finds_more_than_there_is_room_for_does_not_end_the_search() -> None:
    lanes = Lanes(Room(lanes_per_rank=4, letters_per_lane=4))
    for chat in range(3):
        lanes.offer(letter(chat + 1, chat))
    lanes.sweep_begins()
    found = {(chat, 0): ([letter(chat + 1, chat)], False) for chat in range(2, 6)}
    assert lanes.swept(NORMAL, found, is_whole=True) == 1

    assert len(lanes) == 4
    assert lanes.may_be_beyond(NORMAL)


# ---- edits in private chats have a turn of their own ----


@pytest.mark.parametrize(
    ("chat", "rank", "method", "turn"),
    [
        (5, NORMAL, "editMessageText", EDITS_TURN),
        (5, HIGH, "editMessageCaption", EDITS_TURN),
        ("inline:abc", NORMAL, "editMessageText", EDITS_TURN),
        (5, BULK, "editMessageText", BULK),
        (5, UNASKED_RANK, "editMessageText", UNASKED_RANK),
        (-5, NORMAL, "editMessageText", NORMAL),
        ("@club", HIGH, "editMessageText", HIGH),
        (5, NORMAL, "sendMessage", NORMAL),
    ],
)
def test_the_turn_of_a_lane_is_that_of_its_head(chat: int | str, rank: int, method: str, turn: int) -> None:
    lanes = empty_lanes()
    head = letter(1, rank=rank, chat=chat, method=method)
    assert head.turn == turn
    lanes.offer(head)
    assert lanes.has_ready((turn,))
    others = [one for one in (*ALL, EDITS_TURN) if one != turn]
    assert lanes.take(0.0, turns=others, ready_at=at_once) is None
    assert lanes.take(0.0, turns=(turn,), ready_at=at_once) is head


def test_a_lane_changes_its_turn_when_its_head_does() -> None:
    lanes = empty_lanes()
    edit, behind = letter(1, method="editMessageText"), letter(2)
    for one in (edit, behind):
        lanes.offer(one)
    assert lanes.take(0.0, turns=ALL, ready_at=at_once) is None
    taken = lanes.take(0.0, turns=(EDITS_TURN,), ready_at=at_once)
    assert taken is edit
    lanes.leave(edit.lane)
    assert lanes.take(0.0, turns=(EDITS_TURN,), ready_at=at_once) is None
    urgent = letter(3, rank=CRITICAL, method="sendMessage")
    lanes.offer(urgent)
    assert lanes.take(0.0, turns=(CRITICAL,), ready_at=at_once) is urgent


def test_an_edit_that_becomes_the_head_of_a_ready_lane_brings_it_its_turn() -> None:
    lanes = empty_lanes()
    lanes.offer(letter(1, rank=HIGH))
    urgent = letter(2, rank=CRITICAL, method="editMessageText")
    lanes.offer(urgent)
    assert lanes.take(0.0, turns=(EDITS_TURN,), ready_at=at_once) is urgent
