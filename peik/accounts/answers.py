"""Sessions, messages and events as the world sees them: one shape for REST, streams and webhooks. Nothing secret is in it."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from peik.accounts.registry import (
    HealthGrade,
    KeepMode,
    KeptChats,
    WatchedMembers,
    health_of,
    kept_of,
    own_metadata,
    progress_of,
)
from peik.archive.store import ChatState, Direction, Happening, MemberRecord, Message, Session, SessionState
from peik.core.units import rfc3339
from peik.web.operations import Moment, Object

SESSION_ID_PATTERN = "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"  # as the registry gives and takes them

SessionId = Annotated[str, msgspec.Meta(pattern=SESSION_ID_PATTERN)]


class SessionHealthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    grade: Annotated[
        HealthGrade,
        msgspec.Meta(description="ok, waiting and failing go on by themselves; ended needs somebody; off is meant so."),
    ]
    line: Annotated[str, msgspec.Meta(description="How it stands, and why, as a sentence.")]
    todo: Annotated[str | None, msgspec.Meta(description="What to do about it.")]

    @classmethod
    def of(cls, session: Session) -> "SessionHealthAnswer":
        health = health_of(session)
        return cls(grade=health.grade, line=health.line, todo=health.todo)


class SessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    session_id: SessionId
    agent_id: str
    phone: str | None
    user_id: Annotated[
        str | None, msgspec.Meta(description="The account at Telegram, and the bot_id of letters that go out as it.")
    ]
    username: str | None
    state: SessionState
    state_reason: Annotated[str | None, msgspec.Meta(description="Why, as a sentence.")]
    health: SessionHealthAnswer
    state_until: Annotated[Moment | None, msgspec.Meta(description="The end of a flood wait, or of a code's time.")]
    is_connected: bool
    is_active: Annotated[bool, msgspec.Meta(description="False: deactivated by its owner; kept, and not run.")]
    runs_from: Literal["key", "file"] | None
    has_proxy: bool
    metadata: Object
    keep: Annotated[
        dict[str, KeepMode],
        msgspec.Meta(description="What was chosen to be archived of which chats, or of all, private and groups."),
    ]
    created_at: Moment
    updated_at: Moment
    active_at: Moment | None

    @classmethod
    def of(cls, session: Session) -> "SessionAnswer":
        return cls(
            session_id=session.session_id,
            agent_id=session.agent_id,
            phone=session.phone,
            user_id=_id(session.user_id),
            username=session.username,
            state=session.state,
            state_reason=session.state_reason,
            health=SessionHealthAnswer.of(session),
            state_until=rfc3339(session.state_until_ms),
            is_connected=session.is_connected,
            is_active=session.is_active,
            runs_from="file" if session.file is not None else "key" if session.secret is not None else None,
            has_proxy=session.proxy is not None,
            metadata=msgspec.Raw(own_metadata(session).encode()),
            keep=dict(kept_of(session).modes),
            created_at=rfc3339(session.created_at_ms),
            updated_at=rfc3339(session.updated_at_ms),
            active_at=rfc3339(session.active_at_ms),
        )


class CrawlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    state: Literal["none", "running", "stopped", "whole"]
    crawled: int
    down_to: str | None
    until: Moment | None
    progress: Annotated[
        float | None,
        msgspec.Meta(
            description="How much of a crawl to the first message is done, about: 0 to 1. Null: it cannot be said."
        ),
    ]


class SessionChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How far a session knows a chat."""

    chat_id: str
    title: str
    newest_id: str | None
    keep: Annotated[KeepMode, msgspec.Meta(description="What is archived of it: all, or nothing.")]
    crawl: CrawlAnswer
    updated_at: Moment | None

    @classmethod
    def of(cls, state: ChatState, kept: KeptChats) -> "SessionChatAnswer":
        return cls(
            chat_id=str(state.chat_id),
            title=state.title,
            newest_id=_id(max(state.newest_id, 0)),
            keep=kept.of(state.chat_id),
            crawl=CrawlAnswer(
                state=_crawl_state(state),
                crawled=state.crawled,
                down_to=_id(state.crawled_to) if state.crawled else None,
                until=rfc3339(state.crawl_until_ms or None),
                progress=progress_of(state),
            ),
            updated_at=rfc3339(state.updated_at_ms or None),
        )


def _crawl_state(state: ChatState) -> Literal["none", "running", "stopped", "whole"]:
    if state.crawled_to is None:
        return "none"
    if state.crawled_to == 0:
        return "whole"
    return "stopped" if state.crawl_until_ms is None else "running"


class ArchivedMemberAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody in a group or channel, as they were from one look on."""

    user_id: str
    name: str
    username: str | None
    role: Annotated[str, msgspec.Meta(description="owner, admin, member or restricted.")]
    since: Annotated[Moment, msgspec.Meta(description="The look at which they were so for the first time.")]
    until: Annotated[Moment | None, msgspec.Meta(description="The look at which they were not so any more.")]

    @classmethod
    def of(cls, one: MemberRecord) -> "ArchivedMemberAnswer":
        return cls(
            user_id=str(one.user_id),
            name=one.name,
            username=one.username,
            role=one.role,
            since=rfc3339(one.since_ms),
            until=rfc3339(one.until_ms),
        )


class WatchedMembersAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How the list of a chat's members is read."""

    every_s: float
    read_at: Moment | None
    seen: Annotated[int, msgspec.Meta(description="How many Telegram showed at the last look.")]
    is_whole: Annotated[
        bool, msgspec.Meta(description="Telegram showed all of them; else nobody is said to have left.")
    ]
    why: Annotated[str | None, msgspec.Meta(description="Why they could not be read, as a sentence.")]

    @classmethod
    def of(cls, one: WatchedMembers) -> "WatchedMembersAnswer":
        return cls(
            every_s=one.every_s,
            read_at=rfc3339(one.read_at_ms),
            seen=one.seen,
            is_whole=one.count is not None,
            why=one.why,
        )


class ArchivedMessageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    agent_id: str
    chat_id: Annotated[
        str, msgspec.Meta(description="As the Bot API writes it: groups negative, channels and supergroups -100…")
    ]
    message_id: str
    direction: Direction
    sender_id: str | None
    date: Moment
    edited_at: Moment | None
    deleted_at: Moment | None
    kind: Annotated[str, msgspec.Meta(description="text, photo, video, voice, document, service, …")]
    text: str
    reply_to: str | None
    grouped_id: str | None
    media: Object | None
    letter_id: Annotated[str | None, msgspec.Meta(description="The letter that sent it.")]
    created_at: Annotated[Moment, msgspec.Meta(description="When it was archived.")]

    @classmethod
    def of(cls, message: Message) -> "ArchivedMessageAnswer":
        return cls(**_seen(message))


class MessageVersionAnswer(ArchivedMessageAnswer, frozen=True, kw_only=True):
    raw: Annotated[Any, msgspec.Meta(description="The whole of it as Telegram told it.")]

    @classmethod
    def of(cls, message: Message) -> "MessageVersionAnswer":
        return cls(**_seen(message), raw=_json(message.raw))


class MessageAnswer(MessageVersionAnswer, frozen=True, kw_only=True):
    versions: Annotated[list[MessageVersionAnswer], msgspec.Meta(description="The oldest first.")]

    @classmethod
    def of_versions(cls, messages: Sequence[Message]) -> "MessageAnswer":
        versions = [MessageVersionAnswer.of(one) for one in messages]
        return cls(**msgspec.structs.asdict(versions[-1]), versions=versions)


def _seen(message: Message) -> dict[str, Any]:
    return {
        "session_id": message.session_id,
        "agent_id": message.agent_id,
        "chat_id": str(message.chat_id),
        "message_id": str(message.message_id),
        "direction": message.direction,
        "sender_id": _id(message.sender_id),
        "date": rfc3339(message.date_ms),
        "edited_at": rfc3339(message.edited_at_ms or None),
        "deleted_at": rfc3339(message.deleted_at_ms),
        "kind": message.kind,
        "text": message.text,
        "reply_to": _id(message.reply_to),
        "grouped_id": _id(message.grouped_id),
        "media": _json(message.media),
        "letter_id": _id(message.letter_id),
        "created_at": rfc3339(message.created_at_ms),
    }


class HappeningAnswer(msgspec.Struct, frozen=True, kw_only=True):
    event_id: str
    session_id: str
    agent_id: str
    event_type: Annotated[str, msgspec.Meta(description="joined, left, read, reaction, online, state, …")]
    chat_id: str | None
    user_id: str | None
    payload: Object
    created_at: Moment

    @classmethod
    def of(cls, event: Happening) -> "HappeningAnswer":
        return cls(
            event_id=event.event_id,
            session_id=event.session_id,
            agent_id=event.agent_id,
            event_type=event.event_type,
            chat_id=_id(event.chat_id),
            user_id=_id(event.user_id),
            payload=msgspec.Raw(event.payload.encode()),
            created_at=rfc3339(event.created_at_ms),
        )


def _id(number: int | None) -> str | None:
    return None if number is None else str(number)


def _json(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())
