"""The server speaks HTTP as the libraries do: every form of parameters, keep-alive, pipelines, limits."""

import asyncio
import json
import struct

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from peik.testing import Options, SimServer, Telegram
from tests import wanting
from tests.patience import PATIENCE_S
from tests.sim.conftest import TOKEN
from tests.sim.wires import BASE, Wire, post_bytes, send_bytes, story

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 30, 20) + bytes(20)


def test_parameters_come_as_query_form_json_or_multipart():
    async def play() -> None:
        async with SimServer() as sim, aiohttp.ClientSession() as client:
            url = f"{sim.url}{BASE}/sendMessage"
            form = aiohttp.FormData({"chat_id": "7", "text": "multipart ü"})
            form.add_field("photo", b"unused", filename="x.jpg")
            for request in (
                client.get(url, params={"chat_id": "7", "text": "query &ü"}),
                client.post(url, data={"chat_id": "7", "text": "form =ü"}),
                client.post(url, json={"chat_id": 7, "text": "json ü"}),
                client.post(url, data=form),
                client.post(url, params={"chat_id": "7"}, json={"text": "both"}),
            ):
                async with request as response:
                    assert response.status == 200, await response.text()
                    assert response.content_type == "application/json"
            assert sim.telegram.sent.texts(7) == ["query &ü", "form =ü", "json ü", "multipart ü", "both"]

    story(play())


def test_an_album_by_multipart_with_json_inside_a_field_and_a_download():
    async def play() -> None:
        async with SimServer() as sim, aiohttp.ClientSession() as client:
            form = aiohttp.FormData({"chat_id": "7"})
            media = [{"type": "photo", "media": f"attach://file{n}", "caption": str(n)} for n in range(2)]
            form.add_field("media", json.dumps(media))
            for n in range(2):
                form.add_field(f"file{n}", bytes([n]) * 100_000, filename=f"{n}.jpg", content_type="image/jpeg")
            async with client.post(f"{sim.url}{BASE}/sendMediaGroup", data=form) as response:
                album = (await response.json())["result"]
            file_id = album[1]["photo"][0]["file_id"]
            async with client.get(f"{sim.url}{BASE}/getFile", params={"file_id": file_id}) as response:
                path = (await response.json())["result"]["file_path"]
            async with client.get(f"{sim.url}/file{BASE}/{path}") as response:
                assert response.content_type == "image/jpeg"
                assert await response.read() == b"\x01" * 100_000

    story(play())


def test_a_file_on_this_machine_is_fetched_by_its_address_and_no_other_is():
    async def give(request: web.Request) -> web.Response:
        kept = {"tea.png": PNG, "big.bin": bytes(6 << 20)}
        if request.path == "/away":
            raise web.HTTPFound("/tea.png")
        return web.Response(body=kept.get(request.path[1:]), status=200 if request.path[1:] in kept else 404)

    async def play() -> None:
        app = web.Application()
        app.router.add_get("/{tail:.*}", give)
        server = TestServer(app)
        async with server, SimServer() as sim, aiohttp.ClientSession() as client:

            async def send(method: str, **params: str) -> dict:
                async with client.post(f"{sim.url}{BASE}/{method}", data={"chat_id": "7", **params}) as answer:
                    return await answer.json()

            sent = await send("sendPhoto", photo=str(server.make_url("/tea.png")))
            assert sent["result"]["photo"][-1]["file_size"] == len(PNG)
            media = json.dumps([{"type": "photo", "media": str(server.make_url("/tea.png"))}] * 2)
            album = await send("sendMediaGroup", media=media)
            assert [one["photo"][-1]["width"] for one in album["result"]] == [30, 30]
            for path in ("/none.png", "/away", "/big.bin"):
                refused = await send("sendPhoto", photo=str(server.make_url(path)))
                assert refused["description"] == "Bad Request: failed to get HTTP URL content"
            far = await send("sendPhoto", photo="https://tea.example/tea.png")
            assert far["result"]["photo"][-1]["file_size"] == len("https://tea.example/tea.png")

    story(play())


