"""A seam below SQLite: whoever watches a folder is asked about every write, sync, truncation and removal of a file in it.

APSW's own VFS knows no shared memory, and WAL with several connections needs it. So the "unix" VFS stays, with two of its
functions replaced, and a watched file gets a copy of its methods with four of them replaced. Locks, shared memory and reads
are SQLite's own; a file that nobody watches is opened as ever, and no write of it comes through here.
"""

import ctypes
import os
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from typing import Any, Protocol

import apsw


class FileWatch(Protocol):
    """Asked by one open file. Each answers with a result code of SQLite; `make` does the thing and gives its code."""

    def write(self, data: bytes, offset: int, make: Callable[[int], int]) -> int:
        """`make` writes as many of the first bytes as it is told."""

    def sync(self) -> int: ...

    def truncate(self, size_bytes: int, make: Callable[[], int]) -> int: ...

    def close(self) -> None: ...


class FolderWatch(Protocol):
    """Asked about the files below one folder."""

    def open_flags(self, flags: int) -> int:
        """The flags that a file is to be opened with. Must not raise."""

    def open(self, path: str, flags: int, content: Callable[[], bytes]) -> FileWatch: ...

    def delete(self, path: str, make: Callable[[], int], *, is_folder_synced: bool) -> int: ...

    def randomness(self, size_bytes: int) -> bytes:
        """The seed of SQLite's own chance. The salts of a WAL are drawn from it."""

    def surprise(self, error: BaseException) -> None:
        """Told what one of the above raised. Nothing can be raised through SQLite: it hears of an I/O error instead."""


def watch(folder: str, watcher: FolderWatch) -> None:
    """From now on `watcher` is asked about every file below `folder` that is opened."""
    install()
    _watched[folder + os.sep] = watcher
    apsw.randomness(0)  # SQLite forgets its chance, and draws a seed anew


def unwatch(folder: str) -> None:
    """Files that are open go on asking."""
    del _watched[folder + os.sep]
    apsw.randomness(0)


def install() -> None:
    """Put the seam in. Once in each process of the operating system; it stays until that ends."""
    if _installed:
        return
    pointer = c_void_p()
    connection = apsw.Connection(":memory:")
    connection.file_control("main", apsw.SQLITE_FCNTL_VFS_POINTER, ctypes.addressof(pointer))
    connection.close()
    assert pointer.value is not None
    vfs = _Vfs.from_address(pointer.value)
    assert vfs.zName == b"unix", vfs.zName
    _installed.append(_Seam(vfs))


class _Vfs(ctypes.Structure):
    """sqlite3_vfs of sqlite3.h, as far as we need it."""

    _fields_ = [
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("xOpen", c_void_p),
        ("xDelete", c_void_p),
        *((name, c_void_p) for name in ("xAccess", "xFullPathname", "xDlOpen", "xDlError", "xDlSym", "xDlClose")),
        ("xRandomness", c_void_p),
    ]


class _Methods(ctypes.Structure):
    """sqlite3_io_methods of sqlite3.h, version 3."""

    _fields_ = [
        ("iVersion", c_int),
        *((name, c_void_p) for name in ("xClose", "xRead", "xWrite", "xTruncate", "xSync", "xFileSize")),
        *((name, c_void_p) for name in ("xLock", "xUnlock", "xCheckReservedLock", "xFileControl")),
        *((name, c_void_p) for name in ("xSectorSize", "xDeviceCharacteristics")),
        *((name, c_void_p) for name in ("xShmMap", "xShmLock", "xShmBarrier", "xShmUnmap", "xFetch", "xUnfetch")),
    ]


class _File(ctypes.Structure):
    _fields_ = [("pMethods", c_void_p)]


# The interpreter's lock is given back while SQLite's own function runs: it may wait for a thread that waits for that lock.
_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_DELETE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_RANDOMNESS = CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)
_CLOSE = CFUNCTYPE(c_int, c_void_p)
_READ = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_WRITE = _READ
_TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)
_FILE_SIZE = CFUNCTYPE(c_int, c_void_p, POINTER(c_int64))

_METHODS_VERSION = 3


