"""The life of a broadcast: every move in one table, what it will take, and when its first slice says stop. Pure."""

import enum
import math
from collections.abc import Sequence
from typing import Protocol

import msgspec

from peik.core.documents import ContactFilter, StoredDocument
from peik.core.events import Event
from peik.core.letter import Chat, OnUncertain
from peik.core.quiet import Quiet
from peik.errors import BadInput, Conflict
from peik.outbox.store import LetterView


class Phase(enum.StrEnum):
    """Where a broadcast stands."""

    DRAFT = "draft"
    SCHEDULED = "scheduled"
    SNAPSHOTTING = "snapshotting"
    CANARY = "canary"
    RUNNING = "running"
    PAUSED = "paused"
    QUIET = "quiet"
    STOPPED = "stopped"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    COMPLETED = "completed"
    RECALLING = "recalling"
    RECALLED = "recalled"

    @property
    def is_final(self) -> bool:
        """Nothing happens any more, unless somebody recalls it."""
        return self in (Phase.CANCELLED, Phase.COMPLETED, Phase.RECALLED)

    @property
    def is_sending(self) -> bool:
        return self in (Phase.CANARY, Phase.RUNNING)


class PhaseStep(enum.StrEnum):
    SCHEDULE = "schedule"
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RECALL = "recall"
    TRY = "try"
    GO = "go"
    HUSH = "hush"
    WAKE = "wake"
    STOP = "stop"
    FAIL = "fail"
    END = "end"


_P = Phase
_BEGUN = (_P.SNAPSHOTTING, _P.CANARY, _P.RUNNING)
_HALTED = (_P.PAUSED, _P.QUIET, _P.STOPPED)

# None in place of a phase: back to where it was.
STEPS: tuple[tuple[PhaseStep, tuple[Phase, ...], Phase | None, str], ...] = (
    (PhaseStep.SCHEDULE, (_P.DRAFT, _P.SCHEDULED), _P.SCHEDULED, "it is to start at a given time"),
    (PhaseStep.START, (_P.DRAFT, _P.SCHEDULED), _P.SNAPSHOTTING, "somebody starts it, or its time has come"),
    (PhaseStep.TRY, (_P.SNAPSHOTTING,), _P.CANARY, "everybody is written down; a first slice goes ahead"),
    (PhaseStep.GO, (_P.SNAPSHOTTING, _P.CANARY), _P.RUNNING, "everybody is written down, or the first slice went well"),
    (PhaseStep.PAUSE, (*_BEGUN, _P.QUIET, _P.RECALLING), _P.PAUSED, "somebody halts it; what waits is taken back"),
    (PhaseStep.RESUME, (_P.PAUSED, _P.STOPPED), None, "somebody lets it go on, also in spite of what stopped it"),
    (PhaseStep.HUSH, (_P.CANARY, _P.RUNNING), _P.QUIET, "quiet hours begin; what waits is taken back"),
    (PhaseStep.WAKE, (_P.QUIET,), None, "quiet hours are over"),
    (PhaseStep.STOP, (_P.CANARY, _P.RUNNING), _P.STOPPED, "the cap is reached, or the bot is gone"),
    (PhaseStep.FAIL, (_P.CANARY,), _P.STOPPED, "too many of the first slice failed; let go on, it goes to all"),
    (PhaseStep.CANCEL, (_P.DRAFT, _P.SCHEDULED, *_BEGUN, *_HALTED, _P.RECALLING), _P.CANCELLING, "somebody ends it"),
    (PhaseStep.RECALL, (_P.CANARY, _P.RUNNING, *_HALTED, _P.COMPLETED, _P.CANCELLED), _P.RECALLING, "what was sent is deleted"),
    (PhaseStep.END, (_P.RUNNING,), _P.COMPLETED, "every recipient has an end"),
    (PhaseStep.END, (_P.CANCELLING,), _P.CANCELLED, "nothing of it is on its way any more"),
    (PhaseStep.END, (_P.RECALLING,), _P.RECALLED, "what could be deleted is deleted"),
)  # fmt: skip

_TARGET_OF = {(step, source): target for step, sources, target, _ in STEPS for source in sources}


def stepped(step: PhaseStep, phase: Phase, *, back_to: Phase) -> Phase | None:
    """Where this step leads from there. None: it cannot be made."""
    if (step, phase) not in _TARGET_OF:
        return None
    return _TARGET_OF[step, phase] or back_to


