"""Which store an address names, as an end of a move. What a server's store needs is imported only if it is named."""

from pathlib import Path

from peik.errors import BadInput, StartError
from peik.seals import PLAIN, Seals
from peik.store.moving.ends import End


def end_of(url: str, seals: Seals = PLAIN) -> End:
    """Not open yet. What is sealed is moved as it is; only the admin key may have to be opened.

    Raises BadInput or StartError if no store can be meant."""
    scheme, _, rest = url.partition("://")
    match scheme:
        case "sqlite" if rest.startswith("/") and len(rest) > 1:
            from peik.store.moving.sqlite_end import SqliteEnd

            return SqliteEnd(Path(rest[1:]), seals)
        case "postgresql" | "postgres":
            try:
                from peik.store.moving.postgres_end import PostgresEnd
            except ImportError as error:
                raise _missing("postgres", error) from None
            return PostgresEnd(url)
        case "redis" | "rediss" | "unix":
            try:
                from peik.store.moving.redis_end import RedisEnd
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
    return StartError(f"This store needs a package that is not installed ({error.name}): pip install 'peik[{extra}]'.")
