"""Which archive the settings name. What a server's archive needs is imported only if it is named."""

from pathlib import Path
from typing import cast

from peik.archive.store import Archive
from peik.errors import StartError, to_install

_KINDS = "sqlite:///file, postgresql://user:password@host/database or mongodb://host/database"


def archive_of(url: str | None, *, store: str, cache: str | None = None) -> Archive:
    """The archive of PEIK_ARCHIVE, not open yet; without one, beside the store. `cache`: a Redis from which sessions are read
    first, unless the archive is a file, which is quicker to ask. Raises StartError if there is no such archive."""
    named = url or beside(store)
    archive = _named(named)
    if cache is None or named.startswith("sqlite:"):
        return archive
    try:
        from peik.archive.cache import CachedArchive, SessionCache
    except ImportError as error:
        raise _missing("redis", error) from None
    return cast(Archive, CachedArchive(archive, SessionCache(cache)))  # it passes on what it does not have itself


def beside(store: str) -> str:
    """The address of the archive that goes with a store."""
    scheme, _, rest = store.partition("://")
    match scheme:
        case "sqlite":
            return f"sqlite://{rest}.archive"
        case "postgresql" | "postgres":
            from peik.archive.postgres.connection import beside_store

            return beside_store(store)
        case _:
            raise StartError(
                f"Redis keeps no archive: it would hold every message in memory. Name one in PEIK_ARCHIVE: {_KINDS}."
            )


def _named(url: str) -> Archive:
    scheme, _, rest = url.partition("://")
    match scheme:
        case "sqlite":
            from peik.archive.sqlite.archive import SqliteArchive

            if not rest.startswith("/") or len(rest) < 2:
                raise StartError(f"PEIK_ARCHIVE names no file. An archive is {_KINDS}.")
            return SqliteArchive(Path(rest[1:]).absolute())
        case "postgresql" | "postgres":
            try:
                from peik.archive.postgres.archive import PostgresArchive
            except ImportError as error:
                raise _missing("postgres", error) from None
            return PostgresArchive(url)
        case "mongodb" | "mongodb+srv":
            try:
                from peik.archive.mongo.archive import MongoArchive
            except ImportError as error:
                raise _missing("mongo", error) from None
            return MongoArchive(url)
        case "redis" | "rediss" | "unix":
            raise StartError(
                f"Redis cannot be the archive: it would hold every message in memory. An archive is {_KINDS}."
            )
        case _:
            raise StartError(f"PEIK_ARCHIVE is not an address that Peik knows. An archive is {_KINDS}.")


def _missing(extra: str, error: ImportError) -> StartError:
    return StartError(f"The archive needs a package that is not installed ({error.name}): {to_install(extra)}.")
