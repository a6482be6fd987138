"""What people do to letters in the PostgreSQL store: cancel, retry, resolve, clear; lanes and chats. Lists are in `search`."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from peik.core.letter import Chat, LaneKey, Letter, State
from peik.core.lifecycle import EXPIRED
from peik.outbox.store import BotRecord, ChatRecord, LaneView, LetterFilter, LetterView, Retention, Stub
from peik.secrets.seals import Seals
from peik.storage import rules
from peik.storage.documents import forget_bot
from peik.storage.inbox import forget_inbox
from peik.storage.postgres import commit, queries, reads
from peik.storage.postgres.commit import PostgresBatch
from peik.storage.postgres.documents import CONTACTS
from peik.storage.postgres.inbox import PostgresInbox
from peik.storage.postgres.queries import NamedQuery, filled, load
from peik.storage.postgres.session import PostgresSession
from peik.storage.rules import (
    Changed,
    ChangePlan,
    changed,
    line_of,
    must_be_as_seen,
    must_be_changeable,
    must_be_open,
    must_be_untried,
    planned,
    revised_line,
)
from peik.storage.sql import Row
from peik.storage.sqlite.rows import PHASE_APART, PHASE_IN_LANE, PHASE_OF, TALLY_COLUMNS, row_of_bot

_SQL = load("people.sql")
_LETTERS = load("letters.sql")


async def cancel(batch: PostgresBatch, letter_id: int, at_ms: int, *, is_untried: bool) -> Stub:
    """Take a letter back. Raises Conflict if it is in flight or has ended."""
    view = await locked_view(batch, letter_id, at_ms)
    (must_be_untried if is_untried else must_be_open)(view)
    phase = await batch.session.number(_LETTERS["phase_of"], letter=letter_id)
    await batch.session.run(_SQL["cancel"], letter=letter_id, at=at_ms)
    batch.count(view.bot_id, phase, PHASE_OF[State.CANCELLED])
    batch.telling.lanes.add(view.bot_id)
    batch.telling.ended(view.bot_id, [letter_id])
    await batch.free_blobs([letter_id])
    await batch.release([letter_id])
    return Stub(letter_id=letter_id, bot_id=view.bot_id, lane=(view.chat, view.thread))


async def retry(batch: PostgresBatch, letter_id: int, at_ms: int) -> list[Letter]:
    """Send a dead letter again. Raises Conflict if it is not dead."""
    view = await locked_view(batch, letter_id, at_ms)
    rules.must_be_dead(view)
    return await _revive(batch, [(letter_id, view.bot_id)], at_ms)


async def resolve(batch: PostgresBatch, letter_id: int, at_ms: int, *, arrived: bool) -> list[Letter]:
    """What a person saw of an uncertain letter: it arrived, or it is to be sent again."""
    view = await locked_view(batch, letter_id, at_ms)
    rules.must_be_uncertain(view)
    if not arrived:
        return await _revive(batch, [(letter_id, view.bot_id)], at_ms)
    line = rules.arrived_line(at_ms)
    await batch.session.run(_SQL["resolve"], letter=letter_id, at=at_ms, line=line)
    batch.count(view.bot_id, PHASE_OF[State.FAILED], PHASE_OF[State.COMPLETED])
    batch.telling.ended(view.bot_id, [letter_id])
    await batch.free_blobs([letter_id])
    return []


async def retry_dead(batch: PostgresBatch, wanted: LetterFilter, at_ms: int, limit: int) -> list[Letter]:
    return await _revive(batch, await _dead(batch, wanted, at_ms, limit), at_ms)


async def clear_dead(batch: PostgresBatch, wanted: LetterFilter, at_ms: int, limit: int) -> int:
    """Dead letters go into the message log, their files are freed."""
    found = await _dead(batch, wanted, at_ms, limit)
    ids = [letter_id for letter_id, _ in found]
    if ids:
        await batch.free_blobs(ids)
        for name in ("log_letters", "drop_results", "drop_letters"):
            await batch.session.run(_LETTERS[name], letters=ids)
        for _, bot_id in found:
            batch.uncount(bot_id, TALLY_COLUMNS[PHASE_OF[State.FAILED]])
    return len(ids)


async def _dead(batch: PostgresBatch, wanted: LetterFilter, at_ms: int, limit: int) -> list[tuple[int, int]]:
    """Looked for twice: only what is still dead under its bot's lock counts."""
    where, bound = rules.where(wanted, at_ms, reads.DIALECT)
    query = filled(_SQL["find_dead"], where=where)
    bots = {row[1] for row in await batch.session.rows(query, **bound, limit=limit)}
    await batch.lock(bots)
    rows = await batch.session.rows(query, **bound, limit=limit)
    return [(row[0], row[1]) for row in rows if row[1] in bots]


