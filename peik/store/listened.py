"""What the stores share, whatever is below: who listens is told of what a commit changed, and who waits is answered."""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from peik.core.letter import Letter
from peik.ports import Followed, LetterView, StoreListener, Stub
from peik.store.change_rules import Changed
from peik.store.commit import Slot

T = TypeVar("T")

LANE_COUNTED_MAX = 10_000  # people want to know "many", not to wait for the exact number


def node_name() -> str:
    """Of this process, and of this opening of a store: whoever comes back under the same pid is another."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"


class Committed(Protocol):
    """What a commit changed in lanes, besides what was accepted. Told once, to whoever comes first, and empty then."""

    superseded: list[Stub]
    joined: list[Stub]
    followed: list[Followed]
    blobs_freed: list[str]


class Listened:
    """A store that commits in batches of slots, as one who is listened to."""

    def __init__(self, on_blobs_freed: Callable[[Sequence[str]], None]) -> None:
        self._on_blobs_freed = on_blobs_freed
        self._listener: StoreListener | None = None

    def listen(self, listener: StoreListener) -> None:
        self._listener = listener

    def _offer(self, slots: Sequence[Slot]) -> None:
        fresh = [
            slot.letter for slot in slots if slot.repeat_of is None and not slot.is_apart and not slot.is_superseded
        ]
        self._rejoin(fresh)

    def _rejoin(self, letters: Sequence[Letter]) -> None:
        if letters and self._listener is not None:
            self._listener.on_accepted(letters)

    def _tell_changed(self, change: Changed) -> None:
        """Somebody changed a letter that waited."""
        if self._listener is None:
            return
        if change.left is not None:
            self._listener.on_removed([change.left])
        if change.stands is not None:
            self._listener.on_joined([change.stands])
        if change.came is not None:
            self._listener.on_accepted([change.came])

    def _withdraw(self, views: Sequence[LetterView]) -> None:
        """These were ended by somebody's hand."""
        stubs = [Stub(letter_id=one.id, bot_id=one.bot_id, lane=(one.chat, one.thread)) for one in views]
        if stubs and self._listener is not None:
            self._listener.on_removed(stubs)

    def _tell(self, batch: Committed) -> None:
        """Let the engines know what a commit changed in their lanes. Once per batch, whoever comes first."""
        if not (batch.superseded or batch.joined or batch.followed or batch.blobs_freed):
            return
        if self._listener is not None:
            if batch.superseded:
                self._listener.on_removed(batch.superseded)
            if batch.joined:
                self._listener.on_joined(batch.joined)
            if batch.followed:
                self._listener.on_followed(batch.followed)
        if batch.blobs_freed:
            self._on_blobs_freed(batch.blobs_freed)
        batch.superseded, batch.joined, batch.followed, batch.blobs_freed = [], [], [], []


def answer(future: "asyncio.Future[T]", value: T) -> None:
    """Nobody may be waiting any more. The one who waits wakes only after the listeners have been told."""
    if not future.done():
        future.set_result(value)


def fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
