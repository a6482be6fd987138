"""What can be observed of broadcasts."""

from peik.core.events import Event


class BroadcastMoved(Event, frozen=True, kw_only=True):
    """A broadcast came into another state."""

    broadcast_id: str
    state: str
    reason: str | None = None


class BroadcastAdvanced(Event, frozen=True, kw_only=True):
    """More of its recipients have been dealt with."""

    broadcast_id: str
    total: int
    done: int
