"""The listening socket outlives its process: systemd keeps it, or a Peik hands it on to the one that replaces it.

Clients notice nothing then: the system keeps their connections in the socket's queue until somebody takes them. Two sockets on
one port (SO_REUSEPORT) would not do: each has a queue of its own, and what is in the old one's is reset when it closes.

How a Peik is replaced. It waits at a socket in its folder, for its own user alone. The next one says hello, and is given the
listening sockets, this one, and the right to be the server of the store. It starts, takes connections as well and accepts what
comes in them durably, and says "ready". Only then the first one ends, as at any end: it answers what it was asked, lets its bots
go, and closes. Until "ready" the next one may fail in any way, and nothing has changed.
"""

import asyncio
import contextlib
import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path

import msgspec

from peik import __version__
from peik.errors import StartError
from peik.settings.config import Config
from peik.settings.values import StoreKind
from peik.web.server import Supervisor

PROTOCOL = 1
ANSWER_S = 10.0  # so long a Peik may take to say what it hands on; its event loop does nothing that takes as long
_BYTES_MAX = 8192
_HANDLES_MAX = 64
_READY = b"ready"
_LEAVING = b"leaving"
_FIRST_HANDLE = 3  # where systemd puts the first of its sockets
_PEER = struct.Struct("3i")  # process, user and group

# ---- sockets of systemd ----


