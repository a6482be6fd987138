"""What one commit of the SQLite store does: letters in, settlements, marks, updates in, each kind in a few bulk statements.

Order within a commit: letters in, then settlements, then marks, then updates. A letter that returns to its lane may so be
marked again in the same commit, and a letter that somebody cancelled a moment before is not marked. Work of another kind
sees all that was asked for before it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

import apsw
import msgspec

from peik.core.letter import (
    LIFTED_RANKS,
    Backoff,
    Chat,
    Draft,
    LaneKey,
    Letter,
    OnUncertain,
    State,
    letter_of_draft,
)
from peik.core.lifecycle import UNTRIED, Settlement
from peik.errors import BadInput, Conflict, NotFound
from peik.outbox.store import AcceptedLetter, Followed, Stub
from peik.storage.sqlite import reads
from peik.storage.sqlite.intake import SqliteIntake
from peik.storage.sqlite.rows import (
    PHASE_APART,
    PHASE_IN_LANE,
    PHASE_OF,
    STATE_OF_PHASE,
    TALLY_COLUMNS,
    encode_enclosed,
    hold_of,
)
from peik.storage.sqlite.statements import Row, Value, insert_many, load, run_many, run_padded

_SQL = load("sqlite.sql")

IDEMPOTENCY_MS = 48 * 3600 * 1000  # a key is kept for 48 hours (docs/guarantees.md)


_NO_RUN: "list[Slot]" = []


class Slot:
    """One draft on its way into the store; its id and number are known once the batch is flushed."""

    __slots__ = (
        "at_ms",
        "draft",
        "epoch",
        "is_apart",
        "is_plain",
        "is_superseded",
        "letter_id",
        "number",
        "repeat_of",
        "run",
    )

    def __init__(self, draft: Draft, at_ms: int, epoch: int = 0) -> None:
        self.draft = draft
        self.at_ms = at_ms
        self.epoch = epoch  # of the sender that waits for it; 0: it goes to its lane
        self.is_apart = draft.send_at_ms is not None and draft.send_at_ms > at_ms  # scheduled
        self.is_plain = False  # until it is known
        self.letter_id = 0
        self.number = 0
        self.repeat_of: Slot | None = None  # another draft of this batch under the same key
        self.is_superseded = False  # by a newer edit in the very same commit
        self.run: list[Slot] = _NO_RUN

    @property
    def letter(self) -> Letter:
        return letter_of_draft(self.draft, letter_id=self.letter_id, number=self.number, is_plain=self.is_plain)

    @property
    def accepted(self) -> AcceptedLetter:
        if self.repeat_of is not None:
            return AcceptedLetter(letter_id=self.repeat_of.letter_id, state=self.repeat_of.state, is_repeat=True)
        return AcceptedLetter(letter_id=self.letter_id, state=self.state)

    @property
    def state(self) -> State:
        return State.DELAYED if self.is_apart or self.is_superseded else State.WAITING


class _Steps:
    """The sender's steps under one epoch. Nearly always there is one epoch in a commit: that of the owner."""

    __slots__ = ("marks", "settlements")

    def __init__(self) -> None:
        self.settlements: list[Settlement] = []
        self.marks: list[tuple[Letter, int]] = []


