"""How often accounts ask Telegram for what nobody waits for: so many requests a minute for each, and for all together.

Telegram blames the address as well as the account: four accounts of one address that asked in the same second earned one of
them a ban of hours. So all share one order, and when several are told to wait at once, all wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from peik.accounts.client import AccountClient, ClientError, Dialog, MemberPage, Trouble
from peik.archive.store import Message
from peik.clock import Clock

PER_ACCOUNT_A_MINUTE = 20.0  # no figure is known for accounts; a person who scrolls asks about as often
IN_ALL_A_MINUTE = 120.0
CROWD = 3  # so many accounts in a flood wait at once point at what they share


class Budget:
    """Of one process."""

    def __init__(
        self, clock: Clock, *, per_account: float = PER_ACCOUNT_A_MINUTE, in_all: float = IN_ALL_A_MINUTE
    ) -> None:
        self._clock = clock
        self._account_s = 60.0 / per_account
        self._all_s = 60.0 / in_all
        self._free_at: dict[str, float] = {}
        self._all_free_at = float("-inf")
        self._connect_free_at = float("-inf")
        self._flooded_until: dict[str, float] = {}

    def now(self) -> float:
        return self._clock.mono()

    async def turn(self, session_id: str) -> None:
        """Returns when this account may make one request."""
        while (wait_s := self.ready_at(session_id) - self._clock.mono()) > 0:  # noqa: ASYNC110  it may grow meanwhile
            await asyncio.sleep(wait_s)
        now = self._clock.mono()
        self._free_at[session_id] = now + self._account_s
        self._all_free_at = now + self._all_s

    async def connect_turn(self) -> None:
        """Returns when one account may connect, or take a step of its sign-in. Only the pace of all connects counts, and it goes
        before what is asked: hundreds of crawls, which all wait for the next moment, would keep it waiting for minutes."""
        now = self._clock.mono()
        at = max(now, self._connect_free_at)
        self._connect_free_at = at + self._all_s
        self._all_free_at = max(self._all_free_at, at) + self._all_s
        await asyncio.sleep(at - now)

    def ready_at(self, session_id: str) -> float:
        own = max(self._free_at.get(session_id, float("-inf")), self.flooded_until(session_id))
        return max(own, self._all_free_at, self._crowd_until())

    def flooded(self, session_id: str, wait_s: float) -> None:
        until = self._clock.mono() + wait_s
        self._flooded_until[session_id] = max(until, self.flooded_until(session_id))

    def flooded_until(self, session_id: str) -> float:
        return self._flooded_until.get(session_id, float("-inf"))

    def forget(self, session_id: str) -> None:
        """It does not run here any more. A flood wait is remembered until it is over."""
        self._free_at.pop(session_id, None)
        if self.flooded_until(session_id) <= self._clock.mono():
            self._flooded_until.pop(session_id, None)

    def _crowd_until(self) -> float:
        """While CROWD of them wait: until fewer do."""
        now = self._clock.mono()
        waits = sorted((until for until in self._flooded_until.values() if until > now), reverse=True)
        return waits[CROWD - 1] if len(waits) >= CROWD else float("-inf")


# Requests that nobody waits for, one at a time: within the budget, with a deadline, and again after a flood wait.


REQUEST_S = 60.0
DIALOGS_MAX = 10_000  # chats
FILE_S = 1800.0
ONCE_S = 20.0  # so long somebody is kept waiting for the account's turn

T = TypeVar("T")


class PatientRequests:
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

    async def dialogs(self, client: AccountClient) -> list[Dialog]:
        """All of them, each page in the account's turn."""
        found: dict[int, Dialog] = {}
        following: bytes | None = None
        while len(found) < DIALOGS_MAX:
            page = await self._answered(partial(client.dialogs, following))
            new = [one for one in page.dialogs if one.chat_id not in found]
            found |= {one.chat_id: one for one in new}
            following = page.following
            if following is None or not new:
                break
        return list(found.values())

    async def history(
        self, client: AccountClient, chat_id: int, access: bytes | None, *, below: int | None, above: int, limit: int
    ) -> list[Message]:
        return await self._answered(lambda: client.history(chat_id, access, below=below, above=above, limit=limit))

    async def members(
        self, client: AccountClient, chat_id: int, access: bytes | None, *, offset: int, limit: int
    ) -> MemberPage:
        return await self._answered(lambda: client.members(chat_id, access, offset=offset, limit=limit))

    async def file(self, ask: Callable[[], Awaitable[T]]) -> T:
        """A whole file, as one request; after a flood wait `ask` is called again, and goes on where it was."""
        return await self._answered(ask, within_s=FILE_S)

    async def once(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What somebody waits for: within the budget, and not again after a flood wait, which is told. Raises ClientError."""
        wait_s = self._budget.ready_at(self._session_id) - self._budget.now()
        if wait_s > ONCE_S:
            raise ClientError(Trouble.FLOOD, f"This account may ask again in {wait_s:.0f} s.", wait_s=wait_s)
        await self._budget.turn(self._session_id)
        try:
            async with asyncio.timeout(REQUEST_S):
                return await ask()
        except TimeoutError:
            raise ClientError(Trouble.OFFLINE, "Telegram does not answer.") from None
        except ClientError as error:
            if error.trouble is Trouble.FLOOD:
                self._budget.flooded(self._session_id, error.wait_s)
                self._is_flooded = True
                await self._on_flood(error)
            raise

    async def _answered(self, ask: Callable[[], Awaitable[T]], *, within_s: float = REQUEST_S) -> T:
        """Raises ClientError, but never FLOOD."""
        while True:
            await self._budget.turn(self._session_id)
            try:
                async with asyncio.timeout(within_s):
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
