"""A node among others: it hears of their commits, and keeps its right to send alive. On a connection of its own, so that
neither waits for a long commit or a long read."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from peik.store.postgres import lease
from peik.store.postgres.failures import is_unavailable
from peik.store.postgres.queries import Query
from peik.store.postgres.session import Session, end

_PING = Query("SELECT 1")


class Neighbourhood:
    def __init__(
        self,
        connect: Callable[[], Awaitable[Session]],
        *,
        channel: str,
        node: str,
        ttl_s: float,
        on_epoch: Callable[[int], None],
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._node = node
        self._ttl_s = ttl_s
        self._on_epoch = on_epoch
        self._session: Session | None = None
        self._has_news = False
        self._one_at_a_time = asyncio.Lock()
        self._epoch = 0
        self._keeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._connected()
        self._has_news = False
        self._keeping = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Gives the right back, so that another node need not wait for its end."""
        await self._stop()
        session, self._session = self._session, None
        if session is not None:
            try:
                if self._epoch and not session.connection.is_closed():
                    await lease.give_back(session, self._epoch)
            except Exception as error:
                if not is_unavailable(error):  # then it ends by itself
                    raise
            finally:
                await end(session)

    async def abandon(self) -> None:
        """End at once, as a process does that is killed."""
        await self._stop()
        if self._session is not None:
            self._session.connection.terminate()

    async def _stop(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping

    # ---- what the others do ----

    def ring(self) -> None:
        """Something may have been stored that this node does not know of."""
        self._has_news = True

    async def has_news(self) -> bool:
        """Whether another node has written since this was last asked."""
        async with self._one_at_a_time:
            await self._connected()
        has_news, self._has_news = self._has_news, False
        return has_news

    async def _connected(self) -> Session:
        """Whatever was missed while nobody listened is news."""
        if self._session is None or self._session.connection.is_closed():
            session = await self._connect()
            await session.connection.add_listener(self._channel, self._heard)
            self._session = session
            self._has_news = True
        return self._session

    def _heard(self, connection: object, process: int, channel: str, payload: object) -> None:
        if payload != self._node:
            self._has_news = True

    # ---- the right to send ----

    async def claim(self) -> int:
        """The epoch of the right to send; 0: another node has it."""
        async with self._one_at_a_time:
            self._epoch = await lease.take(await self._connected(), self._node, ttl_s=self._ttl_s)
        self._on_epoch(self._epoch)
        return self._epoch

    async def holder(self) -> tuple[str, float] | None:
        async with self._one_at_a_time:
            return await lease.holder(await self._connected())

    async def _keep(self) -> None:
        """Renews the right at a third of its time. A server that does not answer is asked again soon: it may be back before
        the right is over, and nobody else can take it meanwhile."""
        wait_s = self._ttl_s / 3
        while True:
            await asyncio.sleep(wait_s)
            wait_s = self._ttl_s / 3 if await self._renewed() else self._ttl_s / 15

    async def _renewed(self) -> bool:
        try:
            async with asyncio.timeout(self._ttl_s / 3), self._one_at_a_time:
                session = await self._connected()
                if not self._epoch:
                    await session.rows(_PING)
                elif not await lease.renew(session, self._epoch, ttl_s=self._ttl_s):
                    self._epoch = 0
                    self._on_epoch(0)
        except Exception as error:
            if not is_unavailable(error):
                raise
            if self._session is not None:
                self._session.connection.terminate()
            return False
        return True
