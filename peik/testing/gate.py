"""One listening port that can be closed and opened again on its number, and the faults that connections meet at it."""

import asyncio
import socket
from collections.abc import Callable, Coroutine

from peik.testing.faults import Kind
from peik.testing.options import MIB
from peik.testing.telegram import Telegram
from peik.testing.wire import Connection, Request, reset_on_close

ACCEPTS_MAX = 100  # in one turn of the loop
ACCEPT_PAUSE_S = 0.1


class Gate:
    """A port and the connections through it. `is_faulty`: the faults of connections strike here."""

    def __init__(
        self,
        telegram: Telegram,
        *,
        respond: Callable[[Connection, Request, bool], None],
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
        self._connections: set[Connection] = set()

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
        await asyncio.get_running_loop().connect_accepted_socket(lambda: Connection(self), peer)

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

    def arrived(self, connection: Connection) -> None:
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

    def left(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def respond(self, connection: Connection, request: Request) -> None:
        telegram = self._telegram
        if self._is_faulty and telegram.faults.any_connection and self._is_worn(connection, Kind.STALE):
            telegram.counters.lost_before += 1
            connection.reset()
        else:
            self._respond(connection, request, self._is_faulty)

    def answered(self, connection: Connection) -> None:
        faults = self._telegram.faults
        if not self._is_faulty or not faults.any_connection:
            return
        if self._is_worn(connection, Kind.CLOSE_AFTER):
            connection.end()
            return
        self._watch_idling(connection)

    def _watch_idling(self, connection: Connection) -> None:
        standing = self._telegram.faults.standing
        idle = next((fault for fault in standing if fault.kind is Kind.CLOSE_IDLE), None)
        if idle is not None:
            connection.idle_timer = asyncio.get_running_loop().call_later(idle.idle_s, connection.end)

    def _is_worn(self, connection: Connection, kind: Kind) -> bool:
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
