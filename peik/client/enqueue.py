"""Letters inside a transaction of the caller's own, where PostgreSQL is the store: they are there if it commits, else not.

Asks `enqueue` of Peik's schema over the caller's connection, whichever driver made it, and needs none of Peik's running.
"""

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from peik.client.calls import Call, Letter
from peik.core.call import read_call
from peik.core.letter import LetterCall as DeskCall
from peik.core.letter import State
from peik.errors import BadInput, Conflict, NotFound, Problem


async def enqueue(connection: Any, method: str, /, *, schema: str = "peik", **params: Any) -> Letter:
    """A letter that is accepted when the caller's transaction commits, and never was if it is rolled back.

    `connection` is asyncpg's, psycopg's AsyncConnection, or SQLAlchemy's AsyncConnection or AsyncSession; outside of a
    transaction it commits at once. `params` are those of `Peik.send`, without files and without `webhook_url`. `state` is
    what it will be at the commit; the letter of a repeated idempotency key may be further.

    Raises BadInput, NotFound or Conflict. What the server refused has ended the transaction, as every error of SQL does;
    errors of the driver stay the driver's.
    """
    asked = _Asked(method, params, schema)
    is_async = inspect.iscoroutinefunction(getattr(connection, "execute", None))
    with _in_our_words():
        # asyncpg's pool has fetchval, too, but its statement would be in no transaction of the caller's.
        if hasattr(connection, "fetchval") and hasattr(connection, "is_in_transaction"):
            return asked.letter(await connection.fetchval(asked.sql(_DOLLARS), *asked.values.values()))
        if is_async and _is_of("sqlalchemy", connection):
            return asked.letter((await connection.execute(_clause(asked), asked.values)).scalar_one())
        if is_async and _is_of("psycopg", connection):
            async with connection.cursor(row_factory=_tuples()) as cursor:
                await cursor.execute(asked.sql(_PERCENTS), asked.values)
                return asked.letter((await cursor.fetchone())[0])
    raise _no_connection(connection)


def enqueue_sync(connection: Any, method: str, /, *, schema: str = "peik", **params: Any) -> Letter:
    """The same for programs without an event loop: psycopg's Connection, or SQLAlchemy's Connection or Session."""
    asked = _Asked(method, params, schema)
    is_async = inspect.iscoroutinefunction(getattr(connection, "execute", None))
    with _in_our_words():
        if not is_async and _is_of("sqlalchemy", connection):
            return asked.letter(connection.execute(_clause(asked), asked.values).scalar_one())
        if not is_async and _is_of("psycopg", connection):
            with connection.cursor(row_factory=_tuples()) as cursor:
                return asked.letter(cursor.execute(asked.sql(_PERCENTS), asked.values).fetchone()[0])
    raise _no_connection(connection)


# ---- what is asked ----

