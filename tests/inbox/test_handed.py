"""What a call answers, by what was handed on a moment ago: certain where it says so, likely else, and never without bound."""

import json
from typing import Any

import pytest

from peik.core.arrival import Arrival, read_update
from peik.core.events import HandedOn
from peik.inbox.handed import EXACT_S, Handed

BOT = 7


class Hour:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def mono(self) -> float:
        return self.now

    steady = mono

    def wall_s(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


def arrival(number: int, body: dict[str, Any], *, kind: str = "message") -> Arrival:
    update = read_update(json.dumps({"update_id": number, kind: body}).encode())
    return Arrival(
        id=number,
        bot_id=BOT,
        number=number,
        epoch=1,
        update_id=number,
        type=update.type,
        lane=update.lane,
        message_id=update.message_id,
        received_at_ms=0,
        payload=update.payload,
    )


def message(number: int, *, chat: int = 5, message_id: int = 90) -> Arrival:
    return arrival(number, {"message_id": message_id, "chat": {"id": chat}, "text": "hello"})


def press(number: int, query: str, *, chat: int = 5) -> Arrival:
    asked = {"message_id": 90, "chat": {"id": chat}}
    return arrival(number, {"id": query, "from": {"id": chat}, "message": asked}, kind="callback_query")


def said(**params: Any) -> bytes:
    return json.dumps(params).encode()


@pytest.fixture
def clock() -> Hour:
    return Hour()


@pytest.fixture
def handed(clock: Hour) -> Handed:
    return Handed(clock=clock, likely_s=60.0)


def test_a_call_to_a_chat_likely_answers_what_its_consumer_got_from_there_last(handed: Handed) -> None:
    handed.listen([HandedOn(bot_id=BOT, consumer="default", arrivals=(message(1), message(2), message(3, chat=6)))])
    assert handed.likely(BOT, "default", said(chat_id=5, text="hi")) == "~u7.2"
    assert handed.likely(BOT, "default", said(chat_id="6")) == "~u7.3"
    assert handed.likely(BOT, "default", said(chat_id="@channel")) is None
    assert handed.likely(BOT, "other", said(chat_id=5)) is None
    assert handed.likely(8, "default", said(chat_id=5)) is None
    assert handed.likely(BOT, "default", b"not json") is None


@pytest.mark.parametrize(
    "params",
    [
        {"chat_id": 5, "reply_parameters": {"message_id": 91}},
        {"chat_id": "5", "reply_parameters": '{"message_id": 91}'},
        {"chat_id": "5", "reply_to_message_id": "91"},
        {"chat_id": 6, "reply_parameters": {"message_id": 91, "chat_id": 5}},
    ],
)
def test_a_reply_surely_answers_the_message_that_it_names(handed: Handed, params: dict[str, Any]) -> None:
    handed.note(message(1, message_id=91), "default")
    handed.note(message(2, message_id=92), "default")
    assert handed.exactly(BOT, said(**params)) == "u7.1"
    assert handed.exactly(BOT, said(chat_id=5)) is None


def test_an_answer_to_a_button_surely_answers_that_press_and_not_the_message_under_it(handed: Handed) -> None:
    handed.note(press(1, "q1"), "default")
    handed.note(press(2, "q2"), "default")
    assert handed.exactly(BOT, said(callback_query_id="q1")) == "u7.1"
    assert handed.exactly(BOT, said(callback_query_id="q9")) is None
    assert handed.exactly(BOT, said(chat_id=5, reply_to_message_id=90)) is None
    assert handed.likely(BOT, "default", said(chat_id=5)) == "~u7.2"


def test_what_is_long_ago_is_not_likely_any_more_and_then_not_known(handed: Handed, clock: Hour) -> None:
    handed.note(message(1), "default")
    clock.now += 60.0
    assert handed.likely(BOT, "default", said(chat_id=5)) == "~u7.1"
    clock.now += 0.1
    assert handed.likely(BOT, "default", said(chat_id=5)) is None
    assert handed.exactly(BOT, said(chat_id=5, reply_to_message_id=90)) == "u7.1"
    clock.now += EXACT_S
    assert handed.exactly(BOT, said(chat_id=5, reply_to_message_id=90)) is None


def test_memory_is_bounded_and_the_oldest_are_forgotten_first(clock: Hour) -> None:
    handed = Handed(clock=clock, likely_s=60.0, keys_max=10)
    for number in range(1, 1001):
        handed.note(message(number, chat=number, message_id=number), "default")
        assert len(handed) <= 10
    assert handed.likely(BOT, "default", said(chat_id=1000)) == "~u7.1000"
    assert handed.likely(BOT, "default", said(chat_id=996)) == "~u7.996"
    assert handed.likely(BOT, "default", said(chat_id=995)) is None


def test_nothing_is_likely_if_the_owner_does_not_want_guesses(clock: Hour) -> None:
    handed = Handed(clock=clock, likely_s=0.0)
    handed.note(message(1), "default")
    assert handed.likely(BOT, "default", said(chat_id=5)) is None
    assert handed.exactly(BOT, said(chat_id=5, reply_to_message_id=90)) == "u7.1"
