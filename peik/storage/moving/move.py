"""The move itself: look at both ends, go on where it stopped, move kind by kind, then read everything back and compare."""

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from peik.clock import Clock
from peik.core.nodes import FileStore
from peik.errors import BadInput, Conflict, Problem, StartError, to_install
from peik.secrets.seals import PLAIN, Seals
from peik.storage.moving import ends as files
from peik.storage.moving.ends import KindProgress, MoveEnd, MoveProgress, RecordPage, RecordSum
from peik.storage.moving.records import FILES, KINDS, File, Record, Secret
from peik.storage.spool import sync_folder

PAGE = 2000  # records that are in memory at once, and in one commit
_DOCUMENTS_AT_ONCE = 500  # the same; each may be a quarter of a megabyte
_FILES_AT_ONCE = 50  # of a commit that says that they are there


class MoveWatch(msgspec.Struct, frozen=True):
    """Someone who looks on while it takes its time."""

    warn: Callable[[str], None] = lambda words: None
    begin: Callable[[str, int], None] = lambda words, total: None  # a stage, and how many records it is about
    step: Callable[[int], None] = lambda records: None


class MovedStore(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say in the end."""

    origin: str
    target: str
    counts: dict[str, int]
    digests: dict[str, str] = {}
    was_done: bool = False  # before this run
    was_begun: bool = False
    missing_files: int = 0


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    origin: MoveEnd
    target: MoveEnd
    origin_files: FileStore | None = None  # None: the store's own
    target_files: FileStore | None = None


async def count(origin: MoveEnd) -> dict[str, int]:
    """How many records of each kind would be moved. Nothing is written."""
    async with _opened(origin, is_target=False):
        return {**await origin.counts(), FILES: len(await origin.blobs())}


async def take_back(origin: MoveEnd) -> str | None:
    """Let a store be served again that was moved away. Where to that was; None: it was not."""
    async with _opened(origin, is_target=False):
        target = await origin.moved_to()
        await origin.note_moved(None)
        return target


async def move(ends: Ends, *, clock: Clock, while_in_use: bool = False, watch: MoveWatch) -> MovedStore:
    """Move everything, or go on where a move of the same two ends stopped. Raises Problem and StartError."""
    origin, target = ends.origin, ends.target
    if origin.shown == target.shown:
        raise Conflict(code="same_store", detail="--from and --to name the same store.")
    async with _opened(origin, is_target=False), _opened(target, is_target=True):
        before = await target.progress()
        counts = {**await origin.counts(), FILES: len(await origin.blobs())}
        fingerprint = await _fingerprint(origin, counts)
        if before is not None:
            _check_same(ends, before, fingerprint)
            if before.ended_at_ms is not None:
                await origin.note_moved(target.shown)
                return _told(ends, before, was_done=True)
        await _check_target(target, is_begun=before is not None)
        is_in_use = await _check_origin(ends, while_in_use=while_in_use, watch=watch)
        run = secrets.token_hex(8)
        if before is None:
            now = clock.wall_ms()
            progress = MoveProgress(
                origin=origin.shown, fingerprint=fingerprint, run=run, began_at_ms=now, was_in_use=is_in_use
            )
        else:
            progress = msgspec.structs.replace(before, run=run)
        await target.note_moved(None)  # it was emptied since
        await target.begin(progress)
        watch.begin("Moving", sum(counts.values()))
        watch.step(sum(one.moved.count for one in progress.kinds.values()))
        for kind in KINDS:
            progress = await _move_kind(ends, kind, progress, watch)
        progress = await _move_files(ends, progress, watch)
        await origin.look_again()
        if not is_in_use and await _fingerprint(origin, await origin.counts()) != progress.fingerprint:
            raise Conflict(
                code="origin_changed",
                detail=f"Somebody wrote to {origin.shown} while it was moved. Stop everything that uses it, empty the target "
                "and move again.",
            )
        watch.begin("Comparing", sum(counts.values()))
        await _compare(ends, progress, watch)
        if not is_in_use:
            # Before the target may be served: at no moment may both be.
            await origin.note_moved(target.shown)
        ended = msgspec.structs.replace(progress, ended_at_ms=clock.wall_ms())
        await target.write(next(iter(KINDS)), [], ended)
        return _told(ends, ended, was_begun=before is not None)


def _told(ends: Ends, progress: MoveProgress, *, was_done: bool = False, was_begun: bool = False) -> MovedStore:
    return MovedStore(
        origin=ends.origin.shown,
        target=ends.target.shown,
        counts={kind: one.moved.count for kind, one in progress.kinds.items()},
        digests={kind: one.moved.digest for kind, one in progress.kinds.items()},
        was_done=was_done,
        was_begun=was_begun,
        missing_files=progress.missing_files,
    )


@asynccontextmanager
async def _opened(end: MoveEnd, *, is_target: bool) -> AsyncIterator[None]:
    try:
        await end.open(is_target=is_target)
        yield
    except (Problem, StartError):
        raise
    except Exception as error:
        first = _first(error)
        if isinstance(first, PermissionError | FileNotFoundError | FileExistsError):  # of a file; the sentence names it
            raise StartError(f"Cannot move: {first}.") from error
        raise end.explain(first) from error
    finally:
        await end.close()


def _first(error: BaseException) -> BaseException:
    """What a group of tasks met first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


# ---- before ----


def _check_same(ends: Ends, before: MoveProgress, fingerprint: str) -> None:
    """A target that was filled before goes with this origin as it stands, or not at all."""
    target = ends.target.shown
    if before.origin != ends.origin.shown:
        raise Conflict(
            code="target_not_empty",
            detail=f"{target} was filled from {before.origin}. Name that one in --from, or another target.",
        )
    if before.was_in_use:
        raise Conflict(
            code="target_not_empty",
            detail=f"{target} was filled while {before.origin} was in use, to try it out. Empty it, or name another target.",
        )
    if before.fingerprint != fingerprint:
        raise Conflict(
            code="origin_changed",
            detail=f"{before.origin} is not as it was when it was moved to {target}: it was used since. Empty the target, "
            "and move again.",
        )


async def _check_target(target: MoveEnd, *, is_begun: bool) -> None:
    user = await target.used_by()
    if user is not None:
        raise Conflict(
            code="target_in_use", detail=f"{user}. Stop it first: nothing is moved to a store that is served."
        )
    if is_begun:
        return
    kept = [f"{count} {kind}" for kind, count in (await target.counts()).items() if count]
    if kept:
        raise Conflict(
            code="target_not_empty",
            detail=f"{target.shown} is not empty ({', '.join(kept)}). Name an empty one: two stores cannot be made one.",
        )


async def _check_origin(ends: Ends, *, while_in_use: bool, watch: MoveWatch) -> bool:
    """Whether it is served now."""
    origin, elsewhere = ends.origin, await ends.origin.moved_to()
    if elsewhere not in (None, ends.target.shown):
        raise Conflict(
            code="origin_moved",
            detail=f"Everything in {origin.shown} was moved to {elsewhere}. Move it from there; or, if this store is to be "
            "served all the same, take that back first: peik migrate --from (this store) --take-back.",
        )
    own = await origin.progress()
    if own is not None and own.ended_at_ms is None:
        raise Conflict(
            code="origin_half_moved",
            detail=f"{origin.shown} itself holds only a part of what is being moved to it from {own.origin}. "
            "Let that move go on to its end first.",
        )
    user = await origin.used_by()
    if user is None:
        return False
    if not while_in_use:
        raise Conflict(
            code="origin_in_use",
            detail=f"{user}. Stop it first: what it accepts and sends from now on would not be moved. "
            "--while-in-use moves what is there now, to try out how long it takes.",
        )
    watch.warn(
        f"{user}. What it accepts from now on is not moved, and what it sends from now on would be sent once more by "
        "whoever serves the target. Do not serve the target."
    )
    return True


async def _fingerprint(origin: MoveEnd, counts: dict[str, int]) -> str:
    """How the origin stands: the same as long as nobody serves it and nobody accepts anything."""
    states = sorted((await origin.job_states()).items())
    seen: list[object] = [await origin.lives(), {kind: counts[kind] for kind in KINDS}, states]
    seen += [(await origin.page(kind, None, 10**6)).records for kind in ("tallies", "sequences")]
    return hashlib.blake2b(msgspec.json.encode(seen), digest_size=16).hexdigest()


# ---- on the way ----


async def _move_kind(ends: Ends, kind: str, progress: MoveProgress, watch: MoveWatch) -> MoveProgress:
    """The next page is read while this one is written."""
    done = progress.of(kind)
    if done.is_done:
        return progress
    limit = _DOCUMENTS_AT_ONCE if kind == "papers" else PAGE
    page = await ends.origin.page(kind, done.cursor, limit)
    while True:
        done = KindProgress(moved=done.moved, cursor=page.cursor, is_done=page.cursor is None)
        fitted: list[Record] = [ends.target.fit(record) for record in page.records]
        done = msgspec.structs.replace(done, moved=done.moved.plus(kind, fitted))
        progress = progress.with_kind(kind, done)
        following: asyncio.Task[RecordPage] | None = None
        async with asyncio.TaskGroup() as group:
            if page.cursor is not None:
                following = group.create_task(ends.origin.page(kind, page.cursor, limit))
            group.create_task(ends.target.write(kind, fitted, progress))
        watch.step(len(fitted))
        if following is None:
            return progress
        page = following.result()


async def _move_files(ends: Ends, progress: MoveProgress, watch: MoveWatch) -> MoveProgress:
    done = progress.of(FILES)
    if done.is_done:
        return progress
    origin, target = _files_of(ends)
    blobs = [blob for blob in await ends.origin.blobs() if done.cursor is None or blob > done.cursor]
    for start in range(0, len(blobs), _FILES_AT_ONCE):
        some = blobs[start : start + _FILES_AT_ONCE]
        copied = [await files.copy(blob, origin, target) for blob in some]
        moved: list[Record] = [one for one in copied if one is not None]
        done = KindProgress(moved=done.moved.plus(FILES, moved), cursor=some[-1])
        missing = progress.missing_files + len(some) - len(moved)
        progress = msgspec.structs.replace(progress.with_kind(FILES, done), missing_files=missing)
        await ends.target.write(next(iter(KINDS)), [], progress)
        watch.step(len(some))
    if progress.missing_files:
        watch.warn(
            f"{progress.missing_files} files of letters are not in {ends.origin.shown}: these letters cannot be sent."
        )
    progress = progress.with_kind(FILES, msgspec.structs.replace(done, is_done=True))
    await ends.target.write(next(iter(KINDS)), [], progress)
    return progress


def _files_of(ends: Ends) -> tuple[FileStore, FileStore]:
    return ends.origin_files or ends.origin.files, ends.target_files or ends.target.files


# ---- after ----


async def _compare(ends: Ends, progress: MoveProgress, watch: MoveWatch) -> None:
    """Read the target from its beginning to its end, and see that every record that was read before is there."""
    await ends.target.look_again()
    for kind in KINDS:
        if kind == "job_lines" and progress.was_in_use:
            continue  # a line may have been read without those who came to stand in it since
        found, cursor, is_first = RecordSum(), None, True
        while is_first or cursor is not None:
            page = await ends.target.page(kind, cursor, _DOCUMENTS_AT_ONCE if kind == "papers" else PAGE)
            found = found.plus(kind, page.records)
            watch.step(len(page.records))
            cursor, is_first = page.cursor, False
        _check_sum(ends, kind, progress.of(kind).moved, found)
    _, target = _files_of(ends)
    found = RecordSum()
    for blob in await ends.target.blobs():
        one: File | None = await files.look(blob, target)
        found = found.plus(FILES, [] if one is None else [one])
        watch.step(1)
    _check_sum(ends, FILES, progress.of(FILES).moved, found)


def _check_sum(ends: Ends, kind: str, moved: RecordSum, found: RecordSum) -> None:
    if moved != found:
        raise Conflict(
            code="not_the_same",
            detail=f"What was read as {kind} from {ends.origin.shown} ({moved.count}) is not what stands in "
            f"{ends.target.shown} ({found.count}). If nobody wrote to either of them, this is a fault of Peik's: please "
            "report it. The target cannot be served as it is.",
        )


# Which store an address names, as an end of a move. What a server's store needs is imported only if it is named.


def end_of(url: str, seals: Seals = PLAIN) -> MoveEnd:
    """Not open yet. What is sealed is moved as it is; only the admin key may have to be opened.

    Raises BadInput or StartError if no store can be meant."""
    scheme, _, rest = url.partition("://")
    match scheme:
        case "sqlite" if rest.startswith("/") and len(rest) > 1:
            from peik.storage.moving.sqlite_end import SqliteEnd

            return SqliteEnd(Path(rest[1:]), seals)
        case "postgresql" | "postgres":
            try:
                from peik.storage.moving.postgres_end import PostgresEnd
            except ImportError as error:
                raise _missing("postgres", error) from None
            return PostgresEnd(url)
        case "redis" | "rediss" | "unix" | "redis+sentinel":
            try:
                from peik.storage.moving.redis_end import RedisEnd
            except ImportError as error:
                raise _missing("redis", error) from None
            return RedisEnd(url)
    # What was written may hold a password, so that it is not quoted.
    raise BadInput(
        code="bad_store",
        detail="A store is sqlite:///peik.db (a file here), sqlite:////var/lib/peik/peik.db (a file anywhere), "
        "postgresql://user:password@host/database or redis://:password@host:port.",
    )


def _missing(extra: str, error: ImportError) -> StartError:
    return StartError(f"This store needs a package that is not installed ({error.name}): {to_install(extra)}.")


# The admin key, which lies in a file beside a SQLite database and among the secrets of a server's store.


NAME = "admin_key"  # as `peik.app.lifetime.admin_key` names it in a store


def read(database: Path) -> Secret | None:
    """None: there is no file, as PEIK_ADMIN_KEY was set, or nobody has served this database yet."""
    with contextlib.suppress(FileNotFoundError):
        text = _file(database).read_text(encoding="utf-8").strip()
        return Secret(NAME, text) if text else None
    return None


def write(database: Path, secret: Secret) -> None:
    """For the eyes of its owner only, and there at once as a whole."""
    path = _file(database)
    unfinished = path.with_name(path.name + ".moving")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(secret.value + "\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    sync_folder(path.parent)


def _file(database: Path) -> Path:
    return database.with_name(database.name + ".key")
