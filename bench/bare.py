"""Servers that do next to nothing, as ceilings: `python -m bench.bare <kind> <API root>`; it prints its port.

All but aiogram's run on the server that Peik runs on: uvicorn with uvloop and httptools, no access log.
"""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import msgspec
import uvicorn
import uvloop

from bench.child import listening
from bench.payload import TOKEN

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

PATIENCE_S = 60.0
_JSON = [(b"content-type", b"application/json")]


def starlette_app() -> Any:
    """A webhook that reads what comes, and stores nothing."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def take(request: Request) -> Response:
        msgspec.json.decode(await request.body())
        return Response()

    return Starlette(routes=[Route("/webhook", take, methods=["POST"])])


def fastapi_app() -> Any:
    """A REST door as its tutorial has it: a model, an id, and nothing stored."""
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Letter(BaseModel):
        method: str
        params: dict[str, Any]

    app = FastAPI()
    count = iter(range(1 << 62))

    async def accept(letter: Letter) -> dict[str, str]:
        return {"id": str(next(count)), "state": "waiting"}

    app.post("/v1/letters", status_code=202)(accept)
    return app


def lean_relay(root: str) -> Any:
    """Any method passed on by Peik's own HTTP client, and nothing else of Peik."""
    from peik.core.token import Token
    from peik.telegram.client import BotApiCarrier
    from peik.telegram.port import Request

    carrier: list[BotApiCarrier] = []
    token = Token(TOKEN)

    async def pass_on(method: str, body: bytes) -> tuple[int, bytes]:
        if not carrier:
            carrier.append(BotApiCarrier(root, connections_max=64))
        reply = await carrier[0].carry(Request(token=token, method=method, params=body, timeout_s=PATIENCE_S))
        return reply.status or 502, reply.body

    return _relay(pass_on)


def aiohttp_relay(root: str) -> Any:
    """The same as people would write it, on aiohttp."""
    import aiohttp

    sessions: list[aiohttp.ClientSession] = []

    async def pass_on(method: str, body: bytes) -> tuple[int, bytes]:
        if not sessions:
            sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64)))
        headers = {"Content-Type": "application/json"}
        async with sessions[0].post(f"{root}/bot{TOKEN}/{method}", data=body, headers=headers) as answer:
            return answer.status, await answer.read()

    return _relay(pass_on)


def _relay(pass_on: Callable[[str, bytes], Awaitable[tuple[int, bytes]]]) -> Any:
    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        body = b""
        while True:
            part = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        status, answer = await pass_on(scope["path"].rsplit("/", 1)[-1], body)
        headers = [*_JSON, (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app


async def _serve_uvicorn(app: Any) -> None:
    config = uvicorn.Config(
        app, port=0, loop="uvloop", http="httptools", ws="none", lifespan="off", access_log=False, log_level="warning"
    )
    listener = config.bind_socket()
    listener.listen(1024)  # whoever reads the port may come at once
    serving = asyncio.ensure_future(uvicorn.Server(config).serve([listener]))
    await _until_told(listener.getsockname()[1])
    serving.cancel()


async def _serve_aiogram(root: str) -> None:
    """aiogram's own webhook, answered when the handler has ended; the handler does nothing."""
    from aiogram import Bot, Dispatcher
    from aiogram.types import Message
    from aiogram.webhook.aiohttp_server import SimpleRequestHandler
    from aiohttp import web

    dispatcher = Dispatcher()

    async def hear(message: Message) -> None:
        """The bot's own work is not what is measured."""

    dispatcher.message()(hear)
    app = web.Application()
    handler = SimpleRequestHandler(dispatcher=dispatcher, bot=Bot(TOKEN), handle_in_background=False)
    handler.register(app, path="/webhook")
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    await _until_told(runner.addresses[0][1])


async def _until_told(port: int) -> None:
    """Serves until standard input ends, so that it never outlives a run."""
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


def _main(kind: str, root: str) -> Awaitable[None]:
    match kind:
        case "starlette":
            return _serve_uvicorn(starlette_app())
        case "fastapi":
            return _serve_uvicorn(fastapi_app())
        case "lean_relay":
            return _serve_uvicorn(lean_relay(root))
        case "aiohttp_relay":
            return _serve_uvicorn(aiohttp_relay(root))
        case "aiogram":
            return _serve_aiogram(root)
    raise ValueError(kind)


@contextlib.contextmanager
def running_bare(kind: str, root: str = "") -> Iterator[str]:
    """The address of one of them, in a process of its own."""
    with listening("bench.bare", kind, root) as port:
        yield f"http://127.0.0.1:{port}"


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(sys.argv[1], sys.argv[2]))  # type: ignore[arg-type]
