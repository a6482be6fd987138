"""A broadcast and its recipients as they are stored: papers. All that an engine knows is here, so that any node can go on."""

import msgspec

from peik.core.broadcast import Canary, Counts, Paid, Phase, RecipientState
from peik.core.letter import Chat, OnUncertain
from peik.core.quiet import Quiet
from peik.paper_ports import ContactFilter, Paper

SHELF = "broadcasts"
ACTIVE_SHELF = "broadcasts.active"  # the ids of those that an engine must look at
KEY_SHELF = "broadcasts.keys"  # keys of idempotency, by their hash


def ledger_of(broadcast_id: str) -> str:
    """The shelf of its recipients."""
    return f"broadcast:{broadcast_id}"


def key_of(number: int) -> str:
    return f"{number:09d}"


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A recipient's turn. A letter that was taken back before it was sent gives way to another round."""

    number: int
    round: int = 0


class Open(msgspec.Struct, frozen=True, array_like=True):
    """A turn whose letter has not ended, as far as we know."""

    number: int
    round: int
    letter_id: int


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Turns whose letters are being accepted. It is stored before that, so that after a crash the same are accepted again,
    under the same keys."""

    entries: tuple[Entry, ...]
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
    key: str | None = None  # of idempotency: where it is on its shelf

    phase: Phase = Phase.DRAFT
    back_to: Phase = Phase.RUNNING  # where a pause, a stop or quiet hours lead back to
    reason: str | None = None
    start_at_ms: int | None = None
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    moved_at_ms: int = 0
    quiet_until_ms: int | None = None

    total: int = 0
    counts: Counts = Counts()
    unrecalled: int = 0  # could not be deleted
    place: int | None = None  # of the snapshot: the last chat, or number, that was looked at
    next: int = 1
    again: tuple[Entry, ...] = ()  # turns below `next` whose letters were taken back
    batch: Batch | None = None
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


def read_broadcast(paper: Paper) -> Broadcast:
    return _read_broadcast(paper.body)


def read_recipient(paper: Paper) -> tuple[int, Recipient]:
    return int(paper.key), _read_recipient(paper.body)