def test_paths_that_are_not_telegrams_are_not_found():
    async def play() -> None:
        async with SimServer() as sim, aiohttp.ClientSession() as client:
            for path, status in {
                f"{BASE}/getMe": 200,
                f"{BASE}/GETME": 200,
                f"{BASE}/test/getMe": 200,
                f"/bot{TOKEN.replace(':', '%3A')}/getMe": 200,
                f"{BASE}/noSuchMethod": 404,
                f"{BASE}": 404,
                f"{BASE}/": 404,
                f"{BASE}/a/b": 404,
                "/botnonsense/getMe": 404,
                "/": 404,
                "/getMe": 404,
                f"/file{BASE}/photos/none.jpg": 404,
            }.items():
                async with client.get(sim.url + path) as response:
                    assert (path, response.status) == (path, status)
                    assert (await response.json())["ok"] is (status == 200)
            async with client.put(f"{sim.url}{BASE}/getMe") as response:
                assert response.status == 405

    story(play())


def test_one_connection_serves_many_requests_and_a_pipeline_in_order():
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            sim.telegram.options.limits.on = False
            assert (await wire.ask(send_bytes("first")))[0] == 200
            poll = post_bytes(f"{BASE}/getUpdates", "application/x-www-form-urlencoded", b"timeout=20")
            await wire.say(poll + send_bytes("second") + send_bytes("third"))
            await wire.say(b"".join(send_bytes(str(n)) for n in range(200)))
            await sim.until(lambda: sim.telegram.bot(TOKEN).poller.parked is not None, timeout=PATIENCE_S)
            assert sim.telegram.sent.texts() == ["first"]  # the parked poll is first in the line
            sim.telegram.write(TOKEN, 7, "wake up")
            results = [await wire.answer() for _ in range(203)]
            assert results[0][1]["result"][0]["message"]["text"] == "wake up"
            assert [result["result"]["text"] for _, result in results[1:4]] == ["second", "third", "0"]

    story(play())


def test_a_body_in_chunks_and_one_byte_at_a_time():
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            body = b'{"chat_id":7,"text":"slow"}'
            head = f"POST {BASE}/sendMessage HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            chunked = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n"
            chunked += b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:5], body[5:])) + b"0\r\n\r\n"
            assert (await wire.ask(chunked))[0] == 200
            for byte in send_bytes("bytewise"):
                await wire.say(bytes([byte]))
            assert (await wire.answer())[1]["result"]["text"] == "bytewise"

    story(play())


def test_expect_100_continue_is_answered_before_the_body_comes():
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            head, _, body = send_bytes("patient").partition(b"\r\n\r\n")
            assert await wire.ask(head + b"\r\nExpect: 100-continue\r\n\r\n") == (100, None)
            assert (await wire.ask(body))[0] == 200

    story(play())


def test_connection_close_is_honoured():
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            await wire.say(b"GET %b/getMe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % BASE.encode())
            assert (await wire.answer())[0] == 200
            assert await wire.rest() == b""

    story(play())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"this is not HTTP\r\n\r\n", 400),
        (post_bytes(f"{BASE}/sendMessage", "application/json", b"{broken"), 400),
        (post_bytes(f"{BASE}/sendMessage", "application/json", b"[1]"), 400),
        (post_bytes(f"{BASE}/sendMessage", "multipart/form-data", b"no boundary"), 400),
        (post_bytes(f"{BASE}/sendMessage", "application/json", b'{"text":"%b"}' % (b"x" * (1 << 20))), 413),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * (257 << 10) + b"\r\n\r\n", 431),
    ],
    ids=["not http", "broken json", "json array", "no boundary", "parameters too large", "headers too large"],
)
def test_what_cannot_be_read_gets_a_bare_status_and_the_end(data: bytes, status: int):
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            await wire.say(data)
            assert await wire.answer() == (status, b"")
            assert await wire.rest() in {b"", "reset"}
            assert sim.telegram.sent.total == 0

    story(play())


