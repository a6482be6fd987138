"""`telegram_message_logs` in a database of its own, SQLite or PostgreSQL, where the store has no SQL: see PEIK_MESSAGE_LOG."""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import apsw
import msgspec

from peik.core.letter import Chat
from peik.errors import StartError, to_install
from peik.outbox.store import LoggedMessage, MessageLogTable
from peik.storage import sql
from peik.storage.sqlite import database
from peik.storage.sqlite.rows import logged_from_row
from peik.storage.sqlite.statements import load

if TYPE_CHECKING:
    import asyncpg  # type: ignore[import-untyped,unused-ignore]

T = TypeVar("T")

SETTING = "PEIK_MESSAGE_LOG"
_LOST = "Nothing is lost: it is written again later."
_FILE = load("message_log.sql")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_BUSY_MS = 5000
_ANSWER_S = 60.0


def message_log_of(url: str) -> MessageLogTable:
    """Raises StartError."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        return SqliteMessageLog(Path(rest[1:]).absolute())
    return PostgresMessageLog(url)


def _row_of(line: LoggedMessage, chat: Chat | None, seen_ms: int) -> tuple[Any, ...]:
    return (
        line.id, line.bot_id, chat, _kept(line.user_id), _kept(line.message_type), _kept(line.method), str(line.state),
        line.attempts_made, _kept(line.error), line.message_id, _kept(line.text), line.created_at_ms, line.finished_at_ms,
        seen_ms,
    )  # fmt: skip


def _kept(text: str | None) -> str | None:
    """Words of others as every database can keep them: without NUL and lone surrogates."""
    if text is None:
        return None
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


class SqliteMessageLog(MessageLogTable):
    """One connection, used by one thread at a time; other programs may read the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        try:
            self._connection = await asyncio.to_thread(self._opened)
        except apsw.Error as error:
            raise StartError(f"{SETTING}: {self._path} cannot be used: {self._told(error)}") from error

    def _opened(self) -> apsw.Connection:
        if not self._path.exists() and self._path.parent.is_dir():
            self._path.touch(mode=0o600)  # it will hold what people wrote
        connection = apsw.Connection(str(self._path))
        try:
            connection.set_busy_timeout(_BUSY_MS)
            found = connection.execute("SELECT type FROM sqlite_master WHERE name = 'telegram_message_logs'").get
            ours = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'message_log_lines'").get
            if found is not None and ours is None:
                raise StartError(_in_the_way(str(self._path), "name another file"))
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")  # who is forgotten is gone from the file
            with connection:
                connection.execute(_FILE["make"])
        except BaseException:
            connection.close()
            raise
        return connection

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def put(self, lines: Sequence[LoggedMessage], *, seen_ms: int) -> None:
        rows = [_row_of(line, line.chat, seen_ms) for line in lines]
        await self._do(lambda one: one.executemany(_FILE["put"], rows).fetchall())

    async def unended(self, *, after: int, limit: int) -> list[tuple[int, int]]:
        rows: list[Any] = await self._do(lambda one: one.execute(_FILE["unended"], (after, limit)).fetchall())
        return [(row[0], row[1]) for row in rows]

    async def copied_to(self) -> int:
        return await self._do(lambda one: int(one.execute(_FILE["copied_to"]).get))

    async def save_copied_to(self, letter_id: int) -> None:
        await self._do(lambda one: one.execute(_FILE["save_copied_to"], (letter_id,)).fetchall())

    async def clean(self, *, before_ms: int) -> None:
        await self._do(lambda one: one.execute(_FILE["clean"], (before_ms,)).fetchall())

    async def logged(self, cursor: str | None, limit: int) -> tuple[list[LoggedMessage], str | None]:
        rows = await self._do(lambda one: one.execute(_FILE["logged"], (int(cursor or 0), limit)).fetchall())
        return [logged_from_row(row) for row in rows], str(rows[-1][0]) if len(rows) == limit else None

    async def drop_logged(self, ids: Sequence[int]) -> int:
        def dropped(one: apsw.Connection) -> int:
            one.execute(_FILE["drop_logged"], (msgspec.json.encode(ids).decode(),))
            gone = one.changes()
            one.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return gone

        return await self._do(dropped, is_whole=False)

    async def _do(self, work: Callable[[apsw.Connection], T], *, is_whole: bool = True) -> T:
        connection = self._connection
        assert connection is not None, "it is open"

        def done() -> T:
            with connection if is_whole else nullcontext():
                return work(connection)
            raise AssertionError("a transaction swallows nothing")

        try:
            async with self._turn:
                return await asyncio.to_thread(done)
        except apsw.Error as error:
            raise self._told(error) from error

    def _told(self, error: BaseException) -> BaseException:
        return database.translate(error, what="message log", setting=SETTING, lost=_LOST)


