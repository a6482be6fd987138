"""REST: what accounts saw. Messages, events and the log; lists, counts, exports, streams."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.archive.exporting import Form, Part, export_messages
from peik.archive_ports import LineKind, LogLine
from peik.core.key import Scope
from peik.doors.access import Access
from peik.doors.archive_queries import (
    EVENTS_READER,
    PAGE_NAMES,
    check_reader,
    read_agent,
    read_cursor,
    read_event_filter,
    read_log_filter,
    read_message_filter,
    read_page,
    read_wanted,
)
from peik.doors.bodies import decode, read_body
from peik.doors.flowing import CHUNK_BYTES, Flow
from peik.doors.queries import whole_number
from peik.doors.replies import Route, json_response
from peik.doors.rest_sessions import admitted
from peik.doors.session_sse import NUMBER_MAX, session_stream
from peik.errors import BadInput, NotFound
from peik.sessions.following import Follower, Wanted
from peik.sessions.shown import event_view, message_view
from peik.shown import rfc3339

if TYPE_CHECKING:
    from peik.sessions.desk import SessionsDesk

EXPORT_PAGE = 200  # with all that Telegram told of each: nobody else is served while a page is put into words
EXPORT_STALL_S = 60.0  # a client that takes nothing for so long has gone
_SMALL_BODY = 64 * 1024
_PLACES_BYTES = 1024 * 1024
_MESSAGES = frozenset({LineKind.MESSAGE, LineKind.EDITED, LineKind.DELETED})
_EVENTS = frozenset({LineKind.EVENT})
_MEDIA_TYPES = {Form.JSONL: "application/jsonl", Form.CSV: "text/csv; charset=utf-8"}


class ForgetBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/messages/forget`: whose messages, events and private chats."""

    user_id: int | str


class ReaderBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PUT /v1/readers/{name}`: up to which line it has had each session."""

    places: dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]]


class MessageRoutes:
    def __init__(self, sessions: "SessionsDesk | None", access: Access) -> None:
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
        form = _form(request.query_params.get("format", Form.JSONL))
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
        return _places(name, await desk.follow(Wanted(), reader=name))

    async def set_reader(self, request: Request) -> Response:
        """What a reader has had, for one that says so itself. A place never goes back."""
        desk = self._desk(request, "send")
        name = check_reader(request.path_params["name"])
        body = decode(ReaderBody, await read_body(request, bytes_max=_PLACES_BYTES))
        follower = await desk.follow(Wanted(), reader=name)
        follower.places = {session_id: number for session_id, number in body.places.items() if number > 0}
        await follower.confirm()
        return _places(name, await desk.follow(Wanted(), reader=name))

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

    def _desk(self, request: Request, scope: Scope) -> "SessionsDesk":
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


async def _pieces(first: Part, parts: AsyncGenerator[Part, None]) -> AsyncGenerator[bytes, None]:
    """A page in pieces of which a slow client takes each in time. The next one is asked for when this one is gone."""
    async with aclosing(parts):
        part: Part | None = first
        while part is not None:
            for start in range(0, len(part.data), CHUNK_BYTES):
                yield part.data[start : start + CHUNK_BYTES]
            part = await anext(parts, None)


def _form(text: str) -> Form:
    try:
        return Form(text)
    except ValueError:
        raise BadInput(code="bad_format", detail=f"format is one of {', '.join(Form)}.") from None


def _name(text: str, name: str) -> str:
    """What every database can be asked with."""
    if not 0 < len(text) <= 200 or "\x00" in text:
        raise BadInput(code=f"bad_{name}", detail=f"{name} has 1 to 200 characters.")
    return text
