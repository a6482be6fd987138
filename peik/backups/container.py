"""The one file that a backup is: a head, then a compressed tar whose first member is the manifest, sealed if there is a key.

It is written under another name, synced and renamed, so that a name which looks like a backup is always a whole one.
"""

import contextlib
import errno
import gzip
import hashlib
import io
import os
import re
import secrets
import shutil
import tarfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

import msgspec

from peik.backups.model import (
    HEAD_BYTES_MAX,
    MAGIC,
    MANIFEST,
    BackupHead,
    BackupMember,
    BackupWatch,
    Manifest,
    broken,
    foreign,
    read_head,
    read_manifest,
)
from peik.errors import Conflict, NotFound, StartError, Unavailable, to_install
from peik.storage.shared_spool import locked_folder
from peik.storage.spool import sync_folder

# The sealed stream of a backup: AES-256-GCM in chunks, each bound to its place, so that none can be changed or cut
# off.


if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CHUNK_BYTES = 1024 * 1024
_TAG_BYTES = 16
_LENGTH_BYTES = 4
SALT_BYTES = 16


def key_id_of(key: bytes) -> str:
    """Which key it was, without telling anything of it."""
    return hashlib.sha256(b"peik backup key id" + key).hexdigest()[:8]


def new_salt() -> str:
    return os.urandom(SALT_BYTES).hex()


def cipher_of(head: BackupHead, keys: Sequence[bytes]) -> "AESGCM | None":
    """What opens, or seals, the rest of a backup with this head; None: it is not sealed. Raises Conflict without its key."""
    if head.salt is None:
        return None
    if not keys:
        raise Conflict(
            code="no_secret_key",
            detail="This backup is sealed. Set PEIK_SECRET_KEY to what it was when the backup was made.",
        )
    key = next((one for one in keys if key_id_of(one) == head.key_id), None)
    if key is None:
        raise Conflict(
            code="wrong_secret_key",
            detail="This backup was sealed with another key. Put that key behind the present one in PEIK_SECRET_KEY.",
        )
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError as error:
        raise StartError(
            f"A sealed backup needs a package that is not installed ({error.name}): {to_install('secrets')}."
        ) from None
    try:
        salt = bytes.fromhex(head.salt)
    except ValueError:
        raise broken("its beginning was changed") from None
    return AESGCM(HKDF(SHA256(), length=32, salt=salt, info=b"peik backup 1").derive(key))


def _nonce(place: int, *, is_last: bool) -> bytes:
    """Never the same twice under one key: each backup has a key of its own, made of its salt."""
    return place.to_bytes(11, "big") + bytes([is_last])


class SealingWriter(RawIOBase):
    """What is written here goes sealed to `file`. Only `finish` makes it whole: a stream without its last chunk opens nowhere."""

    def __init__(self, file: BinaryIO, cipher: "AESGCM", bound: bytes) -> None:
        self._file = file
        self._cipher = cipher
        self._bound = bound
        self._waiting = bytearray()
        self._place = 0

    def writable(self) -> bool:
        return True

    def write(self, data: "ReadableBuffer") -> int:
        view = memoryview(data).cast("B")
        self._waiting += view
        while len(self._waiting) > CHUNK_BYTES:  # one more is to come, so that this one is not the last
            self._put(bytes(self._waiting[:CHUNK_BYTES]), is_last=False)
            del self._waiting[:CHUNK_BYTES]
        return len(view)

    def finish(self) -> None:
        self._put(bytes(self._waiting), is_last=True)
        self._waiting.clear()

    def _put(self, chunk: bytes, *, is_last: bool) -> None:
        sealed = self._cipher.encrypt(_nonce(self._place, is_last=is_last), chunk, self._bound)
        self._file.write(len(sealed).to_bytes(_LENGTH_BYTES, "big") + sealed)
        self._place += 1


