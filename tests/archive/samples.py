"""The smallest records that tell a story."""

from typing import Any

from peik.archive.store import Direction, FeedRecord, Happening, LineKind, LogLine, MemberRecord, Message, Session

NOW = 1_800_000_000_000
CHAT, CHANNEL, PERSON = 5, -1_001_234_567_890, 77


def session(session_id: str = "s1", **fields: Any) -> Session:
    return Session(
        **{"session_id": session_id, "agent_id": "anna", "created_at_ms": NOW, "updated_at_ms": NOW} | fields
    )


def message(message_id: int = 1, **fields: Any) -> Message:
    given = {
        "session_id": "s1",
        "agent_id": "anna",
        "chat_id": CHAT,
        "message_id": message_id,
        "direction": Direction.RECEIVED,
        "sender_id": PERSON,
        "date_ms": NOW + message_id * 1000,
        "text": f"message {message_id}",
        "created_at_ms": NOW,
    }
    return Message(**given | fields)


def event(event_id: str = "e1", **fields: Any) -> Happening:
    given = {
        "event_id": event_id,
        "session_id": "s1",
        "agent_id": "anna",
        "event_type": "joined",
        "payload": "{}",
        "created_at_ms": NOW,
    }
    return Happening(**given | fields)


def member(user_id: int = PERSON, **fields: Any) -> MemberRecord:
    given = {"session_id": "s1", "agent_id": "anna", "chat_id": CHANNEL, "user_id": user_id, "since_ms": NOW}
    return MemberRecord(**given | fields)


def line(key: str = "k1", **fields: Any) -> FeedRecord:
    given = {
        "session_id": "s1",
        "agent_id": "anna",
        "key": key,
        "kind": LineKind.MESSAGE,
        "body": "{}",
        "at_ms": NOW,
    }
    return FeedRecord(**given | fields)


def log(event: str = "started", **fields: Any) -> LogLine:
    return LogLine(**{"at_ms": NOW, "level": "info", "event": event, "node": "one"} | fields)
