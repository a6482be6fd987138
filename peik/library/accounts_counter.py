"""Where the library asks about accounts: at a Peik in this process, or at one far away. One protocol for both."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from peik.archive_ports import EventFilter, MessageFilter
from peik.library.accounts_values import (
    AccountSession,
    ArchivedMessage,
    EventPage,
    FeedLine,
    ImportedFile,
    MessagePage,
    QrLogin,
    SessionChat,
)
from peik.library.counter import Counter
from peik.sessions.following import Wanted


class Changes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to become different about a session: the body of a PATCH."""

    phone: str | msgspec.UnsetType = msgspec.UNSET
    metadata: Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET
    proxy: str | msgspec.UnsetType | None = msgspec.UNSET
    is_active: bool | msgspec.UnsetType = msgspec.UNSET
    is_connected: bool | msgspec.UnsetType = msgspec.UNSET


class New(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session to be made: the body of a POST."""

    agent_id: str
    phone: str | None = None
    metadata: Mapping[str, object] | None = None
    proxy: str | None = None
    file: str | None = None
    session_id: str | None = None


class AccountsCounter(Protocol):
    """Raises what `peik.errors` draws, the same on both sides; without accounts, Conflict "no_sessions"."""

    async def create(self, new: New) -> AccountSession: ...

    async def by_id(self, session_id: str) -> AccountSession | None: ...

    async def by_phone(self, phone: str) -> AccountSession | None: ...

    async def sessions(self, *, agent_id: str | None, is_active: bool | None) -> list[AccountSession]:
        """All of them, in the order of their ids."""

    async def change(self, session_id: str, changes: Changes) -> AccountSession:
        """Exactly one thing at a time."""

    async def note_activity(self, session_id: str) -> None: ...

    async def delete(self, session_id: str) -> bool: ...

    async def cleanup(self, days: float | None) -> int: ...

    async def send_code(self, session_id: str, phone: str | None, *, by_sms: bool) -> AccountSession: ...

    async def give_code(self, session_id: str, code: str) -> AccountSession: ...

    async def give_password(self, session_id: str, password: str) -> AccountSession: ...

    async def qr(self, session_id: str) -> QrLogin: ...

    async def cancel_sign_in(self, session_id: str) -> AccountSession: ...

    async def start(self, session_id: str) -> AccountSession: ...

    async def stop(self, session_id: str) -> AccountSession: ...

    async def restart(self, session_id: str) -> AccountSession: ...

    async def log_out(self, session_id: str) -> AccountSession: ...

    def import_files(
        self, paths: Sequence[Path], *, agent_id: str, check: bool, keep_files: bool
    ) -> AsyncGenerator[ImportedFile, None]: ...

    async def chats(self, session_id: str) -> list[SessionChat]: ...

    async def crawl(self, session_id: str, chat_id: int, *, until_ms: int | None) -> SessionChat: ...

    async def stop_crawl(self, session_id: str, chat_id: int) -> SessionChat: ...

    async def messages(self, wanted: MessageFilter, *, cursor: str | None, limit: int) -> MessagePage: ...

    async def count_messages(self, wanted: MessageFilter) -> int: ...

    async def versions(self, session_id: str, chat_id: int, message_id: int) -> list[ArchivedMessage]: ...

    async def events(self, wanted: EventFilter, *, cursor: str | None, limit: int) -> EventPage: ...

    async def forget_person(self, user_id: int) -> dict[str, int]: ...

    async def forget_reader(self, reader: str) -> bool: ...

    def listen(
        self, wanted: Wanted, *, after: Mapping[str, int] | None, reader: str | None
    ) -> AsyncGenerator[FeedLine, None]:
        """Until this Peik is closed. A line is confirmed for its reader when the next one is asked for."""


class FullCounter(Counter, Protocol):
    @property
    def accounts(self) -> AccountsCounter: ...
