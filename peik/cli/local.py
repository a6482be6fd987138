"""The store itself, without a running Peik: letters are accepted durably and read, and the nodes of the store send them.

It never sends anything and is no node: a command that owned a bot for a moment would begin tries that it cannot see through.
"""

import asyncio
import mimetypes
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from peik.cli.client import Attached, Document, Filters, check_files, document_for
from peik.clock import SystemClock
from peik.core.call import chat_key
from peik.core.events import Events
from peik.core.letter import Chat, Draft, Enclosed, State
from peik.core.token import Token
from peik.errors import BadInput, Conflict, StartError, Unavailable
from peik.gateway.guests import Guests
from peik.inbox.answers import (
    arrival_view,
    consumer_view,
    inbox_stats,
    inbox_view,
    recovery_view,
    tally_view,
    whole_arrival_view,
)
from peik.inbox.api import AckBody, ConsumerBody, ReplayBody, SeenBody, acknowledge, replay, seen_messages, set_consumer
from peik.inbox.service import InboxService
from peik.inbox.store import ArrivalView
from peik.monitoring.nodes import Nodes
from peik.outbox.answers import letter_view
from peik.outbox.service import Defaults, OutboxService, keep_files
from peik.outbox.store import BotRecord, LetterFilter, LetterView
from peik.outbox.views import answers_to, bot_view, chat_view, lane_view, stats_view, wanted_of
from peik.secrets import service
from peik.settings.config import Config
from peik.settings.values import StoreKind
from peik.storage.open import AnyStore, store_of
from peik.web.bodies import arrival_filter_of, decode, parse_id

if TYPE_CHECKING:
    # merged
    from peik.admin.keys import Keyring
    from peik.archive.store import Archive
    from peik.cli.local_jobs import FileJobs
    from peik.importing.cli import ImportTaker
    from peik.storage.spool import SpoolPort

T = TypeVar("T")
_LOOK_S = 0.1  # how often a letter that is waited for is looked at: the owner is another process
_CHUNK = 256 * 1024


