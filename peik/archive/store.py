"""What sessions ask of the archive: a registry of accounts, and everything that they saw and said. Behind it stand SQLite,
PostgreSQL and MongoDB alike."""

import enum
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class SessionState(enum.StrEnum):
    NEW = "new"
    CODE_SENT = "code_sent"
    PASSWORD_NEEDED = "password_needed"  # noqa: S105  a state
    ACTIVE = "active"
    PAUSED = "paused"
    FLOOD_WAIT = "flood_wait"
    REVOKED = "revoked"
    FAILED = "failed"


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One account that Peik signs in as, or may. Everything secret in it is encrypted before it comes here."""

    session_id: str
    agent_id: str
    phone: str | None = None
    user_id: int | None = None
    username: str | None = None
    state: SessionState = SessionState.NEW
    state_reason: str | None = None  # as a sentence
    state_until_ms: int | None = None  # of a flood wait, or of a code
    is_connected: bool = False
    is_active: bool = True  # False: deactivated by its owner; kept, and not run
    secret: bytes | None = None  # the session string, encrypted
    file: str | None = None  # a Telethon file in PEIK_SESSIONS_DIR, by name
    proxy: bytes | None = None  # encrypted
    metadata: str = "{}"  # a JSON object
    version: int = 0  # rises with every change: a writer that saw an older one is refused
    created_at_ms: int = 0
    updated_at_ms: int = 0
    active_at_ms: int | None = None  # when it last did or heard something

    def __repr__(self) -> str:
        return f"Session({self.session_id}, {self.state})"


class Direction(enum.StrEnum):
    RECEIVED = "received"
    SENT = "sent"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message as one session saw it last. Its earlier versions are kept apart."""

    session_id: str
    agent_id: str
    chat_id: int  # as the Bot API writes it: groups negative, channels and supergroups -100…
    message_id: int
    direction: Direction
    sender_id: int | None = None
    date_ms: int
    edited_at_ms: int = 0  # 0: as it was sent
    kind: str = "text"  # text, photo, video, voice, document, service, …
    text: str = ""
    reply_to: int | None = None
    grouped_id: int | None = None
    media: str | None = None  # a JSON object: name, type, size, ids
    raw: str | None = None  # the whole of it as JSON
    letter_id: int | None = None  # the letter that sent it
    deleted_at_ms: int | None = None
    created_at_ms: int  # when it was archived


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something else that a session saw: a row of `events`."""

    event_id: str  # made by who saw it, from what it saw: the same again is no second one
    session_id: str
    agent_id: str
    event_type: str  # deleted, edited, joined, left, read, reaction, online, state, …
    chat_id: int | None = None
    user_id: int | None = None  # who did it: what `forget_person` finds it by
    payload: str  # a JSON object
    created_at_ms: int


class KeptCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of messages that were handed in."""

    new: int = 0
    edited: int = 0  # another version, newer or older, of one that was here
    known: int = 0


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    agent_id: str | None = None
    states: frozenset[SessionState] | None = None
    is_active: bool | None = None


class MessageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages. What is None does not matter."""

    session_id: str | None = None
    agent_id: str | None = None
    chat_id: int | None = None
    direction: Direction | None = None
    sender_id: int | None = None
    kind: str | None = None
    since_ms: int | None = None  # by the time of the message
    until_ms: int | None = None
    text: str | None = None  # whole words, in any order and case
    is_deleted: bool | None = None


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str | None = None
    agent_id: str | None = None
    event_type: str | None = None
    chat_id: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


class ChatState(msgspec.Struct, frozen=True, kw_only=True):
    """How far one chat of one session is known: the crawl backwards, and the reconciler's last look."""

    session_id: str
    chat_id: int
    title: str = ""
    newest_id: int = 0  # the highest message that was seen live or by the reconciler
    crawled_to: int | None = None  # the crawl came down to here; 0: to the first message; None: never asked for
    crawl_until_ms: int | None = None  # and wants to go down to this time
    crawled: int = 0
    checked_to: int = 0  # up to here there is no gap
    access: bytes | None = None  # what Telegram wants to be shown to open the chat, encrypted
    updated_at_ms: int = 0


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody in a group or channel, as a session saw them from one look on until another. Who changes begins a new one."""

    session_id: str
    agent_id: str
    chat_id: int
    user_id: int
    since_ms: int
    until_ms: int | None = None  # None: still so at the last look
    name: str = ""
    username: str | None = None
    role: str = "member"  # owner, admin, member, restricted


class UpdatesState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session is in Telegram's updates."""

    session_id: str
    state: bytes


