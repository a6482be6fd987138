"""Arrivals for functions in this process: each gets its time, and what it raises becomes the arrival's history."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable

from peik.core.arrival import Arrival
from peik.core.token import without_tokens
from peik.core.trace import trace_of
from peik.errors import StoreUnavailable
from peik.inbox.delivery import Away, Done, Failed, Patience, Verdict
from peik.tracing import under

BACKOFF_MS = 2000
TRACE_CHARS_MAX = 4000  # the end of it, which is where the error is

Handle = Callable[[Arrival, int], Awaitable[None]]  # the arrival, and how many tries have failed


def patience_of(attempts: int) -> Patience:
    return Patience(attempts=attempts, first_ms=BACKOFF_MS)


class Absent(Exception):
    """What a `Handle` raises if there is nobody to hand on to just now. No try is used up."""


class InProcess:
    """A taker of arrivals."""

    def __init__(self, handle: Handle, *, timeout_s: float) -> None:
        self._handle = handle
        self._timeout_s = timeout_s

    async def deliver(self, arrival: Arrival, *, tries: int) -> Verdict:
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                with under(trace_of(arrival.bot_id, arrival.number)):
                    await self._handle(arrival, tries)
        except StoreUnavailable as error:
            return Away(why=error.detail)  # it is ours to mend, and no fault of the arrival
        except Absent as error:
            return Away(why=str(error))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return _failed(error, "it was cancelled from within")
        except TimeoutError as error:
            return _failed(error, f"no end within {self._timeout_s:g} s" if limit.expired() else None)
        except Exception as error:  # noqa: BLE001  whatever a handler raises is its own
            return _failed(error, None)
        return Done()


def _failed(error: BaseException, words: str | None) -> Failed:
    text = "".join(traceback.format_exception(error))
    return Failed(
        words=without_tokens(words or f"{type(error).__name__}: {error}".removesuffix(": ")),
        trace=without_tokens(text)[-TRACE_CHARS_MAX:],
    )