class SqliteBatch:
    """Everything that goes into one transaction. Filled by the operations, written by `flush`."""

    mark_sql = _SQL["mark"]  # the seeded world's server fences by leases instead

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.intake = SqliteIntake(connection)
        self.superseded: list[Stub] = []
        self.joined: list[Stub] = []
        self.followed: list[Followed] = []
        self.blobs_freed: list[str] = []
        self._slots: list[Slot] = []
        self._keys: dict[tuple[int, str], Slot] = {}
        self._steps: dict[int, _Steps] = {}  # by epoch
        self._taken: set[int] = set()
        self._has_untaken = False
        self._tally: dict[int, Counter[str]] = defaultdict(Counter)

    @property
    def marks_taken(self) -> frozenset[int] | None:
        """The letters whose marks took; None: all."""
        return frozenset(self._taken) if self._has_untaken else None

    def has_marked(self, slot: Slot) -> bool:
        return slot.letter_id in self._taken

    def count(self, bot_id: int, before: int, after: int, letters: int = 1) -> None:
        """A letter went from one phase to another."""
        if before != after:
            self._tally[bot_id][TALLY_COLUMNS[before]] -= letters
            self._tally[bot_id][TALLY_COLUMNS[after]] += letters

    def uncount(self, bot_id: int, column: str) -> None:
        """A letter is gone altogether."""
        self._tally[bot_id][column] -= 1

    # ---- filling ----

    def add_drafts(self, drafts: Sequence[Draft], at_ms: int, *, epoch: int = 0) -> list[Slot | AcceptedLetter]:
        """For each draft its slot, or the letter that the same key made before. With an epoch they are marked as well."""
        known = self._known_keys(drafts)
        answers: list[Slot | AcceptedLetter] = []
        for draft in drafts:
            if draft.idempotency_key is None:
                slot = Slot(draft, at_ms, epoch)
                self._slots.append(slot)
                answers.append(slot)
            else:
                answers.append(self._under_key((draft.bot_id, draft.idempotency_key), draft, at_ms, known))
        return answers

    def _under_key(
        self, key: tuple[int, str], draft: Draft, at_ms: int, known: dict[tuple[int, str], tuple[str, int]]
    ) -> Slot | AcceptedLetter:
        if key in known:
            digest, letter_id = known[key]
            check_same_call(draft, digest)
            state = reads.state(self.connection, letter_id, at_ms)
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
        steps = self._steps.get(epoch)
        if steps is None:
            steps = self._steps[epoch] = _Steps()
        steps.settlements.extend(settlements)
        steps.marks += [(letter, at_ms) for letter in marks]

    def _known_keys(self, drafts: Sequence[Draft]) -> dict[tuple[int, str], tuple[str, int]]:
        wanted: list[Row] = [(d.bot_id, d.idempotency_key) for d in drafts if d.idempotency_key is not None]
        if not wanted:
            return {}
        rows = run_many(self.connection, _SQL["find_keys"], wanted)
        return {(_int(bot_id), str(key)): (str(digest), _int(letter_id)) for bot_id, key, digest, letter_id in rows}

    # ---- writing ----

    def flush(self) -> None:
        """Write what was added until now. Done before other work of the same commit, and at its end."""
        if self._slots:
            self._write_letters()
            self._join_runs()
            self._slots, self._keys = [], {}
        if self._steps:
            for epoch, steps in self._steps.items():
                if steps.settlements:
                    self._write_settlements(steps.settlements, epoch)
            for epoch, steps in self._steps.items():
                if steps.marks:
                    self._write_marks(steps.marks, epoch)
            self._steps = {}
        self.intake.flush()
        tally: list[Row] = [
            (bot_id, *(counts[column] for column in TALLY_COLUMNS)) for bot_id, counts in self._tally.items()
        ]
        if tally:
            run_many(self.connection, _SQL["tally"], tally)
            self._tally.clear()

    def _write_letters(self) -> None:
        self._follow_aliases()
        self._take_numbers()
        self._lift()
        plain: list[Slot] = []
        traced: list[Slot] = []
        full: list[Slot] = []
        for slot in self._slots:
            slot.is_plain = is_plain(slot)
            (full if not slot.is_plain else plain if slot.draft.trace is None else traced).append(slot)
        ids: list[int] = []
        if plain:
            ids += insert_many(self.connection, _SQL["accept_plain"], [_plain_row(slot) for slot in plain])
        if traced:
            traced_rows = [(*_plain_row(slot), slot.draft.trace) for slot in traced]
            ids += insert_many(self.connection, _SQL["accept_traced"], traced_rows)
        if full:
            ids += insert_many(self.connection, _SQL["accept_full"], [_full_row(slot) for slot in full])
        for slot, letter_id in zip(plain + traced + full, ids, strict=True):
            slot.letter_id = letter_id
        fresh = {slot.letter_id: slot for slot in full if slot.draft.target is not None}
        for slot in fresh.values():
            if not slot.is_apart:
                self._supersede(slot, fresh)
        for slot in self._slots:
            if slot.epoch and slot.draft.may_go_at_once and self._is_first(slot):
                self.add_step((), [slot.letter], epoch=slot.epoch, at_ms=slot.at_ms)
        keys: list[Row] = [
            (bot_id, key, slot.draft.digest, slot.letter_id, slot.at_ms + IDEMPOTENCY_MS)
            for (bot_id, key), slot in self._keys.items()
        ]
        if keys:
            run_many(self.connection, _SQL["keep_keys"], keys)

    def _lift(self) -> None:
        """What new letters must not pass, and what they name, goes with them. Whoever holds those lanes reads them again."""
        for slot in lift_together(self._slots):
            draft, lane = slot.draft, (slot.draft.chat, slot.draft.thread)
            if draft.is_judged and not slot.is_apart:
                self._lift_before(slot.letter_id, draft.bot_id, lane, slot.number, draft.rank)
            named = draft.awaits
            while named is not None:  # and what that one waits for itself; each is older, so this ends
                found = self.connection.execute(_SQL["find_named"], (named,)).fetchall()
                if not found:
                    break
                ((bot_id, chat, thread, number, rank, phase, after),) = found
                if _int(rank) > draft.rank:
                    self.connection.execute(_SQL["lift_named"], (draft.rank, named))
                    if phase == PHASE_IN_LANE:
                        lane = (_chat(chat), _int(thread))
                        self._lift_before(named, _int(bot_id), lane, _int(number), draft.rank, is_lifted=True)
                named = None if after is None else _int(after)

    def _lift_before(
        self, letter_id: int, bot_id: int, lane: LaneKey, number: int, rank: int, *, is_lifted: bool = False
    ) -> None:
        chat, thread = lane
        bound = {"bot": bot_id, "chat": chat, "thread": thread, "number": number, "rank": rank}
        self.connection.execute(_SQL["lift_before"], bound)
        if self.connection.changes() or is_lifted:
            self.joined.append(Stub(letter_id=letter_id, bot_id=bot_id, lane=lane))

    def _join_runs(self) -> None:
        """Letters that go to their lanes one after another, whoever brought them, are told together: by whom is told first."""
        run: list[Slot] = []
        for slot in self._slots:
            if slot.epoch:
                run = []
            else:
                slot.run = run
                run.append(slot)

    def _is_first(self, slot: Slot) -> bool:
        """Whether no older letter waits in its lane, be it of another process that nobody has heard of yet."""
        draft = slot.draft
        asked = (draft.bot_id, draft.chat, draft.thread, slot.number)
        return not self.connection.execute(_SQL["has_older"], asked).fetchall()

    def _follow_aliases(self) -> None:
        """Letters wait under the last key of their chat, whichever key their caller knew."""
        chats: dict[tuple[int, Chat], None] = {(slot.draft.bot_id, slot.draft.chat): None for slot in self._slots}
        found = run_many(self.connection, _SQL["find_aliases"], list(chats))
        if not found:
            return
        same = {(bot_id, chat): _int(same_as) for bot_id, chat, same_as in found}
        for slot in self._slots:
            draft = slot.draft
            new = same.get((draft.bot_id, draft.chat))
            if new is not None:
                slot.draft = msgspec.structs.replace(draft, chat=new, is_moved=True)

    def _take_numbers(self) -> None:
        per_bot: dict[int, list[Slot]] = defaultdict(list)
        apart: Counter[int] = Counter()
        for slot in self._slots:
            slots = per_bot[slot.draft.bot_id]
            if slot.is_apart:
                apart[slot.draft.bot_id] += 1  # gets its number when it joins its lane
            else:
                slots.append(slot)
        wanted: list[Row] = [(bot_id, len(slots), len(slots), apart[bot_id]) for bot_id, slots in per_bot.items()]
        answered = {_int(bot_id): _int(after) for bot_id, after in run_many(self.connection, _SQL["number"], wanted)}
        for bot_id, slots in per_bot.items():
            if bot_id not in answered:
                raise NotFound(
                    code="unknown_bot", detail=f"Bot {bot_id} is not known here. Add it with its token first."
                )
            for number, slot in enumerate(slots, start=answered[bot_id] - len(slots)):
                slot.number = number

    def _supersede(self, slot: Slot, fresh: dict[int, Slot]) -> None:
        draft = slot.draft
        asked = (draft.bot_id, draft.target, slot.letter_id, draft.awaits)
        found = list(self.connection.execute(_SQL["find_superseded"], asked))
        for letter_id, bot_id, chat, thread in found:
            self.connection.execute(_SQL["supersede"], (slot.letter_id, letter_id))
            self.count(bot_id, PHASE_IN_LANE, PHASE_APART)
            stub = Stub(letter_id=letter_id, bot_id=bot_id, lane=(chat, thread), into=slot.letter_id)
            self.superseded.append(stub)
            if letter_id in fresh:
                fresh[letter_id].is_superseded = True

    def _write_settlements(self, settlements: list[Settlement], epoch: int) -> None:
        tried: dict[int, Settlement] = {}
        for one in settlements:
            if one.move not in UNTRIED:
                tried.setdefault(one.letter_id, one)
        if tried:
            self._write_tried(tried, epoch)
        if len(tried) == len(settlements):
            return
        untried: list[Row] = [
            (one.letter_id, PHASE_OF[one.state], one.at_ms, one.failed_reason, one.entry)
            for one in settlements
            if one.move in UNTRIED and self._may_end(one.bot_id, epoch)
        ]
        if untried:
            self.end_untried(untried)

    def _may_end(self, bot_id: int, epoch: int) -> bool:
        """Whether who acts under this epoch may end letters that were never tried. On a file he holds its lock."""
        return True

    def _write_tried(self, tried: Mapping[int, Settlement], epoch: int) -> None:
        """By letter, since one mark allows one settlement: the first."""
        rows: list[Row] = [
            (
                one.letter_id,
                (phase := PHASE_OF[one.state]),
                one.at_ms if phase > PHASE_APART else None,
                one.due_at_ms or None,
                one.attempts_made,
                one.uncertain_tries,
                one.failed_reason,
                one.entry,
                epoch,
            )
            for one in tried.values()
        ]
        if run_padded(self.connection, _SQL["settle"], rows) != len(rows):
            # A zombie's late settlement is refused: only what was marked under this epoch has been settled.
            asked = (epoch, msgspec.json.encode(list(tried)).decode())
            ours = {row[0] for row in self.connection.execute(_SQL["only_marked"], asked)}
            tried = {letter_id: one for letter_id, one in tried.items() if letter_id in ours}
            if not tried:
                return
        run_padded(self.connection, _SQL["unmark"], [(letter_id,) for letter_id in tried])
        results: list[Row] = [(one.letter_id, one.result) for one in tried.values() if one.result is not None]
        if results:
            run_padded(self.connection, _SQL["keep_results"], results)
        self._count_tried(tried.values())

    def _count_tried(self, tried: Collection[Settlement]) -> None:
        moved = Counter([(one.bot_id, one.state) for one in tried])
        for (bot_id, state), letters in moved.items():
            self.count(bot_id, PHASE_IN_LANE, PHASE_OF[state], letters)
        if all(PHASE_OF[state] == PHASE_IN_LANE for _, state in moved):
            return
        ((has_dependents, has_files, has_merged),) = self.connection.execute(_SQL["has_company"])
        if has_merged or has_dependents:
            ended = [one.letter_id for one in tried if one.state.is_final]
            if has_merged:
                self._end_merged(ended)
            if has_dependents:
                self._release_dependents(ended)
        if has_files:
            self.free_blobs([(one.letter_id,) for one in tried if one.state is State.COMPLETED])

    def end_untried(self, rows: list[Row]) -> None:
        """End letters that still wait and are not in flight: (id, phase, at, reason, line of history)."""
        before = run_many(self.connection, _SQL["phases"], [(row[0],) for row in rows])
        stood = {letter_id: (_int(bot_id), _int(phase)) for letter_id, bot_id, phase in before}
        ended = [_int(row[0]) for row in run_many(self.connection, _SQL["end_unsent"], rows)]
        for letter_id in ended:
            bot_id, phase = stood[letter_id]
            self.count(bot_id, phase, PHASE_OF[State.FAILED])
        self.release(ended)

    def release(self, letter_ids: list[int]) -> None:
        """These have ended: what hung on them goes its way."""
        self._end_merged(letter_ids)
        self._release_dependents(letter_ids)

    def _release_dependents(self, letter_ids: list[int]) -> None:
        """Letters that waited for one of these join their lanes."""
        self._join_again("release_dependents", [(letter_id,) for letter_id in letter_ids])

    def _end_merged(self, letter_ids: list[int]) -> None:
        """Edits that gave way to one of these come back if it was never sent, and end as it did if it was."""
        ended: list[Row] = [(letter_id,) for letter_id in letter_ids]
        while run_many(self.connection, _SQL["pass_on"], ended):
            pass  # those that several gave way to, one after the other, and that were all taken back at once
        self._join_again("come_back", ended)
        found = run_many(self.connection, _SQL["followers"], ended)
        if not found:
            return
        pairs: list[Row] = [(row[1], row[0]) for row in found]
        run_many(self.connection, _SQL["follow"], pairs)
        run_many(self.connection, _SQL["share_results"], pairs)
        followed = [_followed(row) for row in found]
        for one in followed:
            self.count(one.bot_id, PHASE_APART, PHASE_OF[one.state])
        self.followed += followed
        self.free_blobs([(one.letter_id,) for one in followed if one.state is State.COMPLETED])
        self._release_dependents([one.letter_id for one in followed])

    def _join_again(self, query: str, ended: list[Row]) -> None:
        """Letters that stood apart for these join their lanes at their old places."""
        for bot_id, letter_id, chat, thread in run_many(self.connection, _SQL[query], ended):
            self.count(_int(bot_id), PHASE_APART, PHASE_IN_LANE)
            stub = Stub(letter_id=_int(letter_id), bot_id=_int(bot_id), lane=(_chat(chat), _int(thread)))
            self.joined.append(stub)

    def free_blobs(self, letter_ids: list[Row]) -> None:
        """Files of letters that have ended well are not needed any more."""
        if not letter_ids:
            return
        for (text,) in run_many(self.connection, _SQL["enclosed_of"], letter_ids):
            self.blobs_freed.extend(one["blob"] for one in msgspec.json.decode(str(text)))

    def _write_marks(self, marks: list[tuple[Letter, int]], epoch: int) -> None:
        rows: list[Row] = [
            (letter.id, letter.bot_id, letter.number, letter.attempts_made, letter.uncertain_tries, epoch, at_ms)
            for letter, at_ms in marks
        ]
        taken = [letter.id for letter, _ in marks]
        if len(rows) == 1:
            # An express, and most letters of a quiet bot: if it did not take, nobody need ask which one.
            if not run_padded(self.connection, self.mark_sql, rows):
                taken = []
        else:
            self.connection.execute("SAVEPOINT mark")
            if run_padded(self.connection, self.mark_sql, rows) != len(rows):
                # Rare: somebody ended one of them a moment ago. Which ones took is asked only then: every row that a
                # statement returns is a step that waits for the interpreter.
                self.connection.execute("ROLLBACK TO mark")
                found = run_many(self.connection, self.mark_sql + " RETURNING letter_id", rows)
                taken = [_int(row[0]) for row in found]
            self.connection.execute("RELEASE mark")
        self._taken.update(taken)
        self._has_untaken = self._has_untaken or len(taken) < len(rows)


