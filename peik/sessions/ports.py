"""What running sessions ask of others: a piece of the archive, rights with names, and a line to Telegram."""

from collections.abc import Sequence
from typing import Protocol

from peik.archive_ports import ChatState, FeedLine, Happening, Kept, Message, MessageFilter, Session
from peik.sessions.client import Client, Me


class SeenBook(Protocol):
    """Where sessions keep what they see: see `peik.archive_ports.Archive`."""

    async def keep_messages(self, messages: Sequence[Message]) -> Kept: ...

    async def mark_deleted(
        self, session_id: str, chat_id: int | None, message_ids: Sequence[int], *, at_ms: int
    ) -> int: ...

    async def messages(
        self, wanted: MessageFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Message], str | None]: ...

    async def keep_events(self, events: Sequence[Happening]) -> int: ...

    async def feed(self, lines: Sequence[FeedLine]) -> int: ...

    async def message_ids(self, session_id: str, chat_id: int, *, above: int, limit: int) -> list[int]: ...

    async def chat_states(self, session_id: str) -> list[ChatState]: ...

    async def save_chat_state(self, state: ChatState) -> None: ...

    async def save_updates_state(self, session_id: str, state: bytes) -> None: ...

    async def updates_state(self, session_id: str) -> bytes | None: ...


class Locks(Protocol):
    """Rights with names, to one node at a time: see `peik.node_ports.NodeStore`."""

    @property
    def lease_s(self) -> float | None: ...

    async def take_lock(self, name: str) -> bool: ...

    async def drop_lock(self, name: str) -> None: ...


class Rights(Protocol):
    """For which accounts this node acts: those whose letters it sends, as they go out by the account's connection."""

    def may_run(self, session: Session) -> bool: ...

    async def enlist(self, sessions: Sequence[Session]) -> None:
        """These are to run: letters may go out for their accounts from now on. Raises StoreUnavailable."""


class Line(Protocol):
    """An account's connection, while there is one and this node may use it."""

    @property
    def client(self) -> Client | None: ...

    @property
    def me(self) -> Me | None: ...
