"""What every database can keep: texts without NUL and without lone surrogates, so that all archives hold the same."""

import re
from typing import TypeVar

import msgspec

from peik.archive_ports import FeedLine, Happening, LogLine, Message

R = TypeVar("R", Message, Happening, FeedLine, LogLine)

_BAD = re.compile("[\0\ud800-\udfff]")
_TEXTS: dict[type, tuple[str, ...]] = {
    Message: ("session_id", "agent_id", "kind", "text", "media", "raw"),
    Happening: ("event_id", "session_id", "agent_id", "event_type", "payload"),
    FeedLine: ("session_id", "agent_id", "key", "body"),
    LogLine: ("level", "event", "node", "session_id", "fields"),
}


def fitted(record: R) -> R:
    """The record itself if it fits, as nearly all do."""
    bad = [name for name in _TEXTS[type(record)] if (text := getattr(record, name)) and not _fits(text)]
    if not bad:
        return record
    return msgspec.structs.replace(record, **{name: _BAD.sub("\ufffd", getattr(record, name)) for name in bad})


def _fits(text: str) -> bool:
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()  # quicker than any look at each character
    except UnicodeEncodeError:
        return False
    return True
