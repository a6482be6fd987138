"""Where commands are answered: by a running Peik over REST, or by the store itself. Both answer in the words of REST."""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from peik.errors import BadInput

T = TypeVar("T")
ANSWER_S = 60.0
WAIT_S = 20.0  # one request of a longer wait: what stands in between may cut off a silent connection
Document = dict[str, object]
Filters = Mapping[str, str]  # as in the query of GET /v1/letters
Attached = Sequence[tuple[str, Path]]  # a field of the call, and the file for it


def document_for(answer: object) -> Document:
    """An answer of an API as REST writes it."""
    return {} if answer is None else msgspec.json.decode(msgspec.json.encode(answer), type=Document)


def some(**words: str | None) -> dict[str, str]:
    """Of a query, what was given."""
    return {name: word for name, word in words.items() if word is not None}


def page_of(cursor: str | None, limit: int) -> dict[str, str]:
    return some(cursor=cursor, limit=str(limit))


def check_files(attached: Attached) -> None:
    """Raises BadInput before anything is sent or stored."""
    for field, path in attached:
        if not path.is_file():
            raise BadInput(code="no_file", detail=f"There is no file {path} to send as {field}.")


def ended(
    client: "PeikClient",
    handler: Callable[..., Awaitable[object]],
    *,
    is_over: Callable[[Document], bool],
    timeout_s: float,
    **given: Any,
) -> Document:
    """What is asked for once it has ended, or as it stands when the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        wait_s = max(0.0, min(WAIT_S, deadline - time.monotonic()))
        query = {"wait": f"{wait_s:.3f}s"} if wait_s else {}
        found = client.document(handler, query=query, timeout_s=wait_s + ANSWER_S, **given)
        if is_over(found) or time.monotonic() >= deadline:
            return found


class StreamedAnswer(NamedTuple):
    """An answer that comes in pieces. Names of headers are in small letters."""

    headers: Mapping[str, str]
    chunks: Iterator[bytes]


class PeikClient(Protocol):
    """Asks for operations by the methods that do them, with what those take, by name:
    `client.document(JobApi.get_job, job_id="7")`. A query may be given as words, and a body as a document. Raises Problem in
    the codes of REST."""

    place: str  # in words, for people
    is_running: bool  # whether a Peik stands behind it that sends

    def ask(self, handler: Callable[..., Awaitable[T]], *, timeout_s: float | None = ANSWER_S, **given: Any) -> T:
        """The answer as a value."""

    def document(
        self, handler: Callable[..., Awaitable[object]], *, timeout_s: float | None = ANSWER_S, **given: Any
    ) -> Document:
        """The answer as REST writes it; empty if there is none."""

    def stream(
        self, handler: Callable[..., Awaitable[object]], **given: Any
    ) -> AbstractContextManager[StreamedAnswer]: ...

    def pause(self, seconds: float) -> None:
        """Whatever runs behind it goes on meanwhile."""

    def close(self) -> None: ...

    def accept(self, letter: Document, attached: Attached, on_bytes: Callable[[int], None]) -> Document: ...
