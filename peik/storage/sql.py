"""What the SQL stores share: named queries of a dialect's `.sql` files, and a session that asks them.

Work that is the same on both is an async function on a session. On SQLite nothing in it ever waits, and it runs on a thread.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")  # one colon: two are a cast


class NamedQuery:
    """A query as a person writes it, with :names, and as PostgreSQL wants it, with $1, $2."""

    __slots__ = ("names", "text", "written")

    def __init__(self, written: str) -> None:
        self.written = written
        self.names: tuple[str, ...] = tuple(dict.fromkeys(_PARAMETER.findall(_without_comments(written))))
        places = {name: f"${place}" for place, name in enumerate(self.names, start=1)}
        self.text = _PARAMETER.sub(lambda found: places.get(found[1], found[0]), written)

    def bind(self, named: Mapping[str, object]) -> list[object]:
        return [named[name] for name in self.names]


@cache
def load(package: str, filename: str) -> dict[str, NamedQuery]:
    """All queries of one file by name."""
    text = (files(package) / "sql" / filename).read_text(encoding="utf-8")
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


class Row(Protocol):
    """What a query answers: values by place, and on PostgreSQL by name. What they are, the query says; it is narrowed where it
    is read."""

    def __getitem__(self, place: Any, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


class SqlSession(Protocol):
    """Asks queries on one connection, with values by name."""

    async def rows(self, query: NamedQuery, **named: object) -> Sequence[Row]: ...

    async def number(self, query: NamedQuery, **named: object) -> int:
        """One number, 0 if there is none."""

    async def text(self, query: NamedQuery, **named: object) -> str | None: ...

    async def run(self, query: NamedQuery, **named: object) -> int:
        """How many rows it changed."""

    async def returned(self, query: NamedQuery, **named: object) -> Sequence[Row]:
        """What a query returns that writes."""

    async def read_many(self, query: NamedQuery, rows: Sequence[tuple[object, ...]]) -> Sequence[Row]:
        """What a query finds that takes all rows at once."""

    async def write_many(self, query: NamedQuery, rows: Sequence[tuple[object, ...]]) -> int:
        """How many rows it changed."""
