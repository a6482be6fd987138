"""Envelopes of the gateway: what a letter, a reply or a problem is to a bot, and that libraries can read what stands in."""

import json
from typing import Any

import msgspec
import pytest
from aiogram.types import Message, MessageId

from peik.core.letter import Chat, OnUncertain, State, letter_of_draft
from peik.core.lifecycle import settle
from peik.core.methods import MethodClass, known_methods
from peik.core.outcome import NetworkFault, Reply, judge
from peik.core.token import Token
from peik.gateway.answers import (
    AWAY,
    LATE,
    GatewayAnswer,
    ResultShape,
    failure,
    of_letter,
    of_reply,
    shape_of,
    stand_in,
)
from peik.outbox.store import BotRecord, LetterView
from tests.storage.acts import draft

BOT = BotRecord(bot_id=42, token=Token("42:secret"), me='{"id":42,"is_bot":true,"first_name":"Peik","can_join":true}')


def letter(state: State = State.WAITING, **fields: Any) -> LetterView:
    usual: dict[str, Any] = dict.fromkeys(LetterView.__struct_fields__)
    usual |= {"id": 9, "bot_id": 42, "method": "sendMessage", "params": '{"text":"a"}', "chat": 5, "thread": 0}
    return LetterView(**(usual | {"on_uncertain": OnUncertain.RESEND, "state": state} | fields))


def shown(answer: GatewayAnswer) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(answer.body)
    return decoded


def test_every_method_that_is_queued_has_a_shape() -> None:
    for method, kind in known_methods().items():
        shape = shape_of(method, kind)
        if kind in (MethodClass.MONEY, MethodClass.CREATION):
            assert shape is ResultShape.REAL
        elif kind is MethodClass.WRITE and "Invite" not in method and method not in ("stopPoll", "editStory"):
            assert shape is ResultShape.TRUE
    assert shape_of("sendHologram", MethodClass.SEND) is ResultShape.MESSAGE


@pytest.mark.parametrize("chat", [5, -7, -1001234567890, "@news", "business:x"])
@pytest.mark.parametrize("bot", [BOT, msgspec.structs.replace(BOT, me=None)])
def test_a_strict_library_can_read_what_stands_in_for_a_message(chat: Chat, bot: BotRecord) -> None:
    view = letter(chat=chat, thread=3, params='{"text":"a","media":"[1,2]","message_ids":[1,2,3]}')
    message = Message.model_validate_json(stand_in(ResultShape.MESSAGE, view, bot, at_ms=1_700_000_000_123))
    assert (message.message_id, message.text, message.message_thread_id) == (0, "a", 3)
    assert int(message.date.timestamp()) == 1_700_000_000
    album = [Message.model_validate(one) for one in json.loads(stand_in(ResultShape.MESSAGES, view, bot, at_ms=1))]
    assert len(album) == 2
    copies = [
        MessageId.model_validate(one) for one in json.loads(stand_in(ResultShape.MESSAGE_IDS, view, bot, at_ms=1))
    ]
    assert len(copies) == 3


def test_a_refusal_with_parameters_comes_out_of_the_store_as_it_came_from_telegram() -> None:
    body = {"ok": False, "error_code": 400, "description": "Bad Request: no", "parameters": {"new_in": {"v": [12]}}}
    outcome = judge(Reply(status=400, body=json.dumps(body).encode()), method="sendMessage")
    settled = settle(letter_of_draft(draft(), letter_id=1, number=1), outcome, at_ms=5)
    view = letter(State.FAILED, failed_reason=settled.failed_reason, history=f"[{settled.entry}]")
    answer = of_letter(view, ResultShape.MESSAGE, BOT, at_ms=1)
    assert (answer.status, shown(answer)) == (400, body)


@pytest.mark.parametrize(
    ("view", "status", "words"),
    [
        (
            letter(State.FAILED, failed_reason="Forbidden: bot was blocked by the user"),
            403,
            "Forbidden: bot was blocked",
        ),
        (letter(State.FAILED, failed_reason="uncertain"), 502, "Bad Gateway"),
        (letter(State.FAILED, failed_reason="expired"), 400, "Bad Request: expired"),
        (letter(State.CANCELLED), 400, "Bad Request: the letter was taken back"),
    ],
)
def test_a_letter_that_will_never_be_sent_is_told_as_a_refusal(view: LetterView, status: int, words: str) -> None:
    answer = of_letter(view, ResultShape.MESSAGE, BOT, at_ms=1)
    assert answer.status == shown(answer)["error_code"] == status
    assert shown(answer)["description"].startswith(words)


def test_what_cannot_be_stood_in_for_is_late_and_names_its_letter() -> None:
    answer = of_letter(letter(method="createForumTopic"), ResultShape.REAL, BOT, at_ms=1)
    assert answer.status == 504
    assert shown(answer)["peik"] == {"letter_id": "9", "state": "waiting"}


def test_a_message_that_was_deleted_at_once_is_still_a_message() -> None:
    answer = of_letter(letter(State.COMPLETED, result="null"), ResultShape.MESSAGE, BOT, at_ms=1)
    assert shown(answer)["result"]["message_id"] == 0


OK = b'{"ok":true,"result":{"a":1}}'
NO = b'{"ok":false,"error_code":400,"description":"Bad Request: x"}'
SLOW = b'{"ok":false,"error_code":429,"description":"slow down","parameters":{"retry_after":7}}'


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (Reply(status=200, body=OK), GatewayAnswer(200, OK)),
        (Reply(status=200, body=b" " + OK), GatewayAnswer(200, b" " + OK)),
        (Reply(status=400, body=NO), GatewayAnswer(400, NO)),
        (Reply(status=429, body=SLOW), GatewayAnswer(429, SLOW, ((b"retry-after", b"7"),))),
        (
            Reply(status=200, body=b"<html>log in to the wifi</html>"),
            failure(502, "Bad Gateway"),
        ),
        (
            Reply(status=429, body=b"<html>"),
            failure(429, "Too Many Requests: retry after 5", parameters=b'{"retry_after":5}', retry_after_s=5),
        ),
        (Reply(status=503, body=b"<html>"), failure(503, "Service Unavailable")),
        (Reply(fault=NetworkFault.REFUSED, left=False), AWAY),
        (Reply(fault=NetworkFault.TIMEOUT), LATE),
    ],
)
def test_a_reply_passes_byte_for_byte_and_what_is_not_telegrams_never_does(reply: Reply, answer: GatewayAnswer) -> None:
    assert of_reply(reply) == answer
