"""What the server of a store has that other programs on it have not: the right to be it, and the admin key."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peik.config import Config
from peik.errors import StartError
from peik.office import Office as Office
from peik.settings_values import StoreKind
from peik.store.choosing import AnyStore
from peik.store.database import OwnerLock


@contextmanager
def only_server(config: Config) -> Iterator[None]:
    """The right to be the server of a store. Raises StartError, with the process that has it.

    It is not the right to send: a program on `Peik.open` may have taken that over while the server was down. The server
    then starts all the same, accepts, and sends again when that program ends.
    """
    if config.store_kind is not StoreKind.SQLITE:
        yield
        return
    path = config.sqlite_path.absolute()
    lock = OwnerLock(path, suffix=".server")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise StartError(
            f"{path.parent} cannot be written: {error.strerror}. Name another file in PEIK_STORE."
        ) from None
    try:
        yield
    finally:
        lock.release()


async def admin_key(config: Config, store: AnyStore) -> tuple[str, Path | None]:
    """The key of the REST API, and the file that it was kept in unless it was set. All nodes of a server have the same."""
    if config.admin_key:
        return config.admin_key, None
    path = config.beside(".key")
    made = f"peik_{secrets.token_urlsafe(32)}"
    if config.store_kind is not StoreKind.SQLITE:
        made = await store.secret("admin_key", made)
    if path.is_file():
        key = _kept_key(path)
        if key == made or config.store_kind is StoreKind.SQLITE:
            return key, path
        path.unlink()  # of another store
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise StartError(f"The admin key cannot be kept in {path}: {error.strerror}. Set PEIK_ADMIN_KEY.") from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(made + "\n")
    return made, path


def _kept_key(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise StartError(
            f"The admin key in {path} cannot be read: {why}. Start Peik as the user it belongs to, or set PEIK_ADMIN_KEY."
        ) from None
