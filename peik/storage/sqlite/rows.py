"""Rows of the SQLite store as values: the one place that knows the order of columns."""

import msgspec

from peik.core.letter import Backoff, Chat, Enclosed, Letter, OnUncertain, State
from peik.outbox.store import LetterView
from peik.storage.sqlite.statements import Value

PHASE_IN_LANE = 0
PHASE_APART = 1
PHASE_OF = {
    State.WAITING: PHASE_IN_LANE,
    State.DELAYED: PHASE_IN_LANE,  # backing off at the head of its lane
    State.COMPLETED: 2,
    State.FAILED: 3,
    State.CANCELLED: 4,
}
TALLY_COLUMNS = ("in_lane", "apart", "completed", "failed", "cancelled")
STATE_OF_PHASE = {2: State.COMPLETED, 3: State.FAILED, 4: State.CANCELLED}


class _LetterRow(msgspec.Struct, array_like=True, gc=False):
    id: int
    bot_id: int
    number: int
    method: str
    params: str
    chat: Chat
    thread: int
    weight: int
    rank: int
    attempts: int
    backoff_ms: int
    backoff: str | None
    timeout_ms: int | None
    hold: int | None
    due_at: int | None
    expires_at: int | None
    awaits: int | None
    moved: int | None
    attempts_made: int
    uncertain_tries: int
    enclosed: str | None
    trace: str | None


LETTER_COLUMNS: tuple[str, ...] = _LetterRow.__struct_fields__

_decode_rows = msgspec.json.Decoder(list[_LetterRow]).decode
_decode_enclosed = msgspec.json.Decoder(tuple[Enclosed, ...]).decode


def encode_enclosed(enclosed: tuple[Enclosed, ...]) -> str | None:
    return msgspec.json.encode(enclosed).decode() if enclosed else None


def letters_from_json(text: str) -> list[Letter]:
    """The letters of a JSON array that SQLite made, in the order of their lane."""
    letters = [_letter(row) for row in _decode_rows(text)]
    letters.sort(key=lambda letter: (letter.rank, letter.number))
    return letters


def letter_from_row(row: tuple[Value, ...]) -> Letter:
    return _letter(msgspec.convert(list(row), _LetterRow))


def _letter(row: _LetterRow) -> Letter:
    plain = Letter(
        id=row.id,
        bot_id=row.bot_id,
        number=row.number,
        method=row.method,
        params=row.params,
        chat=row.chat,
        thread=row.thread,
        weight=row.weight,
        rank=row.rank,
        attempts=row.attempts,
        backoff_ms=row.backoff_ms,
        attempts_made=row.attempts_made,
        uncertain_tries=row.uncertain_tries,
        trace=row.trace,
    )
    has_usual_terms = (
        row.backoff is None
        and row.timeout_ms is None
        and row.hold is None
        and row.due_at is None
        and row.expires_at is None
        and row.awaits is None
        and row.moved is None
        and row.enclosed is None
    )
    if has_usual_terms:  # nearly all, and a field that is named costs
        return plain
    return msgspec.structs.replace(
        plain,
        backoff=Backoff(row.backoff) if row.backoff else Backoff.EXPONENTIAL,
        timeout_ms=row.timeout_ms or 0,
        on_uncertain=OnUncertain.HOLD if row.hold else OnUncertain.RESEND,
        due_at_ms=row.due_at or 0,
        expires_at_ms=row.expires_at or 0,
        awaits=row.awaits,
        is_moved=bool(row.moved),
        enclosed=_decode_enclosed(row.enclosed) if row.enclosed else (),
    )


class _ViewRow(msgspec.Struct, array_like=True):
    id: int
    bot_id: int
    method: str
    params: str
    chat: Chat
    thread: int
    phase: int
    rank: int
    attempts: int
    attempts_made: int
    uncertain_tries: int
    failed_reason: str | None
    result: str | None
    history: str | None
    merged_into: int | None
    metadata: str | None
    user_id: str | None
    message_type: str | None
    hold: int | None
    created_at: int
    due_at: int | None
    expires_at: int | None
    marked_at: int | None
    settled_at: int | None
    trace: str | None


def view_from_row(row: tuple[Value, ...], *, at_ms: int) -> LetterView:
    one = msgspec.convert(list(row), _ViewRow)
    return LetterView(
        id=one.id,
        bot_id=one.bot_id,
        method=one.method,
        params=one.params,
        chat=one.chat,
        thread=one.thread,
        state=_state(one, at_ms),
        rank=one.rank,
        attempts=one.attempts,
        attempts_made=one.attempts_made,
        uncertain_tries=one.uncertain_tries,
        failed_reason=one.failed_reason,
        result=one.result,
        history=one.history,
        merged_into=one.merged_into,
        metadata=one.metadata,
        user_id=one.user_id,
        message_type=one.message_type,
        on_uncertain=OnUncertain.HOLD if one.hold else OnUncertain.RESEND,
        created_at_ms=one.created_at,
        due_at_ms=one.due_at,
        expires_at_ms=one.expires_at,
        marked_at_ms=one.marked_at,
        settled_at_ms=one.settled_at,
        trace=one.trace,
    )


def _state(row: _ViewRow, at_ms: int) -> State:
    if row.phase in STATE_OF_PHASE:
        return STATE_OF_PHASE[row.phase]
    if row.marked_at is not None:
        return State.ACTIVE
    if row.phase == PHASE_APART or (row.due_at is not None and row.due_at > at_ms):
        return State.DELAYED
    return State.WAITING
