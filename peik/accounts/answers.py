"""Sessions, messages and events as the world sees them: one shape for REST, streams and webhooks. Nothing secret is in it."""

import msgspec

from peik.archive.store import ChatState, Happening, Message, Session
from peik.core.units import rfc3339


def session_view(session: Session) -> dict[str, object]:
    return {
        "session_id": session.session_id,
        "agent_id": session.agent_id,
        "phone": session.phone,
        "user_id": _id(session.user_id),
        "username": session.username,
        "state": session.state,
        "state_reason": session.state_reason,
        "state_until": rfc3339(session.state_until_ms),
        "is_connected": session.is_connected,
        "is_active": session.is_active,
        "runs_from": "file" if session.file is not None else "key" if session.secret is not None else None,
        "has_proxy": session.proxy is not None,
        "metadata": msgspec.Raw(session.metadata.encode()),
        "created_at": rfc3339(session.created_at_ms),
        "updated_at": rfc3339(session.updated_at_ms),
        "active_at": rfc3339(session.active_at_ms),
    }


def message_view(message: Message, *, has_raw: bool = False) -> dict[str, object]:
    view: dict[str, object] = {
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
    return {**view, "raw": _json(message.raw)} if has_raw else view


def event_view(event: Happening) -> dict[str, object]:
    return {
        "event_id": event.event_id,
        "session_id": event.session_id,
        "agent_id": event.agent_id,
        "event_type": event.event_type,
        "chat_id": _id(event.chat_id),
        "user_id": _id(event.user_id),
        "payload": _json(event.payload),
        "created_at": rfc3339(event.created_at_ms),
    }


def chat_view(state: ChatState) -> dict[str, object]:
    """How far a chat is known: see `peik.accounts.history`."""
    return {
        "chat_id": str(state.chat_id),
        "title": state.title,
        "newest_id": _id(max(state.newest_id, 0)),
        "crawl": {
            "state": _crawl_state(state),
            "crawled": state.crawled,
            "down_to": _id(state.crawled_to) if state.crawled else None,
            "until": rfc3339(state.crawl_until_ms or None),
        },
        "updated_at": rfc3339(state.updated_at_ms or None),
    }


def _crawl_state(state: ChatState) -> str:
    if state.crawled_to is None:
        return "none"
    if state.crawled_to == 0:
        return "whole"
    return "stopped" if state.crawl_until_ms is None else "running"


def _id(number: int | None) -> str | None:
    return None if number is None else str(number)


def _json(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())
