"""Exports as JSON Lines and CSV."""

import csv
import io
import json
from pathlib import Path

import pytest

from peik.archive.export import ExportFormat, ExportPart, export_events, export_messages
from peik.archive.store import EventFilter, MessageFilter
from tests.archive.places import SqlitePlace, opened
from tests.archive.samples import CHAT, NOW, event, message


async def test_json_lines_hold_every_message_the_newest_first(tmp_path: Path) -> None:
    async with opened(SqlitePlace(tmp_path)) as archive:
        await archive.keep_messages([message(number, raw='{"a": [1]}', text='سلام\n"') for number in range(25)])
        parts = [part async for part in export_messages(archive, MessageFilter(), form=ExportFormat.JSONL, page=10)]
    assert [part.count for part in parts] == [10, 10, 5]
    lines = b"".join(part.data for part in parts).decode().splitlines()
    read = [json.loads(line) for line in lines]
    assert [int(one["message_id"]) for one in read] == list(range(24, -1, -1))
    assert read[0]["raw"] == {"a": [1]}
    assert read[0]["text"] == 'سلام\n"'
    assert read[24]["date"] == "2027-01-15T08:00:00.000Z"
    assert read[0]["edited_at"] is None
    assert read[0]["deleted_at"] is None


@pytest.mark.parametrize("form", ExportFormat)
async def test_an_export_goes_on_where_it_was_interrupted(tmp_path: Path, form: ExportFormat) -> None:
    async with opened(SqlitePlace(tmp_path)) as archive:
        await archive.keep_messages([message(number, date_ms=NOW) for number in range(50)])
        wanted = MessageFilter(chat_id=CHAT)
        whole = [part async for part in export_messages(archive, wanted, form=form, page=7)]
        begun: list[ExportPart] = []
        async for part in export_messages(archive, wanted, form=form, page=7):
            begun.append(part)
            if len(begun) == 3:
                break
        rest = [part async for part in export_messages(archive, wanted, form=form, cursor=begun[-1].cursor, page=7)]
    assert [part.data for part in begun + rest] == [part.data for part in whole]
    assert sum(part.count for part in whole) == 50


async def test_a_csv_has_one_head_and_no_formula(tmp_path: Path) -> None:
    async with opened(SqlitePlace(tmp_path)) as archive:
        texts = ["=cmd()", "+1", 'plain, with "quotes"\nand lines', "@a"]
        await archive.keep_messages([message(number, text=text) for number, text in enumerate(texts)])
        parts = [part async for part in export_messages(archive, MessageFilter(), form=ExportFormat.CSV, page=2)]
    rows = list(csv.DictReader(io.StringIO(b"".join(part.data for part in parts).decode(), newline="")))
    assert [row["text"] for row in rows] == ["'@a", texts[2], "'+1", "'=cmd()"]
    assert rows[0]["chat_id"] == str(CHAT)
    assert rows[0]["sender_id"] == "77"


async def test_nothing_is_an_export_too(tmp_path: Path) -> None:
    async with opened(SqlitePlace(tmp_path)) as archive:
        parts = [part async for part in export_messages(archive, MessageFilter(), form=ExportFormat.JSONL)]
        assert parts == [ExportPart(data=b"", count=0, cursor=None)]
        parts = [part async for part in export_events(archive, EventFilter(), form=ExportFormat.CSV)]
        assert parts[0].data.startswith(b"event_id,session_id,")


async def test_events_are_exported(tmp_path: Path) -> None:
    async with opened(SqlitePlace(tmp_path)) as archive:
        await archive.keep_events(
            [event(f"e{number}", payload='{"n": 1}', created_at_ms=NOW + number) for number in range(3)]
        )
        await archive.keep_events([event("odd", payload="no JSON")])
        parts = [part async for part in export_events(archive, EventFilter(), form=ExportFormat.JSONL, page=3)]
    read = [json.loads(line) for part in parts for line in part.data.splitlines()]
    assert [one["event_id"] for one in read] == ["e2", "e1", "odd", "e0"]
    assert [one["payload"] for one in read] == [{"n": 1}, {"n": 1}, "no JSON", {"n": 1}]
