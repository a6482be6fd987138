"""The archive in PostgreSQL: many machines, one database."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import asyncpg  # type: ignore[import-untyped,unused-ignore]
import msgspec

from peik.archive.batcher import ArchiveBatcher
from peik.archive.postgres import feeds
from peik.archive.postgres import messages as work
from peik.archive.postgres.connection import PACKAGE, ArchiveServer, ArchiveSession, migrate, read_address, weaknesses
from peik.archive.rules import VersionFate, fitted, gone, once, taken_id, taken_phone, tally, was_changed
from peik.archive.sql import (
    FEED,
    LOG,
    MESSAGE,
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
from peik.errors import Problem, StartError

_SQL = load(PACKAGE, "queries.sql")
_ADD_SESSION = filled(_SQL["add_session"], over="")
_PUT_ONE = {  # of the kinds that are few
    RecordKind.SESSIONS: filled(_SQL["add_session"], over=_SQL["over_session"]),
    RecordKind.UPDATES_STATES: _SQL["save_updates_state"],
    RecordKind.CHAT_STATES: _SQL["save_chat_state"],
}
_PAGE_COLUMNS = {
    "message_columns": ", ".join(MESSAGE),
    "line_columns": ", ".join(FEED),
    "log_columns": ", ".join(LOG),
}
_ONE_PER_PHONE = "telegram_sessions_one_per_phone"


class PostgresArchive:
    """The port `Archive`."""

    def __init__(self, url: str) -> None:
        self._server = ArchiveServer(read_address(url))
        self._messages: ArchiveBatcher[Message, VersionFate] = ArchiveBatcher(self._keep_messages)

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

    # ---- the registry ----

    async def add_session(self, session: Session) -> Session:
        stored = msgspec.structs.replace(session, version=1)
        try:
            await self._run(_ADD_SESSION, **fields_of(stored))
        except asyncpg.UniqueViolationError as error:
            is_phone = error.constraint_name == _ONE_PER_PHONE
            raise (taken_phone(stored) if is_phone else taken_id(stored)) from error
        return stored

    async def session(self, session_id: str) -> Session | None:
        return await self._one_session("session", session_id=session_id)

    async def session_by_phone(self, phone: str) -> Session | None:
        return await self._one_session("session_by_phone", phone=phone)

    async def _one_session(self, query: str, **named: str) -> Session | None:
        rows = await self._rows(_SQL[query], **named)
        return session_of(rows[0]) if rows else None

    async def sessions(self, wanted: SessionFilter, *, after: str | None, limit: int) -> list[Session]:
        parts: list[str] = []
        named: dict[str, Any] = {"after": after or "", "limit": limit}
        if wanted.agent_id is not None:
            parts.append(_SQL["sessions_of_agent"])
            named["agent_id"] = wanted.agent_id
        if wanted.states is not None:
            parts.append(_SQL["sessions_in_states"])
            named["states"] = sorted(wanted.states)
        if wanted.is_active is not None:
            parts.append(_SQL["sessions_active"])
            named["is_active"] = wanted.is_active
        rows = await self._rows(filled(_SQL["sessions"], where=" ".join(parts)), **named)
        return [session_of(row) for row in rows]

    async def save_session(self, session: Session) -> Session:
        stored = msgspec.structs.replace(session, version=session.version + 1)

        async def piece(asking: ArchiveSession) -> None:
            if not await asking.run(_SQL["save_session"], **fields_of(stored)):
                is_here = await asking.rows(_SQL["session"], session_id=session.session_id)
                raise was_changed(session) if is_here else gone(session)

        try:
            await self._server.write(piece)
        except asyncpg.UniqueViolationError as error:
            raise taken_phone(stored) from error
        return stored

    async def remove_session(self, session_id: str) -> bool:
        async def piece(asking: ArchiveSession) -> bool:
            await asking.run(_SQL["remove_updates_states"], session_ids=[session_id])
            return await asking.run(_SQL["remove_session"], session_id=session_id) > 0

        return await self._server.write(piece)

    async def remove_old_sessions(self, *, before_ms: int, states: frozenset[SessionState]) -> list[str]:
        async def piece(asking: ArchiveSession) -> list[str]:
            rows = await asking.rows(_SQL["remove_old_sessions"], before_ms=before_ms, states=sorted(states))
            removed = sorted(row[0] for row in rows)
            await asking.run(_SQL["remove_updates_states"], session_ids=removed)
            return removed

        return await self._server.write(piece)

    async def save_updates_state(self, session_id: str, state: bytes) -> None:
        await self._run(_SQL["save_updates_state"], session_id=session_id, state=state)

    async def updates_state(self, session_id: str) -> bytes | None:
        rows = await self._rows(_SQL["updates_state"], session_id=session_id)
        return bytes(rows[0][0]) if rows else None

    # ---- what they saw ----

    async def keep_messages(self, messages: Sequence[Message]) -> KeptCounts:
        return tally(await self._messages.add([fitted(message) for message in messages]))

    async def _keep_messages(self, messages: Sequence[Message]) -> list[VersionFate]:
        return await self._server.write(lambda asking: work.keep_messages(asking, messages))

    async def mark_deleted(
        self, session_id: str, chat_id: int | None, message_ids: Sequence[int], *, at_ms: int
    ) -> int:
        return await self._server.write(
            lambda asking: work.mark_deleted(asking, session_id, chat_id, message_ids, at_ms)
        )

    async def messages(
        self, wanted: MessageFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Message], str | None]:
        return await self._server.read(lambda asking: work.find_messages(asking, wanted, cursor, limit))

    async def count_messages(self, wanted: MessageFilter) -> int:
        return await self._server.read(lambda asking: work.count_messages(asking, wanted))

    async def versions(self, session_id: str, chat_id: int, message_id: int) -> list[Message]:
        return await self._server.read(lambda asking: work.find_versions(asking, session_id, chat_id, message_id))

    async def keep_events(self, events: Sequence[Happening]) -> int:
        fitting = [fitted(event) for event in events]
        return await self._server.write(lambda asking: work.keep_events(asking, fitting))

    async def events(
        self, wanted: EventFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Happening], str | None]:
        return await self._server.read(lambda asking: work.find_events(asking, wanted, cursor, limit))

    # ---- what is told of it ----

    async def feed(self, lines: Sequence[FeedRecord]) -> int:
        new = once(lines)
        return await self._server.write(lambda asking: feeds.feed(asking, new))

    async def fed(self, session_id: str, *, after: int, limit: int) -> list[FeedRecord]:
        return await self._server.read(lambda asking: feeds.fed(asking, session_id, after, limit))

    async def fed_to(self, session_ids: Sequence[str] | None = None) -> dict[str, Fed]:
        return await self._server.read(lambda asking: feeds.fed_to(asking, session_ids))

    async def places(self, reader: str) -> dict[str, int]:
        return await self._server.read(lambda asking: feeds.places(asking, reader))

    async def save_places(self, reader: str, places: Mapping[str, int], *, at_ms: int) -> None:
        found = dict(places)
        await self._server.write(lambda asking: feeds.save_places(asking, reader, found, at_ms))

    async def remove_reader(self, reader: str) -> bool:
        return await self._server.write(lambda asking: feeds.remove_reader(asking, reader))

    # ---- the log ----

    async def keep_logs(self, lines: Sequence[LogLine]) -> None:
        fitting = [fitted(line) for line in lines]
        await self._server.write(lambda asking: feeds.keep_logs(asking, fitting))

    async def logs(self, wanted: LogFilter, *, cursor: str | None, limit: int) -> tuple[list[LogLine], str | None]:
        return await self._server.read(lambda asking: feeds.find_logs(asking, wanted, cursor, limit))

    # ---- gaps and crawls ----

    async def message_ids(self, session_id: str, chat_id: int, *, above: int, limit: int) -> list[int]:
        rows = await self._rows(_SQL["message_ids"], session_id=session_id, chat_id=chat_id, above=above, limit=limit)
        return [row[0] for row in rows]

    async def chat_states(self, session_id: str) -> list[ChatState]:
        return [chat_state_of(row) for row in await self._rows(_SQL["chat_states"], session_id=session_id)]

    async def save_chat_state(self, state: ChatState) -> None:
        await self._run(_SQL["save_chat_state"], **fields_of(state))

    # ---- upkeep ----

    async def tally(self, agent_id: str | None = None) -> Tallied:
        query = _SQL["tally" if agent_id is None else "tally_of_agent"]
        sessions, messages, versions, events = (await self._rows(query, agent_id=agent_id))[0]
        return Tallied(sessions=sessions, messages=messages, versions=versions, events=events)

    async def clean(self, retention: ArchiveRetention, *, at_ms: int, limit: int) -> int:
        gone = 0
        for clean in (work.clean, feeds.clean, feeds.clean_logs):  # each by itself: others write in between
            gone += await self._server.write(partial(clean, retention=retention, at_ms=at_ms, limit=limit))
        return gone

    async def forget_person(self, user_id: int) -> Mapping[str, int]:
        messages = versions = 0
        while True:  # in parts: others write in between
            removed = await self._server.write(lambda asking: work.forget_messages(asking, user_id))
            messages, versions = messages + removed[0], versions + removed[1]
            if not removed[0]:
                break
        rest = await self._server.write(lambda asking: work.forget_rest(asking, user_id))
        feed = await self._server.write(lambda asking: feeds.forget_person(asking, user_id))
        return {"messages": messages, **rest, "versions": versions + rest["versions"], "feed": feed}

    async def count_person(self, user_id: int) -> Mapping[str, int]:
        rows = await self._rows(_SQL["count_person"], user_id=user_id)
        return dict(zip(PERSON_KINDS, rows[0], strict=True))

    async def drop_logs(self, lines: Sequence[LogLine]) -> int:
        fitting = [fitted(line) for line in lines]
        return await self._server.write(lambda asking: feeds.drop_logs(asking, fitting))

    async def durability(self) -> list[str]:
        return await self._server.read(weaknesses)

    # ---- copying ----

    async def page(self, kind: RecordKind, *, after: str | None, limit: int) -> tuple[list[Record], str | None]:
        query = filled(_SQL[f"page_{kind}"], **_PAGE_COLUMNS)
        rows = [tuple(row) for row in await self._rows(query, limit=limit, **page_place(kind, after))]
        found = [read_row(kind, row) for row in rows]
        return found, last_place(kind, found[-1], rows[-1]) if len(rows) == limit else None

    async def put(self, kind: RecordKind, records: Sequence[Record], progress: str) -> None:
        async def piece(asking: ArchiveSession) -> None:
            await _put(asking, kind, records)
            await asking.run(_SQL["note_progress"], progress=progress)

        await self._server.write(piece)

    async def progress(self) -> str | None:
        rows = await self._rows(_SQL["progress"])
        return str(rows[0][0]) if rows else None

    # ---- asking ----

    async def _rows(self, query: str, **named: Any) -> list[Any]:
        return await self._server.read(lambda asking: asking.rows(query, **named))

    async def _run(self, query: str, **named: Any) -> int:
        return await self._server.write(lambda asking: asking.run(query, **named))


async def _put(asking: ArchiveSession, kind: RecordKind, records: Sequence[Record]) -> None:
    match kind:
        case RecordKind.SESSIONS | RecordKind.UPDATES_STATES | RecordKind.CHAT_STATES:
            for record in records:
                await asking.run(_PUT_ONE[kind], **fields_of(record))
        case RecordKind.MESSAGES:
            await work.put_messages(asking, cast(Sequence[Message], records))
        case RecordKind.VERSIONS:
            await work.put_versions(asking, cast(Sequence[Message], records))
        case RecordKind.EVENTS:
            await work.keep_events(asking, cast(Sequence[Happening], records), over=True)
        case RecordKind.FEED:
            await feeds.put_lines(asking, cast(Sequence[FeedRecord], records))
        case RecordKind.PLACES:
            await feeds.put_places(asking, cast(Sequence[ReaderPlace], records))
        case RecordKind.LOGS:
            await feeds.keep_logs(asking, cast(Sequence[LogLine], records))
