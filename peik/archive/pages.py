"""Pages: what accounts saw. Messages with their versions, events, the log; exports; forgetting a person."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.accounts.pages import no_sessions, the_service
from peik.admin.model import Role
from peik.archive.export import ExportFormat, ExportPart, export_events, export_messages
from peik.archive.store import LOG_LEVELS, Direction, EventFilter, LogFilter, Message, MessageFilter
from peik.errors import BadInput
from peik.web.dashboard.board import Board, Page, Visitor
from peik.web.dashboard.fields import PAGE, Fields
from peik.web.parse import whole_number
from peik.web.responses import CHUNK_BYTES, Flow

# Files that a page gives to take away, written as they come: a cookie opens no REST, so the dashboard streams its
# own.


STALL_S = 60.0  # a browser that takes nothing for so long has gone
_MEDIA_TYPES = {ExportFormat.JSONL: "application/jsonl", ExportFormat.CSV: "text/csv; charset=utf-8"}


async def download(parts: AsyncGenerator[bytes, None], *, form: ExportFormat, name: str) -> Response:
    """What is wrong with the first part is raised here, while it can still be said. A file that breaks off is not the whole."""
    first = await anext(parts, b"")
    return Flow(
        _pieces(first, parts),
        media_type=_MEDIA_TYPES[form],
        headers={"Content-Disposition": f'attachment; filename="{name}.{form}"', "Cache-Control": "no-store"},
        stall_s=STALL_S,
    )


async def _pieces(first: bytes, parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """In pieces of which a slow reader takes each in time. The next part is made when this one is gone."""
    async with aclosing(parts):
        part: bytes | None = first
        while part is not None:
            for start in range(0, len(part), CHUNK_BYTES):
                yield part[start : start + CHUNK_BYTES]
            part = await anext(parts, None)


async def data_of(parts: AsyncGenerator[ExportPart, None]) -> AsyncGenerator[bytes, None]:
    """Of an export of the archive."""
    async with aclosing(parts):
        async for part in parts:
            yield part.data


def form_of(fields: Fields) -> ExportFormat:
    try:
        return ExportFormat(fields.text("format") or ExportFormat.JSONL)
    except ValueError:
        raise BadInput(code="bad_format", detail=f"format is one of {', '.join(ExportFormat)}.") from None


if TYPE_CHECKING:
    from peik.accounts.service import AccountService

MESSAGE_FIELDS = (
    "session_id", "agent_id", "chat_id", "direction", "sender_id", "kind", "since", "until", "text", "deleted",
)  # fmt: skip
EVENT_FIELDS = ("session_id", "agent_id", "event_type", "chat_id", "since", "until")
LOG_FIELDS = ("level", "event", "session_id", "bot_id", "since", "until", "text")
EXPORT_PAGE = 200  # with all that Telegram told of each: nobody else is served while a page is put into words


class ArchivePages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._sessions = board.peik.accounts

    def table(self) -> tuple[Page, ...]:
        return (
            ("GET", "/admin/archive", self.show_messages, Role.VIEWER, ""),
            ("GET", "/admin/archive/events", self.show_events, Role.VIEWER, ""),
            ("GET", "/admin/archive/logs", self.show_logs, Role.VIEWER, ""),
            ("GET", "/admin/archive/export", self.export, Role.VIEWER, ""),
            ("GET", "/admin/archive/events/export", self.export_events, Role.VIEWER, ""),
            ("POST", "/admin/archive/forget", self.forget, Role.ADMIN, "archive.forget"),
            (
                "GET",
                "/admin/archive/messages/{session_id}/{chat_id}/{message_id}",
                self.show_message,
                Role.VIEWER,
                "",
            ),
        )

    # ---- looking ----

    async def show_messages(self, request: Request, visitor: Visitor) -> Response:
        if self._sessions is None:
            return no_sessions(self._board, request, visitor)
        service, fields = self._service(visitor), Fields.asked(request)
        trouble, tally = service.trouble(), None
        found: list[Message] = []
        following = None
        if trouble is None:
            found, following = await service.archive.messages(
                _message_filter(fields), cursor=fields.text("cursor"), limit=PAGE
            )
            tally = await service.archive.tally()
        return self._board.page(
            request,
            visitor,
            "archive.html",
            messages=found,
            tally=tally,
            trouble=trouble,
            asked=_asked(fields, MESSAGE_FIELDS),
            directions=tuple(Direction),
            url=fields.address("/admin/archive", *MESSAGE_FIELDS),
            export_url=fields.address("/admin/archive/export", *MESSAGE_FIELDS),
            cursor=following,
        )

    async def show_message(self, request: Request, visitor: Visitor) -> Response:
        path = request.path_params
        versions = await self._service(visitor).versions(
            path["session_id"],
            whole_number(path["chat_id"], "chat_id"),
            whole_number(path["message_id"], "message_id"),
        )
        return self._board.page(
            request,
            visitor,
            "archive_message.html",
            message=versions[-1],
            versions=versions[::-1],
            raw=_read(versions[-1].raw),
            media=_read(versions[-1].media),
        )

    async def show_events(self, request: Request, visitor: Visitor) -> Response:
        if self._sessions is None:
            return no_sessions(self._board, request, visitor)
        fields = Fields.asked(request)
        found, following = await self._service(visitor).archive.events(
            _event_filter(fields), cursor=fields.text("cursor"), limit=PAGE
        )
        return self._board.page(
            request,
            visitor,
            "archive_events.html",
            events=[(one, _read(one.payload)) for one in found],
            asked=_asked(fields, EVENT_FIELDS),
            url=fields.address("/admin/archive/events", *EVENT_FIELDS),
            export_url=fields.address("/admin/archive/events/export", *EVENT_FIELDS),
            cursor=following,
        )

    async def show_logs(self, request: Request, visitor: Visitor) -> Response:
        if self._sessions is None:
            return no_sessions(self._board, request, visitor)
        fields = Fields.asked(request)
        wanted = LogFilter(
            level=fields.text("level"),
            event=fields.text("event"),
            session_id=fields.text("session_id"),
            bot_id=fields.whole("bot_id"),
            since_ms=fields.instant_ms("since"),
            until_ms=fields.instant_ms("until"),
            text=fields.text("text"),
        )
        found, following = await self._service(visitor).archive.logs(wanted, cursor=fields.text("cursor"), limit=PAGE)
        return self._board.page(
            request,
            visitor,
            "archive_logs.html",
            lines=[(one, _read(one.fields)) for one in found],
            is_kept=self._board.peik.config.log_in_archive,
            asked=_asked(fields, LOG_FIELDS),
            levels=LOG_LEVELS,
            url=fields.address("/admin/archive/logs", *LOG_FIELDS),
            cursor=following,
        )

    # ---- exports, forgetting ----

    async def export(self, request: Request, visitor: Visitor) -> Response:
        """The newest first. An answer that breaks off is not the whole."""
        service, fields = self._service(visitor), Fields.asked(request)
        form = form_of(fields)
        parts = export_messages(service.archive, _message_filter(fields), form=form, page=EXPORT_PAGE)
        return await download(data_of(parts), form=form, name="messages")

    async def export_events(self, request: Request, visitor: Visitor) -> Response:
        service, fields = self._service(visitor), Fields.asked(request)
        form = form_of(fields)
        parts = export_events(service.archive, _event_filter(fields), form=form, page=EXPORT_PAGE)
        return await download(data_of(parts), form=form, name="events")

    async def forget(self, request: Request, visitor: Visitor) -> Response:
        """Remove for good what a person wrote and did, in the archives of all accounts."""
        user_id = whole_number((await Fields.sent(request)).need("user_id"), "user_id")
        self._board.note(request, target=str(user_id))
        removed = await self._service(visitor).archive.forget_person(user_id)
        return self._board.back(
            request, visitor, "/admin/archive", said="archive_forgotten", user=user_id, count=sum(removed.values())
        )

    # ---- ----

    def _service(self, visitor: Visitor) -> "AccountService":
        return the_service(self._sessions, visitor)


def _asked(fields: Fields, names: tuple[str, ...]) -> dict[str, str]:
    return {name: fields.text(name) or "" for name in names}


def _message_filter(fields: Fields) -> MessageFilter:
    direction, deleted = fields.text("direction"), fields.text("deleted")
    if direction is not None and direction not in tuple(Direction):
        raise BadInput(code="bad_direction", detail=f"direction is one of {', '.join(Direction)}.")
    return MessageFilter(
        session_id=fields.text("session_id"),
        agent_id=fields.text("agent_id"),
        chat_id=fields.whole("chat_id"),
        direction=None if direction is None else Direction(direction),
        sender_id=fields.whole("sender_id"),
        kind=fields.text("kind"),
        since_ms=fields.instant_ms("since"),
        until_ms=fields.instant_ms("until"),
        text=fields.text("text"),
        is_deleted=None if deleted is None else deleted == "true",
    )


def _event_filter(fields: Fields) -> EventFilter:
    return EventFilter(
        session_id=fields.text("session_id"),
        agent_id=fields.text("agent_id"),
        event_type=fields.text("event_type"),
        chat_id=fields.whole("chat_id"),
        since_ms=fields.instant_ms("since"),
        until_ms=fields.instant_ms("until"),
    )


def _read(text: str | None) -> object:
    """JSON as values; a text that is none stays a text."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
