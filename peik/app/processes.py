"""`peik serve --processes N`: a parent that serves nothing itself, and nodes of one store that share its listening socket.

The parent is to its children what systemd is to a service: it holds the socket, is told when one is ready and that its event loop
turns, starts another one for any that dies, and replaces them one after the other when it is asked to (SIGHUP). What it says to a
child goes over that one's standard input, and the end of it means that the parent is gone. Each child is a fresh interpreter with
the command line of its parent, so that a restart runs the code and reads the settings that are there by then.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from peik.app.handover import HandoverPoint, Predecessor, Successor, control_path, listen, sockets_of_systemd
from peik.core.events import Events, ProcessEnded, ProcessesReplaced, ServerReplaced, ServerTakenOver
from peik.errors import StartError
from peik.monitoring.log import EventLog
from peik.monitoring.log_file import LogFile, set_up
from peik.monitoring.pulse import ProcessesState
from peik.settings.config import Config
from peik.settings.values import StoreKind
from peik.web.server import Supervisor

_VARIABLE = "LISTEN_PEIK"  # no setting, and for nobody else: settings begin with PEIK_
_OWN_FLAGS = frozenset({"--replace", "--detach"})  # of the parent alone
READY_S = 1800.0  # as the unit of systemd: a large backlog is looked through first
STEADY_S = 60.0  # one that has lived so long is started again as if it had never died
AGAIN_S, AGAIN_S_MAX = 0.5, 30.0
END_S = 15.0  # beyond the grace, for all that is closed at an end
LOOK_S = 1.0
_BYTES_MAX = 4096


# ---- a child ----


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    parent: int
    place: int
    listeners: list[int]
    own: int
    greets: bool
    is_of_systemd: bool


class Unit:
    """What a process knows of the others of its `peik serve`: the parent's listening sockets, a port of its own, and how many
    serve."""

    def __init__(self, given: _Given) -> None:
        self.place, self.greets, self.is_of_systemd = given.place, given.greets, given.is_of_systemd
        self.listeners = [socket.socket(fileno=handle) for handle in given.listeners]
        self.own = socket.socket(fileno=given.own)
        for one in (*self.listeners, self.own):
            one.setblocking(False)  # noqa: FBT003
            one.set_inheritable(False)
        self.state = ProcessesState(processes=given.place, serving=0, deaths=0)

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> "Unit | None":
        """None: this process was started by somebody else."""
        told = environment.pop(_VARIABLE, None)
        if told is None:
            return None
        given = msgspec.json.decode(told, type=_Given)
        return cls(given) if given.parent == os.getppid() else None

    async def heed(self, stop: asyncio.Event) -> None:
        """Hear the parent until it says that this process is to end, or is gone itself."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", 0))
        while not self.state.is_ending and (line := await reader.readline()):
            self.state = msgspec.json.decode(line, type=ProcessesState)
        stop.set()


# ---- the parent ----


def serve_all(config: Config, *, replaces: bool = False, begun: Callable[[], None] = lambda: None) -> int:
    """`peik serve` with as many processes as the settings say; the exit code. See `peik.app.serve.serve`."""
    unit = Unit.of(os.environ)
    if unit is None and config.processes > 1:
        return _parent(config, replaces=replaces, begun=begun)
    from peik.app.serve import serve

    return serve(config, replaces=replaces, begun=begun, unit=unit)


def _parent(config: Config, *, replaces: bool, begun: Callable[[], None]) -> int:
    if config.store_kind is StoreKind.SQLITE:
        raise StartError(
            "PEIK_PROCESSES needs a store on a server: of a SQLite file only one process may send. Leave it at 1, or move to "
            "PostgreSQL or Redis: peik migrate --from sqlite:///peik.db --to postgresql://…, and set PEIK_STORE."
        )
    with contextlib.ExitStack() as ending:
        file = None
        if config.log_file is not None:
            file = LogFile(config.log_file, bytes_max=config.log_file_max, files_kept=config.log_files)
            ending.enter_context(file)
        set_up(level=config.log_level, form=config.log_format, file=file)
        before = Predecessor.find(config) if replaces else None
        # An address of a socket has 107 bytes.
        place = None if len(tempfile.gettempdir()) < 60 else "/tmp"  # noqa: S108  the folder in it is ours alone
        folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="peik-processes-", dir=place))
        return asyncio.run(_Parent(config, before, Path(folder), begun).run())


def own_log_file(path: Path, place: int) -> Path:
    """Each process writes its own; the parent has the name of the settings."""
    return path.with_name(f"{path.stem}-{place}{path.suffix}")


