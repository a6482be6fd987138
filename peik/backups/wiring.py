"""How backups are put together: which parts the settings name, and who knows how to copy each."""

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path

from peik import __version__
from peik.archive.sql import migrations
from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.wiring import beside
from peik.backups.keeper import Keeper
from peik.backups.model import BackupSource, Plain
from peik.backups.service import ALSO, Backups
from peik.backups.sqlite import SqliteBackupSource
from peik.clock import Clock
from peik.core.documents import DocumentStore
from peik.core.events import Events
from peik.errors import StartError, to_install
from peik.settings.config import Config, shown_address
from peik.settings.values import StoreKind
from peik.storage.executor import Executor, ThreadExecutor
from peik.storage.sqlite.store import SqliteStore

_LOCKS = (".owner", ".server")  # as `OwnerLock` names them
_STEP = re.compile(r"(sqlite_)?\d{3}\.sql")


def backups_of(config: Config, *, clock: Clock, executor: Callable[[str], Executor] = ThreadExecutor) -> Backups:
    """Blocks for a moment if a passphrase has to be stretched: call it off the event loop. Raises StartError."""
    sources: dict[str, BackupSource] = {"store": _store(config, clock, executor)}
    archive = _archive_url(config)
    if archive is not None:
        sources["archive"] = _archive(archive)
    for path in config.backup_also:
        sources[ALSO + path.name] = _also(path.absolute())
    return Backups(
        folder=backups_folder(config),
        keep=config.backup_keep,
        keys=_keys(config),
        sources=sources,
        plain=_plain(config),
        known=_known(),
        version=__version__,
        clock=clock,
    )


def keeper_of(config: Config, *, documents: DocumentStore, clock: Clock, events: Events) -> Keeper | None:
    """None: the settings want no backups by the clock."""
    if config.backup_every is None:
        return None
    make = partial(asyncio.to_thread, backups_of, config, clock=clock)
    return Keeper(make, documents=documents, clock=clock, events=events, every_s=config.backup_every)


def backups_folder(config: Config) -> Path:
    return (config.backups or config.beside(".backups")).absolute()


def _keys(config: Config) -> Sequence[bytes]:
    if config.secret_key is None:
        return ()
    try:
        from peik.secrets.vault import keys_of
    except ImportError as error:
        raise StartError(
            f"Sealing backups with PEIK_SECRET_KEY needs a package that is not installed ({error.name}): "
            f"{to_install('secrets')}."
        ) from None
    return keys_of(config.secret_keys or "")


def _plain(config: Config) -> Plain:
    is_sqlite = config.store_kind is StoreKind.SQLITE
    own = config.beside(".files") if is_sqlite else None
    # The admin key of a server is among its own secrets.
    names = (".key", ".secret") if is_sqlite else (".secret",)
    return Plain(
        files=(config.files or own),
        sessions=config.sessions_dir,
        keys={name.lstrip("."): config.beside(name) for name in names},
    )


def _known() -> dict[str, int]:
    return {
        "store sqlite": _steps("peik.storage.sqlite"),
        "store postgresql": _steps("peik.storage.postgres"),
        "archive sqlite": len(migrations("peik.archive.sqlite")),
        "archive postgresql": len(migrations("peik.archive.postgres")),
    }


def _steps(package: str) -> int:
    return sum(_STEP.fullmatch(entry.name) is not None for entry in (files(package) / "sql").iterdir())


# ---- sources ----


def _store(config: Config, clock: Clock, executor: Callable[[str], Executor]) -> BackupSource:
    match config.store_kind:
        case StoreKind.SQLITE:

            async def try_out(path: Path) -> None:
                store = SqliteStore(path, clock=clock, is_owner=True, executor=executor)
                await store.open()
                await store.close()

            path = config.sqlite_path.absolute()
            return SqliteBackupSource(path, locks=_LOCKS, has_letters=True, try_out=try_out)
        case StoreKind.POSTGRES:
            from peik.storage.postgres.session import read_address

            address = read_address(config.store)
            return _postgres(address.url, address.schema, address.shown, is_store=True)
        case StoreKind.REDIS:
            try:
                from peik.backups.redis import RedisSource
                from peik.storage.redis.client import split_prefix
            except ImportError as error:
                raise _missing("redis", error) from None
            url, prefix = split_prefix(config.store)
            shown = f"{shown_address(config.store)}?prefix={prefix.partition('{')[0]}"
            return RedisSource(url, prefix=prefix, shown=shown, lease_s=config.lease)


def _archive_url(config: Config) -> str | None:
    if config.archive is not None or config.store_kind is not StoreKind.REDIS:
        return config.archive or beside(config.store)
    return None


def _archive(url: str) -> BackupSource:
    scheme, _, rest = url.partition("://")
    match scheme:
        case "sqlite":
            return SqliteBackupSource(Path(rest[1:]).absolute(), locks=(), has_letters=False, try_out=_try_archive)
        case "postgresql" | "postgres":
            from peik.archive.postgres.connection import read_address

            address = read_address(url)
            return _postgres(address.url, address.schema, address.shown, is_store=False)
        case _:
            try:
                from peik.backups.mongo import MongoSource
            except ImportError as error:
                raise _missing("mongo", error) from None
            return MongoSource(url, shown=shown_address(url))


def _also(path: Path) -> BackupSource:
    async def try_out(copied: Path) -> None:
        """Its integrity was looked at; how its program opens it is not known here."""

    return SqliteBackupSource(path, locks=(), has_letters=False, try_out=try_out)


async def _try_archive(path: Path) -> None:
    archive = SqliteArchive(path)
    await archive.open()
    await archive.close()


def _postgres(url: str, schema: str, shown: str, *, is_store: bool) -> BackupSource:
    try:
        from peik.backups.postgres import PostgresBackupSource
    except ImportError as error:
        raise _missing("postgres", error) from None
    table = "peik_schema" if is_store else "archive_schema"
    return PostgresBackupSource(url, schema=schema, shown=shown, is_store=is_store, version_table=table)


def _missing(extra: str, error: ImportError) -> StartError:
    return StartError(
        f"Backups of this store need a package that is not installed ({error.name}): {to_install(extra)}."
    )
