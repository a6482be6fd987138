"""REST: what accounts saw. Messages, events and the log; lists, counts, exports, streams."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from peik.accounts import feeds
from peik.accounts.answers import ArchivedMessageAnswer, HappeningAnswer, MessageAnswer
from peik.accounts.api import FLAG, NeedsAccounts
from peik.accounts.feeds import NUMBER_MAX, FeedFilter
from peik.archive.export import ExportFormat, ExportPart, export_messages
from peik.archive.store import (
    LOG_LEVELS,
    Direction,
    EventFilter,
    LineKind,
    LogFilter,
    LogLine,
    MessageFilter,
    SessionFilter,
)
from peik.clock import Clock
from peik.core.units import rfc3339
from peik.errors import BadInput, NotFound, Unavailable
from peik.monitoring.pulse import ANSWER_S, FRESH_S
from peik.settings.config import Config
from peik.settings.values import StoreKind
from peik.web.access import Caller
from peik.web.openapi import WORD, WORD_CHARS_MAX
from peik.web.operations import Moment, Object, Streamed, StreamHeaders, Written, operation
from peik.web.parse import LIMIT, MOMENT, TEXT, Param, whole_number

if TYPE_CHECKING:
    from peik.accounts.service import AccountService

LIMIT_DEFAULT = 100
CURSOR_CHARS_MAX = 64
EVENTS_READER = "/events"  # is put behind the name of a reader of events
READER_CHARS_MAX = feeds.READER_CHARS_MAX - len(EVENTS_READER)
EXPORT_PAGE = 200  # with all that Telegram told of each: nobody else is served while a page is put into words
EXPORT_STALL_S = 60.0  # a client that takes nothing for so long has gone
NEXT_CURSOR = "Peik-Next-Cursor"
_PLACES_BYTES = 1024 * 1024
_MESSAGES = frozenset({LineKind.MESSAGE, LineKind.EDITED, LineKind.DELETED})
_EVENTS = frozenset({LineKind.EVENT})
_MEDIA_TYPES = {ExportFormat.JSONL: "application/jsonl", ExportFormat.CSV: "text/csv; charset=utf-8"}
_READ = (409, 422, 503)
_for_all = partial(operation, is_for_all=True)
_read_messages = partial(operation, tag="messages", scope="read", is_for_all=True)

# ---- which messages, events and lines ----

# What a query of one database could not even be asked with; others would find nothing.
_UNASKABLE = re.compile("[\x00\ud800-\udfff]")


def _filter(param: Param, text: str) -> Param:
    def askable(word: str, name: str) -> object:
        if _UNASKABLE.search(word):
            raise BadInput(code="bad_filter", detail=f"{name} has 1 to {WORD_CHARS_MAX} characters.")
        return param.read(word, name)

    return msgspec.structs.replace(param, read=askable, text=text, chars_max=WORD_CHARS_MAX)


def _direction(text: str, name: str) -> Direction:
    try:
        return Direction(text)
    except ValueError:
        raise BadInput(code="bad_direction", detail=f"direction is one of {', '.join(Direction)}.") from None


def _level(text: str, name: str) -> str:
    if text not in LOG_LEVELS:
        raise BadInput(
            code="bad_level", detail=f"level is one of {', '.join(LOG_LEVELS)}: this one and worse are shown."
        )
    return text


def _kinds(text: str, name: str) -> frozenset[LineKind]:
    try:
        return frozenset(LineKind(kind) for kind in text.split(","))
    except ValueError:
        raise BadInput(code="bad_kinds", detail=f"kinds are {', '.join(LineKind)}, with commas between.") from None


def _form(text: str, name: str) -> ExportFormat:
    try:
        return ExportFormat(text)
    except ValueError:
        raise BadInput(code="bad_format", detail=f"format is one of {', '.join(ExportFormat)}.") from None


def _cursor(text: str, name: str) -> str:
    if len(text) > CURSOR_CHARS_MAX:
        raise BadInput(code="bad_cursor", detail="The cursor is not one of ours. Begin again without it.")
    return text


def _reader(text: str, name: str) -> str:
    if not (0 < len(text) <= READER_CHARS_MAX and text.isprintable() and "/" not in text):
        detail = f"A reader has a name of 1 to {READER_CHARS_MAX} characters, on one line and without a slash."
        raise BadInput(code="bad_reader", detail=detail)
    return text


def _name(text: str, name: str) -> str:
    """What every database can be asked with."""
    if not 0 < len(text) <= 200 or "\x00" in text:
        raise BadInput(code=f"bad_{name}", detail=f"{name} has 1 to 200 characters.")
    return text


_NUMBER = Param(whole_number, {"type": "string", "pattern": "^-?[0-9]{1,18}$"})
_DIRECTION = Param(_direction, {"type": "string", "enum": [str(direction) for direction in Direction]})
_LEVEL = Param(_level, {"type": "string", "enum": list(LOG_LEVELS)})
_LINE_KINDS = Param(_kinds, WORD, write=lambda kinds: ",".join(sorted(kinds)))
_FORMAT = Param(_form, {"type": "string", "enum": [str(form) for form in ExportFormat]})
_SESSION = _filter(TEXT, "What this session saw.")
_AGENT = _filter(TEXT, "What sessions of this agent saw.")
_CHAT = _filter(_NUMBER, "In this chat.")
_SINCE = _filter(MOMENT, "Then or later; RFC 3339 or Unix seconds.")
_UNTIL = _filter(MOMENT, "Before then.")
_CURSOR = Param(
    _cursor, {"type": "string", "minLength": 1, "maxLength": CURSOR_CHARS_MAX}, "The next of the page before."
)
_LIMIT = Param(LIMIT.read, LIMIT.schema | {"default": LIMIT_DEFAULT}, "How many.")
_NumberInPath = Annotated[int, _NUMBER]
_NameInPath = Annotated[str, Param(_name, WORD)]
_ReaderInPath = Annotated[str, Param(_reader, WORD)]


class MessageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session_id: Annotated[str | None, _SESSION] = None
    agent_id: Annotated[str | None, _AGENT] = None
    chat_id: Annotated[int | None, _CHAT] = None
    direction: Annotated[Direction | None, _filter(_DIRECTION, "To it, or by it.")] = None
    sender_id: Annotated[int | None, _filter(_NUMBER, "Who wrote it.")] = None
    kind: Annotated[str | None, _filter(TEXT, "text, photo, video, …")] = None
    since: Annotated[int | None, _SINCE] = None
    until: Annotated[int | None, _UNTIL] = None
    text: Annotated[str | None, _filter(TEXT, "Whole words, in any order and case.")] = None
    deleted: Annotated[bool | None, _filter(FLAG, "Deleted at Telegram, or not.")] = None

    def wanted(self) -> MessageFilter:
        return MessageFilter(
            session_id=self.session_id,
            agent_id=self.agent_id,
            chat_id=self.chat_id,
            direction=self.direction,
            sender_id=self.sender_id,
            kind=self.kind,
            since_ms=self.since,
            until_ms=self.until,
            text=self.text,
            is_deleted=self.deleted,
        )


class MessagesQuery(MessageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cursor: Annotated[str | None, _CURSOR] = None
    limit: Annotated[int, _LIMIT] = LIMIT_DEFAULT


class ExportQuery(MessageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Annotated[ExportFormat, _FORMAT.saying("JSON Lines if not given.")] = ExportFormat.JSONL
    cursor: Annotated[str | None, _CURSOR] = None
    limit: Annotated[int | None, _LIMIT] = None  # None: all of them


class StatsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent_id: Annotated[str | None, _AGENT] = None


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session_id: Annotated[str | None, _SESSION] = None
    agent_id: Annotated[str | None, _AGENT] = None
    event_type: Annotated[str | None, _filter(TEXT, "joined, left, read, …")] = None
    chat_id: Annotated[int | None, _CHAT] = None
    since: Annotated[int | None, _SINCE] = None
    until: Annotated[int | None, _UNTIL] = None
    cursor: Annotated[str | None, _CURSOR] = None
    limit: Annotated[int, _LIMIT] = LIMIT_DEFAULT

    def wanted(self) -> EventFilter:
        return EventFilter(
            session_id=self.session_id,
            agent_id=self.agent_id,
            event_type=self.event_type,
            chat_id=self.chat_id,
            since_ms=self.since,
            until_ms=self.until,
        )


class LogsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: Annotated[str | None, _filter(_LEVEL, "This one and worse.")] = None
    event: Annotated[str | None, _filter(TEXT, "The name of an event.")] = None
    session_id: Annotated[str | None, _SESSION.saying("About this session.")] = None
    bot_id: Annotated[int | None, _filter(_NUMBER, "About this bot or account.")] = None
    since: Annotated[int | None, _SINCE] = None
    until: Annotated[int | None, _UNTIL] = None
    text: Annotated[str | None, _filter(TEXT, "Anywhere in the line.")] = None
    cursor: Annotated[str | None, _CURSOR] = None
    limit: Annotated[int, _LIMIT] = LIMIT_DEFAULT

    def wanted(self) -> LogFilter:
        return LogFilter(
            level=self.level,
            event=self.event,
            session_id=self.session_id,
            bot_id=self.bot_id,
            since_ms=self.since,
            until_ms=self.until,
            text=self.text,
        )


class FeedQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lines a stream is to tell, and to whom."""

    session_id: Annotated[str | None, _SESSION] = None
    agent_id: Annotated[str | None, _AGENT] = None
    chat_id: Annotated[int | None, _CHAT] = None
    reader: Annotated[
        str | None,
        _filter(Param(_reader, WORD), "A name under which the archive keeps how far this reader is."),
    ] = None
    kinds: Annotated[
        frozenset[LineKind] | None,
        _filter(_LINE_KINDS, "Which of message, edited, deleted and event, with commas between."),
    ] = None


