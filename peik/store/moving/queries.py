"""The named queries of this folder's `.sql` files, and where a page of each kind begins."""

import re
from functools import cache
from importlib.resources import files

import msgspec

from peik.store.moving.records import KINDS, Record

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_LEAST = -(2**63)

# Fields of keys that are texts. A page begins behind its cursor; before the first page that is the least value of all.
_TEXTS = frozenset({"name", "digest", "kind", "user_id", "shelf", "paper_key"})


@cache
def load(filename: str) -> dict[str, str]:
    text = (files("peik.store.moving") / "sql" / filename).read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def after(kind: str, cursor: str | None) -> list[int | str]:
    """The key behind which a page begins."""
    if cursor is not None:
        return msgspec.json.decode(cursor, type=list[int | str])
    return ["" if field in _TEXTS else _LEAST for field in KINDS[kind].key]


def cursor_of(record: Record) -> str:
    return msgspec.json.encode([getattr(record, field) for field in record.key]).decode()
