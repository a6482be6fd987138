"""What a session's feed says of what was archived. The keys make that the same is told once, whoever sees it again. Pure."""

from collections.abc import Sequence

import msgspec

from peik.archive_ports import FeedLine, Happening, LineKind, Message
from peik.sessions.shown import event_view, message_view
from peik.shown import rfc3339


def lines_of_messages(messages: Sequence[Message], *, at_ms: int) -> list[FeedLine]:
    return [
        FeedLine(
            session_id=one.session_id,
            agent_id=one.agent_id,
            key=f"m {one.chat_id} {one.message_id} {one.edited_at_ms}",
            kind=LineKind.EDITED if one.edited_at_ms else LineKind.MESSAGE,
            chat_id=one.chat_id,
            user_id=one.sender_id,
            body=_written(message_view(one)),
            at_ms=at_ms,
        )
        for one in messages
    ]


def lines_of_deleted(
    session_id: str, agent_id: str, chat_id: int | None, message_ids: Sequence[int], *, at_ms: int
) -> list[FeedLine]:
    """`chat_id` None: some private chat or basic group; Telegram does not tell which, and the ids are enough to know."""
    return [
        FeedLine(
            session_id=session_id,
            agent_id=agent_id,
            key=f"d {chat_id or 0} {message_id}",
            kind=LineKind.DELETED,
            chat_id=chat_id,
            body=_written(
                {
                    "session_id": session_id,
                    "agent_id": agent_id,
                    "chat_id": None if chat_id is None else str(chat_id),
                    "message_id": str(message_id),
                    "deleted_at": rfc3339(at_ms),
                }
            ),
            at_ms=at_ms,
        )
        for message_id in message_ids
    ]


def lines_of_events(events: Sequence[Happening], *, at_ms: int) -> list[FeedLine]:
    return [
        FeedLine(
            session_id=one.session_id,
            agent_id=one.agent_id,
            key=f"e {one.event_id}",
            kind=LineKind.EVENT,
            chat_id=one.chat_id,
            user_id=one.user_id,
            body=_written(event_view(one)),
            at_ms=at_ms,
        )
        for one in events
    ]


def _written(view: dict[str, object]) -> str:
    return msgspec.json.encode(view).decode()