class _Child:
    """One process, from its start to its end."""

    def __init__(self, place: int, process: asyncio.subprocess.Process, line: socket.socket) -> None:
        self.place = place
        self.process = process
        self.is_ready = False
        self.began_at = self.beat_at = time.monotonic()
        self.is_asked_to_end = False
        self._line = line
        self.decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()  # whether it is ready, or ended
        self._hearing = asyncio.ensure_future(self._hear())
        self.ended = asyncio.ensure_future(self._wait())

    async def _hear(self) -> None:
        """What it would tell systemd."""
        loop = asyncio.get_running_loop()
        while True:
            said = await loop.sock_recv(self._line, _BYTES_MAX)
            self.beat_at = time.monotonic()
            if b"READY=1" in said and not self.decided.done():
                self.is_ready = True
                self.decided.set_result(True)

    async def _wait(self) -> int:
        code = await self.process.wait()
        self._hearing.cancel()
        self._line.close()
        self.is_ready = False
        if not self.decided.done():
            self.decided.set_result(False)
        return code

    def tell(self, state: ProcessesState) -> None:
        assert self.process.stdin is not None
        self.is_asked_to_end = self.is_asked_to_end or state.is_ending
        if self.process.returncode is None and not self.process.stdin.is_closing():
            self.process.stdin.write(msgspec.json.encode(state) + b"\n")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    @property
    def how(self) -> str:
        code = self.process.returncode or 0
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


