"""What people do to letters in the PostgreSQL store: cancel, retry, resolve, clear; lanes and chats. Lists are in `looking`."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from peik.core.letter import Chat, LaneKey, Letter, State
from peik.core.lifecycle import UNCERTAIN, Move, Try
from peik.errors import Conflict, NotFound
from peik.ports import ChatRecord, LaneView, LetterFilter, LetterView, Stub
from peik.store.change_rules import must_be_open
from peik.store.postgres import chats, letters_in, looking, reading
from peik.store.postgres.commit import Batch
from peik.store.postgres.queries import filled, load
from peik.store.postgres.session import Session
from peik.store.rows import PHASE_IN_LANE, PHASE_OF, TALLY_COLUMNS

_SQL = load("people.sql")
_LETTERS = load("letters.sql")


async def cancel(batch: Batch, letter_id: int, at_ms: int) -> Stub:
    """Take a letter back. Raises Conflict if it is in flight or has ended."""
    view = await locked_view(batch, letter_id, at_ms)
    must_be_open(view)
    phase = await batch.session.number(_LETTERS["phase_of"], letter=letter_id)
    await batch.session.run(_SQL["cancel"], letter=letter_id, at=at_ms)
    batch.count(view.bot_id, phase, PHASE_OF[State.CANCELLED])
    batch.telling.lanes(view.bot_id)
    batch.telling.ended(view.bot_id, [letter_id])
    await batch.free_blobs([letter_id])
    await batch.release([letter_id])
    return Stub(letter_id=letter_id, bot_id=view.bot_id, lane=(view.chat, view.thread))


async def retry(batch: Batch, letter_id: int, at_ms: int) -> list[Letter]:
    """Send a dead letter again. Raises Conflict if it is not dead."""
    view = await locked_view(batch, letter_id, at_ms)
    if view.state is not State.FAILED:
        raise Conflict(code="not_dead", detail=f"Letter {letter_id} is {view.state}; only dead letters are sent again.")
    return await _revive(batch, [(letter_id, view.bot_id)], at_ms)


async def resolve(batch: Batch, letter_id: int, at_ms: int, *, arrived: bool) -> list[Letter]:
    """What a person saw of an uncertain letter: it arrived, or it is to be sent again."""
    view = await locked_view(batch, letter_id, at_ms)
    if view.state is not State.FAILED or view.failed_reason != UNCERTAIN:
        raise Conflict(
            code="not_uncertain", detail=f"Letter {letter_id} is not uncertain; there is nothing to resolve."
        )
    if not arrived:
        return await _revive(batch, [(letter_id, view.bot_id)], at_ms)
    line = _line(at_ms, Move.RESOLVE, "somebody saw that it had arrived")
    await batch.session.run(_SQL["resolve"], letter=letter_id, at=at_ms, line=line)
    batch.count(view.bot_id, PHASE_OF[State.FAILED], PHASE_OF[State.COMPLETED])
    batch.telling.ended(view.bot_id, [letter_id])
    await batch.free_blobs([letter_id])
    return []


async def retry_dead(batch: Batch, wanted: LetterFilter, at_ms: int, limit: int) -> list[Letter]:
    return await _revive(batch, await _dead(batch, wanted, at_ms, limit), at_ms)


async def clear_dead(batch: Batch, wanted: LetterFilter, at_ms: int, limit: int) -> int:
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


async def _dead(batch: Batch, wanted: LetterFilter, at_ms: int, limit: int) -> list[tuple[int, int]]:
    """Looked for twice: only what is still dead under its bot's lock counts."""
    where, bound = looking.where(wanted, at_ms)
    query = filled(_SQL["find_dead"], where=where)
    bots = {row[1] for row in await batch.session.rows(query, **bound, limit=limit)}
    await batch.lock(bots)
    rows = await batch.session.rows(query, **bound, limit=limit)
    return [(row[0], row[1]) for row in rows if row[1] in bots]


async def _revive(batch: Batch, dead: Sequence[tuple[int, int]], at_ms: int) -> list[Letter]:
    per_bot: dict[int, list[int]] = defaultdict(list)
    for letter_id, bot_id in dead:
        per_bot[bot_id].append(letter_id)
    if not per_bot:
        return []
    numbered = await number_anew(batch, per_bot)
    for bot_id, letter_ids in per_bot.items():
        batch.count(bot_id, PHASE_OF[State.FAILED], PHASE_IN_LANE, len(letter_ids))
        batch.telling.lanes(bot_id)
    line = _line(at_ms, Move.RETRY, "sent again by hand")
    await batch.session.run(_SQL["revive"], letters=list(numbered), numbers=list(numbered.values()), line=line)
    return await reading.letters_by_id(batch.session, list(numbered))


async def number_anew(batch: Batch, per_bot: dict[int, list[int]], *, leaves_apart: bool = False) -> dict[int, int]:
    """The next numbers of their bots' orders for these letters; with `leaves_apart` they are counted as joining."""
    bots = sorted(per_bot)
    taken = [len(per_bot[bot_id]) for bot_id in bots]
    joining = taken if leaves_apart else [0] * len(bots)
    after = await letters_in.numbers(batch.session, bots, taken, in_lane=joining, apart=[-one for one in joining])
    return {
        letter_id: number
        for bot_id in bots
        for number, letter_id in enumerate(per_bot[bot_id], start=after[bot_id] - len(per_bot[bot_id]))
    }


async def lanes(session: Session, bot_id: int, chat: Chat | None, *, limit: int, most: int) -> list[LaneView]:
    encoded = None if chat is None else chats.encode(chat)
    rows = await session.rows(_SQL["lanes"], bot=bot_id, chat=encoded, limit=limit, most=most)
    return [
        LaneView(bot_id=bot_id, chat=chats.decode(row[0]), thread=row[1], head=row[2], waiting=row[3]) for row in rows
    ]


async def head_of(session: Session, bot_id: int, lane: LaneKey) -> int | None:
    return await session.number(_SQL["ahead"], bot=bot_id, chat=chats.encode(lane[0]), thread=lane[1]) or None


async def known_chats(session: Session, bot_id: int, after: Chat | None, limit: int) -> list[ChatRecord]:
    encoded = "" if after is None else chats.encode(after)
    rows = await session.rows(_SQL["known_chats"], bot=bot_id, after=encoded, limit=limit)
    return [reading.chat_of(bot_id, row) for row in rows]


async def locked_view(batch: Batch, letter_id: int, at_ms: int) -> LetterView:
    await batch.lock([await batch.session.number(_LETTERS["bot_of_letter"], letter=letter_id)])
    view = await reading.view(batch.session, letter_id, at_ms)
    if view is None:
        raise NotFound(code="unknown_letter", detail=f"There is no letter {letter_id} here (any more).")
    return view


def _line(at_ms: int, move: Move, words: str) -> str:
    return msgspec.json.encode(Try(at=at_ms, outcome=str(move), words=words)).decode()
