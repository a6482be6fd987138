"""A letter: a call that Peik promised to deliver. Values only; what may happen to one is in `lifecycle`."""

import enum
import functools
import re

import msgspec

Chat = int | str  # a chat's number, "@name" in lower case, or "user:…", "inline:…", "business:…", "bot"
LaneKey = tuple[Chat, int]  # (chat, thread), within one bot; thread 0 is no thread


class State(enum.StrEnum):
    """What people see, everywhere the same. A failed letter is a dead letter."""

    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


class Priority(enum.IntEnum):
    BULK = -1  # broadcasts, and a gateway caller that writes to ever new chats unasked
    NORMAL = 0
    HIGH = 1  # answers to people through the gateway, notifications
    CRITICAL = 2

    @property
    def rank(self) -> int:
        """0 goes first. Ranks index the arrays of `lanes` and order the store's lane index."""
        return Priority.CRITICAL - self


# The rank of bulk that was judged and not said (`Draft.is_judged`). It has one of its own since it counts between chats only: a
# later letter of its chat lifts it (`LIFTED_RANKS`), while bulk that was said by hand gives way to what comes later.
UNASKED_RANK = Priority.BULK.rank + 1
RANKS = UNASKED_RANK + 1
# The queue of lanes whose heads are edits that no rate of the bot holds back (`Letter.turn`), beside those of the ranks.
EDITS_TURN = RANKS
# What a later judged letter of the same lane lifts to its own rank instead of passing it.
LIFTED_RANKS = (Priority.NORMAL.rank, UNASKED_RANK)
_NORMAL_RANK = Priority.NORMAL.rank
INTERACTIVE_RANK_MAX = Priority.HIGH.rank  # what a person waits for; the rest is bulk to Telegram


def priority_of(rank: int) -> int:
    """As people say it. What was judged to be bulk is bulk to them."""
    return max(Priority.CRITICAL - rank, Priority.BULK)


@functools.lru_cache(maxsize=1024)  # asked five times for each letter
def is_edit(method: str) -> bool:
    """Whether it changes what is there. Telegram counts edits by themselves (docs/telegram.md, Flood limits)."""
    return method.startswith("edit")


class OnUncertain(enum.StrEnum):
    """What to do after a try that may have arrived."""

    RESEND = "resend"  # at least once
    HOLD = "hold"  # at most once: a person decides


class Backoff(enum.StrEnum):
    EXPONENTIAL = "exponential"
    FIXED = "fixed"


