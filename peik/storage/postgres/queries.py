"""The named queries of this folder's `.sql` files, and how values are bound to them by name."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from peik.core.letter import Chat

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")  # one colon: two are a cast


class NamedQuery:
    """A query as a person writes it, with :names, and as the server wants it, with $1, $2."""

    __slots__ = ("names", "text", "written")

    def __init__(self, written: str) -> None:
        self.written = written
        self.names: tuple[str, ...] = tuple(dict.fromkeys(_PARAMETER.findall(_without_comments(written))))
        places = {name: f"${place}" for place, name in enumerate(self.names, start=1)}
        self.text = _PARAMETER.sub(lambda found: places.get(found[1], found[0]), written)

    def bind(self, named: Mapping[str, object]) -> list[object]:
        return [named[name] for name in self.names]


@cache
def load(filename: str) -> dict[str, NamedQuery]:
    """All queries of one file by name."""
    text = (files("peik.storage.postgres") / "sql" / filename).read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: NamedQuery(body.strip()) for name, body in zip(parts[::2], parts[1::2], strict=True)}


@cache
def made(text: str) -> NamedQuery:
    """A query that was put together from parts; few of them are different."""
    return NamedQuery(text)


def filled(query: NamedQuery, **parts: str) -> NamedQuery:
    """A query whose {places} are filled with other pieces of SQL."""
    text = query.written
    for place, part in parts.items():
        text = text.replace(f"{{{place}}}", part)
    return made(text)


def _without_comments(text: str) -> str:
    return re.sub(r"--.*$", "", text, flags=re.MULTILINE)


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