def steps_from(phase: Phase) -> list[PhaseStep]:
    """Those that people can ask for."""
    return [step for step in ASKED if (step, phase) in _TARGET_OF]


ASKED = (PhaseStep.START, PhaseStep.PAUSE, PhaseStep.RESUME, PhaseStep.CANCEL, PhaseStep.RECALL)


class RecipientState(enum.StrEnum):
    PENDING = "pending"
    QUEUED = "queued"
    DELIVERED = "delivered"
    FAILED = "failed"
    BLOCKED = "blocked"
    SUPPRESSED = "suppressed"
    CANCELLED = "cancelled"
    RECALLED = "recalled"


def read_recipient_state(text: str) -> RecipientState:
    """Raises BadInput."""
    try:
        return RecipientState(text)
    except ValueError:
        raise BadInput(code="bad_state", detail=f"state is one of {', '.join(RecipientState)}.") from None


class RecipientCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Recipients that have an end, by what it is."""

    delivered: int = 0
    failed: int = 0
    blocked: int = 0
    suppressed: int = 0
    cancelled: int = 0
    recalled: int = 0

    @property
    def done(self) -> int:
        return self.delivered + self.failed + self.blocked + self.suppressed + self.cancelled + self.recalled

    def moved(self, state: RecipientState, by: int = 1) -> "RecipientCounts":
        return msgspec.structs.replace(self, **{state.value: getattr(self, state.value) + by})


# ---- the first slice ----


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """How many go first: `count` of them or `percent` of all. If more than `limit` of them fail, it stops."""

    count: int | None = None
    percent: float | None = None
    limit: float = 0.2


def checked_canary(canary: Canary) -> Canary:
    """As it is. Raises BadInput."""
    if (canary.count is None) == (canary.percent is None):
        raise BadInput(code="bad_canary", detail="A canary has either count or percent.")
    if canary.count is not None and canary.count < 1:
        raise BadInput(code="bad_canary", detail="count of the canary is at least 1.")
    if canary.percent is not None and not 0 < canary.percent <= 100:
        raise BadInput(code="bad_canary", detail="percent of the canary is above 0 and at most 100.")
    if not 0 <= canary.limit < 1:
        raise BadInput(code="bad_canary", detail="limit of the canary is a share: from 0 to below 1, such as 0.2.")
    return canary


def slice_size(canary: Canary, recipients: int) -> int:
    """How many go first, of those who are not suppressed."""
    if canary.count is not None:
        return min(canary.count, recipients)
    assert canary.percent is not None
    return min(recipients, max(1, math.ceil(recipients * canary.percent / 100)))


def is_too_bad(canary: Canary, counts: RecipientCounts, size: int) -> bool:
    """Whether enough have failed that the share of the slice is above its limit, however the others end."""
    return counts.failed + counts.blocked > canary.limit * size


# ---- who gets it ----

CONFIRMED_ABOVE = 100  # recipients: so many are written to only after their number was typed
_DRIFT = 100  # known chats come and go: one in so many may have, between the question and the answer


def check_recipients(said: int, recipients: int) -> None:
    """Whether a broadcast goes to as many as somebody believes. Raises Conflict."""
    if abs(said - recipients) > max(1, recipients // _DRIFT):
        raise Conflict(
            code="other_recipients",
            detail=f"It would go to {recipients} recipients, not to {said}. Look who they are, and start it then.",
            field="number",
        )


# ---- what it takes ----

FREE_PER_S = 30  # Telegram's own: above this many messages a second a paid broadcast costs
STARS_PER_MESSAGE = 0.1
RATE_MAX = 1000.0  # of a paid broadcast, by Telegram
WINDOW_S = 5.0  # this many seconds' worth of the bot's pace is in the outbox at once
WINDOW_MIN = 5
WINDOW_MAX = 1000


class Paid(msgspec.Struct, frozen=True, kw_only=True):
    """Telegram may take Stars for what goes beyond its free limit. `stars_max`: it stops before it could cost more."""

    stars_max: float


def checked_paid(paid: Paid) -> Paid:
    """As it is. Raises BadInput."""
    if not 0 < paid.stars_max <= 1e9:
        raise BadInput(code="bad_paid", detail="stars_max of a paid broadcast is a number of Stars above 0.")
    return paid


def stars_most(messages: int) -> float:
    """What the messages cost if none of them is free."""
    return round(messages * STARS_PER_MESSAGE, 1)


def stars_likely(messages: int, per_s: float | None) -> float:
    """What they cost if the free part of every second is used. `per_s` None: as fast as Telegram lets."""
    rate = min(RATE_MAX, per_s or RATE_MAX)
    return round(messages * STARS_PER_MESSAGE * max(0.0, 1 - FREE_PER_S / rate), 1)


def may_still_cost(paid: Paid, handed: int, weight: int) -> int:
    """How many more recipients can be written to without a chance that the cap is passed."""
    return max(0, int(paid.stars_max / STARS_PER_MESSAGE + 1e-9) // max(1, weight) - handed)


def work_ms(messages: int, per_s: float | None) -> int:
    """How long the bot needs for the messages at its pace. None: it has none to speak of."""
    return 0 if per_s is None else math.ceil(messages / per_s * 1000)


def window_size(per_s: float | None, weight: int) -> int:
    """How many letters of a broadcast are in the outbox at once. A few seconds' worth, so that a pause takes effect."""
    if per_s is None:
        return WINDOW_MAX
    return max(WINDOW_MIN, min(WINDOW_MAX, int(per_s * WINDOW_S / max(1, weight))))


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a broadcast would take, or what is left of it."""

    recipients: int  # of whom none is suppressed
    suppressed: int
    is_least: bool = False  # not all were looked at: suppressed are at least this many, recipients at most
    messages: int
    per_s: float | None  # the pace of its bot; None: it has none to speak of
    duration_ms: int  # of sending, quiet hours left out
    done_at_ms: int  # if it began now
    stars: float = 0.0
    stars_most: float = 0.0
    stars_max: float | None = None


def estimated(
    *,
    recipients: int,
    suppressed: int,
    is_least: bool = False,
    weight: int,
    per_s: float | None,
    done_at_ms: int,
    paid: Paid | None,
) -> Estimate:
    messages = recipients * max(1, weight)
    return Estimate(
        recipients=recipients,
        suppressed=suppressed,
        is_least=is_least,
        messages=messages,
        per_s=per_s,
        duration_ms=work_ms(messages, per_s),
        done_at_ms=done_at_ms,
        stars=0.0 if paid is None else stars_likely(messages, per_s),
        stars_most=0.0 if paid is None else stars_most(messages),
        stars_max=None if paid is None else paid.stars_max,
    )


# A broadcast and its recipients as they are stored: documents. All that an engine knows is here, so that any node can go
# on.


COLLECTION = "broadcasts"
ACTIVE_COLLECTION = "broadcasts.active"  # the ids of those that an engine must look at
KEY_COLLECTION = "broadcasts.keys"  # keys of idempotency, by their hash


def ledger_of(broadcast_id: str) -> str:
    """The collection of its recipients."""
    return f"broadcast:{broadcast_id}"


def key_of(number: int) -> str:
    return f"{number:09d}"


class LedgerEntry(msgspec.Struct, frozen=True, array_like=True):
    """A recipient's turn. A letter that was taken back before it was sent gives way to another round."""

    number: int
    round: int = 0


