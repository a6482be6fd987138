"""Addresses of webhooks: which ones may be written down, and which machines may be spoken to. Nothing is resolved here.

A webhook's address comes from whoever holds a key. Peik stands inside somebody's network, so without these rules a key
would be a way to send requests to routers, databases and the metadata services of clouds.
"""

import ipaddress
import re
import urllib.parse

from peik.core.problem import BadInput

URL_CHARS_MAX = 2048

# What may stand in a request line as it is. No spaces or control characters: nobody adds a header of theirs through it.
_PLAIN = re.compile(r"[!#-;=?-\[\]_a-z~]+")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
# A last label like this makes resolvers read the whole as a number: 2130706433, 0x7f.1 and 127.1 are all 127.0.0.1.
_NUMERIC_END = re.compile(r"(^|\.)(0x[0-9a-f]*|[0-9]+)\.?$")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Of IETF protocols; some of Python's tables count a part of it as global.
_PROTOCOLS = ipaddress.ip_network("192.0.0.0/24")

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def read_address(text: str, *, may_be_private: bool, setting: str = "PEIK_HOOKS_ALLOW_PRIVATE") -> str:
    """A webhook's address in its one form: lower-case host, a path, no fragment. `setting`: what allows private ones. Raises
    BadInput."""
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
    host, is_private = _host(parts.hostname or "")
    if is_private and not may_be_private:
        raise _private(host, setting)
    if port == 0:
        raise _bad("there is no port 0")
    place = host if port is None else f"{host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{place}{parts.path or '/'}{query}"


def _host(host: str) -> tuple[str, bool]:
    """The host as it is written in an address, and whether it is known not to be on the open internet."""
    if ":" in host:
        ip = _literal(host)
        return f"[{ip}]", not is_public(ip)
    if _NUMERIC_END.search(host):
        ip = _literal(host)
        return str(ip), not is_public(ip)
    if not _NAME.fullmatch(host):
        raise _bad("its host is not a name or an address")
    return host, re.fullmatch(r"(.+\.)?localhost\.?", host) is not None


def _literal(host: str) -> Ip:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        raise _bad("its host is not an address; IPv4 is written as four numbers") from None


def is_public(ip: Ip) -> bool:
    """Whether an address is one of the open internet, also when it stands within another."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.teredo is not None or ip.is_site_local or ip.scope_id is not None:
            return False
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    if ip in _PROTOCOLS:
        return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not ip.is_unspecified


def _bad(why: str) -> BadInput:
    return BadInput(code="bad_webhook_url", detail=f"webhook_url cannot be used: {why}.")


def _private(host: str, setting: str) -> BadInput:
    return BadInput(
        code="private_webhook_url",
        detail=f"webhook_url names {host}, which is not on the open internet. {setting}=on allows it.",
    )
