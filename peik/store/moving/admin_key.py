"""The admin key, which lies in a file beside a SQLite database and among the secrets of a server's store."""

import contextlib
import os
from pathlib import Path

from peik.store.folders import sync_folder
from peik.store.moving.records import Secret

NAME = "admin_key"  # as `peik.serving.admin_key` names it in a store


def read(database: Path) -> Secret | None:
    """None: there is no file, as PEIK_ADMIN_KEY was set, or nobody has served this database yet."""
    with contextlib.suppress(FileNotFoundError):
        text = _file(database).read_text(encoding="utf-8").strip()
        return Secret(NAME, text) if text else None
    return None


def write(database: Path, secret: Secret) -> None:
    """For the eyes of its owner only, and there at once as a whole."""
    path = _file(database)
    unfinished = path.with_name(path.name + ".moving")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(secret.value + "\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    sync_folder(path.parent)


def _file(database: Path) -> Path:
    return database.with_name(database.name + ".key")