class LineKind(enum.StrEnum):
    """What a line of a feed tells."""

    MESSAGE = "message"  # one that is new here
    EDITED = "edited"
    DELETED = "deleted"
    EVENT = "event"


class FeedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a session's feed: something that was archived, told in order to those who listen."""

    session_id: str
    agent_id: str
    number: int = 0  # 1, 2, 3 … of its session without a gap, given by the archive
    key: str  # made from what it tells: the same again is no second line
    kind: LineKind
    chat_id: int | None = None
    user_id: int | None = None  # who wrote or did it: what `forget_person` finds it by
    body: str  # what is told, as a JSON object
    at_ms: int


class Fed(msgspec.Struct, frozen=True, kw_only=True):
    """How far a session's feed goes: the first line that is kept, and the last there ever was."""

    first: int
    last: int


class ReaderPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Up to which line a reader with a name has had a session's feed."""

    reader: str
    session_id: str
    number: int
    at_ms: int


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of Peik's own log. It holds no secret: see `peik.monitoring.log_file`."""

    at_ms: int
    level: str  # debug, info, warning, error
    event: str
    node: str = ""
    session_id: str | None = None
    bot_id: int | None = None
    fields: str = "{}"  # whatever else it says, as a JSON object


class LogFilter(msgspec.Struct, frozen=True, kw_only=True):
    level: str | None = None  # this one and worse
    event: str | None = None
    session_id: str | None = None
    bot_id: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    text: str | None = None  # anywhere in the event or its fields, in any case


LOG_LEVELS = ("debug", "info", "warning", "error")


class RecordKind(enum.StrEnum):
    """What an archive is made of, in the order in which it is copied: a session comes before what it saw."""

    SESSIONS = "sessions"
    UPDATES_STATES = "updates_states"
    CHAT_STATES = "chat_states"
    MEMBERS = "members"
    MESSAGES = "messages"
    VERSIONS = "versions"  # of messages, but for those in force
    EVENTS = "events"
    FEED = "feed"
    PLACES = "places"  # of readers; and the ends of feeds, as places of a reader without a name
    LOGS = "logs"


Record = Session | UpdatesState | ChatState | MemberRecord | Message | Happening | FeedRecord | ReaderPlace | LogLine


class Tallied(msgspec.Struct, frozen=True, kw_only=True):
    sessions: int
    messages: int
    versions: int
    events: int


class ArchiveRetention(msgspec.Struct, frozen=True, kw_only=True):
    """None: for ever."""

    messages_ms: int | None = None
    events_ms: int | None = None
    feed_ms: int | None = None  # lines of feeds, and places of readers that did not move for so long
    logs_ms: int | None = None


