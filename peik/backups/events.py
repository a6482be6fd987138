"""What can be observed of backups that are made by the clock."""

from peik.core.events import Event


class BackupMade(Event, frozen=True, kw_only=True):
    path: str
    size_bytes: int


class BackupFailed(Event, frozen=True, kw_only=True):
    """It is tried again; the last one that was made stays."""

    what: str
    why: str
