"""What a crawler kept in MongoDB before Peik, into the archive: its accounts, the messages and events they saw, its log.

The database is only read. What is in the archive already is known there by its key, so that a run that was broken off is simply
run again. Collections and fields are known by their names, as people call them; what has no place of its own is kept in the
record's JSON.
"""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from peik.archive.store import (
    LOG_LEVELS,
    Archive,
    Direction,
    Happening,
    LogLine,
    Message,
    Session,
    SessionState,
)
from peik.archive.wiring import archive_of, beside
from peik.errors import BadInput, Conflict, StartError, Unavailable, to_install
from peik.importing.rows import instant_ms_of, snake
from peik.settings.config import Config, shown_address

PAGE = 500
TROUBLES_MAX = 50
Row = Mapping[str, Any]
Document = dict[str, Any]

# What people call a collection, by what is brought of it.
_COLLECTIONS = {
    "sessions": ("telegram_sessions", "sessions", "accounts"),
    "messages": (
        "messages",
        "telegram_messages",
        "received_messages",
        "incoming_messages",
        "sent_messages",
        "outgoing_messages",
    ),
    "events": ("events", "telegram_events"),
    "logs": ("logs", "telegram_logs", "system_logs", "app_logs"),
}
KINDS = tuple(_COLLECTIONS)
_OURS = frozenset(
    {"updates_states", "chat_states", "message_versions", "feed"}
)  # Peik's own archive has these side by side
_SENT = frozenset({"sent", "outgoing", "out", "outbound", "true"})
_RECEIVED = frozenset({"received", "incoming", "in", "inbound", "false"})
_SECRETS = ("session_string", "string_session", "auth_key", "api_hash", "password")  # never kept in clear
_WITHOUT_FILE = (
    "It was brought over without its Telethon file. Put {file}.session into PEIK_SESSIONS_DIR and import it, "
    "or sign in again."
)
_LEVELS = {"warn": "warning", "critical": "error", "fatal": "error", "trace": "debug"}


class BadDocument(Exception):
    """Why a document cannot be brought over, in a sentence."""


class CrawlerFields:
    """A document, asked by role; what nobody asked for is what is left."""

    def __init__(self, document: Row) -> None:
        self._left = {name: value for name, value in document.items() if name != "_id"}
        self._names = {snake(name): name for name in self._left}

    def take(self, *names: str) -> Any:
        """The first that is there and is not empty. The others stay."""
        for name in names:
            own = self._names.get(name)
            if own is not None and self._left.get(own) not in (None, ""):
                return self._left.pop(own)
        return None

    def drop(self, *names: str) -> None:
        for name in names:
            self._left.pop(self._names.get(name, ""), None)

    def give_back(self, name: str, value: str) -> None:
        self._left[name] = value
        self._names[name] = name

    def text(self, *names: str) -> str | None:
        value = self.take(*names)
        return None if value is None else str(value)

    def number(self, *names: str) -> int | None:
        value = self.take(*names)
        if value is None:
            return None
        try:
            return int(value)
        except (TypeError, ValueError):
            raise BadDocument(f"{names[0]} is {value!r}, which is no number") from None

    def instant_ms(self, *names: str) -> int | None:
        value = self.take(*names)
        if isinstance(value, datetime.datetime):
            return round(value.timestamp() * 1000)
        found = instant_ms_of(value)
        if value is not None and found is None:
            raise BadDocument(f"{names[0]} is {value!r}, which is no time")
        return found

    def is_true(self, *names: str, default: bool) -> bool:
        value = self.take(*names)
        return default if value is None else value in (True, 1) or str(value).lower() in ("true", "yes", "active")

    def json(self, *names: str) -> str | None:
        """The first of these as JSON, with all that is left; None: nothing."""
        value = self.take(*names)
        inner: Document = dict(value) if isinstance(value, dict) else {} if value is None else {names[0]: value}
        whole = {**{name: one for name, one in self._left.items() if one is not None}, **inner}
        self._left = {}
        return _written(whole) if whole else None


def _written(value: Any) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadDocument(f"it cannot be written as JSON: {error}") from None


