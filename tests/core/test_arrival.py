"""How Telegram's JSON becomes an update that can be filed: every type, types of tomorrow, and whatever else may come."""

import json
import sqlite3
from typing import Any

import aiogram.types
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peik.core.arrival import (
    UPDATE_TYPES,
    Arrival,
    Update,
    is_wanted,
    mended,
    number_near,
    opens_chat,
    read_update,
    read_updates,
    wire_id,
)
from peik.errors import BadInput
from peik.testing.updates import ALL_TYPES

USER = {"id": 42, "is_bot": False, "first_name": "Ada"}
GROUP = {"id": -1001, "type": "supergroup"}
MESSAGE = {"message_id": 7, "from": USER, "chat": GROUP, "date": 1_794_700_000, "text": "hello"}
LAST_WIRE_ID = 2**31 - 1


def read(kind: str, body: Any, update_id: int = 9) -> Update:
    return read_update(json.dumps({"update_id": update_id, kind: body}).encode())


@pytest.mark.parametrize(
    ("kind", "body", "lane", "user_id", "message_id", "sent_at_ms"),
    [
        ("message", MESSAGE, -1001, 42, 7, 1_794_700_000_000),
        ("edited_message", MESSAGE | {"edit_date": 1_794_700_060}, -1001, 42, 7, 1_794_700_060_000),
        ("channel_post", {"message_id": 3, "chat": GROUP, "date": 5}, -1001, None, 3, 5000),
        ("edited_channel_post", {"message_id": 3, "chat": GROUP, "date": 5, "edit_date": 6}, -1001, None, 3, 6000),
        ("business_connection", {"id": "b", "user": USER, "user_chat_id": 42, "date": 5}, 42, 42, None, 5000),
        ("business_message", MESSAGE, -1001, 42, 7, 1_794_700_000_000),
        ("edited_business_message", MESSAGE, -1001, 42, 7, 1_794_700_000_000),
        ("deleted_business_messages", {"chat": GROUP, "message_ids": [1, 2]}, -1001, None, None, None),
        ("guest_message", MESSAGE, -1001, 42, 7, 1_794_700_000_000),
        ("message_reaction", {"chat": GROUP, "message_id": 7, "user": USER, "date": 5}, -1001, 42, 7, 5000),
        ("message_reaction_count", {"chat": GROUP, "message_id": 7, "date": 5}, -1001, None, 7, 5000),
        ("inline_query", {"id": "1", "from": USER, "query": ""}, 42, 42, None, None),
        ("chosen_inline_result", {"result_id": "1", "from": USER, "query": ""}, 42, 42, None, None),
        ("callback_query", {"id": "1", "from": USER, "message": MESSAGE, "data": "yes"}, -1001, 42, 7, None),
        ("callback_query", {"id": "1", "from": USER, "inline_message_id": "x"}, 42, 42, None, None),
        ("shipping_query", {"id": "1", "from": USER}, 42, 42, None, None),
        ("pre_checkout_query", {"id": "1", "from": USER}, 42, 42, None, None),
        ("purchased_paid_media", {"from": USER, "paid_media_payload": "x"}, 42, 42, None, None),
        ("poll", {"id": "77", "question": "?"}, "poll:77", None, None, None),
        ("poll_answer", {"poll_id": "77", "user": USER, "option_ids": [0]}, 42, 42, None, None),
        ("poll_answer", {"poll_id": "77", "voter_chat": GROUP, "option_ids": [0]}, -1001, None, None, None),
        ("my_chat_member", {"chat": GROUP, "from": USER, "date": 5}, -1001, 42, None, 5000),
        ("chat_member", {"chat": GROUP, "from": USER, "date": 5}, -1001, 42, None, 5000),
        ("chat_join_request", {"chat": GROUP, "from": USER, "date": 5}, -1001, 42, None, 5000),
        ("chat_boost", {"chat": GROUP, "boost": {}}, -1001, None, None, None),
        ("removed_chat_boost", {"chat": GROUP, "boost_id": "x"}, -1001, None, None, None),
        ("managed_bot", {"user": USER}, 42, 42, None, None),
        ("subscription", {"user": USER}, 42, 42, None, None),
        ("stopped_message_generation", {"chat": GROUP, "draft_id": 3}, -1001, None, None, None),
        ("dream_shared", {"chat": GROUP, "from": USER, "date": 5}, -1001, 42, None, 5000),  # of a Bot API to come
        ("custom_event", "words alone", "custom_event", None, None, None),
    ],
)
def test_every_type_is_filed_where_it_belongs(
    kind: str, body: Any, lane: object, user_id: int | None, message_id: int | None, sent_at_ms: int | None
) -> None:
    update = read(kind, body)
    assert (update.type, update.lane, update.user_id, update.message_id, update.sent_at_ms) == (
        kind, lane, user_id, message_id, sent_at_ms,
    )  # fmt: skip
    assert json.loads(update.payload) == {kind: body}


