"""The server's side of every connection: heads and bodies must come in within a time and a size, answers must be taken, idle ones
end, all are counted.

uvicorn bounds none of these by itself; a client that sends a byte an hour would keep its connection, and many would keep
others out.
"""

import asyncio
import contextlib
import gc
import os
import resource
import socket
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from peik.errors import StartError
from peik.settings.config import Config
from peik.web.connection import Awaited, ServerConnection
from peik.web.limits import address_of

HEAD_S_MAX = 30.0  # from the first byte, or from the connection, to the end of the headers
BODY_PAUSE_S_MAX = 60.0
BODY_BYTES_PER_S_MIN = 100.0  # after the first minute; a poor mobile uplink has ten times that
ANSWER_PAUSE_S_MAX = 120.0  # in which a client has taken nothing of what waits for it
ADDRESS_SHARE = 0.75  # of all connections: one address, even that of a proxy, leaves some for others
CONNECTIONS_MAX = 20_000  # whatever the system allows: each takes 8 to 16 KB of memory
STRANGER_CONNECTIONS_MAX = 2_000  # of an address that has shown nothing valid
HELD_BYTES_MAX = (
    64 << 20
)  # of unfinished heads, of requests behind others, and of answers that strangers do not take; in all
ADDRESS_HELD_BYTES_MAX = 8 << 20  # and for one address
WAITING_BYTES = 2_048  # what a request costs that waits behind another one
HEADER_BYTES = 160  # what a header costs beyond its own bytes
KEEP_ALIVE_S = 75  # bots keep connections in pools; one that we end just as it is used costs them an error
SWEEP_TICKS = 50  # uvicorn ticks every tenth of a second
LEAVING_TICK_S = 0.05  # between two looks whether all is answered that was asked
HURRY_S = 2.0  # before the end of the grace
FILES_SPARE = 512  # descriptors for the store, the spool and the way to Telegram


class ConnectionLedger:
    """Who holds how many bytes of our memory: by connection, by address, in all. The connection that has held some for longest is
    the first to go."""

    def __init__(self) -> None:
        self.total = 0
        self.by_address: Counter[str] = Counter()
        self._by_connection: dict[GuardedProtocol, int] = {}

    def set(self, connection: "GuardedProtocol", address: str, size: int) -> None:
        """It holds so much now. Who goes over a bound is ended: one address by itself, and of all the one that is oldest."""
        more = size - self._by_connection.get(connection, 0)
        self.total += more
        self.by_address[address] += more
        if size:
            self._by_connection[connection] = size
        else:
            self._by_connection.pop(connection, None)
        if not self.by_address[address]:
            del self.by_address[address]
        elif more > 0 and self.by_address[address] > ADDRESS_HELD_BYTES_MAX:
            connection.end()
        while self.total > HELD_BYTES_MAX:
            next(iter(self._by_connection)).end()


