"""The archive itself, without a running Peik: the routes of REST, asked in this process. No session runs here; a Peik on the
same archive sees at its next look what was changed."""

import asyncio
import contextlib
import logging
import secrets
import urllib.parse
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.routing import Route, Router

from peik.accounts.api import SessionRoutes
from peik.accounts.wiring import desk_alone
from peik.archive.api import MessageRoutes
from peik.archive.wiring import beside
from peik.cli.accounts import document_of
from peik.cli.client import Document, Filters, StreamedAnswer
from peik.clock import SystemClock
from peik.errors import Conflict, StartError, Unavailable
from peik.settings.config import Config, shown_address
from peik.web.access import Access

if TYPE_CHECKING:
    from peik.accounts.session_files import Looked

T = TypeVar("T")
_NEEDS_NODE = ("/restart", "/log-out")


class ArchiveWay:
    is_running = False

    def __init__(
        self, config: Config, *, may_create: bool, has_keys: bool, note: Callable[[str], None] = lambda words: None
    ) -> None:
        """Opens the archive. `has_keys` False: nothing sealed is opened or made, so that no key is needed. Raises Unavailable
        if there is none or it cannot be used, and Conflict if nothing in the settings asks for accounts."""
        self.place = place_of(config, may_create=may_create)
        self._key = secrets.token_urlsafe()
        self._stack = contextlib.AsyncExitStack()
        self._runner = asyncio.Runner()
        # What a library says beside its answers is for logs, and a command has none.
        logging.getLogger("telethon").addHandler(logging.NullHandler())
        try:
            if has_keys:
                self._run(self._open(config, note))
            else:
                self._run(self._open(_without_keys(config), lambda words: None))
        except BaseException as error:
            self._runner.close()
            if isinstance(error, StartError):
                raise Unavailable(code="archive_unusable", detail=str(error)) from None
            raise

    async def _open(self, config: Config, note: Callable[[str], None]) -> None:
        self._desk = await self._stack.enter_async_context(desk_alone(config, on_notice=note))
        access = Access(self._key, find=lambda digest: None, wall_ms=SystemClock().wall_ms)
        table = (*SessionRoutes(self._desk, access).table(), *MessageRoutes(self._desk, access).table())
        self._routes = Router([Route(path, endpoint, methods=[verb]) for verb, path, endpoint, _, _ in table])

    def close(self) -> None:
        try:
            self._run(self._stack.aclose())
        finally:
            self._runner.close()

    def pause(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    # ---- asking ----

    def call(
        self,
        verb: str,
        path: str,
        query: Filters | None = None,
        *,
        body: Document | None = None,
        timeout_s: float | None = None,
    ) -> Document:
        if path.endswith(_NEEDS_NODE):
            raise Unavailable(
                code="not_running",
                detail="Only the Peik that runs the account can do that. Start it, or say where: --url.",
            )
        return self._run(self._call(verb, path, query or {}, body))

    async def _call(self, verb: str, path: str, query: Filters, body: Document | None) -> Document:
        answer = _Answer()
        payload = b"" if body is None else msgspec.json.encode(body)
        await self._routes(self._scope(verb, path, query, {}), _receiving(payload), answer.keep)
        return document_of(answer.body)

    @contextlib.contextmanager
    def stream_of(
        self, path: str, query: Filters, *, headers: Mapping[str, str] | None = None
    ) -> Iterator[StreamedAnswer]:
        pieces = self._run(_begun(self._routes, self._scope("GET", path, query, headers or {})))
        try:
            yield StreamedAnswer(pieces.headers, iter(lambda: self._run(pieces.next()), b""))
        finally:
            self._run(pieces.close())

    def _scope(self, verb: str, path: str, query: Filters, headers: Mapping[str, str]) -> dict[str, Any]:
        sent = {**headers, "Authorization": f"Bearer {self._key}"}
        return {
            "type": "http",
            "http_version": "1.1",
            "method": verb,
            "path": urllib.parse.unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urllib.parse.urlencode(query).encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        }

    # ---- files ----

    def take_in(
        self,
        paths: Sequence[Path],
        *,
        agent_id: str,
        check: bool,
        keep_files: bool,
        on_each: "Callable[[Looked], None]",
    ) -> None:
        async def work() -> None:
            async for looked in self._desk.import_files(paths, agent_id=agent_id, check=check, keep_files=keep_files):
                on_each(looked)

        self._run(work())


class _Answer:
    """A whole answer of a route."""

    def __init__(self) -> None:
        self.body = b""

    async def keep(self, message: Any) -> None:
        self.body += message.get("body", b"")


def _receiving(payload: bytes) -> Callable[[], Coroutine[Any, Any, dict[str, Any]]]:
    """The request, and then nothing: who asks does not go away."""
    asked = iter([{"type": "http.request", "body": payload, "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in asked:
            return message
        await asyncio.Event().wait()
        raise AssertionError("nobody leaves")

    return receive


class _Pieces:
    """An answer that is taken piece by piece. The next one is made only after the last was done with."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.task: asyncio.Task[None] | None = None
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._is_in_hand = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        elif message.get("body"):
            await self._queue.put(message["body"])
            await self._queue.join()

    async def next(self) -> bytes:
        """Empty at the end. Raises what the route raised."""
        if self._is_in_hand:
            self._queue.task_done()
        self._is_in_hand = False
        assert self.task is not None, "it was begun"
        getting = asyncio.create_task(self._queue.get())
        try:
            await asyncio.wait([getting, self.task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not getting.done():
                getting.cancel()
        if not getting.done():
            self.task.result()
            return b""
        self._is_in_hand = True
        return getting.result()

    async def close(self) -> None:
        assert self.task is not None, "it was begun"
        self.task.cancel()
        await asyncio.wait([self.task])
        if not self.task.cancelled():
            self.task.exception()  # it was told by `next`, or nobody asked for it


async def _begun(routes: Router, scope: dict[str, Any]) -> _Pieces:
    """Raises what a route raises before it answers."""
    pieces = _Pieces()
    has_head = asyncio.Event()

    async def send(message: Any) -> None:
        has_head.set()
        await pieces.send(message)

    pieces.task = asyncio.create_task(routes(scope, _receiving(b""), send))
    head = asyncio.create_task(has_head.wait())
    await asyncio.wait([head, pieces.task], return_when=asyncio.FIRST_COMPLETED)
    head.cancel()
    if pieces.task.done():
        pieces.task.result()
    return pieces


def place_of(config: Config, *, may_create: bool) -> str:
    """The archive in words for people. Raises Unavailable for a file that is not there, and Conflict if none is asked for."""
    if not config.has_sessions:
        raise Conflict(
            code="no_sessions",
            detail="Nothing in the settings asks for accounts: set TELEGRAM_API_ID and TELEGRAM_API_HASH from "
            "my.telegram.org, or PEIK_ARCHIVE.",
        )
    url = config.archive or beside(config.store)
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite":
        return shown_address(url)
    path = Path(rest[1:]).absolute()
    if not may_create and not path.exists():
        raise Unavailable(
            code="no_store",
            detail=f"There is no archive {path}. Start `peik serve` there, or name another one: --archive.",
        )
    return str(path)


def _without_keys(config: Config) -> Config:
    return msgspec.structs.replace(
        config,
        archive=config.archive or beside(config.store),
        telegram_api_id=None,
        telegram_api_hash=None,
        secret_key=None,
        secrets_plain=True,
    )
