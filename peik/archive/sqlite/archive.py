"""The archive in a SQLite file: nothing to install, one machine."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from peik.archive.rules import Key, key_of, words
from peik.archive.sql import load, message_of
from peik.archive.sql_archive import SqlArchive
from peik.archive.sqlite import database
from peik.archive.sqlite.database import PACKAGE, ReaderThread, WriterThread, connect, migrate, translate
from peik.archive.store import FeedRecord, Message, MessageFilter
from peik.errors import StartError, StoreUnavailable
from peik.storage.executor import at_once

T = TypeVar("T")

_SQL = load(PACKAGE, "queries.sql")
_COMMON = 20_000  # hits of a search; from here on it is quicker to walk messages by date than to sort hits


class FileSession:
    """See `peik.archive.sql_archive.ArchiveSession`. A list is bound as JSON."""

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    async def rows(self, query: str, **named: object) -> list[Any]:
        return self._connection.execute(query, _bound(named)).fetchall()

    async def value(self, query: str, **named: object) -> Any:
        return self._connection.execute(query, _bound(named)).get

    async def run(self, query: str, **named: object) -> int:
        self._connection.execute(query, _bound(named))
        return self._connection.changes()

    async def many(self, query: str, rows: Sequence[Sequence[object]]) -> list[Any]:
        return database.returned(self._connection, query, rows)


def _bound(named: dict[str, Any]) -> dict[str, Any]:
    return {
        name: msgspec.json.encode(value).decode() if isinstance(value, list) else value for name, value in named.items()
    }


class SqliteArchive(SqlArchive[FileSession]):
    """The port `Archive`. Several processes may have the same file open."""

    sql = _SQL
    taken = apsw.ConstraintError

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    async def open(self) -> None:
        try:
            connection = connect(self._path)
            try:
                migrate(connection, self._path)
                reading = connect(self._path, for_reading=True)
            except BaseException:
                connection.close()
                raise
        except apsw.Error as error:
            told = translate(error)
            assert isinstance(told, StoreUnavailable)
            raise StartError(f"Cannot use {self._path} as the archive: {told.detail}") from error
        self._writer = WriterThread(connection, "peik-archive-writer")
        self._reader = ReaderThread(reading, "peik-archive-reader")

    async def close(self) -> None:
        await self._messages.drained()
        self._reader.close()
        self._writer.close()

    def trouble(self) -> str | None:
        return None if self._writer.trouble is None else str(self._writer.trouble)

    async def durability(self) -> list[str]:
        return []  # we set everything ourselves

    # ---- the ways in ----

    async def _read(self, work: Callable[[FileSession], Awaitable[T]], *, is_whole: bool = False) -> T:
        def piece(connection: apsw.Connection) -> T:
            snapshot: AbstractContextManager[object, None] = connection if is_whole else nullcontext()  # type: ignore[assignment]
            with snapshot:
                return at_once(work(FileSession(connection)))

        return await self._reader.ask(piece)

    async def _write(self, work: Callable[[FileSession], Awaitable[T]]) -> T:
        return await self._writer.ask(lambda connection: at_once(work(FileSession(connection))))

    async def _erase(self, work: Callable[[FileSession], Awaitable[T]]) -> T:
        return await self._writer.ask(
            lambda connection: database.securely(connection, lambda one: at_once(work(FileSession(one))))
        )

    async def _erased(self, messages: int) -> None:
        while messages and await self._writer.ask(database.merge_words):
            pass
        await asyncio.to_thread(database.empty_log, self._path)

    def _is_phone(self, error: Exception) -> bool:
        return "phone" in str(error)

    # ---- messages ----

    async def _add(self, one: FileSession, messages: Sequence[Message]) -> set[Key]:
        known = {tuple(row) for row in await one.rows(_SQL["known_messages"], keys=[key_of(each) for each in messages])}
        new = [message for message in messages if key_of(message) not in known]
        if new:
            first = await one.value(_SQL["highest_message"])
            rows = [(place, *msgspec.structs.astuple(message)) for place, message in enumerate(new, start=first + 1)]
            await one.many(_SQL["add_message"], rows)
            texts = [(row[0], _words(each)) for row, each in zip(rows, new, strict=True) if each.text]
            await one.many(_SQL["add_words"], texts)
        return {key_of(message) for message in new}

    async def _current(self, one: FileSession, keys: Sequence[Key]) -> list[Message]:
        rows = await one.rows(_SQL["messages_by_keys"], keys=list(keys)) if keys else []
        return [message_of(row) for row in rows]

    async def _replace(self, one: FileSession, message: Message) -> None:
        await self._fill(one, message)
        session_id, chat_id, message_id = key_of(message)
        row = await one.value(_SQL["id_of_message"], session_id=session_id, chat_id=chat_id, message_id=message_id)
        await one.run(_SQL["remove_words"], id=row)
        if message.text:
            await one.many(_SQL["add_words"], [(row, _words(message))])

    async def _fill(self, one: FileSession, message: Message) -> None:
        await one.run(_SQL["replace_message"], **msgspec.structs.asdict(message))

    async def _remove_messages(self, one: FileSession, which: str, **bound: int) -> tuple[int, int]:
        versions = 0
        rows = await one.rows(_SQL[which], **bound)
        for row, session_id, chat_id, message_id in rows:
            await one.run(_SQL["remove_message"], id=row)
            await one.run(_SQL["remove_words"], id=row)
            key = {"session_id": session_id, "chat_id": chat_id, "message_id": message_id}
            versions += await one.run(_SQL["remove_versions"], **key)
        return len(rows), versions

    async def _where(
        self, one: FileSession, wanted: MessageFilter, *, is_count: bool
    ) -> tuple[str, dict[str, Any], bool]:
        bound: dict[str, Any] = {}
        parts: list[str] = []
        is_rare = False
        # The first of these decides which index is walked; a plus before the others keeps the planner from theirs.
        plus = ""
        if wanted.text is not None:
            asked = words(wanted.text)
            matched = " AND ".join(f'"{word}"' for word in asked)
            if not asked:
                parts.append(_SQL["nothing"])
            elif is_count or await one.value(_SQL["how_common"], words=matched, limit=_COMMON) < _COMMON:
                parts.append(_SQL["with_words"])
                bound["words"] = matched
                is_rare, plus = True, "+"
            else:
                parts.append(_SQL["with_common_words"])
                bound["words"] = " ".join(asked)
        for name in ("chat_id", "sender_id", "session_id", "agent_id", "direction", "kind", "since_ms", "until_ms"):
            value = getattr(wanted, name)
            if value is not None:
                bound[name] = value
                parts.append(_SQL[name].replace("{plus}", plus))
                plus = "+"
        if wanted.is_deleted is not None:
            parts.append(_SQL["deleted" if wanted.is_deleted else "not_deleted"])
        return " ".join(parts), bound, is_rare

    # ---- feeds ----

    async def _feed(self, one: FileSession, lines: Sequence[FeedRecord]) -> int:
        """One connection writes at a time: nobody else takes a number meanwhile."""
        session_id = lines[0].session_id
        keys = [line.key for line in lines]
        known = {row[0] for row in await one.rows(_SQL["known_keys"], session_id=session_id, keys=keys)}
        new = [line for line in lines if line.key not in known]
        if new:
            last = await one.value(_SQL["use_numbers"], session_id=session_id, count=len(new))
            numbered = (
                msgspec.structs.replace(line, number=number)
                for number, line in enumerate(new, start=last - len(new) + 1)
            )
            await one.many(_SQL["add_lines"], [msgspec.structs.astuple(line) for line in numbered])
        return len(new)

    async def _remove_lines(self, one: FileSession, query: str, **bound: int) -> int:
        rows = await one.rows(_SQL[query], **bound)
        await one.run(_SQL["settle_firsts"], session_ids=sorted({row[0] for row in rows}))
        return len(rows)


def _words(message: Message) -> str:
    return " ".join(words(message.text))