class PostgresMessageLog(MessageLogTable):
    """In the schema `public`, where a query finds it without more words; `?schema=` names another."""

    def __init__(self, url: str) -> None:
        try:
            from peik.storage.postgres.session import address_of, reach
        except ImportError as error:
            raise StartError(
                f"{SETTING} needs a package that is not installed ({error.name}): {to_install('postgres')}."
            ) from None
        self._address = address_of(url, usual="public", named=_SCHEMA, setting=SETTING)
        self._reach = partial(reach, self._address)
        self._sql = sql.load("peik.storage.postgres", "message_log.sql")

    async def open(self) -> None:
        import asyncpg

        schema = self._address.schema
        try:
            self._pool = await asyncpg.create_pool(
                self._address.url,
                connect=self._reach,
                min_size=0,
                max_size=2,
                command_timeout=_ANSWER_S,
                server_settings={"application_name": "peik message log", "search_path": schema},
            )
            async with self._pool.acquire() as one, one.transaction():
                await one.execute(self._sql["lock"].written)
                if schema != "public":
                    await one.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')  # looked at by address_of
                names = "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace"
                found = {row[0] for row in await one.fetch(names, schema)}
                if "telegram_message_logs" in found and "message_log_lines" not in found:
                    raise StartError(_in_the_way(self._address.shown, "name another schema, as ?schema=peik_log"))
                await one.execute(self._sql["make"].written)
        except (asyncpg.PostgresError, OSError, TimeoutError) as error:
            raise StartError(f"{SETTING}: {self._address.shown} cannot be used: {self._told(error)}") from error

    async def close(self) -> None:
        if hasattr(self, "_pool"):
            self._pool.terminate()

    async def put(self, lines: Sequence[LoggedMessage], *, seen_ms: int) -> None:
        if lines:
            chats = (None if line.chat is None else str(line.chat) for line in lines)
            rows = [_row_of(line, chat, seen_ms) for line, chat in zip(lines, chats, strict=True)]
            await self._ask("put", *zip(*rows, strict=True))

    async def unended(self, *, after: int, limit: int) -> list[tuple[int, int]]:
        return [(row[0], row[1]) for row in await self._ask("unended", after, limit)]

    async def copied_to(self) -> int:
        return int((await self._ask("copied_to"))[0][0])

    async def save_copied_to(self, letter_id: int) -> None:
        await self._ask("save_copied_to", letter_id)

    async def clean(self, *, before_ms: int) -> None:
        await self._ask("clean", before_ms)

    async def logged(self, cursor: str | None, limit: int) -> tuple[list[LoggedMessage], str | None]:
        rows = [list(row) for row in await self._ask("logged", int(cursor or 0), limit)]
        found = [logged_from_row([*row[:2], _chat_in(row[2]), *row[3:]]) for row in rows]
        return found, str(rows[-1][0]) if len(rows) == limit else None

    async def drop_logged(self, ids: Sequence[int]) -> int:
        return len(await self._ask("drop_logged", list(ids)))

    async def _ask(self, query: str, *values: object) -> "list[asyncpg.Record]":
        try:
            async with self._pool.acquire(timeout=5.0) as one:
                return await one.fetch(self._sql[query].written, *values)  # type: ignore[no-any-return,unused-ignore]
        except Exception as error:
            told = self._told(error)
            if told is error:
                raise
            raise told from error

    def _told(self, error: BaseException) -> BaseException:
        from peik.storage.postgres.errors import translate

        return translate(error, outcome=_LOST, setting=SETTING)


def _chat_in(text: str | None) -> Chat | None:
    return int(text) if text is not None and text.removeprefix("-").isdigit() else text


def _in_the_way(place: str, instead: str) -> str:
    return f"{SETTING}: {place} has a telegram_message_logs that is not Peik's. Rename that one, or {instead}."
