"""A toy store: SQLite under a scheme of its own."""

from peik.storage.sqlite.store import SqliteStore


class ToyStore(SqliteStore):
    """The same file, and the same promises."""
