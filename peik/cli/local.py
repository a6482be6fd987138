"""The store itself, without a running Peik: letters are accepted durably and read, and the nodes of the store send them.

It never sends anything and is no node: a command that owned a bot for a moment would begin tries that it cannot see through.
"""

import asyncio
import mimetypes
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from peik.admin.api import AuditApi, KeyApi, KeysAnswer
from peik.admin.audit import Audit
from peik.admin.keys import Keyring
from peik.cli.client import Attached, Document, check_files, document_for
from peik.cli.in_process import InProcessClient
from peik.clock import SystemClock
from peik.core.events import Events
from peik.core.letter import Chat, Draft, Enclosed, State
from peik.erasure.api import ErasureApi, ForgetEverywhereBody, ForgottenPersonAnswer
from peik.errors import Conflict, StartError, Unavailable
from peik.importing.api import ImportApi
from peik.importing.service import import_service_of
from peik.inbox.answers import ConsumersAnswer, RecoveryAnswer
from peik.inbox.api import ArrivalApi, ConsumerApi, InboxQuery
from peik.inbox.service import InboxService
from peik.monitoring.nodes import NodeApi, Nodes
from peik.outbox.answers import AcceptedAnswer, AcceptedBatchAnswer, ChangedChatAnswer, LetterAnswer
from peik.outbox.api import BatchBody, BotApi, ChatBody, LetterApi, LetterBody
from peik.outbox.hooks import own_secret
from peik.outbox.provisional import ProvisionalIds
from peik.outbox.service import Defaults, Guests, OutboxService, keep_files
from peik.outbox.store import BotRecord, LetterView
from peik.secrets import service
from peik.settings.config import Config
from peik.settings.values import StoreKind
from peik.storage.open import store_of
from peik.web.access import Caller
from peik.web.operations import CallHeaders, Told, TraceHeaders
from peik.web.parse import WaitQuery, decode, id_of

if TYPE_CHECKING:
    from peik.archive.store import Archive
    from peik.erasure.service import Eraser
    from peik.jobs.api import JobApi
    from peik.jobs.model import JobRecord
    from peik.storage.spool import SpoolPort

T = TypeVar("T")
_LOOK_S = 0.1  # how often a letter that is waited for is looked at: the owner is another process
_CHUNK = 256 * 1024


# What a store does not know, in words.
_ONLY_RUNNING = {"HostApi": "how hosts stand", "HealthApi": "how its routes stand", "AlertApi": "what goes on"}