class GuardedProtocol(ServerConnection):
    """A connection with bounds."""

    connections_max = CONNECTIONS_MAX
    address_connections_max = CONNECTIONS_MAX  # of one address
    stranger_connections_max = STRANGER_CONNECTIONS_MAX
    addresses: ClassVar[Counter[str]] = Counter()  # how many connections each has open
    held: ClassVar[ConnectionLedger] = ConnectionLedger()
    is_stranger: ClassVar[Callable[[str], bool]] = staticmethod(lambda _: False)
    _address: str | None = None
    _held_bytes = 0  # as the ledger knows it
    _gone_bytes = 0  # of answers, when it was last looked
    _full_at = 0.0  # when something of an answer was last seen waiting for the client
    _gone_at: float

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._gone_at = self.heard_at
        if self.client is not None:
            self._address = address_of(self.client[0])
            self.addresses[self._address] += 1
        if len(self.connections) > self.connections_max or self._is_greedy():
            self.transport.abort()

    def _is_greedy(self) -> bool:
        if self._address is None:
            return False
        count = self.addresses[self._address]
        if count > self.address_connections_max:
            return True
        return count > self.stranger_connections_max and self._is_strange()

    def _is_strange(self) -> bool:
        return self.client is not None and GuardedProtocol.is_stranger(self.client[0])

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._hold(0)
        if self._address is not None:
            self.addresses[self._address] -= 1
            if not self.addresses[self._address]:
                del self.addresses[self._address]

    # ---- what it holds ----

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.awaited is Awaited.HEAD or self._waiting or self._held_bytes:
            self._hold(self._size())

    def pause_writing(self) -> None:
        super().pause_writing()
        self._hold(self._size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._held_bytes:
            self._hold(self._size())

    def _size(self) -> int:
        """Of what it could hold for nothing. What those hold who have shown a key is theirs: a slow download is one, too."""
        size = len(self._waiting) * WAITING_BYTES
        if self.awaited is Awaited.HEAD:
            size += self.taken_bytes + len(self._headers) * HEADER_BYTES
        if self.is_full and self._is_strange():
            size += self.transport.get_write_buffer_size()
        return size

    def _hold(self, size: int) -> None:
        if size != self._held_bytes and self._address is not None:
            self._held_bytes = size
            self.held.set(self, self._address, size)

    def end(self) -> None:
        """At once, whatever it wanted to say or hear."""
        self._is_broken = True
        self._hold(0)
        self.transport.abort()

    def is_overdue(self, now: float) -> bool:
        """Whether the client keeps us waiting for longer than a living one would."""
        if self._is_deaf(now):
            return True
        match self.awaited:
            case Awaited.HEAD:
                return now - self.since > HEAD_S_MAX and not self.is_paused
            case Awaited.BODY:
                took_s = now - self.since
                is_crawling = took_s > BODY_PAUSE_S_MAX and self.taken_bytes < took_s * BODY_BYTES_PER_S_MIN
                is_silent = now - self.heard_at > BODY_PAUSE_S_MAX
                return (is_crawling or is_silent) and not self.is_paused
            case Awaited.REQUEST:
                return False

    def is_left(self, now: float) -> bool:
        """Whether nothing has been asked for longer than a connection is kept."""
        is_between = self.awaited is Awaited.REQUEST and self.is_idle
        return is_between and now - max(self.since, self._full_at) > self.keep_alive_s

    def _is_deaf(self, now: float) -> bool:
        """Whether it takes nothing of what is written to it. Such a connection never closes by itself: what is in the buffer has
        to go first."""
        waiting = self.transport.get_write_buffer_size()
        if waiting:
            self._full_at = now
        gone = self.written_bytes - waiting
        if not waiting or gone != self._gone_bytes:
            self._gone_bytes, self._gone_at = gone, now
            return False
        return now - self._gone_at > ANSWER_PAUSE_S_MAX


class GuardedServer(uvicorn.Server):
    # So long a connection on which nothing is asked is kept at the end, so that its client hears of the end with an answer. For
    # nothing where new connections are refused meanwhile: then the next start is all that helps.
    patience_s = 0.0
    hurry: Callable[[], None] = staticmethod(lambda: None)  # whoever waits for something shall be told how it stands

    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            sweep(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections; answer what was asked on those that are here, each with `Connection: close`. What takes
        longer than the grace is hurried, and then cut off."""
        for server in self.servers:
            server.close()
        for one in sockets or ():
            one.close()
        loop, state, grace_s = asyncio.get_running_loop(), self.server_state, self.config.timeout_graceful_shutdown or 0
        began_at = loop.time()
        hurry_at: float | None = began_at + max(grace_s - HURRY_S, grace_s / 2)
        while True:
            # First: who was accepted a moment ago is no connection yet.
            await asyncio.sleep(LEAVING_TICK_S)
            is_patient = loop.time() - began_at < self.patience_s
            for connection in list(state.connections):
                if isinstance(connection, GuardedProtocol):
                    connection.leave(is_patient=is_patient)
            if not state.connections and not state.tasks:
                return
            if hurry_at is not None and loop.time() > hurry_at:
                hurry_at = None
                self.hurry()
            if loop.time() - began_at > grace_s:
                for task in state.tasks:
                    task.cancel()
                return


def sweep(connections: Iterable[object], now: float) -> None:
    """End those whose time is over."""
    for connection in list(connections):
        if not isinstance(connection, GuardedProtocol):
            continue
        if connection.is_overdue(now):
            connection.transport.abort()
        elif connection.is_left(now):
            # In peace: TLS does not tell what of the last answer is still on its way to a slow client.
            connection.transport.close()


def raise_file_limit() -> int:
    """As many open files as the system allows; how many connections that leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    return min(CONNECTIONS_MAX, max(limit // 2, limit - FILES_SPARE))


# The certificate that Peik speaks HTTPS with. A renewed one is taken up while connections go on; a broken one never
# is.


LOOK_S = 30.0

_Stamp = tuple[int, int, int, int]  # times and sizes of both files


class Certificate:
    """Raises StartError if there is none that can be used now; later, trouble is told and the old one stays."""

    def __init__(self, cert: Path, key: Path, *, tell: Callable[[str], None] = lambda what: None) -> None:
        self._cert = cert
        self._key = key
        self._tell = tell
        try:
            self._stamp = self._look()
            self.context = self._loaded()
        except OSError as error:  # ssl.SSLError is one
            raise StartError(
                f"PEIK_TLS_CERT={cert} and PEIK_TLS_KEY={key} cannot be used: {_words(error)}. "
                "Both are PEM files that belong together."
            ) from None

    def refresh(self) -> bool:
        """Whether there was another one, and new connections get it from now on."""
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return False
            # A renewal writes two files, one after the other. What does not belong together is tried apart, and tried
            # again when either file has changed.
            self._stamp = stamp
            self._loaded()
            self.context.load_cert_chain(self._cert, self._key, password=_no_password)
        except OSError as error:
            self._tell(f"the renewed certificate cannot be used, and the old one stays: {_words(error)}")
            return False
        return True

    def _look(self) -> _Stamp:
        cert, key = self._cert.stat(), self._key.stat()
        return cert.st_mtime_ns, cert.st_size, key.st_mtime_ns, key.st_size

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self._cert, self._key, password=_no_password)
        return context


def certificate_of(config: Config, *, tell: Callable[[str], None]) -> Certificate | None:
    """None: plain HTTP. Raises StartError."""
    if config.tls_cert is None and config.tls_key is None:
        return None
    if config.tls_cert is None or config.tls_key is None:
        raise StartError("PEIK_TLS_CERT and PEIK_TLS_KEY belong together: set both, or none for plain HTTP.")
    return Certificate(config.tls_cert, config.tls_key, tell=tell)


def _no_password() -> str:
    """Else OpenSSL would ask for it at a terminal that nobody sits at."""
    return ""


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not a certificate and its key").replace("_", " ").lower()
    return f"{error.strerror or error}"


# What the process tells systemd (sd_notify): that it is ready, that it is alive, that it ends. Nobody asks: nothing
# is said.
#
# A beat comes from the event loop, so that a loop that stands still is noticed. It says nothing of the store or of
# Telegram: what is down there is no reason to start Peik again.


_BEATS_PER_LIMIT = 3  # two may be late
VITAL_S = 5.0  # for what is said once; without it systemd would look after the wrong process


class Supervisor:
    def __init__(self, address: str | None, *, beat_s: float | None = None) -> None:
        self._address = address
        self._beat_s = beat_s
        self._is_told = True

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Supervisor":
        """As systemd describes itself to the processes that it starts; these are no settings of Peik."""
        address = environment.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):  # others are not addresses of this protocol on Linux
            return cls(None)
        limit_us = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        is_watched = is_ours and limit_us.isdecimal() and int(limit_us) > 0
        name = "\0" + address[1:] if address.startswith("@") else address
        return cls(name, beat_s=int(limit_us) / 1e6 / _BEATS_PER_LIMIT if is_watched else None)

    @property
    def is_there(self) -> bool:
        return self._address is not None

    @property
    def beat_s(self) -> float | None:
        """How often it wants to hear that we are alive."""
        return self._beat_s

    def ready(self, status: str, *, replaces: bool = False, beat_s: float | None = None) -> None:
        """Calls are accepted durably from now on. Who `replaces` another process is the one to look after from now on, and beats
        as that one did: systemd tells its limit only to processes that it starts as the main one."""
        main = ""
        if replaces:
            main = f"MAINPID={os.getpid()}\n"
            self._beat_s = self._beat_s or beat_s
        self._tell(f"{main}READY=1\nSTATUS={status}", within_s=VITAL_S)

    def ending(self) -> None:
        self._tell("STOPPING=1\nSTATUS=Waiting for what is in flight.")

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Beats meanwhile, if it is watched."""
        task = asyncio.ensure_future(self._beat())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _beat(self) -> None:
        while self._beat_s is not None:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._beat_s)

    def _tell(self, words: str, *, within_s: float = 0.0) -> None:
        """`within_s`: a socket that is full of what was said before is waited for. A beat is not worth that."""
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(within_s)
                line.sendto(words.encode(), self._address)
        except OSError as error:
            # The next beat tries again. Said once: a supervisor that is gone would fill the log.
            if self._is_told:
                sys.stderr.write(f"systemd cannot be told how Peik is: {error.strerror}.\n")
            self._is_told = False
        else:
            self._is_told = True


# What proxies say of their clients: whose word counts, and what it changes in a request.


_SAID = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})
_SAID_BYTES_MAX = 1_024  # of each, from its end: nearest to us stands what our own proxies wrote
_LINES_MAX = 20


class Proxies:
    """`trusted`: the addresses and networks that are believed."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._middleware = ProxyHeadersMiddleware(_nobody, list(trusted))

    def trusts(self, host: str) -> bool:
        return host in self._middleware.trusted_hosts

    def believe(self, scope: MutableMapping[str, Any]) -> None:
        """Put the client and the scheme into a request that a trusted proxy names. Twice is as good as once."""
        for name, _ in scope["headers"]:
            if name in _SAID:
                self._read(scope)
                return

    def _read(self, scope: MutableMapping[str, Any]) -> None:
        short = [(name, value[-_SAID_BYTES_MAX:]) for name, value in scope["headers"] if name in _SAID]
        said = {**scope, "headers": short[-_LINES_MAX:]}
        reading = self._middleware(said, _never, _never)  # type: ignore[arg-type]
        try:
            reading.send(None)  # nothing in it waits, so that it needs no task: it is at its end at once
        except StopIteration:
            scope["client"], scope["scheme"] = said["client"], said["scheme"]
            return
        raise AssertionError("reading headers has waited for something")


async def _nobody(scope: object, receive: object, send: object) -> None:
    """What stands behind comes later, and elsewhere."""


async def _never(*_: object) -> Any:
    raise AssertionError("reading headers needs no messages")


# The collector of garbage in a process that serves and does nothing else. A library must not decide this for its
# program.


YOUNG_MAX = 10_000  # objects between two collections of young ones


def let_the_collector_rest() -> None:
    """What is here by now stays until the end: a collection need not look through it again and again. And requests make
    thousands of objects that are gone a moment later, none of them in cycles: collections may come less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 20, 50)
