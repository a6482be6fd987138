"""Uploads: what arrives, what is never held in memory, and how they end early."""

import asyncio
import os
import select
import socket
import ssl
from pathlib import Path

import pytest
from aiohttp import BodyPartReader, web

from peik.core.outcome import NetworkFault, Reply
from peik.telegram.client import BotApiCarrier
from peik.telegram.port import Enclosure
from peik.telegram.upload import STALL_S_MAX, Spoiled, UploadForm
from tests.telegram.conftest import Run
from tests.telegram.peers import OK, answering, call, carrier_to, peer, read_request, until


def enclosed(path: Path, *, field: str = "document", filename: str = "", content: bytes | int = b"text") -> Enclosure:
    """A file in the spool; a number makes a hole of that size, which costs no disk."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.touch()
        os.truncate(path, content)
    return Enclosure(
        field=field,
        path=path,
        filename=filename or path.name,
        content_type="text/plain",
        size_bytes=path.stat().st_size,
    )


async def received(request: web.Request) -> web.Response:
    """What a well-behaved server understands of an upload, as JSON."""
    parts = []
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        content = await part.read(decode=False)
        kind = part.headers.get("Content-Type", "")
        parts.append([part.name, part.filename, kind, len(content), content[:40].decode()])
    return web.json_response(parts)


def test_fields_and_files_arrive_as_they_were_meant(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/bot{token}/sendMediaGroup", received)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        names = ['نامه "مهم".pdf', "两\r\n行.jpg", "100%22.txt"]
        files = (
            enclosed(tmp_path / "a", field="cat", filename=names[0], content="گربه".encode()),
            enclosed(tmp_path / "b", field="attached", filename=names[1], content=b""),
            enclosed(tmp_path / "c", field="large", filename=names[2], content=3_000_001),
        )
        params = '{"chat_id":-100123,"cat":"?","caption":"سلام \\"x\\"","media":[{"media": "attach://attached"}]}'
        async with carrier_to(f"http://127.0.0.1:{runner.addresses[0][1]}") as carrier:
            request = call(params.encode(), method="sendMediaGroup", enclosures=files)
            replies = [await carrier.carry(request) for _ in range(2)]
            assert len(carrier._connections) == 1, "the connection is kept after an upload"
        await runner.cleanup()

        expected = web.json_response(
            [
                ["chat_id", None, "", 7, "-100123"],
                ["caption", None, "", 12, 'سلام "x"'],
                ["media", None, "", 32, '[{"media": "attach://attached"}]'],
                ["cat", names[0].replace('"', "%22"), "text/plain", 8, "گربه"],
                ["attached", names[1].replace("\r\n", "%0D%0A"), "text/plain", 0, ""],
                ["large", names[2], "text/plain", 3_000_001, "\0" * 40],
            ]
        )
        assert [reply.status for reply in replies] == [200, 200]
        assert replies[0].body.decode() == expected.text

    run(story())


def test_a_large_file_goes_over_tls_whole(
    run: Run, tmp_path: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def story() -> None:
        bodies: list[bytes] = []

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                bodies.append((await read_request(reader))[1])
                writer.write(OK)

        content = bytes(range(256)) * 40_000
        file = enclosed(tmp_path / "large", content=content)
        async with peer(talk, tls=server_tls) as root, carrier_to(root, ssl_context=client_tls) as carrier:
            for _ in range(2):
                assert (await carrier.carry(call(enclosures=(file,)))).status == 200
            assert len(carrier._connections) == 1
        assert [content in body for body in bodies] == [True, True]

    run(story())


def test_the_length_is_exact_and_a_bad_content_type_cannot_smuggle_a_header_in(tmp_path: Path) -> None:
    file = enclosed(tmp_path / "a", content=b"12345")
    evil = Enclosure(field="x\r\ny", path=file.path, filename="f", content_type="text/plain\r\nX-Evil: 1", size_bytes=5)
    form = UploadForm(b'{"a":"b"}', [file, evil])

    async def whole() -> bytes:
        with form.open_files() as opened:
            rest = [chunk async for chunk in form.rest(asyncio.get_running_loop(), opened)]
        return form.opening + b"".join(rest)

    body = asyncio.run(whole())
    assert len(body) == form.size_bytes
    assert b"X-Evil" not in body
    assert b'name="x%0D%0Ay"' in body
    assert body.count(form.boundary) == 4


@pytest.mark.parametrize("params", [b"", b"[]", b"{", b'{"a":"\xff"}'], ids=["none", "array", "cut", "no utf-8"])
def test_parameters_that_are_no_object_are_not_tried(run: Run, tmp_path: Path, params: bytes) -> None:
    async def story() -> None:
        with pytest.raises(Spoiled):
            UploadForm(params, [])
        async with peer(answering(OK)) as root, carrier_to(root) as carrier:
            reply = await carrier.carry(call(params, enclosures=(enclosed(tmp_path / "a"),)))
        assert (reply.fault, reply.left) == (NetworkFault.SPOILED, False)

    run(story())


def test_a_file_that_is_gone_or_changed_is_named_and_nothing_left(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        whole, gone, cut = (enclosed(tmp_path / name) for name in ("whole.txt", "gone.txt", "cut.txt"))
        gone.path.unlink()
        cut.path.write_bytes(b"t")
        async with peer(answering(OK)) as root, carrier_to(root) as carrier:
            for bad in (gone, cut):
                reply = await carrier.carry(call(enclosures=(whole, bad)))
                assert (reply.fault, reply.left) == (NetworkFault.SPOILED, False)
                assert bad.filename in reply.detail
            assert not carrier._connections

    run(story())


async def holding_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes the head, and nothing else until it is let go."""
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