class StoreClient(InProcessClient):
    def __init__(self, config: Config, *, may_create: bool) -> None:
        """Opens the store. Raises Unavailable if there is none, or if it cannot be used."""
        super().__init__()
        self.place = config.store_shown
        if config.store_kind is StoreKind.SQLITE:
            path = config.sqlite_path.absolute()
            self.place = str(path)
            if not may_create and not path.exists():
                raise Unavailable(
                    code="no_store",
                    detail=f"There is no {path}. Start `peik serve` there, or name another store: --store.",
                )
        self.is_running = False
        self._config = config
        self._owner: str | None = None
        self._opened_spool: SpoolPort | None = None
        try:
            self._runner.run(self._open())
        except BaseException as error:
            self._runner.close()
            if isinstance(error, StartError):
                raise Unavailable(code="store_unusable", detail=str(error)) from None
            raise

    async def _open(self) -> None:
        clock = SystemClock()
        self._store = store_of(self._config, clock=clock, on_blobs_freed=self.remove)
        self._engine = _NoEngine()
        await self._store.open()
        self._service = OutboxService(
            store=self._store,
            engine=self._engine,
            clock=clock,
            events=Events(),
            defaults=Defaults.of(self._config, may_be_pushed=True),
            expect=lambda at_ms: None,
            guests=Guests(self._store.documents, clock),
            provisional=ProvisionalIds(store=self._store, documents=self._store.documents, clock=clock),
        )
        try:
            self._service.open(await self._store.bots())
            self._nodes = Nodes(
                self._config,
                self._store.nodes,
                clock=clock,
                bot_ids=lambda: [bot.bot_id for bot in self._service.bots()],
                is_node=False,
            )
            running = [node.name for node in await self._nodes.known()]
            await self._look_at_seals(is_running=bool(running))
        except BaseException:
            await self._store.close()
            raise
        self.is_running = bool(running)
        self._owner = self._engine.owner = ", ".join(running) or None

    async def _look_at_seals(self, *, is_running: bool) -> None:
        """What is stored here is sealed as the nodes of the store do it, which may not have been restarted with the key yet."""
        if self._store.seals.has_key and not await service.admit(self._store.sealed, self._store.seals) and is_running:
            self._store.seals.hold()

    def remove(self, blobs: Iterable[str]) -> None:
        """Files that nobody needs any more. The spool is opened only now, if nobody has."""
        self._spool.remove(blobs)

    @property
    def _spool(self) -> "SpoolPort":
        if self._opened_spool is None:
            from peik.app.lifetime import Files

            self._opened_spool = Files(self._config).open(self._store)
        return self._opened_spool

    def close(self) -> None:
        try:
            self._runner.run(self._close())
        finally:
            self._runner.close()

    async def _close(self) -> None:
        try:
            if self._opened_spool is not None:
                await self._opened_spool.close()
        finally:
            await self._store.close()

    def _made(self, api: str) -> object | None:
        knows = _ONLY_RUNNING.get(api)
        if knows is not None:
            raise Unavailable(
                code="not_running", detail=f"Only a running Peik knows {knows}. Start it, or say where: --url."
            )
        ways: dict[str, Callable[[], object]] = {
            "LetterApi": self._letter_api,
            "BotApi": lambda: BotApi(self._service, self._nodes),
            "ArrivalApi": lambda: StoreArrivals(self._service, self._inbox(), config=self._config, owner=self._owner),
            "ConsumerApi": lambda: StoreConsumers(self._service, self._inbox()),
            "JobApi": self._job_api,
            "NodeApi": lambda: NodeApi(self._nodes),
            "KeyApi": self._key_api,
            "AuditApi": lambda: AuditApi(Audit(self._store.documents, SystemClock(), Events())),
            "ImportApi": self._import_api,
            "ErasureApi": lambda: StoreErasure(self._opened_eraser),
        }
        return ways[api]() if api in ways else None

    def _inbox(self) -> InboxService:
        """Nothing is handed on by it: the nodes of the store do that."""
        return InboxService(
            store=self._store.inbox,
            clock=SystemClock(),
            events=Events(),
            missed_after_s=self._config.missed_after,
        )

    def _letter_api(self) -> LetterApi:
        api = StoreLetters(self._service, self._inbox(), config=self._config, spool=lambda: self._spool)
        api.know_chats = self._know_chats
        if self._owner is not None and self._config.store_kind is StoreKind.SQLITE:
            api.owner = f"A running Peik ({self._owner}) owns {self.place}"
        return api

    def _job_api(self) -> "JobApi":
        from peik.jobs.api import JobApi
        from peik.jobs.service import JobService
        from peik.jobs.store import JobKinds, KindControls

        jobs = JobService(
            store=self._store.jobs,
            controls=KindControls(self._store.documents),
            kinds=JobKinds(),
            teller=_Nobody(),
            clock=SystemClock(),
            events=Events(),
        )
        return JobApi(jobs, self._service, config=self._config)

    def _import_api(self) -> ImportApi:
        imports = import_service_of(self._config, self._store, clock=SystemClock())
        return ImportApi(self._service, imports, is_running=self.is_running)

    def _key_api(self) -> KeyApi:
        keyring = Keyring(
            store=self._store,
            documents=self._store.documents,
            clock=SystemClock(),
            events=Events(),
            hooks_may_be_private=self._config.hooks_allow_private,
        )
        return StoreKeys(self._service, keyring=keyring, webhook_secret=lambda: own_secret(self._store))

    @asynccontextmanager
    async def _opened_eraser(self) -> "AsyncGenerator[Eraser, None]":
        """If nodes have the store open as well, they go on with what is left."""
        from peik.accounts.wiring import archive_named
        from peik.erasure.wiring import eraser_of

        archive = archive_named(self._config) if self._config.has_sessions else None
        if archive is not None:
            await archive.open()
        try:
            yield eraser_of(
                self._config,
                clock=SystemClock(),
                settled=SystemClock(),  # the engine, which tidies up, does not run here
                events=Events(),
                letters=self._service,
                bots=lambda: [bot.bot_id for bot in self._service.bots()],
                store=self._store,
                archive=None if archive is None else _opened(archive),
                is_live=self.is_running,
            )
        finally:
            if archive is not None:
                await archive.close()

    # ---- letters ----

    def accept(self, letter: Document, attached: Attached, on_bytes: Callable[[int], None]) -> Document:
        check_files(attached)
        return self._runner.run(self._accept(letter, attached, on_bytes))

    async def _accept(self, letter: Document, attached: Attached, on_bytes: Callable[[int], None]) -> Document:
        body = decode(LetterBody, msgspec.json.encode(letter))  # before anything is kept for it
        kept = await keep_files((self._enclose(field, path, on_bytes) for field, path in attached), self.remove)
        return document_for(await self._answer(LetterApi.accept_letter, {"body": body, "files": kept}))

    async def _know_chats(self, bot: BotRecord) -> None:
        self._engine.same_as = {
            (bot.bot_id, chat.chat): chat.same_as
            for chat in await self._store.chats(bot.bot_id)
            if chat.same_as is not None
        }

    async def _enclose(self, field: str, path: Path, on_bytes: Callable[[int], None]) -> Enclosed:
        async def chunks() -> AsyncIterator[bytes]:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    on_bytes(len(chunk))
                    yield chunk

        kept = await self._spool.keep(chunks(), size_bytes_max=self._config.upload_bytes_max)
        return kept.as_enclosed(
            field, filename=path.name, content_type=mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        )


