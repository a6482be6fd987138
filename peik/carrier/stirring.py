"""Which connections have something to read that the loop has not read yet, asked of the kernel once for all of them.

One question each would be as many calls to the system, and with each of them the interpreter may go to another thread.
"""

import selectors
import time
from typing import Generic, TypeVar

T = TypeVar("T")

# A FIN is on its way for longer than this, and is not seen then by anybody who asks before each request either.
LOOK_S = 0.002


class Stirring(Generic[T]):
    """Knows its connections by their file numbers. What it says is as old as LOOK_S at most."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._numbers: dict[T, int] = {}
        self._found: frozenset[T] = frozenset()
        self._looked_at = float("-inf")

    def add(self, connection: T, number: int) -> None:
        self._selector.register(number, selectors.EVENT_READ, connection)
        self._numbers[connection] = number
        self.forget()

    def discard(self, connection: T) -> None:
        """Before its number is another's."""
        number = self._numbers.pop(connection, None)
        if number is not None:
            self._selector.unregister(number)

    def forget(self) -> None:
        """Something was read: what was found before that says nothing about who is idle only now."""
        self._looked_at = float("-inf")

    def __contains__(self, connection: T) -> bool:
        now = time.monotonic()
        if now - self._looked_at > LOOK_S:
            self._looked_at = now
            self._found = frozenset(key.data for key, _ in self._selector.select(0))
        return connection in self._found

    def close(self) -> None:
        self._selector.close()
