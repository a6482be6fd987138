"""The stream of arrivals: what a listener gets, where it goes on after a break, and when it ends."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from starlette.types import Message

from peik.errors import Conflict
from peik.inbox.answers import frames
from peik.inbox.readers import STREAM_PAGE, Stream
from peik.web.responses import ServerSentEvents
from tests.inbox.test_service import arrive, come, message
from tests.outbox.story import Stage
from tests.outbox.story import play as play_virtual
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, KEY, Server, Sim
from tests.web.test_arrivals import arrived, write
from tests.web.test_keys import made
from tests.web.test_rest import play

STREAM = "/v1/arrivals/stream"


class Listener:
    """One connection to the stream, read as a browser would."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.comments = 0

    async def event(self) -> dict[str, str]:
        """The next event; what is not said is not there. Empty at the end of the stream."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE_S):
            async for raw in self.response.content:
                line = raw.decode().rstrip("\n")
                if line.startswith(":"):
                    self.comments += 1
                elif line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif fields:
                    return fields
        return fields

    async def updates(self, count: int) -> list[int]:
        """The ids of so many updates, each of which must be under its own number."""
        ids = []
        while len(ids) < count:
            event = await self.event()
            if event.keys() == {"retry"}:
                continue
            assert event["event"] == "update", event
            update = json.loads(event["data"])
            assert str(update["update_id"]) == event["id"]
            ids.append(int(event["id"]))
        return ids


@asynccontextmanager
async def listening(server: Server, query: str = "", *, last: int | None = None) -> AsyncIterator[Listener]:
    headers = {"Authorization": f"Bearer {KEY}"} | ({} if last is None else {"Last-Event-ID": str(last)})
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}{STREAM}{query}", headers=headers) as response:
        assert response.status == 200, await response.text()
        yield Listener(response)


async def acknowledged(server: Server, name: str) -> int:
    listed = (await server.get("/v1/consumers"))["consumers"]
    return int(next(one["acknowledged_up_to"] for one in listed if one["name"] == name))


def test_a_listener_gets_everything_that_is_kept_and_then_what_comes(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 3)
        first = (await arrived(server, 3))[2]["number"]
        async with listening(server, "?consumer=shop") as listener:
            headers = listener.response.headers
            assert headers["Content-Type"].startswith("text/event-stream")
            assert (headers["Cache-Control"], headers["X-Accel-Buffering"]) == ("no-store", "no")
            assert await listener.event() == {"retry": "2000"}
            assert await listener.updates(3) == [first, first + 1, first + 2]
            await write(sim, 1, first=4)
            event = await listener.event()
            assert (event["id"], event["event"]) == (str(first + 3), "update")
            assert json.loads(event["data"])["message"]["text"] == "text 4"
        assert await acknowledged(server, "shop") < first  # to have been sent is not to have been handled

    play(tmp_path, story, inbound="polling")


def test_after_a_break_nothing_is_lost_and_nothing_is_acknowledged_that_was_not_handled(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 10)
        first = (await arrived(server, 10))[9]["number"]
        async with listening(server, "?consumer=shop") as listener:
            handled = (await listener.updates(4))[:3]  # the fourth came, and the program died over it
        await write(sim, 5, first=11)
        await arrived(server, 15)
        async with listening(server, "?consumer=shop", last=handled[-1]) as listener:
            assert await acknowledged(server, "shop") == handled[-1]
            handled += await listener.updates(12)
        assert handled == list(range(first, first + 15))
        async with listening(server, "?consumer=shop") as listener:  # it forgot where it was: the store did not
            assert await listener.updates(12) == handled[3:]
        ack = {"consumer": "shop", "number": first + 9}
        assert (await server.call("POST", "/v1/arrivals/ack", json=ack))[0] == 200
        async with listening(server, "?consumer=shop", last=first + 1) as listener:  # older than what it acknowledged
            assert await listener.updates(5) == handled[10:]
        async with listening(server, "?consumer=shop", last=first + 10**6) as listener:  # never given
            assert await listener.updates(5) == handled[10:]
        assert await acknowledged(server, "shop") == first + 9

    play(tmp_path, story, inbound="polling")


def test_a_listener_goes_on_where_it_was_after_peik_was_killed(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 5)
        first = (await arrived(server, 5))[4]["number"]
        async with listening(server, "?consumer=shop") as listener:
            handled = await listener.updates(2)
            await server.program.kill()
        await write(sim, 3, first=6)
        await server.start()
        async with listening(server, "?consumer=shop", last=handled[-1]) as listener:
            handled += await listener.updates(6)
        assert handled == list(range(first, first + 8))

    play(tmp_path, story, inbound="polling")


def test_the_newest_listener_of_a_consumer_is_the_one_that_counts(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 1)
        first = (await arrived(server, 1))[0]["number"]
        async with listening(server, "?consumer=shop") as older, listening(server, "?consumer=till") as other:
            assert await older.updates(1) == await other.updates(1) == [first]
            async with listening(server, "?consumer=shop") as newer:
                ended = await older.event()
                assert (ended["event"], json.loads(ended["data"])) == ("end", {"code": "other_stream"})
                assert int(ended["retry"]) > 2000  # so that the two do not take it from each other all day
                assert await older.event() == {}
                await write(sim, 1, first=2)
                assert await newer.updates(2) == [first, first + 1]
                assert await other.updates(1) == [first + 1]

    play(tmp_path, story, inbound="polling")


def test_without_a_consumer_one_sees_what_comes_from_now_on_and_leaves_no_trace(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        await write(sim, 2)
        first = (await arrived(server, 2))[1]["number"]
        async with (
            listening(server) as tail,
            listening(server, "?type=poll,callback_query") as picky,
            listening(server, "?type=poll&type=callback_query") as same,
        ):
            async with listening(server, last=first) as later:
                assert await later.updates(1) == [first + 1]
            assert await tail.event() == {"retry": "2000"}
            await write(sim, 1, first=3)
            poll = {"id": "9", "question": "?", "options": [], "total_voter_count": 0}
            await sim.post("update", bot=BOT, type="poll", payload=poll)
            assert await tail.updates(2) == [first + 2, first + 3]
            assert await picky.updates(1) == await same.updates(1) == [first + 3]
        assert [one["name"] for one in (await server.get("/v1/consumers"))["consumers"]] == ["default"]

    play(tmp_path, story, inbound="polling")


def test_what_is_wrong_is_said_before_the_stream_begins(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        reading = (await made(server, "read"))["key"]
        await server.call("PUT", f"/v1/consumers/{BOT}/pushed", json={"url": "http://127.0.0.1:9/"})
        for path, more, answer in (
            (STREAM, {"key": "wrong"}, "wrong_key"),
            (f"{STREAM}?consumer=shop", {"key": reading}, "wrong_scope"),
            (f"{STREAM}?bot_id=42", {}, "unknown_bot"),
            (f"{STREAM}?colour=red", {}, "unknown_filter"),
            (f"{STREAM}?consumer=a%20b", {}, "bad_consumer"),
            (f"{STREAM}?consumer=pushed", {}, "webhook_active"),
            (STREAM, {"headers": {"Last-Event-ID": "yesterday"}}, "bad_last_event_id"),
        ):
            assert (await server.call("GET", path, **more))[1]["code"] == answer, path

    play(tmp_path, story)


def test_open_streams_do_not_keep_peik_from_ending(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        async with listening(server, "?consumer=shop") as listener, listening(server) as tail:
            assert await listener.event() == await tail.event() == {"retry": "2000"}
            assert await server.program.terminate() == 0  # long before the grace is over
            assert await listener.event() == await tail.event() == {}

    play(tmp_path, story, grace="1h")


# ---- the answer itself, in virtual time ----


class Reader:
    """The other end of an answer. It takes nothing while it may not."""

    def __init__(self) -> None:
        self.body = b""
        self.is_ended = False
        self.offered = 0
        self.may_take = asyncio.Event()
        self.may_take.set()
        self.left = asyncio.Event()

    async def send(self, message: Message) -> None:
        self.offered += len(message.get("body", b""))
        await self.may_take.wait()
        self.body += message.get("body", b"")
        self.is_ended = message["type"] == "http.response.body" and not message["more_body"]

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    @asynccontextmanager
    async def reads(self, stream: Stream) -> AsyncIterator[Callable[[float], Awaitable[None]]]:
        answering = asyncio.create_task(ServerSentEvents(frames(stream))({"type": "http"}, self.receive, self.send))
        try:
            yield asyncio.sleep
        finally:
            self.left.set()
            await answering


def test_a_silent_stream_shows_every_fifteen_seconds_that_it_is_there() -> None:
    async def story(stage: Stage) -> None:
        reader = Reader()
        async with reader.reads(await stage.peik.inbox.service.stream(BOT, "shop")) as after:
            await after(14)
            assert reader.body == b"retry: 2000\n\n"
            await after(2)
            assert reader.body == b"retry: 2000\n\n: still here\n\n"
            await after(30)
            assert reader.body.count(b": still here\n\n") == 3

    play_virtual(story)


def test_a_slow_reader_makes_peik_hold_no_more_than_a_page() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 1000)
        reader = Reader()
        async with reader.reads(await stage.peik.inbox.service.stream(BOT, "shop")) as after:
            await after(0.001)
            whole = reader.offered
        assert whole > 1000 * 100
        reader = Reader()
        async with reader.reads(await stage.peik.inbox.service.stream(BOT, "shop")) as after:
            await after(0)
            reader.may_take.clear()
            await after(60)
            assert reader.offered - len(reader.body) <= whole * STREAM_PAGE / 1000 * 1.1
            reader.may_take.set()
            await after(0.001)
            assert reader.body.count(b"event: update\n") == 1000

    play_virtual(story)


def test_an_update_with_line_breaks_between_its_parts_is_still_one_event() -> None:
    async def story(stage: Stage) -> None:
        plain = message(1001, "one\ntwo")
        spread = type(plain)(
            **{name: getattr(plain, name) for name in plain.__struct_fields__ if name != "payload"},
            payload=plain.payload.replace('"text":', '\r\n\n"text" :\n'),
        )
        await arrive(stage, spread)
        reader = Reader()
        async with reader.reads(await stage.peik.inbox.service.stream(BOT, "shop")) as after:
            await after(0.001)
        (line,) = [line for line in reader.body.decode().split("\n") if line.startswith("data: ")]
        assert json.loads(line.removeprefix("data: "))["message"]["text"] == "one\ntwo"

    play_virtual(story)


def test_types_that_a_listener_does_not_want_are_over_when_nothing_stands_before_them() -> None:
    async def story(stage: Stage) -> None:
        inbox = stage.peik.inbox.service
        kinds = ("edited_message", "message", "edited_message")
        await arrive(stage, *(message(1001 + index, kind=kind) for index, kind in enumerate(kinds)))
        reader = Reader()
        async with reader.reads(await inbox.stream(BOT, "shop", types=["message"])) as after:
            await after(1)
        assert reader.body.count(b"event: update\n") == 1
        assert (await inbox.consumer(BOT, "shop")).progress.watermark == 1001
        await inbox.stream(BOT, "shop", after=1002)
        reader = Reader()
        async with reader.reads(await inbox.stream(BOT, "shop")) as after:
            await after(1)
        assert reader.body.count(b"event: update\n") == 0
        assert (await inbox.consumer(BOT, "shop")).progress.watermark == 1003

    play_virtual(story)


def test_a_poll_and_a_stream_of_one_consumer_exclude_each_other() -> None:
    async def story(stage: Stage) -> None:
        inbox = stage.peik.inbox.service
        polling = asyncio.create_task(inbox.updates(BOT, "shop", timeout_s=50))
        await asyncio.sleep(0.001)
        reader = Reader()
        async with reader.reads(await inbox.stream(BOT, "shop")) as after:
            await after(1)
            with pytest.raises(Conflict):
                await polling
            await inbox.updates(BOT, "shop", timeout_s=1)
            await after(1)
            assert reader.is_ended
            assert b'{"code":"other_poll"}' in reader.body

    play_virtual(story)