async def _revive(batch: PostgresBatch, dead: Sequence[tuple[int, int]], at_ms: int) -> list[Letter]:
    per_bot: dict[int, list[int]] = defaultdict(list)
    for letter_id, bot_id in dead:
        per_bot[bot_id].append(letter_id)
    if not per_bot:
        return []
    numbered = await number_anew(batch, per_bot)
    for bot_id, letter_ids in per_bot.items():
        batch.count(bot_id, PHASE_OF[State.FAILED], PHASE_IN_LANE, len(letter_ids))
        batch.telling.lanes.add(bot_id)
    line = rules.retry_line(at_ms)
    await batch.session.run(_SQL["revive"], letters=list(numbered), numbers=list(numbered.values()), line=line)
    return await reads.letters_by_id(batch.session, list(numbered))


async def number_anew(
    batch: PostgresBatch, per_bot: dict[int, list[int]], *, leaves_apart: bool = False
) -> dict[int, int]:
    """The next numbers of their bots' orders for these letters; with `leaves_apart` they are counted as joining."""
    bots = sorted(per_bot)
    taken = [len(per_bot[bot_id]) for bot_id in bots]
    joining = taken if leaves_apart else [0] * len(bots)
    after = await commit.numbers(batch.session, bots, taken, in_lane=joining, apart=[-one for one in joining])
    return {
        letter_id: number
        for bot_id in bots
        for number, letter_id in enumerate(per_bot[bot_id], start=after[bot_id] - len(per_bot[bot_id]))
    }


async def lanes(session: PostgresSession, bot_id: int, chat: Chat | None, *, limit: int, most: int) -> list[LaneView]:
    encoded = None if chat is None else queries.encode(chat)
    rows = await session.rows(_SQL["lanes"], bot=bot_id, chat=encoded, limit=limit, most=most)
    return [
        LaneView(bot_id=bot_id, chat=queries.decode(row[0]), thread=row[1], head=row[2], waiting=row[3]) for row in rows
    ]


async def head_of(session: PostgresSession, bot_id: int, lane: LaneKey) -> int | None:
    return await session.number(_SQL["ahead"], bot=bot_id, chat=queries.encode(lane[0]), thread=lane[1]) or None


async def known_chats(session: PostgresSession, bot_id: int, after: Chat | None, limit: int) -> list[ChatRecord]:
    encoded = "" if after is None else queries.encode(after)
    rows = await session.rows(_SQL["known_chats"], bot=bot_id, after=encoded, limit=limit)
    return [reads.chat_of(bot_id, row) for row in rows]


async def locked_view(batch: PostgresBatch, letter_id: int, at_ms: int) -> LetterView:
    await batch.lock([await batch.session.number(_LETTERS["bot_of_letter"], letter=letter_id)])
    return rules.must_be_known(await reads.view(batch.session, letter_id, at_ms), letter_id)


# What people change of letters that still wait in the PostgreSQL store: take many back, give one another priority or
# time.


async def cancel_many(batch: PostgresBatch, letter_ids: Sequence[int], at_ms: int) -> list[LetterView]:
    """Take back those of these letters that still wait and are not in flight. Which they were."""
    await batch.lock(row[0] for row in await batch.session.rows(_SQL["bots_of"], letters=letter_ids))
    rows = await batch.session.returned(_SQL["cancel_many"], letters=letter_ids, at=at_ms)
    ended = [row[0] for row in rows]
    if not ended:
        return []
    for (bot_id, phase), letters in Counter((row[1], row[2]) for row in rows).items():
        batch.count(bot_id, phase, PHASE_OF[State.CANCELLED], letters)
    for bot_id in sorted({row[1] for row in rows}):
        batch.telling.lanes.add(bot_id)
        batch.telling.ended(bot_id, [row[0] for row in rows if row[1] == bot_id])
    await batch.free_blobs(ended)
    await batch.release(ended)
    return await reads.sorted_views(batch.session, ended, at_ms)


