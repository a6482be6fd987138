"""What bot libraries in the same process share: calls to the gateway with no socket in between, and updates for handlers.

It knows no library. An adapter brings the fields and files of a call, and gets the answer that HTTP would give; or it
brings a function, and gets updates that are over when the function has returned.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from peik.app.runtime import Runtime
from peik.client.local import LocalTransport
from peik.client.peik import Peik
from peik.client.transport import until_stopped
from peik.core.arrival import DEFAULT_CONSUMER, Arrival
from peik.core.letter import Enclosed
from peik.core.token import Token
from peik.errors import BadInput, Problem
from peik.gateway.answers import NOT_FOUND, GatewayAnswer, of_problem
from peik.gateway.app import Gateway, respond
from peik.gateway.params import given_of
from peik.inbox.consumers import Handling
from peik.outbox.service import keep_files

Message = Mapping[str, Any]


def counter_of(peik: Peik) -> LocalTransport:
    """The inside of a `Peik.open`. Raises BadInput for a Peik that is far away."""
    transport = peik._transport  # noqa: SLF001  the integrations are a part of Peik
    if isinstance(transport, LocalTransport):
        return transport
    raise BadInput(
        code="not_here",
        detail="This needs a Peik in the same process: Peik.open. For a `peik serve`, set the library's API root to its "
        "address instead.",
    )


def gateway_of(peik: Peik) -> Gateway:
    """The gateway of an open Peik, an ASGI application; what is no path of Telegram's gets its 404. Raises Unavailable if
    Peik is not open."""

    async def nowhere(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, NOT_FOUND)

    return Gateway(_runtime_of(peik), nowhere, keeps_files=False)


def _runtime_of(peik: Peik) -> Runtime:
    transport = counter_of(peik)
    peik._open_transport()  # noqa: SLF001  it says whether it is open
    return transport.runtime


# ---- calls ----


class GatewayUpload(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a call, not read yet."""

    field: str
    filename: str
    content_type: str
    chunks: AsyncIterator[bytes]


class LocalGateway:
    """Where an adapter hands in calls. Peik need not be open before the first of them."""

    def __init__(self, peik: Peik) -> None:
        counter_of(peik)  # better now than at the first call
        self._peik = peik
        self._runtime: Runtime | None = None
        self._gateway: Gateway

    async def call(
        self, token: str, method: str, fields: dict[str, str], uploads: Sequence[GatewayUpload] = ()
    ) -> GatewayAnswer:
        """What the gateway answers over HTTP. Raises what reading a file raises; nothing was accepted then.

        Anyone who stops waiting takes nothing back: a letter that is accepted goes its way.
        """
        try:
            gateway, runtime = self._opened()
            enclosed = await _enclosed(runtime, uploads) if uploads else ()
        except Problem as problem:
            return of_problem(problem)
        except _SourceFailed as failed:
            raise failed.error from None
        return await gateway.call(token, method, given_of(fields, enclosed))

    @asynccontextmanager
    async def download(self, path: str, *, timeout_s: float | None) -> AsyncIterator["Incoming"]:
        """A file by its path on the gateway: `/file/bot<token>/…`. Raises Unavailable if Peik is not open, TimeoutError
        (also from its chunks) if the whole takes longer."""
        gateway, _ = self._opened()
        deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        messages: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=1)  # who reads slowly is given slowly
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}

        async def serve() -> None:
            await gateway(scope, _nothing_more, messages.put)
            await messages.put(None)

        serving = asyncio.create_task(serve())
        try:
            async with asyncio.timeout_at(deadline):
                begin = await messages.get()
            assert begin is not None, "whatever happens, the gateway says something"
            yield Incoming(begin["status"], messages, deadline)
        finally:
            serving.cancel()
            await asyncio.wait([serving])

    def _opened(self) -> tuple[Gateway, Runtime]:
        runtime = _runtime_of(self._peik)
        if self._runtime is not runtime:  # it is the first call, or Peik was closed and opened again
            self._gateway, self._runtime = gateway_of(self._peik), runtime
        return self._gateway, runtime


class CutShort(Exception):
    """A file that broke off before its end."""


class Incoming:
    """A file on its way in."""

    def __init__(self, status: int, messages: asyncio.Queue[Message | None], deadline: float | None) -> None:
        self.status = status
        self._messages = messages
        self._deadline = deadline

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Its bytes, or the words of a refusal. Raises CutShort."""
        while True:
            async with asyncio.timeout_at(self._deadline):
                message = await self._messages.get()
            if message is None:
                raise CutShort("The file broke off before its end.")
            if message["body"]:
                yield message["body"]
            if not message.get("more_body", False):
                return


async def _nothing_more() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


class _SourceFailed(Exception):
    """A file of the program's own could not be read. The spool must not take that for a failure of its disk."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


async def _read(upload: GatewayUpload) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in upload.chunks:
            yield chunk
    except OSError as error:
        raise _SourceFailed(error) from error


async def _enclosed(runtime: Runtime, uploads: Sequence[GatewayUpload]) -> tuple[Enclosed, ...]:
    """The files, durable in the spool. Leaves none of them behind if one cannot be kept."""

    async def enclose(upload: GatewayUpload) -> Enclosed:
        kept = await runtime.spool.keep(_read(upload), size_bytes_max=runtime.config.upload_bytes_max)
        return kept.as_enclosed(upload.field, filename=upload.filename, content_type=upload.content_type)

    return await keep_files((enclose(upload) for upload in uploads), runtime.spool.remove)


# ---- updates ----


class UpdateFeed(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer's updates, and who handles them: an update is over when `handle` returns, and tried again if it raises."""

    token: Token
    consumer: str
    handle: Callable[[dict[str, Any]], Awaitable[None]]
    allowed: frozenset[str] | None  # None: the types that Telegram gives by itself
    at_once: int | None = None  # None: as set


def whose(token: str) -> tuple[Token, str]:
    """A library's token, which may name a consumer: `<token>@<consumer>`."""
    text, _, consumer = token.partition("@")
    return Token(text), consumer or DEFAULT_CONSUMER


async def hand_on(peik: Peik, feeds: Sequence[UpdateFeed], *, handle_signals: bool) -> None:
    """Hand updates to functions until a signal comes, this task is cancelled or Peik ends; then let what is in hand end."""
    transport, runtime = counter_of(peik), _runtime_of(peik)
    for feed in feeds:
        await _receive(runtime, feed.token)
    ended = asyncio.ensure_future(transport.ended())
    try:
        for feed in feeds:
            handling = Handling(handle=_taking(feed), allowed=feed.allowed, at_once=feed.at_once)
            runtime.inbox.consumers.handle(feed.token.bot_id, feed.consumer, handling)
        await (until_stopped([ended]) if handle_signals else asyncio.wait([ended]))
    finally:
        ended.cancel()
        leaving = (
            runtime.inbox.consumers.leave(feed.token.bot_id, feed.consumer, grace_s=runtime.config.grace)
            for feed in feeds
        )
        await asyncio.gather(*leaving)


def _taking(feed: UpdateFeed) -> Callable[[Arrival, int], Awaitable[None]]:
    async def take(arrival: Arrival, _: int) -> None:
        await feed.handle(msgspec.json.decode(arrival.wire()))

    return take


async def _receive(runtime: Runtime, token: Token) -> None:
    """Anyone who handles a bot's updates wants them fetched."""
    if runtime.outbox.service.known(token.bot_id) is None:
        await runtime.outbox.service.save_bot(token, inbound="polling")
    else:
        await runtime.outbox.service.receive_for(token.bot_id)
