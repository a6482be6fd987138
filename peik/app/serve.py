"""`peik serve`: everything in one process, with a graceful end. The first signal drains, the second ends at once."""

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import uvicorn
import uvloop

from peik.admin.model import weakness_of
from peik.admin.oidc import check_oidc
from peik.app import rest
from peik.app.apis import pulse_of
from peik.app.dashboard import Dashboard
from peik.app.handover import (
    HandoverPoint,
    Predecessor,
    Successor,
    as_heard,
    control_path,
    listen,
    scheme_of,
    sockets_of_systemd,
)
from peik.app.lifetime import admin_key, only_server, running
from peik.app.middleware import Middleware
from peik.app.processes import Unit, own_log_file
from peik.app.runtime import Runtime
from peik.core.events import CertificateRenewed, DoorsWeak, Events, ServerReplaced, ServerTakenOver
from peik.gateway.app import App, Gateway
from peik.inbox.webhook_endpoint import PUSHES
from peik.monitoring.log import EventLog
from peik.monitoring.log_file import LogFile, set_up
from peik.outbox.wiring import tokens_of
from peik.settings.config import Config
from peik.storage.sqlite.database import OwnerLock
from peik.web.server import (
    ADDRESS_SHARE,
    KEEP_ALIVE_S,
    LOOK_S,
    Certificate,
    GuardedProtocol,
    GuardedServer,
    Proxies,
    Supervisor,
    certificate_of,
    let_the_collector_rest,
    raise_file_limit,
)

# What `peik serve` says to the person who started it: where it is and what comes next, or why it cannot listen there.


# Shown for as long as there is no bot: whoever starts Peik for the first time has nothing set.
_FIRST_STEPS = """\
No bot yet. What next?
  Watch it work, without a token:  {peik} demo
  Serve your bot:                  {how}
`{peik} doctor` looks whether all is well.
"""
_OPEN = "start it with {url} in place of https://api.telegram.org; Peik learns its token from it"
_CLOSED = "put BOT_TOKEN=… (from @BotFather) into the file .env here, and start Peik again; or: {peik} bots add"


OTHERS_SHOWN = 3