class SealedReader(RawIOBase):
    def __init__(self, file: BinaryIO, cipher: "AESGCM", bound: bytes) -> None:
        self._file = file
        self._cipher = cipher
        self._bound = bound
        self._open = memoryview(b"")
        self._place = 0
        self._coming = file.read(_LENGTH_BYTES)
        self._is_over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Raises Conflict (`backup_broken`) if a chunk is not as it was sealed, or if the last one is missing."""
        while not self._open and not self._is_over:
            self._next()
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._open))
        target[:size] = self._open[:size]
        self._open = self._open[size:]
        return size

    def _next(self) -> None:
        from cryptography.exceptions import InvalidTag

        size = int.from_bytes(self._coming, "big")
        if len(self._coming) < _LENGTH_BYTES or not _TAG_BYTES <= size <= CHUNK_BYTES + _TAG_BYTES:
            raise broken("it was changed, or is not whole")
        sealed = self._file.read(size)
        if len(sealed) < size:  # a length that was changed: what it seals may be all there
            raise broken("it was changed, or is not whole")
        self._coming = self._file.read(_LENGTH_BYTES)
        self._is_over = not self._coming
        try:
            opened = self._cipher.decrypt(_nonce(self._place, is_last=self._is_over), sealed, self._bound)
        except InvalidTag:
            raise broken("it was changed, or is not whole") from None
        self._place += 1
        self._open = memoryview(opened)


LEVEL = 3  # twice as quick as the usual 6, for a tenth more bytes
COPY_BYTES = 1024 * 1024
MANIFEST_BYTES_MAX = 256 * 1024 * 1024  # a million files of letters


def pack(
    path: Path, head: BackupHead, manifest: Manifest, root: Path, keys: Sequence[bytes], watch: BackupWatch
) -> None:
    """Write a backup of what lies below `root` to `path`, durable when this returns. Members are removed as they are packed,
    so that the disk need not hold all of it twice."""
    line = MAGIC + msgspec.json.encode(head) + b"\n"
    cipher = cipher_of(head, keys)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(line)
        if cipher is None:
            _pack_into(file, manifest, root, watch)
        else:
            sealing = SealingWriter(file, cipher, line)
            _pack_into(sealing, manifest, root, watch)
            sealing.finish()
        file.flush()
        os.fsync(file.fileno())


def _pack_into(file: "BinaryIO | io.RawIOBase", manifest: Manifest, root: Path, watch: BackupWatch) -> None:
    watch.begin("Packing", sum(member.size_bytes for member in manifest.members))
    with (
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=LEVEL, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        text = msgspec.json.encode(manifest)
        tar.addfile(_entry(MANIFEST, len(text)), io.BytesIO(text))
        for member in manifest.members:
            path = root / member.path
            with path.open("rb") as content:
                tar.addfile(_entry(member.path, member.size_bytes), _Stepping(content, watch))
            path.unlink()


def _entry(name: str, size_bytes: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size_bytes
    entry.mode = 0o600
    return entry


class _Stepping:
    def __init__(self, file: BinaryIO, watch: BackupWatch) -> None:
        self._file = file
        self._watch = watch

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._watch.step(len(data))
        return data


def survey(root: Path, watch: BackupWatch) -> tuple[BackupMember, ...]:
    """Every file below `root`, with its checksum."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    sizes = {path: path.stat().st_size for path in paths}
    watch.begin("Reading", sum(sizes.values()))
    found = []
    for path in paths:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while data := file.read(COPY_BYTES):
                digest.update(data)
                watch.step(len(data))
        name = path.relative_to(root).as_posix()
        found.append(BackupMember(path=name, size_bytes=sizes[path], sha256=digest.hexdigest()))
    return tuple(found)


# ---- reading ----


def head_of(path: Path) -> BackupHead:
    """Raises NotFound, BadInput or Conflict."""
    with _found(path) as file:
        return read_head(_head_line(file)[len(MAGIC) :])


def manifest_of(path: Path, keys: Sequence[bytes]) -> Manifest:
    """The manifest alone, without reading the rest."""
    with _found(path) as file, _members(file, keys) as (tar, _):
        return _first(tar)


def unpack(path: Path, root: Path, keys: Sequence[bytes], watch: BackupWatch) -> Manifest:
    """Everything below `root`, compared with its checksums. Raises Conflict (`backup_broken`)."""
    with _found(path) as file, _members(file, keys) as (tar, rest):
        manifest = _first(tar)
        watch.begin("Unpacking", sum(member.size_bytes for member in manifest.members))
        wanted = {member.path: member for member in manifest.members}
        while (entry := tar.next()) is not None:
            member = wanted.pop(entry.name, None)
            content = tar.extractfile(entry) if member is not None and entry.isfile() else None
            if member is None or content is None:
                raise broken("it holds something that its manifest does not name")
            _unpack_one(content, root / member.path, member, watch)
        while rest.read(COPY_BYTES):  # behind the last member stand the checksum and the seal of the whole
            pass
        if wanted:
            raise broken(f"{len(wanted)} of its files are missing")
    return manifest


def _unpack_one(content: IO[bytes], path: Path, member: BackupMember, watch: BackupWatch) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        while data := content.read(COPY_BYTES):
            digest.update(data)
            file.write(data)
            watch.step(len(data))
    if digest.hexdigest() != member.sha256:
        raise broken(f"{member.path} is not as it was")


@contextmanager
def _found(path: Path) -> Iterator[BinaryIO]:
    if not path.is_file():
        raise NotFound(code="no_backup", detail=f"There is no file {path}.")
    with path.open("rb") as file:
        yield file


def _head_line(file: BinaryIO) -> bytes:
    magic = file.read(len(MAGIC))
    if magic != MAGIC:
        raise foreign()
    line = file.readline(HEAD_BYTES_MAX)
    if not line.endswith(b"\n"):
        raise foreign()
    return magic + line


@contextmanager
def _members(file: BinaryIO, keys: Sequence[bytes]) -> Iterator[tuple[tarfile.TarFile, gzip.GzipFile]]:
    """The members, and the stream that they are read from."""
    line = _head_line(file)
    cipher = cipher_of(read_head(line[len(MAGIC) :]), keys)
    plain: BinaryIO = file
    if cipher is not None:
        plain = io.BufferedReader(SealedReader(file, cipher, line), COPY_BYTES)
    try:
        with gzip.GzipFile(fileobj=plain, mode="rb") as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as tar:
            yield tar, unpacked
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise broken(f"it cannot be read to its end ({error})") from None


