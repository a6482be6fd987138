"""`peik migrate`: everything from one store to another."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from peik.cli.command import CommandContext, Exit, tell
from peik.clock import SystemClock
from peik.errors import BadInput, Problem, StartError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.storage.moving.move import Ends, MovedStore, MoveWatch

_SHOWN = {  # what people call it; the rest goes without saying
    "bots": "bots",
    "letters": "letters",
    "jobs": "jobs",
    "message_log": "lines of the message log",
    "arrivals": "arrivals",
    "consumers": "consumers",
    "keys": "API keys",
    "hooks": "webhooks that wait",
    "files": "files",
}


def migrate(
    origin: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="The store to move from, or @FILE with its URL.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="The empty store to move to, or @FILE.")
    ] = None,
    archive: Annotated[
        tuple[str, str] | None,
        typer.Option("--archive", metavar="FROM TO", help="Move an archive instead: two URLs, or @FILE with each."),
    ] = None,
    from_files: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where files of letters are, if PEIK_FILES says so.")
    ] = None,
    to_files: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where files of letters go, if PEIK_FILES will name it.")
    ] = None,
    while_in_use: Annotated[
        bool, typer.Option("--while-in-use", help="Read a store that is served, to try out how long it takes.")
    ] = False,
    take_back: Annotated[
        bool, typer.Option("--take-back", help="Let the store in --from be served again that was moved away.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be moved, and move nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Move everything from one store to another: SQLite, PostgreSQL, Redis; or from one archive to another: SQLite, PostgreSQL,
    MongoDB. docs/migrate.md says how to plan it."""
    context = CommandContext({}, is_json=as_json, may_create=False)
    try:
        if archive is not None:
            _refuse_both(origin, target, from_files, to_files)
            _move_archive(context, archive, while_in_use=while_in_use, dry_run=dry_run)
            return
        if take_back:
            if origin is None or target is not None:
                raise typer.BadParameter("--take-back is about one store: give --from, and no --to.")
            _take_back(context, origin)
            return
        if origin is None or target is None:
            raise typer.BadParameter("Say from where and to where: --from and --to, or --archive FROM TO.")
        ends = _ends(origin, target, from_files, to_files)
        if dry_run:
            _count(context, ends)
        else:
            _move(context, ends, while_in_use=while_in_use)
    except (Problem, StartError) as problem:
        raise typer.Exit(tell(problem, is_json=as_json)) from None
    except KeyboardInterrupt:
        context.note("What was moved so far is kept. Start again to go on.")
        raise typer.Exit(Exit.INTERRUPTED) from None


def _take_back(context: CommandContext, origin: str) -> None:
    import asyncio

    from peik.storage.moving.move import end_of, take_back

    end = end_of(address(origin))
    target = asyncio.run(take_back(end))
    if target is None:
        words = f"{end.shown} was not moved away; it may be served."
    else:
        words = f"{end.shown} may be served again. It holds what was there when it was moved to {target}: do not serve both."
    context.show({"store": end.shown, "was_moved_to": target}, lambda: words)


def _refuse_both(*given: object) -> None:
    if any(one is not None for one in given):
        raise typer.BadParameter("--archive names both ends itself, and has no files. Move the store by itself.")


def _move_archive(context: CommandContext, named: tuple[str, str], *, while_in_use: bool, dry_run: bool) -> None:
    from peik.archive.cli_migrate import count_archive, move_archive

    origin, target = (address(one) for one in named)
    if dry_run:
        count_archive(context, origin, target)
    else:
        with watching(context) as (begin, step):
            move = move_archive(origin, target, while_in_use=while_in_use, begin=begin, step=step, warn=context.note)
        move.show(context)


def _ends(origin: str, target: str, from_files: Path | None, to_files: Path | None) -> "Ends":
    from peik.secrets.seals import seals_of
    from peik.settings.config import load
    from peik.storage.moving.ends import FolderFiles
    from peik.storage.moving.move import Ends, end_of

    return Ends(
        origin=end_of(address(origin)),
        target=end_of(address(target), seals_of(load().secret_keys)),
        origin_files=None if from_files is None else FolderFiles(from_files),
        target_files=None if to_files is None else FolderFiles(to_files),
    )


def address(given: str) -> str:
    """What stands on a command line is no secret, so that an address with a password may stand in a file."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(code="bad_store", detail=f"{given[1:]} cannot be read: {error}.") from None


def _count(context: CommandContext, ends: "Ends") -> None:
    import asyncio

    from peik.storage.moving.move import count

    with context.waiting("Counting"):
        counts = asyncio.run(count(ends.origin))
    document = {"from": ends.origin.shown, "to": ends.target.shown, "dry_run": True, "counts": counts}
    context.show(document, lambda: _table(counts, "would be moved"))


def _move(context: CommandContext, ends: "Ends", *, while_in_use: bool) -> None:
    import asyncio

    from peik.storage.moving.move import move

    began = time.monotonic()
    warnings: list[str] = []
    with _watching(context, warnings) as watch:
        moved = asyncio.run(move(ends, clock=SystemClock(), while_in_use=while_in_use, watch=watch))
    took_s = time.monotonic() - began
    document = {
        "from": moved.origin,
        "to": moved.target,
        "counts": moved.counts,
        "digests": moved.digests,
        "missing_files": moved.missing_files,
        "warnings": warnings,
        "was_done": moved.was_done,
        "was_begun": moved.was_begun,
        "took_s": round(took_s, 3),
    }
    context.show(document, lambda: _table(moved.counts, "had been moved before" if moved.was_done else "moved"))
    context.note(_last_words(moved, took_s))


def _last_words(moved: "MovedStore", took_s: float) -> str:
    if moved.was_done:
        return f"Everything was moved to {moved.target} before; there is nothing left to do."
    return (
        f"Moved and compared in {took_s:.1f} s. Set PEIK_STORE to {moved.target} and start Peik. "
        f"{moved.origin} is as it was, and says where it was moved to: Peik does not start on it any more."
    )


def _table(counts: dict[str, int], how: str) -> "RenderableType":
    from peik.cli.output import table

    return table(("what", how), [(words, counts.get(kind, 0)) for kind, words in _SHOWN.items()], empty="")


@contextlib.contextmanager
def _watching(context: CommandContext, warnings: list[str]) -> "Iterator[MoveWatch]":
    from peik.storage.moving.move import MoveWatch

    def warn(sentence: str) -> None:
        warnings.append(sentence)
        context.note(sentence)

    with watching(context) as (begin, step):
        yield MoveWatch(warn=warn, begin=begin, step=step)


@contextlib.contextmanager
def watching(context: CommandContext) -> Iterator[tuple[Callable[[str, int], None], Callable[[int], None]]]:
    """One bar after the other, as the stages come: what begins one, and what advances it."""
    with contextlib.ExitStack() as stack:
        advance: list[Callable[[int], None]] = [lambda done: None]

        def begin(words: str, total: int) -> None:
            stack.close()
            advance[0] = stack.enter_context(context.progress(words, total, is_bytes=False))

        yield begin, lambda done: advance[0](done)