class StoreClient:
    def __init__(self, config: Config, *, may_create: bool) -> None:
        """Opens the store. Raises Unavailable if there is none, or if it cannot be used."""
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
        self._inbox: FileInbox | None = None
        self._runner = asyncio.Runner()
        try:
            self._run(self._open())
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
        self._desk = OutboxService(
            store=self._store,
            engine=self._engine,
            clock=clock,
            events=Events(),
            defaults=Defaults(attempts=self._config.attempts, backoff_ms=self._config.backoff_ms),
            expect=lambda at_ms: None,
            guests=Guests(self._store.papers, clock),
        )
        try:
            self._desk.open(await self._store.bots())
            self._nodes = Nodes(
                self._config,
                self._store.nodes,
                clock=clock,
                bot_ids=lambda: [bot.bot_id for bot in self._desk.bots()],
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
            self._run(self._close())
        finally:
            self._runner.close()

    async def _close(self) -> None:
        try:
            if self._opened_spool is not None:
                await self._opened_spool.close()
        finally:
            await self._store.close()

    def _run(self, work: Coroutine[object, object, T]) -> T:
        return self._runner.run(work)

    @property
    def inbox(self) -> "FileInbox":
        if self._inbox is None:
            # merged

            self._inbox = FileInbox(
                self._config, store=self._store, desk=self._desk, run=self._run, owner=lambda: self._owner
            )
        return self._inbox

    @property
    def jobs(self) -> "FileJobs":
        from peik.cli.local_jobs import FileJobs

        return FileJobs(self._store.jobs, desk=self._desk, run=self._run)

    def taker(self, bot_id: str) -> "ImportTaker":
        from peik.importing.cli import ImportTaker, asking_store

        ask = asking_store(
            self._config,
            store=self._store,
            desk=self._desk,
            run=self._run,
            know_chats=self._know_chats,
            is_running=self.is_running,
        )
        return ImportTaker(self, ask, bot_id)

    # ---- letters ----

    def accept(self, letter: Document, attached: Attached, on_bytes: Callable[[int], None]) -> Document:
        check_files(attached)
        return self._run(self._accept(letter, attached, on_bytes))

    async def _accept(self, letter: Document, attached: Attached, on_bytes: Callable[[int], None]) -> Document:
        from peik.web.bodies import call_of, decode_letter

        body = decode_letter(msgspec.json.encode(letter))
        call = call_of(body)
        bot = self._desk.bot(call.bot_id)
        await self._know_chats(bot)
        accepted = await self._desk.accept_with_files(
            await keep_files((self._enclose(field, path, on_bytes) for field, path in attached), self),
            lambda files: msgspec.structs.replace(call, enclosed=files),
            blobs=self,
        )
        return {"id": str(accepted.letter_id), "state": accepted.state}

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

    def letter(self, letter_id: str) -> Document:
        return self._run(self._letter(letter_id))

    async def _letter(self, letter_id: str) -> Document:
        view = await self._desk.letter(_number(letter_id, "letter_id"))
        return {**_plain(view), "why": await self._desk.why(view)}

    def wait(self, letter_id: str, timeout_s: float) -> Document:
        deadline = time.monotonic() + timeout_s
        while True:
            letter = self.letter(letter_id)
            if letter["finished_at"] is not None or time.monotonic() >= deadline:
                return letter
            time.sleep(_LOOK_S)

    def letters(self, filters: Filters, *, cursor: str | None, limit: int) -> Document:
        before = None if cursor is None else _number(cursor, "cursor")
        views = self._run(self._desk.find(_filter(filters), before=before, limit=limit))
        more = str(views[-1].id) if len(views) == limit else None
        return {"letters": [_plain(view) for view in views], "next_cursor": more, "is_cut": False}

    def cancel(self, letter_id: str) -> Document:
        return _plain(self._run(self._desk.cancel(_number(letter_id, "letter_id"))))

    def cancel_all(self, filters: Filters, *, dry_run: bool) -> Document:
        if dry_run:
            counted = self._run(self._desk.count_open(_filter(filters)))
            return {"count": counted.letters, "is_least": counted.is_least}
        return {"cancelled": self._run(self._desk.cancel_all(_filter(filters)))}

    def change(self, letter_id: str, change: Document) -> Document:
        from peik.outbox.api import ChangeBody, send_at_ms_of

        body = msgspec.convert(change, ChangeBody)
        changed = self._desk.change(
            _number(letter_id, "letter_id"), priority=body.priority, send_at_ms=send_at_ms_of(body)
        )
        return _plain(self._run(changed))

    def causes(self, bot_id: str | None, since: str | None, *, limit: int) -> Document:
        from peik.outbox.views import cause_view
        from peik.web.bodies import instant_ms

        bot_ids = None if bot_id is None else frozenset([_number(bot_id, "bot_id")])
        found = self._run(self._desk.causes(bot_ids=bot_ids, since_ms=instant_ms(since, "since"), limit=limit))
        return {"causes": [cause_view(one) for one in found]}

    def retry(self, letter_id: str) -> Document:
        return _plain(self._run(self._desk.retry(_number(letter_id, "letter_id"))))

    def resolve(self, letter_id: str, *, arrived: bool) -> Document:
        return _plain(self._run(self._desk.resolve(_number(letter_id, "letter_id"), arrived=arrived)))

    def retry_dead(self, filters: Filters) -> Document:
        return {"retried": self._run(self._desk.retry_dead(_filter(filters)))}

    def clear_dead(self, filters: Filters) -> Document:
        return {"cleared": self._run(self._desk.clear_dead(_filter(filters)))}

    def stats(self) -> Document:
        return {**stats_view(self._run(self._desk.tallies())), "inbox": self.inbox.stats()}

    # ---- lanes, chats, bots ----

    def lanes(self, bot_id: str | None, chat: str | None, *, limit: int) -> Document:
        bot = self._bot(bot_id)
        lanes = self._run(self._desk.lanes(bot.bot_id, None if chat is None else chat_key(chat), limit=limit))
        return {"lanes": [lane_view(lane, why) for lane, why in lanes]}

    def chats(self, bot_id: str | None, *, cursor: str | None, limit: int) -> Document:
        bot = self._bot(bot_id)
        after = None if cursor is None else chat_key(cursor)
        chats = self._run(self._desk.chats(bot.bot_id, after=after, limit=limit))
        more = str(chats[-1].chat) if len(chats) == limit else None
        return {"chats": [chat_view(chat) for chat in chats], "next_cursor": more}

    def change_chat(self, bot_id: str, chat: str, change: Document) -> Document:
        if self._owner is not None and self._config.store_kind is StoreKind.SQLITE:
            # It keeps what it knows of chats in memory, and no news tells it. Nodes of a server hear of it.
            raise Conflict(
                code="store_owned",
                detail=f"A running Peik ({self._owner}) owns {self.place}: chats are changed through it, with --url.",
            )
        from peik.web.bodies import instant_ms

        bot, key = self._bot(bot_id), chat_key(chat)
        if change.get("reachable"):
            self._run(self._desk.open_chat(bot.bot_id, key))
        if "held_until" in change:
            until = change["held_until"]
            assert until is None or isinstance(until, str)
            self._run(self._desk.hold_chat(bot.bot_id, key, instant_ms(until, "held_until") or 0))
        return {"bot_id": str(bot.bot_id), "chat_id": str(key)}

    def bots(self) -> Document:
        serving = self._run(self._nodes.serving())
        return {"bots": [{**bot_view(bot), "node": serving.get(bot.bot_id)} for bot in self._desk.bots()]}

    def add_bot(self, token: str, inbound: str) -> Document:
        bot, _ = self._run(self._desk.save_bot(Token(token), inbound=inbound))
        return bot_view(bot)

    def change_bot(self, bot_id: str, change: Document) -> Document:
        from peik.outbox.api import BotChange, change_bot
        from peik.web.bodies import decode

        body = decode(BotChange, msgspec.json.encode(change))
        return bot_view(self._run(change_bot(self._desk, self._bot(bot_id).bot_id, body)))

    def remove_bot(self, bot_id: str) -> None:
        self._run(self._desk.remove_bot(self._bot(bot_id).bot_id))

    def _bot(self, bot_id: str | None) -> BotRecord:
        return self._desk.bot(None if bot_id is None else _number(bot_id, "bot_id"))

    # ---- people ----

    def forget(self, wanted: Document) -> Document:
        """If nodes have the store open as well, they go on with what is left."""
        return self._run(self._forget(wanted))

    async def _forget(self, wanted: Document) -> Document:
        from peik.accounts.wiring import archive_named
        from peik.erasure.api import ForgetEverywhereBody, forgotten
        from peik.erasure.wiring import forgetter_of

        archive = archive_named(self._config) if self._config.has_sessions else None
        if archive is not None:
            await archive.open()
        try:
            forgetter = forgetter_of(
                self._config,
                clock=SystemClock(),
                settled=SystemClock(),  # the engine, which tidies up, does not run here
                events=Events(),
                letters=self._desk,
                bots=lambda: [bot.bot_id for bot in self._desk.bots()],
                store=self._store,
                archive=None if archive is None else _opened(archive),
                is_live=self.is_running,
            )
            body = msgspec.convert(wanted, ForgetEverywhereBody)
            return document_for(await forgotten(forgetter, body, who="command line"))
        finally:
            if archive is not None:
                await archive.close()

    # ---- nodes, routes and keys ----

    def nodes(self) -> Document:
        return document_for(self._run(self._nodes.page()))

    def drain_node(self, name: str, *, is_draining: bool) -> Document:
        return document_for(self._nodes.view(self._run(self._nodes.drain(name, is_draining=is_draining))))

    def routes(self) -> Document:
        raise Unavailable(
            code="not_running", detail="Only a running Peik knows how its routes stand. Start it, or say where: --url."
        )

    def keys(self) -> Document:
        from peik.admin.api import key_view

        return {"keys": [key_view(key) for key in self._keyring().known()]}

    def create_key(self, wanted: Document) -> Document:
        from peik.admin.api import KeyBody, key_view
        from peik.web.bodies import decode, instant_ms

        body = decode(KeyBody, msgspec.json.encode(wanted))
        bot_ids = None if body.bot_ids is None else frozenset(self._bot(str(one)).bot_id for one in body.bot_ids)
        making = self._keyring().make(
            body.name,
            body.scopes,
            bot_ids=bot_ids,
            expires_at_ms=instant_ms(body.expires_at, "expires_at"),
            webhook_url=body.webhook_url,
            rate=body.rate,
        )
        made = self._run(making)
        secret = {} if made.webhook_secret is None else {"webhook_secret": made.webhook_secret}
        return {**key_view(made.key), "key": made.text, **secret}

    def remove_key(self, key_id: str) -> None:
        self._run(self._keyring().revoke(_number(key_id, "key_id")))

    def _keyring(self) -> "Keyring":
        from peik.admin.keys import Keyring

        keyring = Keyring(
            store=self._store,
            papers=self._store.papers,
            clock=SystemClock(),
            events=Events(),
            hooks_may_be_private=self._config.hooks_allow_private,
        )
        self._run(keyring.refresh())
        return keyring


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


def _opened(archive: "Archive") -> "Callable[[], Awaitable[Archive]]":
    async def ready() -> "Archive":
        return archive

    return ready


def _plain(view: LetterView) -> Document:
    """A letter with its parameters and its result as values, as they come over the wire."""
    return dict(msgspec.json.decode(msgspec.json.encode(letter_view(view))))


def _filter(filters: Filters) -> LetterFilter:
    from peik.web.bodies import filter_of

    return filter_of(dict(filters))


def _number(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise BadInput(code=f"bad_{name}", detail=f"{name} must be a number.")


# What came in, read from the store itself. Nothing is handed on by it: the nodes of the store do that.


class FileInbox:
    def __init__(
        self,
        config: Config,
        *,
        store: AnyStore,
        desk: OutboxService,
        run: Callable[[Coroutine[object, object, Any]], Any],
        owner: Callable[[], str | None],
    ) -> None:
        self._config = config
        self._desk = desk
        self._run = run
        self._owner = owner
        self._inbox = InboxService(
            store=store.inbox, clock=SystemClock(), events=Events(), missed_after_s=config.missed_after
        )

    def arrivals(self, filters: Filters, *, cursor: str | None, limit: int) -> Document:
        wanted = arrival_filter_of(dict(filters))
        before = None if cursor is None else parse_id(cursor, "cursor")
        views = self._run(self._inbox.arrivals(wanted, before=before, limit=limit))
        more = str(views[-1].arrival.id) if len(views) == limit else None
        return _plain_arrival(
            {"arrivals": [arrival_view(view, consumer=wanted.consumer) for view in views], "next_cursor": more}
        )

    def arrival(self, arrival_id: str) -> Document:
        return self._whole(self._run(self._inbox.arrival(parse_id(arrival_id, "arrival_id"))))

    def _whole(self, view: ArrivalView) -> Document:
        return _plain_arrival(whole_arrival_view(view, self._run(answers_to(self._desk, wanted_of(view.arrival)))))

    def retry(self, arrival_id: str, consumer: str | None) -> Document:
        return self._whole(self._run(self._inbox.retry(parse_id(arrival_id, "arrival_id"), consumer)))

    def retry_dead(self, filters: Filters) -> Document:
        return {"retried": self._run(self._inbox.retry_dead(arrival_filter_of(dict(filters))))}

    def clear_dead(self, filters: Filters) -> Document:
        return {"cleared": self._run(self._inbox.clear_dead(arrival_filter_of(dict(filters))))}

    def replay(self, wanted: Document) -> Document:
        body = decode(ReplayBody, msgspec.json.encode(wanted))
        return dict(self._run(replay(self._inbox, self._bot_id(body.bot_id), body)))

    def acknowledge(self, wanted: Document) -> Document:
        body = decode(AckBody, msgspec.json.encode(wanted))
        return dict(self._run(acknowledge(self._inbox, self._bot_id(body.bot_id), body)))

    def note_seen(self, wanted: Document) -> Document:
        messages = seen_messages(body := decode(SeenBody, msgspec.json.encode(wanted)))
        matched = self._run(self._inbox.note_handled(self._bot_id(body.bot_id), messages))
        return {"noted": len(messages), "matched": matched}

    def inbox(self, bot_id: str | None) -> Document:
        bots = self._desk.bots() if bot_id is None else [self._desk.bot(parse_id(bot_id, "bot_id"))]
        return _plain_arrival({"bots": [inbox_view(bot, self._run(self._inbox.inbox(bot.bot_id))) for bot in bots]})

    def stats(self) -> Document:
        """The inbox's part of GET /v1/stats."""
        return inbox_stats(self._run(self._inbox.tallies()))

    # ---- consumers ----

    def consumers(self, bot_id: str | None) -> Document:
        tallies = self._run(self._inbox.tallies(None if bot_id is None else self._bot_id(bot_id)))
        return _plain_arrival({"consumers": [tally_view(tally) for tally in tallies]})

    def set_consumer(self, bot_id: str, name: str, wanted: Document) -> Document:
        body = decode(ConsumerBody, msgspec.json.encode(wanted))
        return _plain_arrival(consumer_view(self._run(set_consumer(self._inbox, self._bot_id(bot_id), name, body))))

    def remove_consumer(self, bot_id: str, name: str) -> None:
        self._run(self._inbox.remove_consumer(self._bot_id(bot_id), name))

    # ---- recovery ----

    def recover(self, bot_id: str) -> Document:
        """Fetch in the place of a node, for this one pass. Nothing is sent and nothing is handed on meanwhile."""
        bot = self._desk.bot(parse_id(bot_id, "bot_id"))
        owner = self._owner()
        if owner is not None:
            raise Conflict(
                code="store_owned",
                detail=f"{owner} has the store and fetches updates itself. Ask it, with --url, or end it first.",
            )
        from peik.app.lifetime import recover_once

        return recovery_view(self._run(recover_once(self._config, bot.bot_id)))

    def _bot_id(self, asked: int | str | None) -> int:
        return self._desk.bot(parse_id(asked, "bot_id") if isinstance(asked, str) else asked).bot_id


def _plain_arrival(document: object) -> Document:
    """With what stays as bytes as values, as they come over the wire."""
    return dict(msgspec.json.decode(msgspec.json.encode(document)))