class FeedHeaders(StreamHeaders, frozen=True, kw_only=True):
    last_event_id: Annotated[
        str | None,
        Param(
            TEXT.read,
            {"type": "string", "pattern": "^[!-~]*$"},  # empty as if it were not there
            "The last id that was had: it goes on behind it.",
        ),
    ] = None


# ---- bodies and answers ----


class ForgetBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/messages/forget`: whose messages, events and private chats."""

    user_id: int | str


class ReaderBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PUT /v1/readers/{name}`: up to which line it has had each session."""

    places: dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]]


_Next = Annotated[str | None, msgspec.Meta(description="The cursor of the next page; null at the end.")]


class MessageExportAnswer(Streamed, frozen=True, kw_only=True):
    """One message per line, or as rows below a head."""


class LinesAnswer(Streamed, frozen=True, kw_only=True):
    __doc__ = f"One event per line of a feed ({', '.join(LineKind)}), with the place behind it as id."


class MessagesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[ArchivedMessageAnswer]
    next: _Next


class MessageCountAnswer(msgspec.Struct, frozen=True, kw_only=True):
    count: int


class ForgottenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    removed: dict[str, int]


class ArchiveStatsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    sessions: int
    messages: int
    versions: int
    events: int


class HappeningsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    events: list[HappeningAnswer]
    next: _Next


class ReaderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    reader: str
    places: dict[str, int]


class LogLineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    at: Moment
    level: Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(LOG_LEVELS)})]
    event: str
    node: str
    session_id: str | None
    bot_id: str | None
    fields: Object

    @classmethod
    def of(cls, line: LogLine) -> "LogLineAnswer":
        return cls(
            at=rfc3339(line.at_ms),
            level=line.level,
            event=line.event,
            node=line.node,
            session_id=line.session_id,
            bot_id=None if line.bot_id is None else str(line.bot_id),
            fields=msgspec.Raw(line.fields.encode()),
        )


class LogsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    logs: list[LogLineAnswer]
    next: _Next


class MessageApi(NeedsAccounts):
    # ---- messages ----

    @_read_messages("GET", "/v1/messages", name="listMessages", problems=_READ)
    async def list_messages(self, caller: Caller, query: MessagesQuery) -> MessagesAnswer:
        """Messages by account, chat, sender, time, kind or whole words; the newest first."""
        found, following = await self._service.archive.messages(query.wanted(), cursor=query.cursor, limit=query.limit)
        return MessagesAnswer(messages=[ArchivedMessageAnswer.of(one) for one in found], next=following)

    @_read_messages("GET", "/v1/messages/count", name="countMessages", problems=_READ)
    async def count_messages(self, caller: Caller, query: MessageQuery) -> MessageCountAnswer:
        """How many messages a list of the same filter has in all."""
        return MessageCountAnswer(count=await self._service.archive.count_messages(query.wanted()))

    @_read_messages(
        "GET",
        "/v1/messages/export",
        name="exportMessages",
        answers={200: MessageExportAnswer},
        media_type="application/jsonl",
        other_media_types=("text/csv",),
        problems=_READ,
    )
    async def export(self, caller: Caller, query: ExportQuery) -> Written | Streamed:
        """Messages of a filter as JSON Lines or CSV, the newest first. An answer that breaks off is not the whole.

        With `limit` only so many, and the header `Peik-Next-Cursor` says where it goes on."""
        size = EXPORT_PAGE if query.limit is None else query.limit
        parts = export_messages(
            self._service.archive, query.wanted(), form=query.format, cursor=query.cursor, page=size
        )
        first = await anext(parts)  # what is wrong is said while it can be
        if query.limit is None:
            return Streamed(
                chunks=_pieces(first, parts),
                media_type=_MEDIA_TYPES[query.format],
                headers={
                    "Content-Disposition": f'attachment; filename="messages.{query.format}"',
                    "Cache-Control": "no-store",
                },
                stall_s=EXPORT_STALL_S,
            )
        await parts.aclose()  # one page, for anyone who wants to go on later
        following = {} if first.cursor is None else {NEXT_CURSOR: first.cursor}
        return Written(
            body=first.data, media_type=_MEDIA_TYPES[query.format], headers={"Cache-Control": "no-store", **following}
        )

    @_read_messages(
        "GET",
        "/v1/messages/stream",
        name="streamMessages",
        answers={200: LinesAnswer},
        media_type="text/event-stream",
        problems=_READ,
    )
    async def stream_messages(self, caller: Caller, query: FeedQuery, headers: FeedHeaders) -> Streamed:
        """Messages as server-sent events (message, edited, deleted), resumed after `Last-Event-ID` or for a `reader`."""
        return await self._stream(query, headers, _MESSAGES)

    async def _stream(self, query: FeedQuery, headers: FeedHeaders, kinds: frozenset[LineKind]) -> Streamed:
        from peik.accounts.stream import session_stream  # with all that a server knows

        wanted = FeedFilter(
            session_id=query.session_id,
            agent_id=query.agent_id,
            chat_id=query.chat_id,
            kinds=kinds if query.kinds is None else query.kinds,
        )
        reader = query.reader
        if reader is not None and wanted.kinds == _EVENTS:
            reader = events_reader(reader)
        last_id = (headers.last_event_id or "").strip() or None
        return Streamed(chunks=await session_stream(self._service, wanted, last_id=last_id, reader=reader))

    @_read_messages("GET", "/v1/messages/stats", name="getArchiveStats", problems=_READ)
    async def get_stats(self, caller: Caller, query: StatsQuery) -> ArchiveStatsAnswer:
        """How much is archived, in all or of one agent."""
        return ArchiveStatsAnswer(**msgspec.structs.asdict(await self._service.archive.tally(query.agent_id)))

    @_for_all(
        "POST",
        "/v1/messages/forget",
        name="forgetPerson",
        tag="messages",
        scope="admin",
        example={"user_id": "123456789"},
        problems=(409, 413, 422, 503),
    )
    async def forget(self, caller: Caller, body: ForgetBody) -> ForgottenAnswer:
        """Remove for good what a person wrote and did, in the archives of all accounts: how much it was, by kind."""
        removed = await self._service.archive.forget_person(whole_number(str(body.user_id), "user_id"))
        return ForgottenAnswer(removed=dict(removed))

    @_read_messages(
        "GET",
        "/v1/messages/{session_id}/{chat_id}/{message_id}",
        name="getMessage",
        problems=(404, 409, 422, 503),
    )
    async def get_message(
        self, caller: Caller, session_id: _NameInPath, chat_id: _NumberInPath, message_id: _NumberInPath
    ) -> MessageAnswer:
        """One message with everything that Telegram told of it, and all of its versions, the oldest first."""
        return MessageAnswer.of_versions(await self._service.versions(session_id, chat_id, message_id))

    # ---- events ----

    @_for_all("GET", "/v1/events", name="listEvents", tag="events", scope="read", problems=_READ)
    async def list_events(self, caller: Caller, query: EventsQuery) -> HappeningsAnswer:
        """What else accounts saw: who joined, left, read or reacted; the newest first."""
        found, following = await self._service.archive.events(query.wanted(), cursor=query.cursor, limit=query.limit)
        return HappeningsAnswer(events=[HappeningAnswer.of(one) for one in found], next=following)

    @_for_all(
        "GET",
        "/v1/events/stream",
        name="streamEvents",
        tag="events",
        scope="read",
        answers={200: LinesAnswer},
        media_type="text/event-stream",
        problems=_READ,
    )
    async def stream_events(self, caller: Caller, query: FeedQuery, headers: FeedHeaders) -> Streamed:
        """Events as server-sent events, resumed after `Last-Event-ID` or for a `reader`."""
        return await self._stream(query, headers, _EVENTS)

    @_for_all("GET", "/v1/readers/{name}", name="getReader", tag="events", scope="read", problems=_READ)
    async def get_reader(self, caller: Caller, name: _ReaderInPath) -> ReaderAnswer:
        """How far a reader of streams is in the feed of each session."""
        return ReaderAnswer(reader=name, places=(await self._service.follow(FeedFilter(), reader=name)).places)

    @_for_all(
        "PUT",
        "/v1/readers/{name}",
        name="setReader",
        tag="events",
        scope="send",
        is_traffic=True,
        example={"places": {"5f0c": 17}},
        problems=(409, 413, 422, 503),
        body_bytes_max=_PLACES_BYTES,
    )
    async def set_reader(self, caller: Caller, name: _ReaderInPath, body: ReaderBody) -> ReaderAnswer:
        """What a reader has had, for one that says so itself. A place never goes back."""
        follower = await self._service.follow(FeedFilter(), reader=name)
        follower.places = {session_id: number for session_id, number in body.places.items() if number > 0}
        await follower.confirm()
        return await self.get_reader(caller, name)

    @_for_all(
        "DELETE",
        "/v1/readers/{name}",
        name="forgetReader",
        tag="events",
        scope="admin",
        problems=(404, 409, 422, 503),
    )
    async def forget_reader(self, caller: Caller, name: _NameInPath) -> None:
        """Forget how far a reader of streams is: under this name everything that is kept is told again."""
        found = [await self._service.archive.remove_reader(one) for one in (name, events_reader(name))]
        if not any(found):
            raise NotFound(code="unknown_reader", detail="No reader of this name has a place here.")

    # ---- the log ----

    @_for_all("GET", "/v1/logs", name="listLogs", tag="logs", scope="read", problems=_READ)
    async def list_logs(self, caller: Caller, query: LogsQuery) -> LogsAnswer:
        """Peik's own log, where it is kept in the archive; the newest first."""
        found, following = await self._service.archive.logs(query.wanted(), cursor=query.cursor, limit=query.limit)
        return LogsAnswer(logs=[LogLineAnswer.of(one) for one in found], next=following)


