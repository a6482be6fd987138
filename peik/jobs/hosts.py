"""The outside hosts that jobs of this process talk to, each with a breaker of its own."""

import enum
import errno
import random
import re
import socket
from collections.abc import Iterator
from types import TracebackType
from urllib.parse import urlsplit

import msgspec

from peik.clock import Clock
from peik.core.events import Events
from peik.errors import BadInput
from peik.jobs.events import HostClosed, HostOpened
from peik.jobs.outcome import HostShut, JobHopeless, JobLater

# The breaker of one outside host: opens when the host fails for several jobs, and lets one job at a time try whether
# it is back.
#
# Pure; time and chance come in. What is asked of a host while the breaker stands one way tells nothing once it stands
# another way: each talk carries the `era` in which it began, and only talks of the present era count.


FAILURES_TO_OPEN = 5  # in a row, over more than one job: one job that breaks a server must not keep the others from it
CONNECTS_TO_OPEN = 3  # in a row: a connection that cannot be made says nothing about the job
PROBE_S_FIRST = 5.0
PROBE_S_MAX = 60.0
PROBE_PATIENCE_S = 30.0  # a probe may be a download of an hour: after so long another job may try beside it
PROBE_LOOK_S = 10.0  # while a probe is under way, the others come back so soon


class HostState(enum.StrEnum):
    CLOSED = "closed"  # all is well
    OPEN = "open"  # left alone
    PROBING = "probing"  # one job tries


class HostBreaker(msgspec.Struct, frozen=True, kw_only=True):
    state: HostState = HostState.CLOSED
    era: int = 0  # rises each time it opens or closes
    failures: int = 0  # in a row
    failing: frozenset[int] = frozenset()  # the jobs of that row
    connects: int = 0  # failures to connect, in a row
    probes: int = 0  # that failed
    probe_at: float = 0.0  # from then on a job may try
    opened_at: float = 0.0
    why: str = ""


def wait_s(breaker: HostBreaker, *, now: float) -> float | None:
    """How long a job has to leave the host alone; None: it may go, and `begun` is to be told."""
    if breaker.state is HostState.CLOSED or now >= breaker.probe_at:
        return None
    left_s = breaker.probe_at - now
    return min(left_s, PROBE_LOOK_S) if breaker.state is HostState.PROBING else left_s


def begun(breaker: HostBreaker, *, now: float) -> HostBreaker:
    """A job talks to the host. While the breaker is open, this is a probe."""
    if breaker.state is HostState.CLOSED:
        return breaker
    return msgspec.structs.replace(breaker, state=HostState.PROBING, probe_at=now + PROBE_PATIENCE_S)


def after_success(breaker: HostBreaker, *, era: int) -> HostBreaker:
    """The host did what was asked of it."""
    if era != breaker.era:
        return breaker
    is_clean = breaker.state is HostState.CLOSED and not breaker.failures
    return breaker if is_clean else HostBreaker(era=era + (breaker.state is not HostState.CLOSED))


def after_failure(
    breaker: HostBreaker, *, era: int, job_id: int, is_connect: bool, now: float, chance: float, why: str
) -> HostBreaker:
    if era != breaker.era:
        return breaker
    if breaker.state is not HostState.CLOSED:
        probes = breaker.probes + 1
        return msgspec.structs.replace(
            breaker, state=HostState.OPEN, probes=probes, probe_at=now + _wait_s(probes, chance), why=why
        )
    row = msgspec.structs.replace(
        breaker,
        failures=breaker.failures + 1,
        failing=breaker.failing | {job_id} if len(breaker.failing) < 2 else breaker.failing,
        connects=breaker.connects + 1 if is_connect else 0,
        why=why,
    )
    if row.connects < CONNECTS_TO_OPEN and (row.failures < FAILURES_TO_OPEN or len(row.failing) < 2):
        return row
    return HostBreaker(
        state=HostState.OPEN,
        era=era + 1,
        failures=row.failures,
        probe_at=now + _wait_s(0, chance),
        opened_at=now,
        why=why,
    )


def after_nothing(breaker: HostBreaker, *, era: int, now: float) -> HostBreaker:
    """A talk that says nothing of the host: it was cancelled, or the job made a mistake. If it was a probe, the next may come."""
    if era != breaker.era or breaker.state is not HostState.PROBING:
        return breaker
    return msgspec.structs.replace(breaker, state=HostState.OPEN, probe_at=now)


def _wait_s(probes: int, chance: float) -> float:
    """5, 10, 20 … 60 s, each shortened by up to a fifth, so that many nodes do not probe in step."""
    return min(PROBE_S_MAX, PROBE_S_FIRST * (1 << min(probes, 8))) * (1.0 - chance / 5)


# Tells the failures of an outside host from a job's own mistakes, by what was raised.
#
# Libraries are known by the names of their exceptions and never imported. Nothing here needs a running Peik: work in
# a process of its own asks it there.


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


