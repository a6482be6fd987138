"""What can be observed of the people who run Peik."""

from peik.core.events import Event


class ActionTaken(Event, frozen=True, kw_only=True):
    """Somebody did something to Peik, by whichever door: a line of the audit log."""

    who: str
    action: str
    target: str
    is_done: bool
