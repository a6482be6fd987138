"""The way to the other nodes: what they tell is heard here, and what this node wrote is told. On a connection of its own, so
that neither this nor a beat waits for a long commit or a long read."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from peik.node_ports import News
from peik.postgres_failures import is_gone, is_refusal
from peik.store.postgres.queries import load
from peik.store.postgres.session import Session, end
from peik.store.telling import Telling

T = TypeVar("T")

_SQL = load("nodes.sql")
_LINES_MAX = 1000  # heard and not asked for: who has so much to read reads everything
_PAUSE_S = 0.5  # between tries to reach a server that is away


class Neighbourhood:
    """`patience_s`: a server that is silent for so long is asked on a new connection."""

    def __init__(
        self, connect: Callable[[], Awaitable[Session]], *, channel: str, node: str, patience_s: float
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._node = node
        self._patience_s = patience_s
        self._session: Session | None = None
        self._one_at_a_time = asyncio.Lock()
        self._heard = Telling()
        self._lines = 0
        self._stir = asyncio.Event()  # something was heard, or the connection is lost
        self._untold = Telling()
        self._telling: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._connected()
        self._heard = Telling()

    async def close(self) -> None:
        """What is still to be told is told, if the server listens."""
        if self._telling is not None:
            await asyncio.wait([self._telling])
        session, self._session = self._session, None
        if session is not None:
            await end(session)

    async def abandon(self) -> None:
        """End at once, as a process does that is killed."""
        if self._telling is not None:
            self._telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._telling
        self._drop()

    async def ask(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Something short that may be done twice: it is, if the connection turns out to be gone."""
        async with self._one_at_a_time:
            for is_last in (False, True):
                try:
                    async with asyncio.timeout(self._patience_s):
                        return await work(await self._connected())
                except Exception as error:
                    if not is_gone(error):
                        raise
                    self._drop()
                    if is_last or isinstance(error, TimeoutError):
                        raise
        raise AssertionError("unreachable")

    # ---- telling ----

    def tell(self, telling: Telling) -> None:
        """The others hear of it soon. Nobody waits for that, and what comes meanwhile is told together."""
        self._untold.add(telling)
        self._tell_on()

    def _tell_on(self) -> None:
        if self._untold and self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._untold:
                telling, self._untold = self._untold, Telling()
                try:
                    await self._ring(telling.line(self._node))
                except Exception as error:
                    if not is_refusal(error):
                        raise
                    telling.add(self._untold)
                    self._untold = telling  # told when there is a connection again
                    return
        finally:
            self._telling = None

    async def _ring(self, line: str) -> None:
        await self.ask(lambda session: session.rows(_SQL["ring"], channel=self._channel, line=line))

    # ---- hearing ----

    def ring(self) -> None:
        """Something may have been stored that this node does not know of."""
        self._heard.everything()
        self._stir.set()

    async def news(self) -> News:
        """Waits until there are some. A connection that is lost is made anew, and what was missed meanwhile is news."""
        while not self._heard:
            self._stir.clear()
            if await self._is_there():
                with contextlib.suppress(TimeoutError):  # then it is asked whether it is still there
                    async with asyncio.timeout(self._patience_s):
                        await self._stir.wait()
            else:
                await asyncio.sleep(_PAUSE_S)
        heard, self._heard, self._lines = self._heard, Telling(), 0
        return heard.news()

    async def _is_there(self) -> bool:
        try:
            await self.ask(lambda session: session.rows(_SQL["ping"]))
        except Exception as error:
            if not is_refusal(error):
                raise
            return False
        return True

    def _on_line(self, connection: object, process: int, channel: str, line: str) -> None:
        self._lines += 1
        if self._lines > _LINES_MAX:
            self._heard = Telling()
            self._heard.everything()
        else:
            self._heard.hear(line, besides=self._node)
        if self._heard:
            self._stir.set()

    # ---- the connection ----

    async def _connected(self) -> Session:
        if self._session is None or self._session.connection.is_closed():
            self._session = session = await self._connect()
            session.connection.add_termination_listener(lambda connection: self._stir.set())
            await session.connection.add_listener(self._channel, self._on_line)
            self.ring()  # whatever was told while nobody listened
            self._tell_on()
        return self._session

    def _drop(self) -> None:
        if self._session is not None:
            self._session.connection.terminate()
            self._session = None
