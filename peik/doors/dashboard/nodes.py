"""Pages: nodes. Who serves which bots, and asking one to let its bots go."""

from starlette.requests import Request
from starlette.responses import Response

from peik.app import Office
from peik.core.role import Role
from peik.doors.dashboard.board import Board, Page, Visitor
from peik.doors.dashboard.reach import must_see_all
from peik.doors.node_views import Nodes
from peik.node_ports import CHORES


def nodes_of(peik: Office) -> Nodes:
    return Nodes(
        peik.config,
        peik.store.nodes,
        clock=peik.clock,
        bot_ids=lambda: [bot.bot_id for bot in peik.desk.bots()],
        is_whole=lambda: peik.leases.is_whole,
    )


class NodePages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._store = board.peik.store.nodes
        self._nodes = nodes_of(board.peik)

    def table(self) -> tuple[Page, ...]:
        return (
            ("GET", "/admin/nodes", self.show, Role.VIEWER, ""),
            ("POST", "/admin/nodes/{name}/drain", self.drain, Role.ADMIN, "nodes.drain"),
            ("POST", "/admin/nodes/{name}/resume", self.resume, Role.ADMIN, "nodes.resume"),
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        return self._board.page(
            request,
            visitor,
            "nodes.html",
            nodes=await self._nodes.known(),
            own=self._store.node,
            chores=CHORES,
            lease_s=self._store.lease_s,
            store=self._board.peik.config.store_kind,
        )

    async def drain(self, request: Request, visitor: Visitor) -> Response:
        return await self._drain(request, visitor, is_draining=True)

    async def resume(self, request: Request, visitor: Visitor) -> Response:
        return await self._drain(request, visitor, is_draining=False)

    async def _drain(self, request: Request, visitor: Visitor, *, is_draining: bool) -> Response:
        must_see_all(visitor)
        node = await self._nodes.drain(request.path_params["name"], is_draining=is_draining)
        said = "nodes_draining" if is_draining else "nodes_resumed"
        return self._board.back(request, visitor, "/admin/nodes", said=said, name=node.name)
