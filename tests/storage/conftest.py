"""Stories about stores are coroutines: each runs to its end on a loop of its own, and nothing surprising may be left behind."""

import asyncio
import gc
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.storage.all_places import HAS_SERVERS

if not HAS_SERVERS:
    alone = ("test_nodes.py", "test_news.py", "test_files.py")
    collect_ignore = ["postgres", "redis", *(f"conformance/{name}" for name in alone)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    _run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


def _run(story: Coroutine[Any, Any, None]) -> None:
    surprises: list[dict[str, Any]] = []

    async def guarded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: surprises.append(context))
        async with asyncio.timeout(PATIENCE_S):
            await story

    asyncio.run(guarded())
    gc.collect()  # a future that nobody asked for its error complains now
    assert surprises == []