class _Parent:
    def __init__(self, config: Config, before: Predecessor | None, folder: Path, begun: Callable[[], None]) -> None:
        self._config = config
        self._before = before
        self._folder = folder
        self._begun = begun
        self._events = Events()
        self._supervisor = Supervisor.of(os.environ)
        self._hang_s = _hang_s(os.environ)
        self._children: dict[int, _Child] = {}  # by place, the one that counts
        self._leaving: set[_Child] = set()
        self._deaths = 0
        self._starts = 0
        self._stop = asyncio.Event()
        self._roll = asyncio.Event()

    async def run(self) -> int:
        self._events.listen(EventLog(level=self._config.log_level))
        self._on_signals()
        self._listen()
        try:
            # Alone: it brings the schema up to date, and says what is wrong with the settings once.
            first = await self._start(1, greets=True)
            await self._or_stop(first.decided)
            if not first.is_ready and not self._stop.is_set():
                return first.ended.result() or 1
            others = [await self._start(place) for place in range(2, self._config.processes + 1)]
            successor = None
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._keep(place)) for place in range(1, self._config.processes + 1)]
                tasks += [group.create_task(self._roll_on()), group.create_task(self._watch())]
                await self._or_stop(*(child.decided for child in others))
                if not self._stop.is_set():
                    successor = await self._serve()
                for task in tasks:
                    task.cancel()
            await self._end(is_followed=successor is not None)
            if successor is not None:
                successor.close()
        finally:
            for child in self._all():
                child.kill()
        return 0

    def _listen(self) -> None:
        """The shared sockets, and one of its own for each process, so that it can be asked by itself."""
        config, before = self._config, self._before
        given: list[socket.socket] = []
        self._is_of_systemd = False
        if before is not None:
            given, self._is_of_systemd = before.own, before.offer.is_of_systemd
            self._shared = before.listeners
        else:
            self._shared = sockets_of_systemd(os.environ)
            self._is_of_systemd = bool(self._shared)
        if not self._shared:
            self._shared = [listen(config)]
        host, self._port = self._shared[0].getsockname()[:2]
        there = {one.getsockname()[1]: one for one in given}
        self._own = []
        for place in range(1, config.processes + 1):
            port = self._port + place if config.port else 0
            own = there.pop(port, None)
            self._own.append(own or listen(msgspec.structs.replace(config, host=host, port=port)))
        for one in there.values():
            one.close()

    async def _serve(self) -> Successor | None:
        """Until the end. None: nobody goes on in our place."""
        before, supervisor = self._before, self._supervisor
        supervisor.ready(
            f"{self._config.processes} processes on port {self._port}.",
            replaces=before is not None,
            beat_s=None if before is None else before.offer.beat_s,
        )
        is_handed = before is not None and await before.take_over()
        if before is not None:
            self._events.tell(ServerTakenOver(process=before.offer.pid, version=before.offer.version))
        point = HandoverPoint.open(
            self._config,
            self._shared,
            path=control_path(self._config, self._config.port or self._port),
            before=before if is_handed else None,
            lock=None,
            is_of_systemd=self._is_of_systemd,
            supervisor=supervisor,
            own=self._own,
        )
        self._begun()
        successor: Successor | None = None
        async with supervisor.beating():
            if point is None:
                await self._stop.wait()
            else:
                replaced = asyncio.ensure_future(point.successor())
                await self._or_stop(replaced)
                successor = replaced.result() if replaced.done() else None
                replaced.cancel()
                point.close(is_handed_on=successor is not None)
        if successor is None:
            supervisor.ending()
        else:
            self._events.tell(ServerReplaced(version=successor.version))
        return successor

    async def _or_stop(self, *found: "asyncio.Future[Any]") -> None:
        """Until all of these are there, or this is to end."""
        stopping = asyncio.ensure_future(self._stop.wait())
        together = asyncio.ensure_future(asyncio.wait(found))
        await asyncio.wait([together, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        together.cancel()

    async def _end(self, *, is_followed: bool) -> None:
        """All at once; each answers what it was asked and lets its bots go."""
        for one in (*self._shared, *self._own):
            one.close()
        for child in self._all():
            child.tell(self._state(is_ending=True, is_followed=is_followed))
        if self._all():
            await asyncio.wait([child.ended for child in self._all()], timeout=self._config.grace + END_S)

    # ---- children ----

    async def _start(self, place: int, *, greets: bool = False) -> _Child:
        self._starts += 1
        address = self._folder / f"{self._starts}"
        handles = [one.fileno() for one in self._shared]
        own = self._own[place - 1].fileno()
        given = _Given(
            parent=os.getpid(),
            place=place,
            listeners=handles,
            own=own,
            greets=greets,
            is_of_systemd=self._is_of_systemd,
        )
        environment = {name: value for name, value in os.environ.items() if name != "WATCHDOG_PID"}
        environment |= {_VARIABLE: msgspec.json.encode(given).decode(), "NOTIFY_SOCKET": str(address)}
        line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            line.bind(str(address))
            line.setblocking(False)  # noqa: FBT003
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(argument for argument in sys.orig_argv[1:] if argument not in _OWN_FLAGS),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=[*handles, own],
                env=environment,
                start_new_session=True,  # Ctrl-C in a terminal is for the parent, which tells them
            )
        except OSError:
            line.close()
            raise
        child = self._children[place] = _Child(place, process, line)
        child.tell(self._state())
        return child

    async def _keep(self, place: int) -> None:
        """See that there is one in this place, and start another one for any that dies."""
        wait_s = AGAIN_S
        while True:
            try:
                child = self._children.get(place) or await self._start(place)
            except OSError as error:  # no memory for another one, or Python itself is being brought up to date
                pid, how = 0, f"it cannot be started: {error.strerror}"
            else:
                await asyncio.wait([child.decided])
                self._tell_all()
                await asyncio.wait([child.ended])
                if self._children.get(place) is not child:
                    continue  # another one has taken its place
                del self._children[place]
                pid, how = child.process.pid, child.how
                wait_s = AGAIN_S if time.monotonic() - child.began_at >= STEADY_S else wait_s
            self._deaths += 1
            self._tell_all()
            self._events.tell(ProcessEnded(place=place, process=pid, how=how, again_s=wait_s))
            await asyncio.sleep(wait_s)
            wait_s = min(AGAIN_S_MAX, wait_s * 2)

    async def _roll_on(self) -> None:
        """Replace all of them, one after the other, whenever that was asked for. One that does not come up changes nothing."""
        while True:
            await self._roll.wait()
            self._roll.clear()
            replaced = 0
            for place in range(1, self._config.processes + 1):
                old = self._children.get(place)
                if old is None:
                    continue  # it is being started anyway
                if not await self._follow(place, old):
                    break
                replaced += 1
            self._events.tell(ProcessesReplaced(replaced=replaced, processes=self._config.processes))

    async def _follow(self, place: int, old: _Child) -> bool:
        """Whether another one serves in its place; then it has ended."""
        try:
            new = await self._start(place)
        except OSError:
            return False
        self._leaving.add(old)
        await asyncio.wait([new.decided], timeout=READY_S)
        if not new.is_ready:
            if not old.ended.done():
                self._children[place] = old
                new.kill()
            self._leaving.discard(old)
            return False
        self._tell_all()
        old.tell(self._state(is_ending=True, is_followed=True))
        await asyncio.wait([old.ended], timeout=self._config.grace + END_S)
        old.kill()
        self._leaving.discard(old)
        return True

    async def _watch(self) -> None:
        """End one whose event loop has stopped, as systemd would end a service."""
        while True:
            await asyncio.sleep(LOOK_S)
            for child in self._all():
                if self._hang_s and child.is_ready and time.monotonic() - child.beat_at > self._hang_s:
                    child.kill()

    def _all(self) -> Sequence[_Child]:
        return [child for child in (*self._children.values(), *self._leaving) if not child.ended.done()]

    def _serving(self) -> int:
        return len({child.place for child in self._all() if child.is_ready and not child.is_asked_to_end})

    def _state(self, *, is_ending: bool = False, is_followed: bool = False) -> ProcessesState:
        return ProcessesState(
            processes=self._config.processes,
            serving=self._serving(),
            deaths=self._deaths,
            is_ending=is_ending,
            is_followed=is_followed,
        )

    def _tell_all(self) -> None:
        state = self._state()
        for child in self._all():
            if not child.is_asked_to_end:
                child.tell(state)

    def _on_signals(self) -> None:
        def on_end() -> None:
            if self._stop.is_set():
                for child in self._all():
                    child.kill()
                os._exit(130)  # as a single process does at the second signal
            self._stop.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_end)
        loop.add_signal_handler(signal.SIGHUP, self._roll.set)


def _hang_s(environment: MutableMapping[str, str]) -> float | None:
    limit_us = environment.get("WATCHDOG_USEC", "")
    return int(limit_us) / 1e6 if limit_us.isdecimal() and int(limit_us) else None
