"""What goes to Telegram and comes from it: calls and their files. Who carries them `peik.app.build` knows."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from peik.core.outcome import Reply
from peik.core.token import Token


class Enclosure(msgspec.Struct, frozen=True, kw_only=True):
    """One file that travels with a call. It lies in the spool until its letter has ended."""

    field: str  # the multipart field: "photo", or the name after attach://
    path: Path
    filename: str
    content_type: str
    size_bytes: int


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One try on its way out: everything the carrier needs, and nothing else."""

    token: Token
    method: str
    params: bytes  # a JSON object
    enclosures: Sequence[Enclosure] = ()
    timeout_s: float
    letter: tuple[int, int] | None = (
        None  # (id, number): the same for each try of a letter; one that is sent again has another
    )


class Carrier(Protocol):
    """Takes calls to Telegram. It answers with facts and never raises for the network."""

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        """Begin one try; `done` is called exactly once, from the event loop, never from within this call. It may be called while
        the answer's connection is still being read, so it must leave the next try to a later turn: what closes the connection
        behind the answer has not been seen yet."""

    async def carry(self, request: Request) -> Reply:
        """The same for callers that wait."""

    async def close(self) -> None:
        """End idle connections, and fail what is still in flight with what is known of it."""


class Interrupted(Exception):
    """A download ended before its end. What came so far is right."""
