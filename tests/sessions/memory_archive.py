"""The registry's part of an archive, in memory."""

import msgspec

from peik.archive_ports import Session, SessionFilter, SessionState
from peik.errors import Conflict, NotFound


class MemoryBook:
    def __init__(self) -> None:
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
