"""Whether a source is in touch with Telegram. It tells when contact is lost, how long updates still keep, and when it is
back; it never tries anything itself.
"""

import msgspec

from peik.clock import Clock
from peik.core.gap import crossed, expires_at_ms, percent_left
from peik.events import Events, InboxNearExpiry, SourceBack, SourceFailed

TELL_AFTER = 2  # failures in a row: that one poll's connection is cut is everyday life


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a bot's updates come in, for people. `expires_at_ms`: when the oldest one that may wait at Telegram is lost."""

    source: str  # polling, webhook or off
    is_well: bool
    why: str | None = None  # it is not well
    seen_at_ms: int | None = None
    expires_at_ms: int | None = None


class Contact:
    def __init__(self, bot_id: int, source: str, *, clock: Clock, events: Events) -> None:
        self._bot_id = bot_id
        self._source = source
        self._clock = clock
        self._events = events
        self.seen_at_ms: int | None = None
        self._made_at: float | None = None  # by this process
        self.failures = 0  # in a row
        self._is_met = False
        self._why: str | None = None
        self._lost_at = 0.0
        self._is_told = False
        self._percent = 100  # left when last looked

    @property
    def is_well(self) -> bool:
        return self.failures == 0

    @property
    def lasts(self) -> bool:
        """Whether there is contact, and not just nothing against it: at a start nobody has answered yet."""
        return self._is_met and self.is_well

    @property
    def why(self) -> str | None:
        return self._why

    def status(self) -> SourceStatus:
        return SourceStatus(
            source=self._source,
            is_well=self.is_well,
            why=self._why,
            seen_at_ms=self.seen_at_ms,
            expires_at_ms=None if self.seen_at_ms is None else expires_at_ms(self.seen_at_ms),
        )

    def begin(self, seen_at_ms: int | None) -> None:
        """The last contact that is known of, by whichever process."""
        self.seen_at_ms = seen_at_ms

    def away_ms(self) -> int | None:
        """How long ago the last contact was. None: never. A clock that is set makes no absence longer than it was."""
        if self.seen_at_ms is None:
            return None
        if self._made_at is not None:
            return int((self._clock.steady() - self._made_at) * 1000)
        return max(0, self._clock.wall_ms() - self.seen_at_ms)

    def made(self) -> None:
        if self._is_told:
            away_s = self._clock.mono() - self._lost_at
            self._events.tell(SourceBack(bot_id=self._bot_id, source=self._source, away_s=away_s))
        self.seen_at_ms = self._clock.wall_ms()
        self._made_at = self._clock.steady()
        self._is_met = True
        self.failures = 0
        self._why = None
        self._is_told = False
        self._percent = 100

    def lost(self, why: str, *, wait_s: float, is_certain: bool = False) -> None:
        """A try failed, and the next one is made after `wait_s`. `is_certain`: it will fail again, unless somebody acts."""
        if not self.failures:
            self._lost_at = self._clock.mono()
        self.failures += 1
        self._why = why
        if not self._is_told and (is_certain or self.failures >= TELL_AFTER):
            self._is_told = True
            self._events.tell(SourceFailed(bot_id=self._bot_id, source=self._source, why=why, wait_s=wait_s))
        self._look()

    def _look(self) -> None:
        if self.seen_at_ms is None:
            return
        away_ms = self.away_ms() or 0
        left = percent_left(contact_at_ms=self.seen_at_ms, now_ms=self.seen_at_ms + away_ms)
        if crossed(before=self._percent, now=left) is not None:
            self._events.tell(
                InboxNearExpiry(bot_id=self._bot_id, percent_left=left, expires_at_ms=expires_at_ms(self.seen_at_ms))
            )
        self._percent = min(self._percent, left)
