"""Letters on their way into the PostgreSQL store: numbers, rows, and the waiting edits that newer ones replace."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from peik.core.letter import Backoff, OnUncertain
from peik.errors import NotFound
from peik.ports import Stub
from peik.store.commit import Slot, is_plain
from peik.store.postgres import chats
from peik.store.postgres.queries import Query, load
from peik.store.postgres.session import Row, Session
from peik.store.rows import PHASE_APART, PHASE_IN_LANE, encode_enclosed
from peik.store.telling import Telling

_SQL = load("letters.sql")


async def write(session: Session, slots: Sequence[Slot]) -> None:
    """Give each slot its number, its id and the last key of its chat. The bots are locked."""
    plain: list[Slot] = []
    full: list[Slot] = []
    for slot in slots:
        (plain if is_plain(slot) and slot.draft.trace is None else full).append(slot)
    if not full:
        await _insert_numbered(session, plain)
        return
    await _take_numbers(session, slots)
    if plain:
        await _insert(session, _SQL["accept_plain"], plain, [_plain_row(slot) for slot in plain])
    await _insert(session, _SQL["accept_full"], full, [_full_row(slot) for slot in full])


async def _insert_numbered(session: Session, slots: Sequence[Slot]) -> None:
    per_bot: Counter[int] = Counter()
    for slot in slots:
        slot.number = per_bot[slot.draft.bot_id]  # its place among those of its bot, until the answer is there
        per_bot[slot.draft.bot_id] += 1
    columns = zip(*[_plain_row(slot) for slot in slots], strict=True)
    made = await session.returned(_SQL["accept_numbered"], list(per_bot), list(per_bot.values()), *columns)
    if len(made) != len(slots):
        none = [0] * len(per_bot)
        served = await numbers(session, list(per_bot), none, in_lane=none, apart=none)
        raise _unknown(next(bot_id for bot_id in per_bot if bot_id not in served))
    _note(slots, made)
    for slot, row in zip(slots, made, strict=True):
        slot.number = row[3]


async def _take_numbers(session: Session, slots: Sequence[Slot]) -> None:
    per_bot: dict[int, list[Slot]] = defaultdict(list)
    apart: Counter[int] = Counter()
    for slot in slots:
        standing = per_bot[slot.draft.bot_id]
        if slot.is_apart:
            apart[slot.draft.bot_id] += 1  # gets its number when it joins its lane
        else:
            standing.append(slot)
    bots = sorted(per_bot)
    taken = [len(per_bot[bot_id]) for bot_id in bots]
    after = await numbers(session, bots, taken, in_lane=taken, apart=[apart[bot_id] for bot_id in bots])
    for bot_id, standing in per_bot.items():
        if bot_id not in after:
            raise _unknown(bot_id)
        for number, slot in enumerate(standing, start=after[bot_id] - len(standing)):
            slot.number = number


def _unknown(bot_id: int) -> NotFound:
    return NotFound(code="unknown_bot", detail=f"Bot {bot_id} is not known here. Add it with its token first.")


async def numbers(
    session: Session, bots: Sequence[int], taken: Sequence[int], *, in_lane: Sequence[int], apart: Sequence[int]
) -> dict[int, int]:
    """The first free number of each bot after as many were taken."""
    rows = await session.returned(_SQL["number"], bots=bots, taken=taken, in_lane=in_lane, apart=apart)
    return {row[0]: row[1] for row in rows}


async def _insert(session: Session, query: Query, slots: Sequence[Slot], rows: Sequence[tuple[object, ...]]) -> None:
    _note(slots, await session.returned(query, *zip(*rows, strict=True)))


def _note(slots: Sequence[Slot], made: list[Row]) -> None:
    """What the server made of them, which it may tell in any order; ids rise in the order of slots."""
    made.sort(key=lambda row: int(row[0]))
    for slot, row in zip(slots, made, strict=True):
        slot.letter_id = row[0]
        if row[2] and not slot.draft.is_moved:
            slot.draft = msgspec.structs.replace(slot.draft, chat=chats.decode(row[1]), is_moved=True)


def tell(telling: Telling, slots: Iterable[Slot]) -> None:
    """Between which ids the new letters of each bot are, and when the first of all is due or expires."""
    between: dict[int, tuple[int, int]] = {}
    for slot in slots:
        if slot.draft.expires_at_ms is not None:
            telling.due(slot.draft.expires_at_ms)
        if not slot.is_apart:
            first, last = between.get(slot.draft.bot_id, (slot.letter_id, slot.letter_id))
            between[slot.draft.bot_id] = (min(first, slot.letter_id), max(last, slot.letter_id))
        elif slot.draft.send_at_ms is not None:
            telling.due(slot.draft.send_at_ms)
    for bot_id, (first, last) in between.items():
        telling.accepted(bot_id, first, last)


# ---- edits that replace waiting ones ----


async def supersede(session: Session, slots: Sequence[Slot]) -> list[Stub]:
    """Waiting edits that newer ones of the same method and target replace, in one look for all of them.

    The one that a newer edit refers to is left alone: it needs the answer.
    """
    fresh = {slot.letter_id: slot for slot in slots if slot.draft.target is not None}
    newer = [slot for slot in sorted(fresh.values(), key=lambda one: one.letter_id) if not slot.is_apart]
    if not newer:
        return []
    bots = [slot.draft.bot_id for slot in newer]
    targets = [slot.draft.target for slot in newer]
    waiting: dict[tuple[int, str], dict[int, Row]] = defaultdict(dict)
    for row in await session.rows(_SQL["waiting_edits"], bots=bots, targets=targets):
        waiting[row["bot_id"], row["target"]][row["id"]] = row
    gone: list[Stub] = []
    into: dict[int, int] = {}
    for slot in newer:
        standing = waiting[slot.draft.bot_id, str(slot.draft.target)]
        for letter_id in [one for one in standing if one < slot.letter_id and one != slot.draft.awaits]:
            row = standing.pop(letter_id)
            into[letter_id] = slot.letter_id
            lane = (chats.decode(row["chat"]), row["thread"])
            gone.append(Stub(letter_id=letter_id, bot_id=row["bot_id"], lane=lane, into=slot.letter_id))
            if letter_id in fresh:
                fresh[letter_id].is_superseded = True
    if gone:
        await session.run(_SQL["supersede"], letters=list(into), into=list(into.values()))
    return gone


# ---- rows ----


def _plain_row(slot: Slot) -> tuple[object, ...]:
    draft = slot.draft
    return (
        draft.bot_id,
        slot.number,
        draft.rank,
        chats.encode(draft.chat),
        draft.thread,
        draft.weight,
        draft.method,
        draft.params,
        slot.at_ms,
        draft.attempts,
        draft.backoff_ms,
    )


def _full_row(slot: Slot) -> tuple[object, ...]:
    draft = slot.draft
    return (
        *_plain_row(slot),
        PHASE_APART if slot.is_apart else PHASE_IN_LANE,
        None if draft.backoff is Backoff.EXPONENTIAL else str(draft.backoff),
        draft.timeout_ms or None,
        1 if draft.on_uncertain is OnUncertain.HOLD else None,
        draft.send_at_ms if slot.is_apart else None,
        draft.expires_at_ms,
        draft.awaits,
        draft.target,
        encode_enclosed(draft.enclosed),
        draft.metadata,
        draft.user_id,
        draft.message_type,
        1 if draft.is_moved else None,
        draft.hook if isinstance(draft.hook, int) else None,
        draft.hook if isinstance(draft.hook, str) else None,
        draft.trace,
    )
