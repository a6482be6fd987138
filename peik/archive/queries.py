"""The named queries of an archive's `.sql` files."""

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{3})\.sql")


@cache
def load(package: str, filename: str) -> dict[str, str]:
    """All queries of one file by name, without their comments: some are put together from pieces."""
    text = (files(package) / "sql" / filename).read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: _COMMENT.sub("", body).strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


@cache
def filled(query: str, **parts: str) -> str:
    """A query whose {places} are filled with other pieces of SQL."""
    for place, part in parts.items():
        query = query.replace(f"{{{place}}}", part)
    return query


@cache
def migrations(package: str) -> list[str]:
    """The steps of a schema, in order."""
    scripts = sorted(
        (int(match[1]), entry.read_text(encoding="utf-8"))
        for entry in (files(package) / "sql").iterdir()
        if (match := _MIGRATION.fullmatch(entry.name))
    )
    assert [number for number, _ in scripts] == list(range(1, len(scripts) + 1)), "migrations are numbered without gaps"
    return [script for _, script in scripts]
