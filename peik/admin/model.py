"""An API key and what it allows: how far (a scope), for which bots, until when. Values only; where keys lie is the store's."""

import enum
import hashlib
import re
from typing import Literal

import msgspec

from peik.core.events import Event
from peik.core.units import Rate

Scope = Literal["read", "send", "admin"]

# Each scope includes those before it: which ones are enough for what.
_ENOUGH: dict[Scope, frozenset[Scope]] = {
    "read": frozenset({"read", "send", "admin"}),
    "send": frozenset({"send", "admin"}),
    "admin": frozenset({"admin"}),
}


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is remembered: by the digest of its text, which itself is shown once and kept nowhere."""

    id: int
    name: str
    digest: bytes
    scopes: tuple[Scope, ...]
    bot_ids: frozenset[int] | None = None  # None: every bot, also those to come
    created_at_ms: int = 0
    expires_at_ms: int | None = None
    last_used_at_ms: int | None = None
    webhook_url: str | None = None
    rate: Rate | None = None  # None: as PEIK_RATE_KEY says for all

    def __repr__(self) -> str:
        return f"Key({self.id})"

    def allows(self, scope: Scope) -> bool:
        return not _ENOUGH[scope].isdisjoint(self.scopes)

    def serves(self, bot_id: int) -> bool:
        return self.bot_ids is None or bot_id in self.bot_ids

    def is_over(self, at_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= at_ms


def digest_of(text: str) -> bytes:
    """How a key is remembered.

    A plain fast hash is right here: a key is 256 random bits, so there is nothing to guess faster by hashing faster.
    Argon2 slows down guessing of what people choose; on every request it would only slow down us.
    """
    return hashlib.blake2b(text.encode(), digest_size=32).digest()


# Whether a key that a person chose can be guessed. What Peik makes itself is 256 random bits, and always passes.


CHARS_MIN = 20
KINDS_MIN = 8  # different characters: "aaaaaaaaaaaaaaaaaaaa" is long, too
# In one of twenty characters, a word like these is what is left of an example or a hurry.
_WORDS = re.compile(
    r"change.?me|changeit|password|passw0rd|secret|admin|default|example|letmein|qwerty|test|demo|dummy|placeholder|"
    r"your.?key|replace|peik.?key|token|12345|abcdef|insert",
    re.IGNORECASE,
)
_PREFIX = "peik_"
_RANDOM_CHARS = 40  # as many random ones may hold any word by chance


def weakness_of(key: str) -> str | None:
    """Why it can be guessed, without a part of it. None: it can not, as far as its looks tell."""
    bare = key.removeprefix(_PREFIX)
    if len(bare) < CHARS_MIN:
        return f"it has fewer than {CHARS_MIN} characters"
    if len(set(bare)) < KINDS_MIN:
        return f"it has fewer than {KINDS_MIN} different characters"
    if _is_repeated(bare):
        return "it is one short piece again and again"
    if len(bare) < _RANDOM_CHARS and _WORDS.search(bare):
        return "there is a well-known word in it"
    return None


def _is_repeated(text: str) -> bool:
    """Found within itself, moved by less than half."""
    return 0 < (text + text).find(text, 1) <= len(text) // 2


# What somebody who looks at the dashboard may do. Each role includes those before it.


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


# What can be observed of the people who run Peik.


class ActionTaken(Event, frozen=True, kw_only=True):
    """Somebody did something to Peik, by whichever door: a line of the audit log."""

    who: str
    action: str
    target: str
    is_done: bool
