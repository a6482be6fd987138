"""Where commands are answered: by a running Peik over REST, or by the store itself. Both answer in the words of REST."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from peik.errors import BadInput

Document = dict[str, object]
Filters = Mapping[str, str]  # as in the query of GET /v1/letters
Attached = Sequence[tuple[str, Path]]  # a field of the call, and the file for it


def check_files(attached: Attached) -> None:
    """Raises BadInput before anything is sent or stored."""
    for field, path in attached:
        if not path.is_file():
            raise BadInput(code="no_file", detail=f"There is no file {path} to send as {field}.")


class Counter(Protocol):
    """Each answer is the JSON document of the REST API. Raises Problem in its codes."""

    place: str  # in words, for people
    is_running: bool  # whether a Peik stands behind it that sends

    def close(self) -> None: ...

    def accept(self, letter: Document, attached: Attached, on_bytes: Callable[[int], None]) -> Document: ...

    def letter(self, letter_id: str) -> Document: ...

    def wait(self, letter_id: str, timeout_s: float) -> Document:
        """The letter once it has ended, or as it stands when the time is over."""

    def letters(self, filters: Filters, *, cursor: str | None, limit: int) -> Document: ...

    def cancel(self, letter_id: str) -> Document: ...

    def retry(self, letter_id: str) -> Document: ...

    def resolve(self, letter_id: str, *, arrived: bool) -> Document: ...

    def retry_dead(self, filters: Filters) -> Document: ...

    def clear_dead(self, filters: Filters) -> Document: ...

    def stats(self) -> Document: ...

    def lanes(self, bot_id: str | None, chat: str | None, *, limit: int) -> Document: ...

    def chats(self, bot_id: str | None, *, cursor: str | None, limit: int) -> Document: ...

    def change_chat(self, bot_id: str, chat: str, change: Document) -> Document: ...

    def bots(self) -> Document: ...

    def add_bot(self, token: str, inbound: str) -> Document: ...

    def change_bot(self, bot_id: str, change: Document) -> Document: ...

    def remove_bot(self, bot_id: str) -> None: ...

    def routes(self) -> Document: ...

    def keys(self) -> Document: ...

    def create_key(self, wanted: Document) -> Document: ...

    def remove_key(self, key_id: str) -> None: ...
