"""What can be observed of notifications and of the links they go by."""

from peik.core.events import Event
from peik.core.letter import Chat


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
