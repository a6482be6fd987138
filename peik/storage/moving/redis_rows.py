"""Records of letters and of what outlives them as Redis keeps them, both ways: see peik/storage/redis/records.py."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from peik.core.letter import Backoff, Enclosed
from peik.storage.moving.records import (
    PHASE_IN_LANE,
    ApiKey,
    FileId,
    MovedArrival,
    MovedBot,
    MovedInbox,
    MovedLetter,
    MovedLogLine,
    Record,
    Story,
    WaitingHook,
    has_place,
    history_of,
    lines_of,
)
from peik.storage.redis.records import chat_key, chat_of, encode

RANK_STEP = 2**50  # a place in a lane is rank * RANK_STEP + number


# ---- letters: what the caller said, and what became of it ----


class _Extras(msgspec.Struct, omit_defaults=True, frozen=True):
    b: int = 0
    t: int = 0
    q: int = 0
    e: int | None = None
    a: str | None = None
    g: str | None = None
    f: tuple[Enclosed, ...] | None = None
    m: str | None = None
    i: str | None = None
    y: str | None = None
    k: int | str | None = None
    v: int = 0
    x: str | None = None


class LetterRow(msgspec.Struct, array_like=True, frozen=True):
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


class LetterState(msgspec.Struct, omit_defaults=True, frozen=True):
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


UNTOUCHED = LetterState()
decode_letter = msgspec.msgpack.Decoder(LetterRow).decode
decode_state = msgspec.msgpack.Decoder(LetterState).decode
_enclosed = msgspec.json.Decoder(tuple[Enclosed, ...]).decode


def blobs_of(letter: MovedLetter) -> list[str]:
    return [] if letter.enclosed is None else [file.blob for file in _enclosed(letter.enclosed)]


def letter_row(letter: MovedLetter) -> LetterRow:
    extras = _Extras(
        b=0 if letter.backoff is None else 1,
        t=letter.timeout_ms or 0,
        q=letter.hold or 0,
        e=letter.expires_at,
        a=_text(letter.awaits),
        g=letter.target,
        f=None if letter.enclosed is None else _enclosed(letter.enclosed),
        m=letter.metadata,
        i=letter.user_id,
        y=letter.message_type,
        k=letter.hook,
        v=letter.moved or 0,
        x=letter.trace,
    )
    return LetterRow(
        bot=str(letter.bot_id),
        chat=chat_key(letter.chat),
        thread=letter.thread,
        rank=letter.rank,
        weight=letter.weight,
        method=letter.method,
        params=letter.params,
        created_at=letter.created_at,
        attempts=letter.attempts,
        backoff_ms=letter.backoff_ms,
        extras=extras,
    )


def letter_state(letter: MovedLetter) -> LetterState:
    return LetterState(
        p=letter.phase,
        n=letter.number if has_place(letter) and letter.phase != PHASE_IN_LANE else None,
        d=letter.due_at,
        m=letter.attempts_made,
        u=letter.uncertain_tries,
        r=letter.failed_reason,
        h=tuple(lines_of(letter.history)),
        g=_text(letter.merged_into),
        s=letter.settled_at,
        o=letter.result,
    )


def letter_of(letter_id: int, row: LetterRow, state: LetterState, *, number: int, marked_at: int | None) -> MovedLetter:
    extras = row.extras
    return MovedLetter(
        id=letter_id,
        bot_id=int(row.bot),
        number=number,
        phase=state.p,
        rank=row.rank,
        chat=chat_of(state.c or row.chat),
        thread=row.thread,
        weight=row.weight,
        method=row.method,
        params=row.params,
        created_at=row.created_at,
        attempts=row.attempts,
        backoff_ms=row.backoff_ms,
        backoff=str(Backoff.FIXED) if extras.b else None,
        timeout_ms=extras.t or None,
        hold=extras.q or None,
        due_at=state.d,
        expires_at=extras.e or None,
        awaits=_number(state.a or extras.a),
        target=extras.g,
        enclosed=None if not extras.f else msgspec.json.encode(extras.f).decode(),
        metadata=extras.m,
        user_id=extras.i,
        message_type=extras.y,
        moved=1 if extras.v or state.c is not None else None,
        attempts_made=state.m,
        uncertain_tries=state.u,
        failed_reason=state.r,
        merged_into=_number(state.g),
        history=history_of(state.h) if state.h else None,
        settled_at=state.s,
        trace=extras.x,
        hook=extras.k,
        result=state.o,
        marked_at=marked_at,
    )


# ---- what outlives letters ----


def bot_row(bot: MovedBot) -> bytes:
    """False stands for what is not there: Lua would take an array with gaps for a map."""
    return encode([False if cell is None else cell for cell in msgspec.structs.astuple(bot)[1:]])


def bot_of(bot_id: int, raw: bytes) -> MovedBot:
    cells: list[Any] = msgspec.msgpack.decode(raw)
    make: Callable[..., MovedBot] = MovedBot
    return make(bot_id, *(None if cell is False else cell for cell in cells[:-1]), cells[-1] or 0)


class KnownRow(msgspec.Struct, omit_defaults=True, frozen=True):
    r: str | None = None
    t: int | None = None
    h: int | None = None


decode_known = msgspec.msgpack.Decoder(KnownRow).decode


class _KeyRow(msgspec.Struct, frozen=True):
    digest: str
    name: str
    scopes: tuple[str, ...]
    bot_ids: tuple[int, ...] | None
    created_at_ms: int
    expires_at_ms: int | None
    webhook_url: str | None
    webhook_secret: str | None


_decode_key = msgspec.msgpack.Decoder(_KeyRow).decode


def key_row(key: ApiKey) -> bytes:
    return encode(
        _KeyRow(
            digest=key.digest.hex(),
            name=key.name,
            scopes=msgspec.json.decode(key.scopes, type=tuple[str, ...]),
            bot_ids=None if key.bot_ids is None else msgspec.json.decode(key.bot_ids, type=tuple[int, ...]),
            created_at_ms=key.created_at,
            expires_at_ms=key.expires_at,
            webhook_url=key.webhook_url,
            webhook_secret=key.webhook_secret,
        )
    )


def key_of(key_id: int, raw: bytes, *, is_live: bool, used_at: int | None) -> ApiKey:
    one = _decode_key(raw)
    return ApiKey(
        id=key_id,
        digest=bytes.fromhex(one.digest),
        name=one.name,
        scopes=msgspec.json.encode(one.scopes).decode(),
        bot_ids=None if one.bot_ids is None else msgspec.json.encode(sorted(one.bot_ids)).decode(),
        created_at=one.created_at_ms,
        expires_at=one.expires_at_ms,
        revoked_at=None if is_live else 0,
        last_used_at=used_at,
        webhook_url=one.webhook_url,
        webhook_secret=one.webhook_secret,
    )


class _LogRow(msgspec.Struct, omit_defaults=True, frozen=True):
    bot: str
    chat: str
    method: str
    status: str
    made: int
    at: int
    user: str | None = None
    type: str | None = None
    error: str | None = None
    ended: int | None = None
    message: int | None = None
    text: str | None = None


_decode_log = msgspec.msgpack.Decoder(_LogRow).decode


def log_row(line: MovedLogLine) -> bytes:
    return encode(
        _LogRow(
            bot=str(line.bot_id),
            chat=chat_key("" if line.chat is None else line.chat),
            method=line.method,
            status=line.status,
            made=line.attempts,
            at=line.created_at,
            user=line.user_id,
            type=line.message_type,
            error=line.error,
            ended=line.finished_at,
            message=line.message_id,
            text=line.text,
        )
    )


def log_of(letter_id: int, raw: bytes) -> MovedLogLine:
    one = _decode_log(raw)
    return MovedLogLine(
        id=letter_id,
        bot_id=int(one.bot),
        chat=chat_of(one.chat),
        user_id=one.user,
        message_type=one.type,
        method=one.method,
        status=one.status,
        attempts=one.made,
        error=one.error,
        message_id=one.message,
        created_at=one.at,
        finished_at=one.ended,
        text=one.text,
    )


class _HookRow(msgspec.Struct, frozen=True):
    e: str
    k: int | str
    letter: str
    p: int
    at: int
    t: int


_decode_hook = msgspec.msgpack.Decoder(_HookRow).decode


def hook_row(hook: WaitingHook) -> bytes:
    return encode(
        _HookRow(e=hook.endpoint, k=hook.hook, letter=str(hook.letter_id), p=hook.phase, at=hook.at, t=hook.tries)
    )


def hook_of(hook_id: int, raw: bytes, *, due_at: int, body: str | None) -> WaitingHook:
    one = _decode_hook(raw)
    return WaitingHook(hook_id, one.e, one.k, int(one.letter), one.p, one.at, due_at, one.t, body)


# ---- what Redis does not keep ----


def fit(record: Record) -> Record:
    """A record as Redis gives it back: no place of a letter that has none, no dates that only people look at."""
    replace = msgspec.structs.replace
    match record:
        case MovedLetter():
            fitted = record
            if record.number and not has_place(record):
                fitted = replace(fitted, number=0)
            if record.history is not None:
                fitted = replace(fitted, history=history_of(lines_of(record.history)))
            if record.enclosed is not None:
                fitted = replace(fitted, enclosed=msgspec.json.encode(_enclosed(record.enclosed)).decode())
            return fitted
        case ApiKey(revoked_at=int()):
            return replace(record, revoked_at=0)
        case Story():
            return replace(record, history=history_of(lines_of(record.history)))
        case MovedLogLine(chat=None):
            return replace(record, chat="")
        case FileId():
            return replace(record, at=0)
        case MovedInbox():
            return replace(record, updated_at=None)
        case _:
            return record


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


# Records of the inbox as Redis keeps them, both ways: see arrivals.lua and consumers.lua.


class _UpdateRow(msgspec.Struct, array_like=True, frozen=True):
    bot: str
    type: str
    lane: str
    user_id: int | None
    message_id: int | None
    sent_at: int | None
    digest: str
    payload: str


_decode_update = msgspec.msgpack.Decoder(_UpdateRow).decode


def arrival_row(one: MovedArrival) -> bytes:
    """A line of what we know of it, then the update as it came; see arrivals.lua."""
    update = _UpdateRow(
        str(one.bot_id),
        one.type,
        chat_key(one.lane),
        one.user_id,
        one.message_id,
        one.sent_at,
        one.digest.hex(),
        one.payload,
    )
    size_bytes = len(one.payload.encode())
    words = (one.number, one.epoch, one.received_at, one.replay_of or 0, one.only_for, one.update_id, size_bytes)
    return " ".join(map(str, words)).encode() + b"\n" + encode(update)


def arrival_of(arrival_id: int, raw: bytes) -> MovedArrival:
    line, _, rest = raw.partition(b"\n")
    number, epoch, received_at, replay_of, only_for, update_id, _ = (int(word) for word in line.split(b" "))
    update = _decode_update(rest)
    return MovedArrival(
        id=arrival_id,
        bot_id=int(update.bot),
        number=number,
        epoch=epoch,
        update_id=update_id,
        type=update.type,
        lane=chat_of(update.lane),
        user_id=update.user_id,
        message_id=update.message_id,
        sent_at=update.sent_at,
        received_at=received_at,
        digest=bytes.fromhex(update.digest),
        payload=update.payload,
        replay_of=replay_of or None,
        only_for=only_for,
    )


class ReaderRow(msgspec.Struct, omit_defaults=True, frozen=True):
    bot: str
    name: str
    kind: str
    connections: int
    at: int
    url: str | None = None
    secret: str | None = None
    allowed: str | None = None


decode_reader = msgspec.msgpack.Decoder(ReaderRow).decode
decode_progress = msgspec.msgpack.Decoder(tuple[int, tuple[tuple[int, int], ...]]).decode


class _StoryRow(msgspec.Struct, omit_defaults=True, frozen=True):
    p: int = -1
    t: int = -1
    d: int | None = None
    r: str | None = None
    s: int | None = None
    h: tuple[str, ...] | None = None


_decode_story = msgspec.msgpack.Decoder(_StoryRow).decode


def story_row(story: Story) -> bytes:
    lines = tuple(lines_of(story.history))
    return encode(
        _StoryRow(p=story.phase, t=story.tries, d=story.due_at, r=story.failed_reason, s=story.settled_at, h=lines)
    )


def story_of(consumer_id: int, number: int, raw: bytes) -> Story:
    one = _decode_story(raw)
    return Story(consumer_id, number, one.p, one.t, one.d, one.r, one.s, history_of(one.h or ()))


class OutageRow(msgspec.Struct, omit_defaults=True, frozen=True):
    bot: str
    began: int
    ended: int
    last: int
    settled: int | None = None


decode_outage = msgspec.msgpack.Decoder(OutageRow).decode


# Commands for a Redis server that go in one transaction, as few as possible: what concerns one key is one command.


Cell = str | bytes | int


class RedisBatch:
    """Collects; `prepare` reads what has to be known before, `put` gives all of it to a transaction."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._hashes: dict[str, dict[Cell, Cell]] = defaultdict(dict)
        self._zsets: dict[str, dict[str, int]] = defaultdict(dict)
        self._sets: dict[str, set[str]] = defaultdict(set)
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._texts: dict[str, Cell] = {}
        self._lists: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._highest: dict[tuple[str, str], int] = {}

    def field(self, key: str, field: Cell, value: Cell) -> None:
        self._hashes[key][field] = value

    def member(self, key: str, member: Cell, score: int) -> None:
        self._zsets[key][str(member)] = score

    def element(self, key: str, element: Cell) -> None:
        self._sets[key].add(str(element))

    def count(self, key: str, field: Cell) -> None:
        self._counts[key][str(field)] += 1

    def text(self, key: str, value: Cell) -> None:
        self._texts[key] = value

    def listed(self, key: str, field: Cell, one: Cell) -> None:
        """An id more in a list of ids that is a text."""
        self._lists[key][str(field)].append(str(one))

    def at_least(self, key: str, field: str, value: int) -> None:
        known = self._highest.get((key, field))
        self._highest[key, field] = value if known is None else max(known, value)

    async def prepare(self, redis: Any) -> None:
        """Nobody else writes here, so that what is read now is still so when it is written."""
        for key, lists in self._lists.items():
            found = await redis.hmget(self._prefix + key, list(lists))
            for (field, ids), before in zip(lists.items(), found, strict=True):
                self.field(key, field, ",".join(([before.decode()] if before else []) + ids))
        for (key, field), value in self._highest.items():
            known = await redis.hget(self._prefix + key, field)
            self.field(key, field, value if known is None else max(int(known), value))

    def put(self, pipe: Any) -> None:
        for key, fields in self._hashes.items():
            pipe.hset(self._prefix + key, mapping=fields)
        for key, members in self._zsets.items():
            pipe.zadd(self._prefix + key, members)
        for key, elements in self._sets.items():
            pipe.sadd(self._prefix + key, *elements)
        for key, counts in self._counts.items():
            for field, more in counts.items():
                pipe.hincrby(self._prefix + key, field, more)
        for key, value in self._texts.items():
            pipe.set(self._prefix + key, value)
