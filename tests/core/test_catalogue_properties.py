"""Whatever comes back from the other end of a wire has one meaning, and the cautious one where it contradicts itself."""

import re

import msgspec
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from peik.core.catalogue import CATALOGUE, CatalogueEntry, Scope, Verdict, look_up
from peik.core.outcome import (
    RETRY_AFTER_S_DEFAULT,
    RETRY_AFTER_S_MAX,
    Delivered,
    Limited,
    Moved,
    Outcome,
    Refused,
    Reply,
    Uncertain,
    Unsent,
    judge,
)

METHODS = [
    "sendMessage",
    "sendMediaGroup",
    "deleteMessage",
    "editMessageText",
    "stopPoll",
    "getMe",
    "",
    "نامه",
    "x" * 99,
]
# What Telegram's own HTTP layer says without a body to what is no HTTP (docs/telegram.md, Uncertain sends): a definite no,
# also where it is a 5xx.
HTTP_REFUSALS = {501, 505}


def answer(**fields: object) -> bytes:
    return msgspec.json.encode({"ok": False, **fields})


def judged(status: int, body: bytes, *, method: str = "sendMessage", **more: bool) -> Outcome:
    return judge(Reply(status=status, body=body), method=method, **more)


# ---- anything at all ----

_numbers = st.integers() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
_odd = st.one_of(
    st.none(),
    st.booleans(),
    _numbers,
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.just({"a": [{}]}),
)
_codes = st.sampled_from([0, 200, 400, 401, 403, 404, 409, 413, 420, 429, 500, 502, 504, 599, 600, -1]) | _odd
_known_words = st.sampled_from(
    [
        "Bad Request: chat not found",
        "Too Many Requests: retry after 5",
        "message is not modified",
        "Unauthorized",
        "Bad Request: group chat was upgraded to a supergroup chat",
        "sent message was immediately deleted",
    ]
)
_words = st.one_of(
    _known_words,
    _known_words.map(str.upper),
    _known_words.map(lambda words: f"  {words.replace(' ', '  ')}\t\n"),
    _known_words.map(lambda words: words.replace("e", "é").replace("i", "İ")),
    st.text(max_size=40),
    _odd,
)
_beside = st.one_of(
    _odd,
    st.fixed_dictionaries({}, optional={"retry_after": _odd, "migrate_to_chat_id": _odd, "new_in_12": _odd}),
)
_envelopes = st.fixed_dictionaries(
    {"ok": st.booleans() | _odd},
    optional={"result": _odd, "error_code": _codes, "description": _words, "parameters": _beside, "later": _odd},
)
_bodies = st.one_of(
    _envelopes.map(msgspec.json.encode),
    _envelopes.map(msgspec.json.encode).flatmap(lambda whole: st.integers(0, len(whole)).map(lambda cut: whole[:cut])),
    st.binary(max_size=60),
    st.sampled_from([b"", b"{}", b"null", b"[" * 5000, b'{"ok":true,"result":' * 3000, b'\xef\xbb\xbf{"ok":true}']),
    st.sampled_from([b'{"ok":NaN}', b'{"ok":false,"error_code":429', b'{"ok":false,"ok":true}', b"<html>429</html>"]),
)
_statuses = st.sampled_from([200, 204, 301, 400, 401, 403, 404, 409, 413, 429, 500, 501, 502, 503, 505, 520]) | (
    st.integers(1, 10_000)
)


@settings(max_examples=600)
@given(_statuses, _bodies, st.sampled_from(METHODS), st.booleans(), st.booleans())
def test_any_answer_is_one_of_the_six_outcomes_and_never_a_hasty_one(
    status: int, body: bytes, method: str, was_uncertain: bool, had_server_error: bool
) -> None:
    outcome = judged(status, body, method=method, was_uncertain=was_uncertain, had_server_error=had_server_error)
    assert isinstance(outcome, Delivered | Limited | Moved | Refused | Unsent | Uncertain)
    assert not isinstance(outcome, Unsent), "bytes had left"
    if status == 429:
        assert isinstance(outcome, Limited)
    if status >= 500 and not (status in HTTP_REFUSALS and not body):
        is_gone_again = isinstance(outcome, Delivered) and "immediately deleted" in outcome.note.lower()
        assert is_gone_again or isinstance(outcome, Uncertain), outcome
    match outcome:
        case Limited(retry_after_s=wait_s):
            assert 0.0 <= wait_s <= RETRY_AFTER_S_MAX
        case Moved(to_chat_id=chat_id):
            assert -(2**53) < chat_id < 0
        case Refused(code=code):
            assert 400 <= code <= 599  # it becomes the status of a gateway's answer
        case Delivered(result=result):
            msgspec.json.decode(result, type=msgspec.Raw)


@settings(max_examples=200)
@given(_statuses, st.binary(max_size=80).filter(lambda body: not body.lstrip().startswith(b"{")))
def test_what_is_not_telegrams_is_never_a_yes_nor_a_final_no(status: int, body: bytes) -> None:
    outcome = judged(status, body)
    is_http_refusal = status == 413 or (not body and status in {400, 413, 431, 501, 505})
    assert is_http_refusal or isinstance(outcome, Uncertain | Limited), outcome


# ---- answers that contradict themselves ----


@pytest.mark.parametrize("status", [429, 500, 502, 504])
def test_a_final_no_inside_a_server_error_is_no_verdict(status: int) -> None:
    outcome = judged(status, answer(error_code=400, description="Bad Request: chat not found"))
    assert isinstance(outcome, Limited if status == 429 else Uncertain)


