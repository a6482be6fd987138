"""Pages: toys."""

from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.web.dashboard.board import Board, Page, Visitor


class ToyPages:
    def __init__(self, board: Board) -> None:
        self._board = board

    def table(self) -> tuple[Page, ...]:
        return (("GET", "/admin/toys", self.show, Role.VIEWER, ""),)

    async def show(self, request: Request, visitor: Visitor) -> Response:
        return self._board.page(request, visitor, "toys.html", count=self._board.peik.toys.count)
