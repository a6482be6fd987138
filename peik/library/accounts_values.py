"""What the library answers with about accounts: sessions, what they saw, and lines of their feeds. Nothing secret is in it.

All of it is read from the words of REST, also in this process, so that both counters cannot but say the same.
"""

import datetime
from typing import Any

import msgspec

from peik.archive_ports import Direction, LineKind, SessionState


class AccountSession(msgspec.Struct, frozen=True, kw_only=True):
    """One account that Peik signs in as, or may. Its letters go out with `bot_id=session.user_id`."""

    session_id: str
    agent_id: str
    phone: str | None = None
    user_id: int | None = None  # known once somebody has signed in
    username: str | None = None
    state: SessionState
    state_reason: str | None = None  # as a sentence
    state_until: datetime.datetime | None = None  # of a flood wait, or of a code
    is_connected: bool
    is_active: bool
    runs_from: str | None = None  # "key", "file", or None before the sign-in
    has_proxy: bool
    metadata: dict[str, Any]
    created_at: datetime.datetime
    updated_at: datetime.datetime
    active_at: datetime.datetime | None = None  # when it last did or heard something


class QrLogin(msgspec.Struct, frozen=True, kw_only=True):
    """What to show as a QR code: whoever scans it within its minute is signed in, so it is a secret until then."""

    url: str
    expires_at: datetime.datetime

    def __repr__(self) -> str:
        return f"QrLogin(expires_at={self.expires_at!r})"


class ImportedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one session file of Telethon."""

    file: str
    verdict: str  # imported, duplicate, not_a_session, empty, signed_out, unchecked, failed
    detail: str = ""
    session_id: str | None = None
    user_id: int | None = None


class Crawl(msgspec.Struct, frozen=True, kw_only=True):
    """How far a chat's history has been read backwards."""

    state: str  # none, running, stopped, whole
    crawled: int
    down_to: int | None = None  # a message id
    until: datetime.datetime | None = None


class SessionChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat of which a session knows something."""

    chat_id: int
    title: str
    newest_id: int | None = None
    crawl: Crawl
    updated_at: datetime.datetime | None = None


class ArchivedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as one session saw it. `raw` is filled where a single message was asked for."""

    session_id: str
    agent_id: str
    chat_id: int
    message_id: int
    direction: Direction
    sender_id: int | None = None
    date: datetime.datetime
    edited_at: datetime.datetime | None = None
    deleted_at: datetime.datetime | None = None
    kind: str  # text, photo, video, voice, document, service, …
    text: str
    reply_to: int | None = None
    grouped_id: int | None = None
    media: dict[str, Any] | None = None
    letter_id: str | None = None  # the letter that sent it
    created_at: datetime.datetime  # when it was archived
    raw: Any = None


class ArchivedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something else that a session saw: somebody joined, read, reacted; the session's own state."""

    event_id: str
    session_id: str
    agent_id: str
    event_type: str
    chat_id: int | None = None
    user_id: int | None = None
    payload: dict[str, Any]
    created_at: datetime.datetime


class FeedLine(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was archived, told to whoever listens. The numbers of a session's lines rise without a gap; a
    listener that asked for some of them only sees gaps."""

    session_id: str
    agent_id: str
    number: int
    kind: LineKind
    at: datetime.datetime  # when it was archived
    chat_id: int | None = None  # None with a deleted message: of some private chat or basic group, as Telegram tells it
    message_id: int | None = None
    message: ArchivedMessage | None = None  # of a new or edited one
    event: ArchivedEvent | None = None


class MessagePage(msgspec.Struct, frozen=True, kw_only=True):
    messages: tuple[ArchivedMessage, ...]
    next: str | None = None


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    events: tuple[ArchivedEvent, ...]
    next: str | None = None


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    sessions: tuple[AccountSession, ...]
    next: str | None = None


class _Deleted(msgspec.Struct):
    session_id: str
    agent_id: str
    chat_id: int | None
    message_id: int
    deleted_at: datetime.datetime


# Lax, because REST writes ids as strings.
decode_session = msgspec.json.Decoder(AccountSession, strict=False).decode
decode_sessions = msgspec.json.Decoder(SessionPage, strict=False).decode
decode_qr = msgspec.json.Decoder(QrLogin, strict=False).decode
decode_chat = msgspec.json.Decoder(SessionChat, strict=False).decode
decode_message = msgspec.json.Decoder(ArchivedMessage, strict=False).decode
decode_messages = msgspec.json.Decoder(MessagePage, strict=False).decode
decode_event = msgspec.json.Decoder(ArchivedEvent, strict=False).decode
decode_events = msgspec.json.Decoder(EventPage, strict=False).decode
_decode_deleted = msgspec.json.Decoder(_Deleted, strict=False).decode


def line_of(kind: LineKind, body: str, *, number: int) -> FeedLine:
    """A line from what it tells. Raises msgspec.DecodeError."""
    match kind:
        case LineKind.EVENT:
            event = decode_event(body)
            return FeedLine(
                session_id=event.session_id,
                agent_id=event.agent_id,
                number=number,
                kind=kind,
                at=event.created_at,
                chat_id=event.chat_id,
                event=event,
            )
        case LineKind.DELETED:
            gone = _decode_deleted(body)
            return FeedLine(
                session_id=gone.session_id,
                agent_id=gone.agent_id,
                number=number,
                kind=kind,
                at=gone.deleted_at,
                chat_id=gone.chat_id,
                message_id=gone.message_id,
            )
        case LineKind.MESSAGE | LineKind.EDITED:
            message = decode_message(body)
            return FeedLine(
                session_id=message.session_id,
                agent_id=message.agent_id,
                number=number,
                kind=kind,
                at=message.created_at,
                chat_id=message.chat_id,
                message_id=message.message_id,
                message=message,
            )
