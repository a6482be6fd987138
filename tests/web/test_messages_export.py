"""The export of messages: whole or visibly cut, of any size, at the pace of who reads it."""

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.requests import Request
from starlette.responses import Response

from peik.archive.api import EXPORT_PAGE, EXPORT_STALL_S, MessageApi
from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.store import Message, MessageFilter
from peik.errors import StoreUnavailable
from peik.testing.virtual import VirtualClock, run_virtual
from peik.web.access import Access
from peik.web.routes import routes_of
from tests.archive.samples import message
from tests.web.accounts import KEY, House
from tests.web.test_messages import play
from tests.web.test_sse import Reader

EXPORT = "/v1/messages/export"


def test_an_export_has_every_message_once_in_lines_of_json(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await archive.keep_messages([message(number, raw=f'{{"id":{number}}}') for number in range(1, 2501)])
        status, body, headers = await house.raw("GET", EXPORT)
        assert (status, headers["content-type"]) == (200, "application/jsonl")
        assert headers["content-disposition"] == 'attachment; filename="messages.jsonl"'
        assert headers["transfer-encoding"] == "chunked"
        lines = [json.loads(line) for line in body.splitlines()]
        assert [int(one["message_id"]) for one in lines] == list(range(2500, 0, -1))
        assert lines[0]["raw"] == {"id": 2500}
        assert lines[0]["date"] == "2027-01-15T08:41:40.000Z"

    play(tmp_path, story)


def test_a_table_has_one_head_and_the_rows_of_its_filter(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await archive.keep_messages([message(number) for number in range(1, 1101)])
        await archive.keep_messages([message(2001, chat_id=6, text='=1+1, "چای"\nدو')])
        status, body, headers = await house.raw("GET", f"{EXPORT}?format=csv")
        assert (status, headers["content-type"]) == (200, "text/csv; charset=utf-8")
        assert headers["content-disposition"] == 'attachment; filename="messages.csv"'
        rows = list(csv.DictReader(io.StringIO(body.decode(), newline="")))
        assert [row["message_id"] for row in rows] == ["2001", *(str(number) for number in range(1100, 0, -1))]
        assert rows[0]["text"] == '\'=1+1, "چای"\nدو'
        _, body, _ = await house.raw("GET", f"{EXPORT}?format=csv&chat_id=6")
        assert len(list(csv.DictReader(io.StringIO(body.decode(), newline="")))) == 1
        _, body, _ = await house.raw("GET", f"{EXPORT}?format=csv&chat_id=7")
        assert body.count(b"\n") == 1
        assert (await house.raw("GET", f"{EXPORT}?chat_id=7"))[:2] == (200, b"")

    play(tmp_path, story)


def test_an_export_begins_where_a_page_ended(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await archive.keep_messages([message(number) for number in range(1, 31)])
        page = await house.get("/v1/messages?limit=10")
        _, body, _ = await house.raw("GET", f"{EXPORT}?cursor={page['next']}")
        assert [int(json.loads(line)["message_id"]) for line in body.splitlines()] == list(range(20, 0, -1))
        for query, answer in (("format=xml", "bad_format"), ("limit=0", "bad_limit"), ("cursor=x", "bad_cursor")):
            assert await house.code("GET", f"{EXPORT}?{query}") == (422, answer)

    play(tmp_path, story)


def test_an_export_page_by_page(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await archive.keep_messages([message(number) for number in range(1, 31)])
        _, first, headers = await house.raw("GET", f"{EXPORT}?format=csv&limit=20")
        cursor = headers["peik-next-cursor"]
        _, second, headers = await house.raw("GET", f"{EXPORT}?format=csv&limit=20&cursor={cursor}")
        assert "peik-next-cursor" not in headers
        assert first + second == (await house.raw("GET", f"{EXPORT}?format=csv"))[1]

    play(tmp_path, story)


class Fragile(SqliteArchive):
    """It gives so many pages, and then it is away."""

    pages = 1000

    async def messages(
        self, wanted: MessageFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Message], str | None]:
        self.pages -= 1
        if self.pages < 0:
            raise StoreUnavailable(code="store_gone", detail="The archive is away.")
        return await super().messages(wanted, cursor=cursor, limit=limit)


def test_a_part_is_never_taken_for_the_whole(tmp_path: Path) -> None:
    async def story(house: House, archive: Fragile) -> None:
        await archive.keep_messages([message(number) for number in range(1, 2501)])
        archive.pages = 2
        async with house.http.get(f"{house.url}{EXPORT}", headers=house.headers()) as response:
            assert response.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
        archive.pages = 0
        assert await house.code("GET", EXPORT) == (503, "store_gone")
        archive.pages = -(-2500 // EXPORT_PAGE)
        assert (await house.raw("GET", EXPORT))[1].count(b"\n") == 2500

    play(tmp_path, story, Fragile)


# ---- the answer itself, in virtual time ----


class Endless:
    """An archive with messages without end, and the service that has it."""

    asked = 0

    @property
    def archive(self) -> "Endless":
        return self

    async def messages(self, wanted: MessageFilter, *, cursor: str | None, limit: int) -> tuple[list[Message], str]:
        await asyncio.sleep(0.01)
        self.asked += 1
        return [message(number, text="x" * 1000) for number in range(limit)], "1.1"


async def export_of(service: Any) -> Response:
    access = Access(KEY, find=lambda digest: None, wall_ms=lambda: 0)
    scope = {"type": "http", "query_string": b"", "headers": [(b"x-api-key", KEY.encode())]}
    (endpoint,) = (endpoint for _, path, endpoint, *_ in routes_of(MessageApi(service), access) if path == EXPORT)
    return await endpoint(Request(scope))


def test_nothing_is_read_ahead_of_a_slow_reader_and_nothing_for_one_who_left() -> None:
    async def story(clock: VirtualClock) -> None:
        service, reader = Endless(), Reader()
        answering = asyncio.create_task((await export_of(service))({"type": "http"}, reader.receive, reader.send))
        await asyncio.sleep(0.095)
        assert service.asked == 10
        reader.may_take.clear()
        await asyncio.sleep(EXPORT_STALL_S - 1)
        assert service.asked <= 11
        assert reader.offered - len(reader.body) <= 64 * 1024
        reader.may_take.set()
        await asyncio.sleep(0.1)
        assert service.asked > 11
        reader.left.set()
        await answering
        before = service.asked
        await asyncio.sleep(10)
        assert (service.asked, reader.is_ended) == (before, False)

    run_virtual(story)


def test_a_reader_who_takes_nothing_for_a_minute_has_gone() -> None:
    async def story(clock: VirtualClock) -> None:
        service, reader = Endless(), Reader()
        answering = asyncio.create_task((await export_of(service))({"type": "http"}, reader.receive, reader.send))
        await asyncio.sleep(0.05)
        reader.may_take.clear()
        await asyncio.sleep(EXPORT_STALL_S + 1)
        assert answering.done()
        assert not reader.is_ended  # the connection is broken off

    run_virtual(story)