async def change(
    batch: PostgresBatch, letter_id: int, *, rank: int | None, due_at_ms: int | None, at_ms: int
) -> Changed:
    """Raises NotFound, or Conflict if the letter is in flight or has ended."""
    view = await locked_view(batch, letter_id, at_ms)
    must_be_changeable(view)
    phase = await batch.session.number(_LETTERS["phase_of"], letter=letter_id)
    plan = planned(phase=phase, was_due_at_ms=view.due_at_ms, due_at_ms=due_at_ms, at_ms=at_ms)
    number = (await number_anew(batch, {view.bot_id: [letter_id]}))[letter_id] if plan.joins else None
    await batch.session.run(
        _SQL["change"],
        letter=letter_id,
        bot=view.bot_id,
        chat=queries.encode(view.chat),
        rank=rank,
        phase=plan.phase,
        due_at=plan.due_at_ms,
        number=number,
        line=line_of(rank=rank, due_at_ms=due_at_ms, at_ms=at_ms),
    )
    batch.count(view.bot_id, phase, plan.phase)
    batch.telling.lanes.add(view.bot_id)
    batch.telling.due(due_at_ms or None)
    came = (await reads.letters_by_id(batch.session, [letter_id]))[0] if plan.joins else None
    return changed(view, plan, phase=phase, came=came)


async def revise(batch: PostgresBatch, letter_id: int, *, params: str, seen: int, at_ms: int) -> Changed:
    """Raises NotFound, or Conflict if the letter is not as it was seen, or was tried."""
    view = await locked_view(batch, letter_id, at_ms)
    must_be_as_seen(view, seen)
    await batch.session.run(_SQL["revise"], letter=letter_id, params=params, line=revised_line(at_ms))
    batch.telling.lanes.add(view.bot_id)
    phase = await batch.session.number(_LETTERS["phase_of"], letter=letter_id)
    return changed(view, ChangePlan(phase=phase, due_at_ms=view.due_at_ms), phase=phase)


# What time does to letters in the PostgreSQL store: scheduled ones join, late ones expire, old ones go into the log.
#
# Each looks twice: first for the bots that have something, then, under their locks, for what there is.


async def park(batch: PostgresBatch, letter: Letter) -> None:
    """Set a letter apart, unless the one that it refers to has ended meanwhile."""
    await batch.lock([letter.bot_id])
    if await batch.session.run(_LETTERS["park"], letter=letter.id, awaits=letter.awaits):
        batch.count(letter.bot_id, PHASE_IN_LANE, PHASE_APART)


async def join_due(batch: PostgresBatch, at_ms: int, limit: int) -> tuple[list[Letter], int | None]:
    """Scheduled letters whose time has come take the next numbers of their bots' orders."""
    per_bot: dict[int, list[int]] = defaultdict(list)
    for letter_id, bot_id in await _locked(batch, _LETTERS["due"], at=at_ms, limit=limit):
        per_bot[bot_id].append(letter_id)
    joined: list[Letter] = []
    if per_bot:
        numbered = await number_anew(batch, per_bot, leaves_apart=True)
        await batch.session.run(_LETTERS["join"], letters=list(numbered), numbers=list(numbered.values()))
        joined = await reads.letters_by_id(batch.session, list(numbered))
        for bot_id in per_bot:
            batch.telling.lanes.add(bot_id)
    return joined, await batch.session.number(_LETTERS["next_due"]) or None


