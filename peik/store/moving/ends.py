"""What moving asks of a store, the same of all three: read in pages, write in batches, say who uses it."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from peik.node_ports import FileStore
from peik.store.moving.progress import Progress
from peik.store.moving.records import Record


class Page(msgspec.Struct, frozen=True):
    records: list[Record]
    cursor: str | None  # where the next page begins; None: this was the last


class End(Protocol):
    @property
    def shown(self) -> str:
        """Where it is, without a password. Two ends of the same name are the same store."""

    @property
    def files(self) -> FileStore: ...

    async def open(self, *, is_target: bool) -> None:
        """A target is made if it is not there. Raises StartError or Problem."""

    async def close(self) -> None: ...

    async def used_by(self) -> str | None:
        """Who serves it now, as the rest of a sentence; None: nobody."""

    async def lives(self) -> int:
        """Rises whenever somebody begins to serve it."""

    async def look_again(self) -> None:
        """Read from now on what is there now, and not what was there when the end was opened."""

    async def counts(self) -> dict[str, int]:
        """How many records of each kind are here."""

    async def page(self, kind: str, cursor: str | None, limit: int) -> Page:
        """The next records of a kind, about as many as the limit says. Whoever comes back with a cursor goes on there."""

    async def job_states(self) -> dict[str, int]:
        """How many jobs are in each state in which there are any."""

    async def blobs(self) -> list[str]:
        """The files that letters still need, in order."""

    async def progress(self) -> Progress | None:
        """Of the last move into this store; None: there was none."""

    async def write(self, kind: str, records: Sequence[Record], progress: Progress) -> None:
        """Records and progress in one commit. Raises Conflict if another process has taken the move over."""

    async def begin(self, progress: Progress) -> None:
        """Keep progress, whoever has kept some before: from now on this process moves."""

    async def moved_to(self) -> str | None:
        """Where everything here was moved to; None: nowhere."""

    async def note_moved(self, target: str | None) -> None:
        """Keep where everything was moved to, so that this store is not served beside that one. None takes it back."""

    def fit(self, record: Record) -> Record:
        """A record as it will be read again from this store."""

    def explain(self, error: BaseException) -> BaseException:
        """This store's errors in our words; anything else as it is."""
