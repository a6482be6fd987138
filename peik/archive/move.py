"""Copies everything from one archive to another, in pages, and proves in the end that both hold the same.

How far a copy is stands in the target, written after the records that it speaks of: one that was interrupted goes on there, and
what was copied twice is there once. What both hold is compared by counts and by sums of hashes, which do not depend on an order.
"""

import hashlib
from collections.abc import Callable

import msgspec

from peik.archive.store import Archive, Record, RecordKind
from peik.errors import Conflict

PAGE = 1000
_HASH_BYTES = 16


class ArchiveSum(msgspec.Struct, frozen=True, kw_only=True):
    """How many records, and the sum of their hashes: the same for the same records in any order."""

    count: int = 0
    digest: str = "0" * 2 * _HASH_BYTES

    def plus(self, kind: RecordKind, records: list[Record]) -> "ArchiveSum":
        total = int(self.digest, 16)
        for record in records:
            hashed = hashlib.blake2b(kind.encode() + msgspec.json.encode(record), digest_size=_HASH_BYTES).digest()
            total += int.from_bytes(hashed)
        bound: int = 1 << 8 * _HASH_BYTES
        return ArchiveSum(count=self.count + len(records), digest=f"{total % bound:0{2 * _HASH_BYTES}x}")


class ArchiveMoveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the target: from where it is filled, which kinds are done, and where in the next one it is."""

    origin: str
    done: tuple[RecordKind, ...] = ()
    after: str | None = None
    is_over: bool = False


class ArchiveMoveWatch(msgspec.Struct, frozen=True):
    """Someone who looks on while it takes its time."""

    begin: Callable[[str, int], None] = lambda stage, total: None  # a stage, and how many records it is about
    step: Callable[[int], None] = lambda records: None


async def move(
    origin: Archive, target: Archive, *, name: str, watch: ArchiveMoveWatch | None = None, page: int = PAGE
) -> dict[RecordKind, ArchiveSum]:
    """Copy all, or go on where a copy stopped. `name` says which origin it is, without secrets: a target that is being filled
    from one cannot be filled from another. Both are open; nobody should write to the origin. Raises Conflict."""
    watch = watch or ArchiveMoveWatch()
    progress = await _begun(target, name)
    if not progress.is_over:
        watch.begin("Copying", await _total(origin))
        for kind in RecordKind:
            if kind not in progress.done:
                progress = await _copy(origin, target, kind, progress, watch, page)
    watch.begin("Comparing", 2 * await _total(origin))
    sums = await summed(origin, watch=watch, page=page)
    found = await summed(target, watch=watch, page=page)
    for kind in RecordKind:
        if sums[kind] != found[kind]:
            raise Conflict(
                code="copies_differ",
                detail=f"The two archives do not hold the same {kind.replace('_', ' ')}: {sums[kind].count} here, "
                f"{found[kind].count} there. If somebody wrote to one of them meanwhile, stop that, empty the target and "
                "copy again.",
            )
    if not progress.is_over:
        await _note(target, msgspec.structs.replace(progress, is_over=True))
    return sums


async def summed(
    archive: Archive, *, watch: ArchiveMoveWatch | None = None, page: int = PAGE
) -> dict[RecordKind, ArchiveSum]:
    """What an archive holds, by kind."""
    sums = dict.fromkeys(RecordKind, ArchiveSum())
    for kind in RecordKind:
        after = None
        while True:
            records, after = await archive.page(kind, after=after, limit=page)
            sums[kind] = sums[kind].plus(kind, records)
            if watch is not None:
                watch.step(len(records))
            if after is None:
                break
    return sums


async def _begun(target: Archive, name: str) -> ArchiveMoveProgress:
    kept = await target.progress()
    if kept is not None:
        progress = msgspec.json.decode(kept, type=ArchiveMoveProgress)
        if progress.origin != name:
            raise Conflict(
                code="target_not_empty",
                detail=f"The target was filled from {progress.origin}. Name that one, or another target.",
            )
        return progress
    for kind in RecordKind:
        records, _ = await target.page(kind, after=None, limit=1)
        if records:
            raise Conflict(code="target_not_empty", detail="The target is not empty. Two archives cannot be made one.")
    progress = ArchiveMoveProgress(origin=name)
    await _note(target, progress)
    return progress


async def _copy(
    origin: Archive,
    target: Archive,
    kind: RecordKind,
    progress: ArchiveMoveProgress,
    watch: ArchiveMoveWatch,
    page: int,
) -> ArchiveMoveProgress:
    after = progress.after
    while True:
        records, after = await origin.page(kind, after=after, limit=page)
        done = progress.done if after is not None else (*progress.done, kind)
        progress = msgspec.structs.replace(progress, done=done, after=after)
        await target.put(kind, records, msgspec.json.encode(progress).decode())
        watch.step(len(records))
        if after is None:
            return progress


async def _note(target: Archive, progress: ArchiveMoveProgress) -> None:
    await target.put(RecordKind.SESSIONS, [], msgspec.json.encode(progress).decode())


async def _total(archive: Archive) -> int:
    """About: the few states and places are not counted, nor is the log."""
    tallied = await archive.tally()
    fed = sum(one.last - one.first + 1 for one in (await archive.fed_to()).values())
    return tallied.sessions + tallied.messages + tallied.versions + tallied.events + fed
