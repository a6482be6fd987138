"""What a reply means, for every reply there can be."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peik.core.letter import Letter, State
from peik.core.lifecycle import settle
from peik.core.outcome import (
    RETRY_AFTER_S_DEFAULT,
    RETRY_AFTER_S_MAX,
    Delivered,
    Limited,
    NetworkFault,
    Outcome,
    Refused,
    Reply,
    Uncertain,
    Unsent,
    judge,
)

LETTER = Letter(id=1, bot_id=1, number=1, method="sendMessage", params="{}", chat=1)
PAGE = b"<html><head><title>502 Bad Gateway</title></head></html>"


def judged(status: int, body: bytes, *, had_server_error: bool = False) -> Outcome:
    return judge(Reply(status=status, body=body), method="sendMessage", had_server_error=had_server_error)


def flood(parameters: bytes) -> bytes:
    return b'{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 9"' + parameters + b"}"


def test_a_result_is_kept_as_it_came() -> None:
    outcome = judged(200, b'{"ok":true, "result":{"message_id": 1,  "text":"\xd8\xb3"}}')
    assert outcome == Delivered(result=b'{"message_id": 1,  "text":"\xd8\xb3"}')


def test_a_yes_without_a_result_is_a_yes() -> None:
    assert judged(200, b'{"ok":true}') == Delivered(result=b"null")


@pytest.mark.parametrize(
    ("parameters", "wait_s"),
    [
        (b',"parameters":{"retry_after":9}', 9.0),
        (b',"parameters":{"retry_after":0.5}', 0.5),
        (b',"parameters":{}', RETRY_AFTER_S_DEFAULT),
        (b"", RETRY_AFTER_S_DEFAULT),
        (b',"parameters":{"retry_after":86400}', 86400.0),
        (b',"parameters":{"retry_after":-5}', 0.0),
        (b',"parameters":{"retry_after":1e300}', RETRY_AFTER_S_MAX),
    ],
)
def test_a_429_says_how_long_to_wait_within_reason(parameters: bytes, wait_s: float) -> None:
    assert judged(429, flood(parameters)) == Limited(retry_after_s=wait_s)


@pytest.mark.parametrize("body", [flood(b',"parameters":{"retry_after":8}'), PAGE, b"", flood(b',"parameters":[]')])
def test_a_429_is_in_doubt_only_right_after_a_server_error(body: bytes) -> None:
    calm, after_error = judged(429, body), judged(429, body, had_server_error=True)
    assert isinstance(calm, Limited)
    assert not calm.may_have_arrived
    assert isinstance(after_error, Limited)
    assert after_error.may_have_arrived


@pytest.mark.parametrize("status", [200, 302, 401, 403, 404, 500, 502, 503, 504])
def test_a_page_that_is_not_telegrams_is_no_verdict(status: int) -> None:
    outcome = judged(status, PAGE)
    assert isinstance(outcome, Uncertain)
    assert outcome.code == status


@pytest.mark.parametrize("status", [400, 413, 431, 501, 505])
def test_an_empty_body_is_a_no_where_the_server_answers_so_to_broken_http(status: int) -> None:
    outcome = judged(status, b"")
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.is_passing) == (status, False)


def test_nginx_says_too_large_with_a_page() -> None:
    assert isinstance(judged(413, b"<html>413 Request Entity Too Large</html>"), Refused)


@pytest.mark.parametrize("status", [200, 403, 500, 502])
def test_an_empty_body_elsewhere_is_no_verdict(status: int) -> None:
    assert isinstance(judged(status, b""), Uncertain)


@pytest.mark.parametrize(
    "body",
    [
        b'{"ok":"yes"}',
        b'{"ok":true,"result":',
        b'{"ok":true,"result":"\xff"}',
        b'{"ok":true,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[]",
        b"null",
    ],
)
def test_what_only_looks_like_an_answer_is_no_verdict(body: bytes) -> None:
    assert isinstance(judged(200, body), Uncertain)


@pytest.mark.parametrize("fault", [fault for fault in NetworkFault if fault is not NetworkFault.SPOILED])
def test_without_an_answer_all_depends_on_whether_bytes_had_left(fault: NetworkFault) -> None:
    assert isinstance(judge(Reply(fault=fault, left=False), method="sendMessage"), Unsent)
    assert isinstance(judge(Reply(fault=fault, left=True), method="sendMessage"), Uncertain)


def test_a_request_that_cannot_be_made_is_refused_for_good() -> None:
    outcome = judge(Reply(fault=NetworkFault.SPOILED, left=False, detail="the file is gone"), method="sendPhoto")
    assert isinstance(outcome, Refused)
    assert (outcome.words, outcome.is_passing) == ("the file is gone", False)


_answers = st.fixed_dictionaries(
    {"ok": st.booleans()},
    optional={
        "result": st.none() | st.integers() | st.text(),
        "error_code": st.integers(min_value=-(10**20), max_value=10**20) | st.sampled_from([400, 403, 429, 500]),
        "description": st.text() | st.sampled_from(["Bad Request: chat not found", "retry after 5"]),
        "parameters": st.fixed_dictionaries({}, optional={"retry_after": st.integers() | st.floats(allow_nan=False)}),
    },
)
_bodies = st.binary(max_size=40) | _answers.map(msgspec.json.encode)


@settings(max_examples=300)
@given(
    st.integers(min_value=0, max_value=999),
    _bodies,
    st.sampled_from(NetworkFault) | st.none(),
    st.booleans(),
    st.booleans(),
)
def test_every_reply_has_one_meaning_and_every_meaning_a_settlement(
    status: int, body: bytes, fault: NetworkFault | None, left: bool, had_server_error: bool
) -> None:
    reply = Reply(status=status, body=body, fault=fault, left=left)
    outcome = judge(reply, method="sendMessage", had_server_error=had_server_error)
    if not left:
        assert not isinstance(outcome, Uncertain)
    if status == 0 and left and fault is not NetworkFault.SPOILED:
        assert isinstance(outcome, Uncertain)
    if isinstance(outcome, Limited):
        assert 0.0 <= outcome.retry_after_s <= RETRY_AFTER_S_MAX
    assert settle(LETTER, outcome, at_ms=1000).state is not State.ACTIVE
