"""Whatever a bot sends, the simulated Telegram answers: no parameter of any shape makes it fall over."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peik.testing import Answer, Options, Telegram
from peik.testing.methods import METHODS
from peik.testing.wire import read
from tests.sim.conftest import TOKEN

NAMES = [
    "chat_id", "text", "message_id", "message_ids", "media", "photo", "reply_markup", "reply_parameters", "parse_mode",
    "reply_to_message_id", "entities", "message_thread_id", "from_chat_id", "caption", "offset", "limit", "timeout", "url",
    "allowed_updates", "max_connections", "secret_token", "user_id", "question", "options", "prices", "latitude", "name",
    "file_id", "callback_query_id", "inline_message_id", "star_count", "title", "description", "payload", "currency",
]  # fmt: skip
TEXTS = ["7", "-100", "@x", "{}", "[]", "[1,2]", '{"inline_keyboard":[[1]]}', "attach://x", "https://x", "HTML", "*"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.sampled_from(TEXTS),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*NAMES, "inline_keyboard", "type"]), inner, max_size=3)
    ),
)


@settings(max_examples=200, deadline=None)
@given(
    method=st.sampled_from([*METHODS, "sendUnknown", "setUnknown", "nothing"]),
    params=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6),
    chat_id=st.sampled_from([7, "7", -5, -1_000_000_000_005]) | VALUES,
)
def test_every_request_is_answered(method: str, params: dict, chat_id: object):
    telegram = Telegram(now=lambda: 1_700_000_000.0, chance=random.Random(1), options=Options())
    telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "x"})
    answer = telegram.call(TOKEN, method, {**params, "chat_id": chat_id})
    if isinstance(answer, Answer):
        assert answer.json()["ok"] is (answer.status == 200)


@pytest.mark.parametrize("body", [b"", b" ", b"null", b"{}"])
def test_a_body_without_anything_in_it_is_no_error(body: bytes):
    assert read(b"", b"application/json", body) == ({}, {})
