"""The two ways into the library with a simulated Telegram of accounts behind it, for stories that are told the same on both."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from peik import AccountSession, Peik
from peik.clock import SystemClock
from peik.testing.accounts import Accounts, Person, peik_with
from tests.patience import PATIENCE_S
from tests.web.accounts import KEY, NOWHERE, house, until

Story = Callable[[Peik, Accounts], Coroutine[Any, Any, None]]
both = pytest.mark.parametrize("way", ["open", "connect"])


def play(way: str, folder: Path, story: Story, **settings: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), entered(way, folder, **settings) as (peik, telegram):
            await story(peik, telegram)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def entered(way: str, folder: Path, **settings: str) -> AsyncIterator[tuple[Peik, Accounts]]:
    if way == "open":
        telegram = Accounts(SystemClock(), seed=1)
        async with opened(folder, telegram, **settings) as peik:
            yield peik, telegram
        return
    async with house(folder, **settings) as built, Peik.connect(built.url, key=KEY) as peik:
        yield peik, built.telegram


def opened(folder: Path, telegram: Accounts, **settings: str) -> Peik:
    """As `Peik.open` does it, but for the connections of accounts."""
    return peik_with(telegram, f"sqlite:///{folder}/peik.db", **{"api_root": NOWHERE, "grace": "1s", **settings})


async def signed_in(
    peik: Peik, telegram: Accounts, person: Person, session_id: str, *, agent_id: str = "a"
) -> AccountSession:
    """A session that this person is signed in to, and that runs."""
    await peik.create_session(agent_id, phone=person.phone, session_id=session_id)
    await peik.send_code(session_id)
    await peik.give_code(session_id, telegram.code_of(person.phone))
    return await connected(peik, session_id)


async def connected(peik: Peik, session_id: str, *, is_connected: bool = True) -> AccountSession:
    async def look() -> AccountSession | None:
        found = await peik.get_session_by_id(session_id)
        return found if found is not None and found.is_connected is is_connected else None

    return await until(look)


async def counted(peik: Peik, count: int, **which: Any) -> None:
    """Until there are so many messages."""

    async def look() -> bool:
        return await peik.count_messages(**which) >= count

    await until(look)


async def some(lines: AsyncIterator[Any], count: int) -> list[Any]:
    """The next ones; the last is not confirmed, since nobody asks for one behind it."""
    return [await anext(lines) for _ in range(count)]