class Enclosed(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a call as the store remembers it; the bytes lie in the spool under `blob`."""

    field: str
    blob: str
    filename: str
    content_type: str
    size_bytes: int
    digest: str


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call with its delivery terms, checked and addressed, about to become durable."""

    bot_id: int
    method: str
    params: str  # the JSON object exactly as it will be sent
    chat: Chat
    thread: int = 0
    weight: int = 1  # how many messages it is to Telegram's limits; 0 for writes that make none
    rank: int = Priority.NORMAL.rank
    attempts: int = 5
    backoff_ms: int = 2000
    backoff: Backoff = Backoff.EXPONENTIAL
    timeout_ms: int = 0  # 0: the carrier's own
    on_uncertain: OnUncertain = OnUncertain.RESEND
    counts_uncertain: bool = False  # somebody set `attempts`: it bounds uncertain tries as well
    send_at_ms: int | None = None
    expires_at_ms: int | None = None
    awaits: int | None = None  # the letter whose message id a reference takes
    target: str | None = None  # what an edit replaces, for merging
    enclosed: tuple[Enclosed, ...] = ()
    idempotency_key: str | None = None
    digest: str = ""  # of the whole call, to tell a repeat from another call under the same key
    is_moved: bool = False
    metadata: str | None = None  # a JSON object
    user_id: str | None = None
    message_type: str | None = None
    hook: int | str | None = None  # who hears how it ended: a key with a webhook, or an address
    trace: str | None = None  # what it answers, as `peik.core.trace` writes it
    is_too_late: bool = False  # it had expired when it came: it can only be the repeat of one that was in time
    is_judged: bool = (
        False  # its priority was not said: it counts between chats, and in its lane order stays as accepted
    )

    @property
    def may_lift(self) -> bool:
        """Whether it lifts letters that came before it: those of its lane that it must not pass, or the one that it names."""
        return (self.is_judged and self.rank < UNASKED_RANK) or self.awaits is not None

    @property
    def may_go_at_once(self) -> bool:
        """Whether nothing but its lane decides when it goes, and it needs nothing else before."""
        return (
            self.send_at_ms is None
            and self.expires_at_ms is None
            and self.awaits is None
            and self.target is None
            and self.idempotency_key is None
            and not self.enclosed
            and not self.is_moved
        )


class Letter(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A durable letter as engines carry it: what is needed to send and to judge, no more."""

    id: int
    bot_id: int
    number: int  # its place in the bot's order; a letter that joins again gets a new one
    method: str
    params: str
    chat: Chat
    thread: int = 0
    weight: int = 1
    rank: int = Priority.NORMAL.rank
    attempts: int = 5
    backoff_ms: int = 2000
    backoff: Backoff = Backoff.EXPONENTIAL
    timeout_ms: int = 0
    on_uncertain: OnUncertain = OnUncertain.RESEND
    counts_uncertain: bool = False
    due_at_ms: int = 0  # not before, while it backs off at the head of its lane
    expires_at_ms: int = 0  # 0: never
    awaits: int | None = None
    is_moved: bool = False  # its chat was re-addressed after it was accepted: params still name the old one
    attempts_made: int = (
        0  # below zero: how often an edit changed it before its first try. A mark of what it was does not take
    )
    uncertain_tries: int = 0
    enclosed: tuple[Enclosed, ...] = ()
    trace: str | None = None

    @property
    def tries_made(self) -> int:
        """How many tries have left, whether Telegram refused them or nobody knows."""
        return max(self.attempts_made, 0)

    @property
    def lane(self) -> LaneKey:
        return (self.chat, self.thread)

    @property
    def order(self) -> tuple[int, int]:
        """Its place among the letters of its lane: the higher priority first, then as accepted."""
        return (self.rank, self.number)

    @property
    def is_edit(self) -> bool:
        return is_edit(self.method)

    @property
    def turn(self) -> int:
        """The queue in which its lane waits while it is the head: that of its rank. Edits in private chats have one of their
        own, since they are free (`pace`), unless they are bulk."""
        if self.rank > _NORMAL_RANK or not is_edit(self.method):
            return self.rank
        chat = self.chat
        is_private = chat > 0 if isinstance(chat, int) else not chat.startswith("@")
        return EDITS_TURN if is_private else self.rank


def letter_of_draft(draft: Draft, *, letter_id: int, number: int, is_plain: bool = False) -> Letter:
    """A draft that has just become durable, as the engines carry it. `is_plain`: it is known to have the usual terms."""
    plain = Letter(
        id=letter_id,
        bot_id=draft.bot_id,
        number=number,
        method=draft.method,
        params=draft.params,
        chat=draft.chat,
        thread=draft.thread,
        weight=draft.weight,
        rank=draft.rank,
        attempts=draft.attempts,
        backoff_ms=draft.backoff_ms,
        trace=draft.trace,
    )
    if (
        is_plain
    ):  # nearly all, and a field that is named costs the more the more there are (1.3 µs for all, 0.4 for these)
        return plain
    return msgspec.structs.replace(
        plain,
        backoff=draft.backoff,
        timeout_ms=draft.timeout_ms,
        on_uncertain=draft.on_uncertain,
        counts_uncertain=draft.counts_uncertain,
        expires_at_ms=draft.expires_at_ms or 0,
        awaits=draft.awaits,
        is_moved=draft.is_moved,
        enclosed=draft.enclosed,
    )


# What letters died of, in words that are the same for all that died of the same.


CAUSE_CHARS_MAX = 200
_QUOTED = re.compile(r'"[^"]*"')
_FIGURES = re.compile(r"[0-9]+")


def cause_of(reason: str | None) -> str:
    """The reason of a failure without what differs from letter to letter: figures, and what somebody wrote."""
    plain = _FIGURES.sub("N", _QUOTED.sub('"…"', reason or ""))
    return plain if len(plain) <= CAUSE_CHARS_MAX else plain[: CAUSE_CHARS_MAX - 1] + "…"


class LetterCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call as a caller hands it in: a method, its parameters as JSON, and the terms of its delivery."""

    method: str
    params: bytes
    bot_id: int | None = None
    priority: int = Priority.NORMAL
    is_judged: bool = False  # the priority is not the caller's word but the door's judgement: see `Draft.is_judged`
    attempts: int | None = None
    backoff_ms: int | None = None
    backoff: Backoff = Backoff.EXPONENTIAL
    timeout_ms: int | None = None
    send_at_ms: int | None = None
    expires_at_ms: int | None = None
    on_uncertain: OnUncertain | None = None
    idempotency_key: str | None = None
    metadata: bytes | None = None
    enclosed: tuple[Enclosed, ...] = ()
    hook: int | str | None = None  # who hears how it ended: a key with a webhook, or an address
    trace: str | None = None  # what it answers, as `peik.core.trace` writes it; None: what runs here belongs to