def test_peik_asks_for_every_type_of_the_newest_bot_api() -> None:
    """What is not asked for is filtered at Telegram, and lost."""
    assert {*UPDATE_TYPES, "update_id"} == set(aiogram.types.Update.model_fields)
    assert set(UPDATE_TYPES) == set(ALL_TYPES)  # and the simulated Telegram knows them


def test_every_type_of_telegram_has_its_line_above() -> None:
    rows = test_every_type_is_filed_where_it_belongs.pytestmark[0].args[1]
    assert set(UPDATE_TYPES) <= {row[0] for row in rows}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b'{"update_id":9}', "unknown"),
        (b'{"update_id":9,"Strange \\" name":1}', "unknown"),  # it would break a path into JSON
        (b'{"update_id":9,"extra":1,"message":{}}', "message"),
        (b'{"update_id":9,"message":{"chat":{"id":99999999999999999999}}}', "message"),
        (b'{"update_id":9,"message":{"date":9999999999999999}}', "message"),
        (b'{"update_id":9,"message":[1,2]}', "message"),
    ],
)
def test_an_update_that_is_not_as_we_know_it_is_filed_all_the_same(text: bytes, kind: str) -> None:
    update = read_update(text)
    assert (update.update_id, update.type, update.lane) == (9, kind, kind)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"nonsense", b"[]", b"7", b"null", b"{}", b'{"message":{}}', b'{"update_id":"9"}', b'{"update_id":9.5}',
        b'{"update_id":0}', b'{"update_id":-4}', b'{"update_id":99999999999999999999}', b'{"update_id":9', b"\xff\xfe",
        b'{"update_id":9,"message":{"text":"\xff"}}', b'{"update_id":9,"message":' + b"[" * 100_000 + b"}",
    ],
)  # fmt: skip
def test_what_is_no_update_is_refused(text: bytes) -> None:
    with pytest.raises(BadInput):
        read_update(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"update_id":9,"message":{"text":"\\ud800 half"}}', "\ufffd half"),
        (b'{"update_id":9,"message":{"text":"\xff byte"}}', "\ufffd byte"),
        (b'{"update_id":9,"message":{"text":"two\nlines"}}', "two\nlines"),
        (b'{"update_id":9,"message":{"text":"\\ud83d\\ude00"}}', "\U0001f600"),
    ],
)
def test_characters_that_are_broken_are_mended(text: bytes, words: str) -> None:
    whole = mended(text)
    assert whole is not None
    assert json.loads(read_update(whole).payload) == {"message": {"text": words}}
    assert mended(b'{"update_id":9') is None


def test_a_batch_keeps_its_order_and_is_not_stopped_by_what_cannot_be_read() -> None:
    updates, unreadable = read_updates(b'[{"update_id":4,"poll":{"id":"1"}},{"no":"id"},17,{"update_id":6}]')
    assert [update.update_id for update in updates] == [4, 6]
    assert unreadable == 2
    assert read_updates(b"[]") == ([], 0)


@pytest.mark.parametrize("result", [b"{}", b"true", b"", b"[", b"[17]"])
def test_an_answer_without_any_update_in_it_is_refused(result: bytes) -> None:
    with pytest.raises(BadInput):
        read_updates(result)


def test_the_same_payload_has_the_same_digest_whatever_its_id() -> None:
    assert read("message", MESSAGE, 9).digest == read("message", MESSAGE, 10).digest
    assert read("message", MESSAGE).digest != read("message", MESSAGE | {"text": "other"}).digest


_names = st.sampled_from(
    ["chat", "from", "user", "id", "date", "edit_date", "message", "message_id", "poll_id", "poll"]
)
_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | _names, inner, max_size=4),
    max_leaves=12,
)


