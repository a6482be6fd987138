"""Parts of an archive, in memory: the registry, feeds and the places of their readers, the log."""

from collections.abc import Mapping, Sequence

import msgspec

from peik.archive.rules import levels_from, once
from peik.archive.store import Fed, FeedRecord, LogFilter, LogLine, Session, SessionFilter, SessionState
from peik.errors import Conflict, NotFound


class MemoryFeeds:
    """Nothing is ever let go, so that a feed's end is its length."""

    def __init__(self) -> None:
        self.lines: dict[str, list[FeedRecord]] = {}
        self.read: dict[str, dict[str, int]] = {}

    async def feed(self, lines: Sequence[FeedRecord]) -> int:
        given = once(lines)
        if not given:
            return 0
        there = self.lines.setdefault(given[0].session_id, [])
        known = {line.key for line in there}
        new = [line for line in given if line.key not in known]
        there += [msgspec.structs.replace(line, number=n) for n, line in enumerate(new, start=len(there) + 1)]
        return len(new)

    async def fed(self, session_id: str, *, after: int, limit: int) -> list[FeedRecord]:
        return self.lines.get(session_id, [])[after : after + limit]

    async def fed_to(self, session_ids: Sequence[str] | None = None) -> dict[str, Fed]:
        return {
            name: Fed(first=1, last=len(lines))
            for name, lines in self.lines.items()
            if session_ids is None or name in session_ids
        }

    async def places(self, reader: str) -> dict[str, int]:
        return dict(self.read.get(reader, {}))

    async def save_places(self, reader: str, places: Mapping[str, int], *, at_ms: int) -> None:
        there = self.read.setdefault(reader, {})
        for session_id, number in places.items():
            there[session_id] = max(number, there.get(session_id, 0))

    async def remove_reader(self, reader: str) -> bool:
        return bool(self.read.pop(reader, None))


class MemoryLog:
    def __init__(self) -> None:
        self.log: dict[LogLine, None] = {}

    async def keep_logs(self, lines: Sequence[LogLine]) -> None:
        self.log |= dict.fromkeys(lines)

    async def logs(self, wanted: LogFilter, *, cursor: str | None, limit: int) -> tuple[list[LogLine], str | None]:
        """A cursor is how many were shown."""
        levels = None if wanted.level is None else levels_from(wanted.level)
        found = [
            line
            for line in sorted(self.log, key=lambda line: line.at_ms, reverse=True)
            if (levels is None or line.level in levels)
            and wanted.event in (None, line.event)
            and wanted.session_id in (None, line.session_id)
            and wanted.bot_id in (None, line.bot_id)
            and (wanted.since_ms is None or line.at_ms >= wanted.since_ms)
            and (wanted.until_ms is None or line.at_ms < wanted.until_ms)
            and (wanted.text is None or wanted.text.casefold() in f"{line.event}\n{line.fields}".casefold())
        ]
        start = int(cursor or 0)
        return found[start : start + limit], str(start + limit) if len(found) > start + limit else None


class MemoryBook(MemoryFeeds, MemoryLog):
    def __init__(self) -> None:
        MemoryFeeds.__init__(self)
        MemoryLog.__init__(self)
        self.kept: dict[str, Session] = {}
        self.saves = 0

    async def add_session(self, session: Session) -> Session:
        if session.session_id in self.kept:
            raise Conflict(code="session_exists", detail="taken")
        self._check_phone(session)
        self.kept[session.session_id] = session
        return session

    async def session(self, session_id: str) -> Session | None:
        return self.kept.get(session_id)

    async def session_by_phone(self, phone: str) -> Session | None:
        found = [one for one in self.kept.values() if one.phone == phone]
        return max(found, key=lambda one: one.created_at_ms, default=None)

    async def sessions(self, wanted: SessionFilter, *, after: str | None, limit: int) -> list[Session]:
        found = [
            one
            for one in sorted(self.kept.values(), key=lambda one: one.session_id)
            if (after is None or one.session_id > after)
            and wanted.agent_id in (None, one.agent_id)
            and wanted.is_active in (None, one.is_active)
            and (wanted.states is None or one.state in wanted.states)
        ]
        return found[:limit]

    async def save_session(self, session: Session) -> Session:
        old = self.kept.get(session.session_id)
        if old is None:
            raise NotFound(code="no_such_session", detail="gone")
        if old.version != session.version:
            raise Conflict(code="session_changed", detail="changed since")
        self._check_phone(session)
        self.saves += 1
        new = msgspec.structs.replace(session, version=session.version + 1)
        self.kept[new.session_id] = new
        return new

    async def remove_session(self, session_id: str) -> bool:
        return self.kept.pop(session_id, None) is not None

    async def remove_old_sessions(self, *, before_ms: int, states: frozenset[SessionState]) -> list[str]:
        old = [
            one.session_id
            for one in self.kept.values()
            if (one.state in states or not one.is_active)
            and max(one.updated_at_ms, one.created_at_ms, one.active_at_ms or 0) < before_ms
        ]
        for session_id in old:
            del self.kept[session_id]
        return old

    def _check_phone(self, session: Session) -> None:
        if session.phone is None or not session.is_active:
            return
        for other in self.kept.values():
            if other.session_id != session.session_id and other.phone == session.phone and other.is_active:
                raise Conflict(code="phone_taken", detail="another session has this phone")
