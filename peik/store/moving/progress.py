"""How far a move is. It is kept in the target, in the same commit as what it speaks of, so that a killed move goes on."""

import hashlib

import msgspec

from peik.store.moving.records import Record

_MODULUS = 2**128


class Sum(msgspec.Struct, frozen=True):
    """How many records there are, and a sum over all of them that does not depend on their order."""

    count: int = 0
    digest: str = "0" * 32

    def plus(self, kind: str, records: "list[Record]") -> "Sum":
        """Digests are added, not mixed by XOR: a record that stands there twice must not undo itself."""
        total = int(self.digest, 16)
        salt = kind.encode()[:16]
        for record in records:
            made = hashlib.blake2b(_encode(record), digest_size=16, person=salt).digest()
            total += int.from_bytes(made, "big")
        return Sum(count=self.count + len(records), digest=f"{total % _MODULUS:032x}")


class KindProgress(msgspec.Struct, frozen=True):
    moved: Sum = Sum()
    cursor: str | None = None
    is_done: bool = False


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    origin: str  # where it comes from, without a password
    fingerprint: str  # how the origin stood when the move began
    run: str  # the process that moves; one that finds another here has been replaced, and stops
    began_at_ms: int
    kinds: dict[str, KindProgress] = {}
    missing_files: int = 0
    was_in_use: bool = False  # the origin was served meanwhile: this is a rehearsal, and no move
    ended_at_ms: int | None = None  # None: half-moved

    def of(self, kind: str) -> KindProgress:
        return self.kinds.get(kind, KindProgress())

    def with_kind(self, kind: str, progress: KindProgress) -> "Progress":
        return msgspec.structs.replace(self, kinds={**self.kinds, kind: progress})


_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Progress).decode


def encode(progress: Progress) -> str:
    return _encode(progress).decode()
