"""Requests that nobody waits for, one at a time: within the budget, with a deadline, and again after a flood wait."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from peik.archive_ports import Message
from peik.sessions.budget import Budget
from peik.sessions.client import Client, ClientError, Dialog, Trouble

REQUEST_S = 60.0

T = TypeVar("T")


class Asking:
    """`on_flood` is told each flood wait before it is waited for, `on_calm` when it is over."""

    def __init__(
        self,
        session_id: str,
        budget: Budget,
        *,
        on_flood: Callable[[ClientError], Awaitable[None]],
        on_calm: Callable[[], Awaitable[None]],
    ) -> None:
        self._session_id = session_id
        self._budget = budget
        self._on_flood = on_flood
        self._on_calm = on_calm
        self._is_flooded = budget.flooded_until(session_id) > budget.now()

    @property
    def calm_at(self) -> float | None:
        """When the flood wait that was told is over."""
        return self._budget.flooded_until(self._session_id) if self._is_flooded else None

    async def calm(self) -> None:
        """The wait is over, whether or not anybody asks for something."""
        if self._is_flooded and self._budget.flooded_until(self._session_id) <= self._budget.now():
            self._is_flooded = False
            await self._on_calm()

    async def dialogs(self, client: Client) -> list[Dialog]:
        return await self._answered(client.dialogs)

    async def history(
        self, client: Client, chat_id: int, access: bytes | None, *, below: int | None, above: int, limit: int
    ) -> list[Message]:
        return await self._answered(lambda: client.history(chat_id, access, below=below, above=above, limit=limit))

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Raises ClientError, but never FLOOD."""
        while True:
            await self._budget.turn(self._session_id)
            try:
                async with asyncio.timeout(REQUEST_S):
                    answer = await ask()
            except TimeoutError:
                raise ClientError(Trouble.OFFLINE, "Telegram does not answer.") from None
            except ClientError as error:
                if error.trouble is not Trouble.FLOOD:
                    raise
                self._budget.flooded(self._session_id, error.wait_s)
                self._is_flooded = True
                await self._on_flood(error)
                continue
            await self.calm()
            return answer