class StoreLetters(LetterApi):
    """Letters of a store that another process sends."""

    owner: str | None = None  # who keeps in memory what it knows of chats, and hears no news of them, in words
    know_chats: Callable[[BotRecord], Awaitable[None]]  # of a bot, before something is accepted for it

    async def accept_letter(
        self,
        caller: Caller,
        body: LetterBody,
        query: WaitQuery,
        headers: CallHeaders,
        files: tuple[Enclosed, ...] = (),
    ) -> Told[AcceptedAnswer | LetterAnswer]:
        await self.know_chats(self._letters.bot(id_of(body.bot_id, "bot_id")))
        return await super().accept_letter(caller, body, query, headers, files)

    async def accept_batch(self, caller: Caller, body: BatchBody, headers: TraceHeaders) -> AcceptedBatchAnswer:
        if body.letters:
            await self.know_chats(self._letters.bot(id_of(body.letters[0].bot_id, "bot_id")))
        return await super().accept_batch(caller, body, headers)

    async def get_letter(self, caller: Caller, letter_id: int, query: WaitQuery) -> LetterAnswer:
        deadline = time.monotonic() + query.wait
        while True:
            letter = await super().get_letter(caller, letter_id, WaitQuery())
            if letter.finished_at is not None or time.monotonic() >= deadline:
                return letter
            await asyncio.sleep(_LOOK_S)

    async def change_chat(self, caller: Caller, bot_id: int, chat_id: Chat, body: ChatBody) -> ChangedChatAnswer:
        if self.owner is not None:
            raise Conflict(code="store_owned", detail=f"{self.owner}: chats are changed through it, with --url.")
        return await super().change_chat(caller, bot_id, chat_id, body)


class StoreArrivals(ArrivalApi):
    """Arrivals of a store whose nodes fetch them."""

    def __init__(self, letters: OutboxService, inbox: InboxService, *, config: Config, owner: str | None) -> None:
        super().__init__(letters, inbox)
        self._config = config
        self._owner = owner

    async def recover(self, caller: Caller, bot_id: int) -> RecoveryAnswer:
        """Fetch in the place of a node, for this one pass. Nothing is sent and nothing is handed on meanwhile."""
        from peik.app.lifetime import recover_once

        bot = self._letters.bot(bot_id)
        if self._owner is not None:
            raise Conflict(
                code="store_owned",
                detail=f"{self._owner} has the store and fetches updates itself. Ask it, with --url, or end it first.",
            )
        return RecoveryAnswer.of(await recover_once(self._config, bot.bot_id))


class StoreConsumers(ConsumerApi):
    """Consumers of a store: a bot that is not there is named as such, though nothing is asked of it."""

    async def list_consumers(self, caller: Caller, query: InboxQuery) -> ConsumersAnswer:
        if query.bot_id is not None:
            self._letters.bot(query.bot_id)
        return await super().list_consumers(caller, query)

    async def remove_consumer(self, caller: Caller, bot_id: int, name: str) -> None:
        await super().remove_consumer(caller, self._letters.bot(bot_id).bot_id, name)


class StoreKeys(KeyApi):
    """Keys of a store that others may change: they are read anew for each question."""

    async def list_keys(self, caller: Caller) -> KeysAnswer:
        await self._keyring.refresh()
        return await super().list_keys(caller)

    async def revoke_key(self, caller: Caller, key_id: int) -> None:
        await self._keyring.refresh()
        await super().revoke_key(caller, key_id)


class StoreErasure(ErasureApi):
    """Erases with an archive that is opened for it, and closed after."""

    def __init__(self, opened: "Callable[[], AbstractAsyncContextManager[Eraser]]") -> None:
        self._opened = opened

    async def forget(self, caller: Caller, body: ForgetEverywhereBody) -> ForgottenPersonAnswer:
        async with self._opened() as eraser:
            return await ErasureApi(eraser).forget(caller, body)


class _NoEngine:
    """What the outbox service asks of a courier, where there is none."""

    def __init__(self) -> None:
        self.owner: str | None = None
        self.same_as: dict[tuple[int, Chat], int] = {}

    def chat_of(self, bot_id: int, chat: Chat) -> Chat:
        return self.same_as.get((bot_id, chat), chat)

    def express(self, draft: Draft) -> None:
        return None

    def add(self, bot: BotRecord) -> None: ...

    def remove(self, bot_id: int) -> None: ...

    def why(self, view: LetterView, head: int | None) -> str | None:
        if self.owner is not None:
            return f"A running Peik ({self.owner}) has the store and knows why; ask it with --url."
        if view.state is State.DELAYED and view.due_at_ms is not None:
            return "It is not due yet, and no Peik is running that could send it."
        return "No Peik is running: it goes out when `peik serve` is started."

    def watch(self, bot_id: int, letter_id: int, tell: Callable[[bytes], None] | None) -> None: ...

    def open_chat(self, bot_id: int, chat: Chat) -> None: ...

    def hold_chat(self, bot_id: int, chat: Chat, until_ms: int) -> None: ...


class _Nobody:
    """Chats hear of a job from the process that does it."""

    def changed(self, job: "JobRecord") -> None: ...

    def progressed(self, job: "JobRecord", progress: float | None, text: str | None) -> None: ...


def _opened(archive: "Archive") -> "Callable[[], Awaitable[Archive]]":
    async def ready() -> "Archive":
        return archive

    return ready