def session_of(document: Row, *, has_file: Callable[[str], bool] = lambda name: False) -> Session:
    """`has_file`: whether a Telethon file with this name lies in PEIK_SESSIONS_DIR. Raises BadDocument."""
    from peik.accounts.registry import normal_phone

    fields = CrawlerFields(document)
    session_id = fields.text("session_id", "id") or str(document.get("_id", ""))
    phone = fields.text("phone", "phone_number")
    try:
        phone = None if phone is None else normal_phone(phone)
    except BadInput as error:
        raise BadDocument(error.detail.rstrip(".")) from None
    named = fields.text("session_file", "session_path", "file", "session_name") or session_id
    file = Path(named).name.removesuffix(".session")
    created_ms = fields.instant_ms("created_at", "created") or _made_ms(document)
    is_there = has_file(file)
    fields.drop("is_connected", "connected", *_SECRETS)
    return Session(
        session_id=session_id,
        agent_id=fields.text("agent_id", "agent", "owner_id") or "default",
        phone=phone,
        user_id=fields.number("telegram_user_id", "user_id", "telegram_id", "tg_id"),
        username=fields.text("username"),
        state=SessionState.ACTIVE if is_there else SessionState.NEW,
        state_reason=None if is_there else _WITHOUT_FILE.format(file=file),
        is_active=fields.is_true("is_active", "active", default=True),
        file=file if is_there else None,
        updated_at_ms=fields.instant_ms("updated_at", "updated") or created_ms,
        active_at_ms=fields.instant_ms("last_activity", "last_activity_at", "last_active", "last_seen"),
        created_at_ms=created_ms,
        metadata=fields.json("metadata", "meta") or "{}",
    )


def message_of(document: Row, *, collection: str = "messages", agents: Mapping[str, str] | None = None) -> Message:
    """`agents`: whose a session is, where the message does not say so. Raises BadDocument."""
    fields = CrawlerFields(document)
    session_id = _needed(fields.text("session_id", "session"), "of which session it is")
    made_ms = fields.instant_ms("created_at", "saved_at", "inserted_at")
    date_ms = fields.instant_ms("date", "sent_at", "timestamp", "message_date") or made_ms or _made_ms(document)
    return Message(
        session_id=session_id,
        agent_id=fields.text("agent_id", "agent") or (agents or {}).get(session_id) or "default",
        chat_id=_needed(fields.number("chat_id", "peer_id", "chat"), "in which chat it is"),
        message_id=_needed(fields.number("message_id", "telegram_message_id", "msg_id", "id"), "which message it is"),
        direction=_direction(fields, collection),
        sender_id=fields.number("sender_id", "from_id", "from_user_id", "user_id"),
        date_ms=date_ms,
        edited_at_ms=fields.instant_ms("edited_at", "edit_date") or 0,
        kind=fields.text("kind", "message_type", "media_type", "type") or "text",
        text=fields.text("text", "message", "message_text", "content", "caption") or "",
        reply_to=_reply_to(fields),
        grouped_id=fields.number("grouped_id", "media_group_id"),
        media=_part(fields, "media", "media_info", "file"),
        created_at_ms=made_ms or date_ms,
        raw=fields.json("raw", "raw_data", "raw_message"),
    )


def event_of(document: Row, *, agents: Mapping[str, str] | None = None) -> Happening:
    fields = CrawlerFields(document)
    session_id = _needed(fields.text("session_id", "session"), "of which session it is")
    return Happening(
        # The document's own id: the same again is no second event.
        event_id=f"import:{fields.text('event_id') or document.get('_id')}",
        session_id=session_id,
        agent_id=fields.text("agent_id", "agent") or (agents or {}).get(session_id) or "default",
        event_type=fields.text("event_type", "type", "event", "name") or "unknown",
        chat_id=fields.number("chat_id", "peer_id"),
        user_id=fields.number("user_id", "sender_id"),
        created_at_ms=fields.instant_ms("created_at", "timestamp", "date", "occurred_at") or _made_ms(document),
        payload=fields.json("payload", "data", "event_data", "details") or "{}",
    )


def line_of(document: Row) -> LogLine:
    fields = CrawlerFields(document)
    level = (fields.text("level", "levelname", "severity") or "info").lower()
    level = _LEVELS.get(level, level)
    return LogLine(
        level=level if level in LOG_LEVELS else "info",
        event=fields.text("event", "message", "msg", "text") or "log",
        session_id=fields.text("session_id", "session"),
        at_ms=fields.instant_ms("timestamp", "created_at", "time", "at", "date") or _made_ms(document),
        fields=fields.json("fields", "extra", "context", "details", "metadata") or "{}",
    )


def _needed(value: Any, what: str) -> Any:
    if value is None:
        raise BadDocument(f"it does not say {what}")
    return value


def _direction(fields: CrawlerFields, collection: str) -> Direction:
    """By its own word, or by the collection's. What a crawler keeps it has received, if nothing says otherwise."""
    for names in (("direction",), ("is_outgoing", "outgoing", "out", "is_sent")):
        word = fields.text(*names)
        if word is not None:
            return Direction.SENT if word.lower() in _SENT else Direction.RECEIVED
    word = fields.text("type", "message_type")
    if word is not None and word.lower() in _SENT | _RECEIVED:
        return Direction.SENT if word.lower() in _SENT else Direction.RECEIVED
    if word is not None:
        fields.give_back("kind", word)
    return Direction.SENT if collection.startswith(("sent_", "outgoing_")) else Direction.RECEIVED


