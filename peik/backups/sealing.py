"""The sealed stream of a backup: AES-256-GCM in chunks, each bound to its place, so that none can be changed or cut off."""

import hashlib
import os
from collections.abc import Sequence
from io import RawIOBase
from typing import TYPE_CHECKING, BinaryIO

from peik.backups.manifest import Head, broken
from peik.errors import Conflict, StartError

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


def cipher_of(head: Head, keys: Sequence[bytes]) -> "AESGCM | None":
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
            f"A sealed backup needs a package that is not installed ({error.name}): pip install 'peik[sessions]'."
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
