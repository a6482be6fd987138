"""Opening connections: names into addresses, the first address that answers, and the words for what went wrong."""

import asyncio
import base64
import ipaddress
import itertools
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from peik.core.address import AddressReach, reach_of
from peik.core.outcome import NetworkFault
from peik.errors import StartError
from peik.telegram.http import reason_of

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


def within(found: "Sequence[AddressInfo]", reach: AddressReach) -> "Sequence[AddressInfo]":
    """Those that may be spoken to. The check is made on what a name resolved to, and the connection goes to that very address: a
    name that changes in between gains nothing. Raises OSError if none is left."""
    if reach is AddressReach.ANYWHERE:
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
    reach: AddressReach = AddressReach.ANYWHERE,
    resolve: Resolve = system_resolve,
) -> Connect:
    """A way straight to the host, over IPv6 or IPv4, whichever answers first."""

    async def connect(
        loop: asyncio.AbstractEventLoop, protocol_factory: Callable[[], Spoken]
    ) -> tuple[asyncio.BaseTransport, Spoken]:
        # Resolved again for each connection: a cached failure, or a cached address that died, would outlive the outage.
        found = await resolve(host, port)
        peer = await first_to_answer(loop, interleaved(within(found, reach)))
        if ssl_context is None:
            return await loop.create_connection(protocol_factory, sock=peer)
        try:
            return await loop.create_connection(protocol_factory, sock=peer, ssl=ssl_context, server_hostname=host)
        except ConnectionError as error:
            raise ssl.SSLError("the peer broke off the handshake") from error

    return connect


def fault_of(error: Exception) -> NetworkFault:
    """Which of our words fits an error from connecting. None of them can have carried a byte of a request."""
    match error:
        case socket.gaierror() | UnicodeError():
            return NetworkFault.DNS
        case ssl.SSLError():
            return NetworkFault.TLS
        case TimeoutError():
            return NetworkFault.CONNECT_TIMEOUT
        case ConnectionError():
            return NetworkFault.REFUSED
        case _:
            return NetworkFault.UNREACHABLE


def detail_of(error: Exception) -> str:
    return f"no connection: {reason_of(error)}"


_Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, _Address]


def interleaved(found: Sequence[AddressInfo]) -> list[AddressInfo]:
    """The families in turn, the resolver's favourite first, so that one dead family costs one stagger and no more."""
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
    won: socket.socket | None = None
    try:
        while untried or dials:
            if untried:
                dials.add(loop.create_task(_dial(loop, untried.pop(0))))
            ended, _ = await asyncio.wait(
                dials, timeout=_STAGGER_S if untried else None, return_when=asyncio.FIRST_COMPLETED
            )
            for dial in ended:
                dials.discard(dial)
                if (error := dial.exception()) is not None:
                    if is_first_failure:
                        failure, is_first_failure = error, False
                elif won is None:
                    won = dial.result()
                else:
                    dial.result().close()  # two at once: the second is not needed
            if won is not None:
                return won
        raise failure
    finally:
        # Nobody waits for the others: anyone who is cancelled meanwhile would lose the socket that has won.
        for dial in dials:
            dial.add_done_callback(_close_late)
            dial.cancel()


def _close_late(dial: asyncio.Task[socket.socket]) -> None:
    if not dial.cancelled() and dial.exception() is None:
        dial.result().close()


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


# Tunnels through an HTTP or a SOCKS5 proxy, made before a connection carries its first request.
#
# Whatever fails here fails before a byte of a request has left. Only the proxy's own name is looked up on this
# machine; the far name goes through the tunnel, and so does TLS, which is made with the far host and never with the
# proxy.


# Our handshakes fit into a packet. A proxy that says more than this before the tunnel is open is no proxy.
HEAD_BYTES_MAX = 64 * 1024
_END_OF_HEAD = b"\r\n\r\n"


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """Where a proxy is, and as whom it is asked."""

    host: str
    port: int
    user: str = ""
    password: str = ""

    @property
    def has_login(self) -> bool:
        return bool(self.user or self.password)

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


class NoTunnel(ConnectionError):
    """The proxy was reached and did not open the way. The sentence says why, and never as whom it was asked."""


