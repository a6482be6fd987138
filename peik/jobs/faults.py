"""Tells the failures of an outside host from a job's own mistakes, by what was raised.

Libraries are known by the names of their exceptions and never imported. Nothing here needs a running Peik: work in a
process of its own asks it there.
"""

import errno
import re
import socket
from collections.abc import Iterator

from peik.jobs.endings import JobHopeless, JobLater
from peik.jobs.ports import HostShut

DEPTH_MAX = 8  # causes behind causes
WHY_CHARS_MAX = 200

_URL = re.compile(r"(://)(?:[^\s'\"/@]*@)?([^\s'\"/?#]*)[^\s'\"]*")

_NETWORK = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.ETIMEDOUT,
    }
)
_NO_CONNECTION = frozenset({errno.ECONNREFUSED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH})
# "There is no such name" is a mistake in a link. "The name server does not answer" is not.
_NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})

# By the library's first name and the exception's own; those that come from them are meant, too.
_CONNECTS = frozenset(
    {
        "aiohttp.ClientConnectorError",
        "aiohttp.ConnectionTimeoutError",
        "httpcore.ConnectError",
        "httpcore.ConnectTimeout",
        "httpx.ConnectError",
        "httpx.ConnectTimeout",
        "requests.ConnectTimeout",
        "urllib3.ConnectTimeoutError",
        "urllib3.NewConnectionError",
    }
)
_FAULTS = _CONNECTS | {
    "aiohttp.ClientConnectionError",
    "aiohttp.ClientPayloadError",
    "asyncio.IncompleteReadError",
    "http.BadStatusLine",
    "http.IncompleteRead",
    "httpcore.NetworkError",
    "httpcore.ProxyError",
    "httpcore.ReadTimeout",
    "httpcore.RemoteProtocolError",
    "httpcore.WriteTimeout",
    "httpx.NetworkError",
    "httpx.ProxyError",
    "httpx.ReadTimeout",
    "httpx.RemoteProtocolError",
    "httpx.WriteTimeout",
    "requests.ChunkedEncodingError",
    "requests.ConnectionError",
    "requests.Timeout",
    "ssl.SSLError",
    "urllib3.IncompleteRead",
    "urllib3.MaxRetryError",
    "urllib3.ProtocolError",
    "urllib3.SSLError",
    "urllib3.TimeoutError",
    "yt_dlp.TransportError",
}
# Where an answer of a host has its number.
_ANSWERED = frozenset(
    {
        "aiohttp.ClientResponseError",
        "httpx.HTTPStatusError",
        "requests.HTTPError",
        "urllib.HTTPError",
        "yt_dlp.HTTPError",
    }
)


class HostDown(Exception):
    """An outside host fails. A job's function may raise it itself, for what Peik cannot know to be one."""

    def __init__(self, why: str, *, is_connect: bool = False) -> None:
        """`is_connect`: not even a connection could be made, which says nothing about the job and all about the host."""
        super().__init__(why)
        self.is_connect = is_connect


def fault_of(error: BaseException) -> HostDown | None:
    """What the error says against the host; None: nothing."""
    if isinstance(error, HostDown):
        return error
    for one in _unwrapped(error):
        if isinstance(one, HostDown):
            return one
        status = _status_of(one)
        if status is not None:
            return HostDown(f"it answers {status}") if status >= 500 else None
        if _is_no_such_name(one):
            return None
    is_connect = any(_is_connect(one) for one in _unwrapped(error))
    if is_connect or any(_is_fault(one) for one in _unwrapped(error)):
        return HostDown(_shown(error), is_connect=is_connect)
    return None


def is_answer(error: BaseException) -> bool:
    """Whether the host answered something that it may answer, such as 404: it is well, and the job is not."""
    statuses = (_status_of(one) for one in _unwrapped(error))
    return any(status is not None and status < 500 for status in statuses)


def _unwrapped(error: BaseException, depth: int = DEPTH_MAX) -> Iterator[BaseException]:
    """The error and those that it was made of, as its library or `raise … from` says. What a job says of itself counts as
    it is: it may give up because of a host, and that is not for us to undo."""
    if isinstance(error, HostShut | JobHopeless | JobLater):
        return
    yield error
    if not depth:
        return
    if isinstance(error, BaseExceptionGroup):
        inner: list[object] = list(error.exceptions)
    else:
        named = [getattr(error, name, None) for name in ("os_error", "reason", "cause")]  # aiohttp, urllib, yt-dlp
        inner = [error.__cause__, *named, *error.args[:1]]
        raised = getattr(error, "exc_info", None)  # yt-dlp
        if isinstance(raised, tuple) and len(raised) == 3:
            inner.append(raised[1])
    for one in inner:
        if isinstance(one, BaseException) and one is not error:
            yield from _unwrapped(one, depth - 1)


def _names(error: BaseException) -> Iterator[str]:
    for kind in type(error).__mro__:
        yield f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


def _status_of(error: BaseException) -> int | None:
    if _ANSWERED.isdisjoint(_names(error)):
        return None
    answer = getattr(error, "response", None)
    for holder, name in ((error, "status"), (error, "code"), (answer, "status_code"), (answer, "status")):
        status = getattr(holder, name, None)
        if isinstance(status, int) and 100 <= status < 600:
            return status
    return None


def _is_no_such_name(error: BaseException) -> bool:
    return isinstance(error, socket.gaierror) and error.errno in _NO_SUCH_NAME


def _is_connect(error: BaseException) -> bool:
    if isinstance(error, ConnectionRefusedError | socket.gaierror):
        return True
    is_unreachable = isinstance(error, OSError) and error.errno in _NO_CONNECTION
    return is_unreachable or not _CONNECTS.isdisjoint(_names(error))


def _is_fault(error: BaseException) -> bool:
    """Files that are missing and disks that are full are OSErrors as well, and none of the host's."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    is_network = isinstance(error, OSError) and error.errno in _NETWORK
    return is_network or not _FAULTS.isdisjoint(_names(error))


def _shown(error: BaseException) -> str:
    """Without the address beyond the host: tokens are often in it."""
    text = " ".join(_URL.sub(r"\1\2", str(error)).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:WHY_CHARS_MAX]
