"""Waiting for the end of a program: a signal, or something that ends by itself. It ends nothing."""

import asyncio
import contextlib
import signal
from collections.abc import Iterable

SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def until_stopped(others: Iterable[asyncio.Future[None]] = ()) -> None:
    """Until SIGINT or SIGTERM comes, or one of the others is done. A second signal ends the process as it always did."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)

    taken = []
    for number in SIGNALS:
        with contextlib.suppress(
            NotImplementedError, RuntimeError, ValueError
        ):  # not the main thread, or no such thing
            loop.add_signal_handler(number, stop)
            taken.append(number)
    try:
        await asyncio.wait([stopped, *others], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        for number in taken:
            loop.remove_signal_handler(number)
