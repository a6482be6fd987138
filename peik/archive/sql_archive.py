"""What the SQLite and the PostgreSQL archive have in common: each has queries of the same names in its own `.sql` file.

A piece of work is an async function on a session. On SQLite nothing in it ever waits: it runs on the writer's or reader's thread.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import msgspec

from peik.archive.batcher import ArchiveBatcher
from peik.archive.rules import (
    Key,
    Todo,
    VersionFate,
    VersionFates,
    beside,
    chains,
    cursor_of,
    digest_of,
    fitted,
    folded,
    gone,
    is_end,
    key_of,
    levels_from,
    once,
    read_row,
    settle,
    taken_id,
    taken_phone,
    tally,
    was_changed,
)
from peik.archive.sql import (
    PERSON_KINDS,
    chat_state_of,
    event_of,
    filled,
    last_place,
    line_of,
    log_of,
    member_of_row,
    message_of,
    page_place,
    record_of,
    session_of,
    version_of,
    version_row,
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
    MemberRecord,
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

T = TypeVar("T")

_FORGET_AT_ONCE = 1000


class ArchiveSession(Protocol):
    """Asks queries on one connection, with values by name."""

    async def rows(self, query: str, **named: object) -> list[Any]: ...

    async def value(self, query: str, **named: object) -> Any: ...

    async def run(self, query: str, **named: object) -> int:
        """How many rows it changed."""

    async def many(self, query: str, rows: Sequence[Sequence[object]]) -> list[Any]:
        """A query that takes all rows at once; what it returns, if anything."""


S = TypeVar("S", bound=ArchiveSession)


class SqlArchive(ABC, Generic[S]):
    """The port `Archive`, but for what each database does in its own way."""

    sql: ClassVar[Mapping[str, str]]
    taken: ClassVar[type[Exception]]  # a row that must be there once is there

    def __init__(self) -> None:
        self._messages: ArchiveBatcher[Message, VersionFate] = ArchiveBatcher(self._keep_messages)

    # ---- each database's own ----

    @abstractmethod
    async def _read(self, work: Callable[[S], Awaitable[T]], *, is_whole: bool = False) -> T:
        """`is_whole`: all queries of it see one snapshot."""

    @abstractmethod
    async def _write(self, work: Callable[[S], Awaitable[T]]) -> T: ...

    async def _erase(self, work: Callable[[S], Awaitable[T]]) -> T:
        """The same, and what it deletes can be read by nobody."""
        return await self._write(work)

    async def _erased(self, messages: int) -> None:
        """A person was forgotten, who had this many messages."""

    @abstractmethod
    def _is_phone(self, error: Exception) -> bool:
        """Whether it is a phone that is taken."""

    @abstractmethod
    async def _add(self, one: S, messages: Sequence[Message]) -> set[Key]:
        """Which of them were not here, and are now."""

    @abstractmethod
    async def _current(self, one: S, keys: Sequence[Key]) -> list[Message]:
        """Messages that are here; nobody else changes them until the commit."""

    @abstractmethod
    async def _replace(self, one: S, message: Message) -> None: ...

    async def _fill(self, one: S, message: Message) -> None:
        """Replace a message by one with the same text."""
        await self._replace(one, message)

    @abstractmethod
    async def _remove_messages(self, one: S, which: str, **bound: int) -> tuple[int, int]:
        """With their versions: how many of each."""

    @abstractmethod
    async def _where(self, one: S, wanted: MessageFilter, *, is_count: bool) -> tuple[str, dict[str, Any], bool]:
        """The conditions, what is bound to them, and whether a search by words has few hits, which are then sorted."""

    @abstractmethod
    async def _feed(self, one: S, lines: Sequence[FeedRecord]) -> int:
        """Lines of one session, each key once. How many were new."""

    @abstractmethod
    async def _remove_lines(self, one: S, query: str, **bound: int) -> int: ...

    def _log_row(self, line: LogLine) -> tuple[object, ...]:
        return (digest_of(line), *msgspec.structs.astuple(line))

    # ---- the registry ----

    async def add_session(self, session: Session) -> Session:
        stored = msgspec.structs.replace(session, version=1)

        async def piece(one: S) -> None:
            try:
                await one.run(self.sql["add_session"], **msgspec.structs.asdict(stored))
            except self.taken as error:
                raise (taken_phone(stored) if self._is_phone(error) else taken_id(stored)) from error

        await self._write(piece)
        return stored

    async def session(self, session_id: str) -> Session | None:
        return await self._one_session("session", session_id=session_id)

    async def session_by_phone(self, phone: str) -> Session | None:
        return await self._one_session("session_by_phone", phone=phone)

    async def _one_session(self, query: str, **bound: str) -> Session | None:
        rows = await self._rows(query, **bound)
        return session_of(rows[0]) if rows else None

    async def sessions(self, wanted: SessionFilter, *, after: str | None, limit: int) -> list[Session]:
        parts: list[str] = []
        bound: dict[str, Any] = {"after": after or "", "limit": limit}
        if wanted.agent_id is not None:
            parts.append(self.sql["sessions_of_agent"])
            bound["agent_id"] = wanted.agent_id
        if wanted.states is not None:
            parts.append(self.sql["sessions_in_states"])
            bound["states"] = sorted(wanted.states)
        if wanted.is_active is not None:
            parts.append(self.sql["sessions_active"])
            bound["is_active"] = wanted.is_active
        query = filled(self.sql["sessions"], where=" ".join(parts))
        return [session_of(row) for row in await self._read(lambda one: one.rows(query, **bound))]

    async def save_session(self, session: Session) -> Session:
        stored = msgspec.structs.replace(session, version=session.version + 1)

        async def piece(one: S) -> None:
            try:
                is_saved = await one.run(self.sql["save_session"], **msgspec.structs.asdict(stored))
            except self.taken as error:
                raise taken_phone(stored) from error
            if not is_saved:
                is_here = await one.rows(self.sql["session"], session_id=session.session_id)
                raise was_changed(session) if is_here else gone(session)

        await self._write(piece)
        return stored

    async def remove_session(self, session_id: str) -> bool:
        async def piece(one: S) -> bool:
            await one.run(self.sql["remove_updates_states"], session_ids=[session_id])
            return await one.run(self.sql["remove_session"], session_id=session_id) > 0

        return await self._write(piece)

    async def remove_old_sessions(self, *, before_ms: int, states: frozenset[SessionState]) -> list[str]:
        async def piece(one: S) -> list[str]:
            rows = await one.rows(self.sql["remove_old_sessions"], before_ms=before_ms, states=sorted(states))
            removed = sorted(str(row[0]) for row in rows)
            await one.run(self.sql["remove_updates_states"], session_ids=removed)
            return removed

        return await self._write(piece)

    async def save_updates_state(self, session_id: str, state: bytes) -> None:
        await self._run("save_updates_state", session_id=session_id, state=state)

    async def updates_state(self, session_id: str) -> bytes | None:
        rows = await self._rows("updates_state", session_id=session_id)
        return bytes(rows[0][0]) if rows else None

    # ---- what they saw ----

    async def keep_messages(self, messages: Sequence[Message]) -> KeptCounts:
        return tally(await self._messages.add([fitted(message) for message in messages]))

    async def _keep_messages(self, messages: Sequence[Message]) -> list[VersionFate]:
        return await self._write(lambda one: self._keep(one, messages))

    async def _keep(self, one: S, messages: Sequence[Message]) -> list[VersionFate]:
        fates = VersionFates(messages)
        todo = Todo()
        here = {chain.key: chain for chain in chains(messages)}
        added = await self._add(one, [chain.newest for chain in here.values()])
        for key in added:
            fates.inserted(here[key])
            todo.aside += beside(here[key])
        for current in await self._current(one, [key for key in here if key not in added]):
            settle(todo, here[key_of(current)], current)
        await self._put_aside(one, "add_versions", [replaced.old for replaced in todo.replace])
        for replaced in todo.replace:
            fates.kept(here[key_of(replaced.old)], replaced.new.edited_at_ms)
            await self._replace(one, replaced.new)
            todo.aside += replaced.between
        for session_id, chat_id, message_id, edited_at_ms in await self._put_aside(one, "add_versions", todo.aside):
            fates.kept(here[session_id, chat_id, message_id], edited_at_ms)
        for whole in todo.fill:
            await self._fill(one, whole)
        return fates.told()

    async def _put_aside(self, one: S, query: str, messages: Sequence[Message]) -> list[Any]:
        in_order = sorted(messages, key=lambda message: (*key_of(message), message.edited_at_ms))
        return await one.many(self.sql[query], [version_row(message) for message in in_order])

    async def mark_deleted(
        self, session_id: str, chat_id: int | None, message_ids: Sequence[int], *, at_ms: int
    ) -> int:
        query = "mark_deleted_anywhere" if chat_id is None else "mark_deleted"
        bound = {"session_id": session_id, "chat_id": chat_id, "message_ids": list(message_ids), "at_ms": at_ms}
        return await self._run(query, **bound)

    async def messages(
        self, wanted: MessageFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Message], str | None]:
        async def piece(one: S) -> list[Any]:
            where, bound, is_rare = await self._where(one, wanted, is_count=False)
            if cursor is not None:
                where += " " + self.sql["before"]
                bound["cursor_ms"], bound["cursor_id"] = read_row(cursor)
            order = self.sql["by_date_of_few" if is_rare else "by_date"]
            return await one.rows(filled(self.sql["messages"], where=where, order=order), **bound, limit=limit + 1)

        rows = await self._read(piece)
        found = [message_of(list(row)[1:]) for row in rows[:limit]]
        return found, cursor_of(found[-1].date_ms, rows[limit - 1][0]) if len(rows) > limit else None

    async def count_messages(self, wanted: MessageFilter) -> int:
        async def piece(one: S) -> int:
            where, bound, _ = await self._where(one, wanted, is_count=True)
            return int(await one.value(filled(self.sql["count_messages"], where=where), **bound))

        return await self._read(piece)

    async def versions(self, session_id: str, chat_id: int, message_id: int) -> list[Message]:
        bound = {"session_id": session_id, "chat_id": chat_id, "message_id": message_id}

        async def piece(one: S) -> list[Message]:
            aside = await one.rows(self.sql["versions"], **bound)
            current = await one.rows(self.sql["message"], **bound)
            return [version_of(str(row[0])) for row in aside] + [message_of(row) for row in current]

        # One snapshot: one that is replaced meanwhile is neither missing nor there twice.
        return await self._read(piece, is_whole=True)

    async def keep_events(self, events: Sequence[Happening]) -> int:
        fitting = [fitted(event) for event in events]
        return await self._write(lambda one: self._keep_events(one, "add_events", fitting))

    async def _keep_events(self, one: S, query: str, events: Sequence[Happening]) -> int:
        """How many of them were new. One that is handed in twice is one."""
        each = {event.event_id: event for event in reversed(events)}
        rows = [msgspec.structs.astuple(each[event_id]) for event_id in sorted(each)]
        return len(await one.many(self.sql[query], rows))

    async def events(
        self, wanted: EventFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Happening], str | None]:
        names = ("session_id", "agent_id", "chat_id", "event_type", "since_ms", "until_ms")
        pieces = {name: f"events_{name}" if name.endswith("_ms") else name for name in names}
        parts, bound = self._chosen(wanted, pieces)
        rows, following = await self._page("events", parts, bound, cursor, limit)
        return [event_of(row[1:]) for row in rows], following

    def _chosen(self, wanted: EventFilter | LogFilter, pieces: Mapping[str, str]) -> tuple[list[str], dict[str, Any]]:
        """The conditions for those fields of a filter that are set, and what is bound to them."""
        bound = {name: getattr(wanted, name) for name in pieces if getattr(wanted, name) is not None}
        return [self.sql[pieces[name]].replace("{plus}", "") for name in bound], bound

    async def _page(
        self, query: str, parts: list[str], bound: dict[str, Any], cursor: str | None, limit: int
    ) -> tuple[list[list[Any]], str | None]:
        """Rows that begin with an id and hold their time, which they are ordered by; and where the next page begins."""
        if cursor is not None:
            parts.append(self.sql[f"{query}_before"])
            bound["cursor_ms"], bound["cursor_id"] = read_row(cursor)
        text = filled(self.sql[query], where=" ".join(parts))
        rows = [list(row) for row in await self._read(lambda one: one.rows(text, **bound, limit=limit + 1))]
        if len(rows) <= limit:
            return rows, None
        last = rows[limit - 1]
        return rows[:limit], cursor_of(last[1 if query == "logs" else -1], last[0])

    # ---- what is told of it ----

    async def feed(self, lines: Sequence[FeedRecord]) -> int:
        new = once(lines)
        return await self._write(lambda one: self._feed(one, new)) if new else 0

    async def fed(self, session_id: str, *, after: int, limit: int) -> list[FeedRecord]:
        return [line_of(row) for row in await self._rows("fed", session_id=session_id, after=after, limit=limit)]

    async def fed_to(self, session_ids: Sequence[str] | None = None) -> dict[str, Fed]:
        if session_ids is None:
            rows = await self._rows("fed_to")
        else:
            rows = await self._rows("fed_to_of_some", session_ids=list(session_ids))
        return {str(session_id): Fed(first=first, last=last) for session_id, first, last in rows}

    async def places(self, reader: str) -> dict[str, int]:
        return {str(row[0]): int(row[1]) for row in await self._rows("places", reader=reader)}

    async def save_places(self, reader: str, places: Mapping[str, int], *, at_ms: int) -> None:
        rows = [(reader, session_id, number, at_ms) for session_id, number in sorted(places.items())]
        await self._write(lambda one: one.many(self.sql["save_places"], rows))

    async def remove_reader(self, reader: str) -> bool:
        return await self._run("remove_reader", reader=reader) > 0

    async def _put_lines(self, one: S, lines: Sequence[FeedRecord]) -> None:
        """Under their own numbers, over what is here."""
        ends: dict[str, int] = {}
        for line in lines:
            ends[line.session_id] = max(line.number, ends.get(line.session_id, 0))
        await one.many(self.sql["raise_ends"], sorted(ends.items()))
        await one.many(self.sql["put_lines"], [msgspec.structs.astuple(line) for line in lines])
        await one.run(self.sql["settle_firsts"], session_ids=list(ends))

    async def _put_places(self, one: S, found: Sequence[ReaderPlace]) -> None:
        await one.many(self.sql["put_places"], [msgspec.structs.astuple(place) for place in found if not is_end(place)])
        ends = {place.session_id: place.number for place in found if is_end(place)}
        await one.many(self.sql["raise_ends"], sorted(ends.items()))
        await one.run(self.sql["settle_firsts"], session_ids=list(ends))

    # ---- the log ----

    async def keep_logs(self, lines: Sequence[LogLine]) -> None:
        fitting = [fitted(line) for line in lines]
        await self._write(lambda one: self._keep_logs(one, fitting))

    async def _keep_logs(self, one: S, lines: Sequence[LogLine]) -> None:
        await one.many(self.sql["add_logs"], [self._log_row(line) for line in lines])

    async def logs(self, wanted: LogFilter, *, cursor: str | None, limit: int) -> tuple[list[LogLine], str | None]:
        names = ("event", "session_id", "bot_id", "since_ms", "until_ms")
        parts, bound = self._chosen(wanted, {name: f"logs_{name}" for name in names})
        if wanted.level is not None:
            parts.append(self.sql[f"logs_from_{levels_from(wanted.level)[0]}"])
        if wanted.text is not None:
            bound["text"] = folded(wanted.text)
            parts.append(self.sql["logs_text"])
        rows, following = await self._page("logs", parts, bound, cursor, limit)
        return [log_of(row[1:]) for row in rows], following

    # ---- gaps and crawls ----

    async def message_ids(self, session_id: str, chat_id: int, *, above: int, limit: int) -> list[int]:
        rows = await self._rows("message_ids", session_id=session_id, chat_id=chat_id, above=above, limit=limit)
        return [int(row[0]) for row in rows]

    async def chat_states(self, session_id: str) -> list[ChatState]:
        return [chat_state_of(row) for row in await self._rows("chat_states", session_id=session_id)]

    async def save_chat_state(self, state: ChatState) -> None:
        await self._run("save_chat_state", **msgspec.structs.asdict(state))

    async def members(
        self, session_id: str, chat_id: int, *, at_ms: int | None, after: int, limit: int
    ) -> list[MemberRecord]:
        bound = {"session_id": session_id, "chat_id": chat_id, "after": after, "limit": limit}
        if at_ms is None:
            rows = await self._rows("members_now", **bound)
        else:
            rows = await self._rows("members_at", **bound, at_ms=at_ms)
        return [member_of_row(row) for row in rows]

    async def save_members(self, members: Sequence[MemberRecord]) -> None:
        await self._write(lambda one: self._save_members(one, members))

    async def _save_members(self, one: S, members: Sequence[MemberRecord]) -> None:
        rows = {(each.session_id, each.chat_id, each.user_id, each.since_ms): fitted(each) for each in members}
        await one.many(self.sql["save_members"], [msgspec.structs.astuple(rows[key]) for key in sorted(rows)])

    # ---- upkeep ----

    async def tally(self, agent_id: str | None = None) -> Tallied:
        rows = await self._rows("tally" if agent_id is None else "tally_of_agent", agent_id=agent_id)
        sessions, messages, versions, events = rows[0]
        return Tallied(sessions=sessions, messages=messages, versions=versions, events=events)

    async def clean(self, retention: ArchiveRetention, *, at_ms: int, limit: int) -> int:
        """Each kind by itself: others write in between."""
        gone = 0
        if retention.messages_ms is not None:
            asked = {"before_ms": at_ms - retention.messages_ms, "limit": limit}
            gone += (await self._write(lambda one: self._remove_messages(one, "old_messages", **asked)))[0]
        if retention.events_ms is not None:
            old = {"before_ms": at_ms - retention.events_ms, "limit": limit}
            gone += await self._run("remove_old_events", **old)
            gone += await self._run("remove_old_members", **old)
        if retention.feed_ms is not None:
            told = {"before_ms": at_ms - retention.feed_ms, "limit": limit}
            await self._run("remove_old_places", **told)  # not counted
            gone += await self._write(lambda one: self._remove_lines(one, "remove_old_lines", **told))
        if retention.logs_ms is not None:
            gone += await self._run("remove_old_logs", before_ms=at_ms - retention.logs_ms, limit=limit)
        return gone

    async def forget_person(self, user_id: int) -> Mapping[str, int]:
        def part(one: S) -> Awaitable[tuple[int, int]]:
            return self._remove_messages(one, "messages_of_sender", user_id=user_id, limit=_FORGET_AT_ONCE)

        async def rest(one: S) -> dict[str, int]:
            kinds = ("versions", "events", "chat_states", "members")
            return {kind: await one.run(self.sql[f"forget_{kind}"], user_id=user_id) for kind in kinds}

        removed = {"messages": 0, "versions": 0}
        while (found := await self._erase(part))[0]:  # in parts: others write in between
            removed["messages"] += found[0]
            removed["versions"] += found[1]
        others = await self._erase(rest)
        removed |= others | {"versions": removed["versions"] + others["versions"]}
        removed["feed"] = await self._erase(lambda one: self._remove_lines(one, "forget_lines", user_id=user_id))
        if any(removed.values()):
            await self._erased(removed["messages"])
        return removed

    async def count_person(self, user_id: int) -> Mapping[str, int]:
        rows = await self._rows("count_person", user_id=user_id)
        return dict(zip(PERSON_KINDS, rows[0], strict=True))

    async def drop_logs(self, lines: Sequence[LogLine]) -> int:
        digests = [(digest_of(fitted(line)),) for line in lines]
        return len(await self._erase(lambda one: one.many(self.sql["drop_logs"], digests)))

    # ---- copying ----

    async def page(self, kind: RecordKind, *, after: str | None, limit: int) -> tuple[list[Record], str | None]:
        rows = [list(row) for row in await self._rows(f"page_{kind}", limit=limit, **page_place(kind, after))]
        found = [record_of(kind, row) for row in rows]
        return found, last_place(kind, found[-1], rows[-1]) if len(rows) == limit else None

    async def put(self, kind: RecordKind, records: Sequence[Record], progress: str) -> None:
        async def piece(one: S) -> None:
            await self._put(one, kind, records)
            await one.run(self.sql["note_progress"], progress=progress)

        await self._write(piece)

    async def _put(self, one: S, kind: RecordKind, records: Sequence[Record]) -> None:
        match kind:
            case RecordKind.SESSIONS | RecordKind.UPDATES_STATES | RecordKind.CHAT_STATES:  # they are few
                for record in records:
                    await one.run(self.sql[_PUT_ONE[kind]], **msgspec.structs.asdict(record))
            case RecordKind.MEMBERS:
                await self._save_members(one, cast(Sequence[MemberRecord], records))
            case RecordKind.MESSAGES:
                messages = sorted(cast(Sequence[Message], records), key=key_of)
                added = await self._add(one, messages)
                for message in messages:
                    if key_of(message) not in added:
                        await self._replace(one, message)
            case RecordKind.VERSIONS:
                await self._put_aside(one, "put_versions", cast(Sequence[Message], records))
            case RecordKind.EVENTS:
                await self._keep_events(one, "put_events", cast(Sequence[Happening], records))
            case RecordKind.FEED:
                await self._put_lines(one, cast(Sequence[FeedRecord], records))
            case RecordKind.PLACES:
                await self._put_places(one, cast(Sequence[ReaderPlace], records))
            case RecordKind.LOGS:
                await self._keep_logs(one, cast(Sequence[LogLine], records))

    async def progress(self) -> str | None:
        rows = await self._rows("progress")
        return str(rows[0][0]) if rows else None

    # ---- asking ----

    async def _rows(self, query: str, **bound: Any) -> list[Any]:
        return await self._read(lambda one: one.rows(self.sql[query], **bound))

    async def _run(self, query: str, **bound: Any) -> int:
        return await self._write(lambda one: one.run(self.sql[query], **bound))


_PUT_ONE = {
    RecordKind.SESSIONS: "put_session",
    RecordKind.UPDATES_STATES: "save_updates_state",
    RecordKind.CHAT_STATES: "save_chat_state",
}
