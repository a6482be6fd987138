"""What time does to arrivals in the SQLite store: read ones go, unread ones go later and are counted, idle readers go.

An arrival goes when everybody has had it for long enough, not when it has been here for long enough. How far the readers
were at an earlier time is known from hourly checkpoints.
"""

from collections import Counter, defaultdict

import apsw

from peik.inbox_ports import ArrivalRetention, ArrivalsCleaned, Consumer
from peik.store import inbox_consumers
from peik.store.inbox_intake import DUPLICATES_MS
from peik.store.inbox_people import OVER_FOR
from peik.store.statements import Row, load, run_many

_SQL = load("sqlite_arrivals.sql")
OLD_ONES = _SQL["old_ones"].replace("{is_over}", OVER_FOR)

_NOTES_PER_CALL_MAX = 10_000  # they are small
_ALL = 0  # `only_for` of what is for everybody
_EVERY_ID = 2**63 - 1


def clean(connection: apsw.Connection, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned:
    expired = _drop_idle(connection, at_ms - retention.idle_ms, limit)
    read_before = at_ms - retention.read_ms
    connection.execute(_SQL["forget_checkpoints"], {"at": at_ms, "before": read_before})
    connection.execute(_SQL["checkpoint"], {"at": at_ms})
    connection.execute(_SQL["forget_handled"], (at_ms - retention.handled_ms, _NOTES_PER_CALL_MAX))
    broom = _Broom(connection, retention, at_ms, limit)
    for (bot_id,) in list(connection.execute(_SQL["inboxes"])):
        broom.sweep(bot_id)
    return ArrivalsCleaned(gone=limit - broom.left, unread=dict(broom.unread), expired=expired)


def _drop_idle(connection: apsw.Connection, before_ms: int, limit: int) -> tuple[Consumer, ...]:
    found = [row[0] for row in connection.execute(_SQL["idle_consumers"], (before_ms, limit))]
    idle = tuple(inbox_consumers.by_id(connection, consumer_id) for consumer_id in found)
    for consumer in idle:
        inbox_consumers.drop(connection, consumer.id)
    return idle


class _Broom:
    """One call of `clean`: what goes, bot by bot, until the limit is reached."""

    def __init__(self, connection: apsw.Connection, retention: ArrivalRetention, at_ms: int, limit: int) -> None:
        self._connection = connection
        self._at_ms = at_ms
        self.left = limit
        self.unread: Counter[int] = Counter()
        self._received_before = at_ms - max(retention.unread_ms, DUPLICATES_MS)
        self._died_since = at_ms - retention.unread_ms
        self._old_end = inbox_consumers.id_at(connection, self._received_before + inbox_consumers.CLOCK_SLACK_MS)
        # Duplicates are known by what is stored. A reader that had it two days ago got it two days ago, or earlier.
        is_brief = retention.read_ms < DUPLICATES_MS
        self._read_end = inbox_consumers.id_at(connection, at_ms - DUPLICATES_MS) if is_brief else _EVERY_ID
        self._floors: dict[int, dict[int, int | None]] = defaultdict(dict)
        for bot_id, consumer_id, floor in connection.execute(_SQL["floors"], {"before": at_ms - retention.read_ms}):
            self._floors[bot_id][consumer_id] = floor

    def sweep(self, bot_id: int) -> None:
        floors = self._floors[bot_id]
        known = [floor for floor in floors.values() if floor is not None]
        if len(known) == len(floors) > 0:
            self._drop_read(bot_id, _ALL, min(known))
        self._drop_old(bot_id, _ALL)
        for (owner,) in list(self._connection.execute(_SQL["replay_owners"], {"bot": bot_id})):
            # A replay whose reader is gone is seen by nobody: as if it had been read for ever.
            floor = floors.get(owner) if owner in floors else _EVERY_ID
            if floor is not None:
                self._drop_read(bot_id, owner, floor)
            self._drop_old(bot_id, owner)
        if bot_id in self.unread:
            for consumer_id in floors:
                inbox_consumers.settle(self._connection, consumer_id, over=(), deferred=(), dead=(), at_ms=self._at_ms)

    def _drop_read(self, bot_id: int, only_for: int, floor: int) -> None:
        bound = self._bound(bot_id, only_for) | {"floor": floor, "id_end": self._read_end}
        self._drop(bot_id, list(self._connection.execute(_SQL["read_ones"], bound)))

    def _drop_old(self, bot_id: int, only_for: int) -> None:
        bound = self._bound(bot_id, only_for) | {"received_before": self._received_before, "id_end": self._old_end}
        rows = list(self._connection.execute(OLD_ONES, bound))
        self._drop(bot_id, [row[:2] for row in rows])
        unread = sum(row[2] for row in rows)
        if unread:
            self.unread[bot_id] += unread

    def _bound(self, bot_id: int, only_for: int) -> dict[str, int]:
        return {"bot": bot_id, "only_for": only_for, "limit": self.left, "died_since": self._died_since}

    def _drop(self, bot_id: int, rows: list[tuple[int, int]]) -> None:
        ids: list[Row] = [(arrival_id,) for arrival_id, _ in rows]
        numbers: list[Row] = [(bot_id, number) for _, number in rows]
        run_many(self._connection, _SQL["drop_their_stories"], numbers)
        run_many(self._connection, _SQL["drop_arrivals"], ids)
        self.left -= len(rows)


def forget_bot(connection: apsw.Connection, bot_id: int) -> None:
    """Everything that a bot's inbox holds goes with the bot."""
    for consumer in inbox_consumers.consumers(connection, bot_id):
        inbox_consumers.drop(connection, consumer.id)
    for name in ("forget_bot_arrivals", "forget_bot_outages", "forget_bot_handled", "forget_bot_inbox"):
        connection.execute(_SQL[name], (bot_id,))
