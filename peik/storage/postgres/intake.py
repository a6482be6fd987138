"""Updates on their way into the PostgreSQL store: those of all calls that share a commit, in a few bulk statements.

What a call is, where a bot's inbox stands while its calls are filed, and what makes a duplicate is the same in every store:
see `peik.storage.sqlite.intake`.
"""

from collections.abc import Iterable, Sequence

from peik.core.arrival import spans_of
from peik.core.letter import Chat
from peik.errors import NotFound
from peik.inbox.store import TakenIn
from peik.storage.consumers import id_at
from peik.storage.news import NodeNews
from peik.storage.postgres import consumers, queries
from peik.storage.postgres.queries import load
from peik.storage.postgres.session import PostgresSession
from peik.storage.rules import CLOCK_SLACK_MS
from peik.storage.sqlite.intake import (
    DUPLICATES_MS,
    InboxStanding,
    IntakeCall,
    digests_of,
    identity,
    is_handled,
    is_same,
    may_be_handled,
    row_of,
    state_of,
    updates_of,
)
from peik.storage.sqlite.statements import Row

_SQL = load("inbox.sql")


class PostgresIntake:
    """Collects calls; `flush` writes them. Their inboxes are locked since the transaction began."""

    def __init__(self, session: PostgresSession, telling: NodeNews) -> None:
        self._session = session
        self._telling = telling
        self._calls: list[IntakeCall] = []

    async def add(self, call: IntakeCall) -> None:
        if call.is_new_epoch:
            await self.flush()  # what came before belongs to the epoch before
        self._calls.append(call)

    async def flush(self) -> None:
        if not self._calls:
            return
        calls, self._calls = self._calls, []
        bots = sorted({call.bot_id for call in calls})
        found = await self._session.rows(_SQL["intake"], bots=bots)
        standings = {standing.bot_id: standing for standing in (InboxStanding(tuple(row)) for row in found)}
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
            rows.extend(await self._file(standing))
        if rows:
            await self._session.run(_SQL["take_in"], *zip(*map(_encoded, rows), strict=True))
            for standing in standings.values():
                if any(call.taken.stored for call in standing.calls):
                    self._telling.arrivals.add(standing.bot_id)
        states = [state_of(one) for one in standings.values()]
        await self._session.run(_SQL["taken_in"], *zip(*states, strict=True))
        for standing in standings.values():
            if standing.has_notes:
                await self._settle_handled(standing, rows)

    async def _file(self, standing: InboxStanding) -> list[Row]:
        """A row for each update that is new, with its number."""
        known = await self._known_ids(standing)
        digests = await self._known_digests(standing)
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
                    digests = await self._known_digests(standing) | digests_of(rows)
                known[update_id] = identity(update)
                if standing.next_number is None:
                    standing.next_number = await self._seed(standing.bot_id, update_id)
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

    async def _seed(self, bot_id: int, update_id: int) -> int:
        first = max(update_id, 1)
        await self._session.run(_SQL["seed"], bot=bot_id, before=first - 1)
        return first

    async def _known_ids(self, standing: InboxStanding) -> dict[int, Row]:
        """Which ids are here already, and what came under them. Usually none can be: they are above all that are."""
        newest = standing.newest
        if newest is None:
            return {}
        asked = [update.update_id for update in updates_of(standing) if update.update_id <= newest]
        if not asked:
            return {}
        found = await self._session.rows(_SQL["find_updates"], bot=standing.bot_id, epoch=standing.epoch, updates=asked)
        return {row[0]: (row[1], queries.decode(row[2]), row[3], row[4], row[5]) for row in found}

    async def _known_digests(self, standing: InboxStanding) -> set[tuple[Chat, bytes]]:
        """What came under an earlier epoch's ids in the last two days, in the lanes at hand."""
        since_ms = max(call.at_ms for call in standing.calls) - DUPLICATES_MS
        if standing.epoch == 1 or standing.epoch_at < since_ms:
            return set()
        found = await self._session.rows(
            _SQL["find_digests"],
            bot=standing.bot_id,
            lanes=sorted({queries.encode(update.lane) for update in updates_of(standing)}),
            first=await id_at(self._session, _SQL, since_ms - CLOCK_SLACK_MS),
            epoch=standing.epoch,
            since=since_ms,
        )
        return {(queries.decode(lane), digest) for lane, digest in found}

    async def _settle_handled(self, standing: InboxStanding, rows: Iterable[Row]) -> None:
        """What an MTProto client has handled before it came here is over for the default consumer."""
        messages = [row for row in rows if row[0] == standing.bot_id and may_be_handled(row)]
        found = await self._session.rows(
            _SQL["find_handled"],
            bot=standing.bot_id,
            chats=[row[5] for row in messages],
            messages=[row[7] for row in messages],
        )
        noted_at: dict[tuple[object, object], int] = {(chat, message_id): at for chat, message_id, at in found}
        over = [row[1] for row in messages if is_handled(row, noted_at.get((row[5], row[7])))]
        if over:
            at_ms = max(call.at_ms for call in standing.calls)
            spans = spans_of([one for one in over if isinstance(one, int)])
            await consumers.settle_default(self._session, standing.bot_id, spans, at_ms=at_ms)


def _encoded(row: Row) -> Sequence[object]:
    lane = row[5]
    assert isinstance(lane, int | str)
    return (*row[:4], queries.clean(str(row[4])), queries.clean(queries.encode(lane)), *row[6:])
