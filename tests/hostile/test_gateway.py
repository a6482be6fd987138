"""Hostile requests at the gateway of a whole Peik: always Telegram's envelope, and what is refused leaves no trace."""

import json
import os
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peik.core.methods import classify
from tests.hostile.offices import BOT, OTHER_TOKEN, TOKEN, Heard, Resident, resident

EXAMPLES = int(os.environ.get("TEST_HOSTILE_EXAMPLES", "800"))
SECRETS = (b"AAtest", b"AAother")
BOUNDARY = "peik-xx"
hostile = settings(max_examples=EXAMPLES, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def peik() -> Iterator[Resident]:
    with resident() as one:
        yield one
        assert one.surprises() == []
        assert one.crashes == []
        assert not any(secret.decode() in one.log.getvalue() for secret in SECRETS), "a token is in the log"


def check(heard: Heard | None) -> None:
    """True of every answer of the gateway, whatever was asked."""
    assert heard is not None
    assert heard.headers["content-type"] == "application/json"
    assert int(heard.headers["content-length"]) == len(heard.body)
    envelope = heard.json
    assert envelope["ok"] is (heard.status == 200)
    if not envelope["ok"]:
        assert envelope["error_code"] == heard.status
        assert isinstance(envelope["description"], str)
        assert envelope["description"]
    assert 200 <= heard.status < 500 or heard.status in (503, 504), envelope
    assert not any(secret in heard.body for secret in SECRETS)


# ---- any request ----

METHODS = ["sendMessage", "sendmessage", "SENDPHOTO", "sendDocument", "sendMediaGroup", "editMessageText", "deleteMessage",
    "copyMessages", "getMe", "getChat", "getUpdates", "setWebhook", "deleteWebhook", "getWebhookInfo", "answerCallbackQuery",
    "createForumTopic",
    "sendInvoice", "sendGift", "logOut", "close", "sendNothing", "nothing", "", "a/b", "..", "\0", "é"]  # fmt: skip
NAMES = ["chat_id", "text", "message_id", "message_ids", "media", "photo", "document", "reply_markup", "reply_parameters",
    "parse_mode", "message_thread_id", "from_chat_id", "caption", "offset", "limit", "url", "allowed_updates", "user_id",
    "max_connections", "drop_pending_updates", "peik_idempotency_key", "entities", "name", "gift_id", "", "x" * 300]  # fmt: skip
TEXTS = ["7", "-100", "@x", "@", "{}", "[]", "[1,2]", '{"letter":"1"}', '{"message_id":{"letter":"99"}}', "attach://x",
    "attach://", "attach://nowhere", "true", "True", "yes", "1", "0x7", "1e3", "NaN", "9" * 400, "HTML", "\0", "\ud7ff",
    '[{"type":"photo","media":"attach://x"}]', "[" * 2000, " 7 ", "\u06f7", "http://127.0.0.1:9/", "http://[",
    "a" * 5000]  # fmt: skip
_scalars = st.one_of(
    st.sampled_from(TEXTS),
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NAMES, "letter", "type"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_params = st.dictionaries(st.sampled_from(NAMES), _values, max_size=5).flatmap(
    lambda params: st.sampled_from([params, {"chat_id": 5, "text": "x", **params}, {"chat_id": 5, **params}])
)


def as_texts(params: dict[str, Any]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in params.items()}


def multipart(fields: dict[str, str], files: list[tuple[str, bytes]]) -> bytes:
    parts = [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
             for name, value in fields.items()]  # fmt: skip
    parts += [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="f"\r\nContent-Type: x/\xff\r\n\r\n'
              .encode() + content + b"\r\n" for name, content in files]  # fmt: skip
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


@st.composite
def _bodies(draw: st.DrawFn, params: dict[str, Any]) -> tuple[bytes, bytes]:
    """A content type, and a body that mostly is of it."""
    match draw(st.sampled_from(["json", "form", "multipart", "garbage"])):
        case "json":
            kind, body = b"application/json", json.dumps(params, ensure_ascii=draw(st.booleans())).encode()
        case "form":
            kind, body = b"application/x-www-form-urlencoded", urllib.parse.urlencode(as_texts(params)).encode()
        case "multipart":
            names = st.sampled_from(["x", "photo", "document", "chat_id", "nobody"])
            files = draw(st.lists(st.tuples(names, st.binary(max_size=30)), max_size=3))
            kind, body = f"multipart/form-data; boundary={BOUNDARY}".encode(), multipart(as_texts(params), files)
        case _:
            kind = draw(
                st.sampled_from([b"application/json", b"multipart/form-data; boundary=x", b"text/plain", b"\xff"])
            )
            body = draw(st.binary(max_size=50))
    match draw(st.sampled_from(["whole", "whole", "whole", "truncated", "flipped"])):
        case "truncated":
            body = body[: draw(st.integers(0, len(body)))]
        case "flipped" if body:
            at = draw(st.integers(0, len(body) - 1))
            body = body[:at] + draw(st.binary(max_size=2)) + body[at + 1 :]
    return kind, body


_lies = st.sampled_from([None, None, None, b"0", b"5", b"99999", b"-1", b"x", b"9" * 30])
_more_headers = st.lists(
    st.tuples(
        st.sampled_from(
            [b"idempotency-key", b"content-encoding", b"host", b"x-forwarded-for", b"authorization", b"range"]
        ),
        st.binary(max_size=12) | st.sampled_from([b"gzip", b"k" * 300, b"identity", b"Bearer test-key", b"bytes=0-"]),
    ),
    max_size=2,
)


@hostile
@given(st.data())
def test_any_call_is_answered_in_telegrams_envelope_and_leaves_nothing_if_it_is_refused(
    peik: Resident, data: st.DataObject
) -> None:
    method = data.draw(st.sampled_from(METHODS))
    params = data.draw(_params)
    kind, body = data.draw(_bodies(params))
    asked = data.draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS), max_size=2))
    announced = data.draw(_lies) or str(len(body)).encode()
    is_cut = data.draw(st.sampled_from([False, False, False, True]))
    size = data.draw(st.integers(1, 400))
    before, spooled = peik.letters(), peik.spooled()
    heard = peik.ask(
        data.draw(st.sampled_from(["POST", "POST", "GET"])),
        f"/bot{TOKEN}{data.draw(st.sampled_from(['', '', '@other', '@default']))}/{method}",
        query=urllib.parse.urlencode(asked).encode(),
        headers=[(b"content-type", kind), (b"content-length", announced), *data.draw(_more_headers)],
        body=[body[at : at + size] for at in range(0, len(body), size)],
        is_cut=is_cut,
    )
    accepted = peik.letters() - before
    if heard is None:
        assert is_cut
        assert accepted == 0
    else:
        check(heard)
    queued = classify(method)[1]
    assert accepted == 0 or (accepted == 1 and queued is not None and queued.is_queued)
    if not accepted:
        assert peik.spooled() <= spooled, "a call that was not accepted left a file"


