"""A client without a server: the APIs themselves are asked, in this process. Commands go so to a store or an archive that no
running Peik answers for."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

from peik.cli.client import Document, StreamedAnswer, document_for
from peik.errors import Unavailable
from peik.web.access import caller_named
from peik.web.operations import Streamed, Written, answer_here, api_name, declared

T = TypeVar("T")
COMMAND_LINE = caller_named("command line")


class InProcessClient:
    """Asks the methods of the APIs themselves, in this process: no server, no request. Who knows how to make the APIs of a place
    says so in `_made`."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._apis: dict[str, object] = {}

    def _made(self, api: str) -> object | None:
        """The API of this name. None: only a running Peik can answer it."""
        raise NotImplementedError

    def ask(self, handler: Callable[..., Awaitable[T]], *, timeout_s: float | None = None, **given: Any) -> T:
        return self._runner.run(self._answer(handler, given))

    async def _answer(self, handler: Callable[..., Awaitable[T]], given: Mapping[str, Any]) -> T:
        answer: T = await answer_here(self._api(handler), declared(handler), COMMAND_LINE, given)
        return answer

    def document(
        self, handler: Callable[..., Awaitable[object]], *, timeout_s: float | None = None, **given: Any
    ) -> Document:
        return document_for(self.ask(handler, **given))

    @contextlib.contextmanager
    def stream(self, handler: Callable[..., Awaitable[object]], **given: Any) -> Iterator[StreamedAnswer]:
        answer = self.ask(handler, **given)
        if isinstance(answer, Written):
            yield StreamedAnswer({name.lower(): value for name, value in answer.headers.items()}, iter([answer.body]))
            return
        assert isinstance(answer, Streamed), "an answer that comes in pieces"
        try:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            yield StreamedAnswer(headers, iter(lambda: self._runner.run(_next(answer)), b""))
        finally:
            self._runner.run(answer.chunks.aclose())

    def pause(self, seconds: float) -> None:
        self._runner.run(asyncio.sleep(seconds))

    def _api(self, handler: Callable[..., object]) -> object:
        name = api_name(handler)
        if name not in self._apis:
            made = self._made(name)
            if made is None:
                raise Unavailable(
                    code="not_running", detail="Only a running Peik can do that. Start it, or say where: --url."
                )
            self._apis[name] = made
        return self._apis[name]


async def _next(answer: Streamed) -> bytes:
    """Empty at the end."""
    return await anext(answer.chunks, b"")
