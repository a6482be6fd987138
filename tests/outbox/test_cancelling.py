"""A cancellation that a library swallows ends its task all the same."""

import asyncio
from contextlib import suppress

import pytest

from peik.wakeup import heeded, heeding


async def swallow(began: asyncio.Event) -> str:
    """As asyncio.wait_for of Python 3.11 does it when the answer and the cancellation come in one moment."""
    began.set()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)
    return "the answer"


async def cancelled(way: str) -> asyncio.Task[None]:
    began = asyncio.Event()

    async def loop() -> None:
        while True:
            if way == "heeding":
                await heeding(swallow(began))
            elif way == "heeded":
                with heeded():
                    await swallow(began)
            else:
                await swallow(began)

    task = asyncio.create_task(loop())
    await began.wait()
    task.cancel()
    await asyncio.wait([task], timeout=0.2)
    return task


@pytest.mark.parametrize("way", ["heeding", "heeded", "bare"])
def test_a_task_that_is_cancelled_ends(way: str) -> None:
    async def story() -> None:
        task = await cancelled(way)
        assert task.cancelled() is (way != "bare"), "without it, it goes on for ever"
        task.cancel()  # the bare one swallows this, too
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task], timeout=0.01)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(story())
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()


def test_a_timeout_that_is_swallowed_is_a_timeout() -> None:
    async def story() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await heeding(swallow(asyncio.Event()))
        assert await heeding(asyncio.sleep(0, "fine")) == "fine"

    asyncio.run(story())


def test_what_fails_after_a_swallowed_cancellation_does_not_hide_it() -> None:
    """A connection that breaks in the same moment: whoever tries again after a failure would never end."""

    async def break_off(began: asyncio.Event) -> None:
        await swallow(began)
        raise ConnectionError("gone")

    async def story() -> None:
        began = asyncio.Event()
        task = asyncio.ensure_future(heeding(break_off(began)))
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        with pytest.raises(ConnectionError):
            await heeding(fail())

    async def fail() -> None:
        raise ConnectionError("gone")

    asyncio.run(story())
