"""The neutral form: what is moved, one struct per kind. Fields stand in the order in which the ends read and write them.

None stands for what is not there. Some fields are not kept by every store; `MoveEnd.fit` says what a store makes of them.
Not moved: leases of bots, nodes, locks and epochs of ownership, which belong to the store that is in use.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from peik.core.letter import Chat
from peik.jobs.model import JobRecord
from peik.storage.sqlite.jobs import job_from_row


class Record(msgspec.Struct, frozen=True, array_like=True):
    """Secrets are in some: no record shows more than its kind."""

    key: ClassVar[tuple[str, ...]]  # the fields by which a record is found, and in whose order a store is read

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    @classmethod
    def of(cls, cells: Iterable[Any]) -> "Record":
        return cls(*cells)

    def cells(self) -> tuple[Any, ...]:
        """In the order in which the ends read and write them."""
        return msgspec.structs.astuple(self)


class MovedTally(Record, frozen=True):
    """Where the order of a bot stands, and how many of its letters stand where. It outlives its bot."""

    key = ("bot_id",)
    bot_id: int
    next_number: int
    in_lane: int
    apart: int
    completed: int
    failed: int
    cancelled: int


class MovedBot(Record, frozen=True):
    key = ("bot_id",)
    bot_id: int
    token: str
    username: str | None
    inbound: str
    paused: str | None
    limits: str | None
    missed: str | None
    me: str | None
    created_at: int


class Secret(Record, frozen=True):
    key = ("name",)
    name: str
    value: str


class ApiKey(Record, frozen=True):
    key = ("id",)
    id: int
    digest: bytes
    name: str
    scopes: str
    bot_ids: str | None
    created_at: int
    expires_at: int | None
    revoked_at: int | None  # 0: revoked, and Redis does not keep when
    last_used_at: int | None
    webhook_url: str | None
    webhook_secret: str | None


class BotHold(Record, frozen=True):
    key = ("bot_id",)
    bot_id: int
    held_until: int


class KnownChat(Record, frozen=True):
    key = ("bot_id", "chat")
    bot_id: int
    chat: Chat
    same_as: int | None
    shut_reason: str | None
    shut_at: int | None
    held_until: int | None


class FileId(Record, frozen=True):
    key = ("bot_id", "digest", "kind")
    bot_id: int
    digest: str
    kind: str
    file_id: str
    at: int  # 0: Redis does not keep it


class MovedLetter(Record, frozen=True):
    """With its result, and with the mark of a try that was under way."""

    key = ("id",)
    id: int
    bot_id: int
    number: int  # its place in its lane; Redis keeps none for a letter that has no place
    phase: int
    rank: int
    chat: Chat
    thread: int
    weight: int
    method: str
    params: str
    created_at: int
    attempts: int
    backoff_ms: int
    backoff: str | None
    timeout_ms: int | None
    hold: int | None
    due_at: int | None
    expires_at: int | None
    awaits: int | None
    target: str | None
    enclosed: str | None
    metadata: str | None
    user_id: str | None
    message_type: str | None
    moved: int | None
    attempts_made: int
    uncertain_tries: int
    failed_reason: str | None
    merged_into: int | None
    history: str | None
    settled_at: int | None
    trace: str | None
    hook: int | str | None
    result: str | None
    marked_at: int | None


class IdempotencyKey(Record, frozen=True):
    key = ("bot_id", "name")
    bot_id: int
    name: str
    digest: str
    letter_id: int
    expires_at: int


class MovedLogLine(Record, frozen=True):
    key = ("id",)
    id: int
    bot_id: int
    chat: Chat | None
    user_id: str | None
    message_type: str | None
    method: str
    status: str
    attempts: int
    error: str | None
    message_id: int | None
    created_at: int
    finished_at: int | None
    text: str | None


class WaitingHook(Record, frozen=True):
    key = ("id",)
    id: int
    endpoint: str
    hook: int | str
    letter_id: int
    phase: int
    at: int
    due_at: int
    tries: int
    body: str | None


class MovedInbox(Record, frozen=True):
    key = ("bot_id",)
    bot_id: int
    epoch: int
    epoch_at: int
    server: str
    last_update_id: int | None
    started_at: int | None
    seen_at: int | None
    received_at: int | None
    next_number: int | None
    expired: int
    updated_at: int | None  # Redis does not keep it


class MovedReader(Record, frozen=True):
    """A consumer with its progress."""

    key = ("id",)
    id: int
    bot_id: int
    name: str
    kind: str
    url: str | None
    secret: str | None
    allowed: str | None
    connections_max: int
    watermark: int
    seen_at: int | None
    created_at: int
    spans: tuple[tuple[int, int], ...]


class Checkpoint(Record, frozen=True):
    """Where a consumer's watermark stood at some hour."""

    key = ("consumer_id", "at")
    consumer_id: int
    at: int
    watermark: int


class MovedArrival(Record, frozen=True):
    key = ("id",)
    id: int
    bot_id: int
    number: int
    epoch: int
    update_id: int
    type: str
    lane: Chat
    user_id: int | None
    message_id: int | None
    sent_at: int | None
    received_at: int
    digest: bytes
    payload: str
    replay_of: int | None
    only_for: int


