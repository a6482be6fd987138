"""Answers of the REST door: one way to write JSON, and what a row of its route table is."""

import asyncio
import http
import io
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from peik.errors import Problem, Unavailable

Endpoint = Callable[[Request], Awaitable[Response]]
Route = tuple[str, str, Endpoint, str, str]  # verb, path, endpoint, operation id, tag

# Errors of the REST door: RFC 9457 problem JSON with a stable code, one shape for all of them.


def problem_response(problem: Problem) -> Response:
    headers = {}
    if isinstance(problem, Unavailable):
        headers["Retry-After"] = str(problem.retry_after_s)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _response(problem.status, problem.code, problem.detail, headers)


async def on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_response(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: no such path, wrong method."""
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    code = phrase.lower().replace(" ", "_")
    return _response(error.status_code, code, f"{phrase}. The API is described at /docs.", dict(error.headers or {}))


async def on_gone(request: Request, error: Exception) -> Response:
    """The client broke off in the middle of its request: nobody reads this, and nothing was accepted."""
    return _response(400, "client_gone", "The request broke off before it was whole. Nothing was accepted.", {})


async def on_surprise(request: Request, error: Exception) -> Response:
    return surprise_response()


def surprise_response() -> Response:
    return _response(500, "surprise", "Something went wrong inside Peik; its log says what. Nothing was promised.", {})


def _response(status: int, code: str, detail: str, headers: dict[str, str]) -> Response:
    body = {
        "type": f"urn:peik:problem:{code}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
    }
    return Response(msgspec.json.encode(body), status, headers, media_type="application/problem+json")


# An answer that is written as it comes: streams, exports. Nothing is made ahead of a slow reader, or for one who
# left.


CHUNK_BYTES = 64 * 1024


class Flow(Response):
    """Goes on until its chunks end or the reader leaves. If the chunks fail because a store does, the answer stays without
    its end, which makes the server break the connection off: nobody takes a part for the whole."""

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        *,
        media_type: str,
        headers: Mapping[str, str],
        stall_s: float | None = None,
    ) -> None:
        """`stall_s`: a reader who takes nothing for so long has gone."""
        super().__init__(headers=dict(headers), media_type=media_type)
        del self.headers["content-length"]
        self._chunks = chunks
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with asyncio.TaskGroup() as group:
            # Only a look at the other end tells that a reader left who is sent nothing.
            leaving = group.create_task(_left(receive))
            writing = group.create_task(self._write(send))
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            writing.cancel()
            leaving.cancel()

    async def _write(self, send: Send) -> None:
        try:
            async with aclosing(self._chunks) as chunks:
                async for chunk in chunks:
                    async with asyncio.timeout(self._stall_s):
                        # waits while the reader is slow
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except (Unavailable, TimeoutError):
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def joined(pieces: Iterable[bytes]) -> Iterable[bytes]:
    """The same in chunks of about one write each."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


# Server-sent events: what all streams share.


HEARTBEAT_S = 15.0  # what stands in between may cut off a silent connection
HEARTBEAT = b": still here\n"
RETRY_MS = 2000


class ServerSentEvents(Flow):
    """Frames until the reader leaves, or there are no more."""

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(frames, media_type="text/event-stream", headers=headers)


def frame(event: bytes, data: bytes, *, id: bytes | None = None) -> bytes:  # noqa: A002  as the standard calls it
    """One event. A line break in JSON stands between its parts and never in a string, so that one data line can hold any."""
    head = b"" if id is None else b"id: %b\n" % id
    return b"%bevent: %b\ndata: %b\n\n" % (head, event, data.translate(_ONE_LINE))


_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


# QR codes as pictures for a browser. What is in one may be a secret: it is drawn, and never logged.


TITLE = "Scan it with Telegram: Settings, Devices, Link Desktop Device."


def svg(text: str) -> str | None:
    """A picture that stands by itself. None without the package that draws it, see the extra `sessions`."""
    try:
        import segno
    except ImportError:
        return None
    # A margin of four is what readers are promised, and white below it is there for pages that are dark.
    drawn = io.BytesIO()
    code = segno.make(text, micro=False, error="m")
    code.save(drawn, kind="svg", scale=6, border=4, light="#fff", title=TITLE, xmldecl=False, nl=False)
    return drawn.getvalue().decode()
