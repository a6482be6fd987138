"""Reading a call: lane, weight, merge target, references, and a clear refusal of everything that cannot be a letter."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peik.core.call import (
    PARAMS_BYTES_MAX,
    TEXT_CHARS_MAX,
    LetterReference,
    Reading,
    _Params,
    chat_key,
    fill_references,
    read_call,
    readdress,
    references_in,
)
from peik.core.letter import Chat
from peik.errors import BadInput


def read(method: str = "sendMessage", **params: object) -> Reading:
    return read_call(method, msgspec.json.encode(params))


def refused(method: str = "sendMessage", **params: object) -> str:
    with pytest.raises(BadInput) as caught:
        read(method, **params)
    return caught.value.code


# ---- lanes ----


@pytest.mark.parametrize(
    ("method", "params", "chat"),
    [
        ("sendMessage", {"chat_id": 42}, 42),
        ("sendMessage", {"chat_id": "42"}, 42),
        ("sendMessage", {"chat_id": " -100123 "}, -100123),
        ("sendMessage", {"chat_id": "@News"}, "@news"),
        ("sendMessage", {"chat_id": "News"}, "@news"),
        ("banChatMember", {"chat_id": -5, "user_id": 7}, -5),
        ("verifyUser", {"user_id": 7}, "user:7"),
        ("verifyUser", {"user_id": "7"}, "user:7"),
        ("editMessageText", {"inline_message_id": "AbC"}, "inline:AbC"),
        ("setBusinessAccountBio", {"business_connection_id": "xyz"}, "business:xyz"),
        ("postStory", {"business_connection_id": "xyz"}, "business:xyz"),
        ("setMyName", {"name": "Peik"}, "bot"),
        ("editMessageText", {"chat_id": "", "user_id": "", "inline_message_id": "AbC"}, "inline:AbC"),
    ],
)
def test_a_call_goes_into_the_lane_of_its_chat_or_of_what_stands_for_it(
    method: str, params: dict[str, object], chat: Chat
) -> None:
    assert read(method, **params).chat == chat


@pytest.mark.parametrize(("given_thread", "thread"), [(None, 0), (0, 0), (9, 9), ("9", 9), ("", 0)])
def test_the_thread_is_a_number_and_none_is_0(given_thread: object, thread: int) -> None:
    assert read(chat_id=1, message_thread_id=given_thread).thread == thread


def test_the_name_comes_back_as_telegram_spells_it() -> None:
    assert read("SENDmessage", chat_id=1).method == "sendMessage"


# ---- weights ----


@pytest.mark.parametrize(
    ("method", "params", "weight"),
    [
        ("sendMessage", {}, 1),
        ("sendMediaGroup", {"media": [{}, {}, {}]}, 3),
        ("sendMediaGroup", {"media": '[{"type": "photo"}, {"type": "photo"}]'}, 2),
        ("sendMediaGroup", {"media": "not JSON"}, 1),
        ("sendMediaGroup", {"media": "[" * 100_000}, 1),
        ("sendMediaGroup", {}, 1),
        ("copyMessages", {"message_ids": [1, 2, 3, 4]}, 4),
        ("forwardMessages", {"message_ids": "[1, 2]"}, 2),
        ("forwardMessages", {"message_ids": None}, 1),
        ("editMessageText", {"message_id": 1}, 1),
        ("deleteMessage", {"message_id": 1}, 0),
        ("pinChatMessage", {"message_id": 1}, 0),
        ("createForumTopic", {}, 1),
    ],
)
def test_a_call_weighs_the_messages_that_telegram_counts(method: str, params: dict[str, object], weight: int) -> None:
    assert read(method, chat_id=-1, **params).weight == weight


# ---- merge targets ----


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"chat_id": 5, "message_id": 7}, {"chat_id": "5", "message_id": "7"}),
        ({"chat_id": "@Name", "message_id": 7}, {"message_id": 7, "chat_id": "@name"}),
        ({"inline_message_id": "a"}, {"inline_message_id": "a"}),
        ({"chat_id": 5, "message_id": {"letter": "3"}}, {"chat_id": 5, "message_id": {"letter": "3"}}),
        ({"chat_id": 5, "message_id": {"letter": "3"}}, {"chat_id": "5", "message_id": '{"letter": 3}'}),
        ({"chat_id": 5, "message_id": 7}, {"chat_id": 5, "message_id": 7, "inline_message_id": ""}),
    ],
)
def test_edits_of_one_message_have_one_target(one: dict[str, object], other: dict[str, object]) -> None:
    first = read("editMessageText", text="first", **one).target
    assert first == read("editMessageText", text="second", **other).target
    assert first is not None


def test_different_things_have_different_targets() -> None:
    targets = [
        read("editMessageText", chat_id=5, message_id=7).target,
        read("editMessageText", chat_id=5, message_id=8).target,
        read("editMessageText", chat_id=6, message_id=7).target,
        read("editMessageText", chat_id=5, message_id={"letter": "7"}).target,
        read("editMessageText", inline_message_id="7").target,
        read("editMessageText", chat_id=5, message_id=7, business_connection_id="b").target,
        read("editMessageText", chat_id=5, message_id="²").target,
        read("editMessageText", chat_id=5, message_id="9" * 5000).target,
        read("editMessageCaption", chat_id=5, message_id=7).target,
        read("setMessageReaction", chat_id=5, message_id=7).target,
    ]
    assert len(set(targets)) == len(targets)


@pytest.mark.parametrize("method", ["sendMessage", "deleteMessage", "banChatMember", "pinChatMessage", "stopPoll"])
def test_what_another_call_would_not_wholly_replace_is_never_merged(method: str) -> None:
    assert read(method, chat_id=5, message_id=7).target is None


# ---- letter references ----


@pytest.mark.parametrize(
    ("params", "awaits"),
    [
        ({"message_id": {"letter": "12"}}, 12),
        ({"message_id": {"letter": 12}}, 12),
        ({"reply_to_message_id": {"letter": "12"}}, 12),
        ({"reply_parameters": {"message_id": {"letter": "12"}}}, 12),
        ({"message_id": {"letter": "12"}, "reply_parameters": {"message_id": {"letter": "12"}}}, 12),
        ({"message_id": '{"letter": "12"}'}, 12),
        ({"reply_parameters": '{"message_id": {"letter": "12"}}'}, 12),
        ({"reply_parameters": '{"message_id": 12}', "text": "letter"}, None),
        ({"reply_parameters": "{letter", "message_id": "{"}, None),
        ({"message_id": 12}, None),
        ({"reply_markup": {"letter": "12"}}, None),
        ({"caption": '"letter"'}, None),
    ],
)
def test_a_reference_is_found_where_a_message_id_is_due_and_nowhere_else(
    params: dict[str, object], awaits: int | None
) -> None:
    assert read(chat_id=1, **params).awaits == awaits


def test_a_call_that_refers_to_several_letters_waits_for_the_newest_first() -> None:
    assert read(chat_id=1, message_id={"letter": "3"}, reply_parameters={"message_id": {"letter": "2"}}).awaits == 3
    many = {"message_ids": [{"letter": "1"}, 7, {"letter": "2", "item": 4, "id": 2_000_000_000}]}
    assert read("deleteMessages", chat_id=1, **many).awaits == 2


def test_items_of_an_album_are_targets_of_their_own_and_the_first_is_as_it_always_was() -> None:
    targets = [read("editMessageCaption", chat_id=5, message_id={"letter": 9, "item": n}).target for n in (0, 1)]
    assert targets[0] == read("editMessageCaption", chat_id=5, message_id={"letter": "9"}).target != targets[1]


@pytest.mark.parametrize("named", ["abc", "", -1, 0, True, None, [1], 10**30, "9" * 30])
def test_a_reference_that_names_no_letter_is_refused(named: object) -> None:
    assert refused(chat_id=1, message_id={"letter": named}) == "bad_reference"


def fill_all(params: str, message_id: int) -> str:
    return fill_references(params, dict.fromkeys(references_in(params), message_id))


def test_filling_puts_the_message_id_wherever_the_letter_was_named_and_changes_nothing_else() -> None:
    params = {
        "chat_id": 1,
        "message_id": {"letter": "12"},
        "reply_parameters": {"message_id": {"letter": "12"}, "quote": "سلام"},
        "reply_markup": {"letter": "12"},
    }
    filled = fill_all(msgspec.json.encode(params).decode(), 777)
    assert msgspec.json.decode(filled) == {
        "chat_id": 1,
        "message_id": 777,
        "reply_parameters": {"message_id": 777, "quote": "سلام"},
        "reply_markup": {"letter": "12"},
    }


def test_filling_reaches_into_the_texts_of_a_form_and_leaves_them_texts() -> None:
    params = {"message_id": '{"letter": 12}', "reply_parameters": '{"message_id": {"letter": "12"}, "quote": "a"}'}
    filled = msgspec.json.decode(fill_all(msgspec.json.encode(params).decode(), 777))
    assert filled["message_id"] == 777
    assert msgspec.json.decode(filled["reply_parameters"]) == {"message_id": 777, "quote": "a"}
    odd = {"message_id": {"letter": 1}, "reply_parameters": "{not JSON"}
    assert msgspec.json.decode(fill_all(msgspec.json.encode(odd).decode(), 5)) == odd | {"message_id": 5}


def test_a_reference_may_come_after_other_letters_and_then_takes_the_place_of_nothing_before_them() -> None:
    plain = LetterReference(letter_id=12, item=1, message_id=2_000_000_001)
    later = msgspec.structs.replace(plain, after=(14, 13))
    first, second = (read("editMessageText", chat_id=1, text="a", message_id=one.written()) for one in (plain, later))
    assert (first.awaits, second.awaits) == (12, 14)
    assert first.target != second.target
    params = msgspec.json.encode({"message_id": later.written()}).decode()
    assert references_in(params) == [later]
    assert msgspec.json.decode(fill_all(params, 5)) == {"message_id": 5}
    assert refused(chat_id=1, message_id={"letter": 12, "after": ["x"]}) == "bad_reference"
    assert refused(chat_id=1, message_id={"letter": 12, "after": 13}) == "bad_reference"


def test_a_text_may_be_any_plain_value_as_telegram_takes_it() -> None:
    assert read(chat_id=1, text=7) == read(chat_id=1, text="7")


def test_readdressing_changes_the_chat_and_nothing_else() -> None:
    moved = readdress('{"text": "سلام", "chat_id": -5}', -1005)
    assert msgspec.json.decode(moved) == {"text": "سلام", "chat_id": -1005}


# ---- what cannot be a letter ----


def test_text_is_measured_only_when_telegram_will_not_shorten_it_by_parsing() -> None:
    longer = "x" * (TEXT_CHARS_MAX + 1)
    assert refused(chat_id=1, text=longer) == "text_too_long"
    assert refused("editMessageText", chat_id=1, message_id=1, text=longer) == "text_too_long"
    assert read(chat_id=1, text="x" * TEXT_CHARS_MAX).weight == 1
    assert read(chat_id=1, text=longer, parse_mode="HTML").weight == 1
    assert read(chat_id=1, text=longer, entities=[{"type": "bold", "offset": 0, "length": 1}]).weight == 1
    assert refused(chat_id=1, text=longer, entities=None) == "text_too_long"
    assert refused(chat_id=1, text="  \n ") == "text_empty"
    assert refused("sendPhoto", chat_id=1, caption=longer) == "caption_too_long"
    assert read("sendPhoto", chat_id=1, caption=longer, caption_entities=[]).weight == 1


@pytest.mark.parametrize("method", ["getMe", "answerCallbackQuery", "sendChatAction", "getUpdates", "beamHologram"])
def test_what_is_not_queued_is_refused_with_its_class(method: str) -> None:
    assert refused(method, chat_id=1) == "not_queueable"


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({}, "missing_chat_id"),
        ({"chat_id": ""}, "missing_chat_id"),
        ({"chat_id": None}, "missing_chat_id"),
        ({"chat_id": True}, "bad_params"),
        ({"chat_id": 1.5}, "bad_params"),
        ({"chat_id": [1]}, "bad_params"),
        ({"chat_id": 10**30}, "bad_params"),
        ({"chat_id": "a\x00b"}, "bad_params"),
        ({"chat_id": "@" + "n" * 1000}, "bad_params"),
        ({"chat_id": 1, "message_thread_id": "topic"}, "bad_params"),
        ({"chat_id": 1, "message_thread_id": 10**30}, "bad_params"),
        ({"chat_id": 1, "text": [7]}, "bad_params"),
        ({"chat_id": 1, "text": "x", "note": "y" * PARAMS_BYTES_MAX}, "params_too_large"),
    ],
)
def test_a_mistake_in_the_parameters_is_told_by_its_code(params: dict[str, object], code: str) -> None:
    assert refused(**params) == code


@pytest.mark.parametrize(
    "params",
    [
        b"",
        b"[]",
        b"null",
        b'"text"',
        b'{"chat_id": 1',
        b'{"chat_id": 1} x',
        b'{"chat_id": 1, "text": "\xff"}',
        b'{"chat_id": 1, "unknown": "\xff"}',
        b'{"chat_id": 1, "unknown": 1e999}',
        b'{"chat_id": 1, "text": "\\ud800"}',
        b'{"chat_id": 1, "unknown": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"chat_id": 1, "\xff": {"letter": "5"}}',
    ],
)
def test_what_is_no_json_object_through_and_through_is_refused(params: bytes) -> None:
    for method in ("sendMessage", "editMessageText", "sendMediaGroup"):
        with pytest.raises(BadInput) as caught:
            read_call(method, params)
        assert caught.value.code == "bad_params"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
_names = st.sampled_from([*_Params.__struct_fields__, "reply_to_message_id", "reply_parameters", "letter"])
_methods = st.sampled_from(
    ["sendMessage", "sendMediaGroup", "copyMessages", "editMessageText", "setMyName", "sendGift"]
)


def read_or_refuse(method: str, params: bytes) -> Reading | None:
    try:
        return read_call(method, params)
    except BadInput:
        return None


@given(st.text(max_size=20) | _methods, st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused(method: str, params: bytes) -> None:
    read_or_refuse(method, params)


@settings(max_examples=300)
@given(_methods, st.dictionaries(_names, _json | st.fixed_dictionaries({"letter": _json}), max_size=5))
def test_arbitrary_json_is_read_or_refused_and_what_is_read_can_be_moved_and_filled(
    method: str, params: dict[str, object]
) -> None:
    text = msgspec.json.encode(params)
    reading = read_or_refuse(method, text)
    if reading is not None:
        assert reading.weight >= 0
        assert abs(reading.thread) < 2**63
        assert msgspec.json.decode(readdress(text.decode(), -7))["chat_id"] == -7
        if reading.awaits is not None:
            assert read_call(method, fill_all(text.decode(), 5).encode()).awaits is None


@given(st.integers(min_value=-(10**17), max_value=10**17))
def test_a_chats_number_is_one_key_as_number_and_as_text(number: int) -> None:
    assert chat_key(number) == chat_key(str(number)) == chat_key(f" {number} ") == number


_texts = st.text(max_size=4) | st.sampled_from(["  ", "x" * 4096, "x" * 4097])
_usual = st.fixed_dictionaries(
    {"chat_id": st.integers(min_value=-(2**64), max_value=2**64), "text": _texts},
    optional={
        "parse_mode": st.sampled_from(["HTML", "", None, 5]),
        "reply_markup": st.just({"force_reply": True}),
        "reply_parameters": st.just({"message_id": {"letter": "7"}}),
        "message_thread_id": st.sampled_from([None, 3, "3"]),
        "entities": st.just([]),
    },
)


@given(_usual)
def test_a_plain_text_is_read_the_short_way_as_it_would_be_the_long_way(params: dict[str, object]) -> None:
    # A caption, and be it none, makes it go the long way.
    assert _read_or_code(params) == _read_or_code(params | {"caption": None})


def _read_or_code(params: dict[str, object]) -> object:
    try:
        return read_call("sendMessage", msgspec.json.encode(params))
    except BadInput as error:
        return error.code