@given(
    kind=st.sampled_from(UPDATE_TYPES) | st.text(max_size=80),
    body=_json_values,
    update_id=st.integers(1, 2**53),
)
@example(kind="poll", body={"id": "\x00"}, update_id=1)
def test_whatever_json_comes_under_an_id_is_kept_and_fits_into_a_store(kind: str, body: Any, update_id: int) -> None:
    update = read_update(json.dumps({kind: body, "update_id": update_id}).encode())
    assert update.update_id == update_id
    if kind != "update_id":
        assert json.loads(update.payload) == {kind: body}
    # SQLite takes numbers of 64 bits and text that can be encoded; and a type may stand in a path into JSON.
    row = sqlite3.connect(":memory:").execute(
        "SELECT ?, ?, ?, ?, ?, json_extract(?, '$.' || ? || '.text')",
        (
            update.type, update.lane, update.user_id, update.message_id, update.sent_at_ms,
            "{}", update.type,
        ),
    ).fetchone()  # fmt: skip
    assert row[:5] == (update.type, update.lane, update.user_id, update.message_id, update.sent_at_ms)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_update_or_refused(text: bytes) -> None:
    try:
        update = read_update(text)
    except BadInput:
        return
    json.loads(update.payload)


# ---- what bots are shown ----


def arrival(number: int, payload: str) -> Arrival:
    return Arrival(
        id=1, bot_id=1, number=number, epoch=1, update_id=5, type="message", lane=1, received_at_ms=0, payload=payload
    )


def test_a_bot_gets_the_update_under_our_own_number() -> None:
    assert arrival(12, '{"message":{"text":"hello"}}').wire() == b'{"update_id":12,"message":{"text":"hello"}}'
    assert arrival(12, "{}").wire() == b'{"update_id":12}'


@pytest.mark.parametrize(
    ("number", "shown"),
    [(1, 1), (LAST_WIRE_ID, LAST_WIRE_ID), (LAST_WIRE_ID + 1, 1), (2 * LAST_WIRE_ID + 5, 5)],
)
def test_wire_ids_go_round_below_two_to_the_31(number: int, shown: int) -> None:
    assert wire_id(number) == shown


@given(number=st.integers(1, 2**60), off=st.integers(-(2**29), 2**29))
def test_a_wire_id_is_understood_by_whoever_knows_about_where_he_is(number: int, off: int) -> None:
    assert 1 <= wire_id(number) <= LAST_WIRE_ID
    assert number_near(wire_id(number), near=max(1, number + off)) == number


def test_types_that_must_be_asked_for_are_given_only_to_who_asks() -> None:
    assert is_wanted("message", None)
    assert not is_wanted("chat_member", None)
    assert is_wanted("chat_member", frozenset({"chat_member"}))
    assert not is_wanted("message", frozenset({"chat_member"}))


# ---- what an update says of its chat ----


@pytest.mark.parametrize(
    ("kind", "body", "opens"),
    [
        ("message", MESSAGE, True),
        ("channel_post", MESSAGE, True),
        ("inline_query", {"id": "1", "from": USER}, None),
        ("my_chat_member", {"chat": GROUP, "new_chat_member": {"status": "member"}}, True),
        ("my_chat_member", {"chat": GROUP, "new_chat_member": {"status": "administrator"}}, True),
        ("my_chat_member", {"chat": GROUP, "new_chat_member": {"status": "kicked"}}, False),
        ("my_chat_member", {"chat": GROUP, "new_chat_member": {"status": "left"}}, False),
        ("my_chat_member", {"chat": GROUP, "new_chat_member": {"status": "restricted"}}, None),
        ("my_chat_member", {"chat": GROUP}, None),
    ],
)
def test_whether_a_chat_can_be_written_to_again(kind: str, body: Any, opens: bool | None) -> None:
    assert opens_chat(read(kind, body)) is opens


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("kind", UPDATE_TYPES)
def test_the_short_way_reads_as_the_long_one(kind: str, spaced: bool) -> None:
    body = {"message_id": 3, "from": {"id": 9}, "chat": {"id": -4}, "date": 7, "text": 'سلام "} \\u0000', "id": "5"}
    dense = msgspec.json.encode({"update_id": 12, kind: body})
    usual = dense.replace(b',"', b',\n"', 1) if spaced else dense
    unusual = b" " + usual.replace(b'{"update_id":12', b'{"update_id": 12', 1)
    assert read_update(usual) == read_update(unusual)


@pytest.mark.parametrize(
    "text",
    [
        b'{"update_id":1,"message":{"chat":{"id":5}},"more":1}',
        b'{"update_id":1,"message":{"chat":{"id":5}},"update_id":2}',
        b'{"update_id":1,"message":{"chat":{"id":5}}} ',
        b'{"update_id":1,"message":{}}',
    ],
)
def test_what_is_not_written_in_the_usual_way_is_read_whole(text: bytes) -> None:
    whole = msgspec.json.decode(text)
    update_id = whole.pop("update_id")
    update = read_update(text)
    assert (update.update_id, msgspec.json.decode(update.payload)) == (update_id, whole)
