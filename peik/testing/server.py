"""The simulated Telegram over real HTTP. It plays exchanges on sockets: clients meet true resets, silences, closed ports."""

import argparse
import asyncio
import json
import random
import re
import signal
import socket
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable, Coroutine
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

import httptools
import msgspec

from peik.testing import control, wire
from peik.testing.answer import Answer, Params, Pending, Refusal, UploadedFile, failure
from peik.testing.faults import MIB, PLAIN, Exchange, How, Kind, Options
from peik.testing.media import URL_BYTES_MAX
from peik.testing.telegram import Telegram
from peik.testing.updates import PushResult
from peik.testing.webhooks import WebhookCheck
from peik.testing.wire import SimConnection, SimRequest, rendered, reset_on_close
from peik.testing.world import KINDS, Push

# One listening port that can be closed and opened again on its number, and the faults that connections meet at it.


ACCEPTS_MAX = 100  # in one turn of the loop
ACCEPT_PAUSE_S = 0.1


class SimGate:
    """A port and the connections through it. `is_faulty`: the faults of connections strike here."""

    def __init__(
        self,
        telegram: Telegram,
        *,
        respond: Callable[[SimConnection, SimRequest, bool], None],
        spawn: Callable[[Coroutine[object, object, None]], None],
        is_faulty: bool,
    ) -> None:
        self._telegram = telegram
        self._respond = respond
        self._spawn = spawn
        self._is_faulty = is_faulty
        self._address: tuple[str, int] = ("", 0)
        self._anchor: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._entering: set[socket.socket] = set()  # accepted, and no connection yet
        self._connections: set[SimConnection] = set()

    @property
    def body_bytes_max(self) -> int:
        return self._telegram.options.upload_bytes_max + 2 * MIB

    def bind(self, host: str, port: int) -> int:
        """Take the port. A bound socket that never listens keeps it ours while we refuse connections."""
        self._anchor = _bound(host, port)
        self._address = (host, self._anchor.getsockname()[1])
        return self._address[1]

    def open(self) -> None:
        """Listen. From here on the kernel takes connections in, even before the event loop serves them."""
        if self._listener is None and self._anchor is not None:
            self._listener = _bound(*self._address)
            self._listener.settimeout(0.0)
            self._listener.listen(1024)
            self._attend(self._listener)

    def _attend(self, listener: socket.socket) -> None:
        if self._listener is listener:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Take in who waits at the door.

        Not by asyncio's Server: one that is closed between its accept and the task that follows forgets the socket, and
        the client hangs where it should be reset.
        """
        for _ in range(ACCEPTS_MAX):
            try:
                peer, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no more files to be had: look again when some may have been closed
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(ACCEPT_PAUSE_S, self._attend, listener)
                return
            peer.settimeout(0.0)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._entering.add(peer)
            self._spawn(self._take_in(peer))

    async def _take_in(self, peer: socket.socket) -> None:
        if peer not in self._entering:
            return  # reset before we came to it
        self._entering.discard(peer)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: SimConnection(self), peer)

    def shut(self, *, for_good: bool) -> None:
        """Stop listening: from here on clients are refused."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        if for_good:
            self.reset_all()
            if self._anchor is not None:
                self._anchor.close()
                self._anchor = None

    def reset_all(self) -> None:
        for peer in self._entering:
            reset_on_close(peer)
            peer.close()
        self._entering.clear()
        for connection in list(self._connections):
            connection.reset()

    # As the host of connections

    def arrived(self, connection: SimConnection) -> None:
        faults = self._telegram.faults
        self._connections.add(connection)
        if not self._is_faulty or not faults.any_connection:
            return
        if faults.is_live(Kind.DARK):
            connection.reset()  # it was in the doorway when the light went out
        elif faults.connection(Kind.RESET_ON_ACCEPT) is not None:
            self._telegram.counters.faults[Kind.RESET_ON_ACCEPT.value] += 1
            connection.reset()
        else:
            self._watch_idling(connection)

    def left(self, connection: SimConnection) -> None:
        self._connections.discard(connection)

    def respond(self, connection: SimConnection, request: SimRequest) -> None:
        telegram = self._telegram
        if self._is_faulty and telegram.faults.any_connection and self._is_worn(connection, Kind.STALE):
            telegram.counters.lost_before += 1
            connection.reset()
        else:
            self._respond(connection, request, self._is_faulty)

    def answered(self, connection: SimConnection) -> None:
        faults = self._telegram.faults
        if not self._is_faulty or not faults.any_connection:
            return
        if self._is_worn(connection, Kind.CLOSE_AFTER):
            connection.end()
            return
        self._watch_idling(connection)

    def _watch_idling(self, connection: SimConnection) -> None:
        standing = self._telegram.faults.standing
        idle = next((fault for fault in standing if fault.kind is Kind.CLOSE_IDLE), None)
        if idle is not None:
            connection.idle_timer = asyncio.get_running_loop().call_later(idle.idle_s, connection.end)

    def _is_worn(self, connection: SimConnection, kind: Kind) -> bool:
        """Has this connection had as many answers as a standing fault of the kind allows it?"""
        faults = self._telegram.faults
        worn = any(fault.kind is kind and connection.served >= fault.requests for fault in faults.standing)
        if not worn or faults.connection(kind) is None:
            return False
        self._telegram.counters.faults[kind.value] += 1
        return True


