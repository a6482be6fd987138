"""The outside hosts that jobs of this process talk to, each with a breaker of its own."""

import random
from types import TracebackType
from urllib.parse import urlsplit

import msgspec

from peik.clock import Clock
from peik.core.host_breaker import HostBreaker, HostState, after_failure, after_nothing, after_success, begun, wait_s
from peik.core.problem import BadInput
from peik.events import Events
from peik.job_events import HostClosed, HostOpened
from peik.jobs.faults import HostDown, fault_of, is_answer
from peik.jobs.ports import HostShut

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

    def of(self, host: str, job_id: int) -> "Talk":
        """`async with hosts.of("example.com", job.id):` around what talks to it. Raises HostShut on the way in while the host
        is left alone, and BadInput if that is no name. An address (a link) is taken for the host in it."""
        return Talk(self, host_in(host), job_id)

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
            if breaker.state is not HostState.CLOSED:  # whoever was told that it is down must hear an end of it
                self._events.tell(HostClosed(host=name, after_s=self._clock.mono() - breaker.opened_at))


class Talk:
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
