"""Downloads: streamed whole or told broken, never faster than their reader, by whatever way leads to the server."""

import asyncio
import ssl

import pytest

from peik.core.outcome import NetworkFault, Reply
from peik.telegram.client import AHEAD_BYTES_MAX, HttpDownload, HttpDownloader
from peik.telegram.port import Interrupted
from tests.telegram.conftest import Run
from tests.telegram.peers import SECRET, TOKEN, Talk, peer
from tests.telegram.proxies import LittleProxy, alive
from tests.telegram.test_faults import unused_port
from tests.telegram.test_proxies import KINDS, Through, way

CONTENT = bytes(range(256)) * 4096


def giving(answer: bytes, *, heard: list[bytes] | None = None, lingers: bool = False) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if heard is not None:
            heard.append(request)
        writer.write(answer)
        await writer.drain()
        if lingers:
            await reader.read()

    return talk


def sized(content: bytes, length: int | None = None) -> bytes:
    size = len(content) if length is None else length
    return b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % size + content


async def opened(root: str, path: str = "photos/file 1.jpg", **headers: str) -> HttpDownload:
    download = await HttpDownloader(root).open(TOKEN, path, headers=headers)
    assert isinstance(download, HttpDownload), download
    return download


async def content_of(download: HttpDownload) -> bytes:
    try:
        return b"".join([chunk async for chunk in download.chunks()])
    finally:
        download.close()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
    b"%x\r\n%b\r\n" % (len(CONTENT[at : at + 5000]), CONTENT[at : at + 5000]) for at in range(0, len(CONTENT), 5000)
)


@pytest.mark.parametrize(
    "answer",
    [
        sized(CONTENT),
        CHUNKED + b"0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + CONTENT,
        b"HTTP/1.1 100 Continue\r\n\r\n" + sized(CONTENT),
    ],
    ids=["sized", "chunked", "to the end", "after 100"],
)
def test_a_file_comes_whole_however_it_is_framed(run: Run, answer: bytes) -> None:
    async def story() -> None:
        async with peer(giving(answer)) as root:
            download = await opened(root)
            assert download.status == 200
            assert await content_of(download) == CONTENT

    run(story())


@pytest.mark.parametrize("answer", [sized(CONTENT[:-1], len(CONTENT)), CHUNKED, CHUNKED + b"rubbish"])
def test_a_file_that_was_cut_off_is_never_taken_for_whole(run: Run, answer: bytes) -> None:
    async def story() -> None:
        async with peer(giving(answer)) as root:
            with pytest.raises(Interrupted):
                await content_of(await opened(root))

    run(story())


def test_the_request_names_the_file_and_nothing_that_a_client_wrote_becomes_a_line(run: Run) -> None:
    async def story() -> None:
        heard: list[bytes] = []
        async with peer(giving(sized(b""), heard=heard)) as root:
            await content_of(await opened(f"{root}/api", "a b/گ.jpg", Range="bytes=5-"))
            await content_of(await opened(root, "a\r\nX: y", Range="bytes=5-\r\nX: y"))
        first, second = heard
        assert first.startswith(f"GET /api/file/bot42:{SECRET}/a%20b/%DA%AF.jpg HTTP/1.1\r\n".encode())
        assert b"\r\nRange: bytes=5-\r\n" in first
        assert b"\nX:" not in second

    run(story())


def test_no_more_is_read_than_somebody_takes(run: Run) -> None:
    async def story() -> None:
        large = CONTENT * 32
        async with peer(giving(sized(large))) as root:
            download = await opened(root)
            await asyncio.sleep(0.1)  # time enough to read it all, if it were read
            assert download._ahead_bytes < 4 * AHEAD_BYTES_MAX
            assert await content_of(download) == large

    run(story())


def test_where_nobody_answers_is_told_as_a_fact(run: Run) -> None:
    async def story() -> None:
        refused = await HttpDownloader(f"http://127.0.0.1:{unused_port()}").open(TOKEN, "a", headers={})
        assert isinstance(refused, Reply)
        assert (refused.fault, refused.left) == (NetworkFault.REFUSED, False)
        async with peer(giving(b"")) as root:
            silent = await HttpDownloader(root).open(TOKEN, "a", headers={})
            assert isinstance(silent, Reply)
            assert (silent.fault, silent.left) == (NetworkFault.RESET, True)
        async with peer(giving(b"SSH-2.0\r\n")) as root:
            assert isinstance(await HttpDownloader(root).open(TOKEN, "a", headers={}), Reply)

    run(story())


def test_over_tls(run: Run, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    async def story() -> None:
        async with peer(giving(sized(CONTENT), lingers=True), tls=server_tls) as root:
            download = await HttpDownloader(root, ssl_context=client_tls).open(TOKEN, "a", headers={})
            assert isinstance(download, HttpDownload)
            assert await content_of(download) == CONTENT

    run(story())


@KINDS
def test_through_a_proxy(run: Run, kind: type[LittleProxy], through: Through) -> None:
    async def story() -> None:
        proxy = kind()
        async with peer(giving(sized(CONTENT))) as root, alive(proxy):
            download = await HttpDownloader(root, connect=way(through, proxy.port, root)).open(TOKEN, "a", headers={})
            assert isinstance(download, HttpDownload)
            assert await content_of(download) == CONTENT
            assert len(proxy.asked) == 1

    run(story())
