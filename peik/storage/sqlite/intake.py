"""Updates on their way into the SQLite store: those of all calls that share a commit, in a few bulk statements.

Thousands of webhook calls a second bring one update each, so what costs a step of SQLite is done once per commit and bot,
and not once per call.
"""

from collections.abc import Iterable, Sequence

import apsw

from peik.core.arrival import FORGOTTEN_LANE, Update, spans_of
from peik.core.letter import Chat
from peik.errors import NotFound
from peik.inbox.store import TakenIn
from peik.storage.rules import CLOCK_SLACK_MS
from peik.storage.sqlite import consumers
from peik.storage.sqlite import rows as inbox_rows
from peik.storage.sqlite.rows import number
from peik.storage.sqlite.statements import Row, load, run_many

_SQL = load("sqlite_inbox.sql")

DUPLICATES_MS = 48 * 3600 * 1000  # for so long the same payload under another epoch's id is the same update

# Updates that are a message, and so may have been handled over MTProto. A press or a reaction names a message as well.
_MESSAGES = frozenset({"message", "channel_post", "business_message", "guest_message"})
_EDITS = frozenset({"edited_message", "edited_channel_post", "edited_business_message"})


class IntakeCall:
    """The updates of one call; what became of them is known once the batch is flushed."""

    __slots__ = ("at_ms", "bot_id", "expired", "is_new_epoch", "last_update_id", "taken", "updates")

    def __init__(
        self,
        bot_id: int,
        updates: Sequence[Update],
        *,
        at_ms: int,
        last_update_id: int | None,
        is_new_epoch: bool,
        expired: int,
    ) -> None:
        self.bot_id = bot_id
        self.updates = updates
        self.at_ms = at_ms
        self.last_update_id = last_update_id
        self.is_new_epoch = is_new_epoch
        self.expired = expired
        self.taken = TakenIn(stored=0, duplicates=0, last_number=0, epoch=0)


class InboxStanding:
    """Where a bot's inbox stands while its calls are filed, one after the other."""

    def __init__(self, row: Row) -> None:
        self.bot_id = number(row[0])
        self.epoch = number(row[1])
        self.epoch_at = number(row[2])
        self.next_number = None if row[3] is None else number(row[3])
        self.newest = None if row[4] is None else number(row[4])  # the highest id of the epoch
        self.has_notes = bool(row[5])
        self.calls: list[IntakeCall] = []
        self.confirmed: int | None = None  # the last id of the last poll among the calls, if it is of this epoch

    def begin_epoch(self, at_ms: int) -> None:
        self.epoch += 1
        self.epoch_at = at_ms
        self.newest = None
        self.confirmed = None


