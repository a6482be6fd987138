"""`peik migrate --archive FROM TO`: everything from one archive to another."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from rich.console import RenderableType

from peik.archive.move import ArchiveMoveProgress, ArchiveMoveWatch, move
from peik.archive.store import Archive, Session, SessionFilter
from peik.archive.wiring import archive_of
from peik.cli.command import CommandContext
from peik.cli.output import table
from peik.errors import BadInput, Conflict, Unavailable
from peik.settings.config import shown_address

_PAGE = 500
_NAMED_MAX = 5  # of sessions that stand in the way

Begin = Callable[[str, int], None]
Step = Callable[[int], None]


class MovedArchive(msgspec.Struct, frozen=True, kw_only=True):
    origin: str
    target: str
    counts: dict[str, int]
    digests: dict[str, str]
    was_done: bool
    was_begun: bool
    took_s: float

    def show(self, context: CommandContext) -> None:
        document = {
            "from": self.origin,
            "to": self.target,
            "counts": self.counts,
            "digests": self.digests,
            "was_done": self.was_done,
            "was_begun": self.was_begun,
            "took_s": round(self.took_s, 3),
        }
        context.show(document, lambda: _table(self.counts, "had been moved before" if self.was_done else "moved"))
        if self.was_done:
            context.note(f"Everything was moved to {self.target} before, and is there; there is nothing left to do.")
        else:
            context.note(
                f"Moved and compared in {self.took_s:.1f} s. Set PEIK_ARCHIVE to {self.target}, keep the same "
                f"PEIK_SECRET_KEY (or its file), and start Peik. {self.origin} is as it was: do not use it again."
            )


def count_archive(context: CommandContext, origin: str, target: str) -> None:
    """What would be moved."""

    async def count() -> dict[str, int]:
        async with _opened(origin) as archive:
            tallied: dict[str, int] = msgspec.to_builtins(await archive.tally())
            return tallied

    _check(origin, target)
    with context.waiting("Counting"):
        counts = asyncio.run(count())
    document = {"from": shown_of(origin), "to": shown_of(target), "dry_run": True, "counts": counts}
    context.show(document, lambda: _table(counts, "would be moved"))


def move_archive(
    origin: str, target: str, *, while_in_use: bool, begin: Begin, step: Step, warn: Callable[[str], None]
) -> MovedArchive:
    """Raises Conflict while sessions of either run, unless `while_in_use`."""
    _check(origin, target)
    began = time.monotonic()

    async def work() -> MovedArchive:
        async with _opened(origin) as old, _opened(target) as new:
            await _check_whole(old, shown_of(origin))
            await _check_idle(old, shown_of(origin), while_in_use=while_in_use, warn=warn)
            kept = await new.progress()
            before = None if kept is None else msgspec.json.decode(kept, type=ArchiveMoveProgress)
            sums = await move(old, new, name=shown_of(origin), watch=ArchiveMoveWatch(begin=begin, step=step))
            return MovedArchive(
                origin=shown_of(origin),
                target=shown_of(target),
                counts={kind: one.count for kind, one in sums.items()},
                digests={kind: one.digest for kind, one in sums.items()},
                was_done=before is not None and before.is_over,
                was_begun=before is not None and not before.is_over,
                took_s=time.monotonic() - began,
            )

    return asyncio.run(work())


def shown_of(url: str) -> str:
    """Which archive it is, without what may be secret."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        return f"sqlite:///{Path(rest[1:]).resolve()}"
    if scheme in ("postgresql", "postgres"):
        from peik.archive.postgres.connection import read_address

        return read_address(url).shown
    return shown_address(url)


def _check(origin: str, target: str) -> None:
    if not all("://" in url for url in (origin, target)):
        raise BadInput(
            code="bad_archive",
            detail="An archive is sqlite:///file, postgresql://user:password@host/database or mongodb://host/database.",
        )
    if shown_of(origin) == shown_of(target):
        raise Conflict(code="same_archive", detail="FROM and TO are the same archive.")
    scheme, _, rest = origin.partition("://")
    path = Path(rest[1:]).absolute()
    if scheme == "sqlite" and not path.is_file():
        raise Unavailable(code="no_store", detail=f"There is no archive {path}.")


@contextlib.asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Archive]:
    archive = archive_of(url, store=url)
    await archive.open()
    try:
        yield archive
    finally:
        await archive.close()


async def _check_whole(origin: Archive, shown: str) -> None:
    kept = await origin.progress()
    own = None if kept is None else msgspec.json.decode(kept, type=ArchiveMoveProgress)
    if own is not None and not own.is_over:
        raise Conflict(
            code="origin_half_moved",
            detail=f"{shown} itself holds only a part of what is being moved to it from {own.origin}. "
            "Let that move go on to its end first.",
        )


async def _check_idle(origin: Archive, shown: str, *, while_in_use: bool, warn: Callable[[str], None]) -> None:
    """A session that says it is connected may be one whose Peik died: only its owner knows."""
    running = [one.session_id for one in await _sessions(origin) if one.is_connected]
    if not running:
        return
    named = ", ".join(running[:_NAMED_MAX]) + ("…" if len(running) > _NAMED_MAX else "")
    words = f"{len(running)} session(s) of {shown} are connected ({named})."
    if not while_in_use:
        raise Conflict(
            code="origin_in_use",
            detail=f"{words} Stop Peik first: what they see from now on would not be moved, and an account that runs from two "
            "archives is signed out by Telegram. If that Peik is dead, or to try out how long it takes: --while-in-use.",
        )
    warn(f"{words} If a Peik really runs them, do not start another one on the target.")


async def _sessions(archive: Archive) -> list[Session]:
    found: list[Session] = []
    while True:
        page = await archive.sessions(SessionFilter(), after=found[-1].session_id if found else None, limit=_PAGE)
        found.extend(page)
        if len(page) < _PAGE:
            return found


def _table(counts: dict[str, int], how: str) -> RenderableType:
    return table(
        ("what", how), [(kind.replace("_", " "), count) for kind, count in counts.items()], counts=(how,), empty=""
    )