def test_a_body_over_the_limit_is_refused_before_it_is_whole():
    async def play() -> None:
        async with SimServer(options=Options(mode="cloud")) as sim, await Wire.open(sim) as wire:
            head = f"POST {BASE}/sendDocument HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"
            await wire.say(head.encode())
            with pytest.raises(ConnectionError):
                await wire.say(bytes(99_999_998))

    story(play())


def test_a_long_poll_waits_for_an_update_and_survives_its_client():
    async def play() -> None:
        async with SimServer() as sim, aiohttp.ClientSession() as client:
            parked = lambda: sim.telegram.bot(TOKEN).poller.parked is not None  # noqa: E731
            first = asyncio.create_task(client.post(f"{sim.url}{BASE}/getUpdates", json={"timeout": 30, "offset": 1}))
            await sim.until(parked, timeout=PATIENCE_S)
            first.cancel()
            await asyncio.wait([first])
            assert parked()  # a dropped connection leaves it parked
            second = asyncio.create_task(client.post(f"{sim.url}{BASE}/getUpdates", json={"timeout": 30}))
            await sim.until(lambda: sim.telegram.counters.requests["getUpdates"] == 2, timeout=PATIENCE_S)
            sim.telegram.write(TOKEN, 7, "hello")
            async with await second as response:
                assert (await response.json())["result"][0]["message"]["text"] == "hello"

    story(play())


def test_the_older_of_two_polls_gets_the_409_over_the_wire():
    async def play() -> None:
        async with SimServer() as sim, aiohttp.ClientSession() as client:
            url = f"{sim.url}{BASE}/getUpdates"
            older = asyncio.create_task(client.post(url, json={"timeout": 30}))
            await sim.until(lambda: sim.telegram.bot(TOKEN).poller.parked is not None, timeout=PATIENCE_S)
            newer = asyncio.create_task(client.post(url, json={"timeout": 30}))
            async with await older as response:
                assert response.status == 409
            sim.telegram.write(TOKEN, 7, "for the newer")
            async with await newer as response:
                assert response.status == 200

    story(play())


def test_two_servers_cannot_share_a_port():
    async def play() -> None:
        async with SimServer() as sim:
            with pytest.raises(OSError, match="in use"):
                await SimServer(port=sim.port).start()

    story(play())


def test_it_can_be_stopped_and_started_again_on_its_port():
    async def play() -> None:
        sim = SimServer()
        await sim.start()
        port = sim.port
        async with await Wire.open(sim) as wire:
            assert (await wire.ask(send_bytes("before")))[0] == 200
            await sim.stop()
            assert await wire.rest() == "reset"
        await sim.start()
        assert sim.port == port
        async with await Wire.open(sim) as wire:
            assert (await wire.ask(send_bytes("after")))[0] == 200
        await sim.stop()
        assert sim.telegram.sent.texts() == ["before", "after"]

    story(play())


def test_it_runs_on_uvloop_too():
    uvloop = wanting.imported("uvloop", "pip install uvloop")

    async def play() -> None:
        async with SimServer() as sim:
            async with await Wire.open(sim) as wire:
                assert (await wire.ask(send_bytes("fast")))[0] == 200
                sim.telegram.faults.add("lose_after", count=1)
                await wire.say(send_bytes("lost"))
                assert await wire.rest() == "reset"
            sim.telegram.dark(on=True)
            with pytest.raises(ConnectionRefusedError):
                await Wire.open(sim)
            sim.telegram.dark(on=False)
            async with await Wire.open(sim) as wire:
                assert (await wire.ask(send_bytes("back")))[0] == 200
            assert sim.telegram.sent.texts() == ["fast", "lost", "back"]

    uvloop.run(play())


def test_a_given_telegram_is_the_one_that_is_served():
    async def play() -> None:
        telegram = Telegram(now=lambda: 5.0)
        async with SimServer(telegram) as sim, await Wire.open(sim) as wire:
            await wire.ask(send_bytes("x"))
            assert telegram.sent[0].at == 5.0

    story(play())