class _Seam:
    """Everything that SQLite now holds a pointer to; it must live as long as SQLite does."""

    def __init__(self, vfs: _Vfs) -> None:
        self._vfs = vfs
        self._methods: dict[int, _Replaced] = {}
        self._open_before = _OPEN(vfs.xOpen)
        self._delete_before = _DELETE(vfs.xDelete)
        self._randomness_before = _RANDOMNESS(vfs.xRandomness)
        self._kept = (_OPEN(self._open), _DELETE(self._delete), _RANDOMNESS(self._randomness))
        vfs.xOpen, vfs.xDelete, vfs.xRandomness = (_address(one) for one in self._kept)

    def _open(self, vfs: int, name: int | None, file: int, flags: int, flags_out: int | None) -> int:
        path = "" if name is None else os.fsdecode(ctypes.string_at(name))
        watcher = _watcher_of(path)
        if watcher is None:
            return int(self._open_before(vfs, name, file, flags, flags_out))
        code = int(self._open_before(vfs, name, file, watcher.open_flags(flags), flags_out))
        if code == apsw.SQLITE_OK:
            place = _File.from_address(file)
            replaced = self._replaced(place.pMethods)
            try:
                _files[file] = watcher.open(path, flags, lambda: replaced.content(file)), watcher
            except BaseException as error:  # noqa: BLE001  SQLite is C: nothing can be raised through it
                watcher.surprise(error)
            else:
                place.pMethods = ctypes.addressof(replaced.methods)
        return code

    def _replaced(self, address: int) -> "_Replaced":
        found = self._methods.get(address)
        if found is None:
            found = self._methods[address] = _Replaced(_Methods.from_address(address))
        return found

    def _delete(self, vfs: int, name: int, is_folder_synced: int) -> int:
        path = os.fsdecode(ctypes.string_at(name))
        watcher = _watcher_of(path)
        if watcher is None:
            return int(self._delete_before(vfs, name, is_folder_synced))
        try:
            make = lambda: int(self._delete_before(vfs, name, 0))  # noqa: E731
            return watcher.delete(path, make, is_folder_synced=bool(is_folder_synced))
        except BaseException as error:  # noqa: BLE001
            watcher.surprise(error)
            return apsw.SQLITE_IOERR_DELETE

    def _randomness(self, vfs: int, size_bytes: int, out: int) -> int:
        for watcher in reversed(list(_watched.values())):
            ctypes.memmove(out, watcher.randomness(size_bytes), size_bytes)
            return size_bytes
        return int(self._randomness_before(vfs, size_bytes, out))


class _Replaced:
    """SQLite's methods of one kind of file, and the copy that watched files of this kind have instead."""

    def __init__(self, original: _Methods) -> None:
        self._close_before = _CLOSE(original.xClose)
        self._read_before = _READ(original.xRead)
        self._write_before = _WRITE(original.xWrite)
        self._truncate_before = _TRUNCATE(original.xTruncate)
        self._size_before = _FILE_SIZE(original.xFileSize)
        self._kept = (_CLOSE(self._close), _WRITE(self._write), _TRUNCATE(self._truncate), _SYNC(self._sync))
        self.methods = _Methods.from_buffer_copy(original)
        # A later SQLite may have more of them. It does without what this version does not say.
        self.methods.iVersion = min(original.iVersion, _METHODS_VERSION)
        close, write, truncate, sync = (_address(one) for one in self._kept)
        self.methods.xClose, self.methods.xWrite = close, write
        self.methods.xTruncate, self.methods.xSync = truncate, sync

    def content(self, file: int) -> bytes:
        """All of an open file. Not by its path: a second handle that is closed would take SQLite's locks with it."""
        size = c_int64()
        code = self._size_before(file, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        if code == apsw.SQLITE_OK and size.value:
            code = self._read_before(file, ctypes.addressof(buffer), size.value, 0)
        if code != apsw.SQLITE_OK:
            raise OSError(f"cannot read a file that was just opened: {code}")
        return buffer.raw[: size.value]

    def _close(self, file: int) -> int:
        watch, watcher = _files.pop(file)
        try:
            watch.close()
        except BaseException as error:  # noqa: BLE001
            watcher.surprise(error)
        return int(self._close_before(file))

    def _write(self, file: int, data: int, length: int, offset: int) -> int:
        watch, watcher = _files[file]
        try:
            make = lambda part: int(self._write_before(file, data, part, offset))  # noqa: E731
            return watch.write(ctypes.string_at(data, length), offset, make)
        except BaseException as error:  # noqa: BLE001
            watcher.surprise(error)
            return apsw.SQLITE_IOERR_WRITE

    def _truncate(self, file: int, size_bytes: int) -> int:
        watch, watcher = _files[file]
        try:
            return watch.truncate(size_bytes, lambda: int(self._truncate_before(file, size_bytes)))
        except BaseException as error:  # noqa: BLE001
            watcher.surprise(error)
            return apsw.SQLITE_IOERR_TRUNCATE

    def _sync(self, file: int, flags: int) -> int:
        watch, watcher = _files[file]
        try:
            return watch.sync()
        except BaseException as error:  # noqa: BLE001
            watcher.surprise(error)
            return apsw.SQLITE_IOERR_FSYNC


def _address(function: Any) -> int | None:
    return ctypes.cast(function, c_void_p).value


def _watcher_of(path: str) -> FolderWatch | None:
    for folder, watcher in list(_watched.items()):  # a copy: another thread may open a file meanwhile
        if path.startswith(folder):
            return watcher
    return None


_installed: list[_Seam] = []
_watched: dict[str, FolderWatch] = {}
_files: dict[int, tuple[FileWatch, FolderWatch]] = {}  # by the address of SQLite's handle, from open to close