class Open(msgspec.Struct, frozen=True, array_like=True):
    """A turn whose letter has not ended, as far as we know."""

    number: int
    round: int
    letter_id: int


class DispatchBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Turns whose letters are being accepted. It is stored before that, so that after a crash the same are accepted again,
    under the same keys."""

    entries: tuple[LedgerEntry, ...]
    next: int  # where the next batch begins
    at_ms: int


class Broadcast(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    bot_id: int
    name: str | None = None
    method: str
    params: str  # a JSON object without chat_id
    weight: int = 1  # messages that one letter is
    wanted: ContactFilter | None = None  # known chats, written down at the start; None: they were given
    columns: tuple[str, ...] = ()
    canary: Canary | None = None
    quiet: Quiet | None = None
    paid: Paid | None = None
    on_uncertain: OnUncertain | None = None
    created_at_ms: int
    created_by: str | None = None
    key: str | None = None  # of idempotency: where it is on its collection

    phase: Phase = Phase.DRAFT
    back_to: Phase = Phase.RUNNING  # where a pause, a stop or quiet hours lead back to
    reason: str | None = None
    start_at_ms: int | None = None
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    moved_at_ms: int = 0
    quiet_until_ms: int | None = None

    total: int = 0
    counts: RecipientCounts = RecipientCounts()
    unrecalled: int = 0  # could not be deleted
    place: int | None = None  # of the snapshot: the last chat, or number, that was looked at
    next: int = 1
    again: tuple[LedgerEntry, ...] = ()  # turns below `next` whose letters were taken back
    batch: DispatchBatch | None = None
    open: tuple[Open, ...] = ()
    is_withdrawing: bool = False  # letters of ours that still wait are being taken back
    recall_next: int = 0  # 0: nothing is deleted yet
    recalls: int = 0  # that were begun after its end: each has keys of its own
    holder: str = ""  # the run of an engine that works on it

    @property
    def queued(self) -> int:
        return 0 if self.recall_next else len(self.open)

    @property
    def pending(self) -> int:
        return max(0, self.total - self.counts.done - self.queued)

    @property
    def steps_done(self) -> tuple[int, int]:
        """How far it is, and of how many: recipients; in a recall, those to whom something was sent."""
        if self.phase in (Phase.RECALLING, Phase.RECALLED):
            return self.counts.recalled + self.unrecalled, self.counts.recalled + self.counts.delivered
        return self.counts.done, self.total

    @property
    def handed(self) -> int:
        """Recipients for whom a letter was accepted that was not taken back."""
        return self.counts.delivered + self.counts.failed + self.counts.blocked + self.counts.recalled + self.queued

    @property
    def is_at_rest(self) -> bool:
        """No engine needs to look at it until somebody asks for something."""
        is_idle = self.batch is None and not self.open and not self.is_withdrawing
        return self.phase is Phase.DRAFT or (
            is_idle and (self.phase.is_final or self.phase in (Phase.PAUSED, Phase.STOPPED))
        )


class Recipient(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the ledger."""

    chat: Chat
    values: dict[str, str] | None = None  # of its columns
    state: RecipientState = RecipientState.PENDING
    round: int = 0
    letter_id: int | None = None
    messages: tuple[int, ...] = ()
    error: str | None = None
    uncertain_tries: int = 0
    queued_at_ms: int | None = None
    ended_at_ms: int | None = None
    recall_letter_id: int | None = None
    recall_round: int = 0


