"""The archive in a SQLite file: nothing to install, one machine."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec

from peik.archive.batcher import ArchiveBatcher
from peik.archive.rules import VersionFate, fitted, gone, once, taken_id, taken_phone, tally, was_changed
from peik.archive.sql import (
    PERSON_KINDS,
    chat_state_of,
    fields_of,
    filled,
    last_place,
    load,
    page_place,
    read_row,
    session_of,
)
from peik.archive.sqlite import database, feeds
from peik.archive.sqlite import messages as work
from peik.archive.sqlite.database import PACKAGE, ReaderThread, WriterThread, connect, migrate, translate
from peik.archive.store import (
    ArchiveRetention,
    ChatState,
    EventFilter,
    Fed,
    FeedRecord,
    Happening,
    KeptCounts,
    LogFilter,
    LogLine,
    Message,
    MessageFilter,
    ReaderPlace,
    Record,
    RecordKind,
    Session,
    SessionFilter,
    SessionState,
    Tallied,
)
from peik.errors import StartError, StoreUnavailable

_SQL = load(PACKAGE, "queries.sql")
_PUT_ONE = {  # of the kinds that are few
    RecordKind.SESSIONS: filled(_SQL["add_session"], over="OR REPLACE"),
    RecordKind.UPDATES_STATES: _SQL["save_updates_state"],
    RecordKind.CHAT_STATES: _SQL["save_chat_state"],
}


class SqliteArchive:
    """The port `Archive`. Several processes may have the same file open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._messages: ArchiveBatcher[Message, VersionFate] = ArchiveBatcher(self._keep_messages)

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

    # ---- the registry ----

    async def add_session(self, session: Session) -> Session:
        stored = msgspec.structs.replace(session, version=1)

        def piece(connection: apsw.Connection) -> None:
            try:
                connection.execute(filled(_SQL["add_session"], over=""), fields_of(stored))
            except apsw.ConstraintError as error:
                raise (taken_phone(stored) if "phone" in str(error) else taken_id(stored)) from error

        await self._writer.ask(piece)
        return stored

    async def session(self, session_id: str) -> Session | None:
        return await self._one_session("session", session_id=session_id)

    async def session_by_phone(self, phone: str) -> Session | None:
        return await self._one_session("session_by_phone", phone=phone)

    async def _one_session(self, query: str, **bound: str) -> Session | None:
        rows = await self._rows(_SQL[query], **bound)
        return session_of(rows[0]) if rows else None

    async def sessions(self, wanted: SessionFilter, *, after: str | None, limit: int) -> list[Session]:
        parts: list[str] = []
        bound: dict[str, Any] = {"after": after or "", "limit": limit}
        if wanted.agent_id is not None:
            parts.append(_SQL["sessions_of_agent"])
            bound["agent_id"] = wanted.agent_id
        if wanted.states is not None:
            parts.append(_SQL["sessions_in_states"])
            bound["states"] = _json(sorted(wanted.states))
        if wanted.is_active is not None:
            parts.append(_SQL["sessions_active"])
            bound["is_active"] = wanted.is_active
        rows = await self._rows(filled(_SQL["sessions"], where=" ".join(parts)), **bound)
        return [session_of(row) for row in rows]

    async def save_session(self, session: Session) -> Session:
        stored = msgspec.structs.replace(session, version=session.version + 1)

        def piece(connection: apsw.Connection) -> None:
            try:
                connection.execute(_SQL["save_session"], fields_of(stored))
            except apsw.ConstraintError as error:
                raise taken_phone(stored) from error
            if not connection.changes():
                is_here = connection.execute(_SQL["session"], {"session_id": session.session_id}).fetchall()
                raise was_changed(session) if is_here else gone(session)

        await self._writer.ask(piece)
        return stored

    async def remove_session(self, session_id: str) -> bool:
        def piece(connection: apsw.Connection) -> bool:
            connection.execute(_SQL["remove_updates_state"], {"session_id": session_id})
            connection.execute(_SQL["remove_session"], {"session_id": session_id})
            return connection.changes() > 0

        return await self._writer.ask(piece)

    async def remove_old_sessions(self, *, before_ms: int, states: frozenset[SessionState]) -> list[str]:
        def piece(connection: apsw.Connection) -> list[str]:
            asked = {"before_ms": before_ms, "states": _json(sorted(states))}
            removed = [str(row[0]) for row in connection.execute(_SQL["remove_old_sessions"], asked).fetchall()]
            for session_id in removed:
                connection.execute(_SQL["remove_updates_state"], {"session_id": session_id})
            return sorted(removed)

        return await self._writer.ask(piece)

    async def save_updates_state(self, session_id: str, state: bytes) -> None:
        await self._write(_SQL["save_updates_state"], session_id=session_id, state=state)

    async def updates_state(self, session_id: str) -> bytes | None:
        rows = await self._rows(_SQL["updates_state"], session_id=session_id)
        return bytes(rows[0][0]) if rows else None

    # ---- what they saw ----

    async def keep_messages(self, messages: Sequence[Message]) -> KeptCounts:
        return tally(await self._messages.add([fitted(message) for message in messages]))

    async def _keep_messages(self, messages: Sequence[Message]) -> list[VersionFate]:
        return await self._writer.ask(lambda connection: work.keep_messages(connection, messages))

    async def mark_deleted(
        self, session_id: str, chat_id: int | None, message_ids: Sequence[int], *, at_ms: int
    ) -> int:
        return await self._writer.ask(
            lambda connection: work.mark_deleted(connection, session_id, chat_id, message_ids, at_ms)
        )

    async def messages(
        self, wanted: MessageFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Message], str | None]:
        return await self._reader.ask(lambda connection: work.find_messages(connection, wanted, cursor, limit))

    async def count_messages(self, wanted: MessageFilter) -> int:
        return await self._reader.ask(lambda connection: work.count_messages(connection, wanted))

    async def versions(self, session_id: str, chat_id: int, message_id: int) -> list[Message]:
        return await self._reader.ask(
            lambda connection: work.find_versions(connection, session_id, chat_id, message_id)
        )

    async def keep_events(self, events: Sequence[Happening]) -> int:
        fitting = [fitted(event) for event in events]
        return sum(await self._writer.ask(lambda connection: work.keep_events(connection, fitting)))

    async def events(
        self, wanted: EventFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Happening], str | None]:
        return await self._reader.ask(lambda connection: work.find_events(connection, wanted, cursor, limit))

    # ---- what is told of it ----

    async def feed(self, lines: Sequence[FeedRecord]) -> int:
        new = once(lines)
        return await self._writer.ask(lambda connection: feeds.feed(connection, new))

    async def fed(self, session_id: str, *, after: int, limit: int) -> list[FeedRecord]:
        return await self._reader.ask(lambda connection: feeds.fed(connection, session_id, after, limit))

    async def fed_to(self, session_ids: Sequence[str] | None = None) -> dict[str, Fed]:
        return await self._reader.ask(lambda connection: feeds.fed_to(connection, session_ids))

    async def places(self, reader: str) -> dict[str, int]:
        return await self._reader.ask(lambda connection: feeds.places(connection, reader))

    async def save_places(self, reader: str, places: Mapping[str, int], *, at_ms: int) -> None:
        found = dict(places)
        await self._writer.ask(lambda connection: feeds.save_places(connection, reader, found, at_ms))

    async def remove_reader(self, reader: str) -> bool:
        return await self._writer.ask(lambda connection: feeds.remove_reader(connection, reader))

    # ---- the log ----

    async def keep_logs(self, lines: Sequence[LogLine]) -> None:
        fitting = [fitted(line) for line in lines]
        await self._writer.ask(lambda connection: feeds.keep_logs(connection, fitting))

    async def logs(self, wanted: LogFilter, *, cursor: str | None, limit: int) -> tuple[list[LogLine], str | None]:
        return await self._reader.ask(lambda connection: feeds.find_logs(connection, wanted, cursor, limit))

    # ---- gaps and crawls ----

    async def message_ids(self, session_id: str, chat_id: int, *, above: int, limit: int) -> list[int]:
        rows = await self._rows(_SQL["message_ids"], session_id=session_id, chat_id=chat_id, above=above, limit=limit)
        return [int(row[0]) for row in rows]

    async def chat_states(self, session_id: str) -> list[ChatState]:
        return [chat_state_of(row) for row in await self._rows(_SQL["chat_states"], session_id=session_id)]

    async def save_chat_state(self, state: ChatState) -> None:
        await self._write(_SQL["save_chat_state"], **fields_of(state))

    # ---- upkeep ----

    async def tally(self, agent_id: str | None = None) -> Tallied:
        if agent_id is None:
            rows = await self._rows(_SQL["tally"])
        else:
            rows = await self._rows(_SQL["tally_of_agent"], agent_id=agent_id)
        sessions, messages, versions, events = rows[0]
        return Tallied(sessions=sessions, messages=messages, versions=versions, events=events)

    async def clean(self, retention: ArchiveRetention, *, at_ms: int, limit: int) -> int:
        return await self._writer.ask(
            lambda connection: sum(
                clean(connection, retention, at_ms, limit) for clean in (work.clean, feeds.clean, feeds.clean_logs)
            )
        )

    async def forget_person(self, user_id: int) -> Mapping[str, int]:
        messages = versions = 0
        while True:  # in parts: others write in between
            gone = await self._writer.ask(
                lambda connection: database.securely(connection, work.forget_messages, user_id)
            )
            messages, versions = messages + gone[0], versions + gone[1]
            if not gone[0]:
                break
        rest = await self._writer.ask(lambda connection: database.securely(connection, work.forget_rest, user_id))
        feed = await self._writer.ask(lambda connection: database.securely(connection, feeds.forget_person, user_id))
        removed = {"messages": messages, **rest, "versions": versions + rest["versions"], "feed": feed}
        if any(removed.values()):
            while messages and await self._writer.ask(database.merge_words):
                pass
            await asyncio.to_thread(database.empty_log, self._path)
        return removed

    async def count_person(self, user_id: int) -> Mapping[str, int]:
        rows = await self._rows(_SQL["count_person"], user_id=user_id)
        return dict(zip(PERSON_KINDS, rows[0], strict=True))

    async def drop_logs(self, lines: Sequence[LogLine]) -> int:
        fitting = [fitted(line) for line in lines]
        return await self._writer.ask(lambda connection: database.securely(connection, feeds.drop_logs, fitting))

    async def durability(self) -> list[str]:
        return []  # we set everything ourselves

    # ---- copying ----

    async def page(self, kind: RecordKind, *, after: str | None, limit: int) -> tuple[list[Record], str | None]:
        rows = await self._rows(_SQL[f"page_{kind}"], limit=limit, **page_place(kind, after))
        found: list[Record] = [read_row(kind, row) for row in rows]
        return found, last_place(kind, found[-1], rows[-1]) if len(rows) == limit else None

    async def put(self, kind: RecordKind, records: Sequence[Record], progress: str) -> None:
        def piece(connection: apsw.Connection) -> None:
            _put(connection, kind, records)
            connection.execute(_SQL["note_progress"], {"progress": progress})

        await self._writer.ask(piece)

    async def progress(self) -> str | None:
        rows = await self._rows(_SQL["progress"])
        return str(rows[0][0]) if rows else None

    # ---- asking ----

    async def _rows(self, query: str, **bound: Any) -> list[tuple[Any, ...]]:
        return await self._reader.ask(lambda connection: connection.execute(query, bound).fetchall())

    async def _write(self, query: str, **bound: Any) -> None:
        def piece(connection: apsw.Connection) -> None:
            connection.execute(query, bound)

        await self._writer.ask(piece)


def _put(connection: apsw.Connection, kind: RecordKind, records: Sequence[Record]) -> None:
    match kind:
        case RecordKind.SESSIONS | RecordKind.UPDATES_STATES | RecordKind.CHAT_STATES:
            for record in records:
                connection.execute(_PUT_ONE[kind], fields_of(record))
        case RecordKind.MESSAGES:
            work.put_messages(connection, cast(Sequence[Message], records))
        case RecordKind.VERSIONS:
            work.put_versions(connection, cast(Sequence[Message], records))
        case RecordKind.EVENTS:
            work.keep_events(connection, cast(Sequence[Happening], records), over=True)
        case RecordKind.FEED:
            feeds.put_lines(connection, cast(Sequence[FeedRecord], records))
        case RecordKind.PLACES:
            feeds.put_places(connection, cast(Sequence[ReaderPlace], records))
        case RecordKind.LOGS:
            feeds.keep_logs(connection, cast(Sequence[LogLine], records))


def _json(values: Sequence[object]) -> str:
    return msgspec.json.encode(values).decode()
