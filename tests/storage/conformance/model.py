"""What a store must do, as plain Python: the whole truth about a few letters in dictionaries."""

from collections import Counter
from dataclasses import dataclass, field

from peik.core.letter import LIFTED_RANKS, Chat, Draft, LaneKey, State
from peik.core.lifecycle import Settlement
from peik.outbox.store import LetterView, Retention, Tally

LANE, APART = "in its lane", "apart"


@dataclass
class Known:
    """One letter. `stands` is LANE, APART or how it ended."""

    id: int
    draft: Draft
    chat: Chat
    number: int
    stands: str
    rank: int
    due_at: int | None = None
    awaits: int | None = None
    is_marked: bool = False
    attempts_made: int = 0
    uncertain_tries: int = 0
    merged_into: int | None = None
    is_expired: bool = False
    settled_at: int | None = None

    def state(self, now: int) -> State:
        if self.stands in (LANE, APART):
            is_due = self.stands == LANE and (self.due_at or 0) <= now
            return State.ACTIVE if self.is_marked else State.WAITING if is_due else State.DELAYED
        return State(self.stands)


@dataclass
class Model:
    bot_id: int
    letters: dict[int, Known] = field(default_factory=dict)
    aliases: dict[Chat, int] = field(default_factory=dict)
    next_number: int = 1

    def accept(self, letter_id: int, draft: Draft, now: int) -> None:
        is_apart = draft.send_at_ms is not None and draft.send_at_ms > now
        chat = self.aliases.get(draft.chat, draft.chat)
        letter = Known(letter_id, draft, chat, 0, APART if is_apart else LANE, draft.rank, awaits=draft.awaits)
        if is_apart:
            letter.due_at = draft.send_at_ms
        else:
            letter.number = self._take_number()
            self._merge_older(letter)
        self.letters[letter_id] = letter

    def lift(self, named: int | None, rank: int) -> None:
        """What a new letter names goes with it, and what that one waits for; and what none of them may pass."""
        letter = self.letters.get(named or 0)
        if letter is None or letter.stands not in (LANE, APART):
            return
        if letter.rank > rank:
            letter.rank = rank
            if letter.stands == LANE:
                for other in self.letters.values():
                    is_before = other.stands == LANE and _lane(other) == _lane(letter) and other.number < letter.number
                    if is_before and other.rank in LIFTED_RANKS:
                        other.rank = min(other.rank, rank)
        self.lift(letter.awaits if letter.merged_into is None else letter.merged_into, rank)

    def _merge_older(self, newer: Known) -> None:
        for older in self.letters.values():
            is_same = newer.draft.target is not None and older.draft.target == newer.draft.target
            if is_same and older.stands == LANE and not older.is_marked and older.id != newer.awaits:
                older.stands, older.merged_into = APART, newer.id

    def can_mark(self, letter_id: int) -> bool:
        letter = self.letters[letter_id]
        return letter.stands == LANE and not letter.is_marked

    def settle(self, settlement: Settlement) -> None:
        letter = self.letters[settlement.letter_id]
        letter.is_marked = False
        letter.attempts_made, letter.uncertain_tries = settlement.attempts_made, settlement.uncertain_tries
        letter.due_at = settlement.due_at_ms or None
        if settlement.state.is_final:
            self.end(letter, str(settlement.state), settlement.at_ms)

    def end(self, letter: Known, stands: str, now: int) -> None:
        letter.stands, letter.settled_at = stands, now
        for other in self.letters.values():
            if other.merged_into == letter.id and other.stands == APART:
                self._end_merged(other, letter, now)
        for other in self.letters.values():
            is_free = other.due_at is None and other.merged_into is None
            if other.awaits == letter.id and other.stands == APART and is_free:
                self._join(other)

    def _end_merged(self, older: Known, newer: Known, now: int) -> None:
        is_unsent = newer.stands == "cancelled" or (newer.is_expired and not newer.uncertain_tries)
        if not is_unsent:
            self.end(older, newer.stands, now)
        else:
            older.merged_into = newer.merged_into
            if older.merged_into is None:
                self._join(older)

    def _join(self, letter: Known) -> None:
        letter.stands, letter.chat = LANE, self.aliases.get(letter.chat, letter.chat)

    def park(self, letter: Known) -> None:
        other = self.letters.get(letter.awaits or 0)
        if other is not None and other.stands in (LANE, APART) and other is not letter and self.can_mark(letter.id):
            letter.stands, letter.awaits, letter.due_at = APART, other.id, None

    def join_due(self, now: int) -> list[int]:
        due = [
            one
            for one in self.letters.values()
            if one.stands == APART and one.merged_into is None and one.due_at is not None and one.due_at <= now
        ]
        due.sort(key=lambda one: (one.due_at, one.id))
        for letter in due:
            letter.due_at, letter.number = None, self._take_number()
            self._join(letter)
        return [letter.id for letter in due]

    def expire(self, now: int) -> list[int]:
        late = [
            one
            for one in self.letters.values()
            if one.stands in (LANE, APART)
            and not one.is_marked
            and (one.draft.expires_at_ms or now + 1) <= now
            and one.merged_into is None
        ]
        for letter in late:
            letter.stands, letter.settled_at, letter.is_expired = "failed", now, True
        for letter in late:
            self.end(letter, "failed", now)
        return sorted(letter.id for letter in late)

    def readdress(self, old: Chat, new: int) -> None:
        self.aliases = {chat: new if same == old else same for chat, same in self.aliases.items()} | {old: new}
        self.aliases.pop(new, None)
        for letter in self.letters.values():
            if letter.stands == LANE and letter.chat == old:
                letter.chat = new

    def clean(self, keep: Retention, now: int) -> int:
        ages = {"completed": keep.completed_ms, "cancelled": keep.completed_ms, "failed": keep.dead_ms}
        old = [
            one.id for one in self.letters.values() if one.stands in ages and one.settled_at < now - ages[one.stands]
        ]
        for letter_id in old:
            del self.letters[letter_id]
        return len(old)

    def _take_number(self) -> int:
        self.next_number += 1
        return self.next_number - 1

    # ---- as the store shows it ----

    def tally(self, now: int) -> Tally:
        return Tally(**Counter(str(one.state(now)) for one in self.letters.values()))

    def lanes(self) -> dict[LaneKey, list[int]]:
        found: dict[LaneKey, list[Known]] = {}
        for letter in self.letters.values():
            if letter.stands == LANE:
                found.setdefault(_lane(letter), []).append(letter)
        return {key: [one.id for one in sorted(lane, key=_order)] for key, lane in found.items()}

    def differences(self, letter: Known, view: LetterView | None, now: int) -> dict[str, object]:
        assert view is not None, f"letter {letter.id} is gone"
        expected = {
            "state": letter.state(now),
            "chat": letter.chat,
            "due_at_ms": letter.due_at if letter.stands in (LANE, APART) else view.due_at_ms,
            "attempts_made": letter.attempts_made,
            "uncertain_tries": letter.uncertain_tries,
            "merged_into": letter.merged_into,
            "settled_at_ms": letter.settled_at,
        }
        return {name: (value, getattr(view, name)) for name, value in expected.items() if getattr(view, name) != value}


def _lane(letter: Known) -> LaneKey:
    return (letter.chat, letter.draft.thread)


def _order(letter: Known) -> tuple[int, int]:
    return (letter.rank, letter.number)