_read_broadcast = msgspec.json.Decoder(Broadcast).decode
_read_recipient = msgspec.json.Decoder(Recipient).decode
_encode = msgspec.json.Encoder().encode


def written(record: Broadcast | Recipient) -> str:
    return _encode(record).decode()


def read_broadcast(document: StoredDocument) -> Broadcast:
    return _read_broadcast(document.body)


def read_recipient(document: StoredDocument) -> tuple[int, Recipient]:
    return int(document.key), _read_recipient(document.body)


# What broadcasts ask of the rest of Peik: letters, by the outbox; and what is known of chats.


class OutgoingBroadcast(msgspec.Struct, frozen=True, kw_only=True):
    """A letter that is to be accepted."""

    method: str
    params: bytes
    key: str | None = None  # of idempotency
    label: str | None = None  # its message_type
    number: int | None = None  # of the recipient: its user_id
    round: int = 0
    priority: int
    send_at_ms: int | None = None
    on_uncertain: OnUncertain | None = None


class BroadcastLettersPort(Protocol):
    """Every method may raise StoreUnavailable."""

    async def accept(self, bot_id: int, letters: Sequence[OutgoingBroadcast]) -> list[int]:
        """Their ids; all in one commit, or none. A key that was used before gives the letter of that time. Raises BadInput,
        Conflict (the key was used for another call) and NotFound (there is no such bot)."""

    async def those(self, letter_ids: Sequence[int]) -> dict[int, LetterView]:
        """Those that are still kept."""

    async def labelled(self, bot_id: int, label: str, *, limit: int) -> list[LetterView]:
        """The newest letters with this label."""

    async def cancel(self, letter_id: int) -> LetterView:
        """Raises Conflict if it is in flight or has ended, NotFound."""

    async def shut_chats(self, bot_id: int) -> set[Chat]:
        """Chats that cannot be reached."""

    def bot_id(self, asked: int | None) -> int:
        """That bot, or the only one. Raises NotFound, BadInput."""

    def per_s(self, bot_id: int) -> float | None:
        """How many messages of a broadcast the bot may send in a second. None: there is no such bound."""


# What can be observed of broadcasts.


class BroadcastMoved(Event, frozen=True, kw_only=True):
    """A broadcast came into another state."""

    broadcast_id: str
    state: str
    reason: str | None = None


class BroadcastAdvanced(Event, frozen=True, kw_only=True):
    """More of its recipients have been dealt with."""

    broadcast_id: str
    total: int
    done: int
