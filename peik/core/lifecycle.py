"""The life of a letter: every state and move in one table, what an outcome makes of it, and when it is tried again. Pure."""

import enum

import msgspec

from peik.core.letter import Backoff, Letter, OnUncertain, State
from peik.core.outcome import Delivered, Limited, Moved, Outcome, Refused, Uncertain, Unsent

BACKOFF_MS_MAX = 60_000  # it doubles from try to try, up to this
RESENDS_MAX = 10  # resends of uncertain tries of a letter whose `attempts` nobody set; then a person must look


def backoff_ms(*, failures: int, first_ms: int, kind: Backoff) -> int:
    """How long to wait after the nth failure in a row: 2, 4, 8, 16 … s with the defaults."""
    if kind is Backoff.FIXED:
        return first_ms
    doubled = first_ms << min(max(failures - 1, 0), 32)
    return min(doubled, max(BACKOFF_MS_MAX, first_ms))


# The life of a letter: every move in one table, and the settlement that each outcome leads to.
#
# The diagram in the docs is drawn from MOVES. A move that is not in the table cannot be made.


class Move(enum.StrEnum):
    MARK = "mark"
    DELIVER = "deliver"
    RETURN = "return"
    BACK_OFF = "back off"
    GIVE_UP = "give up"
    JOIN = "join"
    DEFER = "defer"
    PARK = "park"
    EXPIRE = "expire"
    SHUT_OUT = "shut out"
    ORPHAN = "orphan"
    MERGE = "merge"
    FOLLOW = "follow"
    FAIL_ALONG = "fail along"
    COME_BACK = "come back"
    CANCEL = "cancel"
    RETRY = "retry"
    RESOLVE = "resolve"


DELIVER = Move.DELIVER  # by itself, for who asks it of every letter: of its class it costs ten times as much
_W, _D, _A, _C, _F, _X = State.WAITING, State.DELAYED, State.ACTIVE, State.COMPLETED, State.FAILED, State.CANCELLED

MOVES: tuple[tuple[Move, tuple[State, ...], State, str], ...] = (
    (Move.MARK, (_W, _D), _A, "its turn has come; stored right before the try"),
    (Move.DELIVER, (_A,), _C, "Telegram said yes, or that it is already so"),
    (Move.RETURN, (_A,), _W, "unsent, limited or moved: costs nothing"),
    (Move.BACK_OFF, (_A,), _D, "a passing refusal or an uncertain try; waits, then again"),
    (Move.GIVE_UP, (_A,), _F, "a final refusal, no attempts left, or uncertain and held"),
    (Move.JOIN, (_D,), _W, "its time, or the letter that it refers to, has come; or somebody could not wait"),
    (Move.DEFER, (_W, _D), _D, "somebody gave it another time"),
    (Move.PARK, (_W,), _D, "refers to a letter that is not sent yet; does not block its lane"),
    (Move.EXPIRE, (_W, _D), _F, "expires_at has passed"),
    (Move.SHUT_OUT, (_W, _D), _F, "the chat cannot be reached"),
    (Move.ORPHAN, (_W, _D), _F, "the letter that it refers to will never be sent"),
    (Move.MERGE, (_W, _D), _D, "a newer edit of the same target took its place; it ends as that one ends"),
    (Move.FOLLOW, (_D,), _C, "the newer edit that it gave way to was delivered"),
    (Move.FAIL_ALONG, (_D,), _F, "the newer edit that it gave way to failed"),
    (Move.COME_BACK, (_D,), _W, "the newer edit that it gave way to was cancelled, or expired unsent"),
    (Move.CANCEL, (_W, _D), _X, "somebody took it back"),
    (Move.RETRY, (_F,), _W, "a dead letter is sent again, at the end of its lane"),
    (Move.RESOLVE, (_F,), _C, "somebody saw that the uncertain letter had arrived"),
)

_TARGET_OF = {(move, source): target for move, sources, target, _ in MOVES for source in sources}

UNTRIED = frozenset({Move.EXPIRE, Move.SHUT_OUT, Move.ORPHAN})  # they end a letter without a try, and so without a mark

UNCERTAIN = "uncertain"
EXPIRED = "expired"


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The new truth of one letter after one try, to be stored as a whole."""

    letter_id: int
    bot_id: int
    move: Move
    state: State
    at_ms: int
    due_at_ms: int = 0
    attempts_made: int
    uncertain_tries: int
    failed_reason: str | None = None
    result: str | None = None
    entry: str | None = None  # one line of the letter's history, JSON; None for a plain delivery


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a letter's history."""

    at: int
    outcome: str
    code: int | None = None
    words: str | None = None
    retry_after_s: float | None = None
    parameters: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # of a refusal, as they came


_encode = msgspec.json.Encoder().encode