def _reply_to(fields: CrawlerFields) -> int | None:
    return fields.number("reply_to", "reply_to_msg_id", "reply_to_message_id")


def _part(fields: CrawlerFields, *names: str) -> str | None:
    value = fields.take(*names)
    if value is None or isinstance(value, dict | list):
        return None if value is None else _written(value)
    return _written({names[0]: value})


def _made_ms(document: Row) -> int:
    """When MongoDB made its id, where nothing says more."""
    made = getattr(document.get("_id"), "generation_time", None)
    if not isinstance(made, datetime.datetime):
        raise BadDocument("it has no time")
    return round(made.timestamp() * 1000)


# ---- bringing ----


class CrawlerPart(msgspec.Struct, kw_only=True):
    """One collection, and what became of it."""

    kind: str
    collection: str
    documents: int
    brought: int = 0
    known: int = 0
    troubled: int = 0
    troubles: list[str] = []

    def trouble(self, document: Row, why: str) -> None:
        self.troubled += 1
        if len(self.troubles) < TROUBLES_MAX:
            self.troubles.append(f"{document.get('_id')}: {why}.")


class CrawlerImport(msgspec.Struct, kw_only=True):
    origin: str
    target: str
    parts: list[CrawlerPart]
    left: list[str] = []  # collections that are not known


class CrawlerSource:
    """The old database. Raises BadInput if it is no address or holds nothing of this, Unavailable if it cannot be reached."""

    def __init__(self, url: str) -> None:
        try:
            from pymongo import AsyncMongoClient
            from pymongo.errors import PyMongoError
        except ImportError as error:
            raise BadInput(
                code="no_mongo",
                detail=f"MongoDB is read by a package that is not here ({error.name}): {to_install('mongo')}.",
            ) from None
        self._faults = (PyMongoError, OSError)
        self.shown = shown_address(url)
        try:
            # An argument would count for more than what the address says.
            patience: dict[str, Any] = (
                {} if "serverselectiontimeoutms" in url.lower() else {"serverSelectionTimeoutMS": 10_000}
            )
            self._client: Any = AsyncMongoClient(url, tz_aware=True, appname="peik import", **patience)
            self.name = self._client.get_default_database().name
        except (*self._faults, ValueError) as error:
            raise BadInput(
                code="bad_source",
                detail=f"Name server and database: mongodb://host/database. ({str(error).rstrip('.')})",
            ) from None
        self._database = self._client[self.name]

    async def aclose(self) -> None:
        await self._client.close()

    @contextlib.contextmanager
    def asked(self) -> Any:
        try:
            yield
        except self._faults as error:
            line = str(error).partition(", Timeout:")[0][:300]
            raise Unavailable(code="bad_source", detail=f"{self.shown} cannot be read: {line}.") from None

    async def parts(self, kinds: frozenset[str]) -> tuple[list[CrawlerPart], list[str]]:
        """What is brought of this database, in its order, and what is not."""
        with self.asked():
            names = sorted(await self._database.list_collection_names(filter={"type": "collection"}))
            if set(names) >= _OURS:
                detail = f"{self.shown} is an archive of Peik itself. `peik migrate --archive FROM TO` moves one."
                raise BadInput(code="bad_source", detail=detail)
            known = {snake(name): name for name in names}
            found = [
                CrawlerPart(
                    kind=kind, collection=known[name], documents=await self._database[known[name]].count_documents({})
                )
                for kind, usual in _COLLECTIONS.items()
                if kind in kinds
                for name in usual
                if name in known
            ]
        taken = {part.collection for part in found}
        return found, [name for name in names if name not in taken and not name.startswith("system.")]

    async def pages(self, collection: str) -> AsyncIterator[list[Row]]:
        after = None
        while True:
            asked: Document = {} if after is None else {"_id": {"$gt": after}}
            with self.asked():
                page = await self._database[collection].find(asked).sort("_id", 1).limit(PAGE).to_list()
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = page[-1]["_id"]