async def expire(batch: PostgresBatch, at_ms: int, limit: int) -> tuple[list[LetterView], int | None]:
    """Letters that are too late and not in flight fail."""
    late = await _locked(batch, _LETTERS["expired"], at=at_ms, limit=limit)
    ids = [row["id"] for row in late]
    line = rules.expiry_line(at_ms)
    views: list[LetterView] = []
    if ids:
        await batch.end_untried([(letter_id, PHASE_OF[State.FAILED], at_ms, EXPIRED, line) for letter_id in ids])
        views = await reads.views(batch.session, ids, at_ms)
        for bot_id in {row["bot_id"] for row in late}:
            batch.telling.lanes.add(bot_id)
    return views, await batch.session.number(_LETTERS["next_expiry"]) or None


async def clean(batch: PostgresBatch, retention: Retention, at_ms: int, limit: int) -> tuple[int, list[str]]:
    """Ended letters whose time is over leave a line in the message log; the log's own tail is cut."""
    old = await _locked(
        batch,
        _LETTERS["old_letters"],
        completed_before=at_ms - retention.completed_ms,
        dead_before=at_ms - retention.dead_ms,
        limit=limit,
    )
    ids = [row["id"] for row in old]
    blobs = [one["blob"] for row in old if row["enclosed"] for one in msgspec.json.decode(row["enclosed"])]
    if ids:
        for name in ("log_letters", "drop_results", "drop_letters"):
            await batch.session.run(_LETTERS[name], letters=ids)
        for row in old:
            batch.uncount(row["bot_id"], TALLY_COLUMNS[row["phase"]])
    cut = await batch.session.run(_LETTERS["clean_log"], before=at_ms - retention.log_ms, limit=limit)
    cut += await batch.session.run(_LETTERS["clean_keys"], at=at_ms, limit=limit)
    return len(ids) + cut, blobs


async def _locked(batch: PostgresBatch, query: NamedQuery, **bound: object) -> list[Row]:
    """What a query finds, with its bots locked. What it finds only then, of other bots, is left for the next time."""
    bots = {row["bot_id"] for row in await batch.session.rows(query, **bound)}
    if not bots:
        return []
    await batch.lock(bots)
    return [row for row in await batch.session.rows(query, **bound) if row["bot_id"] in bots]


# Bots and their chats in the next commit: saved, removed, shut, held, moved.


async def save(batch: PostgresBatch, record: BotRecord, seals: Seals) -> None:
    await batch.session.run(_LETTERS["save_bot"], *row_of_bot(record, seals))
    await batch.session.run(_LETTERS["save_tally"], bot=record.bot_id)
    batch.telling.records()


async def remove(batch: PostgresBatch, bot_id: int) -> None:
    """Raises Conflict while letters wait."""
    waiting = await batch.session.number(_LETTERS["waiting_of_bot"], bot=bot_id)
    rules.must_be_empty(bot_id, waiting)
    await batch.session.run(_LETTERS["remove_bot"], bot=bot_id)
    await forget_inbox(batch.session, PostgresInbox.sql, bot_id)
    await forget_bot(batch.session, CONTACTS, bot_id)
    batch.telling.records()
    batch.telling.consumers()


async def readdress(batch: PostgresBatch, bot_id: int, old: Chat, new: int) -> None:
    for name in ("keep_alias", "flatten_aliases", "readdress"):
        await batch.session.run(_LETTERS[name], bot=bot_id, old=queries.encode(old), new=new)
    batch.telling.chats.add(bot_id)
    batch.telling.lanes.add(bot_id)


async def shut_chat(batch: PostgresBatch, bot_id: int, chat: Chat, reason: str | None, *, at_ms: int) -> None:
    """`reason` None: it is open again."""
    shut_at = None if reason is None else at_ms
    await batch.session.run(
        _LETTERS["shut_chat"], bot=bot_id, chat=queries.encode(chat), reason=queries.clean(reason), at=shut_at
    )
    batch.telling.chats.add(bot_id)


async def hold(batch: PostgresBatch, bot_id: int, chat: Chat | None, until_ms: int) -> None:
    """`chat` None: the whole bot."""
    if chat is None:
        await batch.session.run(_LETTERS["hold_bot"], bot=bot_id, until=until_ms)
    else:
        await batch.session.run(_LETTERS["hold_chat"], bot=bot_id, chat=queries.encode(chat), until=until_ms)
    batch.telling.chats.add(bot_id)
