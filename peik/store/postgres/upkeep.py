"""What time does to letters in the PostgreSQL store: scheduled ones join, late ones expire, old ones go into the log.

Each looks twice: first for the bots that have something, then, under their locks, for what there is.
"""

from collections import defaultdict

import msgspec

from peik.core.letter import Letter, State
from peik.core.lifecycle import EXPIRED, Move, Try
from peik.ports import LetterView, Retention
from peik.store.postgres import people, reading
from peik.store.postgres.commit import Batch
from peik.store.postgres.queries import Query, load
from peik.store.postgres.session import Row
from peik.store.rows import PHASE_APART, PHASE_IN_LANE, PHASE_OF, TALLY_COLUMNS

_SQL = load("letters.sql")


async def park(batch: Batch, letter: Letter) -> None:
    """Set a letter apart, unless the one that it refers to has ended in the meantime."""
    await batch.lock([letter.bot_id])
    if await batch.session.run(_SQL["park"], letter=letter.id):
        batch.count(letter.bot_id, PHASE_IN_LANE, PHASE_APART)


async def join_due(batch: Batch, at_ms: int, limit: int) -> tuple[list[Letter], int | None]:
    """Scheduled letters whose time has come take the next numbers of their bots' orders."""
    per_bot: dict[int, list[int]] = defaultdict(list)
    for letter_id, bot_id in await _locked(batch, _SQL["due"], at=at_ms, limit=limit):
        per_bot[bot_id].append(letter_id)
    joined: list[Letter] = []
    if per_bot:
        numbered = await people.number_anew(batch, per_bot, leaves_apart=True)
        await batch.session.run(_SQL["join"], letters=list(numbered), numbers=list(numbered.values()))
        joined = await reading.letters_by_id(batch.session, list(numbered))
        for bot_id in per_bot:
            batch.telling.lanes(bot_id)
    return joined, await batch.session.number(_SQL["next_due"]) or None


async def expire(batch: Batch, at_ms: int, limit: int) -> tuple[list[LetterView], int | None]:
    """Letters that are too late and not in flight fail."""
    late = await _locked(batch, _SQL["expired"], at=at_ms, limit=limit)
    ids = [row["id"] for row in late]
    line = msgspec.json.encode(Try(at=at_ms, outcome=str(Move.EXPIRE), words=EXPIRED)).decode()
    views: list[LetterView] = []
    if ids:
        await batch.end_untried([(letter_id, PHASE_OF[State.FAILED], at_ms, EXPIRED, line) for letter_id in ids])
        views = await reading.views(batch.session, ids, at_ms)
        for bot_id in {row["bot_id"] for row in late}:
            batch.telling.lanes(bot_id)
    return views, await batch.session.number(_SQL["next_expiry"]) or None


async def clean(batch: Batch, retention: Retention, at_ms: int, limit: int) -> tuple[int, list[str]]:
    """Ended letters whose time is over leave a line in the message log; the log's own tail is cut."""
    old = await _locked(
        batch,
        _SQL["old_letters"],
        completed_before=at_ms - retention.completed_ms,
        dead_before=at_ms - retention.dead_ms,
        limit=limit,
    )
    ids = [row["id"] for row in old]
    blobs = [one["blob"] for row in old if row["enclosed"] for one in msgspec.json.decode(row["enclosed"])]
    if ids:
        for name in ("log_letters", "drop_results", "drop_letters"):
            await batch.session.run(_SQL[name], letters=ids)
        for row in old:
            batch.uncount(row["bot_id"], TALLY_COLUMNS[row["phase"]])
    cut = await batch.session.run(_SQL["clean_log"], before=at_ms - retention.log_ms, limit=limit)
    cut += await batch.session.run(_SQL["clean_keys"], at=at_ms, limit=limit)
    return len(ids) + cut, blobs


async def _locked(batch: Batch, query: Query, **bound: object) -> list[Row]:
    """What a query finds, with its bots locked. What it finds only then, of other bots, is left for the next time."""
    bots = {row["bot_id"] for row in await batch.session.rows(query, **bound)}
    if not bots:
        return []
    await batch.lock(bots)
    return [row for row in await batch.session.rows(query, **bound) if row["bot_id"] in bots]