def through_http(proxy: Proxy, *, host: str, port: int, ssl_context: ssl.SSLContext | None) -> Connect:
    """A way to the host through a proxy that speaks HTTP CONNECT."""
    return _through(proxy, lambda: http_talk(proxy, host=host, port=port), host, ssl_context)


def through_socks5(proxy: Proxy, *, host: str, port: int, ssl_context: ssl.SSLContext | None) -> Connect:
    """A way to the host through a SOCKS5 proxy, which looks the host's name up itself."""
    return _through(proxy, lambda: socks5_talk(proxy, host=host, port=port), host, ssl_context)


# ---- what is said: no sockets here ----


class ProxyTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Say this, then listen: for a number of bytes, or (0) until a head has ended, with all that came along with it."""

    say: bytes = b""
    count: int = 0


Talk = Generator[ProxyTurn, bytes, None]


def http_talk(proxy: Proxy, *, host: str, port: int) -> Talk:
    """HTTP CONNECT (RFC 9110 §9.3.6). Raises NoTunnel."""
    named = f"[{host}]" if ":" in host else host
    where = b"%b:%d" % (_ascii(named), port)
    login = b""
    if proxy.has_login:
        secret = base64.b64encode(f"{proxy.user}:{proxy.password}".encode())
        login = b"Proxy-Authorization: Basic %b\r\n" % secret
    heard = yield ProxyTurn(say=b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (where, where, login))
    head, _, more = heard.partition(_END_OF_HEAD)
    line = head.partition(b"\r\n")[0].split(maxsplit=2)
    if len(line) < 2 or not line[0].startswith(b"HTTP/1.") or not line[1].isdigit():
        raise NoTunnel("the proxy does not speak HTTP")
    status = int(line[1])
    if status == 407:
        known = "does not take this user and password" if proxy.has_login else "wants a user and a password"
        raise NoTunnel(f"the proxy {known} (407)")
    if not 200 <= status < 300:
        reason = line[2].decode("ascii", "replace")[:80] if len(line) > 2 else ""
        raise NoTunnel(f"the proxy answered {status} {reason}".rstrip())
    if more:
        # The far host speaks only when it is spoken to, so this is the page of a filter or a portal.
        raise NoTunnel("the proxy answered with a page of its own instead of a tunnel")


_SOCKS5_REASONS = {
    1: "general failure",
    2: "its rules forbid this connection",
    3: "the network cannot be reached",
    4: "the host cannot be found or reached",
    5: "the host refused the connection",
    6: "the time to live ran out",
    7: "it knows no CONNECT",
    8: "it does not take this kind of address",
}
_NO_LOGIN, _LOGIN = 0, 2
_IPV4, _NAME, _IPV6 = 1, 3, 4


def socks5_talk(proxy: Proxy, *, host: str, port: int) -> Talk:
    """SOCKS5 (RFC 1928) with user and password (RFC 1929). Raises NoTunnel."""
    methods = bytes([_NO_LOGIN, _LOGIN] if proxy.has_login else [_NO_LOGIN])
    version, method = yield ProxyTurn(say=b"\x05%c%b" % (len(methods), methods), count=2)
    if version != 5:
        raise NoTunnel("the proxy does not speak SOCKS5")
    if method not in methods:
        known = "takes no user and password" if proxy.has_login else "wants a user and a password"
        raise NoTunnel(f"the proxy {known}")
    if method == _LOGIN:
        user, password = proxy.user.encode(), proxy.password.encode()
        login = b"\x01%c%b%c%b" % (len(user), user, len(password), password)
        _, refused = yield ProxyTurn(say=login, count=2)
        if refused:
            raise NoTunnel("the proxy does not take this user and password")
    where = _socks5_address(host)
    version, code, _, kind = yield ProxyTurn(say=b"\x05\x01\x00%b%b" % (where, port.to_bytes(2, "big")), count=4)
    if version != 5:
        raise NoTunnel("the proxy does not speak SOCKS5")
    if code:
        raise NoTunnel(f"the proxy could not connect: {_SOCKS5_REASONS.get(code, f'code {code}')}")
    # The address that the proxy took means nothing to us, but it stands before the tunnel's first byte.
    length = {_IPV4: 4, _IPV6: 16}.get(kind)
    if length is None:
        if kind != _NAME:
            raise NoTunnel("the proxy does not speak SOCKS5")
        (length,) = yield ProxyTurn(count=1)
    yield ProxyTurn(count=length + 2)


def _socks5_address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = _ascii(host)
        if len(name) > 255:
            raise NoTunnel("the host's name is too long for SOCKS5") from None
        return b"%c%c%b" % (_NAME, len(name), name)
    return b"%c%b" % (_IPV4 if address.version == 4 else _IPV6, address.packed)


def _ascii(host: str) -> bytes:
    return host.encode("ascii" if host.isascii() else "idna")


# ---- over a socket ----


def _through(proxy: Proxy, begin: Callable[[], Talk], host: str, ssl_context: ssl.SSLContext | None) -> Connect:
    async def connect(
        loop: asyncio.AbstractEventLoop, protocol_factory: Callable[[], Spoken]
    ) -> tuple[asyncio.BaseTransport, Spoken]:
        peer = await _reach(loop, proxy)
        try:
            await _converse(loop, peer, begin())
        except BaseException:
            peer.close()
            raise
        if ssl_context is None:
            return await loop.create_connection(protocol_factory, sock=peer)
        try:
            return await loop.create_connection(protocol_factory, sock=peer, ssl=ssl_context, server_hostname=host)
        except ConnectionError as error:
            raise ssl.SSLError("the handshake through the proxy was broken off") from error

    return connect


async def _reach(loop: asyncio.AbstractEventLoop, proxy: Proxy) -> socket.socket:
    """A socket to the proxy. Its failures are told as the proxy's, since the route's name alone does not say whose."""
    try:
        found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise socket.gaierror(error.errno, f"the proxy's name: {error.strerror}") from None
    try:
        return await first_to_answer(loop, interleaved(found))
    except OSError as error:
        # With an errno OSError makes its own subclass, so a refusal stays a ConnectionRefusedError.
        raise OSError(error.errno, f"the proxy cannot be reached: {error.strerror or error}") from None


async def _converse(loop: asyncio.AbstractEventLoop, peer: socket.socket, talk: Talk) -> None:
    try:
        turn = next(talk)
        while True:
            if turn.say:
                await loop.sock_sendall(peer, turn.say)
            turn = talk.send(await _listen(loop, peer, turn.count))
    except StopIteration:
        return
    except ConnectionError as error:
        raise error if isinstance(error, NoTunnel) else NoTunnel("the proxy broke off the handshake") from None


async def _listen(loop: asyncio.AbstractEventLoop, peer: socket.socket, count: int) -> bytes:
    heard = b""
    while len(heard) < count if count else _END_OF_HEAD not in heard:
        more = await loop.sock_recv(peer, count - len(heard) if count else 4096)
        if not more:
            raise NoTunnel("the proxy closed the connection during the handshake")
        heard += more
        if len(heard) > HEAD_BYTES_MAX:
            raise NoTunnel("the proxy says too much before it opens the tunnel")
    return heard


# Whose certificates are believed when Peik calls somebody: the system's authorities, and those of PEIK_CA_FILE
# besides.


def client_context(ca_file: Path | None) -> ssl.SSLContext:
    """Certificates and names are checked, TLS 1.2 or newer is spoken. Raises StartError if the file cannot be used."""
    if ca_file is None:
        return system_context()
    context = _checked()
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror or "there is no certificate in it"
        raise StartError(f"PEIK_CA_FILE={ca_file} cannot be used: {why}. It holds certificates in PEM.") from None
    return context


@cache
def system_context() -> ssl.SSLContext:
    """One for the whole process: to read the system's authorities takes tens of milliseconds. Nobody changes it."""
    return _checked()


def _checked() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def own_context(cert: Path) -> ssl.SSLContext:
    """For calls to our own server on this machine, under whatever name: exactly the certificate in this file is believed."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cert)
    except OSError as error:
        raise StartError(f"PEIK_TLS_CERT={cert} cannot be read: {error.strerror or 'it is no certificate'}.") from None
    return context
