"""Seals secrets before they are stored: AES-256-GCM, each bound to what it belongs to.

The key never lies in the store. It is PEIK_SECRET_KEY; for accounts alone one is made at the first start if it is not set,
and kept in a file of its own.
"""

import base64
import binascii
import hashlib
import os
import secrets
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from peik.errors import StartError, Unavailable

_VERSION = b"\x01"
_ID_BYTES = 4
_NONCE_BYTES = 12
_HEAD_BYTES = 1 + _ID_BYTES + _NONCE_BYTES
_PLAIN = b"plain:"

PHRASE_MIN = 12
KEY_CHARS = (43, 44)  # of 32 bytes in base64; anything else is a passphrase
# A passphrase must open the same seals on every node, with nothing else to go by: hence a salt that is the same everywhere.
# What makes guessing dear is scrypt: about 0.1 s and 32 MB for each guess.
_SALT = b"peik session vault 1"
_SCRYPT_N = 2**15


class Vault:
    """Seals with its first key and opens with any. So keys are rotated by putting a new one in front, and `renewed`."""

    def __init__(self, keys: Sequence[bytes], *, allows_plain: bool = False) -> None:
        """Without a key it only works if plain text is allowed."""
        assert all(len(key) == 32 for key in keys), "keys of AES-256"
        self._ciphers = {_id_of(key): AESGCM(key) for key in keys}
        self._first = _id_of(keys[0]) if keys else None
        self._allows_plain = allows_plain

    def __repr__(self) -> str:
        return f"Vault({len(self._ciphers)} keys)"

    @property
    def key_ids(self) -> list[str]:
        """Of all keys, the first one first. They tell nothing of the keys."""
        return [one.hex() for one in self._ciphers]

    def seal(self, text: str, *, context: str, key_id: str | None = None) -> bytes:
        """`context` names what it belongs to: only there can it be opened. `key_id`: with another key than the first. Raises
        Unavailable without a key."""
        if self._first is None:
            if not self._allows_plain:
                raise Unavailable(
                    code="no_secret_key",
                    detail="Without PEIK_SECRET_KEY no session can be kept: its key would lie open.",
                )
            return _PLAIN + text.encode()
        nonce = os.urandom(_NONCE_BYTES)
        by = self._first if key_id is None else bytes.fromhex(key_id)
        head = _VERSION + by + nonce
        return head + self._ciphers[by].encrypt(nonce, text.encode(), _bound(head, context))

    def open(self, sealed: bytes, *, context: str) -> str:
        """Raises Unavailable if no key of ours opens it."""
        if sealed.startswith(_PLAIN):
            return sealed.removeprefix(_PLAIN).decode()
        head = sealed[:_HEAD_BYTES]
        cipher = self._ciphers.get(head[1 : 1 + _ID_BYTES])
        if len(head) < _HEAD_BYTES or head[:1] != _VERSION or cipher is None:
            raise Unavailable(
                code="wrong_secret_key",
                detail="This was sealed with another key. Set PEIK_SECRET_KEY_OLD to that one.",
            )
        try:
            return cipher.decrypt(head[1 + _ID_BYTES :], sealed[_HEAD_BYTES:], _bound(head, context)).decode()
        except InvalidTag:
            raise Unavailable(
                code="broken_seal", detail="What is stored here was changed, or belongs to another place."
            ) from None

    def renewed(self, sealed: bytes, *, context: str) -> bytes | None:
        """The same under the first key; None if it is so already."""
        is_current = self._first is not None and sealed[: 1 + _ID_BYTES] == _VERSION + self._first
        if is_current or (self._first is None and sealed.startswith(_PLAIN)):
            return None
        return self.seal(self.open(sealed, context=context), context=context)


def _id_of(key: bytes) -> bytes:
    """Which key it was, without telling anything of it."""
    return hashlib.sha256(b"peik vault key id" + key).digest()[:_ID_BYTES]


def _bound(head: bytes, context: str) -> bytes:
    return head + context.encode()


def vault_of(setting: str | None, path: Path, *, allows_plain: bool = False) -> tuple[Vault, str | None]:
    """The vault of this installation, and what its owner has to be told, if anything. Raises StartError.

    `setting` is PEIK_SECRET_KEY. Without it a key is made once and kept at `path`; unless plain text is allowed, which is for
    those who encrypt the disk or the database themselves. Blocks for a moment; where it `takes_long`, call it off the event
    loop."""
    if setting is not None:
        # Who sets a key after accounts were sealed with the one that was made for him: that one goes on to open them.
        kept = [kept_key(path)[0]] if path.exists() else []
        return Vault([*keys_of(setting), *kept], allows_plain=allows_plain), None
    if allows_plain:
        return Vault([], allows_plain=True), "Keys of sessions are stored as plain text, since the settings allow it."
    key, is_new = kept_key(path)
    if not is_new:
        return Vault([key]), None
    return Vault([key]), (
        f"A key for sessions was made and kept in {path}. Back it up: without it every account has to sign in again. "
        "Several nodes need the same one, as PEIK_SECRET_KEY."
    )


def takes_long(setting: str | None) -> bool:
    """Whether `vault_of` has to stretch a passphrase."""
    return setting is not None and any(_plain_key(part.strip()) is None for part in setting.split(","))


def keys_of(setting: str) -> list[bytes]:
    """The keys in PEIK_SECRET_KEY, separated by commas: each 32 bytes in base64, or a passphrase. Raises StartError.

    Takes a tenth of a second for each passphrase: call it off the event loop."""
    keys = [_key_of(part.strip()) for part in setting.split(",") if part.strip()]
    if not keys:
        raise StartError("PEIK_SECRET_KEY is empty. It should be 32 bytes in base64, or a long passphrase.")
    return keys


def _plain_key(part: str) -> bytes | None:
    """32 bytes in base64, if that is what it is."""
    if len(part) not in KEY_CHARS:
        return None
    try:
        key = base64.b64decode(part.replace("-", "+").replace("_", "/").ljust(44, "="), validate=True)
    except binascii.Error:
        return None
    return key if len(key) == 32 else None


@lru_cache(maxsize=16)  # tokens, accounts and backups ask for the same ones, and each passphrase is dear
def _key_of(part: str) -> bytes:
    key = _plain_key(part)
    if key is not None:
        return key
    if len(part) < PHRASE_MIN:
        raise StartError(
            f"A passphrase in PEIK_SECRET_KEY is too short: at least {PHRASE_MIN} characters, better a sentence."
        )
    return Scrypt(salt=_SALT, length=32, n=_SCRYPT_N, r=8, p=1).derive(part.encode())


def kept_key(path: Path) -> tuple[bytes, bool]:
    """The key in this file, which only its owner can read; and whether it was made just now. Raises StartError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_key(path), False
    except OSError as error:
        raise StartError(
            f"The key of sessions cannot be kept in {path}: {error.strerror}. Set PEIK_SECRET_KEY."
        ) from None
    key = secrets.token_bytes(32)
    with os.fdopen(handle, "wb") as file:
        file.write(base64.urlsafe_b64encode(key) + b"\n")
        file.flush()
        os.fsync(file.fileno())  # what is sealed with it must not outlive it
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return key, True


def _read_key(path: Path) -> bytes:
    try:
        if path.stat().st_mode & 0o077:
            raise StartError(f"Others can read {path}, which holds the key of sessions: chmod 600 {path}")
        return keys_of(path.read_text(encoding="ascii"))[0]
    except (OSError, UnicodeError):
        raise StartError(f"The key of sessions in {path} cannot be read. Restore it, or set PEIK_SECRET_KEY.") from None
