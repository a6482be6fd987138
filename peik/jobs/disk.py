"""The disk under work folders: how big a folder is, how to remove one whatever is in it, and whether there is room for more."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

FLOOR_BYTES = 1024**3
FLOOR_PART = 0.05
FILES_MIN = 1000  # a disk may have no room for one more file, and gigabytes for bytes
_PATH_CHARS_MAX = 2000  # what the system takes in one go is 4096
_LEVELS_MAX = 200
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """Of a whole disk."""

    total: int
    free: int  # for us: some is kept for root
    files_free: int | None = None  # None: it does not count them


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What is set aside for folders: all of it, and what of that is not written yet."""

    held: int = 0
    unwritten: int = 0

    def __add__(self, other: "Account") -> "Account":
        return Account(held=self.held + other.held, unwritten=self.unwritten + other.unwritten)


def space_of(path: Path) -> Space:
    told = os.statvfs(path)
    return Space(
        total=told.f_blocks * told.f_frsize,
        free=told.f_bavail * told.f_frsize,
        files_free=told.f_favail if told.f_files else None,
    )


def floor_of(space: Space, wanted: int | None) -> int:
    """What has to stay free: as the settings say, else a gigabyte, or a twentieth of a small disk."""
    return min(FLOOR_BYTES, int(space.total * FLOOR_PART)) if wanted is None else wanted


def lacking(wanted: int, account: Account, space: Space, *, bytes_max: int | None, floor: int) -> str | None:
    """Why there is no room for this many bytes more, as a sentence; None: there is."""
    if bytes_max is not None and account.held + wanted > bytes_max:
        return (
            f"Work folders may hold {shown(bytes_max)} together; {shown(account.held)} are set aside already, "
            f"and this one needs {shown(wanted)}."
        )
    free = space.free - account.unwritten - wanted
    if free < floor:
        return (
            f"The disk has {shown(space.free)} free, of which {shown(account.unwritten + wanted)} are set aside, "
            f"and {shown(floor)} have to stay free."
        )
    if space.files_free is not None and space.files_free < FILES_MIN:
        return f"The disk has room for {space.files_free} more files only."
    return None


def shown(size: int) -> str:
    """1.5 GB."""
    amount = float(size)
    for unit in ("bytes", "KB", "MB", "GB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"


# ---- measuring ----


def size_of(path: Path) -> int:
    """The bytes of all files in it, however deep. What vanishes as we look counts nothing; what is linked twice counts once."""
    try:
        top = os.open(path, _OPEN)
    except OSError:
        return 0
    try:
        return _size_below(top, set(), level=0)
    finally:
        os.close(top)


def _size_below(top: int, twice: set[int], *, level: int) -> int:
    total = 0
    waiting = ["."]
    while waiting:
        path = waiting.pop()
        with suppress(OSError):
            folder = os.open(path, _OPEN, dir_fd=top)
            try:
                if len(path) > _PATH_CHARS_MAX and level < _LEVELS_MAX:
                    total += _size_below(folder, twice, level=level + 1)
                    continue
                total += _size_here(folder, path, waiting, twice)
            finally:
                os.close(folder)
    return total


def _size_here(folder: int, path: str, waiting: list[str], twice: set[int]) -> int:
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                told = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(told.st_mode):
                    waiting.append(f"{path}/{entry.name}")
                elif stat.S_ISREG(told.st_mode) and told.st_ino not in twice:
                    total += told.st_size
                    if told.st_nlink > 1:
                        twice.add(told.st_ino)
    return total


# ---- removing ----


def remove(path: Path) -> None:
    """All of it goes, and nothing outside: links are not followed, and nothing that is mounted there is touched. However deep it
    is, no matter who may not write to it. Raises the first OSError after removing whatever can be removed."""
    with suppress(FileNotFoundError):  # somebody else was quicker
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
        top = _opened(str(path), None)
        try:
            errors = _emptied(top)
        finally:
            os.close(top)
        if errors:
            raise errors[0]
        path.rmdir()


def _emptied(top: int) -> list[OSError]:
    """Folders within folders are first moved to the top, so that no path is ever too long."""
    errors: list[OSError] = []
    waiting: list[str] = []
    _strip(top, top, waiting, errors)
    while waiting:
        name = waiting.pop()
        try:
            folder = _opened(name, top)
            try:
                _strip(folder, top, waiting, errors)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)
        except FileNotFoundError:
            continue
        except OSError as error:
            errors.append(error)
    return errors


def _strip(folder: int, top: int, waiting: list[str], errors: list[OSError]) -> None:
    """Its files go, its folders move up to the top and wait there."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        try:
            if is_folder:
                waiting.append(_moved(name, folder, top))
            else:
                os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            errors.append(error)


def _moved(name: str, folder: int, top: int) -> str:
    """Also where it lies at the top already: what is mounted there cannot be moved, and so is not emptied."""
    new_name = secrets.token_hex(8)
    try:
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:  # it may not be written to, not even by its owner
        os.chmod(name, stat.S_IRWXU, dir_fd=folder)
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=top)
    return new_name


def _opened(name: str, top: int | None) -> int:
    """A folder that may be read and written, whatever its owner took away."""
    try:
        folder = os.open(name, _OPEN, dir_fd=top)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=top)
        folder = os.open(name, _OPEN, dir_fd=top)
    if stat.S_IMODE(os.fstat(folder).st_mode) & stat.S_IRWXU != stat.S_IRWXU:
        with suppress(OSError):  # then what is in it says why it cannot go
            os.fchmod(folder, stat.S_IRWXU)
    return folder
