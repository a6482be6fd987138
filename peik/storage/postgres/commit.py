"""What one commit of the PostgreSQL store does: letters in, settlements, marks, updates in, each kind in a few statements.

Order within a commit: letters in, then settlements, then marks, then updates. A letter that returns to its lane may so be
marked again in the same commit, and a letter that somebody cancelled a moment before is not marked. Work of another kind
sees all that was asked for before it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import asyncpg  # type: ignore[import-untyped,unused-ignore]
import msgspec

from peik.core.letter import Backoff, Draft, Letter, State
from peik.core.lifecycle import UNTRIED, Settlement
from peik.errors import BadInput, NotFound
from peik.outbox.store import AcceptedLetter, Followed, Stub
from peik.storage.news import NodeNews
from peik.storage.postgres import queries, reads
from peik.storage.postgres.intake import PostgresIntake
from peik.storage.postgres.queries import NamedQuery, filled, load
from peik.storage.postgres.session import PostgresSession
from peik.storage.sql import Row
from peik.storage.sqlite.commit import IDEMPOTENCY_MS, Slot, check_same_call, is_plain, lift_together
from peik.storage.sqlite.rows import (
    PHASE_APART,
    PHASE_IN_LANE,
    PHASE_OF,
    STATE_OF_PHASE,
    TALLY_COLUMNS,
    encode_enclosed,
    hold_of,
)

# Letters on their way into the PostgreSQL store: numbers, rows, and the waiting edits that newer ones replace.


_SQL = load("letters.sql")


async def write(session: PostgresSession, slots: Sequence[Slot]) -> None:
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


async def _insert_numbered(session: PostgresSession, slots: Sequence[Slot]) -> None:
    per_bot = _places(slots)
    columns = zip(*[_plain_row(slot) for slot in slots], strict=True)
    made = await session.returned(_SQL["accept_numbered"], list(per_bot), list(per_bot.values()), *columns)
    if len(made) != len(slots):
        raise await _one_unknown(session, list(per_bot))
    _note(slots, made)
    for slot, row in zip(slots, made, strict=True):
        slot.number = row[3]


async def _insert_at_once(session: PostgresSession, slots: Sequence[Slot]) -> None:
    """With the commit, in one call of the server."""
    per_bot = _places(slots)
    columns = zip(*[_plain_row(slot) for slot in slots], strict=True)
    try:
        row = await session.row(_SQL["accept_at_once"], list(per_bot), list(per_bot.values()), *columns)
    except asyncpg.NoDataFoundError:
        raise await _one_unknown(session, list(per_bot)) from None
    assert row is not None
    ids, taken, chats = row
    session.changes += len(ids)
    for slot, letter_id, number in zip(slots, ids, taken, strict=True):
        slot.letter_id, slot.number = letter_id, number
    for slot, chat in zip(slots, chats or (), strict=False):
        if chat is not None:
            slot.draft = msgspec.structs.replace(slot.draft, chat=queries.decode(chat), is_moved=True)


def _places(slots: Sequence[Slot]) -> Counter[int]:
    """How many letters each bot gets. Each slot gets its place among those of its bot, until its number is known."""
    per_bot: Counter[int] = Counter()
    for slot in slots:
        slot.number = per_bot[slot.draft.bot_id]
        per_bot[slot.draft.bot_id] += 1
    return per_bot


async def _one_unknown(session: PostgresSession, bots: Sequence[int]) -> NotFound:
    none = [0] * len(bots)
    served = await numbers(session, bots, none, in_lane=none, apart=none)
    return _unknown(next(bot_id for bot_id in bots if bot_id not in served))


async def _take_numbers(session: PostgresSession, slots: Sequence[Slot]) -> None:
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
    session: PostgresSession, bots: Sequence[int], taken: Sequence[int], *, in_lane: Sequence[int], apart: Sequence[int]
) -> dict[int, int]:
    """The first free number of each bot after as many were taken."""
    rows = await session.returned(_SQL["number"], bots=bots, taken=taken, in_lane=in_lane, apart=apart)
    return {row[0]: row[1] for row in rows}


async def _insert(
    session: PostgresSession, query: NamedQuery, slots: Sequence[Slot], rows: Sequence[tuple[object, ...]]
) -> None:
    _note(slots, await session.returned(query, *zip(*rows, strict=True)))


def _note(slots: Sequence[Slot], made: list[Row]) -> None:
    """What the server made of them, which it may tell in any order; ids rise in the order of slots."""
    made.sort(key=lambda row: int(row[0]))
    for slot, row in zip(slots, made, strict=True):
        slot.letter_id = row[0]
        if row[2] and not slot.draft.is_moved:
            slot.draft = msgspec.structs.replace(slot.draft, chat=queries.decode(row[1]), is_moved=True)


def tell(telling: NodeNews, slots: Iterable[Slot]) -> None:
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


async def supersede(session: PostgresSession, slots: Sequence[Slot]) -> list[Stub]:
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
            lane = (queries.decode(row["chat"]), row["thread"])
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
        queries.encode(draft.chat),
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
        hold_of(draft),
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


_SETTLE = filled(_SQL["settle"], has_merged=_SQL["has_merged"].written)

Key = tuple[int, str]  # (bot, idempotency key)


class PostgresBatch:
    """Everything that goes into one transaction. Filled by the operations, written by `flush`.

    `telling` is what other nodes hear of it afterwards; anyone who changes what they may hold in memory says so there.
    """

    def __init__(self, session: PostgresSession, *, step: int, locked: Iterable[int]) -> None:
        self.session = session
        self.telling = NodeNews()
        self.intake = PostgresIntake(session, self.telling)
        self.superseded: list[Stub] = []
        self.joined: list[Stub] = []
        self.followed: list[Followed] = []
        self.blobs_freed: list[str] = []
        self.marked: list[tuple[Letter, int]] = []  # each with the epoch of its bot's lease
        self._step = step
        self._locked = set(locked)
        self._known: dict[Key, tuple[str, int]] = {}
        self._slots: list[Slot] = []
        self._keys: dict[Key, Slot] = {}
        self._settlements: list[tuple[Settlement, int]] = []
        self._marks: list[tuple[Letter, int, int]] = []
        self._taken: set[int] = set()
        self._tally: dict[int, Counter[str]] = defaultdict(Counter)

    @property
    def slots(self) -> list[Slot]:
        """Those that the next `flush` writes together. Anyone who tells of one of them may tell of all, and empties the list."""
        return self._slots

    @property
    def marks_taken(self) -> frozenset[int] | None:
        """The letters whose marks took; None: all."""
        return None if len(self._taken) == len(self.marked) else frozenset(self._taken)

    def count(self, bot_id: int, before: int, after: int, letters: int = 1) -> None:
        """A letter went from one phase to another."""
        if before != after:
            self._tally[bot_id][TALLY_COLUMNS[before]] -= letters
            self._tally[bot_id][TALLY_COLUMNS[after]] += letters

    def uncount(self, bot_id: int, column: str) -> None:
        """A letter is gone altogether."""
        self._tally[bot_id][column] -= 1

    async def lock(self, bots: Iterable[int]) -> None:
        """From here on nobody else changes letters of these bots. What was read of them before must be read again."""
        wanted = set(bots) - self._locked
        if wanted:
            await self.session.rows(_SQL["lock_bots"], bots=sorted(wanted))
            self._locked |= wanted

    # ---- filling ----

    async def look_up(self, keys: Sequence[Key]) -> None:
        """Which of the keys that this commit brings are taken: one look for all of them."""
        bots, names = zip(*keys, strict=True)
        for bot_id, key, digest, letter_id in await self.session.rows(_SQL["find_keys"], bots=bots, keys=names):
            self._known[bot_id, key] = (digest, letter_id)

    async def add_drafts(self, drafts: Sequence[Draft], at_ms: int) -> list[Slot | AcceptedLetter]:
        """For each draft its slot, or the letter that the same key made before."""
        answers: list[Slot | AcceptedLetter] = []
        for draft in drafts:
            if draft.idempotency_key is None:
                slot = Slot(draft, at_ms)
                self._slots.append(slot)
                answers.append(slot)
            else:
                answers.append(await self._under_key((draft.bot_id, draft.idempotency_key), draft, at_ms))
        return answers

    async def _under_key(self, key: Key, draft: Draft, at_ms: int) -> Slot | AcceptedLetter:
        if key in self._known:
            digest, letter_id = self._known[key]
            check_same_call(draft, digest)
            state = await reads.state(self.session, letter_id, at_ms)
            return AcceptedLetter(letter_id=letter_id, state=state, is_repeat=True)
        slot = Slot(draft, at_ms)
        slot.repeat_of = self._keys.get(key)
        if slot.repeat_of is None:
            if draft.is_too_late:
                raise BadInput(code="already_expired", detail="expires_at is in the past.")
            self._slots.append(slot)
            self._keys[key] = slot
        else:
            check_same_call(draft, slot.repeat_of.draft.digest)
        return slot

    def add_step(self, settlements: Sequence[Settlement], marks: Sequence[Letter], *, epoch: int, at_ms: int) -> None:
        self._settlements.extend((one, epoch) for one in settlements)
        self._marks.extend((letter, epoch, at_ms) for letter in marks)

    # ---- writing ----

    @property
    def is_one_call(self) -> bool:
        """Whether all of it can be written and committed by `accept_at_once`: letters with the usual terms, as most commits
        have, and nothing else."""
        return bool(self._slots) and all(
            is_plain(slot) and slot.draft.trace is None and not slot.draft.is_judged for slot in self._slots
        )

    async def accept_at_once(self) -> None:
        """Instead of a transaction around `flush`."""
        await _insert_at_once(self.session, self._slots)
        tell(self.telling, self._slots)
        self._slots, self._keys = [], {}

    async def flush(self) -> None:
        """Write what was added until now. Done before other work of the same commit, and at its end."""
        if self._slots:
            await self._write_letters()
            self._slots, self._keys = [], {}
        if self._settlements:
            await self._write_settlements()
            self._settlements = []
        if self._marks:
            await self._write_marks()
            self._marks = []
        await self.intake.flush()
        if self._tally:
            bots = sorted(self._tally)
            counted = [[self._tally[bot_id][column] for bot_id in bots] for column in TALLY_COLUMNS]
            await self.session.run(_SQL["tally"], bots, *counted)
            self._tally.clear()

    async def _write_letters(self) -> None:
        lifting = lift_together(self._slots)
        if lifting:
            await self._lift(lifting)
        await write(self.session, self._slots)
        tell(self.telling, self._slots)
        for stub in await supersede(self.session, self._slots):
            self.count(stub.bot_id, PHASE_IN_LANE, PHASE_APART)
            self.superseded.append(stub)
            self.telling.lanes.add(stub.bot_id)
        if self._keys:
            rows = [
                (bot_id, key, slot.draft.digest, slot.letter_id, slot.at_ms + IDEMPOTENCY_MS)
                for (bot_id, key), slot in self._keys.items()
            ]
            await self.session.run(_SQL["keep_keys"], *zip(*rows, strict=True))
            for key, slot in self._keys.items():
                self._known[key] = (slot.draft.digest, slot.letter_id)

    async def _lift(self, lifting: Sequence[Slot]) -> None:
        """What new letters must not pass, and what they name, goes with them. Whoever holds those lanes reads them again. The new
        ones are not written yet, so all that stands in their lanes came before them."""
        rows = [
            (slot.draft.bot_id, queries.encode(slot.draft.chat), slot.draft.thread, slot.draft.rank)
            for slot in lifting
            if slot.draft.is_judged and not slot.is_apart
        ]
        lifted = await self.session.returned(_SQL["lift_before"], *zip(*rows, strict=True)) if rows else []
        named = [(slot.draft.awaits, slot.draft.rank) for slot in lifting if slot.draft.awaits is not None]
        if named:
            letters, ranks = zip(*named, strict=True)
            lifted += await self.session.returned(_SQL["lift_named"], letters=letters, ranks=ranks)
        for bot_id, chat, thread, letter_id in lifted:
            self.joined.append(Stub(letter_id=letter_id, bot_id=bot_id, lane=(queries.decode(chat), thread)))
            self.telling.lanes.add(bot_id)

    async def _write_settlements(self) -> None:
        # The first of each letter under each epoch: one mark allows one settlement.
        tried = {(one.letter_id, epoch): one for one, epoch in reversed(self._settlements) if one.move not in UNTRIED}
        if tried:
            await self._write_tried(tried)
        untried = [(one, epoch) for one, epoch in self._settlements if one.move in UNTRIED]
        if untried:
            await self._write_untried(untried)

    async def _write_tried(self, tried: dict[tuple[int, int], Settlement]) -> None:
        rows = [
            (
                one.letter_id,
                PHASE_OF[one.state],
                one.at_ms if one.state.is_final else None,
                one.due_at_ms or None,
                one.attempts_made,
                one.uncertain_tries,
                queries.clean(one.failed_reason),
                one.entry,
                one.result,
                epoch,
            )
            for (_, epoch), one in tried.items()
        ]
        took = await self.session.returned(_SETTLE, *zip(*rows, strict=True))
        ended: list[int] = []
        newest: list[int] = []
        for letter_id, epoch, enclosed, has_merged in took:
            one = tried[letter_id, epoch]
            self.count(one.bot_id, PHASE_IN_LANE, PHASE_OF[one.state])
            if one.state.is_final:
                ended.append(letter_id)
                self.telling.ended(one.bot_id, [letter_id])
                if has_merged:
                    newest.append(letter_id)
            if one.state is State.COMPLETED:
                self._free(enclosed)
        await self._end_merged(newest)
        await self._release_dependents(ended)

    async def _write_untried(self, untried: Sequence[tuple[Settlement, int]]) -> None:
        """No mark shows that these are the sender's to end, so its lease must: a zombie knows of chats what was once so."""
        wanted = {(one.bot_id, epoch) for one, epoch in untried}
        bots, epochs = zip(*wanted, strict=True)
        held = {tuple(row) for row in await self.session.rows(_SQL["hold_leases"], bots=bots, epochs=epochs)}
        rows = [
            (one.letter_id, PHASE_OF[one.state], one.at_ms, queries.clean(one.failed_reason), one.entry)
            for one, epoch in untried
            if (one.bot_id, epoch) in held
        ]
        if rows:
            await self.end_untried(rows)

    async def end_untried(self, rows: Sequence[tuple[object, ...]]) -> None:
        """End letters that still wait and are not in flight: (id, phase, at, reason, line of history)."""
        ended = await self.session.returned(_SQL["end_unsent"], *zip(*rows, strict=True))
        for letter_id, bot_id, phase in ended:
            self.count(bot_id, phase, PHASE_OF[State.FAILED])
            self.telling.ended(bot_id, [letter_id])
        await self.release([row[0] for row in ended])

    async def release(self, letter_ids: Sequence[int]) -> None:
        """These have ended: what hung on them goes its way."""
        await self._end_merged(letter_ids)
        await self._release_dependents(letter_ids)

    async def _release_dependents(self, letter_ids: Sequence[int]) -> None:
        """Letters that waited for one of these join their lanes."""
        if letter_ids:
            await self._join_again("release_dependents", letter_ids)

    async def _end_merged(self, letter_ids: Sequence[int]) -> None:
        """Edits that gave way to one of these come back if it was never sent, and end as it did if it was."""
        if not letter_ids:
            return
        while await self.session.returned(_SQL["pass_on"], ended=letter_ids):
            pass  # those that several gave way to, one after the other, and that were all taken back at once
        await self._join_again("come_back", letter_ids)
        followed = await self.session.returned(_SQL["follow"], ended=letter_ids)
        for row in followed:
            one = _followed(row)
            self.count(one.bot_id, PHASE_APART, PHASE_OF[one.state])
            self.telling.ended(one.bot_id, [one.letter_id])
            self.followed.append(one)
            if one.state is State.COMPLETED:
                self._free(row["enclosed"])
        await self._release_dependents([row["id"] for row in followed])

    async def _join_again(self, query: str, ended: Sequence[int]) -> None:
        """Letters that stood apart for these join their lanes at their old places."""
        for bot_id, letter_id, chat, thread in await self.session.returned(_SQL[query], ended=ended):
            self.count(bot_id, PHASE_APART, PHASE_IN_LANE)
            self.telling.lanes.add(bot_id)
            self.joined.append(Stub(letter_id=letter_id, bot_id=bot_id, lane=(queries.decode(chat), thread)))

    async def free_blobs(self, letter_ids: Sequence[int]) -> None:
        """Files of letters that have ended well are not needed any more."""
        for (text,) in await self.session.rows(_SQL["enclosed_of"], letters=letter_ids):
            self._free(text)

    def _free(self, enclosed: str | None) -> None:
        if enclosed is not None:
            self.blobs_freed.extend(one["blob"] for one in msgspec.json.decode(enclosed))

    async def _write_marks(self) -> None:
        rows = [
            (one.id, one.bot_id, epoch, one.number, one.attempts_made, one.uncertain_tries, at)
            for one, epoch, at in self._marks
        ]
        letters, bots, epochs, numbers, attempts_made, uncertain_tries, ats = zip(*rows, strict=True)
        taken = await self.session.returned(
            _SQL["mark"],
            step=self._step,
            letters=letters,
            bots=bots,
            epochs=epochs,
            numbers=numbers,
            attempts_made=attempts_made,
            uncertain_tries=uncertain_tries,
            ats=ats,
        )
        self.marked.extend((letter, epoch) for letter, epoch, _ in self._marks)
        self._taken.update(row[0] for row in taken)


def _followed(row: Row) -> Followed:
    return Followed(
        letter_id=row["id"],
        bot_id=row["bot_id"],
        method=row["method"],
        chat=queries.decode(row["chat"]),
        state=STATE_OF_PHASE[row["phase"]],
        reason=row["failed_reason"],
        uncertain_tries=row["uncertain_tries"],
        merged_into=row["merged_into"],
        trace=row["trace"],
    )
