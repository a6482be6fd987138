"""procrastinate on PostgreSQL."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import procrastinate

from bench.payload import fields
from bench.peers.harness import CALLERS, CONCURRENCY, Peer, main
from bench.peers.postgres_room import cleared

LOOK_S = 0.02


class Procrastinate(Peer):
    has_batches = True

    async def open(self) -> None:
        await cleared(self.store)
        self._connector = procrastinate.PsycopgConnector(conninfo=self.store, max_size=CALLERS)
        self._app = procrastinate.App(connector=self._connector)

        async def send(number: int, wanted: dict[str, Any]) -> None:
            await self.post(number, wanted)

        self._task = self._app.task(name="send")(send)
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()

    async def close(self) -> None:
        await self._app.close_async()

    async def add(self, number: int) -> None:
        await self._task.defer_async(number=number, wanted=fields(number))

    async def add_many(self, numbers: Sequence[int]) -> None:
        await self._task.batch_defer_async(*({"number": number, "wanted": fields(number)} for number in numbers))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        running = asyncio.ensure_future(
            self._app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
        )
        yield
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def settle(self, wanted: int) -> None:
        """Its table says what has succeeded, durably."""
        query = "SELECT count(*) AS done FROM procrastinate_jobs WHERE status = 'succeeded'"
        while (await self._connector.execute_query_one_async(query))["done"] < wanted:  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    main(Procrastinate)
