"""Sessions that are over leave, and the accounts that nobody is signed in as with them."""

from contextlib import suppress
from typing import Protocol

from peik.archive_ports import SessionFilter
from peik.errors import Conflict
from peik.sessions.registry import Registry


class Accounts(Protocol):
    """What is known of accounts as senders of letters."""

    async def add(self, user_id: int, username: str | None) -> None:
        """Letters may go out for it."""

    async def remove(self, user_id: int) -> None:
        """No letters go out for it any more. Raises Conflict while it has letters to send."""


async def remove_old_sessions(registry: Registry, accounts: Accounts, days: float, *, at_ms: int | None = None) -> int:
    """How many went. An account that still has letters to send stays: somebody has to say what becomes of them."""
    before = {one.session_id: one.user_id for one in await registry.all(SessionFilter())}
    count = await registry.cleanup_old_sessions(days, at_ms=at_ms)
    if count:
        left = await registry.all(SessionFilter())
        kept = {one.session_id for one in left}
        gone = {user_id for session_id, user_id in before.items() if session_id not in kept and user_id is not None}
        for user_id in gone - {one.user_id for one in left}:
            with suppress(Conflict):
                await accounts.remove(user_id)
    return count