TOKENS = [TOKEN, OTHER_TOKEN, "7000001:AAtesT", "7000001:AA", "7000009:AAwrong", "7000001", ":AAtest", "7000001:AAtest/x",
    "7000001%3AAAtest",
    "7000001:AAtest@", "7000001:AAtest@a b", "0:AAtest", "7000001:" + "A" * 300, "\u06f7:AAtest", " ", "-1:AAA"]  # fmt: skip
TAILS = [
    "",
    "/",
    "//",
    "/getMe",
    "/getMe/",
    "/GETME",
    "/test/getMe",
    "/test/",
    "/getMe?x",
    "/ge\ttMe",
    "/../v1/stats",
    "/é",
]
CALLS = ("/getMe", "/getMe/", "/GETME", "/test/getMe")  # the simulated Telegram has no test servers of its own
OURS = (TOKEN, OTHER_TOKEN)


@pytest.mark.parametrize("token", TOKENS)
def test_any_path_under_bot_is_answered_in_telegrams_envelope(peik: Resident, token: str) -> None:
    for tail in TAILS:
        for verb in ("GET", "POST", "PUT", "HEAD", "TRACE", "x"):
            peik.run(_forget_checks(peik))
            heard = peik.ask(verb, f"/bot{token}{tail}")
            check(heard)
            assert heard is not None
            if verb in ("GET", "POST") and token in OURS and tail in CALLS:
                assert heard.status == 200
            else:
                assert heard.status in (401, 404), (verb, tail)


@hostile
@given(st.text(max_size=30), st.text(max_size=10), st.text(max_size=10))
def test_any_text_in_a_path_is_answered_in_telegrams_envelope(peik: Resident, token: str, name: str, tail: str) -> None:
    peik.run(_forget_checks(peik))
    for path in (
        f"/bot{token}/{tail}",
        f"/bot{TOKEN}@{name}/{tail}",
        f"/bot{token}:{name}/{tail}",
        f"/bot{TOKEN}/{tail}",
    ):
        check(peik.ask("GET", path))


async def _forget_checks(peik: Resident) -> None:
    """Unknown tokens are asked about twenty times a minute; here every example is a minute of its own."""
    peik.app._otherwise._tokens._checks.clear()


# ---- the same letter, whichever way it is written ----

_said = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1).filter(str.strip)
_calls = st.fixed_dictionaries(
    {"chat_id": st.integers(1, 2**40), "text": _said},
    optional={
        "disable_notification": st.booleans(),
        "message_thread_id": st.integers(1, 9),
        "later": st.integers(-(2**70), 2**70),
    },
)


@settings(max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_calls)
def test_the_same_call_in_every_encoding_becomes_the_same_letter(peik: Resident, params: dict[str, Any]) -> None:
    texts = as_texts(params)
    encoded = urllib.parse.urlencode(texts).encode()
    ways: list[tuple[str, bytes, bytes, bytes]] = [
        ("POST", b"application/json", b"", json.dumps(params).encode()),
        ("POST", b"application/json", b"", json.dumps(texts, ensure_ascii=False).encode()),
        ("POST", b"application/x-www-form-urlencoded", b"", encoded),
        ("POST", f"multipart/form-data; boundary={BOUNDARY}".encode(), b"", multipart(texts, [])),
        ("GET", b"", encoded, b""),
        ("POST", b"application/json", encoded, b'{"text":"the query string counts"}'),
    ]
    letters = []
    for verb, kind, query, body in ways:
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        check(peik.ask(verb, f"/bot{TOKEN}/sendMessage", query=query, headers=headers, body=body))
        (letter,) = peik.rest("GET", "/v1/letters", query=f"limit=1&bot_id={BOT}").json["letters"]
        # Not its priority: what a call is worth that does not say it depends on those before it.
        letters.append({name: letter[name] for name in ("method", "chat_id", "thread_id", "attempts", "on_uncertain")})
        letters[-1]["params"] = as_texts(letter["params"])
    assert all(letter == letters[0] for letter in letters), letters
