"""What strangers' tables are taken for, and what is made of their rows."""

from typing import Any

import pytest

from peik.errors import BadInput
from peik.importing.rows import (
    BadRow,
    TableKind,
    TableShape,
    as_letters,
    as_people,
    instant_ms_of,
    last_update_of,
    letter_of,
    person_of,
    recognise,
    standing_of,
)


def columns_of(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize(
    ("table", "columns", "kind"),
    [
        ("pending_messages", "id chat_id text status", TableKind.LETTERS),
        ("PendingMessages", "Id ChatId MessageText IsSent CreatedAt", TableKind.LETTERS),
        ("outbox", "uuid user_id payload created_at", TableKind.LETTERS),
        ("notifications", "id telegram_id message sent_at", TableKind.LETTERS),
        ("message_queue", "id recipient body parse_mode reply_markup attempts", TableKind.LETTERS),
        ("media", "id chat_id file_id caption type status attempts", TableKind.LETTERS),
        # What people wrote is not to be sent back to them.
        ("pending_messages", "id user_id message_text message_type status created_at", TableKind.RECEIVED),
        ("pending_messages", "id chat_id message_id text message_type status", TableKind.RECEIVED),
        ("inbox", "update_id chat_id text status", TableKind.RECEIVED),
        # A log of all that was said has nothing that waits.
        ("messages", "id chat_id text created_at", None),
        ("users", "user_id username first_name language is_blocked created_at", TableKind.PEOPLE),
        ("subscribers", "chat_id", TableKind.PEOPLE),
        ("accounts", "telegram_id username", TableKind.PEOPLE),
        ("users", "id username first_name", None),  # whose ids those are is not known
        ("orders", "id user_id total", None),
        ("bot_state", "key value", TableKind.OFFSET),
        ("bot_state", "id last_update_id last_startup updated_at", TableKind.OFFSET),
        ("state", "bot_id offset", TableKind.OFFSET),
        ("prices", "id amount", None),
    ],
)
def test_a_table_is_known_by_its_columns(table: str, columns: str, kind: TableKind | None) -> None:
    shape = recognise(table, columns_of(columns))
    assert (None if shape is None else shape.kind) == kind


def test_what_is_said_of_columns_wins_over_what_they_look_like() -> None:
    shape = as_letters("mail", columns_of("no peer words chat_id"), {"chat": "peer", "text": "words"})
    assert shape.columns == {"chat": "peer", "text": "words"}
    with pytest.raises(BadInput, match="has no column nobody"):
        as_letters("mail", ["peer", "text"], {"chat": "nobody"})
    with pytest.raises(BadInput, match="--map chat=COLUMN"):
        as_letters("mail", ["words", "text"], {})
    with pytest.raises(BadInput, match="--map text=COLUMN"):
        as_letters("mail", ["chat_id", "words"], {})
    with pytest.raises(BadInput, match="--map user=COLUMN"):
        as_people("users", ["id", "username"], {})
    assert as_people("users", ["id", "username"], {"user": "id"}).columns == {"user": "id", "username": "username"}


def letters(**row: Any) -> tuple[TableShape, dict[str, Any]]:
    return as_letters("t", list(row), {}), row


@pytest.mark.parametrize(
    ("row", "pending", "standing"),
    [
        ({"status": "pending"}, "", "waiting"),
        ({"status": None}, "", "waiting"),
        ({"status": "0"}, "", "waiting"),
        ({"status": "SENT"}, "", "sent"),
        ({"status": "1"}, "", "sent"),
        ({"status": "In Progress"}, "", "in doubt"),
        ({"status": "failed"}, "", "failed"),
        ({"status": "در صف"}, "", "unknown"),
        ({"status": "در صف"}, "در صف", "waiting"),
        ({"status": "parked"}, "", "unknown"),
        ({"status": "parked"}, "parked", "waiting"),
        ({"status": "pending"}, "parked", "unknown"),
        ({"status": "sent"}, "parked", "sent"),
        ({"sent": "false"}, "", "waiting"),
        ({"sent": "1", "status": "pending"}, "", "sent"),
        ({"sent_at": ""}, "", "waiting"),
        ({"sent_at": "2026-11-15"}, "", "sent"),
        ({}, "", "waiting"),
    ],
)
def test_only_what_waits_is_brought(row: dict[str, Any], pending: str, standing: str) -> None:
    shape, whole = letters(chat_id="5", text="hello", **row)
    assert standing_of(shape, whole, frozenset({pending} - {""}))[0] == standing


@pytest.mark.parametrize(
    ("row", "letter"),
    [
        ({"chat_id": "5", "text": "hi"}, {"method": "sendMessage", "params": {"text": "hi", "chat_id": 5}}),
        ({"chat_id": "-1001.0", "text": "hi"}, {"method": "sendMessage", "params": {"text": "hi", "chat_id": -1001}}),
        ({"chat_id": "@news", "text": "hi"}, {"method": "sendMessage", "params": {"text": "hi", "chat_id": "@news"}}),
        (
            {
                "chat_id": 5,
                "text": "hi",
                "parse_mode": "html",
                "reply_markup": '{"remove_keyboard":true}',
                "topic_id": "3",
            },
            {
                "method": "sendMessage",
                "params": {
                    "text": "hi",
                    "chat_id": 5,
                    "message_thread_id": 3,
                    "parse_mode": "HTML",
                    "reply_markup": {"remove_keyboard": True},
                },
            },
        ),
        (
            {"chat_id": "5", "text": "look", "type": "photo", "file_id": "AgAC"},
            {"method": "sendPhoto", "params": {"photo": "AgAC", "caption": "look", "chat_id": 5}},
        ),
        (
            {"chat_id": "5", "payload": '{"text":"hi","disable_notification":true}'},
            {"method": "sendMessage", "params": {"text": "hi", "disable_notification": True, "chat_id": 5}},
        ),
        (
            {"payload": {"method": "sendDice", "params": {"chat_id": 5}}},
            {"method": "sendDice", "params": {"chat_id": 5}},
        ),
        (
            {"chat_id": "5", "text": "later", "send_at": "2030-01-01 00:00:00"},
            {"method": "sendMessage", "params": {"text": "later", "chat_id": 5}, "send_at": 1893456000.0},
        ),
    ],
)
def test_a_row_becomes_a_letter(row: dict[str, Any], letter: dict[str, Any]) -> None:
    assert letter_of(*letters(**row)) == letter


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"chat_id": None, "text": "hi"}, "to whom"),
        ({"chat_id": "Sara", "text": "hi"}, "'Sara' is no chat"),
        ({"chat_id": "0", "text": "hi"}, "'0' is no chat"),
        ({"chat_id": "5", "text": ""}, "no text"),
        ({"chat_id": "5", "text": "x", "type": "photo"}, "a photo without a file"),
        ({"chat_id": "5", "text": "x", "type": "hologram", "file_id": "A"}, "'hologram'"),
        ({"chat_id": "5", "payload": "hello"}, "no JSON object"),
        ({"chat_id": "5", "text": "x", "reply_markup": "[1]"}, "its reply_markup"),
        ({"chat_id": "5", "text": "x", "send_at": "soon"}, "'soon' is no time"),
        ({"chat_id": "5", "text": "x", "thread_id": "main"}, "the topic"),
    ],
)
def test_what_cannot_be_a_letter_says_why(row: dict[str, Any], why: str) -> None:
    with pytest.raises(BadRow, match=why):
        letter_of(*letters(**row))


