"""Outside hosts: what counts against one, when jobs leave it alone, and how it comes back."""

import asyncio
import errno
import http.client
import random
import socket
import ssl
import urllib.error
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import httpx
import pytest

from peik.core.events import Event, Events
from peik.errors import BadInput
from peik.jobs.events import HostClosed, HostOpened
from peik.jobs.hosts import HostDown, Hosts, HostState, fault_of, host_in
from peik.jobs.outcome import HostShut, JobHopeless, JobLater
from peik.testing.virtual import VirtualClock, run_virtual

_REQUEST = httpx.Request("GET", "https://h.example/x?token=secret")
_KEY = aiohttp.client_reqrep.ConnectionKey("h.example", 443, True, True, None, None, None)


def status(code: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError(f"{code}", request=_REQUEST, response=httpx.Response(code, request=_REQUEST))


def answered(code: int) -> aiohttp.ClientResponseError:
    info = aiohttp.RequestInfo("https://h.example", "GET", {}, "https://h.example")  # type: ignore[arg-type]
    return aiohttp.ClientResponseError(info, (), status=code)


def because_of(cause: BaseException, error: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_connect"),
    [
        (HostDown("by hand"), False),
        (HostDown("by hand", is_connect=True), True),
        (TimeoutError(), False),
        (ConnectionResetError(errno.ECONNRESET, "reset"), False),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), True),
        (OSError(errno.ENETUNREACH, "no network"), True),
        (socket.gaierror(socket.EAI_AGAIN, "no name server"), True),
        (ssl.SSLError(1, "handshake"), False),
        (asyncio.IncompleteReadError(b"", 5), False),
        (http.client.IncompleteRead(b""), False),
        (http.client.RemoteDisconnected("cut"), False),
        (urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, "refused")), True),
        (urllib.error.HTTPError("https://h.example", 502, "bad", {}, None), False),  # type: ignore[arg-type]
        (aiohttp.ServerDisconnectedError(), False),
        (aiohttp.ServerTimeoutError(), False),
        (aiohttp.ClientPayloadError("cut"), False),
        (aiohttp.ClientConnectorError(_KEY, OSError(errno.EHOSTUNREACH, "far")), True),
        (answered(503), False),
        (httpx.ConnectError("no"), True),
        (httpx.ConnectTimeout("no"), True),
        (httpx.ReadTimeout("no"), False),
        (httpx.ReadError("cut"), False),
        (httpx.RemoteProtocolError("nonsense"), False),
        (status(500), False),
        (because_of(TimeoutError(), RuntimeError("of a library that nobody knows")), False),
        (ExceptionGroup("two at once", [ValueError(), ConnectionResetError()]), False),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
def test_what_counts_against_a_host(error: Exception, is_connect: bool) -> None:
    fault = fault_of(error)
    assert fault is not None
    assert fault.is_connect is is_connect


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a mistake"),
        KeyError("x"),
        FileNotFoundError(errno.ENOENT, "no file"),
        OSError(errno.ENOSPC, "the disk is full"),
        PermissionError(errno.EACCES, "not yours"),
        socket.gaierror(socket.EAI_NONAME, "no such name"),
        because_of(socket.gaierror(socket.EAI_NONAME, "no such name"), httpx.ConnectError("no such name")),
        aiohttp.ClientConnectorDNSError(_KEY, socket.gaierror(socket.EAI_NONAME, "no such name")),
        aiohttp.InvalidURL("nonsense"),
        httpx.UnsupportedProtocol("gopher"),
        httpx.PoolTimeout("too many at once, here"),
        urllib.error.URLError("unknown url type"),
        urllib.error.HTTPError("https://h.example", 404, "gone", {}, None),  # type: ignore[arg-type]
        answered(404),
        status(429),
        asyncio.CancelledError(),
        HostShut("other.example", 5.0),
        JobLater(5.0),
        because_of(ConnectionResetError(), JobHopeless("enough")),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_does_not(error: BaseException) -> None:
    assert fault_of(error) is None


def of_library(module: str, name: str, *bases: type[Exception], **fields: Any) -> Exception:
    """An exception of a library that is not installed here, as that library makes it."""
    error: Exception = type(name, bases or (Exception,), {"__module__": module})(name)
    for field, value in fields.items():
        setattr(error, field, value)
    return error


def test_libraries_that_are_not_here_are_known_by_name() -> None:
    refused = of_library("urllib3.exceptions", "NewConnectionError")
    retried = of_library("urllib3.exceptions", "MaxRetryError", reason=refused)
    wrapped = of_library("requests.exceptions", "ConnectionError", OSError)
    wrapped.args = (retried,)
    fault = fault_of(wrapped)
    assert fault is not None
    assert fault.is_connect
    for status_code, is_fault in ((404, False), (503, True)):
        answer = of_library("yt_dlp.networking.exceptions", "HTTPError", status=status_code)
        extracted = of_library("yt_dlp.utils._utils", "ExtractorError", cause=answer)
        download = of_library("yt_dlp.utils._utils", "DownloadError", exc_info=(type(extracted), extracted, None))
        assert (fault_of(download) is not None) is is_fault
    assert fault_of(of_library("my.own", "ConnectError")) is None


def test_errors_that_name_each_other_in_a_ring_are_looked_at_for_so_long_only() -> None:
    one, other = ValueError(), KeyError()
    one.__cause__, other.__cause__ = other, one
    assert fault_of(one) is None


