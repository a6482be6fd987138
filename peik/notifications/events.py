"""What can be observed of broadcasts, notifications and the people who run Peik."""

from peik.core.events import Event
from peik.core.letter import Chat


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


class Notified(Event, frozen=True, kw_only=True):
    """A notification was accepted. `letter_id` None: it waits for a digest, or for the end of quiet hours."""

    notification_id: str
    user_id: str
    type: str
    letter_id: int | None


class UserLinked(Event, frozen=True, kw_only=True):
    user_id: str
    chat: Chat


class UserUnlinked(Event, frozen=True, kw_only=True):
    user_id: str
    chat: Chat
    why: str


class LinkRefused(Event, frozen=True, kw_only=True):
    """Somebody showed a code that is wrong, used up or too old."""

    chat: Chat
    why: str


class ActionTaken(Event, frozen=True, kw_only=True):
    """Somebody did something to Peik, by whichever door: a line of the audit log."""

    who: str
    action: str
    target: str
    is_done: bool
