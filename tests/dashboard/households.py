"""The dashboard of a Peik that has more than a bot: accounts on a simulated Telegram, or jobs that it does itself."""

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from peik.app.dashboard import Dashboard
from peik.app.runtime import Runtime
from peik.gateway.app import Gateway
from tests.dashboard.visiting import KEY, Visit, listening
from tests.dashboard.visiting import House as Visited
from tests.web.accounts import House, house
from tests.web.working import Works, works


async def _nowhere(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("these stories are about the dashboard")


@contextlib.asynccontextmanager
async def visited(runtime: Runtime) -> AsyncIterator[Visit]:
    """A browser that is signed in with the admin key."""
    dashboard = Dashboard(runtime, KEY, _nowhere)
    async with listening(Gateway(runtime, dashboard)) as url:
        sim: Any = None  # there is none
        try:
            async with Visited(url, runtime, sim, dashboard, []).visitor() as browser:
                yield browser
        finally:
            dashboard.end()


def visit_accounts(
    folder: Path, story: Callable[[House, Visit], Coroutine[Any, Any, None]]
) -> Coroutine[Any, Any, None]:
    async def whole() -> None:
        async with house(folder) as built, visited(built.runtime) as browser:
            await story(built, browser)

    return whole()


def visit_works(folder: Path, story: Callable[[Works, Visit], Coroutine[Any, Any, None]]) -> Coroutine[Any, Any, None]:
    async def whole() -> None:
        async with works(folder) as built, visited(built.runtime) as browser:
            await story(built, browser)

    return whole()
