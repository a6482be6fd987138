"""What each secret of a session is bound to when it is sealed: one that is moved to another place does not open."""


def secret_context(session_id: str) -> str:
    return f"session:{session_id}:secret"


def proxy_context(session_id: str) -> str:
    return f"session:{session_id}:proxy"


def half_context(session_id: str) -> str:
    return f"session:{session_id}:signing in"
