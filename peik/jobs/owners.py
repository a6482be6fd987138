"""Which process a work folder belongs to. Several share one base folder, and each must only ever remove what nobody needs.

`peik-….owner` is locked by its process for as long as it lives (the system lets go of the lock however it dies), and says how
much it has set aside; `peik-…` beside it holds its folders. Nothing else in the base folder is ever touched.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from peik.jobs.disk import Account

_LOCK = "peik.lock"
_NAME = re.compile(r"peik-[0-9a-f]{16}")
_MODE = 0o600
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class Owner:
    """One process in a base folder. All methods block, for a moment."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.name = f"peik-{secrets.token_hex(8)}"
        self.folder = base / self.name
        self._file: int | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While this is held nobody else comes, goes, or sets anything aside."""
        self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._base / _LOCK
        file = os.open(path, _OPEN, _MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            while not _is_same(path, file):  # the last one to leave took it away as we waited
                os.close(file)
                file = os.open(path, _OPEN, _MODE)
                fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def settle_in(self) -> None:
        """Be there, under the lock. Also again, should somebody have tidied the base folder."""
        path = _owner_file(self._base, self.name)
        if self._file is not None and not _is_same(path, self._file):
            os.close(self._file)
            self._file = None
        if self._file is None:
            file = os.open(path, _OPEN, _MODE)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                raise
            self._file = file
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def write(self, account: Account) -> None:
        if self._file is not None:
            _write(self._file, account)

    def others(self) -> Account:
        """What all the others have set aside, under the lock. What a dead one had may still lie there."""
        total = Account()
        for name in _names(self._base):
            if name != self.name:
                total += _read(_owner_file(self._base, name))
        return total

    def dead(self) -> "list[Dead]":
        """Those whose process has ended, under the lock. Nobody else deals with them until each is let go."""
        names = [name for name in _names(self._base) if name != self.name]
        claims = [(name, _claimed(_owner_file(self._base, name))) for name in names]
        return [Dead(self, self._base, name, file) for name, file in claims if file is not None]

    def leave(self) -> None:
        """Nothing is ours any more. What could not be removed is found by the next one."""
        with self.locked():
            if self._file is None:
                return
            with suppress(OSError):
                self.folder.rmdir()
                _owner_file(self._base, self.name).unlink(missing_ok=True)
                if not _names(self._base):
                    (self._base / _LOCK).unlink()
            os.close(self._file)
            self._file = None


class Dead:
    """What an ended process left behind."""

    def __init__(self, by: Owner, base: Path, name: str, file: int) -> None:
        self._by = by
        self._owner_file = _owner_file(base, name)
        self.folder = base / name
        self._file = file

    def folders(self) -> list[Path]:
        is_folder = self.folder.is_dir() and not self.folder.is_symlink()
        return list(self.folder.iterdir()) if is_folder else []

    def let_go(self, *, left_bytes: int | None) -> None:
        """None: nothing is left of it."""
        try:
            if left_bytes is not None:
                _write(self._file, Account(held=left_bytes))
                return
            with self._by.locked():
                self._owner_file.unlink(missing_ok=True)
        finally:
            os.close(self._file)


def _names(base: Path) -> list[str]:
    """Of all owners: by their file, or by a folder whose file is gone."""
    names = {entry.name.removesuffix(".owner") for entry in base.iterdir()}
    return sorted(name for name in names if _NAME.fullmatch(name))


def _owner_file(base: Path, name: str) -> Path:
    return base / f"{name}.owner"


def _claimed(path: Path) -> int | None:
    """None: it lives, or nobody can tell."""
    try:
        file = os.open(path, _OPEN, _MODE)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def _is_same(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _write(file: int, account: Account) -> None:
    os.pwrite(file, f"{account.held:>20} {account.unwritten:>20}\n".encode(), 0)


def _read(path: Path) -> Account:
    try:
        held, unwritten = path.read_text().split()
        return Account(held=int(held), unwritten=int(unwritten))
    except (OSError, ValueError):  # it has only just come
        return Account()
