"""What a backup says of itself: a head that anybody can read, and a manifest that is sealed with the rest."""

import hashlib
from pathlib import PurePosixPath

import msgspec

from peik.errors import BadInput, Conflict

MAGIC = b"PEIKBACKUP\n"
FORMAT = 1
HEAD_BYTES_MAX = 4096
MANIFEST = "manifest.json"


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """One line of JSON behind the magic. Nothing secret is in it."""

    format: int
    peik: str  # the version that made it
    made_at_ms: int
    origin: str  # which store it is of, without telling where that is
    salt: str | None = None  # in hexadecimal; None: it is not sealed
    key_id: str | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True):
    path: str  # within the backup: store/…, archive/…, files/…, sessions/…, keys/…
    size_bytes: int
    sha256: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # store, archive, files, sessions or keys
    kind: str  # sqlite, postgresql, redis, mongodb or folder
    shown: str  # where it was, without a password
    counts: dict[str, int]  # rows per table, or what comes nearest to it
    version: int = 0  # of its schema; 0: it has none
    label: str = ""  # the schema of PostgreSQL, the prefix of Redis, the database of MongoDB


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    peik: str
    made_at_ms: int
    parts: tuple[Part, ...]
    members: tuple[Member, ...]
    missing_files: tuple[str, ...] = ()  # of letters; they were gone before

    def part(self, name: str) -> Part | None:
        return next((one for one in self.parts if one.name == name), None)


def origin_of(shown: str) -> str:
    return hashlib.sha256(f"peik backup of {shown}".encode()).hexdigest()[:16]


def read_head(line: bytes) -> Head:
    """Raises BadInput if it is none of ours, Conflict if this Peik is too old for it."""
    try:
        head = msgspec.json.decode(line, type=_AnyHead)
    except msgspec.DecodeError:
        raise foreign() from None
    if head.format > FORMAT:
        raise Conflict(
            code="newer_backup",
            detail=f"This backup was made by a newer Peik ({head.peik}). Upgrade this one, and try again.",
        )
    try:
        return msgspec.json.decode(line, type=Head)
    except msgspec.DecodeError:
        raise broken("its beginning was changed") from None


class _AnyHead(msgspec.Struct):
    format: int
    peik: str


def foreign() -> BadInput:
    return BadInput(code="not_a_backup", detail="This file is not a backup that Peik made.")


def read_manifest(text: bytes) -> Manifest:
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError as error:
        raise broken(f"its manifest cannot be read: {error}") from None
    for member in manifest.members:
        path = PurePosixPath(member.path)
        if path.is_absolute() or ".." in path.parts or path.parts[:1] in ((), (MANIFEST,)):
            raise broken("a name in it leads out of the backup")
    return manifest


def broken(why: str) -> Conflict:
    return Conflict(code="backup_broken", detail=f"This backup is damaged: {why}. Take another one.")
