"""The indexes of each collection, each with what it is for."""

from typing import Any

from pymongo import ASCENDING, DESCENDING, IndexModel

_NOT_A_CHANNEL = {"chat_id": {"$gt": -1_000_000_000_000}}


def _index(*fields: str, **options: Any) -> IndexModel:
    """Fields in rising order, those with a minus before them in falling order."""
    keys = [(name.lstrip("-"), DESCENDING if name.startswith("-") else ASCENDING) for name in fields]
    return IndexModel(keys, **options)


# The pages of a filter are walked in the order of time, and `_id` tells documents of one millisecond apart: an index without it
# would make the server sort everything that fits. Hence (chat_id, date) is here twice, once as people expect it.
INDEXES: dict[str, list[IndexModel]] = {
    "telegram_sessions": [
        _index("session_id", unique=True),
        _index("agent_id"),
        _index("phone"),
        # One active session per phone, whoever asks at the same time.
        _index(
            "phone",
            "is_active",
            unique=True,
            partialFilterExpression={"is_active": True, "phone": {"$type": "string"}},
            name="one_per_phone",
        ),
    ],
    "messages": [
        _index("session_id", "-created_at"),  # and what retention lets go of
        _index("agent_id", "-created_at"),
        _index("chat_id", "-date"),
        _index("session_id", "chat_id", "message_id", unique=True, name="one_per_key"),
        # Telegram tells a deletion without the chat, but for channels and supergroups.
        _index("session_id", "message_id", partialFilterExpression=_NOT_A_CHANNEL),
        _index("session_id", "-date", "-_id"),
        _index("agent_id", "-date", "-_id"),
        _index("chat_id", "-date", "-_id"),
        _index("sender_id", "-date", "-_id"),
        _index("-date", "-_id"),
        # Folded words, one entry each. A text index has words of its own making, cannot give its hits in the order of time,
        # and there can be only one.
        _index("words", "-date", "-_id"),
    ],
    "message_versions": [
        _index("session_id", "chat_id", "message_id", "edited_at", unique=True, name="one_per_version"),
        _index("sender_id"),
    ],
    "events": [
        _index("session_id", "-created_at"),
        _index("agent_id", "event_type"),
        _index("event_id", unique=True),
        _index("session_id", "-created_at", "-_id"),
        _index("agent_id", "-created_at", "-_id"),
        _index("agent_id", "event_type", "-created_at", "-_id"),
        _index("chat_id", "-created_at", "-_id"),
        _index("-created_at", "-_id"),
        _index("user_id"),
    ],
    "chat_states": [_index("session_id", "chat_id", unique=True)],
    "feed": [
        # One writer has a number. Readers walk it, and how far feeds go is read off its edges.
        _index("session_id", "number", unique=True, name="one_per_number"),
        # The same is told once. An emptied line has no key any more.
        _index(
            "session_id",
            "key",
            unique=True,
            partialFilterExpression={"key": {"$exists": True}},
            name="one_per_key",
        ),
        # Which lines are emptied, asked with every look at how far feeds go: very few entries.
        _index("emptied", "session_id", "number", partialFilterExpression={"emptied": True}, name="emptied"),
        _index("at"),  # what retention lets go of
        _index("user_id"),  # whom `forget_person` forgets
    ],
    "reader_places": [
        _index("reader", "session_id", unique=True),  # a reader is in one place
        _index("at"),  # what retention lets go of
    ],
    "logs": [
        _index("digest", unique=True),  # a line that is handed in again is there once
        # Pages of a filter, as above: a session's, a bot's, those of one event.
        _index("session_id", "-at", "-_id"),
        _index("bot_id", "-at", "-_id"),
        _index("event", "-at", "-_id"),
        _index("-at", "-_id"),  # and what retention lets go of; levels and texts are looked for in this walk
    ],
}
