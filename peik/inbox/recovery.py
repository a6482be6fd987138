"""One pass over everything that Telegram has kept for a bot: what it counts, and who is told that it is over."""

from peik.clock import Clock
from peik.core.gap import is_over_a_day
from peik.events import Events, InboxRecovered, OfflineTooLong
from peik.inbox.desk import Recovery
from peik.inbox_ports import TakenIn


class Pass:
    """Counts from the first page to the empty one. `away_ms` is how long nobody had asked before; None: it is not known."""

    def __init__(self, bot_id: int, *, away_ms: int | None, clock: Clock) -> None:
        self._bot_id = bot_id
        self._away_ms = away_ms
        self._clock = clock
        self._began_at = clock.mono()
        self._found = 0
        self._stored = 0
        self._expired = 0
        self._is_clear = True

    def add(self, taken: TakenIn, *, found: int, expired: int, is_clear: bool) -> None:
        self._found += found
        self._stored += taken.stored
        self._expired += expired
        self._is_clear = self._is_clear and is_clear

    def report(self) -> Recovery:
        return Recovery(
            bot_id=self._bot_id,
            found=self._found,
            stored=self._stored,
            duplicates=self._found - self._stored,
            expired=self._expired if self._is_clear else None,
            took_s=self._clock.mono() - self._began_at,
        )

    def tell(self, events: Events) -> None:
        report = self.report()
        away_s = None if self._away_ms is None else self._away_ms / 1000
        if self._away_ms is not None and away_s is not None and is_over_a_day(self._away_ms):
            events.tell(OfflineTooLong(bot_id=self._bot_id, away_s=away_s, expired=report.expired))
        events.tell(
            InboxRecovered(
                bot_id=self._bot_id,
                found=report.found,
                stored=report.stored,
                duplicates=report.duplicates,
                expired=report.expired,
                took_s=report.took_s,
                away_s=away_s,
            )
        )
