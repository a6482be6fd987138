"""A chat as a column keeps it: a number in digits, a name as it is. Both ways, and no two chats are written alike."""

from peik.core.letter import Chat

_DIGITS = "-0123456789"


def encode(chat: Chat) -> str:
    if isinstance(chat, int):
        return str(chat)
    return f"'{chat}" if chat[:1] in ("'", *_DIGITS) else chat


def decode(text: str) -> Chat:
    if text[:1] == "'":
        return text[1:]
    return int(text) if text and text[0] in _DIGITS else text


def clean(text: str | None) -> str | None:
    """Words of others as PostgreSQL can keep them: its texts hold no NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if text is not None and "\0" in text else text
