"""The stores that the suite hurts. One with a server of its own joins by a class here: its server is then killed as well."""

import sqlite3
from pathlib import Path


class SqliteFile:
    """No server: the store lives and dies with the process that opened it."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def url(self) -> str:
        """What PEIK_STORE says."""
        return f"sqlite:///{self._folder / 'peik.db'}"

    def is_being_written(self) -> bool:
        """Whether some process is in the middle of a commit."""
        connection = sqlite3.connect(self._folder / "peik.db", timeout=0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
        else:
            return False
        finally:
            connection.close()


STORES = (SqliteFile,)
