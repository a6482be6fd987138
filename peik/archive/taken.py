"""What the registry refuses, in the same words on every archive."""

from peik.archive_ports import Session
from peik.errors import Conflict, NotFound


def taken_id(session: Session) -> Conflict:
    return Conflict(
        code="session_exists", detail=f"There is a session {session.session_id} already. Choose another id."
    )


def taken_phone(session: Session) -> Conflict:
    return Conflict(
        code="phone_taken",
        detail="Another active session has this phone. Deactivate or remove it first, or sign in with that one.",
    )


def was_changed(session: Session) -> Conflict:
    return Conflict(
        code="session_changed",
        detail=f"The session {session.session_id} was changed meanwhile. Read it again and repeat.",
    )


def gone(session: Session) -> NotFound:
    return NotFound(code="no_such_session", detail=f"There is no session {session.session_id}.")
