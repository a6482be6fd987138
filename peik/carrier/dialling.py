"""Opening connections: names into addresses, the first address that answers, and the words for what went wrong."""

import asyncio
import ipaddress
import itertools
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from peik.carrier.http import reason_of
from peik.core.address import Reach, reach_of
from peik.core.reply import Fault

# RFC 8305 recommends 250 ms between two addresses of one host.
_STAGGER_S = 0.25

Spoken = TypeVar("Spoken", bound=asyncio.BaseProtocol)


class Connect(Protocol):
    """How a connection is opened: the seam under which a proxy goes. It may raise OSError (with its kin) and UnicodeError."""

    async def __call__(
        self, loop: asyncio.AbstractEventLoop, protocol_factory: Callable[[], Spoken], /
    ) -> tuple[asyncio.BaseTransport, Spoken]: ...


Resolve = Callable[[str, int], Awaitable["Sequence[AddressInfo]"]]


async def system_resolve(host: str, port: int) -> "Sequence[AddressInfo]":
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


def within(found: "Sequence[AddressInfo]", reach: Reach) -> "Sequence[AddressInfo]":
    """Those that may be spoken to. The check is made on what a name resolved to, and the connection goes to that very address: a
    name that changes in between gains nothing. Raises OSError if none is left."""
    if reach is Reach.ANYWHERE:
        return found
    allowed = [info for info in found if reach_of(ipaddress.ip_address(str(info[4][0]))) <= reach]
    if found and not allowed:
        raise PrivateError("its host is not on the open internet")
    return allowed


class PrivateError(OSError):
    """A name leads to a machine that must not be spoken to."""


def direct(
    *,
    host: str,
    port: int,
    ssl_context: ssl.SSLContext | None,
    reach: Reach = Reach.ANYWHERE,
    resolve: Resolve = system_resolve,
) -> Connect:
    """A way straight to the host, over IPv6 or IPv4, whichever answers first."""

    async def connect(
        loop: asyncio.AbstractEventLoop, protocol_factory: Callable[[], Spoken]
    ) -> tuple[asyncio.BaseTransport, Spoken]:
        # Resolved anew for each connection: a cached failure, or a cached address that died, would outlive the outage.
        found = await resolve(host, port)
        peer = await first_to_answer(loop, interleaved(within(found, reach)))
        if ssl_context is None:
            return await loop.create_connection(protocol_factory, sock=peer)
        try:
            return await loop.create_connection(protocol_factory, sock=peer, ssl=ssl_context, server_hostname=host)
        except ConnectionError as error:
            raise ssl.SSLError("the peer broke off the handshake") from error

    return connect


def fault_of(error: Exception) -> Fault:
    """Which of our words fits an error from connecting. None of them can have carried a byte of a request."""
    match error:
        case socket.gaierror() | UnicodeError():
            return Fault.DNS
        case ssl.SSLError():
            return Fault.TLS
        case TimeoutError():
            return Fault.CONNECT_TIMEOUT
        case ConnectionError():
            return Fault.REFUSED
        case _:
            return Fault.UNREACHABLE


def detail_of(error: Exception) -> str:
    return f"no connection: {reason_of(error)}"


_Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, _Address]


def interleaved(found: Sequence[AddressInfo]) -> list[AddressInfo]:
    """The families by turns, the resolver's favourite first, so that one dead family costs one stagger and no more."""
    families: dict[int, list[AddressInfo]] = {}
    for info in found:
        families.setdefault(info[0], []).append(info)
    return [info for turn in itertools.zip_longest(*families.values()) for info in turn if info is not None]


async def first_to_answer(loop: asyncio.AbstractEventLoop, addresses: list[AddressInfo]) -> socket.socket:
    """Happy eyeballs on plain sockets, because uvloop's create_connection has none. Raises the first failure."""
    untried = list(addresses)
    dials: set[asyncio.Task[socket.socket]] = set()
    failure: BaseException = OSError("the host has no address")
    is_first_failure = True
    try:
        while untried or dials:
            if untried:
                dials.add(loop.create_task(_dial(loop, untried.pop(0))))
            ended, _ = await asyncio.wait(
                dials, timeout=_STAGGER_S if untried else None, return_when=asyncio.FIRST_COMPLETED
            )
            for dial in ended:
                dials.discard(dial)
                if (error := dial.exception()) is None:
                    return dial.result()
                if is_first_failure:
                    failure, is_first_failure = error, False
        raise failure
    finally:
        for dial in dials:
            dial.cancel()
        for late in await asyncio.gather(*dials, return_exceptions=True):
            if isinstance(late, socket.socket):
                late.close()


async def _dial(loop: asyncio.AbstractEventLoop, address: AddressInfo) -> socket.socket:
    family, kind, protocol, _, where = address
    peer = socket.socket(family, kind, protocol)
    try:
        peer.settimeout(0)  # non-blocking, as the loop wants it
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(peer, where)
    except BaseException:
        peer.close()
        raise
    return peer
