"""`peik backup`: everything that Peik keeps as one file, and the way back."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from peik.cli.command import CommandContext, Exit, tell
from peik.errors import Conflict, Problem, StartError
from peik.settings.config import Config, load
from peik.storage.cli import watching

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.backups.model import BackupEntry, BackupLedger, BackupWatch, Manifest
    from peik.backups.service import Backups, KeptBackup
    from peik.secrets.service import SecretsStanding

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Back up everything, try a backup out, put one back. See docs/backups.md.")

_Store = Annotated[str | None, typer.Option(metavar="URL", help="The store, instead of PEIK_STORE.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
_File = Annotated[Path | None, typer.Argument(metavar="FILE", help="By default the newest one of this store.")]


@app.command()
def create(store: _Store = None, as_json: _Json = False) -> None:
    """Make a backup now. Peik may run meanwhile. Then older ones go, but for PEIK_BACKUP_KEEP and the
    newest that was found sound."""

    def work(run: "_Run") -> None:
        sound: set[str] | None = None  # nothing goes if nobody can tell which is good

        async def look(ledger: "BackupLedger") -> None:
            nonlocal sound
            sound = await ledger.sound()

        run.note(look, is_quiet=True)
        made = run.asked(lambda watch: run.backups.create(watch, sound=sound))

        async def note(ledger: "BackupLedger") -> None:
            await ledger.note(made.path.name, made.entry)
            await ledger.forget(made.rotated)

        run.note(note)
        document = {
            "path": str(made.path),
            "size_bytes": made.entry.size_bytes,
            "is_sealed": made.entry.is_sealed,
            "made_at": _time(made.entry.made_at_ms),
            "counts": _counts(made.manifest),
            "missing_files": list(made.manifest.missing_files),
            "rotated": made.rotated,
        }
        run.context.say(document, str(made.path))
        if not made.entry.is_sealed:
            run.context.note(
                "It is not sealed, and holds tokens and the accounts themselves: keep it where nobody else reads, "
                "or set PEIK_SECRET_KEY."
            )

    _run(work, store, is_json=as_json)


@app.command("list")
def list_(store: _Store = None, as_json: _Json = False) -> None:
    """Show the backups in PEIK_BACKUPS, the newest first."""

    def work(run: "_Run") -> None:
        found = run.backups.kept()
        entries: dict[str, BackupEntry] = {}

        async def look(ledger: "BackupLedger") -> None:
            entries.update(await ledger.entries())

        run.note(look, is_quiet=True)
        shown = [_listed(one, entries.get(one.path.name)) for one in found]
        run.context.show({"folder": str(run.backups.folder), "backups": shown}, lambda: _table(shown))

    _run(work, store, is_json=as_json)


@app.command()
def verify(file: _File = None, store: _Store = None, as_json: _Json = False) -> None:
    """Try a backup out: a real restore in a temporary place, compared with what the backup says of itself."""

    def work(run: "_Run") -> None:
        path = file.absolute() if file is not None else run.backups.newest()
        try:
            verified = run.asked(lambda watch: run.backups.verify(path, watch))
        except Conflict as problem:
            if problem.code == "backup_broken":
                run.note(lambda ledger: ledger.note_broken(path.name), is_quiet=True)
            raise
        run.note(lambda ledger: ledger.note_verified(path.name, verified.at_ms))
        document = {
            "path": str(path),
            "is_sound": True,
            "verified_at": _time(verified.at_ms),
            "made_at": _time(verified.manifest.made_at_ms),
            "counts": _counts(verified.manifest),
            "warnings": run.warnings,
        }
        run.context.say(document, f"{path} is sound: it was restored in a temporary place, and everything is there.")

    _run(work, store, is_json=as_json)


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")],
    yes: Annotated[bool, typer.Option("--yes", help="Overwrite what is there, without being asked.")] = False,
    store: _Store = None,
    as_json: _Json = False,
) -> None:
    """Put a backup back into the store that the settings name. Stop every node before."""

    from peik.clock import SystemClock

    def work(run: "_Run") -> None:
        path = file.absolute()
        occupied = run.asked(lambda watch: run.backups.occupied())
        if occupied:
            run.context.confirm(f"This overwrites what is in {' and '.join(occupied)}. Go on?", is_sure=yes)
        manifest = run.asked(lambda watch: run.backups.restore(path, watch))
        run.check_secrets()
        at_ms = SystemClock().wall_ms()
        run.note(lambda ledger: ledger.note_restored(at_ms, run.backups.restored_from(path, manifest, at_ms)))
        places = run.backups.places(manifest)
        document = {
            "path": str(path),
            "is_restored": True,
            "places": places,
            "made_at": _time(manifest.made_at_ms),
            "counts": _counts(manifest),
            "warnings": run.warnings,
        }
        where = " and ".join(places.values())
        run.context.say(document, f"Restored into {where}, as it was at {_time(manifest.made_at_ms)}. Start Peik.")
        if not occupied:
            run.context.note(
                "Nothing was there before. If your Peik keeps its store elsewhere, restore with its settings, in its folder."
            )
        run.context.note(
            "What was accepted after that is not there. What was sent after that, and waited then, is sent once more."
        )

    _run(work, store, is_json=as_json)


# ---- one run ----


class _Run:
    def __init__(self, context: CommandContext, config: Config, backups: "Backups") -> None:
        self.context = context
        self.backups = backups
        self.warnings: list[str] = []
        self._config = config

    def asked(self, act: "Callable[[BackupWatch], Awaitable[T]]") -> T:
        import asyncio

        from peik.backups.model import BackupWatch

        async def work(watch: BackupWatch) -> T:
            return await act(watch)

        with watching(self.context) as (begin, step):
            return asyncio.run(work(BackupWatch(begin, step, self._warn)))

    def check_secrets(self) -> None:
        """Whether what was restored can be opened here: without its key Peik would not start."""
        import asyncio

        try:
            standing = asyncio.run(_standing(self._config))
        except (Problem, StartError) as error:
            self._warn(f"The restored store could not be looked at: {error}")
            return
        if standing.foreign and standing.advice is not None:
            self._warn(standing.advice)

    def _warn(self, sentence: str) -> None:
        self.warnings.append(sentence)
        self.context.note(sentence)

    def note(self, act: "Callable[[BackupLedger], Awaitable[None]]", *, is_quiet: bool = False) -> None:
        """Tell the store, or ask it. The files count; that it knows of them is for metrics and other nodes."""
        import asyncio

        try:
            asyncio.run(_with_ledger(self._config, act))
        except (Problem, StartError) as error:
            if not is_quiet:
                self._warn(f"The store could not be told of it: {error}")


async def _standing(config: Config) -> "SecretsStanding":
    from peik.clock import SystemClock
    from peik.secrets import service as sealing
    from peik.storage.open import store_of

    store = store_of(config, clock=SystemClock())
    await store.open()
    try:
        return await sealing.standing(store.sealed, store.seals)
    finally:
        await store.close()


async def _with_ledger(config: Config, act: "Callable[[BackupLedger], Awaitable[None]]") -> None:
    from peik.backups.model import BackupLedger
    from peik.clock import SystemClock
    from peik.errors import NotFound
    from peik.settings.values import StoreKind
    from peik.storage.open import store_of

    if config.store_kind is StoreKind.SQLITE and not config.sqlite_path.exists():
        raise NotFound(code="no_store", detail=f"There is no {config.sqlite_path}.")
    store = store_of(config, clock=SystemClock())
    await store.open()
    try:
        await act(BackupLedger(store.documents))
    finally:
        await store.close()


def _run(work: "Callable[[_Run], None]", store: str | None, *, is_json: bool) -> None:
    context = CommandContext({}, is_json=is_json, may_create=False)
    try:
        from peik.backups.wiring import backups_of
        from peik.clock import SystemClock

        config = load({"store": store})
        work(_Run(context, config, backups_of(config, clock=SystemClock())))
    except (Problem, StartError) as problem:
        raise typer.Exit(tell(problem, is_json=is_json)) from None
    except KeyboardInterrupt:
        context.note("Nothing was made, and nothing was changed that counts.")
        raise typer.Exit(Exit.INTERRUPTED) from None


# ---- showing ----


def _time(at_ms: int) -> str:
    from peik.core.units import rfc3339

    return rfc3339(at_ms) or ""


def _counts(manifest: "Manifest") -> dict[str, dict[str, int]]:
    return {part.name: part.counts for part in manifest.parts}


def _listed(one: "KeptBackup", entry: "BackupEntry | None") -> dict[str, Any]:
    verified_at_ms = None if entry is None else entry.verified_at_ms
    return {
        "path": str(one.path),
        "size_bytes": one.size_bytes,
        "made_at": _time(one.head.made_at_ms),
        "is_sealed": one.head.salt is not None,
        "peik": one.head.peik,
        "verified_at": None if verified_at_ms is None else _time(verified_at_ms),
        "is_broken": entry is not None and entry.is_broken,
    }


def _table(shown: list[dict[str, Any]]) -> "RenderableType":
    from peik.cli.output import table

    rows = [
        (
            Path(one["path"]).name,
            one["made_at"],
            _size(one["size_bytes"]),
            "yes" if one["is_sealed"] else "no",
            "broken" if one["is_broken"] else one["verified_at"] or "never",
        )
        for one in shown
    ]
    return table(
        ("file", "made", "size", "sealed", "tried out"), rows, empty="There is no backup yet: peik backup create"
    )


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
