"""The named queries of this folder's `.sql` files, and how a chat is written in a column."""

from functools import partial

from peik.core.letter import Chat
from peik.storage import sql
from peik.storage.sql import NamedQuery, filled, made

__all__ = ["NamedQuery", "clean", "decode", "encode", "filled", "load", "made"]

load = partial(sql.load, "peik.storage.postgres")


# A chat as a column keeps it: a number in digits, a name as it is. Both ways, and no two chats are written alike.


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
