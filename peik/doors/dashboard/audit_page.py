"""The page of the audit log: who did what to Peik, when, from where, and what came of it."""

from starlette.requests import Request
from starlette.responses import Response

from peik.core.role import Role
from peik.doors.dashboard.board import Board, Page, Visitor
from peik.doors.dashboard.fields import PAGE, Fields
from peik.doors.dashboard.reach import must_see_all

_FIELDS = ("who", "action", "since", "until")


class AuditPages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._audit = board.audit

    def table(self) -> tuple[Page, ...]:
        return (("GET", "/admin/audit", self.show, Role.ADMIN, ""),)

    async def show(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        fields = Fields.asked(request)
        found = await self._audit.find(
            who=fields.text("who"),
            action=fields.text("action"),
            since_ms=fields.instant_ms("since"),
            until_ms=fields.instant_ms("until"),
            cursor=fields.text("cursor"),
            limit=PAGE,
        )
        return self._board.page(
            request,
            visitor,
            "audit.html",
            lines=found.lines,
            cursor=found.cursor,
            asked={name: fields.text(name) or "" for name in _FIELDS},
            url=fields.address("/admin/audit", *_FIELDS),
        )
