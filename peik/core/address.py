"""Addresses of webhooks: which ones may be written down, and which machines may be spoken to. Nothing is resolved here.

A webhook's address comes from anyone who holds a key. Peik stands inside somebody's network, so without these rules a key
would be a way to send requests to routers, databases and the metadata services of clouds.
"""

import enum
import ipaddress
import re
import urllib.parse

from peik.errors import BadInput

URL_CHARS_MAX = 2048

# What may stand in a request line as it is. No spaces or control characters: nobody adds a header of theirs through it.
_PLAIN = re.compile(r"[!#-;=?-\[\]_a-z~]+")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
# A last label like this makes resolvers read the whole as a number: 2130706433, 0x7f.1 and 127.1 are all 127.0.0.1.
_NUMERIC_END = re.compile(r"(^|\.)(0x[0-9a-f]*|[0-9]+)\.?$")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Of IETF protocols; some of Python's tables count a part of it as global.
_PROTOCOLS = ipaddress.ip_network("192.0.0.0/24")

# Where clouds answer anyone who asks with their secrets, beside link-local addresses: AWS over IPv6, Alibaba, Azure.
_METADATA = tuple(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressReach(enum.IntEnum):
    """How far somebody's addresses may lead. Each includes those before it."""

    PUBLIC = 0  # the open internet
    INSIDE = 1  # this machine and private networks
    ANYWHERE = 2  # link-local addresses as well, and the metadata services of clouds

    @classmethod
    def private(cls, is_allowed: bool, /) -> "AddressReach":
        """Of a setting that allows all or nothing."""
        return cls.ANYWHERE if is_allowed else cls.PUBLIC


def read_address(text: str, *, reach: AddressReach, hint: str = "PEIK_HOOKS_ALLOW_PRIVATE=on allows it.") -> str:
    """A webhook's address in its one form: lower-case host, a path, no fragment. `hint`: what allows one that leads too far.
    Raises BadInput."""
    if len(text) > URL_CHARS_MAX or not _PLAIN.fullmatch(text):
        raise _bad(f"it has at most {URL_CHARS_MAX} plain ASCII characters; write others as %XX or punycode")
    try:
        parts = urllib.parse.urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise _bad(str(error)) from None
    if parts.scheme not in ("http", "https"):
        raise _bad("it begins with https:// or http://")
    if "@" in parts.netloc:
        raise _bad("it holds no user and password; the signature tells who sends")
    host, needed = _host(parts.hostname or "")
    if needed > reach:
        raise _private(host, hint)
    if port == 0:
        raise _bad("there is no port 0")
    place = host if port is None else f"{host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{place}{parts.path or '/'}{query}"


def _host(host: str) -> tuple[str, AddressReach]:
    """The host as it is written in an address, and what it needs as far as that is known without asking."""
    if ":" in host:
        ip = _literal(host)
        return f"[{ip}]", reach_of(ip)
    if _NUMERIC_END.search(host):
        ip = _literal(host)
        return str(ip), reach_of(ip)
    if not _NAME.fullmatch(host):
        raise _bad("its host is not a name or an address")
    is_here = re.fullmatch(r"(.+\.)?localhost\.?", host) is not None
    return host, AddressReach.INSIDE if is_here else AddressReach.PUBLIC


def _literal(host: str) -> Ip:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        raise _bad("its host is not an address; IPv4 is written as four numbers") from None


def reach_of(ip: Ip) -> AddressReach:
    """What it takes to speak to an address, also when it stands within another."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None:
            return AddressReach.ANYWHERE
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return reach_of(inner)
        if ip.teredo is not None:
            return AddressReach.ANYWHERE
    if ip.is_link_local or ip in _METADATA or ip in _PROTOCOLS:
        return AddressReach.ANYWHERE
    is_strange = ip.is_multicast or ip.is_reserved or ip.is_unspecified or getattr(ip, "is_site_local", False)
    return AddressReach.PUBLIC if ip.is_global and not is_strange else AddressReach.INSIDE


def _bad(why: str) -> BadInput:
    return BadInput(code="bad_webhook_url", detail=f"webhook_url cannot be used: {why}.")


def _private(host: str, hint: str) -> BadInput:
    return BadInput(
        code="private_webhook_url",
        detail=f"webhook_url names {host}, which is not on the open internet. {hint}",
    )
