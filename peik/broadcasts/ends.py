"""How a letter of a broadcast ended, as a line of its ledger."""

import msgspec

from peik.broadcasts.records import Recipient
from peik.core.broadcast import RecipientState
from peik.core.catalogue import Scope, Verdict, look_up
from peik.core.letter import State
from peik.core.lifecycle import Move
from peik.ports import LetterView

WORDS_MAX = 500
LOST = "Its letter is no longer kept: what became of it is not known."


class _Line(msgspec.Struct):
    outcome: str
    code: int | None = None
    words: str | None = None


class _Sent(msgspec.Struct):
    message_id: int = 0


_read_history = msgspec.json.Decoder(list[_Line]).decode
_read_one = msgspec.json.Decoder(_Sent).decode
_read_many = msgspec.json.Decoder(list[_Sent]).decode


def ended(recipient: Recipient, view: LetterView | None, *, at_ms: int) -> Recipient:
    """A recipient whose letter has ended. None in its place: it is gone."""
    if view is None:
        return msgspec.structs.replace(recipient, state=RecipientState.FAILED, error=LOST, ended_at_ms=at_ms)
    match view.state:
        case State.COMPLETED:
            state, error = RecipientState.DELIVERED, None
        case State.CANCELLED:
            state, error = RecipientState.CANCELLED, None
        case _:
            state = RecipientState.BLOCKED if is_blocked(view) else RecipientState.FAILED
            error = (view.failed_reason or "")[:WORDS_MAX]
    return msgspec.structs.replace(
        recipient,
        state=state,
        error=error,
        messages=messages_of(view.result) if view.state is State.COMPLETED else (),
        uncertain_tries=recipient.uncertain_tries + view.uncertain_tries,
        ended_at_ms=view.settled_at_ms or at_ms,
    )


def arrived(recipient: Recipient, view: LetterView, *, at_ms: int) -> Recipient:
    """One that had failed, whose letter somebody sent again since, and it arrived."""
    return msgspec.structs.replace(
        recipient,
        state=RecipientState.DELIVERED,
        error=None,
        messages=messages_of(view.result),
        uncertain_tries=max(recipient.uncertain_tries, view.uncertain_tries),
        ended_at_ms=view.settled_at_ms or at_ms,
    )


def messages_of(result: str | None) -> tuple[int, ...]:
    """The ids of the messages that Telegram answered with, of one or of an album."""
    if result is None:
        return ()
    try:
        found = _read_many(result) if result.lstrip().startswith("[") else [_read_one(result)]
    except msgspec.DecodeError:
        return ()  # a method that makes no message answers True
    return tuple(one.message_id for one in found if one.message_id > 0)


def is_blocked(view: LetterView) -> bool:
    """Whether it failed because its chat cannot be reached at all."""
    lines = _read_history(view.history or "[]")
    if not lines:
        return False
    last = lines[-1]
    if last.outcome == Move.SHUT_OUT:
        return True
    if last.code is None:
        return False
    row = look_up(code=last.code, words=last.words or "", method=view.method)
    return row.verdict is Verdict.FINAL and row.scope is Scope.CHAT
