"""The streams of messages and events: what a listener hears, where it goes on after a break, and when it ends."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from hypothesis import given
from hypothesis import strategies as st

from peik.accounts.events import SessionFed
from peik.accounts.feeds import FeedFilter
from peik.accounts.stream import ID_SESSIONS_MAX, id_of, places_of, session_stream
from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.store import Fed, FeedRecord, LineKind, RecordKind
from peik.errors import BadInput, StoreUnavailable
from peik.web.responses import Flow
from tests.accounts.house import House as Virtual
from tests.accounts.house import play as play_virtual
from tests.archive.samples import line
from tests.web.accounts import House, until
from tests.web.test_messages import play
from tests.web.test_sse import Listener, Reader

STREAM = "/v1/messages/stream"


class Heard(Listener):
    """Keeps the last id, as a browser does."""

    last = ""

    async def begun(self) -> "Heard":
        first = await self.event()
        assert first.keys() == {"retry", "id"}, first
        self.last = first["id"]
        return self

    async def line(self) -> tuple[str, Any]:
        """The next event: its name, and what it says."""
        event = await self.event()
        assert event, "the stream ended"
        self.last = event.get("id", self.last)
        return event["event"], json.loads(event["data"])

    async def numbers(self, count: int) -> list[str]:
        return [(await self.line())[1]["n"] for _ in range(count)]


@asynccontextmanager
async def listening(house: House, query: str = "", *, last: str = "", path: str = STREAM) -> AsyncIterator[Heard]:
    headers = house.headers() | ({"Last-Event-ID": last} if last else {})
    async with (
        aiohttp.ClientSession(read_bufsize=1 << 20) as http,
        http.get(f"{house.url}{path}{query}", headers=headers) as response,
    ):
        assert response.status == 200, await response.text()
        yield await Heard(response).begun()


async def feed(archive: SqliteArchive, first: int, last: int, session_id: str = "s1", **fields: Any) -> None:
    """Lines that say their numbers."""
    lines = [
        line(f"k{number}", session_id=session_id, body=f'{{"n":"{session_id} {number}"}}', **fields)
        for number in range(first, last + 1)
    ]
    assert await archive.feed(lines) == len(lines)


def said(first: int, last: int, session_id: str = "s1") -> list[str]:
    return [f"{session_id} {number}" for number in range(first, last + 1)]


def test_what_an_account_sees_is_told_in_order_as_it_comes(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        telegram = house.telegram
        ali = telegram.register("+998900000001", first_name="Ali")
        sara = telegram.register("+998900000002", first_name="Sara")
        team = telegram.channel("Team", sara, ali)
        session_id = await house.signed_in(ali, session_id="ali")
        events = listening(house, "?session_id=ali", path="/v1/events/stream")
        async with listening(house) as heard, events as others:
            headers = heard.response.headers
            assert headers["Content-Type"].startswith("text/event-stream")
            assert (headers["Cache-Control"], headers["X-Accel-Buffering"]) == ("no-store", "no")
            assert others.last.startswith("ali:")
            post = telegram.say(team, sara, "one\ntwo")
            telegram.edit(team, post, "three")
            telegram.delete(team, post)
            telegram.happen(team, "reaction", emoji="+1")
            names, views = zip(*[await heard.line() for _ in range(3)], strict=True)
            assert names == ("message", "edited", "deleted")
            assert [view.get("text") for view in views] == ["one\ntwo", "three", None]
            assert {view["message_id"] for view in views} == {str(post.message_id)}
            assert {view["session_id"] for view in views} == {session_id}
            name, event = await others.line()
            while event["event_type"] != "reaction":  # what became of the message is an event, too
                name, event = await others.line()
            assert (name, event["payload"]["emoji"]) == ("event", "+1")
        listed = (await house.get(f"/v1/messages?chat_id={team.chat_id}"))["messages"]
        assert views[0] == {**listed[0], **{key: views[0][key] for key in ("text", "edited_at", "deleted_at")}}

    play(tmp_path, story)


def test_after_a_break_one_session_goes_on_behind_the_last_line(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await feed(archive, 1, 3)
        async with listening(house, "?session_id=s1") as heard:
            assert heard.last == "s1:3"  # from now on
            await feed(archive, 4, 10)
            assert await heard.numbers(4) == said(4, 7)  # of a page of seven
            assert heard.last == "s1:7"
        await feed(archive, 11, 12)
        async with listening(house, "?session_id=s1", last="s1:7") as heard:
            assert await heard.numbers(5) == said(8, 12)
        async with listening(house, "?session_id=s1", last="s1:0") as heard:
            assert await heard.numbers(12) == said(1, 12)
        async with listening(house, "?session_id=s1", last=f"s1:{10**15}") as heard:  # never given
            await feed(archive, 13, 13)
            assert await heard.numbers(1) == said(13, 13)

    play(tmp_path, story)


def test_after_a_break_several_sessions_go_on_each_behind_its_own(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await feed(archive, 1, 2, "s1")
        await feed(archive, 1, 5, "s2")
        async with listening(house) as heard:
            begun = heard.last
        await feed(archive, 3, 6, "s1")  # nobody listens
        await feed(archive, 6, 9, "s2")
        await feed(archive, 1, 2, "s3")  # is new
        everything = said(3, 6, "s1") + said(6, 9, "s2") + said(1, 2, "s3")
        got: list[str] = []
        last = begun
        for count in (1, 4, 2, 3):  # a bad line: it breaks again and again, in the middle of pages
            async with listening(house, last=last) as heard:
                got += await heard.numbers(count)
                last = heard.last
        assert got == everything
        async with listening(house, "?session_id=s2", last=begun) as heard:
            assert await heard.numbers(4) == said(6, 9, "s2")

    play(tmp_path, story)


def test_a_listener_hears_what_it_asked_for_and_nothing_else(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        async with (
            listening(house, "?agent_id=boris") as boris,
            listening(house, "?chat_id=-5") as chat,
            listening(house, "?session_id=s2") as second,
            listening(house, path="/v1/events/stream") as events,
        ):
            await feed(archive, 1, 1, "s1")
            await feed(archive, 2, 2, "s1", kind=LineKind.EVENT)
            await feed(archive, 3, 3, "s1", chat_id=-5)
            await feed(archive, 1, 1, "s2", agent_id="boris")
            assert await boris.numbers(1) == await second.numbers(1) == said(1, 1, "s2")
            assert await chat.numbers(1) == said(3, 3)
            assert await events.numbers(1) == said(2, 2)

    play(tmp_path, story)


def test_a_reader_with_a_name_goes_on_where_it_was(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await feed(archive, 1, 3)
        async with listening(house, "?reader=shop") as heard:
            assert await heard.numbers(3) == said(1, 3)  # all that is kept, the first time
        assert await archive.places("shop") == {}  # that it was written does not mean that it came
        async with listening(house, "?reader=shop") as heard:
            assert await heard.numbers(3) == said(1, 3)
            await feed(archive, 4, 5)
            assert await heard.numbers(2) == said(4, 5)
            assert await archive.places("shop") == {"s1": 3}  # it was there for more
        async with listening(house, "?reader=shop") as heard:
            assert await heard.numbers(2) == said(4, 5)
        async with listening(house, "?reader=till") as other:
            assert await other.numbers(5) == said(1, 5)
        assert (await house.call("DELETE", "/v1/readers/shop"))[0] == 204
        assert await house.code("DELETE", "/v1/readers/shop") == (404, "unknown_reader")
        async with listening(house, "?reader=shop") as heard:
            assert await heard.numbers(5) == said(1, 5)

    play(tmp_path, story)


def test_one_name_for_both_streams_is_two_places(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await feed(archive, 1, 1, kind=LineKind.EVENT)
        await feed(archive, 2, 3)
        async with listening(house, "?reader=shop") as heard:
            assert await heard.numbers(2) == said(2, 3)
            await feed(archive, 4, 4)
            assert await heard.numbers(1) == said(4, 4)
            assert await archive.places("shop") == {"s1": 3}
        async with listening(house, "?reader=shop", path="/v1/events/stream") as events:
            assert await events.numbers(1) == said(1, 1)  # behind which the messages went on
            await feed(archive, 5, 5, kind=LineKind.EVENT)
            assert await events.numbers(1) == said(5, 5)
        assert (await house.call("DELETE", "/v1/readers/shop"))[0] == 204
        async with listening(house, "?reader=shop", path="/v1/events/stream") as events:
            assert await events.numbers(2) == ["s1 1", "s1 5"]

    play(tmp_path, story)


def test_a_reader_who_tells_its_last_id_hears_nothing_twice(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await feed(archive, 1, 5)
        async with listening(house, "?reader=shop") as heard:
            assert await heard.numbers(2) == said(1, 2)
            last = heard.last
        async with listening(house, "?reader=shop", last=last) as heard:
            assert await archive.places("shop") == {"s1": 2}
            assert await heard.numbers(3) == said(3, 5)
        async with listening(house, "?reader=shop", last=id_of({"s1": 10**9, "x\0": 7}, None).decode()) as heard:
            await feed(archive, 6, 6)
            assert await heard.numbers(1) == said(6, 6)
        async with listening(house, "?reader=shop", last=last) as heard:  # older than what was confirmed
            assert await heard.numbers(1) == said(6, 6)

    play(tmp_path, story)


class Fragile(SqliteArchive):
    is_away = False

    async def fed_to(self, session_ids: Sequence[str] | None = None) -> dict[str, Fed]:
        self._must_be_here()
        return await super().fed_to(session_ids)

    async def fed(self, session_id: str, *, after: int, limit: int) -> list[FeedRecord]:
        self._must_be_here()
        return await super().fed(session_id, after=after, limit=limit)

    def _must_be_here(self) -> None:
        if self.is_away:
            raise StoreUnavailable(code="store_gone", detail="The archive is away.")


def test_an_archive_that_fails_ends_the_stream_and_loses_nothing(tmp_path: Path) -> None:
    async def story(house: House, archive: Fragile) -> None:
        async with listening(house, "?session_id=s1") as heard, listening(house) as silent:
            await feed(archive, 1, 3)
            assert await heard.numbers(3) == said(1, 3)
            archive.is_away = True
            assert await heard.event() == {}
            while await silent.event():
                pass  # whatever it heard, it forgot
        await feed(archive, 4, 6)
        assert await house.code("GET", STREAM) == (503, "store_gone")
        archive.is_away = False
        async with listening(house, "?session_id=s1", last=heard.last) as heard:
            assert await heard.numbers(3) == said(4, 6)
        async with listening(house, last=silent.last) as silent:  # it had no line, and still its place
            assert await silent.numbers(6) == said(1, 6)

    play(tmp_path, story, Fragile)


def test_a_listener_that_takes_nothing_holds_up_nobody(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        async with listening(house, "?reader=slow"), listening(house) as quick:
            host, _, port = house.url.removeprefix("http://").rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port), limit=1)
            head = "\r\n".join(f"{name}: {value}" for name, value in house.headers().items())
            writer.write(f"GET {STREAM} HTTP/1.1\r\nHost: peik\r\n{head}\r\n\r\n".encode())
            for number in range(1, 21):
                body = json.dumps({"n": number, "text": "x" * 300_000})  # more than sockets hold
                await archive.feed([line(f"k{number}", body=body)])
                house.runtime.events.tell(SessionFed(session_id="s1", count=1))
                assert (await quick.line())[1]["n"] == number
            writer.close()

    play(tmp_path, story)


def test_streams_end_when_peik_does(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        async with listening(house) as one, listening(house, "?reader=shop", path="/v1/events/stream") as other:
            assert house.runtime.accounts is not None
            house.runtime.accounts.end_streams()
            assert await one.event() == await other.event() == {}

    play(tmp_path, story)


def test_who_leaves_is_forgotten(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        followers = house.runtime.accounts._feeds._followers  # type: ignore[union-attr]

        async def has_one() -> bool:
            return len(followers) == 1

        async def has_none() -> bool:
            return not followers

        async with listening(house):
            await until(has_one)
        await until(has_none)

    play(tmp_path, story)


def test_what_is_wrong_is_said_before_the_stream_begins(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        for query, last, answer in (
            ("?colour=red", "", "unknown_filter"), ("?limit=5", "", "unknown_filter"), ("?chat_id=x", "", "bad_chat_id"),
            ("?reader=", "", "bad_filter"), (f"?reader={'r' * 58}", "", "bad_reader"), ("?reader=a/b", "", "bad_reader"),
            ("?reader=a%0Ab", "", "bad_reader"),
            ("", "yesterday", "bad_last_event_id"), ("", "s1:5", "bad_last_event_id"),
            ("?session_id=s1", "s2:5", "bad_last_event_id"), ("?session_id=s1", "s1:-5", "bad_last_event_id"),
            ("?session_id=s1", f"s1:{'9' * 19}", "bad_last_event_id"), ("?reader=shop", "x", "bad_last_event_id"),
            ("", id_of({"s1": -1}, None).decode(), "bad_last_event_id"), ("", "W10", "bad_last_event_id"),
        ):  # fmt: skip
            headers = {"Last-Event-ID": last} if last else {}
            assert await house.code("GET", f"{STREAM}{query}", headers=headers) == (422, answer), (query, last)

    play(tmp_path, story)


# ---- ids ----


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.integers(0, 10**18 - 1)))
def test_an_id_says_where_everything_is_and_is_one_word(places: dict[str, int]) -> None:
    whole = id_of(places, None)
    assert whole.replace(b"-", b"").replace(b"_", b"").isalnum()
    assert places_of(whole.decode(), None) == places
    for session_id, number in places.items():
        single = id_of(places, session_id)
        assert not {*b"\r\n\0 "} & {*single}
        assert places_of(single.decode(), session_id) == {session_id: number}


@given(st.text())
def test_an_id_that_nobody_gave_is_refused_or_read(text: str) -> None:
    with contextlib.suppress(BadInput):
        assert all(number >= 0 for number in places_of(text, None).values())


# ---- the answer itself, in virtual time ----


@asynccontextmanager
async def reading(
    house: Virtual, wanted: FeedFilter, reader: str | None = None, last: str | None = None
) -> AsyncIterator[Reader]:
    other_end = Reader()
    frames = await session_stream(house.service, wanted, last_id=last, reader=reader)
    stream = Flow(frames, media_type="text/event-stream", headers={})
    answering = asyncio.create_task(stream({"type": "http"}, other_end.receive, other_end.send))
    try:
        yield other_end
    finally:
        other_end.left.set()
        await answering


def test_a_silent_stream_shows_that_it_is_there_and_how_far_it_looked() -> None:
    async def story(house: Virtual) -> None:
        async with reading(house, FeedFilter(session_id="s1", chat_id=7)) as other_end:
            await asyncio.sleep(14)
            assert other_end.body == b"retry: 2000\nid: s1:0\n\n"
            await asyncio.sleep(2)
            assert other_end.body == b"retry: 2000\nid: s1:0\n\n: still here\n\n"
            await feed(house.archive, 1, 5, chat_id=8)
            await asyncio.sleep(30)
            assert other_end.body.endswith(b": still here\nid: s1:5\n\n: still here\n\n")

    play_virtual(story)


def test_a_place_is_kept_when_the_reader_is_still_there_after_a_while() -> None:
    async def story(house: Virtual) -> None:
        archive = house.archive
        async with reading(house, FeedFilter(), "shop"):
            await feed(archive, 1, 5)
            await asyncio.sleep(5)
            assert await archive.places("shop") == {}
            await asyncio.sleep(15)
            assert await archive.places("shop") == {"s1": 5}
            at_ms = house.clock.wall_ms()
            await asyncio.sleep(3600 * 3)  # and nothing happens
        found, _ = await archive.page(RecordKind.PLACES, after=None, limit=10)
        (mine,) = [one for one in found if getattr(one, "reader", "") == "shop"]
        assert mine.at_ms > at_ms + 3600 * 1000  # type: ignore[union-attr]

    play_virtual(story)


def test_a_crowd_of_sessions_does_not_repeat_its_long_id_with_every_line() -> None:
    async def story(house: Virtual) -> None:
        crowd = [f"s{number:02}" for number in range(ID_SESSIONS_MAX + 8)]
        for session_id in crowd:
            await feed(house.archive, 1, 3, session_id)
        async with reading(house, FeedFilter(), last=id_of({}, None).decode()) as other_end:
            await asyncio.sleep(5)
        frames = [one for one in other_end.body.decode().split("\n\n") if "data: " in one]
        assert len(frames) == len(crowd) * 3
        ids = [one.partition("id: ")[2].partition("\n")[0] for one in frames if "id: " in one]
        assert len(ids) == ID_SESSIONS_MAX * 3 + 1  # while it is short, and at the end of the page
        assert "id: " in frames[-1]
        assert places_of(ids[-1], None) == dict.fromkeys(crowd, 3)
        async with reading(house, FeedFilter(), last=ids[-2]) as other_end:
            await asyncio.sleep(5)
            assert other_end.body.count(b"data: ") == 8 * 3

    play_virtual(story)


def test_a_slow_reader_makes_peik_hold_no_more_than_a_page() -> None:
    async def story(house: Virtual) -> None:
        await feed(house.archive, 1, 2000)
        async with reading(house, FeedFilter(), "shop") as other_end:
            await asyncio.sleep(0.0015)
            other_end.may_take.clear()
            await asyncio.sleep(60)
            assert 0 < other_end.offered - len(other_end.body) < 200 * 100  # of ten times as much
            other_end.may_take.set()
            await asyncio.sleep(5)
            assert other_end.body.count(b"data: ") == 2000

    play_virtual(story)