@pytest.mark.parametrize("status", [302, 400, 429, 500, 502])
def test_a_yes_inside_an_error_is_no_yes(status: int) -> None:
    assert not isinstance(judged(status, b'{"ok":true,"result":true}'), Delivered)


@pytest.mark.parametrize("code", [-5, 1, 99, 200, 302, 399, 600, 10**20])
@pytest.mark.parametrize("status", [200, 400])
def test_an_error_code_that_is_none_is_no_verdict(code: int, status: int) -> None:
    assert isinstance(judged(status, answer(error_code=code, description="Bad Request")), Uncertain)


def test_a_no_without_any_code_is_no_verdict() -> None:
    assert isinstance(judged(200, b'{"ok":false}'), Uncertain)


def test_a_mirror_that_says_200_to_everything_is_understood() -> None:
    refused = judged(200, answer(error_code=403, description="Forbidden: bot was blocked by the user"))
    assert isinstance(refused, Refused)
    assert refused.code == 403
    assert isinstance(judged(200, answer(error_code=429, parameters={"retry_after": 3})), Limited)


# ---- figures beside the words ----


@settings(max_examples=200)
@given(_odd)
def test_no_retry_after_makes_a_hold_that_is_negative_or_endless(asked: object) -> None:
    outcome = judged(429, answer(error_code=429, description="Too Many Requests", parameters={"retry_after": asked}))
    assert isinstance(outcome, Limited)
    assert 0.0 <= outcome.retry_after_s <= RETRY_AFTER_S_MAX
    if isinstance(asked, str | list | dict | bool) or asked is None:
        assert outcome.retry_after_s == RETRY_AFTER_S_DEFAULT


UPGRADED = "Bad Request: group chat was upgraded to a supergroup chat"


@pytest.mark.parametrize("to", [0, 1, 7000001, -(2**53), -(10**30), 10**30, 2**63])
def test_no_letter_is_taken_to_a_chat_that_cannot_be_its_supergroup(to: int) -> None:
    outcome = judged(400, answer(error_code=400, description=UPGRADED, parameters={"migrate_to_chat_id": to}))
    assert isinstance(outcome, Refused)


@settings(max_examples=100)
@given(_odd)
def test_an_odd_new_chat_id_is_refused_or_no_verdict(to: object) -> None:
    outcome = judged(400, answer(error_code=400, description=UPGRADED, parameters={"migrate_to_chat_id": to}))
    if not (isinstance(to, int | float) and -(2**53) < to < 0):
        assert isinstance(outcome, Refused | Uncertain)


# ---- the rows among themselves ----


def _alternatives(words: str) -> list[str]:
    """The parts of a regular expression between the bars that are not inside brackets."""
    parts, depth = [""], 0
    for character in words:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _method_for(entry: CatalogueEntry) -> str:
    return next(
        name for name in [*METHODS, "refundStarPayment", "createNewStickerSet"] if re.search(entry.methods, name)
    )


_EXAMPLES = [
    pytest.param(entry, one, id=f"{entry.code} {one or 'anything else'} {entry.methods}".strip())
    for entry in CATALOGUE
    for one in _alternatives(entry.words)
]


@pytest.mark.parametrize(("entry", "words"), _EXAMPLES)
def test_every_alternative_of_a_row_is_found_by_that_row(entry: CatalogueEntry, words: str) -> None:
    """The shortest text that an alternative describes reaches its own row: no row above swallows it."""
    example = find(st.from_regex(words, fullmatch=True), lambda _: True) if words else "a text that nobody knows"
    assert look_up(code=entry.code, words=example, method=_method_for(entry)) is entry
    assert look_up(code=entry.code, words=example.upper(), method=_method_for(entry)) is entry


@pytest.mark.parametrize("tag", sorted({one for entry in CATALOGUE for one in _alternatives(entry.words) if one}))
@pytest.mark.parametrize("before", ["", "Bad Request: "])
def test_no_text_of_a_user_that_telegram_quotes_reaches_further_than_its_message(tag: str, before: str) -> None:
    """Whoever writes `<frozen_method_invalid>` to a bot that echoes HTML must not stop that bot."""
    quoted = find(st.from_regex(tag, fullmatch=True), lambda _: True)
    words = f'{before}can\'t parse entities: Unsupported start tag "{quoted}" at byte offset 0'
    entry = look_up(code=400, words=words, method="sendMessage")
    assert (entry.verdict, entry.scope) == (Verdict.FINAL, Scope.MESSAGE)


@settings(max_examples=200)
@given(st.text(max_size=60), st.sampled_from([400, 404, 418]), st.sampled_from(METHODS))
def test_only_words_that_telegram_begins_with_stop_a_whole_bot(words: str, code: int, method: str) -> None:
    entry = look_up(code=code, words=f"Bad Request: button '{words} logged out frozen_method_invalid'", method=method)
    assert entry.scope is not Scope.BOT or code == 404


@settings(max_examples=300)
@given(st.integers(-(10**9), 10**9), st.text(max_size=60), st.text(max_size=20))
def test_there_is_always_a_row(code: int, words: str, method: str) -> None:
    entry = look_up(code=code, words=words, method=method)
    assert entry.advice
    if code >= 500:
        assert entry.verdict in (Verdict.UNCERTAIN, Verdict.GONE_AGAIN)
    if code == 429:
        assert entry.verdict is Verdict.LIMITED