def look_at_crawler(url: str, config: Config, *, kinds: frozenset[str] = frozenset(KINDS)) -> CrawlerImport:
    """What there is to bring, and where it would go. Raises Conflict if both are the same database."""
    target = _target(config)
    if target.startswith("mongodb") and _place(target) == _place(url):
        raise Conflict(
            code="same_database",
            detail=f"{shown_address(url)} is both what is to be brought and PEIK_ARCHIVE. Peik's collections have the same "
            "names and another shape. Give it a database of its own on that server: PEIK_ARCHIVE=mongodb://…/peik.",
        )

    async def look() -> CrawlerImport:
        async with contextlib.aclosing(CrawlerSource(url)) as source:
            parts, left = await source.parts(kinds)
        if not parts:
            there = ", ".join(left) or "nothing"
            usual = ", ".join(names[0] for names in _COLLECTIONS.values())
            detail = f"{source.shown} has none of the collections that Peik brings ({usual}). There is: {there}."
            raise BadInput(code="nothing_found", detail=detail)
        return CrawlerImport(origin=source.shown, target=shown_address(target), parts=parts, left=left)

    return asyncio.run(look())


def import_crawler(
    url: str, config: Config, found: CrawlerImport, *, is_dry: bool, step: Callable[[int], None] = lambda count: None
) -> None:
    """Into the archive of the settings; what becomes of it is noted in `found`. `is_dry`: every document is looked at, and
    nothing is written."""
    target = _target(config)

    async def work() -> None:
        async with contextlib.aclosing(CrawlerSource(url)) as source:
            if is_dry:
                await _Bringing(source, None, config, step).all_of(found.parts)
                return
            async with _opened(target, config.store) as archive:
                await _Bringing(source, archive, config, step).all_of(found.parts)

    asyncio.run(work())


def _target(config: Config) -> str:
    return config.archive or beside(config.store)


def _place(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2], parts.path.strip("/") or "peik"


@contextlib.asynccontextmanager
async def _opened(url: str, store: str) -> AsyncIterator[Archive]:
    archive = archive_of(url, store=store)
    try:
        await archive.open()
    except StartError as error:
        raise Unavailable(code="archive_unusable", detail=str(error)) from None
    try:
        yield archive
    finally:
        await archive.close()


class _Bringing:
    """Without an archive it only looks."""

    def __init__(
        self, source: CrawlerSource, archive: Archive | None, config: Config, step: Callable[[int], None]
    ) -> None:
        self._source = source
        self._archive = archive
        self._folder = config.sessions_dir
        self._step = step
        self._agents: dict[str, str] = {}  # whose a session is

    async def all_of(self, parts: Sequence[CrawlerPart]) -> None:
        ways = {"sessions": self._sessions, "messages": self._messages, "events": self._events, "logs": self._logs}
        for part in parts:
            async for page in self._source.pages(part.collection):
                await ways[part.kind](part, page)
                self._step(len(page))

    async def _sessions(self, part: CrawlerPart, page: Sequence[Row]) -> None:
        for document, session in _made(part, page, lambda one: session_of(one, has_file=self._has_file)):
            self._agents[session.session_id] = session.agent_id
            if self._archive is None:
                part.brought += 1
            elif await self._archive.session(session.session_id) is not None:
                part.known += 1
            else:
                await self._add(part, document, session)

    async def _add(self, part: CrawlerPart, document: Row, session: Session) -> None:
        assert self._archive is not None
        try:
            await self._archive.add_session(session)
        except Conflict as error:
            if error.code != "phone_taken":
                raise
            await self._archive.add_session(msgspec.structs.replace(session, is_active=False))
            part.trouble(document, "another active session has its phone, so that it was brought as an inactive one")
        part.brought += 1

    def _has_file(self, name: str) -> bool:
        return self._folder is not None and (self._folder / f"{name}.session").is_file()

    async def _messages(self, part: CrawlerPart, page: Sequence[Row]) -> None:
        def made(document: Row) -> Message:
            return message_of(document, collection=snake(part.collection), agents=self._agents)

        found = [message for _, message in _made(part, page, made)]
        if self._archive is None:
            part.brought += len(found)
            return
        counts = await self._archive.keep_messages(found)
        part.brought += counts.new + counts.edited
        part.known += counts.known

    async def _events(self, part: CrawlerPart, page: Sequence[Row]) -> None:
        found = [event for _, event in _made(part, page, lambda one: event_of(one, agents=self._agents))]
        new = len(found) if self._archive is None else await self._archive.keep_events(found)
        part.brought += new
        part.known += len(found) - new

    async def _logs(self, part: CrawlerPart, page: Sequence[Row]) -> None:
        found = [line for _, line in _made(part, page, line_of)]
        if self._archive is not None:
            await self._archive.keep_logs(found)  # it does not say which of them it knew
        part.brought += len(found)


def _made(part: CrawlerPart, page: Sequence[Row], make: Callable[[Row], Any]) -> list[tuple[Row, Any]]:
    found = []
    for document in page:
        try:
            found.append((document, make(document)))
        except BadDocument as error:
            part.trouble(document, str(error))
    return found