class Story(Record, frozen=True):
    """An arrival that failed at least once: put off, completed after all, or dead."""

    key = ("consumer_id", "number")
    consumer_id: int
    number: int
    phase: int
    tries: int
    due_at: int | None
    failed_reason: str | None
    settled_at: int | None
    history: str


class Handled(Record, frozen=True):
    key = ("bot_id", "chat", "message_id")
    bot_id: int
    chat: int
    message_id: int
    at: int


class MovedAbsence(Record, frozen=True):
    """An outage."""

    key = ("id",)
    id: int
    bot_id: int
    began_at: int
    ended_at: int
    last_number: int
    settled_at: int | None


class StoredJob(Record, frozen=True):
    """A job, and what only stores know of it. Its cells are those of `peik.storage.sqlite.jobs.COLUMNS`, then its own.

    The node that gave a lease is gone, so that no store has to keep for how long it was given."""

    key = ("id",)
    job: JobRecord
    digest: str  # of what its key stands for; "" if it has none
    place: int | None  # in its line, while it waits

    @property
    def id(self) -> int:
        return self.job.id

    @classmethod
    def of(cls, cells: Iterable[Any]) -> "StoredJob":
        *job, digest, place = cells
        return cls(job_from_row(job), digest, place)

    def cells(self) -> tuple[Any, ...]:
        return (*msgspec.structs.astuple(self.job), self.digest, self.place)


class MovedJobLine(Record, frozen=True):
    """A line that somebody stands in. How many do is counted where it is written."""

    key = ("kind", "rank", "ticket")
    kind: str
    rank: int
    ticket: int
    user_id: str


class JobDay(Record, frozen=True):
    """What a user asked for and used of a kind on a day."""

    key = ("day", "kind", "user_id")
    day: int
    kind: str
    user_id: str
    jobs: int
    bytes: int


class JobMean(Record, frozen=True):
    """How long the last runs of a kind took."""

    key = ("kind",)
    kind: str
    mean_run_ms: int


class DocumentRecord(Record, frozen=True):
    key = ("shelf", "paper_key")
    shelf: str
    paper_key: str
    body: str
    version: int


class StoredContact(Record, frozen=True):
    """A known chat, in the order of `peik.storage.documents.COLUMNS`."""

    key = ("bot_id", "chat_id")
    bot_id: int
    chat_id: int
    type: str
    name: str | None
    username: str | None
    language: str | None
    first_seen: int
    last_seen: int
    is_gone: bool
    campaign: str | None


class ContactPlace(Record, frozen=True):
    """How far a bot's arrivals have been looked through for chats."""

    key = ("bot_id",)
    bot_id: int
    place: int


class Sequence(Record, frozen=True):
    """The last id that was given out; of jobs the last number of a place or ticket, too."""

    key = ("name",)
    name: str
    last: int


class File(Record, frozen=True):
    """A file of a letter. Its bytes go another way; see `files`."""

    key = ("blob",)
    blob: str
    size_bytes: int
    digest: str


# In this order they are moved. A bot comes after its tally, which a bot makes if there is none; an arrival comes after its
# inbox, whose epoch says whether Telegram may bring it once more; a line of jobs comes after those who stand in it; ids are
# given out again only when all are there.
KINDS: dict[str, type[Record]] = {
    "tallies": MovedTally,
    "bots": MovedBot,
    "secrets": Secret,
    "keys": ApiKey,
    "bot_holds": BotHold,
    "chats": KnownChat,
    "file_ids": FileId,
    "letters": MovedLetter,
    "idempotency": IdempotencyKey,
    "message_log": MovedLogLine,
    "hooks": WaitingHook,
    "inboxes": MovedInbox,
    "consumers": MovedReader,
    "watermarks": Checkpoint,
    "arrivals": MovedArrival,
    "deliveries": Story,
    "handled": Handled,
    "outages": MovedAbsence,
    "jobs": StoredJob,
    "job_lines": MovedJobLine,
    "job_days": JobDay,
    "job_means": JobMean,
    "papers": DocumentRecord,
    "contacts": StoredContact,
    "contact_places": ContactPlace,
    "sequences": Sequence,
}
FILES = "files"

# What gives out ids, by the kind that gets them; and the one counter of places and tickets of jobs.
NUMBERED = ("letters", "keys", "hooks", "arrivals", "consumers", "outages", "jobs", "job_numbers")

# For stores that want to know for how long a lease was given, so that a clock that is put back makes none longer. A run that
# is moved has no worker any more, so that it may as well be given up earlier.
JOB_LEASE_MS = 30_000

PHASE_IN_LANE, PHASE_APART, PHASE_COMPLETED, PHASE_FAILED = 0, 1, 2, 3

_lines = msgspec.json.Decoder(list[msgspec.Raw]).decode


def lines_of(history: str | None) -> list[str]:
    """The lines of a history, each byte for byte as it was written."""
    return [] if history is None else [bytes(line).decode() for line in _lines(history)]


def history_of(lines: list[str] | tuple[str, ...]) -> str:
    return f"[{','.join(lines)}]"


def has_place(letter: MovedLetter) -> bool:
    """Whether its number means something: it is in its lane, or goes back to its old place there."""
    return letter.phase == PHASE_IN_LANE or (letter.phase == PHASE_APART and letter.due_at is None) or is_merged(letter)


def is_merged(letter: MovedLetter) -> bool:
    """Whether it stands apart for a newer edit."""
    return letter.phase == PHASE_APART and letter.merged_into is not None
