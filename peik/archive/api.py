"""REST: what accounts saw. Messages, events and the log; lists, counts, exports, streams."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.accounts import feeds
from peik.accounts.answers import event_view, message_view
from peik.accounts.api import TEXT, WHOLE, admitted
from peik.accounts.feeds import FeedFilter, Follower
from peik.accounts.stream import NUMBER_MAX, session_stream
from peik.admin.model import Scope
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
from peik.web.access import Access
from peik.web.bodies import read_body, read_limit
from peik.web.openapi import (
    LIMIT_MAX,
    SECONDS,
    TIME,
    WORD,
    WORD_CHARS_MAX,
    Json,
    OperationRow,
    in_path,
    in_query,
    nullable,
    shape,
)
from peik.web.parse import decode, instant_ms, whole_number
from peik.web.responses import CHUNK_BYTES, Flow, Route, json_response

# Query strings about the archive: which messages, events and lines of the log. Read strictly.


LIMIT_DEFAULT = 100
CURSOR_CHARS_MAX = 64
PAGE_NAMES = ("cursor", "limit")
MESSAGE_FILTERS = (
    "session_id", "agent_id", "chat_id", "direction", "sender_id", "kind", "since", "until", "text", "deleted",
)  # fmt: skip
EVENT_FILTERS = ("session_id", "agent_id", "event_type", "chat_id", "since", "until")
LOG_FILTERS = ("level", "event", "session_id", "bot_id", "since", "until", "text")
STREAM_FILTERS = ("session_id", "agent_id", "chat_id", "reader", "kinds")
EVENTS_READER = "/events"  # is put behind the name of a reader of events
READER_CHARS_MAX = feeds.READER_CHARS_MAX - len(EVENTS_READER)

# What a query of one database could not even be asked with; others would find nothing.
_UNASKABLE = re.compile("[\x00\ud800-\udfff]")


def read_message_filter(request: Request, *, also: tuple[str, ...] = PAGE_NAMES) -> MessageFilter:
    given = _given(request, MESSAGE_FILTERS, also)
    return MessageFilter(
        session_id=given.get("session_id"),
        agent_id=given.get("agent_id"),
        chat_id=_number(given, "chat_id"),
        direction=_direction(given.get("direction")),
        sender_id=_number(given, "sender_id"),
        kind=given.get("kind"),
        since_ms=_moment(given, "since"),
        until_ms=_moment(given, "until"),
        text=given.get("text"),
        is_deleted=_flag(given, "deleted"),
    )


def read_event_filter(request: Request) -> EventFilter:
    given = _given(request, EVENT_FILTERS, PAGE_NAMES)
    return EventFilter(
        session_id=given.get("session_id"),
        agent_id=given.get("agent_id"),
        event_type=given.get("event_type"),
        chat_id=_number(given, "chat_id"),
        since_ms=_moment(given, "since"),
        until_ms=_moment(given, "until"),
    )


def read_log_filter(request: Request) -> LogFilter:
    given = _given(request, LOG_FILTERS, PAGE_NAMES)
    level = given.get("level")
    if level is not None and level not in LOG_LEVELS:
        raise BadInput(
            code="bad_level", detail=f"level is one of {', '.join(LOG_LEVELS)}: this one and worse are shown."
        )
    return LogFilter(
        level=level,
        event=given.get("event"),
        session_id=given.get("session_id"),
        bot_id=_number(given, "bot_id"),
        since_ms=_moment(given, "since"),
        until_ms=_moment(given, "until"),
        text=given.get("text"),
    )


def read_wanted(request: Request, kinds: frozenset[LineKind]) -> tuple[FeedFilter, str | None]:
    """Which lines a stream is to tell, and to whom: the name of its reader."""
    given = _given(request, STREAM_FILTERS, ())
    wanted = FeedFilter(
        session_id=given.get("session_id"),
        agent_id=given.get("agent_id"),
        chat_id=_number(given, "chat_id"),
        kinds=_kinds(given["kinds"]) if "kinds" in given else kinds,
    )
    reader = given.get("reader")
    return wanted, None if reader is None else check_reader(reader)


def check_reader(name: str) -> str:
    if not (0 < len(name) <= READER_CHARS_MAX and name.isprintable() and "/" not in name):
        detail = f"A reader has a name of 1 to {READER_CHARS_MAX} characters, on one line and without a slash."
        raise BadInput(code="bad_reader", detail=detail)
    return name


def _kinds(text: str) -> frozenset[LineKind]:
    try:
        return frozenset(LineKind(name) for name in text.split(","))
    except ValueError:
        raise BadInput(code="bad_kinds", detail=f"kinds are {', '.join(LineKind)}, with commas between.") from None


def read_agent(request: Request) -> str | None:
    return _given(request, ("agent_id",), ()).get("agent_id")


def read_page(request: Request) -> tuple[str | None, int]:
    """Where it begins, and how many."""
    return read_cursor(request), read_limit(request) if "limit" in request.query_params else LIMIT_DEFAULT


def read_cursor(request: Request) -> str | None:
    cursor = request.query_params.get("cursor")
    if cursor is not None and len(cursor) > CURSOR_CHARS_MAX:
        raise BadInput(code="bad_cursor", detail="The cursor is not one of ours. Begin again without it.")
    return cursor


def _given(request: Request, filters: tuple[str, ...], also: tuple[str, ...]) -> dict[str, str]:
    """An unknown name is refused: a mistyped filter must not mean "everything"."""
    query = request.query_params
    unknown = set(query) - {*filters, *also}
    if unknown:
        known = ", ".join((*filters, *also)) or "none"
        raise BadInput(
            code="unknown_filter", detail=f"There is no filter {', '.join(sorted(unknown))}. There are: {known}."
        )
    given = {name: query[name] for name in filters if name in query}
    for name, value in given.items():
        if not 0 < len(value) <= WORD_CHARS_MAX or _UNASKABLE.search(value):
            raise BadInput(code="bad_filter", detail=f"{name} has 1 to {WORD_CHARS_MAX} characters.")
    return given


def _number(given: dict[str, str], name: str) -> int | None:
    return None if name not in given else whole_number(given[name], name)


def _moment(given: dict[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return instant_ms(float(text), name)
    except ValueError:
        return instant_ms(text, name)


def _flag(given: dict[str, str], name: str) -> bool | None:
    text = given.get(name)
    if text not in (None, "true", "false"):
        raise BadInput(code=f"bad_{name}", detail=f"{name} is true or false.")
    return None if text is None else text == "true"


def _direction(text: str | None) -> Direction | None:
    if text is None:
        return None
    try:
        return Direction(text)
    except ValueError:
        raise BadInput(code="bad_direction", detail=f"direction is one of {', '.join(Direction)}.") from None


if TYPE_CHECKING:
    from peik.accounts.service import AccountService

EXPORT_PAGE = 200  # with all that Telegram told of each: nobody else is served while a page is put into words
EXPORT_STALL_S = 60.0  # a client that takes nothing for so long has gone
_SMALL_BODY = 64 * 1024
_PLACES_BYTES = 1024 * 1024
_MESSAGES = frozenset({LineKind.MESSAGE, LineKind.EDITED, LineKind.DELETED})
_EVENTS = frozenset({LineKind.EVENT})
_MEDIA_TYPES = {ExportFormat.JSONL: "application/jsonl", ExportFormat.CSV: "text/csv; charset=utf-8"}


class ForgetBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/messages/forget`: whose messages, events and private chats."""

    user_id: int | str


class ReaderBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PUT /v1/readers/{name}`: up to which line it has had each session."""

    places: dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]]


class MessageRoutes:
    def __init__(self, sessions: "AccountService | None", access: Access) -> None:
        self._sessions = sessions
        self._access = access

    def table(self) -> tuple[Route, ...]:
        one = "/v1/messages/{session_id}/{chat_id}/{message_id}"
        return (
            ("GET", "/v1/messages", self.list_messages, "listMessages", "messages"),
            ("GET", "/v1/messages/count", self.count_messages, "countMessages", "messages"),
            ("GET", "/v1/messages/export", self.export, "exportMessages", "messages"),
            ("GET", "/v1/messages/stream", self.stream_messages, "streamMessages", "messages"),
            ("GET", "/v1/messages/stats", self.get_stats, "getArchiveStats", "messages"),
            ("POST", "/v1/messages/forget", self.forget, "forgetPerson", "messages"),
            ("GET", one, self.get_message, "getMessage", "messages"),
            ("GET", "/v1/events", self.list_events, "listEvents", "events"),
            ("GET", "/v1/events/stream", self.stream_events, "streamEvents", "events"),
            ("GET", "/v1/readers/{name}", self.get_reader, "getReader", "events"),
            ("PUT", "/v1/readers/{name}", self.set_reader, "setReader", "events"),
            ("DELETE", "/v1/readers/{name}", self.forget_reader, "forgetReader", "events"),
            ("GET", "/v1/logs", self.list_logs, "listLogs", "logs"),
        )

    # ---- messages ----

    async def list_messages(self, request: Request) -> Response:
        """Messages by account, chat, sender, time, kind or whole words; the newest first."""
        desk = self._desk(request, "read")
        wanted = read_message_filter(request)
        cursor, limit = read_page(request)
        found, following = await desk.messages(wanted, cursor=cursor, limit=limit)
        return json_response({"messages": [message_view(one) for one in found], "next": following})

    async def count_messages(self, request: Request) -> Response:
        """How many messages a list of the same filter has in all."""
        desk = self._desk(request, "read")
        return json_response({"count": await desk.count_messages(read_message_filter(request, also=()))})

    async def get_message(self, request: Request) -> Response:
        """One message with everything that Telegram told of it, and all of its versions, the oldest first."""
        desk = self._desk(request, "read")
        path = request.path_params
        versions = await desk.versions(
            _name(path["session_id"], "session_id"),
            whole_number(path["chat_id"], "chat_id"),
            whole_number(path["message_id"], "message_id"),
        )
        views = [message_view(one, has_raw=True) for one in versions]
        return json_response({**views[-1], "versions": views})

    async def get_stats(self, request: Request) -> Response:
        """How much is archived, in all or of one agent."""
        desk = self._desk(request, "read")
        return json_response(await desk.tally(read_agent(request)))

    async def forget(self, request: Request) -> Response:
        """Remove for good what a person wrote and did, in the archives of all accounts: how much it was, by kind."""
        desk = self._desk(request, "admin")
        body = decode(ForgetBody, await read_body(request, bytes_max=_SMALL_BODY))
        removed = await desk.forget_person(whole_number(str(body.user_id), "user_id"))
        return json_response({"removed": dict(removed)})

    async def export(self, request: Request) -> Response:
        """Messages of a filter as JSON Lines or CSV, the newest first. An answer that breaks off is not the whole.

        With `limit` only so many, and the header `Peik-Next-Cursor` says where it goes on."""
        desk = self._desk(request, "read")
        wanted = read_message_filter(request, also=("format", *PAGE_NAMES))
        form = _form(request.query_params.get("format", ExportFormat.JSONL))
        if "limit" in request.query_params:  # one page, for whoever wants to go on later
            cursor, limit = read_page(request)
            page = await anext(export_messages(desk, wanted, form=form, cursor=cursor, page=limit))
            following = {} if page.cursor is None else {"Peik-Next-Cursor": page.cursor}
            headers = {"Cache-Control": "no-store", **following}
            return Response(page.data, headers=headers, media_type=_MEDIA_TYPES[form])
        parts = export_messages(desk, wanted, form=form, cursor=read_cursor(request), page=EXPORT_PAGE)
        first = await anext(parts)  # what is wrong is said while it can be
        return Flow(
            _pieces(first, parts),
            media_type=_MEDIA_TYPES[form],
            headers={"Content-Disposition": f'attachment; filename="messages.{form}"', "Cache-Control": "no-store"},
            stall_s=EXPORT_STALL_S,
        )

    async def stream_messages(self, request: Request) -> Response:
        """Messages as server-sent events (message, edited, deleted), resumed after `Last-Event-ID` or for a `reader`."""
        return await self._stream(request, _MESSAGES)

    # ---- events ----

    async def list_events(self, request: Request) -> Response:
        """What else accounts saw: who joined, left, read or reacted; the newest first."""
        desk = self._desk(request, "read")
        wanted = read_event_filter(request)
        cursor, limit = read_page(request)
        found, following = await desk.events(wanted, cursor=cursor, limit=limit)
        return json_response({"events": [event_view(one) for one in found], "next": following})

    async def stream_events(self, request: Request) -> Response:
        """Events as server-sent events, resumed after `Last-Event-ID` or for a `reader`."""
        return await self._stream(request, _EVENTS)

    async def _stream(self, request: Request, kinds: frozenset[LineKind]) -> Response:
        desk = self._desk(request, "read")
        wanted, reader = read_wanted(request, kinds)
        if reader is not None and wanted.kinds == _EVENTS:
            reader = events_reader(reader)
        last_id = request.headers.get("last-event-id", "").strip() or None
        return await session_stream(desk, wanted, last_id=last_id, reader=reader)

    async def get_reader(self, request: Request) -> Response:
        """How far a reader of streams is in the feed of each session."""
        desk = self._desk(request, "read")
        name = check_reader(request.path_params["name"])
        return _places(name, await desk.follow(FeedFilter(), reader=name))

    async def set_reader(self, request: Request) -> Response:
        """What a reader has had, for one that says so itself. A place never goes back."""
        desk = self._desk(request, "send")
        name = check_reader(request.path_params["name"])
        body = decode(ReaderBody, await read_body(request, bytes_max=_PLACES_BYTES))
        follower = await desk.follow(FeedFilter(), reader=name)
        follower.places = {session_id: number for session_id, number in body.places.items() if number > 0}
        await follower.confirm()
        return _places(name, await desk.follow(FeedFilter(), reader=name))

    async def forget_reader(self, request: Request) -> Response:
        """Forget how far a reader of streams is: under this name everything that is kept is told again."""
        desk = self._desk(request, "admin")
        name = _name(request.path_params["name"], "name")
        found = [await desk.forget_reader(one) for one in (name, events_reader(name))]
        if not any(found):
            raise NotFound(code="unknown_reader", detail="No reader of this name has a place here.")
        return Response(status_code=204)

    # ---- the log ----

    async def list_logs(self, request: Request) -> Response:
        """Peik's own log, where it is kept in the archive; the newest first."""
        desk = self._desk(request, "read")
        wanted = read_log_filter(request)
        cursor, limit = read_page(request)
        found, following = await desk.logs(wanted, cursor=cursor, limit=limit)
        return json_response({"logs": [log_view(one) for one in found], "next": following})

    # ---- ----

    def _desk(self, request: Request, scope: Scope) -> "AccountService":
        return admitted(self._access, request, scope, self._sessions)


def events_reader(name: str) -> str:
    """Who reads both streams under one name has two places: one stream goes past what the other has to tell."""
    return name + EVENTS_READER


def _places(name: str, follower: Follower) -> Response:
    return json_response({"reader": name, "places": follower.places})


def log_view(line: LogLine) -> dict[str, object]:
    return {
        "at": rfc3339(line.at_ms),
        "level": line.level,
        "event": line.event,
        "node": line.node,
        "session_id": line.session_id,
        "bot_id": None if line.bot_id is None else str(line.bot_id),
        "fields": msgspec.Raw(line.fields.encode()),
    }


async def _pieces(first: ExportPart, parts: AsyncGenerator[ExportPart, None]) -> AsyncGenerator[bytes, None]:
    """A page in pieces of which a slow client takes each in time. The next one is asked for when this one is gone."""
    async with aclosing(parts):
        part: ExportPart | None = first
        while part is not None:
            for start in range(0, len(part.data), CHUNK_BYTES):
                yield part.data[start : start + CHUNK_BYTES]
            part = await anext(parts, None)


def _form(text: str) -> ExportFormat:
    try:
        return ExportFormat(text)
    except ValueError:
        raise BadInput(code="bad_format", detail=f"format is one of {', '.join(ExportFormat)}.") from None


def _name(text: str, name: str) -> str:
    """What every database can be asked with."""
    if not 0 < len(text) <= 200 or "\x00" in text:
        raise BadInput(code=f"bad_{name}", detail=f"{name} has 1 to 200 characters.")
    return text


# The archive's part of the OpenAPI document: messages, events, the log, and the streams of them.


_NUMBER: Json = {"type": "string", "pattern": "^-?[0-9]{1,18}$"}
_MOMENT: Json = {"anyOf": [TIME, SECONDS | {"exclusiveMaximum": 1e11}]}
_NEXT = nullable(TEXT) | {"description": "The cursor of the next page; null at the end."}
_MESSAGE: Json = {
    "session_id": TEXT,
    "agent_id": TEXT,
    "chat_id": TEXT | {"description": "As the Bot API writes it: groups negative, channels and supergroups -100…"},
    "message_id": TEXT,
    "direction": {"type": "string", "enum": [str(direction) for direction in Direction]},
    "sender_id": nullable(TEXT),
    "date": TIME,
    "edited_at": nullable(TIME),
    "deleted_at": nullable(TIME),
    "kind": TEXT | {"description": "text, photo, video, voice, document, service, …"},
    "text": TEXT,
    "reply_to": nullable(TEXT),
    "grouped_id": nullable(TEXT),
    "media": nullable({"type": "object"}),
    "letter_id": nullable(TEXT) | {"description": "The letter that sent it."},
    "created_at": TIME | {"description": "When it was archived."},
}
_WHOLE_MESSAGE: Json = {**_MESSAGE, "raw": {"description": "The whole of it as Telegram told it."}}

MESSAGE_SCHEMAS: Json = {
    "Message": shape(
        **_WHOLE_MESSAGE,
        versions={"type": "array", "items": shape(**_WHOLE_MESSAGE), "description": "The oldest first."},
    ),
    "Messages": shape(messages={"type": "array", "items": shape(**_MESSAGE)}, next=_NEXT),
    "MessageCount": shape(count=WHOLE),
    "MessageExport": {"type": "string", "description": "One message per line, or as rows below a head."},
    "Forgotten": shape(removed={"type": "object", "additionalProperties": WHOLE}),
    "Reader": shape(reader=TEXT, places={"type": "object", "additionalProperties": WHOLE}),
    "ArchiveStats": shape(sessions=WHOLE, messages=WHOLE, versions=WHOLE, events=WHOLE),
    "Happenings": shape(
        events={
            "type": "array",
            "items": shape(
                event_id=TEXT,
                session_id=TEXT,
                agent_id=TEXT,
                event_type=TEXT | {"description": "joined, left, read, reaction, online, state, …"},
                chat_id=nullable(TEXT),
                user_id=nullable(TEXT),
                payload={"type": "object"},
                created_at=TIME,
            ),
        },
        next=_NEXT,
    ),
    "Logs": shape(
        logs={
            "type": "array",
            "items": shape(
                at=TIME,
                level={"type": "string", "enum": list(LOG_LEVELS)},
                event=TEXT,
                node=TEXT,
                session_id=nullable(TEXT),
                bot_id=nullable(TEXT),
                fields={"type": "object"},
            ),
        },
        next=_NEXT,
    ),
    "Lines": {
        "type": "string",
        "description": f"One event per line of a feed ({', '.join(LineKind)}), with the place behind it as id.",
    },
}

_CURSOR = in_query(
    "cursor", {"type": "string", "minLength": 1, "maxLength": CURSOR_CHARS_MAX}, "The next of the page before."
)
_LIMIT = in_query(
    "limit", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}, "How many."
)
_SESSION = in_query("session_id", WORD, "What this session saw.")
_AGENT = in_query("agent_id", WORD, "What sessions of this agent saw.")
_CHAT = in_query("chat_id", _NUMBER, "In this chat.")
_SPAN = (
    in_query("since", _MOMENT, "Then or later; RFC 3339 or Unix seconds."),
    in_query("until", _MOMENT, "Before then."),
)
_MESSAGES_SHAPE = (
    _SESSION,
    _AGENT,
    _CHAT,
    in_query("direction", {"type": "string", "enum": [str(direction) for direction in Direction]}, "To it, or by it."),
    in_query("sender_id", _NUMBER, "Who wrote it."),
    in_query("kind", WORD, "text, photo, video, …"),
    *_SPAN,
    in_query("text", WORD, "Whole words, in any order and case."),
    in_query("deleted", {"type": "string", "enum": ["true", "false"]}, "Deleted at Telegram, or not."),
)
_STREAM = OperationRow(
    answers={200: "Lines"},
    parameters=(
        _SESSION,
        _AGENT,
        _CHAT,
        in_query("kinds", WORD, "Which of message, edited, deleted and event, with commas between."),
        in_query("reader", WORD, "A name under which the archive keeps how far this reader is."),
        {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "pattern": "^[!-~]*$"},  # empty as if it were not there
            "description": "The last id that was had: it goes on behind it.",
        },
    ),
    problems=(409, 422, 503),
    media_type="text/event-stream",
)
_READ = (409, 422, 503)

MESSAGE_OPERATIONS: dict[str, OperationRow] = {
    "listMessages": OperationRow(
        answers={200: "Messages"}, parameters=(*_MESSAGES_SHAPE, _CURSOR, _LIMIT), problems=_READ
    ),
    "countMessages": OperationRow(answers={200: "MessageCount"}, parameters=_MESSAGES_SHAPE, problems=_READ),
    "exportMessages": OperationRow(
        answers={200: "MessageExport"},
        parameters=(
            in_query(
                "format", {"type": "string", "enum": [str(form) for form in ExportFormat]}, "JSON Lines if not given."
            ),
            *_MESSAGES_SHAPE,
            _CURSOR,
            _LIMIT,
        ),
        problems=_READ,
        media_type="application/jsonl",
        other_media_types=("text/csv",),
    ),
    "streamMessages": _STREAM,
    "getArchiveStats": OperationRow(answers={200: "ArchiveStats"}, parameters=(_AGENT,), problems=_READ),
    "forgetPerson": OperationRow(
        answers={200: "Forgotten"}, body=ForgetBody, example={"user_id": "123456789"}, problems=(409, 413, 422, 503)
    ),
    "getMessage": OperationRow(
        answers={200: "Message"},
        parameters=(in_path("session_id", WORD), in_path("chat_id", _NUMBER), in_path("message_id", _NUMBER)),
        problems=(404, 409, 422, 503),
    ),
    "listEvents": OperationRow(
        answers={200: "Happenings"},
        parameters=(
            _SESSION,
            _AGENT,
            in_query("event_type", WORD, "joined, left, read, …"),
            _CHAT,
            *_SPAN,
            _CURSOR,
            _LIMIT,
        ),
        problems=_READ,
    ),
    "streamEvents": _STREAM,
    "getReader": OperationRow(answers={200: "Reader"}, parameters=(in_path("name", WORD),), problems=_READ),
    "setReader": OperationRow(
        answers={200: "Reader"},
        parameters=(in_path("name", WORD),),
        body=ReaderBody,
        example={"places": {"5f0c": 17}},
        problems=(409, 413, 422, 503),
    ),
    "forgetReader": OperationRow(answers={204: ""}, parameters=(in_path("name", WORD),), problems=(404, 409, 422, 503)),
    "listLogs": OperationRow(
        answers={200: "Logs"},
        parameters=(
            in_query("level", {"type": "string", "enum": list(LOG_LEVELS)}, "This one and worse."),
            in_query("event", WORD, "The name of an event."),
            in_query("session_id", WORD, "About this session."),
            in_query("bot_id", _NUMBER, "About this bot or account."),
            *_SPAN,
            in_query("text", WORD, "Anywhere in the line."),
            _CURSOR,
            _LIMIT,
        ),
        problems=_READ,
    ),
}


# How the archive of accounts stands, for /health: bots need none, so that one that is away is told and fails nothing.


if TYPE_CHECKING:
    from peik.accounts.service import AccountService

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
                await self._sessions.sessions(SessionFilter(), after=_BEHIND_ALL, limit=1)
        except TimeoutError:
            return "The archive does not answer."
        except Unavailable as error:
            return error.detail
        return None
