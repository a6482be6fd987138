"""A file of today, taken back to an earlier version of the schema: for tests of the steps that follow that version."""

import contextlib
from pathlib import Path

import apsw

from peik.storage.sqlite.database import SchemaUpgrade

_SCHEMA = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL"

Schema = dict[tuple[str, str], str]  # (type, name) to its SQL


def rewind(path: Path, version: int) -> None:
    """What the steps up to `version` make of an empty file says what goes and what comes back; rows stay."""
    with contextlib.closing(apsw.Connection(":memory:")) as then, contextlib.closing(apsw.Connection(str(path))) as now:
        for step in SchemaUpgrade().steps[:version]:
            then.execute(step)
        before, today = _schema(then), _schema(now)
        now.execute("BEGIN IMMEDIATE")
        changed = [key for key in today if before.get(key) != today[key]]
        # No column goes while a view or an index reads it.
        for kind, name in [key for key in today if key[0] == "view" or (key[0] == "index" and key in changed)]:
            now.execute(f'DROP {kind} "{name}"')
        for name in [name for kind, name in changed if kind == "table"]:
            if ("table", name) not in before:
                now.execute(f'DROP TABLE "{name}"')
                continue
            for column in _columns(now, name) - _columns(then, name):
                now.execute(f'ALTER TABLE "{name}" DROP COLUMN "{column}"')
        there = _schema(now)
        for key, sql in before.items():
            if key not in there:
                now.execute(sql)
        now.execute(f"PRAGMA user_version = {version}")
        now.execute("COMMIT")


def _schema(file: apsw.Connection) -> Schema:
    return {(str(kind), str(name)): str(sql) for kind, name, sql in file.execute(_SCHEMA)}


def _columns(file: apsw.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in file.execute(f'PRAGMA table_info("{table}")')}
