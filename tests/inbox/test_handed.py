"""What a call answers, by what was handed on a moment ago: certain where it says so, likely else, and never without bound."""

import json
from typing import Any

import msgspec
import pytest

from peik.core.arrival import Arrival, read_update
from peik.core.events import HandedOn
from peik.core.letter import Priority
from peik.core.methods import classify
from peik.inbox.handed import ANSWER_S, CROWD_CHATS, CROWD_S, EXACT_S, MET_S, AnswerJudge, Handed

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


# ---- what a call is worth ----

HIGH, NORMAL, BULK = Priority.HIGH, Priority.NORMAL, Priority.BULK


class Judged:
    """A judge with its clock. Arrivals are written at the moment when they are handed on, unless a story says otherwise."""

    def __init__(self, **bounds: int) -> None:
        self.hour = Hour()
        self.judge = AnswerJudge(clock=self.hour, **bounds)

    def hears(self, *arrivals: Arrival, ago_s: float = 0.0, consumer: str = "default") -> None:
        at_ms = int((self.hour.now - ago_s) * 1000)
        dated = tuple(msgspec.structs.replace(one, received_at_ms=at_ms) for one in arrivals)
        self.judge.listen([HandedOn(bot_id=BOT, consumer=consumer, arrivals=dated)])

    def sends(
        self, chat: Any = 5, *, method: str = "sendMessage", bot: int = BOT, consumer: str = "default"
    ) -> Priority:
        name, kind = classify(method)
        assert kind is not None
        self.hour.now += 0.01
        return self.judge.priority(bot, consumer, name, kind, said(chat_id=chat))


def test_the_answer_to_a_message_is_high_and_what_follows_it_is_not() -> None:
    bot = Judged()
    bot.hears(message(1))
    assert [bot.sends(), bot.sends(), bot.sends(6)] == [HIGH, NORMAL, NORMAL]
    bot.hears(message(2), message(3))
    assert [bot.sends("5"), bot.sends(), bot.sends()] == [HIGH, HIGH, NORMAL]


def test_a_press_is_answered_by_a_few_calls() -> None:
    bot = Judged()
    bot.hears(press(1, "q1"))
    methods = ("editMessageText", "deleteMessage", "sendMessage", "sendPhoto", "sendMessage")
    assert [bot.sends(method=method) for method in methods] == [HIGH, HIGH, HIGH, HIGH, NORMAL]


def test_to_delete_what_somebody_wrote_is_no_answer_to_it() -> None:
    bot = Judged()
    bot.hears(message(1))
    assert [bot.sends(method="deleteMessage"), bot.sends(), bot.sends(method="deleteMessage")] == [HIGH, HIGH, NORMAL]


def test_nobody_waits_for_ever() -> None:
    bot = Judged()
    bot.hears(message(1))
    bot.hour.now += ANSWER_S + 1
    assert bot.sends() is NORMAL
    bot.hears(message(2))
    assert [bot.sends(), bot.sends()] == [HIGH, NORMAL]  # what was not answered then is not owed now


def test_what_waited_through_an_outage_is_answered_without_haste() -> None:
    bot = Judged()
    bot.hears(*(message(number, chat=number) for number in range(1, 60)), ago_s=ANSWER_S + 60)
    assert {bot.sends(chat) for chat in range(1, 60)} == {NORMAL}


def test_what_goes_to_several_consumers_or_once_more_is_waited_for_once() -> None:
    bot = Judged()
    bot.hears(message(1))
    bot.hears(message(1), consumer="statistics")
    bot.hears(message(1))
    assert [bot.sends(), bot.sends()] == [HIGH, NORMAL]


def test_what_nobody_waits_for_is_no_question() -> None:
    bot = Judged()
    bot.hears(arrival(1, {"message_id": 4, "chat": {"id": 5}, "text": "x"}, kind="channel_post"))
    assert bot.sends() is NORMAL


def test_a_caller_that_writes_to_ever_new_chats_is_bulk_until_it_pauses() -> None:
    bot = Judged()
    news = [bot.sends(chat) for chat in range(100, 300)]
    assert news == [NORMAL] * CROWD_CHATS + [BULK] * (200 - CROWD_CHATS)
    assert bot.sends(299) is BULK  # the second message of the news to the same chat
    assert bot.sends("@channel") is BULK
    assert bot.sends(299, method="editMessageText") is NORMAL  # a message that is there is changed: that is no news
    assert bot.sends(1000, consumer="other") is NORMAL
    assert bot.sends(1000, bot=8) is NORMAL
    bot.hour.now += CROWD_S + 1
    assert bot.sends(299) is NORMAL
    assert bot.sends(9000) is NORMAL


def test_chats_that_a_caller_has_known_for_a_while_are_no_new_ones() -> None:
    """A bot whose updates come by a webhook elsewhere: only its calls are seen."""
    bot = Judged()
    known = range(1, 60)
    for minute in range(4):
        for chat in known:
            bot.hour.now += 0.1 if minute else 10.0
            bot.sends(chat)
    assert {bot.sends(chat) for chat in known} == {NORMAL}
    bot.hour.now += MET_S + 1
    assert BULK in {bot.sends(chat) for chat in known}


def test_an_answer_in_the_middle_of_the_news_is_high_and_what_follows_it_is_no_news() -> None:
    bot = Judged()
    for chat in range(100, 200):
        bot.sends(chat)
    bot.hears(message(1, chat=500))
    assert [bot.sends(200), bot.sends(500), bot.sends(500), bot.sends(201)] == [BULK, HIGH, NORMAL, BULK]


def test_answers_are_no_crowd() -> None:
    bot = Judged()
    bot.hears(*(message(number, chat=number) for number in range(1, 100)))
    assert {bot.sends(chat) for chat in range(1, 100)} == {HIGH}
    assert bot.sends(1000) is NORMAL


def test_what_is_remembered_is_bounded() -> None:
    bot = Judged(chats_max=50)
    bot.hears(*(message(number, chat=number) for number in range(1, 500)))
    for number in range(2000):
        bot.sends(1000 + number, consumer=f"c{number}")
        bot.sends(1000 + number)
    assert len(bot.judge) <= 50 + 50 + 1000


@pytest.mark.parametrize("params", [b"", b"null", b"[]", b"{}", b'{"chat_id":{}}', b'{"chat_id":null}', b"\xff"])
def test_what_cannot_be_read_is_normal(params: bytes) -> None:
    name, kind = classify("sendMessage")
    assert kind is not None
    assert Judged().judge.priority(BOT, "default", name, kind, params) is NORMAL
