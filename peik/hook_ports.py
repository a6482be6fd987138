"""Webhooks that hear of ended letters: what waits for them, where, and who takes it there."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from peik.core.letter import State
from peik.ports import LetterView


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """An end of a letter that somebody still has to be told."""

    id: int
    endpoint: str  # what waits and fails together; it may be shown, an address may not: it can hold a secret
    url: str
    secret: str | None  # of its key; None: signed with Peik's own
    letter_id: int
    state: State  # how the letter ended; it may have been retried since
    at_ms: int
    tries: int

    def __repr__(self) -> str:
        return f"Hook({self.id} to {self.endpoint})"


class HookContent(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be said: the body of the first try, or before that the letter. Neither: the letter is gone."""

    body: str | None = None
    letter: LetterView | None = None


class HookDeferred(msgspec.Struct, frozen=True, kw_only=True):
    """A hook whose try failed."""

    hook_id: int
    due_at_ms: int
    tries: int
    body: str


class HooksDue(msgspec.Struct, frozen=True, kw_only=True):
    """A look at endpoints in the order of their names. `last` None: the end was reached."""

    hooks: list[Hook]
    last: str | None
    next_at_ms: int | None  # when the next hook is due, at any endpoint


class HookStore(Protocol):
    """Where hooks wait. One is stored in the very commit that ends its letter, and stays until `settle_hooks`."""

    async def hooks_due(self, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue:
        """What is due at the endpoints after this one; of each endpoint the oldest."""

    async def hook_content(self, hook: Hook) -> HookContent: ...

    async def settle_hooks(self, over: Sequence[int], deferred: Sequence[HookDeferred]) -> None:
        """Forget those that are over, delivered or given up, and put off the others."""

    async def secret(self, name: str, candidate: str) -> str:
        """What was kept under this name; the candidate, kept from now on, if there was nothing."""


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a POST: a status, or 0 and why there is none."""

    status: int = 0
    why: str = ""


class Poster(Protocol):
    """Takes messages to webhooks. It answers with facts and never raises for the network."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float) -> Posted: ...