def lift_together(slots: Sequence[Slot]) -> list[Slot]:
    """Those that lift what is stored already (`Draft.may_lift`). What came before them in the same commit is lifted here."""
    may_lift = [slot for slot in slots if slot.draft.is_judged or slot.draft.awaits is not None]  # seldom any of them
    lifting = [slot for slot in may_lift if slot.draft.may_lift]
    if not lifting or len(slots) == 1:
        return lifting
    lanes: dict[tuple[int, Chat, int], list[Slot]] = defaultdict(list)
    for slot in slots:
        draft = slot.draft
        before = lanes[draft.bot_id, draft.chat, draft.thread]
        if slot.is_apart:
            continue
        if draft.is_judged:
            for one in before:
                if one.draft.rank > draft.rank and one.draft.rank in LIFTED_RANKS:
                    one.draft = msgspec.structs.replace(one.draft, rank=draft.rank)
        before.append(slot)
    return lifting


def check_same_call(draft: Draft, digest: str) -> None:
    if digest != draft.digest:
        raise Conflict(
            code="idempotency_key_reused",
            detail="This idempotency key was used within 48 hours for another call. Use a new key for a new call.",
        )


def _followed(row: tuple[Value, ...]) -> Followed:
    _, letter_id, bot_id, method, chat, phase, reason, uncertain_tries, merged_into, trace = row
    return Followed(
        letter_id=_int(letter_id),
        bot_id=_int(bot_id),
        method=str(method),
        chat=_chat(chat),
        state=STATE_OF_PHASE[_int(phase)],
        reason=None if reason is None else str(reason),
        uncertain_tries=_int(uncertain_tries),
        merged_into=_int(merged_into),
        trace=None if trace is None else str(trace),
    )


def _chat(value: Value) -> Chat:
    return value if isinstance(value, int) else str(value)


def _int(value: Value) -> int:
    assert isinstance(value, int)
    return value


def is_plain(slot: Slot) -> bool:
    """Whether it has the usual terms; it may have a trace besides."""
    draft = slot.draft
    return (
        draft.send_at_ms is None
        and draft.expires_at_ms is None
        and draft.target is None
        and draft.awaits is None
        and draft.metadata is None
        and draft.user_id is None
        and draft.message_type is None
        and draft.hook is None
        and not draft.enclosed
        and not draft.timeout_ms
        and not draft.is_moved
        and draft.on_uncertain is OnUncertain.RESEND
        and not draft.counts_uncertain
        and draft.backoff is Backoff.EXPONENTIAL
    )


def _plain_row(slot: Slot) -> Row:
    draft = slot.draft
    return (
        draft.bot_id,
        slot.number,
        draft.rank,
        draft.chat,
        draft.thread,
        draft.weight,
        draft.method,
        draft.params,
        slot.at_ms,
        draft.attempts,
        draft.backoff_ms,
    )


def _full_row(slot: Slot) -> Row:
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
        draft.hook,
        draft.trace,
    )