class Archive(Protocol):
    """Every method that writes answers only after a durable commit, or raises StoreUnavailable. What was kept once is not kept
    twice, no matter who hands it in again."""

    async def open(self) -> None:
        """Makes tables, collections and indexes where they are missing. Raises StartError with what to do."""

    async def close(self) -> None: ...

    def trouble(self) -> str | None:
        """Why it does not answer, as far as is known."""

    # the registry
    async def add_session(self, session: Session) -> Session:
        """As it was stored, with its first version. Raises Conflict if the id is taken, or the phone by an active session."""

    async def session(self, session_id: str) -> Session | None: ...

    async def session_by_phone(self, phone: str) -> Session | None:
        """The one that was made last."""

    async def sessions(self, wanted: SessionFilter, *, after: str | None, limit: int) -> list[Session]:
        """In the order of their ids, after one."""

    async def save_session(self, session: Session) -> Session:
        """The whole record, with the version that was read; as it was stored, with its new version. Raises Conflict if
        somebody changed it since or an active session has the phone, NotFound if it is gone."""

    async def remove_session(self, session_id: str) -> bool:
        """The record and its place in Telegram's updates; what it saw stays. Whether there was one."""

    async def remove_old_sessions(self, *, before_ms: int, states: frozenset[SessionState]) -> list[str]:
        """Those in these states, or deactivated, that nobody used or changed since then. Their ids."""

    async def save_updates_state(self, session_id: str, state: bytes) -> None:
        """Where the session is in Telegram's updates. Written often, and apart from the record."""

    async def updates_state(self, session_id: str) -> bytes | None: ...

    # what they saw
    async def keep_messages(self, messages: Sequence[Message]) -> KeptCounts:
        """One version of a message is kept once: by (session, chat, message id, edit date). A newer version becomes the
        message and the older one is put aside; an older one that comes late is put aside at once. One that was deleted
        stays deleted, and one that a letter sent stays that letter's. NUL and lone surrogates, which not every database
        can keep, become U+FFFD."""

    async def mark_deleted(
        self, session_id: str, chat_id: int | None, message_ids: Sequence[int], *, at_ms: int
    ) -> int:
        """Without a chat: in whichever private chat or basic group they are, as Telegram tells it. How many were here."""

    async def messages(
        self, wanted: MessageFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Message], str | None]:
        """The newest first, by the time of the message; the cursor of the next page, None at the end. Steady while others are
        added. Raises BadInput if the cursor is not one of ours."""

    async def count_messages(self, wanted: MessageFilter) -> int: ...

    async def versions(self, session_id: str, chat_id: int, message_id: int) -> list[Message]:
        """All of them, the oldest first, the one in force last."""

    async def keep_events(self, events: Sequence[Happening]) -> int:
        """How many were new."""

    async def events(
        self, wanted: EventFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Happening], str | None]: ...

    # what is told of it
    async def feed(self, lines: Sequence[FeedRecord]) -> int:
        """Lines of one session, behind those that are there, in this order; each gets its number. One whose key is in the
        feed already is left out. How many are new. Nobody sees a line before all that come before it."""

    async def fed(self, session_id: str, *, after: int, limit: int) -> list[FeedRecord]:
        """In order. What retention took is not there any more: the first may have any number above `after`."""

    async def fed_to(self, session_ids: Sequence[str] | None = None) -> dict[str, Fed]:
        """By session, for those (or all) that have a feed: also where all of its lines are gone by now (`first` is then one
        more than `last`). Cheap enough to ask every second."""

    async def places(self, reader: str) -> dict[str, int]:
        """By session: up to which line this reader has had it."""

    async def save_places(self, reader: str, places: Mapping[str, int], *, at_ms: int) -> None:
        """A place never goes back. The same again renews it."""

    async def remove_reader(self, reader: str) -> bool:
        """Its places are forgotten. Whether it had any."""

    # the log
    async def keep_logs(self, lines: Sequence[LogLine]) -> None:
        """A line that is handed in again is there once."""

    async def logs(self, wanted: LogFilter, *, cursor: str | None, limit: int) -> tuple[list[LogLine], str | None]:
        """The newest first. Raises BadInput if the cursor is not one of ours, or the level is none."""

    # gaps and crawls
    async def message_ids(self, session_id: str, chat_id: int, *, above: int, limit: int) -> list[int]:
        """In order: what is here of a chat above an id."""

    async def chat_states(self, session_id: str) -> list[ChatState]: ...

    async def save_chat_state(self, state: ChatState) -> None: ...

    # who was in a chat
    async def members(
        self, session_id: str, chat_id: int, *, at_ms: int | None, after: int, limit: int
    ) -> list[MemberRecord]:
        """Who is there as far as is known, or was at a time: in the order of their ids, above one."""

    async def save_members(self, members: Sequence[MemberRecord]) -> None:
        """Over those of the same session, chat, user and `since_ms`."""

    # upkeep
    async def tally(self, agent_id: str | None = None) -> Tallied: ...

    async def clean(self, retention: ArchiveRetention, *, at_ms: int, limit: int) -> int:
        """Let go of what was archived longer ago: how many messages, events, lines of feeds and of the log went, at most
        `limit` of each. Versions go with their message. The numbers of a feed go on where they were."""

    async def forget_person(self, user_id: int) -> Mapping[str, int]:
        """Remove what a person wrote and did, all versions of it, all of the private chats with them, whoever wrote, and how far
        these are known (they have their name), and where they were a member: how many rows, by kind: messages, versions,
        events, chat_states, members, feed."""

    async def count_person(self, user_id: int) -> Mapping[str, int]:
        """How many rows of each kind `forget_person` would remove."""

    async def drop_logs(self, lines: Sequence[LogLine]) -> int:
        """Remove these lines of the log. How many were there."""

    async def durability(self) -> list[str]:
        """What of its settings breaks the promise, each with what to set instead."""

    # copying: see peik.archive.move
    async def page(self, kind: RecordKind, *, after: str | None, limit: int) -> tuple[list[Record], str | None]:
        """All records of a kind, page by page in a steady order, and the place after which the next page begins."""

    async def put(self, kind: RecordKind, records: Sequence[Record], progress: str) -> None:
        """Exactly as they are, over what is here, and how far the copy is: not before the records are durable."""

    async def progress(self) -> str | None:
        """What the last `put` said."""
