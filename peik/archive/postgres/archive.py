"""The archive in PostgreSQL: many machines, one database."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped,unused-ignore]
import msgspec

from peik.archive.postgres.connection import PACKAGE, ArchiveServer, ServerSession, migrate, read_address, weaknesses
from peik.archive.rules import Key, folded, words
from peik.archive.sql import filled, load, message_of
from peik.archive.sql_archive import SqlArchive
from peik.archive.store import FeedRecord, LogLine, Message, MessageFilter
from peik.errors import Problem, StartError

T = TypeVar("T")

_PIECES = load(PACKAGE, "queries.sql")
_SQL = _PIECES | {
    "put_session": f"{_PIECES['add_session']} {_PIECES['over_session']}",
    "add_versions": filled(_PIECES["add_versions"], over=_PIECES["leave_it"]),
    "put_versions": filled(_PIECES["add_versions"], over=_PIECES["over_version"]),
    "add_events": filled(_PIECES["add_events"], over=_PIECES["leave_it"]),
    "put_events": filled(_PIECES["add_events"], over=_PIECES["over_event"]),
}
# Whoever adds lines to a feed or takes some away locks its end first, and looks at its lines only in a later statement: that one
# sees what everybody has committed who held the lock before.
_LOCKS = {
    "remove_old_lines": filled(_SQL["lock_ends"], which=_SQL["with_old_lines"]),
    "forget_lines": filled(_SQL["lock_ends"], which=_SQL["with_lines_of"]),
}
_ONE_PER_PHONE = "telegram_sessions_one_per_phone"
_COMMON = 5000  # hits of a search; from here on it is quicker to walk messages by date than to sort hits


class PostgresArchive(SqlArchive[ServerSession]):
    """The port `Archive`."""

    sql = _SQL
    taken = asyncpg.UniqueViolationError

    def __init__(self, url: str) -> None:
        super().__init__()
        self._server = ArchiveServer(read_address(url))

    async def open(self) -> None:
        try:
            await self._server.open()
            await migrate(self._server)
        except (Problem, OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            told = error.detail if isinstance(error, Problem) else str(error)
            raise StartError(f"Cannot use {self._server.address.shown} as the archive: {told}") from error

    async def close(self) -> None:
        await self._messages.drained()
        self._server.close()

    def trouble(self) -> str | None:
        return None if self._server.trouble is None else self._server.trouble.detail

    async def durability(self) -> list[str]:
        return await self._server.read(weaknesses)

    # ---- the ways in ----

    async def _read(self, work: Callable[[ServerSession], Awaitable[T]], *, is_whole: bool = False) -> T:
        async def piece(one: ServerSession) -> T:
            async with one.connection.transaction(isolation="repeatable_read", readonly=True):
                return await work(one)

        return await self._server.read(piece if is_whole else work)

    async def _write(self, work: Callable[[ServerSession], Awaitable[T]]) -> T:
        return await self._server.write(work)

    def _is_phone(self, error: Exception) -> bool:
        return getattr(error, "constraint_name", None) == _ONE_PER_PHONE

    # ---- messages ----

    async def _add(self, one: ServerSession, messages: Sequence[Message]) -> set[Key]:
        rows = [(*msgspec.structs.astuple(message), " ".join(words(message.text))) for message in messages]
        return {(row[0], row[1], row[2]) for row in await one.many(_SQL["add_messages"], rows)}

    async def _current(self, one: ServerSession, keys: Sequence[Key]) -> list[Message]:
        return [message_of(row) for row in await one.many(_SQL["lock_messages"], keys)]

    async def _replace(self, one: ServerSession, message: Message) -> None:
        bound = msgspec.structs.asdict(message)
        await one.run(_SQL["replace_message"], **bound, words=" ".join(words(message.text)))

    async def _remove_messages(self, one: ServerSession, which: str, **bound: int) -> tuple[int, int]:
        rows = await one.rows(filled(_SQL["remove_messages"], which=_SQL[which]), **bound)
        return rows[0][0], rows[0][1]

    async def _where(
        self, one: ServerSession, wanted: MessageFilter, *, is_count: bool
    ) -> tuple[str, dict[str, Any], bool]:
        bound: dict[str, Any] = {}
        parts: list[str] = []
        is_rare = False
        for name in ("chat_id", "sender_id", "session_id", "agent_id", "direction", "kind", "since_ms", "until_ms"):
            value = getattr(wanted, name)
            if value is not None:
                bound[name] = value
                parts.append(_SQL[name])
        if wanted.text is not None:
            asked = words(wanted.text)
            matched = " & ".join(f"'{word}'" for word in asked)
            bound["words"] = matched
            parts.append(_SQL["with_words" if asked else "nothing"])
            if asked and not is_count:
                is_rare = await one.value(_SQL["how_common"], words=matched, bound=_COMMON) < _COMMON
        if wanted.is_deleted is not None:
            parts.append(_SQL["deleted" if wanted.is_deleted else "not_deleted"])
        return " ".join(parts), bound, is_rare

    # ---- feeds and the log ----

    async def _feed(self, one: ServerSession, lines: Sequence[FeedRecord]) -> int:
        session_id = lines[0].session_id
        if await one.value(_SQL["lock_end"], session_id=session_id) is None:
            await one.run(_SQL["begin_feed"], session_id=session_id)
            await one.value(_SQL["lock_end"], session_id=session_id)
        columns = zip(
            *(
                (each.agent_id, each.key, each.kind, each.chat_id, each.user_id, each.body, each.at_ms)
                for each in lines
            ),
            strict=True,
        )
        return int(await one.connection.fetchval(_SQL["add_lines"], session_id, *columns))

    async def _remove_lines(self, one: ServerSession, query: str, **bound: int) -> int:
        """Only from feeds whose ends were locked."""
        session_ids = [row[0] for row in await one.rows(_LOCKS[query], **bound)]
        if not session_ids:
            return 0
        gone = await one.run(_SQL[query], **bound, session_ids=session_ids)
        await one.run(_SQL["settle_firsts"], session_ids=session_ids)
        return gone

    def _log_row(self, line: LogLine) -> tuple[object, ...]:
        return (*super()._log_row(line), folded(f"{line.event}\n{line.fields}"))
