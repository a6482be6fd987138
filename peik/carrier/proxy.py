"""Tunnels through an HTTP or a SOCKS5 proxy, made before a connection carries its first request.

Whatever fails here fails before a byte of a request has left. Only the proxy's own name is looked up on this machine; the
far name goes through the tunnel, and so does TLS, which is made with the far host and never with the proxy.
"""

import asyncio
import base64
import ipaddress
import socket
import ssl
from collections.abc import Callable, Generator

import msgspec

from peik.carrier.dialling import Connect, Spoken, first_to_answer, interleaved

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


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Say this, then listen: for so many bytes, or (0) until a head has ended, with all that came along with it."""

    say: bytes = b""
    count: int = 0


Talk = Generator[Turn, bytes, None]


def http_talk(proxy: Proxy, *, host: str, port: int) -> Talk:
    """HTTP CONNECT (RFC 9110 §9.3.6). Raises NoTunnel."""
    named = f"[{host}]" if ":" in host else host
    where = b"%b:%d" % (_ascii(named), port)
    login = b""
    if proxy.has_login:
        secret = base64.b64encode(f"{proxy.user}:{proxy.password}".encode())
        login = b"Proxy-Authorization: Basic %b\r\n" % secret
    heard = yield Turn(say=b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (where, where, login))
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
    version, method = yield Turn(say=b"\x05%c%b" % (len(methods), methods), count=2)
    if version != 5:
        raise NoTunnel("the proxy does not speak SOCKS5")
    if method not in methods:
        known = "takes no user and password" if proxy.has_login else "wants a user and a password"
        raise NoTunnel(f"the proxy {known}")
    if method == _LOGIN:
        user, password = proxy.user.encode(), proxy.password.encode()
        login = b"\x01%c%b%c%b" % (len(user), user, len(password), password)
        _, refused = yield Turn(say=login, count=2)
        if refused:
            raise NoTunnel("the proxy does not take this user and password")
    where = _socks5_address(host)
    version, code, _, kind = yield Turn(say=b"\x05\x01\x00%b%b" % (where, port.to_bytes(2, "big")), count=4)
    if version != 5:
        raise NoTunnel("the proxy does not speak SOCKS5")
    if code:
        raise NoTunnel(f"the proxy could not connect: {_SOCKS5_REASONS.get(code, f'code {code}')}")
    # The address that the proxy took means nothing to us, but it stands before the tunnel's first byte.
    length = {_IPV4: 4, _IPV6: 16}.get(kind)
    if length is None:
        if kind != _NAME:
            raise NoTunnel("the proxy does not speak SOCKS5")
        (length,) = yield Turn(count=1)
    yield Turn(count=length + 2)


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