def _first(tar: tarfile.TarFile) -> Manifest:
    entry = tar.next()
    content = tar.extractfile(entry) if entry is not None and entry.name == MANIFEST else None
    if content is None:
        raise broken("it has no manifest")
    text = content.read(MANIFEST_BYTES_MAX)
    return read_manifest(text)


# Plain files: where a backup is put together, the files of letters, sessions of Telethon, and keys.


_BLOB = re.compile(r"[0-9a-f]{32}")
_WORK = ".making-"
_SESSION = ".session"
SESSION_S = 10.0
_BESIDE = ("-wal", "-shm", "-journal")


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """A folder to work in, that goes when the work is done. What a process that was killed left behind goes first."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for other in folder.glob(f"{_WORK}*"):
        with contextlib.suppress(OSError):  # somebody works there, or it is gone already
            handle = locked_folder(other)
            shutil.rmtree(other, ignore_errors=True)
            os.close(handle)
    place, handle = _entered(folder)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(handle)


def _entered(folder: Path) -> tuple[Path, int]:
    """A new one, and the lock on it. Until it is locked it looks like that of a dead one, and may be removed as such."""
    while True:
        place = folder / f"{_WORK}{secrets.token_hex(6)}"
        place.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            handle = locked_folder(place)
            if place.is_dir():
                return place, handle
            os.close(handle)


def sync_file(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def put_file(origin: Path, target: Path, *, is_shared: bool = False) -> None:
    """A file that is there as a whole or not at all, durable when this returns. It is for its owner alone; one that is shared is
    for its group as well, where its folder is."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = 0o660 if is_shared and target.parent.stat().st_mode & 0o020 else 0o600
    unfinished = target.with_name(f"{target.name}.restoring")
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with origin.open("rb") as content, os.fdopen(handle, "wb") as file:
        shutil.copyfileobj(content, file)
    sync_file(unfinished)
    unfinished.replace(target)
    sync_folder(target.parent)


# ---- files of letters ----


class Letterfiles:
    """Keeps files of letters from going while they are backed up: a second name of a file outlives the first."""

    def __init__(self, folder: Path, into: Path, watch: BackupWatch) -> None:
        self._folder = folder
        self._into = into
        self._watch = watch
        self.missing: set[str] = set()  # of those asked for the last time

    def hold(self, blobs: Collection[str] | None) -> set[str]:
        """See `parts.Hold`. What was held for a moment that did not count stays, and does no harm."""
        self._into.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.missing = {blob for blob in self._named(blobs) if not self._hold_one(blob)}
        return self.missing

    def _named(self, blobs: Collection[str] | None) -> Collection[str]:
        if blobs is not None:
            return [blob for blob in blobs if _BLOB.fullmatch(blob)]
        return (
            [path.name for path in self._folder.iterdir() if _BLOB.fullmatch(path.name)]
            if self._folder.is_dir()
            else []
        )

    def _hold_one(self, blob: str) -> bool:
        held = self._into / blob
        if held.exists():
            return True
        self._watch.step(0)
        try:
            os.link(self._folder / blob, held)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                raise
            return _copied(self._folder / blob, held)
        return True


def _copied(origin: Path, target: Path) -> bool:
    """Where no second name can be had: on another disk."""
    try:
        shutil.copyfile(origin, target)
    except FileNotFoundError:
        target.unlink(missing_ok=True)
        return False
    return True


# ---- sessions and keys ----


def copy_sessions(folder: Path, into: Path, watch: BackupWatch) -> int:
    """Every file of the folder; how many. A session is copied as it is at one moment, no matter who writes to it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    paths = [path for path in paths if not path.name.endswith(_BESIDE)]
    for path in paths:
        target = into / path.relative_to(folder)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.suffix == _SESSION:
            _copy_session(path, target)
        else:
            shutil.copyfile(path, target)
        watch.step(0)
    return len(paths)


def _copy_session(path: Path, target: Path) -> None:
    """By the SQLite of Python, which Telethon uses too: another one in the same process would undo its locks, as would
    opening the file in any other way."""
    import sqlite3  # a megabyte, for the few who have sessions

    try:
        with (
            contextlib.closing(sqlite3.connect(path, timeout=SESSION_S)) as origin,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            origin.backup(copy)
    except sqlite3.Error as error:
        raise Unavailable(code="backup_failed", detail=f"{path} cannot be copied: {error}.") from error


def put_sessions(origin: Path, folder: Path, watch: BackupWatch) -> None:
    """In place of those of the same names. Others stay: they may belong to accounts that were added since."""
    for path in sorted(path for path in origin.rglob("*") if path.is_file()):
        target = folder / path.relative_to(origin)
        for suffix in _BESIDE:
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        put_file(path, target)
        watch.step(1)