class SqliteIntake:
    """Collects calls; `flush` writes them."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._calls: list[IntakeCall] = []

    def add(self, call: IntakeCall) -> None:
        if call.is_new_epoch:
            self.flush()  # what came before belongs to the epoch before
        self._calls.append(call)

    def flush(self) -> None:
        if not self._calls:
            return
        calls, self._calls = self._calls, []
        asked: dict[int, Row] = {call.bot_id: (call.bot_id,) for call in calls}
        found = run_many(self._connection, _SQL["intake"], list(asked.values()))
        standings = {standing.bot_id: standing for standing in map(InboxStanding, found)}
        for call in calls:
            standing = standings.get(call.bot_id)
            if standing is None:
                raise NotFound(
                    code="unknown_bot",
                    detail=f"Bot {call.bot_id} has no inbox here (any more). Add the bot with its token first.",
                )
            if call.is_new_epoch:
                standing.begin_epoch(call.at_ms)
            standing.calls.append(call)
        rows: list[Row] = []
        for standing in standings.values():
            rows.extend(self._file(standing))
        if rows:
            run_many(self._connection, _SQL["take_in"], rows)
        run_many(self._connection, _SQL["taken_in"], [state_of(one) for one in standings.values()])
        for standing in standings.values():
            if standing.has_notes:
                self._settle_handled(standing, rows)

    def _file(self, standing: InboxStanding) -> list[Row]:
        """A row for each update that is new, with its number."""
        known = self._known_ids(standing)
        digests = self._known_digests(standing)
        rows: list[Row] = []
        for call in standing.calls:
            before = len(rows)
            for update in call.updates:
                update_id = update.update_id
                if digests and (update.lane, update.digest) in digests:
                    continue
                if update_id in known:
                    if is_same(known[update_id], update):
                        continue
                    # Another update under an id that is here: Telegram's server has lost the end of its queue, and gives
                    # ids once more. Who is pushed to does not notice; taken for a duplicate, it would be lost.
                    standing.begin_epoch(call.at_ms)
                    known = {}
                    digests = self._known_digests(standing) | digests_of(rows)
                known[update_id] = identity(update)
                if standing.next_number is None:
                    standing.next_number = self._seed(standing.bot_id, update_id)
                rows.append(row_of(standing, update, call.at_ms))
                standing.next_number += 1
            if call.last_update_id is not None:
                standing.confirmed = call.last_update_id
            stored = len(rows) - before
            call.taken = TakenIn(
                stored=stored,
                duplicates=len(call.updates) - stored,
                last_number=(standing.next_number or 1) - 1,
                epoch=standing.epoch,
            )
        return rows

    def _seed(self, bot_id: int, update_id: int) -> int:
        first = max(update_id, 1)
        self._connection.execute(_SQL["seed"], {"bot": bot_id, "before": first - 1})
        return first

    def _known_ids(self, standing: InboxStanding) -> dict[int, Row]:
        """Which ids are here already, and what came under them. Usually none can be: they are above all that are."""
        newest = standing.newest
        if newest is None:
            return {}
        asked: list[Row] = [
            (standing.bot_id, standing.epoch, update.update_id)
            for update in updates_of(standing)
            if update.update_id <= newest
        ]
        found = run_many(self._connection, _SQL["find_updates"], asked)
        return {number(update_id): tuple(identity) for update_id, *identity in found}

    def _known_digests(self, standing: InboxStanding) -> set[tuple[Chat, bytes]]:
        """What came under an earlier epoch's ids in the last two days, in the lanes at hand."""
        at_ms = max(call.at_ms for call in standing.calls)
        since_ms = at_ms - DUPLICATES_MS
        if standing.epoch == 1 or standing.epoch_at < since_ms:
            return set()
        from_ms = since_ms - CLOCK_SLACK_MS
        place = inbox_rows.first_since(self._connection, standing.bot_id, from_ms, before_epoch=standing.epoch)
        if place is None:
            return set()
        lanes: dict[Chat, None] = {update.lane: None for update in updates_of(standing)}
        asked: list[Row] = [
            (standing.bot_id, stretch, lane, place.id, standing.epoch, since_ms)
            for stretch in place.stretches
            for lane in lanes
        ]
        found = run_many(self._connection, _SQL["find_digests"], asked)
        return {(_chat(lane), digest) for lane, digest in found if isinstance(digest, bytes)}

    def _settle_handled(self, standing: InboxStanding, rows: Iterable[Row]) -> None:
        """What an MTProto client has handled before it came here is over for the default consumer."""
        messages = [row for row in rows if row[0] == standing.bot_id and may_be_handled(row)]
        asked: list[Row] = [(standing.bot_id, row[5], row[7]) for row in messages]
        found = run_many(self._connection, _SQL["find_handled"], asked)
        noted_at = {(chat, message_id): number(at) for chat, message_id, at in found}
        over = [number(row[1]) for row in messages if is_handled(row, noted_at.get((row[5], row[7])))]
        if over:
            at_ms = max(call.at_ms for call in standing.calls)
            consumers.settle_default(self._connection, standing.bot_id, spans_of(over), at_ms=at_ms)


def updates_of(standing: InboxStanding) -> Iterable[Update]:
    return (update for call in standing.calls for update in call.updates)


def identity(update: Update) -> Row:
    """What stays the same however an update is written: where a page is fixed, its digests are not what they were."""
    return (update.type, update.lane, update.user_id, update.message_id, update.sent_at_ms)


def is_same(kept: Row, update: Update) -> bool:
    """Whether what is here under an id is this update. Of one whose person was forgotten, neither lane nor sender is known."""
    asked = identity(update)
    if kept[1] == FORGOTTEN_LANE:
        return (kept[0], *kept[3:]) == (asked[0], *asked[3:])
    return kept == asked


def digests_of(rows: Iterable[Row]) -> set[tuple[Chat, bytes]]:
    return {(_chat(row[5]), row[10]) for row in rows if isinstance(row[10], bytes)}


def row_of(standing: InboxStanding, update: Update, at_ms: int) -> Row:
    return (
        standing.bot_id,
        standing.next_number,
        standing.epoch,
        update.update_id,
        update.type,
        update.lane,
        update.user_id,
        update.message_id,
        update.sent_at_ms,
        at_ms,
        update.digest,
        update.payload,
    )


def state_of(standing: InboxStanding) -> Row:
    calls = standing.calls
    received = [call.at_ms for call in calls if call.updates]
    return (
        standing.bot_id,
        standing.epoch,
        standing.epoch_at,
        standing.next_number,
        standing.confirmed,
        calls[-1].at_ms,
        received[-1] if received else None,
        sum(call.expired for call in calls),
    )


def may_be_handled(row: Row) -> bool:
    return row[7] is not None and isinstance(row[5], int) and (row[4] in _MESSAGES or row[4] in _EDITS)


def is_handled(row: Row, noted_at: int | None) -> bool:
    """An edit that came after the note is news, even if the message itself was handled. Prefer twice to never."""
    if noted_at is None:
        return False
    return row[4] in _MESSAGES or row[8] is None or number(row[8]) <= noted_at


def _chat(value: object) -> Chat:
    return value if isinstance(value, int) else str(value)