def greeting(
    url: str,
    *,
    key_path: Path | None,
    bots: int,
    is_open: bool,
    peik: str = "peik",
    redis: str | None = None,
    inbound: str = "",
    others: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """`key_path` is where the admin key is kept, unless it was set; `is_open`: the gateway takes bots that it does not know;
    `peik`: how to call the command here; `redis`: the store, if only REDIS_HOST says so;
    `others`: bots of the settings whose updates do not come as PEIK_INBOUND says, and how they do."""
    many = "1 bot" if bots == 1 else f"{bots} bots"
    told = f"Peik listens on {url} (dashboard at /admin, API at /docs), {many}.\n"
    if key_path is not None:
        told += f"The admin key is in {key_path}.\n"
    if redis is not None:
        told += f"REDIS_HOST is set, so the store is {redis}. For a file: PEIK_STORE=sqlite:///peik.db.\n"
    for bot_id, own in list(others.items())[:OTHERS_SHOWN]:
        told += (
            f"PEIK_INBOUND={inbound} is for bots that are new here: bot {bot_id} keeps {own}. "
            f"To change it: peik bots inbound {bot_id} {inbound}\n"
        )
    if bots:
        return told
    how = _OPEN.format(url=url) if is_open else _CLOSED.format(peik=peik)
    return told + _FIRST_STEPS.format(how=how, peik=peik)


def own_command(called: str, *, folder: Path, on_path: str | None) -> str:
    """What to type for `peik` here. In a checkout it stands in .venv, and is not on the path of who has just run `make setup`."""
    if on_path is not None or Path(called).name != "peik":
        return "peik"
    whole = Path(called).absolute()
    return str(whole.relative_to(folder)) if whole.is_relative_to(folder) else str(whole)


# The writer's thread must not wait 5 ms for the interpreter whenever a statement is done (measured: ten times faster
# commits beside a busy event loop).
_SWITCH_INTERVAL_S = 0.0005
# So long a client that asks nothing is kept at the end. While another process serves, it costs nobody much; where the next one
# starts only after us, all others wait.
REPLACED_PATIENCE_S = 5.0
RESTART_PATIENCE_S = 1.0


class _Server(GuardedServer):
    """uvicorn without its own signal handling: the order of closing is ours. It looks for a renewed certificate."""

    certificate: Certificate | None = None
    renewed: Callable[[], None]

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_taking = asyncio.Event()  # connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_taking.set()

    async def on_tick(self, counter: int) -> bool:
        if self.certificate is not None and counter % int(LOOK_S * 10) == 0 and self.certificate.refresh():
            self.renewed()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(
    config: Config, *, replaces: bool = False, begun: Callable[[], None] = lambda: None, unit: Unit | None = None
) -> int:
    """Run until a signal, or until another one has replaced this; the exit code. `replaces`: take over from the one that runs.
    `begun` is called when calls are accepted. `unit`: this is one of several processes."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    _allow_open_files()
    with contextlib.ExitStack() as ending:
        file = None
        if config.log_file is not None and unit is not None:
            config = msgspec.structs.replace(config, log_file=own_log_file(config.log_file, unit.place))
        if config.log_file is not None:
            file = LogFile(config.log_file, bytes_max=config.log_file_max, files_kept=config.log_files)
            ending.enter_context(file)
        set_up(level=config.log_level, form=config.log_format, file=file)
        runner = ending.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        before = Predecessor.find(config) if replaces else None
        lock = ending.enter_context(only_server(config, handed=None if before is None else before.lock))
        return runner.run(_serve(config, before, lock, begun, unit))


def _allow_open_files() -> None:
    """As many as the system lets us have: each polled bot holds a connection, and the usual 1,024 are soon gone."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # then as it was
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Place:
    """Where this one listens, and who chose that."""

    def __init__(self, config: Config, before: Predecessor | None, unit: Unit | None) -> None:
        self._unit = unit
        if unit is not None:
            self.listeners, self.is_of_systemd = [*unit.listeners, unit.own], unit.is_of_systemd
        elif before is not None:
            self.listeners, self.is_of_systemd = before.listeners, before.offer.is_of_systemd
            for one in before.own:
                one.close()
        else:
            self.listeners = sockets_of_systemd(os.environ)
            self.is_of_systemd = bool(self.listeners)
        if not self.listeners:
            self.listeners = [listen(config)]
        self.port = int(self.listeners[0].getsockname()[1])
        self.own_port = int(self.listeners[-1].getsockname()[1]) if unit is not None else self.port
        # Where to be found by the next one, whose settings will be these.
        self.control_path = control_path(config, config.port or self.port)
        self.config = as_heard(config, self.listeners) if self.is_of_systemd or unit is not None else config

    def given(self) -> list[socket.socket]:
        """For a server, which closes them."""
        return [listener.dup() for listener in self.listeners]

    def leave(self, *, is_followed: bool) -> float:
        """How long to keep clients that ask nothing, so that an answer tells them of the end. `is_followed`: another process
        serves here. For no time where new connections are refused from now on: that helps only a client that can come back."""
        if is_followed or (self._unit is not None and self._unit.state.is_followed):
            return REPLACED_PATIENCE_S
        if self.is_of_systemd:
            return RESTART_PATIENCE_S
        for listener in self.listeners:
            listener.close()
        return 0.0


async def _serve(
    config: Config,
    before: Predecessor | None,
    lock: OwnerLock | None,
    begun: Callable[[], None],
    unit: Unit | None,
) -> int:
    stop = asyncio.Event()
    _on_signals(stop)
    following = [] if unit is None else [asyncio.ensure_future(unit.heed(stop))]
    supervisor = Supervisor.of(os.environ)
    events = Events()
    events.listen(EventLog(level=config.log_level))
    check_oidc(config)
    certificate = certificate_of(config, tell=lambda what: events.tell(DoorsWeak(what=what)))
    place = _Place(config, before, unit)
    config, port = place.config, place.port
    host = place.listeners[0].getsockname()[0]
    GuardedProtocol.connections_max = raise_file_limit()
    GuardedProtocol.address_connections_max = int(GuardedProtocol.connections_max * ADDRESS_SHARE)
    successor: Successor | None = None
    point: HandoverPoint | None = None
    async with running(config, events=events, must_own=False, address=_address(config, place.own_port)) as peik:
        key, key_path = await admin_key(config, peik.store)
        pulse = pulse_of(peik)
        pulse.processes = lambda: None if unit is None else unit.state
        await pulse.weaknesses()  # told in the log, before anybody relies on us
        if (weakness := weakness_of(key)) is not None:
            events.tell(DoorsWeak(what=f"PEIK_ADMIN_KEY can be guessed: {weakness}"))
        app = rest.build(peik, key, pulse)
        dashboard = Dashboard(peik, key, app)
        tidying = asyncio.ensure_future(dashboard.run())
        doorkeeper = doorkeeper_of(peik, app, Gateway(peik, dashboard))
        GuardedProtocol.is_stranger = doorkeeper.is_stranger
        server = _Server(
            uvicorn.Config(
                doorkeeper,
                http=GuardedProtocol,
                ws="none",
                lifespan="off",
                access_log=False,  # paths may hold tokens
                log_config=None,
                server_header=False,
                proxy_headers=False,  # the doorkeeper reads them
                ssl_context_factory=None if certificate is None else lambda _, __: certificate.context,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(max(1, config.grace)),
            )
        )
        server.certificate = certificate
        server.renewed = lambda: events.tell(CertificateRenewed())
        server.hurry = lambda: _end_waits(peik)
        serving = asyncio.ensure_future(server.serve(sockets=place.given()))
        await asyncio.wait(
            [serving, asyncio.ensure_future(server.is_taking.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        if serving.done():
            await serving  # it says why
        let_the_collector_rest()
        is_called_off = (
            before is not None and stop.is_set()
        )  # who ends it so early means this one alone: the other goes on
        if not is_called_off:
            supervisor.ready(
                f"{len(peik.outbox.service.bots())} bot(s) on port {port}.",  # the socket has listened all along
                replaces=before is not None,
                beat_s=None if before is None else before.offer.beat_s,
            )
            is_handed = before is not None and await before.take_over()
            if before is not None:
                events.tell(ServerTakenOver(process=before.offer.pid, version=before.offer.version))
                following.append(asyncio.ensure_future(_follow(before, peik)))
            if lock is not None:
                lock.name_holder()
            if unit is None:  # else its parent is who is replaced
                point = HandoverPoint.open(
                    config,
                    place.listeners,
                    path=place.control_path,
                    # One that died, or was ended, may have taken the name with it.
                    before=before if is_handed else None,
                    lock=None if lock is None else lock.handle,
                    is_of_systemd=place.is_of_systemd,
                    supervisor=supervisor,
                )
            _greet(peik, _url(config, host, port), key_path, unit)
            begun()
            async with supervisor.beating():
                successor = await _until_the_end(serving, stop, point)
            if successor is None:
                supervisor.ending()
            else:  # which has told who is to be looked after now
                events.tell(ServerReplaced(version=successor.version))
        tidying.cancel()
        dashboard.end()
        peik.inbox.service.end()  # streams and long polls would keep their connections open for all of the grace
        if peik.accounts is not None:
            peik.accounts.end_streams()
        server.patience_s = place.leave(is_followed=successor is not None or is_called_off)
        server.should_exit = True
        await serving
        for task in following:
            task.cancel()
    if point is not None:
        point.close(is_handed_on=successor is not None)
    if successor is not None:
        successor.close()  # the store is free: it need not look for that
    return 0


def _greet(peik: Runtime, url: str, key_path: Path | None, unit: Unit | None) -> None:
    """Once, however many processes there are."""
    if unit is not None and not unit.greets:
        return
    sys.stderr.write(
        greeting(
            url,
            key_path=key_path,
            bots=len(peik.outbox.service.bots()),
            is_open=peik.config.gateway_open,
            peik=own_command(sys.argv[0], folder=Path.cwd(), on_path=shutil.which("peik")),
            inbound=peik.config.inbound,
            others=_otherwise(peik),
            redis=peik.config.store_shown if peik.config.is_store_by_redis_host else None,
        )
    )
    sys.stderr.flush()


def _otherwise(peik: Runtime) -> dict[int, str]:
    """Bots of the settings that came in under another PEIK_INBOUND, or were changed since. Its default asks for nothing."""
    wanted = peik.config.inbound
    if wanted == "polling":
        return {}
    known = [peik.outbox.service.known(token.bot_id) for token in tokens_of(peik.config)]
    return {bot.bot_id: bot.inbound for bot in known if bot is not None and bot.inbound != wanted}


async def _until_the_end(
    serving: "asyncio.Future[None]", stop: asyncio.Event, point: HandoverPoint | None
) -> Successor | None:
    """None: it ends, and nobody goes on in its place."""
    stopping = asyncio.ensure_future(stop.wait())
    replaced = None if point is None else asyncio.ensure_future(point.successor())
    ends: list[asyncio.Future[Any]] = [serving, stopping, *(() if replaced is None else (replaced,))]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if replaced is None:
        return None
    if replaced.done():
        return replaced.result()
    replaced.cancel()
    return None


def _end_waits(peik: Runtime) -> None:
    """What was accepted stays so: who waits for its end is told how it stands, which is better than no answer."""
    peik.outbox.service.end_waits()
    peik.jobs.service.end_waits()


async def _follow(before: Predecessor, peik: Runtime) -> None:
    """What the one before us held is free as soon as it has ended."""
    await before.gone()
    peik.outbox.leases.ring()


def doorkeeper_of(peik: Runtime, app: rest.Rest, doors: App) -> Middleware:
    """Stands before all HTTP applications."""
    return Middleware(
        doors,
        gate=peik.limits,
        answering=peik.watch.answering,
        now=peik.clock.mono,
        sections=rest.sections(app),
        wait_s_max=peik.config.wait_max,
        # What a proxy says of its client counts everywhere: for limits, lockouts and the audit log.
        proxies=Proxies(peik.config.trusted_proxies) if peik.config.trusted_proxies else None,
        takers={PUSHES: app.pushes.take},
    )


def _on_signals(stop: asyncio.Event) -> None:
    def on_signal() -> None:
        if stop.is_set():
            # Nothing acknowledged is lost by this: what is in flight is found as uncertain at the next start.
            os._exit(130)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


def _address(config: Config, port: int) -> str:
    """Where other nodes' people find this one."""
    host = socket.gethostname() if config.host in ("0.0.0.0", "::") else config.host  # noqa: S104
    return _url(config, host, port)


def _url(config: Config, host: str, port: int) -> str:
    return f"{scheme_of(config)}://[{host}]:{port}" if ":" in host else f"{scheme_of(config)}://{host}:{port}"