__all__ = ["HostDown", "HostView", "Hosts", "fault_of"]

HOSTS_MAX = 1000  # remembered; links come from people, and name whatever they like
NAME_CHARS_MAX = 253  # of a name in the DNS
_USUAL_PORTS = (None, 80, 443)


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """A host as others may see it."""

    name: str
    state: HostState
    failures: int  # in a row
    why: str | None = None  # of the last failure in the row
    since_s: float | None = None  # since it opened
    retry_s: float | None = None  # until a job may try


class Hosts:
    def __init__(self, *, clock: Clock, events: Events, chance: random.Random, hosts_max: int = HOSTS_MAX) -> None:
        self._clock = clock
        self._events = events
        self._chance = chance
        self._hosts_max = hosts_max
        self._known: dict[str, HostBreaker] = {}  # those that were used last at the end

    def of(self, host: str, job_id: int) -> "HostTalk":
        """`async with hosts.of("example.com", job.id):` around what talks to it. Raises HostShut on the way in while the host
        is left alone, and BadInput if that is no name. An address (a link) is taken for the host in it."""
        return HostTalk(self, host_in(host), job_id)

    def all(self) -> list[HostView]:
        """By name."""
        now = self._clock.mono()
        return [_view(name, breaker, now) for name, breaker in sorted(self._known.items())]

    def shut_s(self, host: str) -> float | None:
        """How long a host is left alone from now on. None: it is not."""
        breaker = self._known.get(host_in(host))
        return None if breaker is None else wait_s(breaker, now=self._clock.mono())

    # ---- of a talk ----

    def begin(self, name: str) -> int:
        """The era of the talk. Raises HostShut."""
        now = self._clock.mono()
        breaker = self._known.pop(name, None) or HostBreaker()
        self._make_room()
        self._known[name] = breaker
        left_s = wait_s(breaker, now=now)
        if left_s is not None:
            raise HostShut(name, left_s)
        self._known[name] = begun(breaker, now=now)
        return breaker.era

    def end(self, name: str, job_id: int, era: int, error: BaseException | None) -> None:
        breaker = self._known.get(name)
        if breaker is None:
            return  # forgotten meanwhile: it was well
        now = self._clock.mono()
        fault = None if error is None else fault_of(error)
        if fault is not None:
            after = after_failure(
                breaker,
                era=era,
                job_id=job_id,
                is_connect=fault.is_connect,
                now=now,
                chance=self._chance.random(),
                why=str(fault) or type(fault).__name__,
            )
        elif error is None or is_answer(error):
            after = after_success(breaker, era=era)
        else:
            after = after_nothing(breaker, era=era, now=now)
        self._known[name] = after
        if breaker.state is HostState.CLOSED and after.state is HostState.OPEN:
            self._events.tell(HostOpened(host=name, why=after.why))
        elif breaker.state is not HostState.CLOSED and after.state is HostState.CLOSED:
            self._events.tell(HostClosed(host=name, after_s=now - breaker.opened_at))

    def _make_room(self) -> None:
        """The one goes that was not used for longest, well ones first."""
        while len(self._known) >= self._hosts_max:
            well = (name for name, breaker in self._known.items() if breaker.state is HostState.CLOSED)
            name = next(well, None) or next(iter(self._known))
            breaker = self._known.pop(name)
            if breaker.state is not HostState.CLOSED:  # anyone who was told that it is down must hear an end of it
                self._events.tell(HostClosed(host=name, after_s=self._clock.mono() - breaker.opened_at))


class HostTalk:
    """One job's talk with one host. What the body raises is passed on as it is."""

    def __init__(self, hosts: Hosts, name: str, job_id: int) -> None:
        self._hosts = hosts
        self._name = name
        self._job_id = job_id
        self._era = 0

    async def __aenter__(self) -> None:
        self._era = self._hosts.begin(self._name)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hosts.end(self._name, self._job_id, self._era, error)


def host_in(text: str) -> str:
    """The host (with its port, if one is given) of a name or an address. Never what may be secret in it. Raises BadInput."""
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        name, port = parts.hostname, parts.port
    except ValueError:
        name, port = None, None
    name = (name or "").rstrip(".")
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or " " in name:
        raise BadInput(code="bad_host", detail="A host is named like example.com, or by an address on it.")
    return name if port in _USUAL_PORTS else f"{name}:{port}"


def _view(name: str, breaker: HostBreaker, now: float) -> HostView:
    if breaker.state is HostState.CLOSED:
        return HostView(name=name, state=breaker.state, failures=breaker.failures, why=breaker.why or None)
    return HostView(
        name=name,
        state=breaker.state,
        failures=breaker.failures,
        why=breaker.why,
        since_s=now - breaker.opened_at,
        retry_s=max(breaker.probe_at - now, 0.0),
    )
