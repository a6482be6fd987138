"""What is asked of the store of letters and keys, and the values that they exchange. `peik.storage.open` picks the store."""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from peik.admin.model import Key
from peik.core.letter import Chat, Draft, LaneKey, Letter, OnUncertain, State
from peik.core.lifecycle import Settlement
from peik.core.pace import ACCOUNT_LIMITS, PaceLimits
from peik.core.token import Token


class Did(enum.Enum):
    """What a call did to a letter that was never tried, instead of becoming one itself."""

    EDIT = "edit"
    DELETE = "delete"


class AcceptedLetter(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call that is durable now. `is_repeat`: the same idempotency key had been accepted before. `did`: it changed this letter,
    or took it back; `item` says which of an album."""

    letter_id: int
    state: State
    is_repeat: bool = False
    did: Did | None = None
    item: int = 0


class Stub(msgspec.Struct, frozen=True, kw_only=True):
    """Just enough of a letter to find it in memory."""

    letter_id: int
    bot_id: int
    lane: LaneKey
    into: int | None = None  # the letter that it was merged into


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """An edit that had given way to a newer one, and has ended as that one did."""

    letter_id: int
    bot_id: int
    method: str
    chat: Chat
    state: State
    reason: str | None
    uncertain_tries: int
    merged_into: int
    trace: str | None


class FoundInFlight(msgspec.Struct, frozen=True, kw_only=True):
    """The front of one lane, and whether the store holds more of it."""

    letters: list[Letter]
    more: bool


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """A look at lanes in the order of their keys, beginning after a given one. `last` None: the end was reached."""

    lanes: dict[LaneKey, FoundInFlight]
    last: LaneKey | None


class LetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A letter as people see it."""

    id: int
    bot_id: int
    method: str
    params: str
    chat: Chat
    thread: int
    state: State
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
    on_uncertain: OnUncertain
    created_at_ms: int
    due_at_ms: int | None
    expires_at_ms: int | None
    marked_at_ms: int | None
    settled_at_ms: int | None
    trace: str | None = None  # what it answers, as `peik.core.trace` writes it


class BotRecord(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: int
    token: Token
    username: str | None = None
    inbound: str = "off"
    paused: str | None = None
    limits: PaceLimits | None = None
    missed: str | None = None  # what becomes of messages that waited through an outage; None: as the settings say
    me: str | None = None  # what Telegram last answered to getMe, as JSON
    created_at_ms: int = 0

    @property
    def usual_limits(self) -> PaceLimits:
        """What goes for it as long as nobody says otherwise: a person's account is slower than a bot."""
        return ACCOUNT_LIMITS if self.token.is_account else PaceLimits()


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How many letters stand where, counted as people count them."""

    waiting: int = 0
    delayed: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class ChatRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a chat beyond its letters. Empty fields: nothing."""

    bot_id: int
    chat: Chat
    same_as: int | None = None
    shut_reason: str | None = None
    shut_at_ms: int | None = None
    held_until_ms: int | None = None


NOW = 0  # for `Store.change`: a letter is due at once


class LetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters. What is None does not matter."""

    state: State | None = None
    ids: frozenset[int] | None = None  # these and no others
    bot_id: int | None = None
    bot_ids: frozenset[int] | None = None  # what the asker may see
    chat: Chat | None = None
    user_id: str | None = None
    message_type: str | None = None
    method: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    text: str | None = None
    error: str | None = None
    cause: str | None = None  # why it died, as `cause_of` says it
    trace: str | None = None  # what it answers, for certain or likely


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Letters by a filter, the newest first. `cursor` None: the end was reached. `is_cut`: so many were looked at that the page
    ends before it is full; what goes on below the cursor may hold more."""

    letters: list[LetterView]
    cursor: int | None
    is_cut: bool = False


class LoggedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the message log: what is known of a letter for longer than it is kept."""

    id: int
    bot_id: int
    chat: Chat | None
    user_id: str | None
    message_type: str | None
    method: str
    state: State
    attempts_made: int
    error: str | None
    message_id: int | None
    text: str | None  # or the caption; None also for lines of older versions
    created_at_ms: int
    finished_at_ms: int | None
    is_here: bool = False  # its letter is

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in the log."""
        return self.created_at_ms, self.id


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many letters a filter finds. `is_least`: there may be more, which nobody counted."""

    letters: int
    is_least: bool


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that died of the same."""

    reason: str  # as `cause_of` says it
    is_uncertain: bool
    letters: int
    methods: tuple[str, ...]  # the most common first
    newest_id: int
    newest_at_ms: int  # when the newest of them died


class LaneView(msgspec.Struct, frozen=True, kw_only=True):
    """A lane that has letters: its head, and how many wait (counted up to a bound)."""

    bot_id: int
    chat: Chat
    thread: int
    head: int
    waiting: int


class SentMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A try of the last minute, for the pace after a restart."""

    chat: Chat
    weight: int
    at_ms: int
    is_edit: bool = False


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `advance`: which marks took. `error` set: nothing of this step was stored."""

    taken: frozenset[int] | None = None  # None: all of them
    error: BaseException | None = None


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long ended letters, dead ones and the message log are kept."""

    completed_ms: int
    dead_ms: int
    log_ms: int


class Express(Protocol):
    """A place that a sender keeps for a letter which may go in the very commit that makes it durable."""

    epoch: int

    def stored(self, letter: Letter, *, is_marked: bool) -> None:
        """It is durable, told in the order of letters. If it could not be marked, it waits like any other."""

    def failed(self) -> None:
        """It was not accepted."""


class StoreListener(Protocol):
    """Who must know of what became durable in this process, in order and before the callers do."""

    def on_accepted(self, letters: Sequence[Letter]) -> None: ...

    def on_removed(self, stubs: Sequence[Stub]) -> None:
        """These left their lanes by another hand: merged, cancelled or expired."""

    def on_joined(self, stubs: Sequence[Stub]) -> None:
        """These came into their lanes at an older place: the lanes must be read again."""

    def on_followed(self, ends: Sequence[Followed]) -> None:
        """These stood apart for newer edits, and have ended with them."""


class Store(Protocol):
    """Where truth is kept. Every method that writes answers only after a durable commit, or raises StoreUnavailable."""

    def listen(self, listener: StoreListener) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    # letters in
    marks_at_once: bool  # whether it takes an express: only where a commit that failed is certainly undone

    async def accept(
        self, drafts: Sequence[Draft], *, at_ms: int, express: Express | None = None
    ) -> list[AcceptedLetter]:
        """All of them in one commit, or none. Raises Conflict if an idempotency key was used with another body, BadInput
        for one that is too late and no repeat. An `express` is for one plain draft; it hears of the letter instead of the
        listener."""

    # the sender's
    def advance(
        self,
        settlements: Sequence[Settlement],
        marks: Sequence[Letter],
        *,
        epoch: int,
        at_ms: int,
        done: Callable[[Marked], None],
    ) -> None:
        """Store settlements, then marks, of one bot in one commit. A mark takes only if its letter still waits as it was
        read, and only under the bot's lease of this epoch while that lasts; a settlement only of what was marked, or
        adopted, under this epoch."""

    async def left_in_flight(self, bot_id: int, *, epoch: int) -> list[Letter]:
        """What a holder of the bot's lease that is gone had marked and not settled: adopted under this epoch, if that is the
        lease's now."""

    async def sweep(self, bot_id: int, rank: int, after: LaneKey | None, *, lanes: int, letters: int) -> Sweep: ...

    async def fronts(self, bot_id: int, keys: Sequence[LaneKey], *, letters: int) -> dict[LaneKey, FoundInFlight]: ...

    async def recent_tries(self, bot_id: int, *, since_ms: int) -> list[SentMessage]: ...

    async def park(self, letter: Letter) -> None:
        """Set a letter apart until the one that it awaits has ended."""

    async def readdress(self, bot_id: int, old: Chat, new: int) -> None:
        """From now on both keys are one chat; what waits for the old one waits for the new one, in order."""

    async def file_id(self, bot_id: int, digest: str, kind: str) -> str | None: ...

    async def keep_file_id(self, bot_id: int, digest: str, kind: str, file_id: str | None, *, at_ms: int) -> None:
        """Remember the id of an uploaded file; None forgets it."""

    # time's
    async def join_due(self, *, at_ms: int, limit: int) -> tuple[int, int | None]:
        """Scheduled letters whose time has come join their lanes. How many did, and when the next is due."""

    async def expire(self, *, at_ms: int, limit: int) -> tuple[list[LetterView], int | None]:
        """Letters that are too late fail. Which did, and when the next expires."""

    async def clean(self, retention: Retention, *, at_ms: int, limit: int) -> tuple[int, list[str]]:
        """Move ended letters into the message log and cut its tail. How many rows went, and blobs nobody needs now."""

    # people's
    async def find(self, wanted: LetterFilter, *, before: int | None, limit: int) -> list[LetterView]:
        """Letters by a filter, the newest first, below an id. However many have to be looked at."""

    async def page(self, wanted: LetterFilter, *, before: int | None, limit: int) -> LetterPage:
        """The same with a bound on the work, for people who wait for it."""

    async def letters(self, letter_ids: Sequence[int]) -> list[LetterView]:
        """Those of these letters that are here, in the order of their ids."""

    async def logged(self, *, below: tuple[int, int] | None, limit: int) -> list[LoggedMessage]:
        """Lines of letters that are gone, the newest first, below a place (created at, id)."""

    async def count(self, wanted: LetterFilter, *, most: int) -> Counted:
        """How many letters a filter finds, counted up to a bound and with a bound on the work."""

    async def cancel_all(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> list[LetterView]:
        """Take back letters of a filter that wait or are delayed and are not in flight; the oldest first. Which were."""

    async def change(self, letter_id: int, *, rank: int | None, due_at_ms: int | None, at_ms: int) -> None:
        """Another priority, another time, or both; None leaves it. A letter that goes to another rank keeps its place in the
        order of acceptance. One with a time stands apart until then and joins the end of its lane, at once if it is NOW; NOW
        also ends the wait of one that backs off. Raises NotFound, or Conflict if it is in flight or has ended."""

    async def causes(self, *, bot_ids: frozenset[int] | None, since_ms: int | None, limit: int) -> list[Cause]:
        """Why letters died, among the newest dead ones, the most frequent cause first. `since_ms`: when they died."""

    async def oldest_waiting(self) -> dict[int, int]:
        """Per bot when the oldest letter of its lanes was accepted, whether it waits, is in flight or backs off."""

    async def revise(self, letter_id: int, *, params: str, seen: int, at_ms: int) -> None:
        """Other parameters for a letter that waits and was never tried. It keeps its place, and `attempts_made` goes one down, so
        that whoever has it as it was cannot mark it. `seen`: the `attempts_made` of the view that the parameters were made
        from. Raises NotFound, or Conflict if it is in flight, was tried, has ended, or was changed since."""

    async def cancel(self, letter_id: int, *, at_ms: int, is_untried: bool = False) -> None:
        """Raises NotFound, or Conflict if it is in flight or has ended; with `is_untried` also if it was tried."""

    async def retry(self, letter_id: int, *, at_ms: int) -> None:
        """A dead letter joins the end of its lane, its counters at zero. Raises Conflict if it is not dead."""

    async def resolve(self, letter_id: int, *, arrived: bool, at_ms: int) -> None:
        """An uncertain letter is completed, or sent again. Raises Conflict if it is not uncertain."""

    async def retry_dead(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> int: ...

    async def clear_dead(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> int:
        """Dead letters leave for the message log."""

    async def lanes(self, bot_id: int, chat: Chat | None, *, limit: int) -> list[LaneView]: ...

    async def head_of(self, bot_id: int, lane: LaneKey) -> int | None: ...

    async def known_chats(self, bot_id: int, *, after: Chat | None, limit: int) -> list[ChatRecord]: ...

    async def letter(self, letter_id: int) -> LetterView | None: ...

    async def tallies(self, *, at_ms: int) -> dict[int, Tally]: ...

    async def ended_by_minute(self, *, since_ms: int, until_ms: int) -> dict[int, tuple[int, int]]:
        """How many letters were delivered and how many failed in each minute since 1970, as far as they are still kept."""

    # bots and chats
    async def bots(self) -> list[BotRecord]: ...

    async def save_bot(self, record: BotRecord) -> None: ...

    async def remove_bot(self, bot_id: int) -> None: ...

    async def chats(self, bot_id: int) -> list[ChatRecord]:
        """The chats of which something is known that matters to sending."""

    async def shut_chat(self, bot_id: int, chat: Chat, reason: str | None, *, at_ms: int) -> None:
        """Mark a chat as out of reach, or (None) as open again."""

    async def hold(self, bot_id: int, chat: Chat | None, until_ms: int) -> None:
        """Remember a hold over restarts; `chat` None holds the bot."""

    async def bot_held_until(self, bot_id: int) -> int: ...

    async def blobs(self) -> set[str]:
        """Every blob that some letter still needs."""


class MessageLogTable(ABC):
    """`telegram_message_logs` in a database of its own, for a store that has no SQL. Every method raises StoreUnavailable."""

    @abstractmethod
    async def open(self) -> None:
        """Makes what is missing. Raises StartError if something else stands in the way."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def put(self, lines: Sequence[LoggedMessage], *, seen_ms: int) -> None:
        """As they were read from the store then; what was read later stays."""

    @abstractmethod
    async def unended(self, *, after: int, limit: int) -> list[tuple[int, int]]:
        """Places of lines whose letters had not ended when they were written, by id."""

    @abstractmethod
    async def copied_to(self) -> int:
        """All letters up to this id have their lines."""

    @abstractmethod
    async def save_copied_to(self, letter_id: int) -> None: ...

    @abstractmethod
    async def clean(self, *, before_ms: int) -> None: ...

    @abstractmethod
    async def logged(self, cursor: str | None, limit: int) -> tuple[list[LoggedMessage], str | None]:
        """By id, for who looks for one person's."""

    @abstractmethod
    async def drop_logged(self, ids: Sequence[int]) -> int:
        """How many were there."""


# ---- keys ----


class KeyStore(Protocol):
    """Where keys of the API are kept. Every store is one."""

    async def keys(self) -> tuple[int, list[Key]]:
        """Every key that is not revoked, and the generation of all of them."""

    async def keys_generation(self) -> int:
        """Rises with every change, by whichever process. Cheap enough to ask all the time."""

    async def add_key(self, key: Key, *, webhook_secret: str | None) -> Key:
        """The key with its id. Raises Conflict if there are too many."""

    async def revoke_key(self, key_id: int, *, at_ms: int) -> bool:
        """Whether there was such a key. Letters that it brought are still told to its webhook."""

    async def note_key_use(self, used: Mapping[int, int]) -> None:
        """When these keys were last used."""


# Webhooks that hear of ended letters: what waits for them, where, and who takes it there.


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """An end of a letter that somebody still has to be told."""

    id: int
    endpoint: str  # what waits and fails together; it may be shown, an address may not: it can hold a secret
    url: str
    secret: str | None  # of its key; None: signed with Peik's own
    letter_id: int
    state: State  # how the letter ended; it may have been retried since
    at_ms: int
    tries: int

    def __repr__(self) -> str:
        return f"Hook({self.id} to {self.endpoint})"


class HookContent(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be said: the body of the first try, or before that the letter. Neither: the letter is gone."""

    body: str | None = None
    letter: LetterView | None = None


class HookDeferred(msgspec.Struct, frozen=True, kw_only=True):
    """A hook whose try failed."""

    hook_id: int
    due_at_ms: int
    tries: int
    body: str


class HooksDue(msgspec.Struct, frozen=True, kw_only=True):
    """A look at endpoints in the order of their names. `last` None: the end was reached."""

    hooks: list[Hook]
    last: str | None
    next_at_ms: int | None  # when the next hook is due, at any endpoint


class HookStore(Protocol):
    """Where hooks wait. One is stored in the very commit that ends its letter, and stays until `settle_hooks`."""

    async def hooks_due(self, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue:
        """What is due at the endpoints after this one; of each endpoint the oldest."""

    async def hook_content(self, hook: Hook) -> HookContent: ...

    async def settle_hooks(self, over: Sequence[int], deferred: Sequence[HookDeferred]) -> None:
        """Forget those that are over, delivered or given up, and put off the others."""

    async def secret(self, name: str, candidate: str) -> str:
        """What was kept under this name; the candidate, kept from now on, if there was nothing."""


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a POST: a status, or 0 and why there is none."""

    status: int = 0
    why: str = ""


class Poster(Protocol):
    """Takes messages to webhooks. It answers with facts and never raises for the network."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float) -> Posted: ...
