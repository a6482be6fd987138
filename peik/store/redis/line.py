"""The writer's own connection. redis-py makes it (TLS, password, database); after that commands and answers go straight over it.

What redis-py does around each command (a pool, a check of the socket, timeouts within timeouts) costs more than a commit of
twenty letters does here, and a commit is never repeated, so that nothing of it is needed.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

import hiredis
from redis import exceptions
from redis.asyncio.connection import AbstractConnection

from peik.cancelling import heeding

# Its stub means a tuple of one.
_packed = cast("Callable[[tuple[str | int | bytes, ...]], bytes]", hiredis.pack_command)
_GONE = "the server closed the connection"


class Line:
    """Asks one thing after the other. A connection that is lost is made anew for the next question; what was asked and not
    answered on the old one fails, whether it was done or not."""

    def __init__(self, make: Callable[[], AbstractConnection], *, patience_s: float) -> None:
        self._make = make
        self._patience_s = patience_s
        self._wire: _Wire | None = None
        self._connecting = asyncio.Lock()

    async def ask(self, *command: str | int | bytes) -> Any:
        """The answer. Raises RedisError if there is none, or if it is a refusal."""
        return answered(await (self.send(*command) or await self._send_anew(*command)))

    def send(self, *command: str | int | bytes) -> "asyncio.Future[Any] | None":
        """The same at once, for who cannot wait a turn of the event loop: the bytes are on their way when it returns, and the
        answer is to be read by `answered`. None: there is no connection, and nothing was sent."""
        wire = self._wire
        return None if wire is None or wire.is_lost else wire.send(_packed(command), self._patience_s)

    async def _send_anew(self, *command: str | int | bytes) -> "asyncio.Future[Any]":
        wire = await self._connected()
        return wire.send(_packed(command), self._patience_s)

    async def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    async def _connected(self) -> "_Wire":
        async with self._connecting:
            if self._wire is None or self._wire.is_lost:
                await self.close()
                connection = self._make()
                connect: Callable[[], Awaitable[None]] = connection.connect  # it has no types of its own
                try:
                    await heeding(connect())
                except BaseException:  # it may stand all the same: who asked was cancelled in that moment
                    await connection.disconnect(nowait=True)
                    raise
                self._wire = _Wire(connection)
            return self._wire


def answered(answer: Any) -> Any:
    """What the server said, if it is no refusal."""
    if isinstance(answer, exceptions.ResponseError):
        raise answer
    return answer


class _Wire(asyncio.Protocol):
    """One connection, from the moment on when redis-py has made it."""

    def __init__(self, connection: AbstractConnection) -> None:
        self.is_lost = False
        self._connection = connection
        self._reader = hiredis.Reader(replyError=_refusal)
        self._asked: deque[tuple[asyncio.Future[Any], asyncio.TimerHandle]] = deque()
        self._loop = asyncio.get_running_loop()
        writer = connection._writer  # noqa: SLF001  there is no other way to what it has made
        assert writer is not None
        self._transport = writer.transport
        self._transport.set_protocol(self)

    def send(self, packed: bytes, patience_s: float) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        late = self._loop.call_later(patience_s, self._lose, exceptions.TimeoutError(f"silent for {patience_s:g} s"))
        self._asked.append((answer, late))
        self._transport.write(packed)
        return answer

    async def close(self) -> None:
        self._lose(exceptions.ConnectionError("this process closed the connection"))
        await self._connection.disconnect(nowait=True)

    def _lose(self, error: Exception) -> None:
        """Answers are told apart by their order alone: after one that did not come nothing can be read any more."""
        self.is_lost = True
        self._transport.abort()
        while self._asked:
            answer, late = self._asked.popleft()
            late.cancel()
            if not answer.done():  # who asked may be gone
                answer.set_exception(error)

    # ---- what the event loop tells ----

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not False:
                if isinstance(answer, hiredis.PushNotification):
                    continue  # whoever asked for RESP3 in the address may be told things that nobody asked for
                asked, late = self._asked.popleft()
                late.cancel()
                if not asked.done():
                    asked.set_result(answer)
        except (hiredis.HiredisError, IndexError) as error:
            self._lose(exceptions.ConnectionError(f"this is no answer of Redis: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(exceptions.ConnectionError(_GONE if error is None else str(error)))


def _refusal(words: str) -> exceptions.ResponseError:
    return exceptions.NoScriptError(words) if words.startswith("NOSCRIPT") else exceptions.ResponseError(words)