def _bound(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


NOT_FOUND = failure(Refusal(404, "Not Found"))
WRONG_VERB = failure(Refusal(405, "Method Not Allowed: closing"))
_ROUTES_MAX = 10_000


class SimRoute(msgspec.Struct, frozen=True):
    """What a path means: a method of a bot, or with `is_file` a download."""

    token_text: str
    name: str
    is_file: bool = False


class SimServer:
    """`async with SimServer() as sim:` — then point a bot at `sim.url`, and judge by `sim.telegram.sent`.

    `url` is where bots go, and where faults strike. `control_url` serves the same with no fault ever at its door, so that
    a test in another process can end an outage.
    """

    def __init__(
        self,
        telegram: Telegram | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        control_port: int = 0,
        options: Options | None = None,
        seed: int | None = None,
    ) -> None:
        self.telegram = telegram or Telegram(now=time.time, chance=random.Random(seed), options=options)
        self.host = host
        self.port = port
        self.control_port = control_port
        self._gate = SimGate(self.telegram, respond=self.respond, spawn=self._spawn, is_faulty=True)
        self._side = SimGate(self.telegram, respond=self.respond, spawn=self._spawn, is_faulty=False)
        self._routes: dict[bytes, SimRoute | None] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._fault_timer: asyncio.TimerHandle | None = None
        self._watchers: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._pusher = Pusher(self.telegram, told=self._tell_watchers)
        self._running: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def control_url(self) -> str:
        return f"http://{self.host}:{self.control_port}"

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.port = self._gate.bind(self.host, self.port)
        try:
            self.control_port = self._side.bind(self.host, self.control_port)
        except OSError:
            self._gate.shut(for_good=True)
            raise
        started = self._loop.create_future()
        self._running = self._loop.create_task(self._run(started))
        await started
        self.telegram.faults.changed = self._heed_faults
        self.telegram.updated = lambda _: self._pusher.ring()
        self.telegram.wake = lambda at: self._later(max(0.0, at - self.telegram.now()), self._run_due)
        self._heed_faults()
        self._side.open()

    async def stop(self) -> None:
        if self._running is None:
            return
        self.telegram.faults.changed = lambda: None
        self.telegram.updated = None
        self.telegram.wake = None
        for timer in [*self._timers, self._fault_timer]:
            if timer is not None:
                timer.cancel()
        self._timers.clear()
        self._gate.shut(for_good=True)
        self._side.shut(for_good=True)
        self._running.cancel()
        ended, self._running = self._running, None
        try:
            await ended
        except asyncio.CancelledError:
            if not ended.cancelled():
                raise  # it is we who are cancelled

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def until(self, fact: Callable[[], bool], timeout: float = 10.0) -> None:
        """Wait until the fact holds; it is asked again after every request, every push and every end of a fault.

        Raises TimeoutError.
        """
        if fact():
            return
        told = self._loop.create_future()
        watcher = (fact, told)
        self._watchers.append(watcher)
        try:
            async with asyncio.timeout(timeout):
                await told
        finally:
            self._watchers.remove(watcher)

    async def _run(self, started: asyncio.Future[None]) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            started.set_result(None)
            await self._pusher.run()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        assert self._tasks is not None
        self._tasks.create_task(work)

    # Faults of connections

    def _heed_faults(self) -> None:
        """Open or close the gate as the standing faults say, and look again when the next one ends."""
        faults = self.telegram.faults
        is_dark = faults.is_live(Kind.DARK)
        if is_dark or faults.is_live(Kind.REFUSE):
            self._gate.shut(for_good=False)
        else:
            self._gate.open()
        if is_dark:
            self._gate.reset_all()
        if self._fault_timer is not None:
            self._fault_timer.cancel()
        end_at = faults.next_end()
        if end_at is not None:
            # A hair later, so that it is over for sure when we look.
            wait_s = max(0.0, end_at - self.telegram.now()) + 0.001
            self._fault_timer = self._loop.call_later(wait_s, self._fault_ended)

    def _fault_ended(self) -> None:
        self._fault_timer = None
        self.telegram.faults.sweep()
        self._heed_faults()
        self._tell_watchers()

    def _run_due(self) -> None:
        """What was scheduled, and again a moment later if the clocks disagree on whether it is due."""
        self.telegram.run_due()
        if (
            self.telegram.agenda
            and self.telegram.wake is not None
            and self.telegram.agenda[0][0] - self.telegram.now() < 0.01
        ):
            self.telegram.wake(self.telegram.agenda[0][0] + 0.001)
        self._tell_watchers()

    # One request

    def respond(self, connection: SimConnection, request: SimRequest, is_faulty: bool) -> None:
        try:
            self._respond(connection, request, is_faulty)
        except wire.UnreadableRequest as unreadable:
            connection.refuse(unreadable.status)
        if self._watchers:
            self._tell_watchers()

    def _respond(self, connection: SimConnection, request: SimRequest, is_faulty: bool) -> None:
        path = request.path
        if path.startswith(b"/sim/"):
            self._give(connection, control.handle(self.telegram, request), PLAIN)
            return
        route = self._routes[path] if path in self._routes else self._learn(path)
        if route is None:
            connection.answer(NOT_FOUND)
        elif request.verb not in {b"POST", b"GET"}:
            connection.answer(WRONG_VERB)
        elif route.is_file:
            plan = self.telegram.exchange(route.token_text, "download", {}) if is_faulty else PLAIN
            answer = plan.answer or self.telegram.download(route.token_text, route.name, span=request.span)
            self._later(plan.late_s + plan.slow_s, lambda: self._give(connection, answer, plan))
        else:
            params, files = wire.read(request.query, request.content_type, request.body)
            near = () if _FILE_FIELDS.isdisjoint(params) else loopback_addresses(params)
            if near:
                self._spawn(self._fetch(near, lambda: self._carry_out(connection, route, params, files, is_faulty)))
            else:
                self._carry_out(connection, route, params, files, is_faulty)

    def _carry_out(
        self,
        connection: SimConnection,
        route: SimRoute,
        params: Params,
        files: dict[str, UploadedFile],
        is_faulty: bool,
    ) -> None:
        plan = self.telegram.exchange(route.token_text, route.name, params) if is_faulty else PLAIN
        if plan is PLAIN:
            self._give(connection, self.telegram.call(route.token_text, route.name, params, files), PLAIN)
        else:
            self._play(connection, route, params, files, plan)

    async def _fetch(self, addresses: tuple[str, ...], then: Callable[[], None]) -> None:
        """Fetch what a request names on this machine, and go on with it."""
        known = self.telegram.fetched
        for one in addresses:
            known.pop(one, None)
            known[one] = await asyncio.to_thread(fetched, one)
        while len(known) > max(FETCHED_MAX, len(addresses)):
            del known[next(iter(known))]
        then()

    def _play(
        self, connection: SimConnection, route: SimRoute, params: Params, files: dict[str, UploadedFile], plan: Exchange
    ) -> None:
        """Carry out an exchange with a fault in it. A client that has gone does not stop what it has asked for."""
        if plan.late_s:
            later = msgspec.structs.replace(plan, late_s=0.0)
            self._later(plan.late_s, lambda: self._play(connection, route, params, files, later))
            return
        answer: Answer | Pending | None = None
        if plan.processes:
            answer = self.telegram.call(route.token_text, route.name, params, files)
        if plan.answer is not None:
            answer = plan.answer
            self.telegram.counters.answers[answer.status] += 1
        if plan.slow_s:
            self._later(plan.slow_s, lambda: self._give(connection, answer, plan))
        else:
            self._give(connection, answer, plan)

    def _give(self, connection: SimConnection, answer: Answer | Pending | None, plan: Exchange) -> None:
        if isinstance(answer, Pending):
            self._park(connection, answer, plan)
            return
        match plan.how:
            case How.ANSWER:
                assert answer is not None
                connection.answer(answer)
            case How.RESET:
                connection.reset()
            case How.END:
                connection.end()
            case How.CUT:
                assert answer is not None
                whole = rendered(answer, keeps_alive=True)
                # At least one byte, and never all of them.
                connection.cut(whole[: min(max(1, int(len(whole) * plan.share)), len(whole) - 1)])
            case How.GARBAGE:
                connection.cut(plan.garbage)
            case How.HANG:
                pass
        if self._watchers:
            self._tell_watchers()

    def _park(self, connection: SimConnection, pending: Pending, plan: Exchange) -> None:
        """Wait for an answer to fall due. A closed connection leaves it parked, as at Telegram (docs/telegram.md, Conflicts)."""

        def look() -> None:
            self._timers.discard(timer)
            answer = self.telegram.ripe(pending)
            if answer is None:
                self._park(connection, pending, plan)
            else:
                pending.moved = None
                self._give(connection, answer, plan)

        def moved() -> None:
            timer.cancel()
            self._timers.discard(timer)
            self._park(connection, pending, plan)

        timer = self._loop.call_later(max(0.0, pending.due_at - self.telegram.now()), look)
        self._timers.add(timer)
        is_new = pending.moved is None
        pending.moved = moved
        if is_new and isinstance(pending, WebhookCheck):
            self._spawn(try_connect(self.telegram, pending))

    def _later(self, wait_s: float, act: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            act()

        timer = self._loop.call_later(wait_s, run)
        self._timers.add(timer)

    def _learn(self, path: bytes) -> SimRoute | None:
        route = parsed(path)
        if len(self._routes) < _ROUTES_MAX:
            self._routes[path] = route
        return route

    def _tell_watchers(self) -> None:
        for fact, told in self._watchers:
            if not told.done() and fact():
                told.set_result(None)


_FILE_FIELDS = frozenset({*KINDS, "media", "thumbnail", "sticker", "stickers"})
_LOOPBACK = re.compile(r"https?://(?:127\.\d+\.\d+\.\d+|localhost|\[::1\])(?::\d+)?/[^\s\"\\]*")


def loopback_addresses(params: Params) -> tuple[str, ...]:
    """The addresses on this machine among a request's files. Nothing outside is ever fetched."""
    given = [params[name] for name in _FILE_FIELDS if name in params]
    texts = (one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in given)
    return tuple(dict.fromkeys(address for text in texts for address in _LOOPBACK.findall(text)))


class _NoWayOn(urllib.request.HTTPRedirectHandler):
    """What lies on this machine must not lead away from it."""

    def redirect_request(self, *_: object) -> None:
        return None


def fetched(address: str) -> UploadedFile | None:
    """What lies there; None if it cannot be had. Blocks."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoWayOn)
    try:
        with opener.open(address, timeout=FETCH_S) as answer:
            name = unquote(urlsplit(address).path).rpartition("/")[2] or "file"
            kind = answer.headers.get_content_type()
            return UploadedFile(filename=name, content=answer.read(URL_BYTES_MAX + 1), content_type=kind)
    except (OSError, ValueError, HTTPException):
        return None


FETCH_S = 20.0
FETCHED_MAX = 16


def parsed(path: bytes) -> SimRoute | None:
    """`/bot<token>/<method>`, `/bot<token>/test/<method>` or `/file/bot<token>/<path>`; None for anything else."""
    text = unquote(path.decode("latin-1"))
    is_file = text.startswith("/file/bot")
    if not is_file and not text.startswith("/bot"):
        return None
    token_text, slash, name = text.removeprefix("/file").removeprefix("/bot").partition("/")
    if not is_file:
        name = name.removeprefix("test/").rstrip("/")
    if not slash or not token_text or not name or (not is_file and "/" in name):
        return None
    return SimRoute(token_text, name, is_file)


# The same as a program: `peik sim` and `python -m peik.testing`.


LEDGER_MAX = 1_000_000  # a program may run for weeks; a test that needs more says so


async def run_sim(
    host: str = "127.0.0.1",
    port: int = 8082,
    *,
    control_port: int = 0,
    seed: int | None = None,
    ready: Callable[[SimServer], None] | None = None,
    **options: object,
) -> None:
    """Serve until SIGINT, SIGTERM or cancellation. `options` are those of `Options`; `ready` is called once it listens."""
    chosen = Options(ledger_max=LEDGER_MAX)
    chosen.change(options)
    telegram = Telegram(now=time.time, chance=random.Random(seed), options=chosen)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        async with SimServer(telegram, host, port, control_port=control_port) as sim:
            if ready is not None:
                ready(sim)
            await stopped.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def announce(sim: SimServer) -> None:
    """One line of JSON on standard output, for whoever started this process."""
    sys.stdout.write(json.dumps({"url": sim.url, "control_url": sim.control_url}) + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m peik.testing", description="A simulated Telegram Bot API.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--control-port", type=int, default=0)
    parser.add_argument("--seed", type=int, help="of all chance: ids, jitter, faults")
    parser.add_argument("--config", default="{}", help="options as JSON, or the path of a JSON file")
    parser.add_argument("--no-uvloop", action="store_true")
    given = parser.parse_args(arguments)
    text = given.config if given.config.lstrip().startswith("{") else Path(given.config).read_text()
    program = run_sim(
        given.host, given.port, control_port=given.control_port, seed=given.seed, ready=announce, **json.loads(text)
    )
    if given.no_uvloop:
        asyncio.run(program)
    else:
        _run_fast(program)


def _run_fast(program: Coroutine[object, object, None]) -> None:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        asyncio.run(program)
    else:
        uvloop.run(program)


# Webhook pushes, carried out. When and what is decided by `Telegram`; here are only sockets and the clock's patience.

_ANSWER_BYTES_MAX = 4 << 20


class Pusher:
    """One task per push in flight; connections are kept and used again."""

    def __init__(self, telegram: Telegram, *, told: Callable[[], None]) -> None:
        self._telegram = telegram
        self._told = told  # called after each push
        self._bell = asyncio.Event()
        self._idle: dict[tuple[str, int, bool, str], list[_Line]] = {}

    def ring(self) -> None:
        self._bell.set()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._bell.clear()
                    for push in self._telegram.pushes_due():
                        group.create_task(self._carry(push))
                    await self._rest()
        finally:
            for lines in self._idle.values():
                for line in lines:
                    line.close()

    async def _rest(self) -> None:
        """Until the bell rings or the next retry is due."""
        next_at = self._telegram.next_push_at()
        wait_s = None if next_at is None else max(0.0, next_at - self._telegram.now())
        try:
            async with asyncio.timeout(wait_s):
                await self._bell.wait()
        except TimeoutError:
            pass

    async def _carry(self, push: Push) -> None:
        try:
            async with asyncio.timeout(self._telegram.options.webhook_timeout_s):
                result = await self._post(push)
        except TimeoutError:
            result = PushResult(error="Read timeout expired")
        except ConnectionRefusedError:
            result = PushResult(error="Connection refused")
        except (OSError, EOFError, ssl.SSLError, httptools.HttpParserError) as error:
            result = PushResult(error=str(error) or "Connection closed")
        self._telegram.push_done(push, result)
        self._bell.set()
        self._told()

    async def _post(self, push: Push) -> PushResult:
        parts = urlsplit(push.url)
        is_tls = parts.scheme == "https"
        trusted = push.webhook.certificate.decode(errors="replace")
        key = (push.webhook.ip_address or parts.hostname or "", parts.port or (443 if is_tls else 80), is_tls, trusted)
        idle = self._idle.setdefault(key, [])
        while idle and idle[-1].is_over:
            idle.pop().close()
        line = idle.pop() if idle else await _Line.open(*key, server_name=parts.hostname or "")
        try:
            result = await line.post(push, host=parts.netloc.rpartition("@")[2], target=_target(push.url))
        except BaseException:
            line.close()
            raise
        if result.keeps_connection:
            idle.append(line)
        else:
            line.close()
        return result


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class _Line:
    """One connection to a webhook."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int, is_tls: bool, trusted: str, *, server_name: str) -> "_Line":
        context = None
        if is_tls:
            # A simulator's counterpart has a self-made certificate at best. The one that setWebhook has brought is checked.
            context = ssl.create_default_context(cadata=trusted or None)
            context.check_hostname = bool(trusted)
            context.verify_mode = ssl.CERT_REQUIRED if trusted else ssl.CERT_NONE
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        name = server_name if is_tls else None
        return cls(*await asyncio.open_connection(host, port, ssl=context, server_hostname=name))

    @property
    def is_over(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    async def post(self, push: Push, *, host: str, target: str) -> PushResult:
        headers = {"Host": host, **push.headers(), "Content-Length": str(len(push.body))}
        head = "\r\n".join([f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())])
        self._writer.write(head.encode("latin-1") + b"\r\n\r\n" + push.body)
        answer = _PushAnswer()
        while not answer.is_whole:
            data = await self._reader.read(65536)
            if not data:
                raise EOFError("Connection closed")
            answer.parser.feed_data(data)
        return answer.result()

    def close(self) -> None:
        self._writer.close()


class _PushAnswer:
    """A webhook's answer while it comes in."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._keeps_connection = False
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size <= _ANSWER_BYTES_MAX:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self.is_whole = True
        self._keeps_connection = self.parser.should_keep_alive()  # the parser forgets it afterwards

    def result(self) -> PushResult:
        retry_after = self._headers.get(b"retry-after", b"").decode("latin-1").strip()
        return PushResult(
            status=self.parser.get_status_code(),
            retry_after_s=float(retry_after) if retry_after.isdecimal() else None,
            body=b"".join(self._body),
            content_type=self._headers.get(b"content-type", b"").decode("latin-1"),
            keeps_connection=self._keeps_connection,
        )


async def try_connect(telegram: Telegram, check: WebhookCheck) -> None:
    """The "verification" of setWebhook: one TCP connect, no request (docs/telegram.md, Setting a webhook)."""
    error = ""
    try:
        async with asyncio.timeout(telegram.options.webhook_timeout_s):
            _, writer = await asyncio.open_connection(check.host, check.port)
            writer.close()
    except TimeoutError:
        error = "Connection timed out"
    except OSError as failed:
        error = "Connection refused" if isinstance(failed, ConnectionRefusedError) else str(failed)
    telegram.connected(check, error)
