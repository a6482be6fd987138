"""A whole Peik in a thread of its own: store, engines, doors, and a simulated Telegram that it speaks to over a real socket.

It is asked over ASGI, so that bytes come in which no HTTP client would send, or over the socket that it listens on.
"""

import asyncio
import contextlib
import gc
import io
import logging
import random
import socket
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec
import structlog
import uvicorn

from peik.app import rest
from peik.app.dashboard import Dashboard
from peik.app.lifetime import running
from peik.app.middleware import Middleware
from peik.app.runtime import Runtime
from peik.app.serve import doorkeeper_of
from peik.core import events
from peik.gateway.app import Gateway
from peik.monitoring.log import EventLog
from peik.settings.config import load
from peik.testing import Limits, Options, SimServer, Telegram
from peik.web.connection import ServerExchange
from peik.web.server import KEEP_ALIVE_S, GuardedProtocol, GuardedServer
from tests.patience import PATIENCE_S

KEY = "test-key"
TOKEN = "7000001:AAtest"
BOT = 7000001
OTHER_TOKEN = "7000002:AAother"
OTHER_BOT = 7000002
_OPTIONS = Options(limits=Limits(on=False), accept_any_token=False)  # strangers are strangers, as at Telegram

T = TypeVar("T")
Message = MutableMapping[str, Any]
Pairs = Sequence[tuple[bytes, bytes]]


class Heard(msgspec.Struct, frozen=True):
    """One whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Resident:
    """A Peik that lives in its own thread until it is told to end, and answers whoever asks from any other."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._is_open = threading.Event()
        self._end = asyncio.Event()
        self._failure: BaseException | None = None
        self.telegram = Telegram(now=time.time, chance=random.Random(7), options=_OPTIONS)
        self.told: list[events.Event] = []
        self.log = io.StringIO()
        self.crashes: list[str] = []  # what nobody caught
        self.peik: Runtime
        self._thread = threading.Thread(target=self._live, name="peik")

    # ---- its life ----

    def start(self) -> None:
        self._thread.start()
        self._is_open.wait(PATIENCE_S)
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE_S)
        if self._failure is not None:
            raise self._failure

    def _live(self) -> None:
        try:
            self._loop.run_until_complete(self._run())
        except BaseException as error:  # noqa: BLE001  it is raised where the test can see it
            self._failure = error
        finally:
            self._is_open.set()
            self._loop.close()

    async def _run(self) -> None:
        self._loop.set_exception_handler(lambda _, context: self.crashes.append(str(context)))
        for token in (TOKEN, OTHER_TOKEN):
            self.telegram.bot(token)
        told = events.Events()
        told.listen(self.told.extend)
        told.listen(EventLog(level="debug", log=_log_into(self.log)))
        async with SimServer(self.telegram, "127.0.0.1", 0) as sim:
            flags = {
                "store": f"sqlite:///{self.folder}/peik.db",
                "api_root": sim.url,
                "bot_tokens": f"{TOKEN},{OTHER_TOKEN}",
                "inbound": "off",
                "pace": "off",
                "wait_max": "200ms",
                "gateway_wait": "2s",
                "grace": "1s",
                "rate_ip": "off",  # thousands of requests come from here without a key, or with a wrong one
                "rate_wrong": "off",
                **self._settings,
            }
            config = load(flags, environment={}, folder=self.folder)
            async with running(config, events=told, chance=random.Random(1), is_alone=True) as self.peik:
                self.rest_app = rest.build(self.peik, KEY)
                dashboard = Dashboard(self.peik, KEY, self.rest_app)
                self.app = doorkeeper_of(self.peik, self.rest_app, Gateway(self.peik, dashboard))
                await self._serve()

    async def _serve(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            self.app,
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        self.server = GuardedServer(config)
        serving = asyncio.ensure_future(self.server._serve([listener]))
        self._is_open.set()
        await self._end.wait()
        self.peik.inbox.service.end()
        self.server.should_exit = True
        await serving

    # ---- asking it ----

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def ask(
        self,
        verb: str,
        path: str,
        *,
        query: bytes = b"",
        headers: Pairs = (),
        body: bytes | Sequence[bytes] = b"",
        is_cut: bool = False,
        host: str = "127.0.0.1",
    ) -> Heard | None:
        """The answer; None if nobody was left to hear one. A body may come in pieces, or break off after them."""
        pieces = [body] if isinstance(body, bytes) else list(body)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": verb,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode("utf-8", "surrogatepass"),
            "root_path": "",
            "query_string": query,
            "headers": [(name.lower(), value) for name, value in headers],
            "client": (host, 1),
            "server": ("127.0.0.1", 80),
        }
        return self.run(_exchange(self.app, scope, pieces, is_cut=is_cut))

    def rest(
        self,
        verb: str,
        path: str,
        *,
        key: str | None = KEY,
        json: object = None,
        query: str = "",
        host: str = "127.0.0.1",
    ) -> Heard:
        headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
        body = b"" if json is None else msgspec.json.encode(json)
        heard = self.ask(verb, path, query=query.encode(), headers=headers, body=body, host=host)
        assert heard is not None
        return heard

    async def asgi(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        """The same Peik as an ASGI application of another event loop."""
        if scope["type"] != "http":
            raise NotImplementedError("nothing but requests")
        pieces = []
        while True:
            message = await receive()
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                break
        answering = _exchange(self.app, dict(scope), pieces, is_cut=False)
        heard = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(answering, self._loop))
        assert heard is not None
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in heard.headers.items()]
        await send({"type": "http.response.start", "status": heard.status, "headers": raw})
        await send({"type": "http.response.body", "body": heard.body})

    # ---- what it holds ----

    def letters(self) -> int:
        """How many letters there are or ever were."""
        return sum(
            sum(msgspec.structs.astuple(tally)) for tally in self.run(self.peik.outbox.service.tallies()).values()
        )

    def spooled(self) -> set[str]:
        folder = self.folder / "peik.db.files"
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()

    def state(self) -> dict[str, list[tuple[object, ...]]]:
        """Every row of every table, read beside the owner; not what Peik writes of itself (who tried what, figures)."""
        # Not by the standard library's sqlite3: when one of two SQLite libraries in a process closes a file, the locks of the
        # other are gone, and what it has mapped may be cut off (a bus error).
        path = str(self.folder / "peik.db")
        with contextlib.closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as database:
            tables = [str(name) for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            found = {name: sorted(database.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr) for name in tables}
        for table in ("papers", "paper_shelves"):
            found[table] = [
                row for row in found[table] if row[0] not in ("audit", "minutes", "figures_5m", "figures_1h", "alerts")
            ]
        return found

    def surprises(self) -> list[events.Event]:
        return [event for event in self.told if isinstance(event, events.Surprise)]


def _log_into(place: io.StringIO) -> structlog.typing.FilteringBoundLogger:
    log: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(file=place),
        processors=[structlog.processors.JSONRenderer(ensure_ascii=False)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )
    return log


async def _exchange(app: Any, scope: Message, pieces: Sequence[bytes], *, is_cut: bool) -> Heard | None:
    """One request and its whole answer. A stream is left after its first piece: it never ends by itself."""
    if len(pieces) == 1 and not is_cut and (heard := await _taken_at_once(app, scope, pieces[0])) is not None:
        return heard
    messages = [
        {"type": "http.request", "body": piece, "more_body": is_cut or number < len(pieces)}
        for number, piece in enumerate(pieces or [b""], 1)
    ]
    messages.reverse()
    left = asyncio.Event()
    status, headers, body = 0, {}, b""

    async def receive() -> Message:
        if messages:
            return messages.pop()
        if not is_cut:
            await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            assert status == 0, "two answers to one request"
            status = message["status"]
            headers.update({name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]})
            return
        body += message.get("body", b"")
        if not message.get("more_body", False) or headers.get("content-type", "").startswith("text/event-stream"):
            left.set()

    async with asyncio.timeout(PATIENCE_S):
        try:
            await app(scope, receive, send)
        except Exception:
            if status != 500:  # else it is answered already, and raised once more for the server's log
                raise
    return Heard(status, headers, body) if status else None