def people(**row: Any) -> tuple[TableShape, dict[str, Any]]:
    return as_people("users", list(row), {}), row


def test_a_row_becomes_a_person() -> None:
    whole = people(
        user_id="5",
        username="@sara",
        first_name="Sara",
        last_name="B",
        language="fa",
        is_blocked="1",
        created_at="1700000000",
    )
    assert person_of(*whole) == {
        "chat_id": "5",
        "name": "Sara B",
        "username": "sara",
        "language": "fa",
        "first_seen_at": 1700000000.0,
        "last_seen_at": 1700000000.0,
        "gone": True,
    }
    assert person_of(*people(chat_id="-100", is_active="0")) == {"chat_id": "-100", "gone": True}
    assert person_of(*people(chat_id="7", is_active=None)) == {"chat_id": "7"}
    for wrong in (None, "", "0", "me"):
        with pytest.raises(BadRow):
            person_of(*people(user_id=wrong))


@pytest.mark.parametrize(
    ("columns", "row", "last"),
    [
        ("key value", {"key": "last_update_id", "value": "105"}, 105),
        ("key value", {"key": "offset", "value": "106"}, 105),  # what it would ask for next
        ("key value", {"key": "theme", "value": "106"}, None),
        ("name value", {"name": "lastUpdateId", "value": 105}, 105),
        ("id last_update_id", {"id": "1", "last_update_id": "105"}, 105),
        ("offset", {"offset": "106"}, 105),
        ("offset", {"offset": "none"}, None),
        ("offset", {"offset": "0"}, None),
    ],
)
def test_the_place_in_telegrams_updates_is_read_so_that_nothing_is_lost(
    columns: str, row: dict[str, Any], last: int | None
) -> None:
    shape = recognise("bot_state", columns_of(columns))
    assert shape is not None
    assert last_update_of(shape, row) == last


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1700000000", 1700000000000),
        ("1700000000123", 1700000000123),
        ("2023-11-14T22:13:20Z", 1700000000000),
        ("2023-11-14 22:13:20", 1700000000000),
        ("2023-11-14", 1699920000000),
        ("yesterday", None),
        ("", None),
        (None, None),
        ("-5", None),
    ],
)
def test_times_of_every_kind_are_read(text: str | None, at_ms: int | None) -> None:
    assert instant_ms_of(text) == at_ms
