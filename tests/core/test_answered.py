"""Calls in answers to pushes: what is one, what is none, and what is refused."""

import json

import pytest

from peik.errors import BadInput
from peik.inbox.delivery import read_answer


def form(*fields: tuple[str, str]) -> bytes:
    parts = (f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields)
    return "".join(parts).encode() + b"--b--\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b'{"method": "sendMessage", "chat_id": "5", "text": "hi & bye"}',
        b"method=sendMessage&chat_id=5&text=hi+%26+bye",
        form(("method", "sendMessage"), ("chat_id", "5"), ("text", "hi & bye")),
    ],
)
def test_a_call_reads_the_same_in_every_form(body: bytes) -> None:
    read = read_answer(body)
    assert read is not None
    method, params = read
    assert (method, json.loads(params)) == ("sendMessage", {"chat_id": "5", "text": "hi & bye"})


def test_parameters_keep_their_types_in_json() -> None:
    read = read_answer(b'{"method":"sendPoll","chat_id":5,"options":[{"text":"yes"}],"is_anonymous":false}')
    assert read is not None
    assert json.loads(read[1]) == {"chat_id": 5, "options": [{"text": "yes"}], "is_anonymous": False}


@pytest.mark.parametrize(
    "body",
    [b"", b"ok", b"  {}", b'{"ok":true,"result":1}', b"<html>method</html>", form(("text", "hi")), b"--", b"----"],
)
def test_an_answer_that_asks_for_nothing_is_no_call(body: bytes) -> None:
    assert read_answer(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"method": null}',
        b'{"method": ""}',
        b'{"method": "send Message"}',
        b'{"method": "setWebhook"}',
        b'{"method": "DELETEWEBHOOK"}',
        b'{"method": "getMe"}',
        b'{"method": "close"}',
        b"method=logOut",
        b'{"a": ' * 5000,
        form(("method", "sendPhoto")).replace(b'name="method"', b'name="photo"; filename="a.jpg"'),
        form(("method", "\u2028")),
    ],
)
def test_what_cannot_be_a_call_is_refused(body: bytes) -> None:
    with pytest.raises(BadInput) as raised:
        read_answer(body)
    assert raised.value.code == "bad_answer"
