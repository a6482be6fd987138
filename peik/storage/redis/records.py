"""Letters as Redis keeps them: a record that is written once, and a state beside it only where there is something to say."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from peik.core.letter import Backoff, Chat, Draft, Enclosed, LaneKey, Letter, State
from peik.outbox.store import Followed, LetterView, Stub
from peik.storage.sqlite.rows import (
    COUNTS_UNCERTAIN,
    PHASE_APART,
    PHASE_IN_LANE,
    STATE_OF_PHASE,
    hold_of,
    on_uncertain_of,
)

RANK_STEP = 2**50  # a place in a lane is rank * RANK_STEP + number; see moving.lua

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode


# ---- keys of chats and lanes ----


def chat_key(chat: Chat) -> str:
    """A number and the same digits as text are two chats."""
    return f"n{chat}" if isinstance(chat, int) else f"t{chat}"


def chat_of(key: str) -> Chat:
    return int(key[1:]) if key[0] == "n" else key[1:]


def lane_key(lane: LaneKey) -> str:
    return f"{chat_key(lane[0])}|{lane[1]}"


def lane_of(key: bytes) -> LaneKey:
    chat, _, thread = key.decode().rpartition("|")
    return chat_of(chat), int(thread)


# ---- records ----


class _Extras(msgspec.Struct, omit_defaults=True, frozen=True):
    """What most letters do not have. Short names: they are in every such record."""

    b: int = 0  # 1: the backoff is fixed
    t: int = 0  # timeout_ms
    q: int = 0  # 1: held when uncertain
    e: int | None = None  # expires at
    a: str | None = None  # awaits
    g: str | None = None  # target
    f: tuple[Enclosed, ...] | None = None
    m: str | None = None  # metadata
    i: str | None = None  # user_id
    y: str | None = None  # message_type
    k: int | str | None = None  # hook
    v: int = 0  # 1: it was moved before it came here
    x: str | None = None  # trace


class _Record(msgspec.Struct, array_like=True, frozen=True):
    bot: str
    chat: str
    thread: int
    rank: int
    weight: int
    method: str
    params: str
    created_at: int
    attempts: int
    backoff_ms: int
    extras: _Extras


class _State(msgspec.Struct, frozen=True):
    """See moving.lua, where it is written."""

    p: int = PHASE_IN_LANE
    n: int | None = None
    c: str | None = None
    d: int | None = None
    m: int = 0
    u: int = 0
    r: str | None = None
    h: tuple[str, ...] = ()
    g: str | None = None
    s: int | None = None
    a: str | None = None
    o: str | None = None


_decode_record = msgspec.msgpack.Decoder(_Record).decode
_decode_state = msgspec.msgpack.Decoder(_State).decode
_PLAIN = _Extras()
_UNTOUCHED = _State()


def record_of(draft: Draft, at_ms: int) -> bytes:
    return encode(
        _Record(
            bot=str(draft.bot_id),
            chat=chat_key(draft.chat),
            thread=draft.thread,
            rank=draft.rank,
            weight=draft.weight,
            method=draft.method,
            params=draft.params,
            created_at=at_ms,
            attempts=draft.attempts,
            backoff_ms=draft.backoff_ms,
            extras=_extras_of(draft),
        )
    )


def record_with_rank(record: bytes, rank: int) -> bytes:
    """The same letter with another priority."""
    return encode(msgspec.structs.replace(_decode_record(record), rank=rank))


def record_with_params(record: bytes, params: str) -> bytes:
    """The same letter with other parameters. Nothing else of a record ever changes but its priority."""
    return encode(msgspec.structs.replace(_decode_record(record), params=params))


def _extras_of(draft: Draft) -> _Extras:
    extras = _Extras(
        b=1 if draft.backoff is Backoff.FIXED else 0,
        t=draft.timeout_ms,
        q=hold_of(draft) or 0,
        e=draft.expires_at_ms,
        a=None if draft.awaits is None else str(draft.awaits),
        g=draft.target,
        f=draft.enclosed or None,
        m=draft.metadata,
        i=draft.user_id,
        y=draft.message_type,
        k=draft.hook,
        v=1 if draft.is_moved else 0,
        x=draft.trace,
    )
    return _PLAIN if extras == _PLAIN else extras


def letter_at(letter_id: bytes, place: int, record: bytes, state: bytes | None) -> Letter:
    """A letter of a lane, from its place there."""
    one = _decode_record(record)
    return _letter(int(letter_id), place - one.rank * RANK_STEP, one, _state(state))


def letter_numbered(row: Sequence[Any]) -> Letter:
    """The same from {id, number, record, state}."""
    letter_id, number, record, state = row
    return _letter(int(letter_id), number, _decode_record(record), _state(state))


def _state(raw: bytes | None) -> _State:
    return _UNTOUCHED if raw is None else _decode_state(raw)


def _letter(letter_id: int, number: int, one: _Record, state: _State) -> Letter:
    extras = one.extras
    awaits = state.a or extras.a
    return Letter(
        id=letter_id,
        bot_id=int(one.bot),
        number=number,
        method=one.method,
        params=one.params,
        chat=chat_of(state.c or one.chat),
        thread=one.thread,
        weight=one.weight,
        rank=one.rank,
        attempts=one.attempts,
        backoff_ms=one.backoff_ms,
        backoff=Backoff.FIXED if extras.b else Backoff.EXPONENTIAL,
        timeout_ms=extras.t,
        on_uncertain=on_uncertain_of(extras.q),
        counts_uncertain=extras.q == COUNTS_UNCERTAIN,
        due_at_ms=state.d or 0,
        expires_at_ms=extras.e or 0,
        awaits=None if awaits is None else int(awaits),
        is_moved=bool(extras.v) or state.c is not None,
        attempts_made=state.m,
        uncertain_tries=state.u,
        enclosed=extras.f or (),
        trace=extras.x,
    )


def view_of(letter_id: int, row: Sequence[bytes | None], *, at_ms: int) -> LetterView:
    """A letter as people see it, from {record, state, mark}."""
    record, raw_state, mark = row
    assert record is not None
    one, state = _decode_record(record), _state(raw_state)
    marked_at = None if mark is None else int(mark.partition(b":")[2])
    return LetterView(
        id=letter_id,
        bot_id=int(one.bot),
        method=one.method,
        params=one.params,
        chat=chat_of(state.c or one.chat),
        thread=one.thread,
        state=_standing(state, marked_at, at_ms),
        rank=one.rank,
        attempts=one.attempts,
        attempts_made=state.m,
        uncertain_tries=state.u,
        failed_reason=state.r,
        result=state.o,
        history=f"[{','.join(state.h)}]" if state.h else None,
        merged_into=None if state.g is None else int(state.g),
        metadata=one.extras.m,
        user_id=one.extras.i,
        message_type=one.extras.y,
        on_uncertain=on_uncertain_of(one.extras.q),
        created_at_ms=one.created_at,
        due_at_ms=state.d,
        expires_at_ms=one.extras.e,
        marked_at_ms=marked_at,
        settled_at_ms=state.s,
        trace=one.extras.x,
    )


def _standing(state: _State, marked_at: int | None, at_ms: int) -> State:
    if state.p in STATE_OF_PHASE:
        return STATE_OF_PHASE[state.p]
    if marked_at is not None:
        return State.ACTIVE
    if state.p == PHASE_APART or (state.d is not None and state.d > at_ms):
        return State.DELAYED
    return State.WAITING


def stub_of(row: Sequence[Any]) -> Stub:
    letter_id, bot, chat, thread, into = row
    lane = (chat_of(chat.decode()), thread)
    return Stub(letter_id=int(letter_id), bot_id=int(bot), lane=lane, into=None if into is None else int(into))


def followed_of(row: Sequence[Any]) -> Followed:
    letter_id, bot, method, chat, phase, reason, uncertain_tries, into, trace = row
    return Followed(
        letter_id=int(letter_id),
        bot_id=int(bot),
        method=method.decode(),
        chat=chat_of(chat.decode()),
        state=STATE_OF_PHASE[phase],
        reason=None if reason is None else reason.decode(),
        uncertain_tries=uncertain_tries,
        merged_into=int(into),
        trace=None if trace is None else trace.decode(),
    )


def pairs(flat: Sequence[bytes]) -> Mapping[str, bytes]:
    """The answer of HGETALL from within a script."""
    return {key.decode(): value for key, value in zip(flat[::2], flat[1::2], strict=True)}
