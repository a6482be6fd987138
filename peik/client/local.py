"""The transport in this process: Peik itself, with its engines, beside the program that uses it. No server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from peik.accounts.events import ArchiveAway, ArchiveBack
from peik.accounts.feeds import FeedFilter, Follower
from peik.accounts.wiring import MakeBudget, MakeClients
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.client.calls import FileParcel, Letter, chunks
from peik.client.handlers import Handlers, types_of
from peik.client.jobs import GivenKind, QueuedJob
from peik.client.transport import (
    ANSWER_S,
    FeedLine,
    ImportedFile,
    decoder_of,
    line_of,
    until_stopped,
)
from peik.core.events import Events, Surprise
from peik.core.letter import Enclosed, LetterCall
from peik.errors import BadInput, Conflict, StartError, StoreUnavailable, Unavailable
from peik.inbox.consumers import Handling
from peik.jobs.model import JobRequest
from peik.jobs.store import JobKinds
from peik.monitoring.log import EventLog
from peik.monitoring.log_file import own_log, plain_log
from peik.outbox.service import keep_files
from peik.outbox.store import AcceptedLetter
from peik.settings.config import Config, load
from peik.web.access import caller_named
from peik.web.operations import answer_here, api_name, declared
from peik.web.parse import WaitQuery

if TYPE_CHECKING:
    from peik.app.runtime import Runtime

_encode = msgspec.json.Encoder().encode
LIBRARY = caller_named("library")


class GivenKinds:
    """The kinds of jobs that the program does."""

    def __init__(self) -> None:
        self._given: list[GivenKind] = []
        self._late: LateWork | None = None

    def add(self, kind: GivenKind) -> None:
        name = kind.kind.name
        if any(one.kind.name == name for one in self._given):
            raise BadInput(code="known_kind", detail=f"There is a kind {name} already.")
        self._given.append(kind)
        if self._late is not None:
            self._late.add(kind)

    def settle(self, config: Config) -> JobKinds:
        """What this process does from its opening on."""
        kinds = JobKinds()
        for one in self._given:
            kinds.add(one.settled(config))
        return kinds

    @asynccontextmanager
    async def joined_by(self, late: "LateWork") -> AsyncIterator[None]:
        self._late = late
        try:
            yield
        finally:
            self._late = None
            await late.close()


@asynccontextmanager
async def lone_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A group of tasks that shows the one thing that went wrong as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


class LateWork:
    """Kinds that come after the opening. A Peik that was opened without any does not work yet: it begins with the first."""

    def __init__(self, runtime: "Runtime", group: asyncio.TaskGroup) -> None:
        """The group outlives the runtime, which ends what is begun here."""
        self._runtime = runtime
        self._group = group
        self._is_working = bool(runtime.jobs.workers.kinds.by_name)
        self._beginning: asyncio.Task[None] | None = None

    def add(self, kind: GivenKind) -> None:
        hands = self._runtime.jobs.workers
        hands.kinds.add(kind.settled(self._runtime.config))
        if self._is_working:
            hands.workers.ring(kind.kind.name)
            return
        self._is_working = True
        self._beginning = self._group.create_task(self._begin())

    async def _begin(self) -> None:
        hands = self._runtime.jobs.workers
        try:
            await hands.folders.open()
        except StartError as error:
            self._runtime.events.tell(Surprise(where="the beginning of jobs", error=str(error)))
            return
        hands.folders.start(self._group)
        hands.workers.start(self._group)

    async def close(self) -> None:
        """Nothing is begun any more. What is half begun comes to rest first, so that the runtime can end it."""
        if self._beginning is not None:
            await asyncio.wait([self._beginning])


# Accounts of the Peik in this process.


if TYPE_CHECKING:
    from peik.accounts.service import AccountService

OPEN_S_MAX = 30.0  # for the archive's first opening; an archive that says no is not waited for
LISTEN_S = 30.0
BACK_S = 0.5  # between two questions to an archive that does not answer, while somebody listens
LAST_WORD_S = 1.0
OF_ACCOUNTS = frozenset({"SessionApi", "MessageApi"})
T = TypeVar("T")


async def _persistently(ask: Callable[[], Awaitable[T]], follower: Follower) -> T | None:
    """Through times in which the archive does not answer. None: Peik is closed."""
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            if follower.is_over:
                return None
        await asyncio.sleep(BACK_S)


def _files(paths: Sequence[Path]) -> list[Path]:
    """Themselves, or what lies in the folder."""
    from peik.accounts.session_files import session_files

    return [file for path in paths for file in (session_files(path) if path.is_dir() else [path])]


class LocalTransport:
    """One Peik on one store. It sends if this process owns the store, and else leaves that to the one that does."""

    def __init__(
        self,
        settings: Mapping[str, str | None],
        *,
        may_poll: bool = True,
        make_clients: MakeClients | None = None,
        make_budget: MakeBudget | None = None,
    ) -> None:
        """`may_poll`: a bot whose updates nobody fetches is polled once it has handlers. `make_clients` makes the connections
        of accounts; by default Telethon does. `make_budget` says how often they ask."""
        self._settings = settings
        self._may_poll = may_poll
        self._make_clients = make_clients
        self._make_budget = make_budget
        self._apis: dict[str, object] | None = None
        self._kinds = GivenKinds()

    @property
    def settings(self) -> Mapping[str, str | None]:
        """As they were given, before the environment was asked for the rest."""
        return self._settings

    async def open(self) -> None:
        """Raises StartError with what to do."""
        self._apis = None
        self._closing = asyncio.Event()
        self._is_archive_heard = asyncio.Event()  # whether the archive of accounts could be opened is known
        opened: asyncio.Future[Runtime] = asyncio.get_running_loop().create_future()
        # A task of its own, so that Peik may be opened in one task and closed in another, and so that an engine's end
        # never cancels the program around it.
        self._keeper = asyncio.create_task(self._keep(opened))
        try:
            self._open_runtime = await opened
        except asyncio.CancelledError:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            raise

    async def _keep(self, opened: asyncio.Future[Runtime]) -> None:
        with ExitStack() as stack:
            try:
                await self._run(opened, stack)
            except Exception as error:
                if opened.done():
                    raise  # to the one who closes it
                opened.set_exception(error)

    async def _run(self, opened: asyncio.Future[Runtime], stack: ExitStack) -> None:
        config = load(self._settings)
        events = Events()
        events.listen(EventLog(level=config.log_level, log=plain_log()))
        if config.log_file is not None:
            kept = own_log(
                config.log_file, bytes_max=config.log_file_max, files_kept=config.log_files, level=config.log_level
            )
            events.listen(EventLog(level=config.log_level, log=stack.enter_context(kept)))
        events.listen(lambda told: self._is_archive_heard.set(), ArchiveAway, ArchiveBack)
        kinds = self._kinds.settle(config)
        async with (
            lone_group() as group,
            running(
                config,
                events=events,
                must_own=False,
                make_clients=self._make_clients,
                make_budget=self._make_budget,
                job_kinds=kinds,
            ) as runtime,
            self._kinds.joined_by(LateWork(runtime, group)),
        ):
            if not opened.done():
                opened.set_result(runtime)
            await self._closing.wait()

    async def close(self) -> None:
        """Finishes what is in flight, within the grace. What is not sent waits in the store for whoever opens it next."""
        self._closing.set()
        await self._keeper

    @property
    def _runtime(self) -> Runtime:
        if self._keeper.done():
            raise Unavailable(code="closed", detail="This Peik is closed. Open it again; what it accepted is safe.")
        return self._open_runtime

    # ---- updates ----

    def serve(self, handlers: Handlers) -> None:
        runtime = self._runtime
        for (bot_id, consumer), own in handlers.by_consumer(
            lambda asked: runtime.outbox.service.bot(asked).bot_id
        ).items():
            handling = Handling(
                handle=partial(handlers.handle, own),
                allowed=types_of(own),
                prepare=partial(self._prepare, runtime, bot_id),
            )
            runtime.inbox.consumers.handle(bot_id, consumer, handling)

    async def _prepare(self, runtime: Runtime, bot_id: int) -> None:
        if self._may_poll:
            await runtime.outbox.service.receive_for(bot_id)

    async def until_stopped(self) -> None:
        await until_stopped([self._keeper])
        if self._keeper.done():
            await self._keeper  # whatever ended it is raised here

    # ---- jobs ----

    def work(self, kind: GivenKind) -> None:
        self._kinds.add(kind)

    async def queue_job(self, request: JobRequest) -> QueuedJob:
        # Not through the API, whose body has whole milliseconds: what a key stands for would change with them.
        runtime = self._runtime
        if request.notice is not None:
            runtime.outbox.service.bot(request.notice["bot_id"])  # raises if nobody would ever hear of the job
        queued = await runtime.jobs.service.queue_one(request)
        return QueuedJob(id=str(queued.job_id), state=queued.state)

    # ---- letters in ----

    async def accept(self, calls: Sequence[LetterCall]) -> list[Letter]:
        return [_letter(one) for one in await self._runtime.outbox.service.accept(calls)]

    async def accept_with_files(self, call: LetterCall, parcels: Sequence[FileParcel]) -> Letter:
        runtime = self._runtime
        enclosed = await keep_files((_enclose(runtime, parcel) for parcel in parcels), runtime.spool.remove)
        return _letter(
            await runtime.outbox.service.accept_with_files(
                enclosed, lambda files: msgspec.structs.replace(call, enclosed=files), remove=runtime.spool.remove
            )
        )

    # ---- accounts ----

    async def _accounts(self) -> "AccountService":
        service = self._runtime.accounts
        if service is None:
            raise Conflict(
                code="no_sessions",
                detail="Peik keeps no accounts here: open it with api_id and api_hash from my.telegram.org (TELEGRAM_API_ID "
                "and TELEGRAM_API_HASH), or with archive (PEIK_ARCHIVE) to read one.",
            )
        if not self._is_archive_heard.is_set() and service.trouble() is not None:
            # Peik is open before its archive is: the first call waits for that, and so nobody else has to.
            try:
                async with asyncio.timeout(OPEN_S_MAX):
                    await self._is_archive_heard.wait()
            except TimeoutError:
                pass
        return service

    async def import_files(
        self, paths: Sequence[Path], *, agent_id: str, check: bool, keep_files: bool
    ) -> AsyncGenerator[ImportedFile, None]:
        service = await self._accounts()
        files = await asyncio.to_thread(_files, paths)
        async for one in service.import_files(files, agent_id=agent_id, check=check, keep_files=keep_files):
            yield ImportedFile(
                file=one.file,
                verdict=str(one.verdict),
                detail=one.detail,
                session_id=one.session_id,
                user_id=one.user_id,
            )

    async def listen(
        self, wanted: FeedFilter, *, after: Mapping[str, int] | None, reader: str | None
    ) -> AsyncGenerator[FeedLine, None]:
        follower = await (await self._accounts()).follow(wanted, after=after, reader=reader)
        kept = dict(follower.places)  # up to where everything is confirmed
        while not follower.is_over:
            lines = await _persistently(lambda: follower.next(timeout_s=LISTEN_S), follower) or []
            for line in lines:
                yield line_of(line.kind, line.body, number=line.number)
                # A caller that asks for the next one is done with this one.
                await self._confirm(follower, {line.session_id: line.number}, reader)
                kept[line.session_id] = line.number
            # Lines that were not wanted need not be looked at again.
            passed = {one: number for one, number in follower.places.items() if kept.get(one) != number}
            if passed:
                await self._confirm(follower, passed, reader)
                kept.update(passed)

    async def _confirm(self, follower: Follower, places: Mapping[str, int], reader: str | None) -> None:
        if reader is None:
            return
        ahead, follower.places = follower.places, dict(places)
        try:
            if follower.is_over:  # it may just be in time; an archive that is closed never answers
                if self._keeper.done():
                    return
                async with asyncio.timeout(LAST_WORD_S):
                    await follower.confirm()
            else:
                await _persistently(follower.confirm, follower)
        except (TimeoutError, Unavailable):
            return  # closed: it is told again
        finally:
            follower.places = ahead

    # ---- what comes in ----

    async def ask(
        self,
        handler: Callable[..., Awaitable[object]],
        *,
        into: type[T],
        timeout_s: float = ANSWER_S,
        **given: Any,
    ) -> T:
        name = api_name(handler)
        if name in OF_ACCOUNTS:
            await self._accounts()
        answer = await answer_here(self._api(name), declared(handler), LIBRARY, given)
        return decoder_of(into)(_encode(answer))

    async def ask_ended(
        self,
        handler: Callable[..., Awaitable[object]],
        *,
        into: type[T],
        is_over: Callable[[T], bool],
        timeout_s: float,
        **given: Any,
    ) -> T:
        now = asyncio.get_running_loop().time
        deadline = now() + timeout_s
        while True:  # one answer waits as long as PEIK_WAIT_MAX says, and no longer
            query = WaitQuery(wait=max(deadline - now(), 0.0))
            answer = await self.ask(handler, into=into, **{**given, "query": query})
            if is_over(answer) or now() >= deadline:
                return answer

    def _api(self, name: str) -> object:
        """Those of the Peik that is open. Raises Unavailable once it is closed."""
        runtime = self._runtime
        if self._apis is None:
            from peik.app.apis import apis_of  # with all that a server knows: who only sends need not load it

            self._apis = {type(one).__name__: one for one in apis_of(runtime)}
        return self._apis[name]

    @property
    def runtime(self) -> Runtime:
        """The running Peik itself, for parts of Peik that work within it. Raises Unavailable once it is closed."""
        return self._runtime

    async def ended(self) -> None:
        """Returns when this Peik does not run any more, whoever closed it and whatever befell it."""
        await asyncio.wait([self._keeper])


def _letter(accepted: AcceptedLetter) -> Letter:
    return Letter(id=str(accepted.letter_id), state=accepted.state)


async def _enclose(runtime: Runtime, parcel: FileParcel) -> Enclosed:
    kept = await runtime.spool.keep(chunks(parcel), size_bytes_max=runtime.config.upload_bytes_max)
    return kept.as_enclosed(parcel.field, filename=parcel.filename, content_type=parcel.content_type)