# Every value is cast from a type that all drivers write alike. JSON goes as a text: a program may have given its connection
# another way to write jsonb.
_ARGUMENTS = {
    "method": "CAST({} AS text)",
    "params": "CAST(CAST({} AS text) AS jsonb)",
    "bot_id": "CAST({} AS bigint)",
    "priority": "CAST({} AS integer)",
    "idempotency_key": "CAST({} AS text)",
    "send_at": "to_timestamp(CAST({} AS bigint) / 1000.0)",
    "expires_at": "to_timestamp(CAST({} AS bigint) / 1000.0)",
    "metadata": "CAST(CAST({} AS text) AS jsonb)",
    "on_uncertain": "CAST({} AS text)",
    "attempts": "CAST({} AS integer)",
    "backoff_ms": "CAST({} AS integer)",
    "backoff": "CAST({} AS text)",
    "timeout_ms": "CAST({} AS integer)",
}
_DOLLARS, _PERCENTS, _COLONS = "${place}", "%({name})s", ":{name}"
_INTEGER_MAX = 2**31 - 1
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class _Asked:
    """One call of the function: checked as far as it can be without the server."""

    def __init__(self, method: str, params: dict[str, Any], schema: str) -> None:
        if not _SCHEMA.fullmatch(schema):
            raise BadInput(code="bad_schema", detail=f"{schema!r} is not the name of a schema of Peik's.")
        self._schema = schema
        call = Call(method, **params)
        if call.parcels:
            raise BadInput(
                code="files_not_here",
                detail="Files cannot be enqueued inside a transaction. Give a URL or a file_id, or send by Peik.send.",
            )
        if call.as_asked.hook is not None:
            raise BadInput(
                code="webhook_not_here",
                detail="webhook_url cannot be enqueued inside a transaction. Send by Peik.send, or ask for the letter.",
            )
        read_call(method, call.as_asked.params)
        self.values = _values(call.as_asked)

    def sql(self, sign: str) -> str:
        """The statement with the driver's own signs for values; `sign` is made of a value's name and place."""
        given = ", ".join(
            f"{name} => {cast.format(sign.format(name=name, place=place))}"
            for place, (name, cast) in enumerate(_ARGUMENTS.items(), start=1)
        )
        return f'SELECT "{self._schema}".enqueue({given})'

    def letter(self, letter_id: int) -> Letter:
        state = State.WAITING if self.values["send_at"] is None else State.DELAYED
        return Letter(id=str(letter_id), state=state)


def _values(call: DeskCall) -> dict[str, Any]:
    for name in ("attempts", "backoff_ms", "timeout_ms", "priority"):
        if abs(getattr(call, name) or 0) > _INTEGER_MAX:
            raise BadInput(code=f"bad_{name}", detail=f"{name} is too large.")
    for written in (call.params, call.metadata):
        if written is not None and _NUL.search(written):
            raise BadInput(code="bad_params", detail="PostgreSQL takes no NUL character in JSON. Leave it out.")
    return {
        "method": call.method,
        "params": call.params.decode(),
        "bot_id": call.bot_id,
        "priority": call.priority,
        "idempotency_key": call.idempotency_key,
        "send_at": call.send_at_ms,
        "expires_at": call.expires_at_ms,
        "metadata": None if call.metadata is None else call.metadata.decode(),
        "on_uncertain": None if call.on_uncertain is None else str(call.on_uncertain),
        "attempts": call.attempts,
        "backoff_ms": call.backoff_ms,
        "backoff": str(call.backoff),
        "timeout_ms": call.timeout_ms,
    }


# ---- drivers: known by their classes, so that none is imported before its own connection is here ----


def _is_of(package: str, connection: object) -> bool:
    return any(one.__module__.partition(".")[0] == package for one in type(connection).__mro__)


def _clause(asked: _Asked) -> Any:
    from sqlalchemy import text  # type: ignore[import-not-found,unused-ignore]

    return text(asked.sql(_COLONS))


def _tuples() -> Any:
    from psycopg.rows import tuple_row  # type: ignore[import-not-found,unused-ignore]

    return tuple_row


def _no_connection(given: object) -> TypeError:
    return TypeError(
        f"{type(given).__module__}.{type(given).__qualname__} is no connection that a letter can be enqueued on: give one of "
        "asyncpg, psycopg 3 or SQLAlchemy (to enqueue_sync, if it is not an async one)."
    )


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        problem = _problem(error)
        if problem is None:
            raise
        raise problem from error


_PROBLEMS: dict[str, type[Problem]] = {"PK404": NotFound, "PK409": Conflict, "PK422": BadInput}


def _problem(error: Exception) -> Problem | None:
    """Peik's own refusal, however the driver wraps it; None for anything else."""
    inner: Any = getattr(error, "orig", error)  # SQLAlchemy's; below it may lie one more
    for one in (inner, inner.__cause__):
        kind = _PROBLEMS.get(getattr(one, "sqlstate", None) or "")
        if kind is None:
            continue
        said = getattr(one, "diag", None)
        if said is not None:
            return kind(code=said.message_detail, detail=said.message_primary)
        if hasattr(one, "detail"):
            return kind(code=one.detail, detail=str(one.args[0]))
    return None