def test_what_is_told_of_a_failure_holds_nothing_of_an_address_but_its_host() -> None:
    fault = fault_of(ConnectionResetError("for https://me:pw@h.example/bot1:secret/x?token=secret, at once"))
    assert str(fault) == "ConnectionResetError: for https://h.example at once"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Example.COM.", "example.com"),
        ("https://user:pw@Example.com:443/a?b", "example.com"),
        ("example.com:8080", "example.com:8080"),
        ("http://[2001:db8::1]:81/", "2001:db8::1:81"),
    ],
)
def test_a_host_is_found_in_its_address(given: str, name: str) -> None:
    assert host_in(given) == name


@pytest.mark.parametrize("given", ["", "https://", "a b", "x" * 300, "http://[", "a:b"])
def test_what_is_no_host(given: str) -> None:
    with pytest.raises(BadInput):
        host_in(given)


# ---- in time ----


class World:
    def __init__(self, clock: VirtualClock, hosts_max: int) -> None:
        self.clock = clock
        self.told: list[Event] = []
        events = Events()
        events.listen(self.told.extend)
        self.hosts = Hosts(clock=clock, events=events, chance=random.Random(1), hosts_max=hosts_max)
        self.asked = 0

    async def ask(self, job_id: int, error: BaseException | None = None, *, host: str = "h.example") -> None:
        async with self.hosts.of(host, job_id):
            self.asked += 1
            if error is not None:
                raise error

    async def shut(self, job_id: int = 9, *, host: str = "h.example") -> float:
        with pytest.raises(HostShut) as shut:
            await self.ask(job_id, host=host)
        return shut.value.retry_s

    async def break_down(self, host: str = "h.example") -> None:
        for job_id in range(3):
            with pytest.raises(ConnectionRefusedError):
                await self.ask(job_id, ConnectionRefusedError(errno.ECONNREFUSED, "refused"), host=host)


def in_time(story: Callable[[World], Coroutine[Any, Any, None]], *, hosts_max: int = 1000) -> None:
    async def main(clock: VirtualClock) -> None:
        await story(World(clock, hosts_max))

    run_virtual(main)


def test_a_host_that_fails_is_left_alone_and_comes_back_with_one_probe() -> None:
    async def story(world: World) -> None:
        await world.break_down()
        assert [type(event) for event in world.told] == [HostOpened]
        first_s = await world.shut()
        assert 4.0 <= first_s <= 5.0
        await asyncio.sleep(first_s)
        with pytest.raises(TimeoutError):
            await world.ask(4, TimeoutError())
        assert 8.0 <= await world.shut() <= 10.0
        await asyncio.sleep(10.0)
        await world.ask(5)
        await world.ask(6)
        assert [type(event) for event in world.told] == [HostOpened, HostClosed]
        assert world.told[1].after_s == pytest.approx(first_s + 10.0)  # type: ignore[attr-defined]

    in_time(story)


def test_while_one_probes_nobody_else_does() -> None:
    async def story(world: World) -> None:
        await world.break_down()
        await asyncio.sleep(5.0)
        async with world.hosts.of("h.example", 1):
            assert await world.shut() == 10.0
            (view,) = world.hosts.all()
            assert (view.state, view.since_s, view.why) == (
                HostState.PROBING,
                5.0,
                "ConnectionRefusedError: [Errno 111] refused",
            )
        await world.ask(2)

    in_time(story)


def test_a_hundred_jobs_on_a_host_that_is_down_for_a_minute_ask_it_a_few_times_only() -> None:
    async def story(world: World) -> None:
        async def job(job_id: int) -> None:
            while True:
                try:
                    is_down = world.clock.mono() < 60.0
                    return await world.ask(job_id, ConnectionRefusedError() if is_down else None)
                except HostShut as shut:
                    await asyncio.sleep(shut.retry_s)
                except ConnectionRefusedError:
                    await asyncio.sleep(1.0)

        await asyncio.gather(*(job(job_id) for job_id in range(100)))
        assert world.asked <= 100 + 3 + 5
        assert world.clock.mono() < 60.0 + 60.0 + 10.0

    in_time(story)


def test_a_job_that_is_cancelled_or_mistaken_says_nothing_and_one_that_is_answered_closes_it() -> None:
    async def story(world: World) -> None:
        await world.break_down()
        await asyncio.sleep(5.0)
        for error in (asyncio.CancelledError(), KeyError("x"), JobHopeless("no")):
            with pytest.raises(type(error)):
                await world.ask(1, error)
        assert world.hosts.all()[0].state is HostState.OPEN
        with pytest.raises(httpx.HTTPStatusError):
            await world.ask(1, status(404))
        assert world.hosts.all()[0].state is HostState.CLOSED

    in_time(story)


def test_hosts_are_apart_and_only_so_many_are_remembered_those_in_trouble_first() -> None:
    async def story(world: World) -> None:
        await world.break_down("down.example")
        for number in range(10):
            await world.ask(1, host=f"h{number}.example")
        assert [view.name for view in world.hosts.all()] == ["down.example", "h8.example", "h9.example"]
        await world.shut(host="down.example")
        for name in "abc":
            await world.break_down(f"{name}.example")
        assert [view.name for view in world.hosts.all()] == ["a.example", "b.example", "c.example"]
        assert [event.host for event in world.told if isinstance(event, HostClosed)] == ["down.example"]

    in_time(story, hosts_max=3)
