"""Real little proxies: HTTP CONNECT, SOCKS5 and a plain relay, which can be killed and revived on the same port."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator

Where = tuple[str, int]
Login = tuple[str, str]


class LittleProxy:
    """What all of them do: listen, find out where to, copy bytes both ways. `asked` is every place they were asked for."""

    def __init__(self, *, login: Login | None = None, hosts: dict[str, str] | None = None) -> None:
        self.asked: list[Where] = []
        self.port = 0
        self._login = login
        self._hosts = hosts or {}
        self._talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    async def revive(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def kill(self) -> None:
        """As a process dies: nobody listens, and every open connection is cut off."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for _ in range(
            10
        ):  # some were accepted a moment ago and have not begun yet: turns of the loop, until they have
            talks = list(self._talks)
            for talk in talks:
                self._talks[talk].transport.abort()
                talk.cancel()
            await asyncio.gather(*talks, return_exceptions=True)
            await asyncio.sleep(0)
        await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks[talk] = writer
        far: asyncio.StreamWriter | None = None
        try:
            host, port = await self._where(reader, writer)
            self.asked.append((host, port))
            far_reader, far = await asyncio.open_connection(self._hosts.get(host, host), port)
            writer.write(self._opened())
            await _both_ways(reader, writer, far_reader, far)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            del self._talks[talk]
            for each in (writer, far):
                if each is not None:
                    each.transport.abort()

    async def _where(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Where:
        raise NotImplementedError

    def _opened(self) -> bytes:
        return b""


class HttpProxy(LittleProxy):
    async def _where(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Where:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        verb, where, _ = head.splitlines()[0].split()
        assert verb == "CONNECT"
        if self._login is not None:
            secret = base64.b64encode(":".join(self._login).encode()).decode()
            if f"Proxy-Authorization: Basic {secret}\r\n" not in head:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 4\r\n\r\nlogi")
                await writer.drain()
                raise ConnectionError
        host, _, port = where.rpartition(":")
        return host.strip("[]"), int(port)

    def _opened(self) -> bytes:
        return b"HTTP/1.1 200 Connection established\r\nVia: little\r\n\r\n"


class SocksProxy(LittleProxy):
    async def _where(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Where:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        wanted = 0 if self._login is None else 2
        writer.write(bytes([5, wanted if wanted in methods else 255]))
        if wanted == 2:
            login = await self._read_login(reader)
            writer.write(bytes([1, login != self._login]))
        _, _, _, kind = await reader.readexactly(4)
        assert kind in (1, 3), "names are looked up here, not by the client"
        length = (await reader.readexactly(1))[0] if kind == 3 else 4
        raw = await reader.readexactly(length)
        port = int.from_bytes(await reader.readexactly(2), "big")
        return raw.decode() if kind == 3 else ".".join(map(str, raw)), port

    async def _read_login(self, reader: asyncio.StreamReader) -> Login:
        await reader.readexactly(1)
        user = await reader.readexactly((await reader.readexactly(1))[0])
        password = await reader.readexactly((await reader.readexactly(1))[0])
        return user.decode(), password.decode()

    def _opened(self) -> bytes:
        return b"\x05\x00\x00\x03\x06little\x04\x38"


class Relay(LittleProxy):
    """A mirror: whoever connects talks to the one place behind it."""

    def __init__(self, where: Where) -> None:
        super().__init__()
        self._place = where

    async def _where(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Where:
        return self._place


@contextlib.asynccontextmanager
async def alive(*proxies: LittleProxy) -> AsyncIterator[None]:
    try:
        for proxy in proxies:
            await proxy.revive()
        yield
    finally:
        for proxy in proxies:
            await proxy.kill()


async def _both_ways(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far: asyncio.StreamWriter,
) -> None:
    ways = [asyncio.ensure_future(_copy(reader, far)), asyncio.ensure_future(_copy(far_reader, writer))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