def settle(letter: Letter, outcome: Outcome, *, at_ms: int) -> Settlement:
    """What becomes of an active letter after this outcome (docs/guarantees.md, What goes out)."""
    match outcome:
        case Delivered(result=result, note=note):
            return Settlement(  # as `_moved_on`, without what is as usual: nearly all letters end here
                letter_id=letter.id,
                bot_id=letter.bot_id,
                move=DELIVER,
                state=_C,
                at_ms=at_ms,
                attempts_made=max(letter.attempts_made, 0) + 1,  # `tries_made`
                uncertain_tries=letter.uncertain_tries,
                result=result.decode(),
                entry=_line(at_ms, outcome, words=note) if note else None,
            )
        case Unsent(why=why):
            return _moved_on(letter, Move.RETURN, at_ms, entry=_line(at_ms, outcome, words=why))
        case Moved(to_chat_id=chat_id):
            return _moved_on(letter, Move.RETURN, at_ms, entry=_line(at_ms, outcome, words=f"to {chat_id}"))
        case Limited(retry_after_s=wait, may_have_arrived=False):
            return _moved_on(letter, Move.RETURN, at_ms, entry=_line(at_ms, outcome, retry_after_s=wait))
        case Limited(retry_after_s=wait):
            return _after_doubt(letter, at_ms, _line(at_ms, outcome, code=429, retry_after_s=wait))
        case Uncertain(why=why, code=code):
            return _after_doubt(letter, at_ms, _line(at_ms, outcome, code=code or None, words=why))
        case Refused():
            return _after_refusal(letter, outcome, at_ms)


def _after_refusal(letter: Letter, refused: Refused, at_ms: int) -> Settlement:
    entry = _line(at_ms, refused, code=refused.code, words=refused.words, parameters=refused.parameters)
    made = letter.tries_made + 1
    counted = made if letter.counts_uncertain else made - letter.uncertain_tries
    bound = letter.attempts if refused.attempts_max is None else min(letter.attempts, refused.attempts_max)
    if refused.is_passing and counted < bound:
        wait = backoff_ms(failures=made, first_ms=letter.backoff_ms, kind=letter.backoff)
        return _moved_on(letter, Move.BACK_OFF, at_ms, attempts_made=made, due_at_ms=at_ms + wait, entry=entry)
    doubts = letter.uncertain_tries + (1 if refused.may_have_arrived else 0)
    return _moved_on(
        letter,
        Move.GIVE_UP,
        at_ms,
        attempts_made=made,
        uncertain_tries=doubts,
        failed_reason=refused.words,
        entry=entry,
    )


def _after_doubt(letter: Letter, at_ms: int, entry: str) -> Settlement:
    made, doubts = letter.tries_made + 1, letter.uncertain_tries + 1
    is_over = made >= letter.attempts if letter.counts_uncertain else doubts > RESENDS_MAX
    if is_over or letter.on_uncertain is OnUncertain.HOLD:
        return _moved_on(
            letter,
            Move.GIVE_UP,
            at_ms,
            attempts_made=made,
            uncertain_tries=doubts,
            failed_reason=UNCERTAIN,
            entry=entry,
        )
    wait = backoff_ms(failures=made, first_ms=letter.backoff_ms, kind=letter.backoff)
    return _moved_on(
        letter,
        Move.BACK_OFF,
        at_ms,
        attempts_made=made,
        uncertain_tries=doubts,
        due_at_ms=at_ms + wait,
        entry=entry,
    )


def end_unsent(letter: Letter, move: Move, reason: str, *, at_ms: int) -> Settlement:
    """A letter that ends without another try: expired, shut out by its chat, or orphaned by its reference."""
    state = _TARGET_OF[move, State.WAITING]
    return Settlement(
        letter_id=letter.id,
        bot_id=letter.bot_id,
        move=move,
        state=state,
        at_ms=at_ms,
        attempts_made=letter.attempts_made,
        uncertain_tries=letter.uncertain_tries,
        failed_reason=reason,
        entry=_encode(Try(at=at_ms, outcome=str(move), words=reason)).decode(),
    )


def allows(move: Move, state: State) -> bool:
    return (move, state) in _TARGET_OF


def _moved_on(
    letter: Letter,
    move: Move,
    at_ms: int,
    *,
    attempts_made: int | None = None,
    uncertain_tries: int | None = None,
    due_at_ms: int = 0,
    failed_reason: str | None = None,
    result: str | None = None,
    entry: str | None = None,
) -> Settlement:
    return Settlement(
        letter_id=letter.id,
        bot_id=letter.bot_id,
        move=move,
        state=_TARGET_OF[move, State.ACTIVE],
        at_ms=at_ms,
        due_at_ms=due_at_ms,
        attempts_made=letter.attempts_made if attempts_made is None else attempts_made,
        uncertain_tries=letter.uncertain_tries if uncertain_tries is None else uncertain_tries,
        failed_reason=failed_reason,
        result=result,
        entry=entry,
    )


def _line(
    at_ms: int,
    outcome: Outcome,
    *,
    code: int | None = None,
    words: str | None = None,
    retry_after_s: float | None = None,
    parameters: bytes = b"",
) -> str:
    name = type(outcome).__name__.lower()
    line = Try(at=at_ms, outcome=name, code=code, words=words, retry_after_s=retry_after_s)
    if parameters:
        line = msgspec.structs.replace(line, parameters=msgspec.Raw(parameters))
    return _encode(line).decode()


def carried_on(letter: Letter, settlement: Settlement) -> Letter:
    """The letter as it goes on after a settlement that did not end it."""
    return msgspec.structs.replace(
        letter,
        due_at_ms=settlement.due_at_ms,
        attempts_made=settlement.attempts_made,
        uncertain_tries=settlement.uncertain_tries,
    )
