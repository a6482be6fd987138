"""An answer that is written as it comes: streams, exports. Nothing is made ahead of a slow reader, or for one who left."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from peik.errors import Unavailable

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
