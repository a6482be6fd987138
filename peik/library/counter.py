"""Where the library hands letters in: at a Peik in this process, or at one far away. One small protocol for both."""

from collections.abc import Sequence
from typing import Any, Protocol

from peik.desk import Call
from peik.library.files import Parcel
from peik.library.handlers import Handlers
from peik.library.letters import Letter, Page, QueueStats, Receipt
from peik.ports import LetterFilter


class Counter(Protocol):
    """Raises what `peik.errors` draws, the same on both sides."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def serve(self, handlers: Handlers) -> None:
        """Hand updates to these from now on; called again when there are more of them."""

    async def until_stopped(self) -> None:
        """Until the process is told to end."""

    async def accept(self, calls: Sequence[Call]) -> list[Letter]:
        """All of them in one commit, or none. They are durable when this returns."""

    async def accept_with_files(self, call: Call, parcels: Sequence[Parcel]) -> Letter: ...

    async def letter(self, letter_id: int) -> Receipt: ...

    async def wait(self, letter_id: int, timeout_s: float) -> Receipt:
        """The letter once it has ended, or as it stands when the time is over."""

    async def find(self, wanted: LetterFilter, *, before: int | None, limit: int) -> Page: ...

    async def cancel(self, letter_id: int) -> Receipt: ...

    async def cancel_all(self, wanted: LetterFilter) -> int: ...

    async def change(self, letter_id: int, *, priority: int | None, send_at_ms: int | None) -> Receipt: ...

    async def retry(self, letter_id: int) -> Receipt: ...

    async def resolve(self, letter_id: int, *, arrived: bool) -> Receipt: ...

    async def retry_dead(self, wanted: LetterFilter) -> int: ...

    async def clear_dead(self, wanted: LetterFilter) -> int: ...

    async def stats(self) -> QueueStats: ...

    async def forget(
        self, *, user_id: int | None, name: str | None, bot_id: int | None, dry_run: bool
    ) -> dict[str, Any]:
        """As `POST /v1/forget` answers."""

    async def note_handled(self, bot_id: int, messages: Sequence[tuple[int, int]]) -> int:
        """(chat id, message id) of what the program has handled itself, over MTProto. How many were here."""
