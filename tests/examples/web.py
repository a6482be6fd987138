"""A web server on loopback with all that a downloader meets: small, large, endless, slow, broken, failing, moving."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from aiohttp import web

SMALL = b"small" * 2000
FILM = b"\x00\x00\x00\x18ftypmp42" + b"film" * 5000
LARGE_BYTES = 5_000_000
PAGE = """<html><head><title>A film about ships</title></head>
<body><video src="/films/ships.mp4" type="video/mp4"></video></body></html>"""
LIST = """<?xml version="1.0"?><rss version="2.0"><channel><title>Ships</title>
<item><title>one</title><link>{url}/page?1</link></item><item><title>two</title><link>{url}/page?2</link></item>
<item><title>three</title><link>{url}/page?3</link></item></channel></rss>"""


class Web:
    """`asked` counts requests by path; `ranges` are the ranges that were asked for. `failures` is how often /failing.bin still
    fails; /slow.bin waits for `is_open` in its middle."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.ranges: list[str] = []
        self.failures = 0
        self.is_open = asyncio.Event()
        self.is_waiting = asyncio.Event()  # somebody has the first half of /slow.bin
        self.url = ""

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["Web"]:
        app = web.Application(middlewares=[self._count])
        app.router.add_get("/small.txt", self._small)
        app.router.add_get("/moved.txt", self._moved)
        app.router.add_get("/films/ships.mp4", self._film)
        app.router.add_get("/film", self._film)
        app.router.add_get("/page", self._page)
        app.router.add_get("/torn-page", self._torn_page)
        app.router.add_get("/films/torn.mp4", self._torn_film)
        app.router.add_get("/list", self._list)
        app.router.add_get("/members-only", self._members_only)
        app.router.add_get("/empty-page", self._empty_page)
        app.router.add_get("/large.bin", self._large)
        app.router.add_get("/endless.bin", self._endless)
        app.router.add_get("/slow.bin", self._slow)
        app.router.add_get("/broken.bin", self._broken)
        app.router.add_get("/failing.bin", self._failing)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            self.is_open.set()
            await runner.cleanup()

    @web.middleware
    async def _count(self, request: web.Request, handler: object) -> web.StreamResponse:
        if request.method == "GET":
            self.asked[request.path] += 1
            self.ranges.append(request.headers.get("Range", ""))
        response: web.StreamResponse = await handler(request)  # type: ignore[operator]
        return response

    async def _small(self, _: web.Request) -> web.Response:
        return web.Response(body=SMALL, content_type="text/plain")

    async def _moved(self, _: web.Request) -> web.Response:
        raise web.HTTPFound("/small.txt")

    async def _film(self, _: web.Request) -> web.Response:
        return web.Response(body=FILM, content_type="video/mp4")

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    async def _list(self, _: web.Request) -> web.Response:
        return web.Response(text=LIST.format(url=self.url), content_type="application/rss+xml")

    async def _members_only(self, request: web.Request) -> web.Response:
        """A page that only a signed-in browser may see."""
        if request.cookies.get("signed") != "in":
            raise web.HTTPUnauthorized(text="Please sign in")
        return web.Response(text=PAGE, content_type="text/html")

    async def _empty_page(self, _: web.Request) -> web.Response:
        return web.Response(text="<html><body>nothing</body></html>", content_type="text/html")

    async def _large(self, _: web.Request) -> web.Response:
        return web.Response(body=bytes(LARGE_BYTES))

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(bytes(100_000))
        return response

    async def _slow(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(SMALL))})
        await response.prepare(request)
        await response.write(SMALL[:5000])
        self.is_waiting.set()
        await self.is_open.wait()
        with contextlib.suppress(ConnectionError):
            await response.write(SMALL[5000:])
        return response

    async def _torn_page(self, _: web.Request) -> web.Response:
        return web.Response(text=PAGE.replace("ships.mp4", "torn.mp4"), content_type="text/html")

    async def _broken(self, request: web.Request) -> web.StreamResponse:
        return await self._cut(request, SMALL)

    async def _torn_film(self, request: web.Request) -> web.StreamResponse:
        return await self._cut(request, FILM)

    async def _cut(self, request: web.Request, content: bytes) -> web.StreamResponse:
        """Cut off in its middle, unless somebody asks for the rest."""
        begin = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        headers = {"ETag": '"one"', "Content-Length": str(len(content) - begin)}
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        response = web.StreamResponse(status=206 if begin else 200, headers=headers)
        await response.prepare(request)
        if begin:
            await response.write(content[begin:])
            return response
        await response.write(content[:4000])
        assert request.transport is not None
        request.transport.close()
        return response

    async def _failing(self, _: web.Request) -> web.Response:
        if self.failures:
            self.failures -= 1
            raise web.HTTPServiceUnavailable
        return web.Response(body=SMALL)
