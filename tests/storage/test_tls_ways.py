"""Addresses of stores and archives that ask for TLS: a server that has none hears a question for it, and never a password."""

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from peik.archive.wiring import archive_of
from peik.clock import SystemClock
from peik.errors import StartError
from peik.settings.config import load
from peik.storage.open import store_of
from tests.patience import PATIENCE_S
from tests.web.certificates import Authority

PASSWORD = b"hush-hush"
SSL_REQUEST = bytes.fromhex("0000000804d2162f")  # how PostgreSQL is asked for TLS
TLS_HANDSHAKE = b"\x16\x03"

Open = Callable[[str], Awaitable[object]]


async def open_store(url: str) -> None:
    config = load({"store": url}, environment={}, folder=Path("/nonexistent"))
    store = store_of(config, clock=SystemClock(), must_own=True)
    await store.open()


async def open_archive(url: str) -> None:
    await archive_of(url, store="sqlite:///x.db").open()


WAYS: dict[str, tuple[Open, str, bytes]] = {
    "postgresql": (
        open_store,
        "postgresql://peik:hush-hush@{place}/peik?sslmode=verify-full&sslrootcert={ca}",
        SSL_REQUEST,
    ),
    "postgresql archive": (open_archive, "postgresql://peik:hush-hush@{place}/peik?sslmode=require", SSL_REQUEST),
    "redis": (open_store, "rediss://:hush-hush@{place}/0", TLS_HANDSHAKE),
    "mongodb": (open_archive, "mongodb://peik:hush-hush@{place}/peik?tls=true", TLS_HANDSHAKE),
}


@pytest.mark.parametrize("kind", WAYS)
def test_nothing_but_a_question_for_tls_goes_to_a_server_without_it(kind: str, tmp_path: Path) -> None:
    opening, url, first = WAYS[kind]

    async def story() -> None:
        heard: list[bytes] = []
        is_heard = asyncio.Event()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            said = await reader.read(4096)
            if said == SSL_REQUEST:
                writer.write(b"N")  # there is no TLS here; come in without
                said += await reader.read(4096)
            writer.close()
            if said:
                heard.append(said)
                is_heard.set()

        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            asked = asyncio.ensure_future(opening(url.format(place=f"{host}:{port}", ca=Authority(tmp_path).path)))
            async with asyncio.timeout(PATIENCE_S):
                await is_heard.wait()
            asked.cancel()
            with contextlib.suppress(asyncio.CancelledError, StartError):
                await asked
        assert all(said.startswith(first) and PASSWORD not in said for said in heard), heard
        if first == SSL_REQUEST:
            assert set(heard) == {SSL_REQUEST}, "and nothing behind it"

    asyncio.run(story())
    gc.collect()  # what was opened and not closed warns here, and not in another test