class _Wire:
    """A connection of which nothing is but what was written to it."""

    is_full = False

    def __init__(self) -> None:
        self.heard: asyncio.Future[Heard] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        self.heard.set_result(Heard(int(first.split(" ")[1]), {name: value for name, _, value in pairs}, body))

    def lines(self) -> bytes:
        return b""

    def read_on(self) -> None: ...

    async def taken(self) -> None: ...

    def answered(self, exchange: ServerExchange) -> None: ...


async def _taken_at_once(app: Middleware, scope: Message, body: bytes) -> Heard | None:
    """The answer to a request that was whole from its beginning, if it was taken without a task; None: it has to be asked."""
    wire = _Wire()
    exchange = ServerExchange(wire, scope, keeps=True, awaits_word=False, is_bare=False)
    exchange.take(body)
    exchange.end()
    if not app.take_at_once(exchange):
        return None
    async with asyncio.timeout(PATIENCE_S):
        return await wire.heard


@contextlib.contextmanager
def resident(**settings: str) -> Iterator[Resident]:
    with tempfile.TemporaryDirectory(prefix="peik-hostile-") as folder:
        one = Resident(Path(folder), settings)
        one.start()
        try:
            yield one
        finally:
            one.end()


@contextlib.contextmanager
def kept_below(size: int) -> Iterator[None]:
    """At no moment is more than so much taken in addition."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < size, f"{(peak - before) >> 10} KB"
