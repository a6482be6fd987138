"""What callers may ask of toys."""

from peik.core.events import Events, ToyBroke


class ToyService:
    def __init__(self, *, count: int, events: Events) -> None:
        self.count = count
        self._events = events

    def break_one(self) -> int:
        """How many are left."""
        self.count -= 1
        self._events.tell(ToyBroke(left=self.count))
        return self.count
