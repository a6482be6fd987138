"""What somebody who looks at the dashboard may do. Each role includes those before it."""

import enum

from peik.core.key import Key, Scope


class Role(enum.StrEnum):
    VIEWER = "viewer"  # sees
    OPERATOR = "operator"  # sends, retries, cancels, runs broadcasts
    ADMIN = "admin"  # bots, keys, people, settings

    def allows(self, needed: "Role") -> bool:
        return _LEVEL[self] >= _LEVEL[needed]


_LEVEL = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}
_SCOPE: dict[Scope, Role] = {"read": Role.VIEWER, "send": Role.OPERATOR, "admin": Role.ADMIN}


def role_of(key: Key) -> Role:
    """What the owner of an API key is at the dashboard."""
    return max((_SCOPE[scope] for scope in key.scopes), key=_LEVEL.__getitem__)
