"""An API key and what it allows: how far (a scope), for which bots, until when. Values only; where keys lie is the store's."""

import hashlib
from typing import Literal

import msgspec

from peik.core.rate import Rate

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
