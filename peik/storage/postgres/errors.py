"""What PostgreSQL and the way to it say when they fail, in our words: one table for the store and the archive."""

import asyncpg  # type: ignore[import-untyped,unused-ignore]

from peik.errors import BadInput, Problem, StoreUnavailable

# The first that fits counts. 'store_gone' stands for everything that is over when the server is back.
_HINTS: tuple[tuple[type[BaseException], str, str], ...] = (
    (
        asyncpg.DiskFullError,
        "store_full",
        "The database server's disk is full. Free some room; Peik goes on by itself.",
    ),
    (
        asyncpg.TooManyConnectionsError,
        "store_busy",
        "The database server takes no more connections. Raise max_connections, or end other programs.",
    ),
    (
        asyncpg.ReadOnlySQLTransactionError,
        "store_read_only",
        "The database is read-only, as a standby is. Name the primary server in {setting}.",
    ),
    (asyncpg.DeadlockDetectedError, "store_locked", "The rows are locked by somebody else. It is tried again."),
    (asyncpg.SerializationError, "store_locked", "The rows are locked by somebody else. It is tried again."),
    (asyncpg.LockNotAvailableError, "store_locked", "The rows are locked by another program. End it, or wait."),
    (asyncpg.QueryCanceledError, "store_slow", "The database took too long to answer, and the query was ended."),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "store_denied",
        "The database server does not know this user or password. Check {setting}.",
    ),
    (
        asyncpg.InsufficientPrivilegeError,
        "store_denied",
        "The database user lacks a right. It needs a schema of its own: GRANT CREATE ON DATABASE, or make the schema.",
    ),
    (asyncpg.InvalidCatalogNameError, "store_gone", "There is no such database. Make it, or check {setting}."),
    (
        asyncpg.UndefinedTableError,
        "store_gone",
        "A table of Peik's is gone. Restore a backup, or start Peik again to make an empty one.",
    ),
    (asyncpg.DataCorruptedError, "store_corrupt", "The database is damaged. Stop Peik and restore a backup."),
    (asyncpg.IndexCorruptedError, "store_corrupt", "The database is damaged. Stop Peik and restore a backup."),
    (asyncpg.InsufficientResourcesError, "store_busy", "The database server has run out of something."),
    (asyncpg.PostgresSystemError, "store_io", "The database server's disk reported an error. Check its health."),
    (asyncpg.PostgresConnectionError, "store_gone", "The database server cannot be reached."),
    (asyncpg.OperatorInterventionError, "store_gone", "The database server is stopping or starting."),
    (asyncpg.IdleInTransactionSessionTimeoutError, "store_gone", "The database server has given this process up."),
    (asyncpg.InterfaceError, "store_gone", "The connection to the database server is gone."),
    (asyncpg.InternalClientError, "store_gone", "The connection to the database server is gone."),
    (TimeoutError, "store_gone", "The database server does not answer."),
    (OSError, "store_gone", "The database server cannot be reached."),
)

_AT_START = "Peik did not start."
_BAD_TEXT = (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError, UnicodeEncodeError)
# The last one: a newer Peik has changed a table, and a query must be prepared again.
_PASSING = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.InvalidCachedStatementError)


class CommitFailed(asyncpg.InterfaceError):  # type: ignore[misc,unused-ignore]
    """The server answered a commit with something else."""


def may_repeat(error: BaseException) -> bool:
    """Whether the server has undone everything and the same may well succeed now."""
    return isinstance(error, _PASSING)


def may_be_late(error: BaseException) -> bool:
    """Whether it may have come after the commit of a call that goes on after it."""
    return isinstance(error, asyncpg.QueryCanceledError | asyncpg.OutOfMemoryError)


def is_bad_value(error: BaseException) -> bool:
    """Whether a value cannot be kept: the caller's mistake, not the store's."""
    return isinstance(error, (*_BAD_TEXT, asyncpg.DataError)) or (
        isinstance(error, asyncpg.InterfaceError) and "invalid input for query argument" in str(error)
    )


def is_unavailable(error: BaseException) -> bool:
    """Whether the store itself has failed, and not just the rows that it was given."""
    return not is_bad_value(error) and isinstance(error, tuple(kind for kind, _, _ in _HINTS))


def is_refusal(error: BaseException) -> bool:
    """Whether it is the server's, or the way's to it."""
    return is_unavailable(error) or isinstance(error, asyncpg.PostgresError)


def is_gone(error: BaseException) -> bool:
    """Whether the connection is of no use any more."""
    if isinstance(error, asyncpg.PostgresError):
        return isinstance(
            error,
            asyncpg.PostgresConnectionError
            | asyncpg.OperatorInterventionError
            | asyncpg.IdleInTransactionSessionTimeoutError
            | asyncpg.ReadOnlySQLTransactionError,  # a standby: the same address may lead to the primary by now
        )
    return isinstance(error, OSError | TimeoutError | asyncpg.InterfaceError | asyncpg.InternalClientError)


def translate(
    error: BaseException, *, outcome: str = "Nothing was accepted.", setting: str = "PEIK_STORE"
) -> BaseException:
    """The server's errors in our words; anything else as it is. `outcome` says what is stored, `setting` names the server."""
    if isinstance(error, Problem):
        return error
    if is_bad_value(error):
        return BadInput(code="bad_value", detail=f"A value cannot be stored: {_line(error)}.")
    for kind, code, hint in _HINTS:
        if isinstance(error, kind):
            return StoreUnavailable(code=code, detail=f"{hint.format(setting=setting)} {outcome} ({_line(error)})")
    if isinstance(error, asyncpg.PostgresError):
        return StoreUnavailable(code="store_error", detail=f"PostgreSQL refused: {_line(error)}. {outcome}")
    return error


def at_start(error: BaseException) -> str:
    """The same for somebody at a terminal: nothing was being stored, and nobody waits for the server to come back."""
    told = translate(error, outcome=_AT_START)
    is_gone = isinstance(told, StoreUnavailable) and told.code == "store_gone"
    hint = " Start it, or set PEIK_STORE to where it is." if is_gone else ""
    return str(told.args[0]).replace(f" {_AT_START}", hint)


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__
