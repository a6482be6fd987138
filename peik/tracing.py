"""Which trace the code that runs now belongs to. Whoever hands an arrival on sets it; the desk reads it when letters come.

It is a context variable: tasks that a handler begins belong to the same trace, and handlers beside each other never mix.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[str | None] = ContextVar("peik_trace", default=None)


def current_trace() -> str | None:
    return _current.get()


@contextmanager
def under(trace: str | None) -> Iterator[None]:
    """What runs inside belongs to this trace; None: to none."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)