def events_reader(name: str) -> str:
    """Who reads both streams under one name has two places: one stream goes past what the other has to tell."""
    return name + EVENTS_READER


async def _pieces(first: ExportPart, parts: AsyncGenerator[ExportPart, None]) -> AsyncGenerator[bytes, None]:
    """A page in pieces of which a slow client takes each in time. The next one is asked for when this one is gone."""
    from peik.web.responses import CHUNK_BYTES

    async with aclosing(parts):
        part: ExportPart | None = first
        while part is not None:
            for start in range(0, len(part.data), CHUNK_BYTES):
                yield part.data[start : start + CHUNK_BYTES]
            part = await anext(parts, None)


# How the archive of accounts stands, for /health: bots need none, so that one that is away is told and fails nothing.


_KINDS = {"postgres": "postgresql", "mongodb+srv": "mongodb"}
_BEHIND_ALL = "~" * 64  # after every id there is: the question costs one look into an index


def archive_kind(config: Config) -> str:
    """sqlite, postgresql or mongodb. Without a name it lies beside the store."""
    scheme = (config.archive or config.store).partition("://")[0]
    return _KINDS.get(scheme, scheme)


class ArchiveHealth:
    """An archive on a server is asked, about once a second at most; of a file, the last commit tells."""

    def __init__(self, config: Config, sessions: "AccountService", clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock
        self._kind = archive_kind(config)
        self._has_redis = config.store_kind is StoreKind.REDIS
        self._turn = asyncio.Lock()
        self._asked_at: float | None = None
        self._why: str | None = None

    async def parts(self, store: dict[str, object]) -> dict[str, object]:
        """The parts of /health that are there with accounts. `store` is that of the store, whose Redis is the cache."""
        why = self._sessions.trouble() or await self._asked()
        parts: dict[str, object] = {
            "archive": {"status": "ok" if why is None else "away", "kind": self._kind, "why": why},
        }
        lost, count = self._sessions.unconnected(), len(self._sessions.running())
        parts["accounts"] = {
            "status": "failing" if lost else "ok",
            "kind": "telegram",
            "why": f"{len(lost)} of the {count} accounts that run here are not connected." if lost else None,
        }
        if self._has_redis:
            parts["cache"] = {"status": store["status"], "kind": "redis", "why": store["why"]}
        return parts

    async def _asked(self) -> str | None:
        if self._kind == "sqlite":
            return None
        async with self._turn:
            if self._asked_at is None or self._clock.mono() - self._asked_at >= FRESH_S:
                self._why = await self._ask()
                self._asked_at = self._clock.mono()
        return self._why

    async def _ask(self) -> str | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._sessions.archive.sessions(SessionFilter(), after=_BEHIND_ALL, limit=1)
        except TimeoutError:
            return "The archive does not answer."
        except Unavailable as error:
            return error.detail
        return None