async def stuck(carrier: BotApiCarrier) -> None:
    """Until the one upload waits for the peer to take more."""
    await until(lambda: any(connection._drained for connection in carrier._connections))


def test_a_large_file_is_never_held_in_memory(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        large = enclosed(tmp_path / "large", content=500_000_000)
        async with peer(holding_back) as root, carrier_to(root) as carrier:
            upload = asyncio.create_task(carrier.carry(call(enclosures=(large,))))
            await stuck(carrier)
            (connection,) = carrier._connections
            assert connection._transport.get_write_buffer_size() < 1_000_000
            await carrier.close()
            assert await upload == Reply(fault=NetworkFault.RESET, left=True, detail="closing")

    run(story())


def test_an_early_answer_is_taken_even_if_the_peer_then_resets(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\n\r\n")
            # Closing with bytes unread makes the kernel send RST, which our writes may meet before we read.

        large = enclosed(tmp_path / "large", content=100_000_000)
        async with peer(refuse) as root, carrier_to(root) as carrier:
            for _ in range(20):
                assert await carrier.carry(call(enclosures=(large,))) == Reply(status=413)
            assert carrier._idle == []

    run(story())


def test_an_answer_that_lies_behind_a_failed_write_is_read(run: Run) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.settimeout(0)
            answer: asyncio.Future[Reply] = loop.create_future()
            async with carrier_to(f"http://127.0.0.1:{listening.getsockname()[1]}") as carrier:
                carrier.start(call(), answer.set_result)
                accepted, _ = await loop.sock_accept(listening)
                await until(lambda: bool(select.select([accepted], [], [], 0)[0]))
                # From here to the write the loop does not run: answer and RST are there, and the write meets the RST.
                accepted.send(b"HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\n\r\n")
                accepted.close()
                (connection,) = carrier._connections
                assert connection._poll(5_000)
                connection.write(b"the rest of the body")
                assert await answer == Reply(status=413)

    run(story())


def test_an_early_answer_on_an_open_connection_ends_the_upload(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}")
            await holding_back_from_here(writer)

        async def holding_back_from_here(writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.Event().wait()

        large = enclosed(tmp_path / "large", content=100_000_000)
        async with peer(refuse) as root, carrier_to(root) as carrier:
            assert await carrier.carry(call(enclosures=(large,))) == Reply(status=429, body=b"{}")
            await until(lambda: not carrier._uploads)

    run(story())


def test_a_file_cut_while_it_is_sent_breaks_the_request_off(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        go_on = asyncio.Event()
        bodies: list[int] = []

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await go_on.wait()
            bodies.append(len(await reader.read()))

        large = enclosed(tmp_path / "large", content=100_000_000)
        async with peer(slow) as root, carrier_to(root) as carrier:
            upload = asyncio.create_task(carrier.carry(call(enclosures=(large,))))
            await stuck(carrier)
            os.truncate(large.path, 10)
            go_on.set()
            reply = await upload
        assert (reply.fault, reply.left) == (NetworkFault.RESET, True)
        assert "became shorter" in reply.detail

    run(story())


def test_an_upload_times_out_by_standing_still_and_not_by_being_slow(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        go_on = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await go_on.wait()
            await reader.readexactly(20_000_000)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            go_on.clear()
            await asyncio.Event().wait()

        large = enclosed(tmp_path / "large", content=100_000_000)
        async with peer(slow) as root, carrier_to(root) as carrier:
            upload = asyncio.create_task(carrier.carry(call(timeout_s=1, enclosures=(large,))))
            await stuck(carrier)
            now = asyncio.get_running_loop().time()
            carrier._end_overdue(now)
            go_on.set()
            await until(lambda: not go_on.is_set())
            await stuck(carrier)
            carrier._end_overdue(now + STALL_S_MAX + 1)
            (connection,) = carrier._connections
            assert connection.exchange is not None, "bytes have moved since"
            for later in (2, 4):
                carrier._end_overdue(now + later * STALL_S_MAX + 2)
            reply = await upload
        assert (reply.fault, reply.left, reply.detail) == (NetworkFault.TIMEOUT, True, "the upload stood still")

    run(story())


def test_the_time_for_the_answer_runs_once_the_peer_has_the_whole_upload(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        file = enclosed(tmp_path / "file", content=1_000_000)
        async with peer(answering(OK, b"")) as root, carrier_to(root) as carrier:
            assert (await carrier.carry(call())).status == 200  # now there is a connection
            reply = await carrier.carry(call(timeout_s=0.01, enclosures=(file,)))
        assert (reply.fault, reply.left, reply.detail) == (NetworkFault.TIMEOUT, True, "no answer came in time")

    run(story())


def test_an_upload_to_a_dead_host_has_not_left(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async def connect(*_: object) -> object:
            raise ConnectionRefusedError

        async with carrier_to("http://127.0.0.1", connect=connect) as carrier:
            reply = await carrier.carry(call(enclosures=(enclosed(tmp_path / "a"),)))
            await until(lambda: not carrier._uploads)
        assert (reply.fault, reply.left) == (NetworkFault.REFUSED, False)

    run(story())


def test_closing_ends_uploads_at_every_stage(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        replies: list[Reply] = []
        large = enclosed(tmp_path / "large", content=100_000_000)
        async with peer(holding_back) as root:
            for turns in range(16):
                async with carrier_to(root, connections_max=1) as carrier:
                    for _ in range(2):
                        carrier.start(call(enclosures=(large,)), replies.append)
                    for _ in range(turns):
                        await asyncio.sleep(0)
                assert not carrier._uploads
        assert len(replies) == 32
        assert {reply.fault for reply in replies} <= {NetworkFault.NOT_TRIED, NetworkFault.RESET}

    run(story())
