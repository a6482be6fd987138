"""A cancellation that somebody below has swallowed is raised all the same.

`asyncio.wait_for` of Python 3.11 returns its result instead if that came in the same moment (mended in 3.12), and the clients
of Redis and MongoDB use it around every read. Without this, about one in twenty ends of a node waits for ever for a task that
does not know that it should end.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def heeded() -> Iterator[None]:
    """Around whatever may swallow one."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from error  # what failed after that is nobody's trouble
        raise
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


async def heeding(answer: Awaitable[T]) -> T:
    with heeded():
        return await answer