def sockets_of_systemd(environment: MutableMapping[str, str]) -> list[socket.socket]:
    """Those that this process was given to listen at (sd_listen_fds); all for HTTP, whatever their names. Raises StartError."""
    process, count, names = (environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if process != str(os.getpid()) or not count.isdecimal():
        return []  # they are none of ours
    named = names.split(":") if names else []
    return [
        _listener(_FIRST_HANDLE + place, named[place] if place < len(named) else f"number {place + 1}")
        for place in range(int(count))
    ]


def _listener(handle: int, name: str) -> socket.socket:
    wrong = StartError(
        f"The socket that systemd has handed on ({name}) is none to listen at. "
        "peik.socket needs ListenStream=ADDRESS:PORT, and Accept=no."
    )
    try:
        found = socket.socket(fileno=handle)
        if (
            found.family not in (socket.AF_INET, socket.AF_INET6)
            or found.type != socket.SOCK_STREAM
            or not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        ):
            raise wrong
    except OSError:
        raise wrong from None
    found.setblocking(False)  # noqa: FBT003
    found.set_inheritable(False)
    return found


def as_heard(config: Config, listeners: Sequence[socket.socket]) -> Config:
    """The settings with the address that is listened at, where others than the settings chose it: how far strangers may lead Peik
    depends on who can reach it."""
    places = [listener.getsockname()[:2] for listener in listeners]
    heard = [msgspec.structs.replace(config, host=host, port=port) for host, port in places]
    return next((one for one in heard if one.is_beyond_this_machine), heard[0])


# ---- a socket of our own ----


def listen(config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
    except OSError as error:
        listener.close()
        raise StartError(cannot_listen(config, error)) from None
    listener.listen(2048)
    listener.setblocking(False)  # noqa: FBT003
    return listener


def cannot_listen(config: Config, error: OSError) -> str:
    """Why not, with the setting that mends it."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        fix = "PEIK_HOST is no address of this machine: set 127.0.0.1 for this machine alone, 0.0.0.0 for all networks."
    elif error.errno == errno.EADDRINUSE:
        fix = "Another program listens there, perhaps another Peik. Stop it, or set PEIK_PORT to another port."
    elif error.errno in (errno.EACCES, errno.EPERM):
        fix = "This user may not have that port. Set PEIK_PORT to one from 1024 on."
    else:
        fix = "Set PEIK_HOST and PEIK_PORT to an address that is free."
    return f"Cannot listen on {config.host}:{config.port}: {error.strerror}. {fix}"


# ---- what the two processes tell each other ----


class _Hello(msgspec.Struct, kw_only=True):
    protocol: int
    version: str


class Offer(msgspec.Struct, kw_only=True):
    """What a Peik hands on. Its handles come with it: the listening sockets, the one it waits at, and its lock if `has_lock`."""

    protocol: int = PROTOCOL
    pid: int
    version: str
    host: str
    port: int
    scheme: str
    store: str
    is_of_systemd: bool  # its address is not of its settings
    is_supervised: bool  # systemd looks after it
    beat_s: float | None = None
    has_lock: bool = False
    own: int = (
        0  # so many of the listening sockets, the last ones, are each of one process alone: see peik.app.processes
    )
    refused: str | None = None  # nothing is handed on: why


def scheme_of(config: Config) -> str:
    return "http" if config.tls_cert is None else "https"


def control_path(config: Config, port: int) -> Path:
    """Where a Peik can be found by the one that replaces it. On a server's store each node has its own, by its port."""
    return config.beside(".control" if config.store_kind is StoreKind.SQLITE else f".{port}.control")


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name of the path that fits into the 107 bytes that an address of a socket may have."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def can_hand_on() -> bool:
    """Whether this system lets one process give another its open sockets, and says who that other is."""
    return sys.platform == "linux" and hasattr(socket, "SO_PEERCRED")


def _user_of(line: socket.socket) -> int:
    _, user, _ = _PEER.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(user)


# ---- the next one ----


class Predecessor:
    """The Peik that runs, as the one sees it that is to replace it."""

    def __init__(self, line: socket.socket, offer: Offer, handles: Sequence[int]) -> None:
        self._line = line
        self.offer = offer
        rest = list(handles)
        self.lock = rest.pop() if offer.has_lock else None
        self.control = socket.socket(fileno=rest.pop())
        found = [socket.socket(fileno=one) for one in rest]
        self.listeners, self.own = found[: len(found) - offer.own], found[len(found) - offer.own :]

    @classmethod
    def find(cls, config: Config) -> "Predecessor | None":
        """None: nobody waits there to be replaced. Raises StartError if what runs there cannot be replaced by this."""
        if not can_hand_on():
            raise StartError(
                "--replace needs Linux: here a process cannot hand its sockets on to another. "
                "Stop the Peik that runs, and start this one without it."
            )
        path = control_path(config, config.port)
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            line.settimeout(ANSWER_S)
            try:
                with _short(path) as name:
                    line.connect(name)
            except (FileNotFoundError, ConnectionRefusedError):
                line.close()
                sys.stderr.write(f"Nobody waits at {path} to be replaced: Peik starts as it would without --replace.\n")
                return None
            line.send(msgspec.json.encode(_Hello(protocol=PROTOCOL, version=__version__)))
            said, handles, _, _ = socket.recv_fds(line, _BYTES_MAX, _HANDLES_MAX)
            for one in handles:
                os.set_inheritable(one, False)  # noqa: FBT003
            offer = _read_offer(said)
            found = cls(line, offer, handles) if offer.refused is None else None
        except TimeoutError:
            line.close()
            raise StartError(
                f"The Peik that runs does not answer at {path}. Stop it, and start this one without --replace."
            ) from None
        except OSError as error:
            line.close()
            raise StartError(
                f"The Peik that runs cannot be asked at {path}: {error.strerror}. Start this one as the same user."
            ) from None
        except BaseException:
            line.close()
            raise
        if found is None:
            line.close()
            raise StartError(str(offer.refused))
        why = _difference(config, offer)
        if why is not None:
            found.close()
            raise StartError(f"{why} Nothing was changed: process {offer.pid} goes on.")
        return found

    def close(self) -> None:
        for one in (self._line, self.control, *self.listeners, *self.own):
            one.close()
        if self.lock is not None:
            os.close(self.lock)

    async def take_over(self) -> bool:
        """Say that letters are accepted here. Whether it has heard: if not, it is dead, which comes to the same."""
        loop = asyncio.get_running_loop()
        self._line.setblocking(False)  # noqa: FBT003
        try:
            await loop.sock_sendall(self._line, _READY)
            return await loop.sock_recv(self._line, _BYTES_MAX) == _LEAVING
        except OSError:
            return False

    async def gone(self) -> None:
        """Once it has let the store go, or has died."""
        with contextlib.suppress(OSError):
            while await asyncio.get_running_loop().sock_recv(self._line, _BYTES_MAX):
                pass
        self._line.close()


def _read_offer(said: bytes) -> Offer:
    try:
        offer = msgspec.json.decode(said, type=Offer)
    except msgspec.DecodeError:
        raise StartError(
            "The Peik that runs cannot be replaced by this version: it hands on in another way. "
            "Stop it, and start this one without --replace."
        ) from None
    if offer.refused is None and offer.protocol != PROTOCOL:
        raise StartError(
            f"The Peik that runs ({offer.version}) cannot be replaced by this version ({__version__}): "
            "it hands on in another way. Stop it, and start this one without --replace."
        )
    return offer


def _difference(config: Config, offer: Offer) -> str | None:
    """Why this one cannot stand in the place of that one."""
    if offer.store != config.store_shown:
        return f"The Peik that runs keeps its letters in {offer.store}, and PEIK_STORE is {config.store_shown} here."
    if offer.scheme != scheme_of(config):
        return (
            f"The Peik that runs speaks {offer.scheme}, and PEIK_TLS_CERT says {scheme_of(config)} here. Stop it first."
        )
    is_elsewhere = config.host != offer.host or config.port not in (0, offer.port)
    if is_elsewhere and not offer.is_of_systemd:
        return (
            f"The Peik that runs listens on {offer.host}:{offer.port}, and this one is set to {config.host}:{config.port}. "
            "A socket that is handed on stays where it is: leave PEIK_HOST and PEIK_PORT as they are, or stop that Peik first."
        )
    if offer.is_supervised and "NOTIFY_SOCKET" not in os.environ:
        return "The Peik that runs is a service of systemd, which would start it again. Use: systemctl reload peik."
    return None


# ---- the one that runs ----


class Successor:
    """It is ready, and this process is to end. `close` tells it that the store is free."""

    def __init__(self, line: socket.socket, version: str) -> None:
        self._line = line
        self.version = version

    def close(self) -> None:
        self._line.close()


class HandoverPoint:
    """Where a running Peik waits for the one that replaces it."""

    def __init__(
        self, path: Path, offer: Offer, control: socket.socket, listeners: Sequence[socket.socket], *, lock: int | None
    ) -> None:
        self._path = path
        self._place = _inode(path)
        self._offer = offer
        self._control = control
        self._handles = [*(one.fileno() for one in listeners), control.fileno(), *(() if lock is None else (lock,))]
        self._is_taken = False  # somebody is starting to replace us
        self._found: asyncio.Future[Successor] = asyncio.get_running_loop().create_future()
        self._talks: set[asyncio.Task[None]] = set()

    @classmethod
    def open(
        cls,
        config: Config,
        listeners: Sequence[socket.socket],
        *,
        path: Path,
        before: Predecessor | None,
        lock: int | None,
        is_of_systemd: bool,
        supervisor: Supervisor,
        own: Sequence[socket.socket] = (),
    ) -> "HandoverPoint | None":
        """None, said in a line: this one cannot be replaced while it runs. It goes on waiting where the one `before` did."""
        offer = Offer(
            pid=os.getpid(),
            version=__version__,
            host=config.host,
            port=config.port,
            scheme=scheme_of(config),
            store=config.store_shown,
            is_of_systemd=is_of_systemd,
            is_supervised=supervisor.is_there,
            beat_s=supervisor.beat_s,
            has_lock=lock is not None,
            own=len(own),
        )
        control = before.control if before is not None else _waiting_at(path)
        return None if control is None else cls(path, offer, control, [*listeners, *own], lock=lock)

    async def successor(self) -> Successor:
        """Whoever is ready to go on instead of us. Those who fail on the way change nothing."""
        accepting = asyncio.ensure_future(self._accept())
        try:
            return await self._found
        finally:
            for task in (accepting, *self._talks):
                task.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        self._control.setblocking(False)  # noqa: FBT003
        while True:
            try:
                line, _ = await loop.sock_accept(self._control)
            except OSError:
                await asyncio.sleep(1.0)  # out of descriptors, most likely
                continue
            talk = asyncio.ensure_future(self._talk(line))
            self._talks.add(talk)
            talk.add_done_callback(self._talks.discard)

    async def _talk(self, line: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        is_ours = False
        try:
            async with asyncio.timeout(ANSWER_S):
                hello = await loop.sock_recv(line, _BYTES_MAX)
            refused = self._refusal(line, hello)
            if refused is not None:
                line.send(msgspec.json.encode(msgspec.structs.replace(self._offer, refused=refused)))
                return
            self._is_taken = is_ours = True
            socket.send_fds(line, [msgspec.json.encode(self._offer)], self._handles)
            if await loop.sock_recv(line, _BYTES_MAX) == _READY and not self._found.done():
                line.send(_LEAVING)
                self._found.set_result(Successor(line.dup(), msgspec.json.decode(hello, type=_Hello).version))
        except (OSError, TimeoutError):
            pass  # it is gone, and we are not
        finally:
            line.close()
            if is_ours:
                self._is_taken = False

    def _refusal(self, line: socket.socket, hello: bytes) -> str | None:
        if _user_of(line) != os.geteuid():
            return f"The Peik that runs is of user {os.geteuid()}: start this one as the same user."
        try:
            said = msgspec.json.decode(hello, type=_Hello)
        except msgspec.DecodeError:
            said = _Hello(protocol=0, version="unknown")
        if said.protocol != PROTOCOL:
            return (
                f"The Peik that runs ({__version__}) does not know how version {said.version} takes over. "
                "Stop it, and start that one without --replace."
            )
        if self._is_taken:
            return f"Another process is just about to replace the Peik that runs (process {os.getpid()}). Let it."
        return None

    def close(self, *, is_handed_on: bool) -> None:
        """What was handed on lives on in the other process, under the same name."""
        self._control.close()
        if not is_handed_on and _inode(self._path) == self._place:  # else one that was just starting waits there by now
            self._path.unlink(missing_ok=True)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _waiting_at(path: Path) -> socket.socket | None:
    """A socket to be found by, for this user alone. What stands there is of a process that died: only one at a time may be the
    server of a file, or have a port."""
    if not can_hand_on():
        return None
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = os.umask(0o177)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with _short(path) as name:
            control.bind(name)
        control.listen(8)
    except OSError as error:
        control.close()
        sys.stderr.write(f"`peik serve --replace` will not find this one: {path} cannot be made: {error.strerror}.\n")
        return None
    finally:
        os.umask(before)
    return control


# ---- started by a command that is to return ----


def in_background(run: Callable[[Callable[[], None]], int]) -> int:
    """`run` in a process of its own, which is told how to say that it serves. Returns then, with 0; or with its exit code if it
    ends before."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()  # the terminal's Ctrl-C, and its end, are not for it
        return run(lambda: _say(writing))
    os.close(writing)
    if os.read(reading, 1):
        return 0
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) or 1


def _say(writing: int) -> None:
    with contextlib.suppress(OSError):  # whoever waited has gone away
        os.write(writing, b"1")
    os.close(writing)
